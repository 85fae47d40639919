"""Limits per address, for requests that prove nothing: without a token, or with one that nobody was given.

What a client with a token may ask is limited by the token (`Allowance`). Addresses are in memory alone, and only while they ask.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Requests at once, and per second after that: without a token, and with a wrong one. A page is ten requests, and a waiting client
# asks twice per second at most: a hundred people behind one address are served.
BURST, PER_SECOND = 400.0, 200.0
WRONG_BURST, WRONG_PER_SECOND = 50.0, 1.0
# Addresses that are remembered; beyond them those that have asked least are forgotten.
MOST_ADDRESSES = 50_000
_REFUSAL = b"too many requests from this address; wait a little\n"


class Buckets:
    """A bucket of requests for each address: `burst` at once, `per_second` after that."""

    def __init__(self, burst: float, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst, self._rate, self._clock = burst, per_second, clock
        self._left: dict[str, tuple[float, float]] = {}  # requests left, and when that was so

    def left(self, address: str) -> float:
        """How many requests an address has left now."""
        left, then = self._left.get(address, (self._burst, 0.0))
        return min(self._burst, left + (self._clock() - then) * self._rate)

    def take(self, address: str) -> bool:
        """Count a request; returns whether there was one left."""
        left = self.left(address)
        if left < 1:
            return False
        if address not in self._left and len(self._left) >= MOST_ADDRESSES:
            self._forget()
        self._left[address] = left - 1, self._clock()
        return True

    def _forget(self) -> None:
        """Forget whoever has a full bucket, and if nobody has, the half that has asked least."""
        kept = {address: self.left(address) for address in self._left}
        full = [address for address, left in kept.items() if left >= self._burst]
        for address in full or sorted(kept, key=kept.__getitem__, reverse=True)[: len(kept) // 2]:
            del self._left[address]


class AddressLimit:
    """An app that answers 429 to an address that asks too often without a token, or too often with a wrong one.

    `header` is the one in which a trusted proxy says the client's address; its last word counts, which is the proxy's own. Without
    it the connection's address counts. Requests from this machine are not limited.
    """

    def __init__(self, app: ASGIApp, *, header: str | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._app, self._header = app, None if header is None else header.lower().encode()
        self._without, self._wrong = Buckets(BURST, PER_SECOND, clock), Buckets(WRONG_BURST, WRONG_PER_SECOND, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or refuse one request."""
        if scope["type"] != "http" or (address := self._address(scope)) is None:
            await self._app(scope, receive, send)
            return
        has_token = any(name == b"authorization" for name, _ in scope["headers"])
        if not self.admits(address, has_token=has_token):
            await _refuse(scope, send)
            return

        async def sent(message: Message) -> None:
            if has_token and message["type"] == "http.response.start" and message["status"] == 401:
                self.count_wrong(address)
            await send(message)

        await self._app(scope, receive, sent)

    def admits(self, address: str, *, has_token: bool) -> bool:
        """Count a request without a token, and return whether it is served; one with a token counts if the token is wrong."""
        return self._wrong.left(address) >= 1 if has_token else self._without.take(address)

    def count_wrong(self, address: str) -> None:
        """Count a request with a wrong token."""
        self._wrong.take(address)

    def address_of(self, client: tuple[str, int] | None, headers: list[tuple[bytes, bytes]]) -> str | None:
        """Whom a request is counted for that is answered without the app (`DirectRoutes`)."""
        return self._address({"client": client, "headers": headers})

    def _address(self, scope: Scope) -> str | None:
        """Whom a request is counted for: an address, of IPv6 the network that one household has; None if it is this machine."""
        text = (scope.get("client") or ("", 0))[0]
        if self._header is not None:
            said = [value for name, value in scope["headers"] if name == self._header]
            text = said[-1].decode("latin-1").rpartition(",")[2].strip() if said else text
        try:
            address = ipaddress.ip_address(text.strip("[]").partition("%")[0])
        except ValueError:
            return "unknown"  # a proxy that says none: all of those together
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if address.is_loopback and self._header is None:
            return None
        if isinstance(address, ipaddress.IPv6Address):
            return str(ipaddress.ip_network((address, 64), strict=False))
        return str(address)


def limit_addresses(app: FastAPI, *, header: str | None = None) -> None:
    """Limit an app, and what is answered directly in its place, by one count."""

    async def not_yet(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("no app")

    limit = AddressLimit(not_yet, header=header)

    def limited(inner: ASGIApp) -> AddressLimit:
        limit._app = inner
        return limit

    app.state.limit = limit
    app.add_middleware(limited)


async def _refuse(scope: Scope, send: Send) -> None:
    from .server import careful_headers  # noqa: PLC0415  (which imports this)

    headers = [(b"content-type", b"text/plain"), (b"retry-after", b"1"), (b"content-length", str(len(_REFUSAL)).encode())]
    headers += careful_headers(scope.get("scheme") == "https")
    await send({"type": "http.response.start", "status": 429, "headers": headers})
    await send({"type": "http.response.body", "body": _REFUSAL})
