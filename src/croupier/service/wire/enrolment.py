"""Tokens: proof that a report is of an enrolled person, whoever that is. Signed blindly by the task's enroller, and counted once.

A token is 32 random bytes and the enroller's signature of them, the task and the slot. It travels in the envelope of its report's
seed, so that no one but the analyzer sees it, and nobody can put it into another report.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey, RSAPublicNumbers
from cryptography.hazmat.primitives.hashes import SHA384

from ...optimizer.phases import Schedule
from ...validation import ArgumentError, Found, whole
from .documents import BLANKS, SIGNATURE_BYTES, VERSION, WireError, header, signed_bytes
from .reports import TOKEN_BYTES
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
    """A message that can be signed without being seen."""

    request: bytes  # what the signer sees: as long as its key's modulus, and uniformly random whatever the message is
    inverse: int  # what takes the blinding off the answer


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
SIGNED_BYTES = KEY_BITS // 8
_REQUESTS = struct.Struct("<4sBBHII")  # CRPT, version, 0, 0, slots, bytes of a request
# Blanks: CRPN, version, 0, part, slot, how many. So many are asked for together, and a slot has at most so many.
_BLANKS = struct.Struct("<4sBBHII")
BLANKS_TOGETHER, MOST_BLANKS = 100, 1_000_000
_HOW = "croupier serve enroller-keys prints them."


@dataclass(frozen=True)
class EnrollerKeys:
    """A task's enroller: its address, a public key for each slot, and how many tokens per slot the shuffler's blanks have.

    A person gets one token a slot. What is signed cannot be seen, so that the key has to say which slot it is for: with one key for
    all, a person could use every token in the same round, and a shuffler all of its blanks.
    """

    address: str  # where clients get their tokens, such as https://enroller.example:8803
    moduli: tuple[int, ...]  # RSA moduli of 2048 bits, one per slot; the exponent is 65537
    blanks: int = 0  # tokens a slot that the shuffler gets for blanks, where lots are secret

    def __post_init__(self) -> None:
        check_address("enroller.address", self.address)
        if not self.moduli or len(set(self.moduli)) != len(self.moduli):
            raise ArgumentError("enroller.keys", len(self.moduli), "different keys, one per slot", _HOW)
        if any(modulus.bit_length() != KEY_BITS or modulus % 2 == 0 for modulus in self.moduli):
            raise ArgumentError("enroller.keys", Found("has another number"), f"odd numbers of {KEY_BITS} bits", _HOW)
        whole("enroller.blanks", self.blanks, at_least=0, at_most=MOST_BLANKS, remedy=_HOW)

    @cached_property
    def keys(self) -> tuple[RSAPublicKey, ...]:
        """The keys of these moduli."""
        return tuple(RSAPublicNumbers(EXPONENT, modulus).public_key() for modulus in self.moduli)

    def to_dict(self) -> dict[str, Any]:
        """Return the enroller as a task says it."""
        besides = {"blanks": self.blanks} if self.blanks else {}
        return {"address": self.address, "keys": [f"{modulus:x}" for modulus in self.moduli]} | besides

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """Read the enroller as a task says it."""
        allowed = "an object with the address and the keys of an enroller"
        known = isinstance(values, dict) and set(values) | {"blanks"} == {"address", "keys", "blanks"}
        if not known or not isinstance(values["keys"], list):
            raise ArgumentError("enroller", values, allowed, _HOW)
        try:
            moduli = tuple(int(key, 16) for key in values["keys"] if len(key) <= KEY_BITS // 4)
        except (TypeError, ValueError):
            raise ArgumentError("enroller.keys", Found("has something else"), "hex digits", _HOW) from None
        if len(moduli) != len(values["keys"]):
            raise ArgumentError("enroller.keys", Found("has a longer one"), f"numbers of {KEY_BITS} bits", _HOW)
        if "blanks" in values:  # 0 is said by leaving it out: a task has one text
            whole("enroller.blanks", values["blanks"], at_least=1, at_most=MOST_BLANKS, remedy=_HOW)
        return cls(values["address"], moduli, values.get("blanks", 0))

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
    """Return how many tokens a person needs.

    With secret lots one per lot, of which a person uses its own: who signs does not learn which, and the blanks of each lot are
    counted by a key of their own.
    """
    if (lots := schedule.phases[0].lots) is not None:
        return lots.lots
    return max(phase.rounds for phase in schedule.phases) if schedule.interactivity == "full" else 1


def blanks_of(schedule: Schedule) -> int:
    """Return how many blanks a round may have at most, where somebody counts them."""
    return max((phase.lots.blanks or 0 for phase in schedule.phases if phase.lots is not None), default=0)


def check_enroller(enroller: EnrollerKeys | None, schedule: Schedule, transport: str) -> None:
    """Refuse a task whose tokens would be worth nothing, or that counts blanks where nobody does."""
    blanks = blanks_of(schedule)
    if enroller is None:
        if blanks:
            raise ArgumentError("lots.blanks", blanks, "left out of a task without an enroller", "Nobody counts blanks there.")
        return
    if not TRANSPORTS[transport].checked:  # a token is in the envelope that a report is checked by
        remedy = f"Nothing ties a token to a report there, which a shuffler could exchange for its own: use {DEFAULT_TRANSPORT}."
        raise ArgumentError("enroller", enroller.address, f"left out of a task by {transport}", remedy)
    if schedule.secret_lots and not blanks:
        remedy = "Otherwise a round could hold nothing but blanks: Schedule.with_bounded_blanks plans them."
        raise ArgumentError("lots.blanks", None, "given where there is an enroller", remedy)
    slots, remedy = slots_of(schedule), keys_command(schedule)
    if len(enroller.moduli) != slots:
        raise ArgumentError("enroller.keys", len(enroller.moduli), f"{slots}, one per slot", remedy)
    if enroller.blanks != blanks:
        raise ArgumentError("enroller.blanks", enroller.blanks, f"{blanks}, those of a round", remedy)


def keys_command(schedule: Schedule) -> str:
    """Say how an enroller makes keys for a task of this schedule."""
    blanks = blanks_of(schedule)
    besides = f" --blanks {blanks} --shuffler-key KEY" if blanks else ""
    return f"croupier serve enroller-keys --slots {slots_of(schedule)}{besides} makes them."


# Tokens, and requests for them.


def signed_message(prefix: bytes, task: str, slot: int) -> bytes:
    """Return what the enroller signs, unseen: the token's random prefix, the task and the slot."""
    return prefix + b"croupier token v1" + bytes.fromhex(task) + slot.to_bytes(4, "little")


def is_token(token: bytes, task: str, enroller: EnrollerKeys, slot: int) -> bool:
    """Return whether the task's enroller has signed this token, for this task and slot."""
    if len(token) != TOKEN_BYTES:
        return False
    return is_signed(signed_message(token[:PREFIX_BYTES], task, slot), token[PREFIX_BYTES:], enroller.keys[slot - 1])


@dataclass(frozen=True)
class TokenRequests:
    """What a client asks its enroller for, a blinded message a slot; or a shuffler for its blanks, several of one slot."""

    prefixes: tuple[bytes, ...]  # the tokens' random prefixes. Their owner's secret
    blinded: tuple[Blinded, ...]  # the requests, and what takes the blinding off the answers
    slot: int | None = None  # of all of them, where they are for blanks; None: each has its own, in order

    @classmethod
    def drawn(cls, task: str, enroller: EnrollerKeys, slot: int | None = None, count: int = 0) -> Self:
        """Draw prefixes, salts and blinding factors for all slots of a task, or for so many blanks of one slot.

        Guarantee
        ---------
        The requests tell the enroller nothing about the tokens: each is uniformly random, whatever the token is.
        """
        prefixes = tuple(os.urandom(PREFIX_BYTES) for _ in range(len(enroller.keys) if slot is None else count))
        slots = _slots(slot, len(prefixes))
        requests = [
            blinded(signed_message(prefix, task, place), enroller.keys[place - 1])
            for prefix, place in zip(prefixes, slots, strict=True)
        ]
        return cls(prefixes, tuple(requests), slot)

    def to_rows(self) -> list[tuple[str, str, str]]:
        """Return all of it as it is kept until the answer is here."""
        pairs = zip(self.prefixes, self.blinded, strict=True)
        return [(prefix.hex(), one.request.hex(), f"{one.inverse:x}") for prefix, one in pairs]

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[str]], slot: int | None = None) -> Self:
        """Read what was kept."""
        prefixes = tuple(bytes.fromhex(prefix) for prefix, _, _ in rows)
        blinded_ones = tuple(Blinded(bytes.fromhex(request), int(inverse, 16)) for _, request, inverse in rows)
        return cls(prefixes, blinded_ones, slot)

    def to_bytes(self) -> bytes:
        """Return the requests as they travel."""
        head = _REQUESTS.pack(b"CRPT", VERSION, 0, 0, len(self.blinded), SIGNED_BYTES)
        return head + b"".join(one.request for one in self.blinded)

    def for_blanks(self, part: int, key: Ed25519PrivateKey, enroller: EnrollerKeys) -> bytes:
        """Return the requests of one part of a slot's blanks as they travel, with the shuffler's signature at the end.

        It is about the slot's key, too: another enroller, or this one for another task, does not take them.
        """
        slot = self.slot or 0
        head = _BLANKS.pack(b"CRPN", VERSION, 0, part, slot, len(self.blinded))
        data = head + b"".join(one.request for one in self.blinded)
        return data + key.sign(_for_slot(data, enroller.moduli[slot - 1]))

    def tokens(self, answer: bytes, task: str, enroller: EnrollerKeys) -> list[bytes]:
        """Take the blinding off the enroller's answer."""
        if len(answer) != SIGNED_BYTES * len(self.prefixes):
            raise WireError(f"{len(answer)} bytes of the enroller's for {len(self.prefixes)} tokens")
        parts = [answer[start : start + SIGNED_BYTES] for start in range(0, len(answer), SIGNED_BYTES)]
        tokens = []
        for slot, prefix, one, part in zip(_slots(self.slot, len(parts)), self.prefixes, self.blinded, parts, strict=True):
            signature = unblinded(signed_message(prefix, task, slot), part, one.inverse, enroller.keys[slot - 1])
            tokens.append(prefix + signature)
        return tokens


def requests_bytes(slots: int) -> int:
    """Return the length of a client's requests."""
    return _REQUESTS.size + slots * SIGNED_BYTES


def read_requests(data: bytes, slots: int) -> Sequence[bytes]:
    """Read a client's requests, strictly."""
    kind, zero, count, length = header(_REQUESTS, b"CRPT", data)
    if kind or zero or (count, length) != (slots, SIGNED_BYTES) or len(data) != requests_bytes(slots):
        raise WireError(f"requests of another shape than {slots} of {SIGNED_BYTES} bytes")
    return [data[start : start + SIGNED_BYTES] for start in range(_REQUESTS.size, len(data), SIGNED_BYTES)]


def _slots(slot: int | None, count: int) -> list[int]:
    """The slots of so many requests: one each, or all of the same."""
    return list(range(1, count + 1)) if slot is None else [slot] * count


# Blanks: the shuffler's, in rounds of secret lots. Their tokens are like people's; the enroller signs so many a slot and no more.


def blank_parts(blanks: int) -> list[int]:
    """Return how many of a slot's blanks are asked for in each request."""
    whole_parts, rest = divmod(blanks, BLANKS_TOGETHER)
    return [BLANKS_TOGETHER] * whole_parts + [rest] * (rest > 0)


def blanks_bytes() -> int:
    """Return the length of the longest request for blanks."""
    return _BLANKS.size + BLANKS_TOGETHER * SIGNED_BYTES + SIGNATURE_BYTES


def _for_slot(data: bytes, modulus: int) -> bytes:
    """What a shuffler signs: the requests, and whose key is to sign them."""
    return signed_bytes(BLANKS, data + modulus.to_bytes(SIGNED_BYTES))


def read_blanks(data: bytes, moduli: Sequence[int], blanks: int, shuffler: Ed25519PublicKey) -> tuple[int, int, Sequence[bytes]]:
    """Read the slot, the part and the requests of a shuffler that signed them for the keys of these moduli, strictly."""
    slots = len(moduli)
    zero, part, slot, count = header(_BLANKS, b"CRPN", data)
    content, parts = data[:-SIGNATURE_BYTES], blank_parts(blanks)
    fits = zero == 0 and 1 <= slot <= slots and part < len(parts) and count == parts[part]
    if not fits or len(content) != _BLANKS.size + count * SIGNED_BYTES:
        raise WireError(f"blanks of another shape than {blanks} per slot, in {slots} slots")
    try:
        shuffler.verify(data[-SIGNATURE_BYTES:], _for_slot(content, moduli[slot - 1]))
    except InvalidSignature:
        raise WireError("the signature is not the shuffler's") from None
    return slot, part, [content[start : start + SIGNED_BYTES] for start in range(_BLANKS.size, len(content), SIGNED_BYTES)]
