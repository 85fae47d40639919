"""The command line as its users call it."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from unittest import mock

from croupier.cli import main


def croupier(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What the command prints and returns, without the price of a new process."""
    out, err = io.StringIO(), io.StringIO()
    with mock.patch.object(sys, "argv", ["croupier", *arguments]), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())
