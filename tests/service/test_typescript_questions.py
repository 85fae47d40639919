"""Questions in the TypeScript client against Python: the same vector of the same record, the same refusals, one task for both."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
from helpers_node import CLIENT, ROOT, asked, needs_node, node
from test_typescript import ANALYZER, check_refusals, mutated

from croupier.service.wire.documents import TASK, Document, canonical, sha256
from croupier.service.wire.model_words import ANSWERS
from croupier.service.wire.queries import STATISTICS, StatisticQuery, statistic_from_dict
from croupier.service.wire.task import Task
from croupier.statistics._columns import NumberGuess
from croupier.statistics.asking import plan_for
from croupier.validation import ArgumentError

pytestmark = pytest.mark.process

VECTORS = ROOT / "tests" / "service" / "vectors"
STORED = json.loads((VECTORS / "questions.json").read_text(encoding="utf-8"))
USERS = 30


def maker():
    spec = importlib.util.spec_from_file_location("make_questions", VECTORS / "make_questions.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def dense(entries: list | None, dim: int) -> np.ndarray:
    vector = np.zeros(dim)
    for place, entry in entries or []:
        vector[place] = entry
    return vector


def near(one, other) -> bool:
    """Whether two documents are the same but for the last bits of numbers, which differ between processors."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(near(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(near, one, other))
    return one == (pytest.approx(other, rel=1e-12) if isinstance(other, float) else other)


def test_the_vectors_are_those_that_python_makes():
    for one, other in zip(maker().made(), STORED, strict=True):
        assert near(json.loads(json.dumps(one["words"])), other["words"])
        assert {name: one[name] for name in ("dim", "norm", "diameter")} == {
            name: other[name] for name in ("dim", "norm", "diameter")
        }
        for mine, its in zip([*one["vectors"], one["mean"]], [*other["vectors"], other["mean"]], strict=True):
            got, wanted = dense(mine, one["dim"]), dense(its, one["dim"])
            assert np.allclose(got, wanted, rtol=0, atol=one["tolerance"] * np.abs(wanted).max(initial=1e-300)), one["about"]
        assert one["mu"] == pytest.approx(other["mu"], rel=1e-6)


def test_every_kind_of_question_has_a_vector():
    """A kind that the TypeScript client does not know makes it refuse the task: add it to clients/typescript/src/questions.ts."""
    assert {one["words"]["kind"] for one in STORED} == set(STATISTICS)
    models = [one["words"]["model"] for one in STORED if "model" in one["words"]]
    assert {model["answers"] for model in models} == set(ANSWERS)


@needs_node
def test_every_vector_of_a_question_passes_in_node():
    node("--test", CLIENT / "test" / "questions.test.mjs")


# --- random questions and records -------------------------------------------------------------------------------------------------

ODD = ["", "NA", "nan", "inf", "-inf", "x", "true", "1e400", "-0", " 3 ", "+2", "5e-324", "\t7", "1_0", "\u0661"]
TEXTS = ["e\u0301", "\u00e9", "\u4e2d\u6587", "\U0001f642 x", "aaaaaaaaaaaaaaaa", "aaaaaaaab", "x\u0301\u0301y", "ab c"]
DAY = date(2027, 12, 20)
LEVELS = ["a", "b b", "ä", "True", "false", "1", "1.0", "", "NA", "null"]


def number_text(generator, low: float, high: float) -> str:
    pick = generator.random()
    if pick < 0.15:
        return str(generator.choice(ODD))
    value = generator.uniform(low - 0.2 * (high - low), high + 0.2 * (high - low))
    return str(int(value)) if pick < 0.4 else repr(float(generator.choice([low, high, 0.0, value, value])))


def level_text(generator, levels: list[str]) -> str:
    text = str(generator.choice([*levels, *LEVELS]))
    return generator.choice(["", " ", "\t", "\u00a0"]) + (text.upper() if generator.random() < 0.1 else text)


def ends(generator) -> tuple[float, float]:
    low = float(generator.choice([0, -5, 0.1, 18, -1e4, 1e-3]))
    return low, low + float(generator.choice([1.5, 7.3, 100, 1e6]))


def random_schema(generator, classes: int) -> tuple[dict, list]:
    """A schema, and what makes the text of each of its columns."""
    columns, makers = [], []
    for number in range(generator.integers(1, 5)):
        if generator.random() < 0.4:
            levels = [f"l{n}" for n in range(generator.integers(1, 4))] if generator.random() < 0.7 else ["true", "False"]
            unknown = {"unknown": "refuse"} if generator.random() < 0.2 else {}
            counted = {"reference": str(generator.choice(levels))} if len(levels) > 1 and generator.random() < 0.5 else {}
            columns.append({"name": f"c{number}", "levels": levels, **unknown, **counted})
            makers.append(lambda g, levels=levels: level_text(g, levels))
        else:
            low, high = ends(generator)
            more = {"missing": True} if generator.random() < 0.4 else {}
            columns.append({"name": f"c{number}", "low": low, "high": high, **more})
            makers.append(lambda g, low=low, high=high: number_text(g, low, high))
    if classes:
        labels = generator.permutation(classes).tolist() if generator.random() < 0.5 else [f"k{n}" for n in range(classes)]
        target = {"classes": labels}
        makers.append(lambda g: str(g.choice(labels)) if g.random() < 0.95 else "?")
    else:
        low, high = ends(generator)
        target = {"range": [low, high]}
        makers.append(lambda g: number_text(g, low, high))
    rows = str(generator.choice(["unit", "as-is"]))
    return {"version": 1, "rows": rows, "target": {"column": "t", **target}, "columns": columns}, makers


def random_table(generator) -> tuple[dict, list[str], list]:
    """The same of a table."""
    columns, makers = [], []
    for number in range(generator.integers(1, 4)):
        if generator.random() < 0.5:
            levels = list(dict.fromkeys(generator.choice(LEVELS, size=generator.integers(1, 5)).tolist()))
            columns.append({"name": f"c{number}", "levels": levels})
            makers.append(lambda g, levels=levels: level_text(g, levels))
            continue
        edges = np.unique(generator.normal(size=generator.integers(2, 7))).tolist()
        columns.append({"name": f"c{number}", "edges": edges})
        makers.append(lambda g, edges=edges: repr(float(g.choice(edges))) if g.random() < 0.5 else number_text(g, -2, 2))
    by = len(columns) - 1 if "edges" in columns[-1] and generator.random() < 0.5 else 0
    marginals = float(generator.choice([0.0, 0.3])) if not by else 0.0
    names = [column["name"] for column in columns]
    return {"kind": "table", "columns": columns, "by": by, "marginals": marginals}, names, makers


def random_question(generator) -> tuple[dict, list[str], list]:
    """The words of a question, the columns of a record, and what makes their texts."""
    kind = str(generator.choice(list(STATISTICS)))
    if kind == "histogram":
        low, high = ends(generator)
        words = {"kind": kind, "column": "c0", "low": low, "high": high, "bins": int(generator.integers(1, 50))}
        edges = np.linspace(low, high, words["bins"] + 1)
        return words, ["c0"], [lambda g: repr(float(g.choice(edges))) if g.random() < 0.5 else number_text(g, low, high)]
    if kind == "words":
        sizes = {"max_bytes": int(generator.integers(2, 12)), "per_person": int(generator.integers(1, 4)), "cells": 256}
        words = {"kind": kind, "column": "c0", "mistakes": 0.5, "hash_seed": int(generator.integers(1 << 53))} | sizes
        return words, ["c0"], [lambda g: str(g.choice([*TEXTS, level_text(g, LEVELS)]))]
    if kind == "stream":
        days = int(generator.integers(1, 40))
        words = {"kind": kind, "column": "c0", "start": "2027-12-20", "days": days}
        words |= {"per_person": int(generator.integers(1, min(days, 4) + 1))}
        return words, ["c0"], [lambda g: str(g.choice(ODD)) if g.random() < 0.2 else f"{DAY + timedelta(int(g.integers(-5, 45)))}"]
    if kind == "table":
        return random_table(generator)
    if kind == "describe":
        columns, makers = [], []
        for number in range(generator.integers(1, 5)):
            if generator.random() < 0.4:
                levels = list(dict.fromkeys(generator.choice(LEVELS, size=generator.integers(1, 5)).tolist()))
                columns.append({"name": f"c{number}", "levels": levels})
                makers.append(lambda g, levels=levels: level_text(g, levels))
                continue
            low, high = ends(generator)
            guess = NumberGuess(low, high, whole=bool(generator.random() < 0.4), bins=int(generator.integers(8, 60)))
            edges = guess.edges.tolist()
            words = {"low": low, "high": high, "whole": guess.whole, "bins": guess.bins, "edges": edges}
            columns.append({"name": f"c{number}", **words})
            makers.append(lambda g, edges=edges: repr(float(g.choice(edges))) if g.random() < 0.5 else number_text(g, -9, 99))
        return {"kind": kind, "columns": columns}, [column["name"] for column in columns], makers
    classes = 0 if kind == "regression" else int(generator.choice([0, 2, 3, 5]))
    schema, makers = random_schema(generator, classes)
    names = [column["name"] for column in schema["columns"]] + ["t"]
    if kind == "regression":
        return {"kind": kind, "schema": schema}, names, makers
    features = sum(len(c["levels"]) - ("reference" in c) if "levels" in c else 1 + ("missing" in c) for c in schema["columns"])
    outputs = classes if classes > 2 else 1
    answers = "numbers" if not classes else "margins" if classes == 2 and generator.random() < 0.3 else "probabilities"
    model = {"answers": answers, "schema": schema, "feature_norm": float(generator.choice([0.5, 1.0, 3.0]))}
    model |= {
        "coef": (generator.normal(size=(outputs, features)) * 4).tolist(),
        "intercept": generator.normal(size=outputs).tolist(),
    }
    if answers == "numbers" and generator.random() < 0.5:
        model["quantile"] = 0.9
    if answers == "probabilities" and generator.random() < 0.5:
        weights = [1.0, *generator.uniform(0.1, 1, classes - 1).tolist()]
        model["clipped"] = {"norm": 0.3, "constant": 1.0, "weights": weights}
    return {"kind": kind, "model": model}, names, makers


def by_python(query: StatisticQuery, path: Path) -> np.ndarray | None:
    try:
        X, y = query.read_file(path)
        return query.vector(np.atleast_2d(np.asarray(X, dtype=np.float64)), y)
    except ArgumentError:
        return None


@needs_node
def test_random_records_have_the_same_vector_under_random_questions_and_are_refused_alike(tmp_path):
    generator, cases, wanted = np.random.default_rng(5), [], []
    for _ in range(72):
        words, names, makers = random_question(generator)
        files = []
        for size in [1] * 12 + [3, 9]:  # alone, and several of one user
            lines = [",".join(f'"{make(generator)}"' if make(generator) else "" for make in makers) for _ in range(size)]
            files.append("\n".join([",".join(names), *lines]) + "\n")
        query, vectors = statistic_from_dict(json.loads(json.dumps(words))), []
        for file in files:
            (tmp_path / "people.csv").write_text(file, encoding="utf-8")
            vectors.append(by_python(query, tmp_path / "people.csv"))
        cases.append({"words": words, "files": files})
        wanted.append((query.statistic, vectors))
    compared = 0
    for case, (statistic, vectors), answer in zip(cases, wanted, asked("questions", cases=cases), strict=True):
        assert (answer["dim"], answer["norm"], answer["diameter"]) == (statistic.dim, statistic.norm, statistic.diameter)
        exact = case["words"]["kind"] != "evaluate"
        for file, vector, made in zip(case["files"], vectors, answer["made"], strict=True):
            assert (vector is None) == (made is None), (case["words"], file)
            if vector is None:
                continue
            got = dense(made, statistic.dim)
            assert np.array_equal(got, vector) if exact else np.allclose(got, vector, rtol=1e-9, atol=1e-12), (case["words"], file)
            compared += 1
    assert compared > 300


# --- changed tasks ----------------------------------------------------------------------------------------------------------------


def task_of(words: dict, transport: str = "masked-sum") -> Task:
    query = statistic_from_dict(words)
    schedule = query.schedule(USERS, epsilon=8.0, delta=1e-2, honest=0.9)
    return Task(transport, USERS, query, schedule, ANALYZER.public_key(), patience=60.0, pace=0.1)


def fuzzed(values: dict, count: int, generator) -> list[Document]:
    """Signed tasks with a word changed, most often one of the question or of its plan, their ids made anew."""
    documents = []
    for _ in range(count):
        changed = json.loads(json.dumps(values))
        pick = generator.random()
        if pick < 0.6:
            changed["problem"]["query"] = mutated(changed["problem"]["query"], generator)
        elif pick < 0.8:
            changed["schedule"]["phases"][0]["plan"] = mutated(changed["schedule"]["phases"][0]["plan"], generator)
        else:
            changed = mutated(changed, generator)
        if "id" in changed:
            changed["id"] = sha256(canonical({name: value for name, value in changed.items() if name != "id"}))
        documents.append(Document.signed(TASK, changed, ANALYZER))
    return documents


@needs_node
def test_a_changed_question_is_never_taken_that_python_refuses():
    generator, documents = np.random.default_rng(17), []
    for one in STORED:
        values = json.loads(task_of(one["words"]).document(ANALYZER).text)
        documents += [Document.signed(TASK, values, ANALYZER), *fuzzed(values, 25, generator)]
    check_refusals(documents)


@needs_node
def test_a_plan_that_is_proved_for_a_smaller_range_is_refused():
    """The attack: less noise, by a plan for vectors that are shorter, or nearer to each other, than the question's."""
    documents = []
    for one in STORED[::3]:
        task = task_of(one["words"])
        statistic, (phase,) = task.query.statistic, task.schedule.phases

        class Nearer:
            entries = answers = None
            dim, norm, diameter = statistic.dim, statistic.norm, max(statistic.norm, 0.999 * statistic.diameter)

        class Shorter:
            entries = answers = None
            dim, norm, diameter = statistic.dim, 0.999 * statistic.norm, 0.999 * statistic.diameter

        for lie in (statistic, *([Nearer] if statistic.diameter > statistic.norm else []), Shorter):
            plan = plan_for(lie, USERS, epsilon=8.0, delta=1e-2, honest=phase.plan.honest, rotation=None)
            schedule = replace(task.schedule, phases=(replace(phase, plan=plan),))
            documents.append((lie is statistic, replace(task, schedule=schedule).document(ANALYZER).to_bytes().hex()))
    key = ANALYZER.public_key().public_bytes_raw().hex()
    answers = asked("tasks", documents=[text for _, text in documents], key=key, delta=1e-2)
    for (honest, _), answer in zip(documents, answers, strict=True):
        assert ("refused" not in answer) if honest else ("a plan for" in answer["refused"])
