"""Feature maps and pictures in files: a schema states them, every reader computes them, and what is no picture is refused."""

from __future__ import annotations

import io
import json
import struct
import sys
import zlib
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image as Pillow
from pyarrow import parquet

from croupier.cli import main
from croupier.features import FeatureMap, FourierFeatures, GroupNorm, Projection, Scattering
from croupier.table import Schema, TableModel, draft, fit_table, predict_table
from croupier.table._encode import Encoder
from croupier.table._pictures import NotAPictureError, png_pixels
from croupier.table._read import Source
from croupier.table.apply import read_table
from croupier.table.schema import Image, Numeric, Target
from croupier.validation import ArgumentError

RNG = np.random.default_rng(7)
DIGITS = FeatureMap([Scattering((8, 12)), GroupNorm(27), Projection(40)])
SCHEMA = Schema({"image": Image((8, 12))}, Target("label", classes=("0", "1")), features=DIGITS.to_dict())
BARE = Schema({"image": Image((8, 12))}, Target("label", classes=("0", "1")))
TOML = """
rows = "unit"
[target]
column = "ill"
classes = ["no", "yes"]
[features]
steps = [{kind = "fourier", size = 60, scale = 0.5}]
[columns.age]
low = 0
high = 100
[columns.weight]
low = 40
high = 120
missing = true
"""


def bars(count):
    """Pictures of lines, upright or lying: pixels do not tell, waves do."""
    labels = RNG.integers(0, 2, count)
    pictures = np.zeros((count, 8, 12), np.uint8)
    for picture, label in zip(pictures, labels, strict=True):
        lines = picture if label else picture.T
        lines[RNG.integers(0, 2) :: 2] = RNG.integers(100, 256)
    return pictures, labels


def png(picture):
    stream = io.BytesIO()
    Pillow.fromarray(picture).save(stream, format="png")
    return stream.getvalue()


def write(path, column, labels):
    parquet.write_table(pa.table({"image": column, "label": [str(label) for label in labels]}), path)
    return path


def columns_of(pictures):
    flat = pictures.reshape(len(pictures), -1)
    files = [png(picture) for picture in pictures]
    return {
        "fixed": pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), flat.shape[1]),
        "floats": pa.array(flat.astype(np.float64).tolist()),
        "large": pa.array(flat.tolist(), pa.large_list(pa.int16())),
        "png": pa.array(files, pa.binary()),
        "struct": pa.array([{"bytes": file, "path": None} for file in files]),
    }


def expected(pictures, feature_map=None):
    rows = pictures.reshape(len(pictures), -1) / 255
    if feature_map is None:
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return feature_map.transform(rows)


@pytest.mark.parametrize("how", ["fixed", "floats", "large", "png", "struct"])
def test_pictures_in_a_column_of_parquet(how, tmp_path):
    pictures, labels = bars(30)
    source = Source(write(tmp_path / "people.parquet", columns_of(pictures)[how], labels))
    X, y = read_table(SCHEMA, source)
    assert np.abs(X - expected(pictures, DIGITS)).max() < 3e-7
    assert np.linalg.norm(X.astype(np.float64), axis=1).max() <= 1
    assert y.tolist() == [str(label) for label in labels]
    plain, _ = read_table(BARE, source)
    assert np.abs(plain - expected(pictures)).max() < 3e-7


def test_a_folder_of_pictures(tmp_path):
    pictures, labels = bars(20)
    for number, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
        (tmp_path / str(label)).mkdir(exist_ok=True)
        (tmp_path / str(label) / f"{number:03}.png").write_bytes(png(picture))
    source = Source(tmp_path)
    assert source.names == ["image", "label"]
    X, y = read_table(SCHEMA, source)
    order = np.argsort(labels, kind="stable")
    assert y.tolist() == [str(label) for label in labels[order]]
    assert np.abs(X - expected(pictures[order], DIGITS)).max() < 3e-7
    assert [len(piece) for piece in source.pieces(Encoder(SCHEMA).types(target=True), most=8)] == [8, 8, 4]
    assert source.count_rows("label").total() == 20
    (tmp_path / "0" / "zzz.png").write_bytes(b"no picture")
    with pytest.raises(ArgumentError, match=r"column 'image'.*should be 8 x 12 finite numbers, or a PNG file of that size"):
        read_table(SCHEMA, source)
    with pytest.raises(ArgumentError, match="no CSV, Parquet or PNG"):
        Source(tmp_path.parent / "empty" if (tmp_path.parent / "empty").mkdir() is None else tmp_path)


def test_pixels_in_columns_of_csv_are_the_same(tmp_path):
    """What stands in columns of its own needs no picture: the map takes entries, wherever they come from."""
    pictures, labels = bars(12)
    names = [f"pixel{place}" for place in range(96)]
    lines = [
        ",".join([*names, "label"]),
        *(",".join(map(str, [*p.ravel(), label])) for p, label in zip(pictures, labels, strict=True)),
    ]
    (tmp_path / "people.csv").write_text("\n".join(lines) + "\n")
    schema = Schema(dict.fromkeys(names, Numeric(0, 255)), SCHEMA.target, features=DIGITS.to_dict())
    X, _ = read_table(schema, Source(tmp_path / "people.csv"))
    rows = pictures.reshape(12, -1) / 127.5 - 1
    assert np.abs(X - DIGITS.transform(rows)).max() < 3e-7
    with pytest.raises(ArgumentError, match="a picture in CSV; it should be in Parquet or a folder"):
        read_table(Schema({"pixel0": Image((8, 12))}, SCHEMA.target), Source(tmp_path / "people.csv"))


def test_a_draft_finds_pictures_by_their_files(tmp_path):
    pictures, labels = bars(9)
    columns = columns_of(pictures)
    table = {"files": columns["png"], "structs": columns["struct"], "lists": columns["fixed"], "age": list(range(20, 29))}
    mixed = [png(pictures[0].T), *columns["png"].to_pylist()[1:]]
    table |= {"mixed": pa.array(mixed), "label": [str(label) for label in labels]}
    parquet.write_table(pa.table(table), tmp_path / "sample.parquet")
    schema, _, left_out = draft(Source(tmp_path / "sample.parquet"), "label")
    assert {name: column for name, column in schema.columns.items() if name != "age"} == dict.fromkeys(
        ("files", "structs"), Image((8, 12))
    )
    reason = "neither numbers nor texts; if these are pictures, state their shape = [height, width]"
    assert left_out == [f"lists: {reason}", f"mixed: {reason}"]


def test_a_table_of_numbers_through_a_map(tmp_path):
    schema = Schema.from_toml(TOML)
    (tmp_path / "people.csv").write_text("age,weight,ill\n25,80,no\n75,,yes\n")
    X, _ = read_table(schema, Source(tmp_path / "people.csv"))
    entries = [[-0.5, 0.0, 0.0], [0.5, 0.0, 1.0]]
    assert np.abs(X - FourierFeatures(60, scale=0.5).transform(entries)).max() < 3e-7
    assert Encoder(schema).names[:2] == ("fourier[0]", "fourier[1]")
    assert (len(Encoder(schema).names), Encoder(schema).entries, Encoder(schema).norm) == (60, 3, 1.0)


@pytest.mark.parametrize("schema", [SCHEMA, BARE, Schema.from_toml(TOML), Schema({"a": Image((4, 5), -1, 1)}, SCHEMA.target)])
def test_a_schema_states_its_map_and_pictures(schema):
    assert Schema.from_toml(schema.to_toml()) == schema
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (('scale = 0.5', 'scale = 0'), "schema: features: scale = 0 is not allowed"),
        (('kind = "fourier"', 'kind = "deep"'), r"schema: features.steps\[0\].kind = 'deep'"),
        (('size = 60', 'size = 60, rank = 2'), r"schema: features.steps\[0\].rank"),
        (('"unit"', '"as-is"'), "schema: rows = 'as-is' is not allowed: it must be 'unit' if features are given"),
        (('kind = "fourier", size = 60, scale = 0.5', 'kind = "scattering", shape = [8, 8]'), "features: X has 3 columns"),
        (('low = 0\nhigh = 100', 'shape = [8]'), r"columns.age.shape = \[8\] is not allowed: it must be \[height, width\]"),
        (('low = 0\nhigh = 100', 'shape = [8, 0]'), "columns.age.shape = 0"),
        (('low = 0\nhigh = 100', 'shape = [8, 8]\nlow = 300'), "low < high"),
        (('low = 0\nhigh = 100', 'shape = [8, 8]\nlevels = ["a"]'), "unknown key 'shape'"),
    ],
)  # fmt: skip
def test_a_schema_that_states_no_map_is_refused(change, text):
    with pytest.raises(ArgumentError, match=text):
        Schema.from_toml(TOML.replace(*change))


def test_what_is_no_picture_is_refused_or_blank(tmp_path):
    pictures, labels = bars(7)
    rows = [picture.ravel().tolist() for picture in pictures]
    rows[1], rows[3], rows[4], rows[5] = None, rows[3][:-1], [float("nan")] * 96, [1e9] * 96
    source = Source(write(tmp_path / "odd.parquet", pa.array(rows), labels))
    with pytest.raises(ArgumentError, match=r"odd.parquet, row 4, column 'image': 'a picture' should be 8 x 12 finite numbers"):
        read_table(SCHEMA, source)
    encoder = Encoder(BARE, "blank")
    (piece,) = source.pieces(encoder.types(target=True))
    found = encoder.rows(piece)
    assert np.isnan(found).all(axis=1).tolist() == [False, False, False, True, True, False, False]
    assert not found[1].any()  # nothing is black
    assert np.allclose(found[5], 1 / np.sqrt(96))  # clipped
    mapped = Encoder(SCHEMA, "blank")
    assert np.isnan(mapped.rows(piece)).all(axis=1).tolist() == [False, False, False, True, True, False, False]
    text = Source(write(tmp_path / "text.parquet", pa.array(["a"] * 7), labels))
    with pytest.raises(ArgumentError, match="of type string; it should be lists of numbers, or the bytes of PNG files"):
        read_table(SCHEMA, text)


def test_commands_fit_predict_and_evaluate_pictures(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pictures, labels = bars(1200)
    write(tmp_path / "people.parquet", pa.array(pictures.reshape(1200, -1).tolist()), labels)
    (tmp_path / "facts.toml").write_text(SCHEMA.to_toml())
    assert not run(
        "fit", "people.parquet", "--schema", "facts.toml", "--epsilon", "4", "--seed", "1", "--quiet", "-o", "model.json"
    )
    assert not run("predict", "model.json", "people.parquet", "-o", "answers.csv")
    capsys.readouterr()
    assert not run("evaluate", "model.json", "people.parquet", "--json")
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0.95
    model = TableModel.load(tmp_path / "model.json")
    assert model.schema == SCHEMA
    told = [batch.column(0).to_pylist() for batch in predict_table(model, Source(tmp_path / "people.parquet"))]
    assert np.mean(np.concatenate(told) == labels.astype(str)) > 0.95
    assert not run("report", "model.json", "-o", "page.html")
    assert "pictures of 8 x 12 pixels, 0 to 255" in (tmp_path / "page.html").read_text()
    with pytest.raises(
        ArgumentError, match="features is stated in the schema; it must be left out for a regression with intervals"
    ):
        fit_table("people.parquet", SCHEMA, task="logit", epsilon=1.0)


def run(*arguments):
    with mock.patch.object(sys, "argv", ["croupier", *arguments]):
        try:
            main()
        except SystemExit as stop:
            return stop.code


# PNG files: every filter and colour, beside Pillow.


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def written(pixels, colour, filters):
    """A PNG file whose lines have these filters, one after the other."""
    height, width, samples = pixels.shape
    lines, above = b"", np.zeros(width * samples, np.int64)
    for number, line in enumerate(pixels.reshape(height, -1).astype(np.int64)):
        left, corner = (np.concatenate([np.zeros(samples, np.int64), some[:-samples]]) for some in (line, above))
        gradient = left + above - corner
        near = np.abs(np.stack([left, above, corner]) - gradient).argmin(axis=0)
        paeth = np.choose(near, [left, above, corner])
        kind = filters[number % len(filters)]
        guess = (np.zeros_like(line), left, above, (left + above) // 2, paeth)[kind]
        lines += bytes([kind]) + ((line - guess) % 256).astype(np.uint8).tobytes()
        above = line
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    data = zlib.compress(lines)
    parts = [(b"IHDR", header), (b"tEXt", b"Title\0x"), (b"IDAT", data[:9]), (b"IDAT", data[9:]), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


@pytest.mark.parametrize(("colour", "samples"), [(0, 1), (2, 3), (4, 2), (6, 4)])
@pytest.mark.parametrize("filters", [(0,), (1,), (2,), (3,), (4,), (4, 3, 2, 1, 0)])
def test_pixels_are_those_that_pillow_reads(colour, samples, filters):
    file = written(RNG.integers(0, 256, (9, 7, samples)), colour, filters)
    theirs = Pillow.open(io.BytesIO(file))
    theirs = theirs.convert("RGB") if samples == 4 else theirs  # without transparency
    assert np.array_equal(png_pixels(file), np.asarray(theirs.convert("L")))


@pytest.mark.parametrize(
    "spoiled",
    [
        lambda file: b"",
        lambda file: file[:-30],
        lambda file: file[:40] + bytes([file[40] ^ 1]) + file[41:],
        lambda file: b"GIF89a" + file,
        lambda file: written(RNG.integers(0, 256, (4, 4, 1)), 3, (0,)),
        lambda file: file.replace(struct.pack(">II", 7, 9), struct.pack(">II", 2**31, 2**31)),
        lambda file: written(RNG.integers(0, 256, (4, 4, 1)), 0, (0,)).replace(chunk(b"IEND", b""), chunk(b"IDAT", b"x" * 40)),
    ],
)
def test_what_is_no_png_file_is_refused(spoiled):
    file = spoiled(written(RNG.integers(0, 256, (9, 7, 1)), 0, (1,)))
    try:
        png_pixels(file)
    except NotAPictureError:
        return
    assert b"x" * 40 in file  # what follows the picture does not count
