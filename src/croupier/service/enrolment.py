"""What a task says of its enroller: where it is, and the keys by which it signs for enrolled people, one key a slot."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers

from ..optimizer.phases import Schedule
from ..validation import ArgumentError, Found
from .blind import EXPONENT

# Bits of an enroller's modulus. A token is worth something until its task has ended, and blindness does not depend on the length.
KEY_BITS = 2048
# Transports whose reports carry a token, in the envelope that a report is checked by.
WITH_TOKENS = ("masked-sum", "verified-sum")
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

    def words(self) -> dict[str, Any]:
        """Return the enroller as a task says it.

        Returns
        -------
        dict
            `address`, and `keys` in hex.
        """
        return {"address": self.address, "keys": [f"{modulus:x}" for modulus in self.moduli]}

    @classmethod
    def of_words(cls, values: Any) -> Self:
        """Read the enroller as a task says it.

        Parameters
        ----------
        values : dict
            `address` and `keys`, and nothing else.

        Returns
        -------
        EnrollerKeys
            The enroller.

        Raises
        ------
        ArgumentError
            For anything else.
        """
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
        """Read the file that the enroller's operator has sent.

        Parameters
        ----------
        path : path-like
            What `croupier serve enroller-keys` printed.

        Returns
        -------
        EnrollerKeys
            The enroller.

        Raises
        ------
        ArgumentError
            Where the file cannot be read, or says something else.
        """
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "strerror", None) or "not JSON"
            raise ArgumentError("enroller", os.fspath(path), f"a file that can be read ({reason})", _HOW) from None
        return cls.of_words(values)


def check_address(name: str, address: str) -> None:
    """Refuse what is no address of a server.

    Parameters
    ----------
    name : str
        The argument, for the error.
    address : str
        What was given.

    Raises
    ------
    ArgumentError
        For anything else than http or https and a host.
    """
    if not isinstance(address, str) or not re.fullmatch(r"https?://[^/?#\s]+(/[^?#\s]*)?", address):
        raise ArgumentError(name, address, "an address like https://host:port", "Give the enroller's address.")


def slots_of(schedule: Schedule) -> int:
    """Return how many tokens a person needs.

    Parameters
    ----------
    schedule : Schedule
        The task's.

    Returns
    -------
    int
        1 where each user is asked once; otherwise as many as the longest phase has rounds.
    """
    return max(phase.rounds for phase in schedule.phases) if schedule.interactivity == "full" else 1


def check_enroller(enroller: EnrollerKeys, schedule: Schedule, transport: str) -> None:
    """Refuse a task whose tokens would be worth nothing.

    Parameters
    ----------
    enroller : EnrollerKeys
        The task's.
    schedule : Schedule
        The task's.
    transport : str
        How reports travel.

    Raises
    ------
    ArgumentError
        By a transport without tokens, such as "messages", with secret lots, or with another number of keys than slots.
    """
    if transport not in WITH_TOKENS:
        remedy = f"Nothing ties a token to a report there, which a shuffler could exchange for its own: use {WITH_TOKENS[0]}."
        raise ArgumentError("enroller", enroller.address, f"left out of a task by {transport}", remedy)
    if any(phase.lots is not None for phase in schedule.phases):
        remedy = 'Blanks are of nobody, and who checks tokens would see which they are: take lots = "open", or no enroller.'
        raise ArgumentError("enroller", enroller.address, "left out of a task with secret lots", remedy)
    if len(enroller.moduli) != slots_of(schedule):
        remedy = f"croupier serve enroller-keys --slots {slots_of(schedule)} makes them."
        raise ArgumentError("enroller.keys", len(enroller.moduli), f"{slots_of(schedule)}, one a slot", remedy)
