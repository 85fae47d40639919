"""`croupier join` says when its round is, waits for it, and leaves with another code than 0 where nothing was sent."""

from __future__ import annotations

import json
import logging
import sqlite3
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from croupier.cli import main, tasks
from croupier.cli.join import TasksAt, _Task
from croupier.cli.terminal import clock_text, duration, least_seconds, length_line, usual_wait
from croupier.service.analyzer import dashboard
from croupier.service.analyzer.dashboard import NOISE_ALONE, is_noise_alone, mean_of, noise_words
from croupier.service.analyzer.task_file import TaskFile
from croupier.service.net.registry import front_app
from croupier.service.net.server import Served, development_certificate
from croupier.service.wire.task import Answered
from croupier.table._read import Dialect

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "service"))

from helpers_roles import soon  # noqa: E402
from helpers_tasks import Analyzer, Service  # noqa: E402
from test_page import World, person  # noqa: E402

EXAMPLE = TaskFile.load(ROOT / "examples" / "deploy" / "task.toml").task()


class LotsWorld(World):
    """A table task of two secret rounds of two seconds."""

    def __init__(self, folder) -> None:
        super().__init__(folder, users=40, lots='"secret"', round_seconds=2.0, pace=0.2, patience=None)

    def ask(self, population) -> None:
        with suppress(KeyboardInterrupt):
            super().ask(population)
            self.answered = population.answered()
            population.ending.declare(len(self.answered))

    def drawn(self) -> list[int]:
        """Each user's round, in the order of the world's tokens."""
        with sqlite3.connect(self.folder / "shuffler.db") as connection:
            return [first for (first,) in connection.execute("SELECT first FROM lots ORDER BY first, client")]


def joining(world: World, user: int, *more: str) -> list[str]:
    file, values = world.folder / f"{user}.csv", person(user % 12)
    file.write_text(",".join(values) + "\n" + ",".join(values.values()) + "\n")
    promise = ["--max-epsilon", "8.01", "--max-delta", "1e-2", "--max-epsilon-if-watched", "inf"]
    own = ["--budget-epsilon", "30", "--budget-delta", ".2", "--budget-file", str(world.folder / f"{user}.json")]
    where = ["--shuffler", world.url, "--analyzer-key", world.key, "--token", world.tokens[user]]
    return ["join", "--data", str(file), "--dir", str(world.folder / f"join{user}"), *where, *promise, *own, *more]


@pytest.fixture
def run(monkeypatch, capsys):
    def command(words: list[str]) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["croupier", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code, " ".join((said.err + said.out).split())

    return command


@pytest.mark.process
def test_join_waits_for_its_secret_round_by_default_and_does_not_leave_well_without_it(tmp_path, run):
    world = LotsWorld(tmp_path)
    with world.running():
        drawn = world.drawn()
        first, second, missed = drawn.index(1), drawn.index(2), drawn.index(1) + 1
        code, said = run(joining(world, second, "--wait", "0.5"))
        assert code == 1
        assert "This user's round is 2 of 2, begins" in said
        assert "run it again at" in said or "run it again on" in said
        assert "Nothing was sent" in said
        code, said = run(joining(world, second))  # as printed in the page on deploying
        assert code == 0, said
        assert "and takes answers for 2 s. Keep this secret." in said
        assert "Leave this running: it will answer then, and end." in said
        assert "Answered round 2" in said
        code, said = run(joining(world, missed))
        assert code == 1, said
        assert "round is over, and no other round asks this user; nothing was sent" in said or "this user has not answered" in said
        code, said = run(joining(world, second))
        assert (code, "already answered the task, and is not asked again" in said) == (0, True)
        soon(lambda: world.model is not None)
        code, said = run(joining(world, first))
        assert code == 1, said


@pytest.mark.process
def test_a_task_that_nobody_came_to_does_not_end_well_in_silence(tmp_path, caplog, monkeypatch):
    """Neither at the shuffler, whose operator may know, nor at the analyzer, by what was released and nothing else."""
    monkeypatch.setattr("croupier.service.analyzer.dashboard._ALL_BUT", 1 - 1e-7)  # how often the noise of this run may fail it
    world = LotsWorld(tmp_path)
    with caplog.at_level(logging.WARNING, logger="croupier"), world.running():
        soon(lambda: world.model is not None and "no client sent a report in the whole task" in caplog.text)
        assert is_noise_alone(world.task, world.answered)


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:Exception in thread croupier analyzer")  # the port is taken
def test_a_rehearsal_with_a_wrong_key_or_certificate_says_so_at_once(tmp_path, run):
    """Otherwise it ends well and in silence with nothing sent, or tries for ten minutes what cannot succeed."""
    tokens, data = tmp_path / "tokens", tmp_path / "people.csv"
    tokens.write_text("one\ntwo\n")
    data.write_text("age\n1\n2\n")
    own, other = development_certificate(tmp_path / "own"), development_certificate(tmp_path / "other")
    words = ["join", "--rehearse", str(tokens), "--data", str(data), "--dir", str(tmp_path / "join")]
    with ExitStack() as stack:
        analyzer, service = Analyzer(tmp_path / "ann", stack), Service(tmp_path, stack)
        service.enrol(12, tmp_path)
        service.ask(analyzer, "one", 12)
        soon(lambda: service.host.app("one"))
        web = stack.enter_context(Served(front_app("shuffler", service.host, service.host.people), tls=own))
        words += ["--shuffler", web.url]
        code, said = run([*words, "--analyzer-key", "11" * 32, "--ca", str(own[0])])
        assert (code, "no task of an analyzer that you know is running here" in said) == (2, True)
        assert "Check --analyzer-key" in said
        code, said = run([*words, "--analyzer-key", "abcd", "--ca", str(own[0])])
        assert (code, "--analyzer-key" in said, "64 hex digits" in said) == (2, True, True)
        code, said = run([*words, "--analyzer-key", analyzer.key, "--ca", str(other[0])])
        assert (code, "its certificate is not trusted" in said, "--ca" in said, "Retrying" in said) == (1, True, True, False)
        port = web.url.rpartition(":")[2]
        code, said = run(["serve", "analyzer", "--dir", str(tmp_path / "second"), "--dev", "--port", port])
        assert (code, f"--port = {port} is not allowed: it must be one that can be opened on 127.0.0.1" in said) == (2, True)


@pytest.mark.process
def test_an_open_task_waits_until_its_round_too(tmp_path, run):
    world = World(tmp_path, users=12, pace=0.2)
    with world.running(), ThreadPoolExecutor(12) as pool:
        from croupier.cli.app import app  # noqa: PLC0415

        done = list(pool.map(lambda user: app(joining(world, user), standalone_mode=False), range(12)))
        soon(lambda: world.model is not None)
    assert done == [None] * 12  # none of them was stopped
    assert len(world.counts()) == 2


def rounds_of(task, lengths: float) -> list[Answered]:
    """Rounds whose sums have so many times the length of the noise in the mean."""
    phase, users = task.round_phases[0], task.round_phases[0].plan.users
    std = phase.plan.noise_std_for(users) / mean_of(phase, users)
    return [Answered(n, 1, users, lengths * std * np.sqrt(phase.plan.dim)) for n in range(1, task.schedule.rounds + 1)]


def test_noise_alone_is_said_to_be_noise_and_people_are_not():
    """Over all rounds the squares are chi-square of 50 * 15 degrees of freedom: sums 1.3 times as long are 13 deviations off."""
    assert is_noise_alone(EXAMPLE, rounds_of(EXAMPLE, 1.0))
    assert not is_noise_alone(EXAMPLE, rounds_of(EXAMPLE, 1.3))
    assert noise_words(EXAMPLE, rounds_of(EXAMPLE, 1.0)) == [["result", NOISE_ALONE]]
    assert noise_words(EXAMPLE, rounds_of(EXAMPLE, 1.0)[:-1]) == []  # not before the end
    assert noise_words(EXAMPLE, rounds_of(EXAMPLE, 1.3)) == []
    generator, phase = np.random.default_rng(3), EXAMPLE.round_phases[0]
    silent = 0
    for _ in range(300):
        drawn = np.sqrt((generator.normal(size=(EXAMPLE.schedule.rounds, phase.plan.dim)) ** 2).sum(axis=1) / phase.plan.dim)
        made = [Answered(r.number, 1, r.users, r.length * length) for r, length in zip(rounds_of(EXAMPLE, 1.0), drawn, strict=True)]
        silent += not is_noise_alone(EXAMPLE, made)
    assert silent <= 6  # of 300 at 1e-3 each: more has a chance of 5e-8


@pytest.mark.parametrize(("lengths", "warned"), [(1.0, True), (1.3, False)])
def test_an_analyzer_of_many_tasks_warns_of_a_model_of_noise_alone(tmp_path, monkeypatch, capsys, lengths, warned):
    monkeypatch.setattr(tasks, "TableModel", lambda *_: SimpleNamespace(save=lambda file: None))
    monkeypatch.setattr(dashboard, "Dashboard", lambda _: SimpleNamespace(state=dict))
    monkeypatch.setattr(dashboard, "page", lambda state: "")
    monkeypatch.setenv("COLUMNS", "1000")
    population = SimpleNamespace(task=EXAMPLE, answered=lambda: rounds_of(EXAMPLE, lengths))
    estimator, encoder = SimpleNamespace(fit_population=lambda *_, **__: None), SimpleNamespace(names=())
    file = SimpleNamespace(estimator=estimator, encoder=encoder, facts=None, output=tmp_path / "model.json")
    tasks.work(SimpleNamespace(file=file, population=population, folder=tmp_path))
    warning = f"warning: {tmp_path / 'model.json'}: {NOISE_ALONE}."
    assert capsys.readouterr().err.splitlines() == [f"Model: {tmp_path / 'model.json'}.", *([warning] if warned else [])]


def test_the_length_of_a_task_is_that_of_its_rounds():
    assert least_seconds(EXAMPLE) == pytest.approx(EXAMPLE.schedule.rounds * 1.05 * 3600)
    assert usual_wait(EXAMPLE) > least_seconds(EXAMPLE)
    line = length_line(EXAMPLE, now=0.0)
    assert line.startswith(f"{EXAMPLE.schedule.rounds} rounds of 1 h: over in 2 d 5 h at the earliest, on ")
    open_task = SimpleNamespace(
        secret=None, patience=600.0, query=SimpleNamespace(remembers=False), schedule=SimpleNamespace(rounds=3)
    )
    assert "3 rounds, each of at most 10 min" in length_line(open_task)
    open_task.patience = None
    assert "waits for everybody" in length_line(open_task)
    open_task.query.remembers = True
    assert length_line(open_task) == "3 rounds, one per day: over in 3 d at the earliest."
    assert usual_wait(open_task) == 60


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.2, "1 s"), (119.5, "2 min"), (3600, "1 h"), (3601, "1 h 1 min"), (90_000, "1 d 1 h"), (7199, "2 h")],
)
def test_durations_are_rounded_up_in_two_units(seconds, text):
    assert duration(seconds) == text


def test_a_time_of_another_day_names_the_day():
    noon = 1_700_000_000.0
    assert clock_text(60.0, noon).startswith("at ")
    assert clock_text(86_400.0, noon).startswith("on ")
    clock_text(1e13, noon)  # whatever a shuffler says


def test_a_task_file_can_be_tried_before_it_is_served(run, tmp_path):
    code, said = run(["serve", "plan", "--task", str(ROOT / "examples/deploy/task.toml")])
    assert code == 0
    assert "50 rounds of 1 h: over in 2 d 5 h at the earliest" in said
    assert "--smallest at most 374" in said
    assert "epsilon 17.03" in said
    code, said = run(["serve", "plan", "--task", str(ROOT / "examples/deploy/task.toml"), "--json"])
    values = json.loads(said)
    assert (values["rounds"], values["seconds"]) == (50, least_seconds(EXAMPLE))
    assert values["bytes"]["report"] == EXAMPLE.most_report_bytes()
    assert not list(tmp_path.iterdir())


def test_a_task_that_is_added_promises_what_its_plan_does(run, tmp_path):
    """At the delta that it asks for, not at another."""
    asked = f'query = "histogram"\ncolumn = "age"\nlow = 0\nhigh = 100\nbins = 5\nusers = 200\nshuffler_key = "{"aa" * 32}"\n'
    (tmp_path / "ages.toml").write_text(f"{asked}epsilon = 4.0\ndelta = 1e-5\n")
    _, planned = run(["serve", "plan", "--task", str(tmp_path / "ages.toml"), "--json"])
    code, added = run(["serve", "task", "add", "--dir", str(tmp_path / "analyzer"), "--task", str(tmp_path / "ages.toml")])
    promise = json.loads(planned)["promise"]["proved"]
    assert promise.startswith("(4, 1e-05)-")
    assert (code, added) == (0, f"task ages at /tasks/ages of this analyzer: 200 users, {promise}")


def test_a_rehearsal_plays_all_people_of_all_tasks_side_by_side(tmp_path, monkeypatch, capsys):
    """Of rounds that end by the clock, or wait for people who come later: whoever is not asked now keeps nobody from answering."""
    people, asked = 12, set()

    class Asked:
        """Somebody whose round is open once everybody has come in every task."""

        def __init__(self, address, token, *_, **__):
            self.who = address, token

        def task(self):
            query = SimpleNamespace(remembers=False, read_file=lambda *_: (np.zeros((people, 1)), None))
            return SimpleNamespace(query=query, schedule=SimpleNamespace(interactivity="sequential"), secret=None)

        def answer(self, records):
            asked.add(self.who)
            return SimpleNamespace(cover=False) if len(asked) == 2 * people else None

        def ended(self):
            return None

    monkeypatch.setattr("croupier.cli.join.Client", Asked)
    served = [_Task(name, f"https://shuffler.example/tasks/{name}", "key", tmp_path) for name in ("one", "two")]
    monkeypatch.setattr(TasksAt, "tasks", lambda *_: served)
    tokens = tmp_path / "tokens"
    tokens.write_text("\n".join(map(str, range(people))))
    place = TasksAt("https://shuffler.example", ["key"], tmp_path, time.monotonic() + 30, {})
    place.rehearse([], tokens, tmp_path / "people.csv", Dialect(None, ".", "utf-8"))
    said = capsys.readouterr().err
    assert "one: 12 answers were taken" in said
    assert "two: 12 answers were taken" in said
