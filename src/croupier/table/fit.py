"""From a file of records and a schema to a fitted model: what `croupier fit` does, for Python."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..estimator import ShuffleRidge
from ..estimator._linear import LinearModel
from ..population import Population
from ..population.population import Question, Test
from ..protocol import SumEstimate
from ..statistics.holdout import Part
from ..validation import ArgumentError
from .encode import Encoder
from .model import IntervalRequest, TableEstimator, TableModel, interval_schema, request_for
from .population import Engine, TableWarning, Watcher
from .read import Source
from .schema import Schema

_READ_OFF = ("the schema (ranges, levels, classes)",)


def fit_table(
    source: Source | str | os.PathLike[str],
    schema: Schema | str | os.PathLike[str],
    *,
    task: str | None = None,
    delta: float | None = None,
    engine: Engine | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    watcher: Watcher | None = None,
    **parameters: Any,
) -> TableModel:
    """Train a model on the people of a file, privately.

    The file is read piece by piece, so it may be larger than memory. All of it is read before anybody is asked.

    Parameters
    ----------
    source : Source or path-like
        CSV or Parquet, a file or a folder of files. `Source(path, Dialect(...))` says how a CSV file writes its values.
    schema : Schema or path-like
        The public facts: columns with their ranges or levels, and the target. A path is that of a TOML file.
    task : {"classify", "svm", "logit", "regress-huber", "regress-mean", "quantile", "linear"}, optional
        What to predict and how; by the schema's target unless given. "linear" and "logit" are regressions with standard errors and
        intervals, whose rows are left as they are and whose categories have a reference (the first level unless the schema says).
    delta : float, optional
        Of the guarantee; 1e-6, or 0.1 / users if that is less, unless given.
    engine : Engine, optional
        Where to train: this machine unless given.
    checkpoint : path-like, optional
        A file in which the run is written down, so that the same call goes on where it was cut off. It is SECRET until the run
        has ended.
    watcher : Watcher, optional
        Hears how it goes.
    **parameters
        The estimator's: `epsilon`, `interactivity`, `honest`, `radius`, `rounds`, `invalid`, `random_state`, `data_is_public`,
        `quantile`, `class_weight`, `callbacks`, `account`, `coef_bound` (for rows as the schema makes them); see
        `croupier.estimator`. `data_is_public` says that the schema was read off the data.

    Returns
    -------
    TableModel
        The schema and the fitted estimator, whose `guarantee_` is the promise. `save` writes it to a file.

    Raises
    ------
    ArgumentError
        Before anybody is asked, where a file cannot be read, a column is missing, a record is not valid (unless
        `invalid="blank"`), or no plan keeps the promise.
    UnreachableError
        A file, or a machine of the cluster, is gone.

    Warns
    -----
    WideIntervalsWarning
        Where intervals would say nothing by a forecast from public facts, before anything is spent.
    TableWarning
        Where a CSV file does not end with a line break, or one Ray worker would have all the work.

    Guarantee
    ---------
    That of the estimator: `epsilon` and `delta` for each user, who is one row, or all rows of one name in the schema's user column.
    The schema is public, and not covered. Where it was described privately with people set aside, these are not asked, and have
    what the description promised them; otherwise whoever is in both has what both promise together.

    Examples
    --------
    >>> import random, tempfile
    >>> from pathlib import Path
    >>> from croupier.table import Schema, fit_table
    >>> ages = [random.Random(number).randint(18, 90) for number in range(2000)]
    >>> people = Path(tempfile.mkdtemp()) / "people.csv"
    >>> _ = people.write_text("age,ill\\n" + "".join(f"{age},{'yes' if age > 55 else 'no'}\\n" for age in ages))
    >>> facts = Schema.from_toml('[target]\\ncolumn = "ill"\\nclasses = ["no", "yes"]\\n[columns.age]\\nlow = 18\\nhigh = 90\\n')
    >>> model = fit_table(people, facts, epsilon=1.0)
    >>> model.task, model.estimator.n_users_, model.estimator.guarantee_.epsilon(1e-6) <= 1.0
    ('classify', 2000, True)
    """
    source = source if isinstance(source, Source) else Source(source)
    facts = schema if isinstance(schema, Schema) else Schema.load(Path(schema))
    request = request_for(facts, task, parameters, delta)
    if isinstance(request, IntervalRequest):
        facts = interval_schema(facts)
        if checkpoint is not None:
            remedy = "Everybody is asked once: there are no rounds to go on from."
            raise ArgumentError("checkpoint", str(checkpoint), f"left out for the task {task!r}", remedy)
    engine, watcher = engine or Engine(), watcher or Watcher()
    encoder = Encoder(facts, parameters.get("invalid", "refuse"))
    source.require(list(encoder.types(target=True, user=True)))
    maker = request.estimator(facts)
    odd = source.ends_oddly()
    if odd is not None:
        text = f"{odd} does not end with a line break; it may have been cut off within its last value"
        warnings.warn(text, TableWarning, stacklevel=2)
    with engine.people(source, encoder, maker, watcher) as people:
        estimator = request.estimator(facts, people.users)
        covered = facts.described is None or facts.described.private
        others = None if facts.described is None else facts.described.rest(facts.user)
        with _counted_on(estimator, others):
            return TableModel(facts, _trained(estimator, people, len(encoder.names), checkpoint, watcher, covered))


@contextlib.contextmanager
def _counted_on(estimator: LinearModel, others: Part | None) -> Iterator[None]:
    """The estimator's account counts its fit on those who were not set aside for the schema."""
    given = estimator.account
    if given is not None and others is not None:
        estimator.account = given.of_part(others)
    try:
        yield
    finally:
        estimator.account = given


def _trained(
    estimator: TableEstimator,
    people: Population,
    features: int,
    checkpoint: str | os.PathLike[str] | None,
    watcher: Watcher,
    covered: bool,
) -> TableEstimator:
    read_off = _READ_OFF if estimator.data_is_public or not covered else ()
    watched = _WatchedPeople(people, watcher)
    if not isinstance(estimator, LinearModel):
        watcher.forecast(estimator.forecast(people.users, features))
        with watcher.waiting("asking everybody once"):
            return estimator.fit_population(watched, features, read_off=read_off)
    if _from_moments(estimator, people.users, features, checkpoint):
        with watcher.waiting("asking everybody once"):
            return estimator.fit_population(watched, features, read_off=read_off, checkpoint=checkpoint)
    with watcher.training(estimator.schedule_for(people.users, features), estimator._delta(people.users)):
        return estimator.fit_population(watched, features, read_off=read_off, checkpoint=checkpoint, on_round=watcher.after_round)


def _from_moments(estimator: LinearModel, users: int, features: int, checkpoint: object) -> bool:
    """Whether there are no rounds to be watched."""
    if not isinstance(estimator, ShuffleRidge) or (checkpoint is not None and estimator.method != "moments"):
        return False
    return estimator.method_for(users, features) == "moments"


class _WatchedPeople:
    """People of whom a watcher hears before they are asked; it may end training instead."""

    def __init__(self, people: Population, watcher: Watcher) -> None:
        self._people, self._watcher = people, watcher

    @property
    def users(self) -> int:
        return self._people.users

    @property
    def unit(self) -> str:
        return self._people.unit

    @property
    def private(self) -> bool:
        return self._people.private

    def prepare(self, test: Test, key: bytes | None = None) -> bytes | None:
        with self._watcher.waiting("checking records"):
            return self._people.prepare(test, key)

    def answer(self, question: Question) -> SumEstimate:
        self._watcher.before_round()
        return self._people.answer(question)
