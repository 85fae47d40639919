"""Values that travel as JSON: text is made of a dictionary and read as one, in one place."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any, Self


class JsonText(ABC):
    """A value that has a dictionary of plain JSON types, and so a text."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Give the value in plain JSON types.

        Returns
        -------
        dict
            What `from_dict` reads.
        """

    @classmethod
    @abstractmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read a value from its dictionary.

        Parameters
        ----------
        values : dict
            What `to_dict` gave.

        Returns
        -------
        Self
            The value, checked.
        """

    def to_json(self) -> str:
        """Write the value as JSON.

        Returns
        -------
        str
            What `from_json` reads.
        """
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a value from JSON; see `from_dict`.

        Parameters
        ----------
        text : str
            What `to_json` gave.

        Returns
        -------
        Self
            The value, checked as `from_dict` does.

        Raises
        ------
        ArgumentError
            Where `from_dict` refuses it.
        """
        return cls.from_dict(json.loads(text))
