"""What a client remembers in its folder: which rounds it has answered or covered, and the lot that it was told."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...files import json_line, json_object, lock, write_whole
from ...validation import ArgumentError, Found
from ..net.http import Server, ServerError
from ..wire.enrolment import TokenRequests
from ..wire.outcomes import RefusedTaskError
from ..wire.task import Task


class Memory:
    """A client's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder. Two processes of one user would answer twice: the second is refused while the first is at it."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.folder / "lock").open("a") as file:
            try:
                lock(file.fileno())
            except OSError:
                remedy = "Wait until the other one ends: one user answers once."
                raise ArgumentError("folder", str(self.folder), "used by one process at a time", remedy) from None
            yield

    def answers(self, task: str) -> list[dict[str, Any]]:
        """Return the answers to a task, whatever was heard of them; cover is none."""
        return [entry for entry in self.entries() if entry["task"] == task and not entry.get("cover")]

    def has_answered(self) -> bool:
        """Say whether any task was answered from this folder."""
        return any(not entry.get("cover") for entry in self.entries())

    def entries(self) -> list[dict[str, Any]]:
        """Return all that was sent or was about to be."""
        file = self.folder / "ledger.jsonl"
        lines = file.read_bytes().splitlines() if file.exists() else []
        known = [entry for entry in map(json_object, lines) if entry and {"slot", "task", "round", "phase"} <= set(entry)]
        if len(known) < len(lines):
            allowed = "a ledger that can be read"
            raise ArgumentError("folder", str(file), allowed, "Restore it: without it you might answer twice.")
        return known

    def count(self, entry: dict[str, Any]) -> None:
        """Write down what is about to leave: an answer that gets lost may have been taken."""
        entries = [*self.entries(), entry]
        self.write(self.folder / "ledger.jsonl", b"".join(map(json_line, entries)))

    def lot(self, task: str) -> tuple[int | None] | None:
        """Return the lot that was told for a task: its round, or in a task with blocks its place among all lots."""
        file = self.folder / f"{task}.lot"
        if not file.exists():
            return None
        try:
            told = json.loads(file.read_text())
            if told is not None and type(told) is not int:
                raise ValueError
        except ValueError:
            remedy = "Restore it: without it a shuffler could tell you another lot."
            raise ArgumentError("folder", str(file), "a lot that can be read", remedy) from None
        return (told,)

    def keep_lot(self, task: str, told: int | None) -> None:
        """Keep the lot that was told."""
        known = self.lot(task)
        if known is not None and known != (told,):
            raise RefusedTaskError("the shuffler tells another lot than before; lots are drawn once. Nothing was sent.")
        self.write(self.folder / f"{task}.lot", json.dumps(told).encode())

    def write(self, path: Path, data: bytes) -> None:
        """Write a file of the folder, whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, data, private=True)


# A client's tokens on its device: asked for once, kept until they are used, the same requests after a crash.

NOT_SHOWN = Found("has a value that is not shown")


class Wallet:
    """The tokens of one user in one task, in the client's folder.

    Requests are on disk before they are sent, so that a retry sends the same bytes: the enroller signs no others. When the tokens
    are here, what could link them to the requests is deleted.
    """

    def __init__(self, folder: Path, task: Task) -> None:
        if task.enroller is None:
            raise ArgumentError("task", task.id, "a task with an enroller", "This one needs no tokens.")
        self._task, self._enroller = task.id, task.enroller
        self._tokens, self._requests = folder / f"{task.id}.tokens", folder / f"{task.id}.requests"

    def collect(self, server: Server, invitation: str | None) -> None:
        """Get the task's tokens from its enroller, unless they are here."""
        if self._tokens.exists():
            self._requests.unlink(missing_ok=True)  # of whoever was killed before it had done so
            return
        if invitation is None or not re.fullmatch(r"[!-~]+", invitation):
            remedy = f"The task's enroller, {self._enroller.address}, knows you by it. Nothing was sent."
            raise ArgumentError("invitation", None if invitation is None else NOT_SHOWN, "letters, digits and signs", remedy)
        requests = self._drawn()
        try:
            answer = server.send("/v1/tokens", requests.to_bytes(), {"Authorization": f"Bearer {invitation}"})
        except ServerError as refusal:
            if refusal.status == 401:
                remedy = "Copy it as it was printed, or ask the person who invited you."
                raise ArgumentError("invitation", NOT_SHOWN, "one that the enroller knows", remedy) from None
            if refusal.status == 409:
                remedy = "Use the folder (--dir) in which they were collected: each person gets them once."
                raise ArgumentError("invitation", NOT_SHOWN, "one whose tokens were not collected elsewhere", remedy) from None
            raise ServerError(refusal.status, f"the enroller: {str(refusal).strip()}") from None
        tokens = requests.tokens(answer, self._task, self._enroller)
        self._write(self._tokens, [token.hex() for token in tokens])
        self._requests.unlink()

    def token(self, slot: int) -> bytes:
        """Return the token of a slot."""
        tokens = self._read(self._tokens)
        if not 1 <= slot <= len(tokens) or not tokens[slot - 1]:
            raise ArgumentError("token", slot, "one of a slot that was not answered yet", "One user answers once.")
        return bytes.fromhex(tokens[slot - 1])

    def forget(self, slot: int) -> None:
        """Strike out the token of a slot, which is in a report by now."""
        tokens = self._read(self._tokens)
        tokens[slot - 1] = ""
        self._write(self._tokens, tokens)

    def _drawn(self) -> TokenRequests:
        """The requests that were drawn before, or new ones, on disk."""
        if not self._requests.exists():
            self._write(self._requests, TokenRequests.drawn(self._task, self._enroller).to_rows())
        return TokenRequests.from_rows(self._read(self._requests))

    def _write(self, path: Path, values: list[Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, json.dumps(values).encode(), private=True)

    def _read(self, path: Path) -> list[Any]:
        try:
            values: list[Any] = json.loads(path.read_text())
        except (OSError, ValueError):
            remedy = "Restore it: the enroller signs no other tokens for you."
            raise ArgumentError("folder", str(path), "a file that can be read", remedy) from None
        return values
