"""Blind signatures: the RFC's vectors, blindness by algebra, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA384

from croupier.service.wire.documents import WireError
from croupier.service.wire.enrolment import blind_signature, blinded, is_signed, modulus_bytes, new_signer, unblinded

RFC = json.loads((Path(__file__).parent / "vectors" / "rfc9474" / "vectors.json").read_text())


def _rfc_key() -> RSAPrivateKey:
    p, q, n, e, d = (int(RFC["key"][name], 16) for name in ("p", "q", "n", "e", "d"))
    halves = d % (p - 1), d % (q - 1), pow(q, -1, p)
    return rsa.RSAPrivateNumbers(p, q, d, *halves, rsa.RSAPublicNumbers(e, n)).private_key()


@pytest.fixture(scope="module")
def key() -> RSAPrivateKey:
    return new_signer()


@pytest.mark.parametrize("vector", RFC["vectors"], ids=lambda vector: vector["name"])
def test_the_vectors_of_the_rfc(vector: dict[str, str]) -> None:
    key = _rfc_key()
    public, modulus = key.public_key(), int(RFC["key"]["n"], 16)
    message, salt = bytes.fromhex(vector["msg_prefix"] + vector["msg"]), bytes.fromhex(vector["salt"])
    inverse = int(vector["inv"], 16)
    hidden = blinded(message, public, salt=salt, factor=pow(inverse, -1, modulus))
    assert hidden.request.hex() == vector["blinded_msg"]
    assert hidden.inverse == inverse
    answer = blind_signature(hidden.request, key)
    assert answer.hex() == vector["blind_sig"]
    signature = unblinded(message, answer, inverse, public, salt_length=len(salt))
    assert signature.hex() == vector["sig"]
    public.verify(signature, message, padding.PSS(padding.MGF1(SHA384()), len(salt)), SHA384())  # by somebody else's code


def test_what_is_drawn_verifies_and_is_never_the_same(key: RSAPrivateKey) -> None:
    public, message = key.public_key(), os.urandom(80)
    first, second = blinded(message, public), blinded(message, public)
    assert first.request != second.request
    assert first.inverse != second.inverse
    signatures = [unblinded(message, blind_signature(one.request, key), one.inverse, public) for one in (first, second)]
    assert signatures[0] != signatures[1]  # the salt
    assert all(is_signed(message, signature, public) for signature in signatures)
    assert not is_signed(message + b"!", signatures[0], public)
    assert not is_signed(message, signatures[0], new_signer().public_key())


def _factor_between(request: bytes, signature: bytes, public: RSAPublicKey, key: RSAPrivateKey) -> int:
    """The one factor that would have made this request of the message of this signature. It takes the private key to find it."""
    modulus, private = public.public_numbers().n, key.private_numbers()
    encoded = pow(int.from_bytes(signature), public.public_numbers().e, modulus)
    return pow(int.from_bytes(request) * pow(encoded, -1, modulus) % modulus, private.d, modulus)


def test_any_request_is_consistent_with_any_signature(key: RSAPrivateKey) -> None:
    """The signer keeps all requests and answers, and is shown all signatures, its private key in hand: every pairing is possible.

    For each of them there is exactly one blinding factor, and all factors are equally likely. So nothing is left to link by.
    """
    public, modulus = key.public_key(), key.public_key().public_numbers().n
    messages = [os.urandom(48) for _ in range(4)]
    hidden = [blinded(message, public) for message in messages]
    answers = [blind_signature(one.request, key) for one in hidden]
    signatures = [
        unblinded(message, answer, one.inverse, public) for message, answer, one in zip(messages, answers, hidden, strict=True)
    ]
    for one, answer in zip(hidden, answers, strict=True):
        for message, signature in zip(messages, signatures, strict=True):
            factor = _factor_between(one.request, signature, public, key)
            encoded = pow(int.from_bytes(signature), 65537, modulus)
            assert encoded * pow(factor, 65537, modulus) % modulus == int.from_bytes(one.request)
            assert unblinded(message, answer, pow(factor, -1, modulus), public) == signature


def test_what_is_no_request_is_refused(key: RSAPrivateKey) -> None:
    modulus, length = key.public_key().public_numbers().n, modulus_bytes(key.public_key())
    for request in (b"", b"\1" * (length - 1), b"\1" * (length + 1), bytes(length), modulus.to_bytes(length), b"\xff" * length):
        with pytest.raises(WireError, match="no number below the enroller's modulus"):
            blind_signature(request, key)


def test_what_is_no_signature_is_refused(key: RSAPrivateKey) -> None:
    public, message = key.public_key(), os.urandom(48)
    hidden = blinded(message, public)
    answer = bytearray(blind_signature(hidden.request, key))
    other = blinded(os.urandom(48), public)
    assert unblinded(message, bytes(answer), hidden.inverse, public)
    for wrong in (answer[:-1], answer + b"\0", bytes(len(answer)), blind_signature(other.request, key), hidden.request):
        with pytest.raises(WireError, match="no signature by its key"):
            unblinded(message, bytes(wrong), hidden.inverse, public)
    answer[7] ^= 1
    with pytest.raises(WireError, match="no signature by its key"):
        unblinded(message, bytes(answer), hidden.inverse, public)


def test_a_key_that_cannot_blind_is_refused() -> None:
    short = new_signer(1024).public_key()
    with pytest.raises(WireError, match="small factors"):
        blinded(b"message", short, factor=0)
    with pytest.raises(WireError, match="too short"):
        blinded(b"message", _tiny())


def _tiny() -> RSAPublicKey:
    """A modulus of 512 bits: SHA-384 and its salt do not fit. (The package makes none so short.)"""

    class Short:
        key_size = 512

        def public_numbers(self) -> rsa.RSAPublicNumbers:
            return rsa.RSAPublicNumbers(65537, (1 << 511) + 111)

    return Short()  # type: ignore[return-value]
