"""Tokens: proof that a report is of an enrolled person, whoever that is. Signed blindly, and counted once.

A token is 32 random bytes and the enroller's signature of them, the task and the slot. It travels in the envelope of its report's
seed, so that no one but the analyzer sees it, and nobody can put it into another report.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from .documents import VERSION, WireError, header
from .enrolment import KEY_BITS, PREFIX_BYTES, Blinded, EnrollerKeys, blinded, is_signed, unblinded
from .reports import TOKEN_BYTES
from .task import Task, TaskRound

SIGNED_BYTES = KEY_BITS // 8
_REQUESTS = struct.Struct("<4sBBHII")  # CRPT, version, 0, 0, slots, bytes of a request


def slot_of(task: Task, task_round: TaskRound) -> int:
    """Return which of its tokens a person uses in a round."""
    if task.schedule.interactivity != "full":
        return 1
    return task_round.number - task.rounds_of(task_round.phase)[0] + 1


def signed_message(prefix: bytes, task: str, slot: int) -> bytes:
    """Return what the enroller signs, unseen: the token's random prefix, the task and the slot."""
    return prefix + b"croupier token v1" + bytes.fromhex(task) + slot.to_bytes(4, "little")


def is_token(token: bytes, task: Task, slot: int) -> bool:
    """Return whether the task's enroller has signed this token, for this task and slot."""
    if task.enroller is None or len(token) != TOKEN_BYTES:
        return False
    message = signed_message(token[:PREFIX_BYTES], task.id, slot)
    return is_signed(message, token[PREFIX_BYTES:], task.enroller.keys[slot - 1])


@dataclass(frozen=True)
class TokenRequests:
    """What a client asks its enroller for: a blinded message a slot.

    Parameters
    ----------
    prefixes : tuple of bytes
        The tokens' random prefixes, one a slot. The client's secret.
    blinded : tuple of Blinded
        The requests, and what takes the blinding off the answers. Of these the requests alone leave the client.
    """

    prefixes: tuple[bytes, ...]
    blinded: tuple[Blinded, ...]

    @classmethod
    def drawn(cls, task: str, enroller: EnrollerKeys) -> Self:
        """Draw prefixes, salts and blinding factors for all slots of a task.

        Guarantee
        ---------
        The requests tell the enroller nothing about the tokens: each is uniformly random, whatever the token is.
        """
        prefixes = tuple(os.urandom(PREFIX_BYTES) for _ in enroller.keys)
        messages = [signed_message(prefix, task, slot) for slot, prefix in enumerate(prefixes, start=1)]
        return cls(prefixes, tuple(blinded(message, key) for message, key in zip(messages, enroller.keys, strict=True)))

    def to_bytes(self) -> bytes:
        """Return the requests as they travel."""
        head = _REQUESTS.pack(b"CRPT", VERSION, 0, 0, len(self.blinded), SIGNED_BYTES)
        return head + b"".join(one.request for one in self.blinded)

    def tokens(self, answer: bytes, task: str, enroller: EnrollerKeys) -> list[bytes]:
        """Take the blinding off the enroller's answer."""
        if len(answer) != SIGNED_BYTES * len(self.prefixes):
            raise WireError(f"{len(answer)} bytes of the enroller's for {len(self.prefixes)} tokens")
        parts = [answer[start : start + SIGNED_BYTES] for start in range(0, len(answer), SIGNED_BYTES)]
        tokens = []
        for slot, (prefix, one, part) in enumerate(zip(self.prefixes, self.blinded, parts, strict=True), start=1):
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
