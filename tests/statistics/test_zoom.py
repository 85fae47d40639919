"""Rounds that zoom in: no vector is longer than 1, the estimate without noise is that without privacy, errors are as stated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import chi2

from croupier.privacy import plan_lots
from croupier.statistics._newton import Newton
from croupier.statistics._zoom import EARLY, ROUNDS, Lens, Pooled, Zoom, Zoomed, ZoomLogit
from croupier.statistics.query import unit_rows

KINDS = {"linear": Zoom, "logistic": ZoomLogit}


def planned(kind, columns, users, epsilon=1.0):
    """The rule under the noise of its plan."""
    *opening, (_, dim, norm) = kind.stages(columns)
    promise = {"epsilon": epsilon, "delta": 1e-6, "users": users}
    lots = plan_lots(**promise, rounds=ROUNDS, dim=dim, norm=norm, opening=tuple(opening))
    return kind(columns, users, tuple(stage.plan.noise_std for stage in lots.stages for _ in range(stage.rounds)))


def world(rng, kind, users, slopes):
    """Rows with a constant, at most 1 long, columns that go together; targets, and the weights behind them."""
    features = len(slopes)
    X = rng.uniform(-1, 1, size=(users, features))
    X[:, 1] = 0.8 * X[:, 0] + 0.2 * X[:, 1]
    rows = np.column_stack([X / math.sqrt(features), np.ones(users)]) / math.sqrt(2)
    truth = np.append(np.asarray(slopes) * math.sqrt(features), 0.2) * math.sqrt(2)
    if kind is ZoomLogit:
        return rows, np.where(rng.random(users) < expit(rows @ truth), 1.0, -1.0), truth
    return rows, rows @ truth + rng.normal(scale=0.1, size=users), truth


def run(rule, rows, targets, rng, noise=1.0):
    """All rounds, people dealt at random; the plan's noise as Gaussian."""
    lots, seen = rng.integers(ROUNDS, size=len(rows)), []
    for number in range(ROUNDS):
        point = rule.next_view(seen).point
        query = rule.query(number, point)
        vectors = np.asarray(query(rows[lots == number], targets[lots == number]))
        total = vectors.sum(axis=0) + noise * rule.noise[number] * rng.normal(size=query.dim)
        seen.append(rule.read(number, point, total / rule.in_round))
    return seen


def views(rng, columns):
    """Views that nobody would choose, beside usual ones."""
    sizes = 10.0 ** rng.choice([-300, -12, -3, 0, 0, 0, 3, 12, 150, 300], size=4)
    turn = rng.normal(size=(columns, columns)) * sizes[0]
    turn[rng.random((columns, columns)) < 0.2] = 0.0
    return Lens(turn, rng.normal(size=columns) * sizes[1], float(sizes[2]), float(sizes[3]))


@pytest.mark.parametrize("name", KINDS)
def test_no_vector_is_longer_than_one(name):
    """A search over views and records, odd ones among them: 200 views, 60 records each."""
    rng, kind, columns, longest = np.random.default_rng(0), KINDS[name], 4, 0.0
    odd = np.array(
        [[0.0] * 4, [np.inf] * 4, [np.nan, 0, 0, 0], [1e300, -1e300, 0, 1], [1e-300] * 4, [1, 0, 0, 0], [5e-324, 0, 0, 0]]
    )
    for trial in range(200):
        view = (
            views(rng, columns)
            if trial % 2
            else Lens(np.eye(4) * rng.uniform(0.1, 9), rng.normal(size=4), 1.0, rng.uniform(0.1, 9))
        )
        rows = np.vstack([odd, rng.normal(size=(53, columns)) * rng.uniform(0, 1, size=(53, 1))])
        targets = rng.choice([-1.0, 1.0, 0.0, 3.0, np.nan, np.inf, -0.4], size=60)
        query = Zoomed(view, kind.parts(1 if trial % 3 else EARLY), kind.logistic)
        vectors = query(rows, targets)
        assert vectors.shape == (60, query.dim)
        assert np.isfinite(vectors).all()
        longest = max(longest, float(np.linalg.norm(vectors, axis=1).max()))
        np.testing.assert_array_equal(query(rows[:1], targets[:1]), np.zeros((1, query.dim)))  # nothing says nothing
    assert 0.98 < longest <= 1 + 1e-9  # the bound is reached: weights are not too small either


def test_the_parts_of_a_vector_are_what_they_are_said_to_be():
    """By plain formulas in the coordinates: w = min(1, R^2/|z|^2), psi the residual cut to B / (w |z|)."""
    rng, columns = np.random.default_rng(1), 3
    view = Lens(rng.normal(size=(3, 3)) * 2, rng.normal(size=3), 1.2, 0.7)
    rows, targets = rng.uniform(-0.5, 0.5, size=(200, 3)), rng.uniform(-1, 1, size=200)
    parts = Zoom.parts(EARLY)
    found = Zoomed(view, parts)(rows, targets)
    for row, target, vector in zip(rows, targets, found, strict=True):
        z, r = view.turn @ row, target - row @ view.weights
        w = min(1.0, view.reach**2 / (z @ z))
        most = view.most / (w * np.linalg.norm(z))
        psi, kept = min(max(r, -most), most), float(abs(r) <= most)
        first, second = np.triu_indices(columns)
        svec = z[first] * z[second] * np.where(first == second, 1, math.sqrt(2))
        a, b, c, f, h = parts
        expected = [a * kept * w * svec / view.reach**2, b * w * z * psi / view.most, [c * w**2 * (z @ z) * psi**2 / view.most**2]]
        expected += [f * w**2 * psi**2 * svec / view.most**2, [h * (1 - kept)]]
        spare = max(1 - np.linalg.norm(np.concatenate(expected)) ** 2, 0.0)
        expected += [[min(b, math.sqrt(spare)) if w < 1 else 0.0]]
        np.testing.assert_allclose(vector, np.concatenate(expected), atol=1e-7)  # a root of what rounding leaves of 0


def without_privacy(kind, rows, targets):
    """Least squares, or the maximum of the likelihood by Newton's steps."""
    if kind is Zoom:
        return np.linalg.lstsq(rows, targets, rcond=None)[0]
    weights = np.zeros(rows.shape[1])
    for _ in range(30):
        p = expit(rows @ weights)
        weights = weights + np.linalg.solve((rows * (p * (1 - p))[:, np.newaxis]).T @ rows, rows.T @ ((targets == 1) - p))
    return weights


@pytest.mark.parametrize("name", KINDS)
def test_without_noise_the_estimate_is_that_without_privacy(name):
    """Everybody in every round and noise 1e-6 of the plan's: nothing is left to sampling or to noise."""
    rng, kind = np.random.default_rng(2), KINDS[name]
    rows, targets, _ = world(rng, kind, 4_000, [0.1, -0.05, 0.08])
    rule = kind(4, 4_000 * ROUNDS, (3e-6,) * ROUNDS)  # so that a round's sum is divided by 4 000
    seen = []
    for number in range(ROUNDS):
        point = rule.next_view(seen).point
        query = rule.query(number, point)
        seen.append(rule.read(number, point, np.asarray(query(rows, targets)).sum(axis=0) / rule.in_round))
    assert rule.settled(seen)
    found = rule.estimate(seen)
    assert found.determined.all()
    # a logistic model's early round counts long rows less: another weighting of the same truth
    np.testing.assert_allclose(found.coef, without_privacy(kind, rows, targets), atol=2e-3 if kind is Zoom else 0.02)


@pytest.mark.parametrize("name", KINDS)
def test_the_covariance_is_that_of_runs(name):
    """30 runs, people drawn anew: standardized errors of 5 weights have mean square 1, within what chance does in 1e-6 of cases.

    Half of the degrees of freedom are counted, since a run's errors go together; a covariance off by a factor of 2 fails.
    """
    rng, kind, errors = np.random.default_rng(3), KINDS[name], []
    rule = planned(kind, 5, 8_000)
    for _ in range(30):
        rows, targets, truth = world(rng, kind, 8_000, [0.1, -0.05, 0.08, 0.0])
        found = rule.estimate(run(rule, rows, targets, rng))
        assert found.determined.all()
        errors.append((found.coef - truth) / found.std)
    square = float(np.mean(np.square(errors)))
    low, high = chi2.ppf([5e-7, 1 - 5e-7], 75) / 75
    assert low < square < high


def test_noise_alone_has_the_covariance_that_is_stated():
    """The same people in the same rounds, 60 runs of the noise: errors spread as the stated noise does, at most what is stated."""
    rng, rule = np.random.default_rng(4), planned(Zoom, 4, 12_000)
    rows, targets, _ = world(rng, Zoom, 12_000, [0.1, -0.05, 0.08])
    coefs, stds = [], []
    for seed in range(60):
        lots = np.random.default_rng(7)  # the same lots
        noise, seen = np.random.default_rng([9, seed]), []
        dealt = lots.integers(ROUNDS, size=len(rows))
        for number in range(ROUNDS):
            point = rule.next_view(seen).point
            query = rule.query(number, point)
            total = np.asarray(query(rows[dealt == number], targets[dealt == number])).sum(axis=0)
            total = total + rule.noise[number] * noise.normal(size=query.dim)
            seen.append(rule.read(number, point, total / rule.in_round))
        found = rule.estimate(seen)
        coefs.append(found.coef)
        stds.append(found.std)
    ratio = np.std(coefs, axis=0) / np.median(stds, axis=0)
    assert (ratio < 1.35).all()  # chi with 59 degrees of freedom exceeds 1.45 in 1e-6 of cases
    assert (ratio > 0.5).all()  # noise is most of the error here


def test_a_column_that_repeats_another_leaves_the_others_their_intervals():
    rng, rule = np.random.default_rng(5), planned(Zoom, 5, 15_000)
    rows, targets, truth = world(rng, Zoom, 15_000, [0.1, -0.05, 0.08, 0.0])
    rows[:, 1] = rows[:, 0]
    targets = rows @ truth + rng.normal(scale=0.1, size=15_000)
    seen = run(rule, rows, targets, rng)
    found = rule.estimate(seen)
    assert found.determined.tolist() == [False, False, True, True, True]
    low, high = found.intervals(0.999999).T
    assert np.isinf([low[:2], high[:2]]).all()
    assert ((low < truth) & (truth < high))[2:].all()
    bounded = rule.estimate(seen, np.full(5, 3.0))
    np.testing.assert_array_equal(bounded.intervals()[2:], found.intervals()[2:])
    assert (np.abs(bounded.intervals()[:2]) <= 3).all()


def test_few_people_know_nothing_and_the_forecast_says_so():
    rng, rule = np.random.default_rng(6), planned(Zoom, 11, 1_000)
    assert rule.hidden > 1
    rows, targets, _ = world(rng, Zoom, 1_000, [0.1, -0.05, *[0.0] * 8])
    assert not rule.estimate(run(rule, rows, targets, rng)).determined.any()
    assert planned(Zoom, 11, 15_000).hidden < 0.2
    assert 2.2 < planned(Zoom, 11, 15_000).width < 2.6


@pytest.mark.parametrize("name", KINDS)
def test_the_forecast_is_what_is_measured(name):
    """Five fits of 10 even columns; the median was within 8 % of the forecast."""
    rng, kind, ratios = np.random.default_rng(8), KINDS[name], []
    rule = planned(kind, 11, 15_000)
    for _ in range(5):
        X = rng.uniform(-1, 1, size=(15_000, 10))
        rows = np.column_stack([X / math.sqrt(10), np.ones(15_000)]) / math.sqrt(2)
        coef = rng.normal(size=10)
        coef /= np.linalg.norm(coef)
        if kind is Zoom:
            targets = 0.3 * (X @ coef) + rng.normal(scale=0.3 / math.sqrt(3), size=15_000)
            plain = np.sqrt(np.linalg.inv(rows.T @ rows).diagonal()) * 0.3 / math.sqrt(3)
        else:
            p = expit(math.sqrt(3) * X @ coef)
            targets = np.where(rng.random(15_000) < p, 1.0, -1.0)
            plain = np.sqrt(np.linalg.inv((rows * (p * (1 - p))[:, np.newaxis]).T @ rows).diagonal())
        ratios += (rule.estimate(run(rule, rows, targets, rng)).std / plain)[:-1].tolist()
    assert np.median(ratios) == pytest.approx(rule.width, rel=0.15)


def test_slopes_that_are_still_growing_are_told():
    """Slopes of 60: rounds go on as they went, and nothing is decided; the same rows with slopes of 2 settle."""
    rule, told = planned(ZoomLogit, 2, 30_000), []
    for slope in (60.0, 2.0):
        rng = np.random.default_rng(10)
        x = rng.uniform(-1, 1, size=30_000)
        rows = np.column_stack([x, np.ones(30_000)]) / math.sqrt(2)
        targets = np.where(rng.random(30_000) < expit(slope * x), 1.0, -1.0)
        told.append(rule.settled(run(rule, rows, targets, rng)))
    assert told == [False, True]


@pytest.mark.parametrize("name", KINDS)
def test_noise_decides_no_slope(name):
    """A column 2000 times narrower than its range, 40 seeds: it was decided in 9 and 5 of them, and never held the truth.

    Noise alone passes in at most 0.27 % of runs, in more than 4 of 40 with probability 1e-7.
    """
    kind, wrong = KINDS[name], 0
    rule = planned(kind, 2, 8_000, epsilon=0.05)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x = rng.uniform(-1, 1, size=8_000)
        rows = np.column_stack([x / 2_000, np.ones(8_000)]) / math.sqrt(2)
        chance = rng.random(8_000)
        targets = np.where(chance < expit(x), 1.0, -1.0) if kind is ZoomLogit else 0.4 * x + 0.1 * (chance - 0.5)
        wrong += bool(rule.estimate(run(rule, rows, targets, rng)).determined[0])
    assert wrong <= 4


def test_the_direction_that_is_seen_least_is_found():
    """Against all angles of a plane, with rounds whose views differ by factors of up to a hundred."""
    rng, angles = np.random.default_rng(12), np.linspace(0, np.pi, 4_001)
    ways = np.array([np.cos(angles), np.sin(angles)])
    for _ in range(8):
        turns = [rng.normal(size=(2, 2)) * 10.0 ** rng.uniform(-1, 1) for _ in range(7)]
        own = [(noise + noise.T) / 2 + np.eye(2) for noise in rng.normal(size=(7, 2, 2))]
        rounds = tuple((by @ one @ by.T, by @ by.T) for by, one in zip(turns, own, strict=True))
        pooled = Pooled(np.eye(2), 1.0, (), rounds, (np.full(7, 7**-0.5),))
        sights = sum(np.einsum("ik,ij,jk->k", ways, a, ways) / np.einsum("ik,ij,jk->k", ways, q, ways) for a, q in rounds)
        assert pooled._least_seen(np.eye(2), pooled.weights[0])[0] == pytest.approx(float(sights.min()) / math.sqrt(7), abs=0.05)


def near_twins(rng, users, far):
    """Two columns that differ by a hundredth of their range at most, but in a share `far` of rows, whose targets are others."""
    x = rng.uniform(-0.5, 0.5, size=(users, 2))
    x[:, 1] = x[:, 0] + np.where(rng.random(users) < far, 0.5, 0.01) * rng.uniform(-1, 1, size=users)
    rows = np.column_stack([x, np.ones(users)]) / math.sqrt(2)
    return rows, 0.3 * x[:, 0] + np.abs(x[:, 1] - x[:, 0]) + rng.normal(scale=0.1, size=users)


def test_few_rows_that_may_own_a_coefficient_are_told():
    """Only where there are such rows, and columns go together apart from them; the share is known to 0.1 %."""
    rule, told = planned(Zoom, 3, 15_000), []
    for far in (0.02, 0.0):
        for seed in range(3):
            rng = np.random.default_rng([13, seed])
            told.append(rule.owned_by_few(run(rule, *near_twins(rng, 15_000, far), rng)))
    assert all(share is not None and 0.01 < share < 0.025 for share in told[:3])
    assert told[3:] == [None] * 3
    rng = np.random.default_rng(14)
    rows, targets, _ = world(rng, Zoom, 15_000, [0.1, -0.05])
    rows[: 15_000 // 50, :2] *= 3 / 5  # as many rows that are not like the others, along columns that spread over their ranges
    rows[15_000 // 50 :, :2] /= 5
    assert rule.owned_by_few(run(rule, rows, targets, rng)) is None


def test_rare_levels_have_intervals_that_hold_and_are_narrow():
    """Six levels of 2 % each: where early rounds had less room, intervals were 24 times as wide as without privacy, not 4."""
    rule, errors, widths = planned(Zoom, 9, 20_000), [], []
    assert rule._room(1) == rule._room(EARLY) > 3
    truth = np.array([0.2, -0.1, 0.3, -0.3, 0.2, 0.1, 0.0, 0.4, 0.1])
    for seed in range(4):
        rng = np.random.default_rng([15, seed])
        levels = rng.integers(50, size=(20_000, 1)) == np.arange(6)
        rows = np.column_stack([rng.uniform(-0.5, 0.5, size=(20_000, 2)), levels, np.ones(20_000)]) / 2
        found = rule.estimate(run(rule, rows, rows @ truth + rng.normal(scale=0.2, size=20_000), rng))
        assert found.determined.all()
        errors.append((found.coef - truth) / found.std)
        widths.append((found.std / (0.2 * np.sqrt(np.linalg.inv(rows.T @ rows).diagonal())))[2:8])
    assert float(np.mean(np.square(errors))) < chi2.isf(1e-6, 18) / 18  # half of the degrees of freedom: errors go together
    assert np.median(widths) < 6


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("columns", [3, 7, 20])
@pytest.mark.parametrize("kind", ["linear", "logistic", "newton"])
def test_a_vector_is_that_of_its_record_alone_bit_for_bit(kind, columns, order):
    """The attack: by BLAS a row's product depends on how many rows are beside it. A residual at the cut was then cut or not by who
    else has the same lot: three others' vectors changed with one person, where the proof counts on one."""
    rng = np.random.default_rng(columns)
    rows = rng.normal(size=(300, columns))
    rows = np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), order=order)
    labels = rng.choice([-1.0, 1.0], 300)
    view = Lens(rng.normal(size=(columns, columns)), rng.normal(size=columns), 1.5, 0.8)
    query = Newton(view.weights) if kind == "newton" else Zoomed(view, (0.35, 0.25, 0.15, 0.1, 0.35), kind == "logistic")
    together = query(rows, labels)
    for some in (slice(0, 1), slice(1, 4), slice(0, 99), slice(3, 104), slice(0, 299)):
        np.testing.assert_array_equal(query(rows[some], labels[some]), together[some])


def test_a_long_row_is_scaled_by_itself_bit_for_bit():
    """The fault: of more than 8192 entries, einsum adds up pieces that begin wherever the row lies among the others."""
    rows = np.random.default_rng(0).normal(size=(30, 9000))
    together = unit_rows(rows)
    for place in range(30):
        np.testing.assert_array_equal(unit_rows(rows[place : place + 1]), together[place : place + 1])
