"""The one way in which clients and roles send HTTP: binary bodies, no redirects, and answers that end."""

from __future__ import annotations

import base64
import http.client
import io
import ipaddress
import os
import socket
import ssl
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from ...validation import ArgumentError
from ..wire.documents import MOST_DOCUMENT_BYTES, WireError

BINARY = "application/octet-stream"
# A task's name, where a server has several: a part of an address, of a path and of a schema's name, and nothing else.
TASK_NAME = r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?"
# In an answer to what the shuffler brings: it will never be taken.
FOR_GOOD = "Croupier-Refused-For-Good"
# Of a refusal's text, at most.
_MOST_REASON_BYTES = 1000
# A request and its answer have so many timeouts in all, whatever comes in between; and bytes that are sent at once.
_TIMEOUTS, _PIECE = 9.0, 1 << 16


def require_private_way(url: str, name: str = "shuffler") -> None:
    """Refuse an address to which a token would travel in clear: plain http to another machine than this one."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:  # half of an IPv6 address
        raise ArgumentError(name, url, "an address like https://host:port", f"Give the {name}'s address.") from None
    try:
        here = parts.hostname == "localhost" or ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        here = False
    if parts.scheme != "https" and not (parts.scheme == "http" and here):
        remedy = f"Use the {name}'s https address: over plain http others can read your token and answer in your place."
        raise ArgumentError(name, url, "an https address, or http on this machine", remedy)


def require_public(url: str, name: str) -> None:
    """Refuse an address on this machine or in a private network: whoever names it there would have this server ask for it.

    A name is looked up. Should it mean something else a moment later, the certificate of its https address is still checked.
    """
    host = urllib.parse.urlsplit(url).hostname or ""
    try:
        found = {ipaddress.ip_address(host)}
    except ValueError:
        found = {ipaddress.ip_address(str(to[0]).partition("%")[0]) for *_, to in socket.getaddrinfo(host, None)}
    plain = [getattr(one, "ipv4_mapped", None) or one for one in found]
    if not plain or not all(one.is_global and not one.is_multicast for one in plain):
        raise WireError(f"an {name} on this machine or in a private network, which the shuffler's operator does not allow")


class ServerError(Exception):
    """A server refused, or could not be reached. A retry sends the same bytes.

    Parameters
    ----------
    status : int or None
        The HTTP status; None if there was no answer.
    reason : str
        What the server said, or why it could not be reached.
    for_good : bool, default False
        Whether the server says that it will never take this.
    """

    def __init__(self, status: int | None, reason: str, *, for_good: bool = False) -> None:
        super().__init__(reason)
        self.status, self.for_good = status, for_good


class Server:
    """A server that is sent to, over one connection that is kept for as long as the server keeps it."""

    def __init__(self, url: str, *, ca: str | os.PathLike[str] | None = None, timeout: float = 30.0) -> None:
        self._parts, self._timeout = urllib.parse.urlsplit(url.rstrip("/")), timeout
        self._tls: ssl.SSLContext | None = None
        if self._parts.scheme == "https":  # to read what certificates to trust takes longer than an answer
            self._tls = ssl.create_default_context(cafile=None if ca is None else os.fspath(ca))
        self._lock, self._kept = threading.Lock(), _Kept()
        self._deadline = 0.0  # of the present request and its answer

    def send(self, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
        """Ask for something, or bring something. Whatever is sent may arrive twice: a connection that was closed is opened
        again."""
        everything = dict(headers or {}) | ({} if body is None else {"Content-Type": BINARY})
        with self._lock:
            self._deadline = time.monotonic() + _TIMEOUTS * self._timeout
            try:
                response = self._answered(path, body, everything)
                good = 200 <= response.status < 300
                data = response.read(MOST_DOCUMENT_BYTES + 1 if good else _MOST_REASON_BYTES)
                missing, rest = response.length, response.will_close or not response.isclosed()
            except ssl.SSLCertVerificationError as problem:
                self._kept.close()
                raise ServerError(
                    None, f"its certificate is not trusted ({problem.verify_message}); name its authority by --ca"
                ) from None
            except (OSError, http.client.HTTPException, ValueError) as problem:
                self._kept.close()
                raise ServerError(None, str(problem) or type(problem).__name__) from None
            if rest:
                response.close()
                self._kept.close()
        if not good:  # a redirect, too: followed, it would bring tokens to another server
            for_good = response.headers.get(FOR_GOOD) is not None
            raise ServerError(response.status, data.decode("utf-8", "replace"), for_good=for_good)
        if len(data) > MOST_DOCUMENT_BYTES:
            raise ServerError(None, "an answer that does not end")
        if missing:
            raise ServerError(None, "an answer that was cut off")
        return data

    def close(self) -> None:
        """Close the connection; another request opens a new one."""
        with self._lock:
            self._kept.close()

    def __del__(self) -> None:
        if hasattr(self, "_kept"):
            self._kept.close()

    def _answered(self, path: str, body: bytes | None, headers: dict[str, str]) -> http.client.HTTPResponse:
        """The head of an answer. On a connection that was kept and is closed by now, the request is sent once more on a new one."""
        kept = self._kept.usable()
        if kept is not None:
            with suppress(OSError, http.client.HTTPException):
                return self._asked(kept, path, body, headers)
            self._kept.close()
        return self._asked(self._connected(), path, body, headers)

    def _asked(
        self, connection: http.client.HTTPConnection, path: str, body: bytes | None, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        where = self._kept.prefix + self._parts.path + path
        connection.response_class = self._timed  # type: ignore[assignment]
        if connection.sock is not None:
            connection.sock.settimeout(self._left())
        if body is not None and len(body) > _PIECE:  # in pieces, so that a server that takes them slowly has a deadline, too
            headers = headers | {"Content-Length": str(len(body))}
            connection.request("POST", where, self._pieces(connection, body), headers | self._kept.headers)
        else:
            connection.request("GET" if body is None else "POST", where, body, headers | self._kept.headers)
        return connection.getresponse()

    def _left(self) -> float:
        """Seconds for the next step of the present request."""
        left = min(self._timeout, self._deadline - time.monotonic())
        if left <= 0:
            raise TimeoutError("timed out: a server that takes or sends too little at a time")
        return left

    def _pieces(self, connection: http.client.HTTPConnection, body: bytes) -> Iterator[bytes]:
        for start in range(0, len(body), _PIECE):
            if connection.sock is not None:
                connection.sock.settimeout(self._left())
            yield body[start : start + _PIECE]

    def _timed(self, sock: socket.socket, *words: Any, **more: Any) -> http.client.HTTPResponse:
        """An answer that is read until the deadline: a timeout of the socket alone begins anew with every byte."""
        return http.client.HTTPResponse(_Timed(sock, self._left), *words, **more)  # type: ignore[arg-type]

    def _connected(self) -> http.client.HTTPConnection:
        """A new connection, by the proxy that the environment names if it names one."""
        scheme, host = self._parts.scheme, self._parts.hostname or ""
        if scheme not in ("http", "https") or not host:
            raise ValueError(f"not an address of a server: {self._parts.geturl()}")
        proxy = urllib.request.getproxies().get(scheme)
        by = None if proxy is None or urllib.request.proxy_bypass(self._parts.netloc) else urllib.parse.urlsplit(proxy)
        at, port = (host, self._parts.port) if by is None else (by.hostname or "", by.port or 80)
        known = {} if by is None or by.username is None else {"Proxy-Authorization": _basic(by.username, by.password or "")}
        self._kept = _Kept()
        if self._tls is not None:
            self._kept.connection = http.client.HTTPSConnection(at, port, timeout=self._timeout, context=self._tls)
            if by is not None:
                self._kept.connection.set_tunnel(host, self._parts.port or 443, headers=known)
        else:
            self._kept.connection = http.client.HTTPConnection(at, port, timeout=self._timeout)
            if by is not None:
                self._kept.prefix, self._kept.headers = f"http://{self._parts.netloc}", known
        return self._kept.connection


class _Timed(io.RawIOBase):
    """What a socket receives; each time it waits for as long as `left` says. To an answer it is the socket."""

    def __init__(self, sock: socket.socket, left: Callable[[], float]) -> None:
        self._sock, self._raw, self._left = sock, sock.makefile("rb", buffering=0), left

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._left())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Kept:
    """A connection, and what every request on it has where there is a proxy in between."""

    def __init__(self) -> None:
        self.connection: http.client.HTTPConnection | None = None
        self.prefix, self.headers = "", dict[str, str]()

    def usable(self) -> http.client.HTTPConnection | None:
        return self.connection if self.connection is not None and self.connection.sock is not None else None

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None


def _basic(user: str, password: str) -> str:
    pair = f"{urllib.parse.unquote(user)}:{urllib.parse.unquote(password)}"
    return "Basic " + base64.b64encode(pair.encode()).decode()
