"""Scores of every setting on rows that were held out of the training rows."""

from __future__ import annotations

import argparse
import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from rich.progress import track
from scipy.special import log_softmax

from croupier import __version__
from croupier.features import FourierFeatures
from croupier.optimizer import Schedule, _gradients, planning, schedule
from croupier.optimizer._rules import Staged, centred, choose, kind_of, scaled, whitened
from croupier.optimizer.planning import Budget, _staged
from croupier.optimizer.training import run
from croupier.problem import Ball, CappedLogistic, CappedMultinomial, Problem, Squared

from ..accuracy.estimators import table
from ..datasets import loader
from ..protocol import Results
from ..surrogate import SurrogatePopulation

DELTA, EPSILONS = 1e-6, (0.1, 1.0)
FOURIER = "covtype by 2 000 Fourier features"
# Tables of many columns take long: one seed.
LONG = ("mnist10", FOURIER)
Rows = tuple[np.ndarray, np.ndarray]


def eight_classes(users: int) -> Rows:
    """Numbers without structure, and eight classes whose odds depend on them a little."""
    rng = np.random.default_rng(7)
    X = np.clip(rng.normal(size=(users, 20)), -4, 4)
    scores = X @ (0.25 * rng.normal(size=(20, 8))) + np.linspace(0, 1.2, 8)
    return X / 8, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)


def survey(users: int) -> Rows:
    """Answers to twelve questions, one-hot, and a score from 0 to 10 that they say little about."""
    rng = np.random.default_rng(8)
    mood, columns = rng.normal(size=users), []
    for levels in (3, 4, 5, 6, 3, 4, 5, 6, 3, 4, 5, 6):
        answer = np.round((0.5 * mood + rng.normal(size=users)) * levels / 5 + levels / 2)
        columns.append(np.eye(levels)[np.clip(answer, 0, levels - 1).astype(int)])
    score = 6.5 + 2.2 * (0.6 * mood + 1.2 * rng.normal(size=users))
    return np.hstack(columns) / np.sqrt(12), np.clip(np.round(score), 0, 10).astype(int)


def many_answers(users: int) -> Rows:
    """Mostly answers yes or no, 161 columns in all, and three classes that they say a little about."""
    rng = np.random.default_rng(2)
    X = np.hstack([rng.random((users, 150)) < rng.uniform(0.02, 0.5, 150), np.clip(rng.normal(size=(users, 11)) / 3, -1, 1)])
    scores = (X - X.mean(axis=0)) @ (rng.normal(size=(161, 3)) * (rng.random((161, 1)) < 0.3))
    scores = 0.8 * scores / scores.std() + np.log([0.57, 0.28, 0.15])
    return X / np.linalg.norm(X, axis=1, keepdims=True), np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)


def correlated(users: int) -> Rows:
    """Ten columns that hang together, and a target that is linear in them."""
    rng = np.random.default_rng(5)
    X = np.clip(rng.normal(size=(users, 4)) @ rng.normal(size=(4, 10)) + rng.normal(size=(users, 10)), -6, 6) / 6 / math.sqrt(10)
    return X, np.clip(0.6 * (X @ rng.normal(size=10)) + 0.1 * rng.normal(size=users), -1, 1)


def rare_words(users: int) -> Rows:
    """A hundred words, most of them rare, and two classes; a fifth of the words speak for one of them."""
    rng = np.random.default_rng(7)
    X = (rng.random((users, 100)) < rng.uniform(0.01, 0.5, 100)).astype(float)
    X /= 1.2 * math.sqrt(np.mean(np.sum(X**2, axis=1)))
    X /= np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
    scores = (X - X.mean(axis=0)) @ (rng.normal(size=100) * (rng.random(100) < 0.2))
    return X, (2 * scores / scores.std() + rng.logistic(size=users) > 0).astype(int)


# Of every kind: the tables, and how many people; None is all of the training rows but those held out.
TABLES: dict[str, tuple[tuple[str, int | None], ...]] = {
    "two": (
        ("adult", None),
        ("covtype", 100_000),
        ("covtype", 5_000),
        ("rare words", 20_000),
        ("mnist_odd", 20_000),
        (FOURIER, 50_000),
    ),
    "several": (("mnist10", 20_000), ("eight classes", 15_000), ("survey", 15_000), ("many answers", 15_000)),
    "squares": (("adult, age", None), ("covtype, elevation", 100_000), ("correlated", 4_600)),
}
SYNTHETIC: dict[str, Callable[[int], Rows]] = {
    "rare words": rare_words,
    "eight classes": eight_classes,
    "survey": survey,
    "many answers": many_answers,
    "correlated": correlated,
}


class Setting(NamedTuple):
    """A rule, None being the plain one, and other constants of plans and openings than the present ones."""

    rule: Staged | None
    plans: Mapping[str, Any] = MappingProxyType({})
    floor: float = 1.0  # of eigenvalues, over the present one
    way: float = planning.SHORT_WAY  # that equal steps of several classes may go


# Plans of other noise and bits: noise wherever it saves bits; openings of noisy runs in fewer bits and more blocks; openings of
# quiet runs, and gradients of these, with less noise.
PLANS: dict[str, dict[str, Any]] = {
    "never noisy": {"_NOISY_RUN": math.inf, "_THRIFTY": ((-1.0, 1.6),)},
    "never faint": {"_FAINT_RUN": math.inf},
    "openings of 2 048 bits": {"_NOISY_BITS": 2048},
    "openings at 1.2": {"_OPENING_INFLATION": 1.2},
    "gradients at 1.3": {"_THRIFTY": ((-1.0, 1.3),)},
}


def settings(problem: Problem, noise: Callable[[int], float], users: int) -> tuple[str, dict[str, Setting]]:
    """The default rule's name; and the rules, and settings about the default one."""
    kind, found = kind_of(problem), {"plain": Setting(None)}
    rule, _ = choose(problem, users, noise, "practical", True, dict.fromkeys(("method", "rounds", "clip", "curvature")))
    assert rule is not None
    rules = {"two": (centred, scaled, whitened), "several": (centred, whitened), "squares": (whitened,)}[str(kind)]
    of_few = (scaled, whitened)  # not for many columns
    found |= {made.__name__: Setting(made(problem, noise, users)) for made in rules if rule.name != "centred" or made not in of_few}
    changes: dict[str, dict[str, Any]] = {"clip x 2": {"clip": 2 * rule.clip}}
    if rule.step is None:
        changes |= {"24 rounds": {"rounds": 24, "opening_rounds": 2}, "50 rounds": {"rounds": 50, "opening_rounds": 3}}
        found["accelerated"] = Setting(rule, way=0.0)
        found["no line"] = Setting(replace(rule, several=False))
    else:
        if kind != "squares":
            changes["clip x 2"]["step"] = rule.step / 2
        changes |= {"step / 3": {"step": rule.step / 3}, "step x 3": {"step": 3 * rule.step}}
        if rule.momentum:
            changes["no momentum"] = {"momentum": 0.0, "step": rule.step / (1 - rule.momentum if kind == "two" else 1)}
    if rule.focus:
        changes["no focus"] = {"focus": 0.0}
    if rule.name == "centred":
        changes["share 0.5"] = {"share": 0.5}
        if rule.step is not None:
            changes["rounds / 4"] = {"rounds": rule.rounds // 4, "opening_rounds": rule.opening_rounds // 3, "step": 4 * rule.step}
    else:
        changes |= {"opening / 2": {"opening_rounds": rule.opening_rounds // 2}}
        changes |= {f"share {share}": {"share": share} for share in (0.02, 0.25)}
    found |= {name: Setting(replace(rule, **change)) for name, change in changes.items()}
    plans = ("never noisy", "never faint") if rule.name == "centred" else PLANS
    found |= {name: Setting(rule, PLANS[name]) for name in plans}
    return rule.name, found | ({"floor x 2": Setting(rule, floor=2.0)} if rule.name == "whitened" else {})


def problem_of(kind: str, columns: int, y: np.ndarray) -> Problem:
    """As the estimators have it, rows with a constant of 1 at the end."""
    loss = {"two": CappedLogistic(), "squares": Squared()}.get(kind) or CappedMultinomial(int(y.max()) + 1)
    domain = Ball(dim=loss.outputs * (columns + 1), radius=50.0 * math.sqrt(loss.outputs))
    return Problem(loss=loss, domain=domain, feature_norm=math.sqrt(2), constant=1.0)


def score(problem: Problem, theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> float:
    """Accuracy, or R^2."""
    scores = X @ theta.reshape(problem.loss.outputs, -1).T
    if isinstance(problem.loss, Squared):
        return float(1 - np.mean((scores[:, 0] - y) ** 2) / np.var(y))
    answers = scores[:, 0] > 0 if problem.loss.outputs == 1 else scores.argmax(axis=1)
    return float(np.mean(answers == y))


def log_loss(scores: np.ndarray, y: np.ndarray) -> float:
    """Of several classes, by scores that softmax makes probabilities."""
    return -float(np.mean(log_softmax(scores, axis=-1)[np.arange(len(y)), y]))


def fitted(problem: Problem, setting: Setting, people: SurrogatePopulation, epsilon: float, seed: int) -> np.ndarray:
    """What a setting makes of these people, by the plans of a default fit by messages."""
    start, rule = np.zeros(problem.dim), setting.rule
    if rule is None:
        plain = replace(problem, domain=replace(problem.domain, radius=2.0)) if isinstance(problem.loss, Squared) else problem
        chosen = schedule(plain, people.users, epsilon=epsilon, delta=DELTA, rule="plain")
        return run(plain, people, chosen, start=start, seed=seed).theta
    kept = (problem, rule.clip, epsilon, DELTA, "tight", 1.0, 1.05, "replace-one", people.users)
    floors = {name: setting.floor * getattr(_gradients, name) for name in ("_FLOOR", "_FLOOR_OF_SQUARES")}
    plans = {name: getattr(planning, name) for some in PLANS.values() for name in some} | dict(setting.plans)
    patched = mock.patch.multiple(planning, **plans), mock.patch.multiple(_gradients, **floors)
    with patched[0], patched[1], mock.patch.object(planning, "SHORT_WAY", setting.way):
        planned = _staged(problem, rule, Budget(*kept, secret=True, thrifty=True), people.users, problem.domain.norm_bound)
        facts = {"method": rule.name, "interactivity": "sequential", "bound": None, "bound_on": "population", "why": "a benchmark"}
        return run(problem, people, Schedule(phases=planned, **facts), start=start, seed=seed).theta


def cells(kind: str, name: str, X: np.ndarray, y: np.ndarray, users: int | None, seeds: int) -> Iterator[dict[str, Any]]:
    """The scores of all settings at every epsilon and seed."""
    problem = problem_of(kind, X.shape[1], y)
    rows = np.column_stack([X, np.ones(len(X))]).astype(np.float32)
    for seed in range(seeds):
        order = np.random.default_rng(1000 + seed).permutation(len(rows))
        held = min(20_000, len(rows) // 10)
        test, train = order[:held], order[held:][:users]
        people = SurrogatePopulation(rows[train], y[train])
        for epsilon in EPSILONS:
            unit = Budget(problem, 1.0, epsilon, DELTA, "tight", 1.0, 1.05, "replace-one", people.users, secret=True)
            default, tried = settings(problem, unit.lots_noise, people.users)
            thetas = {setting: fitted(problem, how, people, epsilon, seed) for setting, how in tried.items()}
            found = {setting: score(problem, theta, rows[test], y[test]) for setting, theta in thetas.items()}
            facts = {"kind": kind, "table": f"{name}, {people.users:,}", "epsilon": epsilon, "seed": seed}
            if kind == "several":
                constant = np.log(np.bincount(y[train], minlength=problem.loss.outputs) / len(train))
                losses = {
                    setting: log_loss(rows[test] @ theta.reshape(len(constant), -1).T, y[test]) for setting, theta in thetas.items()
                }
                facts |= {"losses": losses | {"a constant": log_loss(np.tile(constant, (len(test), 1)), y[test])}}
            yield facts | {"default": default, "scores": found}


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--data", type=Path, help="folder with load.py; without it, synthetic tables only")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[], help="tables to measure; the others stay as stored (default: all)")


def measure(arguments: argparse.Namespace) -> Results:
    """Every kind and table."""
    load = None if arguments.data is None else loader(arguments.data).load
    seeds = 1 if arguments.quick else arguments.seeds
    stored, only = arguments.folder / "rules.json", arguments.only
    found = json.loads(stored.read_text())["cells"] if only and stored.exists() else []
    found = [cell for cell in found if not any(cell["table"].startswith(f"{name}, ") for name in only)]
    jobs = [(kind, name, users) for kind, tables in TABLES.items() for name, users in tables if not only or name in only]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind, name, users in track(jobs, description="rules"):
            if name in SYNTHETIC:
                X, y = SYNTHETIC[name](2 * (users or 15_000))
            elif load is None:
                continue
            elif name == FOURIER:
                X, y, *_ = load("covtype", normalise=False)
                some = np.random.default_rng(9).permutation(len(X))[: 2 * (users or 50_000)]
                X, y = FourierFeatures(2000, scale=2.0).fit_transform(X[some].astype(np.float32)), y[some]
            else:
                X, y, *_ = table(load, name)
            most = min(users or 5_000, 5_000) if arguments.quick else users
            found += list(cells(kind, name, X, y, most, 1 if name in LONG else seeds))
    return {"version": __version__, "quick": arguments.quick, "cells": found}
