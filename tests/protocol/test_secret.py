"""One secret per run: derivation and keystream by other routes, labels that are never confused, and nothing that shows the key."""

from __future__ import annotations

import copy
import hashlib
import io
import pickle
import subprocess
import sys

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.protocol import SeededRandom, randomness
from croupier.protocol.randomness import KeyedRandom, Secret

exactly = settings(deadline=None, derandomize=True, max_examples=300)
KEY = bytes(range(32))
SECRET = Secret(KEY, private=True)
labels = st.lists(st.one_of(st.text(max_size=4), st.integers(-300, 300), st.binary(max_size=4)), max_size=4).map(tuple)


def framed(kind: bytes, content: bytes) -> bytes:
    return kind + len(content).to_bytes(8, "big") + content


def keystream(key: bytes, index: int, count: int) -> bytes:
    """ChaCha20 under the index-th key of a source, from `cryptography` and hashlib."""
    inner = hashlib.blake2b(index.to_bytes(8, "big"), key=key, digest_size=32, person=b"keystream").digest()
    return Cipher(algorithms.ChaCha20(inner, bytes(16)), mode=None).encryptor().update(bytes(count))


# --- derivation


def test_derive_is_keyed_blake2b_of_the_framed_labels():
    message = framed(b"s", b"round") + framed(b"i", b"-12") + framed(b"b", b"\x00\xff") + framed(b"s", "ü".encode())
    expected = hashlib.blake2b(message, key=KEY, digest_size=32, person=b"croupier").digest()
    assert SECRET.derive("round", -12, b"\x00\xff", "ü").key == expected
    assert SECRET.derive().key == hashlib.blake2b(key=KEY, digest_size=32, person=b"croupier").digest()


def test_derived_secrets_stay_what_they_were():
    """A run that was begun with an earlier version goes on with the same noise."""
    assert SECRET.derive("round", 1).key.hex()[:16] == "4ce7c66f4a2b21c4"
    assert SECRET.source().draw_bytes(8).tobytes().hex() == "8ef10625afcbeee5"


@pytest.mark.parametrize(
    ("some", "others"),
    [
        (("ab", "c"), ("a", "bc")),
        (("ab",), ("a", "b")),
        ((1,), ("1",)),
        ((1,), (b"1",)),
        (("1",), (b"1",)),
        (("a",), ("a", "")),
        ((), ("",)),
        (("",), (b"",)),
        ((12, 3), (1, 23)),
        ((True,), (b"True",)),
    ],
)
def test_labels_are_never_confused(some, others):
    assert SECRET.derive(*some).key != SECRET.derive(*others).key


@exactly
@given(labels, labels)
def test_distinct_labels_give_distinct_keys(some, others):
    same = [(type(label), label) for label in some] == [(type(label), label) for label in others]
    assert (SECRET.derive(*some).key == SECRET.derive(*others).key) == same


@exactly
@given(labels, labels)
def test_deriving_twice_is_not_deriving_once_with_all_labels(some, others):
    assert SECRET.derive(*some).derive(*others).key != SECRET.derive(*some, *others).key


def test_every_bit_of_the_key_matters():
    whole = int.from_bytes(KEY, "big")
    flipped = [(whole ^ (1 << bit)).to_bytes(32, "big") for bit in range(256)]
    assert len({Secret(key, private=True).derive("round").key for key in [KEY, *flipped]}) == 257


def test_what_is_derived_is_as_private_as_what_it_is_derived_from():
    assert SECRET.derive("a").private
    assert SECRET.derive("a").source().private
    assert not Secret(KEY, private=False).derive("a").private
    assert not Secret(KEY, private=False).source().private


# --- the stream


@pytest.mark.parametrize("count", [1, 64, 5000])
def test_the_stream_is_chacha20_under_the_derived_key_and_restarts(count):
    derived = SECRET.derive("block", 3)
    for _ in range(2):
        assert derived.source().draw_bytes(count).tobytes() == keystream(derived.key, 0, count)
    assert derived.source() is not derived.source()


def test_a_second_key_gives_other_bytes_than_the_first(monkeypatch):
    monkeypatch.setattr(randomness, "_BYTES_PER_KEY", 64)
    source = SECRET.source()
    drawn = [source.draw_bytes(64).tobytes() for _ in range(3)]
    assert drawn == [keystream(KEY, index, 64) for index in range(3)]
    assert len(set(drawn)) == 3


def test_keys_of_a_stream_are_no_derived_secrets():
    """The purpose is in the hash's personalisation: no label gives the key of a keystream."""
    inner = hashlib.blake2b((0).to_bytes(8, "big"), key=KEY, digest_size=32, person=b"keystream").digest()
    assert inner not in {SECRET.derive(label).key for label in (0, "0", bytes(8), b"")} | {SECRET.derive().key}


# --- where it comes from, and where it must not go


def test_fresh_secrets_are_private_and_differ():
    made = [Secret.fresh() for _ in range(100)]
    assert all(secret.private and len(secret.key) == 32 for secret in made)
    assert len({secret.key for secret in made}) == 100


def test_fresh_secrets_come_from_the_operating_system(monkeypatch):
    monkeypatch.setattr("os.urandom", lambda count: bytes([7] * count))
    assert Secret.fresh() == Secret(bytes([7] * 32), private=True)


def test_seeded_secrets_repeat_and_are_not_private():
    assert Secret.of_seed(5) == Secret.of_seed(np.int64(5))
    assert not Secret.of_seed(5).private
    assert len({Secret.of_seed(seed).key for seed in range(50)}) == 50
    assert Secret.of_seed(5).key == SeededRandom(5).draw_bytes(32).tobytes()


@pytest.mark.parametrize("secret", [SECRET, Secret(b"\xfe" * 32, private=False)], ids=["private", "seeded"])
def test_no_text_of_a_secret_shows_its_key(secret):
    shown = io.StringIO()
    print(secret, [secret], {"a": secret}, f"{secret!s} {secret!r}", file=shown)
    for hidden in (secret.key.hex(), repr(secret.key)[2:-1], str(list(secret.key)), secret.key.decode("latin-1")):
        assert hidden not in shown.getvalue()
    assert set(shown.getvalue().replace("NOT ", "")) <= set("Secret(private)'[]{}:a, \n")
    assert ("NOT" in repr(secret)) == (not secret.private)


@pytest.mark.process
def test_a_secret_is_the_same_in_another_process():
    assert pickle.loads(pickle.dumps(SECRET)) == SECRET
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer).derive('round', 1).source().draw_bytes(8).tobytes().hex())"
    told = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(SECRET), stdout=subprocess.PIPE, check=True, timeout=60)
    assert told.stdout.decode().strip() == SECRET.derive("round", 1).source().draw_bytes(8).tobytes().hex()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_keyed_source_cannot_be_copied_or_sent(copied):
    """Two with one place in the stream would draw the same noise for different sums."""
    with pytest.raises(TypeError, match="Send the Secret"):
        copied(KeyedRandom(KEY, private=True))


def test_a_keyed_source_cannot_be_called_private_afterwards():
    with pytest.raises(AttributeError):
        Secret.of_seed(1).source().private = True
