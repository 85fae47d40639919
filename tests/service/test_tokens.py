"""Tokens in a run: the reports of a round are of different enrolled people, and whoever makes some up gets nothing released."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from helpers_exclusions import in_order, masked_in
from helpers_roles import World, randomness, round_of, soon, training

from croupier.protocol import VectorSum
from croupier.service import enroller as enroller_tables
from croupier.service.analyzer import population as analyzer_tables
from croupier.service.analyzer.app import analyzer_app
from croupier.service.analyzer.population import Admission
from croupier.service.client.client import Client
from croupier.service.client.state import Memory
from croupier.service.enroller import EnrollerRole, enroller_app, new_invitation
from croupier.service.net.database import Database
from croupier.service.net.http import ServerError
from croupier.service.net.server import Served
from croupier.service.shuffler.app import shuffler_app
from croupier.service.shuffler.relay import AnalyzerRelay
from croupier.service.wire.enrolment import PREFIX_BYTES, EnrollerKeys, TokenRequests, new_signer
from croupier.service.wire.reports import TOKEN_BYTES, modulo
from croupier.service.wire.transports import TRANSPORTS, MaskedSum, SealedReport
from croupier.validation import ArgumentError

pytestmark = pytest.mark.process

SIGNERS = [new_signer() for _ in range(3)]


def signed_tokens(task, signers=SIGNERS) -> list[bytes]:
    """Tokens of one person, got as a client does."""
    from croupier.service.wire.enrolment import blind_signature  # noqa: PLC0415

    requests = TokenRequests.drawn(task.id, task.enroller)
    answers = [blind_signature(one.request, key) for one, key in zip(requests.blinded, signers, strict=False)]
    return requests.tokens(b"".join(answers), task.id, task.enroller)


def keys_of(slots: int, address: str = "http://127.0.0.1:9") -> EnrollerKeys:
    return EnrollerKeys(address, tuple(key.public_key().public_numbers().n for key in SIGNERS[:slots]))


class Deployment:
    """A task with an enroller: an analyzer and a shuffler on sockets, and reports that anybody may make."""

    def __init__(self, folder: Path, *, interactivity: str = "sequential", users: int = 12, transport: str = "masked-sum") -> None:
        slots = 3 if interactivity == "full" else 1
        about = {"users": users, "interactivity": interactivity, "enroller": keys_of(slots), "transport": transport}
        self.world = World(folder, **about)
        self.task = self.world.task

    @contextlib.contextmanager
    def running(self):
        shuffler = self.world.shuffler(with_task=False)
        with (
            training(self.world) as running,
            Served(analyzer_app(running.population)) as analyzer,
            Served(shuffler_app(shuffler)) as served,
            AnalyzerRelay(shuffler, analyzer.url),
        ):
            soon(lambda: shuffler.document)
            self.world.seat()
            self.url, self.shuffler = served.url, shuffler
            yield running
            soon(lambda: shuffler.waiting_batch() is None)

    def report(self, user: int, document, token: bytes) -> bytes:
        task_round = self.world.read(document)
        plan = task_round.phase_of(self.task).plan
        bits = self.world.bits(user, document)
        return TRANSPORTS[self.task.transport].seal(bits, plan, document.digest, task_round.key, token).to_bytes()

    def send(self, user: int, document, token: bytes) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {self.world.tokens[user]}"}
        try:
            with urlopen(Request(f"{self.url}/v1/report", self.report(user, document, token), headers), timeout=30) as answer:
                return answer.status, ""
        except HTTPError as refusal:
            return refusal.code, refusal.read().decode()

    def round(self, running, number: int):
        """The document of a round that the shuffler has opened."""
        document = running.next_round(after=number - 1)
        soon(lambda: self.shuffler.current() is not None and self.shuffler.current().digest == document.digest)
        return document

    def spent(self) -> int:
        return self.world.rows("analyzer", "SELECT count(*) FROM spent")[0][0]


@pytest.fixture
def deploy(tmp_path):
    made = []

    def new(**asked):
        made.append(Deployment(tmp_path, **asked))
        return made[-1]

    yield new
    for one in made:
        one.world.close()


@pytest.mark.parametrize(
    ("interactivity", "transport"), [("sequential", "masked-sum"), ("full", "masked-sum"), ("sequential", "verified-sum")]
)
def test_with_tokens_theta_is_that_of_the_run_in_memory(deploy, interactivity, transport):
    there = deploy(interactivity=interactivity, transport=transport)
    people = [signed_tokens(there.task) for _ in range(12)]
    with there.running() as running:
        for number, members in enumerate(there.world.members(), start=1):
            document = there.round(running, number)
            slot = there.task.token_slot(there.world.read(document))
            assert slot == (number if interactivity == "full" else 1)
            for user in members:
                assert there.send(user, document, people[user][slot - 1]) == (200, "")
        theta = running.result()
    assert np.array_equal(theta, there.world.theta_in_memory(there.world.members()))
    assert there.spent() == sum(map(len, there.world.members()))


def refused_round(there: Deployment, tokens: list[bytes]) -> str:
    """The first round answered with these tokens: why the analyzer releases nothing."""
    with there.running() as running:
        document = there.round(running, 1)
        for user, token in enumerate(tokens):
            assert there.send(user, document, token)[0] == 200  # nobody but the analyzer sees a token
        soon(lambda: running.ended)
        assert running.theta is None
        return str(running.error)


def test_a_shuffler_that_makes_up_users_gets_nothing_released(deploy):
    """It fills the batch with reports of its own and lets one person in: without an enroller the next theta would say all of it."""
    there = deploy()
    [person] = signed_tokens(there.task)
    made_up = [os.urandom(TOKEN_BYTES) for _ in range(3)]
    assert "is spoiled" in refused_round(there, [person, *made_up])
    assert there.world.rows("analyzer", "SELECT ones, key FROM asked") == [(None, None)]


def test_a_token_twice_in_a_batch_is_one_person(deploy):
    there = deploy()
    people = [signed_tokens(there.task)[0] for _ in range(3)]
    assert "is spoiled" in refused_round(there, [*people, people[0]])


def test_a_token_of_another_task_admits_nobody(deploy):
    there = deploy()
    other = World(there.world.folder / "..", users=14, enroller=keys_of(1)).task  # the same keys
    assert other.id != there.task.id
    people = [signed_tokens(there.task)[0] for _ in range(3)]
    assert "is spoiled" in refused_round(there, [*people, signed_tokens(other)[0]])


def test_a_token_signed_by_somebody_else_admits_nobody(deploy):
    there = deploy()
    people = [signed_tokens(there.task)[0] for _ in range(3)]
    token = people[0][:PREFIX_BYTES] + people[1][PREFIX_BYTES:]  # a prefix that the signature is not of
    assert "is spoiled" in refused_round(there, [*people, token])


def test_a_token_of_another_round_admits_nobody(deploy):
    """In the sequential model one that was counted before; in the full model one of another slot."""
    there = deploy()
    people = [signed_tokens(there.task)[0] for _ in range(12)]
    with there.running() as running:
        document = there.round(running, 1)
        for user in range(4):
            there.send(user, document, people[user])
        document = there.round(running, 2)
        for user in range(4, 8):
            there.send(user, document, people[0 if user == 4 else user])
        soon(lambda: running.ended)
        assert "round 2 is spoiled" in str(running.error)
    [first, second] = there.world.rows("analyzer", "SELECT ones FROM asked ORDER BY number")
    assert first[0] is not None
    assert second[0] is None


def test_a_token_of_another_slot_admits_nobody(deploy):
    there = deploy(interactivity="full")
    people = [signed_tokens(there.task) for _ in range(12)]
    assert "is spoiled" in refused_round(there, [*(tokens[0] for tokens in people[:11]), people[11][1]])


def test_a_shuffler_that_keeps_the_tokens_and_exchanges_the_reports_learns_nothing(deploy):
    """It forwards four people's envelopes, and adds up one person's masked counts and its own: the others' masks stay on.

    What the analyzer is left with is uniformly random, so that it is another one for the same reports under other seeds. That three
    of them are the same by chance has probability 2^-50.
    """
    there = deploy()
    key = X25519PrivateKey.generate()
    document = round_of(there.world, key=key)
    plan, checker = there.world.plan(document), MaskedSum()
    seen = []
    for _ in range(3):
        people = [signed_tokens(there.task)[0] for _ in range(4)]
        reports = [SealedReport.from_bytes(there.report(user, document, people[user])) for user in range(4)]
        admission = Admission(there.world.store("analyzer"), there.task, there.world.read(document))
        verdict = checker.check(in_order(reports, plan), plan, key, admits=admission.admits)
        assert verdict.places == ()
        width = checker.width(plan)
        own = np.zeros(plan.dim, dtype=np.uint64)  # what the three synthetic reports would add
        seen.append(modulo(masked_in(reports[0]) + own - verdict.share, width))
        assert np.array_equal(  # the sum of all four is what it should be
            checker.counts(checker.release(reports, plan, bytes(32)), verdict.share, plan).ones,
            sum(there.world.bits(user, document).bits.sum(axis=1) for user in range(4)),
        )
    assert width * plan.dim >= 25
    answer = there.world.bits(0, document).bits.sum(axis=1)
    assert len({one.tobytes() for one in seen}) > 1
    assert not all(np.array_equal(one, answer) for one in seen)


def test_reports_without_a_token_are_refused_by_the_shuffler(deploy):
    there = deploy()
    with there.running() as running:
        document = there.round(running, 1)
        status, reason = there.send(0, document, b"")
        assert status == 400
        assert "without a token" in reason
        assert there.send(0, document, bytes(10))[0] == 400


def test_reports_with_a_token_are_refused_where_the_task_has_no_enroller(make_world):
    from helpers_roles import refused  # noqa: PLC0415

    world = make_world()
    document, shuffler = round_of(world), world.shuffler()
    shuffler.open(document)
    plan = world.plan(document)
    bits = VectorSum(plan).randomize(np.zeros(plan.dim), randomness(0, 1))
    body = TRANSPORTS["masked-sum"].seal(bits, plan, document.digest, world.read(document).key, bytes(TOKEN_BYTES)).to_bytes()
    status, reason = refused(shuffler, world.names[0], body)
    assert status == 400
    assert "with a token" in reason


def test_an_analyzer_that_is_killed_has_counted_a_token_or_has_not(tmp_path):
    """Tokens are written in the transaction of what they admit: kill -9 right after it, and right before its end."""
    world = World(tmp_path, enroller=keys_of(1))
    people = [signed_tokens(world.task)[0] for _ in range(2)]
    with training(world) as running:
        document = running.next_round()
    task_round = world.read(document)
    (tmp_path / "tokens").write_bytes(b"".join(people))
    (tmp_path / "task").write_bytes(world.task.document(world.analyzer_key).to_bytes())
    (tmp_path / "round").write_bytes(document.to_bytes())
    program = textwrap.dedent(
        f"""
        import os, signal, sys
        from pathlib import Path
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from croupier.service.net.database import Database
        from croupier.service.analyzer.population import ANALYZER, Admission
        from croupier.service.wire.task import Task, TaskRound
        from croupier.service.wire.documents import Document
        folder = Path({os.fspath(tmp_path)!r})
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex({world.analyzer_key.public_key().public_bytes_raw().hex()!r}))
        task = Task.read(Document.from_bytes((folder / "task").read_bytes()), key)
        task_round = TaskRound.read(Document.from_bytes((folder / "round").read_bytes()), task, key)
        tokens = (folder / "tokens").read_bytes()
        database = Database({world.databases["analyzer"]!r}, ANALYZER)
        for number in (0, 1):
            admission = Admission(database, task, task_round)
            assert admission.admits(tokens[number * {TOKEN_BYTES} :][:{TOKEN_BYTES}])
            with database.begin() as connection:
                admission.spend(connection)
                if number:
                    os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGKILL
    database = Database(world.databases["analyzer"], analyzer_tables.ANALYZER)
    later = type(task_round)(**{**vars(task_round), "id": "ab" * 16, "number": 2})
    admission = Admission(database, world.task, later)
    assert [admission.admits(token) for token in people] == [False, True]
    database.close()
    world.close()


# Clients, with a real enroller.


def test_clients_collect_tokens_and_answer(tmp_path):
    database = Database(f"sqlite:///{tmp_path / 'enroller.db'}", enroller_tables.ENROLLER)
    role = EnrollerRole(database, SIGNERS[:1])
    invitations = [new_invitation() for _ in range(12)]
    role.admit(invitations)
    with Served(enroller_app(role)) as enroller:
        there = Deployment.__new__(Deployment)
        there.world = World(tmp_path, enroller=keys_of(1, enroller.url))
        there.task = there.world.task
        key = there.world.analyzer_key.public_key().public_bytes_raw().hex()
        with there.running() as running:
            clients = [
                Client(
                    there.url,
                    token,
                    key,
                    folder=tmp_path / f"client{user}",
                    max_epsilon=8.01,
                    max_delta=1e-2,
                    at_once=True,
                    invitation=invitations[user],
                )
                for user, token in enumerate(there.world.tokens)
            ]
            uninvited = Client(there.url, there.world.tokens[0], key, folder=tmp_path / "other", max_epsilon=8.01, max_delta=1e-2)
            with pytest.raises(ArgumentError, match="invitation = None"):
                uninvited.take_part(there.world.X[0], there.world.y[:1])
            for client in clients:
                client.collect()
            for number, members in enumerate(there.world.members(), start=1):
                there.round(running, number)
                for user in members:
                    X, y = there.world.X[user : user + 1], there.world.y[user : user + 1]
                    assert clients[user].take_part(X, y, random=randomness(user, number)).round == number
            theta = running.result()
    assert np.array_equal(theta, there.world.theta_in_memory(there.world.members()))
    assert there.spent() == 12
    for user in range(12):
        [file] = (tmp_path / f"client{user}").glob("*.tokens")
        assert file.read_text() == '[""]'  # used, and forgotten
    database.close()
    there.world.close()


def test_a_client_that_is_killed_around_its_report_keeps_neither_its_token_nor_what_links_it(tmp_path, monkeypatch):
    """The token is struck out before the report is there: an analyzer that asks the same number again would tell a person by it."""
    database = Database(f"sqlite:///{tmp_path / 'enroller.db'}", enroller_tables.ENROLLER)
    role = EnrollerRole(database, SIGNERS[:3])
    invitation = new_invitation()
    role.admit([invitation])
    with Served(enroller_app(role)) as enroller:
        there = Deployment.__new__(Deployment)
        there.world = World(tmp_path, enroller=keys_of(3, enroller.url), interactivity="full")
        there.task = there.world.task
        key = there.world.analyzer_key.public_key().public_bytes_raw().hex()
        with there.running() as running:
            there.round(running, 1)
            about = {"folder": tmp_path / "client", "max_epsilon": 8.01, "max_delta": 1e-2, "at_once": True}
            client = Client(there.url, there.world.tokens[0], key, invitation=invitation, **about)
            client.collect()
            requests = tmp_path / "client" / f"{there.task.id}.requests"
            requests.write_text("[]")  # as after a kill between the tokens' writing and its deletion
            write = Memory.write

            def killed(memory, path, data) -> None:
                if path.suffix == ".report":
                    raise KeyboardInterrupt
                write(memory, path, data)

            monkeypatch.setattr(Memory, "write", killed)
            with pytest.raises(KeyboardInterrupt):
                client.take_part(there.world.X[0], there.world.y[:1])
    [first, *others] = json.loads((tmp_path / "client" / f"{there.task.id}.tokens").read_text())
    assert first == ""
    assert all(others)
    assert not requests.exists()
    database.close()
    there.world.close()


def test_an_invitation_does_not_travel_in_clear_to_another_machine(tmp_path):
    there = Deployment(tmp_path)
    client = Client("http://127.0.0.1:9", "token", "ab" * 32, folder=tmp_path / "c", invitation="a-secret-of-enough-letters")
    client._task = replace(there.task, enroller=keys_of(1, "http://enroller.example"))
    with pytest.raises(ArgumentError, match=r"enroller = 'http://enroller.example' is not allowed: it must be an https address"):
        client.collect()
    there.world.close()


def test_an_enroller_that_is_away_is_waited_for(tmp_path):
    there = Deployment(tmp_path)
    key = there.world.analyzer_key.public_key().public_bytes_raw().hex()
    with there.running() as running:
        there.round(running, 1)
        client = Client(
            there.url, there.world.tokens[0], key, folder=tmp_path / "c", max_epsilon=8.01, max_delta=1e-2, invitation="a-secret"
        )
        with pytest.raises(ServerError, match="the enroller: "):
            client.take_part(there.world.X[0], there.world.y[:1])
        assert client.answered() == 0
    there.world.close()
