"""`croupier predict`: a model's predictions for the records of a file, batch by batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import typer
from numpy.typing import NDArray
from pyarrow import parquet
from rich.console import Console
from rich.table import Table

from ..estimator import PrivacyAccount, load_model
from ..estimator.account import is_account
from ..files import write_whole, written_whole
from ..privacy._statements import certified_line
from ..report import html_report
from ..report._intervals import summaries_of
from ..report._tables import coefficient_lines, described_lines, promise_lines, schema_facts
from ..table import Schema, TableModel, evaluate_table, predict_table
from ..table._encode import Encoder
from ..table._read import Dialect, Source
from ..table.apply import evaluate_privately, prediction_columns, read_table
from ..table.model import INTERVALS
from ..validation import ArgumentError, Found
from .fit import model_figures
from .terminal import Decimal, Encoding, Sep, Shown, check_output, messages, named_as_options, say, warnings_said

Write = Callable[[Any], None]


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="File from croupier fit.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="CSV or Parquet with the feature columns; no target needed.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A .csv or .parquet file; default: print CSV.")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Add a probability for every class.")] = False,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Predict for every row of DATA, in its order. Predictions cost no additional privacy."""
    table_model = TableModel.load(model)
    with named_as_options("proba"):
        columns = prediction_columns(table_model, proba=proba)
    if output is not None:
        if output.suffix not in (".csv", ".parquet"):
            raise ArgumentError("-o", str(output), "named .csv or .parquet", "The suffix chooses the format.")
        check_output(output, force)
    source, console, rows = Source(data, Dialect(sep, decimal, encoding)), messages(), 0
    watcher = Shown(console, shown=console.is_terminal and output is not None)
    predictions = predict_table(table_model, source, proba=proba, watcher=watcher)
    with _writer(output, columns) as write:
        for batch in predictions:
            write(batch)
            rows += len(batch)
    if output is not None:
        say(console, f"Wrote {rows:,} predictions to {output}.")


@contextmanager
def _writer(output: Path | None, columns: Any) -> Iterator[Write]:
    """Writes batches of predictions to a file that appears when it is complete, or to standard output."""
    if output is None:
        _print(pa.record_batch([pa.array([], field.type) for field in columns], schema=columns), header=True)
        yield lambda batch: _print(batch, header=False)
        return
    with written_whole(output) as part:
        kind = parquet.ParquetWriter if output.suffix == ".parquet" else arrow_csv.CSVWriter
        with kind(part, columns) as file:
            yield file.write_batch if output.suffix == ".parquet" else file.write


def _print(batch: Any, header: bool) -> None:
    text = pa.BufferOutputStream()
    arrow_csv.write_csv(batch, text, arrow_csv.WriteOptions(include_header=header))
    typer.echo(text.getvalue().to_pybytes().decode(), nl=False)


# `croupier evaluate`: how well a model does on people it has not seen, compared with the best constant answer.

_REMINDER = (
    "NOT PRIVATE: these scores reveal something about the people in this file, and the model's guarantee does not cover them. Do"
    " not publish them. With --epsilon the scores are private and have error bars."
)


def evaluate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="File from croupier fit.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="CSV or Parquet with the feature columns and the target.")],
    epsilon: Annotated[
        float | None, typer.Option(help="Evaluate privately, with this privacy loss per person in DATA; without it, NOT private.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="With --epsilon. Default: 1e-6, or 0.1 / users if that is less.")] = None,
    honest: Annotated[float, typer.Option(help="With --epsilon: fraction of people trusted to add their noise.")] = 1.0,
    account: Annotated[
        Path | None, typer.Option(help="With --epsilon: file that records the privacy spent on these people.")
    ] = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Score a model's predictions against the truth, next to the best constant answer.

    With --epsilon: in one private round, with error bars. Without it: exact scores, NOT private.
    """
    table_model, source, console = TableModel.load(model), Source(data, Dialect(sep, decimal, encoding)), messages()
    watcher = Shown(console, shown=console.is_terminal and not as_json)
    if epsilon is not None:
        counted = None if account is None else PrivacyAccount(account)
        with named_as_options("epsilon", "delta", "honest"):
            scores = evaluate_privately(
                table_model, source, epsilon=epsilon, delta=delta, honest=honest, account=counted, watcher=watcher
            )
        if as_json:
            typer.echo(json.dumps(scores.to_dict(), indent=2))
        else:
            say(Console(), f"{table_model.task} of {table_model.schema.target.column!r}")
            typer.echo(str(scores))
        return
    for name, given, default in (("--delta", delta, None), ("--account", account, None), ("--honest", honest, 1.0)):
        if given != default:
            found = Found(f"= {given} has no meaning without --epsilon")
            raise ArgumentError(name, found, "left out", "Add --epsilon: without it the scores are not private.")
    comparison = evaluate_table(table_model, source, watcher=watcher)
    if as_json:
        plain = {"rows": comparison.rows} | comparison.scores
        typer.echo(json.dumps(plain | {"constant answer": comparison.constant, "private": False}, indent=2))
    else:
        _show(table_model, comparison.scores, comparison.constant, comparison.rows)
    say(console, _REMINDER, "yellow")


def _show(model: TableModel, scores: dict[str, float], constant: dict[str, float], rows: int) -> None:
    console, table = Console(), Table()
    table.add_column("score")
    table.add_column("value", justify="right")
    table.add_column("constant answer", justify="right")
    for name, value in scores.items():
        table.add_row(name, f"{value:.4g}", f"{constant[name]:.4g}" if name in constant else "")
    say(console, f"{model.task} of {model.schema.target.column!r} on {rows:,} rows")
    console.print(table)


# `croupier report`: a model's promise as one HTML page, for readers who did not run the fit.

_EPSILONS = (0.1, 0.3, 1.0, 3.0, 8.0)


def report(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="File from croupier fit or an estimator's save().")],
    data: Annotated[
        Path | None, typer.Option(help="Public CSV or Parquet on which to compare with a model without privacy.")
    ] = None,
    data_is_public: Annotated[
        bool,
        typer.Option("--data-is-public", help="Declare that --data, and scores on it, are public: NOT covered by the guarantee."),
    ] = False,
    sweep: Annotated[bool, typer.Option("--sweep", help="Also fit on --data with other epsilons; takes a while.")] = False,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the page.")] = Path("report.html"),
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write one HTML file: the promise in plain words, how training went, noise, bits, and assumptions."""
    check_output(output, force)
    _check_options(data, data_is_public, sweep)
    (estimator, schema), console = load_any(model), messages()
    if schema is not None:
        estimator.feature_names_in_ = np.array(Encoder(schema).names, dtype=object)  # what the page calls the columns
    if data is not None and schema is None:
        remedy = "Only models from croupier fit have a schema; for others, pass the rows to html_report in Python."
        raise ArgumentError("--data", str(data), "left out for a model without a schema", remedy)
    X, y = (
        (None, None) if data is None or schema is None else _records(schema, Source(data, Dialect(sep, decimal, encoding)), console)
    )
    with warnings_said(console):
        page = html_report(
            estimator,
            X=X,
            y=y,
            data_is_public=data_is_public,
            title=title or ("What this model promises" if schema is None else f"A private model of {schema.target.column}"),
            epsilons=_EPSILONS if sweep else (),
            public_facts=schema_facts(schema) if schema else {},
            tables=[TableModel(schema, estimator).summary()] if schema and type(estimator) in INTERVALS.values() else (),
        )
    write_whole(output, page.encode())
    say(Console(), f"Report: {output}. Open it in a browser; it is one self-contained file.")


def _check_options(data: Path | None, data_is_public: bool, sweep: bool) -> None:
    if data is not None and not data_is_public:
        remedy = "No guarantee covers scores on private records: remove --data, or use public data and add --data-is-public."
        raise ArgumentError("--data", str(data), "declared public by --data-is-public", remedy)
    if data is None and (data_is_public or sweep):
        name = "--sweep" if sweep else "--data-is-public"
        raise ArgumentError(name, Found("needs --data"), "left out without it", "Name a public file with --data.")


def load_any(path: Path) -> tuple[Any, Schema | None]:
    """The estimator in a file, and its schema if croupier fit wrote it."""
    if is_account(path):
        raise ArgumentError("MODEL", Found(f"names an account, {str(path)!r}"), "a model", f"croupier show {path} explains it.")
    try:
        return load_model(path), None
    except (ArgumentError, OSError, UnicodeDecodeError) as problem:
        if isinstance(problem, ArgumentError) and problem.name != "model":
            raise  # an estimator's file, but one that cannot be trusted
        table_model = TableModel.load(path)
        return table_model.estimator, table_model.schema


def _records(schema: Schema, source: Source, console: Console) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """All rows and targets of a public file, in memory."""
    rows, targets = read_table(schema, source, watcher=Shown(console, shown=console.is_terminal))
    if len(targets) < 10:
        raise ArgumentError("--data", str(source.path), "at least 10 rows", "A comparison on fewer rows says nothing.")
    return rows, targets


# `croupier show`: what a model is and what it promises, in plain words.


def show(
    model: Annotated[
        Path, typer.Argument(metavar="FILE", help="A model, from croupier fit or an estimator's save(), or an --account file.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Explain a model (who can learn what, under which assumptions) or an account (what was spent on whom)."""
    if is_account(model):
        _show_account(PrivacyAccount(model), as_json)
        return
    estimator, schema = load_any(model)
    if schema is None:
        _show_estimator(estimator, as_json)
        return
    table_model = TableModel(schema, estimator)
    if as_json:
        described = {"schema": table_model.schema.to_dict(), "explained": "\n".join(table_model.estimator._explained())}
        typer.echo(json.dumps(model_figures(table_model, model) | described, indent=2))
        return
    console = Console()
    facts = table_model.schema
    users = f"{table_model.estimator.n_users_:,} users"
    say(console, f"{table_model.task} of {facts.target.column!r} from {', '.join(facts.columns)}; {users}")
    promises = [*promise_lines(table_model.estimator, with_watched=False), *described_lines(facts, table_model.estimator)]
    if table_model.task in INTERVALS:
        typer.echo(f"\n{table_model.summary()}\n")
    elif lines := coefficient_lines(table_model.estimator, facts):
        typer.echo("\n".join(["", *lines, ""]))
    for line in [*promises, "", *table_model.estimator._explained()]:
        say(console, line)


def _show_account(account: PrivacyAccount, as_json: bool) -> None:
    """What was spent, release by release, and what it comes to for whom."""
    if as_json:
        typer.echo(json.dumps(account.to_dict(), indent=2))
        return
    say(Console(), "Each release alone:")
    for number, spent in enumerate(account.fits, start=1):
        whom = "everybody" if spent.part is None else str(spent.part)
        promise = "NOT PRIVATE" if spent.guarantee is None else certified_line(spent.guarantee, delta=account.delta)
        say(Console(), f"{number}. {spent.what}, {spent.users:,} users (one per {spent.unit}), counts for {whom}: {promise}")
    say(Console(), f"In all: {account}")


def _show_estimator(estimator: Any, as_json: bool) -> None:
    """An estimator that was saved from Python: its tables of coefficients, where it has them, and what it promises."""
    tables = summaries_of(estimator)
    if as_json:
        rows = {"coefficients": [table.to_dict() for table in tables]} if tables else {}
        typer.echo(json.dumps({"kind": type(estimator).__name__, **rows, "explained": estimator.explain()}, indent=2))
        return
    for text in [*(f"{table}\n" for table in tables), estimator.explain()]:
        say(Console(), text)
