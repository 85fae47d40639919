"""Runs whose rounds ask different questions under one draw of lots: what is asked, what is found, and that it can be replayed."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from scipy.special import softmax

import croupier as cr
from croupier.optimizer import Result, StopTraining, replay, schedule
from croupier.optimizer._gradients import TARGET_SHARE, Gradients, RowMeans, RowMoments, Rows, RowSpreads, View, unmoved
from croupier.optimizer.algorithms import (
    Line,
    along,
    constant_answer,
    descent,
    level_place,
    levelled,
    run_phases,
    searched,
    shifted,
)
from croupier.optimizer.phases import Phase, Schedule, check_schedule
from croupier.optimizer.training import Adaptive, prepared_queries, run
from croupier.population import ArrayPopulation
from croupier.population.population import Query
from croupier.privacy import NoCertificateError, plan_lots
from croupier.problem import Ball, CappedLogistic, CappedMultinomial, Hinge, Logistic, Problem, Squared, Weighted
from croupier.problem.problem import Coordinates, Recast, focused
from croupier.protocol._sparse import SparseVectors, second_moments, symmetric_matrix
from croupier.validation import ArgumentError

RNG = np.random.default_rng(11)
USERS, FEATURES = 4000, 5
X = np.column_stack([RNG.normal(size=(USERS, FEATURES)) * [1, 0.5, 0.2, 0.1, 0.05] + [0.5, 0, 0, 0.3, 0], np.full(USERS, 2.0)])
X[:, :-1] /= 2 * np.maximum(1, np.linalg.norm(X[:, :-1], axis=1, keepdims=True) / 2)
X[:, -1] = 1.0
SCORE = X @ np.array([3.0, -2, 4, 1, -6, 0.2])
LABELS = (RNG.random(USERS) < 1 / (1 + np.exp(-SCORE))).astype(int)
BUDGET = {"epsilon": 4.0, "delta": 1e-6}


def problem(loss):
    outputs = loss.outputs
    return Problem(loss, Ball(dim=6 * outputs, radius=30.0 * math.sqrt(outputs)), feature_norm=math.sqrt(2), constant=1.0)


CASES = {
    "centred": (problem(CappedMultinomial(3)), np.clip(np.round(SCORE + 1), 0, 2), "mean", 5),
    "momentum": (problem(CappedLogistic()), LABELS, "mean", 5),
    "scaled": (problem(CappedLogistic()), LABELS, "spread", 12),
    "whitened": (problem(CappedLogistic()), LABELS, "moments", 21),
    "squares": (problem(Squared()), np.clip(SCORE / 4, -1, 1), "moments", 28),
}


def rule_of(case):
    return {"mean": "centred", "spread": "scaled", "moments": "whitened"}[CASES[case][2]]


@pytest.fixture(params=CASES)
def case(request):
    return request.param


def begin(case, **options):
    asked, y, *_ = CASES[case]
    return cr.minimize(asked, options.pop("data", (X, y)), **BUDGET | {"rule": rule_of(case), "rounds": 12} | options)


# --- what is asked -----------------------------------------------------------------------------------------------------------


def test_a_schedule_states_question_length_and_norm_of_every_round(case):
    asked, _, opening, dim = CASES[case]
    planned = schedule(asked, USERS, **BUDGET, rule=rule_of(case))
    first, second, *line = planned.phases
    assert (first.algorithm, first.plan.dim, first.plan.norm) == (opening, dim, 1.0)
    assert [(phase.algorithm, phase.rounds, phase.plan) for phase in line] == [("line", 3, second.plan)] * (case == "centred")
    assert (second.plan.dim, second.plan.users) == (asked.dim, first.plan.users)
    assert first.lots == second.lots
    assert sum(phase.rounds for phase in planned.phases) == first.lots.rounds == planned.rounds
    assert planned.guarantee == first.lots.guarantee
    assert planned.guarantee.delta(4.0) <= 1e-6
    assert Schedule.from_json(planned.to_json()) == planned
    assert planned.bound is None
    assert "rule" in planned.why


def test_rotated_openings_come_back_as_second_moments_of_rows():
    """A rotation of its own in every round; what is released is within its noise of the mean over users / rounds."""
    wide = RNG.normal(size=(USERS, 11)) * np.linspace(1, 0.05, 11)
    wide = np.column_stack([wide / np.linalg.norm(wide, axis=1, keepdims=True), np.ones(USERS)])
    asked = Problem(CappedLogistic(), Ball(dim=12, radius=30.0), feature_norm=math.sqrt(2), constant=1.0)
    found = cr.minimize(asked, (wide, LABELS), **BUDGET | {"epsilon": 8.0}, rule="whitened", rounds=6, seed=3, max_inflation=1.2)
    opening, descent = found.schedule.phases
    assert opening.plan.range is not None
    assert opening.plan.padded == 128
    assert opening.plan.bias_bound <= 0.1 * opening.plan.noise_std
    assert f"moments {opening.plan.bits_per_user}, descent {descent.plan.bits_per_user}" in str(found.schedule)
    exact = np.asarray(RowMoments(Rows(asked, opening.share))(wide, LABELS)).mean(axis=0)
    (first,) = [entry.gradient for entry in found.history if entry.phase == 1]
    # lots leave out five sixths of the users: sampling adds to the noise, and the number of users in the round is random
    spread = np.sqrt((opening.plan.noise_std / opening.mean_of) ** 2 + 1 / opening.mean_of)
    np.testing.assert_allclose(first, exact, atol=6 * spread)
    assert np.linalg.norm(first - exact) < 0.5 * np.linalg.norm(exact)


def test_vectors_of_openings_are_at_most_one_long_whatever_the_rows_are():
    asked = problem(Squared())
    wild = RNG.normal(size=(300, 6)) * 10 ** RNG.uniform(-8, 8, size=(300, 1))
    targets = RNG.normal(size=300) * 1e6
    for share in (0.01, 0.5, 0.99):
        rows = Rows(asked, share)
        constant = np.column_stack([wild[:, :5], np.ones(300)])
        for query in (RowMeans(rows), RowSpreads(rows), RowMoments(rows), RowMoments(rows, target=TARGET_SHARE)):
            for some in (wild, constant, X[:300]):  # also rows that do not end with the constant
                assert np.linalg.norm(query(some, targets), axis=1).max() <= query.norm * (1 + 1e-5)


def test_second_moments_by_entries_are_those_of_dense_rows():
    rows = RNG.normal(size=(40, 9)) * (RNG.random((40, 9)) < 0.3)
    dense = np.array([second_moments(np.ascontiguousarray(row[np.newaxis] + 1e-300))[0] for row in rows])
    sparse = second_moments(rows)
    assert isinstance(sparse, SparseVectors)
    np.testing.assert_allclose(np.asarray(sparse), dense, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(dense, axis=1), np.sum(rows**2, axis=1), atol=1e-12)
    np.testing.assert_allclose(symmetric_matrix(dense.sum(axis=0)), rows.T @ rows, atol=1e-12)


def test_without_noise_openings_find_the_mean_and_the_shape_of_rows():
    rows = Rows(problem(Squared()), 0.2)
    y = np.clip(SCORE / 4, -1, 1)
    query = RowMeans(rows)
    centred = query.found(query(X, y).mean(axis=0), 0.0).coordinates.rows(X)
    np.testing.assert_allclose(centred[:, :-1].mean(axis=0), 0, atol=1e-6)
    spreads = RowSpreads(rows)
    found = spreads.found(spreads(X, y).mean(axis=0), 0.0)
    scaled = found.coordinates.rows(X)
    np.testing.assert_allclose(scaled[:, :-1].mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose((scaled**2).mean(axis=0), 1 / 6, rtol=1e-3)
    assert found.steepest == pytest.approx(1 / 6)
    moments = RowMoments(rows, target=TARGET_SHARE)
    found = moments.found(moments(X, y).mean(axis=0), 0.0)
    white = found.coordinates.rows(X)
    np.testing.assert_allclose(white.T @ white / USERS, np.eye(6) / 6, atol=1e-4)
    assert found.steepest == pytest.approx(1 / 6)
    expected = np.linalg.lstsq(X, y, rcond=None)[0]
    np.testing.assert_allclose(found.coordinates.weights(found.start), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("target", "edge", "floor"), [(0.0, 0.2, 0.25), (TARGET_SHARE, 0.09, 0.5), (TARGET_SHARE, 0.11, 1.0)])
def test_directions_that_noise_hides_are_flattened_less_where_it_hides_much_of_a_regression(target, edge, floor):
    loss = Squared() if target else CappedLogistic()
    rows = Rows(Problem(loss, Ball(dim=4, radius=2.0), feature_norm=1.0), 0.0)
    energies = np.array([0.9, 0.06, 0.03, 0.01])
    vector = np.diag(np.append((1 - target) * energies, target)) if target else np.diag(energies)
    moments = vector[np.triu_indices(len(vector))]  # nothing off the diagonal
    noise = edge * (1 - target) / math.sqrt(2 * 4)
    lengths = np.diag(RowMoments(rows, target=target).found(moments, noise).coordinates.rows(np.eye(4)))
    raised = np.maximum(energies, floor * edge)
    np.testing.assert_allclose(lengths / lengths[0], np.sqrt(raised[0] / raised), rtol=1e-6)


def test_two_classes_of_many_columns_descend_with_momentum_on_centred_rows():
    wide = Problem(CappedLogistic(), Ball(dim=701, radius=50.0), feature_norm=math.sqrt(2), constant=1.0)
    planned = schedule(wide, 100_000, **BUDGET, rule="practical")
    first, second = planned.phases
    assert (first.algorithm, first.rounds, second.algorithm, second.rounds, second.momentum) == ("mean", 10, "descent", 190, 0.9)
    assert 'rule "centred", for two classes of 701 columns' in planned.why
    noisier = schedule(wide, 100_000, **BUDGET | {"epsilon": 0.1}, rule="practical").phases[1]
    assert (noisier.rounds, noisier.step < second.step / 3) == (47, True)  # fewer and shorter
    with pytest.raises(ArgumentError, match="momentum"):
        dataclasses.replace(second, momentum=1.0)
    with pytest.raises(ArgumentError, match="momentum"):
        dataclasses.replace(second, share=None)


def test_momentum_finds_small_directions_sooner_and_shortens_steps_that_swing():
    """Directions curved 1 and 0.01, bounded gradients: plain descent leaves the second, steps of 30 swing in the first."""

    def found(step, **how):
        curved = np.array([1.0, 0.01])
        return descent(lambda point: curved * np.clip(point - 1, -5, 5), np.asarray, np.zeros(2), 200, step, tail=0.5, **how)

    momentum = {"momentum": 0.9, "noise": 1e-3}
    assert np.abs(found(0.3, **momentum) - 1).max() < 0.2
    assert abs(found(0.3)[1] - 1) > 0.5
    assert np.abs(found(30.0, **momentum) - 1).max() < 0.3
    assert np.abs(found(30.0, **momentum | {"noise": 1e9}) - 1).max() > 1  # turns that noise may explain change nothing


def several(users, epsilon, columns=784, classes=10):
    """The schedule of several classes of many columns."""
    ball = Ball(dim=classes * (columns + 1), radius=50.0 * math.sqrt(classes))
    wide = Problem(CappedMultinomial(classes), ball, feature_norm=math.sqrt(2), constant=1.0)
    return wide, schedule(wide, users, epsilon=epsilon, delta=1e-6, rule="practical")


@pytest.mark.parametrize(("users", "epsilon"), [(60_000, 0.1), (60_000, 1.0), (5_000, 1.0)])
def test_where_noise_bounds_steps_of_several_classes_all_rounds_add_about_1_to_a_score(users, epsilon):
    """By the formula, and by rounds of which nothing but noise comes back."""
    wide, planned = several(users, epsilon, columns=200)
    descent_phase = planned.phases[1]
    assert (descent_phase.algorithm, descent_phase.steady) == ("acsa", True)
    noise = descent_phase.plan.noise_std / descent_phase.mean_of
    assert descent_phase.damping == pytest.approx(noise * math.sqrt(descent_phase.rounds))
    rng = np.random.default_rng(5)
    answered = run_phases(lambda _, __: rng.normal(scale=noise, size=wide.dim), wide, planned.phases[1:2], np.zeros(wide.dim))
    weights = answered.reshape(10, -1) / unmoved(Rows(wide, descent_phase.share)).coordinates.turn
    assert 0.85 < float(np.std(weights)) < 1.05


def test_equal_steps_go_from_the_last_point_and_end_at_the_mean_of_the_last_tenth():
    wide, planned = several(60_000, 0.1, columns=200)
    phase = planned.phases[1]
    turn = unmoved(Rows(wide, phase.share)).coordinates.turn
    answers = np.random.default_rng(6).normal(size=(phase.rounds, wide.dim)) * 1e-3
    answers[0] = 0  # of frequencies that are equal, by the first round
    asked, given = [], iter(answers)

    def ask(_, theta):
        asked.append(theta)
        return next(given)

    found = run_phases(ask, wide, (phase,), np.zeros(wide.dim)).reshape(10, -1)
    points = -np.cumsum(answers, axis=0).reshape(phase.rounds, 10, -1) / phase.damping * turn
    np.testing.assert_allclose(asked[7].reshape(10, -1), points[6], rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(found, points[-math.ceil((phase.rounds - 1) / 10) :].mean(axis=0), rtol=1e-5, atol=1e-12)


def test_steps_of_several_classes_accelerate_where_noise_leaves_them_a_long_way():
    for users, epsilon in ((1_000_000, 1.0), (60_000, 20.0)):
        assert not several(users, epsilon, columns=200)[1].phases[1].steady
    assert not schedule(problem(CappedMultinomial(3)), USERS, **BUDGET, rule="plain").phases[0].steady


def exact(X, labels, phase):
    """An answerer without noise; nobody's vector is longer than the plan's norm."""

    def ask(query, theta):
        gradients = query(theta)(X, labels)
        assert np.linalg.norm(gradients, axis=1).max() <= phase.plan.norm * (1 + 1e-9)
        return gradients.mean(axis=0)

    return ask


@pytest.mark.parametrize("counts", [None, (1.0, 4.0, 0.5)])
def test_a_constant_answer_is_as_likely_as_classes_are_frequent(counts):
    """By one round of exact gradients; of weighted classes, as they are frequent times their weights."""
    shares = np.array([0.6, 0.25, 0.15])
    labels = np.repeat(range(3), (shares * USERS).astype(int))
    asked = problem(CappedMultinomial(3) if counts is None else Weighted(CappedMultinomial(3), counts))
    phase = schedule(asked, 10**8, **BUDGET, rule="centred").phases[1]  # so that the plan's noise is little
    found = constant_answer(exact(X, labels, phase), phase, asked, False).reshape(3, -1)
    odds = shares if counts is None else shares * counts
    assert not found[:, :-1].any()
    np.testing.assert_allclose(softmax(found[:, -1]), odds / odds.sum(), rtol=1e-4)


def test_frequencies_are_told_anew_where_a_line_begins():
    """From a wrong constant answer: by exact gradients to the right one, of missing people towards it, of noise not at all."""
    shares, counts = np.array([0.6, 0.25, 0.15]), np.array([1.0, 4.0, 0.5])
    for loss, counted in ((CappedMultinomial(3), shares), (Weighted(CappedMultinomial(3), tuple(counts)), counts * shares)):
        asked, wanted = problem(loss), counted / counted.sum()
        phase = schedule(asked, 10**8, **BUDGET, rule="centred").phases[1]
        odds = np.log([0.3, 0.3, 0.4])
        likely, weights = np.exp(odds), counts if isinstance(loss, Weighted) else np.ones(3)
        exact_gap = sum(
            share * weight * (likely - np.eye(3)[k]) for k, (share, weight) in enumerate(zip(shares, weights, strict=True))
        )
        unit = phase.plan.norm / loss.slope_bound(0.0)
        moved = softmax(odds + shifted(odds, exact_gap * unit, phase, asked))
        np.testing.assert_allclose(moved, wanted, rtol=1e-3)
        for part in (0.8, 0.4):  # of the people
            moved = softmax(odds + shifted(odds, part * exact_gap * unit, phase, asked))
            assert (np.abs(moved - wanted) < np.abs(likely - wanted) + 1e-9).all()
        noise = phase.plan.noise_std / phase.mean_of
        np.testing.assert_allclose(shifted(odds, np.array([noise, 0.0, -noise]) / 3, phase, asked), 0, atol=1e-12)


def test_a_constant_answer_of_noise_alone_is_even_and_of_rare_classes_not_below_the_noise():
    asked = problem(CappedMultinomial(3))
    phase = schedule(asked, USERS, **BUDGET | {"epsilon": 0.1}, rule="centred").phases[1]
    noise = phase.plan.noise_std / phase.mean_of
    silent = constant_answer(lambda _, __: np.full(asked.dim, noise / 10) * np.arange(asked.dim), phase, asked, False)
    assert not silent.any()
    likely = softmax(constant_answer(exact(X, np.zeros(USERS, int), phase), phase, asked, False).reshape(3, -1)[:, -1])
    assert likely.min() > 0.5 * noise * asked.loss.slope_bound(0.0) / phase.plan.norm
    assert likely[0] > 0.5


@pytest.mark.parametrize("rule", ["centred", "whitened"])
def test_a_line_ends_where_a_logistic_model_has_its_weights(rule):
    """From a constant answer to weights that are too short, right, or too long; slopes are exact, but bend: up to 40 % off."""
    asked, rng = CASES["centred"][0], np.random.default_rng(4)
    true = np.column_stack([rng.normal(size=(3, 5)) * 4, [0.3, 0.0, -0.3]])
    chances = softmax(X @ true.T, axis=1)
    planned = schedule(asked, USERS, **BUDGET, rule=rule)
    descent_phase, last = planned.phases[1:]
    assert (last.algorithm, last.rounds, last.plan) == ("line", 3, descent_phase.plan)
    coordinates = dataclasses.replace(
        unmoved(Rows(asked, last.share)).coordinates, centre=np.append(X[:, :-1].mean(axis=0), 0), constant=1.0
    )

    def ask(query, theta):
        made = [query(theta)(X, np.full(USERS, label)) for label in range(3)]
        assert max(np.linalg.norm(part, axis=1).max() for part in made) <= last.plan.norm * (1 + 1e-9)
        return sum(part * chances[:, [label]] for label, part in enumerate(made)).mean(axis=0)

    begin = np.column_stack([np.zeros((3, 5)), true[:, -1] + true[:, :-1] @ X[:, :-1].mean(axis=0)])  # the mean row's scores
    for factor in (0.5, 1.0, 2.0):
        end = begin + factor * (true - begin)
        way = (end - begin) / coordinates.turn
        way[:, -1] = 0
        line = Line(begin.ravel(), end.ravel(), coordinates, way - way.mean(axis=0), None)
        theta = searched(ask, last, asked, line, False)
        assert np.abs(theta.reshape(3, -1).sum(axis=0)).max() < 1e-9  # nothing that all classes have
        begin, end = (part - part.mean(axis=0) for part in (begin, end))
        line = dataclasses.replace(line, begin=begin.ravel(), end=end.ravel())
        place = float((theta - line.begin) @ (line.end - line.begin)) / float(np.sum((line.end - line.begin) ** 2))
        np.testing.assert_allclose(theta, line.begin + place * (line.end - line.begin), atol=1e-9)
        assert 0.7 < place * factor < 1.45
        assert factor != 1.0 or place == pytest.approx(1.0, abs=0.02)


def test_corrected_intercepts_count_less_and_less_up_to_the_end_of_a_line():
    """Beyond it nothing of the correction is left; and where the ball ends the line, nothing is beyond."""
    asked = CASES["centred"][0]
    last = schedule(asked, USERS, **BUDGET, rule="centred").phases[2]
    rng, odds = np.random.default_rng(2), np.array([0.4, 0.1, -0.5])
    coordinates = unmoved(Rows(asked, last.share)).coordinates
    begin = np.column_stack([np.zeros((3, 5)), odds])
    way = np.column_stack([rng.normal(size=(3, 5)), np.zeros(3)])
    way -= way.mean(axis=0)
    end = begin + coordinates.weights(way.ravel()).reshape(3, 6)
    for rising, ends in ((True, False), (False, False), (False, True)):
        weights, places = along(coordinates, way, last.plan.norm)[1], []

        def ask(_, theta, rising=rising, weights=weights, places=places):
            places.append(theta.reshape(3, 6))
            answer = weights / np.sum(weights**2) * (len(places) - 1.5 if rising else -1 / len(places))
            answer[:, 3] = [0.03, 0.0, -0.03] if len(places) == 1 else 0.0  # the constant's
            return answer.ravel()

        line = Line(begin.ravel(), end.ravel(), coordinates, way, odds, ends)
        found = searched(ask, last, asked, line, False).reshape(3, 6)
        assert np.array_equal(places[0], begin)
        np.testing.assert_allclose(places[1], end, atol=1e-12)  # at the end no correction is left
        part = float(np.sum((found - begin)[:, :-1] * (end - begin)[:, :-1]) / np.sum((end - begin)[:, :-1] ** 2))
        shift = (found - begin - part * (end - begin))[:, -1]
        if rising:
            assert part < 1
            assert shift[0] < -0.01 < 0.01 < shift[2]
        else:
            assert part == pytest.approx(1.0) if ends else part > 1.5
            np.testing.assert_allclose(shift, 0, atol=1e-9)


def test_a_line_is_searched_in_the_few_directions_that_its_scores_depend_on(monkeypatch):
    rng = np.random.default_rng(3)
    centre = np.append(rng.normal(size=5), 0.0)
    for coordinates in (Coordinates(rng.uniform(1, 2, size=6), centre, 1.0), Coordinates(rng.normal(size=(6, 6)))):
        for classes in (3, 9):  # fewer and more than columns
            way = rng.normal(size=(classes, 6))
            way -= way.mean(axis=0)
            seen, weights = along(coordinates, way, 0.2)
            np.testing.assert_allclose(seen.rows(X) @ weights.T, coordinates.rows(X) @ way.T, rtol=1e-4, atol=1e-4)
            few = seen.turn @ np.linalg.pinv(np.diag(coordinates.turn) if coordinates.turn.ndim == 1 else coordinates.turn)
            told = min(classes - 1, 6)
            lengths = np.linalg.svd(few, compute_uv=False)  # all directions of the line, equally long, and no other
            np.testing.assert_allclose(lengths[:told], 0.2 * math.sqrt(6 / told), rtol=1e-4)
            np.testing.assert_allclose(lengths[told:], 0, atol=1e-4)
            svd = np.linalg.svd
            with monkeypatch.context() as other:  # another processor's signs

                def flipped(matrix, svd=svd, **how):
                    left, sizes, right = svd(matrix, **how)
                    signs = np.where(np.arange(len(sizes)) % 2, -1, 1)
                    return left * signs, sizes, right * signs[:, np.newaxis]

                other.setattr(np.linalg, "svd", flipped)
                np.testing.assert_allclose(along(coordinates, way, 0.2)[0].turn, seen.turn, rtol=1e-6, atol=1e-7)
    nowhere, weights = along(Coordinates(np.ones(6)), np.zeros((3, 6)), 0.2)
    assert not nowhere.turn.any()
    assert not weights.any()


def test_places_on_a_line_follow_from_slopes():
    assert level_place([0.0, 1.0], [-1.0, 1.0], 3.0) == 0.5
    assert level_place([0.0, 1.0], [-4.0, -3.0], 3.0) == 3.0  # farther is not asked
    assert level_place([0.0, 1.0], [-4.0, -3.0], 1.0) == 1.0  # nor gone to where nothing was
    assert level_place([0.0, 1.0], [1.0, 2.0], 3.0) == 0.1
    assert level_place([0.0, 1.0, 0.5, 0.7], [-1.0, 1.0, 0.0, 0.4], 3.0) == pytest.approx(0.5)
    assert level_place([0.0, 1.0, 0.5, 0.5], [-3.0, 1.0, 0.0, 0.0], 3.0) < 0.6  # the far ones count little
    assert level_place([0.0, 1.0, 0.7], [-0.02, 0.01, -0.03], 3.0) <= 1.0  # by chance: between slopes below 0 and above
    assert level_place([0.0, 1.0, 1.0], [-0.04, -0.08, 0.13], 3.0) == 1.0
    for slope, expected in ((1.0, 0.1), (-1.0, 1.0)):  # slopes that do not rise say little
        assert level_place([0.0, 1.0], [slope, slope], 3.0) == expected


def test_several_classes_that_columns_say_nothing_about_are_answered_by_a_constant():
    rng = np.random.default_rng(9)
    rows = rng.normal(size=(20_000, 130))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = rng.choice(4, size=20_000, p=[0.45, 0.3, 0.15, 0.1])
    model = cr.ShuffleLogisticRegression(epsilon=1.0, delta=1e-6, classes=range(4), feature_norm=1.0, random_state=4)
    model.fit(rows, labels)
    assert 'rule "centred"' in model.schedule_.why
    shares = np.bincount(labels) / len(labels)
    lost = -np.mean(model.predict_log_proba(rows)[np.arange(len(rows)), labels])
    assert lost < 0.01 - np.sum(shares * np.log(shares))  # without a line's rounds .07 above a constant's
    assert model.score(rows, labels) > shares.max() - 0.005


@pytest.mark.filterwarnings("ignore::croupier.estimator.MostlyNoiseWarning")
def test_chance_does_not_cut_weights_to_a_constant_answer():
    """Ten classes and much noise: scores were .35 to .79 in 24 fits where a constant has .1, however early the line ended."""
    rng, means = np.random.default_rng(0), np.random.default_rng(5).normal(size=(10, 150)) / np.sqrt(150)

    def people(users):
        labels = rng.integers(0, 10, users)
        rows = 0.5 + 1.5 * means[labels] + 0.5 * rng.normal(size=(users, 150)) / np.sqrt(150)
        return rows / np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True)), labels

    (rows, labels), test = people(5000), people(4000)
    for seed in (19, 20):
        model = cr.ShuffleLogisticRegression(epsilon=0.1, delta=1e-6, classes=range(10), feature_norm=1.0, random_state=seed)
        assert model.fit(rows, labels).score(*test) > 0.3


def test_a_skewed_target_is_predicted_at_its_mean():
    """An eighth of targets are 1, whose gradients are shortened most: 0.03 would be the mean prediction."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(15_000, 12))
    targets = (rng.random(15_000) < 1 / (1 + np.exp(2.5 - rows @ np.linspace(-0.6, 0.6, 12)))).astype(float)
    model = cr.ShuffleRidge(epsilon=1.0, delta=1e-6, target_range=(0, 1), feature_range=[(-5, 5)] * 12, random_state=2)
    predicted = model.fit(rows, targets).predict(rows)
    assert predicted.mean() == pytest.approx(targets.mean(), abs=0.06)
    assert np.mean((predicted - targets) ** 2) < targets.var()
    # by another route: of exact answers nothing is missing, and where noise may be all of it, nothing is moved
    point, mean, weights = rng.normal(size=3), np.array([0.2, 0.1, 0.9]), rng.normal(size=3)
    view = View(Coordinates(np.ones(3)), mean=mean, level=(0.7, 0.0, 2.0))
    assert mean @ levelled(point, weights, view) == pytest.approx(0.7)
    assert np.array_equal(levelled(point, weights, dataclasses.replace(view, level=(mean @ point + 0.1, 0.05, 2.0))), point)


def test_a_curvature_is_refused_where_steps_would_not_depend_on_it():
    wide, planned = several(60_000, 1.0, columns=200)
    assert planned.phases[1].steady
    with pytest.raises(ArgumentError, match=r"curvature = 0\.2 .* left out with rule='centred'\. .* follow from its noise"):
        schedule(wide, 60_000, epsilon=1.0, delta=1e-6, rule="centred", curvature=0.2)
    with pytest.raises(ArgumentError, match=r"curvature = 0\.2 .* left out with rule='scaled'"):
        schedule(problem(CappedLogistic()), USERS, **BUDGET, rule="scaled", curvature=0.2)


def test_a_mean_that_is_all_noise_moves_nothing():
    rows = Rows(problem(Squared()), 0.2)
    assert not RowMeans(rows).found(RNG.normal(size=5) * 0.01, 0.1).coordinates.centre.any()
    lost = RowSpreads(rows).found(RNG.normal(size=12) * 0.01, 0.1)
    assert not lost.coordinates.centre.any()
    np.testing.assert_allclose(lost.coordinates.turn / rows.factors, lost.coordinates.turn[0] / rows.factors[0])  # none blown up


def test_shortened_gradients_leave_classes_as_likely_as_they_are_frequent():
    """Where columns say nothing, constants pull nowhere at the shares, however rare; no gradient is longer than the clip."""
    shares, counts = np.array([0.93, 0.06, 0.01]), np.array([1.0, 0.5, 0.2])
    for loss, odds in ((CappedMultinomial(3), shares), (Weighted(CappedMultinomial(3), tuple(counts)), counts * shares)):
        rows = Rows(problem(loss), 0.05)
        centre, constant = np.append(0.01 * RNG.normal(size=5), 0.0), rows.problem.constant
        coordinates = dataclasses.replace(unmoved(rows).coordinates, centre=centre, constant=constant)
        recast = Recast(rows.problem, coordinates, 0.27, alike=False)
        theta = np.zeros((3, 6))
        theta[:, -1] = np.log(odds)
        made = np.array([recast.gradients(theta.ravel(), X, np.full(USERS, label)).reshape(USERS, 3, 6) for label in range(3)])
        np.testing.assert_allclose(np.tensordot(shares, made, 1)[:, :, -1], 0, atol=1e-12)
        wild = RNG.normal(size=(3, 6)) * 20
        for label in range(3):
            made = recast.gradients(wild.ravel(), 5 * X, np.full(USERS, label))
            assert np.linalg.norm(made, axis=1).max() <= 0.27 * (1 + 1e-9)


# --- people whose odds are even ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [CappedLogistic(), Logistic(), Weighted(CappedLogistic(), (1.0, 1.0))])
def test_at_the_true_odds_people_who_count_by_them_pull_nowhere(loss):
    """The mean over both labels, by their probabilities, of everybody's gradient is 0, and none is longer than the clip."""
    theta = np.array([3.0, -2, 4, 1, -6, 0.2])
    likely = 1 / (1 + np.exp(-X @ theta))
    turn = RNG.normal(size=(6, 6)) * 3
    for focus in (0.0, 0.75, 1.0):
        recast = Recast(problem(loss), Coordinates(turn, focus=focus), 0.125)
        yes, no = (recast.gradients(theta, X, np.full(USERS, label)) for label in (1, 0))
        np.testing.assert_allclose(likely[:, np.newaxis] * yes + (1 - likely)[:, np.newaxis] * no, 0, atol=1e-12)
        assert max(np.linalg.norm(part, axis=1).max() for part in (yes, no)) <= 0.125 * (1 + 1e-9)
    far = np.array([0.0, 2.0, -2.0, 40.0, -800.0])
    odds = np.exp(-np.abs(far[:3]))
    expected = 1 - 0.75 * (1 - (4 * odds / (1 + odds) ** 2) ** 2)
    np.testing.assert_allclose(focused(far, 0.75), np.append(expected, [0.25, 0.25]), rtol=1e-12)


def test_only_log_odds_can_be_far_from_even():
    for loss in (Squared(), CappedMultinomial(3), Hinge()):
        with pytest.raises(ArgumentError, match="focus"):
            Recast(problem(loss), Coordinates(np.ones(6), focus=0.5), 0.1)
    with pytest.raises(ArgumentError, match="focus"):
        Recast(problem(Logistic()), Coordinates(np.ones(6), focus=0.5), 0.1, alike=False)
    with pytest.raises(ArgumentError, match="focus"):
        Coordinates(np.ones(6), focus=1.5)
    opening, descent = schedule(CASES["squares"][0], USERS, **BUDGET, rule="whitened").phases
    changed = dataclasses.replace(descent, focus=0.5)
    planned = schedule(CASES["squares"][0], USERS, **BUDGET, rule="whitened")
    with pytest.raises(ArgumentError, match=r"phase\.focus"):
        run(
            CASES["squares"][0],
            ArrayPopulation(X, CASES["squares"][1]),
            dataclasses.replace(planned, phases=(opening, changed)),
            start=np.zeros(6),
        )
    for phase, focus in ((opening, 0.5), (descent, 2.0)):
        with pytest.raises(ArgumentError, match="focus"):
            dataclasses.replace(phase, focus=focus)


def test_people_count_by_their_odds_where_enough_of_these_are_even():
    """By another route: the mean over normal scores that were drawn."""
    moments, mean = np.diag([2.0, 0.5, 1.0]), np.array([0.3, 0.0, 0.9])
    view = View(Coordinates(np.ones(3)), moments=moments, mean=mean)
    for theta in ([0.5, 1, 0], [4, -3, 2], [0.2, 0.2, -6], [0, 0, 3.2], [0.0, 0.0, 0.0], [1.5, 0, 1.0]):
        point = np.array(theta, dtype=float)
        middle = point @ mean
        drawn = middle + np.sqrt(max(point @ moments @ point - middle**2, 0)) * np.random.default_rng(1).normal(size=400_000)
        even = np.mean((4 * np.exp(-np.abs(drawn)) / (1 + np.exp(-np.abs(drawn))) ** 2) ** 2)
        assert abs(even - 0.25) > 0.005  # no case is at the edge
        assert view.focus(point, 0.75) == (0.75 if even > 0.25 else 0.0)
    assert View(Coordinates(np.ones(3))).focus(np.zeros(3), 0.75) == 0.0  # nothing is known of the rows


class Noted(ArrayPopulation):
    """Notes how much less people counted in every round of gradients."""

    def answer(self, question):
        if isinstance(question.query, Gradients):
            self.seen = [*getattr(self, "seen", []), question.query.objective.coordinates.focus]
        return super().answer(question)


@pytest.mark.parametrize(("share", "focus"), [(0.5, 0.75), (0.01, 0.0)])
def test_later_rounds_ask_by_odds_except_where_even_odds_are_rare(share, focus):
    asked = problem(CappedLogistic())
    labels = (RNG.random(USERS) < (0.4 + 1.2 * (SCORE > 0.5)) * share).astype(int)
    planned = schedule(asked, USERS, **BUDGET | {"epsilon": 50.0}, rule="whitened", rounds=20)
    opening, descent = planned.phases
    people = Noted(X, labels)
    changed = dataclasses.replace(planned, phases=(opening, dataclasses.replace(descent, focus=0.75)))
    assert "even odds" not in planned.why
    result = run(asked, people, changed, start=np.zeros(6), seed=5)
    first = descent.rounds // 3
    assert people.seen == [0.0] * first + [focus] * (descent.rounds - first)
    assert np.array_equal(replay(asked, result), result.theta)
    assert Schedule.from_json(changed.to_json()) == changed


def test_focus_wins_where_people_far_from_the_boundary_say_something_else():
    """An eighth stands far on the right and answers like the left: lines that bow to it lose two points. All is seeded."""
    rng = np.random.default_rng(2)
    side, far = rng.uniform(-0.2, 0.4, size=20_000), rng.random(20_000) < 0.12
    side[far] = 0.9
    labels = ((side + 0.05 * rng.normal(size=20_000) > 0) & ~far).astype(int)
    asked = Problem(CappedLogistic(), Ball(dim=2, radius=50.0), feature_norm=math.sqrt(2), constant=1.0)
    data = np.column_stack([side, np.ones(len(side))])
    planned = schedule(asked, len(side), epsilon=20.0, delta=1e-6, rule="whitened", rounds=100)
    opening, descent = planned.phases
    scores = []
    for focus in (0.0, 0.75):
        phases = (opening, dataclasses.replace(descent, focus=focus, step=12.0, momentum=0.8))
        chosen = dataclasses.replace(planned, phases=phases)
        theta = run(asked, ArrayPopulation(data, labels), chosen, start=np.zeros(2), seed=1).theta
        scores.append(np.mean((data @ theta > 0) == labels))
    assert scores[1] > scores[0] + 0.01


@pytest.mark.parametrize("rule", ["centred", "scaled", "whitened"])
def test_rules_that_do_not_go_with_the_problem_are_refused_before_anybody_is_asked(rule):
    regularised = Problem(Logistic(), Ball(dim=6, radius=5.0), l2=0.1)
    for asked, options in ((problem(Hinge()), {}), (regularised, {}), (problem(Logistic()), {"lots": "open"})):
        with pytest.raises(ArgumentError, match="rule"):
            schedule(asked, USERS, **BUDGET, rule=rule, **options)
    with pytest.raises(ArgumentError, match="rule"):
        schedule(problem(Logistic()), USERS, **BUDGET, rule=rule, interactivity="full")
    with pytest.raises(ArgumentError, match=rf"method = 'acsa' .* left out with rule='{rule}'"):
        schedule(problem(Logistic()), USERS, **BUDGET, rule=rule, method="acsa")


def test_second_moments_of_too_many_columns_are_refused_by_the_rule_s_name():
    wide = Problem(Logistic(), Ball(dim=1_415, radius=5.0), feature_norm=math.sqrt(2), constant=1.0)
    with pytest.raises(
        ArgumentError, match=r"rule = 'whitened' .* more than 1,000,000 coordinates\. Second moments of rows have 1,0"
    ):
        schedule(wide, 100_000, **BUDGET, rule="whitened")


def test_rounds_are_counted_from_the_least_that_the_practical_rule_takes():
    asked = problem(Logistic())
    assert schedule(asked, USERS, **BUDGET, rule="practical", rounds=1).rounds == 1
    with pytest.raises(ArgumentError, match=r"rounds = 0 .* at least 1 "):
        schedule(asked, USERS, **BUDGET, rule="practical", rounds=0)


def test_where_staged_rounds_have_no_certificate_the_error_names_the_plain_rule():
    asked = Problem(Squared(), Ball(dim=600, radius=2.0), feature_norm=math.sqrt(2), constant=1.0)
    budget = {"epsilon": 20.7, "delta": 1e-6, "honest": 0.5}
    with pytest.raises(NoCertificateError, match="rule='plain' has fewer and shorter rounds"):
        schedule(asked, 1_000, **budget, rule="practical")
    assert schedule(asked, 1_000, **budget, rule="plain").guarantee.delta(20.7) <= 1e-6


# --- transcripts -------------------------------------------------------------------------------------------------------------


def test_the_transcript_gives_the_result_again(case):
    asked = CASES[case][0]
    result = begin(case)
    assert result.private
    assert [entry.phase for entry in result.history] == sorted(entry.phase for entry in result.history)
    assert np.array_equal(replay(asked, result), result.theta)
    again = Result.from_json(result.to_json())
    assert np.array_equal(replay(asked, again), result.theta)
    assert again.guarantee == result.guarantee
    assert np.linalg.norm(result.theta) <= asked.domain.norm_bound * (1 + 1e-9)
    first = result.history[0]
    with pytest.raises(ArgumentError):
        Result.from_dict(result.to_dict() | {"history": [first.to_dict() | {"gradient": [0.0]}]})


def test_another_opening_means_other_points(case):
    asked = CASES[case][0]
    result = begin(case)
    changed = [dataclasses.replace(entry, gradient=entry.gradient * (1.5 if entry.phase == 1 else 1.0)) for entry in result.history]
    with pytest.raises(ValueError, match="other points"):
        replay(asked, dataclasses.replace(result, history=tuple(changed)))


@pytest.mark.parametrize("stops", [1, 4, 9])
def test_a_run_can_be_stopped_and_gone_on_with_in_any_stage(case, tmp_path, stops):
    def stop(done):
        if done.index == stops:
            raise StopTraining

    whole = begin(case, seed=3)
    path = tmp_path / "run"
    part = begin(case, seed=3, checkpoint=path, callbacks=stop)
    assert part.stopped
    assert part.rounds == stops
    resumed = begin(case, seed=3, checkpoint=path)
    assert resumed.theta.tobytes() == whole.theta.tobytes()
    assert [entry.gradient.tobytes() for entry in resumed.history] == [entry.gradient.tobytes() for entry in whole.history]


def test_blocks_and_messages_give_the_same_law_and_blanks_count_nothing(case):
    asked, y, *_ = CASES[case]
    together = begin(case, seed=1, data=ArrayPopulation(X, y, blocks=[1000, 3000]))
    assert (
        together.theta.tobytes() == begin(case, seed=1, data=ArrayPopulation(X, y, blocks=[1000, 3000], threads=1)).theta.tobytes()
    )
    bad = X.copy()
    bad[:40, 0] = np.nan
    zeros = X.copy()
    zeros[:40] = 0.0
    blank = begin(case, seed=1, data=ArrayPopulation(bad, y, invalid="blank"), invalid="blank")
    assert np.isfinite(blank.theta).all()
    queries = [query(Rows(asked, 0.2), True) for query in (RowMeans, RowSpreads, RowMoments)]
    for query in queries:
        assert not query(bad, y)[:40].any()
        np.testing.assert_allclose(query(bad, y)[40:], query(X, y)[40:])


def test_a_schedule_whose_phases_are_not_those_of_its_lots_is_refused(case):
    asked = CASES[case][0]
    planned = schedule(asked, USERS, **BUDGET, rule=rule_of(case))
    first, second, *others = planned.phases
    narrow = dataclasses.replace(first, plan=second.plan)
    longer = dataclasses.replace(first, rounds=first.rounds + 1)
    other = dataclasses.replace(second, lots=plan_lots(**BUDGET, users=USERS, rounds=second.rounds, dim=asked.dim))
    for phases in ((second, first), (first,), (second,), (narrow, second), (longer, second), (first, other)):
        with pytest.raises(ArgumentError):
            check_schedule(dataclasses.replace(planned, phases=(*phases, *others)), USERS)
    if others:
        lost = dataclasses.replace(others[0], share=None)
        for phases in ((first, second), (first, *others, second), (first, second, lost)):
            with pytest.raises(ArgumentError):
                check_schedule(dataclasses.replace(planned, phases=phases), USERS)
    for share in (None, 1.0, -0.1):
        changed = dataclasses.replace(planned, phases=(dataclasses.replace(first, share=share), second, *others))
        with pytest.raises(ArgumentError):
            run(asked, ArrayPopulation(X, CASES[case][1]), changed, start=np.zeros(asked.dim))


# --- any adaptive run of queries under one draw of lots -----------------------------------------------------------------------


class Scaled(Query):
    """Rows divided by a length that an earlier round found, clipped to 1."""

    dim, norm, parallel = 2, 1.0, True

    def __init__(self, scale):
        self.scale = scale

    def __call__(self, X, y):
        return np.clip(X / self.scale, -0.7, 0.7)


def test_an_algorithm_of_one_s_own_asks_adaptively_and_goes_on_where_it_stopped(tmp_path):
    rows = np.random.default_rng(0).normal(size=(3000, 2)) * 0.01 + 0.02
    lots = plan_lots(epsilon=2.0, delta=1e-6, users=3000, rounds=6, dim=2)
    common = {"step": None, "damping": None, "smoothing": None, "distance": 0.0, "gradient_std": 0.0, "bound": None}
    phase = Phase(algorithm="zoom", rounds=6, batch=lots.size, users=3000, plan=lots.one_round, lots=lots, **common)
    facts = {"interactivity": "sequential", "bound": None, "bound_on": "population", "why": "a test"}
    planned = Schedule(method="zoom", phases=(phase,), **facts)

    def algorithm(ask):
        scale = np.ones(1)
        for _ in range(6):
            mean = ask(lambda point: Scaled(float(point[0])), scale) * scale
            scale = np.maximum(np.abs(mean).max(keepdims=True) * 3, 0.01)
        return mean

    own = Adaptive(algorithm, lambda X, y: None, lambda: {"schedule": planned.to_dict()}, lambda history: history[-1].gradient)

    def asked(path=None, callbacks=(), algorithm=own):
        people, options = ArrayPopulation(rows), {"seed": 1, "checkpoint": path, "callbacks": callbacks}
        with prepared_queries(algorithm, people, planned, start=np.zeros(2), **options) as ready:
            return ready.result()

    def stop(done):
        if done.index == 3:
            raise StopTraining

    result = asked()
    assert result.rounds == 6
    assert np.abs(result.theta - 0.02).max() < 0.005  # unit noise would be 40 times that
    asked(tmp_path / "run", stop)
    resumed = asked(tmp_path / "run")
    assert resumed.theta.tobytes() == result.theta.tobytes()
    assert json.loads(resumed.to_json())["history"] == json.loads(result.to_json())["history"]
    more = dataclasses.replace(own, asks=lambda ask: [ask(lambda point: Scaled(1.0), np.ones(1)) for _ in range(7)])
    with pytest.raises(ValueError, match="none is left"):
        asked(algorithm=more)


def test_gradients_of_a_run_with_a_bound_are_not_rotated():
    """The box that a rotated gradient is clipped to has a bias, of which the bound knows nothing."""
    problem = Problem(Logistic(), Ball(dim=64, radius=1.0))
    asked = {"epsilon": 1.0, "delta": 1e-6}
    ranges = [schedule(problem, 10**5, **asked, rule=rule).phases[-1].plan.range for rule in ("bound", "plain")]
    assert ranges[0] is None
    assert ranges[1] is not None


@pytest.mark.parametrize("asked", [{"rule": "bound"}, {"rule": "plain", "lots": "open"}, {"rule": "plain", "rotation": False}])
def test_blocks_are_refused_by_name_where_gradients_are_not_rotated_or_lots_are_known(asked):
    problem = Problem(Logistic(), Ball(dim=64, radius=1.0))
    with pytest.raises(ArgumentError, match=r"blocks = 2 .*rule='practical'"):
        schedule(problem, 10**5, epsilon=1.0, delta=1e-6, blocks=2, **asked)
