"""What a fitted pipeline reveals altogether."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from ..privacy import Guarantee
from ..privacy._filter import without_lots
from ..statistics.holdout import Part, by_split
from ..validation import ArgumentError
from .account import require_one


def total_guarantee(model: Any, *, public_steps: tuple[str, ...] = (), parts: Mapping[str, Part] | None = None) -> Guarantee | None:
    """Return what a fitted pipeline reveals altogether: the guarantees of its steps, composed.

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
        Of all steps together, for every user; None where a step was seeded.

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
                f"Its fit is not covered by any guarantee. Use ShuffleScaler, or, if it saw public data only, "
                f"public_steps=({name!r},).",
            )
    if declared:
        raise ArgumentError("parts", sorted(declared), "names of steps that have a guarantee", "Name the steps of this pipeline.")
    for same in users.values():
        if len(set(same.values())) > 1:
            remedy = "Pass groups= to every step, so that all count people; say in parts= which steps saw only a part of them."
            raise ArgumentError("n_users_", same, "the same in all steps", remedy)
    require_one("unit_", units)
    return _worst(found)


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
