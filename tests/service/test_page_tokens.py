"""Tokens on the page, in a real browser: they come from an enroller of another origin, and a killed tab keeps its wallet."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers_node import asked, why_no_node
from helpers_roles import soon
from test_page import USERS, Tab, World, answered, chromium, killed_and_revived, node_devices, python_devices
from test_tokens import SIGNERS, keys_of

from croupier.service import enroller as enroller_tables
from croupier.service.enroller import EnrollerRole, enroller_app, new_invitation
from croupier.service.net.database import Database
from croupier.service.net.server import Served
from croupier.service.shuffler.app import allow_origins

pytestmark = pytest.mark.process

__all__ = ["chromium"]  # the fixture


@pytest.mark.skipif(why_no_node() is not None, reason=str(why_no_node()))
def test_pages_collect_their_tokens_beside_python_and_node_and_a_killed_tab_uses_one(tmp_path, chromium):
    database = Database(f"sqlite:///{tmp_path / 'enroller.db'}", enroller_tables.ENROLLER)
    role = EnrollerRole(database, SIGNERS[:1])
    people = [new_invitation() for _ in range(USERS)]
    role.admit(people)
    web = enroller_app(role)
    allow_origins(web, ["*"])
    with Served(web) as enroller:
        world = World(tmp_path, enroller=keys_of(1, enroller.url))
        world.people = people
        with world.running(), ThreadPoolExecutor(8) as pool:
            promise = {"key": world.key, "epsilon": 8.01, "delta": 1e-2}
            others = node_devices(world, [1, 2, 6, 7])
            for device, user in zip(others, [1, 2, 6, 7], strict=True):
                device["invitation"] = people[user]
            in_node = pool.submit(asked, "devices", shuffler=world.url, devices=others, **promise)
            devices = python_devices(world, [3, 4, 5, 8, 9, 10])
            for (device, _), user in zip(devices, [3, 4, 5, 8, 9, 10], strict=True):
                device._invitation = people[user]
            in_python = [pool.submit(lambda d=d, r=r: soon(lambda: answered(d, r))) for d, r in devices]
            contexts = [chromium.new_context() for _ in range(2)]
            killed, usual = (Tab(context, world, user) for context, user in zip(contexts, (0, 11), strict=True))
            for tab in (killed, usual):
                tab.look()
                assert people[tab.user] not in tab.page.url
                assert enroller.url in tab.page.inner_text("#asked-facts")
            usual.fill()
            said = [killed_and_revived(killed, contexts[0])]
            usual.hears("Answered round")
            said.append(usual.sent())
            assert not [complaint for tab in (killed, usual) for complaint in tab.complaints]
            wallets = [tab.page.evaluate(WALLETS) for tab in (usual,)]
            assert wallets == [[{"task": world.task.id, "tokens": [""]}]]
            said += [answer["said"] for answer in in_node.result()]
            assert all(done.result() for done in in_python)
            said += [device.said for device, _ in devices]
            soon(lambda: world.model is not None)
            counts = world.counts()
        for context in contexts:
            context.close()
    by_round = [{int(number): sent for number, sent in one.items()} for one in said]
    assert len(by_round) == USERS
    for number in (1, 2):
        assert np.sum([one[number] for one in by_round if number in one], axis=0).tolist() == counts[number]
    with database.look() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM issued").scalar() == USERS
    database.close()


WALLETS = """() => new Promise((resolve) => {
    const opened = indexedDB.open("croupier");
    opened.onsuccess = () => {
        const asked = opened.result.transaction("wallets").objectStore("wallets").getAll();
        asked.onsuccess = () => { opened.result.close(); resolve(JSON.parse(JSON.stringify(asked.result))); };
    };
})"""
