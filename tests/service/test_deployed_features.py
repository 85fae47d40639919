"""Feature maps and pictures in deployed tasks: signed words state the map, and every client computes it of its own record."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from helpers_node import asked, needs_node
from PIL import Image as Pillow

from croupier.features import FeatureMap, FourierFeatures, GroupNorm, Projection, Scattering
from croupier.service.analyzer.task_file import QueryFile, TaskFile
from croupier.service.wire.documents import TASK, Document, WireError, canonical, sha256
from croupier.service.wire.task import Task
from croupier.table import Schema, fit_table
from croupier.table.schema import Image, Numeric, Target
from croupier.validation import ArgumentError

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
SHUFFLER = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()
DIGITS = FeatureMap([Scattering((8, 12)), GroupNorm(27), Projection(5)])
PICTURES = Schema({"image": Image((8, 12))}, Target("digit", classes=("0", "1", "2")), features=DIGITS.to_dict())
NUMBERS = Schema(
    {"age": Numeric(0, 100)}, Target("ill", classes=("no", "yes")), features=FeatureMap([FourierFeatures(4, scale=0.5)]).to_dict()
)
PICTURE = np.random.default_rng(3).integers(0, 256, (8, 12), dtype=np.uint8)


def task_of(folder, schema, more=""):
    (folder / "facts.toml").write_text(schema.to_toml())
    (folder / "task.toml").write_text(f'schema = "facts.toml"\nusers = 2000\nshuffler_key = "{SHUFFLER}"\n{more}')
    return TaskFile.load(folder / "task.toml").task()


def test_a_client_computes_the_map_that_the_task_states(tmp_path):
    document = task_of(tmp_path, PICTURES).document(KEY)
    query = Task.read(document, KEY.public_key()).query
    stream = io.BytesIO()
    Pillow.fromarray(PICTURE).save(stream, format="png")
    expected = DIGITS.transform(PICTURE.reshape(1, -1) / 255)[0]
    for told in (PICTURE, PICTURE.tolist(), PICTURE.ravel().tolist(), stream.getvalue()):
        X, y = query.read_records({"image": told, "digit": "2"})
        assert X.shape == (1, 6)
        assert np.abs(X[0, :-1] - expected).max() < 3e-7
        assert y.tolist() == [2]
    X, _ = query.read_records([{"image": None, "digit": "0"}, {"image": PICTURE, "digit": "1"}])
    assert np.abs(X[1, :-1] - expected).max() < 3e-7
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "mine.png").write_bytes(stream.getvalue())
    named = Schema(PICTURES.columns, Target("label", classes=("0", "1")), features=PICTURES.features)
    X, y = Task.read(task_of(tmp_path, named).document(KEY), KEY.public_key()).query.read_file(tmp_path)
    assert np.abs(X[0, :-1] - expected).max() < 3e-7
    assert y.tolist() == [1]


@pytest.mark.parametrize("wrong", ["text", b"no png", PICTURE[:7], PICTURE.tolist()[:3], [np.nan] * 96, 5, {"a": 1}, [[1], [2, 3]]])
def test_what_is_no_picture_is_refused_without_a_word_of_it_or_blank(tmp_path, wrong):
    query = Task.read(task_of(tmp_path, PICTURES).document(KEY), KEY.public_key()).query
    with pytest.raises(ArgumentError, match=r"image.*a value that is not shown"):
        query.read_records({"image": wrong, "digit": "2"})
    query = Task.read(task_of(tmp_path, PICTURES, 'invalid = "blank"\n').document(KEY), KEY.public_key()).query
    X, y = query.read_records([{"image": wrong, "digit": "2"}, {"image": PICTURE, "digit": "2"}])
    assert not X[0].any()
    assert y[0] == 0
    assert X[1].any()


def changed(document, change):
    words = json.loads(document.text)
    change(words["records"]["schema"])
    words["id"] = sha256(canonical({name: value for name, value in words.items() if name != "id"}))
    return Document.signed(TASK, words, KEY)


CHANGES = [
    lambda schema: schema["features"]["steps"][0].update(kind="deep"),
    lambda schema: schema["features"]["steps"][0].update(size=5),
    lambda schema: schema["features"]["steps"][0].update(size=6),
    lambda schema: schema["features"]["steps"][0].update(size=2**30),
    lambda schema: schema["features"]["steps"][0].update(scale=0.0),
    lambda schema: schema["features"]["steps"][0].update(seed=-1),
    lambda schema: schema["features"]["steps"][0].update(rank=3),
    lambda schema: schema["features"]["steps"][0].pop("seed"),
    lambda schema: schema["features"].update(steps=[]),
    lambda schema: schema["features"].update(norm=2.0),
    lambda schema: schema["features"]["steps"].append({"kind": "scattering", "shape": [8, 8]}),
    lambda schema: schema["features"]["steps"].append({"kind": "group-norm", "groups": 3, "epsilon": 1e-5}),
    lambda schema: schema.update(features=None),
    lambda schema: schema.update(rows="as-is"),
    lambda schema: schema["columns"][0].update(shape=[2, 2], missing=True),
    lambda schema: schema["columns"].append({"name": "picture", "shape": [2]}),
    lambda schema: schema["columns"].append({"name": "picture", "shape": [2, 2], "low": 3.0, "high": 3.0}),
]


@pytest.mark.parametrize("place", range(len(CHANGES)))
def test_a_task_with_a_map_that_is_none_is_refused(tmp_path, place):
    document = changed(task_of(tmp_path, NUMBERS).document(KEY), CHANGES[place])
    with pytest.raises(WireError):
        Task.read(document, KEY.public_key()).query.read_records({"age": 5.0, "ill": "no"})


@pytest.mark.process
@needs_node
def test_the_typescript_client_takes_and_refuses_the_same_tasks(tmp_path):
    good = [task_of(tmp_path, schema).document(KEY) for schema in (NUMBERS, PICTURES)]
    bad = [changed(good[0], change) for change in CHANGES]
    documents = [document.to_bytes().hex() for document in good + bad]
    answers = asked("tasks", documents=documents, key=KEY.public_key().public_bytes_raw().hex(), delta=1e-6)
    assert ["refused" in answer for answer in answers] == [False] * len(good) + [True] * len(bad)


def test_a_model_on_a_map_is_evaluated_by_clients(tmp_path):
    ages = np.random.default_rng(0).uniform(0, 100, 1500)
    lines = [f"{age:.1f},{'yes' if 30 < age < 70 else 'no'}" for age in ages]
    (tmp_path / "people.csv").write_text("\n".join(["age,ill", *lines, ""]))
    fit_table(tmp_path / "people.csv", NUMBERS, epsilon=4.0, rounds=3).save(tmp_path / "model.json")
    (tmp_path / "ask.toml").write_text(f'query = "evaluate"\nmodel = "model.json"\nusers = 1000\nshuffler_key = "{SHUFFLER}"\n')
    read = Task.read(QueryFile.load(tmp_path / "ask.toml").task().document(KEY), KEY.public_key())
    X, y = read.query.read_records({"age": 50.0, "ill": "yes"})
    assert np.isfinite(read.query.vector(X, y)).all()
