"""Models as JSON: parameters, what was learned, the transcript, and plans that are certified again when they are read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..files import JsonText, write_whole
from ..optimizer import Result
from ..privacy import Guarantee, SumPlan
from ..protocol import SumEstimate
from ..validation import ArgumentError, Found
from ._rounds import GroupRounds, check_round

FORMAT, VERSION = "croupier model", 1
# Parameters that are objects of this process and not facts about the model.
_NOT_SAVED = ("account", "callbacks")
_REMEDY = "Pass what to_json() or save() of an estimator gave."


class JsonModel(JsonText):
    """to_json, from_json and save. No code is run by reading a file, unlike with pickle."""

    def to_dict(self) -> dict[str, Any]:
        """Give the estimator in plain JSON types: parameters and everything learned, except for `account` and `callbacks`.

        Returns
        -------
        dict
            Input of `from_dict`.

        Raises
        ------
        ArgumentError
            If a parameter is something that JSON cannot hold.
        """
        params = {k: v for k, v in self.get_params(deep=False).items() if k not in _NOT_SAVED}  # type: ignore[attr-defined]
        state = {name: value for name, value in vars(self).items() if name.endswith("_")}
        plain = {"format": FORMAT, "version": VERSION, "kind": type(self).__name__}
        return plain | {"parameters": _encode(params), "fitted": _encode(state)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read the model that `to_dict` gave. Its guarantee is certified again.

        Parameters
        ----------
        values : dict
            Output of `to_dict`.

        Returns
        -------
        self
            As it was written.

        Raises
        ------
        ArgumentError
            If it is not a model of this class and version, or promises more than its plans keep.
        """
        model: Self = _decoded(values, {cls.__name__: cls})
        return model

    def to_json(self) -> str:
        """Write the estimator as JSON: parameters and everything learned, except for `account` and `callbacks`.

        Returns
        -------
        str
            Input of `from_json`.

        Raises
        ------
        ArgumentError
            If a parameter is something that JSON cannot hold.
        """
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the model that `to_json` wrote. Its guarantee is certified again.

        Parameters
        ----------
        text : str
            Output of `to_json`.

        Returns
        -------
        self
            As it was written.

        Raises
        ------
        ArgumentError
            If the text is not a model of this class and version, or promises more than its plans keep.
        """
        return cls.from_dict(_parsed(text))

    def check_learned(self) -> None:
        """Refuse learned numbers that do not follow from the result beside them."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `to_json()` to a file, which is there in full or not at all; `load_model` reads it.

        Parameters
        ----------
        path : path-like
            Where it goes; a file of that name is replaced.
        """
        write_whole(Path(path), self.to_json().encode())


def load_model(path: str | os.PathLike[str]) -> Any:
    """Read the estimator that `save` wrote to a file. No code is run by that, and its guarantee is certified again.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    estimator
        Of the class that was saved, fitted if it was.

    Raises
    ------
    ArgumentError
        If the file is not a model of this version, or promises more than its plans keep.

    Examples
    --------
    >>> import tempfile
    >>> from croupier.estimator import ShuffleRidge, load_model
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ShuffleRidge(epsilon=2.0, target_range=(0, 100)).save(f"{folder}/model.json")
    ...     model = load_model(f"{folder}/model.json")
    >>> model.epsilon
    2.0
    """
    from .. import estimator  # noqa: PLC0415  (the room's own table of contents)

    public = {name: vars(estimator)[name] for name in estimator.__all__}
    models = {name: kind for name, kind in public.items() if isinstance(kind, type) and issubclass(kind, JsonModel)}
    return _decoded(_parsed(Path(path).read_text(encoding="utf-8")), models)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as problem:
        raise ArgumentError(
            "model", Found(f"is not a model file (invalid JSON at line {problem.lineno}, column {problem.colno})"), "JSON", _REMEDY
        ) from None


def _decoded(values: Any, kinds: dict[str, type]) -> Any:
    remedy = _REMEDY
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise ArgumentError("model", type(values).__name__, f"a JSON object of format {FORMAT!r}", remedy)
    if values.get("version") != VERSION:
        remedy = "It was written by another version of croupier: read it with that version, or train again."
        raise ArgumentError("version", values.get("version"), f"{VERSION}", remedy)
    if values.get("kind") not in kinds:
        raise ArgumentError("kind", values.get("kind"), " or ".join(kinds), "Use load_model, or the class that wrote it.")
    try:
        model = kinds[values["kind"]](**_decode(values["parameters"]))
        vars(model).update({name: value for name, value in _decode(values["fitted"]).items() if name.endswith("_")})
        _check_promise(vars(model))
        model.check_learned()
    except ArgumentError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as problem:
        raise ArgumentError(
            "model", Found(f"cannot be read ({type(problem).__name__}: {problem})"), "complete and of this version", remedy
        ) from None
    return model


@dataclass(frozen=True)
class Promise:
    """What was asked for when a model was fitted; the guarantee keeps it."""

    epsilon: float
    delta: float
    honest: float
    neighbours: str
    invalid: str


def _check_promise(state: dict[str, Any]) -> None:
    """Refuse a claim that goes beyond plans, which were certified when they were read, as was a result's own guarantee."""
    result, promise = state.get("result_") or state.get("estimate_") or state.get("rounds_"), state.get("promise_")
    if result is None or result.guarantee is None:
        return
    claim: Guarantee = result.guarantee
    if state.get("random_state") is not None:
        raise ArgumentError("random_state", state["random_state"], "None beside a guarantee", "A seeded model is not private.")
    if isinstance(result, SumEstimate):
        check_round(result, state["plan_"])
    if (
        not isinstance(promise, Promise)
        or claim.delta(promise.epsilon) > promise.delta
        or (promise.neighbours, promise.honest) != (claim.neighbours, claim.honest)
    ):
        raise ArgumentError("promise", promise, f"kept by the guarantee: {claim}", "Do not use this file.")


def require_range(plan: SumPlan, dim: int, norm: float, diameter: float | None) -> None:
    """Refuse a plan for vectors of another range than the model's own: its certificate is not about what was sent."""
    if (plan.dim, plan.norm, plan.diameter) != (dim, norm, diameter):
        stated = f"dim {plan.dim}, norm {plan.norm}, diameter {plan.diameter}"
        raise ArgumentError("plan", stated, f"that of this model: {dim}, {norm}, {diameter}", "Do not use this file.")


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "array": lambda values: np.asarray(values["values"], dtype=values["dtype"]),
    "pairs": lambda values: {_decode(name): _decode(entry) for name, entry in values},
    "tuple": lambda values: tuple(_decode(entry) for entry in values),
    "result": Result.from_dict,
    "estimate": SumEstimate.from_dict,
    "plan": SumPlan.from_dict,
    "rounds": GroupRounds.from_dict,
    "promise": lambda values: Promise(**values),
}


def _encode(value: Any) -> Any:
    if isinstance(value, dict) and not all(isinstance(name, str) for name in value):  # class_weight of classes that are no texts
        return {"a": "pairs", "of": [[_encode(name), _encode(entry)] for name, entry in value.items()]}
    if isinstance(value, dict):
        return {name: _encode(entry) for name, entry in value.items()}
    if isinstance(value, np.ndarray):
        return {"a": "array", "of": {"dtype": "object" if value.dtype.kind == "O" else value.dtype.str, "values": value.tolist()}}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple):
        return {"a": "tuple", "of": [_encode(entry) for entry in value]}
    if isinstance(value, list):
        return [_encode(entry) for entry in value]
    for name, kind in (("result", Result), ("estimate", SumEstimate), ("plan", SumPlan), ("rounds", GroupRounds)):
        if isinstance(value, kind):
            return {"a": name, "of": value.to_dict()}
    if isinstance(value, Promise):
        return {"a": "promise", "of": _encode(asdict(value))}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ArgumentError("model", type(value).__name__, "made of numbers, text and arrays to be saved", "Simplify the parameter.")


def _decode(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"a", "of"}:
        return _DECODERS[value["a"]](value["of"])
    if isinstance(value, dict):
        return {name: _decode(entry) for name, entry in value.items()}
    return [_decode(entry) for entry in value] if isinstance(value, list) else value
