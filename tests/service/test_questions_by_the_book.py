"""Questions a third time, from clients/computing.md alone and without the library: what that page leaves out fails here."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import struct
import unicodedata
from datetime import date
from pathlib import Path

import pytest

VECTORS = json.loads((Path(__file__).parent / "vectors" / "questions.json").read_text(encoding="utf-8"))
NULLS = {"", " ", "NA", "N/A", "NULL", "null", "NaN", "nan", "n/a", "#N/A"}


def single(number: float) -> float:
    return struct.unpack("<f", struct.pack("<f", number))[0]


def number(text: str) -> float | None:
    """A number, None where it is missing; ValueError for text that is no number."""
    if text in NULLS:
        return None
    if "_" in text or "\u00a0" in text:
        raise ValueError(text)
    value = float(text)
    return None if math.isnan(value) else value


def counted(text: str) -> float | None:
    try:
        return number(text)
    except ValueError:
        return None


def root(m: int, j: int, w: float) -> list[float]:
    r = [1.0]
    for i in range(1, m):
        r.append(r[-1] * ((2 * i - 1) / (2 * i)))
    total = 0.0
    for entry in r:
        total += entry * entry
    return [0.0] * j + [w * (entry / math.sqrt(total)) for entry in r[: m - j]]


def one_hot(m: int, j: int, w: float) -> list[float]:
    return [w if i == j else 0.0 for i in range(m)]


def level(levels: list, text: str) -> int | None:
    words = [str(one).lower() if isinstance(one, bool) else str(one) for one in levels]
    text = text.strip()
    if {word.lower() for word in words} == {"true", "false"}:
        words, text = [word.lower() for word in words], text.lower()
    return words.index(text) if text in words else None


def number_bin(column: dict, value: float | None) -> tuple[int, int]:
    """The bin, and how many there are."""
    edges = column["edges"]
    own_zero = 0 in edges and not column["whole"]
    size = len(edges) + 2 + own_zero
    if value is None:
        return size - 1, size
    n = len(edges) - 1
    place = n if value == edges[n] else sum(edge <= value for edge in edges)
    return place + (own_zero and value > 0), size


def describe(query: dict, record: dict) -> list[float]:
    parts = [0.4 if "levels" in column else 1.0 for column in query["columns"]]
    total, vector = math.fsum(parts), []
    for column, part in zip(query["columns"], parts, strict=True):
        text, weight = record[column["name"]], math.sqrt(part / total)
        if "levels" in column:
            place, known = level(column["levels"], text), len(column["levels"])
            place = known + 1 if not text.strip() else known if place is None else place
            vector += one_hot(known + 2, place, weight)
        else:
            place, size = number_bin(column, counted(text))
            vector += root(size, place, weight)
    return vector


def histogram(query: dict, record: dict) -> list[float]:
    value, low, high, bins = counted(record[query["column"]]), query["low"], query["high"], query["bins"]
    if value is None:
        return [0.0] * bins
    place = (value - low) / (high - low) * bins
    return one_hot(bins, int(min(max(place, 0), bins - 1)), 1.0)


MASK = 2**64 - 1


def mixed(z: int) -> int:
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def words(query: dict, record: dict) -> list[float]:
    text = unicodedata.normalize("NFC", record[query["column"]].strip()).replace("\0", "").strip()
    cut = text.encode()[: query["max_bytes"]].decode(errors="ignore").strip().encode()
    cells, bits = query["cells"], query["cells"].bit_length() - 1
    vector = [0.0] * (cells + cells // 2)
    if not cut:
        return vector
    halves = [half for byte in cut for half in (byte >> 4, byte & 15)]
    symbols = [(halves[0] << 8) + (halves[1] << 4) + (halves[2] if len(cut) > 1 else 0), *halves[3:]]
    state = mixed((query["hash_seed"] + 0x9E3779B97F4A7C15) & MASK)
    size = 1 / math.sqrt(query["per_person"] * (len(symbols) + 4))
    for symbol in symbols:
        state = mixed((state + (symbol + 1) * 0x9E3779B97F4A7C15) & MASK)
        vector[state >> (64 - bits)] = size
    for check in range(4096, 4100):
        vector[cells + (mixed((state + (check + 1) * 0x9E3779B97F4A7C15) & MASK) >> (65 - bits))] = size
    return vector


def table(query: dict, record: dict) -> list[float]:
    places, sizes = [], []
    for column in query["columns"]:
        text = record[column["name"]]
        if "levels" in column:
            place, last = level(column["levels"], text), len(column["levels"])
        else:
            value, last = counted(text), len(column["edges"]) - 1
            place = None if value is None else min(max(sum(edge <= value for edge in column["edges"]) - 1, 0), last - 1)
        places.append(last if place is None else place)
        sizes.append(last + 1)
    if query["by"]:
        group = 0
        for place, size in zip(places[:-1], sizes[:-1], strict=True):
            group = group * size + place
        before = [0.0] * (group * sizes[-1])
        return [*before, *root(sizes[-1], places[-1], 1.0), *[0.0] * (math.prod(sizes) - len(before) - sizes[-1])]
    cell = 0
    for place, size in zip(places, sizes, strict=True):
        cell = cell * size + place
    m = query["marginals"] if len(sizes) > 1 else 0.0
    vector = one_hot(math.prod(sizes), cell, math.sqrt(1 - m))
    for place, size in zip(places, sizes, strict=True):
        vector += one_hot(size, place, math.sqrt(m / len(sizes))) if m else []
    return vector


def stream(query: dict, record: dict) -> list[float]:
    found = re.match(r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?![0-9])", record[query["column"]].strip())
    vector = [0.0] * query["days"]
    try:
        day = (date(*map(int, found.groups())) - date.fromisoformat(query["start"])).days if found else -1
    except ValueError:
        day = -1
    r = 1.0
    for i in range(query["days"] - day if day >= 0 else 0):
        r = r * ((2 * i - 1) / (2 * i)) if i else 1.0
        vector[day + i] = r
    return vector


def row(schema: dict, record: dict) -> list[float]:
    """In single precision, without the constant, not divided by as-is."""
    entries: list[float] = []
    for column in schema["columns"]:
        text = record[column["name"]]
        if "levels" in column:
            place = level(column["levels"], text)
            entries += one_hot(len(column["levels"]), -1 if place is None else place, 1.0)
            continue
        value, low, high = number(text), column["low"], column["high"]
        inside = min(max(low if value is None else value, low), high)
        log = column.get("scale") == "log"
        share = math.log1p(inside - low) / math.log1p(high - low) if log else (inside - low) / (high - low)
        entries.append(0.0 if value is None else min(max(2 * share - 1, -1.0), 1.0))
        entries += [float(value is None)] if column.get("missing") else []
    length = math.sqrt(math.fsum(entry * entry for entry in entries)) or 1.0
    return [single(entry / (length * (1 + 1e-7)) if schema["rows"] == "unit" else entry) for entry in entries]


def regression(query: dict, record: dict) -> list[float]:
    schema = query["schema"]
    low, high = schema["target"]["range"]
    norm = 1.0 if schema["rows"] == "unit" else math.sqrt(len(schema["columns"]))
    x = [entry * (1 / (norm * math.sqrt(2))) for entry in row(schema, record)] + [1 / math.sqrt(2)]
    target = number(record[schema["target"]["column"]])
    y = (min(max(target, low), high) - (low + high) / 2) / ((high - low) / 2)
    pairs = [(i, j) for i in range(len(x)) for j in range(i, len(x))]
    squares = [x[i] * x[j] * (0.68 if i == j else 0.68 * math.sqrt(2)) for i, j in pairs]
    return squares + [0.68 * (entry * y) for entry in x] + [0.27 * y * y]


def softmax(scores: list[float]) -> list[float]:
    powers = [math.exp(score - max(scores)) for score in scores]
    return [power / sum(powers) for power in powers]


def sigmoid(score: float) -> float:
    return 1 / (1 + math.exp(-score))


def score_bin(p: float) -> int:
    edges = [0.5 if i == 20 else math.sin(math.pi * i / 80) ** 2 for i in range(41)]
    return min(max(sum(edge < p for edge in edges) - 1, 0), 39)


def evaluate(query: dict, record: dict) -> list[float]:
    model = query["model"]
    schema, limit = model["schema"], model["feature_norm"]
    x = row(schema, record)
    length = math.sqrt(math.fsum(entry * entry for entry in x))
    if length > limit * (1 + 1e-6):
        x, length = [entry * (limit / length) for entry in x], limit
    z = [
        math.fsum(c * e for c, e in zip(coef, x, strict=True)) + b
        for coef, b in zip(model["coef"], model["intercept"], strict=True)
    ]
    target = schema["target"]
    if "range" in target:
        return errors(z[0], number(record[target["column"]]), target["range"], "quantile" in model)
    classes = sorted(target["classes"])
    t, k = level(classes, record[target["column"]]), len(classes)
    odds = z
    if "clipped" in model:
        clipped = model["clipped"]
        far = math.hypot(length / limit, clipped["constant"]) / clipped["norm"]
        p = softmax(z) if k > 2 else []
        slopes = [sigmoid(z[0]), sigmoid(-z[0])]
        if k > 2:
            slopes = [math.sqrt(sum((p[j] - (j == c)) ** 2 for j in range(k))) for c in range(k)]
        shorter = [math.log(max(1.0, far * slope * weight)) for slope, weight in zip(slopes, clipped["weights"], strict=True)]
        odds = [one + more for one, more in zip(z, shorter, strict=True)] if k > 2 else [z[0] + shorter[1] - shorter[0]]
    if k == 2:
        place = score_bin(sigmoid(odds[0]))
        cells = [root(40, place, math.sqrt(0.8)) if label == t else [0.0] * 40 for label in (0, 1)]
        return cells[0] + cells[1] + [math.sqrt(0.2) * (1 if (place >= 20) == t else -1)]
    p, a = softmax(odds), z.index(max(z))
    vector = [*one_hot(k * k, a * k + t, math.sqrt(0.16)), math.sqrt(0.15) * (1 if a == t else -1)]
    u = 0.55 / (k - 1 + (k - 1) ** 1.5)
    for c in range(k):
        written = root(40, score_bin(p[c]), math.sqrt(u * (k - 1) ** 1.5 if c == t else u))
        vector += [0.0] * 40 + written if c == t else written + [0.0] * 40
    q = min(1.0, -math.log(p[t]) / 7)
    return [*vector, math.sqrt(0.13) * q, 0.1 * q * q]


def errors(prediction: float, target: float, ends: list[float], quantile: bool) -> list[float]:
    y, z = ((min(max(value, ends[0]), ends[1]) - ends[0]) / (ends[1] - ends[0]) for value in (target, prediction))
    r = abs(y - z)
    vector = [0.5 * r, r**2, 0.25 * r**4, 0.5 * y, 0.5 * y**2, 0.3 * (y <= z)]
    return vector + (one_hot(20, min(9, math.floor(10 * z)) + 10 * (y <= z), 0.5) if quantile else [])


KINDS = {
    "describe": describe,
    "histogram": histogram,
    "words": words,
    "table": table,
    "stream": stream,
    "regression": regression,
    "evaluate": evaluate,
}


@pytest.mark.parametrize("one", VECTORS, ids=lambda one: one["about"])
def test_the_page_says_all_that_a_question_needs(one):
    lines = [line for line in one["file"].split("\n") if line]
    records = list(csv.DictReader(io.StringIO("\n".join(lines))))
    assert len(records) == len(one["vectors"])
    for record, entries in zip(records, one["vectors"], strict=True):
        wanted = [0.0] * one["dim"]
        for place, entry in entries:
            wanted[place] = entry
        got = KINDS[one["words"]["kind"]](one["words"], record)
        # of rows: sums in another order than the library's, so they may differ in the last digit of single precision
        rows = one["words"]["kind"] in ("regression", "evaluate")
        assert got == (pytest.approx(wanted, rel=0, abs=1e-6) if rows else wanted), record
        assert math.sqrt(math.fsum(entry * entry for entry in got)) <= one["norm"] * (1 + 1e-12)


def test_the_weights_of_several_classes_stand_in_the_book():
    """They were changed in the code and in both clients, and the book kept the old ones."""
    book = (Path(__file__).parents[2] / "clients" / "computing.md").read_text(encoding="utf-8")
    squares = {one["about"]: one["diameter"] ** 2 for one in VECTORS}
    assert f"80 k + 2 | 1 | sqrt {squares['four classes']:.6g} |" in book
    assert "entry k^2 is +-sqrt(0.15)" in book
    assert "u = 0.55 / (k - 1 + (k - 1)^1.5)" in book
