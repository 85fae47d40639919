"""How people come to a deployment: links and QR codes for `croupier serve invite`, sign-in for `croupier serve enroller`."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..files import create_private
from ..service.analyzer.task_file import public_key
from ..service.net.http import require_private_way
from ..validation import ArgumentError, how_to_install

if TYPE_CHECKING:
    from ..service.oidc import SignIn


def check_links(link: str, shuffler: str | None, analyzer_key: str, enroller: str | None, sign_in: bool) -> dict[str, Any]:
    """What every link pins; refuses addresses at which a page could not be opened or to which it would not send."""
    parts = urlsplit(link)
    if not re.fullmatch(r"https?://[^\s?#]+", link):
        raise ArgumentError("--link", link, "an address like https://shuffler.example/", "Use the page's address, without a #.")
    require_private_way(link, "--link")
    public_key("--analyzer-key", analyzer_key)
    if enroller is not None:
        require_private_way(enroller, "--enroller")
    if sign_in and enroller is None:
        raise ArgumentError("--sign-in", True, "left out without --enroller", "Name the enroller at which people sign in.")
    where = shuffler or f"{parts.scheme}://{parts.netloc}"
    require_private_way(where, "--shuffler")
    return {"analyzer": analyzer_key.lower(), "shuffler": where, "enroller": enroller, "sign_in": sign_in}


def check_codes(folder: Path) -> None:
    """Refuse to draw QR codes where nothing can draw them, or into a folder that has others."""
    if find_spec("segno") is None:
        remedy = f"It comes with the extra `service`: {how_to_install('service')}"
        raise ArgumentError("--qr", str(folder), "left out unless segno is installed", remedy)
    if folder.exists():
        raise ArgumentError("--qr", str(folder), "a new folder", "Otherwise old and new codes would be mixed up.")
    folder.mkdir(parents=True, mode=0o700)


def write_codes(folder: Path, links: Mapping[str, str]) -> None:
    """A QR code of each link, in a file that only its owner can read: anyone who sees one can use it."""
    import segno  # noqa: PLC0415

    for name, link in links.items():
        drawn = io.BytesIO()
        code = segno.make(link, error="m", micro=False)
        code.save(drawn, kind="svg", scale=4, border=4, xmldecl=False, title=f"Invitation {name}")
        create_private(folder / f"{name}.svg", drawn.getvalue())


def sign_in_of(folder: Path, role: Any, provider: tuple[Any, ...], address: str | None, origins: Sequence[str]) -> SignIn:
    """Sign-ins at an enroller, by its options."""
    from ..service.oidc import Provider, SignIn, invitation_key  # noqa: PLC0415  (an extra)

    issuer, client, secret, required, ca = provider
    for name, value in (("--oidc-client", client), ("--address", address)):
        if not value:
            raise ArgumentError(name, value, "given with --oidc-issuer", "The provider identifies this enroller by both.")
    require_private_way(address or "", "--address")
    claims = dict(one.partition("=")[::2] for one in required)
    if not all(re.fullmatch(r"[^=]+=.+", one) for one in required):
        raise ArgumentError("--oidc-require", required, "NAME=VALUE", "For example email_verified=true.")
    if find_spec("jwt") is None:
        remedy = f"It comes with the extra `service`: {how_to_install('service')}"
        raise ArgumentError("--oidc-issuer", issuer, "left out unless PyJWT is installed", remedy)
    return SignIn(Provider(issuer, client, secret, claims, ca), invitation_key(folder), address or "", origins, role.admit)
