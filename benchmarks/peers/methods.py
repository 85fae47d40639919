"""The methods that are set side by side: each fits weights to training rows of norm 1 and is shown no other row.

A fit is `fit(task, epsilon, delta, setting, seed) -> Fit`. Opacus and diffprivlib run in a virtual environment each, by
`foreign.py`; the others are here. All randomness is seeded, so that two runs give the same table: nothing is private.
"""

from __future__ import annotations

import itertools
import json
import math
import multiprocessing
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import LinAlgWarning
from scipy.optimize import minimize_scalar
from scipy.special import betaincinv, betaln, expit
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

import croupier as cr
from croupier.estimator import MostlyNoiseWarning, ShuffleLinearSVC, ShuffleLogisticRegression, ShuffleRidge
from croupier.estimator._linear import LinearModel
from croupier.optimizer import Schedule, acsa
from croupier.privacy import central_noise_std
from croupier.protocol import NotPrivateWarning

from ..timing import timed

Setting = dict[str, Any]
Floats = np.ndarray
HERE = Path(__file__).parent
EVERYONE = slice(None)
_LOCAL_ENTRIES = 1 << 22
_numbers = itertools.count()
# Set by the program that runs fits of peers: the Python of each, or why there is none; and a folder for rows.
PYTHONS: dict[str, str] = {}
SCRATCH: dict[str, Path] = {}


@dataclass(frozen=True, eq=False)
class Task:
    """Rows to learn from, and by which loss: "logistic", "svm" (hinge) or "ridge" (least squares, targets in [-1, 1])."""

    loss: str
    X: Floats
    y: Floats
    classes: int = 2

    @property
    def outputs(self) -> int:
        return self.classes if self.loss == "logistic" and self.classes > 2 else 1

    @property
    def dim(self) -> int:
        return self.outputs * self.X.shape[1]

    @cached_property
    def model(self) -> Any:
        if self.outputs > 1:
            return cr.losses.Multinomial(self.classes)
        return {"logistic": cr.losses.Logistic, "svm": cr.losses.Hinge, "ridge": partial(cr.losses.Squared, target_bound=1.0)}[
            self.loss
        ]()

    @cached_property
    def targets(self) -> Floats:
        return np.asarray(self.model.targets(self.y))

    @property
    def clip(self) -> float:
        """Every gradient method clips here: the steepest gradient at weights of 0."""
        return float(self.model.slope_bound(0.0))

    @cached_property
    def folder(self) -> Path:
        """With X.npy and y.npy, for other processes."""
        folder = SCRATCH["folder"] / f"{os.getpid()}-{next(_numbers)}"
        folder.mkdir()
        np.save(folder / "X.npy", self.X)
        np.save(folder / "y.npy", self.y)
        return folder

    def score(self, theta: Floats, X: Floats, y: Floats) -> float:
        """Accuracy, or R^2 of a regression."""
        scores = X @ theta.reshape(self.outputs, -1).T
        if self.loss == "ridge":
            return float(1 - np.mean((scores[:, 0] - y) ** 2) / np.var(y))
        return float(np.mean((scores[:, 0] > 0 if self.outputs == 1 else scores.argmax(axis=1)) == y))


@dataclass(frozen=True, eq=False)
class Fit:
    """Weights, the seconds they took, and what each user sent in how many rounds."""

    theta: Floats
    seconds: float
    bits: int | None = None  # that one user sends in all; None where the record itself is handed over
    rounds: int | None = None
    cpu: float | None = None  # the processor's seconds, where they were measured


class NotAvailableError(RuntimeError):
    """This method cannot be run here; the text says why."""


# --- without privacy ---


def nonprivate(task: Task, epsilon: float, delta: float, setting: Setting, seed: int) -> Fit:
    """scikit-learn; `weight` is that of the data against the penalty, as in its C."""
    weight = setting["weight"]
    model = {
        "logistic": lambda: LogisticRegression(C=weight, fit_intercept=False, max_iter=1000),
        "svm": lambda: LinearSVC(C=weight, fit_intercept=False, dual=False, max_iter=1000, random_state=seed),
        "ridge": lambda: Ridge(alpha=1 / weight, fit_intercept=False),
    }[task.loss]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LinAlgWarning)  # columns that are hardly ever used
        took = timed(lambda: model.fit(task.X, task.y))
    return Fit(np.asarray(model.coef_, dtype=np.float64).ravel(), **took)


# --- Croupier ---


def estimator(task: Task, epsilon: float, delta: float, setting: Setting, **options: str) -> LinearModel:
    """As a user of scikit-learn would write it: rule="plain", the default once, and what setting and options change."""
    kinds: dict[str, Callable[..., LinearModel]] = {
        "logistic": lambda **options: ShuffleLogisticRegression(classes=list(range(task.classes)), feature_norm=1.0, **options),
        "svm": lambda **options: ShuffleLinearSVC(classes=[0, 1], feature_norm=1.0, **options),
        "ridge": lambda **options: ShuffleRidge(target_range=(-1.0, 1.0), feature_norm=1.0, method="rounds", **options),
    }
    return kinds[task.loss](
        fit_intercept=False, rule="plain", epsilon=epsilon, delta=delta, **options, **setting
    )  # the rows have a constant of their own


def croupier(**options: str) -> Callable[..., Fit]:
    """A fit by Croupier's estimators."""

    def fit(task: Task, epsilon: float, delta: float, setting: Setting, seed: int) -> Fit:
        model = estimator(task, epsilon, delta, setting, **options).set_params(random_state=seed)
        begun = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotPrivateWarning)
            warnings.simplefilter("ignore", MostlyNoiseWarning)
            model.fit(task.X, task.y)
        seconds = time.perf_counter() - begun
        return Fit(model.result_.theta, seconds, model.result_.bits_per_user, model.result_.rounds)

    return fit


def simulated(**options: str) -> Callable[..., Fit]:
    """The same schedule with Gaussian noise of the plan's variance in place of the protocol: its noise without its bits."""

    def fit(task: Task, epsilon: float, delta: float, setting: Setting, seed: int) -> Fit:
        model = estimator(task, epsilon, delta, setting, **options)
        begun = time.perf_counter()
        schedule = model.plan(len(task.X), task.X.shape[1])
        problem = model.problem_for(task.X.shape[1])
        theta = acsa(
            noisy_oracle(task, schedule, seed),
            problem.domain.project,
            np.zeros(task.dim),
            schedule.rounds,
            schedule.phases[0].damping,
        )
        return Fit(theta, time.perf_counter() - begun, schedule.bits_per_user, schedule.rounds)

    return fit


def noisy_oracle(task: Task, schedule: Schedule, seed: int) -> Callable[[Floats], Floats]:
    """The mean gradient over the next batch as a round would give it, with a Gaussian's noise."""
    (phase,) = schedule.phases
    rng = np.random.default_rng(seed)
    if schedule.interactivity == "full":
        batches = iter([EVERYONE] * phase.rounds)
    elif phase.lots is not None:  # every user draws its own round
        lots = rng.integers(phase.rounds, size=len(task.X))
        batches = iter(np.split(np.argsort(lots, kind="stable"), np.cumsum(np.bincount(lots, minlength=phase.rounds))[:-1]))
    else:
        batches = iter(np.split(rng.permutation(len(task.X))[: phase.rounds * phase.batch], phase.rounds))

    def gradient(theta: Floats) -> Floats:
        total = clipped_sum(task, next(batches), theta, phase.plan.norm, phase.smoothing)
        return (total + phase.plan.noise_std * rng.standard_normal(task.dim)) / phase.mean_of

    return gradient


# --- gradients ---


def slopes_of(task: Task, rows: Floats, targets: Floats, theta: Floats, clip: float, smoothing: float | None = None) -> Floats:
    """One row per user, so that the outer product with its features is its gradient, clipped. With `smoothing`, of the envelope."""
    scores = (rows @ theta.reshape(task.outputs, -1).T.astype(rows.dtype)).astype(np.float64)
    scores = scores[:, 0] if task.outputs == 1 else scores
    if smoothing is None:
        slopes = task.model.slope(scores, targets)
    else:
        slopes = task.model.prox_slope(scores, targets, np.full(len(rows), 1 / smoothing))
    slopes = slopes.reshape(len(rows), task.outputs)
    return slopes * np.minimum(1.0, clip / np.maximum(np.linalg.norm(slopes, axis=1, keepdims=True), 1e-300))


def clipped_sum(task: Task, batch: Floats | slice, theta: Floats, clip: float, smoothing: float | None = None) -> Floats:
    """The sum of these rows' gradients, each clipped to a length."""
    rows = task.X[batch]
    slopes = slopes_of(task, rows, task.targets[batch], theta, clip, smoothing)
    return np.asarray(slopes.T.astype(rows.dtype) @ rows, dtype=np.float64).ravel()


def accelerated(oracle: Callable[[Floats], Floats], dim: int, rounds: int, step: float) -> Floats:
    """Nesterov's method with its usual momentum (t - 1) / (t + 2)."""
    theta = before = np.zeros(dim)
    for t in range(1, rounds + 1):
        ahead = theta + (t - 1) / (t + 2) * (theta - before)
        theta, before = ahead - step * oracle(ahead), theta
    return theta


# --- a trusted curator: full-batch gradient descent with the analytic Gaussian mechanism ---


def central(task: Task, epsilon: float, delta: float, setting: Setting, seed: int) -> Fit:
    """DP-GD: every round adds N(0, std^2) to the sum of all clipped gradients, whose replace-one sensitivity is 2 clip."""
    begun, rng = time.perf_counter(), np.random.default_rng(seed)
    std = central_noise_std(epsilon, delta, 2 * task.clip, setting["rounds"])

    def gradient(theta: Floats) -> Floats:
        return (clipped_sum(task, EVERYONE, theta, task.clip) + std * rng.standard_normal(task.dim)) / len(task.X)

    theta = accelerated(gradient, task.dim, setting["rounds"], setting["step"])
    return Fit(theta, time.perf_counter() - begun, rounds=setting["rounds"])


# --- local privacy: PrivUnit ---


@dataclass(frozen=True)
class PrivUnit:
    """Bhowmick et al. 2018: a unit vector becomes a random one: of the cap around it with probability `inside`, else of the rest.

    `below` is the share of the sphere outside the cap {v: <v, u> >= height}. Its density takes two values, inside / (1 - below) and
    (1 - inside) / below, whose ratio is e^epsilon: pure epsilon-DP, whatever is sent. The mean of v is `shrink` u.
    """

    dim: int
    inside: float
    below: float

    @classmethod
    def best(cls, epsilon: float, dim: int) -> PrivUnit:
        """The cap that keeps most of u, as in Asi, Feldman and Talwar 2022."""

        def at(logit: float) -> PrivUnit:
            return cls(dim, float(expit(logit)), float(expit(epsilon - logit)))

        found = minimize_scalar(lambda logit: -at(logit).shrink, bounds=(0.0, epsilon), method="bounded", options={"xatol": 1e-9})
        return at(float(found.x))

    @property
    def log_ratio(self) -> float:
        """epsilon, from the two densities."""
        return math.log(self.inside / (1 - self.below)) - math.log((1 - self.inside) / self.below)

    @property
    def height(self) -> float:
        """(1 + <v, u>) / 2 is Beta((dim - 1) / 2, (dim - 1) / 2) for uniform v."""
        return float(2 * betaincinv((self.dim - 1) / 2, (self.dim - 1) / 2, self.below) - 1)

    @property
    def shrink(self) -> float:
        upper = (1 - self.height**2) ** ((self.dim - 1) / 2) / (self.dim - 1) / math.exp(betaln(0.5, (self.dim - 1) / 2))
        return upper * (self.inside / (1 - self.below) - (1 - self.inside) / self.below)

    def heights(self, rng: np.random.Generator, count: int) -> Floats:
        """<v, u> of so many users, by rejection from the uniform law."""
        wanted = rng.random(count) < self.inside
        drawn = np.empty(count)
        for inside in (True, False):
            kept, need = np.empty(0), int((wanted == inside).sum())
            while len(kept) < need:
                some = 2 * rng.beta((self.dim - 1) / 2, (self.dim - 1) / 2, size=2 * need + 100) - 1
                kept = np.append(kept, some[(some >= self.height) == inside])
            drawn[wanted == inside] = kept[:need]
        return drawn

    def send(self, rng: np.random.Generator, units: Floats) -> Floats:
        """One message per row, unbiased for the row."""
        heights = self.heights(rng, len(units))[:, np.newaxis]
        across = rng.standard_normal(units.shape, dtype=units.dtype)
        across -= np.einsum("ij,ij->i", across, units)[:, np.newaxis] * units
        across *= np.sqrt(1 - heights**2) / np.linalg.norm(across, axis=1, keepdims=True)
        return (heights * units + across) / self.shrink


def local(task: Task, epsilon: float, delta: float, setting: Setting, seed: int) -> Fit:
    """One pass over the users in a few large batches; each sends its clipped gradient through PrivUnit, once."""
    begun, rng = time.perf_counter(), np.random.default_rng(seed)
    mechanism = PrivUnit.best(epsilon, task.dim)
    batches = iter(np.array_split(rng.permutation(len(task.X)), setting["rounds"]))

    def gradient(theta: Floats) -> Floats:
        batch = next(batches)
        parts = np.array_split(batch, max(1, len(batch) * task.dim // _LOCAL_ENTRIES))
        return sum(messages(task, part, theta, mechanism, rng).sum(axis=0, dtype=np.float64) for part in parts) / len(batch)

    theta = accelerated(gradient, task.dim, setting["rounds"], setting["step"])
    return Fit(theta, time.perf_counter() - begun, bits=32 * task.dim, rounds=setting["rounds"])


def messages(task: Task, users: Floats, theta: Floats, mechanism: PrivUnit, rng: np.random.Generator) -> Floats:
    """What these users send: one row each, unbiased for the user's clipped gradient.

    A gradient shorter than the clip becomes a unit vector of its direction or of the opposite one, with the right mean.
    """
    rows = task.X[users]
    slopes = slopes_of(task, rows, task.targets[users], theta, task.clip)
    lengths = np.linalg.norm(slopes, axis=1, keepdims=True)
    directions = np.where(lengths > 0, slopes / np.maximum(lengths, 1e-300), task.outputs**-0.5)
    signs = np.where(rng.random(lengths.shape) < (1 + lengths / task.clip) / 2, 1.0, -1.0)
    units = np.einsum("ik,ij->ikj", (signs * directions).astype(rows.dtype), rows).reshape(len(rows), -1)
    return task.clip * mechanism.send(rng, units)


# --- peers in virtual environments of their own ---


class Peer:
    """A process of `foreign.py` under a peer's own Python: one line of JSON asks for a fit, one line answers."""

    def __init__(self, python: str) -> None:
        beside_others = multiprocessing.parent_process() is not None
        self.process = subprocess.Popen(
            [python, str(HERE / "foreign.py")],
            stdin=subprocess.PIPE,  # it ends when this is closed
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | ({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} if beside_others else {}),
        )

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        questions, answers = self.process.stdin, self.process.stdout
        assert questions is not None
        assert answers is not None
        try:
            print(json.dumps(request), file=questions, flush=True)
            answer: dict[str, Any] = json.loads(answers.readline() or '{"error": "its process has ended"}')
        except BrokenPipeError:
            raise NotAvailableError("its process has ended") from None
        if "error" in answer:
            raise NotAvailableError(answer["error"])
        return answer


@lru_cache
def _peer(python: str, owner: int) -> Peer:
    """One for each process that asks: a fork has its parent's pipes."""
    return Peer(python)


def for_replacement(epsilon: float, delta: float) -> tuple[float, float]:
    """What must hold for one addition or removal, so that (epsilon, delta) holds for an exchange, which is one of each."""
    return epsilon / 2, delta / (1 + math.exp(epsilon / 2))


def peer(name: str, relation: str = "add/remove") -> Callable[..., Fit]:
    """A fit by `name` in `foreign.py`, at the epsilon asked for in its own relation or, by group privacy, in replace-one."""

    def fit(task: Task, epsilon: float, delta: float, setting: Setting, seed: int) -> Fit:
        if relation == "replace-one":
            epsilon, delta = for_replacement(epsilon, delta)
        python = PYTHONS.get(name, "no virtual environment was made")
        if not Path(python).exists():
            raise NotAvailableError(python)
        about = {"loss": task.loss, "outputs": task.outputs, "clip": task.clip, "folder": str(task.folder)}
        answer = _peer(python, os.getpid()).ask(
            {"peer": name, **about, "epsilon": epsilon, "delta": delta, "seed": seed, **setting}
        )
        return Fit(np.asarray(answer["theta"]), answer["seconds"], rounds=answer.get("rounds"), cpu=answer["cpu"])

    return fit


def make_environments(folder: Path, names: tuple[str, ...] = ("opacus", "diffprivlib")) -> dict[str, str]:
    """A virtual environment each, made on first use from its requirements file; the Python of each, or why there is none."""
    found = {}
    for name in names:
        listed, python, stamp = HERE / f"requirements-{name}.txt", folder / name / "bin" / "python", folder / name / "made-from.txt"
        try:
            wanted = listed.read_text()
            if not stamp.exists() or stamp.read_text() != wanted:
                create = [sys.executable, "-m", "venv", "--clear", str(folder / name)]
                install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
                for command in (create, [*install, "-r", str(listed)]):
                    subprocess.run(command, check=True, capture_output=True, text=True)
                stamp.write_text(wanted)
            found[name] = str(python)
        except (subprocess.CalledProcessError, OSError) as error:
            text = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
            found[name] = f"its virtual environment could not be made ({text[-1] if text else error})"
    return found
