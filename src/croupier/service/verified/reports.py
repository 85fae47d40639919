"""Reports by verified-sum: what a client sends, what the shuffler makes of it for the analyzer, and what the analyzer decides.

The shuffler is the draft's leader: its share is long, and travels once, unsealed, from the client. The analyzer is the helper: its
share is two seeds, which are sealed. So a report is as short as it can be, and a batch too. docs/protocol.md has the bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ..documents import WireError
from .field import FIELD64
from .prio3 import NONCE_BYTES, Prio3SumVec
from .xof import SEED_BYTES

PROOFS = 3
# Coordinates, and messages of each, that proofs are about at most.
_MOST = 1 << 31
# What surrounds the helper's share: HPKE's encapsulated key and tag.
_SEAL_BYTES = 32 + 16
_Bytes = NDArray[np.uint8]


@lru_cache(maxsize=8)
def vdaf_for(dim: int, messages: int, round_digest: bytes) -> Prio3SumVec:
    """Return the scheme of a round: its counts, three proofs, two servers, bound to the round.

    Parameters
    ----------
    dim : int
        Coordinates.
    messages : int
        The largest count, g + b.
    round_digest : bytes
        Digest of the round's signed document.

    Returns
    -------
    Prio3SumVec
        The scheme.
    """
    return Prio3SumVec(dim, messages, proofs=PROOFS, context=b"croupier report v1 verified-sum " + round_digest)


@dataclass(frozen=True)
class VerifiedSizes:
    """Lengths of what travels, in bytes.

    Parameters
    ----------
    dim : int
        Coordinates.
    messages : int
        The largest count, g + b.

    Attributes
    ----------
    sealed : int
        The envelope with the helper's share.
    open : int
        The rest of a report: nonce, public share and the leader's share.
    report : int
        All of a report, but for header and round.
    part : int
        What the analyzer checks of a report: envelope, nonce, public share and the leader's verifier share.
    """

    dim: int
    messages: int

    def __post_init__(self) -> None:
        if not 1 <= self.dim <= _MOST or not 1 <= self.messages <= _MOST:
            raise WireError(f"{self.dim} coordinates of {self.messages} messages, which no proof is about")

    @property
    def sealed(self) -> int:
        """The envelope with the helper's share."""
        return _SEAL_BYTES + self._vdaf.helper_bytes

    @property
    def open(self) -> int:
        """The rest of a report: nonce, public share and the leader's share."""
        return NONCE_BYTES + self._vdaf.public_bytes + self._vdaf.leader_bytes

    @property
    def report(self) -> int:
        """All of a report, but for header and round."""
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

    Parameters
    ----------
    counts : ndarray of int64, shape (dim,)
        The ones of each coordinate.
    messages : int
        The largest count, g + b.
    round_digest : bytes
        Digest of the round's signed document.
    nonce, rand : bytes, optional
        Random bytes; the system's unless given, which tests alone do.

    Returns
    -------
    helper_share : bytes
        To be sealed for the analyzer.
    open_part : ndarray of uint8
        For the shuffler: nonce, public share, leader's share.

    Guarantee
    ---------
    Each of the two by itself is independent of the counts, as far as TurboSHAKE128 is a random oracle.
    """
    vdaf = vdaf_for(len(counts), messages, round_digest)
    nonce = os.urandom(NONCE_BYTES) if nonce is None else nonce
    public, (leader, helper) = vdaf.shard(counts, nonce, os.urandom(vdaf.rand_bytes) if rand is None else rand)
    return helper, np.frombuffer(nonce + public + leader, np.uint8)


def checkable(sealed: _Bytes, opened: _Bytes, messages: int, dim: int, round_digest: bytes, verify_key: bytes) -> _Bytes:
    """Make of reports what the analyzer checks of them; the shuffler does.

    Parameters
    ----------
    sealed : ndarray of uint8, shape (reports, envelope)
        Envelopes for the analyzer.
    opened : ndarray of uint8, shape (reports, bytes)
        The rest of the reports.
    messages : int
        The largest count, g + b.
    dim : int
        Coordinates.
    round_digest : bytes
        Digest of the round's signed document.
    verify_key : bytes
        The servers' secret of the round.

    Returns
    -------
    ndarray of uint8, shape (reports, part)
        Envelope, nonce, public share and the leader's verifier share; the last is zeros where the leader's share is malformed.
    """
    vdaf = vdaf_for(dim, messages, round_digest)
    nonces, publics, shares = _split(vdaf, opened)
    prepared = vdaf.prepare(verify_key, 0, nonces, publics, shares)
    return np.concatenate([sealed, nonces, publics, prepared.verifier_shares], axis=1)


def leader_sum(opened: _Bytes, messages: int, dim: int, round_digest: bytes) -> NDArray[np.uint64]:
    """Add up the leader's shares of the counts of reports that were accepted.

    Parameters
    ----------
    opened : ndarray of uint8, shape (reports, bytes)
        The part of the reports that is not sealed.
    messages : int
        The largest count, g + b.
    dim : int
        Coordinates.
    round_digest : bytes
        Digest of the round's signed document.

    Returns
    -------
    ndarray of uint64, shape (dim,)
        Elements of the field of 64 bits.
    """
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
    """Decide which reports of a batch count; the analyzer does, for both servers.

    Parameters
    ----------
    parts : ndarray of uint8, shape (reports, part)
        From `checkable`.
    messages : int
        The largest count, g + b.
    dim : int
        Coordinates.
    round_digest : bytes
        Digest of the round's signed document.
    verify_key : bytes
        The servers' secret of the round.
    opens : callable
        Returns what an envelope holds; None where it does not open, or was here before.
    admits : callable, optional
        Takes the token of a report that is good otherwise, which stands after the helper's share in its envelope, and says whether
        the report counts.

    Returns
    -------
    accepted : ndarray of bool, shape (reports,)
        Reports whose envelope opens, whose parts of the joint randomness are those that the client said, and whose proofs hold.
    share : ndarray of uint64, shape (dim,)
        The sum of the helper's shares of their counts.
    """
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
    """Put both servers' sums together.

    Parameters
    ----------
    released : ndarray of uint64, shape (dim,)
        The shuffler's; numbers beyond the field are taken modulo its prime.
    share : ndarray of uint64, shape (dim,)
        The analyzer's.

    Returns
    -------
    ndarray of uint64, shape (dim,)
        The counts of all users together.
    """
    return FIELD64.add(FIELD64.elements(released), share)


def _split(vdaf: Prio3SumVec, opened: _Bytes) -> tuple[_Bytes, _Bytes, _Bytes]:
    """Nonces, public shares and leader's shares."""
    nonces, publics, shares = np.split(opened, [NONCE_BYTES, NONCE_BYTES + vdaf.public_bytes], axis=1)
    return nonces, publics, shares
