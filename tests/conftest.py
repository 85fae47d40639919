"""What every test relies on, however the suite was started."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import signal

import threadpoolctl
import typer.main
import typer.testing

# The suite's processes fill the cores: threads of linear algebra would only wait for one another, at work.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # of programs that tests start
threadpoolctl.threadpool_limits(int(os.environ["OPENBLAS_NUM_THREADS"]))

# A job in the background of a script ignores Ctrl-C, and so would the programs that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Databases wait for the disk after every change, half of the time that their tests take: keep them in memory if there is room.
MEMORY = "/dev/shm"
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)

# Typer makes its commands anew for every call, which takes longer than most commands do.
typer.main.get_command = typer.testing._get_command = functools.cache(typer.main.get_command)


def pytest_collection_finish(session: object) -> None:
    """Thousands of tests are millions of objects, and none of them is garbage: do not look for it among them again and again."""
    gc.collect()
    gc.freeze()
