"""Masked reports of vectors, for whoever has a way of its own to carry them: what users, the adding party and the opener do.

The bytes are those of the transport *masked-sum* (docs/protocol.md). What is sealed is bound to `context`, 32 bytes that name the
round and everything that its users were promised. Under a plan with blocks (`plan_lots`) it is bound to the block, too; all blocks
of a round share its rotation, which is made from `context`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from numpy.typing import ArrayLike, NDArray

from ...privacy import ArgumentError, SumPlan
from ...protocol import BatchTooSmallError, Counts, SecureRandom, SumEstimate, VectorSum
from ...protocol._randomizer import Randomizer
from ...protocol._sampling import permutation
from ...protocol.randomness import KeyedRandom, RandomSource
from ...validation import Found, whole
from .documents import WireError
from .reports import modulo, packed, packed_bytes, unpacked, unwrapped
from .transports import (
    DIGEST_BYTES,
    ENCAPSULATED,
    SEALED_SEED,
    SEED_BYTES,
    TRANSPORTS,
    MaskedSum,
    SealedReport,
    block_digest,
    open_envelope,
    seal_seed,
    seed_info,
)

# Coordinates that are worked on at a time: whole words, whatever the width.
_PIECE = 1 << 16
_TRANSPORT = TRANSPORTS[MaskedSum.name]


def masked_report(
    vector: ArrayLike, plan: SumPlan, *, context: bytes, key: bytes, block: int = 0, random: RandomSource | None = None
) -> bytes:
    """Make one user's report: clip, encode, add noise, mask, and seal the mask's seed for whoever opens sums of masks.

    A vector in single precision is never copied to double precision as a whole: ten million coordinates take little more memory
    than the vector and the report.

    Parameters
    ----------
    vector : array_like of shape (dim,)
        The user's vector; clipped to the plan's norm where it is longer.
    plan : SumPlan
        From `plan_sum`, or `one_round` of a `LotsPlan`.
    context : bytes
        32 bytes that name the round: the digest of what its users were told. A plan's rotation is made from them.
    key : bytes
        The 32 bytes of the opener's public key (X25519).
    block : int, default 0
        Under a plan with blocks, the one of this user's lot: all that the report holds of the vector.
    random : RandomSource, optional
        Where noise and rounding come from; SecureRandom() where it is left out. Masks are always secure.

    Returns
    -------
    bytes
        What travels. It is random: keep the bytes for a retry, and never make a second report of one vector.

    Raises
    ------
    ArgumentError
        If the vector, the context or the key has another shape.
    RecordError
        If an entry is NaN or infinite.

    Guarantee
    ---------
    Whoever adds reports up sees nothing of the counts without the opener, and the opener nothing without the masked counts. What
    the sum says about a user is the plan's guarantee, if those two do not pool what they have.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier import plan_sum
    >>> from croupier.masked import MaskedTotal, mask_key, masked_report, open_masks, public_mask_key
    >>> plan, context, key = plan_sum(epsilon=1.0, delta=1e-6, users=200, dim=3), bytes(32), mask_key()
    >>> total = MaskedTotal(plan, context)
    >>> for vector in np.full((200, 3), 0.5):
    ...     total.add(masked_report(vector, plan, context=context, key=public_mask_key(key)))
    >>> masks = open_masks(total.envelopes(), plan, context=context, key=key)     # the opener's part
    >>> bool(abs(total.open(masks).sum - 100).max() < 8 * plan.noise_std)
    True
    """
    public = X25519PublicKey.from_public_bytes(_exactly("key", key, 32))
    bound, random, width = _bound(context, plan, block), random or SecureRandom(), _TRANSPORT.width(plan)
    seed, unsealed = os.urandom(SEED_BYTES), np.empty(packed_bytes(plan.coordinates, width), np.uint8)
    at, masks = 0, _mask_pieces(seed, plan.coordinates, width)
    for counts, mask in zip(Randomizer(plan, context, block).counts_in_pieces(vector, random, _PIECE), masks, strict=True):
        piece = np.frombuffer(packed(counts.astype(np.uint64) + mask, width), np.uint8)
        unsealed[at : at + len(piece)] = piece
        at += len(piece)
    sealed = seal_seed(seed, public, seed_info(_TRANSPORT.name, bound))
    return SealedReport(_TRANSPORT.name, bound, plan.coordinates, plan.bits_per_coordinate, sealed, unsealed, width).to_bytes()


def mask_key() -> bytes:
    """Draw the private key of whoever opens sums of masks.

    Returns
    -------
    bytes
        32 bytes, X25519. Keep them from whoever adds reports up.
    """
    return X25519PrivateKey.generate().private_bytes_raw()


def public_mask_key(key: bytes) -> bytes:
    """Compute the public key of a private one.

    Parameters
    ----------
    key : bytes
        From `mask_key`.

    Returns
    -------
    bytes
        What users seal their seeds for.
    """
    return X25519PrivateKey.from_private_bytes(_exactly("key", key, 32)).public_key().public_bytes_raw()


class BadEnvelopesError(ValueError):
    """Some envelopes do not open, or are there twice; nothing of the others was added up.

    Parameters
    ----------
    places : tuple of int
        Their places, counted from 0, ascending.

    Attributes
    ----------
    places : tuple of int
        The same places.
    """

    def __init__(self, places: tuple[int, ...]) -> None:
        self.places = places
        super().__init__(f"{len(places)} envelopes hold no seed of this round, or one that was there before: places {places[:10]}")


def open_masks(envelopes: Sequence[bytes], plan: SumPlan, *, context: bytes, key: bytes, block: int = 0) -> NDArray[np.uint64]:
    """Add up the masks of a round. Answer once for a context and block: the difference of two answers is a report.

    Parameters
    ----------
    envelopes : sequence of bytes
        From `MaskedTotal.envelopes`, of exactly `plan.users` reports.
    plan : SumPlan
        As the users had it.
    context : bytes
        As the users had it.
    key : bytes
        The opener's private key.
    block : int, default 0
        As the users had it.

    Returns
    -------
    numpy.ndarray of uint64, shape (plan.coordinates,)
        The sum of the masks.

    Raises
    ------
    BatchTooSmallError
        If there are fewer envelopes than the plan's users, blanks included; more are refused, too.
    BadEnvelopesError
        If some do not open. Whoever adds up replaces those by blanks, and asks again.
    """
    private = X25519PrivateKey.from_private_bytes(_exactly("key", key, 32))
    _require_users(len(envelopes), plan)
    info, width = seed_info(_TRANSPORT.name, _bound(context, plan, block)), _TRANSPORT.width(plan)
    seeds, seen, bad = list[bytes](), set[bytes](), list[int]()
    for place, envelope in enumerate(envelopes):
        seed = open_envelope(envelope, private, info) if envelope[:ENCAPSULATED] not in seen else None
        seen.add(envelope[:ENCAPSULATED])
        if seed is None or len(seed) != SEED_BYTES:
            bad.append(place)
        else:
            seeds.append(seed)
    if bad:
        raise BadEnvelopesError(tuple(bad))
    return _added(plan.coordinates, (_mask_pieces(seed, plan.coordinates, width) for seed in seeds), width)


class _Entry(NamedTuple):
    """One report of a round: its envelope, and its masked counts, or the seed of a blank's mask."""

    envelope: bytes
    masked: NDArray[np.uint8] | None
    seed: bytes


class MaskedTotal:
    """The masked reports of a round, and their sum once it is opened: what the party has that adds reports up.

    Parameters
    ----------
    plan : SumPlan
        The plan of the round; `plan.users` is how many reports there must be, blanks included.
    context : bytes
        The 32 bytes that the users' reports are bound to.
    block : int, default 0
        Under a plan with blocks, the one that these reports are of.

    Attributes
    ----------
    plan : SumPlan
        The same plan.
    context : bytes
        The same context.
    block : int
        The same block.

    Examples
    --------
    >>> from croupier import plan_sum
    >>> from croupier.masked import MaskedTotal, mask_key, public_mask_key
    >>> total = MaskedTotal(plan_sum(epsilon=1.0, delta=1e-6, users=200, dim=3), bytes(32))
    >>> total.fill(public_mask_key(mask_key()))     # nobody came: blanks alone
    >>> len(total), len(set(total.envelopes()))
    (200, 200)
    """

    def __init__(self, plan: SumPlan, context: bytes, block: int = 0) -> None:
        self.plan, self.context, self.block = plan, context, block
        self._bound = _bound(context, plan, block)
        self._entries: list[_Entry] = []
        self._keys = set[bytes]()
        self._blanks = Counts(np.zeros(plan.coordinates, np.int64), 0, private=True)
        self._forwarded = False

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, report: bytes) -> None:
        """Take a report, or refuse it.

        Parameters
        ----------
        report : bytes
            Output of `masked_report`.

        Raises
        ------
        WireError
            If it is of another round or shape, is there already, or comes too late or too many. Nothing was added.
        """
        sealed = SealedReport.from_bytes(report)
        _TRANSPORT.check_shape(sealed, self._bound, self.plan)
        envelope = sealed.sealed.tobytes()
        if len(envelope) != SEALED_SEED:
            raise WireError("a report with a token in a task without an enroller")
        if envelope[:ENCAPSULATED] in self._keys:
            raise WireError("a report that was received before")
        if self._forwarded or len(self) >= self.plan.users:
            raise WireError(f"a report for a round that is closed or has its {self.plan.users} reports")
        self._keys.add(envelope[:ENCAPSULATED])
        self._entries.append(_Entry(envelope, sealed.unsealed, b""))

    def fill(self, key: bytes, random: RandomSource | None = None) -> None:
        """Fill the round up with blanks: reports of the zero vector, with the noise of any other.

        Parameters
        ----------
        key : bytes
            The opener's public key, as the users have it.
        random : RandomSource, optional
            Where the blanks' noise comes from; SecureRandom() where it is left out.
        """
        missing = self.plan.users - len(self)
        self._entries += self._new_blanks(missing, key, random)

    def replace(self, places: Iterable[int], key: bytes, random: RandomSource | None = None) -> None:
        """Put blanks in the places of reports whose envelopes do not open, as the opener said, before anything is opened.

        Parameters
        ----------
        places : iterable of int
            From `BadEnvelopesError`.
        key : bytes
            As in `fill`.
        random : RandomSource, optional
            As in `fill`.
        """
        for place in places:
            (self._entries[place],) = self._new_blanks(1, key, random)

    def envelopes(self) -> list[bytes]:
        """Forward the sealed seeds, in an order that is drawn at the first call. No report is taken after that.

        Returns
        -------
        list of bytes
            One per report, blanks included: they look alike.

        Raises
        ------
        BatchTooSmallError
            If there are fewer reports than the plan's users.
        """
        _require_users(len(self), self.plan)
        if not self._forwarded:
            self._entries = [self._entries[place] for place in permutation(SecureRandom(), len(self))]
            self._forwarded = True
        return [one.envelope for one in self._entries]

    def open(self, masks: NDArray[np.uint64]) -> SumEstimate:
        """Take the masks away and estimate the sum of the users' vectors.

        Parameters
        ----------
        masks : numpy.ndarray of uint64, shape (plan.coordinates,)
            From `open_masks`, of these envelopes.

        Returns
        -------
        SumEstimate
            The sum, its noise and its guarantee; of a block, its part. Parts add up: `plan.blocks` times their sum estimates that
            of the vectors of all users of the round, of whom each sent one block.

        Raises
        ------
        WireError
            If no users could have sent such a sum, or the masks are of another shape.
        """
        dim, width = self.plan.coordinates, _TRANSPORT.width(self.plan)
        _require_users(len(self), self.plan)
        if masks.shape != (dim,):
            raise WireError(f"masks of the shape {masks.shape} where the plan has ({dim},)")
        total = _added(dim, (self._pieces(one, width) for one in self._entries), width)
        ones = unwrapped(modulo(total + self._blanks.ones.astype(np.uint64) - masks, width), width, len(self), self.plan)
        if ones is None:
            raise WireError("a sum that no users could have sent: some report or the opener's answer is invalid")
        return VectorSum(self.plan, seed=self.context, block=self.block).analyze(Counts(ones, len(self), self._blanks.private))

    def _new_blanks(self, count: int, key: bytes, random: RandomSource | None) -> list[_Entry]:
        """Blanks whose counts are added up at once: of the same law as one by one."""
        public = X25519PublicKey.from_public_bytes(_exactly("key", key, 32))
        self._blanks += VectorSum(self.plan, seed=self.context, block=self.block).blank_counts(count, random or SecureRandom())
        seeds = [os.urandom(SEED_BYTES) for _ in range(count)]
        info = seed_info(_TRANSPORT.name, self._bound)
        return [_Entry(seal_seed(seed, public, info).tobytes(), None, seed) for seed in seeds]

    def _pieces(self, entry: _Entry, width: int) -> Iterator[NDArray[np.uint64]]:
        if entry.masked is None:
            yield from _mask_pieces(entry.seed, self.plan.coordinates, width)
            return
        step = packed_bytes(_PIECE, width)
        for first, size in _pieces_of(self.plan.coordinates):
            start = first // _PIECE * step
            yield unpacked(entry.masked[start : start + packed_bytes(size, width)], size, width)


def _pieces_of(dim: int) -> Iterator[tuple[int, int]]:
    """Where the pieces of so many coordinates begin, and how long they are."""
    return ((first, min(_PIECE, dim - first)) for first in range(0, dim, _PIECE))


def _mask_pieces(seed: bytes, dim: int, width: int) -> Iterator[NDArray[np.uint64]]:
    """The mask of a seed in pieces: the same numbers as `transports.mask`."""
    source = KeyedRandom(seed, private=True)
    for _, size in _pieces_of(dim):
        yield unpacked(source.draw_bytes(packed_bytes(size, width)), size, width)


def _added(dim: int, vectors: Iterable[Iterator[NDArray[np.uint64]]], width: int) -> NDArray[np.uint64]:
    """The sum of vectors that come in pieces, modulo 2^width."""
    total = np.zeros(dim, np.uint64)
    for vector in vectors:
        for first, piece in zip(range(0, dim, _PIECE), vector, strict=True):
            total[first : first + _PIECE] += piece
    return modulo(total, width)


def _bound(context: bytes, plan: SumPlan, block: int) -> bytes:
    """What reports are bound to: the context, and where there are several blocks, the block."""
    context = _exactly("context", context, DIGEST_BYTES)
    block = whole("block", block, at_least=0, at_most=plan.blocks - 1, remedy="Count blocks from 0.")
    return block_digest(context, None if plan.blocks == 1 else block)


def _exactly(name: str, value: bytes, length: int) -> bytes:
    if not isinstance(value, bytes) or len(value) != length:
        found = f"{len(value)} bytes" if isinstance(value, bytes) else type(value).__name__
        raise ArgumentError(name, Found(f"is {found}"), f"{length} bytes", "Pass the raw bytes, not their hex text.")
    return value


def _require_users(reports: int, plan: SumPlan) -> None:
    """Refuse a round that has not exactly the plan's reports: without blanks its noise is less than was promised."""
    if reports != plan.users:
        raise BatchTooSmallError(
            f"{reports} reports where the plan has {plan.users}, blanks included: fill the round up with blanks, or ask for no sum."
        )
