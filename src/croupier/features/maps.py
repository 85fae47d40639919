"""Maps of one record each: random Fourier features, a fixed projection, normalisation within groups."""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import validate_data

from ..protocol.randomness import KeyedRandom
from ..validation import ArgumentError, Found, real, whole

# Public random weights: fixed by a seed, the same bits in every process, on every platform and in every language.
#
# A weight is (c - 128) / 8, where c counts the ones among 256 coins: mean 0, variance 1, and so near to a Gaussian that its
# characteristic function is exp(-t^2 / 2 - t^4 / 3072 - ...). Whole numbers alone decide it, so no two clients ever differ, which
# they would in the last bits of logarithms and cosines. clients/computing.md has the stream for other languages.


# Coins per weight; their standard deviation is 8.
COINS = 256
_BYTES_AT_ONCE = 1 << 24


@lru_cache(maxsize=8)
def public_weights(kind: str, seed: int, rows: int, columns: int) -> NDArray[np.float64]:
    """Return weights of mean 0 and variance 1, row by row from the stream of this kind of map and seed. Not to be written to."""
    root = hashlib.blake2b(f"croupier features {kind} {seed}".encode(), digest_size=32).digest()
    source = KeyedRandom(root, private=False)
    ones = np.empty(rows * columns, dtype=np.int64)
    step = _BYTES_AT_ONCE * 8 // COINS
    for start in range(0, len(ones), step):
        part = ones[start : start + step]
        coins = source.draw_bytes(len(part) * (COINS // 8)).view(np.uint64).reshape(len(part), -1)
        part[:] = np.bitwise_count(coins).sum(axis=1)
    weights = (ones.reshape(rows, columns) - COINS // 2) / 8
    weights.setflags(write=False)
    return weights


Floats = NDArray[np.floating[Any]]
# Numbers that a map works on together: what bounds its memory beside its input and output.
_AT_ONCE = 1 << 21
# The most columns, and the most weights: these have to fit into memory.
_MOST, _MOST_WEIGHTS = 1 << 20, 1 << 24


def row_blocks(rows: int, numbers: int) -> Iterator[slice]:
    """Parts of this many rows that some million numbers are worked on together, where a row needs this many."""
    step = max(1, _AT_ONCE // max(1, numbers))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


class PublicMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A map of one record that its parameters alone decide: `fit` notes how many columns there are, and nothing else."""

    kind: ClassVar[str]

    @abstractmethod
    def outputs(self, inputs: int) -> int:
        """Count the features that so many columns become.

        Parameters
        ----------
        inputs : int
            Columns of a row.

        Returns
        -------
        int
            Columns of its features.

        Raises
        ------
        ArgumentError
            If a parameter is outside its range, or does not fit so many columns.
        """

    @abstractmethod
    def _mapped(self, rows: Floats) -> Floats:
        """Map rows of a number of columns that `outputs` has taken, in the precision that they have."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Note how many columns there are. Nothing is learned: the map is the same for any rows.

        Parameters
        ----------
        X : array-like of shape (rows, features)
            The rows; their values are not looked at.
        y : object, optional
            Not looked at; pipelines pass it.

        Returns
        -------
        self
            Fitted.

        Raises
        ------
        ArgumentError
            If a parameter is outside its range, or does not fit so many columns.
        """
        self.outputs(self._checked(X, reset=True).shape[1])
        return self

    def transform(self, X: Any) -> Floats:
        """Map rows, each by itself.

        Parameters
        ----------
        X : array-like of shape (rows, features)
            The rows. Those of float32 are mapped in single precision.

        Returns
        -------
        ndarray of shape (rows, outputs)
            Their features. A row with NaN or infinity in it is not finite after the map either.

        Raises
        ------
        ArgumentError
            If a parameter is outside its range, or does not fit so many columns.
        """
        rows = self._checked(X, reset=False)
        outputs = self.outputs(rows.shape[1])
        return self._in_blocks(rows) if len(rows) else np.empty((0, outputs), rows.dtype)

    def _in_blocks(self, rows: Floats) -> Floats:
        """Map rows that were checked, in blocks of bounded memory."""
        outputs = self.outputs(rows.shape[1])
        mapped = np.empty((len(rows), outputs), rows.dtype)
        for some in row_blocks(len(rows), rows.shape[1] + outputs):
            mapped[some] = self._mapped(rows[some])
        return mapped

    def _picture(self) -> tuple[int, int] | None:
        """Height and width of the pictures that it takes, if it takes pictures."""
        return None

    def _checked(self, X: Any, *, reset: bool) -> Floats:
        if getattr(X, "ndim", 2) == 3 and (shape := self._picture()) is not None:
            if X.shape[1:] != shape:
                found = Found(f"has pictures of {X.shape[1]} x {X.shape[2]}")
                raise ArgumentError("X", found, f"pictures of {shape[0]} x {shape[1]}", "State their height and width in shape.")
            X = X.reshape(len(X), shape[0] * shape[1])
        checked: Floats = validate_data(self, X, reset=reset, dtype=(np.float64, np.float32), ensure_all_finite=False)
        return checked

    @property
    def _n_features_out(self) -> int:
        return self.outputs(self.n_features_in_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_features_in_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False  # total_guarantee may take it for a step that learns nothing
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class FourierFeatures(PublicMap):
    """Cosines and sines of random directions: a linear model on them is one of a Gaussian kernel.

    A row x becomes (cos(x W), sin(x W)) / sqrt(size / 2), W of independent entries of mean 0 and variance 1 / scale^2, fixed by
    the seed. Every row has length 1, and two rows have the inner product exp(-|x - z|^2 / (2 scale^2)) up to some
    sqrt(2 / size).

    Choose it for tables whose columns have public ranges and act together, not each by itself. Columns have to be scaled by public
    figures first; `scale` is then the distance at which two rows count as different. Try a few on public data of the same kind.

    Parameters
    ----------
    size : int, default 1000
        Number of features: an even number. Noise grows as its root.
    scale : float, default 1.0
        The kernel's width, in units of the columns as they come.
    seed : int, default 0
        Fixes the directions. Public: everybody who takes part has to use the same.

    Attributes
    ----------
    n_features_in_ : int
        Columns that `fit` saw.

    References
    ----------
    Rahimi, Recht, "Random Features for Large-Scale Kernel Machines", NeurIPS 2007. W is drawn as (c - 128) / (8 scale) with c
    from Bin(256, 1/2), which every client computes to the same bits; clients/computing.md has the stream.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.features import FourierFeatures
    >>> rows = np.array([[0.1, 0.2], [0.1, 0.3]])
    >>> features = FourierFeatures(size=4000, scale=0.5).fit_transform(rows)
    >>> features.shape, np.round(features @ features.T, 2).tolist()
    ((2, 4000), [[1.0, 0.98], [0.98, 1.0]])
    """

    kind = "fourier"

    def __init__(self, size: int = 1000, *, scale: float = 1.0, seed: int = 0) -> None:
        self.size = size
        self.scale = scale
        self.seed = seed

    def outputs(self, inputs: int) -> int:
        size = checked_size(self.size, inputs, 2)
        if size % 2:
            raise ArgumentError("size", size, "even", "Half of the features are cosines, half are sines.")
        real("scale", self.scale, above=1e-9, at_most=1e9, remedy="Choose about the distance between two different rows.")
        checked_seed(self.seed)
        return size

    def _mapped(self, rows: Floats) -> Floats:
        half = int(self.size) // 2
        weights = scaled_weights("fourier", int(self.seed), rows.shape[1], half, 1 / float(self.scale), rows.dtype.str)
        mapped = np.empty((len(rows), 2 * half), rows.dtype)
        with np.errstate(invalid="ignore"):  # rows that are not finite stay so
            angles = rows @ weights
            np.cos(angles, out=mapped[:, :half])
            np.sin(angles, out=mapped[:, half:])
        mapped *= rows.dtype.type(1 / math.sqrt(half))
        return mapped


class Projection(PublicMap):
    """A fixed random projection: inner products of rows stay, in far fewer columns.

    A row x becomes x P / sqrt(size), P of independent entries of mean 0 and variance 1, fixed by the seed.

    Choose it after a map that has thousands of outputs: noise grows as the root of the columns.

    Parameters
    ----------
    size : int, default 500
        Number of columns.
    seed : int, default 0
        Fixes the directions. Public: everybody who takes part has to use the same.

    Attributes
    ----------
    n_features_in_ : int
        Columns that `fit` saw.

    References
    ----------
    Johnson, Lindenstrauss, "Extensions of Lipschitz mappings into a Hilbert space", 1984. Entries of P are (c - 128) / 8 with c
    from Bin(256, 1/2), which every client computes to the same bits; clients/computing.md has the stream.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.features import Projection
    >>> Projection(size=50).fit_transform(np.eye(3, 400)).shape
    (3, 50)
    """

    kind = "projection"

    def __init__(self, size: int = 500, *, seed: int = 0) -> None:
        self.size = size
        self.seed = seed

    def outputs(self, inputs: int) -> int:
        checked_seed(self.seed)
        return checked_size(self.size, inputs, 1)

    def _mapped(self, rows: Floats) -> Floats:
        size = int(self.size)
        with np.errstate(invalid="ignore", over="ignore"):
            mapped: Floats = rows @ scaled_weights(
                "projection", int(self.seed), rows.shape[1], size, 1 / math.sqrt(size), rows.dtype.str
            )
        return mapped


class GroupNorm(PublicMap):
    """Within each of several equal groups of a row's columns: mean 0, variance 1, by that row alone.

    Choose it between `Scattering` and `Projection`: it evens out contrast, and with it the length of rows.

    Parameters
    ----------
    groups : int, default 27
        Number of groups of columns that stand next to each other; their number has to divide that of the columns.
    epsilon : float, default 1e-5
        Added to the variance before the root.

    Attributes
    ----------
    n_features_in_ : int
        Columns that `fit` saw.

    References
    ----------
    Wu, He, "Group Normalization", ECCV 2018; for scattering: Tramèr, Boneh, "Differentially Private Learning Needs Better
    Features (or Much More Data)", ICLR 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.features import GroupNorm
    >>> np.round(GroupNorm(groups=2).fit_transform([[1.0, 3.0, 10.0, 50.0]]), 3).tolist()
    [[-1.0, 1.0, -1.0, 1.0]]
    """

    kind = "group-norm"

    def __init__(self, groups: int = 27, *, epsilon: float = 1e-5) -> None:
        self.groups = groups
        self.epsilon = epsilon

    def outputs(self, inputs: int) -> int:
        groups = whole("groups", self.groups, at_least=1, at_most=_MOST, remedy="27 suits scattering.")
        real("epsilon", self.epsilon, above=0, at_most=1e9, remedy="1e-5 is usual.")
        if inputs % groups or 1 < inputs == groups:
            allowed = f"a number that divides the {inputs} columns into equal groups of at least 2"
            raise ArgumentError("groups", groups, allowed, "A column alone in its group would become 0.")
        return inputs

    def _mapped(self, rows: Floats) -> Floats:
        parts = rows.reshape(len(rows), int(self.groups), -1)
        with np.errstate(invalid="ignore", over="ignore"):
            centred = parts - parts.mean(axis=2, keepdims=True)
            spread = np.sqrt(np.einsum("ijk,ijk->ij", centred, centred)[..., np.newaxis] / parts.shape[2] + float(self.epsilon))
            return np.asarray(centred / spread).reshape(rows.shape).astype(rows.dtype, copy=False)


@lru_cache(maxsize=4)
def scaled_weights(kind: str, seed: int, rows: int, columns: int, factor: float, dtype: str) -> Floats:
    """Public weights times a factor, in the precision of the rows. Not to be written to."""
    weights = (public_weights(kind, seed, rows, columns) * factor).astype(np.dtype(dtype))
    weights.setflags(write=False)
    return weights


def checked_size(size: Any, inputs: int, least: int) -> int:
    """Take a number of columns whose weights fit into memory."""
    most = min(_MOST, _MOST_WEIGHTS // max(1, inputs))
    return whole("size", size, at_least=least, at_most=most, remedy="Choose some hundreds or thousands.")


def checked_seed(seed: Any) -> int:
    """Take a seed that every language can read from JSON."""
    return whole("seed", seed, at_least=0, at_most=2**53 - 1, remedy="Choose any: it is public and fixes the map.")


def shaped(name: str, shape: Any, multiple: int) -> tuple[int, int]:
    """Take the height and width of a picture."""
    if not isinstance(shape, list | tuple) or len(shape) != 2:
        raise ArgumentError(name, shape, "[height, width]", "For example [28, 28].")
    height, width = (whole(name, side, at_least=2 * multiple, at_most=1024, remedy="Give pixels.") for side in shape)
    if height % multiple or width % multiple:
        allowed = f"of sides that are multiples of {multiple}"
        raise ArgumentError(name, Found(f"is {height} x {width}"), allowed, "Crop the pictures, or pad them.")
    return height, width
