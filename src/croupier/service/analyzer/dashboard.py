"""What the analyzer's page shows: a run so far, as plain JSON. The page itself is dashboard.html, one file that loads nothing.

All of it follows from the task, which is public, and from what the rounds released, which the promise covers; and from how many
reports the shuffler says it has, which is not about anybody's data.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import groupby
from typing import Any

from scipy.special import gammaincinv

from ... import __version__
from ...optimizer.phases import Phase, Schedule
from ...optimizer.training import noise_norms
from ...privacy import _statements as words
from ...privacy._statements import round_up
from ..wire.documents import ARRIVALS, Document, WireError, cleaned
from ..wire.task import Answered, Task, TaskRound, fewest, most_excluded
from ..wire.transports import TRANSPORTS
from .population import RemotePopulation, room

# Rounds beyond this many are shown in groups, so that a run of 10 000 rounds is no page of a megabyte.
MOST_POINTS = 240
# Seconds: how old a state may be, and for how long the shuffler's last word counts as news.
_FRESH, _NEWS = 0.5, 30.0
# What is said of a run whose sums cannot be told from noise, and how often noise alone passes for that.
NOISE_ALONE = (
    "the sums of all rounds are indistinguishable from noise: perhaps nobody came, or too few people. Ask the shuffler's operator, "
    "who alone can know; do not use the model"
)
_ALL_BUT = 0.999


@dataclass(frozen=True)
class Heard:
    """How many reports of a round the shuffler said it had; `news` unless that was long ago."""

    round: int
    arrived: int
    news: bool = True


class Dashboard:
    """The state of a run for whoever looks at it, made anew at most twice per second however many look."""

    def __init__(self, population: RemotePopulation) -> None:
        self._population = population
        self._answered: list[Answered] = []
        self._heard: tuple[Heard, float] | None = None
        self._shows: tuple[Any, ...] | None = None  # what the state was made of
        self._state: dict[str, Any] = {}
        self._looked = -math.inf
        self._lock = threading.Lock()

    def state(self, *, anew: bool = False) -> dict[str, Any]:
        """What the page shows now; `anew` looks even if somebody has just looked."""
        with self._lock:
            now = time.monotonic()
            if anew or now >= self._looked + _FRESH:
                self._answered += self._population.answered(self._answered[-1].number if self._answered else 0)
                waiting, heard = self._population.waiting(), self._last_heard(now)
                end = None if waiting else self._population.spoiled()
                refusal = None if heard or self._answered else self._population.ending.refusal
                more = {"refusal": refusal, "answer": self._population.page is not None}
                shows = len(self._answered), waiting.number if waiting else None, heard, end, refusal, more["answer"]
                if shows != self._shows:
                    self._state = run_state(self._population.task, self._answered, waiting, heard, end) | more
                self._shows, self._looked = shows, now
            return self._state

    def hear(self, data: bytes) -> None:
        """The shuffler's word on arrivals. What is not signed by the task's shuffler, or cannot be, is refused.

        A word on another round than the present one comes late, and within a round no number goes down: an old word that somebody
        sends again changes nothing.
        """
        task = self._population.task
        if task.secret is not None:
            raise WireError("arrivals in a task whose lots are secret: how many came is nobody's business")
        values = Document.from_bytes(data).verified(ARRIVALS, task.shuffler)
        if values["task"] != task.id:
            raise WireError("arrivals of another task")
        number, arrived = values["round"], values["arrived"]
        waiting = self._population.waiting()
        if waiting is None or number != waiting.number:
            return
        if arrived > waiting.phase_of(task).plan.users:
            raise WireError("more arrivals than a round has users")
        with self._lock:
            before = self._heard[0].arrived if self._heard is not None and self._heard[0].round == number else 0
            self._heard = Heard(number, max(before, arrived)), time.monotonic()

    def _last_heard(self, now: float) -> Heard | None:
        if self._heard is None:
            return None
        heard, when = self._heard
        return Heard(heard.round, heard.arrived, news=now < when + _NEWS)


def run_state(
    task: Task, answered: Sequence[Answered], waiting: TaskRound | None, heard: Heard | None = None, end: str | None = None
) -> dict[str, Any]:
    """A run as plain JSON: the rounds that were answered, the one that is waited for, what the shuffler said of it, and why the run
    has ended where that was before its time."""
    schedule = replace(task.schedule, phases=task.round_phases)
    number = waiting.phase if waiting else answered[-1].phase if answered else 1
    phase = schedule.phases[number - 1]
    status = "spoiled" if end else "finished" if len(answered) >= schedule.rounds else "asking" if waiting else "working"
    return {
        "croupier": __version__,
        "task": task.id,
        "name": cleaned(task.name),
        "question": task.query.once,
        "status": status,
        "end": end,
        "refusal": None,
        "rounds": {
            "done": len(answered),
            "planned": schedule.rounds,
            "present": waiting.number if waiting else None,
            "phase": number,
            "phases": len(schedule.phases),
        },
        "people": {"all": task.users, "answered": _people(task, answered), "once": schedule.interactivity != "full"},
        "arrivals": _arrivals(task, phase, waiting, heard),
        "privacy": _privacy(schedule),
        "bits": _bits(task, phase),
        "curve": curve(schedule, answered),
        "noise": _noise(schedule),
        "plan": plan_words(task, number) + bad_words(answered) + noise_words(task, answered),
        "promise": promise_words(schedule, task.query.release),
        "answer": False,
    }


def curve(schedule: Schedule, answered: Sequence[Answered]) -> list[dict[str, Any]]:
    """The length of every round's private mean gradient, and of noise alone: its root mean square, and between which 95 % lie.

    Where there are many rounds, the means of neighbouring ones of a phase.
    """
    size, points = max(1, math.ceil(len(answered) / MOST_POINTS)), []
    for number, entries in groupby(answered, key=lambda entry: entry.phase):
        phase, rounds = schedule.phases[number - 1], list(entries)
        plan = phase.plan
        for start in range(0, len(rounds), size):
            group = rounds[start : start + size]
            ends = [noise_norms(plan, entry.users, mean_of(phase, entry.users)) for entry in group]
            point = {
                "length": _mean([entry.length for entry in group]),
                "noise": _mean([noise_length(phase, entry.users) for entry in group]),
                "low": _mean([end[0] for end in ends]),
                "high": _mean([end[1] for end in ends]),
            }
            who = {"first": group[0].number, "last": group[-1].number, "phase": number, "users": group[-1].users}
            points.append(who | {name: _short(value) for name, value in point.items()})
    return points


def noise_length(phase: Phase, users: int) -> float:
    """Root mean square length of the noise of a mean gradient: what it would be about if there were nothing but noise."""
    return phase.plan.noise_std_for(users) / mean_of(phase, users) * math.sqrt(phase.plan.dim)


def mean_of(phase: Phase, users: int) -> float:
    """What a round's sum is divided by: the users that answered; with secret lots what all rounds have in the mean."""
    return users if phase.lots is None else phase.mean_of


def _noise(schedule: Schedule) -> list[dict[str, Any]]:
    """Noise alone in every planned round, by phases."""
    first, phases = 1, []
    for phase in schedule.phases:
        low, high = noise_norms(phase.plan, phase.batch, phase.mean_of)
        values = {"noise": noise_length(phase, phase.batch), "low": low, "high": high}
        phases.append({"first": first, "last": first + phase.rounds - 1} | {name: _short(value) for name, value in values.items()})
        first += phase.rounds
    return phases


def _people(task: Task, answered: Sequence[Answered]) -> int | None:
    """People who have answered, each once; where all are asked in every round, those who answered the last.

    None if lots are secret: nobody can say.
    """
    if task.secret is not None:
        return None
    users = [entry.users for entry in answered] or [0]
    return users[-1] if task.schedule.interactivity == "full" else sum(users)


def _arrivals(task: Task, phase: Phase, waiting: TaskRound | None, heard: Heard | None) -> dict[str, Any]:
    known = waiting is not None and heard is not None and heard.round == waiting.number
    return {
        "arrived": heard.arrived if known and heard else None,
        "news": bool(known and heard and heard.news),
        "wanted": phase.plan.users,
        "minimum": fewest(task, phase),
        "patience": task.patience,
        "seconds": None if task.secret is None else task.secret.seconds,
    }


def _privacy(schedule: Schedule) -> dict[str, Any]:
    """Epsilon of the whole run at the task's delta, rounded up; it holds wherever the run stops (accounting, section 4)."""
    delta, guarantee = _delta(schedule), schedule.guarantee
    watched = words.watched_line(guarantee, delta) if guarantee.watched else None
    return {"delta": round_up(delta, 3), "epsilon": round_up(guarantee.epsilon(delta), 3), "watched": watched}


def _bits(task: Task, phase: Phase) -> dict[str, Any]:
    plan, full = phase.plan, task.schedule.interactivity == "full"
    return {
        "person": replace(task.schedule, phases=task.round_phases).bits_per_user,
        "round": plan.bits_per_user,
        "rounds": phase.rounds if full else 1,
        "bytes": TRANSPORTS[task.transport].report_length(plan) + task.token_bytes,
        "travel": TRANSPORTS[task.transport].travel,
    }


def plan_words(task: Task, number: int) -> list[list[str]]:
    """The plan of a phase in words: names and what they are."""
    schedule, phase = task.schedule, task.round_phases[number - 1]
    plan, full, of_mean = phase.plan, schedule.interactivity == "full", phase.plan.noise_std / phase.mean_of
    ends = f"with {plan.users:,} reports"
    if task.secret is not None:
        ends = f"{task.secret.seconds:,.4g} seconds after it began, whoever came; blanks fill it up to {plan.users:,} reports"
    elif task.patience is not None and fewest(task, phase) < plan.users:
        ends += f", or after {task.patience:,.4g} seconds with at least {fewest(task, phase):,}"
    unit, hidden = ("people", "") if phase.lots is None else ("reports", ", drawn by a lot that is kept secret")
    bound = "none" if schedule.bound is None else f"expected excess {schedule.bound_on} loss at most {schedule.bound:.4g}"
    query = task.query_of(number)
    rows = {
        query.subject: query.description,
        "method": f"{schedule.method}, {schedule.interactivity} interactivity; {schedule.why}",
        "phase": f"{number} of {len(schedule.phases)}: {words.counted(phase.rounds, 'round')} of {phase.batch:,} {unit}, "
        f"by {phase.algorithm}",
        "a person": "is in every round" if full else f"is in one round at most{hidden}",
        "a round ends": ends,
        "honest in a round": _honest_words(task, phase, unit),
        "vectors" if query.once or phase.opens else "gradients": f"{plan.dim:,} coordinates, clipped to length {plan.norm:.4g}"
        + _block_words(phase),
        "message": f"{plan.levels:,} levels and {plan.noise_bits:,} noise bits of probability {plan.noise_probability:.4g} per "
        "coordinate",
        "transport": f"{task.transport}: {TRANSPORTS[task.transport].description}",
        "noise": f"{of_mean:.3g} in a coordinate of the mean, {plan.inflation:.4g} times a trusted curator's",
        "bound on the loss": bound,
    }
    if query.once:  # nothing is minimised
        rows = {name: text for name, text in rows.items() if name not in ("phase", "method", "bound on the loss")}
    return [[name, text] for name, text in rows.items()]


def all_plan_words(task: Task) -> list[list[str]]:
    """The same of all phases: the first one's, and what differs in later ones."""
    first, rows = plan_words(task, 1), list[list[str]]()
    for number in range(2, len(task.schedule.phases) + 1):
        rows += [[f"phase {number}: {name}", text] for name, text in plan_words(task, number) if [name, text] not in first]
    return first + rows


def _block_words(phase: Phase) -> str:
    """How much of a vector a person sends, where that is not all."""
    plan = phase.plan
    return "" if plan.blocks == 1 else f"; a person sends one of {plan.blocks} blocks of {plan.coordinates:,}, drawn with its round"


def _honest_words(task: Task, phase: Phase, unit: str) -> str:
    """What a round is taken to hold, and what of that may be left out: the plan's noise is that of the rest."""
    most, plan = most_excluded(task, phase), phase.plan
    held = words.honest_users(plan.honest_users + most, plan.users, unit)
    rest = f"; whichever {most:,} reports are left out, {plan.honest_users:,} of them are in the sum" if most else ""
    if not TRANSPORTS[task.transport].checked:  # nothing is left out: what is bad counts as zeros
        rest = ""
    if not room(task, phase):
        rest = "; one bad report ends the task"
    return f"{held} are counted on to add their noise{rest}"


def bad_words(answered: Sequence[Answered]) -> list[list[str]]:
    """What was bad in the rounds so far, in words; nothing where all was well."""
    bad, dropped = sum(entry.bad for entry in answered), [entry.number for entry in answered if entry.dropped]
    rows = [["bad reports", f"{bad:,} {'was' if bad == 1 else 'were'} left out, or counted as zeros"]] if bad else []
    numbers = ", ".join(map(str, dropped))
    return rows + ([["lost rounds", f"{numbers}: counts that no users could have sent"]] if dropped else [])


def is_noise_alone(task: Task, answered: Sequence[Answered]) -> bool:
    """Whether the sums that all rounds released could be noise alone; where nobody came it says so, all but once in 1000 times.

    It looks at what was released and nothing else, so that it says nothing new of anybody: least of all how many came.
    """
    rounds = [(entry, task.round_phases[entry.phase - 1]) for entry in answered if not entry.dropped]
    if task.query.once or not rounds:
        return False
    dims = sum(phase.plan.dim for _, phase in rounds)
    squares = sum((entry.length / noise_length(phase, entry.users)) ** 2 * phase.plan.dim for entry, phase in rounds)
    return bool(squares <= 2 * gammaincinv(dims / 2, _ALL_BUT))


def noise_words(task: Task, answered: Sequence[Answered]) -> list[list[str]]:
    """The same for people, of a run with all its rounds; nothing where there is more than noise."""
    over = len(answered) >= task.schedule.rounds and is_noise_alone(task, answered)
    return [["result", NOISE_ALONE]] if over else []


def promise_words(schedule: Schedule, release: str = "model") -> dict[str, str]:
    """What the whole run promises, in words and in figures that can be checked."""
    guarantee, delta = schedule.guarantee, _delta(schedule)
    epsilon = max((phase.lots or phase.plan).epsilon for phase in schedule.phases)
    claim = words.Claim.of(epsilon, delta, guarantee)
    watched = words.watched_line(guarantee, delta) if guarantee.watched else ""
    promise = words.PromiseWords(
        claim=claim, neighbours=guarantee.neighbours, honest=guarantee.honest, watched=watched, release=release
    )
    lots = f" Assumptions about the lots. {words.DEPLOYED_LOTS}" if watched else ""
    if (plan := schedule.phases[0].lots) is not None and plan.blanks is not None:
        lots += f" {words.COUNTED_BLANKS.format(size=plan.size, people=plan.least_people - plan.most_excluded)}"
    return {
        "short": f"epsilon {round_up(epsilon)}, delta {round_up(claim.delta)}",
        "words": " ".join(filter(None, (promise.meaning, promise.guess, promise.if_watched))),
        "if": f"Assumptions about the shuffler. {words.SHUFFLER}{lots} Assumptions about the others. {promise.crowd} "
        f"{words.RECORDS['refuse']}",
        "proved": words.certified_line(guarantee, epsilon, delta),
    }


def _delta(schedule: Schedule) -> float:
    """The delta that the task was planned for."""
    return max((phase.lots or phase.plan).delta for phase in schedule.phases) + schedule.shortfall


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _short(value: float) -> float:
    """As many digits as a page can use."""
    return float(f"{value:.5g}")


# --- the page -------------------------------------------------------------------------------------------------------------------

_PAGE = files(__package__).joinpath("dashboard.html").read_text(encoding="utf-8")


def page(state: dict[str, Any]) -> str:
    """The page with a first state in it, so that nothing moves when it is shown."""
    first = json.dumps(state, allow_nan=False).replace("<", "\\u003c")
    return _PAGE.replace("{{state}}", first)


def _hash_of(element: str) -> str:
    match = re.search(f"<{element}>(.*?)</{element}>", _PAGE, re.DOTALL)
    content = match[1] if match else ""
    return "'sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() + "'"


# Nothing but the page's own script and style, and questions to whoever served it.
POLICY = "; ".join(
    [
        "default-src 'none'",
        f"script-src {_hash_of('script')}",
        f"style-src {_hash_of('style')}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ]
)
