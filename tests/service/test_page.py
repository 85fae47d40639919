"""The page to take part with, in a real browser beside Python and Node clients: one task for all of them."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from helpers_node import CLIENT, PAGE, ROOT, asked, why_no_node
from helpers_roles import Web, seats, soon

from croupier import ArgumentError
from croupier.protocol import VectorSum
from croupier.protocol.randomness import KeyedRandom
from croupier.service.analyzer import population as analyzer_tables
from croupier.service.analyzer.app import analyzer_app
from croupier.service.analyzer.population import RemotePopulation
from croupier.service.analyzer.task_file import TaskFile
from croupier.service.client.client import Client
from croupier.service.net.database import Database
from croupier.service.net.http import ServerError
from croupier.service.net.server import Served
from croupier.service.shuffler import rounds as shuffler_tables
from croupier.service.shuffler.app import add_claims, add_page, allow_origins, copy_page, page_files, shuffler_app
from croupier.service.shuffler.relay import AnalyzerRelay
from croupier.service.shuffler.role import ShufflerRole

pytestmark = pytest.mark.process

SCHEMA = """
target = {column = "ill", classes = ["no", "yes"]}
[columns]
age = {low = 18, high = 90}
smokes = {levels = ["never", "daily"]}
income = {low = 0, high = 1e6, scale = "log", missing = true}
"""
USERS = 12


def person(user: int) -> dict[str, str]:
    return {"age": str(20 + 5 * user), "smokes": ["never", "daily"][user % 2], "income": "31000", "ill": ["no", "yes"][user % 2]}


class World:
    """A table task for some users on sockets, its page served, and an analyzer that trains."""

    def __init__(self, folder, interactivity="sequential", rounds=2, enroller=None, users=USERS, schema=SCHEMA, **more) -> None:
        self.folder, self.enroller, self.users = folder, enroller, users
        self.analyzer_key, self.shuffler_key = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
        (folder / "schema.toml").write_text(schema)
        words = {"name": "A trial", "schema": "schema.toml", "interactivity": interactivity}
        numbers = {"users": users, "epsilon": 8.0, "delta": 1e-2, "rounds": rounds, "pace": 0.5, "honest": 1.0, "patience": 600.0}
        numbers = {name: number for name, number in (numbers | more).items() if number is not None}
        if enroller is not None:
            (folder / "enroller.json").write_text(json.dumps(enroller.to_dict()))
            words["enroller"] = "enroller.json"
        words["shuffler_key"] = self.shuffler_key.public_key().public_bytes_raw().hex()
        lines = [f'{name} = "{word}"' for name, word in words.items()] + [f"{name} = {number}" for name, number in numbers.items()]
        (folder / "task.toml").write_text("\n".join(lines))
        self.file = TaskFile.load(folder / "task.toml")
        self.task = self.file.task()
        self.model = None

    @property
    def key(self) -> str:
        return self.analyzer_key.public_key().public_bytes_raw().hex()

    @contextmanager
    def running(self):
        kept = Database(f"sqlite:///{self.folder / 'shuffler'}.db", shuffler_tables.SHUFFLER)
        self.tokens = self.enrol(kept, [f"user-{user}" for user in range(self.users)])
        store = Database(f"sqlite:///{self.folder / 'analyzer'}.db", analyzer_tables.ANALYZER)
        population = RemotePopulation(self.task, store, self.analyzer_key)
        shuffler = ShufflerRole(kept, self.shuffler_key, self.analyzer_key.public_key())
        web = shuffler_app(shuffler)
        add_page(web, lambda: self.enroller and self.enroller.address)
        add_claims(web, shuffler)

        training = threading.Thread(target=self.ask, args=[population])
        with Served(analyzer_app(population)) as analyzer, Served(web) as served, AnalyzerRelay(shuffler, analyzer.url):
            training.start()
            soon(lambda: shuffler.document)
            order = seats(kept)  # users are counted in the order of the rounds that they were drawn for
            self.tokens = [self.tokens[int(name.removeprefix("user-"))] for name in order]
            self.url = served.url
            try:
                yield self
            finally:
                population.stop()
                training.join()
        kept.close()
        store.close()

    def enrol(self, kept: Database, names: list[str]) -> list[str]:
        """What each of them is enrolled with."""
        return shuffler_tables.enrol_all(kept, names)

    def ask(self, population: RemotePopulation) -> None:
        self.model = self.file.estimator.fit_population(population, len(self.file.encoder.names))

    def counts(self) -> dict[int, list[int]]:
        """What the analyzer has counted, by round."""
        with sqlite3.connect(self.folder / "analyzer.db") as connection:
            return {number: json.loads(ones) for number, ones in connection.execute("SELECT number, ones FROM asked")}

    def invitation(self, user: int) -> str:
        person = f"&invitation={self.people[user]}" if self.enroller else ""
        return f"{self.url}/#token={self.tokens[user]}&analyzer={self.key}{person}"


class Device(Client):
    """A Python client that remembers the counts that it sent, by round."""

    said: dict[int, list[int]]

    def _report(self, document, task_round, task, gradient, random):
        seed = os.urandom(32)
        report = super()._report(document, task_round, task, gradient, KeyedRandom(seed, private=True))
        bits = VectorSum(task_round.phase_of(task).plan).randomize(gradient, KeyedRandom(seed, private=True))
        self.said = {**getattr(self, "said", {}), task_round.number: bits.bits.sum(axis=1).tolist()}
        return report


# --- without a browser ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def web(tmp_path):
    kept = Database(f"sqlite:///{tmp_path / 'shuffler'}.db", shuffler_tables.SHUFFLER)
    app = shuffler_app(ShufflerRole(kept, Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate().public_key()))
    yield app
    kept.close()


def test_the_page_is_served_whole_and_may_talk_to_its_shuffler_alone(web):
    add_page(web)
    with Web(web) as client:
        for file in PAGE.iterdir():
            answer = client.get(f"/{file.name}")
            assert (answer.status, answer.content) == (200, file.read_bytes())
            assert "connect-src 'self'" in answer.headers["content-security-policy"]
            assert "unsafe" not in answer.headers["content-security-policy"]
        assert client.get("/").content == (PAGE / "index.html").read_bytes()
        assert client.get("/v1/task").status == 503
        assert client.get("/other.js").status == 404
    page = [file for file in page_files() if file.name in ("index.html", "page.js", "croupier-client.js", "style.css")]
    assert len(page) == 4
    assert sum(len(file.packed) for file in page) < 150_000


def test_the_page_may_talk_to_the_tasks_enroller_and_to_nobody_whom_its_address_smuggles_in(web):
    addresses = iter(
        [None, "https://enroller.example:8803", "https://[::1]:9/path", "https://a;script-src *", "https://a,b", "https://a'b"]
    )
    add_page(web, lambda: next(addresses))
    allowed = ["", " https://enroller.example:8803", " https://[::1]:9", "", "", ""]
    with Web(web) as client:
        for more in allowed:
            assert f"; connect-src 'self'{more};" in client.get("/").headers["content-security-policy"]


def test_pages_of_another_origin_may_send_only_where_they_are_allowed(web):
    origin = {"Origin": "https://study.example"}
    allow_origins(web, ["https://study.example"])
    with Web(web) as client:
        assert client.get("/v1/task", origin).headers["access-control-allow-origin"] == "https://study.example"
        assert "access-control-allow-origin" not in client.get("/v1/task", {"Origin": "https://other.example"}).headers
    for wrong in ("study.example", "https://study.example/page", ""):
        with pytest.raises(ArgumentError, match="--allow-origin"):
            allow_origins(web, [wrong])


def test_the_page_can_be_written_elsewhere(tmp_path):
    assert {path.name for path in copy_page(tmp_path / "page")} == {file.name for file in PAGE.iterdir()}
    assert (tmp_path / "page" / "page.js").read_bytes() == (PAGE / "page.js").read_bytes()


# --- in a browser ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chromium():
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("Chromium is not installed")
    with driver.sync_playwright() as playwright:
        root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=path, args=root)
        yield browser
        browser.close()


class Tab:
    """A tab of a user's browser, and the reports that left it."""

    def __init__(self, context, world: World, user: int) -> None:
        self.page, self.user, self.world = context.new_page(), user, world
        self.reports: list[bytes] = []
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda problem: self.complaints.append(str(problem)))
        self.page.on("request", self._asked)

    def _asked(self, request) -> None:
        if not request.url.startswith((self.world.url, "data:", self.world.enroller.address if self.world.enroller else "data:")):
            self.complaints.append(request.url)
        if request.url.endswith("/v1/report"):
            self.reports.append(request.post_data_buffer)

    def look(self) -> None:
        self.page.goto(self.world.invitation(self.user))
        self.accept()

    def accept(self) -> None:
        assert self.world.tokens[self.user] not in self.page.url  # taken out of the address, for whoever looks at it
        # The task promises less than the page accepts by itself: the person has to say so.
        self.page.locator("#problem", has_text="Nothing was sent").wait_for(timeout=60_000)
        for name, value in (("epsilon", "8.01"), ("delta", "1e-2"), ("all-epsilon", "30"), ("all-delta", "0.2")):
            self.page.fill(f"#{name}", value)
        self.page.click("#invitation button")
        self.page.locator("#asked").wait_for(timeout=60_000)

    def fill(self) -> None:
        values = person(self.user)
        for field in self.page.locator("#fields input, #fields select").all():
            value = values[field.get_attribute("name")]
            if field.evaluate("field => field.tagName") == "SELECT":
                field.select_option(value)
            else:
                field.fill(value)
        self.page.click("#take-part")

    def hears(self, text: str) -> None:
        self.page.locator("#log li", has_text=text).first.wait_for(timeout=60_000)

    def sent(self) -> dict[int, list[int]]:
        """The counts that the page says it sent, by round: it tells them from the count of somebody who says nothing."""
        number = int(self.page.inner_text("#leaving-words").split(".")[0].removeprefix("Round "))
        plan = self.world.task.round_phases[0].plan
        assert plan.range is None  # not rotated
        nothing = plan.levels / 2 + plan.noise_bits * plan.noise_probability
        return {number: [int(float(cell.inner_text()) + nothing) for cell in self.page.locator("#numbers td:last-child").all()]}


def python_devices(world: World, users: list[int]) -> list[tuple[Device, tuple]]:
    reader, promise = world.task.query, {"max_epsilon": 8.01, "max_delta": 1e-2}
    devices = []
    for user in users:
        file, values = world.folder / f"{user}.csv", person(user)
        file.write_text(",".join(values) + "\n" + ",".join(values.values()) + "\n")
        token, folder = world.tokens[user], world.folder / f"python{user}"
        device = Device(world.url, token, world.key, folder=folder, at_once=True, **promise)
        devices.append((device, reader.read_file(file)))
    return devices


def node_devices(world: World, users: list[int]) -> list[dict]:
    folder = world.folder
    return [
        {"token": world.tokens[user], "folder": str(folder / f"node{user}"), "rows": [], "records": [person(user)]}
        for user in users
    ]


def killed_and_revived(tab: Tab, context) -> dict[int, list[int]]:
    """A tab whose report is made and cannot be sent is closed; another one sends what waits in the browser. What was sent."""
    context.route("**/v1/report", lambda route: route.abort())
    tab.fill()
    tab.page.locator("#leaving").wait_for(timeout=60_000)
    sent = tab.sent()
    soon(lambda: tab.page.wait_for_timeout(50) or tab.reports)
    tab.page.close()
    context.unroute("**/v1/report")
    revived = Tab(context, tab.world, tab.user)
    revived.look()
    revived.hears("The same bytes are sent again")
    revived.hears("Answered round")
    assert set(tab.reports) == set(revived.reports)
    return sent


def doubled(tabs: list[Tab]) -> dict[int, list[int]]:
    """Two tabs of one person: one of them answers. What was sent."""
    for tab in tabs:
        soon(lambda tab=tab: tab.page.wait_for_timeout(50) or tab.page.locator("#log li").count() > 1)
    assert len({report for tab in tabs for report in tab.reports}) == 1
    (one,) = [tab for tab in tabs if tab.reports]
    one.hears("Answered round")
    return one.sent()


@pytest.mark.skipif(why_no_node() is not None, reason=str(why_no_node()))
def test_python_node_and_pages_make_one_model_and_tabs_die_double_and_go_offline(tmp_path, chromium):
    world = World(tmp_path)
    with world.running(), ThreadPoolExecutor(8) as pool:
        promise = {"key": world.key, "epsilon": 8.01, "delta": 1e-2}
        # Users 0 to 5 are asked in the first round, 6 to 11 in the second.
        in_node = pool.submit(asked, "devices", shuffler=world.url, devices=node_devices(world, [2, 3, 8, 9]), **promise)
        devices = python_devices(world, [0, 1, 6, 7])
        in_python = [pool.submit(lambda d=d, r=r: soon(lambda: answered(d, r))) for d, r in devices]
        contexts = [chromium.new_context(viewport={"width": 390, "height": 800}) for _ in range(4)]
        killed, offline, usual = (Tab(contexts[place], world, user) for place, user in enumerate((4, 5, 10)))
        double = [Tab(contexts[3], world, 11) for _ in range(2)]
        for tab in (usual, killed, offline, *double):
            tab.look()
        contexts[1].set_offline(True)
        for tab in (usual, offline, *double):
            tab.fill()
        said = [killed_and_revived(killed, contexts[0])]
        assert offline.reports == []
        contexts[1].set_offline(False)
        for tab in (usual, offline):
            tab.hears("Answered round")
            said.append(tab.sent())
        said.append(doubled(double))
        assert not [complaint for tab in (usual, killed, offline, *double) for complaint in tab.complaints]
        said += [answer["said"] for answer in in_node.result()]
        assert all(done.result() for done in in_python)
        said += [device.said for device, _ in devices]
        soon(lambda: world.model is not None)
        counts = world.counts()
    by_round = [{int(number): sent for number, sent in one.items()} for one in said]
    assert len(by_round) == USERS
    for number in (1, 2):
        sent = [one[number] for one in by_round if number in one]
        assert len(sent) == USERS // 2
        assert np.sum(sent, axis=0).tolist() == counts[number]
    assert np.isfinite(world.model.coef_).all()
    for context in contexts:
        context.close()


def answered(device: Device, records) -> bool:
    try:
        return device.take_part(*records) is not None
    except ServerError:
        return False


def test_every_vector_passes_in_the_browser(tmp_path, chromium):
    app_files = {f"/{name}.mjs": CLIENT / "test" / f"{name}.mjs" for name in ("vectors", "questions")}
    app_files["/croupier-client.js"] = PAGE / "croupier-client.js"
    context = chromium.new_context()

    def answer(route) -> None:
        path = route.request.url.removeprefix("https://vectors.example")
        if path == "/":
            route.fulfill(body="<!doctype html><title>vectors</title>", content_type="text/html")
            return
        file = app_files.get(path) or ROOT / "tests" / path.removeprefix("/tests/")
        if not file.exists():
            route.fulfill(status=404)
            return
        route.fulfill(body=file.read_bytes(), content_type="text/javascript" if path in app_files else "application/json")

    context.route("https://vectors.example/**", answer)
    tab = context.new_page()
    tab.goto("https://vectors.example/")
    checked = tab.evaluate(
        """async () => {
            const client = await import("/croupier-client.js");
            const { checkVectors } = await import("/vectors.mjs");
            const { checkQuestions } = await import("/questions.mjs");
            const load = async (name) => (await fetch(`/tests/${name}`)).text();
            return (await checkVectors(client, load)) + (await checkQuestions(client, load));
        }"""
    )
    assert checked > 350
    context.close()
