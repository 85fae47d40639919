"""The compiled pass against numpy's: the same integers from the same bytes, bit for bit; and products against plain vectors."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier import ArgumentError, SecureRandom, SeededRandom, plan_sum
from croupier.arithmetic import LinearVectors, row_squares
from croupier.protocol import _fused as fused
from croupier.protocol._encoding import clip_to_ball, encode
from croupier.protocol._randomizer import Randomizer
from croupier.protocol.randomness import RandomSource, Secret

pytest.importorskip("numba")
exactly = settings(deadline=None, derandomize=True, max_examples=300)
PLAN = plan_sum(epsilon=1.0, delta=1e-6, users=1000, dim=3)


class FewBytes(SeededRandom):
    """A stream of a few different bytes only, so that many fractions are tied for long."""

    def __init__(self, seed: int, alphabet: list[int]) -> None:
        super().__init__(seed)
        self._alphabet = np.array(alphabet, dtype=np.uint8)

    def draw_bytes(self, count):
        return self._alphabet[super().draw_bytes(count) % self._alphabet.size]


def sources(kind: str, seed: int) -> RandomSource:
    """The same source whenever it is asked for."""
    if kind == "seeded":
        return SeededRandom(seed)
    return Secret.of_seed(seed).source() if kind == "keyed" else FewBytes(seed, [0, 127, 128, 129, 255])


def vectors(rng: np.random.Generator, kind: str, users: int, dim: int, norm: float) -> np.ndarray:
    """Rows inside, at and outside the border, of zeros, of the smallest numbers, and of those whose squares overflow."""
    rows = rng.normal(size=(users, dim))
    rows *= norm / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    if kind == "plain":
        rows *= rng.uniform(0, 2, size=(users, 1))
    elif kind == "awkward":
        rows *= rng.choice([0.0, 0.5, 1.0, np.nextafter(1, 0), np.nextafter(1, 2), 1e-160, 1e9, 5e-324], size=(users, 1))
    elif kind == "huge":
        rows *= rng.choice([0.5, 1.0, 1e200], size=(users, 1))
    else:
        rows = np.round(rows / norm * 4) * norm / 4  # whole and half encodings
    return rows


def linear(rng: np.random.Generator, users: int, features: int, outputs: int, l2: float, size: float = 1.0) -> LinearVectors:
    """Products with a shift that may all but cancel them."""
    rows = rng.normal(size=(users, features)) * size
    slopes = rng.normal(size=(users, outputs))
    if not l2:
        return LinearVectors(rows, slopes)
    shift = rng.normal(size=(outputs, features)) if outputs > 1 else -slopes[:1].T * rows[:1] * (1 + 1e-9)
    return LinearVectors(rows, slopes, l2 * shift)


def both(
    given_: np.ndarray | LinearVectors, dim: int, levels: int, norm: float, kind: str, seed: int, monkeypatch_patience
) -> None:
    randomizer = Randomizer(replace(PLAN, dim=dim, levels=levels, norm=norm))
    found = []
    for patience in (10**18, -1):
        monkeypatch_patience(patience)
        source = sources(kind, seed)
        ones = randomizer.encoded(given_, source).ones
        found.append((ones.dtype, ones.tolist(), source.draw_bytes(16).tolist()))
    assert found[0] == found[1]


@pytest.fixture
def patience(monkeypatch):
    return lambda entries: monkeypatch.setattr(fused, "PATIENCE", entries)


levels_ = st.one_of(st.integers(1, 300), st.integers(300, (1 << 22) - 1), st.sampled_from([255, 256, (1 << 22) - 1, 1 << 22]))
norms = st.one_of(st.just(1.0), st.floats(1e-3, 1e3), st.sampled_from([1e-40, 1e40, 1e-29, 1e29]))
kinds = st.sampled_from(["seeded", "keyed", "few bytes"])


def test_vectors_are_rounded_and_added_up_alike(patience):
    @exactly
    @given(
        users=st.integers(0, 70),
        dim=st.integers(1, 40),
        levels=levels_,
        norm=norms,
        rows=st.sampled_from(["plain", "awkward", "huge", "whole"]),
        kind=kinds,
        seed=st.integers(0, 10**6),
    )
    def check(users, dim, levels, norm, rows, kind, seed):
        both(vectors(np.random.default_rng(seed), rows, users, dim, norm), dim, levels, norm, kind, seed, patience)

    check()


def test_products_are_rounded_and_added_up_alike(patience):
    @exactly
    @given(
        users=st.integers(0, 40),
        features=st.integers(1, 20),
        outputs=st.integers(1, 4),
        l2=st.sampled_from([0.0, 0.3, 1.0]),
        levels=levels_,
        norm=norms,
        kind=kinds,
        seed=st.integers(0, 10**6),
    )
    def check(users, features, outputs, l2, levels, norm, kind, seed):
        products = linear(np.random.default_rng(seed), users, features, outputs, l2 if users else 0.0)
        both(products, features * outputs, levels, norm, kind, seed, patience)

    check()


@pytest.mark.parametrize(
    ("users", "features", "outputs"), [(9000, 1, 1), (700, 7, 1), (130, 55, 2), (50, 51, 5), (50, 64, 4), (5, 900, 10)]
)
@pytest.mark.parametrize("l2", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["keyed", "few bytes"])
def test_many_pieces_are_rounded_and_added_up_alike(users, features, outputs, l2, kind, patience):
    """More users than go into a piece, on both sides of the width from which on rows are added up one by one."""
    products = linear(np.random.default_rng(users), users, features, outputs, l2)
    both(products, features * outputs, 200, 1.0, kind, users, patience)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, bool, ">f8"])
def test_other_types_and_layouts_are_rounded_alike(dtype, patience):
    rows = np.random.default_rng(0).normal(size=(50, 3)).astype(dtype)
    frozen = rows.copy()
    frozen.setflags(write=False)
    for layout in (rows, np.asfortranarray(rows), np.repeat(rows, 2, axis=0)[::2], frozen):
        both(layout, 3, 20, 1.0, "seeded", 1, patience)


@exactly
@given(users=st.integers(1, 30), features=st.integers(1, 30), l2=st.sampled_from([0.0, 0.7]), seed=st.integers(0, 10**6))
def test_encodings_are_the_same_to_the_last_bit(users, features, l2, seed):
    """With a byte drawn that ties every entry, the kernel says what is left of all of them: no operation is fused or reordered."""
    (unit,) = clip_to_ball(linear(np.random.default_rng(seed), users, features, 1, l2), 1.0)
    rest, whole = np.modf(encode(unit.numbers(), 13).ravel() * 256)
    shift = np.zeros((0, 0)) if unit.shift is None else unit.shift
    ones = np.zeros(features, dtype=np.int64)
    drawn = (whole % 256).astype(np.uint8)
    columns, found = fused.kernel()(unit.rows, unit.coefficients, unit.factors, shift, 13 / 2 * 256, drawn, ones)
    assert found.tolist() == rest[rest > 0].tolist()
    assert columns.tolist() == (np.flatnonzero(rest > 0) % features).tolist()
    assert ones.tolist() == (whole // 256).reshape(users, features).sum(axis=0).astype(int).tolist()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("entries", [10**18, -1])
def test_what_is_not_finite_is_refused_before_anything_is_drawn(bad, entries, patience):
    patience(entries)
    rows = np.zeros((10, 3))
    rows[7, 1] = bad
    source = SeededRandom(5)
    with pytest.raises(ArgumentError, match=rf"vectors\[7\] = {bad}"):
        Randomizer(PLAN).encoded(rows, source)
    assert source.draw_bytes(8).tolist() == SeededRandom(5).draw_bytes(8).tolist()


def test_products_of_another_width_are_refused():
    with pytest.raises(ArgumentError, match=r"\(4, 6\)"):
        Randomizer(PLAN).encoded(linear(np.random.default_rng(0), 4, 3, 2, 0.0), SeededRandom(0))


# --- products


@exactly
@given(
    features=st.integers(1, 8),
    outputs=st.integers(1, 3),
    l2=st.sampled_from([0.0, 1.0, 1e-8]),
    norm=st.one_of(st.floats(1e-6, 10), st.sampled_from([1e-40, 1e-29, 1.0])),
    size=st.sampled_from([1.0, 1e-170, 1e-8, 1e60, 1e120]),
    seed=st.integers(0, 10**6),
)
def test_clipped_products_are_in_the_ball_in_exact_arithmetic(features, outputs, l2, norm, size, seed):
    """Also where the shift cancels the product to nine digits, and what is left is long beside the norm."""
    products = linear(np.random.default_rng(seed), 3, features, outputs, l2, size)
    for unit in clip_to_ball(products, norm):
        for row in unit.numbers():
            assert sum(Fraction(float(x)) ** 2 for x in row) <= 1


@exactly
@given(features=st.integers(1, 8), outputs=st.integers(1, 3), l2=st.sampled_from([0.0, 0.5]), seed=st.integers(0, 10**6))
def test_products_are_clipped_like_the_vectors_that_they_are(features, outputs, l2, seed):
    products = linear(np.random.default_rng(seed), 5, features, outputs, l2)
    (there,) = clip_to_ball(products, 1.0)
    (here,) = clip_to_ball(LinearVectors.of(np.asarray(products)), 1.0)
    # a product that its shift cancels to nine digits is right to seven of its own
    np.testing.assert_allclose(there.numbers(), here.numbers(), rtol=1e-6, atol=1e-14)


def test_a_users_encoding_does_not_depend_on_the_others():
    """One whose squares overflow goes by itself, and the others are what they were."""
    rng = np.random.default_rng(0)
    products = linear(rng, 6, 4, 2, 0.5)
    rows = products.rows.copy()
    rows[2] *= 1e200
    mixed = replace(products, rows=rows)
    (alone,) = clip_to_ball(products, 1.0)
    odd, usual = clip_to_ball(mixed, 1.0)
    assert len(odd.rows) == 1
    assert usual.numbers().tolist() == np.delete(alone.numbers(), 2, axis=0).tolist()


# --- loading


def test_numba_is_not_loaded_until_there_is_work_for_it():
    code = "import croupier, croupier.cli, sys; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_little_work_does_not_load_the_kernel(monkeypatch):
    monkeypatch.setattr(fused, "kernel", lambda *kind: pytest.fail("loaded"))
    monkeypatch.setattr(fused, "PATIENCE", 1 << 25)  # whatever ran before in this process
    monkeypatch.setattr(fused._Work, "entries", 0)
    Randomizer(PLAN).encoded(np.zeros((100, 3)), SecureRandom())


def test_asking_whether_the_kernel_is_worth_it_changes_nothing(monkeypatch):
    monkeypatch.setattr(fused, "kernel", lambda *kind: pytest.fail("loaded"))
    monkeypatch.setattr(fused, "PATIENCE", 1 << 25)  # whatever ran before in this process
    monkeypatch.setattr(fused._Work, "entries", 0)
    (unit,) = clip_to_ball(LinearVectors.of(np.zeros((100, 3))), 1.0)
    for _ in range(3):
        assert not fused.is_for(unit, PLAN.levels)
    assert fused._Work.entries == 0
    fused.note_work(unit, PLAN.levels)
    fused.note_work(unit, 1 << 23)  # more levels than the pass can do
    assert fused._Work.entries == 300


def test_without_numba_numpy_does_it(monkeypatch, patience):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "croupier.protocol._compiled", raising=False)
    fused.kernel.cache_clear()
    try:
        patience(-1)
        assert fused.kernel() is None
        assert Randomizer(PLAN).encoded(np.zeros((10, 3)), SecureRandom()).users == 10
        (unit,) = clip_to_ball(LinearVectors.of(np.zeros((1, 3))), 1.0)
        with pytest.raises(ImportError, match=r"\[fast\]"):
            fused.added(unit, 5, SecureRandom())
    finally:
        fused.kernel.cache_clear()


def test_where_nothing_can_be_cached_it_is_compiled_all_the_same():
    """A function without a file has no place for a cache, which numba refuses to go without."""
    from croupier.protocol._compiled import _compiled  # noqa: PLC0415

    names: dict = {}
    exec("def double(x):\n    return 2 * x", names)
    assert _compiled(names["double"])(21) == 42


# Lengths are computed where vectors are clipped, of whatever is given.


def true_square(unit, row: int) -> Fraction:
    return sum((Fraction(float(entry)) ** 2 for entry in unit.numbers()[row]), Fraction(0))


@pytest.mark.parametrize("kind", [np.int8, np.bool_, np.float32, np.longdouble])
def test_coefficients_of_any_type_are_clipped_in_double_precision(kind):
    rows = np.random.default_rng(0).normal(size=(50, 4))
    coefficients = np.random.default_rng(1).uniform(-100, 100, size=(50, 3)).astype(kind)
    for norm in (1.0, 0.3):
        (unit,) = clip_to_ball(LinearVectors(rows.astype(np.float32), coefficients), norm)
        assert max(true_square(unit, row) for row in range(50)) <= 1


@pytest.mark.parametrize("size", [5e-324, 3e-162, 1e-160, 1e-155])
def test_what_is_too_short_to_be_squared_is_short(size):
    """The computed square of a length may then be less than 0: not a number, once its root is taken."""
    rng = np.random.default_rng(0)
    rows, shift = rng.choice([-3.0, 3.0], size=(200, 8)) * size, np.full((1, 8), -1.5 * size)
    linear_ = LinearVectors(rows, np.full((200, 1), 0.5), shift)
    for unit in clip_to_ball(linear_, 5.5):
        assert np.isfinite(unit.numbers()).all()
        assert np.abs(unit.numbers()).max() <= 6 * size


def test_numbers_that_are_none_are_refused_however_they_are_made():
    for rows, coefficients, shift in (
        (np.full((2, 3), 1e200), np.full((2, 1), 1e190), None),
        (np.ones((2, 3)), np.array([[np.nan], [1.0]]), None),
        (np.ones((2, 3)), np.ones((2, 1)), np.full((1, 3), np.inf)),
    ):
        with pytest.raises(ArgumentError, match="finite"):
            list(clip_to_ball(LinearVectors(rows, coefficients, shift), 1.0))


def test_a_compiler_that_fails_is_done_without(monkeypatch):
    """A full disk, a broken cache, a library that is gone: the plain pass gives the same."""
    fused.kernel.cache_clear()

    def broken(name):
        raise OSError("no space left on device")

    monkeypatch.setattr(fused.importlib, "import_module", broken)
    try:
        assert fused.kernel() is None
    finally:
        monkeypatch.undo()
        fused.kernel.cache_clear()
    assert fused.kernel() is not None


def test_rows_of_each_kind_are_tried_before_anything_is_drawn(monkeypatch, patience):
    """What compiles for rows in double precision may not in single: the plain pass does it then."""
    patience(-1)
    real = fused.kernel
    rows = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    frozen = rows.astype(np.float64)
    frozen.setflags(write=False)
    for odd, kind in (
        ((rows, np.ones((40, 1)), None, row_squares(rows)), ("float32", True)),
        ((frozen, np.ones((40, 1))), ("float64", False)),
    ):
        monkeypatch.setattr(fused, "kernel", lambda *asked, kind=kind: None if asked == kind else real(*asked))
        found = Randomizer(PLAN).encoded(LinearVectors(*odd), SeededRandom(1)).ones
        with pytest.raises(ImportError):
            fused.added(*clip_to_ball(LinearVectors(*odd), 1.0), 5, SecureRandom())
        monkeypatch.setattr(fused, "kernel", real)
        assert found.tolist() == Randomizer(PLAN).encoded(LinearVectors(*odd), SeededRandom(1)).ones.tolist()
