"""Questions to Python, Node and browser clients at once: the answer is made of the sum of what they say they sent."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from helpers_node import asked, why_no_node
from helpers_roles import soon
from test_page import USERS, Device, Tab, World, chromium, node_devices, person
from test_tokens import SIGNERS, keys_of

from croupier.service import enroller as enroller_tables
from croupier.service.analyzer.task_file import QueryFile
from croupier.service.enroller import EnrollerRole, enroller_app, new_invitation
from croupier.service.net.database import Database
from croupier.service.net.http import ServerError
from croupier.service.net.server import Served

__all__ = ["chromium"]  # the fixture
pytestmark = [pytest.mark.process, pytest.mark.skipif(why_no_node() is not None, reason=str(why_no_node()))]
GUESS = """
[target]
column = "ill"
classes = ["no", "yes"]
[columns.age]
low = 0
high = 120
whole = true
[columns.smokes]
levels = ["never", "sometimes"]
[columns.income]
low = 0
high = 1e6
"""
COSTS = """
target = {column = "income", range = [0, 100000]}
[columns]
age = {low = 18, high = 90}
smokes = {levels = ["never", "daily"]}
"""
NEEDED = {
    "describe": 'guess = "guess.toml"',
    "histogram": 'column = "age"\nlow = 0\nhigh = 100\nbins = 6',
    "regression": 'schema = "costs.toml"',
    "words": 'column = "smokes"\ncells = 256\nmax_bytes = 5',
    "table": 'guess = "guess.toml"\ncolumns = ["smokes", "age"]\nbins = 3',
    "stream": 'column = "day"\nstart = 2026-01-05\ndays = 3\nper_person = 2',
}


class QuestionWorld(World):
    """A question on sockets, its page served, and an analyzer that waits for the answer."""

    def __init__(self, folder, kind: str, transport: str = "masked-sum", enroller=None, guess: str = GUESS) -> None:
        self.folder, self.enroller, self.users, self.model = folder, enroller, USERS, None
        self.analyzer_key, self.shuffler_key = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
        (folder / "guess.toml").write_text(guess)
        (folder / "costs.toml").write_text(COSTS)
        words = [f'query = "{kind}"', 'name = "How people live"', f"users = {USERS}", "epsilon = 8.0", "delta = 1e-2", "pace = 0.5"]
        words += ["honest = 1.0", NEEDED[kind], f'shuffler_key = "{self.shuffler_key.public_key().public_bytes_raw().hex()}"']
        words.append(f'transport = "{transport}"')
        if enroller is not None:
            (folder / "enroller.json").write_text(json.dumps(enroller.to_dict()))
            words.append('enroller = "enroller.json"')
        (folder / "task.toml").write_text("\n".join(words))
        self.file = QueryFile.load(folder / "task.toml")
        self.task = self.file.task()

    def ask(self, population) -> None:
        self.model = self.file.answer(population)


def python_devices(world: World, users: list[int]) -> list[tuple[Device, int]]:
    promise = {"max_epsilon": 8.01, "max_delta": 1e-2}
    folders = [world.folder / f"python{user}" for user in users]
    return [
        (Device(world.url, world.tokens[user], world.key, folder=folder, at_once=True, **promise), user)
        for user, folder in zip(users, folders, strict=True)
    ]


def answered(device: Device, user: int, records: list[dict] | None = None) -> bool:
    try:
        return device.take_part_with(records or person(user)) is not None
    except ServerError:
        return False


def sent_by_all(world: World, pool: ThreadPoolExecutor, python: list[int], node: list[int]) -> list[dict]:
    """What Python and Node clients say they sent, by round."""
    promise = {"key": world.key, "epsilon": 8.01, "delta": 1e-2}
    others = node_devices(world, node)
    devices = python_devices(world, python)
    if world.enroller is not None:
        for other, user in zip(others, node, strict=True):
            other["invitation"] = world.people[user]
        for device, user in devices:
            device._invitation = world.people[user]
    in_node = pool.submit(asked, "devices", shuffler=world.url, devices=others, **promise)
    for device, user in devices:
        soon(lambda device=device, user=user: answered(device, user))
    return [answer["said"] for answer in in_node.result()] + [device.said for device, _ in devices]


def check_sum(world: World, said: list[dict], counts: dict[int, list[int]]) -> None:
    sent = [numbers for one in said for numbers in one.values()]
    assert len(sent) == USERS
    assert np.sum(sent, axis=0).tolist() == counts[1]


def test_a_stream_is_what_python_and_node_sent_of_the_days_that_they_keep(tmp_path):
    """Every third person is ill on each day; Node's devices keep on disk which days have counted, as Python's do."""
    world = QuestionWorld(tmp_path, "stream")
    records = [[{"day": f"2026-01-{5 + (user + more) % 3:02}"} for more in range(1 + user % 2)] for user in range(USERS)]
    with world.running(), ThreadPoolExecutor(4) as pool:
        node = [
            {"token": world.tokens[user], "folder": str(tmp_path / f"node{user}"), "rows": [], "records": records[user]}
            for user in range(6, USERS)
        ]
        promise = {"key": world.key, "epsilon": 8.01, "delta": 1e-2}
        in_node = pool.submit(asked, "devices", shuffler=world.url, devices=node, **promise)
        devices = python_devices(world, list(range(6)))
        for device, user in devices * 3:
            soon(lambda device=device, user=user: answered(device, user, records[user]))
        said = [answer["said"] for answer in in_node.result()] + [device.said for device, _ in devices]
        soon(lambda: world.model is not None)
        counts = world.counts()
    for number in (1, 2, 3):
        assert np.sum([one.get(number, one.get(str(number))) for one in said], axis=0).tolist() == counts[number]
    for user in range(6, USERS):
        kept = [json.loads(file.read_text())["counted"] for file in (tmp_path / f"node{user}").glob("*-round-*.entry")]
        days = sorted({int(record["day"][-2:]) - 4 for record in records[user]})
        assert sorted(kept, key=lambda one: one["until"]) == [
            {"until": until, "days": [day for day in days if day <= until]} for until in (1, 2, 3)
        ]


@pytest.mark.parametrize(
    ("kind", "transport"),
    [("histogram", "messages"), ("describe", "verified-sum"), ("words", "masked-sum"), ("table", "verified-sum")],
)
def test_the_answer_is_made_of_the_sum_of_what_python_and_node_say_they_sent(tmp_path, kind, transport):
    world = QuestionWorld(tmp_path, kind, transport)
    with world.running(), ThreadPoolExecutor(4) as pool:
        said = sent_by_all(world, pool, list(range(6)), list(range(6, USERS)))
        soon(lambda: world.model is not None)
        counts = world.counts()
    check_sum(world, said, counts)


def test_a_question_with_an_enroller_counts_a_token_of_each(tmp_path):
    database = Database(f"sqlite:///{tmp_path / 'enroller.db'}", enroller_tables.ENROLLER)
    role = EnrollerRole(database, SIGNERS[:1])
    people = [new_invitation() for _ in range(USERS)]
    role.admit(people)
    with Served(enroller_app(role)) as enroller:
        world = QuestionWorld(tmp_path, "regression", "masked-sum", keys_of(1, enroller.url))
        world.people = people
        with world.running(), ThreadPoolExecutor(4) as pool:
            said = sent_by_all(world, pool, list(range(6)), list(range(6, USERS)))
            soon(lambda: world.model is not None)
            counts = world.counts()
    check_sum(world, said, counts)
    with database.look() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM issued").scalar() == USERS
    database.close()


def test_a_question_on_the_page_is_in_plain_words_and_its_noise_is_shown(tmp_path, chromium):
    world = QuestionWorld(tmp_path, "describe")
    with world.running(), ThreadPoolExecutor(4) as pool:
        contexts = [chromium.new_context(viewport={"width": 390, "height": 800}) for _ in range(2)]
        tabs = [Tab(context, world, 10 + place) for place, context in enumerate(contexts)]
        for tab in tabs:
            tab.look()
        page = tabs[0].page
        asked_words = page.inner_text("#asked")
        assert "12 people are asked how age, smokes, income and ill are spread among people" in asked_words
        assert "a number, expected between 0 and 120, counted in 124 bins" in asked_words
        assert "once, in the only round" in asked_words
        assert "the answer, or of everything" in page.inner_text("#promise")
        page.click("#take-part")
        page.locator("#problem", has_text="smokes: choose one").wait_for(timeout=60_000)
        fill(page, {"age": "37", "smokes": "something else", "income": "", "ill": "no answer"})
        for tab in tabs[1:]:
            fill(tab.page, person(tab.user) | {"smokes": "something else"})
        said = sent_by_all(world, pool, list(range(5)), list(range(5, 10)))
        for tab in tabs:
            tab.hears("Answered round")
            said.append(tab.sent())
        shown = page.inner_text("#pictures")
        for words in ("37", "something else", "nothing", "true, stays here", "sent, with noise"):
            assert words in shown
        assert page.locator("#pictures svg.true").count() == page.locator("#pictures svg.sent").count() == 4
        soon(lambda: world.model is not None)
        counts = world.counts()
        assert not [complaint for tab in tabs for complaint in tab.complaints]
    check_sum(world, said, counts)
    for context in contexts:
        context.close()


def fill(page, values: dict[str, str]) -> None:
    """Write values into the form, levels by what their options say."""
    for field in page.locator("#fields input, #fields select").all():
        value = values[field.get_attribute("name")]
        if field.evaluate("field => field.tagName") == "SELECT":
            field.select_option(label=value)
        else:
            field.fill(value)
    page.click("#take-part")
