"""Anything that clients, the network and crashes do, in any order, to both servers: nobody is counted twice, and nothing is lost.

What is expected is kept by the machine itself: whose report was taken, and the bits that are in it. What is found is read off the
databases' files by sqlite3.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from helpers_exclusions import batch_made
from helpers_roles import DIM, Training, Web, World, soon
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from croupier.protocol import Report as Bits
from croupier.service.analyzer.app import analyzer_app
from croupier.service.net import database as tables
from croupier.service.shuffler.app import shuffler_app
from croupier.service.wire.documents import EXCLUSIONS, ROUND, Document, WireError
from croupier.service.wire.task import fewest, most_excluded
from croupier.service.wire.transports import TRANSPORTS, Release, SealedReport

pytestmark = pytest.mark.process

TASKS = {
    "sequential": {"users": 15, "honest": 0.9},
    "full": {"users": 6, "honest": 0.5, "premise": 0.8},  # the plan counts on 3, a round ends with 5, and 2 may be left out
}
BURST = 20  # requests that a client may always send; the rest are not sent
USERS = st.integers(0, 14)


class Servers(RuleBasedStateMachine):
    """Both roles behind their web apps, on files; rounds go on as long as there are users."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.world: World | None = None
        self.opened: list[Document] = []  # rounds that the shuffler has seen
        self.reports: dict[tuple[int, int], bytes] = {}  # what a user sends in a round, by numbers: the same whenever it does
        self.taken: dict[int, list[int]] = {}  # by round, whose reports
        self.released: dict[int, list[int]] = {}  # by round, who is in its batch
        self.batches: dict[int, bytes] = {}
        self.ones: dict[int, list[int]] = {}  # of the users in a batch
        self.arrived = 0  # batches that the analyzer has
        self.counted = 0  # rounds whose counts it has: all that have arrived or, where reports are checked, have been released
        self.bad: dict[int, set[int]] = {}  # by round, who has sent what does not open
        self.commitments: dict[int, bytes] = {}  # lists of exclusions, as the analyzer said them first
        self.sums: dict[int, bytes] = {}  # releases, as the shuffler said them first
        self.requests: dict[int, int] = {}
        self.lots: dict[int, int] = {}  # by user, the round that was drawn; nobody's where all are in every round
        self.promised: set[int] = set()  # who has asked for the open round, and not answered it

    @initialize(interactivity=st.sampled_from(sorted(TASKS)), transport=st.sampled_from(["masked-sum", "messages"]))
    def begin(self, interactivity: str, transport: str) -> None:
        asked = TASKS[interactivity]
        self.world = World(Path(self.folder.name), transport=transport, interactivity=interactivity, patience=0.0, **asked)
        phase = self.world.task.schedule.phases[0]
        self.plan, self.checked = phase.plan, transport == "masked-sum"
        self.fewest, self.most_bad = fewest(self.world.task, phase), most_excluded(self.world.task, phase)
        assert 2 <= self.plan.honest_users <= self.fewest < self.plan.users
        assert self.most_bad == {"sequential": 0, "full": 2}[interactivity]
        self._start_shuffler()
        self._start_analyzer()
        drawn = {client: (first, last) for client, first, last in self.world.rows("shuffler", "SELECT * FROM lots")}
        sequential = interactivity == "sequential"
        if sequential:  # users are counted in the order of their rounds
            self.lots = {user: 1 + user // 5 for user in range(15)}
        expected = [(number, number) for number in (1, 2, 3) for _ in range(5)] if sequential else [(1, 3)] * 6
        assert sorted(drawn.values()) == expected
        self.fetch_round()

    def teardown(self) -> None:
        if self.world is not None:
            self._stop_shuffler()
            self._stop_analyzer()
            self.world.close()
        self.folder.cleanup()

    def _start_shuffler(self) -> None:
        self.shuffler = self.world.shuffler()
        self.clients = Web(shuffler_app(self.shuffler))
        self.requests = {}

    def _stop_shuffler(self) -> None:
        self.clients.__exit__()
        self.shuffler.store.close()

    def _start_analyzer(self) -> None:
        self.training = Training(self.world, self.world.population()).__enter__()
        self.analyzer = Web(analyzer_app(self.training.population))
        if self.arrived > self.counted:
            self.published = None  # a batch is looked into, or its release is waited for
        else:
            self.published = self.training.next_round(after=self.counted)

    def _stop_analyzer(self) -> None:
        self.analyzer.__exit__()
        self.training.__exit__()
        self.training.population.store.close()

    # What the machine expects.

    @property
    def open_number(self) -> int | None:
        """The number of the round that takes reports."""
        last = len(self.opened)
        return last if last and last not in self.released else None

    def _user(self, user: int) -> int:
        return user % self.world.users

    def _has_taken_part(self, user: int, number: int) -> bool:
        numbers = [number] if self.world.task.schedule.interactivity == "full" else list(self.taken)
        return any(user in self.taken.get(some, []) for some in numbers)

    def _report(self, user: int, number: int) -> bytes:
        if (user, number) not in self.reports:
            self.reports[user, number] = self.world.report(user, self.opened[number - 1])
        return self.reports[user, number]

    def _expected(self, user: int, number: int) -> int:
        """The status for a user's own report of a round that the shuffler has seen."""
        if number != self.open_number:
            return 200 if self._has_taken_part(user, number) else 410
        return 200 if user in self.taken[number] or self._is_wanted(user) else 409

    def _is_wanted(self, user: int) -> bool:
        """Whether a report of the user, who has not answered yet, belongs into the open round."""
        return not self._has_taken_part(user, self.open_number) and self.lots.get(user, self.open_number) == self.open_number

    def _post(self, user: int, body: bytes, expected: int, **headers: str) -> None:
        """A request of an enrolled client, as often as it may."""
        self.requests[user] = self.requests.get(user, 0) + 1
        if self.requests[user] <= BURST:
            given = {"Authorization": f"Bearer {self.world.tokens[user]}"} | headers
            self._require(self.clients.post("/v1/report", body, given), expected)

    def _require(self, answer, *expected: int) -> None:
        assert answer.status in expected, (answer, expected)
        if answer.status != 200:
            assert 5 < len(answer.text) < 200
            assert not any(secret in answer.text for secret in self.world.names + self.world.tokens)

    def _now_taken(self, user: int) -> None:
        number = self.open_number
        if self.requests[user] <= BURST and self._is_wanted(user):
            self.taken[number].append(user)
            self.promised.discard(user)
            if len(self.taken[number]) == self.plan.users:
                self._now_released()

    def _now_released(self) -> None:
        number = self.open_number
        self.released[number] = list(self.taken[number])
        self.promised = set()
        bad = self.bad.get(number, set())
        bits = [self.world.bits(user, self.opened[number - 1]).bits for user in self.taken[number] if user not in bad]
        self.ones[number] = sum(some.sum(axis=1, dtype=int) for some in bits).tolist()
        [(self.batches[number],)] = self.world.rows("shuffler", f"SELECT batch FROM rounds WHERE number = {number}")

    def _now_counted(self) -> None:
        self.counted += 1
        self.published = self.training.next_round(after=self.counted)

    def _id(self, number: int) -> str:
        return self.world.read(self.opened[number - 1]).id

    # Clients, and what becomes of what they send.

    @precondition(lambda self: self.open_number)
    @rule(user=USERS)
    def upload(self, user: int) -> None:
        """Also a retry after a request or an answer was lost: the same bytes."""
        user, number = self._user(user), self.open_number
        self._post(user, self._report(user, number), self._expected(user, number))
        self._now_taken(user)

    @precondition(lambda self: self.open_number)
    @rule(user=USERS)
    def upload_what_does_not_open(self, user: int) -> None:
        """As many as may be left out: nobody can tell before the analyzer looks. Later uploads of the user are the same bytes."""
        user, number = self._user(user), self.open_number
        bad = self.bad.setdefault(number, set())
        if (user, number) in self.reports or not self._is_wanted(user) or len(bad) == self.most_bad:
            return
        body = bytearray(self.world.report(user, self.opened[number - 1]))
        head, length = (48, 80) if self.checked else (48, 49)
        places = range(head, head + length) if self.checked else range(head, len(body), length)
        for place in places if not self.checked else [head + 60]:
            body[place] ^= 1  # the encapsulated key of every bit, or the seed's ciphertext
        self.reports[user, number] = bytes(body)
        bad.add(user)
        self.upload(user)

    @precondition(lambda self: self.open_number)
    @rule(user=USERS, other=USERS)
    def upload_anothers_envelopes(self, user: int, other: int) -> None:
        """Of one who has answered: its answer would count twice."""
        number, answered = self.open_number, self.taken[self.open_number]
        user = self._user(user)
        if answered and self._is_wanted(user):
            self._post(user, self.reports[answered[other % len(answered)], number], 400)

    @precondition(lambda self: self.open_number)
    @rule(first=USERS, count=st.integers(2, 6))
    def many_upload(self, first: int, count: int) -> None:
        for user in range(first, first + count):
            if self.open_number:
                self.upload(user)

    @rule(user=USERS)
    def ask_for_the_round(self, user: int) -> None:
        """Who is wanted gets the round, which then waits for it; a round that ends waits for nobody else."""
        user, number = self._user(user), self.open_number
        answer = self.clients.get("/v1/round", {"Authorization": f"Bearer {self.world.tokens[user]}"})
        ends = number and len(self.taken[number]) >= self.fewest  # patience is over from the beginning
        wanted = number and self._is_wanted(user) and (not ends or user in self.promised)
        assert answer.content == (self.opened[number - 1].to_bytes() if wanted else b"")
        if wanted:
            self.promised.add(user)

    @precondition(lambda self: self.open_number)
    @rule(user=USERS)
    def request_is_lost(self, user: int) -> None:
        """The report is made, and never arrives; a later upload sends it."""
        self._report(self._user(user), self.open_number)

    @precondition(lambda self: self.taken)
    @rule(user=USERS, back=st.integers(0, 2))
    def replay_or_late(self, user: int, back: int) -> None:
        """A report of any round so far: taken before, or too late."""
        number = max(1, len(self.opened) - back)
        if number != self.open_number:
            user = self._user(user)
            self._post(user, self._report(user, number), self._expected(user, number))

    @precondition(lambda self: self.open_number)
    @rule(user=USERS, place=st.integers(0, 10_000), change=st.integers(1, 255), of_one_who_answered=st.booleans())
    def hostile(self, user: int, place: int, change: int, of_one_who_answered: bool) -> None:
        """Every way to spoil a report, of a client that has answered or of one that has not."""
        number = self.open_number
        answered = self.taken[number]
        user = answered[user % len(answered)] if of_one_who_answered and answered else self._user(user)
        body = self._report(user, number)
        if not self._is_wanted(user):  # an altered replay, or another round's user with a report that nobody wants
            # not the last byte, which has zeros to fill it up
            self._post(
                user, _changed(body, 48 + place % (len(body) - 49), change), 409
            )  # not the last byte, which has zeros to fill it up
        self._post(user, _changed(body, place % 48, change), 400)
        self._post(user, body[: place % len(body)], 400)
        self._post(user, body + bytes(change), 413)
        self._post(user, body + bytes(change), 413, **{"Content-Length": str(len(body))})
        digest = bytes([change]) * 32
        other = TRANSPORTS[self.world.task.transport].seal(self._no_bits(), self.plan, digest, self._some_key())
        self._post(user, other.to_bytes(), 400)

    @precondition(lambda self: self.published is not None and self.published not in self.opened)
    @rule(user=USERS)
    def early(self, user: int) -> None:
        """The analyzer has published a round that the shuffler has not fetched."""
        user = self._user(user)
        self._post(user, self.world.report(user, self.published), 400 if self.open_number else 409)

    @precondition(lambda self: self.open_number)
    @rule(user=USERS, kind=st.sampled_from(["none", "unknown", "name", "hash", "basic"]))
    def wrong_token(self, user: int, kind: str) -> None:
        user = self._user(user)
        token = self.world.tokens[user]
        words = {
            "unknown": f"Bearer {token[::-1]}",
            "name": f"Bearer {self.world.names[user]}",
            "hash": f"Bearer {tables.hash_of(token)}",
            "basic": f"Basic {token}",
        }
        headers = {} if kind == "none" else {"Authorization": words[kind]}
        self._require(self.clients.post("/v1/report", self._report(user, self.open_number), headers), 401)

    # The shuffler's errands, and what becomes of them.

    @precondition(lambda self: self.published is not None and self.open_number is None)
    @rule()
    def fetch_round(self) -> None:
        """Every round has a key of its own."""
        document = Document.from_bytes(self.analyzer.get("/v1/round").content)
        assert document == self.published
        self.shuffler.open(document)
        if document not in self.opened:
            assert self.world.read(document).key not in [self.world.read(known).key for known in self.opened]
            self.opened.append(document)
            self.taken[len(self.opened)] = []
        current = self.clients.get("/v1/round").content
        assert current == (document.to_bytes() if self.open_number else b"")

    @precondition(lambda self: self.published is not None)
    @rule(change=st.sampled_from(["signature", "words"]))
    def forged_round(self, change: str) -> None:
        values = json.loads(self.published.text) | {"theta": [0.5] * DIM}
        key = Ed25519PrivateKey.generate() if change == "signature" else self.world.analyzer_key
        if change == "words" and self.published not in self.opened:
            values["task"] = "another"
        with pytest.raises(WireError):
            self.shuffler.open(Document.signed(ROUND, values, key))

    @precondition(lambda self: self.open_number)
    @rule()
    def patience_ends(self) -> None:
        waiting = self.shuffler.waiting_batch()
        self.shuffler.close_late()
        if len(self.taken[self.open_number]) >= self.fewest and not self.promised:
            self._now_released()
        else:
            assert self.shuffler.waiting_batch() == waiting

    @precondition(lambda self: len(self.batches) > self.arrived)
    @rule(lost=st.booleans())
    def forward(self, lost: bool) -> None:
        """The answer to a batch may be lost: the shuffler then sends it again, and the analyzer goes on all the same."""
        name, batch = self.shuffler.waiting_batch()
        if batch != self.batches[self.arrived + 1]:
            return  # it was not heard that the one before has arrived
        self._require(self.analyzer.post("/v1/batch", batch), 200)
        self.arrived += 1
        self.published = None
        if not self.checked:
            self._now_counted()
        if not lost:
            self.shuffler.forwarded(name)

    @precondition(lambda self: self.arrived)
    @rule(which=st.integers(1, 3), then_heard=st.booleans())
    def forward_again(self, which: int, then_heard: bool) -> None:
        self._require(self.analyzer.post("/v1/batch", self.batches[min(which, self.arrived)]), 200)
        waiting = self.shuffler.waiting_batch()
        if waiting is not None and waiting[1] == self.batches[self.arrived]:
            self._require(self.analyzer.post("/v1/batch", waiting[1]), 200)
            if then_heard:
                self.shuffler.forwarded(waiting[0])

    # What follows a batch where reports are checked.

    @precondition(lambda self: self.checked and self.arrived)
    @rule(lost=st.booleans())
    def fetch_exclusions(self, lost: bool) -> None:
        """The same list, whenever it is asked for, with the places of those that do not open; the shuffler takes it once."""
        number = self.arrived
        said = soon(lambda: self.analyzer.get(f"/v1/exclusions/{self._id(number)}").content)
        assert self.commitments.setdefault(number, said) == said
        if lost:
            return
        names = sorted(self.world.names[user] for user in self.bad.get(number, set()) & set(self.released[number]))
        for _ in range(2):
            self.shuffler.exclude(Document.from_bytes(said))
        found = self.world.rows("shuffler", f"SELECT client FROM excluded WHERE round = '{self._id(number)}' ORDER BY client")
        assert [name for (name,) in found] == names
        self.sums.setdefault(number, (self.shuffler.waiting_release() or (None, b""))[1])

    @precondition(lambda self: self.checked and self.commitments)
    @rule(kind=st.sampled_from(["another list", "stranger", "another batch", "another task"]), which=st.integers(1, 3))
    def forged_exclusions(self, kind: str, which: int) -> None:
        """An analyzer that changes its mind after a list was kept, or somebody who is not the analyzer."""
        number = min(which, max(self.commitments))
        values = json.loads(Document.from_bytes(self.commitments[number]).text)
        if kind == "another list":
            if number not in self.sums:
                return  # none was kept
            values["places"] = [place for place in range(2) if place not in values["places"]] or [2]
        values |= {"batch": "00" * 32} if kind == "another batch" else {"task": "another"} if kind == "another task" else {}
        key = Ed25519PrivateKey.generate() if kind == "stranger" else self.world.analyzer_key
        with pytest.raises(WireError):
            self.shuffler.exclude(Document.signed(EXCLUSIONS, values, key))

    @precondition(lambda self: self.checked and self.sums)
    @rule(lost=st.booleans())
    def send_release(self, lost: bool) -> None:
        """One sum for a round, however often it is sent."""
        if (ready := self.shuffler.waiting_release()) is None:
            return
        number = next(number for number in self.sums if self._id(number) == ready[0])
        assert ready[1] == self.sums[number]
        self._require(self.analyzer.post("/v1/release", ready[1]), 200)
        if number > self.counted:
            self._now_counted()
        if not lost:
            self.shuffler.released(ready[0])

    @precondition(lambda self: self.checked and self.sums)
    @rule(place=st.integers(0, 10_000), change=st.integers(1, 255), kind=st.sampled_from(["altered", "another sum", "again"]))
    def other_releases(self, place: int, change: int, kind: str) -> None:
        """Altered on the way; or by a shuffler that has changed its mind, which changes nothing once there is one."""
        number = max(self.sums)
        release = Release.from_bytes(self.sums[number], self.world.shuffler_key.public_key())
        if kind == "altered":
            data = bytearray(self.sums[number])
            data[place % len(data)] ^= change
            self._require(self.analyzer.post("/v1/release", bytes(data)), 400)
        elif number <= self.counted:
            sums = release.sums if kind == "again" else release.sums ^ np.uint64(1)
            self._require(self.analyzer.post("/v1/release", replace(release, sums=sums).to_bytes(self.world.shuffler_key)), 200)
        else:
            another = replace(release, exclusions=bytes(32), users=release.users - 1)
            self._require(self.analyzer.post("/v1/release", another.to_bytes(self.world.shuffler_key)), 400)

    @precondition(lambda self: self.batches)
    @rule(place=st.integers(0, 10_000), change=st.integers(1, 255), cut=st.booleans())
    def altered_batch(self, place: int, change: int, cut: bool) -> None:
        batch = bytearray(self.batches[max(self.batches)])
        if cut:
            del batch[-1 - place % len(batch) :]
        else:
            batch[place % len(batch)] ^= change
        self._require(self.analyzer.post("/v1/batch", bytes(batch)), 400)

    @precondition(lambda self: self.published is not None)
    @rule(kind=st.sampled_from(["small", "stranger"]))
    def forged_batch(self, kind: str) -> None:
        """A shuffler that does not keep the rules, or somebody who is not the shuffler."""
        count = self.fewest - (kind == "small")
        key = self.world.read(self.published).key
        about = self._no_bits(), self.plan, self.published.digest, key
        reports = [TRANSPORTS[self.world.task.transport].seal(*about) for _ in range(count)]
        signer = Ed25519PrivateKey.generate() if kind == "stranger" else self.world.shuffler_key
        read = [SealedReport.from_bytes(report.to_bytes()) for report in reports]
        self._require(self.analyzer.post("/v1/batch", batch_made(read, self.plan).to_bytes(signer)), 400)

    @precondition(lambda self: self.open_number)
    @rule()
    def a_round_goes_well(self) -> None:
        for user in range(self.world.users):
            if self.open_number and self.requests.get(user, 0) < BURST and self._expected(user, self.open_number) == 200:
                self.upload(user)
        if self.open_number:
            self.patience_ends()
        if self.open_number:
            return  # somebody was promised a place, and may come no more
        if len(self.batches) > self.arrived:
            if self.shuffler.waiting_batch()[1] != self.batches[self.arrived + 1]:
                self.forward_again(self.arrived, then_heard=True)
            self.forward(lost=False)
        if self.checked and self.arrived > self.counted:
            if self.shuffler.waiting_batch() is not None:
                self.forward_again(self.arrived, then_heard=True)
            self.fetch_exclusions(lost=False)
            self.send_release(lost=False)
        if self.published is not None and self.open_number is None:
            self.fetch_round()

    @rule()
    def shuffler_restarts(self) -> None:
        self._stop_shuffler()
        self._start_shuffler()

    @rule()
    def analyzer_restarts(self) -> None:
        if self.training.ended:
            return
        before = self.published
        self._stop_analyzer()
        self._start_analyzer()
        assert self.published == before  # the same question under the same key

    def _no_bits(self) -> Bits:
        return Bits(np.zeros((DIM, self.plan.bits_per_coordinate), dtype=bool), private=False)

    @staticmethod
    def _some_key() -> X25519PublicKey:
        """Of nobody."""
        return X25519PrivateKey.generate().public_key()

    # What always holds.

    @invariant()
    def counts_are_those_of_the_reports_that_were_taken(self) -> None:
        if self.world is None:
            return
        found = self.world.rows("analyzer", "SELECT number, ones, users FROM asked WHERE ones IS NOT NULL ORDER BY number")
        left = {
            number: len(set(users) - (self.bad.get(number, set()) if self.checked else set()))
            for number, users in self.released.items()
        }
        expected = [(number, self.ones[number], left[number]) for number in range(1, self.counted + 1)]
        assert [(number, json.loads(ones), users) for number, ones, users in found] == expected

    @invariant()
    def nobody_is_counted_twice_and_nobody_is_lost(self) -> None:
        if self.world is None:
            return
        full = self.world.task.schedule.interactivity == "full"
        found = sorted(self.world.rows("shuffler", "SELECT slot, client FROM taken_part"))
        names, identities = self.world.names, [self.world.read(document).id for document in self.opened]
        slots = [(identities[number - 1] if full else "task", names[user]) for number, some in self.taken.items() for user in some]
        assert found == sorted(slots)
        assert len(set(found)) == len(found)
        waiting = self.taken[self.open_number] if self.open_number else []
        kept = self.world.rows("shuffler", "SELECT client, body FROM reports")
        assert sorted(kept) == sorted((names[user], self.reports[user, self.open_number]) for user in waiting)

    @invariant()
    def no_batch_is_smaller_than_the_plan_allows(self) -> None:
        assert all(self.fewest <= len(users) <= self.plan.users for users in self.released.values())
        if self.world is not None:
            [(least,)] = self.world.rows("analyzer", "SELECT min(users) FROM asked")
            assert least is None or least >= self.plan.honest_users

    @invariant()
    def the_analyzer_has_no_identity_on_disk(self) -> None:
        if self.world is not None:
            on_disk = self.world.files("analyzer") + (self.world.folder / "run.journal").read_bytes()
            hashes = [tables.hash_of(token) for token in self.world.tokens]
            assert not any(text.encode() in on_disk for text in self.world.names + self.world.tokens + hashes)


def _changed(data: bytes, place: int, change: int) -> bytes:
    return data[:place] + bytes([data[place] ^ change]) + data[place + 1 :]


def test_whatever_clients_the_network_and_crashes_do_the_counts_are_right():
    run_state_machine_as_test(
        Servers,
        settings=settings(
            max_examples=25,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
