"""Loops survive what goes wrong, and /healthz tells: a database that is restarted at every stage, full disks, loops that end."""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from helpers_roles import PATIENCE, Web, World, postgres_server, randomness, round_of, soon, training, why_no_postgres
from sqlalchemy.exc import OperationalError

from croupier.cli import processes
from croupier.protocol.randomness import Secret
from croupier.service.analyzer.app import analyzer_app
from croupier.service.client.client import Client
from croupier.service.net import database
from croupier.service.net import server as background
from croupier.service.net.database import Database
from croupier.service.net.http import ServerError
from croupier.service.net.server import Loop, Served, TurnOutcome
from croupier.service.shuffler import role as on_time
from croupier.service.shuffler.app import shuffler_app
from croupier.service.shuffler.relay import AnalyzerRelay
from croupier.service.shuffler.rounds import _TAKE, SHUFFLER, RoundState, first_round
from croupier.service.wire.task import SecretRounds
from croupier.validation import ArgumentError

pytestmark = pytest.mark.process

needs_postgres = pytest.mark.skipif(why_no_postgres() is not None, reason=str(why_no_postgres()))


def health(url: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    connection.request("GET", "/healthz")
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


class Device(Client):
    """A user with the randomness that it has in memory too."""

    def __init__(self, user: int, world: World, url: str) -> None:
        limits = {"max_epsilon": 8.01, "max_delta": 1e-2, "max_epsilon_if_watched": float("inf")}
        key = world.analyzer_key.public_key().public_bytes_raw().hex()
        super().__init__(url, world.tokens[user], key, folder=world.folder / f"d{user}", at_once=True, **limits)
        self.user, self.rows = user, (world.X[user : user + 1], world.y[user : user + 1])

    def _report(self, document, task_round, task, gradient, random):
        return super()._report(document, task_round, task, gradient, randomness(self.user, task_round.number))

    def answered_once(self) -> bool:
        with contextlib.suppress(ServerError):
            return self.take_part(*self.rows) is not None
        return False


# --- a loop


def test_a_loop_survives_everything_logs_each_cause_once_and_says_when_it_last_succeeded(caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    turns = []

    def turn() -> TurnOutcome:
        turns.append(1)
        if len(turns) % 10 < 8:
            raise [RuntimeError, KeyError, MemoryError][len(turns) // 10 % 3]("secret")
        return TurnOutcome.DONE

    loop = Loop("errands", turn, pause=0.001, longest=0.002)
    assert loop.trouble() == "errands: the loop is dead"  # it was not started
    loop.start()
    soon(lambda: len(turns) > 35)
    assert loop.trouble() == ""
    monkeypatch.setattr(background, "FAILING_SECONDS", -1.0)
    soon(lambda: re.fullmatch(r"errands: failing for \d+ s \(errands: \w+\)", loop.trouble()))
    loop.stop()
    said = [record.getMessage() for record in caplog.records]
    assert said[:4] == ["errands: RuntimeError", "errands: a turn works again", "errands: KeyError", "errands: a turn works again"]
    assert "last succeeded" in loop.said()
    assert "secret" not in caplog.text


def test_a_loop_that_is_stuck_is_not_healthy(monkeypatch):
    monkeypatch.setattr(background, "STUCK_SECONDS", 0.0)
    go_on, inside = [], []

    def turn() -> TurnOutcome:
        loop.step("batch")
        inside.append(1)
        soon(lambda: go_on)
        return TurnOutcome.DONE

    loop = Loop("errands", turn, pause=0.001, longest=1.0)
    loop.start()
    soon(lambda: inside)
    assert re.fullmatch(r"errands: stuck in batch for \d+ s", loop.trouble())
    go_on.append(1)
    loop.stop()
    assert loop.trouble() == ""


def test_healthz_and_metrics_tell_of_a_dead_loop_and_of_the_oldest_batch(make_world):
    world = make_world(users=12)
    shuffler = world.shuffler()
    errands = AnalyzerRelay(shuffler, "http://127.0.0.1:9")
    with Web(shuffler_app(shuffler, errands.loop)) as web:
        said = web.get("/healthz")
        assert (said.status, said.text.splitlines()[0]) == (503, "not ok: errands: the loop is dead")
        assert 'croupier_loop_healthy{loop="errands"} 0.0' in web.get("/metrics").text
        with errands:
            said = web.get("/healthz").text.splitlines()
            assert said[0] == "ok"
            assert said[1].startswith("errands: has not succeeded yet")
            assert said[2:] == ["oldest batch not forwarded: none", "steps of the system's clock: 0"]
            document = round_of(world)
            shuffler.open(document)
            for user in range(4):
                shuffler.receive(world.names[user], world.report(user, document))
            assert re.search(r"oldest batch not forwarded: \d+ s", web.get("/healthz").text)
            time.sleep(0.01)
            assert float(re.search(r"^croupier_oldest_batch_seconds (.*)$", web.get("/metrics").text, re.M)[1]) > 0
            shuffler.forwarded(shuffler.waiting_batch()[0])
            assert "oldest batch not forwarded: none" in web.get("/healthz").text
            metrics = web.get("/metrics").text
            assert 'croupier_loop_healthy{loop="errands"} 1.0' in metrics
            assert "croupier_clock_steps 0.0" in metrics


# --- requests that cannot be served


def test_with_a_full_disk_a_report_is_answered_by_503_and_the_log_has_the_cause(make_world, caplog):
    """Files that cannot grow: what a full disk does to a database. The same bytes are taken later."""
    world = make_world(users=12)
    shuffler, document = world.shuffler(), round_of(world)
    shuffler.open(document)
    told, body = {"Authorization": f"Bearer {world.tokens[0]}"}, world.report(0, document)
    with Web(shuffler_app(shuffler)) as web:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
        try:
            refusal = web.post("/v1/report", body, told)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert (refusal.status, refusal.text) == (503, "nothing can be written now; try again later\n")
        assert re.search(r"a request was not served: OperationalError: (disk I/O error|database or disk is full)", caplog.text)
        assert web.post("/v1/report", body, told).status == 200


def test_a_process_that_has_not_heard_of_the_task_finds_it_where_another_has_put_it(make_world):
    """Behind one port: a client that was shown a round by one process is not told by another that there is no task yet."""
    world = make_world(users=12)
    late = world.shuffler(with_task=False)
    document = round_of(world)
    with Web(shuffler_app(late)) as web:
        assert web.get("/v1/task").status == 503
        world.shuffler().open(document)
        task = web.get("/v1/task")
        assert (task.status, task.content) == (200, world.task.document(world.analyzer_key).to_bytes())
    told = {"Authorization": f"Bearer {world.tokens[0]}"}
    for path in ("/v1/round", "/v1/report"):
        later = world.shuffler(with_task=False)
        later.task = later.document = None  # as it was before the other had it
        with Web(shuffler_app(later)) as web:
            answer = web.post(path, world.report(0, document), told) if path == "/v1/report" else web.get(path, told)
            assert answer.status == 200
            assert path == "/v1/report" or answer.content == document.to_bytes()


# --- the database restarted


@pytest.fixture(scope="module")
def server():
    with postgres_server() as made:
        yield made


@needs_postgres
@pytest.mark.parametrize(("processes", "secret"), [(1, None), (3, SecretRounds(100.0))], ids=["one-open", "three-secret"])
def test_a_database_restarted_at_every_stage_stops_nothing(make_world, server, monkeypatch, processes, secret):
    """Before the task, with a round open, with reports in, with a batch made, with a sum released: everything goes on."""
    name = f"restarted{processes}{secret is None}"
    databases = {role: server(f"{name}{role}") for role in ("shuffler", "analyzer")}
    world = make_world(users=12, databases=databases, transport="verified-sum", secret=secret, pace=10.0)
    passed = [0.0]
    since_boot = on_time._since_boot
    monkeypatch.setattr(on_time, "_since_boot", lambda: since_boot() + passed[0])
    coins = lambda number: Secret.of_seed(9000 + number).source()  # noqa: E731
    made = {}
    report_of = on_time.report_of

    def seeded(task, task_round, document, gradient, random, *token):
        random = made.setdefault((task_round.number, id(random)), coins(task_round.number))
        return report_of(task, task_round, document, gradient, random, *token)

    monkeypatch.setattr(on_time, "report_of", seeded)
    roles = [world.shuffler(with_task=False) for _ in range(processes)]
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(training(world))
        analyzer = stack.enter_context(Served(analyzer_app(running.population)))
        errands = [stack.enter_context(AnalyzerRelay(role, analyzer.url)) for role in roles]
        urls = [stack.enter_context(Served(shuffler_app(role, one.loop))).url for role, one in zip(roles, errands, strict=True)]
        server.restart()
        soon(lambda: all(role.task for role in roles))
        world.seat()
        drawn = [lot.round for lot in roles[0].lots_for(world.names)] if secret else [1 + user // 4 for user in range(12)]
        members = [[user for user in range(12) if drawn[user] == number] for number in (1, 2, 3)]
        devices = [Device(user, world, urls[user % processes]) for user in range(12)]
        for device in devices:
            soon(lambda device=device: device.task() is not None)

        def opened(number: int) -> bool:
            with contextlib.suppress(OperationalError):
                now = roles[0].current()
                return now is not None and world.read(now).number == number
            return False

        for number in (1, 2, 3):
            soon(lambda number=number: opened(number))
            if number == 1:
                server.restart()
            for place, user in enumerate(members[number - 1]):
                soon(devices[user].answered_once)
                if place == 1 and number == 2:
                    server.restart()
            if secret is not None:
                passed[0] += 2 * secret.seconds
            if number == 3:
                server.restart()  # while the batch is made, forwarded, checked and summed
        theta = running.result()
        soon(lambda: all(one.loop.since_success() < 30 for one in errands))
        for url in urls:
            soon(lambda url=url: health(url)[0] == 200)
            status, said = health(url)
            assert (status, said.splitlines()[0]) == (200, "ok"), said
        assert not any(one.loop.trouble() for one in errands)
    expected = world.theta_in_memory(members, coins if secret else None)
    assert np.array_equal(theta, expected)


@needs_postgres
def test_health_is_right_at_the_first_look_after_a_restart_of_the_database(server, monkeypatch):
    """The connections at hand are of the server that was; and a look counts from when it began."""
    monkeypatch.setattr(database, "_CHECKED", 0.0)
    store = Database(server("looked"), SHUFFLER)
    assert store.trouble() == ""
    server.restart()
    assert store.trouble() == ""
    server.stop()
    try:
        assert "cannot be written to" in store.trouble()
    finally:
        server.start(wait=True)
    looked = []
    monkeypatch.setattr(store, "_rewrite_version", lambda: looked.append(time.monotonic()))
    assert store.trouble() == ""
    assert store._checked[0] <= looked[0]
    monkeypatch.setattr(database, "_CHECKED", 1e9)  # what else is said of the role needs the database, too
    app, _ = background.role_app("croupier shuffler", store, said=lambda: [f"task: {store.task()}"])
    with Web(app) as web:
        assert web.get("/healthz").text == "ok\ntask: None\n"
        server.restart()
        assert web.get("/healthz").text == "ok\ntask: None\n"
        server.stop()
        try:
            said = web.get("/healthz")
            assert (said.status, said.text) == (503, "not ok: the database cannot be read\n")
        finally:
            server.start(wait=True)
    store.close()


@needs_postgres
def test_long_reports_are_no_one_message_to_the_database(server, monkeypatch, tmp_path):
    """A round's reports may be gigabytes: PostgreSQL takes no message that long."""
    monkeypatch.setattr(database, "_MOST_IN_ARRAYS", 5_000)
    store = Database(server("longest"), SHUFFLER)
    rounds, clients, reports = (SHUFFLER.tables[name] for name in ("rounds", "clients", "reports"))
    about = {"id": "a", "number": 1, "document": b"", "opened": 0.0, "state": "open", "digest": "", "arrived": 0}
    names = [f"{place:02}" for place in range(40)]
    with store.begin() as connection:
        connection.execute(rounds.insert().values(**about))
        connection.execute(clients.insert(), [{"id": name, "token_hash": name} for name in names])
    for count, longest in ((4, 9_000), (40, 3_000)):  # in one array, and each by itself
        batch, people, bodies = ["a"] * count, names[:count], [bytes([place]) * 1_000 for place in range(count)]
        added = {
            "taken_part": {"slot": batch, "client": people},
            "reports": {"round": batch, "client": people, "seal": people, "body": bodies},
        }
        with store.begin() as connection, open(tmp_path / "messages", "w+b") as messages:
            driver = connection.connection.driver_connection.pgconn
            driver.trace(messages.fileno())
            _TAKE.run(connection, added, round="a", count=count)
            driver.untrace()
            messages.seek(0)
            lengths = [int(length) for length in re.findall(rb"^[^\t]*\tF\t(\d+)\t", messages.read(), re.MULTILINE)]
            kept = connection.execute(reports.select().order_by(reports.c.client)).all()
            assert [bytes(row.body) for row in kept] == bodies
            assert connection.execute(rounds.select()).one().arrived == count
            assert 1_000 < max(lengths) < longest
            for table in ("taken_part", "reports"):
                connection.execute(SHUFFLER.tables[table].delete())
    store.close()


@needs_postgres
def test_a_report_is_as_much_work_however_many_came_before_it(server, make_world):
    """In a database that was never analyzed, too, in which the planner takes every table for nearly empty."""
    databases = {role: server(f"work{role}") for role in ("shuffler", "analyzer")}
    users, together = 300, 20
    world = make_world(users=users, databases=databases, interactivity="full", rounds=1)
    shuffler, document = world.shuffler(), round_of(world)
    shuffler.open(document)
    reports = [(world.names[user], world.report(user, document)) for user in range(users - 1)]
    for start in range(0, len(reports), together):
        shuffler.receive_all(reports[start : start + together])
    shuffler.store.close()
    store = world.store("shuffler")
    with store.begin() as connection:
        tables = "('taken_part', 'reports')"
        by_index = f"SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname IN {tables}"
        one_by_one = f"SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname IN {tables}"
        read = [connection.exec_driver_sql(query).scalar() for query in (by_index, one_by_one)]
        assert connection.exec_driver_sql("SELECT count(*) FROM reports").scalar() == users - 1
    assert sum(read) < 3 * users, read  # 6 300 where every few reports read all of the round


@needs_postgres
def test_one_process_at_a_time_is_in_its_turn(server):
    """Of each task: those of another schema do not wait for it."""
    url = server("turns")
    first, second = Database(url, SHUFFLER), Database(url, SHUFFLER)
    other = Database(url, SHUFFLER, within=second, schema="other")
    begun, taken = threading.Event(), threading.Event()

    def take() -> None:
        begun.set()
        with second.turn():
            taken.set()

    waiting = threading.Thread(target=take)
    with first.turn():
        with other.turn():
            waiting.start()
        assert begun.wait(60)
        assert not taken.wait(0.5)
    assert taken.wait(60)
    waiting.join()
    first.close()
    second.close()


@needs_postgres
def test_tasks_that_wait_for_their_turns_leave_connections_for_the_work(server, monkeypatch):
    """The fault: with as many tasks as connections, each held one and waited for a second in vain; all their reports failed."""
    store = Database(server("many"), SHUFFLER)
    tasks = [Database("", SHUFFLER, within=store, schema=f"task{number}") for number in range(20)]
    monkeypatch.setattr(store.engine.pool, "_timeout", 0.1)
    with contextlib.ExitStack() as turns:
        for task in tasks:
            turns.enter_context(task.turn())
        for task in tasks:
            with task.begin() as connection:
                assert first_round(connection, RoundState.OPEN) is None
    store.close()


@needs_postgres
def test_a_round_whose_reports_are_not_checked_is_made(server, make_world):
    """The fault: rows of no report were a tuple, which PostgreSQL takes for no array, so that no batch was ever made."""
    databases = {role: server(f"messages{role}") for role in ("shuffler", "analyzer")}
    world = make_world(users=4, databases=databases, transport="messages", interactivity="full", rounds=1)
    shuffler, document = world.shuffler(), round_of(world)
    shuffler.open(document)
    for user, name in enumerate(world.names):
        shuffler.receive(name, world.report(user, document))
    assert shuffler.rounds.first(RoundState.MADE).batch


@needs_postgres
def test_a_role_waits_for_a_database_that_is_starting_and_names_one_that_stays_away(monkeypatch):
    with postgres_server() as server:
        url = server("late")
        server.stop()
        monkeypatch.setattr(processes, "_DATABASE", 0.0)
        with pytest.raises(ArgumentError, match="a database that can be opened"):
            processes.opened(url, SHUFFLER)
        monkeypatch.setattr(processes, "_DATABASE", PATIENCE)
        tried, real = threading.Event(), Database

        def noted(*given):
            try:
                return real(*given)
            finally:
                tried.set()

        monkeypatch.setattr("croupier.service.net.database.Database", noted)
        with ThreadPoolExecutor(1) as pool:
            opening = pool.submit(processes.opened, url, SHUFFLER)
            assert tried.wait(PATIENCE)  # refused once, and asked again
            server.start()
            opening.result().close()


# --- the process that forks workers, killed

WORKERS = """
import os, sys, time
from croupier.cli.processes import end_with_parent, workers_context

def work():
    end_with_parent()
    print(os.getpid(), os.getppid(), flush=True)
    time.sleep(600)

if __name__ == "__main__":
    context = workers_context()
    one = context.Process(target=work, daemon=True)
    one.start()
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")
@pytest.mark.parametrize("killed", ["parent", "forks"])
def test_workers_end_with_whoever_would_replace_them_or_tell_of_their_end(tmp_path, killed):
    """Without whoever forks, the parent takes its workers for dead and starts others: those before must not stay beside them."""
    (tmp_path / "workers.py").write_text(WORKERS)
    command = [sys.executable, tmp_path / "workers.py"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        worker, forks = map(int, parent.stdout.readline().split())
        assert is_running(worker)
        os.kill(forks if killed == "forks" else parent.pid, signal.SIGKILL)
        try:
            soon(lambda: not is_running(worker))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
            parent.kill()


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
