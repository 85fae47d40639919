"""The log of what operators did: one JSON object per line in the role's folder, written before the act, with no name of any person.

Clients appear by the handles that `croupier serve` gave them; secrets never do.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from ..files import append

FILE = "audit.jsonl"


def record(folder: Path, act: str, **facts: Any) -> None:
    """Write down that an operator does something. On disk when this returns: what cannot be logged is not done."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = json.dumps({"at": at, "by": _operator(), "act": act, **facts}).encode() + b"\n"
    file = folder / FILE
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        append(handle, line, file)
    finally:
        os.close(handle)


def _operator() -> str:
    """The account that runs the command, by the system's word and not the environment's; behind sudo also who called it."""
    try:
        import pwd  # noqa: PLC0415

        name = pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):  # Windows, or an account without a name
        name = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    behind = os.environ.get("SUDO_USER")
    return f"{name} (sudo by {behind})" if behind and name == "root" else name
