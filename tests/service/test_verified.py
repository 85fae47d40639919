"""Prio3SumVec: the draft's own vectors, a slow second implementation, and every way that we know to cheat."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from helpers_prio3 import FIELD128, P64, SUM_VEC, SlowSumVec, agreed, unshard
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.service.prio3 import prio3 as compiled_path
from croupier.service.prio3.prio3 import (
    FIELD64,
    SUM_VEC_WITH_MULTIPROOF,
    Prio3SumVec,
    SumVecCircuit,
    chunk_length,
    derive_seeds,
    expand,
)

VECTORS = Path(__file__).parent / "vectors" / "vdaf"
NAMES = ["Prio3SumVec_0", "Prio3SumVec_1", "Prio3SumVecWithMultiproof_0", "Prio3SumVecWithMultiproof_1"]
FAST = [False, pytest.param(True, marks=pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed"))]
KEY, NONCE = bytes(range(32)), bytes(range(16))


def row(data):
    return np.frombuffer(bytes(data), np.uint8)[None]


def official(name, fast):
    vector = json.loads((VECTORS / f"{name}.json").read_text())
    several = "Multiproof" in name
    vdaf = Prio3SumVec(
        vector["length"],
        vector["max_measurement"],
        proofs=3 if several else 1,
        shares=vector["shares"],
        chunk=vector["chunk_length"],
        context=bytes.fromhex(vector["ctx"]),
        field=FIELD64 if several else FIELD128,
        algorithm=SUM_VEC_WITH_MULTIPROOF if several else SUM_VEC,
        fast=fast,
    )
    return vector, vdaf


@pytest.mark.parametrize("fast", FAST)
@pytest.mark.parametrize("name", NAMES)
def test_official_vectors(name, fast):
    vector, vdaf = official(name, fast)
    out = [[] for _ in range(vdaf.shares)]
    for report in vector["reports"]:
        nonce, rand = bytes.fromhex(report["nonce"]), bytes.fromhex(report["rand"])
        public, shares = vdaf.shard(np.array(report["measurement"]), nonce, rand)
        assert public.hex() == report["public_share"]
        assert [share.hex() for share in shares] == report["input_shares"]
        key = bytes.fromhex(vector["verify_key"])
        prepared = [vdaf.prepare(key, k, row(nonce), row(public), row(share)) for k, share in enumerate(shares)]
        assert [one.verifier_shares.tobytes().hex() for one in prepared] == report["verifier_shares"][0]
        messages, accepted = vdaf.decide([one.verifier_shares for one in prepared])
        assert messages.tobytes().hex() == report["verifier_messages"][0]
        assert accepted.all()
        for k, one in enumerate(prepared):
            assert agreed(one, messages).all()
            assert vdaf.field.to_bytes(one.out_shares).tobytes().hex() == report["out_shares"][k]
            out[k].append(one.out_shares)
    aggregates = [vdaf.aggregate(np.concatenate(shares)) for shares in out]
    assert [share.hex() for share in aggregates] == vector["agg_shares"]
    assert unshard(vdaf, aggregates) == vector["agg_result"]


@pytest.mark.parametrize("fast", FAST)
def test_official_vector_of_the_hash(fast):
    vector = json.loads((VECTORS / "XofTurboShake128.json").read_text())
    seed, tag, binder = (bytes.fromhex(vector[name]) for name in ("seed", "dst", "binder"))
    assert derive_seeds(row(seed), tag, row(binder), fast=fast).tobytes().hex() == vector["derived_seed"]
    elements = expand(FIELD128, row(seed), tag, row(binder), vector["length"], fast=fast)
    assert FIELD128.to_bytes(elements).tobytes().hex() == vector["expanded_vec_field128"]


@pytest.mark.parametrize("field", [FIELD64, FIELD128])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_the_fields_are_whole_numbers_modulo_a_prime(field, data):
    p = field.modulus
    edges = st.sampled_from([0, 1, 2, p - 1, p - 2, 2**32 - 1, 2**32, 2**63, p - 2**32])
    numbers = st.lists(st.one_of(edges, st.integers(0, p - 1)), min_size=1, max_size=20)
    a = data.draw(numbers)
    b = data.draw(st.lists(st.one_of(edges, st.integers(0, p - 1)), min_size=len(a), max_size=len(a)))
    x, y = field.elements(a), field.elements(b)
    assert field.add(x, y).tolist() == [(m + n) % p for m, n in zip(a, b, strict=True)]
    assert field.subtract(x, y).tolist() == [(m - n) % p for m, n in zip(a, b, strict=True)]
    assert field.multiply(x, y).tolist() == [m * n % p for m, n in zip(a, b, strict=True)]
    assert int(field.sum(x, axis=0)) == sum(a) % p
    read, refused = field.from_bytes(field.to_bytes(x[None]))
    assert read[0].tolist() == [m % p for m in a]
    assert not refused.any()
    too_large = np.frombuffer(p.to_bytes(field.bytes_per_element, "little"), np.uint8)[None]
    assert field.from_bytes(too_large)[1].all()


@pytest.mark.parametrize("fast", FAST)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_every_byte_is_that_of_the_slow_implementation(fast, data):
    length, most = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 70))
    chunk, proofs, shares = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 3)), data.draw(st.integers(2, 3))
    context, nonce = data.draw(st.binary(max_size=200)), data.draw(st.binary(min_size=16, max_size=16))
    counts = data.draw(st.lists(st.integers(0, most), min_size=length, max_size=length))
    vdaf = Prio3SumVec(length, most, proofs=proofs, shares=shares, chunk=chunk, context=context, fast=fast)
    slow = SlowSumVec(length, most, chunk, proofs, shares, context, P64, SUM_VEC_WITH_MULTIPROOF)
    rand = data.draw(st.binary(min_size=vdaf.rand_bytes, max_size=vdaf.rand_bytes))
    public, inputs = vdaf.shard(np.array(counts), nonce, rand)
    assert (public, inputs) == slow.shard(counts, nonce, rand)
    prepared = [vdaf.prepare(KEY, k, row(nonce), row(public), row(share)) for k, share in enumerate(inputs)]
    told = [slow.verifier_share(KEY, k, nonce, public, share) for k, share in enumerate(inputs)]
    assert [one.verifier_shares.tobytes() for one in prepared] == told
    messages, accepted = vdaf.decide([one.verifier_shares for one in prepared])
    assert accepted.all()
    assert all(agreed(one, messages).all() for one in prepared)
    assert unshard(vdaf, [vdaf.aggregate(one.out_shares) for one in prepared]) == counts


@pytest.mark.parametrize("fast", FAST)
def test_a_batch_is_its_reports_one_by_one(fast):
    """More than fit into one piece, with malformed ones between, which spoil no other."""
    vdaf, rng = Prio3SumVec(3, 5, fast=fast), np.random.default_rng(1)
    counts = rng.integers(0, 6, (70, 3))
    reports = []
    for one in counts:
        nonce = rng.bytes(16)
        reports.append((nonce, *vdaf.shard(one, nonce, rng.bytes(vdaf.rand_bytes))))
    nonces, publics = (np.concatenate([row(report[k]) for report in reports]) for k in (0, 1))
    shares = [np.concatenate([row(report[2][k]) for report in reports]) for k in (0, 1)]
    shares[0][[0, 40], :8] = 255  # no number of the field
    prepared = [vdaf.prepare(KEY, k, nonces, publics, shares[k]) for k in (0, 1)]
    messages, accepted = vdaf.decide([one.verifier_shares for one in prepared])
    counted = accepted & agreed(prepared[0], messages) & agreed(prepared[1], messages)
    assert np.flatnonzero(~counted).tolist() == [0, 40]
    assert unshard(vdaf, [vdaf.aggregate(one.out_shares[counted]) for one in prepared]) == counts[counted].sum(axis=0).tolist()
    alone = vdaf.prepare(KEY, 1, nonces[5:6], publics[5:6], shares[1][5:6])
    assert alone.verifier_shares.tobytes() == prepared[1].verifier_shares[5].tobytes()


def verdict(vdaf, nonce, public, shares, key=KEY):
    """Whether two servers count a report."""
    prepared = [vdaf.prepare(key, k, row(nonce), row(public), row(share)) for k, share in enumerate(shares)]
    messages, accepted = vdaf.decide([one.verifier_shares for one in prepared])
    return bool(accepted[0] and all(agreed(one, messages)[0] for one in prepared))


def flipped(data, at):
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


@pytest.mark.parametrize("fast", FAST)
def test_whatever_is_altered_is_refused(fast):
    """The alterations of the draft's invalid vectors, and each region of each share: 1e-15 at most that one of them passes."""
    vdaf = Prio3SumVec(4, 50, context=b"round", fast=fast)
    public, (leader, helper) = vdaf.shard(np.array([0, 50, 31, 32]), NONCE, bytes(range(vdaf.rand_bytes)))
    assert verdict(vdaf, NONCE, public, [leader, helper])
    measurement, seeds = 8 * vdaf.circuit.elements, 16 * vdaf.circuit.chunk
    places = [0, measurement - 8, measurement, measurement + seeds, len(leader) - 40, len(leader) - 1]
    for at in places:  # measurement, wire seeds, gadget polynomial, last proof, blind
        assert not verdict(vdaf, NONCE, public, [flipped(leader, at), helper])
    for at in (0, 31, 32, 63):  # seed, blind
        assert not verdict(vdaf, NONCE, public, [leader, flipped(helper, at)])
    for at in (0, 31, 32, 63):  # the servers' parts of the joint randomness
        assert not verdict(vdaf, NONCE, flipped(public, at), [leader, helper])
    assert not verdict(vdaf, flipped(NONCE, 3), public, [leader, helper])
    other = Prio3SumVec(4, 50, context=b"another round", fast=fast)
    assert not verdict(other, NONCE, public, [leader, helper])


@pytest.mark.parametrize("fast", FAST)
@pytest.mark.parametrize("crafted", [[2], [P64 - 1], [0, 0, 5], [P64 - 2, 1], [1] * 23 + [3]])
def test_an_encoding_that_is_not_of_zeros_and_ones_is_refused(fast, crafted):
    """A client that follows the protocol in everything but the range: shares and proofs fit to what it claims."""
    vdaf = Prio3SumVec(4, 50, fast=fast)
    elements = vdaf.circuit.encoded(np.array([1, 2, 3, 4]))
    elements[: len(crafted)] = FIELD64.elements(crafted)
    public, shares = vdaf._sharded(elements, NONCE, bytes(range(vdaf.rand_bytes)))
    assert not verdict(vdaf, NONCE, public, shares)


def test_servers_with_different_keys_refuse():
    vdaf = Prio3SumVec(4, 50)
    public, shares = vdaf.shard(np.array([1, 2, 3, 4]), NONCE, bytes(vdaf.rand_bytes))
    prepared = [vdaf.prepare(bytes([k]) * 32, k, row(NONCE), row(public), row(share)) for k, share in enumerate(shares)]
    assert not vdaf.decide([one.verifier_shares for one in prepared])[1].any()


@pytest.mark.parametrize("fast", FAST)
def test_a_point_at_which_wires_are_known_is_refused(fast):
    """There a verifier share would show a wire's value. At the other roots the polynomials are compared as everywhere."""
    circuit = SumVecCircuit(FIELD64, 4, 50)
    rng = np.random.default_rng(2)
    meas, joint = circuit.encoded(np.array([1, 2, 3, 4])), FIELD64.elements(rng.integers(0, 2**62, (3, circuit.calls)))
    proofs = circuit.proofs(meas, FIELD64.elements(rng.integers(0, 2**62, (3, 2 * circuit.chunk))), joint, fast=fast)
    roots = FIELD64.roots(2 * circuit.nodes)
    for root, leaks in ((roots[2], True), (roots[0], True), (roots[1], False), (roots[-1], False)):
        points = FIELD64.elements([[5, int(root), 7]])
        verifiers, refused = circuit.queried(meas[None], proofs[None], points, joint[None], 1, fast=fast)
        assert refused.tolist() == [leaks]
        assert circuit.accepted(verifiers).tolist() == [True]


@pytest.mark.parametrize("counts", [[-1, 0], [51, 0], [1], [1, 2, 3]])
def test_a_client_cannot_share_what_is_out_of_range(counts):
    vdaf = Prio3SumVec(2, 50)
    with pytest.raises(ValueError, match="2 counts from 0 to 50"):
        vdaf.shard(np.array(counts), NONCE, bytes(vdaf.rand_bytes))
    with pytest.raises(ValueError, match="nonce"):
        vdaf.shard(np.array([1, 2]), b"short", bytes(vdaf.rand_bytes))


@given(st.integers(1, 3000))
@settings(max_examples=100, deadline=None)
def test_no_chunk_has_a_shorter_proof(elements):
    def proof(chunk):
        calls = -(-elements // chunk)
        return 2 * chunk + 2 * (1 << calls.bit_length()) - 1

    assert proof(chunk_length(elements)) == min(proof(chunk) for chunk in range(1, elements + 1))


def test_sizes_and_soundness_at_100_coordinates_of_50():
    """The figures of docs/protocol.md. A report: header, round, nonce, public share, leader share, sealed helper share."""
    vdaf = Prio3SumVec(100, 50)
    assert (vdaf.circuit.bits, vdaf.circuit.chunk, vdaf.circuit.calls, vdaf.circuit.nodes) == (6, 20, 30, 32)
    assert 48 + 16 + vdaf.public_bytes + vdaf.leader_bytes + 48 + vdaf.helper_bytes == 7544
    p = 2**64 - 2**32 + 1
    assert vdaf.soundness_error() == pytest.approx((20 / p + 62 / (p - 32)) ** 3, rel=1e-12)
    assert vdaf.soundness_error() < 2**-172
    assert vdaf.soundness_error(2.0**80) < 2**-95


def test_one_proof_is_refuted_as_often_as_its_bound_says():
    """A wrong polynomial of degree 2 (nodes - 1) agrees with the right one at no more points than that."""
    circuit = SumVecCircuit(FIELD64, 1, 3, chunk=1)  # 2 calls, 4 nodes, degree 6
    joint, seeds = FIELD64.elements([[3, 5]]), FIELD64.elements([[11, 13]])
    meas = FIELD64.elements([2, 1])  # 2 is neither 0 nor 1
    proof = circuit.proofs(meas, seeds, joint)
    # changed at one node so that the circuit's outcome is 0
    outcome = int(FIELD64.sum(proof[0, [2 + 2, 2 + 4]], axis=0))
    proof[0, 2 + 2] = FIELD64.subtract(proof[0, 2 + 2], FIELD64.elements(outcome))
    points = FIELD64.elements(np.arange(2, 2002)[:, None])
    many = [np.broadcast_to(part, (2000, *part.shape)).copy() for part in (meas, proof, joint)]
    verifiers, _ = circuit.queried(many[0], many[1], points, many[2], 1)
    assert (verifiers[..., 0] == 0).all()
    assert circuit.accepted(verifiers).sum() <= 6


def test_the_compiled_path_is_taken_once_it_pays_and_changes_nothing(monkeypatch):
    report = Prio3SumVec(4, 50).shard(np.array([1, 2, 3, 4]), NONCE, bytes(128))
    monkeypatch.setattr(compiled_path._Done, "elements", 0)
    loaded = []
    monkeypatch.setattr(compiled_path, "_compiled", lambda: loaded.append(1))
    for patience, wanted in ((10**9, False), (100, True)):
        monkeypatch.setattr(compiled_path, "PATIENCE", patience)
        assert Prio3SumVec(4, 50).shard(np.array([1, 2, 3, 4]), NONCE, bytes(128)) == report
        assert bool(loaded) == wanted
    assert verdict(Prio3SumVec(4, 50), NONCE, report[0], report[1])  # numba is not to be had


def test_prepared_reports_keep_their_rows_together():
    vdaf = Prio3SumVec(1, 1)
    public, shares = vdaf.shard(np.array([1]), NONCE, bytes(vdaf.rand_bytes))
    prepared = vdaf.prepare(KEY, 0, row(NONCE), row(public), row(shares[0]))
    other = replace(prepared, joint_seeds=prepared.joint_seeds ^ 1)
    assert not agreed(other, prepared.joint_seeds).any()
