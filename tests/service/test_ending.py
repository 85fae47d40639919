"""A task's end: signed, kept, told to clients. A shuffler that does not serve a task says so; places delay no round for long."""

from __future__ import annotations

import json
import re
import time

import pytest
from helpers_roles import World, round_of, soon
from test_deployed import USERS, Operators

from croupier.service.analyzer.app import analyzer_app
from croupier.service.analyzer.dashboard import Dashboard
from croupier.service.client.client import Client
from croupier.service.net.http import Server
from croupier.service.net.server import Served
from croupier.service.shuffler.relay import AnalyzerRelay
from croupier.service.shuffler.role import RoundClock, ShufflerRole
from croupier.service.wire.documents import Document, End, WireError, acknowledgement, refusal, refusal_reason, require_heard
from croupier.service.wire.task import Start

pytestmark = pytest.mark.process

TASK = "ab" * 32


@pytest.mark.parametrize("reason", [None, "round 2 is spoiled"])
def test_an_end_is_read_as_it_was_signed(roles, reason):
    end = End(TASK, 3, reason)
    document = Document.from_bytes(end.document(roles.analyzer).to_bytes())
    assert End.read(document, TASK, roles.analyzer.public_key()) == end
    for other in (("cd" * 32, roles.analyzer), (TASK, roles.shuffler)):
        with pytest.raises(WireError):
            End.read(document, other[0], other[1].public_key())


def test_an_end_says_how_many_rounds_are_done():
    assert str(End(TASK, 3)) == "the task has ended, all 3 rounds are done"
    assert str(End(TASK, 1)) == "the task has ended, its only round is done"
    assert str(End(TASK, 1, "round 2 is spoiled")) == "round 2 is spoiled"


@pytest.mark.parametrize(
    "change", [{"rounds": -1}, {"rounds": True}, {"reason": 7}, {"reason": "a\nb"}, {"reason": "x" * 501}, {"more": 1}]
)
def test_an_end_that_says_something_else_is_refused(roles, change):
    values = {"task": TASK, "rounds": 3, "reason": None} | change
    with pytest.raises(WireError):
        End.read(Document.signed(16, values, roles.analyzer), TASK, roles.analyzer.public_key())


def test_only_the_shuffler_can_say_that_it_has_heard_or_refuses(roles):
    require_heard(acknowledgement(TASK, roles.shuffler), TASK, roles.shuffler.public_key())
    with pytest.raises(WireError):
        require_heard(acknowledgement(TASK, roles.stranger), TASK, roles.shuffler.public_key())
    task = roles.task()
    document = task.document(roles.analyzer)
    said = refusal(document, "too small", roles.analyzer.public_key(), roles.shuffler)
    assert refusal_reason(said, task.id, roles.shuffler.public_key()) == "too small"
    with pytest.raises(WireError):
        refusal_reason(said, task.id, roles.stranger.public_key())
    assert refusal(document, "too small", roles.stranger.public_key(), roles.shuffler) is None


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.close()


def test_an_analyzer_hears_and_shows_that_its_task_is_not_served(world):
    """A task below --smallest: the shuffler's log alone used to say so."""
    population = world.population()
    dashboard = Dashboard(population)
    assert dashboard.state(anew=True)["refusal"] is None
    shuffler = ShufflerRole(world.store("shuffler"), world.shuffler_key, world.analyzer_key.public_key(), smallest=50)
    with Served(analyzer_app(population)) as analyzer, AnalyzerRelay(shuffler, analyzer.url):
        soon(lambda: population.ending.refusal)
    assert re.search("batches of 4 users; this shuffler makes none of less than 50", dashboard.state(anew=True)["refusal"])


def test_roles_end_well_and_the_same_command_works_after_a_kill_that_came_after_saving(tmp_path):
    """The shuffler is quiet, clients can tell, a page is left; and an analyzer that is started again ends well again."""
    with Operators(tmp_path, "masked-sum", {}) as roles:
        roles.answer(*range(USERS))
        theta = roles.result()
        page = (tmp_path / "an" / "run.html").read_text()
        state = json.loads(re.search(r'"status": "(\w+)"', page)[0].join("{}"))
        assert state == {"status": "finished"}
        client = roles.devices[0]
        end = soon(client.ended)
        assert end == End(roles.task.id, 3)
        log = roles.shuffler.log
        assert "the task has ended" in soon(lambda: log.read_text() if "has ended" in log.read_text() else None)
        before = log.read_text()
        # As if it had been killed just after it saved the model: the same command.
        roles.analyzer.start()
        assert roles.analyzer.running.wait(timeout=60) == 0, roles.analyzer.log.read_text()
        assert (roles.result() == theta).all()
        time.sleep(1)  # several errands
        assert log.read_text() == before
        assert roles.shuffler.running.poll() is None


def test_a_shuffler_that_knows_of_the_end_asks_nobody_anything_also_after_a_restart(world, caplog):
    shuffler = world.shuffler()
    with AnalyzerRelay(shuffler, "http://127.0.0.1:1"):
        soon(lambda: "out of reach" in caplog.text)
    shuffler.take_end(End(world.task.id, 3).document(world.analyzer_key))
    caplog.clear()
    with AnalyzerRelay(world.shuffler(), "http://127.0.0.1:1"):
        time.sleep(0.7)  # three errands
    assert caplog.text == ""


def test_what_a_client_is_told_of_an_end_is_the_analyzers_word(roles, tmp_path):
    """A shuffler that makes up an end is not believed."""
    key = roles.analyzer.public_key().public_bytes_raw().hex()
    client = Client("http://127.0.0.1:1", "token", key, folder=tmp_path, max_epsilon=1e6, max_delta=0.5)
    task = roles.task()
    answers = {"/v1/start": Start(task.document(roles.analyzer)), "/v1/end": End(task.id, 2).document(roles.shuffler)}
    client._server = type("Fake", (), {"send": lambda self, path, body=None, headers=None: answers[path].to_bytes()})()
    with pytest.raises(WireError, match="signature"):
        client.ended()
    answers["/v1/end"] = End(task.id, 2).document(roles.analyzer)
    assert client.ended() == End(task.id, 2)


def test_clients_that_only_take_places_delay_a_round_by_a_minute_after_its_patience(tmp_path, monkeypatch):
    """Eight of twelve answer at once. The others ask every second, one after the other and all together, and never answer."""
    now = [1.8e9]
    monkeypatch.setattr(RoundClock, "now", lambda self: now[0])
    world = World(tmp_path, interactivity="full", users=12, honest=0.75, patience=300.0)
    try:
        shuffler, document = world.shuffler(), round_of(world)
        shuffler.open(document)
        enough = world.plan(document).honest_users
        for user in range(enough):
            shuffler.receive(world.names[user], world.report(user, document))
        sybils, begun = world.names[enough:], now[0]
        assert sybils
        while shuffler.waiting_batch() is None and now[0] < begun + 3600:
            now[0] += 1.0
            shuffler.rounds_for(sybils if int(now[0]) % 2 else sybils[int(now[0]) % len(sybils) :][:1])
            shuffler.close_late()
        assert 300 <= now[0] - begun <= 300 + 60 + 2
    finally:
        world.close()


def test_a_server_is_asked_for_the_end_without_a_token(world):
    population = world.population()
    with Served(analyzer_app(population)) as analyzer:
        assert Server(analyzer.url).send("/v1/end") == b""
        population.ending.declare(3)
        document = Document.from_bytes(Server(analyzer.url).send("/v1/end"))
        assert End.read(document, world.task.id, world.analyzer_key.public_key()).rounds == 3
