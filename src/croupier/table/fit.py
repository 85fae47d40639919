"""From a file of records and a schema to a fitted model: what `croupier fit` does, for Python."""

from __future__ import annotations

import os
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..estimator._linear import LinearModel
from ..optimizer import Schedule
from ..population import Population
from ..statistics._holdout import Part
from ._encode import Encoder
from ._population import Engine, TableWarning, Watcher
from ._read import Source
from .model import INTERVALS, TableEstimator, TableModel, interval_schema, request_for
from .schema import Schema

_READ_OFF = ("the schema (ranges, levels, classes)",)
CHECKING, ASKING = "checking records", "asking everybody once"


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
    task : {"classify", "svm", "logit", "regress-mean", "regress-huber", "quantile", "linear"}, optional
        What to predict and how; default: chosen by the schema's target. "linear" and "logit" are regressions with standard errors
        and intervals, whose rows are left as they are and whose categories have a reference (the first level unless the schema
        says).
    delta : float, optional
        Of the guarantee; default: 1e-6, or 0.1 / users if that is less.
    engine : Engine, optional
        Where to train; default: this machine.
    checkpoint : path-like, optional
        A file in which the run is written down, so that the same call resumes an interrupted run. It is SECRET until the run
        has ended.
    watcher : Watcher, optional
        Hears how it goes.
    **parameters
        The estimator's: `epsilon`, `interactivity`, `honest`, `radius`, `rounds`, `invalid`, `random_state`, `data_is_public`,
        `quantile`, `class_weight`, `callbacks`, `account`, `coef_bound` (for rows as the schema makes them); see
        `croupier.estimator`. `data_is_public` says that the schema was taken from the data.

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
        If intervals would say nothing by a forecast from public facts, before anything is spent.
    TableWarning
        If a CSV file does not end with a line break, or one Ray worker would have all the work.

    Guarantee
    ---------
    That of the estimator: `epsilon` and `delta` for each user, who is one row, or all rows of one name in the schema's user column.
    The schema is public, and not covered. Where it was described privately with people set aside, these are not asked, and have
    what the description promised them; otherwise a person who is in both has what both promise together.

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
    facts = interval_schema(facts) if request.task in INTERVALS else facts
    engine, watcher = engine or Engine(), watcher or Watcher()
    encoder = Encoder(facts, parameters.get("invalid", "refuse"))
    source.require(list(encoder.types(target=True, user=True)))
    estimator = request.estimator(facts)
    odd = source.ends_oddly()
    if odd is not None:
        text = f"{odd} does not end with a line break; its last value may be truncated"
        warnings.warn(text, TableWarning, stacklevel=2)
    covered = (facts.described is None or facts.described.private) and not estimator.data_is_public
    with engine.people(source, encoder, estimator, watcher) as people:
        estimator.set_params(delta=estimator._delta(people.users))  # the default follows from how many there are
        read_off = () if covered else _READ_OFF
        rest = None if facts.described is None else facts.described.rest(facts.user)  # those who were set aside are not asked
        return TableModel(facts, _trained(estimator, people, len(encoder.names), checkpoint, watcher, read_off, rest))


def _trained(
    estimator: TableEstimator,
    people: Population,
    features: int,
    checkpoint: str | os.PathLike[str] | None,
    watcher: Watcher,
    read_off: tuple[str, ...],
    part: Part | None,
) -> TableEstimator:
    """Plan, check and charge, ask: a watcher hears of each."""
    planned = estimator.plan(people.users, features, checkpoint=checkpoint)
    if not isinstance(estimator, LinearModel):
        watcher.forecast(estimator.forecast(people.users, features, schedule=planned))
    rounds = isinstance(planned, Schedule)
    with ExitStack() as open_run:
        with watcher.waiting(CHECKING):
            facts = {"schedule": planned, "read_off": read_off, "checkpoint": checkpoint, "part": part}
            run = open_run.enter_context(estimator._begun(people, features, **facts))
        with watcher.training(planned, estimator._delta(people.users)) if rounds else watcher.waiting(ASKING):
            return estimator._learn(run, watcher.after_round)
