"""Invitation links: everything pinned, one device, until a time; and the QR codes that show them."""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from helpers_node import PAGE, node
from helpers_roles import Web, postgres_server, why_no_postgres
from test_page import Tab, World, chromium, person

from croupier.cli import main
from croupier.service.client.state import InvitationLink, claimed_token
from croupier.service.net.database import Database, hash_of
from croupier.service.net.http import Server, ServerError
from croupier.service.net.server import Served
from croupier.service.shuffler import rounds
from croupier.service.shuffler.app import add_claims, add_page, claim, invitation_link, invite, shuffler_app
from croupier.service.shuffler.role import ShufflerRole
from croupier.service.wire.task import RefusedError
from croupier.validation import ArgumentError

pytestmark = pytest.mark.process

__all__ = ["chromium"]  # the fixture
KEY = "ab" * 32
PINS = {"analyzer": KEY, "shuffler": "https://shuffler.example"}


@pytest.fixture(scope="module")
def postgres():
    if why_no_postgres() is not None:
        pytest.skip(str(why_no_postgres()))
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    url = f"sqlite:///{tmp_path / 'shuffler'}.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres")(request.function.__name__[:40])
    opened = Database(url, rounds.SHUFFLER)
    yield opened
    opened.close()


def status(store, code: str, token: str, now: float) -> int:
    try:
        claim(store, code, hash_of(token), now)
    except RefusedError as refusal:
        return refusal.status
    return 200


def test_the_first_device_has_an_invitation_and_no_other_one(store):
    [code, other] = invite(store, ["ann", "bob"], until=100.0)
    assert rounds.clients_of(store, [hash_of("mine")]) == {}
    assert status(store, "unknown", "mine", 1.0) == 401
    assert status(store, code, "mine", 99.0) == 200
    assert rounds.clients_of(store, [hash_of("mine")]) == {hash_of("mine"): "ann"}
    assert status(store, code, "mine", 1e9) == 200  # a retry, whenever
    assert status(store, code, "thief", 99.0) == 409
    assert rounds.clients_of(store, [hash_of("thief")]) == {}
    assert status(store, other, "bobs", 100.0) == 410  # it has expired
    assert rounds.clients_of(store, [hash_of("bobs")]) == {}
    assert rounds.revoke(store, ["ann", "bob"]) == ["ann", "bob"]
    assert status(store, code, "mine", 99.0) == 409
    assert status(store, other, "bobs", 99.0) == 409
    assert rounds.clients_of(store, [hash_of("mine"), hash_of("bobs"), ""]) == {}
    with store.look() as connection:
        stored = str(connection.execute(rounds.invitations.select()).all())
    assert code not in stored
    assert other not in stored


def test_a_token_of_somebody_else_cannot_be_claimed(store):
    [code] = invite(store, ["ann"], until=100.0)
    token = rounds.enrol(store, "bob")
    assert status(store, code, token, 1.0) == 400
    assert status(store, code, "mine", 1.0) == 200


def test_of_devices_that_come_together_one_has_it(store):
    [code] = invite(store, ["ann"], until=100.0)
    with ThreadPoolExecutor(8) as pool:
        heard = list(pool.map(lambda device: status(store, code, f"device {device}", 1.0), range(8)))
    assert sorted(heard) == [200] + [409] * 7


class Service:
    """A shuffler without a task, that takes claims."""

    def __init__(self, folder) -> None:
        self.store = Database(f"sqlite:///{folder / 'shuffler'}.db", rounds.SHUFFLER)
        self.role = ShufflerRole(self.store, Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate().public_key())
        self.app = shuffler_app(self.role)
        add_page(self.app)
        add_claims(self.app, self.role)


@pytest.fixture
def service(tmp_path):
    made = Service(tmp_path)
    yield made
    made.store.close()


def test_the_server_enforces_the_end_and_refuses_what_is_no_claim(service):
    now = service.role.clock.now()
    [good] = invite(service.store, ["ann"], until=now + 60)
    [old] = invite(service.store, ["bob"], until=now - 1)
    with Web(service.app) as web:

        def ask(code: str, body: bytes) -> int:
            return web.post("/v1/claim", body, {"Authorization": f"Bearer {code}"}).status

        assert ask(good, b"x" * 64) == 400
        assert ask(good, b"0" * 65) == 413
        assert ask(old, b"0" * 64) == 410
        assert ask("", b"0" * 64) == 401
        assert ask(good, b"0" * 64) == 200
        assert [ask(good, b"0" * 64) for _ in range(40)][-1] == 429


def test_python_and_node_claim_alike_and_once(service, tmp_path):
    codes = invite(service.store, ["ann", "bob"], until=time.time() + 60)
    with Served(service.app) as served:
        server = Server(served.url)
        token = claimed_token(tmp_path / "ann", server, codes[0])
        assert claimed_token(tmp_path / "ann", server, codes[0]) == token
        with pytest.raises(ArgumentError, match="used on another device"):
            claimed_token(tmp_path / "thief", server, codes[0])
        with pytest.raises(ServerError):
            claimed_token(tmp_path / "lost", Server("http://127.0.0.1:9"), codes[1])
        program = f"""
            import {{ Client }} from "{PAGE}/croupier-client.js";
            import {{ FolderStore }} from "{PAGE}/croupier-node.js";
            const invited = {{ shuffler: "{served.url}", code: "{codes[1]}", analyzerKey: "{KEY}" }};
            const made = (name) => new Client({{ ...invited, store: new FolderStore(name) }});
            const said = [await made("{tmp_path}/bob").isClaimed()];
            await made("{tmp_path}/bob").claim();
            await made("{tmp_path}/bob").claim();
            said.push(await made("{tmp_path}/bob").isClaimed());
            await made("{tmp_path}/eve").claim().catch((problem) => said.push(problem.name, problem.message));
            console.log(JSON.stringify(said));
        """
        (tmp_path / "claim.mjs").write_text(program)
        before, after, name, message = json.loads(node(tmp_path / "claim.mjs"))
    assert (before, after, name) == (False, True, "InvitationError")
    assert "used on another device" in message
    assert len(rounds.clients_of(service.store, [hash_of(token)])) == 1


LINK = invitation_link("https://page.example/", code="c" * 43, until=2e9, enroller="https://enroller.example", sign_in=True, **PINS)


def test_a_link_says_everything_after_the_hash_and_is_read_by_both_clients():
    parts = urlsplit(LINK)
    assert (parts.query, parts.path) == ("", "/")
    assert set(parse_qs(parts.fragment)) == {"code", "analyzer", "shuffler", "until", "enroller", "signin"}
    read = InvitationLink.read(LINK)
    assert (read.analyzer, read.shuffler, read.code) == (KEY, "https://shuffler.example", "c" * 43)
    assert read.enroller == "https://enroller.example"


BAD = [
    "",
    "#main",
    f"#code=x&analyzer={KEY}&code=y",
    f"#code=x&analyzer={KEY}&epsilon=100",
    f"#code=x&token=y&analyzer={KEY}",
    f"#analyzer={KEY}",
    "#code=x&analyzer=ab",
    f"#code=x%20y&analyzer={KEY}",
    f"#code=x&analyzer={KEY}&shuffler=http://shuffler.example",
    f"#code=x&analyzer={KEY}&shuffler=javascript:alert(1)",
    f"#code=x&analyzer={KEY}&enroller=http://enroller.example",
]


def test_what_is_no_whole_link_is_refused_by_both_clients(tmp_path):
    for link in BAD:
        with pytest.raises(ArgumentError):
            InvitationLink.read(f"https://page.example/{link}")
    lines = [f'import {{ readLink }} from "{PAGE}/croupier-client.js"; const said = [];']
    lines += [
        f"try {{ readLink({json.dumps(link)}); said.push(true); }} catch {{ said.push(false); }}" for link in [*BAD, LINK[21:]]
    ]
    (tmp_path / "read.mjs").write_text("\n".join([*lines, "console.log(JSON.stringify(said));"]))
    assert json.loads(node(tmp_path / "read.mjs")) == [False] * len(BAD) + [True]


# The command, and the page in a browser.


@pytest.fixture
def run(monkeypatch, capsys):
    def command(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["croupier", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return command


def test_invite_writes_links_and_codes_for_their_owner_alone_and_an_act_without_secrets(run, tmp_path):
    where = ("--link", "https://shuffler.example/", "--analyzer-key", KEY)
    invited = ("serve", "invite", "--dir", tmp_path / "s", "--people", 3, *where, "-o", tmp_path / "links", "--qr", tmp_path / "qr")
    code, _, err = run(*invited)
    assert code == 0, err
    rows = [line.split("\t") for line in (tmp_path / "links").read_text().splitlines()]
    assert len({link for _, link in rows}) == len({InvitationLink.read(link).code for _, link in rows}) == 3
    assert {file.name for file in (tmp_path / "qr").iterdir()} == {f"{handle}.svg" for handle, _ in rows}
    for file in [tmp_path / "links", *(tmp_path / "qr").iterdir(), tmp_path / "s" / "audit.jsonl"]:
        assert file.stat().st_mode & 0o077 == 0
    act = json.loads((tmp_path / "s" / "audit.jsonl").read_text())
    assert (act["act"], act["people"]) == ("invite", 3)
    assert not any(InvitationLink.read(link).code in json.dumps(act) for _, link in rows)
    assert run(*invited)[0] == 2  # neither file is written over, and nobody is enrolled
    store = Database(f"sqlite:///{tmp_path / 's' / 'shuffler'}.db", rounds.SHUFFLER)
    with store.look() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM clients").scalar() == 3
    store.close()
    for more in (("--link", "https://x.example/#a"), ("--expires", "soon"), ("--sign-in",), ("--analyzer-key", "ab")):
        assert run("serve", "invite", "--dir", tmp_path / "t", *where, "-o", "-", *more)[0] == 2
    assert not (tmp_path / "t").exists()
    (tmp_path / "old").mkdir()
    code, _, err = run("serve", "invite", "--dir", tmp_path / "u", *where, "-o", tmp_path / "more", "--qr", tmp_path / "old")
    assert (code, "a new folder" in err) == (2, True)  # before anybody is enrolled
    assert not (tmp_path / "u").exists()
    assert not (tmp_path / "more").exists()
    assert run("serve", "invite", "--dir", tmp_path / "u", *where, "-o", tmp_path / "links", "--qr", tmp_path / "new")[0] == 2
    assert not (tmp_path / "new").exists()


class Invited(World):
    """A world whose people have links in the place of tokens."""

    def enrol(self, kept, names):
        self.kept = kept
        return invite(kept, names, time.time() + 600)

    def ask(self, population) -> None:
        with suppress(KeyboardInterrupt):  # nobody else comes
            super().ask(population)

    def invitation(self, user: int) -> str:
        until = time.time() + 600
        return invitation_link(f"{self.url}/", code=self.tokens[user], analyzer=self.key, shuffler=self.url, until=until)


def invited_world(tmp_path) -> Invited:
    return Invited(tmp_path, users=12, pace=0.2)


def test_a_link_opens_the_page_which_shows_its_pins_and_binds_one_device(tmp_path, chromium):
    world = invited_world(tmp_path)
    with world.running():
        link = world.invitation(0)
        context, other = chromium.new_context(viewport={"width": 390, "height": 800}), chromium.new_context()
        tab = Tab(context, world, 0)
        tab.page.goto(link)
        tab.page.locator("#problem", has_text="Nothing was sent").wait_for(timeout=60_000)
        pins = tab.page.inner_text("#pins")
        assert world.key in pins
        assert world.url in pins
        assert "Valid until" in pins
        assert world.tokens[0] not in tab.page.url
        assert tab.page.locator("#analyzer").get_attribute("readonly") is not None
        tab.page.screenshot(path=tmp_path / "pins.png", full_page=True)
        tab.accept()
        assert not tab.page.is_visible("#record")  # not before the person says that it is this device
        assert status(world.kept, world.tokens[0], "peek", time.time() + 1e6) == 410  # nobody has claimed it yet
        tab.page.screenshot(path=tmp_path / "claim.png", full_page=True)
        tab.page.click("#claim-button")
        tab.page.locator("#record").wait_for(timeout=60_000)
        second = Tab(other, world, 0)
        second.page.goto(link)
        second.accept()
        second.page.click("#claim-button")
        second.page.locator("#problem", has_text="used on another device").wait_for(timeout=60_000)
        assert not second.page.is_visible("#record")
        tab.page.goto("about:blank")
        tab.page.goto(link)  # the same device again: it is claimed, and goes on by itself
        tab.accept()
        tab.page.locator("#record").wait_for(timeout=60_000)
        tab.fill()
        tab.hears("Waiting for a round")
        assert not [complaint for one in (tab, second) for complaint in one.complaints]
        for one in (context, other):
            one.close()


def test_a_page_refuses_a_task_of_another_analyzer_and_half_a_link(tmp_path, chromium):
    world = invited_world(tmp_path)
    with world.running():
        context = chromium.new_context()
        page = context.new_page()
        page.goto(world.invitation(0).replace(world.key, KEY))
        page.locator("#problem", has_text="signature").wait_for(timeout=60_000)
        page.goto("about:blank")
        page.goto(f"{world.invitation(0)}&epsilon=50")
        page.locator("#problem", has_text="a word that this page does not know").wait_for(timeout=60_000)
        assert page.input_value("#analyzer") == ""
        context.close()


def test_join_takes_a_link_and_nothing_that_it_does_not_pin(run, tmp_path):
    world = invited_world(tmp_path)
    with world.running():
        values = person(0)
        (tmp_path / "me.csv").write_text(",".join(values) + "\n" + ",".join(values.values()) + "\n")
        own = ("--budget-epsilon", 30, "--budget-delta", 0.2, "--budget-file", tmp_path / "b.json", "--dir", tmp_path / "me")
        words = (
            "join",
            "--data",
            tmp_path / "me.csv",
            "--link",
            world.invitation(0),
            "--max-epsilon",
            8.01,
            "--max-delta",
            1e-2,
            *own,
        )
        code, _, err = run(*words, "--analyzer-key", KEY)
        assert (code, "which the link pins" in err) == (2, True)
        code, _, err = run(*words, "--wait", 5)
        assert "Answered round" in err or "no round asked this user" in err, err
        with world.kept.look() as connection:
            query = "SELECT count(*) FROM invitations WHERE token_hash IS NOT NULL"
            assert connection.exec_driver_sql(query).scalar() == 1
