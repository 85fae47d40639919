"""The enroller: it knows who is a person, and signs one token per slot for each of them, unseen. It learns nothing of any report.

Whatever proves that somebody is a person stands behind it: invitations in a file, printed or sent by an identity provider, or
sign-in by OpenID Connect: one verified `sub` of a provider is one invitation, the same whenever it comes again.

Sign-in is the authorization code flow with PKCE. What is believed is the ID token alone: its signature by a key of the provider's,
issuer, audience, expiry and nonce. Nothing of a person is kept but the hash of its invitation.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import http.client
import json
import os
import re
import secrets
import ssl
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
)
from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from prometheus_client import Counter
from sqlalchemy import Column, ForeignKey, Integer, String, Table, insert, select
from sqlalchemy.exc import IntegrityError
from starlette.concurrency import run_in_threadpool

from ..files import create_private
from ..validation import ArgumentError, Found
from .net.database import Database, hash_of, role_tables
from .net.http import BINARY, require_private_way
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
from .wire.task import RefusedError

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


# Signatures that are believed: public keys only, so that nobody can pass off a public key as a shared secret.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
# Seconds: how long a sign-in may take, what a provider said of itself is good for, and by how much clocks may differ.
_SIGN_IN, _DISCOVERED, _LEEWAY = 600.0, 3600.0, 60.0
# Bytes of a provider's answer, and seconds that it has.
_MOST_BYTES, _TIMEOUT = 1 << 20, 15.0
_COOKIE = "croupier-sign-in"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


@dataclass(frozen=True)
class Pending:
    """A sign-in that was begun: what its end has to bring, and where its person goes then."""

    nonce: str
    verifier: str
    until: float
    back: str | None
    state: str  # the page's own


@dataclass
class Provider:
    """An OpenID provider, as a client of it sees it."""

    issuer: str
    client_id: str
    secret: str | None = None
    required: Mapping[str, str] = field(default_factory=dict)  # claims that a person's ID token has to have
    ca: Path | None = None
    clock: Callable[[], float] = time.time
    _known: tuple[float, dict[str, Any]] = (-1e18, {})
    _keys: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        require_private_way(self.issuer, "--oidc-issuer")

    def settings(self) -> dict[str, Any]:
        """What the provider says of itself, asked for once an hour; its word on who it is has to be ours."""
        when, known = self._known
        if self.clock() < when + _DISCOVERED:
            return known
        found = self._json(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != self.issuer:
            raise RefusedError(502, "the provider names another issuer than --oidc-issuer")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            require_private_way(str(found.get(name)), name)
        self._known, self._keys = (self.clock(), found), []
        return found

    def authorization(self, redirect: str, state: str, pending: Pending) -> str:
        """Where a person signs in."""
        challenge = hashlib.sha256(pending.verifier.encode()).digest()
        words = {"response_type": "code", "scope": "openid", "client_id": self.client_id, "redirect_uri": redirect, "state": state}
        words |= {"nonce": pending.nonce, "code_challenge": _text(challenge), "code_challenge_method": "S256"}
        address = str(self.settings()["authorization_endpoint"])
        return f"{address}{'&' if '?' in address else '?'}{urlencode(words)}"

    def subject(self, code: str, redirect: str, pending: Pending) -> str:
        """Exchange a code, and return whom its ID token is about, verified."""
        words = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect}
        words |= {"client_id": self.client_id, "code_verifier": pending.verifier}
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if self.secret is not None:
            pair = f"{quote_plus(self.client_id)}:{quote_plus(self.secret)}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        answer = self._json(str(self.settings()["token_endpoint"]), urlencode(words).encode(), headers)
        return self.verified(str(answer.get("id_token")), pending.nonce)

    def verified(self, token: str, nonce: str) -> str:
        """Return the `sub` of an ID token of this provider, for this client and this sign-in; refuses every other one."""
        import jwt  # noqa: PLC0415  (an extra)

        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in ALGORITHMS:
                raise RefusedError(403, "an ID token that is signed in a way that is not believed")
            needed = ["iss", "aud", "exp", "iat", "sub", "nonce"]
            claims: dict[str, Any] = jwt.decode(
                token,
                self._key(header),
                algorithms=[header["alg"]],
                audience=self.client_id,
                issuer=self.issuer,
                leeway=_LEEWAY,
                options={"require": needed},
            )
        except jwt.PyJWTError as problem:
            raise RefusedError(403, f"an ID token that is not believed ({type(problem).__name__})") from None
        if not hmac.compare_digest(str(claims["nonce"]).encode(), nonce.encode()):
            raise RefusedError(403, "an ID token of another sign-in")
        several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if claims.get("azp", None if several else self.client_id) != self.client_id:
            raise RefusedError(403, "an ID token that was issued to another client")
        if not isinstance(claims["sub"], str) or not claims["sub"]:
            raise RefusedError(403, "an ID token about nobody")
        for name, wanted in self.required.items():
            if json.dumps(claims.get(name)).strip('"') != wanted:
                raise RefusedError(403, f"this account may not take part: its {name} is another one")
        return str(claims["sub"])

    def _key(self, header: Mapping[str, Any]) -> Any:
        """The provider's key that a token names; keys are asked for again where it names a new one."""
        import jwt  # noqa: PLC0415

        for again in (False, True):
            if again or not self._keys:
                self._keys = list(self._json(str(self.settings()["jwks_uri"])).get("keys", []))
            fit = [key for key in self._keys if header.get("kid") in (None, key.get("kid")) and key.get("use", "sig") == "sig"]
            if len(fit) == 1:
                return jwt.PyJWK.from_dict(fit[0], algorithm=header["alg"]).key
        raise RefusedError(403, "an ID token that is signed by no key of the provider's")

    def _json(self, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        """What the provider answers; no redirect is followed."""
        parts = urlsplit(url)
        where = parts.hostname or "", parts.port
        if parts.scheme == "https":
            trusted = ssl.create_default_context(cafile=None if self.ca is None else os.fspath(self.ca))
            connection = http.client.HTTPSConnection(*where, timeout=_TIMEOUT, context=trusted)
        else:
            connection = http.client.HTTPConnection(*where, timeout=_TIMEOUT)  # type: ignore[assignment]
        try:
            path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
            connection.request("GET" if body is None else "POST", path, body, {"Accept": "application/json", **(headers or {})})
            response = connection.getresponse()
            data, status = response.read(_MOST_BYTES), response.status
            answer = json.loads(data) if status == 200 else None
        except (OSError, http.client.HTTPException, ValueError):
            answer, status = None, 0
        finally:
            connection.close()
        if not isinstance(answer, dict):
            raise RefusedError(502, f"the provider does not answer as it should ({status or 'nothing'}); try again later")
        return answer


class SignIn:
    """Sign-ins at one enroller, without a network: `begin` and `end` them."""

    def __init__(
        self, provider: Provider, key: bytes, address: str, origins: Sequence[str], admit: Callable[[list[str]], int]
    ) -> None:
        self.provider, self._key, self._admit = provider, key, admit
        self._redirect, self._origins = f"{address.rstrip('/')}/signed-in", frozenset(origins)

    @property
    def secure(self) -> bool:
        """Whether people come by https, whoever ends it."""
        return self._redirect.startswith("https:")

    def begin(self, back: str | None, state: str) -> tuple[str, str]:
        """Return where the person signs in, and what its browser keeps until then. Nothing is kept here: nobody can fill it."""
        if back is not None:
            parts = urlsplit(back)
            if f"{parts.scheme}://{parts.netloc}" not in self._origins or parts.query or parts.fragment:
                raise RefusedError(400, "no page of this enroller's: it is started with --allow-origin of each")
        if not re.fullmatch(r"[A-Za-z0-9-]{0,64}", state):
            raise RefusedError(400, "a state that is none")
        own = secrets.token_urlsafe(32)
        pending = self._begun(own, self.provider.clock() + _SIGN_IN, back, state)
        kept = json.dumps([own, pending.until, back, state]).encode()
        return self.provider.authorization(self._redirect, own, pending), f"{_text(kept)}.{self._derived('kept', kept)}"

    def end(self, state: str, bound: str, code: str) -> tuple[str, Pending]:
        """Return the invitation of whoever has signed in; the enroller knows it from now on."""
        text, _, proof = bound.partition(".")
        try:
            kept = base64.urlsafe_b64decode(text.encode("ascii") + b"==")
        except ValueError:
            kept = b""
        good = hmac.compare_digest(self._derived("kept", kept).encode(), proof.encode())
        own, *rest = json.loads(kept) if good else ("", 0.0, None, "")
        pending = self._begun(own, *rest)
        if not good or pending.until <= self.provider.clock() or not hmac.compare_digest(state.encode(), own.encode()):
            raise RefusedError(400, "this sign-in is over, or was begun elsewhere; begin again")
        subject = self.provider.subject(code, self._redirect, pending)
        invitation = self.invitation(subject)
        self._admit([invitation])
        return invitation, pending

    def _begun(self, own: str, until: float, back: str | None, state: str) -> Pending:
        """A sign-in by its own state, from which nobody else can compute the rest."""
        return Pending(self._derived("nonce", own.encode()), self._derived("verifier", own.encode()), until, back, state)

    def _derived(self, what: str, data: bytes) -> str:
        return _text(hmac.digest(self._key, f"croupier sign-in v1 {what} ".encode() + data, "sha256"))

    def invitation(self, subject: str) -> str:
        """The one invitation of a `sub`: a function of it that nobody can compute who has not got the enroller's key."""
        words = json.dumps(["croupier invitation v1", self.provider.issuer, subject]).encode()
        return _text(hmac.digest(self._key, words, "sha256"))


def add_sign_in(app: FastAPI, signing: SignIn) -> None:
    """Let people sign in at an enroller's app."""

    @app.get("/sign-in")
    async def begin(request: Request) -> Response:
        try:
            asked = request.query_params
            where, kept = await run_in_threadpool(signing.begin, asked.get("return"), asked.get("state", ""))
        except RefusedError as refusal:
            return refusal_answer(refusal.status, str(refusal))
        answer = RedirectResponse(where, status_code=303)
        about: dict[str, Any] = {"httponly": True, "secure": signing.secure, "samesite": "lax", "path": "/signed-in"}
        answer.set_cookie(_COOKIE, kept, max_age=int(_SIGN_IN), **about)
        return answer

    @app.get("/signed-in")
    async def end(request: Request) -> Response:
        asked = request.query_params
        try:
            if "error" in asked:
                raise RefusedError(403, "the provider did not sign you in")
            bound = request.cookies.get(_COOKIE, "")
            invitation, pending = await run_in_threadpool(signing.end, asked.get("state", ""), bound, asked.get("code", ""))
        except RefusedError as refusal:
            return refusal_answer(refusal.status, str(refusal))
        if pending.back is not None:  # after the #, which browsers send to nobody
            words = urlencode({"invitation": invitation, "state": pending.state})
            answer: Response = RedirectResponse(f"{pending.back}#{words}", status_code=303)
        else:
            answer = HTMLResponse(_PAGE.format(escape(invitation)))
        answer.headers["Content-Security-Policy"], answer.headers["Referrer-Policy"] = _POLICY, "no-referrer"
        answer.delete_cookie(_COOKIE, path="/signed-in")
        return answer


_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>Your invitation</title><h1>Your invitation</h1>'
    "<p>It is for you alone: CROUPIER_INVITATION for <code>croupier join</code>.</p><p><code>{}</code></p></html>"
)


def invitation_key(folder: Path) -> bytes:
    """The key of invitations, made on first use, in a file for its owner alone: with another one people would be invited twice."""
    file = folder / "sign-in.key"
    if not file.exists():
        create_private(file, f"{secrets.token_hex(32)}\n".encode())
    try:
        key = bytes.fromhex(file.read_text().strip())
    except ValueError:
        key = b""
    if len(key) != 32:
        raise ArgumentError("sign-in.key", str(file), "64 hex digits", "Restore the file; a new one would invite everybody again.")
    return key


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
