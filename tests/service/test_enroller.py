"""The enroller and a client's wallet: one token a slot and person, durable, and nothing that links them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from conftest import Roles
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from helpers_roles import Web, postgres_server, soon, why_no_postgres
from typer.testing import CliRunner

from croupier.cli.app import app
from croupier.service import enroller
from croupier.service.analyzer import population as analyzer_tables
from croupier.service.client.state import Wallet
from croupier.service.enroller import EnrollerRole, enroller_app, new_invitation, read_invitations, token_keys
from croupier.service.net.database import Database
from croupier.service.net.http import Server, ServerError
from croupier.service.net.server import Served
from croupier.service.shuffler import rounds as shuffler_tables
from croupier.service.wire.documents import WireError
from croupier.service.wire.enrolment import (
    PREFIX_BYTES,
    SIGNED_BYTES,
    EnrollerKeys,
    TokenRequests,
    blind_signature,
    is_token,
    new_signer,
    read_requests,
    requests_bytes,
    slots_of,
)
from croupier.service.wire.task import RefusedError, Task
from croupier.validation import ArgumentError

pytestmark = pytest.mark.process

SIGNERS = [new_signer() for _ in range(2)]


def keys_of(slots: int = 1, address: str = "https://enroller.example") -> EnrollerKeys:
    return EnrollerKeys(address, tuple(key.public_key().public_numbers().n for key in SIGNERS[:slots]))


@pytest.fixture
def invitation() -> str:
    return new_invitation()


@pytest.fixture
def store(tmp_path):
    opened = Database(f"sqlite:///{tmp_path / 'enroller.db'}", enroller.ENROLLER)
    yield opened
    opened.close()


@pytest.fixture
def role(store, invitation) -> EnrollerRole:
    made = EnrollerRole(store, SIGNERS[:1])
    assert made.admit([invitation]) == 1
    return made


def full_task() -> Task:
    return Roles.task(interactivity="full", enroller=keys_of(2))


def sequential_task() -> Task:
    return Roles.task(enroller=keys_of())


class Direct:
    """The enroller's app as a client's server, without a socket."""

    def __init__(self, role: EnrollerRole) -> None:
        self.role, self.lost = role, False

    def send(self, path, body=None, headers=None):
        with Web(enroller_app(self.role)) as web:
            answer = web.post(path, body, headers)
        if answer.status != 200:
            raise ServerError(answer.status, answer.text)
        if self.lost:
            raise ServerError(None, "lost on the way")
        return answer.content


def test_a_person_gets_one_token_for_its_task_and_slot(role, invitation, tmp_path):
    task = sequential_task()
    wallet = Wallet(tmp_path / "client", task)
    wallet.collect(Direct(role), invitation)
    token = wallet.token(1)
    assert is_token(token, task.id, task.enroller, 1)
    other = Roles.task(name="another", enroller=keys_of())
    assert not is_token(token, other.id, other.enroller, 1)  # another task, though the keys are the same
    assert not is_token(token[:-1], task.id, task.enroller, 1)
    assert not is_token(b"", task.id, task.enroller, 1)
    assert not is_token(bytes(PREFIX_BYTES) + token[PREFIX_BYTES:], task.id, task.enroller, 1)
    assert (tmp_path / "client" / f"{task.id}.tokens").stat().st_mode & 0o777 == 0o600


def issue(role, person, body):
    """What the role's server does with a request."""
    return role.sign(role.commit(person, body))


def test_a_token_of_one_slot_is_none_of_another(store, invitation, tmp_path):
    role, task = EnrollerRole(store, SIGNERS), full_task()
    role.admit([invitation])
    wallet = Wallet(tmp_path, task)
    wallet.collect(Direct(role), invitation)
    first, second = wallet.token(1), wallet.token(2)
    assert first[:PREFIX_BYTES] != second[:PREFIX_BYTES]
    found = [is_token(one, task.id, task.enroller, slot) for one in (first, second) for slot in (1, 2)]
    assert found == [True, False, False, True]


def test_a_person_cannot_get_two_tokens_for_one_slot(store, invitation):
    """Whoever asks for the same message by both slots' requests has one token for each slot: keys say which slot it is."""
    role, task = EnrollerRole(store, SIGNERS), full_task()
    role.admit([invitation])
    requests = TokenRequests.drawn(task.id, task.enroller)
    twice = EnrollerKeys("https://x.example", task.enroller.moduli[::-1])  # messages of slot 1 and 2 under each other's keys
    smallest = min(task.enroller.moduli)
    crossed = TokenRequests.drawn(task.id, twice)
    while any(int.from_bytes(one.request) >= smallest for one in crossed.blinded):  # such as can be asked for under either key
        crossed = TokenRequests.drawn(task.id, twice)
    answer = issue(role, role.person_of(invitation), crossed.to_bytes())
    with pytest.raises(WireError, match="no signature"):
        crossed.tokens(answer, task.id, twice)
    with pytest.raises(RefusedError, match="other requests of this person"):
        issue(role, role.person_of(invitation), requests.to_bytes())


def test_the_same_requests_are_signed_again_and_no_others(role, invitation):
    task, person = sequential_task(), role.person_of(invitation)
    requests = TokenRequests.drawn(task.id, task.enroller)
    first = issue(role, person, requests.to_bytes())
    assert issue(role, person, requests.to_bytes()) == first
    with pytest.raises(RefusedError) as refusal:
        issue(role, person, TokenRequests.drawn(task.id, task.enroller).to_bytes())
    assert refusal.value.status == 409


def test_of_requests_that_come_together_one_is_signed(role, invitation):
    task, person = sequential_task(), role.person_of(invitation)
    bodies = [TokenRequests.drawn(task.id, task.enroller).to_bytes() for _ in range(8)]

    def issued(body: bytes) -> bool:
        try:
            issue(role, person, body)
        except RefusedError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(issued, bodies)) == 1


def test_an_answer_that_got_lost_is_asked_for_by_the_same_bytes(role, invitation, tmp_path):
    task = sequential_task()
    server = Direct(role)
    server.lost = True
    with pytest.raises(ServerError, match="the enroller: lost on the way"):
        Wallet(tmp_path, task).collect(server, invitation)
    server.lost = False
    wallet = Wallet(tmp_path, task)  # another process
    wallet.collect(server, invitation)
    assert is_token(wallet.token(1), task.id, task.enroller, 1)
    assert not list(tmp_path.glob("*.requests"))  # nothing is left that links token and request


def test_a_used_token_is_forgotten(role, invitation, tmp_path):
    task = sequential_task()
    wallet = Wallet(tmp_path, task)
    wallet.collect(Direct(role), invitation)
    token = wallet.token(1)
    wallet.forget(1)
    assert token.hex() not in (tmp_path / f"{task.id}.tokens").read_text()
    with pytest.raises(ArgumentError, match="token = 1 is not allowed: it must be one of a slot that was not answered yet"):
        wallet.token(1)
    wallet.collect(Direct(role), "no longer needed, and not sent")


@pytest.mark.parametrize(
    ("brought", "message"),
    [
        (None, "invitation = None is not allowed: it must be letters, digits and signs. The task's enroller, https://enroller"),
        ("with a space", "invitation has a value that is not shown"),
        ("a-stranger-of-whom-nobody-knows", "it must be one that the enroller knows"),
    ],
)
def test_an_invitation_that_is_none(role, tmp_path, brought, message):
    with pytest.raises(ArgumentError, match=message) as refusal:
        Wallet(tmp_path, sequential_task()).collect(Direct(role), brought)
    assert brought is None or brought not in str(refusal.value)


def test_tokens_that_were_collected_elsewhere(role, invitation, tmp_path):
    Wallet(tmp_path / "one", sequential_task()).collect(Direct(role), invitation)
    with pytest.raises(ArgumentError, match="collected elsewhere"):
        Wallet(tmp_path / "two", sequential_task()).collect(Direct(role), invitation)


def test_an_enroller_that_signs_with_another_key_is_found_out(invitation, tmp_path):
    """Keys of its own for one person would tell that person's tokens apart: the client verifies by the task's."""

    class Dishonest:
        def send(self, path, body=None, headers=None):
            [request] = read_requests(body, 1)
            private = SIGNERS[1].private_numbers()
            modulus = private.public_numbers.n
            return pow(int.from_bytes(request) % modulus, private.d, modulus).to_bytes(SIGNED_BYTES)

    with pytest.raises(WireError, match="no signature by its key"):
        Wallet(tmp_path, sequential_task()).collect(Dishonest(), invitation)
    assert not list(tmp_path.glob("*.tokens"))


def test_what_the_enroller_keeps_is_no_token_and_no_request(role, invitation, tmp_path):
    task = sequential_task()
    requests = TokenRequests.drawn(task.id, task.enroller)
    [token] = requests.tokens(issue(role, role.person_of(invitation), requests.to_bytes()), task.id, task.enroller)
    role.store.wipe()
    kept = b"".join(file.read_bytes() for file in tmp_path.glob("enroller.db*"))
    for secret in (token[:PREFIX_BYTES], token[PREFIX_BYTES:], requests.blinded[0].request, invitation.encode()):
        assert secret not in kept
        assert secret.hex().encode() not in kept


@pytest.mark.parametrize(
    "body",
    [b"", b"CRPT", bytes(requests_bytes(1)), b"CRPR" + bytes(requests_bytes(1) - 4), b"CRPT\1" + bytes(requests_bytes(1) - 5)],
)
def test_requests_of_another_shape(role, invitation, body):
    with pytest.raises(RefusedError) as refusal:
        issue(role, role.person_of(invitation), body)
    assert refusal.value.status == 400
    with pytest.raises(WireError):
        read_requests(body, 1)


def test_requests_for_more_slots_than_the_task_has(role, invitation):
    requests = TokenRequests.drawn(full_task().id, keys_of(2))
    with pytest.raises(RefusedError, match=f"another shape than 1 of {SIGNED_BYTES} bytes"):
        issue(role, role.person_of(invitation), requests.to_bytes())


def test_the_enroller_on_the_network(role, invitation):
    task = sequential_task()
    body = TokenRequests.drawn(task.id, task.enroller).to_bytes()
    with Web(enroller_app(role)) as web:
        assert web.post("/v1/tokens", body).status == 401
        assert web.post("/v1/tokens", body, {"Authorization": "Bearer nobody"}).status == 401
        known = {"Authorization": f"Bearer {invitation}"}
        assert web.post("/v1/tokens", body + b"!", known).status == 413
        assert web.post("/v1/tokens", body[:-1], known).status == 400
        answer = web.post("/v1/tokens", body, known)
        assert (answer.status, len(answer.content)) == (200, SIGNED_BYTES)
        assert web.get("/healthz").status == 200
        metrics = web.get("/metrics").text
        assert "croupier_tokens_issued_total 1.0" in metrics
        assert 'croupier_tokens_refused_total{status="401"} 2.0' in metrics
        for _ in range(20):
            answer = web.post("/v1/tokens", body, known)
        assert answer.status == 429


@pytest.fixture
def signatures(monkeypatch):
    """Every signature that is computed, one entry each."""
    made: list[bytes] = []

    def counted(request, key):
        made.append(request)
        return blind_signature(request, key)

    monkeypatch.setattr(enroller, "blind_signature", counted)
    return made


def posted(role: EnrollerRole, bodies: list[bytes], invitation: str) -> list[int | None]:
    """The statuses of these requests of one person, sent from many connections at once."""
    with Served(enroller_app(role)) as served, ThreadPoolExecutor(8) as pool:

        def status(body: bytes) -> int | None:
            try:
                Server(served.url).send("/v1/tokens", body, {"Authorization": f"Bearer {invitation}"})
            except ServerError as refusal:
                return refusal.status
            return 200

        return sorted(pool.map(status, bodies))


def test_other_requests_of_a_person_cost_the_enroller_no_signature(role, invitation, signatures):
    """The attack: 20 different requests of one person were each signed before all but one were refused."""
    task = sequential_task()
    bodies = [TokenRequests.drawn(task.id, task.enroller).to_bytes() for _ in range(16)]
    assert posted(role, bodies, invitation) == [200] + [409] * 15
    assert len(signatures) == 1


def test_the_same_requests_are_signed_a_few_times_and_then_not_for_a_while(role, invitation, signatures):
    """The attack: a person who repeats the same bytes had them signed twice a second for ever, on as many slots as the task has."""
    body = TokenRequests.drawn(sequential_task().id, keys_of()).to_bytes()
    assert posted(role, [body] * 16, invitation) == [200] * 3 + [429] * 13
    assert len(signatures) == 3


def committed(role: EnrollerRole) -> int:
    """For how many people the enroller has written down what it signs."""
    with role.store.look() as connection:
        return connection.exec_driver_sql("SELECT count(*) FROM issued").scalar_one()


def test_people_who_come_together_are_signed_for_one_after_the_other(role, monkeypatch):
    """The attack: many people at once took all threads of the process, and the time of each, so that it looked dead."""
    people, everyone = [new_invitation() for _ in range(8)], threading.Event()
    role.admit(people)
    signing, at_once = set[int](), []

    def counted(request, key):
        signing.add(threading.get_ident())
        assert everyone.wait(30)
        at_once.append(len(signing))
        signed = blind_signature(request, key)
        signing.discard(threading.get_ident())
        return signed

    monkeypatch.setattr(enroller, "blind_signature", counted)
    task = sequential_task()
    with Served(enroller_app(role)) as served, ThreadPoolExecutor(8) as pool:

        def collect(person: str) -> int:
            body = TokenRequests.drawn(task.id, task.enroller).to_bytes()
            return len(Server(served.url).send("/v1/tokens", body, {"Authorization": f"Bearer {person}"}))

        answers = [pool.submit(collect, person) for person in people]
        soon(lambda: committed(role) == 8)
        assert Server(served.url).send("/healthz") == b"ok\n"
        everyone.set()
        assert [answer.result() for answer in answers] == [SIGNED_BYTES] * 8
    assert at_once == [1] * 8


def test_nothing_is_signed_for_whoever_has_gone(role, invitation, monkeypatch):
    """The attack: clients that time out and ask again have the enroller work for nobody, and a rush of them never ends."""
    others, first, gone = [new_invitation() for _ in range(2)], threading.Event(), threading.Event()
    role.admit(others)
    signed: list[bytes] = []

    def slow(request, key):
        first.set()
        assert gone.wait(30)
        signed.append(request)
        return blind_signature(request, key)

    monkeypatch.setattr(enroller, "blind_signature", slow)
    task = sequential_task()
    bodies = [TokenRequests.drawn(task.id, task.enroller).to_bytes() for _ in range(3)]
    with Served(enroller_app(role)) as served, ThreadPoolExecutor(2) as pool:

        def collect(person: str, body: bytes) -> int:
            return len(Server(served.url).send("/v1/tokens", body, {"Authorization": f"Bearer {person}"}))

        busy = pool.submit(collect, others[0], bodies[0])
        assert first.wait(30)
        address = urlsplit(served.url)
        with socket.create_connection((address.hostname, address.port)) as leaving:  # asks behind the first, and hangs up
            head = f"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {invitation}\r\n"
            leaving.sendall(f"{head}Content-Length: {len(bodies[1])}\r\n\r\n".encode() + bodies[1])
            soon(lambda: committed(role) == 2)
        last = pool.submit(collect, others[1], bodies[2])
        soon(lambda: committed(role) == 3)  # so that the server has heard before that the other one hung up
        gone.set()
        assert (busy.result(), last.result()) == (SIGNED_BYTES, SIGNED_BYTES)
        assert signed == [body[-SIGNED_BYTES:] for body in (bodies[0], bodies[2])]
        assert collect(invitation, bodies[1]) == SIGNED_BYTES  # it is still this person's


def test_requests_that_cannot_be_signed_are_not_committed_to(role, invitation, signatures):
    """A number beyond the modulus is refused, and the person can still ask for what can be signed."""
    task = sequential_task()
    good = TokenRequests.drawn(task.id, task.enroller).to_bytes()
    for wrong in (good[:-SIGNED_BYTES] + b"\xff" * SIGNED_BYTES, good[:-SIGNED_BYTES] + bytes(SIGNED_BYTES)):
        with pytest.raises(RefusedError, match="no number below the enroller's modulus") as refusal:
            issue(role, role.person_of(invitation), wrong)
        assert refusal.value.status == 400
    assert signatures == []
    assert len(issue(role, role.person_of(invitation), good)) == SIGNED_BYTES


@pytest.mark.parametrize("signed", [True, False])
def test_killed_at_any_moment_a_person_gets_one_set_of_tokens(tmp_path, invitation, signed):
    """kill -9 of the enroller's process after a step; then another request of the same person is refused, and the same is not."""
    task, database = sequential_task(), f"sqlite:///{tmp_path / 'enroller.db'}"
    store = Database(database, enroller.ENROLLER)
    EnrollerRole(store, SIGNERS[:1]).admit([invitation])
    store.close()
    folder = tmp_path / "keys"
    folder.mkdir()
    key = SIGNERS[0].private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()).hex()
    (folder / "token.keys").write_text(json.dumps([key]))
    body = TokenRequests.drawn(task.id, task.enroller).to_bytes()
    (tmp_path / "body").write_bytes(body)
    program = textwrap.dedent(
        f"""
        import os, signal, sys
        from pathlib import Path
        from croupier.service.net.database import Database
        from croupier.service.enroller import ENROLLER, EnrollerRole, token_keys
        role = EnrollerRole(Database({database!r}, ENROLLER), token_keys(Path({os.fspath(folder)!r})))
        requests = role.commit(role.person_of({invitation!r}), Path({os.fspath(tmp_path / "body")!r}).read_bytes())
        {"role.sign(requests)" if signed else ""}
        os.kill(os.getpid(), signal.SIGKILL)  # committed to or signed, and nobody has heard
        """
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGKILL
    store = Database(database, enroller.ENROLLER)
    role = EnrollerRole(store, SIGNERS[:1])
    person = role.person_of(invitation)
    with pytest.raises(RefusedError, match="other requests"):
        issue(role, person, TokenRequests.drawn(task.id, task.enroller).to_bytes())
    assert issue(role, person, body)
    store.close()


def test_many_people_are_admitted_once(store):
    invitations = [new_invitation() for _ in range(1201)]
    role = EnrollerRole(store, SIGNERS[:1])
    assert role.admit(invitations) == 1201
    assert role.admit([*invitations, new_invitation()]) == 1


def opened_together(url: str, metadata, pool: ThreadPoolExecutor, processes: int) -> list[Database]:
    """A database that this many open at the same moment."""
    together = threading.Barrier(processes)

    def opened(_: int) -> Database:
        together.wait(30)
        return Database(url, metadata)

    return list(pool.map(opened, range(processes)))


@pytest.mark.skipif(why_no_postgres() is not None, reason=str(why_no_postgres()))
def test_several_processes_that_find_no_tables_make_them_once():
    """The attack: roles that start together on a new database, of which all but one fell over."""
    with postgres_server() as new, ThreadPoolExecutor(4) as pool:
        for place, metadata in enumerate([enroller.ENROLLER, shuffler_tables.SHUFFLER, analyzer_tables.ANALYZER] * 3):
            for store in opened_together(new(f"new{place}"), metadata, pool, 4):
                assert store.trouble() == ""
                store.close()


@pytest.mark.skipif(why_no_postgres() is not None, reason=str(why_no_postgres()))
def test_several_enrollers_on_one_database_admit_people_and_sign_once():
    """The attacks: two that start together with one list, of which one fell over; one person who asks both, many times at once."""
    people, task = [new_invitation() for _ in range(1200)], sequential_task()
    with postgres_server() as new, ThreadPoolExecutor(8) as pool:
        url, together = new("enroller"), threading.Barrier(2)
        roles = [EnrollerRole(store, SIGNERS[:1]) for store in opened_together(url, enroller.ENROLLER, pool, 2)]

        def admit(role: EnrollerRole) -> int:
            together.wait(30)
            return role.admit(people)

        assert sum(pool.map(admit, roles)) == 1200
        person, all_of_them = roles[0].person_of(people[0]), threading.Barrier(8)
        bodies = [TokenRequests.drawn(task.id, task.enroller).to_bytes() for _ in range(8)]

        def status(place: int) -> int:
            all_of_them.wait(30)
            try:
                issue(roles[place % 2], person, bodies[place])
            except RefusedError as refusal:
                return refusal.status
            return 200

        assert sorted(pool.map(status, range(8))) == [200] + [409] * 7
        for role in roles:
            role.store.close()


# What a task says of its enroller.


def test_a_task_with_an_enroller_is_read_as_it_was_written():
    task = sequential_task()
    read = Task.read(task.document(Roles.analyzer), Roles.analyzer.public_key())
    assert read.enroller == task.enroller
    assert read.id == task.id != Roles.task().id
    assert "enroller" not in json.loads(Roles.task().document(Roles.analyzer).text)


def test_slots_are_rounds_in_the_full_model_alone():
    assert slots_of(Roles.task().schedule) == 1
    assert slots_of(full_task().schedule) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda words: words.update(keys=[]), "a list of at least 1"),
        (lambda words: words.update(keys=words["keys"] * 2), "different keys, one per slot"),
        (lambda words: words.update(keys=[*words["keys"], f"{SIGNERS[1].public_key().public_numbers().n:x}"]), "1, one per slot"),
        (lambda words: words.update(keys=["xyz"]), r"keys\[0\] is 'xyz'; it must be a text like"),
        (lambda words: words.update(keys=[7]), r"keys\[0\] is 7; it must be a text"),
        (lambda words: words.update(keys=["ab"]), r"keys\[0\] is 'ab'; it must be a text like"),
        (lambda words: words.update(keys=["f" * 4096]), r"keys\[0\] is 'f{60}'; it must be a text like"),
        (lambda words: words.update(keys=[words["keys"][0][:-1] + "0"]), r"keys\[0\] is .*; it must be a text like"),
        (lambda words: words.update(address="ftp://x"), "address is 'ftp://x'; it must be a text like"),
        (lambda words: words.update(address=None), "address is null; it must be a text"),
        (lambda words: words.update(more=1), "enroller.more is 1; it must be left out"),
        (lambda words: words.pop("keys"), "enroller.keys is missing; it must be given"),
    ],
)
def test_an_enroller_that_is_none(change, message):
    document = Roles.edited(sequential_task().document(Roles.analyzer), lambda values: change(values["enroller"]))
    with pytest.raises(WireError, match=message):
        Task.read(document, Roles.analyzer.public_key())


def test_messages_cannot_carry_tokens():
    document = Roles.task("messages", enroller=keys_of()).document(Roles.analyzer)
    with pytest.raises(WireError, match="left out of a task by messages"):
        Task.read(document, Roles.analyzer.public_key())


# The commands.


def run(*arguments: object):
    return CliRunner().invoke(app, ["serve", *map(str, arguments)])


def test_keys_are_printed_for_the_task_file_and_stay(tmp_path):
    printed = run("enroller-keys", "--dir", tmp_path, "--address", "https://e.example:8803")
    assert printed.exit_code == 0
    (tmp_path / "enroller.json").write_text(printed.stdout)
    loaded = EnrollerKeys.load(tmp_path / "enroller.json")
    assert len(loaded.moduli) == 1
    assert [key.public_key().public_numbers().n for key in token_keys(tmp_path)] == list(loaded.moduli)
    assert (tmp_path / "token.keys").stat().st_mode & 0o777 == 0o600
    again = run("enroller-keys", "--dir", tmp_path, "--address", "https://e.example:8803")
    assert again.stdout == printed.stdout
    other = run("enroller-keys", "--dir", tmp_path, "--address", "https://e.example:8803", "--slots", "3")
    assert "--slots = 3 is not allowed: it must be 1, the keys in this folder" in str(other.exception)
    wrong = run("enroller-keys", "--dir", tmp_path, "--address", "e.example")
    assert "--address = 'e.example' is not allowed" in str(wrong.exception)


def test_invitations_are_for_the_people_file(tmp_path):
    printed = run("invitations", "--people", "3")
    file = tmp_path / "people.txt"
    file.write_text(printed.stdout + "\n")
    assert len(read_invitations(file)) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("short\n", "line 1 has a value that is not shown; it must be at least 16 letters"),
        ("a-secret-of-enough-letters\nanother with spaces in it\n", "line 2"),
        ("a-secret-of-enough-letters\n\na-secret-of-enough-letters\n", "line 3 .* another one than line 1. One invitation is one"),
    ],
)
def test_a_people_file_that_is_none(tmp_path, text, message):
    file = tmp_path / "people.txt"
    file.write_text(text)
    with pytest.raises(ArgumentError, match=message) as refusal:
        read_invitations(file)
    assert "secret-of" not in str(refusal.value)


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(ArgumentError, match="croupier serve invitations"):
        read_invitations(tmp_path / "people.txt")
    with pytest.raises(ArgumentError, match=r"a file that can be read \(No such file or directory\). croupier serve enroller-keys"):
        EnrollerKeys.load(tmp_path / "enroller.json")
    refused = run("enroller", "--dir", tmp_path)
    assert "Create them with croupier serve enroller-keys" in str(refused.exception)
    (tmp_path / "token.keys").write_text("[1]")
    with pytest.raises(ArgumentError, match="Restore the file"):
        token_keys(tmp_path)


def test_a_server_that_is_somewhere_else():
    with pytest.raises(ServerError):
        Server("http://127.0.0.1:9", timeout=1).send("/v1/tokens", b"")


def test_the_folder_of_a_wallet_is_checked(tmp_path):
    task = sequential_task()
    (tmp_path / f"{task.id}.tokens").write_text("not JSON")
    with pytest.raises(ArgumentError, match="Restore it"):
        Wallet(tmp_path, task).token(1)
    with pytest.raises(ArgumentError, match="a task with an enroller"):
        Wallet(Path(tmp_path), Roles.task())
