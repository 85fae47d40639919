"""Masked counts on the wire: d numbers modulo 2^k, of k bits each, one after the other without gaps. See docs/protocol.md.

k is the fewest bits that hold the count of all users together, so that a sum of masked counts loses nothing. It follows from
public figures: the plan's users and messages.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..privacy import SumPlan
from .documents import WireError

# A number that begins within a byte reaches into the next ones: so many bits fit into 64 with a byte's offset.
MOST_WIDTH = 57


def count_width(users: int, messages: int) -> int:
    """Return k, the bits of a masked count: the least number with 2^k > users x messages.

    Parameters
    ----------
    users : int
        The plan's users, all of them.
    messages : int
        Messages per user and coordinate, g + b.

    Returns
    -------
    int
        Between 1 and 57.

    Raises
    ------
    WireError
        Where a count would have more bits.
    """
    width = (users * messages).bit_length()
    if not 1 <= width <= MOST_WIDTH:
        raise WireError(f"counts up to {users} x {messages}, of {width} bits, where there are 1 to {MOST_WIDTH}")
    return width


def width_for(transport: str, plan: SumPlan) -> int:
    """Return the bits of a masked count under a plan; 0 where counts are not masked.

    Parameters
    ----------
    transport : str
        How reports travel.
    plan : SumPlan
        The round's plan.

    Returns
    -------
    int
        As `count_width` has it for "masked-sum".
    """
    return count_width(plan.users, plan.bits_per_coordinate) if transport == "masked-sum" else 0


def packed_bytes(dim: int, width: int) -> int:
    """Return how many bytes so many numbers take.

    Parameters
    ----------
    dim : int
        How many numbers.
    width : int
        Bits of each.

    Returns
    -------
    int
        `dim` x `width` bits, in whole bytes.
    """
    return -(-dim * width // 8)


def packed(numbers: NDArray[np.uint64], width: int) -> bytes:
    """Return numbers modulo 2^width, without gaps: bit i of number j is bit j x width + i, bytes from their lowest bit.

    Parameters
    ----------
    numbers : ndarray of uint64
        Any numbers; higher bits are dropped.
    width : int
        Bits of each.

    Returns
    -------
    bytes
        The last byte is filled up with zeros.
    """
    places = np.arange(width, dtype=np.uint64)
    bits = (np.asarray(numbers, dtype=np.uint64)[:, np.newaxis] >> places) & np.uint64(1)
    return np.packbits(bits.astype(np.uint8).ravel(), bitorder="little").tobytes()


def unpacked(data: bytes | NDArray[np.uint8], dim: int, width: int) -> NDArray[np.uint64]:
    """Return the numbers that `packed` made these bytes of.

    Parameters
    ----------
    data : bytes or ndarray of uint8
        `packed_bytes(dim, width)` of them.
    dim : int
        How many numbers.
    width : int
        Bits of each.

    Returns
    -------
    ndarray of uint64, shape (dim,)
        Each below 2^width.
    """
    touched = (width + 14) // 8  # bytes, wherever in a byte the number begins
    padded = np.zeros(packed_bytes(dim, width) + touched, dtype=np.uint8)
    padded[: packed_bytes(dim, width)] = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
    first = np.arange(dim) * width
    numbers = np.zeros(dim, dtype=np.uint64)
    for place in range(touched):
        numbers |= padded[first // 8 + place].astype(np.uint64) << np.uint64(8 * place)
    return modulo(numbers >> (first % 8).astype(np.uint64), width)


def modulo(numbers: NDArray[np.uint64], width: int) -> NDArray[np.uint64]:
    """Return numbers modulo 2^width.

    Parameters
    ----------
    numbers : ndarray of uint64
        Any numbers.
    width : int
        Bits that are kept.

    Returns
    -------
    ndarray of uint64
        Each below 2^width.
    """
    return numbers & np.uint64((1 << width) - 1)


def require_padding(data: NDArray[np.uint8], dim: int, width: int) -> None:
    """Refuse packed numbers whose last byte holds anything beyond them.

    Parameters
    ----------
    data : ndarray of uint8
        Packed numbers.
    dim : int
        How many numbers.
    width : int
        Bits of each.

    Raises
    ------
    WireError
        Where a bit beyond the last number is not 0.
    """
    used = dim * width % 8
    if used and len(data) and int(data[-1]) >> used:
        raise WireError("masked counts with something after the last of them")
