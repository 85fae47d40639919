"""What a client remembers in its folder: which rounds it has answered or covered, and the lot that it was told.

Of a shuffler that serves many tasks it knows names and addresses, and nothing that is believed: what a task is and promises, its
signed document says, at the task's own address. A name is no more than a part of that address.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from ...files import create_private, json_line, json_object, lock, write_whole
from ...validation import ArgumentError, Found
from ..net.http import TASK_NAME, Server, ServerError, require_private_way
from ..wire.documents import Document, WireError, followed, sha256, successor
from ..wire.enrolment import TokenRequests
from ..wire.task import RefusedTaskError, Task


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

    def covers(self, slot: str) -> bool:
        """Say whether a report of this slot is cover, by what was written down: the analyzer names rounds, and so slots."""
        return any(entry["slot"] == slot and entry.get("cover") for entry in self.entries())

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


# Tasks of one shuffler that are looked at, at most.
_MOST = 1000
# Successions of all analyzers of one shuffler, at most.
_MOST_KEYS = 10_000


@dataclass(frozen=True)
class ListedTask:
    """A task as a shuffler lists it: the shuffler's word, until its document was read."""

    name: str
    task: str  # its id
    analyzer: str  # whose key has signed it
    state: str  # running, paused or ended

    @property
    def path(self) -> str:
        """What follows the shuffler's address in the task's."""
        return f"/tasks/{self.name}"


def listed_tasks(server: Server) -> list[ListedTask] | None:
    """The tasks that a shuffler lists; None if it serves one task, at its own address."""
    try:
        answer = server.send("/v1/tasks")
    except ServerError as refusal:
        if refusal.status == 404:
            return None
        raise
    try:
        tasks = [ListedTask(*(row[word] for word in ("name", "task", "analyzer", "state"))) for row in json.loads(answer)["tasks"]]
        ids = [word for one in tasks for word in (one.task, one.analyzer)]
        good = all(re.fullmatch(TASK_NAME, one.name) and one.state in ("running", "paused", "ended") for one in tasks)
        if not good or not all(re.fullmatch(r"[0-9a-f]{64}", word) for word in ids) or len(tasks) > _MOST:
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise WireError("a list of tasks that is none") from None
    return tasks


def trusted_keys(server: Server, pinned: Collection[str], folder: Path) -> set[str]:
    """The analyzers' keys that are known from elsewhere, and those that these have announced, each signed by the one before.

    What was announced is kept: whoever announces another successor later is not believed.
    """
    file = folder / "successions.json"
    try:
        kept = [bytes.fromhex(text) for text in json.loads(file.read_text())] if file.exists() else []
        told = [bytes.fromhex(text) for text in json.loads(server.send("/v1/keys"))["successions"]]
        documents = [Document.from_bytes(data) for data in dict.fromkeys([*kept, *told])]
    except (ValueError, KeyError, TypeError):
        raise WireError("a list of keys that is none") from None
    if len(told) > _MOST_KEYS:
        raise WireError(f"a list of {len(told)} successions, where {_MOST_KEYS} are read at most")
    keys = {key for one in pinned for key in followed(one.lower(), documents)}
    new = [document.to_bytes() for document in documents if _is_of(document, keys)]  # the others are a stranger's to send
    if set(new) - set(kept):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(file, json.dumps([data.hex() for data in dict.fromkeys([*kept, *new])]).encode(), private=True)
    return keys


def _is_of(document: Document, keys: Collection[str]) -> bool:
    """Whether one of these keys has announced another one by this document."""
    for key in keys:
        with suppress(WireError, ValueError):
            successor(document, key)
            return True
    return False


def folder_of(folder: Path, task: str) -> Path:
    """Where a client remembers what it has answered to one task of several: a folder of its own, unless this one knows the task."""
    known = any(folder.glob(f"{task}*")) or bool(Memory(folder).answers(task))
    return folder if known and not (folder / task).is_dir() else folder / task


# Invitation links: what they pin, and how the first device claims one. The TypeScript client reads the same links.


_WORDS = ("code", "token", "analyzer", "shuffler", "enroller", "invitation", "signin", "until")
_HOW = "Copy the link as it was sent to you, in quotes, or ask for another one."


@dataclass(frozen=True)
class InvitationLink:
    """All that a link says: whom it pins, and by which secret its person is known."""

    analyzer: str  # its key, 64 hex digits
    shuffler: str  # its address
    code: str | None = None  # for the first device that claims it
    token: str | None = None  # or for whoever has it
    enroller: str | None = None
    invitation: str | None = None

    @classmethod
    def read(cls, link: str) -> Self:
        """Read a link, strictly: what is unknown, twice or misshapen is refused. Errors quote nothing of it."""
        parts = urlsplit(link.strip())
        pairs = parse_qsl(parts.fragment, keep_blank_values=True)
        said = dict(pairs)
        if len(said) != len(pairs) or not set(said) <= set(_WORDS):
            raise _refused("words of an invitation, each once")
        if ("code" in said) == ("token" in said) or not re.fullmatch(r"[!-~]{1,500}", said.get("code", said.get("token", ""))):
            raise _refused("an invitation link, with a code or a token but not both")
        if not re.fullmatch(r"[0-9a-fA-F]{64}", said.get("analyzer", "")):
            raise _refused("one with the analyzer's key of 64 hex digits")
        shuffler = said.get("shuffler", f"{parts.scheme}://{parts.netloc}")
        for name, address in (("shuffler", shuffler), ("enroller", said.get("enroller"))):
            if address is not None:
                require_private_way(address, name)
        return cls(said["analyzer"], shuffler, said.get("code"), said.get("token"), said.get("enroller"), said.get("invitation"))


def _refused(allowed: str) -> ArgumentError:
    return ArgumentError("--link", Found("has a value that is not shown"), allowed, _HOW)


def claimed_token(folder: Path, shuffler: Server, code: str) -> str:
    """Claim a code for this folder's device: the token that it is enrolled with from then on.

    The token is drawn here, and on disk before its hash is sent, so that a retry after a lost answer is the same claim.
    """
    file = folder / f"{sha256(code.encode())}.claim"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        create_private(file, secrets.token_hex(32).encode())
    token = file.read_text()
    try:
        shuffler.send("/v1/claim", sha256(token.encode()).encode(), {"Authorization": f"Bearer {code}"})
    except ServerError as refusal:
        if refusal.status in (400, 401, 409, 410):
            allowed = f"one that the shuffler takes ({str(refusal).strip()})"
            raise ArgumentError("--link", Found("was refused"), allowed, _HOW) from None
        raise
    return token
