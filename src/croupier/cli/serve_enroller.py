"""`croupier serve enroller`: the third party that says who is a person, its keys and its invitations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..validation import whole
from .serve import Certificate, DatabaseUrl, Dev, Folder, Host, Key, Port, _opened, _sqlite, _tls, _until_stopped
from .serve import app as serve

__all__ = ["serve"]


@serve.command("enroller-keys")
def enroller_keys(
    folder: Folder,
    address: Annotated[str, typer.Option(help="Where clients will reach the enroller, such as https://enroller.example:8803.")],
    slots: Annotated[int, typer.Option(help="Tokens a person: 1, or in the full model the rounds of the longest phase.")] = 1,
) -> None:
    """Print an enroller's public keys, for the task file's `enroller`; made on first use, for one task."""
    from ..service.enroller import token_keys  # noqa: PLC0415  (an extra)
    from ..service.enrolment import EnrollerKeys, check_address  # noqa: PLC0415

    whole("--slots", slots, at_least=1, at_most=10_000, remedy="Say in how many rounds a user is asked.")
    check_address("--address", address)
    keys = token_keys(folder, slots)
    moduli = tuple(key.public_key().public_numbers().n for key in keys)
    typer.echo(json.dumps(EnrollerKeys(address, moduli).words(), indent=1))


@serve.command()
def invitations(people: Annotated[int, typer.Option(help="How many people to invite.")] = 1) -> None:
    """Print new invitations, one a person, for `croupier serve enroller --people FILE`."""
    from ..service.enroller import new_invitation  # noqa: PLC0415

    for _ in range(whole("--people", people, at_least=1, remedy="Say how many invitations you need.")):
        typer.echo(new_invitation())


@serve.command()
def enroller(
    folder: Folder,
    people: Annotated[
        Path | None, typer.Option(help="Text file of invitations, one per person, a line each; - is standard input.")
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 8803,
    certificate: Certificate = None,
    private_key: Key = None,
    dev: Dev = False,
    database: DatabaseUrl = None,
    allow_origin: Annotated[list[str] | None, typer.Option(help="Origin of pages that may ask for tokens here.")] = None,
) -> None:
    """Sign tokens for invited people, unseen: so that a shuffler cannot make up users. Run by a third party."""
    from ..service import store  # noqa: PLC0415
    from ..service.enroller import EnrollerRole, read_invitations, token_keys  # noqa: PLC0415
    from ..service.enroller_web import enroller_app  # noqa: PLC0415
    from ..service.own_page import allow_origins  # noqa: PLC0415
    from ..service.roles import Served  # noqa: PLC0415

    tls = _tls(folder, host, certificate, private_key, dev)
    signers = token_keys(folder)
    invited = [] if people is None else read_invitations(people)
    role = EnrollerRole(_opened(database or _sqlite(folder, "enroller"), store.ENROLLER), signers)
    web = enroller_app(role)
    allow_origins(web, allow_origin or [])
    new = role.admit(invited)
    with _until_stopped() as stopped, Served(web, host=host, port=port, tls=tls) as served:
        typer.echo(f"enroller on {served.url}")
        if people is not None:
            file = "standard input" if people == Path("-") else people
            typer.echo(f"{len(invited)} people invited by {file}, {new} of them new")
        stopped.wait()
