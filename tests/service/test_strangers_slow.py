"""Strangers for a year, in minutes: secret lots, an enroller, verified sums, three processes, PostgreSQL, cheats, kills. Slow."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers_exclusions import spoiled
from helpers_roles import World, postgres_server, randomness, seats, soon, why_no_postgres
from sqlalchemy import create_engine, text
from test_deployed import FACTS, Process, kill_a_worker
from test_restarts_slow import SEEDED, round_seconds

from croupier.protocol.randomness import Secret
from croupier.service.analyzer.task_file import TaskFile
from croupier.service.client.client import Client
from croupier.service.enroller import blank_rule, new_invitation, token_keys
from croupier.service.net.database import Database
from croupier.service.net.http import ServerError
from croupier.service.net.server import signing_key
from croupier.service.shuffler.rounds import SHUFFLER, enrol_all
from croupier.service.wire.enrolment import EnrollerKeys
from croupier.service.wire.transports import SealedReport
from croupier.table.model import TableModel
from croupier.validation import ArgumentError

pytestmark = [pytest.mark.process, pytest.mark.slow]

# The figures; fewer for whoever tries the test itself.
USERS = int(os.environ.get("CROUPIER_STRANGERS", "500"))
KILLS = int(os.environ.get("CROUPIER_KILLS", "20"))
LEAST_ROUND_SECONDS = 180
CHEATS, ROUNDS, RESTARTS = USERS // 10, 2, -(-KILLS // 4)


class Stranger(Client):
    """A user whose coins a test can draw again; a cheat sends what does not verify, or has a token of its own making."""

    def __init__(self, user: int, cheats: str, roles: Strangers, invitation: str, token: str) -> None:
        limits = {"max_epsilon": 8.01, "max_delta": 1e-2, "max_epsilon_if_watched": float("inf")}
        where = (roles.url, token, roles.analyzer_key)
        super().__init__(*where, folder=roles.folder / f"c{user}", at_once=True, invitation=invitation, **limits)
        self.user, self.cheats, self.answered = user, cheats, 0
        self.rows = roles.X[user : user + 1], roles.y[user : user + 1]

    def collect(self) -> None:
        if self.cheats != "token":
            super().collect()
            return
        self._memory.folder.mkdir(exist_ok=True)
        (self._memory.folder / f"{self.task().id}.tokens").write_text(json.dumps(["00" * 288] * ROUNDS))

    def _report(self, document, task_round, task, gradient, random):
        report = super()._report(document, task_round, task, gradient, randomness(self.user, task_round.number))
        return spoiled(SealedReport.from_bytes(report)).to_bytes() if self.cheats == "proof" else report

    def keep_trying(self, stopped: threading.Event, seconds: int) -> None:
        """Asks some thirty times a round: with all of them on a few cores, more would be all that the machine does."""
        chance = random.Random(self.user)
        while not self.answered and not stopped.wait(chance.uniform(0, seconds / 15)):
            with contextlib.suppress(ServerError):
                sent = self.take_part(*self.rows)
                self.answered = 0 if sent is None else sent.round


class Strangers:
    """Three roles as processes; the shuffler has three, and PostgreSQL."""

    def __init__(self, folder, databases: dict[str, str], seconds: int) -> None:
        self.folder, self.started, self.seconds = folder, list[Process](), seconds
        try:
            self._start(folder, databases)
        except BaseException:
            self.__exit__()
            raise

    def _start(self, folder, databases: dict[str, str]) -> None:
        self.analyzer_key, shuffler_key = (
            signing_key(folder / role).public_key().public_bytes_raw().hex() for role in ("an", "sh")
        )
        (folder / "facts.toml").write_text(FACTS)
        (folder / "task.toml").write_text(
            f'schema = "facts.toml"\nusers = {USERS}\nepsilon = 8.0\ndelta = 1e-3\nrounds = {ROUNDS}\nhonest = 0.9\nturnout = 0.9\n'
            f'lots = "secret"\nround_seconds = {self.seconds}\npace = 5.0\n'
            f'shuffler_key = "{shuffler_key}"\nenroller = "keys.json"\n'
        )
        with pytest.raises(ArgumentError) as missing:  # it says which keys it needs
            TaskFile.load(folder / "task.toml").task()
        blanks = int(re.search(r"--blanks (\d+)", str(missing.value))[1])
        moduli = tuple(key.public_key().public_numbers().n for key in token_keys(folder / "en", ROUNDS))
        blank_rule(folder / "en", blanks, shuffler_key)
        self.invitations = [new_invitation() for _ in range(USERS)]
        (folder / "people.txt").write_text("\n".join(self.invitations))
        self.enroller = Process(folder, "enroller", "--dir", "en", "--people", "people.txt")
        self.enroller.start()
        self.started.append(self.enroller)
        (folder / "keys.json").write_text(json.dumps(EnrollerKeys(self.enroller.ready(), moduli, blanks).to_dict()))
        self.task = TaskFile.load(folder / "task.toml").task()
        enrolled = Database(databases["shuffler"], SHUFFLER)
        names = [f"user-{user}" for user in range(USERS)]
        tokens = dict(zip(names, enrol_all(enrolled, names), strict=True))
        self.analyzer = Process(folder, "analyzer", "--task", "task.toml", "--dir", "an", "--database", databases["analyzer"])
        self.analyzer.start()
        self.started.append(self.analyzer)
        known = ("--analyzer", self.analyzer.ready(), "--analyzer-key", self.analyzer_key, "--smallest", "2", "--processes", "3")
        self.shuffler = Process(folder, "shuffler", "--dir", "sh", *known, "--database", databases["shuffler"])
        self.shuffler.start()
        self.started.append(self.shuffler)
        self.url = self.shuffler.ready()
        order = soon(lambda: seats(enrolled))
        enrolled.close()
        rng, problem = np.random.default_rng(0), self.task.query.problem
        self.X = rng.uniform(-1, 1, size=(USERS, problem.dim)) * problem.feature_norm / np.sqrt(problem.dim)
        self.y = (self.X[:, 0] > 0).astype(float)
        order += [name for name in names if name not in order]  # whom chance has left out of a full round
        cheats = {
            user: ("proof", "token")[place % 2] for place, user in enumerate(rng.choice(USERS, CHEATS, replace=False).tolist())
        }
        self.cheats = frozenset(cheats)
        self.users = [
            Stranger(user, cheats.get(user, ""), self, self.invitations[user], tokens[name]) for user, name in enumerate(order)
        ]
        read = soon(lambda: self._task(self.users[0]))
        for user in self.users:
            user._task = read  # proved once

    @staticmethod
    def _task(user: Stranger):
        with contextlib.suppress(ServerError):
            return user.task()

    def __enter__(self) -> Strangers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.started:
            if process.running.poll() is None:
                process.kill()
            process.clear()

    def in_memory(self, who: list[list[int]]) -> np.ndarray:
        world = World.__new__(World)
        world.X, world.y, world.task, world.users = self.X, self.y, self.task, USERS
        blanks = [Secret.of_seed(9000 + number).source() for number in range(1, ROUNDS + 1)]
        return world.theta_in_memory(who, lambda number: blanks[number - 1], self.cheats)


@pytest.mark.skipif(why_no_postgres() is not None, reason=str(why_no_postgres()))
def test_500_strangers_50_of_them_cheats_through_kills_and_restarts_make_exactly_the_honest_sum(tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SEEDED)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    chance, stopped = random.Random(int(os.environ.get("CROUPIER_SEED", "1"))), threading.Event()
    with postgres_server() as server, ThreadPoolExecutor(USERS) as pool:
        databases = {role: server(role) for role in ("shuffler", "analyzer")}
        seconds = round_seconds(LEAST_ROUND_SECONDS)
        with Strangers(tmp_path, databases, seconds) as roles:
            assert (roles.task.transport, roles.task.schedule.secret_lots) == ("verified-sum", True)
            waiting = [pool.submit(user.keep_trying, stopped, seconds) for user in roles.users]
            try:
                acts = ["kill"] * KILLS + ["database"] * RESTARTS
                chance.shuffle(acts)
                for act in acts:
                    if act == "database":
                        server.restart()
                    elif (who := chance.choice(["worker", "worker", "analyzer", "shuffler", "enroller"])) == "worker":
                        kill_a_worker(roles.shuffler, chance)
                    else:
                        getattr(roles, who).restart()
                    for process in (roles.enroller, roles.analyzer, roles.shuffler):
                        process.ready()
                    stopped.wait(seconds / 60)
                assert roles.analyzer.running.wait(timeout=3 * ROUNDS * seconds) == 0, roles.analyzer.log.read_text()
            finally:
                stopped.set()
            for one in waiting:
                one.result()
            who = [[user.user for user in roles.users if user.answered == number] for number in range(1, ROUNDS + 1)]
            theta = TableModel.load(tmp_path / "model.json").estimator.result_.theta
            assert np.array_equal(theta, roles.in_memory(who))  # the honest, blanks, and no cheat
            lots = roles.task.schedule.phases[0].lots
            bad = [sum(user in roles.cheats for user in some) for some in who]
            print(
                f"answers by rounds {[len(some) for some in who]}, cheats {bad}, of {lots.size} with {lots.blanks} blanks at most"
            )
            rows = [create_engine(databases[role]) for role in ("shuffler", "analyzer")]
            with rows[0].connect() as shuffler, rows[1].connect() as analyzer:
                counts = shuffler.execute(text("SELECT count(*), count(DISTINCT client) FROM taken_part")).one()
                assert counts == (sum(map(len, who)),) * 2  # nobody twice
                assert shuffler.execute(text("SELECT count(*) FROM excluded")).scalar() == sum(bad)
                good = [lots.size - some for some in bad]
                assert analyzer.execute(text("SELECT users FROM asked ORDER BY number")).scalars().all() == good
                spent = analyzer.execute(text("SELECT count(*), count(DISTINCT token) FROM spent")).one()
                assert spent == (sum(good),) * 2  # every token once
            for opened in rows:
                opened.dispose()
