"""What a run costs beside the work of full rounds: overhead, dealing, sequential passes."""

from __future__ import annotations

import statistics
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from croupier.population import Population, RayPopulation
from croupier.population._blocks import BLOCK_USERS, BlockPopulation
from croupier.population.population import Seats, deal
from croupier.protocol.randomness import Secret

from ..timing import turns
from .grid import ROUNDS
from .records import Generated, generated
from .rounds import question_for


def run_in_thread(request: dict[str, Any]) -> dict[str, Any]:
    """What a run costs beside the work of full rounds."""
    return {name: work(request[name]) for name, work in (("dealing", dealing), ("sequential", sequential), ("overhead", overhead))}


def overhead(request: dict[str, Any]) -> dict[str, Any]:
    """Seconds of rounds over so few users that there is no work in them."""
    users, dim = 200, 50
    blocks = [Generated(number, users // 4, dim, users // 4) for number in range(4)]
    question = question_for(users, dim)
    with (
        RayPopulation(BlockPopulation(blocks), workers=2) as two,
        RayPopulation(BlockPopulation(blocks), workers=1) as one,
    ):
        populations: dict[str, Population] = {"local": BlockPopulation(blocks, keep=True), "ray 1": one, "ray 2": two}
        work = {name: lambda population=population: population.answer(question) for name, population in populations.items()}
        turns(work, 5)
        seconds = turns(work, request["rounds"])
    middle = {name: statistics.median(times) for name, times in seconds.items()}
    high = {name: float(np.quantile(times, 0.95)) for name, times in seconds.items()}
    return {"users": users, "dim": dim, "rounds": request["rounds"], "median": middle, "high": high}


def dealing(request: dict[str, Any]) -> dict[str, Any]:
    """Seconds per user of dealing them to rounds: on the driver, where records are kept, and in each round where they are not."""
    users = request["users"]
    secret, borders = Secret.fresh(), [*range(0, users, BLOCK_USERS), users]
    sizes = [users // ROUNDS + (number < users % ROUNDS) for number in range(ROUNDS)]
    batch = deal(secret, users, sizes)[0]
    spans = list(pairwise(borders))
    seconds = turns(
        {
            "deal": lambda: deal(secret, users, sizes),
            "seats": lambda: [Seats(batch.order, *span) for span in spans],
            "members": lambda: [batch.members(*span) for span in spans],
        },
        3,
    )
    return {"users": users, "rounds": ROUNDS, "per_user": {name: statistics.median(t) / users for name, t in seconds.items()}}


def sequential(request: dict[str, Any]) -> dict[str, Any]:
    """A sequential run, each user asked once in 100 rounds, beside one round that asks all: kept and streamed."""
    users, dim = request["users"], request["dim"]
    sizes = [users // ROUNDS + (number < users % ROUNDS) for number in range(ROUNDS)]
    batches = deal(Secret.fresh(), users, sizes)
    whole, part = (question_for(count, dim) for count in (users, min(sizes)))
    parts = [replace(part, batch=batch, secret=Secret.fresh()) for batch in batches]
    kept, streamed = (BlockPopulation(generated(users, dim), keep=keep) for keep in (True, False))
    kept.answer(parts[0])  # reads, and takes seats
    seconds = turns(
        {
            "kept_full": lambda: kept.answer(whole),
            "kept_sequential": lambda: [kept.answer(part) for part in parts],
            "streamed_full": lambda: streamed.answer(whole),
            "streamed_sequential": lambda: [streamed.answer(part) for part in parts],
        },
        request["repeats"],
    )
    return {"users": users, "dim": dim, "blocks": len(generated(users, dim)), "rounds": ROUNDS} | {
        name: statistics.median(times) for name, times in seconds.items()
    }
