"""The enroller: it knows who is a person, and signs one token per slot for each of them, unseen. It learns nothing of any report.

Whatever proves that somebody is a person stands behind it: invitations in a file, printed or sent by an identity provider.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
)
from fastapi import FastAPI, Request, Response
from prometheus_client import Counter
from sqlalchemy import Column, ForeignKey, Integer, String, Table, insert, select
from sqlalchemy.exc import IntegrityError
from starlette.concurrency import run_in_threadpool

from ..files import create_private
from ..validation import ArgumentError, Found
from .net.database import Database, hash_of, role_tables
from .net.http import BINARY
from .net.server import Allowance, bearer_token, read_body, refusal_answer, role_app
from .wire.documents import WireError
from .wire.enrolment import (
    KEY_BITS,
    blanks_bytes,
    blind_signature,
    new_signer,
    number_of,
    read_blanks,
    read_requests,
    requests_bytes,
)
from .wire.outcomes import RefusedError

ENROLLER = role_tables()
# People, by their invitations' hashes, and the digest of the requests that were signed for them.
people = Table("people", ENROLLER, Column("id", String, primary_key=True))
issued = Table(
    "issued", ENROLLER, Column("person", ForeignKey("people.id"), primary_key=True), Column("requests", String, nullable=False)
)
# Blanks of the task's shuffler, by slot and part, and the digest of the requests that were signed for them.
blanks_issued = Table(
    "blanks_issued",
    ENROLLER,
    Column("slot", Integer, primary_key=True),
    Column("part", Integer, primary_key=True),
    Column("requests", String, nullable=False),
)
# The fewest characters of an invitation: nobody should guess one.
SHORTEST_INVITATION = 16
# People that are written down in one transaction.
_TOGETHER = 500


class EnrollerRole:
    """The role, without a network: `admit` people, `issue` tokens, that is `commit` to a person's requests and `sign` them.

    Guarantee
    ---------
    For each person one request a slot is signed, whatever is killed when: `commit` is on disk before `sign` begins. Requests are
    uniformly random to whoever has not got the client's blinding factors, so that nothing the enroller has seen, or keeps, links a
    token to a person. For the task's shuffler it signs `blanks` more a slot, and no other: no key signs more than one for each
    person and those.
    """

    def __init__(
        self,
        store: Database,
        signers: Sequence[RSAPrivateKey],
        blanks: int = 0,
        shuffler: Ed25519PublicKey | None = None,
    ) -> None:
        self.store, self._signers, self._blanks, self._shuffler = store, tuple(signers), blanks, shuffler

    @property
    def slots(self) -> int:
        """How many tokens a person gets."""
        return len(self._signers)

    @property
    def moduli(self) -> list[int]:
        """The public keys, one per slot."""
        return [key.public_key().public_numbers().n for key in self._signers]

    def admit(self, invitations: Iterable[str]) -> int:
        """Write people down: whoever brings one of these invitations is a person. Only hashes are kept."""
        hashes, new, start = [hash_of(invitation) for invitation in invitations], 0, 0
        while start < len(hashes):
            some = sorted(set(hashes[start : start + _TOGETHER]))  # in one order, so that two processes cannot wait for each other
            try:
                with self.store.begin() as connection:
                    known = set(connection.execute(select(people.c.id).where(people.c.id.in_(some))).scalars())
                    rows = [{"id": one} for one in some if one not in known]
                    if rows:
                        connection.execute(insert(people), rows)
            except IntegrityError:  # another process has just written some of them down: look again
                continue
            new, start = new + len(rows), start + _TOGETHER
        return new

    def person_of(self, invitation: str) -> str:
        """Return whose invitation this is."""
        person = hash_of(invitation)
        with self.store.look() as connection:
            if connection.execute(select(people.c.id).where(people.c.id == person)).scalar() is None:
                raise RefusedError(401, "not an invitation of this enroller's")
        return person

    def commit(self, person: str, body: bytes) -> Sequence[bytes]:
        """Write down, in one transaction, that these requests and no others of this person are signed. No signature is computed."""
        digest = hashlib.sha256(body).hexdigest()
        try:
            requests = read_requests(body, self.slots)
            for request, key in zip(requests, self._signers, strict=True):
                number_of(request, key)
        except WireError as problem:
            raise RefusedError(400, str(problem)) from None
        try:
            with self.store.begin() as connection:
                known = connection.execute(select(issued.c.requests).where(issued.c.person == person)).scalar()
                if known is None:
                    connection.execute(insert(issued).values(person=person, requests=digest))
        except IntegrityError:  # another process was faster
            with self.store.look() as connection:
                known = connection.execute(select(issued.c.requests).where(issued.c.person == person)).scalar_one()
        if known not in (None, digest):
            raise RefusedError(409, "other requests of this person were signed; a retry sends the same bytes")
        return requests

    def commit_blanks(self, body: bytes) -> tuple[int, int, Sequence[bytes]]:
        """Write down, in one transaction, that these requests and no others are signed for this part of a slot's blanks."""
        if self._shuffler is None:
            raise RefusedError(404, "an enroller that signs no blanks")
        try:
            slot, part, requests = read_blanks(body, self.moduli, self._blanks, self._shuffler)
            for request in requests:
                number_of(request, self._signers[slot - 1])
        except WireError as problem:
            raise RefusedError(400, str(problem)) from None
        digest, here = hashlib.sha256(b"".join(requests)).hexdigest(), blanks_issued.c
        query = select(here.requests).where((here.slot == slot) & (here.part == part))
        try:
            with self.store.begin() as connection:
                known = connection.execute(query).scalar()
                if known is None:
                    connection.execute(insert(blanks_issued).values(slot=slot, part=part, requests=digest))
        except IntegrityError:  # another process was faster
            with self.store.look() as connection:
                known = connection.execute(query).scalar_one()
        if known not in (None, digest):
            raise RefusedError(409, "other blanks of this part were signed; a retry sends the same requests")
        return slot, part, requests

    def sign_blanks(self, slot: int, requests: Sequence[bytes]) -> bytes:
        """Sign requests for blanks that the enroller has committed to."""
        return b"".join(blind_signature(request, self._signers[slot - 1]) for request in requests)

    def sign(self, requests: Sequence[bytes]) -> bytes:
        """Sign requests that the enroller has committed to; about 10 ms of CPU per slot."""
        return b"".join(blind_signature(request, key) for request, key in zip(requests, self._signers, strict=True))


def token_keys(folder: Path, slots: int | None = None) -> list[RSAPrivateKey]:
    """Return the enroller's keys, in a file for its owner alone."""
    file = folder / "token.keys"
    if not file.exists():
        if slots is None:
            remedy = "Create them with croupier serve enroller-keys."
            raise ArgumentError("--dir", str(folder), "a folder with the enroller's keys", remedy)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        made = [new_signer(KEY_BITS) for _ in range(slots)]
        plain = [key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()).hex() for key in made]
        create_private(file, json.dumps(plain).encode())
    try:
        keys = [load_der_private_key(bytes.fromhex(key), None) for key in json.loads(file.read_text())]
    except (OSError, TypeError, ValueError):
        raise ArgumentError(
            "token.keys", str(file), "keys that can be read", "Restore the file; other keys sign nothing."
        ) from None
    signers = [key for key in keys if isinstance(key, RSAPrivateKey)]
    if slots is not None and len(signers) != slots:
        raise ArgumentError("--slots", slots, f"{len(signers)}, the keys in this folder", "A new task needs a new folder.")
    return signers


def blank_rule(folder: Path, blanks: int | None = None, shuffler: str | None = None) -> tuple[int, Ed25519PublicKey | None]:
    """Return how many blanks per slot the enroller of a folder signs, and for which shuffler; written down on first use."""
    file, remedy = folder / "blanks.json", "A new task needs a new folder."
    asked = {"blanks": blanks or 0, "shuffler_key": shuffler or ""}
    if not file.exists():
        if not blanks:
            return 0, None
        create_private(file, json.dumps(asked).encode())
    try:
        kept = json.loads(file.read_text())
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(kept["shuffler_key"]))
        count = int(kept["blanks"])
    except (OSError, TypeError, KeyError, ValueError):
        raise ArgumentError("blanks.json", str(file), "a file that can be read", "Restore it.") from None
    if blanks is not None and asked != kept:
        raise ArgumentError("--blanks", blanks, f"{count}, and the shuffler's key, as this folder has them", remedy)
    return count, key


def read_invitations(path: Path) -> list[str]:
    """Return the invitations in a file."""
    try:
        content = sys.stdin.buffer.read() if path == Path("-") else path.read_bytes()
        lines = content.decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "not text"
        remedy = "Create some with croupier serve invitations."
        raise ArgumentError("--people", str(path), f"a text file that can be read ({reason})", remedy) from None
    name = "standard input" if path == Path("-") else str(path)
    known: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        invitation = line.strip()
        if not invitation:
            continue
        if len(invitation) < SHORTEST_INVITATION or not invitation.isascii() or len(invitation.split()) != 1:
            allowed = f"at least {SHORTEST_INVITATION} letters, digits and signs"
            raise ArgumentError(
                f"{name}: line {number}", Found("has a value that is not shown"), allowed, "Give each person their own secret."
            )
        if invitation in known:
            allowed = f"another one than line {known[invitation]}"
            raise ArgumentError(
                f"{name}: line {number}", Found("has a value that is not shown"), allowed, "One invitation is one person."
            )
        known[invitation] = number
    return list(known)


def new_invitation() -> str:
    """Return an invitation that nobody guesses."""
    return secrets.token_urlsafe(32)


# The enroller on the network.

# How often a person's requests are signed: an answer may get lost, but signatures take the enroller's CPU. So many times at once,
# and then once per so many seconds.
_AT_ONCE, _RETRY_AFTER = 3, 60.0


def enroller_app(enroller: EnrollerRole) -> FastAPI:
    """For clients, where tokens are signed; and for the task's shuffler, which has some for blanks."""
    app, registry = role_app("croupier enroller", enroller.store)
    signed = Counter("croupier_tokens_issued", "Requests that were signed, retries included", registry=registry)
    refused = Counter("croupier_tokens_refused", "Requests that were refused", ["status"], registry=registry)
    signing = Allowance(a_second=1 / _RETRY_AFTER, burst=_AT_ONCE)
    turn = asyncio.Lock()  # Python signs one at a time; more threads would only keep everything else waiting, /healthz included
    allowance, longest = Allowance(), requests_bytes(enroller.slots)

    @app.get("/v1/keys")
    async def keys() -> Response:
        """The public halves, a line each, for `croupier doctor`: clients take those that the analyzer has signed."""
        return refusal_answer(200, "\n".join(f"{modulus:x}" for modulus in enroller.moduli))

    @app.post("/v1/tokens")
    async def tokens(request: Request) -> Response:
        try:
            person = await run_in_threadpool(enroller.person_of, bearer_token(request))
            allowance.take(person)
            requests = await run_in_threadpool(enroller.commit, person, await read_body(request, longest))
            async with turn:
                if await request.is_disconnected():  # nobody would hear it: whoever waits is next
                    return Response(status_code=204)
                signing.take(person)
                answer = await run_in_threadpool(enroller.sign, requests)
        except RefusedError as refusal:
            refused.labels(refusal.status).inc()
            return refusal_answer(refusal.status, str(refusal))
        signed.inc()
        return Response(answer, media_type=BINARY)

    @app.post("/v1/blanks")
    async def blanks(request: Request) -> Response:
        try:
            slot, part, requests = await run_in_threadpool(enroller.commit_blanks, await read_body(request, blanks_bytes()))
            async with turn:
                if await request.is_disconnected():
                    return Response(status_code=204)
                signing.take(f"blanks {slot} {part}")
                answer = await run_in_threadpool(enroller.sign_blanks, slot, requests)
        except RefusedError as refusal:
            refused.labels(refusal.status).inc()
            return refusal_answer(refusal.status, str(refusal))
        return Response(answer, media_type=BINARY)

    return app
