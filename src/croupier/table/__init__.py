"""Tables: public facts about columns, files of records, how a record becomes a row of numbers, and models fitted on files."""

from .apply import PlainScores, evaluate_privately, evaluate_table, predict_table, prediction_columns, read_table
from .describe import describe_table, schema_from
from .draft import draft
from .encode import Encoder
from .fit import fit_table
from .guess import TableGuess, guess_for
from .model import INTERVALS, TASKS, IntervalRequest, Request, TableModel, in_schema_units, interval_schema, request_for, task_for
from .population import Engine, RowStore, TableBlock, TableWarning, Watcher
from .read import Dialect, Piece, Source
from .schema import Category, Described, Numeric, Schema, Target

__all__ = [
    "INTERVALS",
    "TASKS",
    "Category",
    "Described",
    "Dialect",
    "Encoder",
    "Engine",
    "IntervalRequest",
    "Numeric",
    "Piece",
    "PlainScores",
    "Request",
    "RowStore",
    "Schema",
    "Source",
    "TableBlock",
    "TableGuess",
    "TableModel",
    "TableWarning",
    "Target",
    "Watcher",
    "describe_table",
    "draft",
    "evaluate_privately",
    "evaluate_table",
    "fit_table",
    "guess_for",
    "in_schema_units",
    "interval_schema",
    "predict_table",
    "prediction_columns",
    "read_table",
    "request_for",
    "schema_from",
    "task_for",
]
