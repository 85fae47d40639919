"""XofTurboShake128 of the draft: bytes and field elements from a seed, for many reports at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .field import FIELD64, Elements, PrimeField, sponge_kernels

SEED_BYTES = 32


def _sponge() -> Callable[[bytes], Any]:
    from Crypto.Hash import TurboSHAKE128  # noqa: PLC0415 (clients of other transports do not load it)

    return lambda message: TurboSHAKE128.new(domain=1).update(message)


def _messages(seeds: NDArray[np.uint8], tag: bytes, binders: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Rows of what is absorbed: the tag's length and the tag, the seed's length and the seed, the binder."""
    head = np.frombuffer(len(tag).to_bytes(2, "little") + tag + bytes([seeds.shape[1]]), np.uint8)
    rows = max(len(seeds), len(binders))
    parts = (np.broadcast_to(part, (rows, part.shape[-1])) for part in (head, seeds, binders))
    return np.concatenate(list(parts), axis=1)


def derive_seeds(
    seeds: NDArray[np.uint8], tag: bytes, binders: NDArray[np.uint8], *, fast: bool | None = None
) -> NDArray[np.uint8]:
    """Derive a seed for each row."""
    messages = _messages(seeds, tag, binders)
    compiled = sponge_kernels(fast, messages.size // 8)
    if compiled is not None:
        return compiled.squeezed(messages, SEED_BYTES // 8, False).view(np.uint8)
    sponge = _sponge()
    data = b"".join(sponge(message.tobytes()).read(SEED_BYTES) for message in messages)
    return np.frombuffer(data, np.uint8).reshape(len(messages), SEED_BYTES)


def expand(
    field: PrimeField,
    seeds: NDArray[np.uint8],
    tag: bytes,
    binders: NDArray[np.uint8],
    length: int,
    *,
    fast: bool | None = None,
) -> Elements:
    """Expand seeds into uniformly random field elements, by rejection."""
    messages = _messages(seeds, tag, binders)
    compiled = sponge_kernels(fast, len(messages) * length) if field is FIELD64 else None
    if compiled is not None:
        return compiled.squeezed(messages, length, True)
    sponge = _sponge()
    rows = [_sampled(field, sponge(message.tobytes()), length) for message in messages]
    return np.stack(rows)


def _sampled(field: PrimeField, stream: Any, length: int) -> Elements:
    """The first so many numbers of a stream that are below the prime. Both primes are just below a power of 256."""
    found = field.elements([])
    while len(found) < length:
        data = np.frombuffer(stream.read((length - len(found)) * field.bytes_per_element), np.uint8)
        numbers, refused = field.from_bytes(data.reshape(-1, field.bytes_per_element))
        found = np.concatenate([found, numbers[~refused, 0]])
    return found
