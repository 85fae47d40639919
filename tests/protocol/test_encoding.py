"""The encoder: the norm bound and the reach that privacy rests on, in exact arithmetic, for every float there is."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from croupier import ArgumentError
from croupier.arithmetic import LinearVectors
from croupier.protocol._encoding import as_vectors, clip_in_pieces, clip_to_ball, encode, require_finite

exactly = settings(deadline=None, derandomize=True, max_examples=300)

LARGEST = float(np.finfo(np.float64).max)
finite = st.floats(allow_nan=False, allow_infinity=False)
norms = st.one_of(st.floats(1e-99, 1e99), st.sampled_from([1.0, 1e-50, 1e50, math.nextafter(1, 0), math.nextafter(1, 2), 0.1]))
levels = st.one_of(st.integers(1, 300), st.integers(1, 10**9), st.just(2**40 + 1))


@st.composite
def vectors(draw, norm, dims=6):
    """A vector of any finite floats, or of floats of the size of the norm, where clipping is decided."""
    dim = draw(st.integers(1, dims))
    near = st.floats(-2, 2).map(lambda x: x * norm)
    edge = st.sampled_from([norm, -norm, norm / math.sqrt(dim), math.nextafter(norm / math.sqrt(dim), math.inf), 0.0, 5e-324])
    return draw(st.lists(draw(st.sampled_from([finite, near, edge, st.one_of(finite, near, edge)])), min_size=dim, max_size=dim))


def clipped_rows(rows: np.ndarray, norm: float) -> np.ndarray:
    """The rows clipped one at a time, so that they stay in their order."""
    return np.concatenate([unit.numbers() for row in rows for unit in clip_to_ball(LinearVectors.of(row[np.newaxis]), norm)])


def square(row: np.ndarray) -> Fraction:
    return sum((Fraction(float(x)) ** 2 for x in row), Fraction(0))


def exact_norm(row: np.ndarray) -> Decimal:
    return sum((Decimal(float(x)) ** 2 for x in row), Decimal(0)).sqrt()


def encoding(vector: np.ndarray, norm: float, g: int) -> list[Fraction]:
    """The real encoding a, as an exact number."""
    return [Fraction(float(a)) for a in encode(clipped_rows(np.atleast_2d(vector), norm), g)[0]]


def awkward(dim: int, norm: float) -> dict[str, np.ndarray]:
    """Rows on and about the sphere of radius `norm`, and rows of the largest, the smallest and mixed sizes."""
    rng = np.random.default_rng(dim)
    gauss = rng.standard_normal((4, dim))
    return {
        "sphere": gauss / np.linalg.norm(gauss, axis=1, keepdims=True) * norm,
        "diagonal": np.full((1, dim), norm / math.sqrt(dim)),
        "just outside": np.full((1, dim), math.nextafter(norm / math.sqrt(dim), math.inf)),
        "far outside": gauss * norm * 1e9,
        "largest": np.full((1, dim), LARGEST),
        "smallest": np.full((1, dim), 5e-324),
        "one large": np.where(np.arange(dim) == dim // 2, -LARGEST, 5e-324)[np.newaxis],
        "mixed": rng.choice([5e-324, -1e-308, 0.0, norm, -norm, norm * 1e-8, norm * 1e-160, 1e-3 * norm], (4, dim)),
        "single": gauss.astype(np.float32),
        "half": (gauss * 100).astype(np.float16),
        "integers": rng.integers(-(2**63), 2**63 - 1, (2, dim)),
        "unsigned": np.full((1, dim), 2**64 - 1, dtype=np.uint64),
        "bytes": rng.integers(-128, 127, (2, dim), dtype=np.int8),
        "truth values": rng.integers(0, 2, (2, dim)).astype(bool),
    }


# --- clipping


@exactly
@given(data=st.data(), norm=norms)
def test_clipped_norm_is_at_most_one_in_exact_arithmetic(data, norm):
    vector = data.draw(vectors(norm))
    assert square(clipped_rows(np.array([vector]), norm)[0]) <= 1


@pytest.mark.parametrize(
    ("dim", "norm"), [*[(dim, norm) for dim in (1, 2, 3, 100) for norm in (1.0, 1e-50, 1e50, 3.3)], (10_000, 1.0), (10_000, 1e-50)]
)
def test_clipped_norm_is_at_most_one_for_awkward_rows_and_types(dim, norm):
    for name, rows in awkward(dim, norm).items():
        clipped = clipped_rows(rows, norm)
        assert clipped.dtype == np.float64, name
        assert np.isfinite(clipped).all(), name
        for row in clipped[:1] if dim > 1000 else clipped:
            assert square(row) <= 1, name


@exactly
@given(data=st.data(), norm=norms)
def test_clipping_keeps_the_direction_and_all_it_can_of_the_length(data, norm):
    """u = x / max(norm, |x|) to a few ulps of 1, in 60-digit arithmetic."""
    vector = data.draw(vectors(norm))
    clipped = clipped_rows(np.array([vector]), norm)[0]
    with localcontext() as context:
        context.prec = 60
        scale = max(Decimal(norm), exact_norm(vector))
        tolerance = Decimal(2 * (len(vector) + 8)) * Decimal(2) ** -53
        for x, u in zip(vector, clipped, strict=True):
            assert abs(Decimal(float(u)) - Decimal(x) / scale) <= tolerance * abs(Decimal(x) / scale) + Decimal("1e-307")


@exactly
@given(data=st.data(), norm=norms, share=st.floats(0, 0.999))
def test_vectors_inside_the_ball_are_only_divided(data, norm, share):
    direction = np.array(data.draw(st.lists(st.floats(-1, 1), min_size=1, max_size=6)))
    vector = direction * (share * norm / max(1.0, float(np.linalg.norm(direction))))
    found = clipped_rows(vector[np.newaxis], norm)[0]
    np.testing.assert_allclose(found, vector / norm, rtol=3 * 2.0**-53, atol=1e-307)


def pieces_of(row: np.ndarray, norm: float, size: int) -> np.ndarray:
    return np.concatenate([piece.numbers()[0] for piece in clip_in_pieces(row, norm, size)])


@exactly
@given(data=st.data(), norm=norms, size=st.integers(1, 7), single=st.booleans())
def test_a_long_vector_in_pieces_is_within_the_ball_too(data, norm, size, single):
    with np.errstate(over="ignore"):
        row = np.array(data.draw(vectors(norm)), np.float32 if single else np.float64)
    if not np.isfinite(row).all():
        return
    assert square(pieces_of(row, norm, size)) <= 1


@pytest.mark.parametrize("norm", [1e-20, 1.0, 1e20])
def test_awkward_vectors_in_pieces_are_within_the_ball_too(norm):
    for rows in awkward(1000, norm).values():
        for row in rows:
            assert square(pieces_of(row, norm, 64)) <= 1


@pytest.mark.parametrize("length", [0.3, 1.0, 40.0])
def test_pieces_are_the_whole_vector_clipped(length):
    row = np.random.default_rng(5).standard_normal(1000).astype(np.float32)
    row *= np.float32(length / np.linalg.norm(row))
    whole = clipped_rows(row[np.newaxis], 1.0)[0]
    np.testing.assert_allclose(pieces_of(row, 1.0, 64), whole, rtol=1e-12)


def test_rows_are_clipped_one_by_one():
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [-30.0, 40.0], [1e308, -1e308]])
    expected = [[0.6, 0.8], [0.3, 0.4], [0, 0], [-0.6, 0.8], [math.sqrt(0.5), -math.sqrt(0.5)]]
    assert np.allclose(clipped_rows(rows, 1.0), expected, rtol=1e-14, atol=0)
    for layout in (np.asfortranarray(rows), np.repeat(rows, 2, axis=0)[::2], rows.astype(">f8")):
        assert clipped_rows(layout, 1.0).tolist() == clipped_rows(rows, 1.0).tolist()


def test_clipping_leaves_its_input_alone():
    rows = np.array([[3.0, 4.0], [0.1, 0.2]])
    rows.setflags(write=False)
    clipped_rows(rows, 1.0)
    assert rows.tolist() == [[3.0, 4.0], [0.1, 0.2]]


# --- encoding


@exactly
@given(data=st.data(), norm=norms, g=levels)
def test_encodings_stay_between_zero_and_the_levels(data, norm, g):
    encodings = encode(clipped_rows(np.array([data.draw(vectors(norm))]), norm), g)
    assert encodings.min() >= 0
    assert encodings.max() <= g


@exactly
@given(data=st.data(), norm=norms, g=levels)
def test_any_two_encodings_are_within_the_reach_that_privacy_counts_on(data, norm, g):
    """S = g (1 + 1e-9) in l2 and K = g in each coordinate for replace-one; half of it about the zero vector for zero-out."""
    one, other = data.draw(vectors(norm)), data.draw(vectors(norm))
    dim = min(len(one), len(other))
    a, b, zero = (encoding(np.array(v[:dim]), norm, g) for v in (one, other, [0.0] * dim))
    allowed = Fraction(g) * (1 + Fraction(1, 10**9))
    assert sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) <= allowed**2
    assert max(abs(x - y) for x, y in zip(a, b, strict=True)) <= g
    assert zero == [Fraction(g, 2)] * dim
    assert sum((x - Fraction(g, 2)) ** 2 for x in a) <= (allowed / 2) ** 2
    assert max(abs(x - Fraction(g, 2)) for x in a) <= Fraction(g, 2)


@pytest.mark.parametrize(("dim", "g"), [(1, 1), (1, 10**9), (3, 2), (3, 29), (10_000, 1), (10_000, 29), (10_000, 10**9)])
def test_opposite_vectors_are_within_reach(dim, g):
    """The farthest pairs there are, also with many coordinates, where rounding errors could add up."""
    rng = np.random.default_rng(g)
    for vector in (
        np.full(dim, 1.0),
        np.full(dim, 1e-3),
        rng.standard_normal(dim),
        np.eye(1, dim)[0],
        rng.standard_normal(dim) * 1e300,
    ):
        a, b = encoding(vector, 1.0, g), encoding(-vector, 1.0, g)
        assert sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) <= (Fraction(g) * (1 + Fraction(1, 10**9))) ** 2


@exactly
@given(unit=st.floats(-1, 1), g=levels)
@example(unit=-1.0, g=7)
@example(unit=1.0, g=7)
@example(unit=-5e-324, g=1)
@example(unit=math.nextafter(-1, 0), g=10**9)
def test_encoding_is_accurate(unit, g):
    """|a - (x + 1) g / 2| <= 4 g 2^-53 + 2^-48, as accounting, section 6, has it: far below what any round could show."""
    exact = (Fraction(unit) + 1) * g / 2
    assert abs(Fraction(float(encode(np.array([[unit]]), g)[0, 0])) - exact) <= Fraction(4 * g, 2**53) + Fraction(1, 2**48)


@pytest.mark.parametrize("g", [1, 2, 7, 8])
def test_ends_and_middle_of_the_range(g):
    assert encode(np.array([[-1.0, 0.0, 1.0]]), g).tolist() == [[0, g / 2, g]]


# --- what is accepted


class Frame:
    """Like a data frame: not an array, but it can be made into one."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def __array__(self, dtype=None, copy=None):
        return self.values if dtype is None else self.values.astype(dtype)


@pytest.mark.parametrize(
    "given_as",
    [
        [[1, 2], [3, 4], [5, 6]],
        ((1.0, 2), (3, 4), (5, 6)),
        np.arange(1, 7).reshape(3, 2),
        np.arange(1, 7, dtype=np.uint8).reshape(3, 2),
        np.arange(1, 7, dtype=np.float16).reshape(3, 2),
        np.arange(1, 7, dtype=np.float32).reshape(3, 2),
        np.asfortranarray(np.arange(1.0, 7).reshape(3, 2)),
        np.arange(1.0, 13).reshape(3, 4)[:, ::2] // 2 + [[1, 1]],
        np.array([[1, 2.0], [3, 4], [5, 6]], dtype=object),
        np.array([[Fraction(1), Decimal(2)], [3, 4], [5, 6]], dtype=object),
        Frame([[1, 2], [3, 4], [5, 6]]),
        Frame(np.array([[1, 2], [3, 4], [5, 6]], dtype=object)),
        [np.array([1.0, 2]), [3, 4], (5, 6)],
    ],
)
def test_numbers_in_rows_are_accepted(given_as):
    array = as_vectors(given_as, 2)
    assert array.shape == (3, 2)
    assert np.asarray(array, dtype=np.float64).tolist() == [[1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize(
    "given_as",
    [
        None,
        1.0,
        np.float64(1),
        np.array(3.0),
        "abc",
        {"a": 1},
        [],
        [1.0, 2.0],
        [[1.0], [2.0]],
        [[1.0, 2.0, 3.0]],
        [[[1.0, 2.0]]],
        np.zeros((3, 0)),
        [[1.0, 2.0], [3.0]],
        [["a", "b"]],
        [[b"a", b"b"]],
        [[1j, 2.0]],
        np.zeros((1, 2), dtype="M8[s]"),
        np.zeros((1, 2), dtype="m8[s]"),
        np.zeros((1, 2), dtype=[("a", float)]),
        np.array([[1j, 2]], dtype=object),
        np.array([["x", 2]], dtype=object),
        np.array([[[1], 2]], dtype=object),
        iter([[1.0, 2.0]]),
    ],
)
def test_anything_else_is_refused_with_the_arguments_name(given_as):
    with pytest.raises(ArgumentError, match=r"^records[.\w]* = .* is not allowed: it must be .*2"):
        as_vectors(given_as, 2, "records")


def test_whole_numbers_beyond_all_floats_are_refused():
    with pytest.raises(ArgumentError, match="vectors"):
        as_vectors([[10**400, 0]], 2)


def test_masked_arrays_are_refused():
    """What is masked is missing; to send what happens to stand under the mask would be wrong without a word."""
    with pytest.raises(ArgumentError, match="mask"):
        as_vectors(np.ma.masked_array([[1.0, 2.0]], mask=[[True, False]]), 2)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_first_user_without_a_finite_number_is_named(value, dtype):
    rows = np.zeros((25, 3), dtype=dtype)
    rows[17, 1] = rows[23, 0] = value
    for step in (1, 5, 16, 17, 18, 25, 100):
        with pytest.raises(ArgumentError, match=r"vectors\[17\] = -?(nan|inf).*finite"):
            require_finite(rows, range(0, 25, step))
    rows[17, 1] = rows[23, 0] = 0
    require_finite(rows, range(0, 25, 4))
    require_finite(rows.astype(bool), range(0, 25, 4))
    require_finite(rows.astype(np.int8), range(0, 25, 4))
