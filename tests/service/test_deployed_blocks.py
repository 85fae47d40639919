"""Secret blocks, deployed: a lot is a round and a block, batches and releases are of pairs, and the analyzer puts blocks together."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers_roles import World, soon
from test_deployed_lots import COVERED, SECRET, Clock, Device, blank_coins, deployed, seeded_blanks  # noqa: F401
from croupier.service.shuffler import role as on_time

from croupier.service.wire.transports import TRANSPORTS

pytestmark = pytest.mark.process
BLOCKS = {"users": 80, "dim": 60, "rounds": 2, "blocks": 2, "rule": "plain", "rotation": True, "max_inflation": 2.0}


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(on_time, "time", made)
    return made


def of_lot(world: World) -> list[list[int]]:
    """Users, as the world counts them, by their lots."""
    drawn = dict(world.rows("shuffler", "SELECT client, first FROM lots"))
    return [[user for user, name in enumerate(world.names) if drawn.get(name) == lot] for lot in range(1, 5)]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("secret", [SECRET, COVERED], ids=["plain", "cover"])
def test_over_sockets_theta_is_that_of_the_run_in_memory_with_the_same_lots(make_world, clock, seeded_blanks, transport, secret):
    world = make_world(transport=transport, secret=secret, **BLOCKS)
    plan = world.task.schedule.phases[0].lots
    assert (plan.blocks, plan.lots, plan.one_round.coordinates) == (2, 4, 32)
    with deployed(world) as (running, role, url):
        members = of_lot(world)
        away = members[2][0]  # never comes: a blank takes its place
        devices = [Device(user, world, url) for user in range(world.users)]
        for device in devices:
            device._task = devices[0].task()
        for number in (1, 2):
            soon(lambda wanted=number: (now := role.current()) and world.read(now).number == wanted)
            here = [*members[2 * number - 2], *members[2 * number - 1]]
            for device in devices:
                if device.user != away:
                    sent = device.take_part(*device.rows)
                    assert (sent is None) == (device.user not in here and not secret.cover)
                    assert sent is None or sent.cover == (device.user not in here)
            soon(lambda: role._blanks._round)
            clock.now = secret.leaves(clock.now)
        theta = running.result()
        (first, second) = running.population.answered()
    who = [[user for user in some if user != away] for some in members]
    assert np.array_equal(theta, world.theta_in_memory(who, blank_coins))
    assert np.linalg.norm(theta) > 0
    assert (first.number, second.number, first.users) == (1, 2, plan.size)
    for device in devices:
        assert sum(real for _, real, _ in device.made) == (device.user != away)
        assert len({length for _, _, length in device.made}) <= 1
