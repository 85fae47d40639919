"""What reports are made of: packed masked counts, or counts that two servers share, with proofs.

By verified-sum the shuffler is the draft's leader: its share is long, and travels once, unsealed, from the client. The analyzer is
the helper: its share is two seeds, which are sealed. So a report is as short as it can be, and a batch too. docs/protocol.md has
the bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ...privacy import SumPlan
from ...privacy._tight import modulus_bits, usual_spread
from ..prio3.prio3 import FIELD64, NONCE_BYTES, SEED_BYTES, Prio3SumVec
from .documents import WireError

# Masked counts on the wire: d numbers modulo 2^k, of k bits each, one after the other without gaps. See docs/protocol.md.
#
# k is the fewest bits that hold the count of all users together, so that a sum of masked counts loses nothing. It follows from
# public figures: the plan's users and messages.

# A number that begins within a byte reaches into the next ones: so many bits fit into 64 with a byte's offset.
MOST_WIDTH = 57
_WORD = 64


def count_width(plan: SumPlan) -> int:
    """Return k, the bits of a masked count: the least number with 2^k > users x messages.

    Under a plan with a rotation 2^k is above the data's range and eight standard deviations of noise on either side, where that is
    less (docs/accounting.md#10-rotation).
    """
    width = (plan.users * plan.bits_per_coordinate).bit_length()
    if plan.range is not None:
        width = modulus_bits(plan.users, plan.levels, plan.noise_bits)
    if not 1 <= width <= MOST_WIDTH:
        raise WireError(f"counts of {plan.users} x {plan.bits_per_coordinate}, of {width} bits, where there are 1 to {MOST_WIDTH}")
    return width


def unwrapped(residues: NDArray[np.uint64], width: int, users: int, plan: SumPlan) -> NDArray[np.int64] | None:
    """Return the counts of so many users, from their residues modulo 2^width; None if no users could have sent them.

    They are the representatives nearest to the middle, users x messages / 2: noise wraps with a probability of 1.2e-15 a
    coordinate and round at most, and only where all reports are at one end.
    """
    most, size = users * plan.bits_per_coordinate, 1 << width
    low = max(0, (most - size) // 2)
    counts = low + ((residues.astype(np.int64) - low) % size)
    reach = most if plan.range is None else min(most, usual_spread(users, plan.levels, plan.noise_bits))
    return counts if np.abs(2 * counts - most).max(initial=0) <= reach else None


def packed_bytes(dim: int, width: int) -> int:
    """Return how many bytes so many numbers take."""
    return -(-dim * width // 8)


def packed(numbers: NDArray[np.uint64], width: int) -> bytes:
    """Return numbers modulo 2^width, without gaps: bit i of number j is bit j x width + i, bytes from their lowest bit."""
    rows = np.zeros(-(-len(numbers) // _WORD) * _WORD, dtype=np.uint64)
    rows[: len(numbers)] = modulo(np.asarray(numbers, dtype=np.uint64), width)
    columns = np.ascontiguousarray(rows.reshape(-1, _WORD).T)  # 64 numbers of k bits are k words
    words = np.zeros((width, columns.shape[1]), dtype=np.uint64)
    for column, (word, offset) in zip(columns, _places(width), strict=True):
        words[word] |= column << np.uint64(offset)
        if offset + width > _WORD:
            words[word + 1] |= column >> np.uint64(_WORD - offset)
    return words.T.astype("<u8").tobytes()[: packed_bytes(len(numbers), width)]


def unpacked(data: bytes | NDArray[np.uint8], dim: int, width: int) -> NDArray[np.uint64]:
    """Return the numbers that `packed` made these bytes of."""
    row = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
    numbers: NDArray[np.uint64] = unpacked_rows(row[np.newaxis], dim, width)[0]
    return numbers


def unpacked_rows(rows: NDArray[np.uint8], dim: int, width: int) -> NDArray[np.uint64]:
    """Return the numbers of many reports, a row of bytes each, as rows."""
    count, groups = len(rows), -(-dim // _WORD)
    padded = np.zeros((count, groups * width * 8), dtype=np.uint8)
    padded[:, : packed_bytes(dim, width)] = rows
    words = padded.view("<u8").astype(np.uint64, copy=False).reshape(count, groups, width)
    columns = np.empty((count, groups, min(dim, _WORD)), dtype=np.uint64)
    for number, (word, offset) in enumerate(_places(width)[: columns.shape[2]]):
        columns[:, :, number] = words[:, :, word] >> np.uint64(offset)
        if offset + width > _WORD:
            columns[:, :, number] |= words[:, :, word + 1] << np.uint64(_WORD - offset)
    return modulo(columns.reshape(count, -1)[:, :dim], width)


def _places(width: int) -> list[tuple[int, int]]:
    """In which word, and at which bit of it, each of 64 numbers begins."""
    return [divmod(number * width, _WORD) for number in range(_WORD)]


def modulo(numbers: NDArray[np.uint64], width: int) -> NDArray[np.uint64]:
    """Return numbers modulo 2^width."""
    return numbers & np.uint64((1 << width) - 1)


def require_padding(data: NDArray[np.uint8], dim: int, width: int) -> None:
    """Refuse packed numbers whose last byte holds anything beyond them."""
    used = dim * width % 8
    if used and len(data) and int(data[-1]) >> used:
        raise WireError("masked counts with trailing bytes")


PROOFS = 3
# Coordinates, and messages of each, that proofs are about at most.
_MOST = 1 << 31
# HPKE, X25519 and AES-128-GCM: an encapsulated key and a tag around what is sealed.
SEAL_BYTES = 32 + 16
# In a task with an enroller there is a token beside the seed in its envelope: 32 random bytes, and an RSA signature.
TOKEN_BYTES = 32 + 256
_Bytes = NDArray[np.uint8]


@lru_cache(maxsize=8)
def vdaf_for(dim: int, messages: int, round_digest: bytes) -> Prio3SumVec:
    """Return the scheme of a round: its counts, three proofs, two servers, bound to the round."""
    return Prio3SumVec(dim, messages, proofs=PROOFS, context=b"croupier report v1 verified-sum " + round_digest)


@dataclass(frozen=True)
class VerifiedSizes:
    """Lengths of what travels, in bytes."""

    dim: int  # coordinates
    messages: int  # the largest count, g + b

    def __post_init__(self) -> None:
        if not 1 <= self.dim <= _MOST or not 1 <= self.messages <= _MOST:
            raise WireError(f"{self.dim} coordinates of {self.messages} messages, which no proof is about")

    @property
    def sealed(self) -> int:
        """The envelope with the helper's share."""
        return SEAL_BYTES + self._vdaf.helper_bytes

    @property
    def open(self) -> int:
        """The rest of a report: nonce, public share and the leader's share."""
        return NONCE_BYTES + self._vdaf.public_bytes + self._vdaf.leader_bytes

    @property
    def report(self) -> int:
        """All of a report, except for header and round."""
        return self.sealed + self.open

    @property
    def part(self) -> int:
        """What the analyzer checks of a report: envelope, nonce, public share and the leader's verifier share."""
        return self.sealed + NONCE_BYTES + self._vdaf.public_bytes + self._vdaf.verifier_bytes

    @cached_property
    def _vdaf(self) -> Prio3SumVec:
        """Not kept: sizes are asked for by whoever sends a header."""
        return Prio3SumVec(self.dim, self.messages, proofs=PROOFS)


def shared_counts(
    counts: NDArray[np.int64], messages: int, round_digest: bytes, *, nonce: bytes | None = None, rand: bytes | None = None
) -> tuple[bytes, _Bytes]:
    """Share a user's counts between the two servers, with proofs that each is from 0 to g + b.

    Guarantee
    ---------
    Each of the two by itself is independent of the counts, as far as TurboSHAKE128 is a random oracle.
    """
    vdaf = vdaf_for(len(counts), messages, round_digest)
    nonce = os.urandom(NONCE_BYTES) if nonce is None else nonce
    public, (leader, helper) = vdaf.shard(counts, nonce, os.urandom(vdaf.rand_bytes) if rand is None else rand)
    return helper, np.frombuffer(nonce + public + leader, np.uint8)


def checkable(sealed: _Bytes, opened: _Bytes, messages: int, dim: int, round_digest: bytes, verify_key: bytes) -> _Bytes:
    """Make of reports what the analyzer checks of them; the shuffler does."""
    vdaf = vdaf_for(dim, messages, round_digest)
    nonces, publics, shares = _split(vdaf, opened)
    prepared = vdaf.prepare(verify_key, 0, nonces, publics, shares)
    return np.concatenate([sealed, nonces, publics, prepared.verifier_shares], axis=1)


def leader_sum(opened: _Bytes, messages: int, dim: int, round_digest: bytes) -> NDArray[np.uint64]:
    """Add up the leader's shares of the counts of reports that were accepted."""
    vdaf = vdaf_for(dim, messages, round_digest)
    _, _, shares = _split(vdaf, opened)
    total = np.zeros(dim, np.uint64)
    for start in range(0, len(shares), 256):
        elements, refused = FIELD64.from_bytes(shares[start : start + 256, : vdaf.circuit.elements * FIELD64.bytes_per_element])
        elements[refused] = 0
        total = FIELD64.add(total, FIELD64.sum(vdaf.circuit.truncated(elements), axis=0))
    return total


def decided(
    parts: _Bytes,
    messages: int,
    dim: int,
    round_digest: bytes,
    verify_key: bytes,
    opens: Callable[[bytes], bytes | None],
    admits: Callable[[bytes], bool] | None = None,
) -> tuple[NDArray[np.bool_], NDArray[np.uint64]]:
    """Decide which reports of a batch count; the analyzer does, for both servers."""
    vdaf, accepted, total = vdaf_for(dim, messages, round_digest), np.zeros(len(parts), np.bool_), np.zeros(dim, np.uint64)
    told_bytes = NONCE_BYTES + vdaf.public_bytes + vdaf.verifier_bytes
    envelope = parts.shape[1] - told_bytes  # longer than the share where there are tokens
    for start in range(0, len(parts), 256):
        some = parts[start : start + 256]
        contents = [opens(row.tobytes()) for row in some[:, :envelope]]
        good = np.array([content is not None for content in contents], np.bool_)
        whole = [content for content in contents if content is not None]
        if not good.any():
            continue
        rows = some[good, envelope:]
        nonces, publics, told = np.split(rows, [NONCE_BYTES, NONCE_BYTES + vdaf.public_bytes], axis=1)
        helper = np.frombuffer(b"".join(content[: vdaf.helper_bytes] for content in whole), np.uint8)
        helper = helper.reshape(len(rows), vdaf.helper_bytes)
        mine = vdaf.prepare(verify_key, 1, nonces, publics, helper)
        _, holds = vdaf.decide([told, mine.verifier_shares])
        # Both servers have used the joint randomness of all true parts if and only if these are the ones in the public share.
        parted = np.concatenate([told[:, -SEED_BYTES:], mine.verifier_shares[:, -SEED_BYTES:]], axis=1)
        holds &= (parted == publics).all(axis=1) & told.any(axis=1) & ~mine.refused
        if admits is not None:
            for place in np.flatnonzero(holds):
                holds[place] = admits(whole[place][vdaf.helper_bytes :])
        accepted[start + np.flatnonzero(good)[holds]] = True
        total = FIELD64.add(total, FIELD64.sum(mine.out_shares[holds], axis=0))
    return accepted, total


def total_counts(released: NDArray[np.uint64], share: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Put both servers' sums together."""
    return FIELD64.add(FIELD64.elements(released), share)


def _split(vdaf: Prio3SumVec, opened: _Bytes) -> tuple[_Bytes, _Bytes, _Bytes]:
    """Nonces, public shares and leader's shares."""
    nonces, publics, shares = np.split(opened, [NONCE_BYTES, NONCE_BYTES + vdaf.public_bytes], axis=1)
    return nonces, publics, shares
