"""What a record is: public facts about columns, files of records, and how a record becomes a row of numbers."""

from .dialect import Dialect
from .draft import draft
from .encode import Encoder
from .read import Piece, Source
from .schema import Category, Numeric, Schema, Target
from .store import Store

__all__ = ["Category", "Dialect", "Encoder", "Numeric", "Piece", "Schema", "Source", "Store", "Target", "draft"]
