"""The contract of a transport, run for each: counts travel exactly as the in-memory protocol's; another HPKE opens envelopes."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import itertools
import json
import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from helpers_exclusions import SECRET, batch_made, counted, in_order, masked_in, verdict_on
from hypothesis import given, settings
from hypothesis import strategies as st
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKey
from scipy import stats

from croupier import plan_sum
from croupier.protocol import Report as Bits
from croupier.protocol import SeededRandom
from croupier.service.wire import transports as transport_module
from croupier.service.wire.documents import Document, Exclusions, WireError
from croupier.service.wire.reports import TOKEN_BYTES, count_width, packed, packed_bytes, unpacked, unwrapped
from croupier.service.wire.task import Task, TaskRound
from croupier.service.wire.transports import (
    TRANSPORTS,
    MaskedSum,
    Messages,
    Release,
    SealedBatch,
    SealedReport,
    mask,
    release_bytes,
)

exactly = settings(deadline=None, derandomize=True, max_examples=25)
transports = pytest.mark.parametrize("transport", TRANSPORTS)
checked_ones = pytest.mark.parametrize("transport", [name for name, one in TRANSPORTS.items() if one.checked])
without_proofs = pytest.mark.parametrize("transport", ["messages", "masked-sum"])
OTHER = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.AES128_GCM)
ROUND, ANOTHER_ROUND = (hashlib.sha256(name).digest() for name in (b"a round", b"another round"))
SEED_LABEL = 2**32 - 1
# Asymptotic p-values are good to a factor of a few where 25 or more are expected per cell: 1e-7 for a false-alarm rate of 1e-6.
NOMINAL = 1e-7
ROTATED = plan_sum(epsilon=1.0, delta=1e-6, users=900, dim=500, transport="masked")


def info_of(transport: str, round_digest: bytes, label: int) -> bytes:
    """As docs/protocol.md says."""
    return b"croupier report v1 " + transport.encode("ascii") + b" " + round_digest + label.to_bytes(4, "little")


def sealed_elsewhere(content: bytes, key, info: bytes) -> np.ndarray:
    encapsulated, context = OTHER.create_sender_context(KEMKey.from_pyca_cryptography_key(key), info)
    return np.frombuffer(encapsulated + context.seal(content), np.uint8)


def opened_elsewhere(envelope: np.ndarray, key: X25519PrivateKey, info: bytes) -> bytes:
    data = envelope.tobytes()
    return OTHER.create_recipient_context(data[:32], KEMKey.from_pyca_cryptography_key(key), info).open(data[32:])


def mask_elsewhere(seed: bytes, dim: int, width: int) -> list[int]:
    """The stream as one long number, of which each mask is `width` bits."""
    key = hashlib.blake2b(bytes(8), key=seed, digest_size=32, person=b"keystream").digest()
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(-(-dim * width // 8)))
    return [int.from_bytes(stream, "little") >> width * label & 2**width - 1 for label in range(dim)]


def replaced(array: np.ndarray, place: tuple[int, ...], value: np.ndarray) -> np.ndarray:
    changed = array.copy()
    changed[place] = value
    return changed


@pytest.fixture(scope="module")
def reports(roles, plan, users_bits) -> dict[str, list[SealedReport]]:
    key = roles.seal.public_key()
    return {name: [one.seal(bits, plan, ROUND, key) for bits in users_bits] for name, one in TRANSPORTS.items()}


@pytest.fixture(scope="module")
def batches(reports, plan) -> dict[str, SealedBatch]:
    return {name: batch_made(some, plan) for name, some in reports.items()}


@pytest.fixture(scope="module")
def ones(users_bits) -> list[int]:
    return sum(report.bits.sum(axis=1) for report in users_bits).tolist()


# --- what the analyzer gets is what the in-memory protocol counts


@transports
def test_counts_are_those_of_the_protocol_in_any_order_of_reports(roles, plan, reports, ones, transport):
    for order in itertools.permutations(range(4)):
        assert counted([reports[transport][user] for user in order], plan, roles.seal) == ones


@transports
def test_counts_survive_the_wire(roles, plan, reports, ones, transport):
    arrived = [SealedReport.from_bytes(report.to_bytes()) for report in reports[transport]]
    counts, data = over_the_wire(TRANSPORTS[transport], arrived, plan, roles)
    assert counts.ones.tolist() == ones
    assert (counts.ones.dtype, counts.users, counts.private) == (np.int64, 4, True)
    one = TRANSPORTS[transport]
    assert [len(report.to_bytes()) for report in arrived] == [one.report_length(plan)] * 4
    assert len(data["batch"]) == one.batch_length(plan)
    assert "release" not in data or len(data["release"]) == release_bytes(plan.dim, one.width(plan) or 64)


def over_the_wire(one, reports, plan, roles):
    """Counts of reports, by two servers who see each other's bytes alone; and those bytes."""
    public, secret = roles.shuffler.public_key(), one.shuffler_secret(roles.shuffler, roles.seal.public_key(), ROUND)
    made, order = one.batch(reports, plan, SeededRandom(3), secret)
    data = {"batch": made.to_bytes(roles.shuffler)}
    batch = SealedBatch.from_bytes(data["batch"], plan.bits_per_coordinate, public)
    assert one.fits(batch, plan, 0)
    assert not one.fits(batch, plan, TOKEN_BYTES)
    verdict = one.check(batch, plan, roles.seal, secret=one.analyzer_secret(roles.seal, public, ROUND))
    assert (verdict.bad, verdict.cheats, verdict.places) == (0, 0, ())
    assert one.checked == (order is not None) == (verdict.counts is None) == (verdict.share is not None)
    if verdict.counts is not None:
        return verdict.counts, data
    data["release"] = one.release(reports, plan, bytes(32)).to_bytes(roles.shuffler)
    return one.counts(Release.from_bytes(data["release"], public), verdict.share, plan), data


def test_transports_have_names_and_numbers_of_their_own():
    """The numbers are those of docs/protocol.md."""
    assert {name: (one.name, one.number) for name, one in TRANSPORTS.items()} == {
        "messages": ("messages", 1),
        "masked-sum": ("masked-sum", 2),
        "verified-sum": ("verified-sum", 3),
    }


def test_a_fourth_transport_is_one_class(monkeypatch, roles, plan, users_bits, ones):
    class Fourth(MaskedSum):
        name, number = "fourth", 4

        def _may_be_width(self, width):
            return width == 57

        def width(self, plan):
            return 57

    monkeypatch.setitem(TRANSPORTS, "fourth", Fourth())
    made = [Fourth().seal(bits, plan, ROUND, roles.seal.public_key()).to_bytes() for bits in users_bits]
    read = [SealedReport.from_bytes(data) for data in made]
    assert {(report.transport, report.width) for report in read} == {("fourth", 57)}
    assert over_the_wire(TRANSPORTS["fourth"], read, plan, roles)[0].ones.tolist() == ones


def names_compared(text: str) -> list[int]:
    """Lines of a module that compare a transport's name, or have one among the keys of a table or the words of a collection."""
    found = []
    if not any(name in text for name in ("transport", *TRANSPORTS)):
        return []
    for node in ast.walk(ast.parse(text)):
        parts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        parts += [node.value] if isinstance(node, ast.MatchValue) else []
        parts += node.keys if isinstance(node, ast.Dict) else node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else []
        names = set(TRANSPORTS) - (set() if isinstance(node, ast.Compare) else {"messages"})  # a word of its own elsewhere
        named = {part.value for part in parts if isinstance(part, ast.Constant)} & names
        asked = isinstance(node, ast.Compare) and any(isinstance(p, ast.Attribute) and p.attr == "transport" for p in parts)
        if named or asked:
            found.append(node.lineno)
    return found


def test_nothing_but_its_class_compares_a_transports_name():
    package = Path(transport_module.__file__).parents[2]
    for line in (
        'x == "messages"',
        'a == "masked-sum"',
        'a in ("verified-sum", b)',
        '{"masked-sum": 1}',
        "a.transport != b",
    ):
        assert names_compared(line) == [1]
    files = [path for path in package.rglob("*.py") if path != Path(transport_module.__file__)]
    assert len(files) > 100
    assert {str(path): lines for path in files if (lines := names_compared(path.read_text()))} == {}


def test_a_pool_opens_to_the_same_counts(roles, plan, batches, ones):
    with ThreadPoolExecutor(2) as pool:
        content = verdict_on(batches["messages"], plan, roles.seal, pool)
    assert (content.counts.ones.tolist(), content.bad, content.cheats) == (ones, 0, 0)
    assert (content.counts.ones.dtype, content.counts.users, content.counts.private) == (np.int64, 4, True)


@pytest.mark.parametrize("fill", [False, True])
@transports
def test_all_zeros_and_all_ones_are_counted_exactly(roles, plan, transport, fill):
    bits = Bits(np.full((plan.dim, plan.bits_per_coordinate), fill), private=True)
    reports = [TRANSPORTS[transport].seal(bits, plan, ROUND, roles.seal.public_key()) for _ in range(2)]
    assert counted(reports, plan, roles.seal) == [2 * plan.bits_per_coordinate * fill] * plan.dim


# --- the envelopes, by another implementation


def test_another_implementation_opens_every_sealed_bit(roles, users_bits, reports):
    for bits, report in zip(users_bits, reports["messages"], strict=True):
        for label, row in enumerate(report.sealed):
            read = [opened_elsewhere(envelope, roles.seal, info_of("messages", ROUND, label)) for envelope in row]
            assert b"".join(read).count(b"\1") == bits.bits[label].sum()
            assert set(read) <= {b"\0", b"\1"}


def test_another_implementation_opens_the_seed_and_takes_the_mask_away(roles, users_bits, reports):
    for bits, report in zip(users_bits, reports["masked-sum"], strict=True):
        seed = opened_elsewhere(report.sealed, roles.seal, info_of("masked-sum", ROUND, SEED_LABEL))
        assert len(seed) == 32
        counts = [
            (number - hidden) % 64 for number, hidden in zip(masked_in(report).tolist(), mask_elsewhere(seed, 2, 6), strict=True)
        ]
        assert counts == bits.bits.sum(axis=1).tolist()


def test_bits_sealed_by_another_implementation_are_counted(roles, plan):
    key, messages = roles.seal.public_key(), plan.bits_per_coordinate
    bits = np.random.default_rng(3).integers(0, 2, size=(plan.dim, messages))
    rows = [
        [sealed_elsewhere(bytes([bit]), key, info_of("messages", ROUND, label)) for bit in row]
        for label, row in enumerate(bits.tolist())
    ]
    report = SealedReport("messages", ROUND, plan.dim, messages, np.array(rows))
    assert counted([report], plan, roles.seal) == bits.sum(axis=1).tolist()


def test_a_seed_sealed_by_another_implementation_is_used(roles, plan):
    seed, counts = bytes(range(100, 132)), [3, plan.bits_per_coordinate]
    masked = [(count + hidden) % 64 for count, hidden in zip(counts, mask_elsewhere(seed, plan.dim, 6), strict=True)]
    envelope = sealed_elsewhere(seed, roles.seal.public_key(), info_of("masked-sum", ROUND, SEED_LABEL))
    beside = np.frombuffer(packed(np.array(masked, dtype=np.uint64), 6), np.uint8)
    report = SealedReport("masked-sum", ROUND, plan.dim, plan.bits_per_coordinate, envelope, beside, 6)
    assert counted([report], plan, roles.seal) == counts


@exactly
@given(seed=st.binary(min_size=32, max_size=32), dim=st.integers(1, 300), width=st.integers(1, 57))
def test_masks_are_the_keystream_of_the_specification(seed, dim, width):
    made = mask(seed, dim, width)
    assert made.dtype == np.uint64
    assert made.tolist() == mask_elsewhere(seed, dim, width)


@pytest.mark.parametrize(
    ("users", "messages", "width"), [(4, 14, 6), (1, 1, 1), (4, 16, 7), (255, 257, 16), (256, 256, 17), (10**6, 340, 29), (3, 5, 4)]
)
def test_a_masked_count_has_the_fewest_bits_that_hold_all_users(users, messages, width):
    """At 3 users' 5 messages 15 = 2^4 - 1 fits; at 256 users' 256 messages 2^16 does not fit 16 bits."""
    assert count_width(SimpleNamespace(users=users, bits_per_coordinate=messages, range=None)) == width
    assert 2 ** (width - 1) <= users * messages < 2**width


def test_more_bits_than_a_number_has_are_refused():
    with pytest.raises(WireError, match="of 58 bits"):
        count_width(SimpleNamespace(users=2**57, bits_per_coordinate=1, range=None))


@pytest.mark.parametrize("plan", [ROTATED, plan_sum(epsilon=1.0, delta=1e-6, users=12, dim=300, rotation=3.0, max_inflation=4.0)])
def test_masked_counts_of_rotated_plans_come_back_from_a_modulus_that_holds_what_is_usual(plan):
    """Whole numbers in place of arrays: the representative nearest to the middle, or nothing where that is unusual."""
    assert plan.range is not None
    size, users = 2 ** count_width(plan), plan.users - 2
    most = users * (plan.levels + plan.noise_bits)
    usual = min(most, users * plan.levels + 8 * math.sqrt(users * plan.noise_bits))
    for count in np.linspace(0, most, 999).astype(int).tolist():
        found = unwrapped(np.array([count % size], np.uint64), count_width(plan), users, plan)
        if abs(2 * count - most) <= usual:
            assert found.tolist() == [count]
        elif found is not None:  # it has wrapped: another count, as likely as any that is usual
            assert found[0] % size == count % size
            assert abs(2 * int(found[0]) - most) <= usual + 1
    # noise of users all at one end stays inside
    ends = np.array([users * plan.noise_bits / 2, most - users * plan.noise_bits / 2])
    spread = 4 * math.sqrt(users * plan.noise_bits)
    assert np.all((ends - spread >= (most - usual) / 2 - 1) | (usual == most))
    assert np.all((ends + spread <= (most + usual) / 2 + 1) | (usual == most))


@exactly
@given(data=st.data(), width=st.integers(1, 57))
def test_packed_counts_are_one_long_number(data, width):
    numbers = data.draw(st.lists(st.integers(0, 2**width - 1), min_size=1, max_size=140))
    there = packed(np.array(numbers, dtype=np.uint64), width)
    long = sum(number << width * place for place, number in enumerate(numbers))
    assert there == long.to_bytes(packed_bytes(len(numbers), width), "little")
    assert unpacked(there, len(numbers), width).tolist() == numbers


def test_a_report_of_a_hundred_coordinates_is_as_short_as_the_page_says(roles):
    """n (g + b) of 19 and of 29 bits, as at 10^4 and 10^6 users: 366 and 491 bytes, where 64 bits took 928."""
    for users, messages, width, length in ((10**4, 50, 19, 366), (10**6, 340, 29, 491)):
        bits, plan = (
            Bits(np.zeros((100, messages), dtype=np.bool_), private=True),
            SimpleNamespace(range=None, users=users, bits_per_coordinate=messages),
        )
        report = MaskedSum().seal(bits, plan, ROUND, roles.seal.public_key())
        assert (report.width, len(report.to_bytes())) == (width, length)


def test_anything_in_the_bits_that_fill_up_the_last_byte_is_refused(roles, reports):
    data = bytearray(reports["masked-sum"][0].to_bytes())
    assert len(data) == 128 + 2  # 12 bits of 16
    data[-1] |= 0x10
    with pytest.raises(WireError, match="trailing bytes"):
        SealedReport.from_bytes(bytes(data))


def test_masked_counts_of_another_width_than_the_plans_are_refused(roles, plan, users_bits):
    wider = SimpleNamespace(range=None, users=8, bits_per_coordinate=plan.bits_per_coordinate)
    report = MaskedSum().seal(users_bits[0], wider, ROUND, roles.seal.public_key())
    with pytest.raises(WireError, match="masked counts of 7 bits where the plan has 6"):
        MaskedSum().check_shape(SealedReport.from_bytes(report.to_bytes()), ROUND, plan)


def test_no_two_envelopes_share_an_encapsulation(reports):
    """It would link them."""
    envelopes = [envelope for report in reports["messages"] for envelope in report.sealed.reshape(-1, 49)]
    envelopes += [report.sealed for name in ("masked-sum", "verified-sum") for report in reports[name]]
    assert len({envelope[:32].tobytes() for envelope in envelopes}) == len(envelopes)


# --- an envelope is bound to its round, its label, its transport and its key; what does not open is found


def all_bad(verdict, plan) -> bool:
    """Whether nothing of the four reports is good."""
    if verdict.counts is not None:
        return (verdict.bad, verdict.cheats) == (4 * plan.bits_per_user, 4) and not verdict.counts.ones.any()
    return (verdict.bad, verdict.cheats, verdict.places) == (4, 4, (0, 1, 2, 3)) and not verdict.share.any()


def bad_labels(batch: SealedBatch, plan, key) -> list[int]:
    """How many envelopes of sealed bits are bad in each coordinate."""
    malformed = [verdict_on(replace(batch, dim=label + 1), plan, key).bad for label in range(batch.dim)]
    return np.diff([0, *malformed]).tolist()


@transports
def test_envelopes_do_not_open_for_another_round(roles, plan, batches, transport):
    assert all_bad(verdict_on(replace(batches[transport], round=ANOTHER_ROUND), plan, roles.seal), plan)


@transports
def test_envelopes_do_not_open_with_another_key(plan, batches, transport):
    assert all_bad(verdict_on(batches[transport], plan, X25519PrivateKey.from_private_bytes(bytes(range(1, 33)))), plan)


def test_a_bit_does_not_open_under_another_label(roles, plan, batches):
    swapped = replace(batches["messages"], sealed=batches["messages"].sealed[::-1])
    assert all_bad(verdict_on(swapped, plan, roles.seal), plan)


@pytest.mark.parametrize("label", [SEED_LABEL, 0])
@checked_ones
def test_an_envelope_for_another_transport_or_label_does_not_open(roles, plan, reports, transport, label):
    """What it holds is right: sealed anew for the transport and the label that are wanted, it is counted."""
    content = opened_elsewhere(reports[transport][1].sealed, roles.seal, info_of(transport, ROUND, SEED_LABEL))
    for name in TRANSPORTS:
        wanted = (name, label) == (transport, SEED_LABEL)
        envelope = sealed_elsewhere(content, roles.seal.public_key(), info_of(name, ROUND, label))
        some = [reports[transport][0], replace(reports[transport][1], sealed=envelope)]
        assert verdict_on(in_order(some, plan), plan, roles.seal).places == (() if wanted else (1,))


def test_a_bit_for_another_transport_does_not_open(roles, plan, batches):
    batch = batches["messages"]
    envelope = sealed_elsewhere(b"\1", roles.seal.public_key(), info_of("masked-sum", ROUND, 0))
    assert bad_labels(replace(batch, sealed=replaced(batch.sealed, (0, 3), envelope)), plan, roles.seal) == [1, 0]


@transports
def test_an_envelope_with_a_flipped_bit_is_found_and_no_other(roles, plan, batches, transport):
    batch = batches[transport]
    flat = batch.sealed.reshape(-1, batch.sealed.shape[-1])
    for place, byte in [(0, 0), (len(flat) // 2, 32), (len(flat) - 1, flat.shape[1] - 1)]:  # the key, the content, the tag
        changed = flat.copy()
        changed[place, byte] ^= 4
        verdict = verdict_on(replace(batch, sealed=changed.reshape(batch.sealed.shape)), plan, roles.seal)
        assert (verdict.bad, verdict.cheats) == (1, 1)
        assert verdict.places == ((place,) if TRANSPORTS[transport].checked else ())


@transports
def test_an_envelope_of_zeros_is_found(roles, plan, batches, transport):
    """Its encapsulated key is a point that gives no shared secret."""
    batch = batches[transport]
    place = (0, 0) if transport == "messages" else (0,)
    assert verdict_on(replace(batch, sealed=replaced(batch.sealed, place, np.zeros(1, np.uint8))), plan, roles.seal).bad == 1


@pytest.mark.parametrize("content", [2, 49, 255])
@pytest.mark.parametrize("pooled", [False, True])
def test_something_else_than_a_bit_counts_as_a_zero_and_is_reported(roles, plan, batches, ones, content, pooled):
    batch = batches["messages"]
    envelope = sealed_elsewhere(bytes([content]), roles.seal.public_key(), info_of("messages", ROUND, 1))
    was = opened_elsewhere(batch.sealed[1, 5], roles.seal, info_of("messages", ROUND, 1))
    with ThreadPoolExecutor(2) as pool:
        changed = replace(batch, sealed=replaced(batch.sealed, (1, 5), envelope))
        found = verdict_on(changed, plan, roles.seal, pool if pooled else None)
    assert (found.bad, found.cheats) == (1, 1)
    assert found.counts.ones.tolist() == [ones[0], ones[1] - (was == b"\1")]


def test_a_sealed_bit_that_is_there_twice_counts_once(roles, plan, batches):
    """The copy is a zero: nobody's answer is counted twice for somebody to see."""
    batch = batches["messages"]
    bits = [opened_elsewhere(envelope, roles.seal, info_of("messages", ROUND, 0)) for envelope in batch.sealed[0]]
    one, zero = bits.index(b"\1"), bits.index(b"\0")
    copied = replace(batch, sealed=replaced(batch.sealed, (0, zero), batch.sealed[0, one]))
    content = verdict_on(copied, plan, roles.seal)
    assert (content.counts.ones[0], content.bad) == (bits.count(b"\1"), 1)


@checked_ones
def test_a_report_that_is_there_twice_counts_once(roles, plan, reports, transport):
    """Whichever comes second is left out."""
    first, second, third, fourth = reports[transport]
    assert verdict_on(in_order([fourth, second, first, second, third], plan), plan, roles.seal).places == (3,)


@checked_ones
def test_a_token_travels_beside_what_a_report_is_checked_by(roles, plan, users_bits, transport):
    """It is asked for once, of good reports alone, and who is not admitted is left out of the sum."""
    one, key = TRANSPORTS[transport], roles.seal.public_key()
    made = [one.seal(bits, plan, ROUND, key, bytes([user]) * TOKEN_BYTES).to_bytes() for user, bits in enumerate(users_bits)]
    assert {len(data) for data in made} == {one.report_length(plan) + TOKEN_BYTES}
    read = [SealedReport.from_bytes(data) for data in made]
    assert [report.to_bytes() for report in read] == made
    read[0] = replace(read[0], sealed=replaced(read[0].sealed, (40,), read[0].sealed[40] ^ 1))
    asked = []

    def admits(token):
        asked.append(token)
        return token[0] != 2

    data = in_order(read, plan).to_bytes(roles.shuffler)
    batch = SealedBatch.from_bytes(data, plan.bits_per_coordinate, roles.shuffler.public_key())
    assert one.fits(batch, plan, TOKEN_BYTES)
    assert not one.fits(batch, plan, 0)
    verdict = verdict_on(batch, plan, roles.seal, admits=admits)
    assert asked == [bytes([user]) * TOKEN_BYTES for user in (1, 2, 3)]
    assert verdict.places == (0, 2)
    counts = one.counts(one.release([read[1], read[3]], plan, bytes(32)), verdict.share, plan)
    assert counts.ones.tolist() == (users_bits[1].bits.sum(axis=1) + users_bits[3].bits.sum(axis=1)).tolist()


def test_messages_have_no_room_for_a_token_and_no_sum_of_some_reports(plan, reports):
    some = reports["messages"]
    with pytest.raises(WireError, match="bytes where its header makes"):
        SealedReport.from_bytes(some[0].to_bytes() + bytes(TOKEN_BYTES))
    with pytest.raises(WireError, match="a sum by messages"):
        Messages().release(some, plan, bytes(32))
    with pytest.raises(WireError, match="a sum by messages"):
        Messages().counts(Release("messages", ROUND, bytes(32), 4, np.zeros(2, np.uint64)), np.zeros(2, np.uint64), plan)


@checked_ones
def test_a_release_of_another_shape_is_refused(plan, reports, transport):
    one = TRANSPORTS[transport]
    release, share = one.release(reports[transport], plan, bytes(32)), np.zeros(plan.dim, np.uint64)
    for changed in ({"width": 7}, {"width": 23}, {"sums": release.sums[:1]}):
        with pytest.raises(WireError, match="another shape"):
            one.counts(replace(release, **changed), share, plan)


def test_another_seed_than_the_one_that_masked_is_found_where_the_range_says_so(roles, plan, reports, ones):
    """Its mask is not taken away: the counts are uniform below 2^6, and 57 of these 64 numbers are counts that 4 users can send."""
    first, *others = reports["masked-sum"]
    about = info_of("masked-sum", ROUND, SEED_LABEL)
    hidden = mask_elsewhere(opened_elsewhere(first.sealed, roles.seal, about), 2, 6)
    impossible = 0
    for number in range(60):
        seed = bytes([number]) * 32
        wrong = replace(first, sealed=sealed_elsewhere(seed, roles.seal.public_key(), about))
        counts = [(one + mine - other) % 64 for one, mine, other in zip(ones, hidden, mask_elsewhere(seed, 2, 6), strict=True)]
        impossible += max(counts) > 56
        assert counted([wrong, *others], plan, roles.seal) == (counts if max(counts) <= 56 else None)
    assert 0 < impossible < 60  # both have been seen but with probability (57/64)^120 < 1e-6


def test_counts_just_beyond_what_users_can_send_are_none(plan):
    """All-ones is allowed; one more, or less than nothing, is not."""
    share, most = np.array([7, 2**64 - 3], dtype=np.uint64), 4 * plan.bits_per_coordinate
    for counts, possible in (([0, most], True), ([most, 0], True), ([0, most + 1], False), ([2**64 - 1, 0], False)):
        sums = share + np.array(counts, dtype=np.uint64)
        found = MaskedSum().counts(Release("masked-sum", ROUND, bytes(32), 4, sums, 6), share, plan)
        assert (found is not None) == possible
        assert found is None or found.ones.tolist() == counts


# --- what the shuffler sees, and what it does


def test_masked_counts_look_uniform_to_the_shuffler(monkeypatch, roles, plan, users_bits):
    """Reports of one and the same counts, under a fixed generator's seeds: every coordinate takes all values equally often."""
    generator = np.random.default_rng(11)
    monkeypatch.setattr(transport_module.os, "urandom", generator.bytes)
    views = [masked_in(MaskedSum().seal(users_bits[0], plan, ROUND, roles.seal.public_key())) for _ in range(1600)]
    counts = np.array([np.bincount(column, minlength=64) for column in np.array(views).astype(int).T])
    expected = len(views) / 64
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert expected >= 25
    assert stats.chi2.sf(statistic, counts.size - len(counts)) > NOMINAL


@checked_ones
def test_what_the_shuffler_sees_is_drawn_anew_for_every_report(roles, plan, users_bits, transport):
    """Counts are as wide as they can be, so that no two are the same by chance but with probability 2^-112."""
    wide = SimpleNamespace(range=None, users=2**53, bits_per_coordinate=plan.bits_per_coordinate)
    made = [TRANSPORTS[transport].seal(users_bits[0], wide, ROUND, roles.seal.public_key()) for _ in range(3)]
    assert len({report.unsealed.tobytes() for report in made}) == 3


def test_masks_of_seeds_are_uniform_and_unrelated():
    """The lowest and the highest bits of the masks of seeds 0, 1, 2, ...: jointly uniform over neighbouring seeds."""
    masks = np.array([mask(seed.to_bytes(32, "little"), 2, 23) for seed in range(4001)])
    cells = (masks[:, 0] >> np.uint64(20)).astype(int) * 8 + (masks[:, 1] & np.uint64(7)).astype(int)
    pairs = np.bincount((cells[:-1] // 8) * 8 + cells[1:] % 8, minlength=64)
    assert stats.chisquare(np.bincount(cells, minlength=64)).pvalue > NOMINAL
    assert stats.chisquare(pairs).pvalue > NOMINAL


@without_proofs
def test_the_order_of_envelopes_is_uniform(transport):
    """All 24 orders of four users' envelopes equally often: chi-square, false alarms at most 1e-6, on a fixed seed."""
    marks = [np.full(49 if transport == "messages" else 80, user, np.uint8) for user in range(4)]
    if transport == "messages":
        reports = [SealedReport(transport, ROUND, 1, 1, mark.reshape(1, 1, -1)) for mark in marks]
    else:
        reports = [SealedReport(transport, ROUND, 1, 1, mark, np.zeros(1, np.uint8), 3) for mark in marks]
    random = SeededRandom(5)
    one = SimpleNamespace(dim=1, coordinates=1)
    orders = Counter(batch_made(reports, one, random).sealed.reshape(4, -1)[:, 0].tobytes() for _ in range(2400))
    assert set(orders) == {bytes(order) for order in itertools.permutations(range(4))}
    assert stats.chisquare(list(orders.values())).pvalue > NOMINAL


def test_labels_are_permuted_independently():
    """One user's place under the second label says nothing about its place under the first."""
    marks = [np.full((2, 1, 49), user, np.uint8) for user in range(4)]
    random = SeededRandom(6)
    table = np.zeros((4, 4))
    for _ in range(1600):
        sealed = batch_made([SealedReport("messages", ROUND, 2, 1, mark) for mark in marks], None, random).sealed[:, :, 0]
        table[np.flatnonzero(sealed[0] == 0)[0], np.flatnonzero(sealed[1] == 0)[0]] += 1
    assert stats.chisquare(table.ravel()).pvalue > NOMINAL


@transports
def test_shuffling_loses_and_adds_nothing(reports, plan, transport):
    batch, order = TRANSPORTS[transport].batch(reports[transport], plan, SeededRandom(2), SECRET)
    assert (batch.transport, batch.round, batch.users) == (transport, ROUND, 4)
    if order is None:
        for label, row in enumerate(batch.sealed):
            sent = [envelope.tobytes() for report in reports[transport] for envelope in report.sealed[label]]
            assert sorted(envelope.tobytes() for envelope in row) == sorted(sent)
    else:
        assert sorted(order.tolist()) == [0, 1, 2, 3]
        parts = in_order([reports[transport][which] for which in order.tolist()], plan).sealed
        assert np.array_equal(batch.sealed, parts)
        for part, which in zip(parts, order.tolist(), strict=True):
            assert part.tobytes().startswith(reports[transport][which].sealed.tobytes())


def test_a_release_by_masked_sum_is_the_sum_of_masked_counts(reports, plan):
    total = sum(masked_in(report) for report in reports["masked-sum"]) % np.uint64(64)
    release = MaskedSum().release(reports["masked-sum"], plan, bytes(range(32)))
    assert (release.sums.tolist(), release.users, release.width, release.round) == (total.tolist(), 4, 6, ROUND)
    assert (release.transport, release.exclusions) == ("masked-sum", bytes(range(32)))


# --- the shape that a plan wants


@transports
def test_a_report_of_the_plan_is_accepted(plan, reports, transport):
    for report in reports[transport]:
        TRANSPORTS[transport].check_shape(report, ROUND, plan)


@transports
def test_a_report_of_another_shape_is_refused_with_the_reason(plan, reports, transport):
    report, one = reports[transport][0], TRANSPORTS[transport]
    for other in TRANSPORTS.keys() - {transport}:
        with pytest.raises(WireError, match=f"a report by {transport} in a task by {other}"):
            TRANSPORTS[other].check_shape(report, ROUND, plan)
    with pytest.raises(WireError, match="another round"):
        one.check_shape(report, ANOTHER_ROUND, plan)
    with pytest.raises(WireError, match="2 coordinates of 15 messages where the plan has 2 coordinates of 14 messages"):
        one.check_shape(replace(report, messages=15), ROUND, plan)
    with pytest.raises(WireError, match="1 coordinates of 14 messages where the plan has 2"):
        one.check_shape(replace(report, dim=1), ROUND, plan)


@transports
def test_a_batch_of_another_transport_or_shape_does_not_fit(plan, batches, transport):
    assert [name for name, one in TRANSPORTS.items() if one.fits(batches[transport], plan, 0)] == [transport]
    assert not TRANSPORTS[transport].fits(replace(batches[transport], dim=3), plan, 0)
    assert not TRANSPORTS[transport].fits(replace(batches[transport], users=5), plan, 0)


# --- vectors, for clients in other languages


VECTORS = Path(__file__).parent / "vectors"


def vectors_of(name: str):
    return json.loads((VECTORS / name).read_text())


def public_key_of(pair: dict[str, str]) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(bytes.fromhex(pair["public"]))


def test_the_vectors_are_made_again_from_the_same_words():
    found = importlib.util.spec_from_file_location("make_vectors", VECTORS / "make.py")
    make = importlib.util.module_from_spec(found)
    found.loader.exec_module(make)
    messages = vectors_of("batches.json")["messages a coordinate"]
    made = make.made(vectors_of("documents.json")["task"]["text"].encode(), messages)
    elsewhere = {f"{maker.stem.removeprefix('make_')}.json" for maker in VECTORS.glob("make_*.py")}
    assert set(made) == {path.name for path in VECTORS.glob("*.json")} - elsewhere
    for name, values in made.items():
        assert values == vectors_of(name), name


def test_the_documents_among_the_vectors_are_read_and_signed_again(roles):
    vectors = vectors_of("documents.json")
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(vectors["analyzer"]["private"]))
    documents = {name: Document.from_bytes(bytes.fromhex(vectors[name]["bytes"])) for name in ("task", "round")}
    task = Task.read(documents["task"], public_key_of(vectors["analyzer"]))
    made = TaskRound.read(documents["round"], task, key.public_key())
    fresh = roles.task()
    assert (task.transport, task.users, task.query.problem) == ("masked-sum", 8, fresh.query.problem)
    words = json.loads(documents["task"].text)
    rest = json.dumps({name: words[name] for name in sorted(words) if name != "id"}, sort_keys=True, separators=(",", ":"))
    assert task.id == words["id"] == hashlib.sha256(rest.encode()).hexdigest()
    figures = ("users", "levels", "noise_bits", "noise_probability", "mu", "slack")
    ours, theirs = (which.schedule.phases[0].plan for which in (fresh, task))
    assert [getattr(theirs, name) for name in figures] == pytest.approx([getattr(ours, name) for name in figures], rel=1e-6)
    assert (made.task, made.id, made.number, made.phase, made.theta.tolist()) == (task.id, "b1", 1, 1, [0.5, -1.25])
    for name, document in documents.items():
        assert document.text.decode() == vectors[name]["text"]
        assert document.digest.hex() == vectors[name]["digest"]
        kind = {"task": 1, "round": 2}[name]
        assert Document.signed(kind, json.loads(vectors[name]["text"]), key).to_bytes().hex() == vectors[name]["bytes"]


def test_the_masks_among_the_vectors_are_ours():
    for vector in vectors_of("masks.json"):
        numbers = [int(number) for number in vector["mask"]]
        assert mask(bytes.fromhex(vector["seed"]), len(numbers), vector["bits a count"]).tolist() == numbers


@without_proofs
def test_the_reports_among_the_vectors_open_to_their_bits(plan, transport):
    vectors = vectors_of("reports.json")
    key, vector = X25519PrivateKey.from_private_bytes(bytes.fromhex(vectors["recipient"]["private"])), vectors[transport]
    report = SealedReport.from_bytes(bytes.fromhex(vector["bytes"]))
    TRANSPORTS[transport].check_shape(report, bytes.fromhex(vectors["round"]), plan)
    counts = counted([report], plan, key)
    if transport == "messages":
        assert counts == [row.count("1") for row in vector["bits"]]
        for row, about, expected in zip(report.sealed, vector["info"], vector["bits"], strict=True):
            assert "".join(str(opened_elsewhere(envelope, key, bytes.fromhex(about))[0]) for envelope in row) == expected
    else:
        assert counts == vector["counts"]
        assert opened_elsewhere(report.sealed, key, bytes.fromhex(vector["info"])).hex() == vector["seed"]
    assert report.to_bytes().hex() == vector["bytes"]


@without_proofs
def test_the_batches_among_the_vectors_open_to_their_counts(plan, transport):
    vectors = vectors_of("batches.json")
    data = bytes.fromhex(vectors[transport])
    batch = SealedBatch.from_bytes(data, plan.bits_per_coordinate, public_key_of(vectors["shuffler"]))
    assert (batch.transport, batch.users, batch.round.hex()) == (transport, vectors["users"], vectors["round"])
    key = X25519PrivateKey.from_private_bytes(bytes.fromhex(vectors["recipient"]["private"]))
    verdict = verdict_on(batch, plan, key)
    assert verdict.bad == 0
    assert transport == "masked-sum" or verdict.counts.ones.tolist() == vectors["counts"]
    signer = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(vectors["shuffler"]["private"]))
    assert batch.to_bytes(signer) == data


def test_the_exclusions_and_the_release_among_the_vectors_give_the_counts_of_the_others(plan):
    vectors = vectors_of("batches.json")
    vector, batch = vectors["masked-sum, one left out"], bytes.fromhex(vectors["masked-sum"])
    signer = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(vectors_of("documents.json")["analyzer"]["private"]))
    document = Document.from_bytes(bytes.fromhex(vector["exclusions"]["bytes"]))
    exclusions = Exclusions.read(document, signer.public_key())
    assert exclusions.document(signer) == document
    assert (exclusions.batch, exclusions.places) == (hashlib.sha256(batch).hexdigest(), (1,))
    release = Release.from_bytes(bytes.fromhex(vector["release"]), public_key_of(vectors["shuffler"]))
    assert (release.round.hex(), release.exclusions, release.users) == (vectors["round"], document.digest, 3)
    read = SealedBatch.from_bytes(batch, plan.bits_per_coordinate, public_key_of(vectors["shuffler"]))
    key = X25519PrivateKey.from_private_bytes(bytes.fromhex(vectors["recipient"]["private"]))
    rest = replace(read, users=3, sealed=np.delete(read.sealed, 1, axis=0))
    counts = MaskedSum().counts(release, MaskedSum().check(rest, plan, key).share, plan)
    assert counts.ones.tolist() == vector["counts"]
    shuffler = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(vectors["shuffler"]["private"]))
    assert release.to_bytes(shuffler).hex() == vector["release"]


def test_the_vectors_belong_together():
    """One round: the digest of its document is what reports and batches are bound to."""
    digest = vectors_of("documents.json")["round"]["digest"]
    assert vectors_of("reports.json")["round"] == vectors_of("batches.json")["round"] == digest


@transports
def test_a_key_of_low_order_is_refused(plan, users_bits, transport):
    with pytest.raises(WireError, match="key"):
        TRANSPORTS[transport].seal(users_bits[0], plan, ROUND, X25519PublicKey.from_public_bytes(bytes(32)))
