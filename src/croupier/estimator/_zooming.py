"""Secret rounds of regressions with intervals, apart from `inference`, which is long: their schedule, the run, what it showed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..optimizer import Schedule
from ..optimizer.phases import Phase
from ..optimizer.planning import expected_mu
from ..optimizer.result import Round
from ..optimizer.training import Adaptive, prepared_queries
from ..population import Population
from ..privacy import central_noise_std, plan_lots
from ..statistics import Moments
from ..statistics._zoom import ROUNDS, Lens, Seen, Zoom
from ..validation import ArgumentError
from ._rounds import Ready

NAME = "zoom"
# Noise of a round, relative to the Gaussian noise that Theorem L asks for.
_INFLATION = 1.05
# From this share of the least direction in noise on, no interval is to be expected; from the other on they are approximate.
HOPELESS, APPROXIMATE = 0.7, 0.2


def expected(kind: type[Zoom], columns: int, users: int, *, epsilon: float, delta: float, honest: float, neighbours: str) -> Zoom:
    """About the rule that a plan would give: to choose by, without the seconds that planning takes."""
    alone = 1 / central_noise_std(epsilon, delta, 2.0 if neighbours == "replace-one" else 1.0)
    noise = _INFLATION / expected_mu(alone, ROUNDS) / honest**0.5
    return kind(columns, users, (noise,) * ROUNDS)


def plan_zoom(kind: type[Zoom], columns: int, users: int, *, turnout: float | None, **promise: Any) -> Schedule:
    """Plan all rounds under one draw of secret lots."""
    *opening, (_, dim, norm) = kind.stages(columns)
    lots = plan_lots(**promise, users=users, rounds=ROUNDS, dim=dim, norm=norm, opening=tuple(opening), max_inflation=_INFLATION)
    common: dict[str, Any] = dict.fromkeys(("step", "damping", "smoothing", "bound")) | {"algorithm": NAME, "distance": 0.0}
    phases = tuple(
        Phase(
            rounds=stage.rounds,
            batch=lots.size,
            users=users,
            gradient_std=stage.plan.noise_std / lots.users_in_round,
            plan=stage.plan,
            lots=lots,
            **common,
        )
        for stage in lots.stages
    )
    planned = Schedule(
        method=NAME,
        interactivity="sequential",
        phases=phases,
        bound=None,
        bound_on="population",
        why="rounds that ask moments and scores where earlier rounds led",
        honest=lots.honest,
    )
    return planned if turnout is None else planned.with_turnout(turnout)


def check_zoom(kind: type[Zoom], columns: int, planned: Schedule) -> None:
    """Refuse a schedule of other rounds than the regression's: its certificates are not about what is sent."""
    found = tuple((phase.rounds, phase.plan.dim, phase.plan.norm) for phase in planned.phases)
    if planned.method != NAME or not planned.secret_lots or found != kind.stages(columns):
        raise ArgumentError("schedule", str(planned), "that of this regression's secret rounds", "Pass what plan() returned.")


def zoom_of(kind: type[Zoom], columns: int, planned: Schedule) -> Zoom:
    """The rule under a schedule."""
    noise = tuple(phase.plan.combination_std for phase in planned.phases for _ in range(phase.rounds))
    return kind(columns, planned.phases[0].users, noise)


def seen_in(zoom: Zoom, history: Sequence[Round]) -> list[Seen]:
    """What the rounds of a transcript showed."""
    return [zoom.read(number, entry.theta, entry.gradient) for number, entry in enumerate(history)]


@contextmanager
def zoom_rounds(
    zoom: Zoom, population: Population, planned: Schedule, seed: int | None, checkpoint: Any, facts: dict[str, Any]
) -> Iterator[Ready]:
    """Everybody is asked once, in one of the secret rounds."""
    algorithm = Adaptive(
        zoom.run,
        Moments(zoom.columns).test,
        lambda: facts | {"regression": type(zoom).__name__, "users": population.users, "schedule": planned.to_dict()},
        lambda history: zoom.estimate(seen_in(zoom, history)).coef,
    )
    start = Lens.first(zoom.columns).weights
    with prepared_queries(algorithm, population, planned, start=start, seed=seed, checkpoint=checkpoint) as run:
        yield Ready(lambda on_round: {"result_": run.result(on_round)}, run.name)
