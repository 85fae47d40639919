"""The tasks of a shuffler that serves many, as a client sees them: names and addresses, and nothing that is believed.

What a task is and promises, its signed document says, at the task's own address. A name is no more than a part of that address.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...files import write_whole
from ..net.http import TASK_NAME, Server, ServerError
from ..wire.documents import Document, WireError
from ..wire.succession import followed, successor
from .state import Memory

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
