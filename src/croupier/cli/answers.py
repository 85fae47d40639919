"""The answer to a task that asks one question: a JSON file, a page beside it and on the dashboard, for descriptions a schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..files import write_whole
from ..privacy import _statements as words
from ..report import answer_page
from ..service.analyzer import RemotePopulation
from ..service.query_file import QueryFile
from ..statistics import Description, Evaluation, HistogramAnswer
from ..table import schema_from
from ..validation import ArgumentError
from .describe import left_out_of
from .progress import messages, say


def write_answer(asked: QueryFile, population: RemotePopulation, saved: Path, url: str) -> None:
    """Ask, write the answer down, and put it on the page."""
    answer = asked.answer(population)
    population.page = answer_page(answer, title=asked.name or f"The answer: {asked.query.kind}")
    page, text = asked.output.with_suffix(".html"), json.dumps(figures(answer), indent=2).encode()
    write_whole(page, population.page.encode())
    write_whole(saved, text)
    write_whole(asked.output, text)
    if isinstance(answer, Description):
        write_schema(asked, answer)
    schedule = population.task.schedule
    say(messages(), f"Proved: {words.proved_line(schedule.guarantee, schedule.phases[0].plan.epsilon)}.")
    say(messages(), f"Answer: {asked.output}; with pictures: {page}, and {url}/answer until this is stopped (Ctrl-C).")


def write_schema(asked: QueryFile, description: Description) -> None:
    """The schema that a description gives, beside its answer, which is written already: there may be none in it."""
    if asked.guess is None or asked.guess.target is None:
        return
    try:
        facts, notes = schema_from(description, asked.guess)
    except ArgumentError as problem:
        say(messages(), f"warning: no schema was written, {problem}", "yellow")
        return
    for name in left_out_of(facts, notes):
        say(messages(), f"warning: column left out of the schema, {name!r}: {notes[name]}", "yellow")
    schema = asked.output.with_suffix(".toml")
    write_whole(schema, facts.to_toml(notes).encode())
    say(messages(), f"Schema: {schema}.")


def figures(answer: Any) -> dict[str, Any]:
    """An answer in plain JSON types."""
    if isinstance(answer, Description | Evaluation):
        return answer.to_dict()
    if isinstance(getattr(answer, "value", None), HistogramAnswer):
        histogram = answer.value
        counts = {"edges": histogram.edges.tolist(), "counts": histogram.counts.tolist(), "count_std": histogram.count_std}
        return {"users": answer.users, **counts, "guarantee": answer.guarantee.to_dict() if answer.guarantee else None}
    plain: dict[str, Any] = json.loads(answer.to_json())
    return plain
