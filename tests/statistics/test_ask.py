"""`ask`: any query over any population, charged before anybody is asked, with the guarantee of its plan."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest

import croupier as cr
from benchmarks.surrogate import SurrogatePopulation
from croupier.estimator import PrivacyAccount
from croupier.population import ArrayPopulation, ParquetPopulation
from croupier.privacy._ledger import BudgetExceededError
from croupier.statistics import CustomQuery, Histogram, Moments

PEOPLE = np.random.default_rng(0).normal(40, 10, size=(4_000, 2))
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def test_an_answer_has_its_guarantee_and_error_bars():
    answer = cr.ask(Histogram(0, 100, bins=10), PEOPLE, **BUDGET)
    assert answer.private
    assert answer.guarantee == answer.plan.guarantee
    assert answer.guarantee.delta(1.0) <= 1e-6
    assert answer.plan.diameter == math.sqrt(2)
    assert answer.users == 4_000
    truth = np.histogram(PEOPLE[:, 0], bins=10, range=(0, 100))[0]
    assert np.abs(answer.value.counts - truth).max() < 6 * answer.value.count_std  # false alarm: 10 x 2e-9
    assert answer.value.count_std < 0.72 * cr.plan_sum(**BUDGET, users=4_000, dim=10).noise_std
    assert "4,000 people" in str(answer)


def test_a_histogram_gives_quantiles_and_the_mean():
    answer = cr.ask(Histogram(0, 100, bins=50), PEOPLE, **BUDGET, seed=1).value
    assert answer.quantile(0.5) == pytest.approx(np.median(PEOPLE[:, 0]), abs=1.5)
    assert answer.mean == pytest.approx(PEOPLE[:, 0].mean(), abs=1.5)
    assert answer.shares.min() >= 0
    assert answer.shares.sum() == pytest.approx(1)


def test_a_seed_gives_the_same_and_no_guarantee():
    first, second = (cr.ask(Histogram(0, 100), PEOPLE, **BUDGET, seed=5) for _ in range(2))
    assert np.array_equal(first.value.counts, second.value.counts)
    assert first.guarantee is None
    assert not cr.ask(Histogram(0, 100), SurrogatePopulation(PEOPLE), **BUDGET).private


def test_populations_answer_alike(tmp_path):
    """Memory, threads, files: the same people, the same secret, blocks of the same size, the same counts."""
    table = pyarrow.table({"a": PEOPLE[:, 0], "b": PEOPLE[:, 1]})
    pyarrow.parquet.write_table(table, tmp_path / "people.parquet")
    query = Moments(2, targets=0)
    sums = [
        cr.ask(query, data, **BUDGET, seed=3).estimate.sum
        for data in (PEOPLE, ArrayPopulation(PEOPLE, threads=2), ParquetPopulation(tmp_path / "people.parquet"))
    ]
    assert np.array_equal(sums[0], sums[1])
    assert np.array_equal(sums[0], sums[2])


def test_groups_are_people():
    groups = np.arange(4_000) // 4
    answer = cr.ask(Histogram(0, 100, bins=10), PEOPLE, **BUDGET, groups=groups, seed=0)
    assert answer.users == 1_000
    assert answer.value.counts.sum() == pytest.approx(1_000, abs=6 * math.sqrt(10) * answer.value.count_std)


def test_an_account_is_charged_before_anybody_is_asked():
    account = PrivacyAccount(epsilon=1.2, delta=1e-5)
    cr.ask(Histogram(0, 100), PEOPLE, **BUDGET, account=account)
    assert account.spent() > 0.5
    asked = []
    query = CustomQuery(lambda X, y: asked.append(len(X)) or X / 100, dim=2)
    with pytest.raises(BudgetExceededError):
        cr.ask(query, PEOPLE, **BUDGET, account=account)
    assert asked == [1]  # tried where the records are, and not sent


def test_a_seeded_answer_is_charged_as_one_without_a_promise():
    account = PrivacyAccount()
    cr.ask(Histogram(0, 100), PEOPLE, **BUDGET, account=account, seed=1)
    assert account.spent() == math.inf


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0}, "epsilon = 0"),
        ({"delta": 0.01}, "delta = 0.01"),
        ({"honest": 0}, "honest = 0"),
        ({"seed": -1}, "seed = -1"),
        ({"account": "account.json"}, "account = 'account.json'"),
        ({"data": [1, 2]}, "data = 'list'"),
        ({"data": (PEOPLE,)}, "data = 'tuple'"),
        ({"data": PEOPLE[:1]}, "users = 1"),
        ({"data": ArrayPopulation(PEOPLE), "groups": np.arange(4_000)}, "groups is given; it must be left out"),
        ({"query": Histogram(0, 1, column=2)}, "column = 2"),
        ({"query": Moments(3, targets=0)}, "X.shape"),
        ({"query": Moments(2)}, "data is X alone; it must be"),
        ({"query": CustomQuery(lambda X, y: X[:, :1], dim=2)}, "function"),
    ],
)
def test_bad_arguments_are_refused_and_nothing_is_spent(options, message):
    account = PrivacyAccount()
    arguments = {"query": Histogram(0, 100), "data": PEOPLE, **BUDGET, "account": account} | options
    with pytest.raises(cr.ArgumentError) as error:
        cr.ask(arguments.pop("query"), arguments.pop("data"), **arguments)
    assert str(error.value).startswith(message)
    assert account.fits == () or message == "function"


@pytest.mark.parametrize("bad", [{"bins": 0}, {"low": 5, "high": 5}, {"low": math.nan}, {"column": -1}])
def test_a_bad_histogram_is_refused(bad):
    with pytest.raises(cr.ArgumentError):
        Histogram(**{"low": 0, "high": 1} | bad)


@pytest.mark.parametrize("groups", [5, ((0, 0),), ((0,),), ((0, 9),), (("a", "b"),)])
def test_bad_groups_of_columns_are_refused(groups):
    with pytest.raises(cr.ArgumentError, match="exclusive"):
        Moments(3, exclusive=groups)


def test_known_zeros_are_not_sent():
    query = Moments(5, exclusive=((1, 2, 3),))
    assert query.dim == Moments(5).dim - 3
    rows = np.array([[0.3, 0.0, 0.5, 0.0, 0.2]] * 3_000)
    moments = cr.ask(query, (rows, np.full(3_000, 0.5)), epsilon=4.0, delta=1e-6, seed=0).value
    assert moments.matrix[1, 2] == moments.matrix_variance[1, 2] == 0
    assert moments.matrix[0, 2] == pytest.approx(0.15, abs=6 * moments.matrix_std)
    assert moments.products[2, 0] == pytest.approx(0.25, abs=6 * moments.products_std)
    assert moments.squares[0] == pytest.approx(0.25, abs=6 * moments.squares_std)


class _Adults(Histogram):
    """A histogram of one's own that refuses children."""

    def check_records(self, X, y):
        if X[:, self.column].min() < 18:
            raise cr.ArgumentError("X", "a child", "adults", "Leave children out.")


def test_a_query_of_ones_own_tests_records_before_anything_is_spent():
    query, account = _Adults(0, 100), PrivacyAccount()
    with pytest.raises(cr.ArgumentError, match="Leave children out"):
        cr.ask(query, PEOPLE, **BUDGET, account=account)
    assert not account.fits
    assert cr.ask(query, np.maximum(PEOPLE, 18), **BUDGET, account=account).private


@pytest.mark.parametrize("made", [np.asarray, pd.Series], ids=["array", "series"])
def test_one_number_per_person_needs_no_columns(made):
    """A query of one number takes them as they are; others say what they need."""
    numbers = np.random.default_rng(0).uniform(size=400)
    query = Histogram(0, 1, bins=4)
    alone = cr.ask(query, made(numbers), epsilon=8.0, delta=1e-4, seed=1)
    assert np.array_equal(alone.counts, cr.ask(query, numbers[:, np.newaxis], epsilon=8.0, delta=1e-4, seed=1).counts)
    table = cr.Table("x", schema={"x": (0, 1)}, bins=4)
    assert cr.ask(table, made(numbers), epsilon=8.0, delta=1e-4, seed=1).counts.shape == (5,)
    with pytest.raises(cr.ArgumentError):
        cr.ask(cr.Table("x", "y", schema={"x": (0, 1), "y": (0, 1)}), made(numbers), epsilon=8.0, delta=1e-4)
    with pytest.raises(cr.ArgumentError):
        cr.ask(query, made(["a", "b"] * 200), epsilon=8.0, delta=1e-4)
