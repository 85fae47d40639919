"""The page in front of a task whose columns are called as what pages are made of."""

from __future__ import annotations

from contextlib import suppress

import pytest
from helpers_node import why_no_node
from test_page import Tab, chromium
from test_page_questions import QuestionWorld, fill

__all__ = ["chromium"]  # the fixture
pytestmark = [pytest.mark.process, pytest.mark.skipif(why_no_node() is not None, reason=str(why_no_node()))]
NAMES = ["append", "querySelectorAll", "replaceChildren", "__proto__", "<img src=x onerror=alert(1)>", "long" * 30]
GUESS = "\n".join(f'[columns."{name}"]\nlow = 0\nhigh = 10\n' for name in NAMES)

STORE = "import('./croupier-client.js').then(({BrowserStore}) => new BrowserStore().%s)"


class Unanswered(QuestionWorld):
    """A question that ends before all have answered."""

    def ask(self, population) -> None:
        with suppress(KeyboardInterrupt):
            super().ask(population)


def test_columns_may_be_called_as_what_a_page_is_made_of(tmp_path, chromium):
    """The attack: in a form, an input called "append" takes the place of the method, and no second one could be added."""
    world = Unanswered(tmp_path, "describe", guess=GUESS)
    with world.running():
        context = chromium.new_context(viewport={"width": 390, "height": 800})
        tab = Tab(context, world, 0)
        tab.look()
        assert tab.page.locator("#fields input").count() == len(NAMES)
        fill(tab.page, {name: str(place) for place, name in enumerate(NAMES)})
        tab.hears("Answered round")
        shown = tab.page.inner_text("#pictures")
        assert all(name in shown for name in NAMES)
        assert tab.page.evaluate("document.documentElement.scrollWidth") == 390  # nothing beside the screen
        assert not tab.complaints
        context.close()


def test_a_limit_for_ever_is_not_replaced_by_one_for_a_year(tmp_path, chromium):
    """The attack: the page fills in what the browser allows, a year where that has no period, and keeps what it has filled in."""
    world = Unanswered(tmp_path, "describe", guess=GUESS)
    with world.running():
        context = chromium.new_context()
        tab = Tab(context, world, 0)
        tab.page.goto(world.url)
        tab.page.evaluate(STORE % "keepLimit({epsilon: 30, delta: 0.2, seconds: null})")
        with tab.page.expect_event("load"):  # an invitation in a tab that has the page: it begins anew, and hides the token
            tab.page.goto(world.invitation(0))
        tab.accept()
        kept = tab.page.evaluate(STORE % "limit()")
        assert kept == {"epsilon": 30, "delta": 0.2, "seconds": None}
        assert "of what you allow for all tasks together (" in tab.page.inner_text("#promise")
        context.close()
