"""Wavelet scattering of pictures: two layers of fixed wavelets and moduli, then a blur."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from ..validation import ArgumentError, Found
from .maps import Floats, PublicMap, shaped

# Scales and angles of the wavelets; the blur leaves every fourth pixel of every direction. 1 + 16 + 64 channels.
_SCALES, _ANGLES = 2, 8
_STEP = 4
_CHANNELS = 1 + _SCALES * _ANGLES + _ANGLES**2
# Pictures that are worked on together: those whose layers fit into a processor's cache.
_AT_ONCE = 32


class Scattering(PublicMap):
    """Wavelet scattering of grey pictures: what stays of a picture when it is shifted a little or bent.

    A picture, padded by its reflection, is filtered by Morlet wavelets of two scales and eight angles; their moduli, and those of
    the finer ones filtered once more by the coarser, are blurred and thinned out to every fourth pixel: 81 channels of
    (height / 4) x (width / 4) numbers, the channels one after the other. The filters are those of kymatio 0.3 (J = 2, L = 8).

    Choose it for pictures, with `GroupNorm` and `Projection` after it (see `FeatureMap`).

    Parameters
    ----------
    shape : pair of int, default (28, 28)
        Height and width of the pictures, multiples of 4. X holds pictures, (n, height, width), or their pixels, line by line.

    Attributes
    ----------
    n_features_in_ : int
        Pixels.

    References
    ----------
    Bruna, Mallat, "Invariant Scattering Convolution Networks", IEEE TPAMI 35, 2013; Andreux et al., "Kymatio: Scattering
    Transforms in Python", JMLR 21, 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.features import Scattering
    >>> pictures = np.zeros((2, 28, 28), dtype=np.float32)
    >>> pictures[:, 10:18, 12:14] = 1
    >>> Scattering((28, 28)).fit_transform(pictures).shape
    (2, 3969)
    """

    kind = "scattering"

    def __init__(self, shape: tuple[int, int] = (28, 28)) -> None:
        self.shape = shape

    def outputs(self, inputs: int) -> int:
        height, width = shaped("shape", self.shape, _STEP)
        if inputs != height * width:
            allowed = f"rows of {height * width} pixels"
            raise ArgumentError("X", Found(f"has {inputs} columns"), allowed, f"shape says {height} x {width}.")
        return _CHANNELS * (height // _STEP) * (width // _STEP)

    def _picture(self) -> tuple[int, int]:
        return shaped("shape", self.shape, _STEP)

    def _mapped(self, rows: Floats) -> Floats:
        height, width = shaped("shape", self.shape, _STEP)
        filters = _filters(height, width, rows.dtype.str)
        mapped = np.empty((len(rows), self.outputs(rows.shape[1])), rows.dtype)
        with np.errstate(invalid="ignore", over="ignore"):
            for start in range(0, len(rows), _AT_ONCE):
                some = rows[start : start + _AT_ONCE].reshape(-1, height, width)
                mapped[start : start + _AT_ONCE] = _scattered(some, filters).reshape(len(some), -1)
        return mapped


@dataclass(frozen=True, eq=False)
class _Filters:
    """Wavelets by their transforms, each entry twice (for real and imaginary parts), and blurs as matrices of padded pixels.

    `coarse` is cut into the aliases that meet where every second pixel is left out, and divided by their number.
    """

    fine: Floats  # (angle, row, 2 column)
    coarse: Floats  # (row alias, column alias, angle, row, 2 column)
    blur: Floats  # (padded pixels, pixels of the output)
    blur_half: Floats  # the same for every second pixel


def _scattered(pictures: Floats, filters: _Filters) -> Floats:
    count = len(pictures)
    padded = np.pad(pictures, ((0, 0), (_STEP, _STEP), (_STEP, _STEP)), mode="reflect")
    spectrum = fft.fft2(padded)
    channels = np.empty((count, _CHANNELS, filters.blur.shape[1]), pictures.dtype)
    channels[:, 0] = padded.reshape(count, -1) @ filters.blur
    layers = np.abs(fft.ifft2(_times(spectrum[:, np.newaxis], filters.fine), overwrite_x=True))
    channels[:, 1 : 1 + _ANGLES] = layers.reshape(count, _ANGLES, -1) @ filters.blur
    channels[:, 1 + _ANGLES : 1 + 2 * _ANGLES] = _coarse(spectrum, filters)
    for angle in range(_ANGLES):
        place = 1 + 2 * _ANGLES + angle * _ANGLES
        channels[:, place : place + _ANGLES] = _coarse(fft.fft2(layers[:, angle]), filters)
    return channels


def _coarse(spectrum: NDArray[Any], filters: _Filters) -> Floats:
    """The moduli of coarse wavelets, every second pixel of them, blurred."""
    height, width = (side // 2 for side in spectrum.shape[1:])
    halved: Any = 0
    for i in range(2):
        for j in range(2):
            part = spectrum[:, np.newaxis, i * height : (i + 1) * height, j * width : (j + 1) * width]
            halved = halved + _times(np.ascontiguousarray(part), filters.coarse[i, j])
    moduli = np.abs(fft.ifft2(halved, overwrite_x=True))
    blurred: Floats = moduli.reshape(len(moduli), _ANGLES, -1) @ filters.blur_half
    return blurred


def _times(spectrum: NDArray[Any], real: Floats) -> NDArray[Any]:
    """Complex numbers times real ones that stand there twice: half the work of complex times complex."""
    return (spectrum.view(real.dtype) * real).view(spectrum.dtype)


@lru_cache(maxsize=4)
def _filters(height: int, width: int, dtype: str) -> _Filters:
    padded = height + 2 * _STEP, width + 2 * _STEP
    fine, coarse = (np.stack([_morlet(padded, scale, angle) for angle in range(_ANGLES)]) for scale in range(_SCALES))
    half = padded[0] // 2, padded[1] // 2
    aliases = np.moveaxis(coarse.reshape(_ANGLES, 2, half[0], 2, half[1]) / 4, (1, 3), (0, 1))
    twice = [np.repeat(wavelets, 2, axis=-1) for wavelets in (fine, aliases)]
    blurs = [np.kron(_blur(padded[0], level), _blur(padded[1], level)).T for level in range(2)]
    return _Filters(*(np.ascontiguousarray(part, dtype=np.dtype(dtype)) for part in (*twice, *blurs)))


def _gabor(shape: tuple[int, int], scale: int, angle: float, frequency: float) -> NDArray[np.complex128]:
    """A wave under an elliptic bell on a torus: the bell's neighbours reach in from five periods of both directions."""
    sigma, slant = 0.8 * 2**scale, 4 / _ANGLES
    x, y = np.meshgrid(*(np.arange(-2 * side, 3 * side, dtype=np.float64) for side in shape), indexing="ij")
    along, across = x * math.cos(angle) + y * math.sin(angle), y * math.cos(angle) - x * math.sin(angle)
    wave = np.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2) + 1j * frequency * along)
    folded = wave.reshape(5, shape[0], 5, shape[1]).sum(axis=(0, 2)) * slant / (2 * math.pi * sigma**2)
    return np.asarray(folded)


def _morlet(shape: tuple[int, int], scale: int, angle: int) -> NDArray[np.float64]:
    """The transform, which is real, of a wave of mean 0."""
    turn = (_ANGLES // 2 - 1 - angle) * math.pi / _ANGLES
    wave, bell = (_gabor(shape, scale, turn, frequency) for frequency in (0.75 * math.pi / 2**scale, 0.0))
    return np.asarray(fft.fft2(wave - wave.sum() / bell.sum() * bell).real)


def _blur(side: int, level: int) -> NDArray[np.float64]:
    """A Gaussian blur along one side of a padded picture of which every 2^level-th pixel is left; rows are those of the output."""
    sigma = 0.8 * 2 ** (_SCALES - 1)
    places = np.arange(-2 * side, 3 * side, dtype=np.float64)
    bell = (np.exp(-(places**2) / (2 * sigma**2)) / (math.sqrt(2 * math.pi) * sigma)).reshape(5, side).sum(axis=0)
    spectrum = fft.fft(bell).real
    if level:  # the low frequencies, which are those that every second pixel can have
        spectrum = np.concatenate([spectrum[: side // 4], spectrum[-(side // 4) :]])
    response = fft.ifft(spectrum).real
    centres = np.arange(1, side // _STEP - 1) * (_STEP >> level)  # without the padding
    return np.asarray(response[(centres[:, np.newaxis] - np.arange(len(response))) % len(response)])
