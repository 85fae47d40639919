"""Joint tables: their range, least squares by another route, error bars that hold, and numbers within groups."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import croupier as cr
from croupier.privacy.gaussian import central_noise_std
from croupier.protocol import SumEstimate
from croupier.report._answers import answer_page
from croupier.statistics import check
from croupier.table import Schema
from croupier.table.schema import Category, Numeric, Target

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
FACTS = {"region": ["n", "s", "w"], "age": [0, 18, 65, 120], "sex": ["f", "m"]}


def people(users, seed=0):
    rng = np.random.default_rng(seed)
    region = rng.choice(["n", "s", "w", "?"], users, p=[0.5, 0.3, 0.15, 0.05])
    age = rng.gamma(4, 12, users) - 5 * (region == "n")
    age[rng.random(users) < 0.02] = np.nan
    return {"region": region, "age": age, "sex": rng.choice(["f", "m"], users)}


def exact(table, data):
    X = table.encode(data)
    places = [axis.places(X[:, at]) for at, axis in enumerate(table.axes)]
    counts = np.zeros(table.shape)
    np.add.at(counts, tuple(places), 1)
    return counts


@pytest.mark.parametrize("marginals", [0.0, 0.4])
@pytest.mark.parametrize("columns", [("age",), ("region", "age"), ("region", "age", "sex")])
def test_vectors_keep_their_range(columns, marginals):
    table = cr.Table(*columns, schema=FACTS, marginals=marginals)
    X = np.random.default_rng(0).choice([0.0, 1.0, 2.0, 30.0, -1.0, np.nan, np.inf, -np.inf], size=(200, len(columns)))
    assert check(table, X) == []
    np.testing.assert_allclose(np.linalg.norm(table(X, None), axis=1), 1.0, rtol=1e-12)


def test_values_stand_where_they_should():
    table = cr.Table("region", "age", schema=FACTS)
    data = {"region": ["n", "w", "x", None], "age": [-3, 18, 500, None]}
    assert exact(table, data).nonzero() == pytest.approx(np.array([[0, 2, 3, 3], [0, 1, 2, 3]]))
    schema = Schema({"region": Category(("n", "s", "w")), "age": Numeric(0, 120)}, Target("ill", classes=("no", "yes")))
    table = cr.Table("region", "ill", "age", schema=schema, bins=6)
    assert table.shape == (4, 3, 7)
    assert table.axes[2].labels[0] == "0 .. 20"


@pytest.mark.parametrize("marginals", [0.0, 0.3])
@pytest.mark.parametrize("columns", [("region", "age"), ("region", "age", "sex")])
def test_least_squares_is_that_of_another_route(columns, marginals):
    """The same estimate and covariance as from the normal equations with all sums in one matrix, the total fixed."""
    table, users, noise = cr.Table(*columns, schema=FACTS, marginals=marginals), 1_000, 3.0
    K = table.cells
    cells = np.eye(K).reshape(K, *table.shape)
    rows = [math.sqrt(1 - marginals if marginals else 1.0) * np.eye(K)]
    if marginals:
        for axis in range(len(columns)):
            across = tuple(1 + other for other in range(len(columns)) if other != axis)
            rows.append(math.sqrt(marginals / len(columns)) * cells.sum(axis=across).T)
    A = np.vstack(rows)
    sums = np.random.default_rng(1).normal(0, 30, table.dim)
    inverse = np.linalg.inv(A.T @ A)
    free, ones = inverse @ (A.T @ sums), inverse.sum(axis=1)
    expected = free + ones * (users - free.sum()) / ones.sum()
    covariance = noise**2 * (inverse - np.outer(ones, ones) / ones.sum())
    answer = table.decode(SumEstimate(sum=sums, users=users, noise_std=noise, guarantee=None))
    np.testing.assert_allclose(answer.counts.ravel(), expected, rtol=1e-9, atol=1e-9)
    assert answer.counts.sum() == pytest.approx(users)
    assert answer.count_std == pytest.approx(math.sqrt(covariance[0, 0]), rel=1e-9)
    for axis, column in enumerate(columns):
        chosen = np.take(np.arange(K).reshape(table.shape), 1, axis=axis).ravel()
        std = math.sqrt(covariance[np.ix_(chosen, chosen)].sum())
        count, error = answer.marginal(column)[answer.labels[column][1]]
        assert error == pytest.approx(std, rel=1e-9)
        assert count == pytest.approx(expected[chosen].sum(), rel=1e-9)


def test_a_cell_has_a_curators_noise_and_its_error_bar_holds():
    users, data = 20_000, people(20_000)
    table = cr.Table("region", "age", "sex", schema=FACTS | {"age": (0, 120)}, bins=20)
    answer = cr.ask(table, data, **BUDGET, seed=1)
    central = central_noise_std(1.0, 1e-6, math.sqrt(2))
    assert answer.count_std <= 1.05 * central
    errors = (answer.counts - exact(table, data)).ravel() / answer.count_std
    spread = np.mean(errors**2) * len(errors)
    assert stats.chi2.sf(spread, len(errors) - 1) > 1e-6
    assert spread / len(errors) > 0.5
    for column in ("region", "sex"):
        truth = exact(cr.Table(column, schema=FACTS), data)
        for (count, error), true in zip(answer.marginal(column).values(), truth, strict=True):
            assert abs(count - true) < 6 * error
    possible = answer.possible()
    assert possible.counts.min() >= 0
    assert possible.counts.sum() == pytest.approx(users)
    assert np.abs(possible.counts - exact(table, data)).mean() <= np.abs(answer.counts - exact(table, data)).mean()
    assert "20,000 people" in str(answer)


def test_own_counts_of_columns_have_less_noise():
    facts = {"a": [f"{i}" for i in range(30)], "b": [f"{i}" for i in range(40)]}
    plain, both = (cr.Table("a", "b", schema=facts, marginals=part) for part in (0.0, 0.3))
    found = [table.decode(SumEstimate(sum=np.zeros(table.dim), users=9, noise_std=6.0, guarantee=None)) for table in (plain, both)]
    assert found[1].marginal_std["a"] < 0.4 * found[0].marginal_std["a"]
    assert found[0].count_std < found[1].count_std < 1.2 * found[0].count_std
    assert plain.vectors(np.zeros((5, 2)), None).shape == (5, plain.dim)


def test_large_tables_are_sent_by_their_entries():
    facts = {"a": [f"{i}" for i in range(90)], "b": [f"{i}" for i in range(90)]}
    table = cr.Table("a", "b", schema=facts)
    data = {"a": ["3"] * 3_000 + ["x"] * 3_000, "b": ["4"] * 6_000}
    assert table.entries == 1
    answer = cr.ask(table, data, **BUDGET, seed=1)
    assert abs(answer.counts[3, 4] - 3_000) < 6 * answer.count_std
    assert abs(answer.counts[90, 4] - 3_000) < 6 * answer.count_std


def test_means_and_quantiles_within_groups():
    data = people(60_000)
    answer = cr.ask(cr.Table("age", by="region", schema=FACTS | {"age": (0, 150)}), data, **BUDGET, seed=2)
    assert list(answer.groups) == ["n", "s", "w", "other"]
    for region in ("n", "s", "w"):
        mine = data["age"][(data["region"] == region)]
        size, std = answer.sizes[region]
        assert abs(size - len(mine)) < 6 * std
        mine = np.clip(mine[~np.isnan(mine)], 0, 150)
        mean = answer.groups[region].mean
        assert abs(mean.value - mine.mean()) < 5 * mean.std
        low, high = answer.groups[region].interval(0.5)
        assert low - 3 <= np.median(mine) <= high + 3
        assert answer.groups[region].missing.value == pytest.approx(0.02, abs=0.02)
    assert "age by region" in str(answer)
    assert [row["group"] for row in answer.value.to_dict()["groups"]] == [["n"], ["s"], ["w"], ["other"]]


def test_groups_keep_their_range():
    table = cr.Table("age", by=("region", "sex"), schema=FACTS | {"age": (0, 150)}, bins=10)
    X = np.random.default_rng(0).choice([0.0, 1.0, 30.0, -1.0, np.nan], size=(200, 3))
    assert check(table, X) == []


@pytest.mark.parametrize(
    ("columns", "options", "match"),
    [
        (("region",), {}, "schema"),
        (("region", "region"), {"schema": FACTS}, "different columns"),
        (("town",), {"schema": FACTS}, "one of region"),
        (("region",), {"schema": FACTS, "by": "age"}, "by"),
        (("age",), {"schema": FACTS | {"age": [3, 2, 1]}}, "ascend"),
        (("age",), {"schema": FACTS | {"age": 7}}, "a list of levels"),
        (("age", "sex"), {"schema": FACTS, "marginals": 1.0}, "marginals"),
        ((), {"schema": FACTS}, "one to three"),
        (("a", "b"), {"schema": {"a": (0, 1), "b": (0, 1)}, "bins": 4_000}, "cells"),
    ],
)
def test_bad_tables_are_refused(columns, options, match):
    with pytest.raises(cr.ArgumentError, match=match):
        cr.Table(*columns, **options)


def test_data_without_a_column_are_refused_before_anything_is_spent():
    account = cr.PrivacyAccount()
    with pytest.raises(cr.ArgumentError, match="age"):
        cr.ask(cr.Table("age", schema=FACTS), {"sex": ["f"] * 100}, **BUDGET, account=account)
    with pytest.raises(cr.ArgumentError, match="columns"):
        cr.ask(cr.Table("age", schema=FACTS), np.zeros((100, 2)), **BUDGET, account=account)
    assert not account.fits


@pytest.mark.parametrize(
    ("table", "shown"),
    [
        (cr.Table("sex", schema=FACTS), "sex"),
        (cr.Table("region", "sex", schema=FACTS), "region / sex"),
        (cr.Table("region", "age", "sex", schema=FACTS), "region: n"),
        (cr.Table("age", by=("region", "sex"), schema=FACTS | {"age": (0, 150)}), "mean of age"),
    ],
)
def test_answers_have_a_page(table, shown):
    page = answer_page(cr.ask(table, people(5_000), **BUDGET), title="Test")
    assert shown in page
    assert "epsilon" in page
