"""How it is minimised: the paper's algorithms over private rounds, their schedules and results."""

from .algorithms import acsa, descent
from .pan_private import PanPrivate, PanState
from .phases import Phase, Schedule
from .planning import schedule
from .result import Result, Round, replay
from .training import FinishedRunWarning, StopTraining, minimize, run

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
