"""Limits per address, HSTS, and the log of operators' acts."""

from __future__ import annotations

import asyncio
import json
import os
import stat

from croupier.cli.processes import record_act
from croupier.service.net import limits
from croupier.service.net.limits import BURST, PER_SECOND, WRONG_BURST, AddressLimit, Buckets


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Asked:
    """An app behind a limit, asked without a socket: the status of each answer."""

    def __init__(self, **options) -> None:
        self.clock, self.served = Clock(), 0
        self.app = AddressLimit(self._app, clock=self.clock, **options)

    async def _app(self, scope, receive, send) -> None:
        self.served += 1
        known = dict(scope["headers"]).get(b"authorization", b"right") == b"right"
        await send({"type": "http.response.start", "status": 200 if known else 401, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def __call__(self, address: str, times: int = 1, **headers: str) -> list[int]:
        found: list[int] = []

        async def send(message) -> None:
            if message["type"] == "http.response.start":
                found.append(message["status"])

        async def run() -> None:
            given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
            for _ in range(times):
                await self.app({"type": "http", "client": (address, 1), "headers": given}, None, send)

        asyncio.run(run())
        return found


def test_an_address_without_a_token_is_refused_when_it_asks_too_often_and_served_again_later():
    asked = Asked()
    assert asked("203.0.113.7", int(BURST)) == [200] * int(BURST)
    assert asked("203.0.113.7", 3) == [429] * 3
    assert asked.served == BURST  # who is refused costs nothing
    assert asked("203.0.113.8") == [200]
    asked.clock.now += 1.0
    assert asked("203.0.113.7", int(PER_SECOND) + 1) == [200] * int(PER_SECOND) + [429]


def test_a_right_token_is_not_limited_here_and_wrong_ones_are():
    asked = Asked()
    assert set(asked("203.0.113.7", 3 * int(BURST), authorization="right")) == {200}
    assert asked("203.0.113.7", int(WRONG_BURST) + 5, authorization="wrong") == [401] * int(WRONG_BURST) + [429] * 5
    assert asked("203.0.113.7") == [200]  # what it may ask without one is another matter
    asked.clock.now += 2.0
    assert asked("203.0.113.7", authorization="right") == [200]


def test_a_household_has_one_bucket_in_ipv6_and_this_machine_has_none():
    asked = Asked()
    asked("2001:db8::1", int(BURST))
    assert asked("2001:db8::ffff:2") == [429]
    assert asked("2001:db8:0:1::1") == [200]
    asked("::ffff:203.0.113.9", int(BURST))
    assert asked("203.0.113.9") == [429]
    for here in ("127.0.0.1", "::1"):
        assert set(asked(here, int(BURST) + 1)) == {200}


def test_behind_a_proxy_its_last_word_counts_and_not_what_a_client_says():
    """The attack: a new address in the header with every request."""
    asked = Asked(header="X-Forwarded-For")
    for number in range(int(BURST)):
        assert asked("127.0.0.1", x_forwarded_for=f"10.0.{number // 256}.{number % 256}, 203.0.113.7") == [200]
    assert asked("127.0.0.1", x_forwarded_for="198.51.100.1, 203.0.113.7") == [429]
    assert asked("127.0.0.1", x_forwarded_for="198.51.100.1") == [200]


def test_addresses_that_are_remembered_have_a_limit_themselves(monkeypatch):
    monkeypatch.setattr(limits, "MOST_ADDRESSES", 100)
    clock = Clock()
    buckets = Buckets(3, 1.0, clock)
    for _ in range(3):
        assert buckets.take("busy")
    for number in range(500):
        assert buckets.take(f"other {number}")
        clock.now += 0.0001
    assert len(buckets._left) <= 100
    assert not buckets.take("busy")  # whoever asks most is not forgotten


def test_an_act_is_a_line_for_its_owner_alone_with_who_when_and_what(tmp_path, monkeypatch):
    monkeypatch.setenv("LOGNAME", "somebody else")
    monkeypatch.setenv("USER", "somebody else")
    folder = tmp_path / "role"
    record_act(folder, "revoke", clients=["a1b2"])
    record_act(folder, "enrol", clients=3)
    first, second = map(json.loads, (folder / "audit.jsonl").read_text().splitlines())
    assert (first["act"], first["clients"], second["act"], second["clients"]) == ("revoke", ["a1b2"], "enrol", 3)
    assert "somebody" not in first["by"]
    assert first["at"].endswith("Z")
    assert stat.S_IMODE(os.stat(folder / "audit.jsonl").st_mode) == 0o600


def test_what_cannot_be_logged_is_not_done(tmp_path, monkeypatch):
    """A full disk, say: nobody is revoked without a line."""
    from typer.testing import CliRunner  # noqa: PLC0415

    from croupier.cli.app import app  # noqa: PLC0415
    from croupier.service.net.database import Database, hash_of  # noqa: PLC0415
    from croupier.service.shuffler import rounds  # noqa: PLC0415

    store = Database(f"sqlite:///{tmp_path / 'shuffler'}.db", rounds.SHUFFLER)
    token = rounds.enrol(store, "ann")
    (tmp_path / "audit.jsonl").mkdir()
    done = CliRunner().invoke(app, ["serve", "revoke", "--dir", str(tmp_path), "--client", "ann"])
    assert isinstance(done.exception, OSError)
    assert rounds.clients_of(store, [hash_of(token)])
    (tmp_path / "audit.jsonl").rmdir()
    assert CliRunner().invoke(app, ["serve", "revoke", "--dir", str(tmp_path), "--client", "ann"]).exit_code == 0
    assert not rounds.clients_of(store, [hash_of(token)])
    store.close()
