"""verified-sum while any of the three roles is killed with kill -9: nothing is lost or counted twice, and one sum is released."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time

import numpy as np
import pytest
from helpers_roles import soon
from test_deployed import USERS, Operators, members

pytestmark = pytest.mark.process

A_ROUND = 4  # users


class Killer:
    """Kills a role at random, and starts it again where it was."""

    def __init__(self, roles: Operators, seed: int) -> None:
        self.roles, self.chance, self.killed = roles, random.Random(seed), {"shuffler": 0, "analyzer": 0, "client": 0}

    def strike(self, user: int | None = None) -> None:
        """After a random pause one of the servers; or the client of this user, in the middle of its answer."""
        kind = "client" if user is not None else self.chance.choice(["shuffler", "analyzer"])
        if kind == "client":
            device = self.roles.devices[user]
            if (child := os.fork()) == 0:
                try:
                    soon(device.try_once)
                finally:
                    os._exit(0)
            time.sleep(self.chance.uniform(0.0, 0.6))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        else:
            time.sleep(self.chance.uniform(0.0, 0.6))
            process = getattr(self.roles, kind)
            if process.running.poll() is not None:  # the analyzer has ended: the model is saved
                return
            process.ready()
            process.restart()
        self.killed[kind] += 1


def played(folder, kills_a_round: int, seed: int) -> dict[str, int]:
    """A whole task by processes, with so many kills in a round, most of them once its last report has come."""
    with Operators(folder, "verified-sum", {}) as roles:
        for device in roles.devices:
            device.number = 1 + device.user // A_ROUND  # whose answer a killed process may have sent
        killer = Killer(roles, seed)
        for first in range(0, USERS, A_ROUND):
            killer.strike(user=first)
            roles.answer(*range(first, first + A_ROUND))
            for _ in range(kills_a_round - 1):
                killer.strike()
        theta = roles.result()
        assert [len(some) for some in members(roles.devices, 3)] == [A_ROUND] * 3
        assert np.array_equal(theta, roles.in_memory())
        rounds = sqlite3.connect(folder / "sh" / "shuffler.db")
        soon(lambda: rounds.execute("SELECT count(*) FROM rounds WHERE state = 'forwarded'").fetchone() == (3,))
        assert rounds.execute("SELECT count(*) FROM checking").fetchone() == (0,)
        assert rounds.execute("SELECT count(*) FROM excluded").fetchone() == (0,)
        assert rounds.execute("SELECT count(*), count(DISTINCT client) FROM taken_part").fetchone() == (USERS, USERS)
        rounds.close()
        counted = sqlite3.connect(folder / "an" / "analyzer.db")
        assert counted.execute("SELECT users FROM asked ORDER BY number").fetchall() == [(A_ROUND,)] * 3
        counted.close()
        return killer.killed


@pytest.mark.slow
def test_20_random_kills_lose_nothing_and_count_nobody_twice(tmp_path):
    killed = played(tmp_path, kills_a_round=8, seed=int(os.environ.get("CROUPIER_SEED", "1")))
    assert sum(killed.values()) >= 20
    assert min(killed.values()) >= 1
