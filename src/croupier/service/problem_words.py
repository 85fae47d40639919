"""What a task asks, as words that travel: a problem by its loss and domain, or a question of one round."""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any

from .. import problem as problems
from ..problem import Domain, Loss, Problem
from ..validation import ArgumentError
from .queries import AskedQuery


def problem_words(problem: Problem | AskedQuery) -> dict[str, Any]:
    """Return the words of what is asked.

    Parameters
    ----------
    problem : Problem or AskedQuery
        What is asked.

    Returns
    -------
    dict
        In plain JSON types.
    """
    if isinstance(problem, AskedQuery):
        return {"query": problem.words}
    return {
        "loss": _parameters(problem.loss),
        "domain": _parameters(problem.domain),
        "feature_norm": problem.feature_norm,
        "l2": problem.l2,
    }


def problem_of(words: dict[str, Any]) -> Problem | AskedQuery:
    """Return what the words ask; nothing but losses, domains and questions of this library can be named.

    Parameters
    ----------
    words : dict
        As `problem_words` gave them.

    Returns
    -------
    Problem or AskedQuery
        What is asked.

    Raises
    ------
    ArgumentError
        Where the words name something else.
    """
    if set(words) == {"query"}:
        return AskedQuery(words["query"])
    return Problem(
        loss=_made(problems, Loss, words["loss"]),
        domain=_made(problems, Domain, words["domain"]),
        feature_norm=words["feature_norm"],
        l2=words["l2"],
    )


def _parameters(part: Loss | Domain) -> dict[str, Any]:
    values = {given.name: getattr(part, given.name) for given in _given(type(part))}
    return {"kind": type(part).__name__} | {
        name: _parameters(value) if isinstance(value, Loss) else value for name, value in values.items()
    }


def _made(module: Any, base: type, values: dict[str, Any]) -> Any:
    """One of our losses or domains by its name; nothing else can be named."""
    kind = getattr(module, str(values["kind"]), None)
    if not isinstance(kind, type) or not issubclass(kind, base) or kind.__name__.startswith("_"):
        raise ArgumentError("kind", values["kind"], f"a {base.__name__.lower()} of this library", "Use the same version.")
    return kind(**{one.name: _value(module, base, values[one.name]) for one in _given(kind)})


def _value(module: Any, base: type, value: Any) -> Any:
    """A parameter of a loss or a domain: a number, several, or another one of the same base."""
    if isinstance(value, dict):
        return _made(module, base, value)
    return tuple(value) if isinstance(value, list) else value


def _given(kind: Any) -> list[Field[Any]]:
    """What a loss or a domain is made from; what it computes from that does not travel."""
    return [known for known in fields(kind) if known.init]
