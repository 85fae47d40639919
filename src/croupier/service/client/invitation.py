"""Invitation links: what they pin, and how the first device claims one. The TypeScript client reads the same links."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import parse_qsl, urlsplit

from ...files import create_private
from ...validation import ArgumentError, Found
from ..net.http import Server, ServerError, require_private_way
from ..wire.documents import sha256

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
