"""A batch in hand: made as the shuffler makes it, counted as the analyzer does, and what follows it where reports are checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from helpers_roles import DIM, World, soon

from croupier.protocol import Report as Bits
from croupier.protocol import SecureRandom
from croupier.service.analyzer.population import RemotePopulation
from croupier.service.shuffler.role import ShufflerRole
from croupier.service.wire.documents import Document
from croupier.service.wire.reports import packed, unpacked
from croupier.service.wire.transports import TRANSPORTS, SealedBatch, SealedReport, Verdict

SECRET = bytes(range(32))  # that both servers share, where a transport has one


def batch_made(reports: Sequence[SealedReport], plan: Any, random: Any = None) -> SealedBatch:
    """The batch of these reports, in random order, by any transport."""
    return TRANSPORTS[reports[0].transport].batch(reports, plan, random or SecureRandom(), SECRET)[0]


def in_order(reports: Sequence[SealedReport], plan: Any) -> SealedBatch:
    """The batch of these reports as they stand, by a transport that checks them."""
    transport = TRANSPORTS[reports[0].transport]
    return SealedBatch(transport.name, reports[0].round, plan.dim, len(reports), transport.parts(reports, plan, SECRET))


def verdict_on(batch: SealedBatch, plan: Any, key: Any, pool: Any = None, admits: Any = None) -> Verdict:
    """What the analyzer finds in a batch."""
    return TRANSPORTS[batch.transport].check(batch, plan, key, pool, admits, SECRET)


def counted(reports: Sequence[SealedReport], plan: Any, key: Any) -> list[int] | None:
    """The ones of these reports, as both servers find them together; bad ones are left out."""
    transport = TRANSPORTS[reports[0].transport]
    batch, order = transport.batch(reports, plan, SecureRandom(), SECRET)
    verdict = verdict_on(batch, plan, key)
    if verdict.counts is not None:
        return verdict.counts.ones.tolist()
    rest = [reports[which] for place, which in enumerate(order.tolist()) if place not in verdict.places]
    counts = transport.counts(transport.release(rest, plan, bytes(32)), verdict.share, plan)
    return None if counts is None else counts.ones.tolist()


def masked_in(report: SealedReport) -> np.ndarray:
    """The masked counts of a report by masked-sum."""
    return unpacked(report.unsealed, report.dim, report.width)


def with_masked(report: SealedReport, masked: np.ndarray) -> SealedReport:
    """The report with these masked counts."""
    return replace(report, unsealed=np.frombuffer(packed(masked, report.width), np.uint8))


def spoiled(report: SealedReport) -> SealedReport:
    """The report with another byte: of its shares where there are any that can be verified, otherwise of an envelope."""
    part = "unsealed" if report.transport == "verified-sum" else "sealed"
    changed = np.array(getattr(report, part))
    changed.reshape(-1)[100 if part == "unsealed" else 60] ^= 1
    return replace(report, **{part: changed})


def bring(shuffler: ShufflerRole, population: RemotePopulation) -> bytes:
    """Bring the batch that waits to the analyzer, and all that follows; returns the batch."""
    name, batch = shuffler.waiting_batch()
    population.take(batch)
    shuffler.forwarded(name)
    settle(shuffler, population)
    return batch


def settle(shuffler: ShufflerRole, population: RemotePopulation) -> None:
    """Where reports are checked: bring the exclusions to the shuffler, and its release to the analyzer."""
    if (name := shuffler.awaiting_exclusions()) is not None:
        shuffler.exclude(soon(lambda: population.exclusions(name)))
    if (ready := shuffler.waiting_release()) is not None:
        population.take_release(ready[1])
        shuffler.released(ready[0])


def wrong(world: World, document: Document) -> tuple[dict[str, tuple[bytes, str]], list[bytes]]:
    """Batches that the analyzer does not take, and why; and such as it takes, in which one report is bad."""
    key, plan = world.shuffler_key, world.plan(document)
    reports = [SealedReport.from_bytes(world.report(user, document)) for user in range(5)]
    transport, sealed_for = world.task.transport, world.read(document).key
    shape = (DIM, plan.bits_per_coordinate)

    def batch(some, signer=key):
        return batch_made(some, plan).to_bytes(signer)

    def sealed(bits, **changed):
        about = {"transport": transport, "round_digest": document.digest, "key": sealed_for} | changed
        return TRANSPORTS[about.pop("transport")].seal(Bits(bits, private=False), plan, **about)

    good = batch(reports[:4])
    tampered = np.array(reports[0].sealed)
    tampered.reshape(-1)[40] ^= 1
    other = {"masked-sum": "messages", "messages": "masked-sum"}[transport]
    odd = (
        sealed(np.full(shape, 2, dtype=np.uint8)) if transport == "messages" else replace(reports[0], sealed=np.zeros(80, np.uint8))
    )
    stranger = X25519PrivateKey.generate().public_key()
    zeros = np.zeros(shape, dtype=bool)
    small, wide = [sealed(zeros, transport=other)] * 4, [sealed(np.zeros((DIM + 1, shape[1]), dtype=bool))] * 4
    of_wide = replace(batch_made(wide, plan), dim=DIM + 1).to_bytes(key)
    refused = {
        "nothing": (b"", "no round of this task"),
        "noise": (b"\xff" * 500, "no round of this task"),
        "a header alone": (good[:48], "too few"),
        "cut off": (good[:-1], "length differs from its header"),
        "a byte more": (good + b"\0", "length differs from its header"),
        "another version": (good[:4] + b"\2" + good[5:], "version 2"),
        "signed by somebody else": (batch(reports[:4], Ed25519PrivateKey.generate()), "the shuffler's"),
        "changed on the way": (good[:-100] + bytes([good[-100] ^ 1]) + good[-99:], "the shuffler's"),
        "of fewer than the minimum": (batch(reports[:3]), "another shape"),
        "of more than the plan's users": (batch(reports), "another shape"),
        "of no users": (SealedBatch(transport, document.digest, DIM, 0, empty(transport)).to_bytes(key), "another shape"),
        "of another round": (batch([sealed(zeros, round_digest=b"\1" * 32)] * 4), "no round"),
        "by the other transport": (batch(small), "another shape"),
        "of another dimension": (of_wide, "another shape"),
    }
    bad = [replace(reports[0], sealed=tampered), sealed(zeros, key=stranger), odd]
    return refused, [batch([one, *reports[1:4]]) for one in bad]


def empty(transport):
    return np.zeros((DIM, 0, 49) if transport == "messages" else (0, 80), dtype=np.uint8)
