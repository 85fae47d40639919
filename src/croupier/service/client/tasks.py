"""The tasks of a shuffler that serves many, as a client sees them: names and addresses, and nothing that is believed.

What a task is and promises, its signed document says, at the task's own address. A name is no more than a part of that address.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import parse_qsl, urlsplit

from ...files import create_private, write_whole
from ...validation import ArgumentError, Found
from ..net.http import TASK_NAME, Server, ServerError, require_private_way
from ..wire.documents import Document, WireError, followed, sha256, successor
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
            raise _refused("one with a code or a token, and not both")
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
