"""The rounds that a shuffler has opened, each read and verified once."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from sqlalchemy import Connection, insert, select

from . import store as tables
from .documents import Document, WireError
from .outcomes import RefusedError
from .store import Database
from .task import Task, TaskRound

# Rounds that are kept as they were read.
_KEPT = 8


def open_round(connection: Connection, task_round: TaskRound, document: Document, now: float) -> None:
    """Write down a round that takes reports from `now` on; the same again changes nothing."""
    rounds = tables.rounds.c
    same = (rounds.id == task_round.id) | (rounds.number == task_round.number)
    known = connection.execute(select(rounds.id, rounds.document).where(same)).first()
    if known is None:
        values = {
            "id": task_round.id,
            "number": task_round.number,
            "document": document.to_bytes(),
            "digest": document.digest.hex(),
        }
        connection.execute(insert(tables.rounds).values(**values, state="open", arrived=0, opened=now))
    elif known.id != task_round.id:
        raise WireError(
            f"a second round {task_round.number}: one was opened before, which the analyzer has forgotten. Its users are not asked "
            "again. Bring the analyzer's database and journal back from after that round, or begin a new task"
        )
    elif known.document != document.to_bytes():
        raise WireError("a round that was opened with other words")


class KnownRounds:
    """Rounds by the digests of their documents."""

    def __init__(self, store: Database, analyzer: Ed25519PublicKey) -> None:
        self._store, self._analyzer = store, analyzer
        self._read: dict[bytes, TaskRound] = {}

    def read(self, document: Document, task: Task) -> TaskRound:
        """A round of the task, read once."""
        digest = document.digest
        task_round = self._read.get(digest) or TaskRound.read(document, task, self._analyzer)
        if digest not in self._read:
            self._read = dict(list(self._read.items())[1 - _KEPT :]) | {digest: task_round}
        return task_round

    def of_report(self, digest: bytes, task: Task) -> TaskRound:
        """The round that a report is about."""
        return self._read.get(digest) or self.read(self._document(digest), task)

    def _document(self, digest: bytes) -> Document:
        with self._store.look() as connection:
            rounds = tables.rounds.c
            known = connection.execute(select(rounds.document).where(rounds.digest == digest.hex())).scalar()
            if known is None:
                now = connection.execute(select(rounds.id).where(rounds.state == "open")).scalar()
                raise RefusedError(400, "a report for another round") if now else RefusedError(409, "no round takes reports now")
        return Document.from_bytes(known)
