"""Tables: public facts about columns, files of records, how a record becomes a row of numbers, and models fitted on files."""

from .apply import PlainScores, evaluate_privately, evaluate_table, predict_table, prediction_columns, read_table
from .dialect import Dialect
from .draft import draft
from .encode import Encoder
from .fit import fit_table
from .model import TASKS, Request, TableModel, task_for
from .people import Engine, TableBlock, TableWarning, Watcher
from .read import Piece, Source
from .schema import Category, Numeric, Schema, Target
from .store import RowStore

__all__ = [
    "TASKS",
    "Category",
    "Dialect",
    "Encoder",
    "Engine",
    "Numeric",
    "Piece",
    "PlainScores",
    "Request",
    "RowStore",
    "Schema",
    "Source",
    "TableBlock",
    "TableModel",
    "TableWarning",
    "Target",
    "Watcher",
    "draft",
    "evaluate_privately",
    "evaluate_table",
    "fit_table",
    "predict_table",
    "prediction_columns",
    "read_table",
    "task_for",
]
