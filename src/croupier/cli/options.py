"""Errors of the Python API in the words of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
