"""`--class-weight CLASS=WEIGHT`: public weights of the schema's classes."""

from __future__ import annotations

from collections.abc import Sequence

from ..table import Schema
from ..table.schema import Label, as_text
from ..validation import ArgumentError

_REMEDY = "For example --class-weight ill=30 if about one person in thirty is ill, as everybody may know."


def class_weights(given: Sequence[str], facts: Schema) -> dict[str, dict[Label, float]]:
    """The parameter `class_weight` of a classifier from what the command line says; nothing where it says nothing.

    Parameters
    ----------
    given : sequence of str
        CLASS=WEIGHT, each.
    facts : Schema
        The public facts, which declare the classes.

    Returns
    -------
    dict
        {"class_weight": weights by class}, or {}.

    Raises
    ------
    ArgumentError
        For a class that is not declared, a weight that is no number, or a target without classes.
    """
    if not given:
        return {}
    if facts.target.classes is None:
        raise ArgumentError("--class-weight", given[0], "left out where the target is a number", "Leave it out.")
    labels = {as_text(label): label for label in facts.target.classes}
    weights: dict[Label, float] = {}
    for text in given:
        name, _, weight = text.rpartition("=")
        try:
            weights[labels[name.strip()]] = float(weight)
        except (KeyError, ValueError):
            allowed = f"CLASS=WEIGHT with one of the declared classes {', '.join(map(repr, labels))}"
            raise ArgumentError("--class-weight", text, allowed, _REMEDY) from None
    return {"class_weight": weights}
