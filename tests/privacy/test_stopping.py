"""What is printed of a run that was stopped after watching it: the exact delta of the best stopping rule against every claim."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import sys
from unittest import mock

import numpy as np
import pytest
from games import gaussian_value, optimal_stopping

import croupier as cr
from croupier.cli import main
from croupier.cli.terminal import Interrupt
from croupier.optimizer import StopTraining
from croupier.privacy.gaussian import gaussian_mu
from croupier.problem import Ball, Logistic, Problem
from croupier.table import TableModel

ROUNDS, DELTA = 4, 1e-6
FACTS = """
[target]
column = "ill"
classes = ["no", "yes"]

[columns.age]
low = 0
high = 100
"""


def command(*arguments, code=0):
    out = io.StringIO()
    argv = ["croupier", *map(str, arguments)]
    quiet = contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO())
    with mock.patch.object(sys, "argv", argv), quiet[0], quiet[1], pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == code
    return out.getvalue()


def stop_after(last):
    def check(_, done):
        if done.index == last < ROUNDS:
            raise StopTraining

    return check


def smallest_epsilon(text):
    """Of all that a page says."""
    return min(float(figure) for figure in re.findall(r"epsilon(?: =|:)? ?([0-9]+(?:\.[0-9]+)?)", text))


def test_a_run_that_is_stopped_after_watching_it_claims_no_epsilon_that_a_stopping_rule_beats(tmp_path):
    """The claims of the command line after 1, ..., 4 of 4 rounds, in the Gaussian model with the plan's own mu."""
    rng = np.random.default_rng(0)
    age = rng.uniform(0, 100, 1500)
    rows = [f"{a},{'yes' if a > 50 else 'no'}" for a in age]
    (tmp_path / "people.csv").write_text("\n".join(["age,ill", *rows]) + "\n")
    (tmp_path / "facts.toml").write_text(FACTS)
    options = ["--schema", tmp_path / "facts.toml", "--interactivity", "full", "--rounds", ROUNDS, "--delta", DELTA]
    claims = []
    for last in range(1, ROUNDS + 1):
        model, code = tmp_path / f"{last}.json", 3 if last < ROUNDS else 0
        with mock.patch.object(Interrupt, "check", stop_after(last)):
            told = json.loads(command("fit", tmp_path / "people.csv", *options, "--json", "-o", model, code=code))
        assert told["rounds"] == last
        in_json = [value for name, value in told.items() if "epsilon" in name]
        claims.append(min(*in_json, smallest_epsilon(command("show", model))))
    guarantee = TableModel.load(model).estimator.guarantee_
    mus = [guarantee.mu / math.sqrt(ROUNDS)] * ROUNDS
    assert optimal_stopping(mus, claims) + guarantee.slack <= DELTA


def test_the_game_is_won_against_the_figure_for_a_fixed_number_of_rounds():
    """So that the test above can fail: sqrt(t / T) of mu is claimed after t rounds, and the delta is more than three times 1e-6."""
    mu, claims = gaussian_mu(1.0, DELTA), []
    for done in range(1, ROUNDS + 1):
        claims.append(cr.Guarantee(mu=mu * math.sqrt(done / ROUNDS), theorem="fixed").epsilon(DELTA))
        assert gaussian_value(claims[-1], mu * math.sqrt(done / ROUNDS)) == pytest.approx(DELTA, rel=1e-6)
    mus = [mu / math.sqrt(ROUNDS)] * ROUNDS
    assert optimal_stopping(mus, claims) > 3 * DELTA
    assert optimal_stopping(mus, [1.0] * ROUNDS) == pytest.approx(DELTA, rel=1e-6)  # a loss is never better than waiting for more


@pytest.mark.parametrize("interactivity", ["sequential", "full"])
def test_a_stopped_result_has_the_guarantee_of_the_plans_begun(interactivity):
    """Never less than that of the whole plan of the phase in which it was stopped, however few of its rounds were run."""
    X = np.random.default_rng(1).normal(size=(3000, 3)) / 3
    problem = Problem(loss=Logistic(), domain=Ball(dim=3, radius=5.0), feature_norm=1.0)

    def stop(done):
        if done.index == 2:
            raise StopTraining

    result = cr.minimize(
        problem, (X, X[:, 0] > 0), epsilon=1.0, delta=DELTA, interactivity=interactivity, rounds=ROUNDS, callbacks=stop
    )
    planned = result.schedule.phases[result.history[-1].phase - 1].guarantee
    assert (result.stopped, result.rounds) == (True, 2)
    assert result.guarantee.mu >= planned.mu
    assert result.guarantee.allocations == planned.allocations
    assert result.guarantee.slack >= planned.slack + result.schedule.shortfall
