"""The page of a task with secret lots, in a real browser: when one is asked, and that it is over when it is over."""

from __future__ import annotations

import re
import sqlite3
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from test_page import Tab, World, chromium

from croupier.service.wire.documents import End
from croupier.service.wire.task import TaskRound

pytestmark = pytest.mark.process

__all__ = ["chromium"]  # the fixture
HOUR = 3600.0  # a round: none ends while a test runs


class LotsWorld(World):
    """A task with secret lots, whose first round is open throughout."""

    def __init__(self, folder) -> None:
        more = {"lots": '"secret"', "round_seconds": HOUR, "patience": None}
        super().__init__(folder, users=40, **more)  # five of each round, but for a chance of 2e-7

    def ask(self, population) -> None:
        with suppress(KeyboardInterrupt):
            super().ask(population)

    def drawn(self, number: int) -> list[int]:
        """Users whose lot is this round."""
        with sqlite3.connect(self.folder / "shuffler.db") as connection:
            lots = [first for (first,) in connection.execute("SELECT first FROM lots ORDER BY first, client")]
        return [user for user, lot in enumerate(lots) if lot == number]

    def round(self, number: int) -> bytes:
        """The document of a round as the analyzer signs it."""
        theta, key = np.zeros(self.task.query.dim), X25519PrivateKey.generate().public_key()
        return TaskRound(self.task.id, f"{number:032x}", number, 1, theta, key).document(self.analyzer_key).to_bytes()


class LotsTab(Tab):
    """A tab whose user accepts that nothing is promised to whoever knows when people answer."""

    def accept(self) -> None:
        self.page.locator("#problem", has_text="Nothing was sent").wait_for(timeout=40_000)
        self.page.fill("#watched", "1e9")
        super().accept()

    def when(self, text: str) -> str:
        self.page.locator("#when-words", has_text=text).wait_for(timeout=40_000)
        return self.page.inner_text("#when-words")


@contextmanager
def tab_of(world: World, chromium, user: int):
    context = chromium.new_context(viewport={"width": 390, "height": 800}, timezone_id="Europe/Berlin")
    tab = LotsTab(context, world, user)
    yield tab
    assert not tab.complaints
    context.close()


def test_a_page_says_when_its_round_is_and_that_it_is_over(tmp_path, chromium):
    world = LotsWorld(tmp_path)
    with world.running():
        now, later = world.drawn(1), world.drawn(2)
        with tab_of(world, chromium, later[0]) as tab:  # the second round begins 1.05 hours after the first
            tab.look()
            said = tab.when("Your round begins")
            assert re.search(r"at \d\d:\d\d, in \d+ (minutes|seconds), or somewhat later, and takes answers for 60 minutes", said)
            assert "You can close this page until then: come back with your invitation." in said
            tab.fill()
            tab.hears("Waiting for your round. Your answer is sent then, if this page is open.")
            assert tab.page.evaluate("document.documentElement.scrollWidth") == 390
            tab.page.screenshot(path=tmp_path / "when.png", full_page=True)
            assert tab.reports == []
        with tab_of(world, chromium, now[0]) as tab:
            tab.look()
            tab.when("Your round is open now.")
            tab.fill()
            assert "Your answer was sent, and nothing more is asked of you." in tab.when("You can close this page for good.")
            assert len(tab.reports) == 1
            assert not tab.page.is_visible("#record")
        with tab_of(world, chromium, now[1]) as tab:  # it was away, and by the analyzer's signed word the next round is open
            open_round = {"body": world.round(2), "content_type": "application/octet-stream"}

            def answer(route) -> None:
                if "authorization" in route.request.headers:
                    route.fulfill(body=b"", content_type="application/octet-stream")
                else:
                    route.fulfill(**open_round)

            tab.page.route("**/v1/round", answer)
            tab.look()
            assert "Your round is over. No answer was sent from this browser" in tab.when("You can close this page for good.")
            assert not tab.page.is_visible("#record")
        with tab_of(world, chromium, now[2]) as tab:  # as before, but the page was open
            tab.look()
            tab.when("Your round is open now.")
            tab.page.route("**/v1/round", answer)
            tab.fill()
            assert "Your round is over. No answer was sent from this browser" in tab.when("You can close this page for good.")
            assert tab.reports == []
        with tab_of(world, chromium, now[4]) as tab:  # two tabs of one person: both say that it is over
            other = LotsTab(tab.page.context, world, now[4])
            for one in (tab, other):
                one.look()
                one.when("Your round is open now.")
            for one in (tab, other):
                one.fill()
            for one in (tab, other):
                one.when("You can close this page for good.")
            assert len({report for one in (tab, other) for report in one.reports}) == 1
        with tab_of(world, chromium, now[3]) as tab:
            end = End(world.task.id, 2).document(world.analyzer_key).to_bytes()
            tab.page.route("**/v1/end", lambda route: route.fulfill(body=end, content_type="application/octet-stream"))
            tab.look()
            assert "The task has ended: all rounds are done." in tab.when("You can close this page for good.")


def test_a_page_shows_no_nonsense_where_the_shuffler_says_some(tmp_path, chromium):
    """The attacks: a lot that begins in ages, and a document of another key by which somebody's round would be over."""
    world, other = LotsWorld(tmp_path), World(tmp_path)
    with world.running(), tab_of(world, chromium, world.drawn(1)[0]) as tab:
        far = b'{"round":1,"wait":1e13}'.ljust(64)
        tab.page.route("**/v1/lot", lambda route: route.fulfill(body=far, content_type="application/json"))
        tab.page.route("**/v1/round", lambda route: route.fulfill(body=b"", content_type="application/octet-stream"))
        tab.look()
        assert "Invalid" not in tab.when("Your round begins")
        key, world.analyzer_key = world.analyzer_key, other.analyzer_key
        forged = world.round(2)
        world.analyzer_key = key
        tab.page.unroute("**/v1/lot")
        tab.page.unroute("**/v1/round")
        tab.page.route("**/v1/round", lambda route: route.fulfill(body=forged, content_type="application/octet-stream"))
        with tab.page.expect_event("load"):
            tab.page.goto(world.invitation(tab.user))
        LotsTab.accept(tab)
        tab.page.locator("#problem", has_text="signature").wait_for(timeout=40_000)
        assert "over" not in tab.page.inner_text("#when")
