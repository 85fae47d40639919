"""Texts, tables and streams as tasks: what devices send, what they keep, and the answer by every transport. Without sockets."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from helpers_roles import randomness, soon

from croupier.cli.tasks import figures
from croupier.protocol import VectorSum
from croupier.report._answers import answer_page
from croupier.service.analyzer.dashboard import Dashboard
from croupier.service.analyzer.population import ANALYZER, RemotePopulation
from croupier.service.analyzer.task_file import QueryFile
from croupier.service.client.client import Client
from croupier.service.net.database import Database
from croupier.service.shuffler.role import ShufflerRole
from croupier.service.shuffler.rounds import SHUFFLER, enrol
from croupier.service.wire.documents import Document, WireError
from croupier.service.wire.queries import statistic_from_dict
from croupier.service.wire.task import RefusedTaskError, Task, TaskRound
from croupier.statistics import HeavyHitters, Stream
from croupier.statistics.asking import plan_for
from croupier.validation import ArgumentError

USERS = 6
START = date(2026, 1, 5)
FACTS = '[columns.age]\nlow = 0\nhigh = 90\n[columns.town]\nlevels = ["Ulm", "Bonn"]\n'
FILES = {
    "words": 'query = "words"\ncolumn = "says"\ncells = 256\nmax_bytes = 6\nper_person = 2\n',
    "table": 'query = "table"\nguess = "guess.toml"\ncolumns = ["town", "age"]\nbins = 2\n',
    "groups": 'query = "table"\nguess = "guess.toml"\ncolumns = ["age"]\nby = ["town"]\nbins = 4\n',
    "stream": 'query = "stream"\ncolumn = "ill"\nstart = 2026-01-05\ndays = 3\n',
}
STREAM = {"kind": "stream", "column": "ill", "start": "2026-01-05", "days": 3, "per_person": 1}


def day(number: int) -> str:
    return str(START + timedelta(number - 1))


def records_of(user: int) -> list[dict]:
    """Several records of everybody: texts, and a day on which they were ill."""
    texts = ["yes", " yes ", "no", f"me {user}"]
    return [
        {"says": text, "age": 30.0 + 20 * user, "town": "Ulm" if user % 2 else "Rome", "ill": day(1 + user % 3)} for text in texts
    ]


class Deployment:
    """All roles of a question in one process; a context in which the analyzer asks."""

    def __init__(self, folder, kind: str, transport: str = "masked-sum", more: str = "", **changed) -> None:
        self.folder, self.key, shuffler_key = folder, Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
        (folder / "guess.toml").write_text(FACTS)
        common = f'users = {USERS}\nepsilon = 8\ndelta = 1e-2\nhonest = 1\npace = 0.1\ntransport = "{transport}"\n'
        common += f'shuffler_key = "{shuffler_key.public_key().public_bytes_raw().hex()}"\n'
        common = common.replace("honest = 1\n", "") if "honest" in more else common
        (folder / "task.toml").write_text(FILES[kind] + common + more)
        self.file = QueryFile.load(folder / "task.toml")
        self.task = replace(self.file.task(), **changed)
        self.stores = [Database(f"sqlite:///{folder / name}.db", tables) for name, tables in (("s", SHUFFLER), ("a", ANALYZER))]
        self.names = [f"user {user}" for user in range(USERS)]
        for name in self.names:
            enrol(self.stores[0], name)
        self.shuffler = ShufflerRole(self.stores[0], shuffler_key, self.key.public_key())
        self.shuffler.take_task(self.task.document(self.key))
        self.population = RemotePopulation(self.task, self.stores[1], self.key)

    def __enter__(self) -> Deployment:
        self._pool = ThreadPoolExecutor(1)
        self.answer = self._pool.submit(self.file.answer, self.population)
        return self

    def __exit__(self, *_: object) -> None:
        self.population.stop()
        self._pool.shutdown()
        for store in self.stores:
            store.close()

    def client(self, user: int, **more) -> Device:
        return Device(
            self, user, folder=self.folder / f"device {user}", max_epsilon=8.1, max_delta=1e-2, **{"at_once": True} | more
        )

    def open(self, number: int) -> Document:
        """The document of the round of this number, once the analyzer has published it."""

        def published():
            document = self.population.current()
            return document if document and self.read(document).number == number else None

        document = soon(published)
        self.shuffler.open(document)
        return document

    def read(self, document: Document) -> TaskRound:
        return TaskRound.read(document, self.task, self.key.public_key())

    def forward(self) -> None:
        """What relays do when a round has its reports."""
        name, batch = soon(self.shuffler.waiting_batch)
        self.population.take(batch)
        self.shuffler.forwarded(name)
        if self.shuffler.awaiting_exclusions() is not None:
            self.shuffler.exclude(soon(lambda: self.population.exclusions(name)))
            _, release = soon(self.shuffler.waiting_release)
            self.population.take_release(release)
            self.shuffler.released(name)


class Device(Client):
    """A client that reaches its shuffler without a network."""

    def __init__(self, deployment: Deployment, user: int, **options) -> None:
        key = deployment.key.public_key().public_bytes_raw().hex()
        super().__init__("http://127.0.0.1:1", "token", key, **options)
        self.deployment, self.user = deployment, user

    def _sent(self, path, body=None, headers=None) -> bytes:
        deployment, name = self.deployment, self.deployment.names[self.user]
        if path == "/v1/start":
            return deployment.shuffler.starts_for([name])[0].to_bytes()
        if path == "/v1/round":
            (document,) = deployment.shuffler.rounds_for([name])
            return b"" if document is None else document.to_bytes()
        assert path == "/v1/report"
        deployment.shuffler.receive(name, body)
        return b""


def summed(deployment: Deployment, vectors: list, number: int = 1) -> np.ndarray:
    """The sum of the reports of these vectors, with the devices' coins."""
    protocol = VectorSum(deployment.task.round_phases[0].plan)
    return protocol.analyze(
        protocol.shuffle([protocol.randomize(vector, randomness(user, number)) for user, vector in enumerate(vectors)])
    ).sum


CASES = [
    ("words", "masked-sum"),
    ("words", "verified-sum"),
    ("table", "messages"),
    ("table", "verified-sum"),
    ("groups", "masked-sum"),
]


@pytest.mark.parametrize(("kind", "transport"), CASES)
def test_the_answer_is_that_of_the_same_coins_in_memory(tmp_path, kind, transport):
    deployment = Deployment(tmp_path, kind, transport)
    with deployment:
        deployment.open(1)
        for user in range(USERS):
            sent = deployment.client(user).take_part_with(records_of(user), random=randomness(user, 1))
            assert sent.round == 1
            assert not sent.blank
        deployment.forward()
        answer = deployment.answer.result()
        query = deployment.task.query
        vectors = [query.vector(*query.read_records(records_of(user))) for user in range(USERS)]
        assert np.array_equal(answer.estimate.sum, summed(deployment, vectors))
        values = json.loads(json.dumps(figures(answer)))
        assert values["users"] == USERS
        assert values["guarantee"]["mu"] == deployment.task.schedule.guarantee.mu
        assert "One private round" in answer_page(answer, title="What they say")
        assert dict(Dashboard(deployment.population).state()["plan"])["question"].startswith(query.what)


@pytest.mark.parametrize("transport", ["messages", "masked-sum", "verified-sum"])
def test_a_stream_is_one_task_whose_rounds_add_up_to_the_sums_of_memory(tmp_path, transport):
    """Its guarantee is that of one vector over all days, each device's ledger has it once, and the totals are those of `Stream`."""
    deployment = Deployment(tmp_path, "stream", transport)
    root = Stream(3).root
    with deployment:
        clients = [deployment.client(user) for user in range(USERS)]
        sums = []
        for number in (1, 2, 3):
            deployment.open(number)
            for user, client in enumerate(clients):
                client.take_part_with(records_of(user), random=randomness(user, number))
            deployment.forward()
            vectors = [np.array([root[number - 1, user % 3]]) for user in range(USERS)]
            sums.append(summed(deployment, vectors, number)[0])
        answer = deployment.answer.result()
        assert answer.value.sums.tolist() == sums
        assert np.allclose(answer.value.totals, root @ sums)
        assert answer.value.arrived.tolist() == [USERS] * 3
        whole = plan_for(Stream(3), USERS, epsilon=8, delta=1e-2, rotation=None)
        assert answer.guarantee.mu == whole.guarantee.mu == deployment.task.schedule.guarantee.mu
        (entry,) = clients[0].budget.entries()
        assert (entry.answers, entry.guarantee.mu) == (3, whole.guarantee.mu)
        state = Dashboard(deployment.population).state()
        assert (state["status"], state["rounds"]["done"]) == ("finished", 3)
        assert state["bits"]["person"] == 3 * whole.bits_per_coordinate
        again = RemotePopulation(deployment.task, deployment.stores[1], deployment.key)
        assert deployment.file.answer(again).value.sums.tolist() == sums  # a process that goes on asks nobody


def test_a_stream_tells_how_many_answered_on_each_day(tmp_path):
    """One of six devices is away on the second day, and the answer says what that does to the totals."""
    deployment = Deployment(tmp_path, "stream", more="honest = 0.5\npatience = 60\n")
    with deployment:
        clients = [deployment.client(user) for user in range(USERS)]
        for number in (1, 2, 3):
            deployment.open(number)
            for client in clients[: USERS - (number == 2)]:
                client.take_part_with(records_of(client.user))
            if number == 2:
                deployment.shuffler.clock.now = lambda: time.time() + 3_600
                deployment.shuffler.close_late()
            deployment.forward()
        answer = deployment.answer.result()
        assert answer.value.arrived.tolist() == [USERS, USERS - 1, USERS]
        values = json.loads(json.dumps(figures(answer)))
        assert values["arrived"] == [USERS, USERS - 1, USERS]
        assert values["scaled_totals"] == answer.value.scaled().totals.tolist()
        assert "5 to 6 people answered" in answer_page(answer, title="Ill")


def test_the_totals_are_written_down_day_by_day(tmp_path):
    deployment = Deployment(tmp_path, "stream")
    answers = []
    watched = replace(deployment.file, output=tmp_path / "answer.json")

    def follow(population):
        with suppress(KeyboardInterrupt):
            for answer in watched.answers(population):
                answers.append(answer)

    running = threading.Thread(target=follow, args=(deployment.population,))
    running.start()
    try:
        deployment.open(1)
        for user in range(USERS):
            deployment.client(user).take_part_with(records_of(user))
        deployment.forward()
        soon(lambda: answers)
        assert len(answers[0].value.totals) == 1
        assert "1 of 3 days" in str(answers[0].value)
        page = answer_page(answers[0], title="Ill")
        assert "One private round" not in page
        assert "asked once" not in page
    finally:
        deployment.population.stop()
        running.join()
        for store in deployment.stores:
            store.close()


def test_days_that_have_not_come_are_waited_for_and_can_be_stopped(tmp_path):
    later = replace(Deployment(tmp_path, "stream").file, query=statistic_from_dict(STREAM | {"start": "2999-01-01"}))
    (tmp_path / "later").mkdir()
    deployment = Deployment(tmp_path / "later", "stream", query=later.query)
    deployment.file = later
    with deployment:
        time.sleep(0.05)
        assert deployment.population.current() is None
        deployment.population.stop()
        with pytest.raises(KeyboardInterrupt):
            deployment.answer.result()


# What a device keeps: whatever its records say later, all that it sends are coordinates of one vector.


def sent_in(deployment: Deployment, client: Device, number: int, days: list[int]) -> dict:
    """Answer a round with records of these days; what was kept with the answer."""
    client.take_part_with([{"ill": day(one)} for one in days] or [{"ill": None}])
    return client._memory.answers(deployment.task.id)[-1]["counted"]


def test_what_has_counted_stays_and_records_that_come_too_late_do_not_count(tmp_path):
    """The attack on one's own promise: records that change from round to round would be another vector in each."""
    deployment = Deployment(tmp_path, "stream", more="per_person = 2\n")
    with deployment:
        clients = [deployment.client(user) for user in range(USERS)]
        deployment.open(1)
        kept = [sent_in(deployment, client, 1, [1] if user else []) for user, client in enumerate(clients)]
        assert kept[0] == {"until": 1, "days": []}
        assert kept[1] == {"until": 1, "days": [1]}
        deployment.forward()
        deployment.open(2)
        assert sent_in(deployment, clients[0], 2, [1, 2, 3]) == {"until": 2, "days": [2]}  # day 1 is settled, day 3 not yet come
        assert sent_in(deployment, clients[1], 2, []) == {"until": 2, "days": [1]}  # what is gone from the records has counted
        for client in clients[2:]:
            sent_in(deployment, client, 2, [2])
        deployment.forward()
        deployment.open(3)
        assert sent_in(deployment, clients[2], 3, [1, 2, 3]) == {"until": 3, "days": [1, 2]}  # two days at most


def test_a_round_that_is_published_twice_has_no_second_answer(tmp_path):
    """The attack: two documents of one day would be two answers, and half the noise."""
    deployment = Deployment(tmp_path, "stream")
    with deployment:
        first = deployment.open(1)
        client = deployment.client(0)
        assert client.take_part_with(records_of(0)) is not None
        twin = replace(deployment.read(first), id="another").document(deployment.key)
        client.round = lambda: (twin, deployment.read(twin))
        assert client.take_part_with(records_of(0)) is None
        assert len(client._memory.answers(deployment.task.id)) == 1
        other = replace(deployment.read(first), id="elsewhere", number=2).document(deployment.key)
        client.round = lambda: (other, replace(deployment.read(other), phase=2))
        with pytest.raises((RefusedTaskError, IndexError)):
            client.take_part_with(records_of(0))


def test_records_that_are_not_ready_in_time_do_not_count_and_what_counted_does(tmp_path):
    deployment = Deployment(tmp_path, "stream")
    with deployment:
        deployment.open(1)
        clients = [deployment.client(user, at_once=user > 0) for user in range(USERS)]
        for client in clients:
            client.take_part_with({"ill": day(1)})
        deployment.forward()
        deployment.open(2)
        query, reads = deployment.task.query, threading.Event()

        def slow():
            reads.wait(30)
            return query.read_records({"ill": day(2)})

        sent = clients[0].answer(slow)
        reads.set()
        assert not sent.blank  # it says what day 1 adds on day 2
        assert clients[0]._memory.answers(deployment.task.id)[-1]["counted"] == {"until": 2, "days": [1]}


def test_a_device_that_has_lost_its_memory_of_a_stream_counts_no_fresh_days(tmp_path):
    """The attack on one's own promise: each loss would be another vector. The budget knows; without it, earlier days are over."""
    deployment = Deployment(tmp_path, "stream")
    with deployment:
        clients = [deployment.client(user) for user in range(USERS)]
        deployment.open(1)
        for client in clients:
            sent_in(deployment, client, 1, [1])
        deployment.forward()
        deployment.open(2)
        ledger = tmp_path / "device 0" / "ledger.jsonl"
        kept = ledger.read_bytes()
        ledger.unlink()
        with pytest.raises(RefusedTaskError, match=r"remembers 0 of the 1 answers to this task .* Restore the file"):
            deployment.client(0).take_part_with({"ill": day(2)})
        assert clients[0].budget.entries()[0].answers == 1
        ledger.write_bytes(kept)
        assert sent_in(deployment, deployment.client(0), 2, [2]) == {"until": 2, "days": [1]}
        for file in (tmp_path / "device 1").iterdir():
            file.unlink()
        assert sent_in(deployment, deployment.client(1), 2, [1]) == {"until": 2, "days": []}


def test_an_answer_that_could_not_be_written_down_is_no_memory_that_was_lost(tmp_path, monkeypatch):
    """A full disk, or a kill: the memory is written before the ledger, so that it never has fewer answers by itself."""
    deployment = Deployment(tmp_path, "stream")
    with deployment:
        deployment.open(1)
        client = deployment.client(0)
        with monkeypatch.context() as full:
            full.setattr(client._memory, "write", failing)
            with pytest.raises(OSError, match="full"):
                client.take_part_with({"ill": day(1)})
        assert client.budget.entries() == []
        assert sent_in(deployment, client, 1, [1]) == {"until": 1, "days": [1]}


def failing(*_: object) -> None:
    raise OSError("full")


@pytest.mark.parametrize("X", [[["HIV positive", 0, 1]], [[0, 1, 0, 1, 0, 1]], [[[0, 1, 0]]], [[0, np.nan, 0]], [{"HIV": 1}]])
def test_rows_that_are_no_days_are_refused_without_a_word_of_them(tmp_path, X):
    deployment = Deployment(tmp_path, "stream")
    with deployment:
        deployment.open(1)
        client = deployment.client(0)
        with pytest.raises(ArgumentError, match="rows of 3 finite numbers, one per day") as refused:
            client.take_part(X, None)
        assert "HIV" not in str(refused.value)
        assert refused.value.__context__ is None
        assert client.answered() == 0


@pytest.mark.parametrize("per_person", [1, 3])
def test_whatever_records_do_all_answers_are_in_the_range_that_the_plan_counts_on(per_person):
    """Records that come, go and change at random, rounds that are missed: against `Stream`'s own vector of one person."""
    query = statistic_from_dict(STREAM | {"days": 12, "per_person": per_person})
    rng, sent = np.random.default_rng(per_person), []
    for _ in range(200):
        before, vector, here = None, np.zeros(12), rng.random(12) < 0.8
        for number in range(1, 13):
            if here[number - 1]:
                records = (rng.random((3, 12)) < 0.3).astype(float)
                before = query.counted(records, number, before)
                vector[number - 1] = query.coordinate(before["days"], number)
        days = [] if before is None else before["days"]
        amounts = np.zeros((1, 12))
        amounts[0, [one - 1 for one in days]] = 1
        assert len(days) <= per_person
        assert np.allclose(vector, np.where(here, query.statistic(amounts, None)[0], 0.0))
        sent.append((here, vector))
    assert max(np.linalg.norm(vector) for _, vector in sent) <= query.statistic.norm
    everywhere = [vector for _, vector in sent]
    masks = [here for here, _ in sent]
    far = max(
        np.linalg.norm((one - other) * (here & there))  # neighbours are there on the same days
        for one, here in zip(everywhere, masks, strict=True)
        for other, there in zip(everywhere, masks, strict=True)
    )
    assert far <= query.statistic.diameter


def test_a_stream_whose_plan_or_rounds_are_not_its_own_is_refused(tmp_path):
    """The attacks: less noise than the range of all days needs, more rounds than days, plans for a day alone."""
    task, key = Deployment(tmp_path, "stream").task, Ed25519PrivateKey.generate()
    (phase,) = task.schedule.phases
    own = task.query.statistic

    class Nearer:
        entries = answers = None
        dim, norm, diameter = own.dim, own.norm, own.diameter * 0.99

    class Day:
        entries = answers = None
        dim, norm, diameter = 1, 1.0, 1.0

    def plan_of(statistic):
        return plan_for(statistic, USERS, epsilon=8, delta=1e-2, rotation=None)

    wrong = [
        replace(phase, plan=plan_of(Nearer)),
        replace(phase, plan=plan_of(Day)),
        replace(phase, rounds=4),
        replace(phase, rounds=2),
        replace(phase, plan=replace(phase.plan, rounds=3)),
    ]
    assert Task.read(task.document(key), key.public_key()).round_phases[0].plan.dim == 1
    for one in wrong:
        with pytest.raises(WireError):
            Task.read(replace(task, schedule=replace(task.schedule, phases=(one,))).document(key), key.public_key())
    for schedule in (replace(task.schedule, interactivity="sequential"), replace(task.schedule, phases=(phase, phase))):
        with pytest.raises(WireError):
            Task.read(replace(task, schedule=schedule).document(key), key.public_key())


# Files and words.


def test_the_seed_follows_from_the_file_and_is_the_same_for_everybody(tmp_path):
    deployment = Deployment(tmp_path, "words")
    again = QueryFile.load(tmp_path / "task.toml")
    assert again.query == deployment.file.query
    seed = deployment.task.query.words["hash_seed"]
    (tmp_path / "other.toml").write_text((tmp_path / "task.toml").read_text() + 'name = "another"\n')
    assert QueryFile.load(tmp_path / "other.toml").query.words["hash_seed"] != seed
    (tmp_path / "other.toml").write_text((tmp_path / "task.toml").read_text() + "hash_seed = 5\n")
    assert QueryFile.load(tmp_path / "other.toml").query.words["hash_seed"] == 5


def test_all_records_of_a_device_are_one_persons_texts():
    words = {"column": "says", "max_bytes": 6, "per_person": 2, "cells": 256, "mistakes": 0.01, "hash_seed": 3}
    query = statistic_from_dict({"kind": "words", **words})
    own = HeavyHitters(max_bytes=6, per_person=2, cells=256, hash_seed=3)
    mine = query.vector(*query.read_records([{"says": "yes"}, {"says": " yes"}, {"says": "no"}]))
    assert np.array_equal(mine, np.asarray(own(own.encode([["yes", "no"]]), None))[0])
    many = query.vector(*query.read_records([{"says": f"text {number}"} for number in range(40)]))
    assert np.linalg.norm(many) <= own.norm * (1 + 1e-12)
    assert not query.vector(*query.read_pieces([], "nothing")).any()
    assert not statistic_from_dict(STREAM).vector(*statistic_from_dict(STREAM).read_pieces([], "nothing")).any()


@pytest.mark.parametrize(
    ("kind", "old", "new", "said"),
    [
        ("words", "cells = 256", "cells = 300", "power of two"),
        ("words", 'column = "says"\n', "", "column"),
        ("table", '"town", ', '"city", ', "columns"),
        ("table", 'guess = "guess.toml"\n', "", "schema"),
        ("table", '["town", "age"]', "[1, 2]", "column"),
        ("stream", "2026-01-05", '"soon"', "start"),
        ("stream", "2026-01-05", "2026-01-05T10:00:00", "start"),
        ("stream", "days = 3", "days = 0", "days"),
        ("stream", "days = 3", "days = 3\nper_person = 4", "per_person"),
    ],
)
def test_bad_files_are_refused_in_a_line(tmp_path, kind, old, new, said):
    (tmp_path / "guess.toml").write_text(FACTS)
    assert old in FILES[kind]
    (tmp_path / "task.toml").write_text(FILES[kind].replace(old, new) + f'users = 9\nshuffler_key = "{"0" * 64}"\n')
    with pytest.raises(ArgumentError, match=said) as caught:
        QueryFile.load(tmp_path / "task.toml")
    assert "\n" not in str(caught.value)


def test_words_that_nobody_knows_or_that_do_not_fit_are_refused():
    words = {"kind": "words", "column": "a", "max_bytes": 6, "per_person": 1, "cells": 256, "mistakes": 0.01, "hash_seed": 3}
    levels, edges = {"name": "a", "levels": ["x"]}, {"name": "b", "edges": [0, 1]}
    table = {"kind": "table", "columns": [levels, edges], "by": 0, "marginals": 0.0}
    assert statistic_from_dict(table).dim == 4
    assert statistic_from_dict(words).dim == 384
    wrong = [
        words | {"hash_seed": None},
        words | {"more": 1},
        table | {"columns": [levels, levels]},
        table | {"columns": [levels | {"edges": [0, 1]}]},
        table | {"columns": [edges | {"edges": [1, 0]}]},
        table | {"columns": [levels, edges], "by": 2},
        table | {"columns": [edges, levels], "by": 1},
        table | {"by": 1, "marginals": 0.1},
        STREAM | {"start": "2026-02-30"},
        STREAM | {"start": None},
        STREAM | {"per_person": 4},
    ]
    for one in wrong:
        with pytest.raises(ArgumentError):
            statistic_from_dict(one)
