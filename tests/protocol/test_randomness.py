"""Keystreams: the right bytes, never the same bytes twice, and seeded ones marked as such."""

from __future__ import annotations

import copy
import ctypes
import hashlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from operator import methodcaller

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier import ArgumentError
from croupier.protocol import NotPrivateWarning, SecureRandom, SeededRandom, randomness
from croupier.protocol.randomness import RandomSource

exactly = settings(deadline=None, derandomize=True, max_examples=100)
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
# Python 3.12 and later warn of any fork with threads about; these tests fork on purpose, and the child leaves at once.
fork_warning = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def chacha20(key: bytes, count: int) -> bytes:
    return Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(count))


def seed_key(seed: int, index: int) -> bytes:
    return hashlib.sha256(f"croupier seed {seed} key {index}".encode()).digest()


def in_child(work: Callable[[], bytes], fork: Callable[[], int] | None = None) -> bytes:
    """What `work` returns in a forked process; the child is killed, and gives nothing, if it has not finished after 5 s."""
    reader, writer = os.pipe()
    child = (fork or os.fork)()
    if child == 0:
        try:
            signal.alarm(5)
            os.write(writer, work())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


# --- the bytes


@pytest.mark.parametrize("seed", [0, 1, 2**80])
def test_seeded_stream_is_chacha20(seed):
    assert SeededRandom(seed).draw_bytes(1000).tobytes() == chacha20(seed_key(seed, 0), 1000)


def test_seeded_stream_stays_what_it_was():
    """Published results rest on it."""
    assert SeededRandom(0).draw_bytes(16).tobytes().hex() == "727093745caa58b160f5034cd28a3984"


def test_secure_stream_is_chacha20_under_a_key_of_the_operating_system(monkeypatch):
    asked = []

    def urandom(count):
        asked.append(count)
        return bytes(range(count))

    monkeypatch.setattr(os, "urandom", urandom)
    assert SecureRandom().draw_bytes(100).tobytes() == chacha20(bytes(range(32)), 100)
    assert asked == [32]


@exactly
@given(st.lists(st.integers(0, 300), max_size=12))
def test_stream_does_not_depend_on_how_it_is_cut(sizes):
    source = SeededRandom(5)
    cut = b"".join(source.draw_bytes(size).tobytes() for size in sizes)
    assert cut == SeededRandom(5).draw_bytes(sum(sizes)).tobytes()


def test_long_draws_cross_the_inner_blocks():
    source = SeededRandom(6)
    lengths = [(1 << 20) - 1, (1 << 21) + 3, 1 << 20, 5]
    drawn = b"".join(source.draw_bytes(length).tobytes() for length in lengths)
    assert drawn == chacha20(seed_key(6, 0), sum(lengths))


@pytest.mark.parametrize("make", [SecureRandom, lambda: SeededRandom(1)], ids=["secure", "seeded"])
@pytest.mark.parametrize("count", [0, 1, 8])
def test_draws_are_writable_bytes(make, count):
    drawn = make().draw_bytes(count)
    assert drawn.shape == (count,)
    assert drawn.dtype == np.uint8
    assert drawn.flags.writeable
    assert drawn.flags.owndata


def test_bytes_look_uniform(law_of):
    """A smoke test only, at a false-alarm rate of 1e-6: that it is ChaCha20 is tested above."""
    law_of(SeededRandom(2).draw_bytes(200_000), np.full(256, 1 / 256))


def test_a_spent_key_is_replaced(monkeypatch):
    monkeypatch.setattr(randomness, "_BYTES_PER_KEY", 64)
    source = SeededRandom(3)
    drawn = [source.draw_bytes(count).tobytes() for count in (40, 24, 1, 40, 40)]
    first, second, third = (chacha20(seed_key(3, index), 64) for index in range(3))
    assert drawn == [first[:40], first[40:], second[:1], second[1:41], third[:40]]


def test_a_draw_longer_than_a_key_lasts_is_not_repeated(monkeypatch):
    monkeypatch.setattr(randomness, "_BYTES_PER_KEY", 64)
    source = SeededRandom(3)
    blocks = [source.draw_bytes(160).tobytes() for _ in range(3)]
    pieces = [block[start : start + 16] for block in blocks for start in range(0, 160, 16)]
    assert len(set(pieces)) == len(pieces)


def test_secure_keys_are_fresh_at_every_replacement(monkeypatch):
    monkeypatch.setattr(randomness, "_BYTES_PER_KEY", 16)
    source = SecureRandom()
    assert len({source.draw_bytes(16).tobytes() for _ in range(100)}) == 100


# --- no bytes twice


def test_seeds_and_objects_have_their_own_streams():
    sources = [SeededRandom(seed) for seed in range(20)] + [SecureRandom() for _ in range(20)]
    assert len({source.draw_bytes(16).tobytes() for source in sources}) == len(sources)
    assert SeededRandom(4).draw_bytes(16).tobytes() == SeededRandom(4).draw_bytes(16).tobytes()


@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda source: pickle.loads(pickle.dumps(source)), lambda source: copy.deepcopy([source])[0]],
    ids=["copy", "deepcopy", "pickle", "deepcopy of a holder"],
)
def test_a_copy_of_a_secure_source_starts_its_own_stream(duplicate):
    source = SecureRandom()
    source.draw_bytes(3)
    other = duplicate(source)
    assert isinstance(other, SecureRandom)
    ours, theirs = source.draw_bytes(4096).tobytes(), other.draw_bytes(4096).tobytes()
    blocks = [stream[start : start + 16] for stream in (ours, theirs) for start in range(0, 4096, 16)]
    assert len(set(blocks)) == len(blocks)


def test_pickled_secure_source_holds_no_key():
    source = SecureRandom()
    assert len(pickle.dumps(source)) < 100
    assert pickle.dumps(source) == pickle.dumps(SecureRandom())


@forks
@fork_warning
def test_forked_processes_start_their_own_streams():
    source = SecureRandom()
    source.draw_bytes(5)

    def children_then_own() -> bytes:
        return in_child(lambda: source.draw_bytes(32).tobytes()) + source.draw_bytes(32).tobytes()

    streams = in_child(children_then_own) + in_child(children_then_own) + source.draw_bytes(32).tobytes()
    pieces = {streams[start : start + 32] for start in range(0, len(streams), 32)}
    assert len(streams) == 5 * 32
    assert len(pieces) == 5


@forks
@fork_warning
def test_a_forked_process_with_its_parents_number_starts_its_own_stream(monkeypatch):
    """Process numbers are not unique: they are used again, and every container's first process is number 1."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    source = SecureRandom()
    source.draw_bytes(5)
    assert in_child(lambda: source.draw_bytes(32).tobytes()) != source.draw_bytes(32).tobytes()


@forks
def test_a_process_forked_behind_pythons_back_starts_its_own_stream():
    """Servers in C that embed Python (uWSGI by default) fork without Python's hooks: only the process number tells."""
    source = SecureRandom()
    source.draw_bytes(5)
    theirs = in_child(lambda: source.draw_bytes(32).tobytes(), ctypes.PyDLL(None).fork)
    assert len(theirs) == 32
    assert theirs != source.draw_bytes(32).tobytes()


@forks
@fork_warning
def test_fork_while_another_thread_draws(monkeypatch):
    """The child must not inherit a lock that nobody in it will ever release."""
    monkeypatch.setattr(randomness, "_BYTES_PER_KEY", 8)
    source = SecureRandom()
    source.draw_bytes(8)
    urandom, drawing, go_on = os.urandom, threading.Event(), threading.Event()

    def slow_urandom(count):
        if threading.current_thread() is not threading.main_thread():
            drawing.set()
            go_on.wait(0.5)  # not for ever: the fork may be made to wait for this draw
        return urandom(count)

    monkeypatch.setattr(os, "urandom", slow_urandom)
    thread = threading.Thread(target=source.draw_bytes, args=(8,))
    thread.start()
    drawing.wait()
    answer = in_child(lambda: source.draw_bytes(8).tobytes())
    go_on.set()
    thread.join()
    assert len(answer) == 8


def test_spawned_process_starts_its_own_stream():
    source = SecureRandom()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        theirs = [pool.apply(methodcaller("draw_bytes", 32), (source,)).tobytes() for _ in range(2)]
        pool.close()
        pool.join()
    assert len({*theirs, source.draw_bytes(32).tobytes()}) == 3


@pytest.mark.parametrize("make", [SecureRandom, lambda: SeededRandom(7)], ids=["secure", "seeded"])
def test_threads_never_get_the_same_bytes(make):
    source = make()
    draws: list[list[bytes]] = [[] for _ in range(8)]
    start = threading.Barrier(8)

    def work(mine: list[bytes]) -> None:
        start.wait()
        mine.extend(source.draw_bytes(16).tobytes() for _ in range(500))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in draws]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    blocks = [block for mine in draws for block in mine]
    assert len(set(blocks)) == 4000
    if isinstance(source, SeededRandom):  # nothing lost and nothing torn either
        stream = SeededRandom(7).draw_bytes(16 * 4000).tobytes()
        assert set(blocks) == {stream[start : start + 16] for start in range(0, len(stream), 16)}


def test_a_draw_is_one_piece_of_the_stream_whatever_other_threads_do(monkeypatch):
    """Nothing is torn between threads: every draw is whole, also where it is made in many steps."""
    monkeypatch.setattr(randomness, "_ZEROS", bytes(16))
    source = SeededRandom(9)
    draws: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: draws.extend(source.draw_bytes(256).tobytes() for _ in range(300))) for _ in range(4)
    ]
    patience = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(patience)
    stream = chacha20(seed_key(9, 0), 256 * 1200)
    assert sorted(draws) == sorted(stream[start : start + 256] for start in range(0, len(stream), 256))


def test_threads_share_a_source_across_changes_of_key(monkeypatch):
    monkeypatch.setattr(randomness, "_BYTES_PER_KEY", 160)
    source = SeededRandom(8)
    draws: list[bytes] = []
    threads = [threading.Thread(target=lambda: draws.extend(source.draw_bytes(16).tobytes() for _ in range(200))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    streams = [chacha20(seed_key(8, index), 160) for index in range(80)]
    assert sorted(draws) == sorted(stream[start : start + 16] for stream in streams for start in range(0, 160, 16))


# --- the mark


def test_only_secure_randomness_is_private():
    assert SecureRandom().private
    assert not SeededRandom(1).private
    assert not isinstance(SeededRandom(1), SecureRandom)


def test_seeded_randomness_warns_exactly_once(monkeypatch):
    monkeypatch.setattr(SeededRandom, "_warned", False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        SecureRandom()
        for seed in range(5):
            SeededRandom(seed)
    assert [warning.category for warning in caught] == [NotPrivateWarning]
    assert "NOT private" in str(caught[0].message)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("seed", [-1, 1.5, "1", None, True, float("nan"), float("inf"), [1]])
def test_bad_seeds_are_refused(seed):
    with pytest.raises(ArgumentError, match="seed"):
        SeededRandom(seed)


def test_equal_seeds_of_different_types_are_one_seed():
    streams = {SeededRandom(seed).draw_bytes(8).tobytes() for seed in (3, 3.0, np.int64(3), np.uint8(3))}
    assert len(streams) == 1


def test_a_source_must_say_where_its_keys_come_from():
    with pytest.raises(TypeError):
        RandomSource()


def test_a_seeded_source_cannot_be_copied_or_called_private():
    source = SeededRandom(1)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="seed"):
            copied(source)
    with pytest.raises(AttributeError):
        source.private = True


def test_a_keyed_stream_does_not_go_on_in_a_forked_process():
    """Parent and child would draw the same bytes: noise used twice."""
    from croupier.protocol.randomness import Secret  # noqa: PLC0415

    source = Secret.of_seed(1).source()
    source.draw_bytes(8)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            source.draw_bytes(8)
            os.write(write, b"drew")
        except RuntimeError:
            os.write(write, b"refused")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100) == b"refused"
    assert len(source.draw_bytes(8)) == 8
    os.close(read)
    os.close(write)
