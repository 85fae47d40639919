"""What a run logs: what it is about to do, and every round; no figure of privacy, and nothing of a record."""

from __future__ import annotations

import logging
import re

import numpy as np
import pytest

import croupier as cr

PROBLEM = cr.Problem(loss=cr.losses.Hinge(), domain=cr.domains.Ball(dim=3, radius=5.0), feature_norm=1.0)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(1003, 3)) / 3
DATA = (X, X[:, 0] > 0)


def logged(caplog, **options):
    with caplog.at_level(logging.INFO, logger="croupier"):
        cr.minimize(PROBLEM, DATA, epsilon=4.0, delta=1e-6, **options)
    return [record.getMessage() for record in caplog.records if record.name.startswith("croupier")]


def test_gd_in_the_full_model_says_beforehand_how_many_rounds_it_will_run(caplog):
    chosen = cr.schedule(PROBLEM, 1003, epsilon=4.0, delta=1e-6, interactivity="full", rounds=6)
    lines = logged(caplog, interactivity="full", rounds=6)
    assert chosen.method == "gd"
    assert lines[0] == "Training: 6 rounds (gd); all 1,003 users are asked in every round"
    assert lines[1:] == [f"round {i} of 6: 1003 users answered" for i in range(1, 7)]


def test_users_who_are_left_over_are_explained(caplog):
    lines = logged(caplog, rounds=10)
    assert lines[0].startswith("Training: 10 rounds (smoothed-acsa); each user is asked at most once; 3 of 1,003 are left over")
    assert "have the same size" in lines[0]
    assert lines[-1] == "round 10 of 10: 100 users answered"


def test_nothing_is_said_before_a_refusal_and_no_figure_of_privacy_is(caplog):
    with caplog.at_level(logging.DEBUG, logger="croupier"), pytest.raises(cr.ArgumentError):
        cr.minimize(PROBLEM, (X, np.full(1003, 7)), epsilon=4.0, delta=1e-6)
    assert [record for record in caplog.records if record.name.startswith("croupier")] == []
    words = " ".join(logged(caplog, rounds=2))
    assert not re.search(r"epsilon|delta|mu\b|\d\.\d", words)
