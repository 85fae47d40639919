"""`croupier words`: texts that many people have; `croupier table`: joint counts of columns; `croupier choose`: the best model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..estimator import PrivacyAccount
from ..files import write_whole
from ..privacy import _statements as statements
from ..report.answers import answer_page
from ..statistics import Answer, HeavyHitters, ask
from ..statistics import Table as JointTable
from ..statistics.tables import facts_of
from ..table import Schema, TableModel
from ..table.apply import choose_table
from ..table.describe import table_of, texts_of
from ..table.read import Dialect, Source
from ..validation import ArgumentError
from .options import Decimal, Encoding, Sep, check_output, named_as_options
from .progress import Shown, messages, say
from .tables import pairs


def words(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="CSV or Parquet, a file or a folder of them.")],
    column: Annotated[str, typer.Option(help="Column of texts.")],
    epsilon: Annotated[float, typer.Option(help="Privacy loss of each person asked.")],
    delta: Annotated[float | None, typer.Option(help="Default: 1e-6, or 0.1 / users if that is less.")] = None,
    user_column: Annotated[
        str | None, typer.Option(help="Column that identifies the person each row belongs to; otherwise each row is a person.")
    ] = None,
    per_person: Annotated[int, typer.Option(help="How many texts per person count.")] = 1,
    max_bytes: Annotated[int, typer.Option(help="Longer texts are cut to this many bytes.")] = 32,
    cells: Annotated[int, typer.Option(help="Cells of the hash table, a power of two; more cells find more texts.")] = 1 << 15,
    mistakes: Annotated[float, typer.Option(help="Bound on the expected number of reported texts that nobody has.")] = 0.01,
    page: Annotated[Path | None, typer.Option("--html", help="File for an HTML page with charts.")] = None,
    honest: Annotated[float, typer.Option(help="Fraction of users trusted to add their noise.")] = 1.0,
    account: Annotated[Path | None, typer.Option(help="File that records the privacy spent on the people asked.")] = None,
    seed: Annotated[int | None, typer.Option(help="Reproducible randomness. NOT private.")] = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Find the texts that many people have, without a list of candidates, in one private round."""
    if page is not None:
        check_output(page, force)
    source, console = Source(data, Dialect(sep, decimal, encoding)), messages()
    with named_as_options("delta", "honest", "seed", "epsilon", "per_person", "max_bytes", "cells", "mistakes"):
        query = HeavyHitters(max_bytes=max_bytes, per_person=per_person, cells=cells, mistakes=mistakes)
        answer = ask(
            query,
            texts_of(source, column, user_column, Shown(console, shown=console.is_terminal and not as_json)),
            epsilon=epsilon,
            delta=delta,
            honest=honest,
            seed=seed,
            account=None if account is None else PrivacyAccount(account),
        )
    if page is not None:
        write_whole(page, answer_page(answer, title=f"Texts in {column} of {source.path.name}").encode())
    if as_json:
        guarantee = answer.guarantee.to_dict() if answer.private else None
        typer.echo(json.dumps(answer.value.to_dict() | {"guarantee": guarantee}, indent=2))
        return
    _show(answer, column)
    if page is not None:
        say(Console(), f"Page: {page}. Open it in a browser; it is one self-contained file.")


def table(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="CSV or Parquet, a file or a folder of them.")],
    columns: Annotated[list[str], typer.Option("--columns", help="One to three columns; with --by, one column of numbers.")],
    epsilon: Annotated[float, typer.Option(help="Privacy loss of each person asked.")],
    more: Annotated[list[str] | None, typer.Argument(metavar="[COLUMN]...", help="Further columns.")] = None,
    delta: Annotated[float | None, typer.Option(help="Default: 1e-6, or 0.1 / users if that is less.")] = None,
    by: Annotated[list[str] | None, typer.Option("--by", help="Column whose values define the groups; repeatable.")] = None,
    schema: Annotated[Path | None, typer.Option(help="Schema file with the levels and ranges of the columns.")] = None,
    levels: Annotated[list[str] | None, typer.Option("--levels", help="COLUMN=A,B,C: the levels to count; repeatable.")] = None,
    ranges: Annotated[list[str] | None, typer.Option("--range", help="COLUMN=LOW..HIGH, divided into --bins; repeatable.")] = None,
    edges: Annotated[list[str] | None, typer.Option("--edges", help="COLUMN=0,18,65,120: the edges of bins; repeatable.")] = None,
    bins: Annotated[int | None, typer.Option(help="Bins per --range; default: 8, or 64 with --by.")] = None,
    marginals: Annotated[
        float, typer.Option(help="Share of the budget for the columns' own counts; 0.3 suits large tables.")
    ] = 0.0,
    user_column: Annotated[
        str | None, typer.Option(help="Column that identifies the person each row belongs to; otherwise each row is a person.")
    ] = None,
    page: Annotated[Path | None, typer.Option("--html", help="File for an HTML page with charts.")] = None,
    honest: Annotated[float, typer.Option(help="Fraction of users trusted to add their noise.")] = 1.0,
    account: Annotated[Path | None, typer.Option(help="File that records the privacy spent on the people asked.")] = None,
    seed: Annotated[int | None, typer.Option(help="Reproducible randomness. NOT private.")] = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Count people in all combinations of columns, or summarise a number per group, in one private round.

    Levels and ranges are public: state them without having looked at the data. All other values are counted as "other".
    """
    if page is not None:
        check_output(page, force)
    source, console = Source(data, Dialect(sep, decimal, encoding)), messages()
    facts = _facts(schema, pairs("--levels", levels or ()), pairs("--range", ranges or ()), pairs("--edges", edges or ()))
    names = [*columns, *(more or ())]
    for name in [*names, *(by or ())]:
        if name not in facts:
            remedy = "Give its --levels, --range or --edges, or a --schema: they are public, and chosen without the data."
            raise ArgumentError("--columns", name, "a column with stated levels, range or edges", remedy)
    with named_as_options("delta", "honest", "seed", "epsilon", "bins", "marginals", "columns", "by"):
        answer = table_of(
            source,
            JointTable(*names, schema=facts, by=by or None, bins=bins, marginals=marginals),
            epsilon=epsilon,
            delta=delta,
            user=user_column,
            honest=honest,
            seed=seed,
            account=None if account is None else PrivacyAccount(account),
            watcher=Shown(console, shown=console.is_terminal and not as_json),
        )
    if page is not None:
        write_whole(page, answer_page(answer, title=f"{', '.join(names)} of {source.path.name}").encode())
    if as_json:
        guarantee = answer.guarantee.to_dict() if answer.private else None
        typer.echo(json.dumps(answer.value.to_dict() | {"guarantee": guarantee}, indent=2))
        return
    typer.echo(str(answer.value))
    say(Console(), _promise(answer))
    if page is not None:
        say(Console(), f"Page: {page}. Open it in a browser; it is one self-contained file.")


def _facts(schema: Path | None, levels: dict[str, str], ranges: dict[str, str], edges: dict[str, str]) -> dict[str, Any]:
    """What is stated of columns, by options and by a schema."""
    facts: dict[str, Any] = {} if schema is None else dict(facts_of(Schema.load(schema)))
    facts |= {name: [level.strip() for level in text.split(",")] for name, text in levels.items()}
    for option, texts, mark in (("--range", ranges, ".."), ("--edges", edges, ",")):
        for name, text in texts.items():
            try:
                facts[name] = [float(end) for end in text.split(mark)]
            except ValueError:
                example = "0..120" if mark == ".." else "0,18,65,120"
                raise ArgumentError(f"{option} {name}", text, f"numbers, such as {example}", "Correct it.") from None
            if (mark == "..") != (len(facts[name]) == 2):
                allowed = "two ends, such as 0..120" if mark == ".." else "three edges or more, such as 0,18,65"
                raise ArgumentError(f"{option} {name}", text, allowed, "Use --range for equal bins, --edges for others.")
    return facts


def choose(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="CSV or Parquet of people on whom no model was fitted.")],
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="Two or more files from croupier fit.")],
    epsilon: Annotated[float, typer.Option(help="Privacy loss of each person in DATA.")],
    delta: Annotated[float | None, typer.Option(help="Default: 1e-6, or 0.1 / users if that is less.")] = None,
    honest: Annotated[float, typer.Option(help="Fraction of users trusted to add their noise.")] = 1.0,
    account: Annotated[Path | None, typer.Option(help="File that records the privacy spent on the people in DATA.")] = None,
    seed: Annotated[int | None, typer.Option(help="Reproducible randomness. NOT private.")] = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Choose the best of several models in one private round, on people on whom none was fitted."""
    source, console = Source(data, Dialect(sep, decimal, encoding)), messages()
    loaded = {str(path): TableModel.load(path) for path in models}
    with named_as_options("delta", "honest", "seed", "epsilon"):
        choice = choose_table(
            loaded,
            source,
            epsilon=epsilon,
            delta=delta,
            honest=honest,
            seed=seed,
            account=None if account is None else PrivacyAccount(account),
            watcher=Shown(console, shown=console.is_terminal and not as_json),
        )
    typer.echo(json.dumps(choice.to_dict(), indent=2) if as_json else str(choice))


def _show(answer: Answer, column: str) -> None:
    console, found = Console(), answer.value
    rows = Table(escape(column))
    rows.add_column("people", justify="right")
    rows.add_column("95 % error", justify="right")
    for word, count, std in zip(found.words, found.counts, found.count_std, strict=True):
        rows.add_row(escape(word), f"{count:,.0f}", f"+- {1.96 * std:,.0f}")
    console.print(rows)
    length = min(8, found.query.max_bytes)
    say(console, f"A text of {length} bytes is found (99 %) if at least about {found.found_from(length):,.0f} people have it.")
    say(console, f"On average at most {found.mistakes:g} of these texts belong to nobody.")
    say(console, _promise(answer))


def _promise(answer: Answer) -> str:
    plan = answer.plan
    promise = statements.brief(plan.epsilon, plan.delta, plan.neighbours)
    return (
        f"{answer.users:,} people, one private round; {promise}." if answer.private else statements.not_private(statements.SEEDED)
    )
