"""For the reference: docstrings as `help()` shows them, and examples that stand in their text as code, not as quotations.

The reference is made from the source. Estimators get the sections of their parameters from a decorator, which runs when they are
imported: their docstrings are taken from there. The sections of numpydoc take care of their own examples; elsewhere Markdown reads
`>>>` as a quotation in a quotation in a quotation.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

from griffe import Class, Extension, Object

EXAMPLE = re.compile(r"(?:^ *>>> .*\n?)(?:^(?! *$).*\n?)*", flags=re.M)
FLAG = re.compile(r" *# doctest: .*$", flags=re.M)


class Doctests(Extension):
    """Complete the docstrings that a decorator completes, and put fences around examples that have no section."""

    def on_object(self, *, obj: Object, **arguments: Any) -> None:
        """Change one docstring."""
        if obj.docstring is not None and isinstance(obj, Class) and is_completed(obj):
            obj.docstring.value = inspect.getdoc(getattr(import_module(obj.module.path), obj.name)) or ""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def is_completed(shown: Class) -> bool:
    """Whether a class's docstring is only whole once it is imported: one that `documented` decorates."""
    return any(decorator.callable_path.endswith(".documented") for decorator in shown.decorators)


def fenced(text: str) -> str:
    """Return a docstring whose examples are fenced, unless it has a section of examples."""
    if ">>> " not in text or re.search(r"^Examples\n-+$", text, flags=re.M):
        return text
    return EXAMPLE.sub(lambda example: f"\n```pycon\n{FLAG.sub('', example[0]).rstrip()}\n```\n", text)
