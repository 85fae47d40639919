"""Grey pictures in columns of files, and folders of PNG files: pixels by the standard library alone."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from ..validation import FileError

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Samples per pixel of the colour types that are read: grey, colours, grey and colours with transparency, which is left out.
_SAMPLES = {0: 1, 2: 3, 4: 2, 6: 4}
# The weights of red, green and blue in a grey value, of 65 536: ITU-R 601, as most programs turn pictures grey.
_GREY = np.array([19595, 38470, 7471])
# A picture of 1024 x 1024 with four samples a pixel is the largest that is read.
_MOST_BYTES = 1 << 23
# What the columns of a folder of pictures are called: a PNG file, and the name of the folder that it lies in.
PICTURE, LABEL = "image", "label"


class NotAPictureError(ValueError):
    """Bytes that are no PNG file of a kind that is read."""


def png_pixels(data: bytes) -> NDArray[np.uint8]:
    """Read a PNG file of 8 bits per sample, neither interlaced nor with a palette, as grey values; transparency is left out."""
    try:
        header, packed = _chunks(data)
        width, height, depth, colour, method, _, interlaced = struct.unpack(">IIBBBBB", header)
        samples = _SAMPLES.get(colour, 0)
        if depth != 8 or not samples or method or interlaced or not 0 < height * width * samples < _MOST_BYTES:
            raise NotAPictureError("an unsupported kind of PNG file")
        length = height * (1 + width * samples)
        lines = zlib.decompressobj().decompress(packed, length + 1)
    except (struct.error, zlib.error, IndexError):
        raise NotAPictureError("not a PNG file") from None
    if len(lines) != length:
        raise NotAPictureError("a truncated PNG file")
    pixels = _unfiltered(np.frombuffer(lines, np.uint8).reshape(height, -1), samples).reshape(height, width, samples)
    if samples < 3:
        return np.asarray(pixels[..., 0])
    return np.asarray((pixels[..., :3].astype(np.int64) @ _GREY + 32768) >> 16, dtype=np.uint8)


def _chunks(data: bytes) -> tuple[bytes, bytes]:
    """The header, and all packed data, of a file whose sums are right."""
    if not data.startswith(_SIGNATURE):
        raise NotAPictureError("not a PNG file")
    place, header, packed = len(_SIGNATURE), b"", []
    while place < len(data):
        length, kind = struct.unpack_from(">I4s", data, place)
        content = data[place + 8 : place + 8 + length]
        (told,) = struct.unpack_from(">I", data, place + 8 + length)
        if zlib.crc32(kind + content) != told:
            raise NotAPictureError("a corrupted PNG file")
        if kind == b"IHDR":
            header = content
        if kind == b"IDAT":
            packed.append(content)
        place += 12 + length
    return header, b"".join(packed)


def _unfiltered(lines: NDArray[np.uint8], samples: int) -> NDArray[np.uint8]:
    """Undo the filters of PNG (section 9), by which a line says how it differs from what is left of it and above."""
    pixels = np.empty((len(lines), lines.shape[1] - 1), np.uint8)
    above = np.zeros(lines.shape[1] - 1, np.uint8)
    for number, line in enumerate(lines):
        kind, values = int(line[0]), line[1:]
        if kind == 0:
            pixels[number] = values
        elif kind == 1:
            pixels[number] = np.cumsum(values.reshape(-1, samples), axis=0, dtype=np.uint8).ravel()
        elif kind == 2:
            pixels[number] = values + above
        elif kind in (3, 4):
            pixels[number] = _guessed(values.tolist(), above.tolist(), samples, paeth=kind == 4)
        else:
            raise NotAPictureError("a PNG file with an unknown filter")
        above = pixels[number]
    return pixels


def _guessed(values: list[int], above: list[int], samples: int, *, paeth: bool) -> list[int]:
    """A line whose entries were guessed from those before: by their mean, or by the nearest of three (Paeth)."""
    line: list[int] = []
    for place, value in enumerate(values):
        left, corner = (line[place - samples], above[place - samples]) if place >= samples else (0, 0)
        guess = (left + above[place]) // 2
        if paeth:
            gradient = left + above[place] - corner
            guess = min((left, above[place], corner), key=lambda near: abs(gradient - near))
        line.append((value + guess) & 255)
    return line


Pixels = tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]


def column_pixels(column: Any, shape: tuple[int, int]) -> Pixels | None:
    """The pixels of a column of pictures, line by line; where there is nothing; and where there is a picture, or nothing.

    A picture is a list of its numbers, the bytes of a PNG file, or a struct with such `bytes`. None for columns of other types.
    """
    kinds = pa.types
    if kinds.is_struct(column.type) and column.type.get_field_index("bytes") >= 0:
        inner = compute.struct_field(column, "bytes")
        column = compute.if_else(compute.is_valid(column), inner, None)
    if kinds.is_binary(column.type) or kinds.is_large_binary(column.type):
        return _decoded(column.to_pylist(), shape)
    if kinds.is_list(column.type) or kinds.is_large_list(column.type) or kinds.is_fixed_size_list(column.type):
        inner = column.type.value_type
        return _listed(column, shape) if kinds.is_integer(inner) or kinds.is_floating(inner) or kinds.is_null(inner) else None
    return None


def picture_shapes(column: Any) -> set[tuple[int, int] | None]:
    """The shapes of a column of PNG files; None among them for what is none."""
    if pa.types.is_struct(column.type) and column.type.get_field_index("bytes") >= 0:
        column = compute.struct_field(column, "bytes")
    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        return {None}
    shapes: set[tuple[int, int] | None] = set()
    for file in column.drop_null().to_pylist():
        try:
            height, width = png_pixels(file).shape
            shapes.add((height, width))
        except NotAPictureError:
            shapes.add(None)
    return shapes


def _decoded(files: list[bytes | None], shape: tuple[int, int]) -> Pixels:
    pixels, missing = np.zeros((len(files), *shape)), np.array([file is None for file in files], dtype=bool)
    valid = missing.copy()
    for place, file in enumerate(files):
        if file is None:
            continue
        try:
            picture = png_pixels(file)
        except NotAPictureError:
            picture = np.zeros((0, 0), np.uint8)
        valid[place] = picture.shape == shape
        if valid[place]:
            pixels[place] = picture
    return pixels.reshape(len(files), -1), missing, valid


def _listed(column: Any, shape: tuple[int, int]) -> Pixels:
    size = shape[0] * shape[1]
    missing = np.asarray(compute.is_null(column))
    lengths = np.asarray(compute.fill_null(compute.list_value_length(column), size))
    whole = ~missing & (lengths == size)
    kept = column.filter(pa.array(whole))
    numbers = compute.list_flatten(kept).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False).reshape(-1, size)
    pixels = np.zeros((len(column), size))
    pixels[whole] = numbers
    finite = np.isfinite(pixels).all(axis=1)
    pixels[~finite] = 0
    return pixels, missing, (missing | whole) & finite


def picture_files(folder: Path) -> list[Path]:
    """The PNG files of a folder and of those in it, in the order of their names."""
    files = [file for file in sorted(folder.glob("*.png")) + sorted(folder.glob("*/*.png")) if not file.name.startswith(".")]
    return [file for file in files if file.is_file()]


def picture_batches(folder: Path, columns: list[str] | None, most: int) -> Iterator[Any]:
    """The pictures of a folder, each with the name of the folder that it lies in: its label."""
    files = picture_files(folder)
    for start in range(0, len(files), most):
        some = files[start : start + most]
        table: dict[str, Any] = {LABEL: pa.array([file.parent.name for file in some], pa.string())}
        if columns is None or PICTURE in columns:
            try:
                table[PICTURE] = pa.array([file.read_bytes() for file in some], pa.binary())
            except OSError as problem:
                raise FileError(str(folder), f"a file that cannot be read ({problem.strerror})", "readable", "Check it.") from None
        yield pa.RecordBatch.from_pydict({name: table[name] for name in (columns or table)})
