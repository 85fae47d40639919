"""The one way in which clients and roles send HTTP: binary bodies, no redirects, and answers that end."""

from __future__ import annotations

import http.client
import ipaddress
import os
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from ..validation import ArgumentError
from .wire import MOST_DOCUMENT_BYTES

BINARY = "application/octet-stream"
# In an answer to what the shuffler brings: it will never be taken.
FOR_GOOD = "Croupier-Refused-For-Good"
# Of a refusal's text, at most.
_MOST_REASON_BYTES = 1000


def require_private_way(url: str) -> None:
    """Refuse an address to which a token would travel in clear: plain http to another machine than this one.

    Parameters
    ----------
    url : str
        A server's address.

    Raises
    ------
    ArgumentError
        For anything but https, or http to a loopback address.
    """
    parts = urllib.parse.urlsplit(url)
    try:
        here = parts.hostname == "localhost" or ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        here = False
    if parts.scheme != "https" and not (parts.scheme == "http" and here):
        remedy = "Use the shuffler's https address: over plain http anybody on the way reads your token and answers in your place."
        raise ArgumentError("shuffler", url, "an https address, or http on this machine", remedy)


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


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is a refusal: followed, it would turn what is sent into a question, and bring tokens to another server."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none."""
        return None


class Server:
    """A server that is sent to.

    Parameters
    ----------
    url : str
        Its address.
    ca : path-like, optional
        A file of certificates to trust instead of the system's.
    timeout : float, default 30
        Seconds after which it is out of reach.
    """

    def __init__(self, url: str, *, ca: str | os.PathLike[str] | None = None, timeout: float = 30.0) -> None:
        self._url, self._timeout = url.rstrip("/"), timeout
        self._opener = urllib.request.build_opener(NoRedirects)
        if self._url.startswith("https:"):  # to read what certificates to trust takes longer than an answer
            context = ssl.create_default_context(cafile=None if ca is None else os.fspath(ca))
            self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), NoRedirects)

    def send(self, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
        """Ask for something, or bring something.

        Parameters
        ----------
        path : str
            What is asked for.
        body : bytes, optional
            What is brought; without it this is a GET, otherwise a POST.
        headers : mapping, optional
            More headers, such as a token.

        Returns
        -------
        bytes
            The whole answer.

        Raises
        ------
        ServerError
            It refused, could not be reached, or its answer was cut off or does not end.
        """
        everything = dict(headers or {}) | ({} if body is None else {"Content-Type": BINARY})
        request = urllib.request.Request(self._url + path, data=body, headers=everything)
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                data: bytes = response.read(MOST_DOCUMENT_BYTES + 1)
                missing = response.length  # of what was announced
        except urllib.error.HTTPError as refusal:
            reason = refusal.read(_MOST_REASON_BYTES).decode("utf-8", "replace")
            raise ServerError(refusal.code, reason, for_good=refusal.headers.get(FOR_GOOD) is not None) from None
        except (OSError, http.client.HTTPException) as problem:
            raise ServerError(None, str(getattr(problem, "reason", problem))) from None
        if len(data) > MOST_DOCUMENT_BYTES:
            raise ServerError(None, "an answer that does not end")
        if missing:
            raise ServerError(None, "an answer that was cut off")
        return data
