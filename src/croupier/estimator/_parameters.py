"""What the estimators' parameters and learned attributes mean: written once, shown in the docstring of every class."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, fields
from textwrap import fill
from typing import Any, TypeVar

Estimator = TypeVar("Estimator", bound=type)
_WIDTH = 110
_FIRST_SECTION = re.compile(r"^(?=\S.*\n-{3,}$)", flags=re.M)
# A parameter's type and meaning; by the class's name, too, where it means something else there.
_PARAMETERS: dict[str, tuple[str, str]] = {
    "epsilon": (
        "float",
        "The privacy loss that each user is promised. 1 is a strong promise, 4 a moderate one; above 10 a fit warns, above 100 it "
        "refuses.",
    ),
    "delta": ("float", "The delta of that promise; below 1 / users. Default: 1e-6, or 0.1 / users if that is less."),
    "honest": ("float", "The fraction of all users trusted to add their noise, above 0 and at most 1."),
    "neighbours": (
        "str",
        'What the guarantee hides about a user: "replace-one" hides the record that the user has, among all that are possible; '
        '"zero-out" hides whether the user\'s record was used.',
    ),
    "calibration": (
        "str",
        '"tight" adds the least noise that is certified; "paper" and "paper-scaled" add the noise of the paper\'s theorems.',
    ),
    "random_state": ("int", "Seeds the noise, so that a fit can be repeated. Such a fit is NOT private, and `guarantee_` is None."),
    "account": (
        "PrivacyAccount",
        "Counts what all fits on the same people spend, and refuses a fit beyond its limit. Clones share it.",
    ),
    "data_is_public": (
        "bool",
        "Takes public facts that were not declared from the data, with a warning. The guarantee does not cover them, and says so.",
    ),
    "invalid": (
        '{"refuse", "blank"}',
        'What happens to an invalid record (NaN, infinity, an undeclared label). "refuse" stops before anybody '
        "is asked; if others can see a refusal, the guarantee assumes that all records are valid. "
        '"blank" counts the record as one that adds nothing, reveals nothing about it, and needs no such assumption; public facts '
        "must then be declared.",
    ),
    "ShuffleScaler.invalid": (
        '{"refuse", "blank"}',
        'What happens to a row with a value that is not a finite number. "refuse" stops before anybody is asked; if others can see '
        'a refusal, the guarantee assumes that all rows are valid. "blank" counts the row as a vector of zeros, '
        "and `transform` makes it NaN throughout, for a next step that also has blanks.",
    ),
    "feature_norm": (
        'float or "auto"',
        'The norm to which longer rows are scaled down, in training and in prediction. A public choice. "auto" is the root of the '
        "number of features with `feature_range`, so that no row is longer, and 1 with a warning without; None takes it from "
        "the data, which needs data_is_public=True.",
    ),
    "radius": (
        "float",
        "The largest norm of the weights (of several classes, in root mean square), for rows divided by feature_norm, and for "
        "targets scaled to [-1, 1]. Steps are in proportion to it: too large is noisy, too small is biased towards 0.",
    ),
    "ShuffleRidge.radius": (
        "float",
        "The largest norm of the weights, for rows divided by feature_norm, and for targets scaled to [-1, 1]. Default: "
        "2 in rounds, and moments have no bound. Steps are in proportion to it: too large is noisy, too small is biased towards 0.",
    ),
    "l2": ("float", "Adds (l2 / 2) |weights|^2 to the mean loss, the intercept included, for rows divided by feature_norm."),
    "fit_intercept": ("bool", "Whether the model has an intercept."),
    "intercept_scaling": ("float", "The constant beside a row of norm 1 whose weight is the intercept."),
    "interactivity": (
        '{"sequential", "full"}',
        '"sequential" asks each user at most once; "full" asks all users in every round, which takes more bits.',
    ),
    "method": (
        "str",
        'The algorithm: "acsa", "smoothed-acsa", and with rule="bound" also "sgd", "phased", "gd" and "phased-gd". "auto" chooses '
        "by the loss, as in the paper's Table 1.",
    ),
    "ShuffleRidge.method": (
        "str",
        '"moments" asks everybody once, for second moments; "rounds" trains by gradients, as does the name of an algorithm '
        '("acsa", and with rule="bound" also "sgd", "phased", "gd" and "phased-gd"). "auto" takes whichever is better by a public '
        "rule; `method_` and `explain()` say which it was.",
    ),
    "rule": (
        '{"practical", "bound", "plain", "centred", "scaled", "whitened"}',
        '"practical" takes what does well on most data, and has no bound on the loss; "bound" takes steps with the best bound. The '
        'guarantee of privacy is the same. "practical" chooses by public facts among "whitened", whose first rounds ask for second '
        'moments of rows, "scaled", whose first rounds ask for means and squares of columns, "centred", for the mean of rows, and '
        '"plain", which asks for gradients alone; `explain()` says which it took. Of two classes in quiet runs it also lets people '
        'with even odds count most; "whitened", asked for by name, does not. For several classes last rounds ask how far to go.',
    ),
    "rounds": ("int", "How many rounds; default: chosen by the rule."),
    "clip": (
        "float",
        "The norm to which each user's gradient is clipped: less means less noise and more bias. Default: chosen by the rule.",
    ),
    "curvature": (
        "float",
        'The curvature of the mean loss for which practical steps are made: less is bolder. With rule="practical" only. '
        "Default: chosen by the rule.",
    ),
    "max_inflation": (
        "float",
        "The noise of a round relative to the least that the guarantee allows, above 1: more noise takes fewer bits. Default: "
        "1.05, or for rotated rounds of secret lots chosen by the run's noise (docs/optimizer-theory.md).",
    ),
    "lots": (
        '{"auto", "secret", "open"}',
        'Whether it stays secret which round a user is in. "secret" needs a fraction of the noise; "open" is the paper\'s mode; '
        '"auto" is secret where that has a proof (see `croupier.optimizer.schedule`).',
    ),
    "callbacks": ("tuple of functions", "Each is called with the `Round` after every round; one may raise `StopTraining`."),
    "classes": (
        "sequence",
        "All labels that may occur, whether or not they do. Required, unless data_is_public=True takes them from the data.",
    ),
    "class_weight": (
        "dict",
        "A public weight for each class that is named; the others have 1. For rare classes. Weights are scaled so that the largest "
        "is 1: noise and guarantee are those without weights.",
    ),
    "loss": (
        '{"hinge", "smoothed_hinge", "squared_hinge"}',
        "The loss; the smoothed hinge has a parabola where the hinge is nonsmooth.",
    ),
    "target_range": (
        "pair of float",
        "(low, high) of the target; targets outside are clipped. Required, unless data_is_public=True takes it from the data.",
    ),
    "ShuffleLinearRegression.target_range": (
        "array-like",
        "(low, high) of the target, or one such pair per target; targets outside are clipped to it. Needed, unless "
        "data_is_public=True takes it from the data.",
    ),
    "kappa": ("float", "The residual beyond which the loss is linear, as a fraction of the width of target_range."),
    "quantile": ("float", "Which quantile: between 0 and 1, 0.5 for the median."),
    "exclusive": (
        "sequence of sequences of int",
        "Groups of columns of which at most one is not 0 in any row, as those of a one-hot category: their products are known to "
        "be 0, which saves bits and noise.",
    ),
    "feature_range": (
        "array-like",
        "Public (low, high) for all features, or one such pair per feature, in the columns' own units: on the user's side, values "
        "outside are clipped to it, and columns are scaled from it to [-1, 1] (without an intercept, from the range about 0 that "
        "holds it). `feature_norm`, `radius` and `l2` are then about scaled rows; `coef_`, `intercept_` and intervals about "
        "columns in their own units. Sparse rows need ranges whose middle is 0.",
    ),
    "ShuffleScaler.feature_range": (
        "array-like",
        "(low, high) for all features, or one such pair per feature; values outside are clipped to it. Needed, unless "
        "data_is_public=True takes it from the data.",
    ),
    "coef_bound": (
        "float",
        "Declared bound on the size of every true slope, in the units of the data. A public choice that keeps intervals finite "
        "where the data do not decide a coefficient; the others' intervals do not use it.",
    ),
    "ShuffleLogit.coef_bound": (
        "float",
        "Declared bound on the size of every true coefficient, the intercept included, in log-odds per unit of the data. A public "
        "choice that keeps intervals finite where the data do not decide a coefficient; the others' intervals do not use it.",
    ),
    "ShuffleLinearRegression.method": (
        '{"auto", "rounds", "moments"}',
        "Whether everybody is asked at once, for second moments, or each in one of eight secret rounds that zoom in. Rounds have "
        "narrower intervals; one round keeps epsilon against an attacker who knows when each user answered, has several targets, "
        'and answers regressions on some of the columns afterwards. "auto" takes the narrower forecast, from public facts alone.',
    ),
    "ShuffleLogit.method": (
        '{"auto", "rounds", "moments"}',
        "Whether people are asked in three groups, or each in one of eight secret rounds that zoom in. Rounds have narrower "
        'intervals; groups keep epsilon against an attacker who knows when each user answered. "auto" takes the narrower forecast, '
        "from public facts alone.",
    ),
    "with_mean": ("bool", "Whether means are subtracted; sparse rows need False."),
    "with_std": ("bool", "Whether features are divided by their standard deviations."),
    "norm": ("float", "Longer rows are scaled down to it afterwards; default: no limit."),
}
_ATTRIBUTES: dict[str, tuple[str, str]] = {
    "coef_": (
        "ndarray",
        "The weights, for rows in their own units (clipped to feature_range, longer ones scaled down to feature_norm). Of two "
        "classes they speak for classes_[1], the later one in sorted order.",
    ),
    "intercept_": ("float or ndarray", "The intercept, one per output; 0 without one."),
    "std_": ("ndarray", "Standard errors of coef_; infinity if the data do not decide a coefficient."),
    "intercept_std_": ("float or ndarray", "The standard error of the intercept; 0 without one."),
    "capped_": ("bool", "Whether the capped loss was minimised, which the default is, or the logistic loss itself."),
    "classes_": ("ndarray", "The declared classes, sorted."),
    "target_range_": ("tuple", "The range in use; of ShuffleLinearRegression one pair per target."),
    "feature_norm_": ("float", "The norm in use."),
    "mean_": ("ndarray", "The features' means, with noise."),
    "var_": ("ndarray", "Their variances, with noise; raised to what is distinguishable from 0."),
    "scale_": ("ndarray", "The roots of var_."),
    "n_features_in_": ("int", "Columns of X."),
    "n_users_": ("int", "People that the fit counted."),
    "guarantee_": (
        "Guarantee or None",
        "What the fit reveals about one user; None if it was seeded or had stand-ins.",
    ),
    "schedule_": ("Schedule", "The schedule that was run, with the plan of every round."),
    "method_": ("str", '"moments" or "rounds": which was taken.'),
    "ShuffleRidge.schedule_": ("Schedule", "In rounds: the schedule that was run, with the plan of every round."),
    "ShuffleRidge.result_": ("Result", "In rounds: the transcript, every round's point and private mean gradient."),
    "ShuffleRidge.plan_": ("SumPlan", "By moments: the plan of the one round."),
    "ShuffleRidge.estimate_": ("SumEstimate", "By moments: the noisy sum that the round released."),
    "ShuffleLinearRegression.schedule_": ("Schedule", "In rounds: the schedule that was run, with the plan of every round."),
    "ShuffleLinearRegression.result_": ("Result", "In rounds: the transcript, every round's view and private mean."),
    "ShuffleLogit.schedule_": ("Schedule", "In rounds: the schedule that was run, with the plan of every round."),
    "ShuffleLogit.result_": ("Result", "In rounds: the transcript, every round's view and private mean."),
    "ShuffleLinearRegression.plan_": ("SumPlan", "By moments: the plan of the one round."),
    "ShuffleLinearRegression.estimate_": ("SumEstimate", "By moments: the noisy sum that the round released."),
    "plan_": ("SumPlan", "The plan of the one round."),
    "estimate_": ("SumEstimate", "The noisy sum that the round released."),
    "result_": ("Result", "The transcript: every round's point and private mean gradient."),
    "rounds_": ("GroupRounds", "By moments: the noisy sums that the three groups' rounds released, with their plans."),
    "read_off_data_": ("tuple of str", "Public facts that were taken from the data, which the guarantee does not cover."),
    "unit_": ("str or None", 'Whom the guarantee protects: "row", "person" (with all rows) or "user".'),
}
_OF_ALL = ("n_features_in_", "n_users_", "guarantee_", "read_off_data_", "unit_")


def documented(*learned: str) -> Callable[[Estimator], Estimator]:
    """Put the sections Parameters and Attributes into a class's docstring, before the sections that it has."""

    def complete(estimator: Estimator) -> Estimator:
        text = inspect.cleandoc(estimator.__doc__ or "")
        opening, *sections = _FIRST_SECTION.split(text, maxsplit=1)
        parameters = _section("Parameters", (_parameter(estimator, field) for field in fields(estimator)))
        kind = estimator.__name__
        meanings = ((name, _ATTRIBUTES.get(f"{kind}.{name}") or _ATTRIBUTES[name]) for name in (*learned, *_OF_ALL))
        attributes = _section("Attributes", (_entry(name, *meaning) for name, meaning in meanings))
        estimator.__doc__ = "\n\n".join([opening.rstrip(), parameters, attributes, *sections])
        return estimator

    return complete


def _parameter(estimator: type, field: Field[Any]) -> str:
    kind, meaning = _PARAMETERS.get(f"{estimator.__name__}.{field.name}") or _PARAMETERS[field.name]
    if field.default is None or field.default is MISSING:
        return _entry(field.name, f"{kind}, optional", meaning)
    default = f'"{field.default}"' if isinstance(field.default, str) else repr(field.default)
    return _entry(field.name, f"{kind}, default {default}", meaning)


def _entry(name: str, kind: str, meaning: str) -> str:
    return f"{name} : {kind}\n{fill(meaning, _WIDTH, initial_indent='    ', subsequent_indent='    ')}"


def _section(title: str, entries: Iterable[str]) -> str:
    return "\n".join([title, "-" * len(title), *entries])
