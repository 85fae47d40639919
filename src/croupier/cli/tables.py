"""What is asked of a table besides a model: `croupier schema`, `describe`, `words`, `table`, `choose`; and `croupier example`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..estimator import PrivacyAccount
from ..files import write_whole
from ..privacy import _statements as statements
from ..report._answers import answer_page
from ..report._description import describe_page, description_table
from ..statistics import Answer, Description, HeavyHitters, ask
from ..statistics import Table as JointTable
from ..statistics.tables import facts_of
from ..table import Schema, TableModel, describe_table, draft, schema_from
from ..table._datasets import example_csv
from ..table._read import Dialect, Source
from ..table.apply import choose_table
from ..table.describe import TableGuess, guess_for, table_of, texts_of
from ..validation import ArgumentError, Found
from .terminal import Decimal, Encoding, Sep, Shown, check_output, messages, named_as_options, say, warn_of_score, warnings_said

_HEAD = """\
# Public facts for croupier fit. Everything here is treated as public: no guarantee covers it.
# Drafted from {sample}, so it is public only if that sample is.
# Read and correct it: ranges that you can justify without the data (values outside are clipped), and all levels
# and classes that may occur (other levels count as none, other classes are refused). Delete columns that are not features.
# scale = "log" suits amounts and counts that span orders of magnitude.
"""


# Wide guesses made without the data: what anyone would say about adults.
_GUESS = """\
[target]
column = "ill"
classes = ["no", "yes"]

[columns.age]
low = 0
high = 120

[columns.bmi]
low = 10
high = 80

[columns.sport]
low = 0
high = 40

[columns.smokes]
levels = ["no", "yes"]
"""
_PEOPLE, _OTHERS = 20_000, 5_000


def example(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder for the files; created if it does not exist.")] = Path(
        "."
    ),
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Write a synthetic table to try things out: people.csv, new.csv (other people) and guess.toml (wide public ranges)."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "people.csv": example_csv(_PEOPLE, seed=0),
        "new.csv": example_csv(_OTHERS, seed=1),
        "guess.toml": _GUESS.encode(),
    }
    for name in files:
        check_output(folder / name, force, "FOLDER")
    for name, content in files.items():
        write_whole(folder / name, content)
    said = f"{_PEOPLE:,} synthetic people are in {folder / 'people.csv'}, {_OTHERS:,} others in {folder / 'new.csv'}."
    say(messages(), said + " docs/tutorial.md says what to do with them.")


def schema(
    sample: Annotated[Path, typer.Argument(metavar="SAMPLE", help="A PUBLIC sample (CSV or Parquet), never private records.")],
    target: Annotated[str, typer.Option(help="Column to predict.")],
    user_column: Annotated[str | None, typer.Option(help="Column that identifies the person each row belongs to.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File for the schema; default: print it.")] = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Draft a schema file from a PUBLIC sample: ranges, levels, classes."""
    if output is not None:
        check_output(output, force)
    facts, notes, left_out = draft(Source(sample, Dialect(sep, decimal, encoding)), target, user_column)
    lines = [_HEAD.format(sample=sample.name), facts.to_toml(notes)]
    lines += ["\n# Left out:\n", *(f"# {' '.join(reason.split())}\n" for reason in left_out)] if left_out else []
    text = "".join(lines)
    console = messages()
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_whole(output, text.encode())
    say(
        console,
        "The sample must be public: everything in the schema is treated as public, and no guarantee covers it. "
        "A sample of private records is not public.",
        "bold yellow",
    )
    warn_of_score(console, facts, notes)
    if output is not None:
        say(console, f"Read and correct {output}, then: croupier fit DATA --schema {shlex.quote(str(output))}", "dim")


# `croupier describe`: what a table looks like, privately, and a schema for `croupier fit`.

_DESCRIBED_HEAD = """\
# Public facts for croupier fit. The ranges come from a private description of {people}: {promise}.
# Levels and classes are those listed beforehand. Read it, and delete columns that are not features.
{left_out}"""


def describe(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="CSV or Parquet, a file or a folder of them.")],
    epsilon: Annotated[float, typer.Option(help="Privacy loss of each person asked.")],
    delta: Annotated[float | None, typer.Option(help="Default: 1e-6, or 0.1 / users if that is less.")] = None,
    guess: Annotated[Path | None, typer.Option(help="TOML file of wide guesses; replaces --range and --levels.")] = None,
    target: Annotated[str | None, typer.Option(help="Column to predict; needed for -o.")] = None,
    ranges: Annotated[list[str] | None, typer.Option("--range", help="COLUMN=LOW..HIGH: a generous guess; repeatable.")] = None,
    levels: Annotated[list[str] | None, typer.Option("--levels", help="COLUMN=A,B,C: the levels to count; repeatable.")] = None,
    whole: Annotated[list[str] | None, typer.Option("--whole", help="COLUMN of whole numbers; repeatable.")] = None,
    leave_out: Annotated[list[str] | None, typer.Option("--leave-out", help="COLUMN to skip; repeatable.")] = None,
    share: Annotated[
        float | None, typer.Option(help="Ask only this share of the people, such as 0.1; the others spend nothing.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File for a schema that croupier fit can use.")] = None,
    page: Annotated[Path | None, typer.Option("--html", help="File for an HTML page with charts.")] = None,
    user_column: Annotated[
        str | None, typer.Option(help="Column that identifies the person each row belongs to; otherwise each row is a person.")
    ] = None,
    honest: Annotated[float, typer.Option(help="Fraction of users trusted to add their noise.")] = 1.0,
    account: Annotated[Path | None, typer.Option(help="File that records the privacy spent on the people asked.")] = None,
    seed: Annotated[int | None, typer.Option(help="Reproducible randomness. NOT private.")] = None,
    work_dir: Annotated[Path | None, typer.Option(help="Folder for temporary rows while the file is read.")] = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    as_numbers: Annotated[
        bool,
        typer.Option("--as-numbers", help="Treat undeclared CSV columns as numbers; text columns waste their part of epsilon."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print how each column would be treated, and ask nobody.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Describe all columns in one private round (quantiles, means, shares, missing values), and write a schema.

    Nothing is taken from the data without noise. Column names and your guesses are public.
    """
    check_output(output, force)
    check_output(page, force, "--html")
    source, console = Source(data, Dialect(sep, decimal, encoding)), messages()
    with named_as_options("share", "delta", "work_dir", "honest", "seed", "epsilon"):
        guesses = guess_for(
            source,
            None if guess is None else TableGuess.load(guess),
            target=target,
            user=user_column,
            ranges=pairs("--range", ranges or ()),
            levels=pairs("--levels", levels or ()),
            whole=whole or (),
            leave_out=leave_out or (),
        )
        if output is not None and (guesses.target is None or len(guesses.columns) < 2):
            found = guesses.target if len(guesses.columns) > 1 else "the only column"
            raise ArgumentError(
                "--target", found, f"one of {', '.join(source.names)}", "The schema states which column to predict."
            )
        if guesses.undeclared and not as_numbers and not dry_run:
            remedy = (
                "Declare each with --range COLUMN=LOW..HIGH, --levels COLUMN=A,B or a --guess file, or drop it with --leave-out "
                "COLUMN, since each takes a part of epsilon; --as-numbers treats all of them as numbers. Nobody was asked."
            )
            undeclared = Found(f"is missing for {', '.join(guesses.undeclared)}")
            raise ArgumentError("--range or --levels", undeclared, "given for every column", remedy)
        for reason in guesses.left_out:
            say(console, f"warning: column left out, {reason}", "yellow")
        told = (*source.names,) if guess is None else (*guesses.columns, guesses.user, *(leave_out or ()))
        rest = [name for name in source.names if name not in told]
        not_described = [f"Not described: {', '.join(rest)}."] if rest else []
        for line in [*guesses.lines(), *not_described]:
            say(console if as_json else Console(), line)
        if dry_run:
            say(console, "Nobody was asked, and nothing was spent.")
            return
        with warnings_said(console):
            description = describe_table(
                source,
                guesses,
                epsilon=epsilon,
                delta=delta,
                share=share,
                honest=honest,
                seed=seed,
                account=None if account is None else PrivacyAccount(account),
                work_dir=work_dir,
                watcher=Shown(console, shown=console.is_terminal and not as_json),
            )
    if page is not None:
        write_whole(page, describe_page(description, title=f"A private look at {source.path.name}").encode())
    if as_json:
        typer.echo(json.dumps(description.to_dict(), indent=2))
    else:
        _tell(description, page)
    if output is not None:  # after the answer, which is paid for, was shown: there may be no schema in it
        for line in _write_schema(output, description, guesses):
            say(console, f"warning: column left out of the schema, {line}", "yellow")
        if not as_json:
            fit = f"croupier fit {shlex.quote(str(source.path))} --schema {shlex.quote(str(output))}"
            say(Console(), f"Schema: {output}. Read it, then: {fit}", "dim")


def pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    """COLUMN=VALUE, by the column."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value.strip()):
            raise ArgumentError(option, text, "COLUMN=VALUE", "For example --range age=0..200 or --levels sex=f,m.")
        found[name] = value
    return found


def _write_schema(output: Path, description: Description, guesses: TableGuess) -> list[str]:
    """Write the schema, and say which columns are not in it, and why."""
    facts, notes = schema_from(description, guesses)
    left_out = [f"{json.dumps(name)}: {notes[name]}" for name in left_out_of(facts, notes)]
    lines = "".join(f"# Left out: {line}\n" for line in left_out)
    head = _DESCRIBED_HEAD.format(people=description.people, promise=description.promise, left_out=lines)
    write_whole(output, (head + facts.to_toml(notes)).encode())
    return left_out


def left_out_of(schema: Schema, notes: Mapping[str, str]) -> list[str]:
    """The columns that were described and are not in the schema, since their answers are no numbers."""
    return [name for name in notes if name not in (*schema.columns, schema.target.column)]


def _tell(description: Description, page: Path | None) -> None:
    console = Console()
    console.print(description_table(description))
    say(console, f"{description.people}, one private round; {description.promise}. Errors are 95 %, sampling included.")
    for name, line in description.hints.items():
        say(console, f"{name}: {line}", "yellow")
    if description.aside is not None:
        by = "name" if description.of is None else "position in the file"
        say(console, f"They were chosen by {by}. A fit with this schema asks only the others, who have spent nothing.")
    if page is not None:
        say(console, f"Page: {page}. Open it in a browser; it is one self-contained file.")


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
    check_output(page, force, "--html")
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
    more: Annotated[list[str] | None, typer.Argument(metavar="COLUMN", help="Further columns.")] = None,
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
    check_output(page, force, "--html")
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
