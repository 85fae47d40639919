"""The one way in which clients and roles send HTTP: binary bodies, no redirects, and answers that end."""

from __future__ import annotations

import base64
import http.client
import ipaddress
import os
import ssl
import threading
import urllib.parse
import urllib.request
from collections.abc import Mapping
from contextlib import suppress

from ...validation import ArgumentError
from ..wire.documents import MOST_DOCUMENT_BYTES

BINARY = "application/octet-stream"
# In an answer to what the shuffler brings: it will never be taken.
FOR_GOOD = "Croupier-Refused-For-Good"
# Of a refusal's text, at most.
_MOST_REASON_BYTES = 1000


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
        remedy = f"Use the {name}'s https address: over plain http anybody on the way reads your token and answers in your place."
        raise ArgumentError(name, url, "an https address, or http on this machine", remedy)


class ServerError(Exception):
    """A server refused, or could not be reached. A retry sends the same bytes.

    Parameters
    ----------
    status : int or None
        The HTTP status; None where there was no answer.
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

    def send(self, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
        """Ask for something, or bring something. Whatever is sent may arrive twice: a connection that was closed is opened
        again."""
        everything = dict(headers or {}) | ({} if body is None else {"Content-Type": BINARY})
        with self._lock:
            try:
                response = self._answered(path, body, everything)
                good = 200 <= response.status < 300
                data = response.read(MOST_DOCUMENT_BYTES + 1 if good else _MOST_REASON_BYTES)
                missing, rest = response.length, response.will_close or not response.isclosed()
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
        connection.request("GET" if body is None else "POST", where, body, headers | self._kept.headers)
        return connection.getresponse()

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
