"""verified-sum between the real roles: the sum of exactly the honest clients, whatever the others send, and theta as in memory."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import replace

import numpy as np
import pytest
from helpers_exclusions import bring
from helpers_roles import DIM, World, training

from croupier.protocol import Report as Bits
from croupier.service.analyzer.dashboard import Dashboard, page
from croupier.service.prio3.prio3 import FIELD64
from croupier.service.wire.reports import VerifiedSizes, shared_counts, vdaf_for
from croupier.service.wire.task import RefusedError, TooManyBadReportsError, most_excluded
from croupier.service.wire.transports import TRANSPORTS, SealedReport

pytestmark = pytest.mark.process

TRANSPORT = "verified-sum"


class Margin(World):
    """A task whose plans count on fewer honest users than its premise holds: so many reports may be left out."""

    def __init__(self, folder, *, premise=0.95, **asked) -> None:
        super().__init__(folder, transport=TRANSPORT, patience=0.0, **asked)
        self.task = replace(self.task, schedule=replace(self.task.schedule, honest=premise))

    @property
    def most(self) -> int:
        return most_excluded(self.task, self.task.schedule.phases[0])


@pytest.mark.parametrize("interactivity", ["sequential", "full"])
def test_theta_is_that_of_the_run_in_memory(tmp_path, interactivity):
    world = World(tmp_path, transport=TRANSPORT, interactivity=interactivity)
    shuffler = world.shuffler()
    with training(world) as running:
        for number, users in enumerate(world.members()):
            document = running.next_round(after=number)
            shuffler.open(document)
            for user in users:
                shuffler.receive(world.names[user], world.report(user, document))
            bring(shuffler, running.population)
        theta = running.result()
    assert np.array_equal(theta, world.theta_in_memory(world.members()))
    world.close()


def test_the_dashboard_shows_a_task_by_verified_sum(tmp_path):
    world = World(tmp_path, transport=TRANSPORT)
    with training(world) as running:
        running.next_round()
        state = Dashboard(running.population).state()
        assert "proofs" in json.dumps(state)
        assert "two shares" in page(state)
    world.close()


def cheats(world, document, plan, honest):
    """Reports that break the rules, each in one way, by what it is; and how the shuffler answers, None where it cannot tell."""
    digest, key, most = document.digest, world.read(document).key, plan.bits_per_coordinate
    vdaf, sizes = vdaf_for(DIM, most, digest), VerifiedSizes(DIM, most)
    fresh = [SealedReport.from_bytes(world.report(0, document)) for _ in range(12)]

    def changed(at, by=1):
        report = fresh.pop()
        shares = report.unsealed.copy()
        shares[at] ^= by
        return replace(report, unsealed=shares).to_bytes()

    def crafted(elements):
        nonce = os.urandom(16)
        public, (leader, helper) = vdaf._sharded(FIELD64.elements(elements), nonce, os.urandom(vdaf.rand_bytes))
        honestly = TRANSPORTS[TRANSPORT].seal(world.bits(0, document), plan, digest, key)
        return sealed_as(helper, replace(honestly, unsealed=np.frombuffer(nonce + public + leader, np.uint8)))

    def sealed_as(helper, report):
        """The report with this sealed share."""
        from croupier.service.wire import transports as transport  # noqa: PLC0415

        envelope = transport._SUITE.encrypt(helper, key, info=transport.seed_info(TRANSPORT, digest))
        return replace(report, sealed=np.frombuffer(envelope, np.uint8)).to_bytes()

    length = vdaf.circuit.elements
    good = SealedReport.from_bytes(honest)
    not_numbers = fresh.pop()
    numbers = not_numbers.unsealed.copy()
    numbers[80:88] = 255
    other_helper, _ = shared_counts(np.zeros(DIM, np.int64), most, digest)
    elsewhere = TRANSPORTS[TRANSPORT].seal(world.bits(0, document), plan, bytes(32), key)
    wide = TRANSPORTS[TRANSPORT].seal(Bits(np.zeros((DIM + 1, most), dtype=bool), private=False), plan, digest, key)
    masked = TRANSPORTS["masked-sum"].seal(world.bits(0, document), plan, digest, key)
    return {
        "a count far out of range": (crafted([10**6] + [0] * (length - 1)), None),
        "a negative count": (crafted([-1] * length), None),
        "an element of 2": (crafted([2] + [0] * (length - 1)), None),
        "an altered proof": (changed(sizes.open - 60), None),
        "an altered wire seed": (changed(80 + 8 * length), None),
        "an altered measurement": (changed(81), None),
        "an altered nonce": (changed(0), None),
        "an altered part of the joint randomness": (changed(20), None),
        "the analyzer's altered part": (changed(60), None),
        "an altered blind": (changed(sizes.open - 1), None),
        "no numbers of the field": (replace(not_numbers, unsealed=numbers).to_bytes(), None),
        "a seal that does not open": (
            replace(fresh.pop(), sealed=np.frombuffer(os.urandom(sizes.sealed), np.uint8)).to_bytes(),
            None,
        ),
        "a seal of another share": (sealed_as(other_helper, fresh.pop()), None),
        "another client's bytes": (honest, 400),
        "another client's seal": (replace(fresh.pop(), sealed=good.sealed).to_bytes(), 400),
        "of another round": (elsewhere.to_bytes(), 400),
        "of another dimension": (wide.to_bytes(), 400),
        "by another transport": (masked.to_bytes(), 400),
        "cut off": (honest[:-1], 400),
        "too long": (honest + b"\0", 400),
        "nothing": (b"", 400),
    }


def play(world, shuffler, running, number, users, bad):
    """One round in which these users answer honestly, and those in `bad` cheat, each in a way of its own; who was left out."""
    document = running.next_round(after=number)
    plan = world.plan(document)
    shuffler.open(document)
    honest = [user for user in users if user not in bad]
    reports = {user: world.report(user, document) for user in honest}
    shuffler.receive(world.names[honest[0]], reports[honest[0]])
    kinds = itertools.chain.from_iterable(cheats(world, document, plan, reports[honest[0]]).values() for _ in itertools.count())
    unseen = []
    for user, (body, status) in zip(bad, kinds, strict=False):
        if status is None:
            shuffler.receive(world.names[user], body)
            unseen.append(user)
        else:
            with pytest.raises(RefusedError) as refusal:
                shuffler.receive(world.names[user], body)
            assert refusal.value.status == status
    with pytest.raises(RefusedError) as refusal:  # by somebody who has stolen the token of a client that has answered
        shuffler.receive(world.names[honest[0]], world.report(honest[1], document))
    assert refusal.value.status == 409
    [stranger] = shuffler.clients_of(["a token that nobody has"])
    assert stranger.status == 401
    for user in honest[1:]:
        shuffler.receive(world.names[user], reports[user])
    shuffler.close_late()
    bring(shuffler, running.population)
    return honest, unseen


def ones_of(world, document, users):
    return sum(world.bits(user, document).bits.sum(axis=1, dtype=np.int64) for user in users).tolist()


def check_task_with_cheats(folder, users, cheating, rounds=1, **asked):
    """Every round has the sum of exactly its honest users, and the senders of what does not verify are known to the shuffler."""
    world = Margin(folder, users=users, rounds=rounds, interactivity="full", epsilon=8.0, **asked)
    shuffler, bad = world.shuffler(), list(range(1, users, users // cheating))[:cheating]
    assert (len(bad), world.most >= cheating) == (cheating, True)
    with training(world) as running:
        for number in range(rounds):
            document = running.next_round(after=number)
            honest, unseen = play(world, shuffler, running, number, list(range(users)), bad)
            assert len(unseen) >= min(13, cheating // 2)
            running.next_round(after=number + 1)
            [(ones, counted)] = world.rows("analyzer", f"SELECT ones, users FROM asked WHERE number = {number + 1}")
            assert (json.loads(ones), counted) == (ones_of(world, document, honest), users - cheating)
            out = world.rows("shuffler", f"SELECT client FROM excluded WHERE round = '{world.read(document).id}'")
            assert sorted(name for (name,) in out) == sorted(world.names[user] for user in unseen)
        theta = running.result()
    assert np.array_equal(theta, world.theta_in_memory([[user for user in range(users) if user not in bad]] * rounds))
    world.close()


def test_a_task_with_cheats_of_every_kind_ends_with_the_sum_of_exactly_the_honest_ones(tmp_path):
    check_task_with_cheats(tmp_path, 66, 21, premise=0.68, honest=0.35)


@pytest.mark.slow
def test_500_clients_of_whom_50_cheat(tmp_path):
    check_task_with_cheats(tmp_path, 500, 50, rounds=3, premise=0.9, honest=0.8)


def test_more_cheats_than_the_margin_allows_end_the_task_and_nothing_is_released(tmp_path):
    world = Margin(tmp_path, users=20, premise=0.95, honest=0.85, rounds=1, interactivity="full", epsilon=8.0)
    shuffler = world.shuffler()
    with training(world) as running:
        document = running.next_round()
        shuffler.open(document)
        for user in range(world.users):
            report = SealedReport.from_bytes(world.report(user, document))
            shares = report.unsealed.copy()
            shares[100] ^= user <= world.most
            shuffler.receive(world.names[user], replace(report, unsealed=shares).to_bytes())
        name, batch = shuffler.waiting_batch()
        running.population.take(batch)
        shuffler.forwarded(name)
        assert running.next_round(after=1) is None
        assert isinstance(running.error, TooManyBadReportsError)
        assert "more than" in str(running.error)
    assert world.rows("analyzer", "SELECT ones, key FROM asked") == [(None, None)]
    world.close()
