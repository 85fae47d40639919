"""Meeting others: events of dp_accounting, sparse rows, frames, and tables in notebooks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression

import croupier as cr
from croupier.files import Figures
from croupier.privacy import Guarantee
from croupier.privacy._allocation import Allocation
from croupier.protocol import SeededRandom

dp_accounting = pytest.importorskip("dp_accounting")
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def pld_delta(guarantee, epsilon, **options):
    accountant = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(guarantee.to_dp_event(**options))
    return accountant.get_delta(epsilon)


def test_a_sum_is_a_gaussian_event():
    guarantee = cr.plan_sum(**BUDGET, users=1_000, dim=10).guarantee
    event = guarantee.to_dp_event()
    assert event.noise_multiplier <= 1 / guarantee.mu
    assert pld_delta(guarantee, 1.0) + guarantee.slack == pytest.approx(guarantee.delta(1.0), rel=1e-3)
    both = guarantee.compose(guarantee)
    assert pld_delta(both, 1.0) + both.slack == pytest.approx(both.delta(1.0), rel=1e-3)


def test_randomized_responses_are_no_event_and_nothing_is():
    with pytest.raises(cr.ArgumentError, match="pure_rounds"):
        Guarantee(mu=0.0, theorem="test", pure_epsilon=0.3, pure_rounds=4).to_dp_event()
    assert isinstance(Guarantee(mu=0.0, theorem="test").to_dp_event(), dp_accounting.NoOpDpEvent)


def test_secret_lots_are_covered_by_a_gaussian_or_are_an_allocation(monkeypatch):
    lots = Guarantee(mu=0.0, theorem="test", allocations=(Allocation(mu=0.49, rounds=20),))
    assert pld_delta(lots, 1.0, cover=1e-8) + 1e-8 >= lots.delta(1.0)

    class Drawn:
        def __init__(self, event, num_selected, num_steps):
            self.event, self.selected, self.steps = event, num_selected, num_steps

    monkeypatch.setattr(dp_accounting.dp_event, "RandomAllocationDpEvent", Drawn, raising=False)
    assert not isinstance(lots.to_dp_event(), Drawn)  # dp_accounting's event is for adding or removing somebody
    removed = Guarantee(mu=0.0, theorem="test", neighbours="zero-out", allocations=(Allocation(mu=0.49, rounds=20),))
    event = removed.to_dp_event()
    assert (event.selected, event.steps, event.event.noise_multiplier <= 1 / 0.49) == (1, 20, True)


@pytest.mark.parametrize("max_inflation", [1.05, 1.2])
def test_sparse_rows_have_the_sum_of_dense_ones(max_inflation):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3_000, 40)) * (rng.random((3_000, 40)) < 0.1)
    rows[:5] = 0
    plan = cr.plan_sum(**BUDGET, users=3_000, dim=40, norm=2.0, max_inflation=max_inflation, **NO_ROTATION)
    short = rows * np.minimum(1, 2 / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9))
    for mode in ("counting", "faithful"):
        found = cr.VectorSum(plan).run(csr_array(rows), random=SeededRandom(1), mode=mode)
        errors = (found.sum - short.sum(axis=0)) / found.noise_std
        assert found.users == 3_000
        assert stats.chi2.sf(float(errors @ errors), 40) > 1e-6
    huge = rows * 1e200
    assert np.isfinite(cr.VectorSum(plan).run(csr_array(huge), random=SeededRandom(1)).sum).all()


NO_ROTATION = {"rotation": None} if "rotation" in cr.plan_sum.__code__.co_varnames else {}


def test_bad_sparse_rows_are_refused():
    plan = cr.plan_sum(**BUDGET, users=100, dim=3)
    protocol = cr.VectorSum(plan)
    bad = np.ones((100, 3))
    bad[7, 1] = np.nan
    with pytest.raises(cr.ArgumentError, match=r"vectors\[7\]"):
        protocol.run(csr_array(bad))
    with pytest.raises(cr.ArgumentError, match="numbers per user"):
        protocol.run(csr_array(np.ones((100, 4))))
    with pytest.raises(cr.BatchTooSmallError):
        protocol.run(csr_array(np.ones((50, 3))))


def results():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, size=(3_000, 2))
    y = (X[:, 0] > 0).astype(int)
    account = cr.PrivacyAccount()
    histogram = cr.ask(cr.statistics.Histogram(-1, 1, bins=4), X, **BUDGET, account=account)
    facts = {"a": ["x", "y"], "b": (0, 1)}
    frame = {"a": ["x"] * 1_500 + ["<y>"] * 1_500, "b": np.linspace(0, 1, 3_000)}
    models = [LogisticRegression(C=C).fit(X[:50], y[:50]) for C in (0.1, 1.0)]
    return {
        "guarantee": histogram.guarantee,
        "account": account,
        "histogram": histogram.value,
        "words": cr.ask(cr.HeavyHitters(), ["<b>"] * 3_000, **BUDGET).value,
        "table": cr.ask(cr.Table("a", "b", schema=facts, bins=2), frame, **BUDGET).value,
        "groups": cr.ask(cr.Table("b", by="a", schema=facts), frame, **BUDGET).value,
        "stream": cr.ask(cr.Stream(days=4), np.ones((3_000, 4)), **BUDGET).value,
        "description": cr.describe(X, {"u": (-1, 1), "v": None}, **BUDGET),
        "evaluation": cr.evaluate(models[0], (X, y), **BUDGET),
        "choice": cr.choose(models, (X, y), **BUDGET, share=None),
        "summary": cr.ShuffleLinearRegression(target_range=(0, 1), feature_norm=1.0, epsilon=4.0).fit(X, y).summary(),
        "answer": histogram,
    }


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_results_have_frames_and_tables_for_notebooks():
    pandas = pytest.importorskip("pandas")
    for name, result in results().items():
        frame = result.to_frame()
        assert isinstance(frame, pandas.DataFrame), name
        assert len(frame) > 0, name
        shown = result._repr_html_()
        assert "<table>" in shown, name
        assert "<b>" not in shown, name  # a word is text, not markup
        if name != "answer":
            assert isinstance(result, Figures)
            assert list(frame.columns) == list(result.figures()[0])
