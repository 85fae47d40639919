"""Questions by every transport, with and without an enroller: over sockets the answer is that of memory, of the good reports."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from helpers_exclusions import masked_in, spoiled, with_masked
from helpers_questions import USERS, piece, questions
from helpers_roles import randomness, soon
from sqlalchemy import select

from croupier.cli.tasks import figures, write_answer
from croupier.estimator import ShuffleLinearRegression
from croupier.protocol import VectorSum
from croupier.report._answers import answer_page
from croupier.service import enroller as enroller_tables
from croupier.service.analyzer import population as analyzer_tables
from croupier.service.analyzer.app import analyzer_app
from croupier.service.analyzer.dashboard import Dashboard
from croupier.service.analyzer.population import RemotePopulation
from croupier.service.analyzer.task_file import QueryFile
from croupier.service.client.client import Client
from croupier.service.enroller import EnrollerRole, enroller_app, new_invitation
from croupier.service.net.database import Database
from croupier.service.net.http import ServerError
from croupier.service.net.server import Served
from croupier.service.shuffler import rounds as shuffler_tables
from croupier.service.shuffler.app import shuffler_app
from croupier.service.shuffler.relay import AnalyzerRelay
from croupier.service.shuffler.role import ShufflerRole
from croupier.service.shuffler.rounds import excluded_clients
from croupier.service.wire.enrolment import EnrollerKeys, new_signer
from croupier.service.wire.task import RoundLostError, TooManyBadReportsError
from croupier.service.wire.transports import SealedReport
from croupier.validation import ArgumentError

pytestmark = pytest.mark.process

SIGNER = new_signer()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return questions(tmp_path_factory.mktemp("transports"))


class Spoiler(Client):
    """A client whose report is no good: a byte of its envelope, or by verified-sum of its share, is another."""

    def _report(self, *args: Any) -> bytes:
        return spoiled(SealedReport.from_bytes(super()._report(*args))).to_bytes()


class Vandal(Client):
    """A client by masked-sum that adds to its first count what makes the total one that nobody could have sent."""

    def _report(self, *args: Any) -> bytes:
        report = SealedReport.from_bytes(super()._report(*args))
        masked = masked_in(report)
        masked[0] = (masked[0] + np.uint64(2**report.width - 1 - self.total)) % np.uint64(2**report.width)
        return with_masked(report, masked).to_bytes()


@dataclass
class Deployed:
    """All roles of a question on sockets, and its clients, who have answered."""

    population: RemotePopulation
    shuffler: ShufflerRole
    analyzer: Served
    output: Path
    running: Any


@contextmanager
def deployed(folder: Path, place: Path, kind: str, transport: str, *, enroller=False, odd=None):
    """Everybody answers, those in `odd` by clients of another kind; what the analyzer makes of it is `running`."""
    asked = replace(QueryFile.load(folder / f"{kind}-task.toml"), asked_transport=transport, output=place / "answer.json")
    key, shuffler_key = Ed25519PrivateKey.generate(), Ed25519PrivateKey.from_private_bytes((folder / "key").read_bytes())
    with ExitStack() as stack:

        def store(role: str, layout: Any) -> Database:
            database = Database(f"sqlite:///{place / role}.db", layout)
            stack.callback(database.close)
            return database

        invitations = [new_invitation() for _ in range(USERS)]
        if enroller:
            signs = EnrollerRole(store("enroller", enroller_tables.ENROLLER), [SIGNER])
            signs.admit(invitations)
            address = stack.enter_context(Served(enroller_app(signs))).url
            asked = replace(asked, enroller=EnrollerKeys(address, (SIGNER.public_key().public_numbers().n,)))
        task, kept = asked.task(), store("shuffler", shuffler_tables.SHUFFLER)
        tokens = [shuffler_tables.enrol(kept, f"user {user}") for user in range(USERS)]
        shuffler = ShufflerRole(kept, shuffler_key, key.public_key(), smallest=2)
        population = RemotePopulation(task, store("analyzer", analyzer_tables.ANALYZER), key)
        analyst = stack.enter_context(ThreadPoolExecutor(1))
        analyzer = stack.enter_context(Served(analyzer_app(population)))
        served = stack.enter_context(Served(shuffler_app(shuffler)))
        stack.enter_context(AnalyzerRelay(shuffler, analyzer.url))
        stack.callback(population.stop)
        running = analyst.submit(write_answer, asked, population, place / "saved.json", analyzer.url)
        soon(lambda: shuffler.document)
        total = counts_of(task, range(USERS))[0]
        for user, token in enumerate(tokens):
            client = (odd or {}).get(user, Client)(
                served.url,
                token,
                key.public_key().public_bytes_raw().hex(),
                folder=place / f"client{user}",
                max_epsilon=9,
                max_delta=1e-2,
                at_once=True,
                invitation=invitations[user],
            )
            client.total = total
            answer(client, user)
        yield asked, Deployed(population, shuffler, analyzer, asked.output, running)


def answer(client: Client, user: int) -> None:
    record, end = piece(user).batch.to_pylist()[0], time.monotonic() + 60
    while time.monotonic() < end:
        with suppress(ServerError):
            if client.take_part_with(record, random=randomness(user, 1)) is not None:
                return
        time.sleep(0.02)
    raise TimeoutError("nobody wants an answer")


def reports_of(task, users):
    plan, question = task.schedule.phases[0].plan, task.query
    vectors = [question.vector(*question.read_pieces([piece(user)], "mine")) for user in users]
    return [VectorSum(plan).randomize(vector, randomness(user, 1)) for user, vector in zip(users, vectors, strict=True)]


def counts_of(task, users) -> list[int]:
    return sum(report.bits.sum(axis=1, dtype=np.int64) for report in reports_of(task, users)).tolist()


class InMemory:
    """The same people in one process, with the same coins."""

    users, unit, private = USERS, "person", False

    def __init__(self, task, members) -> None:
        self.task, self.members = task, members

    def answer(self, question):
        protocol = VectorSum(question.plan)
        return protocol.analyze(protocol.shuffle(reports_of(self.task, self.members)))


def plain(answered: Any) -> Any:
    """All figures of an answer but what is promised."""
    if isinstance(answered, ShuffleLinearRegression):
        return json.loads(
            json.dumps([answered.coef_.tolist(), answered.std_.tolist(), answered.n_users_, answered.estimate_.noise_std])
        )
    return {name: value for name, value in figures(answered).items() if name != "guarantee"}


CASES = [
    ("describe", "verified-sum", False, (4, 11)),
    ("regression", "verified-sum", True, (7,)),
    ("evaluate", "masked-sum", True, (0, 1, 2)),
]


@pytest.mark.parametrize(("kind", "transport", "enroller", "bad"), CASES)
def test_the_answer_over_sockets_is_that_of_memory_of_exactly_the_good_reports(folder, tmp_path, kind, transport, enroller, bad):
    with deployed(folder, tmp_path, kind, transport, enroller=enroller, odd=dict.fromkeys(bad, Spoiler)) as (asked, there):
        there.running.result()
        good = [user for user in range(USERS) if user not in bad]
        values, task = json.loads(there.output.read_text()), there.population.task
        found = asked.answer(there.population)  # the round is not asked again
        assert plain(found) == plain(asked.answer(InMemory(task, good)))
        promised = found.guarantee_ if kind == "regression" else found.guarantee
        assert promised is not None
        assert (promised.honest, promised.mu) == (0.9, task.schedule.guarantee.mu)
        users = values["fitted"]["estimate_"]["of"]["users"] if kind == "regression" else values["users"]
        assert users == len(good)
        names = {name for name, _ in excluded_clients(there.shuffler.store)}
        assert names == {f"user {user}" for user in bad}
        state = Dashboard(there.population).state()
        assert (state["status"], state["answer"], state["end"]) == ("finished", True, None)
        were = "was" if len(bad) == 1 else "were"
        assert dict(state["plan"]).get("bad reports") == (f"{len(bad)} {were} left out, or counted as zeros" if bad else None)
        assert dict(state["plan"])["honest in a round"].startswith("at least 27 of 30 people are counted on")
        if enroller:
            with there.population.store.look() as connection:
                assert len(connection.execute(select(analyzer_tables.spent)).all()) == len(good)


def test_a_regression_that_was_deployed_can_be_saved_and_read_and_promises_by_the_premise(folder, tmp_path):
    asked = QueryFile.load(folder / "regression-task.toml")
    task = asked.task()

    class Private(InMemory):
        def answer(self, question):
            return replace(super().answer(question), guarantee=question.plan.guarantee)

    model = asked.answer(Private(task, range(USERS)))
    read = ShuffleLinearRegression.from_json(model.to_json())
    assert (read.guarantee_.honest, read.honest, read.plan_.honest_users) == (0.9, 0.9, 24)
    assert "at least 90 % of all" in str(read)
    assert "of all people follow the protocol" in answer_page(model, title="Costs")
    fewer = json.loads(model.to_json())
    fewer["fitted"]["estimate_"]["of"]["guarantee"]["honest"] = 0.5  # less is assumed than the plan needs
    fewer["fitted"]["promise_"]["of"]["honest"] = 0.5
    with pytest.raises(ArgumentError, match="no stronger than its plans"):
        ShuffleLinearRegression.from_json(json.dumps(fewer))


def test_a_question_whose_counts_are_impossible_has_no_answer_rather_than_one_of_zeros(folder, tmp_path):
    """The attack: by masked-sum one client makes the sum one that nobody could have sent. Zeros would be a false answer."""
    with deployed(folder, tmp_path, "histogram", "masked-sum", odd={5: Vandal}) as (asked, there):
        with pytest.raises(RoundLostError, match="round 1 has no answer: counts that no users could have sent"):
            there.running.result()
        assert not there.output.exists()
        with pytest.raises(RoundLostError):  # the same after a restart
            asked.answer(RemotePopulation(there.population.task, there.population.store, there.population._key))
        state = Dashboard(there.population).state()
        assert (state["status"], state["answer"]) == ("spoiled", False)
        assert "no answer" in state["end"]


def test_more_bad_reports_than_the_margin_end_the_question(folder, tmp_path):
    odd = dict.fromkeys(range(4), Spoiler)
    with deployed(folder, tmp_path, "histogram", "verified-sum", odd=odd) as (_, there):
        with pytest.raises(TooManyBadReportsError, match="4 of 30 reports are bad, more than the 3 allowed"):
            there.running.result()
        assert not there.output.exists()


def test_what_no_client_would_take_is_refused_when_the_file_is_read(folder, tmp_path):
    enroller = EnrollerKeys("https://enroller.example", (SIGNER.public_key().public_numbers().n,))
    (tmp_path / "enroller.json").write_text(json.dumps(enroller.to_dict()))
    lines = (folder / "histogram-task.toml").read_text().splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith("transport")) + 'enroller = "enroller.json"\n'

    def written(more: str) -> QueryFile:
        (tmp_path / "written.toml").write_text(text + more)
        return QueryFile.load(tmp_path / "written.toml")

    assert written('transport = "verified-sum"\n').task().enroller == enroller
    with pytest.raises(ArgumentError, match="left out of a task by messages"):
        written('transport = "messages"\n').task()
    with pytest.raises(ArgumentError, match="transport"):
        written('transport = "carrier pigeon"\n')
    two = EnrollerKeys("https://enroller.example", (*enroller.moduli, new_signer().public_key().public_numbers().n))
    with pytest.raises(ArgumentError, match="1, one per slot"):
        replace(written(""), enroller=two).task()
    text = text.replace("users = 30", "users = 3000000").replace("delta = 1e-2", "delta = 1e-8")
    with pytest.raises(ArgumentError, match="batches of"):
        written("").task()
