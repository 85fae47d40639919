"""What every test relies on, however the suite was started."""

from __future__ import annotations

import functools
import gc
import signal

import typer.main
import typer.testing

# A job in the background of a script ignores Ctrl-C, and so would the programs that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Typer makes its commands anew for every call, which takes longer than most commands do.
typer.main.get_command = typer.testing._get_command = functools.cache(typer.main.get_command)


def pytest_collection_finish(session: object) -> None:
    """Thousands of tests are millions of objects, and none of them is garbage: do not look for it among them again and again."""
    gc.collect()
    gc.freeze()
