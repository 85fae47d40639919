"""Rounds of secret lots as they are deployed: how long they take, whoever comes. Part of a task (docs/protocol.md#secret-lots)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

from ..validation import ArgumentError, real, whole
from .documents import WireError

# Seconds that a round takes reports unless the task says otherwise, and at most.
ROUND_SECONDS, MOST_ROUND_SECONDS = 300.0, 1e7
# The share of users that `if_watched` counts on to come to their round, unless the task file says otherwise.
TURNOUT = 0.8
# A batch leaves so much later than its round ended, in parts of the round: however long it took to make.
_LEAVES = 1.05
# A round takes at least so many paces, and is offered to clients until so many before its end.
_FEWEST_PACES, _LAST_PACES = 4, 2
# Bytes of a lot as it travels, and seconds that somebody can be told to wait for it.
_LOT_BYTES, _LONGEST_WAIT = 64, 1e13


@dataclass(frozen=True)
class SecretRounds:
    """How rounds run whose users are drawn by secret lots.

    Parameters
    ----------
    seconds : float
        For how long a round takes reports, from its opening. It ends then and no sooner, whoever came.
    cover : bool, default False
        Whether every client sends a report in every round, of which the shuffler throws away all but those of the round's lot.

    Examples
    --------
    >>> SecretRounds(60.0).leaves(opened=1000.0)
    1063.0
    """

    seconds: float
    cover: bool = False

    def ends(self, opened: float) -> float:
        """Return when a round ends.

        Parameters
        ----------
        opened : float
            When it was opened, in seconds since 1970 by the shuffler's clock.

        Returns
        -------
        float
            By the same clock.
        """
        return opened + self.seconds

    def leaves(self, opened: float) -> float:
        """Return when a round's batch is forwarded: a fixed time after its end, in which the batch is made.

        Parameters
        ----------
        opened : float
            When the round was opened.

        Returns
        -------
        float
            By the same clock.
        """
        return opened + _LEAVES * self.seconds

    def offered(self, opened: float, pace: float) -> float:
        """Return until when clients are given a round: later they would answer in vain.

        Parameters
        ----------
        opened : float
            When the round was opened.
        pace : float
            Seconds that a client takes to answer.

        Returns
        -------
        float
            By the same clock.
        """
        return self.ends(opened) - _LAST_PACES * pace

    def to_dict(self) -> dict[str, Any]:
        """Return the words of a task document.

        Returns
        -------
        dict
            What `from_dict` reads.
        """
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read the words of a task document.

        Parameters
        ----------
        values : dict
            What `to_dict` gave.

        Returns
        -------
        SecretRounds
            Checked, but for the task's pace.

        Raises
        ------
        ArgumentError
            Where a word is unknown or missing, or a value is impossible.
        """
        if set(values) != {"seconds", "cover"} or not isinstance(values["cover"], bool):
            raise ArgumentError("secret", values, "seconds and cover, a number and a truth value", "Use the same version.")
        return cls(real("secret.seconds", values["seconds"], above=0, remedy="Give seconds."), values["cover"])


@dataclass(frozen=True)
class Lot:
    """A client's lot, as it alone is told.

    Parameters
    ----------
    round : int or None
        The number of the round that the client is asked in; None where it is asked in none.
    wait : float, default 0.0
        Seconds until that round can begin at the soonest; 0 where it may have begun, or there is none.

    Examples
    --------
    >>> Lot.from_bytes(Lot(7, 60.5).to_bytes())
    Lot(round=7, wait=60.5)
    >>> len(Lot(7, 60.5).to_bytes()) == len(Lot(None).to_bytes())
    True
    """

    round: int | None
    wait: float = 0.0

    def to_bytes(self) -> bytes:
        """Return the lot as it travels: of one length, whatever it is, since lengths can be seen.

        Returns
        -------
        bytes
            A JSON object, filled up with spaces.
        """
        return json.dumps({"round": self.round, "wait": round(self.wait, 3)}).ljust(_LOT_BYTES).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a lot, strictly.

        Parameters
        ----------
        data : bytes
            What `to_bytes` gave.

        Returns
        -------
        Lot
            The lot.

        Raises
        ------
        WireError
            Where it is something else.
        """
        try:
            values = json.loads(data)
            if len(data) != _LOT_BYTES or set(values) != {"round", "wait"}:
                raise WireError("a lot that is not one")
            if values["round"] is not None:
                whole("round", values["round"], at_least=1, remedy="Rounds are counted from 1.")
            wait = real("wait", values["wait"], at_least=0, at_most=_LONGEST_WAIT, remedy="Give seconds.")
        except (TypeError, ValueError) as problem:
            raise WireError(f"a lot that says something impossible: {problem}") from None
        return cls(values["round"], wait)


def check_secrecy(secret: SecretRounds | None, lots: bool, patience: float | None, pace: float) -> None:
    """Refuse rounds that would tell by their end who came, or leave clients no time.

    Parameters
    ----------
    secret : SecretRounds or None
        What the task says of its rounds.
    lots : bool
        Whether its schedule draws users' rounds by secret lots.
    patience : float or None
        What the task says of rounds that end when enough have come.
    pace : float
        Seconds that a client takes to answer.

    Raises
    ------
    ArgumentError
        Where these do not belong together.
    """
    if (secret is not None) != lots:
        allowed = "given where lots are secret, and only there"
        raise ArgumentError("secret", secret, allowed, "Say for how many seconds a round of secret lots takes reports.")
    if secret is None:
        return
    if patience is not None:
        remedy = 'Say round_seconds: a round of secret lots ends then, whoever came. Or say lots = "open".'
        raise ArgumentError("patience", patience, "left out where lots are secret", remedy)
    least = _FEWEST_PACES * pace
    remedy = f"A client takes the pace of {pace:g} seconds to answer; take longer rounds or a shorter pace."
    real("round_seconds", secret.seconds, at_least=least, at_most=MOST_ROUND_SECONDS, remedy=remedy)
