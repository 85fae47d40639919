"""Restarts of PostgreSQL and of each role in the middle of secret rounds, with three processes: minutes, so marked slow."""

from __future__ import annotations

import http.client
import math
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.parse import urlsplit

import numpy as np
import pytest
from helpers_roles import PostgresServer, postgres_server, soon, why_no_postgres
from sqlalchemy import create_engine, text
from test_deployed import USERS, Device, Operators, kill_a_worker, members

from croupier.protocol.randomness import Secret
from croupier.service.net.database import _CHECKED

pytestmark = pytest.mark.process

ROUNDS, LEAST_ROUND_SECONDS = 6, 30
STARTS_A_ROUND = 10  # so long, in starts of a process, must a round be for all restarts to fall into the middle of the task
# In every process: blanks with coins that a test can draw again, those of each round. All else is as it is.
SEEDED = """
import sys
if any("serve" in word or "multiprocessing" in word for word in sys.orig_argv):
    from croupier.protocol.randomness import Secret
    from croupier.service.shuffler import role
    made, coins = role.report_of, {}
    def seeded(task, task_round, document, gradient, random, token=b""):
        source = coins.setdefault(task_round.id, Secret.of_seed(9000 + task_round.number).source())
        return made(task, task_round, document, gradient, source, token)
    role.report_of = seeded
"""


def health(url: str) -> tuple[int, str] | None:
    """What one of the processes says; None where none can be reached."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def round_seconds(least: int = LEAST_ROUND_SECONDS) -> int:
    """Longer where processes start slowly: the machine may be busy. Of two, as the first one may have to read the disk."""
    if chosen := os.environ.get("CROUPIER_ROUND_SECONDS"):
        return int(chosen)
    took = []
    for _ in range(2):
        begun = time.monotonic()
        subprocess.run([sys.executable, "-c", "import croupier.service.shuffler.app"], check=True)
        took.append(time.monotonic() - begun)
    return max(least, math.ceil(STARTS_A_ROUND * min(took)))


class HealthWatch:
    """Asks both roles' /healthz all along, and keeps every answer that is wrong by what was going on; use it as a context."""

    def __init__(self, shuffler: str, analyzer: str) -> None:
        self._urls, self._stopping = {"shuffler": shuffler, "analyzer": analyzer}, threading.Event()
        self._away: list[list[float]] = []  # since when the database may have been away, since when it was, and until when
        self._threads = [threading.Thread(target=self._run, args=(role,), daemon=True) for role in self._urls]
        self.answers, self.wrong = {role: {200: 0, 503: 0, None: 0} for role in self._urls}, list[str]()

    def __enter__(self) -> HealthWatch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    @contextmanager
    def away(self, server: PostgresServer) -> Iterator[None]:
        """Stop the database, and start it again in the end."""
        self._away.append(times := [time.monotonic(), math.inf, math.inf])
        server.stop()
        times[1] = time.monotonic()
        yield
        server.start(wait=True)  # a stale "ok" is no sign of it
        times[2] = time.monotonic()

    def _run(self, role: str) -> None:
        answers = self.answers[role]
        while not self._stopping.wait(0.3):
            begun = time.monotonic()
            told = health(self._urls[role])
            answers[told and told[0]] = answers.get(told and told[0], 0) + 1
            if told is not None and (why := self._why_wrong(role, *told, begun, time.monotonic())):
                self.wrong.append(f"{role}, {why}: {told}")

    def _why_wrong(self, role: str, status: int, said: str, begun: float, ended: float) -> str:
        first, *more = said.splitlines()
        if not (status == 200 and first == "ok") and not (status == 503 and first.startswith("not ok: ")):
            return "the status is not what the first line says"
        if "loop is dead" in said or (role == "shuffler" and not any(line.startswith("errands: ") for line in more)):
            return "a loop is dead"
        # A look at the database counts for _CHECKED seconds from when it began.
        if status == 200 and any(gone + _CHECKED < begun and ended < back for _, gone, back in self._away):
            return "ok while the database was away"
        if "the database cannot be" in said and not any(start < ended and begun < back + _CHECKED for start, _, back in self._away):
            return "not ok while the database was there"
        return ""


class Restarts:
    """Restarts the database and both roles, in random order, and looks at /healthz on the way."""

    def __init__(self, roles: Operators, server: PostgresServer, watch: HealthWatch, seed: int) -> None:
        self.roles, self.server, self.watch, self.chance = roles, server, watch, random.Random(seed)
        self.done = {"database": 0, "analyzer": 0, "shuffler": 0}

    def all_once(self, *, whole: bool) -> None:
        """Each of the three. `whole`: the shuffler with all its processes, not one of them that is replaced; and the database is
        away until /healthz says so."""
        for what in self.chance.sample(sorted(self.done), 3):
            url = self.roles.shuffler.ready()
            self.roles.analyzer.ready()
            if what == "database":
                with self.watch.away(self.server):
                    if whole:
                        status, said = soon(lambda: (told := health(url)) and told[0] != 200 and told)  # noqa: B023
                        assert (status, said[:20]) == (503, "not ok: the database")
                status, said = soon(lambda: (told := health(url)) and told[0] == 200 and told)  # noqa: B023
                assert said.startswith("ok\nerrands: ")
            elif what == "shuffler" and not whole:
                kill_a_worker(self.roles.shuffler, self.chance)
            else:
                getattr(self.roles, what).restart()
            self.done[what] += 1


def answer_when_asked(device: Device, stopped: threading.Event) -> None:
    while not device.answered and not stopped.wait(0.7):
        device.try_once()


@pytest.mark.skipif(why_no_postgres() is not None, reason=str(why_no_postgres()))
@pytest.mark.slow
def test_20_restarts_of_the_database_and_of_each_role_in_secret_rounds_lose_nothing(tmp_path, monkeypatch):
    """All sums are exact, nothing is released twice, no loop is dead in the end, and /healthz is right all along."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SEEDED)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    seconds = round_seconds()
    more = f"pace = 5.0\nround_seconds = {seconds}"
    asked = {"processes": 3, "rounds": ROUNDS, "lots": "secret", "more": more, "max_epsilon_if_watched": float("inf")}
    with postgres_server() as server, ThreadPoolExecutor(USERS) as pool:
        databases = {role: server(role) for role in ("shuffler", "analyzer")}
        with Operators(tmp_path, "masked-sum", databases, **asked) as roles:
            stopped = threading.Event()
            waiting = [pool.submit(answer_when_asked, device, stopped) for device in roles.devices]
            try:
                with HealthWatch(roles.shuffler.ready(), roles.analyzer.ready()) as watch:
                    restarts = Restarts(roles, server, watch, seed=int(os.environ.get("CROUPIER_SEED", "1")))
                    begun = time.monotonic()
                    for number in range(20):  # over two thirds of the rounds, where there is time
                        time.sleep(max(0.0, begun + number * ROUNDS * seconds / 30 - time.monotonic()))
                        restarts.all_once(whole=number % 5 == 0)
                    assert roles.analyzer.running.poll() is None  # all of it was in the middle
                    assert roles.analyzer.running.wait(timeout=2 * ROUNDS * seconds) == 0, roles.analyzer.log.read_text()
            finally:
                stopped.set()
            for one in waiting:
                one.result()
            theta = roles.result()
            who = members(roles.devices, ROUNDS)
            print(f"restarts {restarts.done}, answers by rounds {[len(some) for some in who]}, /healthz {watch.answers}")
            assert not watch.wrong
            assert all(answers[200] > 0 < answers[503] for answers in watch.answers.values())
            blanks = [Secret.of_seed(9000 + number).source() for number in range(1, ROUNDS + 1)]
            assert np.array_equal(theta, roles.in_memory(ROUNDS, lambda number: blanks[number - 1]))
            url = roles.shuffler.ready()
            for _ in range(12):  # whichever process it is
                status, said = health(url)
                assert (status, said.splitlines()[0]) == (200, "ok")
                assert "errands: last succeeded" in said
                assert "oldest batch not forwarded: none" in said
            rows = [create_engine(databases[role]) for role in ("shuffler", "analyzer")]
            with rows[0].connect() as shuffler, rows[1].connect() as analyzer:
                assert shuffler.execute(text("SELECT number, state FROM rounds ORDER BY number")).all() == [
                    (number, "forwarded") for number in range(1, ROUNDS + 1)
                ]
                answered = sum(len(some) for some in who)
                counts = shuffler.execute(text("SELECT count(*), count(DISTINCT client) FROM taken_part")).one()
                assert counts == (answered, answered)
                size = roles.task.schedule.phases[0].lots.size
                assert analyzer.execute(text("SELECT users FROM asked ORDER BY number")).scalars().all() == [size] * ROUNDS
            for opened in rows:
                opened.dispose()
    assert restarts.done == {"database": 20, "analyzer": 20, "shuffler": 20}
