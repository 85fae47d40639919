"""From records to rows: by public facts and the record alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from croupier.table import Schema
from croupier.table._encode import Encoder
from croupier.table._read import Piece
from croupier.validation import ArgumentError

NAN, INF = float("nan"), float("inf")


def piece(**columns):
    return Piece(Path("people.csv"), 101, pa.record_batch({name: pa.array(values) for name, values in columns.items()}))


def encoder(columns, target='{column = "y", range = [0, 10]}', rows="as-is", extra=""):
    return Encoder(Schema.from_toml(f'rows = "{rows}"\ntarget = {target}\ncolumns = {{{columns}}}\n{extra}'))


def test_numbers_are_mapped_to_minus_one_and_one_and_clipped_there():
    rows = encoder("x = {low = 10, high = 20}").rows(piece(x=[10.0, 12.5, 20.0, 1e6, -1e308, INF, None, NAN]))
    assert rows.dtype == np.float32
    assert rows[:, 0].tolist() == [-1, -0.5, 1, 1, -1, 1, 0, 0]


def test_missing_numbers_are_told_apart_only_where_the_schema_says_so():
    made = encoder("x = {low = 0, high = 2, missing = true}")
    assert made.names == ("x", "x missing")
    assert made.rows(piece(x=[0.0, None, 1.0])).tolist() == [[-1, 0], [0, 1], [0, 0]]


def test_a_log_scale_has_equal_steps_for_equal_ratios():
    rows = encoder('x = {low = 0, high = 999, scale = "log"}').rows(piece(x=[0, 9, 99, 999, 10**9]))
    np.testing.assert_allclose(rows[:, 0], [-1, -1 / 3, 1 / 3, 1, 1], atol=1e-6)


def test_an_unknown_level_or_none_is_all_zeros():
    made = encoder('c = {levels = ["a", "b"]}')
    assert made.names == ("c=a", "c=b")
    assert made.rows(piece(c=["a", " b ", "z", "", None])).tolist() == [[1, 0], [0, 1], [0, 0], [0, 0], [0, 0]]


@pytest.mark.parametrize(("odd", "shown"), [("z", "'z' should"), (None, "the value is missing; it should")])
def test_an_unknown_level_can_be_refused_with_its_place(odd, shown):
    made = encoder('c = {levels = ["a", "b"], unknown = "refuse"}')
    with pytest.raises(ArgumentError, match=rf"people\.csv, row 103, column 'c': {shown}.*nobody was asked"):
        made.rows(piece(c=["a", "b", odd]))


@pytest.mark.parametrize(
    ("levels", "values"),
    [
        ("[1, 2]", pa.array([1, 2, 3])),
        ("[1, 2]", pa.array([1.0, 2.0, 3.0])),
        ('["1", "2"]', pa.array(["1", "2", "3"]).dictionary_encode()),
        ("[true, false]", pa.array([True, False, None])),
    ],
)
def test_levels_are_compared_as_text_whatever_they_are_stored_as(levels, values):
    assert encoder(f"c = {{levels = {levels}}}").rows(piece(c=values)).tolist() == [[1, 0], [0, 1], [0, 0]]


@pytest.mark.parametrize("values", [[0, 1], [True, False], [1.5, 2.5], pa.array(["1", "2"])])
def test_numbers_may_be_stored_in_any_type_that_has_them(values):
    assert np.isfinite(encoder("x = {low = 0, high = 1}").rows(piece(x=values))).all()


def test_times_and_words_are_not_numbers():
    for values in (pa.array([1, 2], pa.timestamp("s")), pa.array(["one", "2"])):
        with pytest.raises(ArgumentError, match=r"column 'x'.*a number"):
            encoder("x = {low = 0, high = 1}").rows(piece(x=values))


def test_rows_are_one_long_and_never_longer_even_in_float32():
    columns = ", ".join(f"x{i} = {{low = -1, high = 1}}" for i in range(7))
    values = np.random.default_rng(0).uniform(-1, 1, size=(2000, 7))
    values[0] = 0
    made = encoder(columns, rows="unit")
    rows = made.rows(piece(**{f"x{i}": values[:, i] for i in range(7)}))
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
    assert lengths[0] == 0
    assert (lengths <= 1).all()
    assert (lengths[1:] > 1 - 3e-7).all()
    assert made.norm == 1


def test_rows_left_as_they_are_are_no_longer_than_the_stated_norm():
    made = encoder('x = {low = 0, high = 1, missing = true}, c = {levels = ["a"]}, d = {levels = ["a", "b"]}')
    rows = made.rows(piece(x=[0.0, 1.0, None], c=["a"] * 3, d=["a", "b", "b"]))
    assert np.linalg.norm(rows, axis=1).max() <= made.norm == pytest.approx(3**0.5)


def test_a_row_depends_on_its_own_record_only():
    made = encoder('x = {low = 0, high = 1}, c = {levels = ["a", "b"]}', rows="unit")
    alone = made.rows(piece(x=[0.3], c=["b"]))
    among = made.rows(piece(x=[1e6, 0.3, None], c=["z", "b", "a"]))
    assert (among[1] == alone[0]).all()


def test_targets_are_declared_classes_in_their_own_type():
    for classes, values in (('["no", "yes"]', ["yes", " no"]), ("[0, 1]", ["1", "0"]), ("[0, 1]", [1.0, 0.0])):
        made = encoder("x = {low = 0, high = 1}", target=f'{{column = "y", classes = {classes}}}')
        assert made.targets(piece(y=values)).tolist() == (["yes", "no"] if "yes" in classes else [1, 0])


@pytest.mark.parametrize("odd", ["maybe", "", None])
def test_a_class_that_was_not_declared_is_refused_with_its_place(odd):
    made = encoder("x = {low = 0, high = 1}", target='{column = "y", classes = ["no", "yes"]}')
    shown = r"('maybe' should|the value is missing; it should)"
    with pytest.raises(ArgumentError, match=rf"row 102, column 'y': {shown}.*'no', 'yes'.*--invalid blank.*nobody was asked"):
        made.targets(piece(y=["no", odd]))


@pytest.mark.parametrize("odd", [None, NAN, INF])
def test_a_missing_or_endless_target_is_refused_with_its_place(odd):
    with pytest.raises(ArgumentError, match=r"row 102, column 'y'.*finite.*nobody was asked"):
        encoder("x = {low = 0, high = 1}").targets(piece(y=[1.0, odd]))


def test_a_record_keeps_its_place_in_the_file_when_others_are_left_out():
    kept = piece(y=["no", "no", "no", "maybe"]).only(np.array([True, False, True, True])).only(np.array([False, True, True]))
    made = encoder("x = {low = 0, high = 1}", target='{column = "y", classes = ["no", "yes"]}')
    with pytest.raises(ArgumentError, match=r"row 104, column 'y': 'maybe'"):
        made.targets(kept)


def test_users_are_told_apart_whatever_they_are_stored_as():
    made = Encoder(encoder("x = {low = 0, high = 1}").schema.with_user("who"))
    texts, numbers = made.users(piece(who=["7", "8", "7"])), made.users(piece(who=[7, 8, 7]))
    assert texts.tolist() == numbers.tolist()
    assert texts[0] == texts[2] != texts[1]
    assert len({*made.users(piece(who=np.arange(50_000))).tolist()}) == 50_000
    with pytest.raises(ArgumentError, match=r"row 102, column 'who'.*is missing.*is unknown"):
        made.users(piece(who=["7", None]))
    assert encoder("x = {low = 0, high = 1}").users(piece(x=[1])) is None
