"""What the fits of an account come to, for whom, in figures and in words."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..privacy import Guarantee, round_up
from ..privacy._filter import GaussianBound, first_cap, gaussian_bound, odometer
from ..statistics.holdout import SIDES, Part, by_split
from ..validation import ArgumentError, Found
from .account_file import Limit, Spent, Terms

if TYPE_CHECKING:
    from .account import PrivacyAccount

# Users are of so many kinds as there are sides to choose: 2 to the power of the number of splits.
MOST_SPLITS = 8


def kinds(fits: Sequence[Spent], part: Part | None = None) -> list[list[Spent]]:
    """The fits that ask a user, in order, for every kind of user: one side of every split.

    Parameters
    ----------
    fits : sequence of Spent
        Every fit.
    part : Part, optional
        Only users of this part.

    Returns
    -------
    list of list of Spent
        For users whom nobody has asked, an empty one.
    """
    splits = list(by_split([(fit.part, fit) for fit in fits])[1])
    chosen = [
        dict(zip(splits, sides, strict=True))
        for sides in itertools.product(SIDES, repeat=len(splits))
        if part is None or dict(zip(splits, sides, strict=True)).get(part.split, part.side) == part.side
    ]
    return [[fit for fit in fits if fit.part is None or side[fit.part.split] == fit.part.side] for side in chosen]


def require_few_splits(fits: Sequence[Spent]) -> None:
    """Refuse a fit of one more split than can be counted kind by kind."""
    splits = len(by_split([(fit.part, fit) for fit in fits])[1])
    if splits > MOST_SPLITS:
        remedy = "Different splits overlap, and are added up anyway: count this fit on everybody, without a part."
        raise ArgumentError("part", Found(f"is of split {splits} on this account"), f"one of at most {MOST_SPLITS} splits", remedy)


def bounds_of(fits: Sequence[Spent], *, watched: bool = False) -> list[GaussianBound] | None:
    """What a filter counts of fits that ask the same user; None where a fit has no guarantee."""
    guarantees = [fit.guarantee for fit in fits]
    return None if None in guarantees else [_bound(guarantee, watched) for guarantee in guarantees if guarantee]


def spent_by(found: Sequence[Sequence[Spent]], terms: Terms, fits: Sequence[Spent], *, watched: bool) -> float:
    """An odometer for every kind of user, whose first cap is fixed before their first fit: the largest figure (section 4)."""
    totals = [0.0]
    for asked in filter(None, found):
        bounds = bounds_of(asked, watched=watched)
        if bounds is None:
            return float("inf")
        cap = terms.first_cap if asked[0] is fits[0] and not watched else first_cap(bounds[0])
        totals.append(odometer(bounds, terms.delta, cap))
    return max(totals)


def use(limit: Limit, fits: Sequence[Spent], part: Part | None = None) -> tuple[float, float] | None:
    """Which parts of the caps users (of a part) have used up, at most; None where a fit has no guarantee."""
    parts = [bounds and limit.caps.use(bounds) for bounds in map(bounds_of, filter(None, kinds(fits, part)))]
    if any(part is None for part in parts):
        return None
    return max((part[0] for part in parts if part), default=0.0), max((part[1] for part in parts if part), default=0.0)


def keep(limit: Limit, asked: Sequence[Spent]) -> bool:
    """Whether fits that ask the same user keep a limit: by its caps, or one alone by itself."""
    bounds, alone = bounds_of(asked), asked[0].guarantee if len(asked) == 1 else None
    return (bounds is not None and max(limit.caps.use(bounds)) <= 1) or bool(alone and alone.delta(limit.epsilon) <= limit.delta)


def promises(account: PrivacyAccount, part: Part | None = None) -> tuple[float, float]:
    """The epsilon that texts and files have at the account's delta, and that for an observer who knows when each user answered.

    The limit's where there is one, which is fixed beforehand, and else the odometer's: the smaller of the two would be chosen after
    looking, and hold at the sum of both deltas. The limit does not cover the second observer; their figure is at least the first,
    so that the smallest figure that is printed is a promise (section 4).
    """
    limit = account.limit
    if limit is None or any(fit.guarantee is None for fit in account.fits):
        return account.spent(part), account.spent_if_watched()
    return limit.epsilon, max(limit.epsilon, account.spent_if_watched() if account.has_secret_lots else 0.0)


def use_text(used: tuple[float, float]) -> str:
    """Which parts of a limit's caps are used."""
    return f"used {round_up(used[0])} of its mu^2 and {round_up(used[1])} of its slack"


def epsilon_text(epsilon: float) -> str:
    """An epsilon, or that there is none."""
    return "no promise" if epsilon == float("inf") else f"epsilon = {round_up(epsilon)}"


def parts_text(account: PrivacyAccount) -> str:
    """Say what is counted for whom, where people were set aside; empty where everybody counts in every fit."""
    everybody, splits = by_split([(fit.part, fit) for fit in account.fits])
    if not splits:
        return ""
    lines, limit = [], account.limit
    for split, asked in splits.items():
        for part in (split, split.other):
            used = limit and use(limit, account.fits, part)
            spent = use_text(used) if used else f"have {epsilon_text(account.spent(part))} at delta = {round_up(account.delta)}"
            lines.append(f"{len(asked[part.side]) or 'none'} of the fits on {part}, who {spent}")
    lines += [f"{len(everybody)} on everybody"] if everybody else []
    lines += ["different splits overlap, so they are added up"] if len(splits) > 1 else []
    return f". People were set aside, and nobody is on both sides of a split: {'; '.join(lines)}"


def figures(account: PrivacyAccount) -> dict[str, Any]:
    """What is counted, and what it comes to, in plain JSON types; None for an epsilon where nothing is promised."""
    fits, limit = account.fits, account.limit
    parts = [side for split in by_split([(fit.part, fit) for fit in fits])[1] for side in (split, split.other)]
    return {
        "fits": [{name: value for name, value in fit.to_dict().items() if name != "digest"} for fit in fits],
        "epsilon": _finite(promises(account)[0]),
        "epsilon_if_watched": _finite(promises(account)[1]),
        "delta": account.delta,
        "limit": limit and {"epsilon": limit.epsilon, "delta": limit.delta} | _used(limit, fits),
        "parts": [
            part.to_dict()
            | {"users": part.users, "epsilon": _finite(promises(account, part)[0])}
            | (_used(limit, fits, part) if limit else {})
            for part in parts
        ],
    }


def _used(limit: Limit, fits: Sequence[Spent], part: Part | None = None) -> dict[str, float]:
    used = use(limit, fits, part)
    return {} if used is None else {"used_of_mu_squared": used[0], "used_of_slack": used[1]}


@functools.lru_cache(maxsize=1024)
def _bound(guarantee: Guarantee, watched: bool) -> GaussianBound:
    return gaussian_bound(guarantee.if_watched if watched else guarantee)


def _finite(epsilon: float) -> float | None:
    return None if epsilon == float("inf") else epsilon
