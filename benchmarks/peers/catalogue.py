"""What is compared: data sets and losses, methods with the settings that each tries, and what is promised to whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import methods
from .methods import Fit, Setting

DELTA = 1e-6
TIMED = 1.0  # the epsilon at which fits run alone and are timed
EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0)
FEWER = (0.1, 1.0, 4.0)
HELD_OUT_SEED = 20261115
SEED = 1000  # of the first final fit
# Data set, loss, epsilons, most seeds at the timed epsilon and at others: fewer where fits take long.
PROBLEMS: dict[str, tuple[str, str, tuple[float, ...], int, int]] = {
    "adult/logistic": ("adult", "logistic", EPSILONS, 5, 5),
    "adult/svm": ("adult", "svm", EPSILONS, 5, 5),
    "adult/ridge": ("adult", "ridge", EPSILONS, 5, 5),
    "covtype/logistic": ("covtype", "logistic", EPSILONS, 5, 3),
    "covtype/svm": ("covtype", "svm", FEWER, 3, 3),
    "covtype/ridge": ("covtype", "ridge", FEWER, 3, 3),
    "kddcup10/logistic": ("kddcup10", "logistic", FEWER, 3, 3),
    "kddcup10/svm": ("kddcup10", "svm", (TIMED,), 3, 3),
    "mnist10/logistic": ("mnist10", "logistic", FEWER, 2, 1),
}
TITLES = {
    "adult/logistic": "Adult, logistic regression: income above 50 K",
    "adult/svm": "Adult, linear SVM: income above 50 K",
    "adult/ridge": "Adult, least squares: age, of [0, 100] years",
    "covtype/logistic": "Covertype, logistic regression: lodgepole pine or not",
    "covtype/svm": "Covertype, linear SVM: lodgepole pine or not",
    "covtype/ridge": "Covertype, least squares: elevation, of [1859, 3858] m",
    "kddcup10/logistic": "KDD Cup 99 (10 %), logistic regression: attack or not",
    "kddcup10/svm": "KDD Cup 99 (10 %), linear SVM: attack or not",
    "mnist10/logistic": "MNIST, multinomial logistic regression: ten digits",
}
# Regressions: the column that becomes the target, and its map to [-1, 1], from what `load` gives (load.py scales age by 100 years,
# and elevation by the published mean and deviation; the range of elevations is published in covtype.info too).
TARGETS: dict[str, tuple[int, Callable[[np.ndarray], np.ndarray]]] = {
    "adult": (0, lambda age: 2 * age - 1),
    "covtype": (0, lambda z: (279.98 * z + 2959.36 - (1859 + 3858) / 2) / ((3858 - 1859) / 2)),
}


@dataclass(frozen=True)
class Method:
    """A row of the table: how it fits, which settings are tried, and what is promised to whom."""

    fit: Callable[..., Fit]
    settings: Callable[[str, int], list[Setting]]  # of the loss and the number of users
    trust: str
    neighbours: str
    what: str
    losses: tuple[str, ...] = ("logistic", "svm", "ridge")
    epsilons: tuple[float, ...] = EPSILONS
    trial: Callable[..., Fit] | None = None  # a quicker fit with the same noise, for trying settings


def grid(first: str, firsts: Sequence[Any], second: str, seconds: Sequence[Any]) -> list[Setting]:
    """Every pair of two settings."""
    return [{first: one, second: two} for one in firsts for two in seconds]


def steps(loss: str, usual: tuple[float, ...], ridge: tuple[float, ...]) -> tuple[float, ...]:
    """The step sizes to try: those for least squares, or the usual ones."""
    return ridge if loss == "ridge" else usual


def croupier_settings(interactivity: str) -> Callable[[str, int], list[Setting]]:
    """{} is what a user gets who sets nothing. In the full model, where rounds cost time and bits, fewer bold ones are tried."""

    def settings(loss: str, users: int) -> list[Setting]:
        if loss == "ridge":
            return [{}, {"radius": 5.0}, {"radius": 10.0}, {"radius": 5.0, "rounds": 20}]
        bold = {"rounds": 50, "curvature": 0.1 if loss == "svm" else 0.02} if interactivity == "full" else {"rounds": 20}
        return [{}, {"radius": 20.0}, {"radius": 100.0}, bold]

    return settings


def weights(loss: str, users: int) -> list[Setting]:
    """Weights of the data against the regulariser."""
    return [{"weight": weight} for weight in (0.1, 1.0, 0.01, 100.0)]


def opacus_settings(loss: str, users: int) -> list[Setting]:
    """Two passes with many small batches over large data, more over small; three times as many with large batches."""
    epochs = max(2, 400_000 // users)
    sizes = ({"epochs": epochs, "batch": 1024}, {"epochs": 3 * epochs, "batch": 8192})
    return [{**size, "step": step} for size in sizes for step in steps(loss, (2.0, 8.0), (0.1, 0.4))]


def central_settings(loss: str, users: int) -> list[Setting]:
    """Rounds and steps of DP-GD."""
    return grid("rounds", (100, 40), "step", steps(loss, (8.0, 32.0), (0.5, 2.0)))


def local_settings(loss: str, users: int) -> list[Setting]:
    """Rounds and steps of the local model."""
    return grid("rounds", (5, 20), "step", steps(loss, (0.5, 4.0), (0.1, 0.5)))


RAW, SHUFFLED, LOCAL = "curator sees records", "shuffler mixes", "nobody"
METHODS = {
    "scikit-learn": Method(
        methods.nonprivate, weights, RAW, "-", "no privacy: LogisticRegression (lbfgs), LinearSVC (squared hinge), Ridge"
    ),
    "Croupier full": Method(
        methods.croupier(interactivity="full"),
        croupier_settings("full"),
        SHUFFLED,
        "replace-one",
        "estimators, interactivity='full': all users, every round",
        trial=methods.simulated(interactivity="full"),
    ),
    "Croupier sequential": Method(
        methods.croupier(),
        croupier_settings("sequential"),
        SHUFFLED,
        "replace-one",
        "estimators, rule='plain': each user once, in a round that its secret lot says",
        trial=methods.simulated(),
    ),
    "Croupier open lots": Method(
        methods.croupier(lots="open"),
        croupier_settings("sequential"),
        SHUFFLED,
        "replace-one",
        "lots='open': each user once, in the paper's batches",
        trial=methods.simulated(lots="open"),
    ),
    "DP-GD": Method(
        methods.central,
        central_settings,
        RAW,
        "replace-one",
        "full-batch gradients with Nesterov's momentum, analytic Gaussian mechanism",
    ),
    "Opacus": Method(methods.peer("opacus"), opacus_settings, RAW, "add/remove", "DP-SGD, Poisson batches, momentum 0.9"),
    "Opacus, replace-one": Method(
        methods.peer("opacus", "replace-one"),
        opacus_settings,
        RAW,
        "replace-one",
        "the same with the noise of half the epsilon",
        epsilons=(TIMED,),
    ),
    "diffprivlib": Method(
        methods.peer("diffprivlib"),
        lambda loss, users: [{}] if loss == "ridge" else weights(loss, users),
        RAW,
        "replace-one",
        "objective perturbation (logistic), functional mechanism (least squares): pure epsilon, so a stronger promise",
        losses=("logistic", "ridge"),
    ),
    "PrivUnit": Method(
        methods.local, local_settings, LOCAL, "replace-one", "local: one pass, each gradient through PrivUnit; pure epsilon"
    ),
    "paper full": Method(
        methods.simulated(interactivity="full", calibration="paper"),
        lambda loss, users: [{"rounds": 20}],  # finding the best number takes its time, and all of them are noise
        SHUFFLED,
        "replace-one",
        "Croupier full with the paper's own constants, simulated noise: the bits are too many to count",
        losses=("logistic",),
    ),
    "paper sequential": Method(
        methods.simulated(calibration="paper"),
        lambda loss, users: [{}],
        SHUFFLED,
        "replace-one",
        "Croupier sequential with the paper's own constants, simulated noise",
        losses=("logistic",),
    ),
}
NO_PRIVACY = "scikit-learn"
CENTRAL = ("DP-GD", "Opacus", "Opacus, replace-one", "diffprivlib")
OURS = ("Croupier full", "Croupier sequential", "Croupier open lots")
# The estimators with nothing tuned, each person asked once, on the same rows: `python -m benchmarks accuracy` measures them.
DEFAULT = "Croupier by default"
DEFAULT_TASKS = {
    "adult/logistic": "adult",
    "adult/ridge": "adult, age",
    "covtype/logistic": "covtype",
    "covtype/ridge": "covtype, elevation",
    "mnist10/logistic": "mnist10",
}
# Yu, Zhang, Chen, Yin, Liu: "Gradient Perturbation is Underrated for Differentially Private Convex Optimization", arXiv 1911.11363,
# Table 2, Adult: logistic regression at epsilon = 0.1, delta = 1 / n^2, replace-one.
PUBLISHED = {"problem": "adult/logistic", "epsilon": 0.1, "accuracy": {"DP-GD": 0.809, "DP-SGD": 0.804, "AMP": 0.793}}
RACE = "covtype/logistic"
# Beside the setting that was chosen.
RACE_SETTINGS: dict[str, tuple[Setting, ...]] = {
    "Croupier full": ({"rounds": 40, "curvature": 0.02}, {"rounds": 50, "curvature": 0.02}, {"rounds": 75}),
    "Croupier sequential": ({"rounds": 50, "curvature": 0.02}, {"rounds": 80}),
}
AS_DOCUMENTED = "as documented"
UNTUNED = ("adult/logistic", "adult/svm", "adult/ridge", "covtype/logistic")  # where Croupier is also fitted as it comes
AGAIN = "adult/logistic"  # where a fit of each method is made twice, to see whether it is the same
