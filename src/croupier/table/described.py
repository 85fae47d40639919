"""Where a schema comes from that was read off the data privately, and who was set aside for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..privacy import round_up
from ..statistics import Part, SetAside
from ..validation import ArgumentError, Found, real, whole
from .toml_text import Keys

_REMEDY = "Leave this table as croupier describe wrote it."


@dataclass(frozen=True)
class Described:
    """The release that a schema's ranges come from: what was promised for it, and who was asked.

    Parameters
    ----------
    epsilon, delta : float
        What everybody who was asked was promised.
    users : int
        How many people were asked.
    private : bool, default True
        False where the release was seeded: NOT private.
    aside : SetAside, optional
        Who was asked, where a share of the people was set aside: fits leave them out.
    rows : int, optional
        Rows of the table from which they were set aside by their places; None where they were by their names.

    Examples
    --------
    >>> Described(0.2, 1e-6, 5_000).lines((1.0, 1e-6))
    ['The schema was described at epsilon 0.2, delta 1e-06; whoever is in both has at most epsilon 1.2, delta 2e-06 altogether.']
    """

    epsilon: float
    delta: float
    users: int
    private: bool = True
    aside: SetAside | None = None
    rows: int | None = None

    @classmethod
    def from_dict(cls, values: Any, name: str) -> Described:
        """Read it from a schema's table.

        Parameters
        ----------
        values : dict
            As `to_dict` gives it.
        name : str
            What errors call it.

        Returns
        -------
        Described
            Checked.

        Raises
        ------
        ArgumentError
            Where a key is missing or not known, or a value is outside its range.
        """
        keys = Keys(name, values)
        epsilon = real(f"{name}.epsilon", keys.need("epsilon"), above=0, remedy=_REMEDY)
        delta = real(f"{name}.delta", keys.need("delta"), above=0, below=1, remedy=_REMEDY)
        users = whole(f"{name}.users", keys.need("users"), at_least=2, remedy=_REMEDY)
        private = keys.get("private", True)
        if not isinstance(private, bool):
            raise ArgumentError(f"{name}.private", private, "true or false", _REMEDY)
        share, seed, rows = keys.get("share", None), keys.get("seed", None), keys.get("rows", None)
        keys.nothing_else()
        if (share is None) != (seed is None) or (rows is not None and share is None):
            raise ArgumentError(name, values, "share and seed together, or neither", _REMEDY)
        if rows is not None:
            whole(f"{name}.rows", rows, at_least=2, remedy=_REMEDY)
        return cls(epsilon, delta, users, private, None if share is None else SetAside(share, seed), rows)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for TOML and JSON.

        Returns
        -------
        dict
            What `from_dict` reads.
        """
        plain: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta, "users": self.users}
        plain |= {} if self.private else {"private": False}
        plain |= {} if self.aside is None else {"share": self.aside.share, "seed": self.aside.seed}
        return plain | ({} if self.rows is None else {"rows": self.rows})

    def require_rows(self, rows: int) -> None:
        """Refuse a table of another length than that from which people were set aside by their places.

        Parameters
        ----------
        rows : int
            How many rows were read.

        Raises
        ------
        ArgumentError
            Where there are more or fewer; nobody was asked.
        """
        if self.rows not in (None, rows):
            remedy = "People were set aside by their places in that file: give the same file, in the same order; nobody was asked."
            raise ArgumentError("DATA", Found(f"has {rows:,} rows"), f"the {self.rows:,} rows that were described", remedy)

    def require_user(self, name: str, user: str | None, was: str | None) -> None:
        """Refuse another user column than that by which people were set aside.

        Parameters
        ----------
        name : str
            What the error calls it.
        user : str or None
            The column.
        was : str or None
            That of the description.

        Raises
        ------
        ArgumentError
            Where it is another one, and people were set aside.
        """
        if self.aside is not None and user != was:
            remedy = "Describe the data again with this user column, or leave it as it was."
            raise ArgumentError(name, user, "as it was when people were set aside for the schema", remedy)

    def rest(self, user: str | None) -> Part | None:
        """Those who were not set aside for the schema, for an account.

        Parameters
        ----------
        user : str or None
            The schema's user column.

        Returns
        -------
        Part or None
            None where nobody was set aside.
        """
        if self.aside is None:
            return None
        return Part(self.aside, "rest", self.rows, user if self.rows is None else None)

    def lines(self, promise: tuple[float, float] | None) -> list[str]:
        """Say what a fit with this promise and the description reveal together.

        Parameters
        ----------
        promise : tuple of (float, float) or None
            The fit's epsilon and delta; None where it is NOT private.

        Returns
        -------
        list of str
            One line.
        """
        own = self._promise
        if not self.private:
            return ["The schema was described with a seed: NOT PRIVATE, and no guarantee covers it."]
        if self.aside is None and promise is None:
            return [f"The schema was described at {own}; nothing is promised to whoever is in the fit, too, which is NOT private."]
        if self.aside is None and promise is not None:
            epsilon, delta = promise
            both = f"epsilon {round_up(self.epsilon + epsilon)}, delta {round_up(self.delta + delta)}"
            return [f"The schema was described at {own}; whoever is in both has at most {both} altogether."]
        by = "place in the file, whose order must not have changed" if self.rows is not None else "name"
        others = "the others have only what this fit promises" if promise else "nothing is promised to the others: NOT private"
        return [
            f"{self.users:,} people were set aside for the schema, by their {by}: they are left out here, and have {own} from it; "
            f"{others}."
        ]

    @property
    def origin(self) -> str:
        """Where the ranges come from, in a few words."""
        if not self.private:
            return f"described with a seed from {self.users:,} people: NOT private"
        aside = "" if self.aside is None else ", who were set aside for it and are not asked here"
        return f"described privately from {self.users:,} people{aside}: {self._promise}"

    @property
    def _promise(self) -> str:
        return f"epsilon {round_up(self.epsilon)}, delta {round_up(self.delta)}"
