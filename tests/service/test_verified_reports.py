"""Reports by verified-sum between a client and two servers, and every way to cheat in one that we know."""

from __future__ import annotations

import importlib.util
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from croupier.service.prio3 import prio3 as keys
from croupier.service.prio3.prio3 import FIELD64
from croupier.service.wire.documents import WireError
from croupier.service.wire.reports import (
    VerifiedSizes,
    checkable,
    decided,
    leader_sum,
    shared_counts,
    total_counts,
    vdaf_for,
)
from croupier.service.wire.transports import SealedReport

DIM, MOST, DIGEST, KEY = 6, 11, bytes(range(32)), bytes(32)


def test_both_servers_have_the_verify_key_of_a_round_and_no_other():
    shuffler, analyzer = Ed25519PrivateKey.generate(), X25519PrivateKey.generate()
    theirs = keys.exchange_public_key(shuffler.public_key())
    assert theirs.public_bytes_raw() == keys.exchange_key(shuffler).public_key().public_bytes_raw()
    one = keys.verify_key(analyzer, theirs, DIGEST)
    assert one == keys.verify_key(keys.exchange_key(shuffler), analyzer.public_key(), DIGEST)
    assert len(one) == 32
    others = [
        keys.verify_key(analyzer, theirs, bytes(32)),
        keys.verify_key(X25519PrivateKey.generate(), theirs, DIGEST),
        keys.verify_key(keys.exchange_key(Ed25519PrivateKey.generate()), analyzer.public_key(), DIGEST),
    ]
    assert len({one, *others}) == 4


@pytest.mark.parametrize("y", [1, 0])  # the neutral point has no coordinate; the other one is of low order
def test_a_key_that_shares_no_secret_is_refused(y):
    point = Ed25519PublicKey.from_public_bytes(y.to_bytes(32, "little"))
    with pytest.raises(WireError, match="key"):
        keys.verify_key(X25519PrivateKey.generate(), keys.exchange_public_key(point), DIGEST)


def envelope(share):
    """Stands for a seal here: as long, and it opens."""
    return bytes(48) + share


def opened(data):
    return data[48:] if data[:48] == bytes(48) else None


def batch(reports):
    sealed = np.stack([np.frombuffer(envelope(helper), np.uint8) for helper, _ in reports])
    return sealed, np.stack([rest for _, rest in reports])


def counted(sealed, rest, key=KEY):
    """The sum that two servers come to, and which reports are in it."""
    parts = checkable(sealed, rest, MOST, DIM, DIGEST, key)
    assert parts.shape[1] == VerifiedSizes(DIM, MOST).part
    accepted, share = decided(parts, MOST, DIM, DIGEST, key, opened)
    return accepted, total_counts(leader_sum(rest[accepted], MOST, DIM, DIGEST), share).tolist()


@pytest.fixture(scope="module")
def honest():
    rng = np.random.default_rng(3)
    counts = rng.integers(0, MOST + 1, (300, DIM))
    return counts, [shared_counts(one, MOST, DIGEST) for one in counts]


def test_the_sum_of_honest_reports(honest):
    counts, reports = honest
    sealed, rest = batch(reports)
    assert (sealed.shape[1], rest.shape[1]) == (VerifiedSizes(DIM, MOST).sealed, VerifiedSizes(DIM, MOST).open)
    accepted, total = counted(sealed, rest)
    assert accepted.all()
    assert total == counts.sum(axis=0).tolist()


def crafted(elements):
    """Shares and proofs of numbers that encode nothing, by a client that follows the protocol in all else."""
    vdaf = vdaf_for(DIM, MOST, DIGEST)
    public, (leader, helper) = vdaf._sharded(FIELD64.elements(elements), bytes(16), bytes(range(vdaf.rand_bytes)))
    return helper, np.frombuffer(bytes(16) + public + leader, np.uint8)


def test_every_cheat_is_left_out_and_no_honest_report_with_it(honest):
    counts, reports = honest
    reports, counts = [(helper, rest.copy()) for helper, rest in reports[:60]], counts[:60]
    elements = DIM * 4
    sizes = VerifiedSizes(DIM, MOST)
    cheats = {
        3: crafted([2] + [0] * (elements - 1)),  # a count out of range by its encoding
        5: crafted([-1] * elements),
        8: crafted([1000] * elements),
        11: (reports[11][0], reports[12][1]),  # the seal of one report with the shares of another
        19: shared_counts(counts[19], MOST, bytes(32)),  # made for another round
        20: (bytes(64), reports[20][1]),
    }
    for place, report in cheats.items():
        reports[place] = report
    for place, at in {23: 0, 24: 20, 25: 60, 26: 90, 27: 200, 28: sizes.open - 40, 29: sizes.open - 1}.items():
        reports[place][1][at] ^= 1  # nonce, both parts of the public share, measurement, proofs, blind
    reports[30][1][80:88] = 255  # no number of the field
    sealed, rest = batch(reports)
    sealed[31, 0] = 1  # does not open
    accepted, total = counted(sealed, rest)
    bad = [*cheats, *range(23, 32)]
    assert np.flatnonzero(~accepted).tolist() == sorted(bad)
    assert total == np.delete(counts, bad, axis=0).sum(axis=0).tolist()


def test_a_shuffler_that_alters_what_it_tells_gets_no_report_counted(honest):
    """Not even one whose verifier share is replaced by zeros, or that tells another public share than the client's."""
    sealed, rest = batch(honest[1][:3])
    parts = checkable(sealed, rest, MOST, DIM, DIGEST, KEY)
    for start, stop in ((128, 160), (160, 192), (200, 208), (192, parts.shape[1])):
        altered = parts.copy()
        altered[1, start:stop] = 0
        accepted, _ = decided(altered, MOST, DIM, DIGEST, KEY, opened)
        assert accepted.tolist() == [True, False, True]


def test_servers_of_different_keys_count_nothing(honest):
    sealed, rest = batch(honest[1][:3])
    parts = checkable(sealed, rest, MOST, DIM, DIGEST, KEY)
    assert not decided(parts, MOST, DIM, DIGEST, bytes([1]) * 32, opened)[0].any()


def test_tokens_beside_the_share_are_asked_for_of_good_reports_alone(honest):
    """A token is spent by a report that verifies, and by no other; who has none, or one that is not admitted, is left out."""
    counts, reports = honest
    reports = [(helper + bytes([place]) * 288, rest.copy()) for place, (helper, rest) in enumerate(reports[:6])]
    reports[2][1][100] ^= 1  # does not verify
    sealed, rest = batch(reports)
    parts, asked = checkable(sealed, rest, MOST, DIM, DIGEST, KEY), []

    def admits(token):
        asked.append(token)
        return token != bytes([4]) * 288

    accepted, share = decided(parts, MOST, DIM, DIGEST, KEY, opened, admits)
    assert np.flatnonzero(~accepted).tolist() == [2, 4]
    assert asked == [bytes([place]) * 288 for place in (0, 1, 3, 4, 5)]
    total = total_counts(leader_sum(rest[accepted], MOST, DIM, DIGEST), share)
    assert total.tolist() == counts[[0, 1, 3, 5]].sum(axis=0).tolist()


def test_each_share_by_itself_is_the_same_for_all_counts():
    """With the same random bytes the helper's share does not depend on counts at all, and the leader's is masked by it."""
    vdaf, rand = vdaf_for(DIM, MOST, DIGEST), bytes(range(128))
    zeros, most = (shared_counts(np.full(DIM, n), MOST, DIGEST, nonce=bytes(16), rand=rand) for n in (0, MOST))
    assert zeros[0] == most[0]
    size = 8 * vdaf.circuit.elements
    leaders = [FIELD64.from_bytes(rest[80 : 80 + size][None])[0][0] for _, rest in (zeros, most)]
    ones = FIELD64.subtract(leaders[1], leaders[0])
    assert (ones == 1).all()  # what differs is the measurement, nothing else
    fresh = shared_counts(np.zeros(DIM, np.int64), MOST, DIGEST)
    assert fresh[0] != shared_counts(np.zeros(DIM, np.int64), MOST, DIGEST)[0]


VECTORS = Path(__file__).parent / "vectors"


def maker():
    spec = importlib.util.spec_from_file_location("make_verified", VECTORS / "make_verified.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_vectors_are_those_that_the_specification_makes():
    assert json.loads((VECTORS / "verified.json").read_text()) == maker().made()


def test_reports_are_the_vectors_for_the_same_random_bytes():
    """Written from docs/protocol.md by other means: whole numbers, interpolation, another HPKE."""
    vectors = json.loads((VECTORS / "verified.json").read_text())
    digest, private = bytes.fromhex(vectors["round"]), vectors["recipient"]["private"]
    shuffler = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(vectors["shuffler"]["private"]))
    seal = X25519PrivateKey.from_private_bytes(bytes.fromhex(private))
    secret = keys.verify_key(keys.exchange_key(shuffler), seal.public_key(), digest)
    assert secret.hex() == vectors["verify key"]
    for vector in vectors["reports"]:
        counts, most = np.array(vector["counts"]), vector["messages a coordinate"]
        rand = bytes.fromhex(vector["seeds (helper, helper's blind, leader's blind, prove)"])
        helper, rest = shared_counts(counts, most, digest, nonce=bytes.fromhex(vector["nonce"]), rand=rand)
        assert vdaf_for(len(counts), most, digest).circuit.chunk == vector["chunk length"]
        report = bytes.fromhex(vector["report"])
        sizes = VerifiedSizes(len(counts), most)
        assert helper.hex() == vector["helper share"]
        assert report[48 + sizes.sealed :] == rest.tobytes()
        sealed = np.frombuffer(report[48 : 48 + sizes.sealed], np.uint8)
        part = checkable(sealed[None], rest[None], most, len(counts), digest, secret)
        assert part.tobytes().hex() == vector["part"]


def test_a_report_is_read_strictly():
    vectors = json.loads((VECTORS / "verified.json").read_text())
    for vector in vectors["reports"]:
        data = bytes.fromhex(vector["report"])
        report = SealedReport.from_bytes(data)
        assert report.to_bytes() == data
        assert (report.transport, report.dim, report.messages) == (
            "verified-sum",
            len(vector["counts"]),
            vector["messages a coordinate"],
        )
        for wrong in (data[:-1], data + b"\0", data[:200]):
            with pytest.raises(WireError, match="bytes where its header makes"):
                SealedReport.from_bytes(wrong)
        with pytest.raises(WireError, match="masked counts of 1 bits"):
            SealedReport.from_bytes(data[:6] + b"\1" + data[7:])


@pytest.mark.parametrize(("dim", "messages"), [(0, 5), (2, 0), (2**32 - 1, 1), (1, 2**32 - 1)])
def test_a_header_of_impossible_sizes_is_refused_at_once(dim, messages):
    data = bytes.fromhex(json.loads((VECTORS / "verified.json").read_text())["reports"][0]["report"])
    with pytest.raises(WireError, match="no proof is about"):
        SealedReport.from_bytes(data[:8] + struct.pack("<II", dim, messages) + data[16:])
    with pytest.raises(WireError, match="bytes where its header makes"):  # possible, and long: nothing is made of that length
        SealedReport.from_bytes(data[:8] + struct.pack("<II", 2**31, 2**31) + data[16:])
