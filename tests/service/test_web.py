"""The roles behind HTTP: a status and a reason for everything."""

from __future__ import annotations

import pytest
from helpers_exclusions import wrong
from helpers_roles import DIM, Web, answer_round, round_of, sizes, soon, training

from croupier.service.analyzer.app import analyzer_app
from croupier.service.shuffler.app import shuffler_app
from croupier.service.wire.documents import Document

TRANSPORTS = ["masked-sum", "messages"]


# The roles behind HTTP: a status and a reason for everything.


@pytest.fixture
def web(opened):
    world, shuffler, document = opened
    app = shuffler_app(shuffler)
    with Web(app) as client:
        yield world, client, document


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_clients_find_the_task_and_the_round_and_are_told_that_a_report_is_kept(web):
    world, client, document = web
    task = client.get("/v1/task")
    assert (task.status, task.content) == (200, world.task.document(world.analyzer_key).to_bytes())
    assert client.get("/v1/round").content == document.to_bytes()
    report = world.report(0, document)
    for _ in range(2):
        done = client.post("/v1/report", report, bearer(world.tokens[0]))
        assert (done.status, done.content) == (200, b"")
        assert done.headers["x-content-type-options"] == "nosniff"
        assert done.headers["cache-control"] == "no-store"
    assert client.get("/healthz").text == "ok\n"
    figures = client.get("/metrics").text
    assert "croupier_reports_taken_total 2.0" in figures
    assert "croupier_reports_arrived 1.0" in figures
    assert not any(secret in figures for secret in world.names + world.tokens)


def test_every_refusal_has_its_status_and_a_reason_without_secrets(web):
    world, client, document = web
    good, token, longest = world.report(0, document), world.tokens[0], len(world.report(0, document))
    others = world.report(1, document)
    assert client.post("/v1/report", others, bearer(world.tokens[1])).status == 200
    cases = [
        (401, good, {}),
        (401, good, bearer("")),
        (401, good, bearer(token + "x")),
        (401, good, bearer(world.names[0])),
        (401, good, {"Authorization": f"Basic {token}"}),
        (401, good, {"Authorization": token}),
        (401, good, {"Authorization": "Bearer \xff\xfe\x80"}),
        (400, b"", bearer(token)),
        (400, good[:-1], bearer(token)),
        (400, b"\0" * longest, bearer(token)),
        (413, good + b"\0", bearer(token)),
        (413, good, bearer(token) | {"Content-Length": "9" * 20}),
        (413, good, bearer(token) | {"Content-Length": "9" * 5000}),
        (413, good, bearer(token) | {"Content-Length": "-1"}),
        (409, good, bearer(world.tokens[1])),
    ]
    for status, body, headers in cases:
        answer = client.post("/v1/report", body, headers)
        assert answer.status == status, (headers, answer.text)
        assert 5 < len(answer.text) < 200
        assert answer.text.isascii()
        secrets = [*world.names, *world.tokens, world.task.document(world.analyzer_key).text.decode()]
        assert not any(secret in answer.text for secret in secrets)
    stream = client.post("/v1/report", [good] * 3, bearer(token))
    assert stream.status == 413  # without a length that it declares
    assert sizes(world) == (1, 1)
    figures = client.get("/metrics").text
    for status in (400, 401, 409, 413):
        expected = sum(case[0] == status for case in cases) + (status == 413)
        assert f'croupier_reports_refused_total{{status="{status}"}} {float(expected)}' in figures
    assert client.get("/v1/report").status == 405
    assert client.post("/v1/batch", good).status == 404
    assert [client.get(path).status for path in ("/docs", "/openapi.json", "/redoc", "/")] == [404] * 4


def test_a_client_that_asks_too_often_is_slowed_down_and_others_are_not(web):
    world, client, document = web
    statuses = [client.post("/v1/report", b"", bearer(world.tokens[0])).status for _ in range(60)]
    assert statuses[:20] == [400] * 20
    assert 429 in statuses[20:]
    assert client.post("/v1/report", world.report(1, document), bearer(world.tokens[1])).status == 200

    def accepted():
        return client.post("/v1/report", world.report(0, document), bearer(world.tokens[0])).status == 200

    assert soon(accepted)  # later


def test_before_there_is_a_task_clients_are_asked_to_wait(make_world):
    world = make_world()
    with Web(shuffler_app(world.shuffler(with_task=False))) as client:
        assert client.get("/v1/task").status == 503
        assert (client.get("/v1/round").status, client.get("/v1/round").content) == (200, b"")
        report = world.report(0, round_of(world))
        assert client.post("/v1/report", report, bearer(world.tokens[0])).status == 503
        assert client.post("/v1/report", report).status == 401


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_analyzer_takes_batches_over_http_and_says_why_it_does_not(make_world, transport):
    world = make_world(transport=transport)
    shuffler = world.shuffler()
    with training(world) as running, Web(analyzer_app(running.population)) as client:
        document = running.next_round()
        assert client.get("/v1/task").content == world.task.document(world.analyzer_key).to_bytes()
        assert client.get("/v1/round").content == document.to_bytes()
        longest = 16 + 32 + 64 + (80 * 4 if transport == "masked-sum" else 49 * DIM * 4 * world.plan(document).bits_per_coordinate)
        for data, reason in wrong(world, document)[0].values():
            answer = client.post("/v1/batch", data)
            assert answer.status == (413 if len(data) > longest else 400)
            assert (f"more than {longest} bytes" if len(data) > longest else reason) in answer.text
        assert client.post("/v1/batch", b"", {"Content-Length": str(1 << 33)}).status == 413
        answer_round(world, shuffler, document, range(4))
        name, batch = shuffler.waiting_batch()
        assert [client.post("/v1/batch", batch).status for _ in range(3)] == [200] * 3
        if transport == "masked-sum":
            said = soon(lambda: client.get(f"/v1/exclusions/{name}").content)
            assert client.get(f"/v1/exclusions/{name}").content == said
            assert client.get("/v1/exclusions/another").content == b""
            shuffler.exclude(Document.from_bytes(said))
            _, release = shuffler.waiting_release()
            assert client.post("/v1/release", release[:-1] + b"x").status == 400
            assert client.post("/v1/release", release + bytes(100)).status == 413
            assert [client.post("/v1/release", release).status for _ in range(3)] == [200] * 3
        assert world.read(running.next_round(after=1)).number == 2
        assert "croupier_batches_taken_total 3.0" in client.get("/metrics").text
    assert world.rows("analyzer", "SELECT number, users FROM asked ORDER BY number") == [(1, 4), (2, None)]
