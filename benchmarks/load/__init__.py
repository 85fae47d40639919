"""The deployed roles under load: durable reports per second, kill -9 under load, ciphertexts per second, and a whole run.

The shuffler is the real command in a process of its own, over loopback, with SQLite. Reports are made beforehand, and what that
takes is given beside. Absolute figures depend on the machine, so that each stands beside the same disk's or core's own limit,
measured in the same run. Exits with 1 where one of the limits in `judging` is missed. --only measures some sections anew and keeps
the others that are stored.
"""

from __future__ import annotations

from ..protocol import no_figures as figures
from .judging import judge
from .measuring import measure, options
from .writing import page

__all__ = ["figures", "judge", "measure", "options", "page"]
