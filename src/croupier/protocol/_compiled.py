"""The loops of `fused`, compiled by numba: short ones with few arrays each, which LLVM turns into vector instructions, over pieces
that stay in the processor's fastest cache from one loop to the next.

No fast mathematics and no fused multiply-add: each operation rounds as numpy's does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit

# Entries of a piece: four bytes each, and what they are made from.
_PIECE = 4096
# Rows with fewer entries are added up several side by side, since a short loop is slow.
_SHORT, _SIDE_BY_SIDE = 256, 16
# Numbers that a vector instruction takes at most.
_BESIDE = 8
# Places without a sign, which numba need not look at twice.
_1, _2, _3, _4, _5, _6, _7 = (np.uint64(number) for number in range(1, 8))
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _compiled(function: _Function) -> _Function:
    """Compiled on first use, without the interpreter's lock; kept on disk where there is a place to write to."""
    try:
        return cast(_Function, njit(nogil=True, cache=True)(function))
    except RuntimeError:  # no folder for the cache can be written
        return cast(_Function, njit(nogil=True)(function))


@_compiled
def add_rounded(rows, coefficients, factors, shift, scale, drawn, ones):
    """Add the rounded encodings to `ones`; see `sampling.round_at_random`."""
    users, width = rows.shape[0], ones.size
    rows_of_sums = _SIDE_BY_SIDE if width < _SHORT else 1
    some = rows_of_sums * max(_PIECE // (rows_of_sums * width), 1)
    total, sums = np.empty(some * width, np.int32), np.zeros(rows_of_sums * width, np.int64)
    for first in range(0, users, some):
        last = min(first + some, users)
        if shift.size:
            _encode_shifted(rows[first:last], coefficients[first:last], factors[first:last], shift, scale, total)
        else:
            _encode(rows[first:last], coefficients[first:last], scale, total)
        _carry(total, drawn[first * width : last * width], sums)
    for m in range(sums.size):
        ones[m % width] += sums[m]
    places = np.empty(_full(drawn) + 1, np.int64)
    columns = places[: _find_full(drawn, places)]
    rest = np.empty(columns.size + 1)
    ties = _left(rows, coefficients, factors, shift, scale, columns, rest)
    return columns[:ties], rest[:ties]


@_compiled
def _encode(rows, coefficients, scale, total):
    """256 a, rounded down."""
    users, features, outputs = rows.shape[0], rows.shape[1], coefficients.shape[1]
    for i in range(users):
        for k in range(outputs):
            coefficient = coefficients[i, k]
            for j in range(features):
                total[(i * outputs + k) * features + j] = np.int32((coefficient * rows[i, j] + 1.0) * scale)


@_compiled
def _encode_shifted(rows, coefficients, factors, shift, scale, total):
    """The same with a shift."""
    users, features, outputs = rows.shape[0], rows.shape[1], coefficients.shape[1]
    for i in range(users):
        for k in range(outputs):
            coefficient, factor = coefficients[i, k], factors[i]
            for j in range(features):
                a = (coefficient * rows[i, j] + factor * shift[k, j] + 1.0) * scale
                total[(i * outputs + k) * features + j] = np.int32(a)


@_compiled
def _carry(total, drawn, sums):
    """Whether the leading byte of the fraction is above the byte drawn: the whole part is added up, the byte goes to `drawn`."""
    for first in range(0, drawn.size, sums.size):
        last = min(first + sums.size, drawn.size)
        whole, byte = total[first:last], drawn[first:last]
        for m in range(last - first):
            carried = whole[m] + np.int32(255) - np.int32(byte[m])
            byte[m] = np.uint8(carried)
            sums[m] += carried >> np.int32(8)


@_compiled
def _full(drawn):
    """How many bytes are 255."""
    count = 0
    for m in range(drawn.size):
        count += drawn[m] == 255
    return count


@_compiled
def _find_full(drawn, places):
    """Where they are; returns how many. Eight are looked at at once, and `places` has room for one more than there are."""
    words = drawn[: drawn.size // 8 * 8].view(np.uint64)
    count = 0
    for word in range(words.size):
        inverse = ~words[word]
        if (inverse - np.uint64(0x0101010101010101)) & ~inverse & np.uint64(0x8080808080808080):  # it has a byte of zeros
            for m in range(8 * word, 8 * word + 8):
                places[count] = m
                count += drawn[m] == 255
    for m in range(8 * words.size, drawn.size):
        places[count] = m
        count += drawn[m] == 255
    return count


@_compiled
def _left(rows, coefficients, factors, shift, scale, places, rest):
    """Of the entries at these places, those that something is left of: their columns to `places`, what is left to `rest`."""
    features, outputs = rows.shape[1], coefficients.shape[1]
    ties = 0
    for place in places:
        i, column = divmod(place, outputs * features)
        k, j = divmod(column, features)
        a = coefficients[i, k] * rows[i, j]
        if shift.size:
            a += factors[i] * shift[k, j]
        a = (a + 1.0) * scale
        places[ties], rest[ties] = column, a - np.int32(a)
        ties += rest[ties] > 0
    return ties


@_compiled
def add_entries(values, factors, places, half, drawn, ones, there):
    """Add rounded encodings to `ones` where they belong, and count them in `there`; returns where ties are open, and their rests.

    One row of values and places per entry, one column per user; `half` is g / 2. As `sampling.carry`, operation by operation.
    """
    entries, users = values.shape
    where, rests, ties = np.empty(values.size, np.int64), np.empty(values.size), 0
    for row in range(entries):
        for user in range(users):
            scaled = (values[row, user] * factors[user] + 1.0) * half * 256.0
            total = np.int64(scaled) + 255 - np.int64(drawn[row * users + user])
            place = places[row, user]
            ones[place] += total >> 8
            there[place] += 1
            if total & 255 == 255:
                rest = scaled - np.floor(scaled)
                if rest > 0:
                    where[ties], rests[ties] = place, rest
                    ties += 1
    return where[:ties], rests[:ties]


@_compiled
def fill_products(rows, users, places, values):
    """svec(x x') of these rows, which have equally many entries, by its entries: see `_sparse.second_moments`."""
    columns = rows.shape[1]
    there, numbers = np.empty(columns + 1, np.int64), np.empty(columns + 1)
    for i in range(users.size):
        row, entries, at = rows[users[i]], 0, 0
        for j in range(columns):
            there[entries], numbers[entries] = j, row[j]
            entries += row[j] != 0
        for a in range(entries):
            first, number = there[a], numbers[a]
            start, factor = first * columns - first * (first + 1) // 2, np.sqrt(2.0) * number
            here, found = places[i, at : at + entries - a], values[i, at : at + entries - a]
            for b in range(here.size):
                here[b], found[b] = start + there[a + b], numbers[a + b] * factor
            found[0] = number * number
            at += entries - a


@_compiled
def add_rotated(rows, coefficients, factors, shift, signs, part, scale, box, limit, half, drawn, ones):
    """Add the rounded encodings of rotated vectors to `ones`; see `rotation.Rotation.turned` and `sampling.carry`.

    Returns which entries have open ties, and their rests. `part` has the coordinates of a block, or none where there is one block;
    `half` is 256 g / 2. Vectors are turned eight side by side, a coordinate of all of them next to each other.
    """
    users, width, side = rows.shape[0], ones.size, _BESIDE if rows.shape[0] > 1 else 1
    given, vectors = _aligned(side * signs.size), _aligned(side * signs.size)
    turned, whole = _aligned(side * width), np.empty(side * width, np.int32)
    some, total, scaled, sums = _room(width, side)
    tied, rests, ties = np.empty(drawn.size // 64 + 64, np.int64), np.empty(drawn.size // 64 + 64), 0
    for first in range(0, users, some):
        last = min(first + some, users)
        for i in range(first, last, side):
            if side == 1:
                _signed(rows[i], coefficients[i], factors[i], shift, signs, given)
                _transform(given, vectors)
            else:
                _signed_beside(rows, coefficients, factors, shift, signs, i, given)
                _later_stages(given, vectors, side)
            if part.size:
                for j in range(width):
                    for u in range(side):
                        turned[j * side + u] = vectors[part[j] * side + u] * scale
                _shorten(turned, vectors, limit, side)
            else:
                for m in range(turned.size):
                    turned[m] = vectors[m] * scale
            at = (i - first) * width
            _encode_rotated(turned, box, half, scaled[at : at + turned.size], whole)
            for u in range(side):
                mine = total[at + u * width : at + (u + 1) * width]
                for j in range(width):
                    mine[j] = whole[j * side + u]
        bytes_ = drawn[first * width : last * width]
        tied, rests, ties = _carry_rotated(total, scaled, side, width, bytes_, sums, first * width, tied, rests, ties)
    for m in range(sums.size):
        ones[m % width] += sums[m]
    return tied[:ties], rests[:ties]


@_compiled
def add_rotated_entries(values, factors, places, dim, signs, part, scale, box, limit, half, drawn, ones):
    """The same of vectors by their entries: one row of values and places per user.

    What a block asks for of a transform is a small part, so its last three stages are done for that alone.
    """
    users, entries = values.shape
    padded, width, given, vector, turned = signs.size, ones.size, _aligned(signs.size), _aligned(signs.size), _aligned(ones.size)
    apart = _BESIDE if part.size and padded >= _BESIDE else 1  # entries that the last stages bring together, which stand together
    group, bits = padded // apart - 1, _log2(padded // apart)
    groups, turns = _last_stages_of(part, group, bits)
    at = np.zeros(entries, np.int64)
    some, total, scaled, sums = _room(width, 1)
    tied, rests, ties = np.empty(drawn.size // 64 + 64, np.int64), np.empty(drawn.size // 64 + 64), 0
    for first in range(0, users, some):
        last = min(first + some, users)
        for i in range(first, last):
            factor = factors[i]
            for n in range(entries):
                place = places[i, n]
                if place < dim:
                    at[n] = (place & group) * apart + (place >> bits)
                    given[at[n]] = values[i, n] * factor * signs[place]
            if apart == 1:
                _transform(given, vector)
                given[:] = 0.0
                for j in range(width):
                    turned[j] = vector[part[j] if part.size else j] * scale
            else:
                _later_stages(given, vector, apart)
                for n in range(entries):
                    given[at[n]] = 0.0
                _last_stages(vector, groups, turns, scale, turned)
            if part.size:
                _shorten(turned, vector, limit, 1)
            here = (i - first) * width
            _encode_rotated(turned, box, half, scaled[here : here + width], total[here : here + width])
        bytes_ = drawn[first * width : last * width]
        tied, rests, ties = _carry_rotated(total, scaled, 1, width, bytes_, sums, first * width, tied, rests, ties)
    for m in range(sums.size):
        ones[m % width] += sums[m]
    return tied[:ties], rests[:ties]


@_compiled
def _room(width, side):
    """How many users are worked on at a time, and room for their encodings and sums."""
    rows_of_sums = _SIDE_BY_SIDE if width < _SHORT else 1
    step = max(rows_of_sums, side)
    some = step * max(_PIECE // (step * width), 1)
    return some, np.empty(some * width, np.int32), _aligned(some * width), np.zeros(rows_of_sums * width, np.int64)


@_compiled
def _aligned(size):
    """Room that begins where a line of the cache does, so that no vector instruction needs two lines."""
    room = np.zeros(size + 7)
    first = -(room.ctypes.data // 8) % 8
    return room[first : first + size]


@_compiled
def _signed(row, coefficients, factor, shift, signs, vector):
    """A user's vector with the signs, zeros after it."""
    features, outputs = row.size, coefficients.size
    for k in range(outputs):
        coefficient = coefficients[k]
        if shift.size:
            for j in range(features):
                vector[k * features + j] = (coefficient * row[j] + factor * shift[k, j]) * signs[k * features + j]
        else:
            for j in range(features):
                vector[k * features + j] = coefficient * row[j] * signs[k * features + j]
    vector[outputs * features :] = 0.0


@_compiled
def _signed_beside(rows, coefficients, factors, shift, signs, first, vectors):
    """The same of eight users from this one on, side by side; where they are fewer, the last one again. Zeros are there already."""
    users, features = rows.shape
    r0, r1, r2, r3, r4, r5, r6, r7 = _eight(rows, first, users - 1)
    for k in range(coefficients.shape[1]):
        c0, c1, c2, c3, c4, c5, c6, c7 = _eight(coefficients[:, k], first, users - 1)
        beside, mine = vectors[_BESIDE * k * features :], signs[k * features : (k + 1) * features]
        for j in range(features):
            m, sign = _BESIDE * j, mine[j]
            beside[m], beside[m + 1], beside[m + 2] = c0 * r0[j] * sign, c1 * r1[j] * sign, c2 * r2[j] * sign
            beside[m + 3], beside[m + 4], beside[m + 5] = c3 * r3[j] * sign, c4 * r4[j] * sign, c5 * r5[j] * sign
            beside[m + 6], beside[m + 7] = c6 * r6[j] * sign, c7 * r7[j] * sign
            if shift.size:
                for u in range(_BESIDE):
                    beside[m + u] += factors[min(first + u, users - 1)] * shift[k, j] * sign


@njit(inline="always")
def _eight(of, i, last):
    a, b, c, d = of[i], of[min(i + 1, last)], of[min(i + 2, last)], of[min(i + 3, last)]
    return a, b, c, d, of[min(i + 4, last)], of[min(i + 5, last)], of[min(i + 6, last)], of[min(i + 7, last)]


@_compiled
def _transform(given, vector):
    """`rotation.transformed` of one vector: three stages in one pass, then the later ones. What was given is lost."""
    size = given.size
    half = 1
    if size >= 8:
        for i in range(0, size, 8):
            a, b, c, d = given[i], given[i + 1], given[i + 2], given[i + 3]
            e, f, g, h = given[i + 4], given[i + 5], given[i + 6], given[i + 7]
            a, b, c, d, e, f, g, h = a + b, a - b, c + d, c - d, e + f, e - f, g + h, g - h
            a, b, c, d, e, f, g, h = a + c, b + d, a - c, b - d, e + g, f + h, e - g, f - h
            given[i], given[i + 1], given[i + 2], given[i + 3] = a + e, b + f, c + g, d + h
            given[i + 4], given[i + 5], given[i + 6], given[i + 7] = a - e, b - f, c - g, d - h
        half = 8
    _later_stages(given, vector, half)


@_compiled
def _later_stages(given, vector, half):
    """The stages from this one on: four in one pass; then one, if their number is odd, and two in each pass. The same sums."""
    size = vector.size
    if half == 8 and size >= 128:
        _four_stages_of_8(given, vector, size // (size // half))
        half = 128
    else:
        vector[:] = given
    if half == 128 and size >= 2048:
        _four_stages_of_128(vector)
        half = 2048
    if _log2(size // half) % 2 == 1:
        for first in range(0, size, 2 * half):
            for j in range(first, first + half):
                a, b = vector[j], vector[j + half]
                vector[j], vector[j + half] = a + b, a - b
        half *= 2
    while half < size:
        for first in range(0, size, 4 * half):
            one, two = vector[first : first + half], vector[first + half : first + 2 * half]
            three, four = vector[first + 2 * half : first + 3 * half], vector[first + 3 * half : first + 4 * half]
            for j in range(half):
                one[j], two[j], three[j], four[j] = _two_stages(one[j], two[j], three[j], four[j])
        half *= 4


@njit(inline="always")
def _two_stages(a, b, c, d):
    e, f, g, h = a + b, a - b, c + d, c - d
    return e + g, f + h, e - g, f - h


@njit(inline="always")
def _four_stages(u, v, j, half):
    """LLVM makes vector instructions of them where it knows how far apart entries are, and that u is v."""
    a, b, c, d = _two_stages(u[j], u[j + half], u[j + 2 * half], u[j + 3 * half])
    e, f, g, h = _two_stages(u[j + 4 * half], u[j + 5 * half], u[j + 6 * half], u[j + 7 * half])
    i, k, w, m = _two_stages(u[j + 8 * half], u[j + 9 * half], u[j + 10 * half], u[j + 11 * half])
    n, o, p, q = _two_stages(u[j + 12 * half], u[j + 13 * half], u[j + 14 * half], u[j + 15 * half])
    v[j], v[j + 4 * half], v[j + 8 * half], v[j + 12 * half] = _two_stages(a, e, i, n)
    v[j + half], v[j + 5 * half], v[j + 9 * half], v[j + 13 * half] = _two_stages(b, f, k, o)
    v[j + 2 * half], v[j + 6 * half], v[j + 10 * half], v[j + 14 * half] = _two_stages(c, g, w, p)
    v[j + 3 * half], v[j + 7 * half], v[j + 11 * half], v[j + 15 * half] = _two_stages(d, h, m, q)


@_compiled
def _four_stages_of_8(given, vector, eight):
    """From one array to another. LLVM must not know what eight is: it would unroll the loop instead."""
    for first in range(0, vector.size, 128):
        u, v = given[first : first + 128], vector[first : first + 128]
        for j in range(eight):
            _four_stages(u, v, j, 8)


@_compiled
def _four_stages_of_128(vector):
    """In place."""
    for first in range(0, vector.size, 2048):
        v = vector[first : first + 2048]
        for j in range(128):
            _four_stages(v, v, j, 128)


@_compiled
def _last_stages_of(part, group, bits):
    """For each entry of a block where the eight entries stand that its last three stages bring together, and with which signs."""
    groups, turns = np.empty(part.size, np.uint64), np.empty((3, part.size))
    for j in range(part.size):
        groups[j] = _BESIDE * (part[j] & group)
        for k in range(3):
            turns[k, j] = 1.0 - 2.0 * (part[j] >> (bits + k) & 1)
    return groups, turns


@_compiled
def _last_stages(vector, groups, turns, scale, turned):
    """The last three stages for the entries of a block: those that differ in their three leading bits alone stand together."""
    for j in range(groups.size):
        at, one, two, three = groups[j], turns[0, j], turns[1, j], turns[2, j]
        a, b = vector[at] + one * vector[at + _1], vector[at + _2] + one * vector[at + _3]
        c, d = vector[at + _4] + one * vector[at + _5], vector[at + _6] + one * vector[at + _7]
        turned[j] = ((a + two * b) + three * (c + two * d)) * scale


@_compiled
def _log2(size):
    """Of a power of two."""
    count = 0
    while size > 1:
        size >>= 1
        count += 1
    return count


@_compiled
def _shorten(turned, scratch, limit, side):
    """Scale blocks side by side back to their norm; squares are added up in halves."""
    size = turned.size // side
    for m in range(turned.size):
        scratch[m] = turned[m] * turned[m]
    half = turned.size
    while half > side:
        half //= 2
        for m in range(half):
            scratch[m] = scratch[m] + scratch[half + m]
    for u in range(side):
        longest = np.sqrt(scratch[u] * (1.0 + (size + 16) * 2.0**-52))
        factor = limit / max(limit, longest)
        for j in range(size):
            turned[j * side + u] *= factor


@_compiled
def _encode_rotated(turned, box, half, scaled, total):
    """Clip to the box, and encode: 256 a, and rounded down."""
    for j in range(turned.size):
        scaled[j] = (min(max(turned[j] / box, -1.0), 1.0) + 1.0) * half
        total[j] = np.int32(scaled[j])


@_compiled
def _carry_rotated(total, scaled, side, width, drawn, sums, start, tied, rests, ties):
    """Round by a byte and add up; what a byte does not decide goes to `tied` and `rests`, which may have to grow."""
    _carry(total, drawn, sums)
    places = np.empty(_full(drawn) + 1, np.int64)
    full = places[: _find_full(drawn, places)]
    if ties + full.size >= tied.size:
        tied, rests = _grown(tied, ties + full.size + 1), _grown(rests, ties + full.size + 1)
    for place in full:
        user, j = divmod(place, width)
        a = scaled[(user - user % side) * width + j * side + user % side]
        tied[ties], rests[ties] = start + place, a - np.floor(a)
        ties += rests[ties] > 0
    return tied, rests, ties


@_compiled
def _grown(array, size):
    """The array with room for twice as many."""
    larger = np.empty(max(2 * array.size, size), array.dtype)
    larger[: array.size] = array
    return larger
