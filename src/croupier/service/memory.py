"""What a client remembers in its folder: which rounds it has answered or covered, and the lot that it was told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..files import lock, write_whole
from ..validation import ArgumentError
from .outcomes import RefusedTaskError


class Memory:
    """A client's folder.

    Parameters
    ----------
    folder : Path
        Made on first use, for its owner alone.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder. Two processes of one user would answer twice: the second is refused while the first is at it.

        Yields
        ------
        None
            While nobody else has it.

        Raises
        ------
        ArgumentError
            Where another process has it.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.folder / "lock").open("a") as file:
            try:
                lock(file.fileno())
            except OSError:
                remedy = "Wait until the other one has ended: one user answers once."
                raise ArgumentError("folder", str(self.folder), "used by one process at a time", remedy) from None
            yield

    def answers(self, task: str) -> list[dict[str, Any]]:
        """Return the answers to a task, whatever was heard of them; cover is none.

        Parameters
        ----------
        task : str
            The task's id.

        Returns
        -------
        list of dict
            In their order.
        """
        return [entry for entry in self.entries() if entry["task"] == task and not entry.get("cover")]

    def has_answered(self) -> bool:
        """Say whether any task was answered from this folder.

        Returns
        -------
        bool
            False where there was cover alone.
        """
        return any(not entry.get("cover") for entry in self.entries())

    def entries(self) -> list[dict[str, Any]]:
        """Return all that was sent or was about to be.

        Returns
        -------
        list of dict
            In their order.

        Raises
        ------
        ArgumentError
            Where the ledger cannot be read.
        """
        file = self.folder / "ledger.jsonl"
        try:
            known = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
            if not all(isinstance(entry, dict) and {"slot", "task", "round", "phase"} <= set(entry) for entry in known):
                raise ValueError
        except ValueError:
            allowed = "a ledger that can be read"
            raise ArgumentError("folder", str(file), allowed, "Bring it back: without it you might answer twice.") from None
        return known

    def count(self, entry: dict[str, Any]) -> None:
        """Write down what is about to leave: an answer that gets lost may have been taken.

        Parameters
        ----------
        entry : dict
            Slot, task, round and phase.
        """
        entries = [*self.entries(), entry]
        self.write(self.folder / "ledger.jsonl", "".join(json.dumps(known) + "\n" for known in entries).encode())

    def lot(self, task: str) -> tuple[int | None] | None:
        """Return the lot that was told for a task.

        Parameters
        ----------
        task : str
            The task's id.

        Returns
        -------
        tuple of (int or None) or None
            The round, or None in it where the client is asked in none; None where nothing was told yet.

        Raises
        ------
        ArgumentError
            Where the file cannot be read.
        """
        file = self.folder / f"{task}.lot"
        if not file.exists():
            return None
        try:
            told = json.loads(file.read_text())
            if told is not None and type(told) is not int:
                raise ValueError
        except ValueError:
            remedy = "Bring it back: without it a shuffler could tell you another lot."
            raise ArgumentError("folder", str(file), "a lot that can be read", remedy) from None
        return (told,)

    def keep_lot(self, task: str, told: int | None) -> None:
        """Keep the lot that was told.

        Parameters
        ----------
        task : str
            The task's id.
        told : int or None
            The round.

        Raises
        ------
        RefusedTaskError
            Where another one was told before.
        """
        known = self.lot(task)
        if known is not None and known != (told,):
            raise RefusedTaskError("the shuffler tells another lot than before; lots are drawn once. Nothing was sent.")
        self.write(self.folder / f"{task}.lot", json.dumps(told).encode())

    def write(self, path: Path, data: bytes) -> None:
        """Write a file of the folder, whole or not at all.

        Parameters
        ----------
        path : Path
            The file.
        data : bytes
            What is in it.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, data, private=True)
