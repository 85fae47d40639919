"""The page to take part with: files that a browser runs, served by the shuffler or from anywhere else.

They are made of clients/typescript, and their digests are in SHA256SUMS beside them.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import FastAPI, Request, Response
from starlette.middleware.cors import CORSMiddleware

from ..validation import ArgumentError

_KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", "": "text/plain"}
# What the page may load and whom it may talk to, where the shuffler serves it: the shuffler, and the task's enroller.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src data:",
        "connect-src 'self'{enroller}",
        "form-action 'none'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)


@dataclass(frozen=True)
class PageFile:
    """One file of the page.

    Parameters
    ----------
    name : str
        As it is asked for.
    content : bytes
        What is in it.
    packed : bytes
        The same, by gzip.
    """

    name: str
    content: bytes
    packed: bytes

    @property
    def kind(self) -> str:
        """Its media type."""
        return f"{_KINDS[Path(self.name).suffix]}; charset=utf-8"


def page_files() -> list[PageFile]:
    """Return the files of the page as they are in this package.

    Returns
    -------
    list of PageFile
        The page, its style, its code, and their digests.
    """
    folder = files(__package__) / "page"
    contents = sorted((file.name, file.read_bytes()) for file in folder.iterdir() if file.is_file())
    return [PageFile(name, content, gzip.compress(content, mtime=0)) for name, content in contents]


def add_page(app: FastAPI, enroller: Callable[[], str | None] = lambda: None) -> None:
    """Serve the page at the root of an app, beside what it serves already.

    Parameters
    ----------
    app : FastAPI
        The shuffler's.
    enroller : callable
        Returns the address of the task's enroller, which the page may then talk to as well; None where there is none.
    """
    for file in page_files():
        answer = _answering(file, enroller)
        for path in (f"/{file.name}", *(("/",) if file.name == "index.html" else ())):
            app.add_api_route(path, answer, methods=["GET"])


def _policy(enroller: str | None) -> str:
    """The policy of a page whose task has this enroller; an address whose origin a policy cannot name is left out."""
    origin = re.match(r"https?://[A-Za-z0-9.:\[\]-]+(?=/|$)", enroller or "")
    return _POLICY.format(enroller=f" {origin[0]}" if origin else "")


def _answering(file: PageFile, enroller: Callable[[], str | None]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        packed = "gzip" in request.headers.get("accept-encoding", "")
        headers = {"Content-Security-Policy": _policy(enroller()), "Referrer-Policy": "no-referrer", "Vary": "Accept-Encoding"}
        if packed:
            headers["Content-Encoding"] = "gzip"
        return Response(file.packed if packed else file.content, media_type=file.kind, headers=headers)

    return answer


def allow_origins(app: FastAPI, origins: Sequence[str]) -> None:
    """Let pages of other origins send to an app: a page that is hosted elsewhere, or an extension.

    Parameters
    ----------
    app : FastAPI
        The shuffler's, or the enroller's.
    origins : sequence of str
        Such as "https://study.example"; "*" allows every page. Tokens travel in a header that a page must set by itself, so that
        no page can use another one's.

    Raises
    ------
    ArgumentError
        Where one of them is not an origin.
    """
    for origin in origins:
        address = urlsplit(origin)
        if origin != "*" and (not address.scheme or not address.netloc or address.path or address.query or address.fragment):
            raise ArgumentError("--allow-origin", origin, "an origin without a path, or *", "For example https://study.example.")
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            max_age=600,
        )


def copy_page(folder: Path) -> list[Path]:
    """Write the page into a folder, to be hosted elsewhere.

    Parameters
    ----------
    folder : Path
        Where to; made where it is not there.

    Returns
    -------
    list of Path
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    copies = [(folder / file.name, file.content) for file in page_files()]
    for path, content in copies:
        path.write_bytes(content)
    return [path for path, _ in copies]
