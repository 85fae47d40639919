"""Invitations: a secret in a link enrols the first device that claims it, until a time; after that the link is worth nothing.

The device draws its token by itself and sends the hash along. So a link in a mailbox or a browser's history opens nothing later,
and a retry after a lost answer is the same claim.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Protocol
from urllib.parse import urlencode

from fastapi import FastAPI, Request, Response
from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError
from starlette.concurrency import run_in_threadpool

from ..net.database import Database, hash_of
from ..net.server import Allowance, bearer_token, read_body, refusal_answer
from ..wire.outcomes import RefusedError
from .role import RoundClock
from .rounds import clients, invitations

# Bytes of a claim: the hash of the device's token, in hex.
CLAIM_BYTES = 64


class Enrolling(Protocol):
    """Who has people: a shuffler of one task, or of many."""

    @property
    def store(self) -> Database:
        """Where people are enrolled."""

    @property
    def clock(self) -> RoundClock:
        """What invitations expire by."""


def invite(store: Database, names: Sequence[str], until: float) -> list[str]:
    """Enrol these clients without a token, in one transaction; returns a secret for each, good until then for one device."""
    codes = [secrets.token_urlsafe(32) for _ in names]
    with store.begin() as connection:
        connection.execute(insert(clients), [{"id": name, "token_hash": None} for name in names])
        rows = [{"id": hash_of(code), "client": name, "until": until} for code, name in zip(codes, names, strict=True)]
        connection.execute(insert(invitations), rows)
    return codes


def claim(store: Database, code: str, token_hash: str, now: float) -> None:
    """Make a device's token that of the invited client. The same claim again changes nothing, whatever the time."""
    here = invitations.c.id == hash_of(code)
    first = here & invitations.c.token_hash.is_(None) & (invitations.c.until > now)
    try:
        with store.begin() as connection:
            if connection.execute(update(invitations).where(first).values(token_hash=token_hash)).rowcount:
                client = select(invitations.c.client).where(here).scalar_subquery()
                connection.execute(update(clients).where(clients.c.id == client).values(token_hash=token_hash))
            row = connection.execute(select(invitations.c.token_hash).where(here)).first()
    except IntegrityError:
        raise RefusedError(400, "a token that is another client's") from None
    if row is None:
        raise RefusedError(401, "not an invitation of this shuffler's")
    if row.token_hash is None:
        raise RefusedError(410, "this invitation has expired; ask for another one")
    if row.token_hash != token_hash:
        raise RefusedError(409, "this invitation was used on another device, or was withdrawn; ask for another one")


def add_claims(app: FastAPI, shuffler: Enrolling) -> None:
    """Let devices claim invitations at an app."""
    allowance = Allowance()

    async def take(request: Request) -> Response:
        try:
            code = bearer_token(request)
            body = (await read_body(request, CLAIM_BYTES)).decode("ascii", "replace")
            if not re.fullmatch(r"[0-9a-f]{64}", body):
                raise RefusedError(400, "a claim that is no hash")
            await run_in_threadpool(claim, shuffler.store, code, body, shuffler.clock.now())
            allowance.take(hash_of(code))
        except RefusedError as refusal:
            return refusal_answer(refusal.status, str(refusal))
        return Response(status_code=200)

    app.add_api_route("/v1/claim", take, methods=["POST"])


def invitation_link(
    page: str, *, code: str, analyzer: str, shuffler: str, until: float, enroller: str | None = None, sign_in: bool = False
) -> str:
    """A link that opens the page with everything pinned. All of it is after the #, which browsers send to nobody."""
    words = {"code": code, "analyzer": analyzer, "shuffler": shuffler.rstrip("/"), "until": f"{until:.0f}"}
    words |= {} if enroller is None else {"enroller": enroller.rstrip("/")}
    words |= {"signin": "1"} if sign_in else {}
    return f"{page}#{urlencode(words, safe=':/')}"
