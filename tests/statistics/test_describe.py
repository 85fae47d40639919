"""Summaries of all columns: ranges of vectors, bins, error bars, who is asked, and that bad input spends nothing."""

from __future__ import annotations

import datetime
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import croupier as cr
from croupier.estimator import PrivacyAccount
from croupier.report._description import describe_page, with_error
from croupier.statistics import check
from croupier.statistics._columns import LevelGuess, NumberGuess, NumberSummary
from croupier.statistics._holdout import HoldOut, name_number
from croupier.statistics.asking import plan_for
from croupier.statistics.describing import Summaries, numbers_of
from croupier.table import describe_table
from croupier.table.describe import TableGuess, range_of
from croupier.validation import ArgumentError

GUESSES = {
    "any": NumberGuess(),
    "whole": NumberGuess(0, 100, whole=True),
    "far": NumberGuess(-1e6, 1e6),
    "narrow": NumberGuess(1850, 3900, bins=16),
    "below": NumberGuess(-500, -1, bins=8),
    "level": LevelGuess(("a", "b", "c")),
}
RNG = np.random.default_rng(0)
ROWS = np.column_stack(
    [RNG.normal(size=300) * 10.0 ** RNG.uniform(-5, 10, 300), *RNG.normal(scale=3000, size=(4, 300)), RNG.integers(-1, 4, 300)]
)


def test_no_record_leaves_the_range():
    query = Summaries(GUESSES)
    assert check(query, ROWS) == []
    assert query.norm == 1
    assert query.diameter == pytest.approx(math.sqrt(2))
    assert check(Summaries({"level": LevelGuess(("a", "b"))}), ROWS[:, -1:]) == []


def test_every_bin_of_every_column_is_within_its_part_of_the_norm():
    """All bins, not a sample: no part is longer than its share, and none has a negative entry; so sqrt 2 bounds distances."""
    query = Summaries(GUESSES)
    for part, guess in zip(query.parts, GUESSES.values(), strict=True):
        weight = 0.4 if isinstance(guess, LevelGuess) else 1.0
        assert (part >= 0).all()
        assert np.linalg.norm(part, axis=0).max() <= math.sqrt(weight / 5.4) * (1 + 1e-12)
    longest = sum(float(np.linalg.norm(part, axis=0).max()) ** 2 for part in query.parts)
    assert longest <= 1 + 1e-12


def test_two_different_levels_are_as_far_apart_as_stated():
    query = Summaries({"one": LevelGuess(("a", "b")), "two": LevelGuess(("c", "d", "e"))})
    u, v = query(np.array([[0.0, 1.0], [1.0, 2.0]]), None)
    assert np.linalg.norm(u - v) == pytest.approx(query.diameter, rel=1e-12)


def test_people_with_several_rows_stay_within_the_range():
    query = Summaries(GUESSES)
    vectors = query(ROWS, None)
    means = vectors.reshape(30, 10, -1).mean(axis=1)
    assert np.linalg.norm(means, axis=1).max() <= 1 + 1e-12
    assert max(np.linalg.norm(a - b) for a in means for b in means) <= query.diameter


@pytest.mark.parametrize("name", ["any", "whole", "far", "narrow", "below"])
def test_every_number_is_in_a_bin_between_whose_ends_it_lies(name):
    guess = GUESSES[name]
    values = np.concatenate([ROWS[:, 0], ROWS[:, 1], [0.0, -0.0, guess.low, guess.high, np.inf, -np.inf]])
    values = np.round(values) if guess.whole else values
    lows, highs = guess.ends
    assert len(guess.edges) - 1 <= guess.bins
    assert (np.diff(guess.edges) > 0).all()
    for value, place in zip(values, guess.places(values), strict=True):
        if value < guess.edges[0]:
            assert place == 0
        elif value > guess.edges[-1]:
            assert place == guess.size - 2
        else:
            assert lows[place] <= value <= highs[place]
    assert guess.places(np.array([np.nan]))[0] == guess.size - 1
    if guess.low <= 0 <= guess.high:
        assert lows[guess.places(np.zeros(1))[0]] in (0.0, -0.5)


def answer(query, rows, noise_std, seed):
    """What the round would say with Gaussian noise of this size."""
    total = query(rows, None).sum(axis=0)
    noisy = np.random.default_rng(seed).normal(total, noise_std)
    return query.decode(cr.SumEstimate(sum=noisy, users=len(rows), noise_std=noise_std, guarantee=None))


def test_without_noise_figures_are_those_of_the_data():
    rng = np.random.default_rng(1)
    rows = np.column_stack([rng.integers(17, 91, 5_000), rng.lognormal(9, 1, 5_000), rng.integers(0, 3, 5_000)]).astype(float)
    rows[:500, 1] = np.nan
    query = Summaries({"age": NumberGuess(0, 120, whole=True), "pay": NumberGuess(0, 1e7), "level": LevelGuess(("a", "b", "c"))})
    found = answer(query, rows, 1e-9, 0)
    for q in (0.05, 0.25, 0.5, 0.95):
        assert found["age"].quantile(q) == np.quantile(rows[:, 0], q, method="inverted_cdf")
        pay = found["pay"].quantile(q)
        assert abs(np.mean(rows[500:, 1] <= pay) - q) < 0.01
    assert found["age"].mean.value == pytest.approx(rows[:, 0].mean(), rel=1e-6)
    assert found["pay"].missing.value == pytest.approx(0.1, abs=1e-6)
    assert found["pay"].mean_within(0, 1e5).value == pytest.approx(np.clip(rows[500:, 1], 0, 1e5).mean(), rel=0.02)
    shares = [found["level"].levels[level].value for level in "abc"]
    assert shares == pytest.approx([np.mean(rows[:, 2] == code) for code in range(3)], abs=1e-6)


def test_error_bars_cover_the_population():
    """24 populations of 4 figures each at epsilon 1: 95 % intervals cover at least 92 % of 96 (the seed is fixed)."""
    query = Summaries({"age": NumberGuess(0, 200, whole=True), "pay": NumberGuess(0, 1e6), "level": LevelGuess(("a", "b"))})
    noise = plan_for(query, 3_000, epsilon=1.0, delta=1e-6).noise_std
    covered = {"median": 0, "tail": 0, "share": 0, "mean": 0}
    rng = np.random.default_rng(2)
    populations = 24
    for seed in range(populations):
        age, pay = rng.integers(18, 91, 3_000), rng.exponential(30_000, 3_000)
        found = answer(query, np.column_stack([age, pay, rng.random(3_000) < 0.3]), noise, seed)
        low, high = found["age"].interval(0.5)
        covered["median"] += low <= 54 <= high
        low, high = found["pay"].interval(0.9)
        covered["tail"] += low <= -30_000 * math.log(0.1) <= high
        low, high = found["level"].levels["b"].interval
        covered["share"] += low <= 0.3 <= high
        low, high = found["age"].mean_within(0, 100).interval
        covered["mean"] += low <= 54 <= high
    assert all(count >= 0.8 * populations for count in covered.values()), covered
    assert sum(covered.values()) >= 0.92 * 4 * populations, covered


def test_describe_takes_arrays_frames_and_groups():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(3)
    frame = pandas.DataFrame({"sex": rng.choice(["f", "m", None], 3_000), "age": rng.integers(18, 91, 3_000).astype(object)})
    frame.loc[:99, "age"] = "n/a"
    description = cr.describe(frame, {"age": (0, 120), "sex": ["f", "m"]}, epsilon=8.0, delta=1e-6)
    assert description.guarantee is not None
    assert abs(description.columns["age"].missing.value - 0.033) < 0.02
    assert abs(description.columns["sex"].missing.value - 1 / 3) < 0.05
    assert "age" in str(description)
    assert description.to_dict()["users"] == 3_000
    people = cr.describe(np.ones((3_000, 1)), {"one": None}, epsilon=1.0, delta=1e-6, groups=np.arange(3_000) % 1_500)
    assert people.users == 1_500


def test_the_same_seed_gives_the_same_description_and_no_guarantee():
    first, second = (cr.describe(ROWS, GUESSES, epsilon=1.0, delta=1e-6, seed=4) for _ in range(2))
    assert first.to_dict() == second.to_dict()
    assert first.guarantee is None
    assert "NOT PRIVATE" in first.promise


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"columns": {}}, "columns"),
        ({"columns": {"a": (5, 1)}}, "high"),
        ({"columns": {"a": (0, math.inf)}}, "high"),
        ({"columns": {"a": ["x", "x"]}}, "levels"),
        ({"columns": {"a": 7}}, "columns['a']"),
        ({"columns": {"a": None, "b": None}}, "data"),
        ({"share": 1.5}, "share"),
        ({"share": 1e-9}, "share"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 0.5}, "delta"),
        ({"account": "file.jsonl"}, "account"),
    ],
)
def test_bad_input_is_one_line_and_spends_nothing(change, name):
    account = PrivacyAccount()
    arguments = {"columns": {"a": None}, "epsilon": 1.0, "delta": 1e-6, "account": account} | change
    with pytest.raises(cr.ArgumentError) as caught:
        cr.describe(np.ones((50, 1)), arguments.pop("columns"), **arguments)
    assert caught.value.name == name
    assert "\n" not in str(caught.value)
    assert account.fits == ()


def test_the_account_adds_the_description_up():
    account = PrivacyAccount()
    cr.describe(np.ones((2_000, 1)), {"a": None}, epsilon=0.2, delta=1e-6, account=account)
    (spent,) = account.fits
    assert spent.users == 2_000
    assert spent.guarantee.delta(0.2) <= 1e-6


def test_people_are_set_aside_by_place_or_name_alone():
    aside = HoldOut.fresh(0.25)
    whole = aside.places(0, 10_000)
    assert np.array_equal(
        whole, np.concatenate([aside.places(first, 7) for first in range(0, 9_996, 7)] + [aside.places(9_996, 4)])
    )
    assert abs(whole.mean() - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 10_000)  # two-sided: 6e-7
    names = np.arange(10_000, dtype=np.uint64)
    chosen = aside.names(names)
    assert abs(chosen.mean() - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 10_000)
    assert np.array_equal(chosen[::-1], aside.names(names[::-1]))
    assert not np.array_equal(whole, HoldOut.fresh(0.25).places(0, 10_000))


def test_in_memory_nobody_has_rows_on_both_sides():
    groups = np.array([f"p{n % 400}" for n in range(4_000)], dtype=object)
    description = cr.describe(np.ones((4_000, 1)), {"a": None}, epsilon=1.0, delta=1e-4, groups=groups, share=0.5)
    asked = set(groups[description.asked])
    assert asked.isdisjoint(groups[~description.asked])
    assert len(asked) == description.users
    assert description.of == 400


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 100), (-3, 4)])
def test_the_mean_of_whole_numbers_is_theirs_at_the_ends_of_a_guess(low, high):
    """A bin of one whole number stands for that number, also where half of the bin lies beyond the range."""
    values = np.random.default_rng(0).choice([0.0, 1.0], p=[0.9, 0.1], size=5_000)
    guess = NumberGuess(low, high, whole=True)
    shares = np.bincount(guess.places(values), minlength=guess.size) / len(values)
    summary = NumberSummary(guess, shares, np.zeros((guess.size, guess.size)), users=len(values))
    assert summary.mean.value == pytest.approx(values.mean(), rel=1e-9)
    assert summary.middle_mean.value == pytest.approx(values.mean(), rel=1e-9)
    assert summary.mean.std == pytest.approx(values.std() / math.sqrt(len(values)), rel=1e-9)


def test_quantiles_of_whole_numbers_are_numbers_of_their_bins():
    guess = NumberGuess(0, 100, whole=True)
    for number in (1.0, 4.0, 5.0, 99.0):
        shares = np.bincount(guess.places(np.array([number])), minlength=guess.size).astype(float)
        summary = NumberSummary(guess, shares, np.zeros((guess.size, guess.size)), users=100)
        assert [summary.quantile(q) for q in (0.0, 0.5, 1.0)] == [number] * 3


def test_whatever_says_that_a_level_is_missing_counts_as_missing():
    frame = pd.DataFrame({"c": pd.array(["a", pd.NA, " a ", "  ", None, "z"] * 500, dtype="string")})
    numbers = numbers_of(frame, {"c": LevelGuess(("a", "b"))})[:6, 0]
    assert numbers[[0, 2, 5]].tolist() == [0.0, 0.0, -1.0]
    assert np.isnan(numbers[[1, 3, 4]]).all()
    assert numbers_of(np.array([[b"b"], [b"\xff"]]), {"c": LevelGuess(("a", "b"))})[:, 0].tolist() == [1.0, -1.0]


def test_a_person_whose_rows_write_the_name_differently_is_in_one_part_only():
    """Text and its UTF-8 are one name to a population, so also to who sets people aside; what cannot be a name stops nobody."""
    names = [f"é{number}" for number in range(500)]
    groups = np.empty(1_001, dtype=object)
    groups[:] = [*names, *(name.encode() for name in names), ["no name"]]
    rows = np.random.default_rng(0).random((1_001, 1))
    looks = cr.describe(rows, {"x": (0, 1)}, epsilon=1.0, delta=1e-6, groups=groups, share=0.5)
    assert (looks.asked[:500] == looks.asked[500:1000]).all()
    assert (looks.users, looks.of) == (looks.asked[:500].sum(), 500)


@pytest.mark.parametrize("guess", [NumberGuess(0, 1, whole=True), NumberGuess(0.2, 1.7, whole=True), NumberGuess(-9e29, 9e29)])
@pytest.mark.parametrize("place", [0, 1, -2, -1])
def test_whatever_noise_leaves_has_quantiles_within_their_bounds(guess, place):
    """Also where everybody is below the guess, above it or missing: nothing may fail after the release."""
    shares = np.zeros(guess.size)
    shares[place] = 1.0
    summary = NumberSummary(guess, shares, 1e-4 * np.eye(guess.size), users=100)
    for q in (0.0, 0.05, 0.5, 1.0):
        low, high = summary.interval(q)
        assert guess.low <= low <= high <= guess.high
        assert low <= summary.quantile(q) <= high or place == -1  # of nobody nothing is known
    low, high, _ = range_of(summary)
    assert low < high


def test_a_guess_too_near_zero_is_refused_before_anybody_is_asked():
    with pytest.raises(ArgumentError, match="low = 5e-324 is not allowed"):
        NumberGuess(5e-324, 1e-323)


def test_the_page_draws_numbers_in_a_narrow_range_far_from_zero():
    looks = cr.describe(np.zeros((1_500, 1)), {"x": NumberGuess(1e15, 1e15 + 2, whole=True)}, epsilon=0.05, delta=1e-5, seed=1)
    assert "<svg" in describe_page(looks, title="far")


def test_the_page_begins_with_all_columns_and_draws_levels_on_one_scale():
    rng = np.random.default_rng(3)
    two_levels, ten_levels = (rng.choice(list(levels), 3_000) for levels in ("ab", "abcdefghij"))
    rows = pd.DataFrame({"age": rng.uniform(20, 90, 3_000), "two": two_levels, "ten": ten_levels})
    guesses = {"age": NumberGuess(0, 120), "two": LevelGuess(("a", "b")), "ten": LevelGuess(tuple("abcdefghij"))}
    looks = cr.describe(rows, guesses, epsilon=4.0, delta=1e-5, seed=1)
    page = describe_page(looks)
    overview = page.split("All columns at a glance")[1].split("</section>")[0]
    for name in guesses:
        assert overview.count(f"<td>{name}</td>") == 1
        assert page.index("All columns at a glance") < page.index(f"<h2>{name}</h2>")
    two, ten = (page.split(f"<h2>{name}</h2>")[1].split("</section>")[0] for name in ("two", "ten"))
    axes = [re.findall('class="tick" x="([\\d.]+)" y="[\\d.]+" text-anchor="middle">(.*?)<', part) for part in (two, ten)]
    assert axes[0] == axes[1]
    assert two.count('class="error"') == 2 + 2  # with "other" and "missing"
    assert page.count('class="bar"') == page.count('class="error"')
    ends = [float(end) for end in re.findall(r'class="bar" d="M([\d.]+) [\d.]+ H([\d.]+)', two)[0]]
    tick, at = next((float(text), float(x)) for x, text in axes[0] if float(text) > 0)
    share = 100 * max(looks.columns["two"].levels[level].value for level in "ab")
    assert share > 45
    assert (ends[1] - ends[0]) / (at - ends[0]) == pytest.approx(share / tick, rel=0.01)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [(54.0123, 0.8977, "54.01 +- 0.90"), (12345.6, 321.0, "12,346 +- 321"), (1e-9, 1e-10, "1e-09 +- 1e-10"), (3.0, 0.0, "3 +- 0")],
)
def test_a_value_has_as_many_decimals_as_its_error(value, error, text):
    assert with_error(value, error) == text


def test_bins_that_are_stated_are_those_that_were_made():
    for guess in (NumberGuess(0, 200, whole=True), NumberGuess(), NumberGuess(2.5, 900.0), NumberGuess(-3, 7, bins=8)):
        stated = replace(guess, stated=tuple(guess.edges.tolist()))
        values = np.concatenate([guess.edges, np.nextafter(guess.edges, 1e31), [0.0, np.nan, np.inf, -np.inf, 5.0]])
        assert np.array_equal(stated.places(values), guess.places(values))
        assert stated.size == guess.size


@pytest.mark.parametrize("edges", [(), (0.0,), (0.0, 5.0), (1.0, 10.0), (0.0, 5.0, 5.0, 10.0), (0.0, "5", 10.0), tuple(range(11))])
def test_bins_that_are_stated_must_ascend_from_low_to_high(edges):
    with pytest.raises(ArgumentError, match="edges"):
        NumberGuess(0, 10, bins=9 if len(edges) > 8 else 8, stated=edges)


_WHO = """
import numpy as np, croupier as cr
from croupier.statistics import _holdout
_holdout.secrets.token_hex = lambda size: "5" * (2 * size)
names = [f"person {number}" for number in range(300)]
looks = cr.describe(np.ones((300, 1)), {"x": (0, 2)}, epsilon=1.0, delta=1e-6, groups=names, share=0.5)
print("".join("01"[int(asked)] for asked in looks.asked))
"""


@pytest.mark.process
def test_a_seed_names_the_same_people_in_every_process_and_in_a_file(tmp_path, monkeypatch):
    """A published seed says who was set aside; another process would have asked some of them again."""
    processes = [
        subprocess.run(
            [sys.executable, "-c", _WHO], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        for seed in ("1", "2")
    ]
    first, second = (process.stdout.strip() for process in processes)
    assert first == second
    assert {"0", "1"} == set(first)
    path = tmp_path / "people.csv"
    path.write_text("who,x\n" + "".join(f"person {number},1\n" for number in range(300)))
    monkeypatch.setattr("croupier.statistics._holdout.secrets.token_hex", lambda size: "5" * (2 * size))
    looks = describe_table(path, TableGuess({"x": NumberGuess(0, 2)}, user="who"), epsilon=8.0, delta=1e-6, share=0.5)
    assert looks.users == first.count("1")


def test_equal_labels_of_any_type_are_on_one_side():
    same = [7, 7.0, np.int64(7), np.float32(7), Decimal("7.0"), Fraction(14, 2)]
    assert len({name_number(label) for label in same}) == 1
    assert name_number(1) == name_number(True) != name_number(0.5) == name_number(Decimal("0.5")) == name_number(np.float32(0.5))
    assert name_number(float("inf")) == name_number(Decimal("inf"))
    assert name_number("a") == name_number(np.str_("a")) != name_number("b")
    assert name_number(None) == name_number(float("nan")) == name_number(pd.NA)
    for label in (datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), 1 + 0j, ("a",)):
        groups = np.empty(4, dtype=object)
        groups[:] = ["a", "b", "c", label]
        account = PrivacyAccount()
        with pytest.raises(cr.ArgumentError, match=r"groups = .*text or numbers.*str\(label\)"):
            cr.describe(np.ones((4, 1)), {"x": (0, 2)}, epsilon=1.0, delta=1e-6, groups=groups, share=0.5, account=account)
        assert account.fits == ()


@pytest.mark.parametrize("labels", [np.arange(5), np.arange(5_000), np.zeros((3_000, 1))])
def test_labels_of_another_shape_are_refused_where_a_share_is_set_aside(labels):
    """An IndexError of numpy's, or "share = 0.2 is not allowed", before."""
    X = np.zeros((3_000, 1))
    with pytest.raises(ArgumentError, match=r"groups has the shape .*, but data has 3000 rows; it must be one label per row"):
        cr.describe(X, {"a": (0, 1)}, epsilon=1.0, share=0.2, groups=labels)


@pytest.mark.parametrize("what", ["frame", "column"])
def test_a_gap_in_an_arrow_column_changes_nobody_elses_level(what):
    """The attack: beside a gap, whole numbers of 18 digits became floats, and with them other levels."""
    levels = [str(10**18 + number) for number in range(3)]
    column = pa.array([10**18 + number % 3 for number in range(2_999)] + [None])
    if what == "frame":
        places = numbers_of(pa.table({"id": column}), {"id": LevelGuess(tuple(levels))})
    else:
        places = cr.Table("id", schema={"id": levels}).encode({"id": column})
    assert np.array_equal(places[:-1, 0], np.arange(2_999) % 3)
    assert np.isnan(places[-1, 0])
