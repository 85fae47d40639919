"""How it is minimised: the paper's algorithms over private rounds, their schedules and results."""

from .accelerated import acsa
from .pan_private import PanPrivate, PanState
from .phases import Phase, Schedule
from .planning import schedule
from .projected import descent
from .result import Result, Round
from .training import FinishedRunWarning, StopTraining, minimize, run
from .transcript import replay

__all__ = [
    "FinishedRunWarning",
    "PanPrivate",
    "PanState",
    "Phase",
    "Result",
    "Round",
    "Schedule",
    "StopTraining",
    "acsa",
    "descent",
    "minimize",
    "replay",
    "run",
    "schedule",
]
