"""What a task says of its enroller: where it is, and the keys by which it signs for enrolled people, one key a slot."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey, RSAPublicNumbers
from cryptography.hazmat.primitives.hashes import SHA384

from ...optimizer.phases import Schedule
from ...validation import ArgumentError, Found
from .documents import WireError
from .transports import DEFAULT_TRANSPORT, TRANSPORTS

# RSA blind signatures, RFC 9474: somebody signs a message without seeing it, and cannot tell the signature again when it meets
# it.
#
# The variant is RSABSSA-SHA384-PSS-Randomized, which the RFC advises: 32 random bytes are put before a message, so that it stays
# hidden from a signer who knows what the rest says, whatever the signer's key is. Signatures are plain RSASSA-PSS, verified by
# `cryptography`; that package has no raw RSA, so that blinding and signing are done here, with Python's whole numbers.

# The prefix of a message and the salt of a signature, in bytes, and the one public exponent that is used.
PREFIX_BYTES, SALT_BYTES, EXPONENT = 32, 48, 65537
_HASH_BYTES = 48


@dataclass(frozen=True)
class Blinded:
    """A message that can be signed without being seen.

    Parameters
    ----------
    request : bytes
        What the signer sees: as long as its key's modulus, and uniformly random whatever the message is.
    inverse : int
        What takes the blinding off the answer. Whoever has it can link the request to the signature: forget it after use.
    """

    request: bytes
    inverse: int


def blinded(message: bytes, key: RSAPublicKey, *, salt: bytes | None = None, factor: int | None = None) -> Blinded:
    """Encode a message and blind it.

    Guarantee
    ---------
    The request is uniformly distributed over the units modulo n, whatever the message is, where the key is a proper one. So it is
    consistent with every message, and the signer learns nothing from it.
    """
    numbers = key.public_numbers()
    modulus, length = numbers.n, modulus_bytes(key)
    encoded = int.from_bytes(_pss_encoded(message, os.urandom(SALT_BYTES) if salt is None else salt, modulus.bit_length() - 1))
    drawn = secrets.randbelow(modulus - 1) + 1 if factor is None else factor
    if math.gcd(encoded * drawn, modulus) != 1:
        raise WireError("a key of the enroller's that has small factors")
    request = encoded * pow(drawn, numbers.e, modulus) % modulus
    return Blinded(request.to_bytes(length), pow(drawn, -1, modulus))


def unblinded(message: bytes, answer: bytes, inverse: int, key: RSAPublicKey, *, salt_length: int = SALT_BYTES) -> bytes:
    """Take the blinding off a signer's answer, and verify what is left."""
    modulus = key.public_numbers().n
    signature = (int.from_bytes(answer) * inverse % modulus).to_bytes(modulus_bytes(key))
    if len(answer) != modulus_bytes(key) or not is_signed(message, signature, key, salt_length=salt_length):
        raise WireError("an answer of the enroller's that is no signature by its key")
    return signature


def is_signed(message: bytes, signature: bytes, key: RSAPublicKey, *, salt_length: int = SALT_BYTES) -> bool:
    """Return whether a signature is one of the message."""
    try:
        key.verify(signature, message, padding.PSS(padding.MGF1(SHA384()), salt_length), SHA384())
    except InvalidSignature:
        return False
    return True


def blind_signature(request: bytes, key: RSAPrivateKey) -> bytes:
    """Sign what cannot be seen."""
    private, number = key.private_numbers(), number_of(request, key)
    public, length = private.public_numbers, modulus_bytes(key.public_key())
    # Blinded a second time, by the signer: Python's powers take longer for some numbers, and those are not the asker's choice.
    while math.gcd(own := secrets.randbelow(public.n - 1) + 1, public.n) != 1:
        pass  # with a proper key, once in an age
    hidden = number * pow(own, public.e, public.n) % public.n
    by_p, by_q = pow(hidden % private.p, private.dmp1, private.p), pow(hidden % private.q, private.dmq1, private.q)
    signed = by_q + private.q * ((by_p - by_q) * private.iqmp % private.p)
    answer = signed * pow(own, -1, public.n) % public.n
    if pow(answer, public.e, public.n) != number:  # a fault in one half would give the key away
        raise ArithmeticError("a signature that came out wrong; the machine may be faulty")
    return answer.to_bytes(length)


def number_of(request: bytes, key: RSAPrivateKey) -> int:
    """Read a request without signing it, so that a signer can refuse it before it commits to it or spends time on it."""
    modulus, length = key.public_key().public_numbers().n, modulus_bytes(key.public_key())
    number = int.from_bytes(request)
    if len(request) != length or not 0 < number < modulus:
        raise WireError(f"a request of {len(request)} bytes that is no number below the enroller's modulus of {length} bytes")
    return number


def new_signer(bits: int = 2048) -> RSAPrivateKey:
    """Return a new key for blind signatures alone."""
    return rsa.generate_private_key(EXPONENT, bits)


def modulus_bytes(key: RSAPublicKey) -> int:
    """Return how long the key's requests, answers and signatures are."""
    return (key.key_size + 7) // 8


def _pss_encoded(message: bytes, salt: bytes, bits: int) -> bytes:
    """EMSA-PSS-ENCODE of RFC 8017, section 9.1.1, with SHA-384 and MGF1 of it, in so many bits."""
    length = (bits + 7) // 8
    padded = length - len(salt) - _HASH_BYTES - 2
    if padded < 0:
        raise WireError(f"a key of {bits + 1} bits, too short for SHA-384 and its salt")
    digest = hashlib.sha384(bytes(8) + hashlib.sha384(message).digest() + salt).digest()
    block = bytes(padded) + b"\1" + salt
    masked = int.from_bytes(block) ^ int.from_bytes(_mgf1(digest, len(block)))
    kept = masked & ((1 << (8 * len(block) - (8 * length - bits))) - 1)
    return kept.to_bytes(len(block)) + digest + b"\xbc"


def _mgf1(seed: bytes, length: int) -> bytes:
    """RFC 8017, appendix B.2.1, with SHA-384."""
    blocks = [hashlib.sha384(seed + number.to_bytes(4)).digest() for number in range(-(-length // _HASH_BYTES))]
    return b"".join(blocks)[:length]


# Bits of an enroller's modulus. A token is worth something until its task has ended, and blindness does not depend on the length.
KEY_BITS = 2048
_HOW = "croupier serve enroller-keys prints it."


@dataclass(frozen=True)
class EnrollerKeys:
    """A task's enroller: its address, and a public key for each slot.

    A person gets one token a slot. What is signed cannot be seen, so that the key has to say which slot it is for: with one key for
    all, a person could use every token in the same round.

    Parameters
    ----------
    address : str
        Where clients get their tokens, such as https://enroller.example:8803.
    moduli : tuple of int
        RSA moduli of 2048 bits, one a slot; the exponent is 65537.

    Attributes
    ----------
    keys : tuple of RSAPublicKey
        The keys of these moduli.
    """

    address: str
    moduli: tuple[int, ...]

    def __post_init__(self) -> None:
        check_address("enroller.address", self.address)
        if not self.moduli or len(set(self.moduli)) != len(self.moduli):
            raise ArgumentError("enroller.keys", len(self.moduli), "different keys, one a slot", _HOW)
        if any(modulus.bit_length() != KEY_BITS or modulus % 2 == 0 for modulus in self.moduli):
            raise ArgumentError("enroller.keys", Found("has another number"), f"odd numbers of {KEY_BITS} bits", _HOW)

    @cached_property
    def keys(self) -> tuple[RSAPublicKey, ...]:
        """The keys of these moduli."""
        return tuple(RSAPublicNumbers(EXPONENT, modulus).public_key() for modulus in self.moduli)

    def to_dict(self) -> dict[str, Any]:
        """Return the enroller as a task says it."""
        return {"address": self.address, "keys": [f"{modulus:x}" for modulus in self.moduli]}

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """Read the enroller as a task says it."""
        allowed = "an object with the address and the keys of an enroller"
        if not isinstance(values, dict) or set(values) != {"address", "keys"} or not isinstance(values["keys"], list):
            raise ArgumentError("enroller", values, allowed, _HOW)
        try:
            moduli = tuple(int(key, 16) for key in values["keys"] if len(key) <= KEY_BITS // 4)
        except (TypeError, ValueError):
            raise ArgumentError("enroller.keys", Found("has something else"), "hex digits", _HOW) from None
        if len(moduli) != len(values["keys"]):
            raise ArgumentError("enroller.keys", Found("has a longer one"), f"numbers of {KEY_BITS} bits", _HOW)
        return cls(values["address"], moduli)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read the file that the enroller's operator has sent."""
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "strerror", None) or "not JSON"
            raise ArgumentError("enroller", os.fspath(path), f"a file that can be read ({reason})", _HOW) from None
        return cls.from_dict(values)


def check_address(name: str, address: str) -> None:
    """Refuse what is no address of a server."""
    if not isinstance(address, str) or not re.fullmatch(r"https?://[^/?#\s]+(/[^?#\s]*)?", address):
        raise ArgumentError(name, address, "an address like https://host:port", "Give the enroller's address.")


def slots_of(schedule: Schedule) -> int:
    """Return how many tokens a person needs."""
    return max(phase.rounds for phase in schedule.phases) if schedule.interactivity == "full" else 1


def check_enroller(enroller: EnrollerKeys, schedule: Schedule, transport: str) -> None:
    """Refuse a task whose tokens would be worth nothing."""
    if not TRANSPORTS[transport].checked:  # a token is in the envelope that a report is checked by
        remedy = f"Nothing ties a token to a report there, which a shuffler could exchange for its own: use {DEFAULT_TRANSPORT}."
        raise ArgumentError("enroller", enroller.address, f"left out of a task by {transport}", remedy)
    if any(phase.lots is not None for phase in schedule.phases):
        remedy = 'Blanks are of nobody, and who checks tokens would see which they are: take lots = "open", or no enroller.'
        raise ArgumentError("enroller", enroller.address, "left out of a task with secret lots", remedy)
    if len(enroller.moduli) != slots_of(schedule):
        remedy = f"croupier serve enroller-keys --slots {slots_of(schedule)} makes them."
        raise ArgumentError("enroller.keys", len(enroller.moduli), f"{slots_of(schedule)}, one a slot", remedy)
