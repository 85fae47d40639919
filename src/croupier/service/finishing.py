"""A task's end in the two roles: the analyzer declares it and waits until the shuffler knows, the shuffler keeps it for clients."""

from __future__ import annotations

import logging
import threading

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from .documents import Document, WireError
from .ending import End, heard, refusal, refusal_reason, require_heard
from .store import Database
from .task import Task

log = logging.getLogger("croupier")


class AnalyzerEnding:
    """The analyzer's side.

    Parameters
    ----------
    task : Task
        What is trained.
    store : Database
        The analyzer's database.
    key : Ed25519PrivateKey
        The analyzer's key.

    Attributes
    ----------
    refusal : str or None
        Why the shuffler does not serve the task, by its last word.
    """

    def __init__(self, task: Task, store: Database, key: Ed25519PrivateKey) -> None:
        self._task, self._store, self._key = task, store, key
        self._heard = threading.Event()
        self.refusal: str | None = None

    def declare(self, rounds: int, reason: str | None = None) -> Document:
        """Write down that the task has ended.

        Parameters
        ----------
        rounds : int
            How many rounds were answered.
        reason : str, optional
            Why it has ended before its time.

        Returns
        -------
        Document
            The signed end.
        """
        document = End(self._task.id, rounds, reason).document(self._key)
        self._store.keep_end(document)
        return document

    def document(self) -> Document | None:
        """Return the signed end.

        Returns
        -------
        Document or None
            None while the task goes on.
        """
        return self._store.end()

    def hear(self, data: bytes) -> None:
        """Take the shuffler's word that it knows of the end.

        Parameters
        ----------
        data : bytes
            A signed document.

        Raises
        ------
        WireError
            Where it is not the shuffler's.
        """
        require_heard(Document.from_bytes(data), self._task.id, self._task.shuffler)
        if self._store.end_heard(now=True):
            self._heard.set()

    def refuse(self, data: bytes) -> None:
        """Take the shuffler's word that it does not serve the task, and log it once.

        Parameters
        ----------
        data : bytes
            A signed document.

        Raises
        ------
        WireError
            Where it is not the shuffler's.
        """
        reason = refusal_reason(Document.from_bytes(data), self._task.id, self._task.shuffler)
        if reason != self.refusal:
            log.error("the shuffler does not serve the task: %s", reason)
        self.refusal = reason

    def wait(self, seconds: float, stopped: threading.Event) -> bool:
        """Wait until the shuffler knows of the end.

        Parameters
        ----------
        seconds : float
            For how long, at most.
        stopped : Event
            Ends the waiting, too.

        Returns
        -------
        bool
            Whether the shuffler knows.
        """
        left = seconds
        if self._store.end_heard():  # by an earlier process
            self._heard.set()
        while left > 0 and not stopped.is_set() and not self._heard.wait(min(0.2, left)):
            left -= 0.2
        return self._heard.is_set()


class ShufflerEnding:
    """The shuffler's side.

    Parameters
    ----------
    store : Database
        The shuffler's database.
    key : Ed25519PrivateKey
        The shuffler's key.
    analyzer : Ed25519PublicKey
        The analyzer's.
    """

    def __init__(self, store: Database, key: Ed25519PrivateKey, analyzer: Ed25519PublicKey) -> None:
        self._store, self._key, self._analyzer = store, key, analyzer

    def document(self) -> Document | None:
        """Return the analyzer's signed end.

        Returns
        -------
        Document or None
            None while the task goes on.
        """
        return self._store.end()

    def take(self, document: Document, task: Task) -> tuple[End, Document]:
        """Keep the task's end for clients; it is on disk when this returns.

        Parameters
        ----------
        document : Document
            The analyzer's word.
        task : Task
            The task that is served.

        Returns
        -------
        tuple of (End, Document)
            The end, and what the analyzer is told.

        Raises
        ------
        WireError
            Where it is not the analyzer's word on this task.
        """
        end = End.read(document, task.id, self._analyzer)
        self._store.keep_end(document)
        return end, heard(task.id, self._key)

    def refusal(self, document: Document, problem: WireError) -> Document | None:
        """Return why a task is not served, for its analyzer.

        Parameters
        ----------
        document : Document
            The task.
        problem : WireError
            Why.

        Returns
        -------
        Document or None
            None where the task is not this analyzer's.
        """
        return refusal(document, str(problem), self._analyzer, self._key)
