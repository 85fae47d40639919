"""Half-sent requests end, connections have a limit and are kept, a full disk shows, and a log does not grow by itself."""

from __future__ import annotations

import http.client
import json
import logging
import resource
import select
import shutil
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from contextvars import copy_context

import pytest
from fastapi import FastAPI, Response
from helpers_roles import World, round_of, soon

from croupier.service.client.client import Client
from croupier.service.net import database as store
from croupier.service.net import server as listening
from croupier.service.net.http import Server, ServerError
from croupier.service.net.server import (
    TASK,
    RateLimitedLog,
    Served,
    TimeoutProtocol,
    development_certificate,
    name_task,
    room_for_connections,
)
from croupier.service.shuffler.app import shuffler_app

pytestmark = pytest.mark.process

# What an attacker may send and leave: nothing, half a head, half a body, a byte of one.
HALVES = [
    b"",
    b"G",
    b"GET /healthz HTTP/1.1\r\nHost: me\r\nX: ",
    b"POST /v1/report HTTP/1.1\r\nHost: me\r\nContent-Length: 100\r\n\r\nab",
]


@pytest.fixture
def world(tmp_path):
    with_round = World(tmp_path)
    yield with_round
    with_round.close()


def become_impatient(monkeypatch):
    monkeypatch.setattr(listening, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(listening, "BODY_SECONDS", 0.3)


@contextmanager
def connected(served: Served, timeout: float = 30.0):
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=timeout) as connection:
        yield connection


def ended(connection: socket.socket) -> bool:
    """Whether the server closes the connection; a server that waits for ever is waited for 30 seconds."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        return True
    return True


def refuses(connection: socket.socket, data: bytes) -> bool:
    """Whether the other side has hung up on what is sent."""
    try:
        connection.sendall(data)
    except ConnectionError:
        return True
    return False


@pytest.mark.parametrize("half", HALVES)
def test_a_request_that_does_not_arrive_ends(world, monkeypatch, half):
    become_impatient(monkeypatch)
    with Served(shuffler_app(world.shuffler())) as served, connected(served) as connection:
        with suppress(ConnectionError):  # where this thread was kept waiting for longer than the server waits
            connection.sendall(half)
        assert ended(connection)


@pytest.mark.parametrize("half", HALVES[1:])
def test_a_second_request_that_does_not_arrive_ends_too(world, monkeypatch, half):
    """An idle connection is kept; one on which half of a request has come is not."""
    with Served(shuffler_app(world.shuffler())) as served, connected(served) as connection:
        connection.sendall(b"GET /v1/task HTTP/1.1\r\nHost: me\r\n\r\n")
        assert connection.recv(4096)
        become_impatient(monkeypatch)
        connection.sendall(half)
        assert ended(connection)


@pytest.mark.parametrize("start", [b"GET /healthz", b"GET /none", b"POST /v1/report"])
def test_a_body_that_is_sent_on_after_the_answer_does_not_hold_a_connection(world, monkeypatch, start):
    """The attack: announce a body of a terabyte, and send a byte of it now and then after the refusal."""
    become_impatient(monkeypatch)
    with Served(shuffler_app(world.shuffler())) as served, connected(served) as connection:
        connection.sendall(start + b" HTTP/1.1\r\nHost: me\r\nContent-Length: 999999999999\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 ")
        soon(lambda: refuses(connection, b"a"))


def test_a_request_after_a_refused_body_is_answered(world):
    with Served(shuffler_app(world.shuffler())) as served, connected(served) as connection:
        connection.sendall(b"POST /v1/report HTTP/1.1\r\nHost: me\r\nContent-Length: 4\r\n\r\n")
        assert b"401" in connection.recv(4096)
        connection.sendall(b"body" + b"GET /none HTTP/1.1\r\nHost: me\r\n\r\n")
        assert b"404" in connection.recv(4096)


def test_a_request_in_pieces_is_answered_and_its_connection_kept(world):
    with Served(shuffler_app(world.shuffler())) as served, connected(served) as connection:
        for _ in range(2):
            for piece in (b"GET /healthz HT", b"TP/1.1\r\nHost: m", b"e\r\n\r\n"):
                connection.sendall(piece)
                time.sleep(0.05)
            answer = connection.recv(4096)
            assert b"200 OK" in answer
            while b"ok\n" not in answer:
                answer += connection.recv(4096)


def connections_of(served: Served) -> int:
    return len(served._server.server_state.connections)


@contextmanager
def stuffed(served: Served, request: bytes, tls=None):
    """A connection that asks again and again, and reads nothing, until the server takes no more or has hung up."""
    host, port = served.url.split("//")[1].split(":")
    with socket.socket() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.connect((host, int(port)))
        connection = plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")
        connection.settimeout(0.3)
        with suppress(OSError):
            for _ in range(400):
                connection.sendall(request * 100)
        yield connection
        if tls is not None:
            connection.close()


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_answers_that_nobody_reads_do_not_hold_a_connection(world, monkeypatch, secure):
    """The attack: as many as there is room for. All of them end, and the slots are free again."""
    monkeypatch.setattr(listening, "WRITE_SECONDS", 0.3)
    monkeypatch.setattr(listening, "BYTES_A_SECOND", 1e9)
    tls = development_certificate(world.folder) if secure else None
    trusting = ssl.create_default_context(cafile=tls[0]) if tls else None
    with Served(shuffler_app(world.shuffler()), tls=tls) as served, ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(stuffed(served, b"GET /v1/task HTTP/1.1\r\nHost: me\r\n\r\n", trusting))
        soon(lambda: connections_of(served) == 0)
        assert Server(served.url, ca=tls[0] if tls else None).send("/healthz") == b"ok\n"


def test_a_large_answer_that_nobody_reads_ends_also_where_it_was_the_last(monkeypatch):
    """One request and `close`: what the system's buffers do not take stays with the server."""
    monkeypatch.setattr(listening, "WRITE_SECONDS", 0.3)
    monkeypatch.setattr(listening, "BYTES_A_SECOND", 1e9)
    app = FastAPI()
    app.get("/large")(lambda: Response(bytes(50_000_000)))
    with Served(app) as served, ExitStack() as stack:
        for last in (b"", b"Connection: close\r\n"):
            for _ in range(2):
                connection = stack.enter_context(connected(served))
                connection.sendall(b"GET /large HTTP/1.1\r\nHost: me\r\n" + last + b"\r\n")
        soon(lambda: served._server.server_state.total_requests == 4)
        soon(lambda: connections_of(served) == 0)


def test_a_client_that_reads_a_large_answer_in_pieces_has_all_of_it():
    app = FastAPI()
    app.get("/large")(lambda: Response(bytes(20_000_000)))
    with Served(app) as served, connected(served) as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: me\r\n\r\n")
        time.sleep(0.5)  # the system's buffers are full by now
        answer = connection.recv(1 << 16)
        length = len(answer) - answer.index(b"\r\n\r\n") - 4
        while length < 20_000_000:
            piece = connection.recv(1 << 20)
            assert piece
            length += len(piece)
        connection.sendall(b"GET /none HTTP/1.1\r\nHost: me\r\n\r\n")
        assert b"404" in connection.recv(4096)


def test_there_are_no_more_connections_than_there_is_room_for(world, monkeypatch):
    with Served(shuffler_app(world.shuffler())) as served:
        monkeypatch.setattr(TimeoutProtocol, "most_connections", 2)
        with connected(served) as one, connected(served) as two:
            for connection in (one, two):
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: me\r\n\r\n")
                assert connection.recv(4096)
            with connected(served) as three:
                assert ended(three)
        assert 1 <= room_for_connections() < resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_a_line_that_comes_again_and_again_is_logged_once_a_minute():
    now = [0.0]
    seldom, said = RateLimitedLog(lambda: now[0]), []
    for step in range(6000):  # a hundred a second for a minute
        now[0] = step / 100
        record = logging.LogRecord("asyncio", logging.ERROR, "", 0, "socket.accept() out of %s", ("resources",), None)
        said += [record.getMessage()] if seldom.filter(record) else []
    assert said == ["socket.accept() out of resources"]
    now[0] = 60.0
    assert seldom.filter(record)
    assert record.getMessage() == "socket.accept() out of resources (5999 times more since it was last said)"
    assert seldom.filter(logging.LogRecord("croupier", logging.INFO, "", 0, "another", (), None))


def test_the_same_line_of_two_tasks_is_two_lines_that_name_them():
    seldom, said = RateLimitedLog(lambda: 0.0), []
    for name in ("one", "two", "one"):
        record = logging.LogRecord("croupier", logging.WARNING, "", 0, "round %d ends the task", (3,), None)
        named = copy_context()
        named.run(TASK.set, name)
        said += [record.getMessage()] if named.run(name_task, record) and seldom.filter(record) else []
    assert said == ["task one: round 3 ends the task", "task two: round 3 ends the task"]
    record = logging.LogRecord("croupier", logging.WARNING, "", 0, "of no task", (), None)
    assert name_task(record)
    assert record.getMessage() == "of no task"


# --- health


def health(served: Served) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(served.url + "/healthz", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def test_with_a_full_disk_a_role_is_not_healthy(world, monkeypatch):
    """Files that cannot grow: what a full disk does to a database."""
    shuffler = world.shuffler()
    monkeypatch.setattr(store, "_CHECKED", 0.0)
    with Served(shuffler_app(shuffler)) as served:
        assert health(served) == (200, "ok\n")
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
        try:
            found = health(served)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert found == (503, "not ok: the database cannot be written to (OperationalError)\n")
        assert health(served) == (200, "ok\n")


def test_with_little_room_left_a_role_is_not_healthy(world, monkeypatch):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(store, "_CHECKED", 0.0)
    with Served(shuffler_app(world.shuffler())) as served:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1 << 20))
        assert health(served) == (503, "not ok: less than 64 MiB left on the disk\n")


# --- one connection


@pytest.fixture
def accepted(monkeypatch):
    """How many connections servers have taken."""
    counted = Counter()
    made = TimeoutProtocol.connection_made

    def counting(self, transport):
        counted["all"] += 1
        made(self, transport)

    monkeypatch.setattr(TimeoutProtocol, "connection_made", counting)
    return counted


def test_a_client_opens_one_connection_for_task_round_and_report(world, accepted):
    shuffler, document = world.shuffler(), round_of(world)
    shuffler.open(document)
    key = world.analyzer_key.public_key().public_bytes_raw().hex()
    with Served(shuffler_app(shuffler)) as served:
        limits = {"max_epsilon": 1e6, "max_delta": 0.5, "at_once": True}
        client = Client(served.url, world.tokens[0], key, folder=world.folder / "ann", **limits)
        assert client.take_part(world.X[0], world.y[0]).round == 1
        client.ended()
    assert accepted["all"] == 1


def test_a_connection_that_the_server_has_closed_is_opened_again(world, accepted, monkeypatch):
    monkeypatch.setattr("croupier.service.net.server.KEEP_SECONDS", 0)
    with Served(shuffler_app(world.shuffler())) as served:
        server = Server(served.url)
        for _ in range(3):
            assert server.send("/healthz") == b"ok\n"
            assert select.select([server._kept.connection.sock], [], [], 60)[0]  # the server has closed it
        server.close()
    assert accepted["all"] == 3


def test_a_server_that_is_gone_is_out_of_reach_on_a_kept_connection_too(world):
    with Served(shuffler_app(world.shuffler())) as served:
        server = Server(served.url)
        server.send("/healthz")
    with pytest.raises(ServerError) as gone:
        server.send("/healthz")
    assert gone.value.status is None


def test_a_refusal_leaves_the_connection_as_good_as_it_was(world, accepted):
    with Served(shuffler_app(world.shuffler())) as served:
        server = Server(served.url)
        for _ in range(2):
            with pytest.raises(ServerError) as refused:
                server.send("/v1/report", b"x", {"Authorization": "Bearer nobody's"})
            assert refused.value.status == 401
        assert server.send("/healthz") == b"ok\n"
        server.close()
    assert accepted["all"] == 1


@pytest.mark.parametrize("first", [b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: "])
def test_an_answer_that_comes_a_byte_at_a_time_has_a_deadline(first):
    """Every byte comes within the timeout, the whole of it does not: in the body, and in the head."""
    left = threading.Event()

    def trickle(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.recv(1 << 16)
            connection.sendall(first)
            for _ in range(500):
                if left.wait(0.01):
                    return
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=trickle, args=(listener,))
        thread.start()
        try:
            with pytest.raises(ServerError, match="timed out"):
                Server(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.05).send("/v1/round")
        finally:
            left.set()
            thread.join()


def test_a_body_that_a_server_takes_slowly_has_a_deadline():
    """The server reads a little within every timeout, and never all of it."""
    left = threading.Event()

    def sip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            for _ in range(500):
                if left.wait(0.02):
                    return
                connection.recv(1 << 16)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        thread = threading.Thread(target=sip, args=(listener,))
        thread.start()
        try:
            with pytest.raises(ServerError, match="timed out"):
                Server(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.1).send("/v1/batch", bytes(1 << 27))
        finally:
            left.set()
            thread.join()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_the_environment_names_is_used(monkeypatch, scheme):
    asked = []

    class Wire:
        def __init__(self, host, port, **_):
            self.sock, self.at = None, (host, port)

        def set_tunnel(self, host, port, headers):
            asked.append(("tunnel", self.at, host, port, headers))

        def request(self, method, path, body, headers):
            asked.append((method, self.at, path, headers))
            raise http.client.RemoteDisconnected

        def close(self):
            pass

    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(f"{scheme}_proxy", "http://me:word@proxy.example:3128")
    monkeypatch.setattr(http.client, "HTTPConnection", Wire)
    monkeypatch.setattr(http.client, "HTTPSConnection", Wire)
    with pytest.raises(ServerError):
        Server(f"{scheme}://shuffler.example/at").send("/v1/task")
    proxy, known = ("proxy.example", 3128), {"Proxy-Authorization": "Basic bWU6d29yZA=="}
    if scheme == "http":
        assert asked == [("GET", proxy, "http://shuffler.example/at/v1/task", known)]
    else:
        assert asked == [("tunnel", proxy, "shuffler.example", 443, known), ("GET", proxy, "/at/v1/task", {})]
    assert json.dumps(asked).count("shuffler.example") == 1
