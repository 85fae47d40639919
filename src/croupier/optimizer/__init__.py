"""How it is minimised: the paper's algorithms over private rounds, their schedules and results."""

from .algorithms import acsa, descent
from .pan_private import PanPrivate
from .phases import Phase, Schedule
from .planning import schedule
from .result import Result, replay
from .training import StopTraining, minimize

__all__ = [
    "PanPrivate",
    "Phase",
    "Result",
    "Schedule",
    "StopTraining",
    "acsa",
    "descent",
    "minimize",
    "replay",
    "schedule",
]
