"""Wavelet scattering beside kymatio's figures, and beside its definition in space."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from croupier.features import FeatureMap, GroupNorm, Projection, Scattering
from croupier.validation import ArgumentError

ROWS, COLUMNS = np.mgrid[:8, :12]
PICTURE = ((7 * ROWS * ROWS + 3 * ROWS * COLUMNS + 5 * COLUMNS) % 17) / 16
# kymatio has 3.1415 for pi in the constant of every filter, of which a channel has passed so many.
FILTERS = np.array([1] + [2] * 16 + [3] * 64)


def scattered(picture):
    return Scattering(picture.shape).fit_transform(picture.reshape(1, -1)).reshape(81, -1)


def test_channels_are_those_of_kymatio():
    """kymatio 0.3.0, ScatteringNumPy2D(J=2, shape=(8, 12), L=8) of the same picture, in single precision."""
    theirs = np.array(json.loads((Path(__file__).parent / "kymatio.json").read_text()))
    ours = scattered(PICTURE) * (math.pi / 3.1415) ** FILTERS[:, np.newaxis]
    assert theirs.shape == ours.shape == (81, 6)
    assert np.abs(ours - theirs).max() < 5e-7
    assert np.abs(theirs).mean(axis=1).min() > 1e-3  # none is compared with nothing


def test_the_finest_channels_by_sums_over_pixels():
    """Filters and convolutions as sums, no transform: the average, and the moduli of the fine wavelets."""
    padded = np.pad(PICTURE, 4, mode="reflect")
    height, width = padded.shape

    def on_torus(filter_at, picture):
        offsets = [(u, v) for u in range(-20, 21) for v in range(-20, 21)]
        return sum(filter_at(u, v) * np.roll(picture, (u, v), axis=(0, 1)) for u, v in offsets)

    def bell(u, v, sigma):
        return math.exp(-(u * u + v * v) / (2 * sigma**2)) / (2 * math.pi * sigma**2)

    def average(picture):
        return on_torus(lambda u, v: bell(u, v, 1.6), picture)[4 : height - 4 : 4, 4 : width - 4 : 4].ravel()

    ours = scattered(PICTURE)
    assert np.allclose(ours[0], average(padded), rtol=0, atol=1e-9)
    for angle in (0, 3, 6):
        turn = (3 - angle) * math.pi / 8

        def gabor(u, v, frequency, turn=turn):
            along, across = u * math.cos(turn) + v * math.sin(turn), v * math.cos(turn) - u * math.sin(turn)
            wave = complex(math.cos(frequency * along), math.sin(frequency * along))
            return wave * math.exp(-(along**2 + across**2 / 4) / (2 * 0.64)) * 0.5 / (2 * math.pi * 0.64)

        square = [(u, v) for u in range(-20, 21) for v in range(-20, 21)]
        share = sum(gabor(u, v, 0.75 * math.pi) for u, v in square) / sum(gabor(u, v, 0.0) for u, v in square)
        moduli = np.abs(on_torus(lambda u, v: gabor(u, v, 0.75 * math.pi) - share * gabor(u, v, 0.0), padded))  # noqa: B023
        assert np.allclose(ours[1 + angle], average(moduli), rtol=0, atol=1e-9)


def test_a_flat_picture_has_no_waves_and_contrast_is_a_factor():
    flat = scattered(np.full((16, 8), 0.7))
    assert np.allclose(flat[0], 0.7, atol=1e-9)
    assert np.abs(flat[1:]).max() < 1e-12
    assert np.allclose(scattered(3 * PICTURE), 3 * scattered(PICTURE), atol=1e-12)
    assert np.allclose(scattered(PICTURE + 1)[1:], scattered(PICTURE)[1:], atol=1e-12)


def test_channels_of_the_mirrored_picture_are_mirrored():
    """Rows and columns change places: angle l becomes 2 - l, and the pixels of a channel change places, too."""
    ours = scattered(PICTURE).reshape(81, 2, 3)
    mirrored = scattered(PICTURE.T).reshape(81, 3, 2)
    others = [(2 - angle) % 8 for angle in range(8)]
    places = [0, *(1 + 8 * scale + other for scale in range(2) for other in others)]
    places += [17 + 8 * first + second for first in others for second in others]
    assert np.allclose(mirrored[places], ours.swapaxes(1, 2), rtol=0, atol=1e-12)


def test_pictures_may_come_as_an_array_of_three_dimensions():
    pictures = np.random.default_rng(0).random((3, 8, 12))
    for made in (Scattering((8, 12)), FeatureMap([Scattering((8, 12)), GroupNorm(27)])):
        assert np.array_equal(made.fit_transform(pictures), made.fit_transform(pictures.reshape(3, -1)))
        with pytest.raises(ArgumentError, match="X has pictures of 12 x 8; it must be pictures of 8 x 12"):
            made.fit(pictures.swapaxes(1, 2))
    with pytest.raises(ValueError, match="dim 3"):
        FeatureMap([Projection(5)]).fit(pictures)


@pytest.mark.parametrize("count", [1, 31, 65])
def test_pictures_are_mapped_each_by_itself(count):
    pictures = np.random.default_rng(count).random((count, 64)).astype(np.float32)
    made = Scattering((8, 8))
    together = made.fit_transform(pictures)
    alone = np.concatenate([made.transform(one.reshape(1, -1)) for one in pictures])
    assert np.abs(together - alone).max() < 1e-6
