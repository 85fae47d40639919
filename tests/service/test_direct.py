"""Paths that every client asks for are answered without the app, exactly as the app answers them; and in one answer."""

from __future__ import annotations

import asyncio
import gc
import http.client
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from helpers_roles import Web, round_of

from croupier.service.net import limits
from croupier.service.net.server import Served, settle
from croupier.service.shuffler.app import RequestBatcher, shuffler_app
from croupier.service.wire.documents import WireError
from croupier.service.wire.task import Lot, Start

KEPT = ("x-content-type-options", "cache-control", "croupier-version")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def over(served: Served, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection(served.url.removeprefix("http://"), timeout=60)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    found = answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}
    connection.close()
    return found


@pytest.mark.process
def test_direct_answers_are_those_of_the_app(opened):
    world, shuffler, document = opened
    good, known = world.report(0, document), bearer(world.tokens[0])
    requests = [
        ("GET", "/v1/task", None, {}),
        ("GET", "/v1/round", None, {}),
        ("GET", "/v1/round", None, known),
        ("GET", "/v1/round", None, bearer("nobody")),
        ("GET", "/v1/start", None, known),
        ("GET", "/v1/start", None, {}),
        ("GET", "/v1/lot", None, known),
        ("POST", "/v1/report", good, known),
        ("POST", "/v1/report", good, known),
        ("POST", "/v1/report", good, {}),
        ("POST", "/v1/report", good, {"Authorization": f"Basic {world.tokens[0]}"}),
        ("POST", "/v1/report", world.report(0, document), known),
        ("POST", "/v1/report", world.report(5, document), bearer(world.tokens[5])),
        ("POST", "/v1/report", good[:-1], known),
        ("POST", "/v1/report", good + b"x", known),
        ("POST", "/v1/report", good * 200, bearer("nobody")),
        ("POST", "/v1/report", b"", known),
        ("GET", "/v1/report", None, known),
        ("POST", "/v1/task", b"", {}),
    ]
    app = shuffler_app(shuffler)
    statuses = set()
    with Served(app) as served, Web(shuffler_app(shuffler)) as web:
        for method, path, body, headers in requests:
            status, content, heads = over(served, method, path, body, headers)
            statuses.add(status)
            answer = web.get(path, headers) if method == "GET" else web.post(path, body, headers)
            assert (status, content) == (answer.status, answer.content), (method, path, status, content)
            assert [heads[name] for name in KEPT] == [answer.headers[name] for name in KEPT]
            assert not content or heads["content-type"] == answer.headers["content-type"]
    assert statuses == {200, 400, 401, 404, 405, 409, 413}


@pytest.mark.process
def test_too_many_requests_of_a_client_are_refused_directly_too(opened):
    world, shuffler, _ = opened
    with Served(shuffler_app(shuffler)) as served:
        statuses = [over(served, "GET", "/v1/start", None, bearer(world.tokens[0]))[0] for _ in range(22)]
    assert statuses[:20] == [200] * 20
    assert 429 in statuses[20:] or statuses[20:] == [200] * 2  # where the machine took seconds, two a second are allowed


@pytest.mark.process
def test_an_address_is_limited_whoever_answers(opened, monkeypatch):
    """Wrong tokens, and requests without any, are counted for direct answers and the app's together."""
    world, shuffler, _ = opened
    monkeypatch.setattr(limits, "WRONG_BURST", 3.0)
    monkeypatch.setattr(limits, "BURST", 2.0)
    monkeypatch.setattr(limits, "WRONG_PER_SECOND", 0.0)
    monkeypatch.setattr(limits, "PER_SECOND", 0.0)
    app = shuffler_app(shuffler)
    limits.limit_addresses(app, header="X-From")
    wrong, here = bearer("nobody"), {"X-From": "192.0.2.7"}
    with Served(app) as served:
        found = [over(served, "GET", path, None, wrong | here)[0] for path in ("/v1/start", "/v1/lot", "/v1/round", "/v1/start")]
        assert found == [401, 401, 401, 429]
        assert over(served, "GET", "/v1/start", None, bearer(world.tokens[0]) | {"X-From": "192.0.2.8"})[0] == 200
        assert [over(served, "GET", "/v1/task", None, here)[0] for _ in range(3)] == [200, 200, 429]


@pytest.mark.process
def test_a_head_that_does_not_end_is_cut_off(opened):
    _, shuffler, _ = opened
    with Served(shuffler_app(shuffler)) as served:
        connection = http.client.HTTPConnection(served.url.removeprefix("http://"), timeout=60)
        connection.connect()
        connection.sock.sendall(b"GET /v1/task HTTP/1.1\r\n")
        endless = (b"X: " + b"a" * 60_000 + b"\r\n") * 1000
        with pytest.raises(ConnectionError):
            connection.sock.sendall(endless)
        connection.close()


def head(method: str, path: str, token: str, *lines: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: here", f"Authorization: Bearer {token}", *lines, "", ""]).encode()


@contextmanager
def raw(served: Served):
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        yield connection


def status_of(connection: socket.socket) -> int:
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    return answer.status


@pytest.mark.process
def test_a_body_that_says_that_it_is_too_long_is_not_waited_for(opened):
    world, shuffler, _ = opened
    with Served(shuffler_app(shuffler)) as served:
        for token, status in ((world.tokens[0], 413), ("nobody", 401)):
            with raw(served) as connection:
                connection.sendall(head("POST", "/v1/report", token, "Content-Length: 999999999999") + b"x")
                assert status_of(connection) == status


@pytest.mark.process
@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/report"), ("GET", "/v1/start")])
def test_a_body_is_not_kept_before_anybody_asks_for_it(opened, monkeypatch, method, path):
    """While the sender's token is looked up, no more than a little of it is read; of a body that nobody reads nothing is kept."""
    _, shuffler, _ = opened
    looked, known = threading.Event(), shuffler.clients_of
    monkeypatch.setattr(shuffler, "clients_of", lambda tokens: looked.wait() and known(tokens))
    monkeypatch.setattr(shuffler, "most_report_bytes", lambda: 1 << 30)
    with Served(shuffler_app(shuffler)) as served, raw(served) as connection:
        length = 1 << 25 if method == "POST" else 999_999_999_999
        connection.sendall(head(method, path, "nobody", f"Content-Length: {length}"))
        connection.settimeout(0.3)
        try:
            for _ in range(31):
                connection.sendall(bytes(1 << 20))
            sent = True
        except TimeoutError:
            sent = False
        (there,) = served._server.server_state.connections
        kept = len(there.cycle.body)
        left = there._timer.when() - there.loop.time()
        looked.set()
        assert sent == (method == "GET")
        assert kept <= (1 << 19 if method == "POST" else 0)
        assert left <= 3600
        connection.settimeout(60)
        assert status_of(connection) == 401
        assert not there.cycle.body


@pytest.mark.process
@pytest.mark.parametrize("also", [(), ("Origin: https://a.example",)])
def test_trailers_say_nothing_about_who_asks(opened, also):
    """Directly, and by the app: a wrong token counts for the address that the head says, not for one after the body."""
    _, shuffler, _ = opened
    app = shuffler_app(shuffler)
    limits.limit_addresses(app, header="X-From")
    with Served(app) as served, raw(served) as connection:
        lines = ("X-From: 192.0.2.66", "Transfer-Encoding: chunked", "Trailer: X-From", *also)
        connection.sendall(head("POST", "/v1/report", "nobody", *lines) + b"1\r\nx\r\n0\r\nX-From: 192.0.2.99\r\n\r\n")
        assert status_of(connection) == 401
        wrong = app.state.limit._wrong
        assert wrong.left("192.0.2.99") == limits.WRONG_BURST > wrong.left("192.0.2.66")


WITHOUT = """
import sys
sys.modules["httptools"] = sys.modules["uvloop"] = None
import urllib.request
from fastapi import FastAPI, Response
from uvicorn.protocols.http.h11_impl import H11Protocol
from croupier.service.net.server import Served, TimeoutProtocol
assert issubclass(TimeoutProtocol, H11Protocol)
app = FastAPI()
app.get("/here")(lambda: Response(b"yes"))
with Served(app) as served:
    print(urllib.request.urlopen(served.url + "/here").read().decode())
"""


@pytest.mark.process
def test_a_role_is_served_without_the_parser_in_c():
    answer = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=300, check=False)
    assert answer.stdout == "yes\n", answer.stderr


# --- in one answer


def test_a_start_is_read_as_it_was_written_and_nothing_else_is(opened):
    world, _, document = opened
    task = world.task.document(world.analyzer_key)
    for start in (Start(task), Start(task, document), Start(task, lot=Lot(3, 1.5))):
        data = start.to_bytes()
        again = Start.from_bytes(data)
        assert again.to_bytes() == data
        assert (again.task.to_bytes(), again.lot) == (task.to_bytes(), start.lot)
        for broken in (b"", data[:3], data[:-1], data + b" ", data[:40] + data[41:]):
            with pytest.raises(WireError):
                Start.from_bytes(broken)


@pytest.mark.parametrize(("patience", "told"), [(None, True), (3600.0, True), (59.0, False)])
def test_a_start_has_the_round_where_no_place_is_needed(make_world, patience, told):
    """A round that could end within a minute is told by /v1/round alone, which keeps a place."""
    world = make_world(users=12, patience=patience)
    shuffler, document = world.shuffler(), round_of(world)
    [nothing] = shuffler.starts_for(world.names[:1])
    assert nothing.round is None
    shuffler.open(document)
    first, last = shuffler.starts_for([world.names[0], world.names[-1]])
    assert (first.round is not None, last.round) == (told, None)
    shuffler.receive(world.names[0], world.report(0, document))
    assert shuffler.starts_for(world.names[:1])[0].round is None


def test_what_comes_in_one_turn_of_the_loop_is_answered_together_and_a_failure_is_told_to_each():
    together: list[int] = []

    def answer(asked: Sequence[int]) -> Sequence[int]:
        together.append(len(asked))
        if together == [39, 1]:
            raise OSError("the disk is full")
        return asked

    async def ask() -> list[int]:
        batcher = RequestBatcher(answer)
        found = await asyncio.gather(*[batcher.do(number) for number in range(39)])
        with pytest.raises(OSError, match="full"):
            await batcher.do(0)
        return [*found, await batcher.do(39)]

    assert asyncio.run(ask()) == list(range(40))
    assert together == [39, 1, 1]


def test_what_comes_while_a_turn_is_waited_for_is_answered_in_it_and_no_turn_is_told_to_each():
    together, more_are_here = list[int](), threading.Event()
    turns = iter(range(2))

    @contextmanager
    def turn() -> Iterator[None]:
        if next(turns):
            raise OSError("the database is away")
        assert more_are_here.wait(60)
        yield

    def answer(asked: Sequence[int]) -> Sequence[int]:
        together.append(len(asked))
        return asked

    async def ask() -> tuple[list[int], list[int | BaseException]]:
        batcher = RequestBatcher(answer, turn)
        first = [asyncio.create_task(batcher.do(number)) for number in range(3)]
        await asyncio.sleep(0.01)
        more = [asyncio.create_task(batcher.do(number)) for number in range(3, 7)]
        await asyncio.sleep(0.01)
        more_are_here.set()
        found = await asyncio.gather(*first, *more)
        return found, await asyncio.gather(batcher.do(7), batcher.do(8), return_exceptions=True)

    found, failed = asyncio.run(ask())
    assert found == list(range(7))
    assert together == [7]
    assert [str(problem) for problem in failed] == ["the database is away"] * 2


def test_what_is_loaded_is_left_out_of_the_search_for_garbage():
    try:
        settle()
        assert gc.get_freeze_count() > 10_000
        assert len(gc.get_objects()) < 10_000
    finally:
        gc.unfreeze()
