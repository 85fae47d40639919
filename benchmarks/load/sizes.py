"""How much of everything is measured."""

from __future__ import annotations

from dataclasses import dataclass

DIM, KILLS = 30, 20


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    loads: tuple[tuple[int, int, bool], ...] = ((1, 2_000, False), (16, 6_000, False), (64, 6_000, False), (16, 6_000, True))
    killed_reports: int = 16_000
    kills: int = KILLS
    envelopes: int = 20_000
    verified_reports: int = 2_000
    verified_load: int = 3_000
    clients: int = 2_000
    strangers: int = 1_500  # clients that open connections of their own, over TLS
    enrolled: int = 1_000_000
    features: int = DIM - 1  # and the constant
    rounds: int = 10
    runs: tuple[tuple[str, str], ...] = (
        ("masked-sum", "sequential"),
        ("masked-sum", "full"),
        ("verified-sum", "sequential"),
        ("messages", "sequential"),
    )
    processes: tuple[int, ...] = (1, 2, 4)
    shared_reports: int = 8_000
    shared_connections: int = 64
    large_reports: int = 100_000
    large_dim: int = 10
    compared: int = 3_000  # reports of one turn against an earlier version
    compared_clients: int = 800
    turns: int = 5
    goal_reports: int = 20_000  # of one turn, masked; then verified ones, and clients over TLS
    goal_checked: int = 4_000
    goal_clients: int = 2_000
    goal_turns: int = 3
    goal_connections: int = 128  # of one process and of two
    simulated: int = 1_000_000  # people, without sockets
    simulated_rounds: int = 50
    before: str | None = None  # an earlier checkout


QUICK = Sizes(
    loads=((4, 100, True),),
    killed_reports=600,
    kills=1,
    envelopes=500,
    verified_reports=40,
    verified_load=60,
    clients=30,
    strangers=20,
    enrolled=2_000,
    features=4,
    rounds=2,
    runs=(("masked-sum", "sequential"), ("verified-sum", "sequential"), ("messages", "sequential")),
    processes=(2,),
    shared_reports=200,
    shared_connections=8,
    large_reports=400,
    large_dim=4,
    compared=60,
    compared_clients=20,
    turns=1,
    goal_reports=60,
    goal_checked=40,
    goal_clients=20,
    goal_turns=1,
    goal_connections=8,
    simulated=400,
    simulated_rounds=2,
)
