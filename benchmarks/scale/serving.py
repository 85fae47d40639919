"""The other side of `measuring.in_process`: one request from standard input, its result on standard output."""

from __future__ import annotations

import json
import sys

from threadpoolctl import threadpool_limits

from .costs import run_in_thread
from .rounds import one_cell


def serve() -> None:
    """The other side: a request from standard input, its result as the last line of standard output."""
    request = json.load(sys.stdin)
    work = {"round": one_cell, "rest": run_in_thread}
    with threadpool_limits(1):  # one process is one core; Ray does the same in its workers
        print(json.dumps(work[request.pop("work")](request)))
