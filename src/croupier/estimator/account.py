"""What has been spent on the same people: every fit of an estimator and of its clones, added up."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from .. import files
from ..privacy import Guarantee
from ..privacy._filter import COMMON_DELTA, Caps, Limit, bounds_of, first_cap, require_countable, spent, without_lots
from ..privacy._ledger import BudgetExceededError
from ..privacy._statements import round_up
from ..statistics._holdout import SIDES, Part, by_split
from ..validation import ArgumentError, Found, one_of, real

# The file of an account: its terms in the first line, then one line a fit. Several processes append to it at once.

FORMAT, VERSION = "croupier account", 1
UNITS = ("row", "person", "user")
_EDITED = "Do not edit an account by hand; start a new one."


@dataclass(frozen=True)
class Spent:
    """One fit.

    `what`: The estimator. `users`: On how many users. `guarantee`: None if its randomness was seeded. `run`: The run's name: a fit
    that resumes from a checkpoint is the same run, and is counted once. `unit`: Whom the guarantee protects: "row" (every row was a
    user), "person" (all rows of a person were one), or "user" (whatever the population calls one). `part`: The part of the people
    that was asked, where they were set aside; None for everybody.
    """

    what: str
    users: int
    guarantee: Guarantee | None
    run: str
    unit: str
    part: Part | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; with a digest where the entry names a part, since that takes it out of the sum of others."""
        guarantee = self.guarantee and self.guarantee.to_dict()
        plain = {"what": self.what, "users": self.users, "guarantee": guarantee, "run": self.run, "unit": self.unit}
        if self.part is None:
            return plain
        plain |= {"part": self.part.to_dict()}
        return plain | {"digest": _digest(plain)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Spent:
        """An entry as it was written."""
        guarantee = None if values["guarantee"] is None else Guarantee.from_dict(values["guarantee"])
        unit = one_of("unit", values["unit"], UNITS, _EDITED)
        part = None if values.get("part") is None else Part.from_dict(values["part"])
        spent = cls(values["what"], values["users"], guarantee, values["run"], unit, part)
        if part is not None:
            part.require(spent.users, unit)
            if values.get("digest") != _digest({name: value for name, value in values.items() if name not in ("id", "digest")}):
                raise ArgumentError("part", str(part), "as it was when the fit was recorded", _EDITED)
        return spent


def limit_text(limit: Limit) -> str:
    """A limit in words."""
    return f"limit epsilon = {round_up(limit.epsilon)}, delta = {round_up(limit.delta)}"


@dataclass(frozen=True)
class Terms:
    """What is fixed for an account before anything is released.

    `limit`: None if fits are counted without one. `first_cap`: The odometer's smallest cap, by the first fit; None in memory, where
    it follows from that fit when a figure is asked for. `delta`: That of every figure, and of the limit.
    """

    limit: Limit | None
    first_cap: float | None
    delta: float

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        fixed = {"limit": self.limit and asdict(self.limit), "first_cap": self.first_cap, "delta": self.delta}
        return {"format": FORMAT, "version": VERSION} | fixed

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Terms:
        """Terms as they were written; caps that do not keep the limit are refused."""
        remedy = "Start a new file, with a limit that leaves room for what the old one has spent."
        if values.get("format") != FORMAT or values.get("version") != VERSION:
            allowed = f"of format {FORMAT!r}, version {VERSION}, which states whom every fit protects and fixes the limit"
            raise ArgumentError("first line", values.get("format", "an account without terms"), allowed, remedy)
        first = real("first_cap", values["first_cap"], above=0, remedy=remedy)
        if values["limit"] is None:
            return cls(None, first, real("delta", values["delta"], above=0, below=1, remedy=remedy))
        caps = Caps(**{name: real(name, value, above=0, remedy=remedy) for name, value in values["limit"]["caps"].items()})
        epsilon = real("epsilon", values["limit"]["epsilon"], above=0, remedy=remedy)
        delta = real("delta", values["limit"]["delta"], above=0, below=1, remedy=remedy)
        if not caps.keep(epsilon, delta):
            raise ArgumentError("caps", str(caps), f"such that they keep epsilon = {epsilon!r}, delta = {delta!r}", remedy)
        return cls(Limit(epsilon, delta, caps=caps), first, delta)


def is_account(path: Path) -> bool:
    """Whether this file begins as accounts do, of whatever version."""
    try:
        with path.open("rb") as file:
            first = files.json_object(file.readline(10_000))
    except OSError:
        return False
    return first is not None and first.get("format") == FORMAT


def append(path: Path, entry: dict[str, Any]) -> None:
    """One more line, on the disk when this returns."""
    line = files.json_line(entry)
    if path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n"):
        line = b"\n" + line  # an incomplete line stays one line, and is refused when read
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        files.append(handle, line, path)
    finally:
        os.close(handle)


def read(path: Path) -> tuple[Terms | None, list[Spent]]:
    """The terms and the fits in a file; None and no fits where it is empty or not there.

    Two processes that begin a file at once both write terms: the first line counts.
    """
    entries = [_entry(path, *numbered) for numbered in enumerate(path.read_text().splitlines(), start=1)] if path.exists() else []
    if not entries:
        return None, []
    try:
        terms = Terms.from_dict(entries[0])
        cancelled = {entry["cancelled"] for entry in entries if "cancelled" in entry}
        return terms, [Spent.from_dict(entry) for entry in entries if "id" in entry and entry["id"] not in cancelled]
    except (KeyError, TypeError) as problem:
        raise ArgumentError(
            str(path), Found(f"cannot be read ({type(problem).__name__}: {problem})"), "complete", _EDITED
        ) from None


def _digest(plain: dict[str, Any]) -> str:
    """Tells an entry from one that was changed by hand. It has no key, so it does not stop a forger."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _entry(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError:
        remedy = "If an interrupted fit left it, count that fit as spent and repair the line; otherwise name an account file."
        raise ArgumentError(f"{path}, line {number}", Found("is not JSON"), "a whole entry", remedy) from None
    if not isinstance(entry, dict):
        raise ArgumentError(
            f"{path}, line {number}",
            Found("is not a JSON object"),
            "an entry of an account",
            "Name an account file.",
        )
    return entry


# What the fits of an account come to, for whom, in figures and in words.

# Users are of so many kinds as there are sides to choose: 2 to the power of the number of splits.
MOST_SPLITS = 8


def by_user_group(fits: Sequence[Spent], part: Part | None = None) -> list[list[Spent]]:
    """The fits that ask a user, in order, for every group of users: one side of every split."""
    if all(fit.part is None for fit in fits):
        return [list(fits)]
    splits = list(by_split([(fit.part, fit) for fit in fits])[1])
    chosen = [
        dict(zip(splits, sides, strict=True))
        for sides in itertools.product(SIDES, repeat=len(splits))
        if part is None or dict(zip(splits, sides, strict=True)).get(part.split, part.side) == part.side
    ]
    return [[fit for fit in fits if fit.part is None or side[fit.part.split] == fit.part.side] for side in chosen]


def require_few_splits(fits: Sequence[Spent]) -> None:
    """Refuse a fit of one more split than can be counted kind by kind."""
    splits = len({fit.part.split for fit in fits if fit.part is not None})
    if splits > MOST_SPLITS:
        remedy = "Different splits overlap, so they are added up anyway: count this fit on everybody, without a part."
        raise ArgumentError("part", Found(f"is of split {splits} on this account"), f"one of at most {MOST_SPLITS} splits", remedy)


def guarantees_of(fits: Sequence[Spent]) -> list[Guarantee] | None:
    """The guarantees of fits that ask the same user; None if one of them has none."""
    guarantees = [fit.guarantee for fit in fits]
    return None if None in guarantees else [guarantee for guarantee in guarantees if guarantee]


def spent_by(found: Sequence[Sequence[Spent]], terms: Terms, fits: Sequence[Spent], *, watched: bool) -> float:
    """An odometer for every kind of user, whose first cap is fixed before their first fit: the largest figure (section 4)."""
    totals = [0.0]
    for asked in filter(None, found):
        guarantees = guarantees_of(asked)
        if guarantees is None:
            return float("inf")
        cap = terms.first_cap if asked[0] is fits[0] and not watched else None
        totals.append(spent(guarantees, terms.delta, first=cap, watched=watched))
    return max(totals)


def cap_usage(limit: Limit, fits: Sequence[Spent], part: Part | None = None) -> tuple[float, float] | None:
    """Which parts of the caps users (of a part) have used up, at most; None if a fit has no guarantee."""
    found = [guarantees_of(asked) for asked in by_user_group(fits, part) if asked]
    used = [(0.0, 0.0), *(limit.use(guarantees) for guarantees in found if guarantees is not None)]
    return None if None in found else (max(squares for squares, _ in used), max(slacks for _, slacks in used))


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
    """Say what is counted for whom, where people were set aside; empty if everybody counts in every fit."""
    everybody, splits = by_split([(fit.part, fit) for fit in account.fits])
    if not splits:
        return ""
    lines, limit = [], account.limit
    for split, asked in splits.items():
        for part in (split, split.other):
            used = limit and cap_usage(limit, account.fits, part)
            spent = use_text(used) if used else f"have {epsilon_text(account.spent(part))} at delta = {round_up(account.delta)}"
            fits = "1 fit" if len(asked[part.side]) == 1 else f"{len(asked[part.side]) or 'no'} fits"
            lines.append(f"{part} ({fits}) {spent}")
    lines += [f"fits on everybody: {len(everybody)}"] if everybody else []
    lines += ["different splits overlap, so they are added up"] if len(splits) > 1 else []
    return f". Nobody is on both sides of a split: {'; '.join(lines)}"


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
    used = cap_usage(limit, fits, part)
    return {} if used is None else {"used_of_mu_squared": used[0], "used_of_slack": used[1]}


def _finite(epsilon: float) -> float | None:
    return None if epsilon == float("inf") else epsilon


# By which factor two processors' figures of one run may differ.
SAME_RUN_TOLERANCE = 1 + 1e-9


class BudgetWarning(UserWarning):
    """The same people's data is used for more than one fit, and no account counts this."""


class PrivacyAccount(files.Figures):
    """Counts what all fits on one group of people reveal together. Give the same account to every estimator that sees them.

    Clones share it, so a grid search is counted fit by fit, and everybody as if they took part in each: an upper bound for
    cross-validation. Scores on held-out people are releases too, and not counted here: anyone who publishes them publishes
    something about the data.

    Guarantee
    ---------
    With `epsilon`, all fits together are (epsilon, delta)-differentially private, however each is chosen after looking at those
    before it: a fit that would not keep this is refused before it asks anybody. (A filter: caps on the squares of mu and on slacks
    are fixed before the first fit. A first fit that keeps the limit by itself, but not the caps, is taken, and is the last.)
    Without, `spent` is an epsilon that holds whenever one stops. Both by accounting, section 4, for every user: where people were
    set aside, fits on those and fits on the others are not added up, since nobody is in both (`of_part`). The limit and `spent` are
    two promises, each at delta. Which is smaller depends on when one stops, so the smaller of the two holds at 2 delta only. Texts
    and `to_dict` have one of them: the limit where there is one.

    Parameters
    ----------
    path : path, optional
        A file that other processes and later days charge as well. Its first line fixes the limit for all of them: another one is
        refused, none takes over the file's. Without a path the account lives in this process, and refuses to be charged in another
        (n_jobs above 1).
    epsilon : float, optional
        What these people are promised in total; without it there is no limit.
    delta : float, optional
        The delta of that promise, and of `spent`: fixed before the first fit, as the limit is. Default: the file's, or 1e-6 for a
        new account.

    Attributes
    ----------
    fits : tuple of Spent
        Every fit so far.
    part : Part or None
        The part of the people that fits on this account are about; None for everybody.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.estimator import PrivacyAccount, ShuffleLogisticRegression
    >>> account = PrivacyAccount(epsilon=2.0, delta=1e-5)
    >>> X = np.random.default_rng(0).normal(size=(2000, 3)) / 3
    >>> for epsilon in (0.5, 1.0):
    ...     model = ShuffleLogisticRegression(epsilon=epsilon, classes=[False, True], account=account).fit(X, X[:, 0] > 0)
    >>> len(account.fits), account.spent() < 1.5
    (2, True)
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, epsilon: float | None = None, delta: float | None = None
    ) -> None:
        self.path = None if path is None else Path(path).absolute()
        remedy = "State the total promised to these people, or leave epsilon out to count without a limit."
        self.epsilon = None if epsilon is None else real("epsilon", epsilon, above=0, remedy=remedy)
        self._delta = None if delta is None else real("delta", delta, above=0, below=1, remedy=remedy)
        self._terms: Terms | None = None
        self._fits: list[Spent] = []
        self._lock = threading.Lock()
        self._home: int | None = os.getpid()
        self.part: Part | None = None
        self._whole: PrivacyAccount = self

    def of_part(self, part: Part) -> PrivacyAccount:
        """Return the same account for fits on a part of the people: those who were set aside, or the others.

        Fits on the two sides of one split are not added up; those on everybody, and those of different splits, are.

        Parameters
        ----------
        part : Part
            `Description.part` for those who were set aside and asked, `Description.rest` for the others. Fits have to be on exactly
            these people: by places, their number is checked.

        Returns
        -------
        PrivacyAccount
            To be given to estimators that see only this part. It counts on this account, and knows what it knows.

        Raises
        ------
        ArgumentError
            If this is not a part.

        Examples
        --------
        >>> import numpy as np, croupier as cr
        >>> from croupier.estimator import PrivacyAccount, ShuffleScaler
        >>> X, account = np.random.default_rng(0).normal(size=(20_000, 1)), PrivacyAccount()
        >>> seen = cr.describe(X, {"x": (-9, 9)}, epsilon=1.0, delta=1e-6, share=0.1, account=account)
        >>> scaler = ShuffleScaler(epsilon=1.0, feature_range=(-5, 5), account=account.of_part(seen.rest)).fit(X[~seen.asked])
        >>> len(account.fits), account.spent() < 1.1
        (2, True)
        """
        if not isinstance(part, Part):
            raise ArgumentError("part", part, "a Part", "Take it from a description: description.part or description.rest.")
        view = PrivacyAccount.__new__(PrivacyAccount)
        vars(view).update(vars(self._whole), part=part)
        return view

    @property
    def fits(self) -> tuple[Spent, ...]:
        """Every fit so far, in order."""
        return tuple(self._state()[1])

    @property
    def delta(self) -> float:
        """The delta of every figure: fixed before the first fit, since one that is chosen after looking proves nothing."""
        terms = self._state()[0]
        return terms.delta if terms else self._delta or COMMON_DELTA

    @property
    def elsewhere(self) -> bool:
        """Whether this is a copy, in another process or out of a pickle, whose charges nobody would see."""
        return self.path is None and self._home != os.getpid()

    def spent(self, part: Part | None = None) -> float:
        """An epsilon for everything so far, which holds whenever one stops, whatever was chosen after looking at what.

        It is more than the sum of fits that were fixed beforehand would have: 5 % for one fit, 10 to 40 % for more. For such fits
        `Guarantee.compose` has the sum.

        Guarantee
        ---------
        Let e be this figure at the moment at which one stops. For neighbours P, Q and every event E, P(E) <= E_Q[e^e; E] + delta,
        with the account's delta. A limit is a promise of its own: the smaller of the two holds at 2 delta.

        Parameters
        ----------
        part : Part, optional
            For people in this part. Default: for everybody.

        Returns
        -------
        float
            0 before the first fit; infinite if none can be promised: a fit was seeded, or slacks exceed a quarter of delta.
        """
        if not isinstance(part, Part | None):
            remedy = "The delta is the account's, fixed before the first fit: PrivacyAccount(delta=...)."
            raise ArgumentError("part", part, "a Part, or left out", remedy)
        terms, fits = self._state()
        if terms is None or not fits:
            return 0.0
        return spent_by(by_user_group(fits, part), terms, fits, watched=False)

    def spent_if_watched(self) -> float:
        """An epsilon for everything so far to an attacker who also knows when each user answered, in fits with secret lots.

        Returns
        -------
        float
            As `spent`, of `guarantee.if_watched` of every fit; never less than `spent`.

        Guarantee
        ---------
        As of `spent`. The first cap is that of the first fit's own `if_watched`, which its plan fixes before anybody is asked. A
        limit (`epsilon`) is about `spent` alone.

        Examples
        --------
        >>> from croupier.estimator import PrivacyAccount
        >>> from croupier.privacy import plan_lots
        >>> account = PrivacyAccount()
        >>> plan = plan_lots(epsilon=1.0, delta=1e-7, users=10_000, rounds=20, dim=5)
        >>> account.charge("a fit", 10_000, plan.guarantee), account.spent() < account.spent_if_watched()
        (1, True)
        """
        terms, fits = self._state()
        if terms is None or not fits:
            return 0.0
        return max(self.spent(), spent_by(by_user_group(fits), terms, fits, watched=True))

    @property
    def has_secret_lots(self) -> bool:
        """Whether a fit had secret lots, so that `spent_if_watched` says more than `spent`."""
        return any(fit.guarantee is not None and fit.guarantee.watched is not None for fit in self._state()[1])

    def watched_text(self) -> str:
        """Say what is left to an attacker who also knows when each user answered.

        Returns
        -------
        str
            To be put after another figure; empty if no lots were secret.
        """
        if not self.has_secret_lots:
            return ""
        return f"; to an attacker who also knows when each user answered {epsilon_text(promises(self)[1])}"

    def charge(
        self,
        what: str,
        users: int,
        guarantee: Guarantee | None,
        run: str | None = None,
        *,
        unit: str = "row",
        part: Part | None = None,
    ) -> int:
        """Write down a fit before it asks anybody, or refuse. A run that is written down already is not charged again.

        Parameters
        ----------
        what : str
            The estimator.
        users : int
            On how many users.
        guarantee : Guarantee or None
            None if it is seeded.
        run : str, optional
            The run's name.
        unit : str
            Whom the guarantee protects: "row", "person" or "user", as in `Spent`.
        part : Part, optional
            The part of the people that is asked; default: that of this account (`of_part`).

        Returns
        -------
        int
            Number of fits now.

        Raises
        ------
        BudgetExceededError
            If the limit would not be kept, or the account lives in another process.
        ArgumentError
            If the fit protects another unit or has other neighbours than those before it, or the file has another limit; or
            where the run is written down with a stronger guarantee than this one, or the users are not those of the part.
        """
        if self._whole is not self:
            return self._whole.charge(what, users, guarantee, run, unit=unit, part=self.part if part is None else part)
        if self.elsewhere:
            raise BudgetExceededError(
                "this account lives in another process, where a charge made here would not be seen; nobody was asked. "
                "Use n_jobs=1, or give the account a file: PrivacyAccount(path)."
            )
        one_of("unit", unit, UNITS, "State whom the guarantee protects.")
        if part is not None:
            part.require(users, unit)
        spent = Spent(what, users, guarantee, run or uuid.uuid4().hex, unit, part)
        if guarantee is not None:
            require_countable(guarantee)
        with self._lock:
            terms, fits = self._state()
            if terms is None:
                self._begin(guarantee)
            known = [earlier.run for earlier in fits]
            if spent.run in known:
                _require_same(fits[known.index(spent.run)], spent)
                self._refuse_beyond(fits[: known.index(spent.run) + 1])  # it may have been interrupted before it was refused
                return len(fits)
            if self.path is None:
                self._refuse_beyond([*self._fits, spent])
                self._fits.append(spent)
                return len(self._fits)
            # First written, then checked, then taken back if too much: two processes at once can both be refused, never both pass.
            number = uuid.uuid4().hex
            append(self.path, {"id": number} | spent.to_dict())
            try:
                self._refuse_beyond(now := self._state()[1])
            except Exception:
                append(self.path, {"cancelled": number})
                raise
            return len(now)

    def _state(self) -> tuple[Terms | None, list[Spent]]:
        """The terms, once there are any, and the fits."""
        if self.path is None:
            return self._whole._terms, self._whole._fits
        terms, fits = read(self.path)
        there = terms.limit if terms else None
        if terms and (self.epsilon not in (None, there and there.epsilon) or self._delta not in (None, terms.delta)):
            remedy = "Both are fixed before the first fit. Leave epsilon and delta out to use the file's."
            allowed = f"as in {self.path}, which has {limit_text(there) if there else f'no limit, delta = {round_up(terms.delta)}'}"
            raise ArgumentError("epsilon, delta", (self.epsilon, self._delta), allowed, remedy)
        return terms, fits

    def _begin(self, guarantee: Guarantee | None) -> None:
        """Fix the terms before anything is released: the account's, and in a file the odometer's first cap by the first fit."""
        cap = None if self.path is None else first_cap(bounds_of([guarantee])[0] if guarantee else None)
        self._terms = Terms(self._new_limit(), cap, self.delta)
        if self.path is not None:
            append(self.path, self._terms.to_dict())

    def _refuse_beyond(self, fits: Sequence[Spent]) -> None:
        """Refuse the last of these fits if they are not of one kind, or do not keep the limit together."""
        terms = self._state()[0]
        require_few_splits(fits)
        for name, found in (
            ("unit", {fit.unit for fit in fits}),
            ("neighbours", {fit.guarantee.neighbours for fit in fits if fit.guarantee}),
        ):
            require_one(name, found)
        limit = terms.limit if terms else None
        if limit is None:
            return
        promise = f"with this fit, {len(fits)} on this account, the {limit_text(limit)} would not hold"
        used = cap_usage(limit, fits)
        if used is None:
            raise BudgetExceededError(f"{promise}: one of them is seeded. Nobody was asked. Leave random_state out.")
        if all((guarantees := guarantees_of(asked)) and limit.keeps(guarantees) for asked in by_user_group(fits) if asked):
            return
        squares, slacks = used
        remedy = "Fit with a smaller epsilon" if squares > 1 else "Fit with a smaller delta"
        raise BudgetExceededError(
            f"{promise}: the squares of mu would be {round_up(squares)} times its cap on them, the slacks {round_up(slacks)} times "
            f"theirs. Nobody was asked. {remedy}, or stop here."
        )

    # A clone counts on the same account, and so does a copy in this process; one that leaves it knows that it is a copy.
    def __sklearn_clone__(self) -> PrivacyAccount:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> PrivacyAccount:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"} | {"_home": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    @property
    def limit(self) -> Limit | None:
        """What everybody is promised in total; None if fits are counted without a limit."""
        terms = self._state()[0]
        return terms.limit if terms else self._new_limit()

    def _new_limit(self) -> Limit | None:
        return None if self.epsilon is None else Limit(self.epsilon, self.delta)

    def to_dict(self) -> dict[str, Any]:
        """Return what is counted, for whom, and what it comes to, in plain JSON types.

        Returns
        -------
        dict
            "fits", each with its guarantee and part; "epsilon" at "delta", which is that of the limit where there is one, and else
            what was spent, and "epsilon_if_watched", None if nothing is promised; "limit", with the parts of its caps that are
            used; and "parts", with the same of each side of a split.
        """
        return figures(self)

    def figures(self) -> list[dict[str, Any]]:
        """Return the fits that are written down.

        Returns
        -------
        list of dict
            "what", "users", "unit", "epsilon", at the account's delta, and "part".
        """
        rows = []
        for fit in self._state()[1]:
            epsilon = "NOT private" if fit.guarantee is None else epsilon_text(fit.guarantee.epsilon(self.delta))
            rows.append({"what": fit.what, "users": fit.users, "unit": fit.unit, "epsilon": epsilon, "part": str(fit.part or "")})
        return rows

    def __str__(self) -> str:
        fits, limit = self._state()[1], self.limit
        if any(fit.guarantee is None for fit in fits):
            seeded = "NOT PRIVATE together (one was seeded, or on a stand-in)"
            return f"{len(fits)} fits, {seeded}; {limit_text(limit) if limit else 'no limit'}{parts_text(self)}"
        if limit is None:
            together = f"together {epsilon_text(self.spent())} at delta = {round_up(self.delta)}"
            return f"{len(fits)} fits, {together}{self.watched_text()}; no limit{parts_text(self)}"
        used = use_text(cap_usage(limit, fits) or (0.0, 0.0))
        return f"{len(fits)} fits within the {limit_text(limit)}; {used}{self.watched_text()}{parts_text(self)}"


def _require_same(written: Spent, again: Spent) -> None:
    """Refuse a run by a name that was written down for one that reveals less: what is more would not be counted."""
    remedy = "Give every run its own name; only a run resumed from a checkpoint keeps its name."
    same = (written.unit, written.part) == (again.unit, again.part)
    if written.guarantee is not None and again.guarantee is not None:
        same = same and written.guarantee.neighbours == again.guarantee.neighbours
    for watched in (False, True):
        before, now = (fit.guarantee and bounds_of([fit.guarantee], watched=watched)[0] for fit in (written, again))
        same = same and (
            not before or bool(now and now.mu <= before.mu * SAME_RUN_TOLERANCE and now.slack <= before.slack * SAME_RUN_TOLERANCE)
        )
    if not same:
        raise ArgumentError("run", again.run, "that of a run with the same guarantee, or a new one", remedy)


def require_one(name: str, kinds: set[Any]) -> None:
    """Refuse fits that protect different things: one figure would be true for the smallest of them only."""
    if len(kinds) > 1:
        remedy = "Pass groups= to every fit, or to none, and plan all with the same neighbours; or use one account for each."
        raise ArgumentError(name, sorted(map(str, kinds)), "the same in all fits that are counted together", remedy)


# What a fitted pipeline reveals in total.


def total_guarantee(model: Any, *, public_steps: tuple[str, ...] = (), parts: Mapping[str, Part] | None = None) -> Guarantee | None:
    """Return what a fitted pipeline reveals in total: the guarantees of its steps, composed.

    Parameters
    ----------
    model : estimator or Pipeline
        Fitted.
    public_steps : tuple of str, optional
        Names of steps of other libraries that were fitted on public data only.
    parts : mapping of str to Part, optional
        By the name of a step, the part of the people that it was fitted on, where people were set aside (`Description.part`,
        `Description.rest`). The others count as fitted on everybody.

    Returns
    -------
    Guarantee or None
        Of all steps together, for every user; None if a step was seeded.

    Guarantee
    ---------
    Steps on everybody are composed; of the two sides of a split the worse counts, since nobody is in both (accounting, section 4).
    The plans of all steps are taken as fixed before the first was fitted: where one was chosen after looking, count with a
    `PrivacyAccount`.

    Raises
    ------
    ArgumentError
        For a step of another library that learns from data, since nothing bounds what it reveals, unless `public_steps` names it;
        and for steps that saw different numbers of users, or others than their part has.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from croupier.estimator import ShuffleLogisticRegression, ShuffleScaler, total_guarantee
    >>> X = np.random.default_rng(0).normal(size=(3000, 2))
    >>> scaler = ShuffleScaler(epsilon=0.5, feature_range=(-4, 4))
    >>> model = make_pipeline(scaler, ShuffleLogisticRegression(classes=[False, True])).fit(X, X[:, 0] > 0)
    >>> round(total_guarantee(model).epsilon(1e-6), 1)
    1.1
    """
    found: list[tuple[Part | None, Guarantee | None]] = []
    users: dict[Part | None, dict[str, int]] = {}
    units: set[str | None] = set()
    declared = dict(parts or {})
    for name, step in _steps(model):
        if hasattr(type(step), "guarantee_"):
            part = declared.pop(name, None)
            if part is not None:
                part.require(step.n_users_, step.unit_)
            found.append((part, step.guarantee_))
            users.setdefault(part, {})[name] = step.n_users_
            units.add(step.unit_)
        elif name not in public_steps and get_tags(step).requires_fit:
            raise ArgumentError(
                f"step {name!r}",
                type(step).__name__,
                "one of croupier's, or one that learns nothing from the data",
                f"No guarantee covers its fit. {_instead(type(step).__name__)} If all that it learned is public (a fit on public "
                f"data, categories that were given to it), pass public_steps=({name!r},).",
            )
    if declared:
        raise ArgumentError("parts", sorted(declared), "names of steps that have a guarantee", "Name the steps of this pipeline.")
    for same in users.values():
        if len(set(same.values())) > 1:
            remedy = "Pass groups= to every step, so that all count people; state in parts= which steps saw only some of them."
            raise ArgumentError("n_users_", same, "the same in all steps", remedy)
    require_one("unit_", units)
    return _worst(found)


# What to use in place of steps of other libraries, by a part of their names.
_INSTEAD = {
    "Imputer": 'For gaps, pass invalid="blank" to the croupier estimator.',
    "Encoder": "For text columns, give an encoder every category (categories=[...]), or use a Schema with fit_table.",
    "ColumnTransformer": "For text columns, use a Schema with fit_table, which encodes every column by public facts.",
    "PCA": "For many columns, use croupier.features.Projection, which learns nothing.",
    "Scaler": "For scaling, use ShuffleScaler, or declare feature_range=.",
}


def _instead(step: str) -> str:
    """What does the work of a step that learns from data, and is covered; where it is not known, nothing."""
    return next((remedy for part, remedy in _INSTEAD.items() if part in step), "Use a step that learns nothing, or ShuffleScaler.")


def _steps(model: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(model, Pipeline):
        yield type(model).__name__, model
        return
    for name, step in model.steps:
        if step is not None and step != "passthrough":
            yield from _steps(step) if isinstance(step, Pipeline) else [(name, step)]


def _worst(found: list[tuple[Part | None, Guarantee | None]]) -> Guarantee | None:
    """What holds for every user: all that is about everybody, and of every split the worse side."""
    known = [(part, guarantee) for part, guarantee in found if guarantee is not None]
    if not known or len(known) < len(found):
        return None
    everybody, splits = by_split(known)
    for sides in splits.values():
        both = [_composed(side) for side in sides.values() if side]
        if len({bool(guarantee.allocations) for guarantee in both}) > 1:  # the worst of both forms would be as bad as their sum
            both = [without_lots(guarantee) for guarantee in both]
        everybody.append(both[0].worst_of(*both[1:]))
    return _composed(everybody)


def _composed(guarantees: list[Guarantee]) -> Guarantee:
    return guarantees[0].compose(*guarantees[1:])
