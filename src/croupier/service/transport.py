"""How a user's counts reach the analyzer so that it sees their sum alone: two ways with the same view.

*messages*, the paper's: each labelled bit in an envelope of its own; the shuffler permutes the envelopes under each label.
*masked-sum*, for scale: the counts plus a mask modulo 2^k to the shuffler, who adds them up, and the mask's seed in an envelope
to the analyzer, who takes the masks away. In both the shuffler sees nothing of the counts, and the analyzer nothing but their sum;
together they see all. Every envelope is bound to the signed round, and a bit to its label too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from numpy.typing import NDArray

from ..privacy import SumPlan
from ..protocol import Counts, RandomSource, permutation
from ..protocol import Report as Bits
from ..protocol.randomness import KeyedRandom
from .packing import modulo, packed_bytes, unpacked, width_for
from .wire import SEALED_BIT, SEALED_SEED, SealedBatch, SealedReport, WireError, batch_bytes, report_bytes

_SUITE = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_128_GCM)
_SEED = 0xFFFFFFFF  # in the place of a label


def sealed_report(transport: str, round_digest: bytes, bits: Bits, key: X25519PublicKey, width: int = 0) -> SealedReport:
    """Seal a user's labelled bits, as they leave its device. Seals are random: keep the bytes for a retry.

    Parameters
    ----------
    transport : {"messages", "masked-sum"}
        How reports travel.
    round_digest : bytes
        Digest of the round's signed document; every envelope is bound to it.
    bits : Report
        The randomizer's labelled bits.
    key : X25519PublicKey
        The round's key.
    width : int, default 0
        For "masked-sum": bits of a masked count, `width_for` of the round's plan.

    Returns
    -------
    SealedReport
        What the device sends.

    Raises
    ------
    WireError
        Where nothing can be sealed for this key.

    Guarantee
    ---------
    The report by itself shows the shuffler nothing of the bits: envelopes open with the round's private key alone. What a role can
    learn from a whole run is in docs/threat-model.md.
    """
    try:
        return _sealed(transport, round_digest, bits, key, width)
    except ValueError:  # a point of low order
        raise WireError("a round whose key is none that anything can be sealed for") from None


def _sealed(transport: str, round_digest: bytes, bits: Bits, key: X25519PublicKey, width: int) -> SealedReport:
    labels, messages = bits.bits.shape
    if transport == "messages":
        # The bits of a label are in no order that says anything: ones first, before the shuffler permutes them.
        sealed = b"".join(
            _SUITE.encrypt(bytes([bit]), key, info=_info(transport, round_digest, label))
            for label, row in enumerate(bits.bits)
            for bit in row.tolist()
        )
        return SealedReport(
            transport, round_digest, messages, np.frombuffer(sealed, np.uint8).reshape(labels, messages, SEALED_BIT)
        )
    seed = os.urandom(32)
    masked = modulo(bits.bits.sum(axis=1, dtype=np.uint64) + mask(seed, labels, width), width)
    envelope = _SUITE.encrypt(seed, key, info=_info(transport, round_digest, _SEED))
    return SealedReport(transport, round_digest, messages, np.frombuffer(envelope, np.uint8), masked, width)


def check_shape(report: SealedReport, transport: str, round_digest: bytes, plan: SumPlan) -> None:
    """Refuse a report that is not of this round, or has not exactly the messages that the plan says.

    Parameters
    ----------
    report : SealedReport
        A user's report.
    transport : {"messages", "masked-sum"}
        The task's transport.
    round_digest : bytes
        Digest of the round's signed document.
    plan : SumPlan
        The round's plan.

    Raises
    ------
    WireError
        Where transport, round or shape differ.
    """
    if report.transport != transport:
        raise WireError(f"a report by {report.transport} in a task by {transport}")
    if report.round != round_digest:
        raise WireError("a report for another round")
    if (report.dim, report.messages) != (plan.dim, plan.bits_per_coordinate):
        shape = f"{plan.dim} coordinates of {plan.bits_per_coordinate} messages"
        raise WireError(f"{report.dim} coordinates of {report.messages} messages where the plan has {shape}")
    if report.width != (width := width_for(transport, plan)):
        raise WireError(f"masked counts of {report.width} bits where the plan has {width}")


def report_length(transport: str, plan: SumPlan) -> int:
    """Return the length of every report of a round.

    Parameters
    ----------
    transport : {"messages", "masked-sum"}
        How reports travel.
    plan : SumPlan
        The round's plan.

    Returns
    -------
    int
        Bytes.
    """
    return report_bytes(transport, plan.dim, plan.bits_per_coordinate, width_for(transport, plan))


def batch_length(transport: str, plan: SumPlan) -> int:
    """Return the length of the batch of a round in which all users have answered.

    Parameters
    ----------
    transport : {"messages", "masked-sum"}
        How reports travel.
    plan : SumPlan
        The round's plan.

    Returns
    -------
    int
        Bytes, the signature included.
    """
    return batch_bytes(transport, plan.dim, plan.users, plan.bits_per_coordinate, width_for(transport, plan))


def shuffled(reports: Sequence[SealedReport], random: RandomSource) -> SealedBatch:
    """Return the batch of these reports, in uniformly random order: nothing in it says who sent what.

    Parameters
    ----------
    reports : sequence of SealedReport
        At least one; all of one round.
    random : RandomSource
        Where the order comes from.

    Returns
    -------
    SealedBatch
        What is forwarded to the analyzer.

    Guarantee
    ---------
    With "messages" the envelopes of each label are uniformly permuted. With "masked-sum" the seeds are uniformly permuted, and
    masked counts are added up.
    """
    first = reports[0]
    if first.transport == "messages":
        labels = [
            np.concatenate([report.sealed[label] for report in reports])[permutation(random, len(reports) * first.messages)]
            for label in range(first.dim)
        ]
        return SealedBatch(first.transport, first.round, len(reports), np.stack(labels))
    seeds = np.stack([report.sealed for report in reports])[permutation(random, len(reports))]
    total = np.zeros(first.dim, dtype=np.uint64)
    for report in reports:
        if report.masked is not None:
            total += report.masked
    return SealedBatch(first.transport, first.round, len(reports), seeds, modulo(total, first.width), first.width)


def opened(batch: SealedBatch, plan: SumPlan, key: X25519PrivateKey, pool: Executor | None = None) -> Counts:
    """Open a batch and count its ones.

    One envelope that does not open, or holds what no client puts there, spoils all of it. To leave that one out would be a second
    release on all users but one.

    Parameters
    ----------
    batch : SealedBatch
        What the shuffler forwarded.
    plan : SumPlan
        The round's plan.
    key : X25519PrivateKey
        The round's private key.
    pool : Executor, optional
        Shares the work of opening many envelopes.

    Returns
    -------
    Counts
        The ones of each coordinate.

    Raises
    ------
    WireError
        Where an envelope does not open or holds something else than a bit or a seed, or the counts are impossible.
    """
    if batch.transport == "messages":
        private, labels = key.private_bytes_raw(), range(batch.dim)
        work = [batch.sealed[label].tobytes() for label in labels], [private] * batch.dim, [batch.round] * batch.dim, labels
        ones = list((pool.map if pool else map)(_opened_label, *work))
        return Counts(np.array(ones, dtype=np.int64), batch.users, private=True)
    info = _info(batch.transport, batch.round, _SEED)
    total = np.zeros(batch.dim, dtype=np.uint64) if batch.masked is None else batch.masked.copy()
    for envelope in batch.sealed:
        total -= mask(_open(envelope.tobytes(), key, info, SEALED_SEED), batch.dim, batch.width)
    total = modulo(total, batch.width)
    if total.max(initial=0) > batch.users * plan.bits_per_coordinate:
        raise WireError("counts that no users could have sent: a report was not made by the protocol")
    return Counts(total.astype(np.int64), batch.users, private=True)


def mask(seed: bytes, dim: int, width: int) -> NDArray[np.uint64]:
    """Return numbers modulo 2^width that look random to whoever has not got the seed: its keystream.

    Parameters
    ----------
    seed : bytes
        32 secret bytes.
    dim : int
        How many numbers.
    width : int
        Bits of each.

    Returns
    -------
    ndarray of uint64, shape (dim,)
        The mask: the first `dim` x `width` bits of the keystream, read as masked counts are.
    """
    return unpacked(KeyedRandom(seed, private=True).draw_bytes(packed_bytes(dim, width)), dim, width)


def _opened_label(envelopes: bytes, private: bytes, round_digest: bytes, label: int) -> int:
    """The ones among the sealed bits of a label."""
    key, info, ones = X25519PrivateKey.from_private_bytes(private), _info("messages", round_digest, label), 0
    for start in range(0, len(envelopes), SEALED_BIT):
        bit = _open(envelopes[start : start + SEALED_BIT], key, info, SEALED_BIT)
        if bit not in (b"\0", b"\1"):
            raise WireError("an envelope with something else than a bit")
        ones += bit == b"\1"
    return ones


def _open(envelope: bytes, key: X25519PrivateKey, info: bytes, length: int) -> bytes:
    try:
        content = _SUITE.decrypt(envelope, key, info=info)
    except (InvalidTag, ValueError):
        raise WireError("an envelope that does not open") from None
    if len(envelope) != length:
        raise WireError("an envelope of another length")
    return content


def _info(transport: str, round_digest: bytes, label: int) -> bytes:
    """What an envelope is bound to: it opens for this transport, round and label alone."""
    return b"croupier report v1 " + transport.encode() + b" " + round_digest + label.to_bytes(4, "little")
