"""Errors of the Python API in the words of the command line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ..table import Schema
from ..table.schema import Label, as_text
from ..validation import ArgumentError


@contextmanager
def named_as_options(*names: str) -> Iterator[None]:
    """Errors about these arguments name the options that they came from: `--work-dir` for `work_dir`."""
    try:
        yield
    except ArgumentError as problem:
        if problem.name not in names:
            raise
        option = "--" + problem.name.replace("_", "-")
        raise ArgumentError(option, problem.value, problem.allowed, problem.remedy) from None


# Options of every command that reads data: how CSV files write their values.

Sep = Annotated[str | None, typer.Option("--sep", help="Separator of values in CSV, such as ';' or tab; default: a comma.")]
Decimal = Annotated[str, typer.Option("--decimal", help="Decimal mark in CSV: . or ,")]
Encoding = Annotated[str, typer.Option("--encoding", help="Encoding of CSV files; files from Windows are often cp1252.")]


# `--class-weight CLASS=WEIGHT`: public weights of the schema's classes.

_REMEDY = "For example --class-weight ill=30, if it is public knowledge that about one person in thirty is ill."


def class_weights(given: Sequence[str], facts: Schema) -> dict[str, dict[Label, float]]:
    """The parameter `class_weight` of a classifier from what the command line says; nothing where it says nothing."""
    if not given:
        return {}
    if facts.target.classes is None:
        raise ArgumentError("--class-weight", given[0], "left out if the target is a number", "Remove it.")
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


# Where a command's output may go: nothing is overwritten unasked.


def check_output(path: Path, force: bool) -> None:
    """Refuse a place that cannot be written to, before anything is done for it."""
    folder = path.parent
    if not folder.is_dir():
        raise ArgumentError("-o", str(path), "in a folder that exists", f"Create it first: mkdir -p {folder}")
    if path.is_dir() or not os.access(folder, os.W_OK):
        raise ArgumentError("-o", str(path), "a file in a writable folder", "Choose another path.")
    if path.exists() and not force:
        raise ArgumentError("-o", str(path), "a file that does not exist yet", "Choose another name, or overwrite it with --force.")
