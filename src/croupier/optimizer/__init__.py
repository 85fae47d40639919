"""How it is minimised: the paper's algorithms over private rounds, their schedules and results."""

from .acsa import acsa
from .descent import descent
from .minimize import FinishedRunWarning, StopTraining, minimize, replay, run
from .pan_private import PanPrivate, PanState
from .phases import Phase, Schedule
from .result import Result, Round
from .schedule import schedule

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
