"""How a task's end and a shuffler's refusal are said: signed documents, so that nobody waits for what does not come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from .documents import Document, WireError, cleaned

# Kinds of what is signed.
END, REFUSAL, HEARD = 16, 17, 18
_MOST_REASON = 500


@dataclass(frozen=True)
class End:
    """That a task has ended.

    Parameters
    ----------
    task : str
        The task's id.
    rounds : int
        How many rounds were answered.
    reason : str or None
        Why it has ended before its time; None where all rounds are done.
    """

    task: str
    rounds: int
    reason: str | None = None

    def document(self, key: Ed25519PrivateKey) -> Document:
        """Return the end as a document that the analyzer signs.

        Parameters
        ----------
        key : Ed25519PrivateKey
            The analyzer's key.

        Returns
        -------
        Document
            The signed end.
        """
        reason = None if self.reason is None else cleaned(self.reason)[:_MOST_REASON]
        return Document.signed(END, {"task": self.task, "rounds": self.rounds, "reason": reason}, key)

    @classmethod
    def read(cls, document: Document, task: str, key: Ed25519PublicKey) -> Self:
        """Read the end of a task in a document of its analyzer.

        Parameters
        ----------
        document : Document
            What came over the wire.
        task : str
            The task's id.
        key : Ed25519PublicKey
            The analyzer's key.

        Returns
        -------
        End
            The end.

        Raises
        ------
        WireError
            Where the signature is not the analyzer's, or it is the end of another task.
        """
        values = _of_task(document, END, task, key)
        return cls(task, values["rounds"], values["reason"])

    def __str__(self) -> str:
        return f"the task has ended, all {self.rounds} rounds are done" if self.reason is None else self.reason


def refusal(document: Document, reason: str, analyzer: Ed25519PublicKey, key: Ed25519PrivateKey) -> Document | None:
    """Return why a shuffler does not serve a task, for its analyzer.

    Parameters
    ----------
    document : Document
        The task.
    reason : str
        What the analyzer is told.
    analyzer : Ed25519PublicKey
        Whose task it has to be.
    key : Ed25519PrivateKey
        The shuffler's key.

    Returns
    -------
    Document or None
        Signed by the shuffler; None where the task is not the analyzer's.
    """
    try:
        values = document.said(1, analyzer)
    except WireError:
        return None
    return Document.signed(REFUSAL, {"task": values.get("id"), "reason": cleaned(reason)[:_MOST_REASON]}, key)


def refusal_reason(document: Document, task: str, key: Ed25519PublicKey) -> str:
    """Return why the shuffler does not serve a task.

    Parameters
    ----------
    document : Document
        What came over the wire.
    task : str
        The task's id.
    key : Ed25519PublicKey
        The shuffler's key.

    Returns
    -------
    str
        Its reason.

    Raises
    ------
    WireError
        Where it is not the shuffler's word on this task.
    """
    return str(_of_task(document, REFUSAL, task, key)["reason"])


def heard(task: str, key: Ed25519PrivateKey) -> Document:
    """Return that the shuffler knows of a task's end.

    Parameters
    ----------
    task : str
        The task's id.
    key : Ed25519PrivateKey
        The shuffler's key.

    Returns
    -------
    Document
        Signed by the shuffler.
    """
    return Document.signed(HEARD, {"task": task}, key)


def require_heard(document: Document, task: str, key: Ed25519PublicKey) -> None:
    """Refuse anything but the shuffler's word that it knows of the task's end.

    Parameters
    ----------
    document : Document
        What came over the wire.
    task : str
        The task's id.
    key : Ed25519PublicKey
        The shuffler's key.

    Raises
    ------
    WireError
        Where it is not the shuffler's word on this task.
    """
    _of_task(document, HEARD, task, key)


def _of_task(document: Document, kind: int, task: str, key: Ed25519PublicKey) -> dict[str, Any]:
    values = document.verified(kind, key)
    if values["task"] != task:
        raise WireError("a document of another task")
    return values
