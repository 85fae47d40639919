"""Secret lots with an enroller: blanks have tokens like people's, so many a round and no more, and too few people end the task."""

from __future__ import annotations

import contextlib
import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from helpers_exclusions import batch_made, spoiled
from helpers_node import asked, needs_node
from helpers_roles import World, randomness, round_of, soon, training
from test_deployed_lots import ENOUGH, SECRET, Clock, blank_coins, of_round

from croupier.service import enroller as enroller_tables
from croupier.service.analyzer.app import analyzer_app
from croupier.service.analyzer.dashboard import Dashboard
from croupier.service.analyzer.population import Admission
from croupier.service.client.client import Client
from croupier.service.enroller import EnrollerRole, enroller_app, new_invitation
from croupier.service.net.database import Database
from croupier.service.net.server import Served
from croupier.service.shuffler import role as shuffler
from croupier.service.shuffler import rounds as shuffler_tables
from croupier.service.shuffler.app import shuffler_app
from croupier.service.shuffler.relay import AnalyzerRelay
from croupier.service.wire.documents import WireError
from croupier.service.wire.enrolment import (
    PREFIX_BYTES,
    EnrollerKeys,
    TokenRequests,
    blank_parts,
    blind_signature,
    check_enroller,
    is_token,
    keys_command,
    new_signer,
)
from croupier.service.wire.task import RefusedError, SecretRounds, Task
from croupier.service.wire.transports import SealedReport
from croupier.validation import ArgumentError

pytestmark = pytest.mark.process

ROUNDS = 2
SIGNERS = [new_signer() for _ in range(ROUNDS)]
ASKED = {"users": 40, "rounds": ROUNDS, "epsilon": 8.0, "delta": 1e-2, "max_inflation": 1.5, "secret": SECRET}


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(shuffler, "time", made)
    return made


@pytest.fixture
def seeded_blanks(monkeypatch):
    numbers = itertools.count(1)
    monkeypatch.setattr(shuffler, "SecureRandom", lambda: blank_coins(next(numbers)))


def counted(world: World, address: str = "https://enroller.example", turnout: float = 0.95) -> World:
    """The world's task with an enroller that counts its blanks."""
    schedule = world.task.schedule.with_turnout(turnout).with_bounded_blanks()
    blanks = schedule.phases[0].lots.blanks
    keys = EnrollerKeys(address, tuple(key.public_key().public_numbers().n for key in SIGNERS), blanks)
    world.task = replace(world.task, schedule=schedule, enroller=keys)
    return world


def lots_of(world: World):
    return world.task.schedule.phases[0].lots


@pytest.fixture
def make(make_world):
    return lambda **asked: counted(make_world(**ASKED | asked))


@contextlib.contextmanager
def enrolling(folder, world_key, blanks: int):
    store = Database(f"sqlite:///{folder / 'enroller.db'}", enroller_tables.ENROLLER)
    try:
        yield EnrollerRole(store, SIGNERS, blanks, world_key)
    finally:
        store.close()


def sign(role: EnrollerRole, address: str, body: bytes) -> bytes:
    slot, _, requests = role.commit_blanks(body)
    return role.sign_blanks(slot, requests)


class Device(Client):
    """A user with the randomness that it has in memory too."""

    def __init__(self, user: int, world: World, url: str, invitation: str) -> None:
        key = world.analyzer_key.public_key().public_bytes_raw().hex()
        folder = world.folder / f"d{user}"
        super().__init__(url, world.tokens[user], key, folder=folder, at_once=True, invitation=invitation, **ENOUGH)
        self.url, self.user, self.rows = url, user, (world.X[user : user + 1], world.y[user : user + 1])

    def _report(self, document, task_round, task, gradient, random):
        coins = randomness(self.user, task_round.number) if np.any(gradient) else random
        return super()._report(document, task_round, task, gradient, coins)


class Cheat(Device):
    def _report(self, *about):
        return spoiled(SealedReport.from_bytes(super()._report(*about))).to_bytes()


class Forger(Device):
    """A user who has tokens of its own making."""

    def collect(self):
        task = self.task()
        self._memory.folder.mkdir(exist_ok=True)
        (self._memory.folder / f"{task.id}.tokens").write_text(json.dumps(["00" * 288] * ROUNDS))


@contextlib.contextmanager
def deployed(make_world, **asked):
    """All roles on sockets, with an enroller that has invited everybody."""
    world = make_world(**ASKED | asked)
    blanks = lots_of(counted(world)).blanks
    with enrolling(world.folder, world.shuffler_key.public_key(), blanks) as role, Served(enroller_app(role)) as enroller:
        counted(world, enroller.url)
        invitations = [new_invitation() for _ in range(world.users)]
        role.admit(invitations)
        shuffling = world.shuffler(with_task=False)
        with (
            training(world) as running,
            Served(analyzer_app(running.population)) as analyzer,
            Served(shuffler_app(shuffling)) as served,
            AnalyzerRelay(shuffling, analyzer.url),
        ):
            soon(lambda: shuffling.document)
            world.seat()
            yield world, running, shuffling, lambda kind, user: kind(user, world, served.url, invitations[user])


def in_node(world: World, device: Device, user: int):
    """What a client in Node says that takes part as this user."""
    values = {
        "token": world.tokens[user],
        "folder": str(world.folder / f"node{user}"),
        "rows": [{"x": world.X[user].tolist(), "y": world.y[user]}],
        "seeds": {number: randomness(user, number)._root.hex() for number in range(1, ROUNDS + 1)},
        "invitation": device._invitation,
    }
    key = world.analyzer_key.public_key().public_bytes_raw().hex()
    [said] = asked("devices", shuffler=device.url, key=key, epsilon=8.01, delta=1e-2, devices=[values])
    return said


@pytest.mark.parametrize("way", ["cover", pytest.param("node", marks=needs_node)])
def test_with_an_enroller_theta_is_that_of_the_run_in_memory_and_cheats_are_left_out(make_world, clock, seeded_blanks, way):
    """One whose report does not verify, one whose token is forged, one who stays away. Some send cover, or one is in Node."""
    secret = SecretRounds(100.0, cover=way == "cover")
    planned = {"users": 90, "epsilon": 1.0, "max_inflation": 1.1, "honest": 0.95, "exclusions": True}
    with deployed(make_world, **planned, transport="verified-sum", secret=secret) as (world, running, role, made):
        kinds = {of_round(world, 1)[0]: Cheat, of_round(world, 2)[0]: Forger}
        away = of_round(world, 2)[1]
        coming = [user for user in range(world.users) if user != away]
        devices = {user: made(kinds.get(user, Device), user) for user in coming}
        read = devices[coming[0]].task()
        for device in devices.values():
            device._task = read  # proved once: it takes a while
        for number in range(1, ROUNDS + 1):
            soon(lambda wanted=number: (now := role.current()) and world.read(now).number == wanted)
            mine = of_round(world, number)
            for user, device in devices.items():
                if way == "node" and user == of_round(world, 1)[1]:
                    if number == 1:
                        assert in_node(world, device, user)["answered"] == 1
                elif user in mine or (secret.cover and user % 10 == 0 and user not in kinds):
                    assert device.take_part(*device.rows) is not None
            soon(lambda: role._blanks._round)
            clock.now = secret.leaves(clock.now)
        theta = running.result()
    who = [[user for user in of_round(world, number) if user != away] for number in range(1, ROUNDS + 1)]
    assert np.array_equal(theta, world.theta_in_memory(who, blank_coins, kinds))
    size, blanks = lots_of(world).size, lots_of(world).blanks
    assert world.rows("analyzer", "SELECT users FROM asked ORDER BY number") == [(size - 1,)] * ROUNDS
    assert world.rows("analyzer", "SELECT count(*), count(DISTINCT token) FROM spent") == [((size - 1) * ROUNDS,) * 2]
    named = {name for (name,) in world.rows("shuffler", "SELECT client FROM excluded")}
    assert named == {world.names[user] for user in kinds}
    # Of blanks the enroller has signed what the task says, whoever came; the shuffler has forgotten their tokens.
    signed = world.rows("enroller", "SELECT slot, count(*) FROM blanks_issued GROUP BY slot ORDER BY slot")
    assert signed == [(slot, len(blank_parts(blanks))) for slot in range(1, ROUNDS + 1)]
    assert set(world.rows("shuffler", "SELECT requests, tokens FROM blank_tokens")) == {(b"[]", b"")}


def filled(world: World, tmp_path):
    """A shuffler with all tokens for its blanks, and the enroller that signed them."""
    role = world.shuffler()
    with enrolling(tmp_path, world.shuffler_key.public_key(), lots_of(world).blanks) as enroller:
        while role.collect_blanks(lambda address, body: sign(enroller, address, body)):
            pass
    return role


def test_where_too_few_people_come_the_task_ends_and_nobodys_report_is_forwarded(make, clock, tmp_path):
    world = make(transport="masked-sum")
    role = filled(world, tmp_path)
    with training(world) as running:
        document = running.next_round()
        role.open(document)
        few = of_round(world, 1)[: lots_of(world).least_people - 1]
        assert few
        with role.store.begin() as connection:  # as if they had come
            about = {"round": world.read(document).id, "body": b"never read"}
            rows = [about | {"client": world.names[user], "seal": str(user)} for user in few]
            connection.execute(shuffler_tables.reports.insert(), rows)
        clock.now += SECRET.seconds
        role.close_late()
        clock.now += SECRET.seconds
        name, batch = role.waiting_batch()
        assert b"never read" not in batch
        running.population.take(batch)
        role.forwarded(name)
        soon(lambda: running.ended)
        role.exclude(running.population.exclusions(name))
    assert "fewer people came to it than the task counts on" in str(running.error)
    assert role.waiting_release() is None
    assert world.rows("shuffler", "SELECT state FROM rounds") == [("refused",)]
    assert world.rows("analyzer", "SELECT ones FROM asked") == [(None,)]


def test_a_round_waits_for_its_blanks_tokens_and_asks_for_the_same_ones_after_a_crash(make, clock, tmp_path):
    world = make(transport="masked-sum")
    role, bodies = world.shuffler(), []

    def lost(address, body):
        bodies.append(body)
        raise RefusedError(503, "lost on the way")

    with pytest.raises(RefusedError):
        role.collect_blanks(lost)
    document = round_of(world)
    assert not role.is_ready_for(document)
    role.open(document)
    clock.now += 2 * SECRET.seconds
    role.close_late()
    assert role.waiting_batch() is None  # without tokens there is no batch, whoever came
    role = world.shuffler()
    with pytest.raises(RefusedError):
        role.collect_blanks(lost)
    assert bodies[0] == bodies[1]
    with enrolling(tmp_path, world.shuffler_key.public_key(), lots_of(world).blanks) as enroller:
        while role.collect_blanks(lambda address, body: sign(enroller, address, body)):
            pass
    assert role.is_ready_for(document)


def test_the_enroller_signs_so_many_blanks_a_slot_and_no_other(make, tmp_path):
    world = make(transport="masked-sum")
    blanks, key, task = lots_of(world).blanks, world.shuffler_key, world.task
    parts, keys = blank_parts(blanks), task.enroller
    another, more = (
        replace(keys, moduli=moduli) for moduli in ((keys.moduli[0], keys.moduli[1] - 2), (*keys.moduli, keys.moduli[0] - 2))
    )
    with enrolling(tmp_path, key.public_key(), blanks) as enroller:
        first = TokenRequests.drawn(task.id, keys, 1, parts[0])
        answer = sign(enroller, "", first.for_blanks(0, key, keys))
        tokens = first.tokens(answer, task.id, task.enroller)
        assert len(tokens) == parts[0]
        # as people's are: of this task and slot, and of no other
        assert [[is_token(token, task.id, task.enroller, slot) for slot in (1, 2)] for token in tokens[:2]] == [[True, False]] * 2
        assert enroller.commit_blanks(first.for_blanks(0, key, keys))[2] == [one.request for one in first.blinded]  # a retry
        other = TokenRequests.drawn(task.id, keys, 1, parts[0])
        refusals = [
            (other.for_blanks(0, key, keys), 409),
            (other.for_blanks(len(parts), key, keys), 400),
            (replace(other, slot=3).for_blanks(0, key, more), 400),
            (TokenRequests.drawn(task.id, keys, 2, parts[0] + 1).for_blanks(0, key, keys), 400),
            (TokenRequests.drawn(task.id, keys, 2, parts[0]).for_blanks(0, Ed25519PrivateKey.generate(), keys), 400),
            # what another enroller was sent: this one does not take it in its place
            (TokenRequests.drawn(task.id, keys, 2, parts[0]).for_blanks(0, key, another), 400),
        ]
        for body, status in refusals:
            with pytest.raises(RefusedError) as refused:
                enroller.commit_blanks(body)
            assert refused.value.status == status
    with enrolling(tmp_path, None, 0) as enroller, pytest.raises(RefusedError, match="signs no blanks"):
        enroller.commit_blanks(first.for_blanks(0, key, keys))


def test_a_shuffler_passes_no_more_blanks_off_as_people_than_it_has_tokens(make, clock, tmp_path):
    """It fills a round with blanks alone: with its tokens, the same again, those of another round, and some of its own making."""
    world = make(transport="masked-sum")
    filled(world, tmp_path)
    blanks, size = lots_of(world).blanks, lots_of(world).size
    kept = {
        slot: b"".join(part for (part,) in world.rows("shuffler", f"SELECT tokens FROM blank_tokens WHERE slot = {slot}"))
        for slot in (1, 2)
    }
    tokens = {slot: [one[start : start + 288] for start in range(0, len(one), 288)] for slot, one in kept.items()}
    assert len(tokens[1]) == len(tokens[2]) == blanks
    document = round_of(world, key=X25519PrivateKey.generate())
    world.population().store.close()
    admission = Admission(world.store("analyzer"), world.task, world.read(document))
    tried = [*tokens[1], *tokens[1], *tokens[2], *[bytes(288)] * size]
    assert sum(map(admission.admits, tried)) == blanks == size - lots_of(world).least_people < size


def test_the_batch_of_people_and_blanks_tells_neither_from_the_other(make, tmp_path):
    """Tokens of both kinds are random prefixes under one key, in envelopes of one length: all that the analyzer looks at."""
    world = make(transport="masked-sum")
    task = world.task
    [person] = [blind_signature(one.request, SIGNERS[0]) for one in TokenRequests.drawn(task.id, task.enroller).blinded[:1]]
    assert len(person) == 256
    blank = TokenRequests.drawn(task.id, task.enroller, 1, 2)
    answer = b"".join(blind_signature(one.request, SIGNERS[0]) for one in blank.blinded)
    tokens = blank.tokens(answer, task.id, task.enroller)
    assert len({token[:PREFIX_BYTES] for token in tokens}) == 2
    assert {len(token) for token in tokens} == {PREFIX_BYTES + 256}
    role = filled(world, tmp_path)
    document = round_of(world)
    role.open(document)
    [reports] = role._blanks.of(task, world.read(document), document, [shuffler_tables.blanks_at_hand(role.store, task, 1)])
    assert {len(report.to_bytes()) for report in reports} == {task.most_report_bytes()}
    assert batch_made(reports, world.plan(document)).sealed.shape[0] == lots_of(world).size


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda task: replace(task, enroller=replace(task.enroller, blanks=1)), "enroller.blanks = 1 is not"),
        (lambda task: replace(task, enroller=replace(task.enroller, moduli=task.enroller.moduli[:1])), "2, one per slot"),
        (lambda task: replace(task, enroller=None), "left out of a task without an enroller"),
    ],
)
def test_a_task_whose_blanks_nobody_counts_as_it_says_is_refused(make, change, message):
    world = make()
    document = change(world.task).document(world.analyzer_key)
    with pytest.raises(WireError, match=message):
        Task.read(document, world.analyzer_key.public_key())


def test_the_dashboard_says_how_many_people_a_round_has(make, make_world):
    counting, other = make(), make_world(**ASKED)
    said = [Dashboard(world.population()).state()["promise"]["if"] for world in (counting, other)]
    plan = lots_of(counting)
    line = f"at least {plan.least_people} of the {plan.size} reports of a round come from people"
    assert [line in one for one in said] == [True, False]


def test_secret_lots_with_an_enroller_have_to_bound_their_blanks(make_world):
    world = make_world(**ASKED)
    keys = EnrollerKeys("https://enroller.example", tuple(key.public_key().public_numbers().n for key in SIGNERS))
    with pytest.raises(ArgumentError, match="given where there is an enroller"):
        check_enroller(keys, world.task.schedule, "masked-sum")
    schedule = world.task.schedule.with_bounded_blanks()
    assert f"--slots 2 --blanks {schedule.phases[0].lots.blanks}" in keys_command(schedule)
