"""What a round says to its devices and to the mask analyzer, and how an update becomes a vector of the plan and back.

The plan's vectors have norm 1: an update is divided by the clip, which is public. With adaptive clipping a last coordinate says
whether the update was within the clip (+weight) or not (-weight), and the update has the rest of the norm, sqrt(1 - weight^2). So
the quantile of norms is part of the same private sum: the plan's promise covers it.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..privacy import ArgumentError, LotsPlan, NoCertificateError
from ..validation import Found, real, whole

RUN_BYTES = 32
_CONTEXT = b"croupier flower v1 "
# Clips that single precision divides by without overflow.
_CLIPS = (1e-12, 1e12)
_REMEDY = "Use what CroupierStrategy sends."


@dataclass(frozen=True)
class RoundWords:
    """All that a device is told of a round beside the model; a report is bound to every word.

    `plan`: The JSON of a `LotsPlan` whose vectors have norm 1. `run`: 32 random bytes of this run, as hex digits. `round`: The
    round's number, from 1 to the plan's rounds. `clip`: The public bound on the l2 norm of an update in this round. `weight`: Of
    the coordinate that tells whether an update is within the clip; 0 where there is none. `block`: The block of the rotated update
    that the device sends; 0 under a plan without blocks.
    """

    plan: str
    run: str
    round: int
    clip: float
    weight: float = 0.0
    block: int = 0

    def __post_init__(self) -> None:
        if len(bytes.fromhex(self.run)) != RUN_BYTES:
            raise ArgumentError("run", self.run, f"{RUN_BYTES} bytes as hex digits", _REMEDY)
        real("clip", self.clip, above=_CLIPS[0], below=_CLIPS[1], remedy="State a public bound on the norm of an update.")
        real("weight", self.weight, at_least=0, at_most=0.5, remedy=_REMEDY)
        whole("round", self.round, at_least=1, at_most=self.lots.rounds, remedy=_REMEDY)
        whole("block", self.block, at_least=0, at_most=self.lots.blocks - 1, remedy=_REMEDY)
        if self.lots.one_round.norm != 1:
            raise ArgumentError("plan", Found(f"has norm {self.lots.one_round.norm:g}"), "one for norm 1", _REMEDY)

    @property
    def lots(self) -> LotsPlan:
        """The plan, certified again on this machine; a plan that promises less than it says is refused."""
        return proved(self.plan)

    @property
    def weights(self) -> int:
        """Coordinates of an update."""
        return self.lots.one_round.dim - (self.weight > 0)

    @property
    def context(self) -> bytes:
        """What reports of this round are bound to, beside their block: a digest of every other word. Blocks share a rotation."""
        return hashlib.sha256(_CONTEXT + replace(self, block=0).to_json().encode()).digest()

    def to_json(self) -> str:
        """The words as one text, always the same for the same words."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> RoundWords:
        """Read the words, strictly."""
        values: Any = json.loads(text)
        kinds = {"plan": str, "run": str, "round": int, "clip": float, "weight": float, "block": int}
        if not isinstance(values, dict) or {name: type(value) for name, value in values.items()} != kinds:
            raise ArgumentError("round", Found("has other fields than a round has"), ", ".join(kinds), _REMEDY)
        return cls(**values)

    def vector(self, update: NDArray[Any] | None) -> NDArray[Any]:
        """The plan's vector of an update; of none, or one that is not finite, the zero vector: a blank."""
        vector = np.zeros(self.lots.one_round.dim, np.float32)
        length = math.inf if update is None else _length(update)
        if update is None or not math.isfinite(length):
            return vector
        factor = math.sqrt(1 - self.weight**2) / max(self.clip, length)
        np.multiply(update, factor, out=vector[: self.weights], casting="same_kind")
        if self.weight:
            vector[-1] = self.weight if length <= self.clip else -self.weight
        return vector

    def mean_update(self, total: NDArray[np.float64]) -> NDArray[np.float64]:
        """The mean of clipped updates, by the estimated sum of the plan's vectors."""
        scale = self.clip / math.sqrt(1 - self.weight**2) / self.lots.users_in_round
        return np.asarray(total[: self.weights] * scale)

    def share_within(self, total: NDArray[np.float64]) -> float:
        """The estimated share of updates within the clip, between 0 and 1."""
        balance = float(total[-1]) / (self.weight * self.lots.users_in_round)
        return min(1.0, max(0.0, (1 + balance) / 2))


@lru_cache(maxsize=8)
def proved(text: str) -> LotsPlan:
    """Read a plan and certify it on this machine; once for all rounds, as that takes a second or so."""
    try:
        plan = LotsPlan.from_json(text)
    except NoCertificateError as error:
        raise ArgumentError("plan", Found(f"has no certificate: {error}"), "one that plan_lots made", _REMEDY) from None
    if plan.opening:
        raise ArgumentError("plan", Found("asks other questions first"), "one question for all rounds", _REMEDY)
    return plan


def _length(update: NDArray[Any]) -> float:
    """The l2 norm in double precision, piece by piece. Privacy does not rest on it: the randomizer clips again."""
    step = 1 << 16
    with np.errstate(over="ignore", invalid="ignore"):
        parts = (update[first : first + step].astype(np.float64) for first in range(0, len(update), step))
        return math.sqrt(sum(float(part @ part) for part in parts))
