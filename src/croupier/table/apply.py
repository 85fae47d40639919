"""A fitted model before the records of a file: its predictions, and how well they do where the truth is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..estimator import PrivacyAccount
from ..estimator.choosing import MOST, Choice, Contest, chosen, scores_of
from ..statistics import Evaluation, ask, evaluate
from ..validation import ArgumentError, Found
from ._encode import Encoder
from ._population import Watcher, piece_rows
from ._read import Source
from .model import TableModel
from .schema import Schema, as_text


def prediction_columns(model: TableModel, *, proba: bool = False) -> Any:
    """The columns of a table of predictions."""
    if proba and not hasattr(model.estimator, "predict_proba"):
        raise ArgumentError("proba", True, "left out for this model", f"A model of task {model.task!r} has no probabilities.")
    labels = model.estimator.classes_ if model.classifies else None
    kind = pa.float64() if labels is None else pa.array(labels.tolist()).type
    fields = [pa.field("prediction", kind)]
    if proba and labels is not None:
        fields += [pa.field(f"probability {as_text(label)}", pa.float64()) for label in labels.tolist()]
    return pa.schema(fields)


def predict_table(model: TableModel, source: Source, *, proba: bool = False, watcher: Watcher | None = None) -> Iterator[Any]:
    """Predict for every record of a file, in its order, piece by piece. This costs no privacy: it follows from the model.

    Parameters
    ----------
    model : TableModel
        What predicts.
    source : Source
        The files; they need the feature columns only.
    proba : bool, default False
        With a probability for each class.
    watcher : Watcher, optional
        Hears how many rows were read.

    Returns
    -------
    iterator of pyarrow.RecordBatch
        Of the columns that `prediction_columns` names. The file is read as the iterator advances.

    Raises
    ------
    ArgumentError
        A column is missing, or a record cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from croupier.table import Schema, TableModel
    >>> from croupier.table.apply import read_table
    >>> from croupier.table.model import Request
    >>> from croupier.table._read import Source
    >>> file = Path(tempfile.mkdtemp(), "people.csv")
    >>> written = file.write_text("age,ill\\n" + "30,no\\n70,yes\\n" * 1000)
    >>> facts = {"target": {"column": "ill", "classes": ["no", "yes"]}, "columns": {"age": {"low": 0, "high": 100}}}
    >>> schema = Schema.from_dict(facts)
    >>> X, y = read_table(schema, Source(file))
    >>> model = TableModel(schema, Request("classify", {"epsilon": 1.0}, None).estimator(schema).fit(X, y))
    >>> [len(batch) for batch in predict_table(model, Source(file))]
    [2000]
    """
    columns, encoder = prediction_columns(model, proba=proba), Encoder(model.schema)
    source.require(list(encoder.types()))
    return _predictions(model, source, encoder, columns, watcher or Watcher())


@dataclass(frozen=True)
class PlainScores:
    """What a model's predictions are worth on a file, without privacy.

    `rows`: How many records. `scores`: `accuracy` and `log_loss`; or `mae`, `rmse` and, for quantiles, `pinball`. `constant`: The
    same of the best constant answer: the commonest class, the median, the mean.
    """

    rows: int
    scores: dict[str, float]
    constant: dict[str, float]


def evaluate_table(model: TableModel, source: Source, *, watcher: Watcher | None = None) -> PlainScores:
    """Compare a model's predictions with the truth. NOT private: no guarantee covers these scores.

    Parameters
    ----------
    model : TableModel
        What predicts.
    source : Source
        The files, with the target.
    watcher : Watcher, optional
        Hears how many rows were read.

    Returns
    -------
    PlainScores
        Beside the best constant answer.

    Raises
    ------
    ArgumentError
        A column is missing, a record cannot be read, or there is none.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from croupier.table import Schema, TableModel
    >>> from croupier.table.apply import read_table
    >>> from croupier.table.model import Request
    >>> from croupier.table._read import Source
    >>> file = Path(tempfile.mkdtemp(), "people.csv")
    >>> written = file.write_text("age,ill\\n" + "30,no\\n70,yes\\n" * 1000)
    >>> facts = {"target": {"column": "ill", "classes": ["no", "yes"]}, "columns": {"age": {"low": 0, "high": 100}}}
    >>> schema = Schema.from_dict(facts)
    >>> X, y = read_table(schema, Source(file))
    >>> model = TableModel(schema, Request("classify", {"epsilon": 1.0}, None).estimator(schema).fit(X, y))
    >>> evaluate_table(model, Source(file)).constant["accuracy"]
    0.5
    """
    encoder = Encoder(model.schema)
    types = encoder.types(target=True)
    source.require(list(types))
    totals: dict[str, float] = {}
    truths, rows = [], 0
    with (watcher or Watcher()).reading(source.path.name) as tell:
        for piece in source.pieces(types, piece_rows(encoder)):
            truths.append(encoder.targets(piece))
            for name, losses in _losses(model, encoder.rows(piece), truths[-1]).items():
                totals[name] = totals.get(name, 0.0) + float(losses.sum())
            rows += len(piece)
            tell(len(piece))
    if not rows:
        raise ArgumentError("DATA", Found(f"has no rows ({source.path})"), "at least one row", "Check the file.")
    scores = {name: total / rows for name, total in totals.items()}
    if "rmse" in scores:
        scores["rmse"] = float(np.sqrt(scores["rmse"]))
    return PlainScores(rows, scores, _constant(model, np.concatenate(truths)))


def evaluate_privately(
    model: TableModel,
    source: Source,
    *,
    epsilon: float,
    delta: float | None = None,
    honest: float = 1.0,
    account: PrivacyAccount | None = None,
    watcher: Watcher | None = None,
) -> Evaluation:
    """Compare a model's predictions with the truth in one private round: scores with error bars."""
    encoder = Encoder(model.schema)
    types = encoder.types(target=True, user=True)
    source.require(list(types))
    rows, targets, users = [], [], []
    with (watcher or Watcher()).reading(source.path.name) as tell:
        for piece in source.pieces(types):
            rows.append(encoder.rows(piece))
            targets.append(encoder.targets(piece))
            users.append(encoder.users(piece))
            tell(len(piece))
    if not rows:
        raise ArgumentError("DATA", Found(f"has no rows ({source.path})"), "at least two people", "Check the file.")
    groups = None if users[0] is None else np.concatenate([labels for labels in users if labels is not None])
    X, y = np.concatenate(rows), np.concatenate(targets)
    return evaluate(
        model.estimator,
        (X, y),
        epsilon=epsilon,
        delta=delta,
        honest=honest,
        groups=groups,
        account=account,
    )


def choose_table(
    models: Mapping[str, TableModel],
    source: Source,
    *,
    epsilon: float,
    delta: float | None = None,
    honest: float = 1.0,
    account: PrivacyAccount | None = None,
    seed: int | None = None,
    watcher: Watcher | None = None,
) -> Choice:
    """Ask the people in a file, once, which of some models is best for them; the models were fitted on others."""
    if not 2 <= len(models) <= MOST:
        found = Found(f"names {len(models)} different model{'' if len(models) == 1 else 's'}")
        raise ArgumentError("MODEL", found, f"2 to {MOST} models", "There is nothing to choose among fewer.")
    encoders = {name: Encoder(model.schema) for name, model in models.items()}
    first = next(iter(encoders.values()))
    types: dict[str, Any] = {}
    for name, encoder in encoders.items():
        if encoder.schema.target != first.schema.target or encoder.schema.user != first.schema.user:
            raise ArgumentError("MODEL", name, "models of one target and one user column", "Fit them with the same schema.")
        types |= encoder.types(target=True, user=True)
    source.require(list(types))
    scores, users = [], []
    with (watcher or Watcher()).reading(source.path.name) as tell:
        for piece in source.pieces(types):
            truth = first.targets(piece)
            rows = [scores_of(model.estimator, encoders[name].rows(piece), truth) for name, model in models.items()]
            scores.append(np.column_stack(rows))
            users.append(first.users(piece))
            tell(len(piece))
    if not scores:
        raise ArgumentError("DATA", Found(f"has no rows ({source.path})"), "at least two people", "Check the file.")
    groups = None if users[0] is None else np.concatenate([labels for labels in users if labels is not None])
    query = Contest(tuple(models))
    table = np.concatenate(scores)
    answer = ask(query, table, epsilon=epsilon, delta=delta, honest=honest, groups=groups, account=account, seed=seed)
    return chosen({name: model.estimator for name, model in models.items()}, answer)


def read_table(schema: Schema, source: Source, *, watcher: Watcher | None = None) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """All rows and targets of a file, in memory: for files that are public."""
    encoder = Encoder(schema)
    types = encoder.types(target=True)
    source.require(list(types))
    rows, targets = [np.zeros((0, len(encoder.names)), dtype=np.float32)], []
    with (watcher or Watcher()).reading(source.path.name) as tell:
        for piece in source.pieces(types):
            rows.append(encoder.rows(piece))
            targets.append(encoder.targets(piece))
            tell(len(piece))
    return np.concatenate(rows), np.concatenate(targets) if targets else np.zeros(0)


def _predictions(model: TableModel, source: Source, encoder: Encoder, columns: Any, watcher: Watcher) -> Iterator[Any]:
    with watcher.reading(source.path.name) as tell:
        for piece in source.pieces(encoder.types(), piece_rows(encoder)):
            rows = encoder.rows(piece)
            answers = [pa.array(model.estimator.predict(rows).tolist())]
            answers += [pa.array(column) for column in model.estimator.predict_proba(rows).T] if len(columns) > 1 else []
            yield pa.record_batch(answers, schema=columns)
            tell(len(piece))


def _losses(model: TableModel, rows: Any, truth: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
    """One loss per row and score; scores are their means (the square's root for rmse)."""
    estimator = model.estimator
    if not model.classifies:
        error = truth - estimator.predict(rows)
        losses = {"mae": np.abs(error), "rmse": error**2}
        quantile = getattr(estimator, "quantile", None)
        return losses if quantile is None else losses | {"pinball": np.maximum(quantile * error, (quantile - 1) * error)}
    losses = {"accuracy": (estimator.predict(rows) == truth).astype(np.float64)}
    if hasattr(estimator, "predict_proba"):
        likely = estimator.predict_proba(rows)[np.arange(len(truth)), np.searchsorted(estimator.classes_, truth)]
        losses["log_loss"] = -np.log(np.maximum(likely, np.finfo(np.float64).tiny))
    return losses


def _constant(model: TableModel, truth: NDArray[Any]) -> dict[str, float]:
    """What the best constant answer would have: the commonest class, the median, the mean."""
    if not model.classifies:
        middle = float(np.median(truth))
        scores = {"mae": float(np.abs(truth - middle).mean()), "rmse": float(truth.std())}
        quantile = getattr(model.estimator, "quantile", None)
        if quantile is not None:
            error = truth - np.quantile(truth, quantile)
            scores["pinball"] = float(np.maximum(quantile * error, (quantile - 1) * error).mean())
        return scores
    shares = np.unique(truth, return_counts=True)[1] / len(truth)
    return {"accuracy": float(shares.max()), "log_loss": float(-(shares @ np.log(shares)))}
