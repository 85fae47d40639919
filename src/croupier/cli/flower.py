"""`croupier mask-analyzer`: the second party of masked sums, for Flower and for other frameworks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..flower.analyzer import MaskAnalyzer, MaskServer
from ..validation import ArgumentError
from .progress import messages, say

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def mask_analyzer(
    folder: Annotated[Path, typer.Option("--dir", help="Folder for its key and the list of rounds it has opened. Back it up.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 chooses a free one.")] = 8443,
    token_file: Annotated[
        Path | None, typer.Option(help="File whose first line is a password that the Flower server must present.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="TLS certificate (PEM).")] = None,
    private_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="Speak plain http behind a proxy that terminates TLS.")
    ] = False,
    print_key: Annotated[bool, typer.Option("--print-key", help="Print the public key that devices need, and exit.")] = False,
) -> None:
    """Open sums of masks for a Flower server run by another operator: each round once, and only with all of its blanks."""
    analyzer = MaskAnalyzer(folder)
    if print_key:
        typer.echo(analyzer.public_key.hex())
        return
    if (certificate is None) != (private_key is None) or (certificate is None and not behind_proxy and host not in _LOOPBACK):
        remedy = "Use --certificate and --private-key, or --behind-proxy."
        raise ArgumentError("--certificate", certificate, f"given with --private-key to listen on {host}", remedy)
    token = None if token_file is None else (token_file.read_text().split() or [""])[0]
    if token is None and host not in _LOOPBACK:
        remedy = "Anyone who can send requests can use up a round. Write a long random password to a file and tell its operator."
        raise ArgumentError("--token-file", token_file, f"given to listen on {host}", remedy)
    with MaskServer(analyzer, (host, port), token=token, certificate=certificate, key=private_key) as server:
        scheme = "http" if certificate is None else "https"
        say(messages(), f"croupier: mask analyzer on {scheme}://{host}:{server.server_address[1]}")
        say(messages(), f"croupier: devices need this key: {analyzer.public_key.hex()}")
        say(
            messages(),
            "croupier: the promise holds if you do not run the Flower server yourself and do not share data with its operator.",
        )
        server.serve_forever()
