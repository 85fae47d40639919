"""Tables: public facts about columns, files of records, how a record becomes a row of numbers, and models fitted on files."""

from .apply import evaluate_table, predict_table
from .describe import describe_table, schema_from
from .draft import draft
from .fit import fit_table
from .model import TableModel
from .schema import Schema

__all__ = [
    "Schema",
    "TableModel",
    "describe_table",
    "draft",
    "evaluate_table",
    "fit_table",
    "predict_table",
    "schema_from",
]
