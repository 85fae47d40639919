"""What every test relies on, however the suite was started."""

from __future__ import annotations

import signal

# A job in the background of a script ignores Ctrl-C, and so would the programs that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
