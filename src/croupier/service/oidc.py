"""Sign-in at an enroller by OpenID Connect: one verified `sub` of a provider is one invitation, the same whenever it comes again.

The authorization code flow with PKCE. What is believed is the ID token alone: its signature by a key of the provider's, issuer,
audience, expiry and nonce. Nothing of a person is kept but the hash of its invitation.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import os
import re
import secrets
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.concurrency import run_in_threadpool

from ..files import create_private
from ..validation import ArgumentError
from .net.http import require_private_way
from .net.server import refusal_answer
from .wire.outcomes import RefusedError

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
