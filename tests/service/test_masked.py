"""The public call for masked reports: the bytes are those of masked-sum, sums are exact, rounds without their blanks stay shut."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from croupier import ArgumentError, BatchTooSmallError, SeededRandom, plan_sum
from croupier.masked import BadEnvelopesError, MaskedTotal, WireError, mask_key, masked_report, open_masks, public_mask_key
from croupier.privacy import plan_lots
from croupier.privacy.plan import vector_bias
from croupier.protocol._randomizer import Randomizer
from croupier.service.wire import masked
from croupier.service.wire.reports import modulo, unpacked
from croupier.service.wire.transports import MaskedSum, SealedReport, mask, open_envelope, seed_info

CONTEXT = bytes(range(32))
KEY = mask_key()
PUBLIC = public_mask_key(KEY)
PLAN = plan_sum(epsilon=1.0, delta=1e-6, users=60, dim=150)
PLAIN = plan_sum(epsilon=1.0, delta=1e-6, users=60, dim=150, rotation=None)
LOTS = {"epsilon": 8.0, "delta": 1e-4, "users": 120, "rounds": 3, "dim": 300, "neighbours": "zero-out", "transport": "masked"}
BLOCKS = plan_lots(**LOTS, rotation=3.0, blocks=4).one_round


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Every report here is in three pieces or four."""
    monkeypatch.setattr(masked, "_PIECE", 64)


def report_of(vector: np.ndarray, plan=PLAN, **changes) -> bytes:
    return masked_report(vector, plan, **{"context": CONTEXT, "key": PUBLIC} | changes)


def filled(reports: list[bytes]) -> MaskedTotal:
    total = MaskedTotal(PLAN, CONTEXT)
    for report in reports:
        total.add(report)
    total.fill(PUBLIC)
    return total


@pytest.mark.parametrize("plan", [PLAN, PLAIN], ids=["rotated", "plain"])
def test_a_report_is_one_of_masked_sum(plan):
    """Opened by the transport's own parts: the counts are those that the same coins give."""
    vector = np.random.default_rng(0).standard_normal(150).astype(np.float32) / 20
    report = SealedReport.from_bytes(report_of(vector, plan, random=SeededRandom(4)))
    MaskedSum().check_shape(report, CONTEXT, plan)
    private = X25519PrivateKey.from_private_bytes(KEY)
    seed = open_envelope(report.sealed.tobytes(), private, seed_info("masked-sum", CONTEXT))
    size = plan.coordinates
    counts = modulo(unpacked(report.unsealed, size, report.width) - mask(seed, size, report.width), report.width)
    expected = np.concatenate([*Randomizer(plan, CONTEXT).counts_in_pieces(vector, SeededRandom(4), 64)])
    assert counts.tolist() == expected.tolist()


def test_the_sum_is_exact():
    """With all coins known the opened sum is the sum of the counts, whatever the masks and the order were."""
    vectors = np.random.default_rng(1).standard_normal((60, 150)) / 30
    total = MaskedTotal(PLAIN, CONTEXT)
    for user, vector in enumerate(vectors):
        total.add(report_of(vector, PLAIN, random=SeededRandom(user)))
    ones = sum(np.concatenate([*Randomizer(PLAIN).counts_in_pieces(v, SeededRandom(u), 64)]) for u, v in enumerate(vectors))
    estimate = total.open(open_masks(total.envelopes(), PLAIN, context=CONTEXT, key=KEY))
    step = 2 * PLAIN.norm / PLAIN.levels
    again = step * (ones - 60 * PLAIN.noise_probability * PLAIN.noise_bits) - 60 * PLAIN.norm
    np.testing.assert_allclose(estimate.sum, again, atol=1e-9)
    assert estimate.users == 60


def test_blanks_fill_a_round_up_and_add_noise_alone():
    """150 coordinates of noise: within eight standard deviations each, false-alarm rate below 1e-12."""
    vector = np.zeros(150)
    vector[0] = 1.0
    total = filled([report_of(vector) for _ in range(20)])
    estimate = total.open(open_masks(total.envelopes(), PLAN, context=CONTEXT, key=KEY))
    expected = 20 * vector
    assert np.abs(estimate.sum - expected).max() < 8 * PLAN.noise_std
    assert 0.5 < np.std(estimate.sum[1:]) / PLAN.noise_std < 1.5
    assert estimate.private


def test_a_round_without_its_blanks_stays_shut():
    total = MaskedTotal(PLAN, CONTEXT)
    for _ in range(59):
        total.add(report_of(np.zeros(150)))
    with pytest.raises(BatchTooSmallError, match="59 reports where the plan has 60"):
        total.envelopes()
    total.fill(PUBLIC)
    envelopes = total.envelopes()
    for wrong in (envelopes[:-1], [*envelopes, envelopes[0]], []):
        with pytest.raises(BatchTooSmallError, match="60, blanks included"):
            open_masks(wrong, PLAN, context=CONTEXT, key=KEY)


def test_envelopes_that_do_not_open_are_named_and_replaced():
    stranger = public_mask_key(mask_key())
    total = filled([report_of(np.zeros(150), key=stranger)] + [report_of(np.zeros(150)) for _ in range(9)])
    with pytest.raises(BadEnvelopesError) as caught:
        open_masks(total.envelopes(), PLAN, context=CONTEXT, key=KEY)
    (place,) = caught.value.places
    before = total.envelopes()
    total.replace(caught.value.places, PUBLIC)
    after = total.envelopes()
    assert [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b] == [place]
    estimate = total.open(open_masks(after, PLAN, context=CONTEXT, key=KEY))
    assert np.abs(estimate.sum).max() < 8 * PLAN.noise_std


def test_no_envelope_counts_twice():
    total = filled([])
    envelopes = total.envelopes()
    with pytest.raises(BadEnvelopesError) as caught:
        open_masks([*envelopes[:-1], envelopes[3]], PLAN, context=CONTEXT, key=KEY)
    assert caught.value.places == (59,)


def test_reports_of_another_round_plan_or_twice_are_refused():
    total, report = MaskedTotal(PLAN, CONTEXT), report_of(np.zeros(150))
    total.add(report)
    other = plan_sum(epsilon=2.0, delta=1e-6, users=60, dim=150)
    refused = [
        (report, "received before"),
        (report_of(np.zeros(150), context=bytes(32)), "another round"),
        (masked_report(np.zeros(150), other, context=CONTEXT, key=PUBLIC), "messages|bits"),
        (report[:-1], "bytes"),
    ]
    for wrong, words in refused:
        with pytest.raises(WireError, match=words):
            total.add(wrong)
    total.fill(PUBLIC)
    with pytest.raises(WireError, match="closed or has its 60"):
        total.add(report_of(np.zeros(150)))


def test_seeds_open_for_the_context_that_the_users_had():
    envelopes = filled([]).envelopes()
    with pytest.raises(BadEnvelopesError, match="60 envelopes"):
        open_masks(envelopes, PLAN, context=bytes(32), key=KEY)


def test_masks_of_another_round_give_no_sum():
    total, other = filled([]), filled([])
    total.envelopes()
    masks = open_masks(other.envelopes(), PLAN, context=CONTEXT, key=KEY)
    with pytest.raises(WireError, match="no users could have sent"):
        total.open(masks)


@pytest.mark.parametrize(
    ("name", "wrong"), [("key", b"short"), ("key", PUBLIC.hex()), ("context", bytes(31))], ids=["short key", "hex key", "context"]
)
def test_keys_and_contexts_are_32_bytes(name, wrong):
    with pytest.raises(ArgumentError, match=rf"{name}.* 32 bytes"):
        report_of(np.zeros(150), **{name: wrong})


def test_a_long_vector_takes_little_more_than_itself(monkeypatch):
    """Two million numbers in single precision are 8 MB, and in double 16: beside the vector there are the report and pieces."""
    monkeypatch.setattr(masked, "_PIECE", 1 << 14)
    dim = 2_000_000
    plan = plan_sum(epsilon=1.0, delta=1e-6, users=1000, dim=dim)
    vector = np.ones(dim, np.float32)
    tracemalloc.start()
    report = masked_report(vector, plan, context=CONTEXT, key=PUBLIC)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3.2 * len(report) + 4_000_000 < 8 * dim + 4_000_000
    assert len(report) <= 0.6 * vector.nbytes + 200


def opened_blocks(vector: np.ndarray, context: bytes) -> np.ndarray:
    """The estimated sum of as many users as a round has room for, all alike: a quarter of them sends each block."""
    parts = []
    for block in range(BLOCKS.blocks):
        total = MaskedTotal(BLOCKS, context, block)
        for user in range(BLOCKS.users):
            random = SeededRandom(1000 * block + user)
            total.add(masked_report(vector, BLOCKS, context=context, key=PUBLIC, block=block, random=random))
        masks = open_masks(total.envelopes(), BLOCKS, context=context, key=KEY, block=block)
        parts.append(total.open(masks).sum)
    return BLOCKS.blocks * np.sum(parts, axis=0)


@pytest.mark.parametrize("length", [0.5, 1.0])
def test_the_blocks_of_a_round_add_up_to_the_sum(length):
    """Nothing of the shorter vector is clipped: each coordinate within eight standard deviations, false-alarm rate below 1e-12. Of
    one as long as the norm, clipping takes at most the bias bound, here along the vector itself, where it takes most."""
    vector = np.random.default_rng(2).standard_normal(300)
    vector *= length / np.linalg.norm(vector)
    users = BLOCKS.blocks * BLOCKS.users
    error = opened_blocks(vector, CONTEXT) - users * vector
    bias = users * vector_bias(3.0, BLOCKS.padded)
    assert 0 < bias < 0.05 * users
    assert np.abs(error).max() < 8 * BLOCKS.noise_std + (bias if length == 1 else 0)
    assert abs(error @ vector) / length < 8 * BLOCKS.noise_std + (bias if length == 1 else 0)
    assert 0.8 < np.std(error) / BLOCKS.noise_std < 1.2


def test_a_report_is_of_its_own_block():
    total, report = MaskedTotal(BLOCKS, CONTEXT, 1), report_of(np.zeros(300), BLOCKS, block=0)
    whole = report_of(np.zeros(300), plan_lots(**LOTS, rotation=None).one_round)
    assert SealedReport.from_bytes(report).unsealed.size < 0.4 * SealedReport.from_bytes(whole).unsealed.size
    with pytest.raises(WireError, match="another round"):
        total.add(report)
    total.fill(PUBLIC)
    with pytest.raises(BadEnvelopesError, match=f"{BLOCKS.users} envelopes"):
        open_masks(total.envelopes(), BLOCKS, context=CONTEXT, key=KEY, block=0)
    for wrong in (-1, 4):
        with pytest.raises(ArgumentError, match="block"):
            report_of(np.zeros(300), BLOCKS, block=wrong)
    with pytest.raises(ArgumentError, match="block"):
        report_of(np.zeros(150), PLAN, block=1)
