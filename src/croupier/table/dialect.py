"""How a CSV file writes its values: what separates them, the decimal mark, the encoding."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from ..validation import ArgumentError, one_of

# What may separate values and is looked for where a header seems to be one long name.
SEPARATORS = (";", "\t", "|")
DECIMALS = (".", ",")
_PLAIN = '",;\t|\r\n0aA'


@dataclass(frozen=True)
class Dialect:
    """How CSV files write their values. Parquet files state it themselves.

    Parameters
    ----------
    separator : str, optional
        One character; "tab" is the tabulator. A comma unless given, in `.tsv` files a tabulator.
    decimal : str, default "."
        The decimal mark of numbers: "." or ",".
    encoding : str, default "utf-8"
        The encoding of texts, by a name that Python knows. One in which commas, quotation marks and line breaks are single bytes,
        as in ASCII.

    Raises
    ------
    ArgumentError
        Where one of them is none of these.

    Examples
    --------
    >>> Dialect(separator=";", decimal=",").separator
    ';'
    >>> Dialect(separator="tab").separator
    '\\t'
    """

    separator: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if self.separator in ("tab", "\\t"):
            object.__setattr__(self, "separator", "\t")
        mark = self.separator
        if mark is not None and (len(mark) != 1 or not mark.isascii() or mark.isalnum() or mark in '"\r\n'):
            allowed = "one character that is no letter, digit, quotation mark or line break, or tab"
            raise ArgumentError("--sep", mark, allowed, "For example --sep ';' or --sep tab.")
        one_of("--decimal", self.decimal, DECIMALS, "Leave it out for 1.5; say --decimal , for 1,5.")
        try:
            name = codecs.lookup(self.encoding).name
            name = "utf-8" if name == "utf-8-sig" else name  # a mark at its beginning is dropped in any case
            suits = _PLAIN.encode(name) == _PLAIN.encode("ascii")
        except (LookupError, UnicodeError, TypeError):
            suits, name = False, ""
        if not suits:
            allowed = "an encoding that Python knows and that writes ASCII as ASCII"
            raise ArgumentError("--encoding", self.encoding, allowed, "cp1252 is usual; convert UTF-16 to UTF-8 first.")
        object.__setattr__(self, "encoding", name)

    def separator_of(self, name: str) -> str:
        """What separates the values of a file of this name.

        Parameters
        ----------
        name : str
            The file's; one with ".tsv" in it has tabs, unless a separator is given.

        Returns
        -------
        str
            One character.
        """
        return self.separator or ("\t" if ".tsv" in name.lower() else ",")


def shown(separator: str) -> str:
    """A separator as the command line takes it."""
    return "tab" if separator == "\t" else f"'{separator}'"
