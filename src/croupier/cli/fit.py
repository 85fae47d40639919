"""`croupier fit`: from a file of records and a schema to a model with a guarantee."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ..estimator import PrivacyAccount
from ..estimator._base import is_weak_if_watched
from ..estimator.intervals import WidthForecast
from ..optimizer import Result, Schedule
from ..optimizer.training import left_over
from ..population.population import UnreachableError
from ..privacy._statements import counted, watched_line
from ..report._tables import described_lines, promise_lines
from ..table import Schema, TableModel, draft, fit_table
from ..table._population import Engine
from ..table._read import Dialect, Source
from ..table.fit import CHECKING
from ..table.model import INTERVALS, TASKS
from ..validation import ArgumentError, Found, one_of
from .terminal import (
    Decimal,
    Encoding,
    Sep,
    Shown,
    Stopped,
    announced,
    check_output,
    class_weights,
    messages,
    named_as_options,
    say,
    warn_of_score,
    warnings_said,
)

# The exit code of a run that was stopped and left a model.
CUT_SHORT = 3


def fit(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="CSV or Parquet, a file or a folder of them.")],
    target: Annotated[str | None, typer.Option(help="Column to predict; default: the schema's.")] = None,
    schema: Annotated[Path | None, typer.Option(help="TOML file of public facts; see croupier schema.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the model.")] = Path("model.json"),
    task: Annotated[
        str | None, typer.Option(help=f"{', '.join((*TASKS, *INTERVALS))}; default: chosen by the schema's target.")
    ] = None,
    epsilon: Annotated[float, typer.Option(help="Privacy loss per user: 1 is a strong promise, 4 a moderate one.")] = 1.0,
    delta: Annotated[float | None, typer.Option(help="Default: 1e-6, or 0.1 / users if that is less.")] = None,
    interactivity: Annotated[
        str, typer.Option(help="sequential (each user is asked once) or full (everybody is asked in every round).")
    ] = "sequential",
    lots: Annotated[
        str,
        typer.Option(help="For sequential runs: secret (less noise), open, or auto (secret where possible)."),
    ] = "auto",
    user_column: Annotated[
        str | None, typer.Option(help="Column that identifies the person each row belongs to; otherwise each row is a person.")
    ] = None,
    honest: Annotated[float, typer.Option(help="Fraction of users trusted to add their noise.")] = 1.0,
    radius: Annotated[float | None, typer.Option(help="Largest norm of the weights.")] = None,
    rule: Annotated[
        str, typer.Option(help="practical; bound (has a proved bound on the loss); plain, centred, scaled or whitened.")
    ] = "practical",
    rounds: Annotated[int | None, typer.Option(help="Number of rounds; default: chosen by the rule.")] = None,
    max_inflation: Annotated[
        float | None,
        typer.Option(
            help="Noise relative to the least possible; more noise takes fewer bits. Default: 1.05, or if gradients are rotated "
            "chosen by the run's noise (docs/optimizer-theory.md)."
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="For --task regress-mean, linear or logit: moments (everybody at once), rounds, or auto (whichever is better)."
        ),
    ] = None,
    coef_bound: Annotated[
        float | None,
        typer.Option(
            help="For --task linear or logit: bound on every true coefficient, from the middle to the end of a column's range or "
            "against a reference level. Keeps every interval finite."
        ),
    ] = None,
    any_width: Annotated[
        bool,
        typer.Option("--any-width", help="For --task linear or logit: fit even if the forecast says that intervals are useless."),
    ] = False,
    quantile: Annotated[float | None, typer.Option(help="Quantile to predict, for --task quantile.")] = None,
    class_weight: Annotated[
        list[str] | None, typer.Option(help="CLASS=WEIGHT: a public weight for a rare class; repeatable.")
    ] = None,
    invalid: Annotated[
        str, typer.Option(help="refuse (stop at an invalid record) or blank (count it as a public default).")
    ] = "refuse",
    data_is_public: Annotated[
        bool, typer.Option("--data-is-public", help="Draft the schema from DATA itself. NOT private.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Reproducible randomness. NOT private.")] = None,
    engine: Annotated[str, typer.Option(help="local (this machine, streaming) or ray (a cluster; needs the extra ray).")] = "local",
    address: Annotated[str | None, typer.Option(help="Address of a running Ray cluster; default: a local one.")] = None,
    workers: Annotated[int | None, typer.Option(help="Ray workers; default: one per CPU.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="File that lets an interrupted run resume. SECRET until the run ends.")
    ] = None,
    work_dir: Annotated[
        Path | None, typer.Option(help="Folder for temporary rows during training (4 bytes per feature and row).")
    ] = None,
    account: Annotated[Path | None, typer.Option(help="File that records the privacy spent on these people.")] = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing model.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print warnings and errors only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Train a model on people's records, privately.

    Ctrl-C ends training after the current round and keeps the model so far (exit code 3); a second Ctrl-C discards it.
    """
    check_output(output, force)
    _check_checkpoint(checkpoint, output, data, schema)
    console = messages()
    shown = console.is_terminal and not (quiet or as_json)
    source = Source(data, Dialect(sep, decimal, encoding))
    facts = _facts(source, schema, target, user_column, data_is_public, console)
    parameters: dict[str, Any] = {
        "epsilon": epsilon,
        "honest": honest,
        "random_state": seed,
        "data_is_public": data_is_public,
        "invalid": invalid,
    }
    interactivity = one_of("--interactivity", interactivity, ("sequential", "full"), "'full' asks everybody in every round.")
    of_rounds = {"interactivity": interactivity, "lots": lots, "rule": rule, "rounds": rounds, "radius": radius}
    parameters |= _of_rounds(task, **of_rounds, max_inflation=max_inflation)
    parameters |= _only_for(task, "quantile", quantile=quantile)
    parameters |= _only_for(task, "regress-mean", *INTERVALS, method=method)
    parameters |= _only_for(task, *INTERVALS, coef_bound=coef_bound)
    _only_for(task, *INTERVALS, any_width=any_width or None)
    parameters |= {} if account is None else {"account": PrivacyAccount(account)}
    parameters |= class_weights(class_weight or (), facts)
    options = named_as_options(
        "task",
        "epsilon",
        "honest",
        "lots",
        "rule",
        "invalid",
        "radius",
        "checkpoint",
        "rounds",
        "max_inflation",
        "delta",
        "engine",
        "work_dir",
        "address",
        "workers",
        "user_column",
        "coef_bound",
    )
    with options, warnings_said(console), announced(console, not (quiet or as_json)):
        model = fit_table(
            source,
            facts,
            task=task,
            delta=delta,
            engine=Engine(engine, work_dir, address, workers),
            checkpoint=checkpoint,
            watcher=_Watching(console, shown, checkpoint, told=not (quiet or as_json), any_width=any_width),
            **parameters,
        )
    model.save(output)
    stopped = _stopped(model)
    if checkpoint is not None and not stopped:
        checkpoint.resolve().unlink(missing_ok=True)
    if as_json:
        typer.echo(json.dumps(model_figures(model, output), indent=2))
    elif not quiet:
        _tell(model, output, checkpoint, Console())
    if stopped:
        raise typer.Exit(CUT_SHORT)


def _check_checkpoint(checkpoint: Path | None, *others: Path | None) -> None:
    """It is deleted in the end: refuse a file that is something else."""
    if checkpoint is not None and checkpoint.resolve() in [other.resolve() for other in others if other is not None]:
        raise ArgumentError("--checkpoint", str(checkpoint), "a separate file", "It is deleted when the model is saved.")


def _facts(
    source: Source, path: Path | None, target: str | None, user: str | None, data_is_public: bool, console: Console
) -> Schema:
    """The schema: from its file, or from data that is declared to be public."""
    if path is not None and data_is_public:
        remedy = "The schema states the public facts; remove --data-is-public."
        raise ArgumentError("--data-is-public", Found("contradicts --schema"), "left out beside it", remedy)
    if path is not None:
        facts = Schema.load(path).with_user(user)
        if target not in (None, facts.target.column):
            remedy = f"Its classes or range are public facts too: state them under [target] in {path}, or remove --target."
            raise ArgumentError("--target", target, f"the schema's target, {facts.target.column!r}", remedy)
    elif data_is_public:
        if target is None:
            raise ArgumentError(
                "--target", Found("is required"), f"one of {', '.join(source.names)}", "Name the column to predict."
            )
        say(console, _PUBLIC_WARNING, "bold red")
        facts, notes, left_out = draft(source, target, user)
        warn_of_score(console, facts, notes, ", in a schema file that croupier schema drafts")
        for reason in left_out:
            say(console, f"warning: column left out, {reason}", "yellow")
    else:
        remedy = (
            f"Draft one from a public sample: croupier schema SAMPLE --target {shlex.quote(target or 'COLUMN')} -o schema.toml, "
            f"and read it; or describe DATA privately: croupier describe DATA --guess guess.toml --epsilon 0.5 -o schema.toml "
            f"(docs/tutorial.md). If the data is public, --data-is-public drafts the schema from it."
        )
        allowed = "a file of public facts (ranges, levels, classes), because no guarantee covers facts taken from the data"
        raise ArgumentError("--schema", Found("is required"), allowed, remedy)
    return facts


_PUBLIC_WARNING = (
    "warning: --data-is-public: ranges, levels and classes are taken from the data itself. No guarantee covers them, and the model "
    "will say so. Use this for public data only; otherwise draft a schema from a public sample."
)


def _of_rounds(task: str | None, **options: Any) -> dict[str, Any]:
    """The options of training by gradients; a regression with intervals has none of them."""
    usual = {"interactivity": "sequential", "lots": "auto", "rule": "practical"}
    if task not in INTERVALS:
        return {name: value for name, value in options.items() if value is not None or name != "radius"}
    for name, value in options.items():
        if value != usual.get(name):
            remedy = "The forecast plans its rounds, if it has any; --method moments or rounds chooses between them."
            raise ArgumentError(f"--{name.replace('_', '-')}", value, f"left out for --task {task}", remedy)
    return {}


def _only_for(task: str | None, *needed: str, **option: Any) -> dict[str, Any]:
    """An option that some tasks have, if it was given."""
    ((name, value),) = option.items()
    if value is None:
        return {}
    if task not in needed:
        tasks = " or ".join(needed)
        raise ArgumentError(
            f"--{name.replace('_', '-')}",
            value,
            f"left out, except with --task {tasks}",
            f"Remove it, or add --task {tasks} if it suits the target.",
        )
    return option


class _Watching(Shown):
    """Shows a fit; a run that leaves no model ends the command with what became of it."""

    def __init__(self, console: Console, shown: bool, checkpoint: Path | None, *, told: bool, any_width: bool) -> None:
        super().__init__(console, shown)
        self._checkpoint, self._told, self._any_width = checkpoint, told, any_width
        self._one_figure = "--interactivity full"

    def forecast(self, expected: WidthForecast) -> None:
        self._one_figure = "--method moments"  # a regression with intervals
        if expected.useless and not self._any_width:
            remedy = "Ask more people, use fewer columns or a larger --epsilon, or leave --task out for a model without intervals"
            raise Stopped(f"refused, nothing was spent: {expected} {remedy}; --any-width fits anyway.", 2)
        if self._told:
            say(self._console, str(expected), "dim")

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        try:
            with super().waiting(what):
                yield
        except (KeyboardInterrupt, UnreachableError) as stop:
            if what == CHECKING:
                raise self._stopped(stop, 0) from None
            if isinstance(stop, KeyboardInterrupt):
                raise
            raise Stopped(f"{stop}. No model was saved.", 1) from None

    @contextmanager
    def training(self, schedule: Schedule, delta: float) -> Iterator[None]:
        guarantee = schedule.guarantee
        if self._told and guarantee.watched is not None and not is_weak_if_watched(guarantee, delta):  # else a warning has said it
            known = f"To an attacker who also knows when each user answered: {watched_line(guarantee, delta)}."
            say(self._console, f"{known} {self._one_figure} has one figure for both.", "dim")
        try:
            with super().training(schedule, delta):
                yield
        except (KeyboardInterrupt, UnreachableError) as stop:
            result: Result | None = getattr(stop, "result", None)
            raise self._stopped(stop, 0 if result is None else result.rounds) from None

    def _stopped(self, stop: BaseException, rounds: int) -> Stopped:
        return Stopped(_cut_off(stop, rounds, self._checkpoint), 130 if isinstance(stop, KeyboardInterrupt) else 1)


def _cut_off(stop: BaseException, rounds: int, checkpoint: Path | None) -> str:
    """What became of a run that left no model."""
    lost = f"{stop}. " if isinstance(stop, UnreachableError) else ""
    if checkpoint is not None:
        onward = f"The same command resumes from {checkpoint}, which is SECRET until the run ends; what it has spent stays spent."
    else:
        onward = "With --checkpoint FILE it could have resumed." if rounds else ""
    if rounds == 0:
        return f"{lost}Stopped before anybody answered; no model was saved. {onward}".strip()
    after = f"after {counted(rounds, 'round')}"
    said = f"{lost}Training ended {after}" if lost else f"discarded {after}, as requested"
    spent = "The progress bar showed figures of these rounds, so count the budget as spent."
    return f"{said}: no model was saved. {spent} {onward}"


def model_figures(model: TableModel, output: Path) -> dict[str, Any]:
    """What a fitted model is and promises, for programs."""
    estimator = model.estimator
    result, guarantee = getattr(estimator, "result_", None), estimator.guarantee_
    how: dict[str, Any] = {"users": estimator.n_users_, "users_asked": estimator.n_users_, "method": _method(estimator)}
    if result is not None:
        rounds = {"rounds": result.rounds, "rounds_planned": result.schedule.rounds, "stopped": result.stopped}
        how |= {"users_asked": _users_asked(result)} | rounds
    return {
        "model": str(output),
        "task": model.task,
        **({"classes": estimator.classes_.tolist()} if model.classifies else {}),
        "private": guarantee is not None,
        "epsilon": estimator.epsilon,
        "delta": estimator.delta,
        "guarantee": guarantee.to_dict() if guarantee else None,
        "if_watched": watched_line(guarantee, estimator.promise_.delta) if guarantee and guarantee.watched else None,
        "not_covered": list(estimator.read_off_data_),
        **({"coefficients": model.summary().to_dict()} if model.task in INTERVALS else {}),
    } | how


def _method(estimator: Any) -> str:
    """How the model was made: by an algorithm in rounds, from one round of moments, or in three groups."""
    result: Result | None = getattr(estimator, "result_", None)
    if result is not None:
        return result.method
    return "moments" if hasattr(estimator, "plan_") else "three groups"


def _stopped(model: TableModel) -> bool:
    """Whether training was cut short; what has no rounds cannot be."""
    result: Result | None = getattr(model.estimator, "result_", None)
    return result is not None and result.stopped


def _users_asked(result: Result) -> int:
    """How many users were asked; with secret lots everybody may have been, and nobody can say."""
    if result.schedule.secret_lots:
        return result.users
    return max(result.batch_sizes) if result.schedule.interactivity == "full" else sum(result.batch_sizes)


def _tell(model: TableModel, output: Path, checkpoint: Path | None, console: Console) -> None:
    result: Result | None = getattr(model.estimator, "result_", None)
    if result is None:
        say(console, f"Asked {model.estimator.n_users_:,} users. {model.estimator._asked_how()[1]}")
    else:
        say(console, f"Trained in {counted(result.rounds, 'round')} on {_people(result)}.")
    if model.classifies and model.task not in INTERVALS:
        say(console, model.estimator._speaks_for()[0])
    chosen = model.estimator._meaning() if hasattr(model.estimator, "method_") else []  # which way was taken, and why
    for line in [*chosen, *promise_lines(model.estimator), *described_lines(model.schema, model.estimator)]:
        say(console, line)
    if model.task in INTERVALS:
        typer.echo(f"\n{model.summary()}\n")
    if _stopped(model) and checkpoint is not None:
        say(console, f"To resume, run the same command with --force: its rounds are in {checkpoint}, SECRET until the run ends.")
    name = shlex.quote(str(output))
    say(console, f"Model: {output}. What it means: croupier show {name}")
    say(console, f"Next: croupier predict {name} NEW.csv -o predictions.csv, or croupier evaluate {name} TEST.csv", "dim")


def _people(result: Result) -> str:
    if result.schedule.secret_lots:
        return f"{result.users:,} users, each asked at most once (secret lots)"
    if result.schedule.interactivity == "sequential":
        return f"{sum(result.batch_sizes):,} of {result.users:,} users, each asked once{left_over(result.schedule, result.users)}"
    return f"{result.users:,} users, all asked in every round"
