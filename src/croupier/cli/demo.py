"""`croupier demo`: training on a real population, compared with no privacy, a trusted curator and the local model."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast
from warnings import catch_warnings, simplefilter

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.linear_model import LogisticRegression

from ..estimator import ShuffleLogisticRegression, WeakPrivacyWarning
from ..files import write_whole
from ..optimizer import Schedule
from ..optimizer.result import Round
from ..optimizer.training import run
from ..population import ArrayPopulation
from ..population.population import Question
from ..privacy import SumPlan
from ..privacy._statements import guarantee_line, round_up, watched_line
from ..problem import Problem
from ..protocol import SumEstimate
from ..report import central, html_report, local
from ..report.baselines import simulate_central, simulate_local
from ..report.compare import Comparison, Method, course, scores
from ..table._datasets import Dataset, flights, synthetic
from ..validation import ArgumentError, real, whole
from .demo_deployed import demo_deployed
from .terminal import messages, say, warnings_said

Floats = NDArray[np.float64]
# All methods minimise the log-loss itself: gradients are not clipped below their bound. 50 is the estimator's own choice.
Interactivity = Literal["sequential", "full"]
_PARAMETERS: dict[str, Any] = {"clip": 2.0, "radius": 50.0, "feature_norm": 1.0, "fit_intercept": False}
# Full interactivity would take 100 rounds; these give nearly the same model in two fifths of the time and bits.
_FULL_ROUNDS = 40
_SWEEP = (0.1, 0.3, 1.0, 3.0, 8.0)
_EXCESS = "Excess loss is how far the log-loss on the whole population is above the least that any weights have. "


def demo(
    epsilon: Annotated[float, typer.Option(help="Privacy loss epsilon.")] = 1.0,
    delta: Annotated[float, typer.Option(help="delta of the guarantee.")] = 1e-6,
    synthetic_: Annotated[
        bool,
        typer.Option("--synthetic", help="Use a generated population, whose population loss is known; needs no extra package."),
    ] = False,
    users: Annotated[
        int | None, typer.Option(help="People to generate (100 000), flights to take (all), or clients to start (300).")
    ] = None,
    by_plane: Annotated[
        bool, typer.Option("--by-plane", help="Treat each plane with all its flights as a user, instead of each flight.")
    ] = False,
    deployed: Annotated[
        bool, typer.Option("--deployed", help="Start an analyzer, a shuffler and 300 clients on this machine, and train over TLS.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File for the report; default: croupier-demo-report.html.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Train on 261 807 real flights as if each were a person's secret, compare, and write a report; under two minutes."""
    real("epsilon", epsilon, above=0, at_most=100, remedy="1 is a strong promise, 4 a moderate one.")
    if deployed:
        for option, value in {"--synthetic": synthetic_, "--by-plane": by_plane, "--output": output}.items():
            if value:
                raise ArgumentError(
                    option, str(value), "left out with --deployed", "That demo has its own synthetic people and writes no report."
                )
        demo_deployed(users, epsilon, delta, as_json)
        return
    output = output or Path("croupier-demo-report.html")
    if users is not None:
        whole("users", users, at_least=1000, at_most=10**7, remedy="With fewer people the noise would hide everything.")
    if synthetic_ and by_plane:
        raise ArgumentError("--by-plane", True, "left out with --synthetic", "Generated people have no planes.")
    console = messages()
    shown = console.is_terminal and not as_json
    with _bar(console, shown) as bar, warnings_said(console):
        bar("reading", None)
        task = synthetic(users or 100_000) if synthetic_ else flights(users, by_plane)
        model, comparison = _compare(task, {"epsilon": epsilon, "delta": delta}, bar)
        bar("writing the report", None)
        page = html_report(model, data_is_public=True, title=task.title, public_facts=task.facts, comparison=comparison)
    write_whole(output, page.encode())
    if as_json:
        methods = [asdict(method) for method in comparison.methods]
        typer.echo(json.dumps({"about": task.about, "users": task.users, "methods": methods, "report": str(output)}, indent=2))
    else:
        _show(task, model, comparison, output)


# Called with what comes next and of how many rounds; returns what is to be called after each.
Bar = Callable[[str, int | None], Callable[[Round], None]]


@contextmanager
def _bar(console: Console, shown: bool) -> Iterator[Bar]:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not shown, transient=True) as progress:
        task = progress.add_task("", total=None)

        def begin(name: str, rounds: int | None) -> Callable[[Round], None]:
            progress.update(task, description=name, total=rounds, completed=0)
            return lambda done: progress.update(task, completed=done.index)

        yield begin


def _compare(task: Dataset, promise: dict[str, Any], bar: Bar) -> tuple[ShuffleLogisticRegression, Comparison]:
    """Every method on the same people; returns the sequential model and the comparison."""
    maker = _Maker(task, promise, bar)
    constant = maker.constant()
    plain = maker.without_privacy()
    curator = maker.simulated("central DP, full", "full", central, simulate_central)
    full, _ = maker.private("Croupier, full", "full")
    sequential, model = maker.private("Croupier, sequential", "sequential")
    alone = maker.simulated("local DP, sequential", "sequential", local, simulate_local)
    comparison = Comparison(
        metric="accuracy",
        rows=len(task.y_test),
        methods=(constant, plain, curator, full, sequential, alone),
        course=course(model, task.X_test[:20_000], task.y_test[:20_000]),
        sweep=maker.sweep(model),
        note=f"{task.about} Without privacy: scikit-learn's LogisticRegression. The curator and the local model are simulated on "
        f"the schedules of Croupier's own runs, with steps for their noise. {_EXCESS if task.excess else ''}The rest of this page "
        f"is about the sequential model.",
    )
    return model, comparison


class _Maker:
    """Makes the rows of the table, one method each."""

    def __init__(self, task: Dataset, promise: dict[str, Any], bar: Bar) -> None:
        self.task, self.promise, self.bar = task, promise, bar
        self.dim = int(task.X.shape[1])
        self.problem = self.estimator("sequential").problem_for(self.dim)

    def estimator(self, interactivity: Interactivity, **changes: Any) -> ShuffleLogisticRegression:
        rounds = _FULL_ROUNDS if interactivity == "full" else None
        parameters = {**_PARAMETERS, **self.promise, "classes": list(self.task.classes), "rounds": rounds, **changes}
        return ShuffleLogisticRegression(interactivity=interactivity, **parameters)

    def private(self, name: str, interactivity: Interactivity, **changes: Any) -> tuple[Method, ShuffleLogisticRegression]:
        """A fit of Croupier's."""
        model = self.estimator(interactivity, **changes)
        model.callbacks = (self.bar(name, model.plan(self.task.users, self.dim).rounds),)
        begun = time.perf_counter()
        model.fit(self.task.X, self.task.y, groups=self.task.groups)
        seconds = time.perf_counter() - begun
        model.callbacks = ()
        bits = model.schedule_.bits_per_user
        method = self._method(name, model.coef_[0], seconds, model.epsilon, "a shuffler", bits)
        return replace(method, kind="ours"), model

    def simulated(self, name: str, interactivity: Interactivity, baseline: Any, mechanism: Any) -> Method:
        """The same schedule with another mechanism's noise, and steps that suit this noise."""
        chosen = self.estimator(interactivity, lots="open").plan(self.task.users, self.dim)
        other = baseline(chosen.phases[0].plan)
        people = _Simulated(self.task.X, self.task.y == self.task.classes[1], groups=self.task.groups)
        people.mechanism, people.once = mechanism, mechanism is simulate_central
        tell = self.bar(name, chosen.rounds)
        begun = time.perf_counter()
        tuned = _with_noise(chosen, self.problem, other.noise_std)
        result = run(self.problem, people, tuned, start=self.problem.domain.start(), callbacks=(tell,))
        seconds = time.perf_counter() - begun
        bits = other.bits_per_coordinate * self.dim  # a curator is sent the record; the local model asks each user once
        return self._method(name, result.theta, seconds, self.promise["epsilon"], other.trust, bits)

    def without_privacy(self) -> Method:
        self.bar("without privacy", None)
        begun = time.perf_counter()
        plain = LogisticRegression(C=100.0, max_iter=500, fit_intercept=False).fit(self.task.X, self.task.y == self.task.classes[1])
        seconds = time.perf_counter() - begun
        method = self._method("without privacy", plain.coef_[0], seconds, None, "a curator", 64 * self.dim)
        return replace(method, kind="reference")

    def constant(self) -> Method:
        """The more frequent class for everybody."""
        share = float(np.mean(self.task.y == self.task.classes[1]))
        right = self.task.y_test == self.task.classes[1]
        loss = float(-np.mean(np.where(right, math.log(share), math.log(1 - share))))
        return Method("best constant answer", self._scores(right == (share > 0.5), loss, np.zeros(self.dim)), kind="reference")

    def sweep(self, model: ShuffleLogisticRegression) -> tuple[tuple[float, float], ...]:
        """Accuracy over epsilon of sequential fits; the model's own at its epsilon."""
        models = {model.epsilon: model}
        with catch_warnings():
            simplefilter("ignore", WeakPrivacyWarning)  # of points of a curve; the demo's own fit warns
            for epsilon in _SWEEP:
                if epsilon not in models:
                    models[epsilon] = self.private(f"epsilon {round_up(epsilon)}", "sequential", epsilon=epsilon)[1]
        return tuple(
            (epsilon, scores(models[epsilon], self.task.X_test, self.task.y_test)["accuracy"]) for epsilon in sorted(models)
        )

    def _scores(self, right: NDArray[np.bool_], loss: float, theta: Floats) -> dict[str, float]:
        """Accuracy, and the loss of the whole population where it is known, otherwise that of the records to be judged by."""
        accuracy = {"accuracy": float(np.mean(right))}
        return accuracy | ({"log-loss": loss} if self.task.excess is None else {"excess loss": self.task.excess(theta)})

    def _method(self, name: str, theta: Floats, seconds: float, epsilon: float | None, trust: str, bits: int) -> Method:
        margin = (self.task.X_test @ theta) * np.where(self.task.y_test == self.task.classes[1], 1.0, -1.0)
        found = self._scores(margin > 0, float(np.mean(np.logaddexp(0.0, -margin))), theta)
        return Method(name, found, epsilon=epsilon, trust=trust, bits_per_user=bits, seconds=seconds)


class _Simulated(ArrayPopulation):
    """Users whose sum gets another mechanism's noise: for comparison, never for release."""

    mechanism: Callable[[Floats, SumPlan, np.random.Generator], Floats]
    once = False  # one draw for the whole sum, as a curator does, or one for everybody
    rng = np.random.default_rng(0)

    def answer(self, question: Question) -> SumEstimate:
        plan = question.plan
        total = np.zeros(plan.dim)
        for vectors in self.shard.vectors(question):
            total += vectors.sum(axis=0) if self.once else self.mechanism(vectors, plan, self.rng)
        if self.once:
            total = self.mechanism(total[np.newaxis], plan, self.rng)
        return SumEstimate(sum=total, users=question.size, noise_std=plan.noise_std, guarantee=None)


def _with_noise(chosen: Schedule, problem: Problem, noise_std: float) -> Schedule:
    """The schedule with AC-SA's damping for another noise: 2 beta + c sigma, where sigma is the error of a mean gradient."""
    (phase,) = chosen.phases
    curvature = 2 * (problem.usual_smoothness or 0.0)
    extra = problem.dim * (noise_std**2 - phase.plan.noise_std**2) / phase.mean_of**2
    times = math.sqrt(max(0.0, phase.gradient_std**2 + extra)) / phase.gradient_std
    return replace(chosen, phases=(replace(phase, damping=curvature + (cast(float, phase.damping) - curvature) * times),))


def _show(task: Dataset, model: ShuffleLogisticRegression, comparison: Comparison, output: Path) -> None:
    console = Console()
    say(console, f"\n{task.about}\n")
    say(
        console,
        f"Six ways to learn it from the same {task.users:,} people, scored on {comparison.rows:,} others "
        f"(delta {round_up(model.promise_.delta)}):",
    )
    console.print(_table(comparison))
    console.print()
    if model.guarantee_ is not None:
        say(
            console,
            "A curator sees every record; a shuffler only mixes noisy bits; local DP trusts nobody. Full: everyone is asked in "
            "every round. Sequential: each person is asked once.\n",
        )
        say(console, f"The sequential fit promises: {guarantee_line(model.guarantee_, model.epsilon, model.promise_.delta)}.")
        if model.guarantee_.watched:
            line = watched_line(model.guarantee_, model.promise_.delta)
            say(console, f"To an attacker who also knows when each person answered: {line}.")
        say(console, "This data is public, so several fits are fine; on private data every fit spends more privacy.", "dim")
    say(console, f"\nReport: {output}. Open it in a browser; it is one self-contained file.")
    say(console, "Next, your own table in ten minutes: croupier example clinic, then docs/tutorial.md.", "dim")


def _table(comparison: Comparison) -> Table:
    names = list(comparison.methods[0].scores)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="underline")
    for name in ("method", *names, "epsilon", "must trust", "bits per user", "seconds"):
        table.add_column(
            name, justify="left" if name in ("method", "must trust") else "right", no_wrap=name in ("method", "must trust")
        )
    for method in comparison.methods:
        table.add_row(
            method.name,
            *(f"{100 * method.scores[name]:.2f} %" if name == "accuracy" else f"{method.scores[name]:.4f}" for name in names),
            "-" if method.epsilon is None else round_up(method.epsilon),
            method.trust,
            "-" if method.bits_per_user is None else f"{method.bits_per_user:,}",
            "-" if method.seconds is None else f"{method.seconds:.1f}",
            style="bold" if method.kind == "ours" else None,
        )
    return table
