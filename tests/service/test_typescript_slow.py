"""What the TypeScript client must hold, at full size: minutes each, so marked slow. Figures are printed (-s)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from helpers_node import asked, why_no_node
from helpers_roles import World as Roles
from helpers_roles import soon
from test_page import Tab, World, answered, chromium, node_devices, python_devices
from test_tokens import keys_of
from test_typescript import ANALYZER, VECTORS, check_encodings, check_refusals, fuzzed, secret_values

__all__ = ["chromium"]  # the fixture
pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(why_no_node() is not None, reason=str(why_no_node())),
]


def test_a_hundred_thousand_random_encodings_are_the_same():
    generator, checked = np.random.default_rng(2024), 0
    while checked < 100_000:
        checked += check_encodings(generator, plans=24, many=250)
    print(f"{checked} random encodings without a difference")


def words_of(folder, **about) -> dict:
    """The words of a task of this kind, as the vectors' analyzer signs it."""
    world = Roles(folder, **about)
    world.close()
    return json.loads(replace(world.task).document(ANALYZER).text)


@pytest.mark.parametrize("kind", ["open", "secret", "enroller", "full", "paper"])
def test_of_ten_thousand_changed_tasks_none_is_taken_that_python_refuses(tmp_path, kind):
    """2,000 of each kind."""
    kinds = {
        "open": lambda: json.loads(json.loads((VECTORS / "documents.json").read_text())["task"]["text"]),
        "secret": secret_values,
        "enroller": lambda: words_of(tmp_path, enroller=keys_of(1, "https://enroller.example")),
        "full": lambda: words_of(tmp_path, interactivity="full", enroller=keys_of(3, "https://enroller.example")),
        "paper": lambda: words_of(tmp_path, calibration="paper-scaled", delta=9e-3, users=30),
    }
    values, taken = kinds[kind](), 0
    for seed in range(4):
        taken += check_refusals(fuzzed(values, 500, seed=1000 + seed))
    print(f"{kind}: 2000 changed tasks, {taken} of them taken by both")


def test_two_hundred_clients_a_third_each_make_one_model(tmp_path, chromium):
    """Python, Node and pages: the analyzer's counts are the sum of what the clients say they sent."""
    users = 200
    world = World(tmp_path, users=users, delta=1e-3)
    kinds = [[user for user in range(users) if user % 3 == which] for which in range(3)]
    with world.running(), ThreadPoolExecutor(24) as pool:
        promise = {"key": world.key, "epsilon": 8.01, "delta": 1e-2, "wait": 1200}
        some = [kinds[1][place::2] for place in range(2)]
        in_node = [pool.submit(asked, "devices", shuffler=world.url, devices=node_devices(world, part), **promise) for part in some]
        devices = python_devices(world, kinds[0])
        in_python = [pool.submit(lambda d=d, r=r: soon(lambda: answered(d, r))) for d, r in devices[:34]]
        said = []
        for user in kinds[2]:  # in the order of rounds, one tab after the other, each with a browser's storage of its own
            if user >= users // 2 and len(in_python) < len(devices):  # whose round is the second
                in_python += [pool.submit(lambda d=d, r=r: soon(lambda: answered(d, r))) for d, r in devices[len(in_python) :]]
            context = chromium.new_context()
            tab = Tab(context, world, user)
            tab.look()
            tab.fill()
            tab.hears("Answered round")
            assert not tab.complaints
            said.append(tab.sent())
            context.close()
        for part in in_node:
            said += [answer["said"] for answer in part.result()]
        assert all(done.result() for done in in_python)
        said += [device.said for device, _ in devices]
        soon(lambda: world.model is not None)
        counts = world.counts()
    by_round = [{int(number): sent for number, sent in one.items()} for one in said]
    assert len(by_round) == users
    for number in (1, 2):
        assert np.sum([one[number] for one in by_round if number in one], axis=0).tolist() == counts[number]
    assert np.isfinite(world.model.coef_).all()
    print(f"{users} clients, {[len(kind) for kind in kinds]} in Python, Node and pages: counts equal in both rounds")
