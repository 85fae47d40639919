"""Tasks of one question: what clients make of their words, ranges that they prove themselves, and answers over sockets."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from urllib.request import urlopen

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from helpers_questions import USERS, piece, questions
from helpers_roles import soon

from croupier.cli.tasks import figures, write_answer, write_schema
from croupier.protocol import SumEstimate
from croupier.report._answers import answer_page
from croupier.service.analyzer.app import analyzer_app
from croupier.service.analyzer.population import ANALYZER, RemotePopulation
from croupier.service.analyzer.task_file import QueryFile, asks_question
from croupier.service.client.client import Client
from croupier.service.net.database import Database
from croupier.service.net.http import ServerError
from croupier.service.net.server import Served
from croupier.service.shuffler.app import shuffler_app
from croupier.service.shuffler.relay import AnalyzerRelay
from croupier.service.shuffler.role import ShufflerRole
from croupier.service.shuffler.rounds import SHUFFLER, enrol
from croupier.service.wire.documents import WireError
from croupier.service.wire.queries import StatisticQuery, statistic_from_dict
from croupier.service.wire.task import Task, TaskRound, fewest, most_excluded
from croupier.statistics import check, describe
from croupier.statistics._columns import NumberGuess
from croupier.statistics.asking import plan_for
from croupier.table.describe import TableGuess
from croupier.validation import ArgumentError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return questions(tmp_path_factory.mktemp("queries"))


@pytest.mark.parametrize("kind", ["describe", "histogram", "regression", "evaluate"])
def test_a_question_survives_the_way_to_a_client_who_proves_its_range(folder, kind):
    asked = QueryFile.load(folder / f"{kind}-task.toml")
    task, key = asked.task(), Ed25519PrivateKey.generate()
    read = Task.read(task.document(key), key.public_key())
    assert read.id == task.id
    assert isinstance(read.query, StatisticQuery)
    assert read.query.dim == task.query.dim == task.schedule.phases[0].plan.dim
    assert read.schedule.phases[0].plan.diameter == pytest.approx(read.query.statistic.diameter)
    X, y = read.query.read_pieces([piece(1), piece(25)], "people")
    vectors = read.query.statistic(X, y)
    if kind != "evaluate":  # a model refuses odd rows itself
        assert check(read.query.statistic, X, y, samples=200) == []
    assert np.allclose(read.query.vector(X, y), vectors.mean(axis=0))


@pytest.mark.parametrize("kind", ["describe", "histogram", "regression", "evaluate"])
def test_a_task_that_counts_on_a_smaller_range_is_refused_by_the_client(folder, kind):
    """The attack: a plan that is proved, but for vectors that are nearer to each other than the question's."""
    task, key = QueryFile.load(folder / f"{kind}-task.toml").task(), Ed25519PrivateKey.generate()
    statistic = task.query.statistic

    class Nearer:
        entries = answers = None
        dim, norm, diameter = statistic.dim, statistic.norm, 0.99 * statistic.diameter

    class Shorter:
        entries = answers = None
        dim, norm, diameter = statistic.dim, statistic.norm / 2, statistic.norm

    for lie in (Nearer, Shorter):
        (phase,) = task.schedule.phases
        plan = plan_for(lie, USERS, epsilon=8.0, delta=1e-2, honest=phase.plan.honest, rotation=None)
        schedule = replace(task.schedule, phases=(replace(phase, plan=plan),))
        with pytest.raises(WireError, match="impossible"):
            Task.read(replace(task, schedule=schedule).document(key), key.public_key())
    twice = replace(task.schedule, phases=task.schedule.phases * 2)
    with pytest.raises(WireError, match="impossible"):
        Task.read(replace(task, schedule=twice).document(key), key.public_key())
    with pytest.raises(ArgumentError, match="query"):
        statistic_from_dict(task.query.words | {"kind": "everything"})


@pytest.mark.parametrize("kind", ["describe", "histogram", "regression", "evaluate"])
def test_no_client_ends_a_question_unless_the_file_counts_on_everybody(folder, kind):
    """Some reports may be left out: the plan counts on so many fewer than are honest by the task's premise."""
    task = QueryFile.load(folder / f"{kind}-task.toml").task()
    (phase,) = task.schedule.phases
    assert (task.schedule.honest, task.patience) == (0.9, 3600.0)
    assert (most_excluded(task, phase), phase.plan.honest_users, fewest(task, phase)) == (3, 24, 27)
    words = (folder / f"{kind}-task.toml").read_text() + "honest = 1\n"
    everybody = QueryFile.load(_written(folder / "everybody.toml", words)).task()
    assert (most_excluded(everybody, everybody.schedule.phases[0]), everybody.patience) == (0, None)


def _written(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize(("target", "said"), [("age", "no schema was written"), ("cost", "left out of the schema, 'age': 100%")])
def test_text_that_was_taken_for_numbers_is_in_no_schema(folder, tmp_path, capsys, target, said):
    guess = TableGuess({"age": NumberGuess(0, 100), "pay": NumberGuess(0, 9), "cost": NumberGuess(0, 9)}, target=target)
    asked = replace(QueryFile.load(folder / "describe-task.toml"), guess=guess, output=tmp_path / "answer.json")
    rows = np.column_stack([np.full(4_000, np.nan), *np.random.default_rng(0).uniform(0, 9, (2, 4_000))])
    write_schema(asked, describe(rows, guess.columns, epsilon=4.0, delta=1e-6))
    assert said in " ".join(capsys.readouterr().err.split())
    assert (tmp_path / "answer.toml").exists() == (target == "cost")


@pytest.mark.process
@pytest.mark.parametrize(("kind", "transport"), [("describe", "masked-sum"), ("evaluate", "masked-sum"), ("histogram", "messages")])
def test_over_sockets_everybody_answers_once_and_the_answer_is_on_the_page(folder, tmp_path, capsys, kind, transport):
    asked = replace(QueryFile.load(folder / f"{kind}-task.toml"), asked_transport=transport, output=tmp_path / "answer.json")
    task, key = asked.task(), Ed25519PrivateKey.generate()
    shuffler_key = Ed25519PrivateKey.from_private_bytes((folder / "key").read_bytes())
    stores = {name: Database(f"sqlite:///{tmp_path / name}.db", tables) for name, tables in (("s", SHUFFLER), ("a", ANALYZER))}
    tokens = [enrol(stores["s"], f"user {n}") for n in range(USERS)]
    shuffler = ShufflerRole(stores["s"], shuffler_key, key.public_key(), smallest=2)
    population = RemotePopulation(task, stores["a"], key)
    with (
        ThreadPoolExecutor(1) as analyst,
        Served(analyzer_app(population)) as analyzer,
        Served(shuffler_app(shuffler)) as served,
        AnalyzerRelay(shuffler, analyzer.url),
    ):
        try:
            running = analyst.submit(write_answer, asked, population, tmp_path / "saved.json", analyzer.url)
            soon(lambda: shuffler.document)
            public = key.public_key().public_bytes_raw().hex()
            for user, token in enumerate(tokens):
                client = Client(
                    served.url, token, public, folder=tmp_path / f"d{user}", max_epsilon=9, max_delta=1e-2, at_once=True
                )
                record = piece(user).batch.to_pylist()[0]
                end = time.monotonic() + 60
                while time.monotonic() < end:
                    with suppress(ServerError):
                        if client.take_part_with(record) is not None:
                            break
                    time.sleep(0.02)
            soon(lambda: population.page)
            state = analyzer_state(analyzer.url)
            assert state["answer"] is True
            assert state["status"] == "finished"
            assert state["question"] is True
            named = {name for name, _ in state["plan"]}
            assert {"question", "vectors"} <= named
            assert not {"model", "gradients", "phase", "bound on the loss"} & named
            assert "any conclusion from the answer" in state["promise"]["words"]
            assert "model" not in state["promise"]["words"] + state["promise"]["if"]
            assert "<svg" in fetched(f"{analyzer.url}/answer")
            soon((tmp_path / "answer.json").exists)
        finally:
            population.stop()
        running.result()
    assert "if at least 90 % of all users follow the protocol" in " ".join(capsys.readouterr().err.split())
    values = json.loads((tmp_path / "answer.json").read_text())
    assert values["users"] == USERS
    assert values["guarantee"]["mu"] > 0
    assert (tmp_path / "answer.toml").exists() == (kind == "describe")
    again = RemotePopulation(task, stores["a"], key)  # a process that goes on asks nobody again
    assert figures(asked.answer(again)) == values
    for store in stores.values():
        store.close()


def test_a_regression_on_enrolled_people_is_that_of_their_moments(folder, tmp_path):
    """Without sockets: the round is answered by a stand-in that adds exact vectors, so coefficients are exact."""
    asked = QueryFile.load(folder / "regression-task.toml")
    task = asked.task()

    class Exact:
        users, unit, private = USERS, "person", True

        def answer(self, question):
            total = sum(task.query.vector(*task.query.read_pieces([piece(user)], "mine")) for user in range(USERS))
            return SumEstimate(sum=total, users=USERS, noise_std=1e-9, guarantee=question.plan.guarantee)

    (model,) = task.query.answers(Exact(), task.schedule, task.id)
    assert model.predict(np.array([[0.2]]))[0] == pytest.approx(180, abs=0.1)
    assert "Coefficients" in answer_page(model, title="Costs")


def test_files_are_told_apart_and_bad_ones_refused_in_a_line(folder, tmp_path):
    assert asks_question(folder / "describe-task.toml")
    assert not asks_question(folder / "guess.toml")
    assert not asks_question(folder / "nowhere.toml")
    good = (folder / "histogram-task.toml").read_text()
    for text, message in (
        (good.replace('"histogram"', '"guess"'), "query"),
        (good.replace("low = 0\n", ""), "low"),
        (good.replace("users = 30", "users = 1"), "users"),
        (good + "honest = 0\n", "honest"),
        (good + "rounds = 3\n", "rounds"),
        (good.replace("high = 100", "high = -1"), "high"),
    ):
        (tmp_path / "task.toml").write_text(text)
        with pytest.raises(ArgumentError) as caught:
            QueryFile.load(tmp_path / "task.toml").task()
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


def fetched(url: str) -> str:
    with urlopen(url) as response:
        return response.read().decode()


def analyzer_state(url: str) -> dict:
    time.sleep(0.6)  # a state may be half a second old
    return json.loads(fetched(f"{url}/v1/state"))


def test_words_of_a_question_that_nobody_knows_are_refused():
    """The attack: a word that a later version obeys and this one passes over."""
    histogram = {"kind": "histogram", "column": "age", "low": 0, "high": 9, "bins": 3}
    level = {"name": "town", "levels": ["Ulm"]}
    number = {"name": "age", "low": 0, "high": 9}
    target = {"column": "t", "range": [0, 1]}
    wrong = [
        histogram | {"weights": [1, 2]},
        histogram | {"column": True},
        {"kind": "describe", "columns": [level], "share": 0.1},
        {"kind": "describe", "columns": [level | {"name": 5}]},
        {"kind": "describe", "columns": [number | {"edges": None}]},
        {"kind": "regression", "schema": {"target": target, "columns": [number, number | {"high": 8}]}},
    ]
    assert statistic_from_dict(histogram).dim == 3
    for words in wrong:
        with pytest.raises(ArgumentError):
            statistic_from_dict(words)


def test_nan_in_a_record_is_nothing_and_no_other_level():
    """pandas has NaN where a level is missing; the text "nan" was counted as another level."""
    query = statistic_from_dict({"kind": "describe", "columns": [{"name": "town", "levels": ["Ulm"]}]})
    nothing = [query.vector(*query.read_records({"town": value})).tolist() for value in (None, float("nan"), "")]
    assert nothing == [[0.0, 0.0, 1.0]] * 3


def test_each_phase_may_ask_a_query_of_its_own(roles):
    """What a round asks goes by `Task.query_of`: vectors, their length and what the round's document states."""
    histogram = statistic_from_dict({"kind": "histogram", "column": "age", "low": 0, "high": 9, "bins": 3})

    class Mixed(Task):
        def query_of(self, phase):
            return histogram if phase == 1 else self.query

    task = roles.task()
    first = histogram.schedule(8, epsilon=8.0, delta=1e-2).phases[0]
    mixed = Mixed(task.transport, 8, task.query, replace(task.schedule, phases=(first, *task.schedule.phases)), task.shuffler)
    moments = roles.round(task=mixed.id, theta=np.zeros(3))
    training = roles.round(task=mixed.id, number=2, phase=2)
    for made in (moments, training):
        assert TaskRound.read(made.document(roles.analyzer), mixed, roles.analyzer.public_key()).phase == made.phase
    with pytest.raises(WireError, match="not of this task"):
        TaskRound.read(replace(moments, theta=np.zeros(2)).document(roles.analyzer), mixed, roles.analyzer.public_key())
    assert moments.vector(mixed, np.array([[4.0]]), None).tolist() == [0.0, 1.0, 0.0]
    X, y = np.array([[0.5, 0.5]]), np.array([1.0])
    assert np.array_equal(training.vector(mixed, X, y), task.query.problem.gradients(training.theta, X, y)[0])
