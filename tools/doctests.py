"""For the reference: examples that stand in the text of a docstring are code, not quotations.

The sections of numpydoc take care of their own; elsewhere Markdown reads `>>>` as a quotation in a quotation in a quotation.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"(?:^ *>>> .*\n?)(?:^(?! *$).*\n?)*", flags=re.M)
FLAG = re.compile(r" *# doctest: .*$", flags=re.M)


class Doctests(Extension):
    """Put fences around the examples of docstrings that have no section for them."""

    def on_object(self, *, obj: Object, **arguments: Any) -> None:
        """Change one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Return a docstring whose examples are fenced, unless it has a section of examples."""
    if ">>> " not in text or re.search(r"^Examples\n-+$", text, flags=re.M):
        return text
    return EXAMPLE.sub(lambda example: f"\n```pycon\n{FLAG.sub('', example[0]).rstrip()}\n```\n", text)
