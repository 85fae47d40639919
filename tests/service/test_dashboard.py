"""The analyzer's page: its figures against ones computed here from a real run, what it may load, and how a browser shows it."""

from __future__ import annotations

import http.client
import json
import math
import os
import re
import shutil
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from helpers_exclusions import bring
from helpers_roles import seats
from scipy.optimize import brentq
from scipy.stats import chi2, norm

import croupier as cr
from croupier.optimizer.training import run
from croupier.protocol import VectorSum
from croupier.service.analyzer import population as analyzer_tables
from croupier.service.analyzer.app import analyzer_app
from croupier.service.analyzer.dashboard import MOST_POINTS, POLICY, Dashboard, Heard, curve, page, run_state
from croupier.service.analyzer.population import RemotePopulation
from croupier.service.net import database as store
from croupier.service.net.server import Served
from croupier.service.shuffler import rounds as shuffler_tables
from croupier.service.shuffler.app import shuffler_app
from croupier.service.shuffler.relay import AnalyzerRelay
from croupier.service.shuffler.role import ShufflerRole
from croupier.service.wire.documents import ARRIVALS, ROUND, Document, WireError
from croupier.service.wire.queries import TrainingQuery
from croupier.service.wire.task import Answered, Task, TaskRound
from croupier.service.wire.transports import TRANSPORTS

pytestmark = pytest.mark.process

USERS, DIM, ROUNDS, EPSILON, DELTA = 60, 3, 3, 4.0, 1e-3


class Run:
    """A small run, the people in it, and the counts of ones that they sent, noted here for every round."""

    def __init__(self, folder, interactivity="sequential", *, honest=1.0, patience=None, rounds=ROUNDS):
        rng = np.random.default_rng(0)
        self.X = rng.normal(size=(USERS, DIM)) / 3
        self.y = (self.X[:, 0] > 0).astype(float)
        self.problem = cr.Problem(loss=cr.losses.Logistic(), domain=cr.domains.Ball(dim=DIM, radius=5.0))
        asked = {"epsilon": EPSILON, "delta": DELTA, "rounds": rounds, "honest": honest, "interactivity": interactivity}
        self.schedule = cr.schedule(self.problem, USERS, **asked, lots="open")
        self.key, self.shuffler_key = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
        public = self.shuffler_key.public_key()
        self.task = Task("masked-sum", USERS, TrainingQuery(self.problem), self.schedule, public, patience=patience)
        self.population = RemotePopulation(
            self.task, store.Database(f"sqlite:///{folder}/a.db", analyzer_tables.ANALYZER), self.key
        )
        self.shuffler = ShufflerRole(
            store.Database(f"sqlite:///{folder}/s.db", shuffler_tables.SHUFFLER), self.shuffler_key, self.key.public_key()
        )
        for i in range(USERS):
            shuffler_tables.enrol(self.shuffler.store, f"c{i}")
        self.shuffler.take_task(self.population.document)
        self.names = seats(self.shuffler.store)
        self.counts, self.next, self.result = [], 0, None
        self._thread = threading.Thread(target=self._train, args=(folder,), daemon=True)
        self._thread.start()

    def _train(self, folder):
        with suppress(KeyboardInterrupt):
            self.result = run(self.problem, self.population, self.schedule, start=np.zeros(DIM), checkpoint=folder / "run")

    def arrive(self, people=None):
        """So many people answer the present round; default: all that it wants. Returns how many it has."""
        document = self._present()
        made = self.shuffler.open(document)
        plan = made.phase_of(self.task).plan
        if len(self.counts) < made.number:
            self.counts.append(SimpleNamespace(ones=np.zeros(DIM, dtype=int), users=0, plan=plan))
            self.next = 0 if self.schedule.interactivity == "full" else self.next
        here = self.counts[-1]
        for _ in range(plan.users - here.users if people is None else people):
            i, self.next = self.next, self.next + 1
            bits = VectorSum(plan).randomize(made.vector(self.task, self.X[i : i + 1], self.y[i : i + 1]))
            here.ones, here.users = here.ones + bits.bits.sum(axis=1), here.users + 1
            sealed = TRANSPORTS["masked-sum"].seal(bits, plan, document.digest, made.key)
            self.shuffler.receive(self.names[i], sealed.to_bytes())
        return here.users

    def forward(self):
        bring(self.shuffler, self.population)
        while len(self.population.answered()) < len(self.counts):  # until it is opened
            time.sleep(0.005)

    def round(self):
        self.arrive()
        self.forward()

    def finish(self):
        while len(self.counts) < self.schedule.rounds:
            self.round()
        self._thread.join(timeout=30)
        return self.result

    def _present(self):
        for _ in range(2000):
            if (document := self.population.current()) is not None:
                return document
            time.sleep(0.005)
        raise AssertionError("no round was published")

    def close(self):
        self.population.stop()
        self._thread.join(timeout=30)
        self.population.store.close()
        self.shuffler.store.close()


@pytest.fixture
def started(tmp_path):
    """Starts runs, and ends them."""
    runs = []

    def start(*args, **kwargs):
        folder = tmp_path / str(len(runs))
        folder.mkdir()
        runs.append(Run(folder, *args, **kwargs))
        return runs[-1]

    yield start
    for made in runs:
        made.close()


def state_of(made, heard=None):
    return run_state(made.task, made.population.answered(), made.population.waiting(), heard)


# --- figures --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interactivity", ["sequential", "full"])
def test_the_curve_is_what_the_users_bits_add_up_to(started, interactivity):
    """Lengths from the bits as they left the users, noise from the law of a bit; and as the optimizer's own transcript has them."""
    made = started(interactivity)
    result = made.finish()
    points = state_of(made)["curve"]
    assert [point["first"] for point in points] == [point["last"] for point in points] == list(range(1, len(made.counts) + 1))
    for point, here, entry in zip(points, made.counts, result.history, strict=True):
        plan, n = here.plan, here.users
        unit, p = 2 * plan.norm / plan.levels, plan.noise_probability
        mean = unit * (here.ones / n - plan.noise_bits * p) - plan.norm
        std = unit * math.sqrt((0.25 + plan.noise_bits * p * (1 - p)) / n)
        assert point["length"] == pytest.approx(math.hypot(*mean), rel=1e-4)
        assert point["length"] == pytest.approx(np.linalg.norm(entry.gradient), rel=1e-4)
        assert point["noise"] == pytest.approx(std * math.sqrt(DIM), rel=1e-4)
        assert point["noise"] == pytest.approx(plan.noise_std / n * math.sqrt(DIM), rel=1e-4)
        assert (point["low"], point["high"]) == pytest.approx(tuple(std * np.sqrt(chi2.ppf([0.025, 0.975], DIM))), rel=1e-4)
        assert (point["users"], point["phase"]) == (n, entry.phase)


def epsilon_by_hand(mu, slack, delta):
    """Balle and Wang's curve, solved."""

    def excess(epsilon):
        return slack + norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta

    return brentq(excess, 0, 50, xtol=1e-12)


@pytest.mark.parametrize("interactivity", ["sequential", "full"])
def test_the_privacy_shown_is_that_of_the_whole_run_from_first_to_last(started, interactivity):
    """A figure for the rounds so far would not hold for whoever stops after watching it."""
    made = started(interactivity)
    chosen, before = made.schedule, state_of(made)["privacy"]
    delta = chosen.phases[0].plan.delta + chosen.shortfall
    whole = max(epsilon_by_hand(phase.plan.mu, phase.plan.slack + chosen.shortfall, delta) for phase in chosen.phases)
    assert set(before) == {"epsilon", "delta", "watched"}
    assert before["watched"] is None  # its lots are open
    assert whole * (1 - 1e-9) <= float(before["epsilon"]) <= whole * 1.01
    assert float(before["delta"]) >= delta * (1 - 1e-12)
    for _ in range(chosen.rounds):
        made.round()
        assert state_of(made)["privacy"] == before


@pytest.mark.parametrize("interactivity", ["sequential", "full"])
def test_rounds_people_bits_and_the_plan(started, interactivity):
    made = started(interactivity)
    full, plan = interactivity == "full", made.schedule.phases[0].plan
    made.round()
    made.arrive(2)
    now = state_of(made, Heard(2, 2))
    assert json.loads(json.dumps(now, allow_nan=False)) == now
    assert (now["rounds"]["done"], now["rounds"]["planned"], now["rounds"]["present"]) == (1, made.schedule.rounds, 2)
    assert now["people"] == {"all": USERS, "answered": made.counts[0].users, "once": not full}
    assert now["status"] == "asking"
    wanted = {"arrived": 2, "news": True, "wanted": plan.users, "minimum": plan.honest_users, "patience": None, "seconds": None}
    assert now["arrivals"] == wanted
    most = max((p.plan.levels + p.plan.noise_bits) * DIM * (p.rounds if full else 1) for p in made.schedule.phases)
    assert now["bits"]["person"] == most
    widest = max((p.plan.users * (p.plan.levels + p.plan.noise_bits)).bit_length() for p in made.schedule.phases)
    assert now["bits"]["bytes"] == 16 + 32 + 80 + math.ceil(DIM * widest / 8)  # docs/protocol.md
    words = dict(now["plan"])
    assert words["model"] == "logistic loss, 3 weights in a ball (radius 5)"
    assert words["a person"] == ("is in every round" if full else "is in one round at most")
    assert words["a round ends"] == f"with {plan.users} reports"
    assert f"{plan.levels:,} levels and {plan.noise_bits:,} noise bits" in words["message"]
    assert now["promise"]["short"] == "epsilon 4, delta 0.001"
    assert "54.6 (e^epsilon)," in now["promise"]["words"]  # exp(4) = 54.598, rounded up
    assert "All people add" in now["promise"]["if"]
    assert "Assumptions about the records: if others can see a refusal, all records are valid" in now["promise"]["if"]
    made.finish()
    assert state_of(made)["status"] == "finished"


def test_a_round_that_may_end_early(started):
    made = started(honest=0.9, patience=60.0)
    plan, now = made.schedule.phases[0].plan, state_of(made)
    assert plan.honest_users < plan.users
    assert (now["arrivals"]["minimum"], now["arrivals"]["patience"]) == (plan.honest_users, 60.0)
    assert dict(now["plan"])["a round ends"].endswith(f"or after 60 seconds with at least {plan.honest_users}")
    assert "At least 90 % of all people add" in now["promise"]["if"]


def test_many_rounds_are_shown_in_groups(started):
    chosen = started().schedule
    many = [Answered(number, 1, 20, float(number)) for number in range(1, 10_001)]
    points = curve(chosen, many)
    assert len(points) <= MOST_POINTS
    assert (points[0]["first"], points[-1]["last"]) == (1, 10_000)
    assert all(before["last"] + 1 == after["first"] for before, after in pairwise(points))
    assert points[0]["length"] == pytest.approx((1 + points[0]["last"]) / 2)
    assert len(json.dumps(points)) < 60_000


# --- what the shuffler says of arrivals -----------------------------------------------------------------------------------------


def test_arrivals_are_taken_from_the_tasks_shuffler_alone(started):
    made = started()
    made.arrive(5)
    board, said = Dashboard(made.population), made.shuffler.said(made.shuffler.arrivals())
    assert said.kind == ARRIVALS == 4
    assert json.loads(said.text) == {"task": made.task.id, "round": 1, "arrived": 5}
    made.shuffler_key.public_key().verify(said.signature, b"croupier signature v1\x04" + said.text)
    board.hear(said.to_bytes())
    assert board.state()["arrivals"]["arrived"] == 5

    def word(kind=ARRIVALS, key=made.shuffler_key, **values):
        return Document.signed(kind, {"task": made.task.id, "round": 1, "arrived": 7} | values, key).to_bytes()

    plan = made.schedule.phases[0].plan
    refused = {
        "key": word(key=Ed25519PrivateKey.generate()),
        "analyzer's key": word(key=made.key),
        "kind": word(kind=ROUND),
        "task": word(task="t2"),
        "field": word(more=1),
        "too many": word(arrived=plan.users + 1),
        "negative": word(arrived=-1),
        "bool": word(arrived=True),
        "text": word(arrived="7"),
        "fraction": word(arrived=7.5),
        "nothing": b"",
        "rest": word() + b"x",
    }
    for data in refused.values():
        with pytest.raises(WireError):
            board.hear(data)
    for data in (word(round=2), word(round=3), word(arrived=3)):  # of other rounds, an old one again
        board.hear(data)
    assert board.state(anew=True)["arrivals"]["arrived"] == 5
    board.hear(word(arrived=7))
    assert board.state(anew=True)["arrivals"]["arrived"] == 7
    made.arrive()
    made.forward()
    made._present()
    assert board.state(anew=True)["arrivals"]["arrived"] is None  # of another round by now


def test_arrivals_reach_the_analyzer_over_the_network(started):
    made = started()
    app = shuffler_app(made.shuffler)
    with Served(analyzer_app(made.population)) as analyzer, Served(app) as shuffler:
        assert set(got(shuffler, "/v1/arrivals").values()) == {None}
        made.arrive(4)
        plan = made.schedule.phases[0].plan
        expected = {"round": 1, "arrived": 4, "wanted": plan.users, "minimum": plan.honest_users}
        assert got(shuffler, "/v1/arrivals") == expected
        assert got(analyzer, "/v1/state")["arrivals"]["arrived"] is None
        with AnalyzerRelay(made.shuffler, analyzer.url):
            assert eventually(lambda: got(analyzer, "/v1/state")["arrivals"]["arrived"] == 4)
            made.arrive(1)
            assert eventually(lambda: got(analyzer, "/v1/state")["arrivals"]["arrived"] == 5)
        with pytest.raises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(analyzer.url + "/v1/arrivals", data=b"x" * 64, timeout=60)
        assert refusal.value.code == 400
        refusal.value.close()
        with pytest.raises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(analyzer.url + "/v1/arrivals", data=b"x" * 5000, timeout=60)
        assert refusal.value.code == 413
        refusal.value.close()


def got(served, path):
    with urllib.request.urlopen(served.url + path, timeout=60) as answer:
        return json.load(answer)


def eventually(true, seconds=60.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.05)
    return False


# --- the page as text -----------------------------------------------------------------------------------------------------------

VOID = {"meta", "br", "link", "img", "input", "hr"}
SOURCE = files("croupier.service.analyzer").joinpath("dashboard.html").read_text(encoding="utf-8")


class Tags(HTMLParser):
    """Tags that are open and shut in order, and their attributes."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_loads_nothing(started):
    made = started()
    made._present()
    text = page(state_of(made))
    tags = Tags(text)
    assert tags.open == []
    assert "http:" not in text
    assert "https:" not in text
    for tag, attributes in tags.seen:
        assert not {"src", "srcset", "style", "action"} & set(attributes), tag  # a style attribute is what the policy forbids
        assert not any(name.startswith("on") for name in attributes), tag
        assert attributes.get("href", "v1/state") in ("v1/state", "answer", "data:,")
    assert "@import" not in text
    assert "url(" not in text
    assert "innerHTML" not in text
    first = re.search(r'<script type="application/json" id="first">(.*?)</script>', text, re.DOTALL)[1]
    assert json.loads(first) == state_of(made)


def test_a_state_cannot_end_the_script_it_is_in():
    text = page({"task": "</script><script>alert(1)</script>"})
    assert "<script>alert" not in text
    assert text.count("<script") == SOURCE.count("<script")


def test_every_id_that_the_script_names_is_there_once():
    ids = [attributes["id"] for _, attributes in Tags(SOURCE).seen if "id" in attributes]
    assert len(ids) == len(set(ids))
    named = set(re.findall(r'(?:\$|\bset|\bbar)\("([\w-]+)"', SOURCE)) - {"ring"}  # the ring is drawn by the script
    assert len(named) > 25
    assert named <= set(ids)
    for _, attributes in Tags(SOURCE).seen:
        for name in ("aria-labelledby", "for"):
            assert set((attributes.get(name) or "").split()) <= set(ids)


def test_the_policy_allows_the_pages_own_script_and_style_alone(started):
    made = started()
    with Served(analyzer_app(made.population)) as served, urllib.request.urlopen(served.url + "/", timeout=60) as answer:
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        policy = answer.headers["Content-Security-Policy"]
    assert policy == POLICY
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert all(re.fullmatch(r"'sha256-[\w+/]{43}='", rules[name]) for name in ("script-src", "style-src"))
    assert "unsafe" not in policy


def events(served):
    """(name, data) of one event after the other."""
    connection = http.client.HTTPConnection(served.url.removeprefix("http://"), timeout=60)
    try:
        connection.request("GET", "/v1/events")
        answer = connection.getresponse()
        assert answer.getheader("Content-Type").startswith("text/event-stream")
        name = None
        while line := answer.readline():
            kind, _, value = line.decode().rstrip("\n").partition(": ")
            if kind == "event":
                name = value
            elif kind == "data":
                yield name, json.loads(value)
    finally:
        connection.close()


def test_events_bring_a_new_round_and_end_with_the_server(started):
    made = started()
    made._present()
    app = analyzer_app(made.population)
    with Served(app) as served:
        stream = events(served)
        name, first = next(stream)
        assert (name, first["rounds"]["done"]) == ("state", 0)
        made.arrive(3)
        request = urllib.request.Request(served.url + "/v1/arrivals", data=made.shuffler.said(made.shuffler.arrivals()).to_bytes())
        urllib.request.urlopen(request, timeout=60).close()
        name, arrivals = next((name, data) for name, data in stream if name == "arrivals")
        assert arrivals["arrived"] == 3
        assert eventually(lambda: app.state.streams == 1)
        made.round()
        done = next(data for name, data in stream if name == "state" and data["rounds"]["done"] == 1)
        assert done["curve"] == state_of(made)["curve"]
        made.finish()
        served._server.config.timeout_graceful_shutdown = 300  # the server's patience with open connections, which is not needed
        begun = time.monotonic()
    assert time.monotonic() - begun < 300
    *_, (name, last) = stream
    assert (name, last["status"]) == ("state", "finished")
    assert eventually(lambda: app.state.streams == 0)


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


def opened(browser, served, **context):
    """A page, and the list of what it complains about."""
    tab, url = browser.new_context(**context).new_page(), served.url
    complaints = []
    tab.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda problem: complaints.append(str(problem)))
    tab.on("request", lambda request: None if request.url.startswith((url, "data:")) else complaints.append(request.url))
    tab.goto(url)
    return tab, complaints


def shown(tab, selector, text):
    """Wait until it is there. (The page's policy forbids the evaluation of strings, in tests too.)"""
    tab.locator(selector, has_text=re.compile(text)).wait_for(timeout=60_000)


def test_a_browser_shows_a_round_when_it_ends(started, chromium):
    made = started("full", honest=0.9, patience=60.0)
    with Served(analyzer_app(made.population)) as served:
        tab, complaints = opened(chromium, served)
        shown(tab, "#link", "^Live")
        assert tab.text_content("#rounds-done") == "0"
        assert tab.is_disabled("#pick")
        assert "no round has ended yet" in tab.text_content("#curve")
        with AnalyzerRelay(made.shuffler, served.url):
            made.arrive(4)
            shown(tab, "#arrivals-now", "^4$")
            assert "Reported by the shuffler." in tab.text_content("#arrivals-note")
            made.arrive()
            shown(tab, "#rounds-done", "^1$")
            made.arrive()
            shown(tab, "#rounds-done", "^2$")
        shown(tab, "#status", r"Round 2 of 3 is done\. Round 3 of 3 takes reports\.")  # once it is made
        now = state_of(made)
        assert tab.locator("#drawing .dot").count() == 2
        assert tab.text_content("#privacy-epsilon") == now["privacy"]["epsilon"]
        assert f"At delta {now['privacy']['delta']}." in tab.text_content("#privacy-note")
        assert tab.text_content("#bits-person") == f"{now['bits']['person']:,}"
        assert tab.locator("#rows tr").count() == 2
        assert f"length {now['curve'][1]['length']:.3g}" in tab.text_content("#picked")
        made.finish()
        shown(tab, "#status", "^Training has finished")
        assert complaints == []
    shown(tab, "#link", "^The analyzer has ended")
    tab.context.close()


def test_a_browser_falls_back_to_asking(started, chromium, monkeypatch):
    monkeypatch.setattr("croupier.service.analyzer.app._MOST_STREAMS", 0)
    made = started()
    with Served(analyzer_app(made.population)) as served:
        tab, _ = opened(chromium, served)
        shown(tab, "#link", "every 5 seconds")
        made.round()
        shown(tab, "#rounds-done", "^1$")
        tab.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 800, 1280])
def test_no_width_overflows_and_nothing_moves(started, chromium, scheme, width):
    made = started("full", honest=0.9, patience=60.0)
    made.round()
    look = {"viewport": {"width": width, "height": 740}, "color_scheme": scheme, "reduced_motion": "reduce"}
    with Served(analyzer_app(made.population)) as served:
        tab, complaints = opened(chromium, served, **look)
        shown(tab, "#link", "^Live")
        tab.click("summary")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        wide = "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1).length"
        assert tab.evaluate(wide) == 0
        tab.click("summary")
        before = tab.evaluate("document.getElementById('plan-name').offsetTop")
        made.round()
        shown(tab, "#rounds-done", "^2$")
        assert tab.evaluate("document.getElementById('plan-name').offsetTop") == before
        colours = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert colours == {"light": "rgb(253, 252, 249)", "dark": "rgb(23, 22, 20)"}[scheme]
        assert complaints == []
        tab.context.close()


def test_the_keyboard_is_enough(started, chromium):
    made = started("full")
    made.round()
    made.round()
    with Served(analyzer_app(made.population)) as served:
        tab, complaints = opened(chromium, served)
        where = "document.activeElement.id || document.activeElement.tagName"
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        tab.keyboard.press("Tab")
        assert tab.evaluate(where) == "pick"
        assert tab.evaluate(outline) == "solid"
        assert tab.text_content("#picked").startswith("Round 2:")
        tab.keyboard.press("ArrowLeft")
        assert tab.text_content("#picked").startswith("Round 1:")
        assert tab.get_attribute("#pick", "aria-valuetext") == tab.text_content("#picked")
        tab.keyboard.press("Tab")
        assert tab.evaluate(where) == "SUMMARY"
        assert tab.evaluate(outline) == "solid"
        assert not tab.is_visible("#rows")
        tab.keyboard.press("Enter")
        assert tab.is_visible("#rows")
        tab.keyboard.press("Tab")
        assert tab.evaluate(where) == "scroll"
        tab.keyboard.press("Tab")
        assert tab.evaluate(where) == "A"
        assert complaints == []
        tab.context.close()


def test_a_screen_reader_is_told(started, chromium):
    """The tree of roles and names that assistive technology gets."""
    made = started("full")
    made.round()
    with Served(analyzer_app(made.population)) as served:
        tab, _ = opened(chromium, served)
        tree = tab.locator("body").aria_snapshot()
        for said in (
            'heading "Private training" [level=1]',
            "status",
            'heading "Privacy of the whole training" [level=2]',
            'slider "Look at a round"',
        ):
            assert said in tree
        assert re.search(r'img "Length of the private mean gradient in every round', tree)
        assert "It begins at" in tab.text_content("#curve-text")
        assert tab.get_attribute("#status", "role") == "status"  # a polite live region
        tab.click("summary")
        assert "table" in tab.locator("#scroll").aria_snapshot()
        tab.context.close()


def test_rounds_are_read_back_after_a_restart(started):
    """A new process shows the rounds of the one before it."""
    made = started()
    made.round()
    made._present()
    again = RemotePopulation(made.task, made.population.store, made.key)
    assert again.answered() == made.population.answered()
    assert isinstance(again.waiting(), TaskRound)
    assert Dashboard(again).state()["rounds"]["done"] == 1
