"""The second party: opens the sum of a round's masks, once, for exactly the reports that the plan says.

It has the key that devices seal their masks' seeds for, and never sees a masked report. Its answer says nothing without them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..files import create_private
from ..privacy import ArgumentError
from ..protocol import BatchTooSmallError
from ..service.wire.masked import BadEnvelopesError, mask_key, open_masks, public_mask_key
from ..service.wire.reports import count_width, packed, unpacked
from ..service.wire.transports import SEALED_SEED
from ..validation import Found
from ._round import RoundWords

_KEY, _OPENED = "mask-key", "opened"
# Bytes of a request, at most: a million reports, in base64.
_LONGEST = 1 << 27
# An answer: how many numbers, then the numbers, packed.
_COUNT = struct.Struct("<Q")


class Opener(Protocol):
    """The party that opens masks for a strategy: this process, or another party."""

    @property
    def public_key(self) -> bytes:
        """What devices seal for."""

    @property
    def separate(self) -> bool:
        """Whether it is another process than the one that adds reports up, and may be another operator's."""

    def open(self, words: RoundWords, envelopes: Sequence[bytes]) -> NDArray[np.uint64]:
        """Add up the masks of a round."""


class MaskAnalyzer:
    """Opens sums of masks. A round, or each of its blocks, is opened once; the same request has the same answer again.

    Parameters
    ----------
    folder : path-like, optional
        Where its key and the rounds that it has opened are kept; made where it is missing. Without a folder both are lost with the
        process: for simulations.

    Attributes
    ----------
    public_key : bytes
        32 bytes, X25519: what devices seal their seeds for.

    Guarantee
    ---------
    It answers only for as many different envelopes as the plan has reports, blanks included, all sealed for this very round and
    plan. What it answers is a sum of masks, which says nothing about anybody without the masked reports. If the
    operator of the Flower server runs it, nothing is hidden from that operator: there is no shuffle guarantee.

    Examples
    --------
    >>> len(MaskAnalyzer().public_key)
    32
    """

    separate = False

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder = None if folder is None else Path(folder).expanduser()
        self._lock, self._opened = threading.Lock(), dict[str, str]()
        if self._folder is None:
            self._key = mask_key()
        else:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not (self._folder / _KEY).exists():
                create_private(self._folder / _KEY, mask_key())
            self._key = (self._folder / _KEY).read_bytes()
            for file in self._folder.glob(f"{_OPENED}-*"):
                self._opened[file.name.removeprefix(f"{_OPENED}-")] = file.read_text()
        self.public_key = public_mask_key(self._key)

    def open(self, words: RoundWords, envelopes: Sequence[bytes]) -> NDArray[np.uint64]:
        """Add up the masks of a round.

        Parameters
        ----------
        words : RoundWords
            What the devices were told: reports are bound to it.
        envelopes : sequence of bytes
            One per report, blanks included.

        Returns
        -------
        numpy.ndarray of uint64, shape (coordinates of a report,)
            The sum of the masks.

        Raises
        ------
        BatchTooSmallError
            If there are not exactly as many envelopes as the plan has reports.
        BadEnvelopesError
            If some envelopes do not open; the round is still closed.
        PermissionError
            If the round was opened for other envelopes: the difference of two sums is one person's report.
        """
        masks = open_masks(envelopes, words.lots.one_round, context=words.context, key=self._key, block=words.block)
        round_, asked = f"{words.context.hex()}-{words.block}", hashlib.sha256(b"".join(envelopes)).hexdigest()
        with self._lock:
            known = self._opened.get(round_)
            if known is None:
                if self._folder is not None:
                    create_private(self._folder / f"{_OPENED}-{round_}", asked.encode())  # on the disk before it is answered
                self._opened[round_] = asked
            elif known != asked:
                raise PermissionError(
                    f"round {words.round} of run {words.run[:8]} was opened for other reports. Nothing was opened."
                )
        return masks


class RemoteMaskAnalyzer:
    """A mask analyzer behind the network, as `croupier mask-analyzer` runs it.

    Parameters
    ----------
    url : str
        Its address.
    public_key : bytes
        Its key, as its operator told it: devices are given the same.
    token : str, optional
        The password by which it knows this server.
    certificate : path-like, optional
        A certificate to trust in addition to the system's.
    timeout : float, default 300.0
        Seconds for an answer.

    Attributes
    ----------
    public_key : bytes
        The same key.

    Examples
    --------
    >>> RemoteMaskAnalyzer("https://masks.example", bytes(32)).separate
    True
    """

    separate = True

    def __init__(
        self,
        url: str,
        public_key: bytes,
        *,
        token: str | None = None,
        certificate: str | Path | None = None,
        timeout: float = 300.0,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ArgumentError("url", url, "an address by http or https", "Pass what `croupier mask-analyzer` printed.")
        if len(public_key) != 32:
            raise ArgumentError(
                "public_key", Found(f"has {len(public_key)} bytes"), "32 bytes", "Pass bytes.fromhex(...) of what was printed."
            )
        self.public_key, self._url, self._token, self._timeout = public_key, url.rstrip("/"), token, timeout
        self._tls = ssl.create_default_context(cafile=certificate) if url.startswith("https://") else None

    def open(self, words: RoundWords, envelopes: Sequence[bytes]) -> NDArray[np.uint64]:
        """Ask it for the sum of a round's masks.

        Parameters
        ----------
        words : RoundWords
            What the devices were told.
        envelopes : sequence of bytes
            One per report, blanks included.

        Returns
        -------
        numpy.ndarray of uint64, shape (coordinates of a report,)
            The sum of the masks.

        Raises
        ------
        BadEnvelopesError
            If some envelopes do not open.
        PermissionError
            If it refuses, with its words.
        """
        body = json.dumps({"words": words.to_json(), "envelopes": base64.b64encode(b"".join(envelopes)).decode()}).encode()
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self._token}"} if self._token else {})
        request = urllib.request.Request(f"{self._url}/v1/masks", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout, context=self._tls) as answer:
                data = answer.read()
        except urllib.error.HTTPError as error:
            told = json.loads(error.read() or b"{}")
            if "bad" in told:
                raise BadEnvelopesError(tuple(told["bad"])) from None
            raise PermissionError(f"the mask analyzer refused: {told.get('error', error.reason)}") from None
        plan, (count,) = words.lots.one_round, _COUNT.unpack_from(data)
        return unpacked(data[_COUNT.size :], count, count_width(plan))


class MaskServer(ThreadingHTTPServer):
    """Serves a mask analyzer; one operator's own process, never that of the Flower server.

    `analyzer`: With a folder, so that a restart forgets nothing. `address`: Host and port; port 0 is any that is free. `token`:
    What a request has to know. `certificate`, `key`: For TLS.
    """

    daemon_threads = True

    def __init__(
        self,
        analyzer: MaskAnalyzer,
        address: tuple[str, int],
        *,
        token: str | None = None,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
    ) -> None:
        super().__init__(address, _Handler)
        self.analyzer, self.token = analyzer, token
        if certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate, key)
            self.socket = tls.wrap_socket(self.socket, server_side=True)


class _Handler(BaseHTTPRequestHandler):
    """GET /v1/key, POST /v1/masks."""

    server: MaskServer
    timeout = 60

    def do_GET(self) -> None:
        if self.path == "/v1/key":
            self._answer(200, {"key": self.server.analyzer.public_key.hex()})
        else:
            self._answer(404, {"error": "not found"})

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        given = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if self.path != "/v1/masks" or not 0 < length <= _LONGEST:
            self._answer(404, {"error": "not found, or too long"})
        elif self.server.token is not None and not compare_digest(given.encode(), self.server.token.encode()):
            self._answer(401, {"error": "another token is needed"})
        else:
            self._open(self.rfile.read(length))

    def _open(self, body: bytes) -> None:
        try:
            asked = json.loads(body)
            words, data = RoundWords.from_json(asked["words"]), base64.b64decode(asked["envelopes"], validate=True)
            envelopes = [data[start : start + SEALED_SEED] for start in range(0, len(data), SEALED_SEED)]
            masks = self.server.analyzer.open(words, envelopes)
        except BadEnvelopesError as error:
            self._answer(409, {"bad": list(error.places)})
        except (BatchTooSmallError, PermissionError) as error:
            self._answer(403, {"error": str(error)})
        except (ValueError, KeyError, TypeError) as error:
            self._answer(400, {"error": str(error)})
        else:
            plan = words.lots.one_round
            numbers = packed(masks, count_width(plan))
            self._answer(200, _COUNT.pack(len(masks)) + numbers)

    def _answer(self, status: int, content: bytes | dict[str, Any]) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: an operator's log has no use for it."""
