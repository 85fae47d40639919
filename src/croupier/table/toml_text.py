"""TOML for schemas: keys that are taken out one by one, so that unknown ones are refused by name, and values as text."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from typing import Any

from ..validation import ArgumentError, FileError

PUBLIC = "State what everybody may know without having seen the data."


class Keys:
    """A table of a TOML file, whose keys are taken out one by one."""

    def __init__(self, name: str, values: Any) -> None:
        if not isinstance(values, dict):
            raise ArgumentError(name, values, "a table of keys and values", "See docs/files.md for an example.")
        self._name, self._left, self._known = name, dict(values), list[str]()

    def get(self, key: str, default: Any) -> Any:
        self._known.append(key)
        return self._left.pop(key, default)

    def need(self, key: str) -> Any:
        if key not in self._left:
            self._refuse_misspelt([key])
            text = f"{self._name}: the key {key!r} is missing. {PUBLIC}"
            raise FileError(self._name, f"no key {key!r}", "given", PUBLIC, text)
        return self.get(key, None)

    def items(self) -> Iterable[tuple[str, Any]]:
        return self._left.items()

    def nothing_else(self) -> None:
        if self._left:
            self._refuse_misspelt(self._known)
            odd = next(iter(self._left))
            known = f"Known here are {', '.join(self._known)}."
            raise FileError(self._name, f"unknown key {odd!r}", "left out", known, f"{self._name}: unknown key {odd!r}. {known}")

    def _refuse_misspelt(self, known: list[str]) -> None:
        """Refuse a key that is nearly one of these."""
        for odd in self._left:
            close = difflib.get_close_matches(odd.lower(), known, n=1, cutoff=0.7)
            if close:
                likely = f"did you mean {close[0]!r}?"
                raise FileError(
                    self._name, f"unknown key {odd!r}", "a known one", likely, f"{self._name}: unknown key {odd!r}; {likely}"
                )


def key_text(name: str) -> str:
    """A name as a key of TOML."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def value_text(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(value_text(entry) for entry in value) + "]"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return _text(value) if isinstance(value, str) else repr(value)
