"""A model file: an estimator, and the schema that turns records into its rows. JSON; reading it runs no code."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..estimator import (
    ShuffleHuberRegressor,
    ShuffleLinearSVC,
    ShuffleLogisticRegression,
    ShuffleQuantileRegressor,
    ShuffleRidge,
)
from ..estimator.linear import LinearModel
from ..table import Encoder, Schema
from ..validation import ArgumentError, real
from .files import written_whole

FORMAT, VERSION = "croupier table model", 2
TASKS: dict[str, type[LinearModel]] = {
    "classify": ShuffleLogisticRegression,
    "svm": ShuffleLinearSVC,
    "regress-huber": ShuffleHuberRegressor,
    "regress-mean": ShuffleRidge,
    "quantile": ShuffleQuantileRegressor,
}


@dataclass(frozen=True)
class TableModel:
    """What `croupier fit` makes: `estimator` on the rows that `schema` describes."""

    schema: Schema
    estimator: Any

    @property
    def task(self) -> str:
        return next(task for task, kind in TASKS.items() if kind is type(self.estimator))

    @property
    def classifies(self) -> bool:
        return self.schema.target.classes is not None

    def save(self, path: Path) -> None:
        values = {
            "format": FORMAT,
            "version": VERSION,
            "croupier": __version__,
            "schema": self.schema.to_dict(),
            "estimator": json.loads(self.estimator.to_json()),
        }
        with written_whole(path) as part:
            part.write_text(json.dumps(values, allow_nan=False), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> TableModel:
        """The model in a file. Its plans are proved again, and a promise that goes beyond them is refused."""
        remedy = "Pass a file that croupier fit wrote."
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as problem:
            reason = getattr(problem, "strerror", None) or "not JSON; it may have been cut off"
            raise ArgumentError("MODEL", str(path), f"a model file that can be read ({reason})", remedy) from None
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise ArgumentError("MODEL", str(path), f"JSON of format {FORMAT!r}", remedy)
        if values.get("version") != VERSION:
            made_by = (
                f"It was written by croupier {values.get('croupier', '?')}; this is {__version__}: use that one, or train again."
            )
            raise ArgumentError(f"{path}: version", values.get("version"), f"{VERSION}", made_by)
        return cls(Schema.from_dict(values.get("schema"), f"{path}: schema"), _estimator(values.get("estimator"), path))._checked(
            path
        )

    def _checked(self, path: Path) -> TableModel:
        """Refuse a schema that does not belong to the estimator."""
        target, estimator = self.schema.target, self.estimator
        fits = len(Encoder(self.schema).names) == getattr(estimator, "n_features_in_", None)
        if target.classes is not None:
            fits = fits and np.array_equal(np.unique(target.classes), getattr(estimator, "classes_", []))
        else:
            fits = fits and tuple(getattr(estimator, "target_range_", ())) == target.range
        if not fits:
            raise ArgumentError(f"{path}: schema", "another model's", "that of the estimator beside it", "Do not use this file.")
        return self


@dataclass(frozen=True)
class Request:
    """What a command asks of an estimator."""

    task: str
    parameters: dict[str, Any]
    delta: float | None

    def estimator(self, facts: Schema, users: int | None = None) -> LinearModel:
        """The estimator for so many users, its public facts from the schema; a request that cannot be kept is refused.

        Before users are counted, only what is wrong for any number of them.
        """
        if self.delta is not None:
            real("--delta", self.delta, above=0, below=1, remedy="Take much less than 1 / users; 1e-6 is usual.")
        target = facts.target
        public = {"classes": list(target.classes)} if target.classes is not None else {"target_range": target.range}
        delta = min(1e-6, 0.1 / (users or 2)) if self.delta is None or users is None else self.delta
        norm = Encoder(facts).norm
        made = TASKS[self.task](**self.parameters, **public, delta=delta, feature_norm=norm)
        made.check_request(users or 2)
        return made


def _estimator(values: Any, path: Path) -> Any:
    kinds = {kind.__name__: kind for kind in TASKS.values()}
    kind = values.get("kind") if isinstance(values, dict) else None
    if kind not in kinds:
        raise ArgumentError(f"{path}: estimator", kind, " or ".join(kinds), "Pass a file that croupier fit wrote.")
    return kinds[kind].from_json(json.dumps(values))
