"""Which words do many people hold, where nobody knows the words beforehand: one private round, no dictionary.

A word is its bytes in UTF-8, read as one symbol of 12 bits and then half bytes. Everybody who holds it adds the same amount in one
cell for each beginning of the word, and in four cells for the whole of it; a public seed says which. The analyst follows beginnings
that many people share, half byte by half byte, and believes a word where its four cells say so. docs/statistics-theory.md proves
the bound on words that nobody holds.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.sparse import csc_array
from scipy.sparse.linalg import lsqr
from scipy.special import ndtr

from ..files import Figures
from ..population import Query
from ..protocol import SumEstimate
from ..protocol._sparse import SparseVectors
from ..validation import ArgumentError, Found, is_missing, real, whole
from .histogram import Score

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
States = NDArray[np.uint64]
# Cells for the whole of a word, and the symbols that stand for them: those of beginnings are below.
CHECKS, _WHOLE = 4, 1 << 12
# A beginning is followed while each mean of its last values is within _SLACK of its own standard errors of the amount sought, which
# is _SOUGHT standard deviations, or more where that would follow more than _MOST beginnings.
_SLACK, _SOUGHT, _MOST, _LAST = 3.0, 4.5, 5_000, 6
# Passes over the table: words found in one are taken out before the next.
_PASSES = 4
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class HeavyHitters(Query):
    """Words that many people have, found without a dictionary.

    `croupier.ask` takes a list with one text per person, or with a list of texts for each. Words are normalised (NFC), stripped of
    white space around them, and cut to `max_bytes` bytes of UTF-8. An empty word, or None, is nothing.

    Parameters
    ----------
    max_bytes : int, default 32
        Where longer words are cut: of these the beginning is found. A word of L bytes is found from a count on that grows as
        sqrt(2 L + 2), whatever this is.
    per_person : int, default 1
        Number of words per person that count. Of more, some are chosen by the public seed. Noise grows as its square root.
    cells : int, default 32768
        Cells of the table of beginnings, a power of two. Words have half as many more. More words are found where there are more.
    mistakes : float, default 0.01
        Bound on the expected number of words in the answer that nobody has.
    hash_seed : int, optional
        Which cell is whose: public, the same for everybody, and drawn without having seen a word. Default: a new one.

    Attributes
    ----------
    dim : int
        Coordinates of a vector: all cells.
    norm : float
        Bound on the l2 norm of a vector: 1.
    diameter : float
        Bound on the l2 distance of two vectors: sqrt(2).

    Raises
    ------
    ArgumentError
        If a parameter is out of range.

    Guarantee
    ---------
    That of the plan under which it is asked, for any records: a person's entries are not negative, and the squares of those of a
    word add up to at most 1 / per_person.

    Examples
    --------
    >>> import croupier as cr
    >>> people = ["yes"] * 3_000 + ["no"] * 1_000 + [f"word {number}" for number in range(16_000)]
    >>> answer = cr.ask(cr.HeavyHitters(), people, epsilon=1.0, delta=1e-6)
    >>> answer.words
    ['yes', 'no']
    >>> bool(abs(answer.counts[0] - 3_000) < 6 * answer.count_std[0])
    True
    """

    max_bytes: int = 32
    per_person: int = 1
    cells: int = 1 << 15
    mistakes: float = 0.01
    hash_seed: int | None = None

    def __post_init__(self) -> None:
        whole("max_bytes", self.max_bytes, at_least=2, at_most=256, remedy="32 is usual; a letter takes one to four bytes.")
        whole("per_person", self.per_person, at_least=1, at_most=100, remedy="State how many words per person count.")
        whole("cells", self.cells, at_least=1 << 8, at_most=1 << 19, remedy="32768 is usual.")
        if self.cells & (self.cells - 1):
            raise ArgumentError("cells", self.cells, "a power of two", f"Use {1 << self.cells.bit_length()}.")
        real("mistakes", self.mistakes, above=0, at_most=1, remedy="0.01 is one wrong word per hundred answers.")
        seed = secrets.randbits(53) if self.hash_seed is None else self.hash_seed
        whole("hash_seed", seed, at_least=0, at_most=(1 << 53) - 1, remedy="Leave it out for a new one.")
        object.__setattr__(self, "hash_seed", seed)

    norm = 1.0
    diameter = math.sqrt(2)
    parallel = True

    @property
    def dim(self) -> int:
        """Coordinates of a vector: all cells."""
        return self.cells + self.cells // 2

    @property
    def entries(self) -> int:
        """How many entries a vector has at most."""
        return self.per_person * (_levels(self.max_bytes) + CHECKS)

    def encode(self, data: Any) -> NDArray[np.uint8]:
        """Return the words as records: each person's bytes in UTF-8, filled up with zeros.

        Parameters
        ----------
        data : sequence of str, or of sequences of str
            One text per person, or several.

        Returns
        -------
        ndarray of uint8, shape (n, per_person * max_bytes)
            The records that the query takes.

        Raises
        ------
        ArgumentError
            If an entry is not a text.
        """
        values = data.to_pylist() if hasattr(data, "to_pylist") else data.tolist() if hasattr(data, "tolist") else data
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise ArgumentError("data", type(data).__name__, "a list with one text per person", "Pass the values of one column.")
        known: dict[Any, bytes] = {}
        records = bytearray()
        for value in values:
            several = isinstance(value, list | tuple | set | frozenset)
            mine = {_bytes_of(one, self.max_bytes, known) for one in (value if several else (value,))} - {b""}
            chosen = sorted(mine) if len(mine) <= self.per_person else self._some_of(mine)
            records += b"".join(word.ljust(self.max_bytes, b"\0") for word in chosen)
            records += bytes((self.per_person - len(chosen)) * self.max_bytes)
        rows = np.frombuffer(bytes(records), dtype=np.uint8).reshape(-1, self.per_person * self.max_bytes)
        if not len(rows):
            raise ArgumentError("data", Found("is empty"), "one text per person", "Check where they come from.")
        return rows

    def _some_of(self, words: set[bytes]) -> list[bytes]:
        """As many words as count, chosen by the seed and by all words of the person: not the same ones of everybody."""
        key = hashlib.blake2b(b"\0".join([str(self.hash_seed).encode(), *sorted(words)]), digest_size=32).digest()
        return sorted(words, key=lambda word: hashlib.blake2b(word, key=key).digest())[: self.per_person]

    def check_records(self, X: Any, y: Any) -> None:
        """Refuse records that are not `encode`'s.

        Parameters
        ----------
        X : array_like of shape (n, per_person * max_bytes)
            Some users' records.
        y : array_like or None
            Not used.

        Raises
        ------
        ArgumentError
            Where X has another number of columns, or no bytes.
        """
        if np.ndim(X) != 2 or X.shape[1] != self.per_person * self.max_bytes or X.dtype != np.uint8:
            allowed = f"bytes in {self.per_person * self.max_bytes} columns"
            raise ArgumentError("data", Found(f"has the shape {np.shape(X)} and type {X.dtype}"), allowed, "Pass a list of texts.")

    def __call__(self, X: Any, y: Any) -> Floats:
        return np.asarray(self.vectors(X, y))

    def vectors(self, X: Any, y: Any) -> SparseVectors:
        """Return the users' vectors by their entries.

        Parameters
        ----------
        X : ndarray of uint8, shape (n, per_person * max_bytes)
            Some users' records.
        y : array_like or None
            Not used.

        Returns
        -------
        SparseVectors
            One vector per record.
        """
        rows = np.asarray(X, dtype=np.uint8).reshape(-1, self.max_bytes)
        columns, sizes = self._cells_of(rows)
        users = len(rows) // self.per_person
        values = np.where(columns < self.dim, sizes[:, np.newaxis], 0.0).reshape(users, -1)
        columns = columns.reshape(users, -1)
        if self.per_person > 1:  # of two words' entries in one cell the larger counts
            order = np.argsort(-values, axis=1, kind="stable")
            columns, values = np.take_along_axis(columns, order, axis=1), np.take_along_axis(values, order, axis=1)
        order = np.argsort(columns, axis=1, kind="stable")
        columns, values = np.take_along_axis(columns, order, axis=1), np.take_along_axis(values, order, axis=1)
        again = np.zeros(columns.shape, dtype=bool)
        again[:, 1:] = columns[:, 1:] == columns[:, :-1]
        columns, values = np.where(again, self.dim, columns), np.where(again, 0.0, values)
        used = np.flatnonzero((columns < self.dim).any(axis=0))
        width = int(used[-1]) + 1 if len(used) else 1
        return SparseVectors(self.dim, [(np.ascontiguousarray(columns[:, :width]), np.ascontiguousarray(values[:, :width]))])

    def _cells_of(self, words: NDArray[np.uint8]) -> tuple[Integers, Floats]:
        """The cells of words, one per row, `dim` where there is none, and what everybody who holds the word adds in each."""
        halves = np.stack([words >> 4, words & 15], axis=2).reshape(len(words), 2 * self.max_bytes).astype(np.uint64)
        lengths = np.count_nonzero(words, axis=1)
        levels = np.where(lengths < 2, lengths, 2 * lengths - 2)
        most = int(levels.max(initial=0))
        columns = np.full((len(words), most + CHECKS), self.dim, dtype=np.int64)
        state = _step(self._root, (halves[:, 0] << np.uint64(8)) | (halves[:, 1] << np.uint64(4)) | halves[:, 2])
        for level in range(1, most + 1):
            going = levels >= level
            state = state if level == 1 else np.where(going, _step(state, halves[:, level + 1]), state)
            columns[going, level - 1] = self._beginning(state[going])
        columns[:, most:] = np.where(levels[:, np.newaxis] > 0, self._checks(state), self.dim)
        return columns, 1 / np.sqrt(self.per_person * (levels + CHECKS))

    @property
    def _root(self) -> States:
        return _mixed(np.array([self.hash_seed], dtype=np.uint64) + _GOLDEN)

    def _beginning(self, state: States) -> Integers:
        """The cell of a beginning."""
        return (state >> np.uint64(65 - self.cells.bit_length())).astype(np.int64)

    def _checks(self, state: States) -> Integers:
        """The cells of whole words, after those of beginnings."""
        found = _step(state[:, np.newaxis], np.arange(_WHOLE, _WHOLE + CHECKS, dtype=np.uint64))
        return self.cells + (found >> np.uint64(66 - self.cells.bit_length())).astype(np.int64)

    def decode(self, estimate: SumEstimate) -> Words:
        """Find the words in the noisy table. This is post-processing, which costs no privacy.

        Parameters
        ----------
        estimate : SumEstimate
            The noisy sum.

        Returns
        -------
        Words
            The words with their counts and error bars.
        """
        table = np.asarray(estimate.sum, dtype=np.float64)
        found: list[bytes] = []
        counts, rest, search = np.zeros(0), table, _Search(self, table)
        for _ in range(_PASSES):
            more = [word for word in search.words(self.mistakes / _PASSES) if word not in found]
            if not more:
                break
            found += more
            counts, rest = self._without(table, found)
            search = _Search(self, rest)
        columns, sizes = self._of_bytes(found)
        cells = [len({*row[(row >= self.cells) & (row < self.dim)]}) for row in columns]
        free = np.ones(self.dim + 1, dtype=bool)
        free[: self.cells] = free[columns] = free[self.dim] = False
        spread = float(rest[free[: self.dim]].std()) if free.any() else estimate.noise_std
        order = np.argsort(-counts, kind="stable")
        return Words(
            words=[found[place].decode() for place in order],
            counts=counts[order],
            count_std=(spread / (sizes * np.sqrt(cells)))[order],
            users=estimate.users,
            mistakes=self.mistakes,
            query=self,
            table=table,
            search=search,
            spread=spread,
        )

    def _of_bytes(self, words: list[bytes]) -> tuple[Integers, Floats]:
        rows = np.frombuffer(b"".join(word.ljust(self.max_bytes, b"\0") for word in words), dtype=np.uint8)
        return self._cells_of(rows.reshape(-1, self.max_bytes))

    def _without(self, table: Floats, found: list[bytes]) -> tuple[Floats, Floats]:
        """Counts of words by least squares over their own cells, and the table without them."""
        columns, sizes = self._of_bytes(found)
        number, place = np.nonzero(columns < self.dim)
        entries = np.unique(np.column_stack([columns[number, place], number]), axis=0)  # a cell once for each word
        matrix = csc_array((sizes[entries[:, 1]], (entries[:, 0], entries[:, 1])), shape=(self.dim, len(found)))
        ends, checks = matrix[self.cells :], table[self.cells :]
        free = np.diff(ends.tocsr().indptr) == 0
        background = float(np.median(checks))
        for _ in range(3):
            counts = lsqr(ends, np.where(free, 0.0, checks - background), atol=1e-10, btol=1e-10)[0]
            background = float((checks - ends @ counts)[free].mean()) if free.any() else background
        return counts, table - matrix @ counts


def _levels(length: int) -> int:
    """How many beginnings a word of this many bytes has: its first 12 bits, and a half byte more each."""
    return length if length < 2 else 2 * length - 2


def _mixed(words: States) -> States:
    """Words whose every bit depends on all bits of the old one: the last steps of SplitMix64."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _step(state: States, symbols: States) -> States:
    """The state of a beginning that is one symbol longer."""
    return _mixed(state + (symbols + np.uint64(1)) * _GOLDEN)


def _bytes_of(value: Any, most: int, known: dict[Any, bytes]) -> bytes:
    """A word as it is counted: normalised, stripped, cut to this many bytes between two letters."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        if is_missing(value):
            return b""
        raise ArgumentError(
            "data", Found(f"has a {type(value).__name__}"), "texts", "Pass one text per person, or a list of texts."
        )
    if value not in known:
        text = unicodedata.normalize("NFC", value).replace("\0", "").strip()
        cut = text.encode(errors="replace")[:most].decode(errors="ignore").strip()
        known[value] = cut.encode()
    return known[value]


class _Search:
    """The search for words in one table: beginnings that many share are followed half byte by half byte.

    Which beginnings are followed depends on the table of beginnings alone. A word that nobody holds has its four cells of the other
    table at random, whatever is in either: all of them hold at least x with probability share(x)^4, share(x) being that of cells
    which do. So of N words that are tried, N share(x)^4 are believed wrongly on average.
    """

    def __init__(self, query: HeavyHitters, table: Floats) -> None:
        self.query = query
        self.beginnings, self.spread = _centred(table[: query.cells])
        self.checks, self.checks_spread = _centred(table[query.cells :])
        self.sought, self.least = _SOUGHT * self.spread, math.inf
        while (tried := self._followed()) is None:
            self.sought *= 1.1
        self.tried = tried

    def words(self, mistakes: float) -> list[bytes]:
        """Words in all of whose cells there is enough, at most this many of them wrong on average."""
        states, texts = [state for state, _ in self.tried], [text for _, text in self.tried]
        if not texts:
            return []
        values = self.checks[self.query._checks(np.array(states, dtype=np.uint64)) - self.query.cells].min(axis=1)
        allowed = int(len(self.checks) * (mistakes / len(texts)) ** (1 / CHECKS))
        ascending = np.sort(self.checks)
        self.least = float(ascending[-allowed]) if allowed else math.inf
        while allowed and np.count_nonzero(self.checks >= self.least) > allowed:  # ties
            self.least = float(np.nextafter(self.least, math.inf))
        return [text for text, value in zip(texts, values, strict=True) if value >= self.least and _is_word(text)]

    def _followed(self) -> list[tuple[np.uint64, bytes]] | None:
        """Words that were come to, with their states; None if there are too many beginnings."""
        symbols = np.arange(1 << 12, dtype=np.uint64)
        states = _step(self.query._root, symbols)
        halves = np.stack([symbols >> np.uint64(8), (symbols >> np.uint64(4)) & np.uint64(15), symbols & np.uint64(15)], axis=1)
        paths, sums = halves.astype(np.uint8), np.zeros((len(states), 0))
        tried: list[tuple[np.uint64, bytes]] = []
        for level in range(1, _levels(self.query.max_bytes) + 1):
            if level > 1:
                more = np.arange(16, dtype=np.uint64)
                states = _step(states[:, np.newaxis], more).ravel()
            values = self.beginnings[self.query._beginning(states)]
            # sums of the last value, of the last two, ...: each mean is held against its own standard error
            before = np.repeat(sums, 16, axis=0) if level > 1 else sums
            sums = np.column_stack([values, before[:, : _LAST - 1] + values[:, np.newaxis]])
            lengths = np.arange(1, sums.shape[1] + 1)
            keep = np.flatnonzero((sums >= self.sought * lengths - _SLACK * self.spread * np.sqrt(lengths)).all(axis=1))
            if len(keep) > _MOST:
                return None
            paths = paths[keep] if level == 1 else np.column_stack([paths[keep // 16], (keep % 16).astype(np.uint8)])
            states, sums = states[keep], sums[keep]
            if not len(states):
                break
            tried += self._ending(states, paths, level)
        return tried

    @staticmethod
    def _ending(states: States, paths: NDArray[np.uint8], level: int) -> list[tuple[np.uint64, bytes]]:
        """Those of the beginnings that are whole bytes."""
        if level == 1:
            ends, whole_bytes = paths[:, 2] == 0, paths[:, :2]
        elif level % 2 == 0:
            ends, whole_bytes = np.ones(len(paths), dtype=bool), paths
        else:
            return []
        texts = (whole_bytes[:, ::2] << 4) | whole_bytes[:, 1::2]
        ends = ends & (texts != 0).all(axis=1)
        return [(state, text.tobytes()) for state, text in zip(states[ends], texts[ends], strict=True)]


def _centred(values: Floats) -> tuple[Floats, float]:
    """A table less its median, and its standard deviation, of the lower half: the words that are sought are in the upper."""
    low, middle = np.quantile(values, [0.1587, 0.5])
    return values - middle, max(float(middle - low), 1e-9)


def _is_word(text: bytes) -> bool:
    """Whether bytes are a word as `HeavyHitters.encode` writes it."""
    try:
        return _bytes_of(text.decode(), len(text), {}) == text
    except UnicodeDecodeError:
        return False


@dataclass(frozen=True, eq=False)
class Words(Figures):
    """Words that many people hold, the most frequent first, each with its count and error bar.

    `words`: The words. `counts`: Estimated number of people who hold each. `count_std`: Their standard errors: privacy noise, and
    other words in the same cells. `users`: How many people answered. `mistakes`: Bound on the expected number of words among them
    that nobody holds. `query`: What was asked. `table`: The noisy table. `search`: What was sought in it. `spread`: Standard
    deviation of a cell without a word that was found.
    """

    words: list[str]
    counts: Floats
    count_std: Floats
    users: int
    mistakes: float
    query: HeavyHitters = field(repr=False)
    table: Floats = field(repr=False)
    search: _Search = field(repr=False)
    spread: float = field(repr=False)

    def found_from(self, length: int = 8) -> float:
        """Return the count from which a word of this many bytes is found with a probability of 99 per cent, in this table's noise.

        `length`: Bytes of the word in UTF-8.
        """
        whole("length", length, at_least=1, at_most=self.query.max_bytes, remedy="Longer words are cut.")
        search, levels = self.search, _levels(length)
        means = np.sqrt(np.arange(1, min(levels, _LAST) + 1))

        def missed(amount: float) -> float:
            below = ndtr(-((amount - search.sought) * means / search.spread + _SLACK)).sum() * levels
            return float(below + CHECKS * ndtr(-(amount - search.least) / search.checks_spread)) - 0.01

        most = 10 * (search.sought + (search.least if math.isfinite(search.least) else 0.0) + search.spread)
        if not math.isfinite(search.least) or missed(most) > 0:
            return math.inf
        return float(brentq(missed, 0.0, most) * math.sqrt(self.query.per_person * (levels + CHECKS)))

    def count(self, word: str) -> Score:
        """Estimate how many people hold a word that is chosen without looking at the answer, found or not.

        The error bar is for privacy noise and other words in the same cells.

        `word`: The word.
        """
        text = _bytes_of(word, self.query.max_bytes, {})
        if not text:
            raise ArgumentError("word", word, "a text that is not empty", "Ask for a word.")
        known = [one.encode() for one in self.words]
        place = known.index(text) if text in known else len(known)
        counts, _ = self.query._without(self.table, known if place < len(known) else [*known, text])
        _, sizes = self.query._of_bytes([text])
        std = self.spread / (float(sizes[0]) * math.sqrt(CHECKS))
        return Score(float(counts[place]), std, None, 0.0, float(self.users))

    def to_dict(self) -> dict[str, Any]:
        """Return the words with counts and standard errors in plain JSON types: "users", "mistakes", "words", each with "word",
        "count" and "std", and "found_from" for words of 4, 8 and 16 bytes."""
        rows = zip(self.words, self.counts.tolist(), self.count_std.tolist(), strict=True)
        lengths = [length for length in (4, 8, 16, 32) if length <= self.query.max_bytes]
        return {
            "users": self.users,
            "mistakes": self.mistakes,
            "words": [{"word": word, "count": count, "std": std} for word, count, std in rows],
            "found_from": {str(length): self.found_from(length) for length in lengths},
        }

    def figures(self) -> list[dict[str, Any]]:
        """Return one row per word: "word", "count" and "std"."""
        rows: list[dict[str, Any]] = self.to_dict()["words"]
        return rows

    def __str__(self) -> str:
        length = min(8, self.query.max_bytes)
        lines = [f"{len(self.words)} words; one of {length} bytes is found if about {self.found_from(length):,.0f} people have it"]
        rows = zip(self.words, self.counts, self.count_std, strict=True)
        lines += [f"{count:>12,.0f} +- {1.96 * std:<8,.0f} {word}" for word, count, std in rows]
        return "\n".join(lines)
