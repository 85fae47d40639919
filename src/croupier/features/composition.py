"""Several maps one after the other, stated as a document that schemas, tasks and clients share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from ..arithmetic import row_squares
from ..validation import ArgumentError
from .maps import Floats, FourierFeatures, GroupNorm, Projection, PublicMap, row_blocks
from .scattering import Scattering

_KINDS: dict[str, type[PublicMap]] = {one.kind: one for one in (FourierFeatures, Scattering, GroupNorm, Projection)}
# float32 is right to 6e-8 of every entry: rows divided by this much more than their length are at most 1 long once rounded.
_ROOM = 1 + 1e-7
_MOST_STEPS = 16


class FeatureMap(PublicMap):
    """Public maps one after the other; rows end with length 1, whatever came in.

    `to_dict` states the map as a document of plain values, which a schema (`features = {...}`), a task and the TypeScript client
    read. Rows that the last map sends to 0 stay 0.

    Parameters
    ----------
    steps : sequence of maps
        `FourierFeatures`, `Scattering`, `GroupNorm` and `Projection`, in their order.

    Attributes
    ----------
    n_features_in_ : int
        Columns that `fit` saw.

    Guarantee
    ---------
    The map is the same whatever the data is, and no row is longer than 1, so models with feature_norm=1 lose no privacy to it: a
    map that does not suit the data costs accuracy and nothing else. It adds nothing to `total_guarantee`.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.features import FeatureMap, GroupNorm, Projection, Scattering
    >>> digits = FeatureMap([Scattering((28, 28)), GroupNorm(27), Projection(500)])
    >>> pictures = np.random.default_rng(0).random((3, 784))
    >>> np.linalg.norm(digits.fit_transform(pictures), axis=1).round(3).tolist()
    [1.0, 1.0, 1.0]
    >>> digits.to_dict()["steps"][0]
    {'kind': 'scattering', 'shape': [28, 28]}
    >>> FeatureMap.from_dict(digits.to_dict()).to_dict() == digits.to_dict()
    True
    """

    def __init__(self, steps: Sequence[PublicMap]) -> None:
        self.steps = steps

    def outputs(self, inputs: int) -> int:
        for step in self._steps():
            inputs = step.outputs(inputs)
        return inputs

    def _picture(self) -> tuple[int, int] | None:
        return self._steps()[0]._picture()

    def _mapped(self, rows: Floats) -> Floats:
        for step in self._steps():
            rows = step._in_blocks(rows)
        with np.errstate(invalid="ignore", over="ignore"):
            largest = np.abs(rows).max(axis=1, keepdims=True)
            rows = rows / np.where(largest > 0, largest, 1)  # so that no square is too large or too small
            wide = rows.astype(np.float64)  # squares added up in single precision could be off by more than the room
            lengths = np.sqrt(row_squares(wide))[:, np.newaxis]
            return (wide / (np.where(lengths > 0, lengths, 1) * _ROOM)).astype(rows.dtype)

    def _in_blocks(self, rows: Floats) -> Floats:
        """Map rows that were checked, in blocks of bounded memory, through all steps."""
        widths = [rows.shape[1]]
        for step in self._steps():
            widths.append(step.outputs(widths[-1]))
        mapped = np.empty((len(rows), widths[-1]), rows.dtype)
        for some in row_blocks(len(rows), sum(widths)):
            mapped[some] = self._mapped(rows[some])
        return mapped

    def to_dict(self) -> dict[str, Any]:
        """Return the map as plain values, for TOML and JSON.

        Returns
        -------
        dict
            `steps`: for each its `kind` and parameters. What `from_dict` reads.
        """
        return {
            "steps": [
                {"kind": step.kind} | {name: _plain(value) for name, value in sorted(step.get_params().items())}
                for step in self._steps()
            ]
        }

    @classmethod
    def from_dict(cls, values: Any, name: str = "features") -> Self:
        """Read the map that plain values state.

        Parameters
        ----------
        values : dict
            As `to_dict` gives it; parameters that are left out have their defaults.
        name : str, default "features"
            Its name in errors.

        Returns
        -------
        FeatureMap
            The map; whether it fits the columns is checked where these are known.

        Raises
        ------
        ArgumentError
            If a kind or a parameter is not known.
        """
        steps = values.get("steps") if isinstance(values, Mapping) and set(values) == {"steps"} else None
        if not isinstance(steps, list) or not all(isinstance(step, Mapping) for step in steps):
            remedy = "For example features = {steps = [{kind = 'fourier', size = 1000}]}."
            raise ArgumentError(name, values, "a table with a list of tables, steps", remedy)
        made = cls([_step(f"{name}.steps[{place}]", step) for place, step in enumerate(steps)])
        made._steps()
        return made

    def _steps(self) -> list[PublicMap]:
        steps = list(self.steps) if isinstance(self.steps, Sequence) else []
        if not 0 < len(steps) <= _MOST_STEPS or not all(type(step) in _KINDS.values() for step in steps):
            kinds = ", ".join(kind.__name__ for kind in _KINDS.values())
            raise ArgumentError("steps", self.steps, f"a list of at most {_MOST_STEPS}, of {kinds}", "Name at least one.")
        return steps


def _step(name: str, values: Mapping[str, Any]) -> PublicMap:
    parameters = dict(values)
    kind = parameters.pop("kind", None)
    if kind not in _KINDS:
        raise ArgumentError(f"{name}.kind", kind, " or ".join(map(repr, _KINDS)), "See docs/files.md for an example.")
    known = sorted(_KINDS[kind]().get_params())
    for odd in sorted(set(parameters) - set(known)):
        raise ArgumentError(f"{name}.{odd}", parameters[odd], "left out", f"Allowed keys: {', '.join(known)}.")
    return _KINDS[kind](**parameters)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple | list) else value
