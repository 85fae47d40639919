"""A device's budget: a filter over a sliding window, on disk before anything is sent, and one for all processes."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import re
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from croupier import ArgumentError
from croupier.cli import main
from croupier.privacy import Guarantee
from croupier.privacy._allocation import Allocation
from croupier.service.client.budget import BudgetLimit, DeviceBudget, period_of, period_text
from croupier.service.client.client import Client
from croupier.service.client.state import Memory
from croupier.service.wire.task import RefusedTaskError

DAY = 86400.0
LIMIT = BudgetLimit(2.0, 1e-5, 30 * DAY)


class Clock:
    """A clock that a test sets."""

    def __init__(self, now: float = 1.8e9) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def promise(mu: float, slack: float = 0.0) -> Guarantee:
    return Guarantee(mu=mu, slack=slack, theorem="a test's")


def largest_mu(epsilon: float, delta: float) -> float:
    """The mu of a Gaussian that is (epsilon, delta)-private, by scipy."""

    def beyond(mu: float) -> float:
        return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta

    return float(brentq(beyond, 1e-3, 50))


def answer(budget: DeviceBudget, task: str, mu: float, slack: float = 0.0) -> bool:
    """Whether an answer to the task is allowed."""
    try:
        budget.charge(task, "", "ab" * 32, promise(mu, slack))
    except RefusedTaskError:
        return False
    return True


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def budget(tmp_path, clock) -> DeviceBudget:
    made = DeviceBudget(tmp_path / "mine" / "budget.json", clock=clock)
    made.allow(LIMIT)
    return made


def test_as_many_tasks_fit_as_a_gaussian_of_the_limit_has_room_for(budget):
    """Squares of mu add up. Their epsilons add up to much more than the limit: a sum would have allowed fewer."""
    mu = 0.05
    room = math.floor((largest_mu(LIMIT.epsilon, 0.75 * LIMIT.delta) / mu) ** 2)
    admitted = sum(answer(budget, f"task {number}", mu) for number in range(room + 5))
    assert admitted == room
    assert room * promise(mu).epsilon(LIMIT.delta) > 2 * LIMIT.epsilon
    assert len(budget.entries()) == room


def test_slacks_have_a_cap_of_their_own(budget):
    assert answer(budget, "one", 0.01, 0.2 * LIMIT.delta)
    assert not answer(budget, "two", 0.01, 0.06 * LIMIT.delta)
    assert answer(budget, "three", 0.01, 0.04 * LIMIT.delta)


def test_no_period_of_the_limits_length_has_tasks_beyond_it(tmp_path):
    """Random times and tasks, some with several answers: every window, by brute force, and no refusal without need."""
    random, clock = np.random.default_rng(1), Clock()
    budget = DeviceBudget(tmp_path / "budget.json", clock=clock)
    budget.allow(LIMIT)
    cap = largest_mu(LIMIT.epsilon, 0.75 * LIMIT.delta)
    mus = {f"task {number}": float(random.uniform(0.05, 0.3)) for number in range(60)}
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    refusals = 0
    for _ in range(150):
        clock.now += float(random.exponential(1.5 * DAY))
        task = f"task {random.integers(60)}"
        window = [name for name, at in last.items() if at > clock.now - LIMIT.seconds and name != task]
        total = math.sqrt(sum(mus[name] ** 2 for name in [*window, task]))
        allowed = answer(budget, task, mus[task])
        refusals += not allowed
        assert allowed == (total <= cap * (1 - 1e-9)) or abs(total / cap - 1) < 1e-9
        if allowed:
            first.setdefault(task, clock.now)
            last[task] = clock.now
    assert refusals > 10
    for begun in first.values():
        within = [mus[name] ** 2 for name, at in first.items() if begun <= at < begun + LIMIT.seconds]
        assert math.sqrt(sum(within)) <= cap


def test_a_task_counts_until_a_period_after_its_last_answer(budget, clock):
    """Later rounds of a task cost nothing more, but keep it on the ledger."""
    mu = 0.8 * largest_mu(LIMIT.epsilon, 0.75 * LIMIT.delta)
    assert answer(budget, "one", mu)
    clock.now += 20 * DAY
    assert answer(budget, "one", mu)
    clock.now += 20 * DAY
    assert not answer(budget, "two", mu)
    clock.now += 10 * DAY
    assert answer(budget, "two", mu)
    assert not answer(budget, "one", mu)  # it has left the window, and is charged anew
    assert [entry.answers for entry in budget.entries()] == [2, 1]


def test_a_clock_that_was_set_back_frees_nothing(budget, clock):
    mu = 0.8 * largest_mu(LIMIT.epsilon, 0.75 * LIMIT.delta)
    assert answer(budget, "one", mu)
    clock.now -= 400 * DAY
    assert not answer(budget, "two", mu)


def test_another_answer_does_not_change_the_first_entry_of_the_ledger(budget):
    """It fixes the odometer's first cap. Both tasks begin at the same moment, as they do on a clock that was set back."""
    assert answer(budget, "first", 0.05)
    assert answer(budget, "second", 0.02)
    before = budget.spent()
    assert answer(budget, "first", 0.05)
    assert [entry.task for entry in budget.entries()] == ["first", "second"]
    assert budget.spent() == before


def test_a_task_that_keeps_the_limit_alone_is_taken_and_nothing_after_it(budget):
    """Beyond the caps by a little, since a quarter of delta is kept for slacks."""
    mu = 0.999 * largest_mu(LIMIT.epsilon, LIMIT.delta)
    assert mu > LIMIT.caps.mu
    assert answer(budget, "one", mu)
    assert not answer(budget, "two", 0.001)
    assert answer(budget, "one", mu)


def test_an_answer_by_a_clock_that_was_set_back_counts_as_long_as_those_before_it(budget, clock):
    """The attack: set the clock back, answer, set it right. The answer would have left the ledger at once."""
    mu = 0.6 * largest_mu(LIMIT.epsilon, 0.75 * LIMIT.delta)
    assert answer(budget, "before", 0.01)
    clock.now -= 400 * DAY
    assert answer(budget, "in the past", mu)
    clock.now += 400 * DAY
    assert not answer(budget, "after", 1.5 * mu)
    clock.now += LIMIT.seconds + 1
    assert answer(budget, "later", 1.5 * mu)


def test_a_refusal_says_what_it_is_about_and_when_there_is_room(budget, clock):
    mu = 0.8 * LIMIT.caps.mu
    answer(budget, "one", mu)
    with pytest.raises(
        RefusedTaskError, match=r"2 tasks may learn within any 30 days is beyond.*epsilon = 2 at delta = 1e-05"
    ) as said:
        budget.charge("two", "", "ab" * 32, promise(mu))
    assert "1.281 times" in str(said.value)  # 2 x 0.64, rounded up
    assert "after 2027-02-14" in str(said.value)
    assert "Nothing was sent" in str(said.value)
    with pytest.raises(RefusedTaskError, match="by itself"):
        budget.charge("three", "", "ab" * 32, promise(5.0))


def test_a_limit_is_remembered_and_the_ledger_is_its_owners_alone(budget, tmp_path):
    again = DeviceBudget(budget.path)
    assert again.limit() == LIMIT
    answer(again, "one", 0.1)
    assert stat.S_IMODE(budget.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(budget.path.parent.stat().st_mode) == 0o700
    assert again.allow(BudgetLimit(1.0, 1e-6, DAY)) == LIMIT
    assert budget.limit().epsilon == 1.0


def test_without_a_limit_tasks_are_counted_all_the_same(tmp_path):
    budget = DeviceBudget(tmp_path / "budget.json")
    assert budget.spent() == 0.0
    assert all(answer(budget, f"task {number}", 1.0) for number in range(20))
    assert budget.limit() is None
    assert budget.spent() > promise(math.sqrt(20)).epsilon(1e-6)  # the odometer's, more than what was fixed beforehand


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "another", "version": 1, "limit": null, "tasks": []}'])
def test_a_ledger_that_cannot_be_read_is_refused(tmp_path, text):
    (tmp_path / "budget.json").write_text(text)
    with pytest.raises(ArgumentError, match="budget file"):
        DeviceBudget(tmp_path / "budget.json").check("one", promise(0.1))


def test_threads_that_ask_at_once_never_pass_together(budget):
    """There is room for three."""
    mu = 0.57 * LIMIT.caps.mu
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda number: answer(DeviceBudget(budget.path), f"task {number}", mu), range(8)))
    assert sum(outcomes) == 3


def _in_process(path, task, mu):
    raise SystemExit(0 if answer(DeviceBudget(path), task, mu) else 7)


def test_processes_share_one_ledger(budget):
    mu, context = 0.57 * LIMIT.caps.mu, multiprocessing.get_context("fork")
    processes = [context.Process(target=_in_process, args=(budget.path, f"task {number}", mu)) for number in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert sorted(process.exitcode for process in processes) == [0, 0, 0, 7, 7, 7]
    assert len(budget.entries()) == 3


@pytest.mark.parametrize(
    ("text", "seconds", "shown"), [("365d", 365 * DAY, "365 days"), ("12h", DAY / 2, "12 hours"), ("1w", 7 * DAY, "7 days")]
)
def test_periods_are_read_and_shown(text, seconds, shown):
    assert period_of(text) == seconds
    assert period_text(seconds) == shown


def test_a_refusal_for_thousands_of_years_is_one(budget):
    """There is no date for when there is room: a ValueError is no refusal."""
    budget.allow(BudgetLimit(LIMIT.epsilon, LIMIT.delta, period_of("9999999w")))
    answer(budget, "one", 0.8 * LIMIT.caps.mu)
    with pytest.raises(RefusedTaskError, match="after the year 9999"):
        budget.charge("two", "", "ab" * 32, promise(0.8 * LIMIT.caps.mu))


@pytest.mark.parametrize("text", ["", "365", "0d", "-3d", "1y", "d"])
def test_other_periods_are_refused(text):
    with pytest.raises(ArgumentError, match="period"):
        period_of(text)


@pytest.fixture
def run(capsys, monkeypatch):
    """What `croupier join` prints."""

    def output(*arguments) -> str:
        monkeypatch.setattr(sys, "argv", ["croupier", "join", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code
        return capsys.readouterr().out

    return output


def test_the_ledger_is_shown_as_a_table_and_as_json(tmp_path, run):
    file = tmp_path / "budget.json"
    about = ("--budget-file", file)
    assert "no limit" in run("--ledger", *about)
    run("--budget-epsilon", 2, "--budget-delta", 1e-5, "--period", "30d", *about)
    DeviceBudget(file).charge("0123456789abcdef", "heights", "ab" * 32, promise(0.1, 1e-9))
    text = run("--ledger", *about)
    assert "01234567" in text
    assert "heights" in text
    assert "epsilon = 2 at delta = 1e-05 within any 30 days" in text
    values = json.loads(run("--ledger", "--json", *about))
    (task,) = values["tasks"]
    assert float(task["epsilon"]) >= promise(0.1, 1e-9).epsilon(1e-5)
    assert float(task["epsilon"]) < 1.01 * promise(0.1, 1e-9).epsilon(1e-5)
    used = (0.1 / LIMIT.caps.mu) ** 2
    assert used <= float(values["limit"]["used of mu^2"]) < 1.01 * used
    assert task["counts"] is True


@pytest.mark.parametrize(
    "change", [{"last": "soon"}, {"last": math.nan}, {"last": 1e300}, {"first": -1.0}, {"answers": []}, {"task": 7}, {"name": None}]
)
def test_a_ledger_with_an_impossible_entry_is_refused_in_one_line(tmp_path, change):
    path = tmp_path / "budget.json"
    DeviceBudget(path).charge("a" * 64, "task", "b" * 64, Guarantee(mu=0.1, theorem="a test's"))
    values = json.loads(path.read_text())
    values["tasks"][0] |= change
    path.write_text(json.dumps(values))
    for ask in (DeviceBudget(path).to_dict, DeviceBudget(path).spent):
        with pytest.raises(ArgumentError, match="Restore it"):
            ask()


def test_half_an_address_is_refused_in_one_line(tmp_path):
    with pytest.raises(ArgumentError, match="an address like https://host:port"):
        Client("https://[x", "token", "00" * 32, folder=tmp_path)


def watched_promise() -> Guarantee:
    """Of a task with secret lots: a small epsilon, and a larger one to whoever knows when each user answered."""
    allocation = Allocation(mu=0.5, rounds=50)
    known = Guarantee(mu=0.5, slack=1e-9, theorem="a test's")
    return Guarantee(mu=0.0, slack=1e-9, theorem="a test's", allocations=(allocation,), watched=known)


def test_the_ledger_adds_up_what_an_observer_of_arrival_times_learns(tmp_path, run):
    """The attack: tasks with secret lots, counted by the figure that holds while nobody sees when people answer."""
    budget = DeviceBudget(tmp_path / "budget.json")
    for task in range(3):
        budget.charge(f"{task}" * 64, "lots", "ab" * 32, watched_promise())
    together = Guarantee(mu=0.5 * math.sqrt(3), slack=3e-9, theorem="a test's").epsilon(1e-6)
    assert budget.spent() < together / 2  # the stronger figure alone
    assert budget.spent(watched=True) >= together
    values = json.loads(run("--ledger", "--json", "--budget-file", budget.path))
    assert float(values["epsilon if watched"]) >= together > 2 * float(values["epsilon"])
    for task in values["tasks"]:
        assert float(task["epsilon if watched"]) >= watched_promise().watched.epsilon(1e-6) > float(task["epsilon"])
    text = run("--ledger", "--budget-file", budget.path)
    assert f"when you answered, even if the shuffler reveals it: epsilon {values['epsilon if watched']} at delta 1e-06" in text


@pytest.mark.parametrize("name", [None, 7, ["x"], {"a": 1}, True])
def test_a_name_that_is_no_text_is_never_written_to_the_ledger(budget, name):
    """The attack: one signed task whose name is not text made the ledger unreadable, for every analyzer."""
    answer(budget, "first", 0.1)
    before = budget.path.read_bytes()
    with pytest.raises(ArgumentError, match="could not be read back; nothing was sent"):
        budget.charge("second", name, "ab" * 32, promise(0.1))
    assert budget.path.read_bytes() == before
    assert answer(budget, "third", 0.1)
    assert [entry.task for entry in budget.entries()] == ["first", "third"]


def test_a_ledger_that_is_gone_is_not_begun_anew(budget):
    """The attack: deleting the file removed the limit without a word. Its lock tells that there was one."""
    answer(budget, "first", 0.1)
    budget.path.unlink()
    for ask in (budget.limit, budget.entries, budget.to_dict, lambda: answer(budget, "second", 0.1), lambda: budget.allow(LIMIT)):
        with pytest.raises(ArgumentError, match="Restore it: without it your limit is gone"):
            ask()
    assert not budget.path.exists()
    budget.path.with_suffix(".lock").unlink()  # what the error says the owner may do
    assert budget.entries() == []


def test_a_ledger_that_is_gone_is_missed_where_tasks_were_answered(tmp_path, monkeypatch, capsys):
    """The memory of answers is in another folder than the ledger: both are looked at, before anything is sent or written."""
    memory = Memory(tmp_path / "me")
    memory.count({"slot": "s", "task": "ab" * 32, "round": 1, "phase": 1, "cover": True})
    file = tmp_path / "budget.json"
    DeviceBudget(file).require(memory.has_answered())  # cover says nothing of anybody
    memory.count({"slot": "t", "task": "ab" * 32, "round": 1, "phase": 1})
    words = ["--data", tmp_path / "x.csv", "--shuffler", "http://127.0.0.1:9", "--analyzer-key", "00" * 32, "--token", "t"]
    words += ["--dir", tmp_path / "me", "--budget-file", file, "--budget-epsilon", 4, "--wait", 0]
    monkeypatch.setattr(sys, "argv", ["croupier", "join", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code
    assert "Restore it" in capsys.readouterr().err.replace("\n", " ")
    assert not file.exists()


def test_many_processes_that_begin_a_ledger_at_once_all_count(tmp_path):
    path = tmp_path / "new" / "budget.json"
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda n: answer(DeviceBudget(path), f"task {n}", 0.01), range(16)))
    assert all(done)
    assert len(DeviceBudget(path).entries()) == 16
    assert {file.name for file in path.parent.iterdir()} == {"budget.json", "budget.lock"}


def test_who_joins_without_a_word_on_a_budget_has_the_pages_limit(tmp_path, monkeypatch, capsys):
    file = tmp_path / "budget.json"
    words = ["--data", tmp_path / "x.csv", "--shuffler", "http://127.0.0.1:9", "--analyzer-key", "00" * 32, "--token", "t"]
    words += ["--dir", tmp_path / "me", "--budget-file", file, "--wait", 0]
    monkeypatch.setattr(sys, "argv", ["croupier", "join", *map(str, words)])
    with pytest.raises(SystemExit):
        main()
    assert "epsilon = 4 at delta = 1e-05 within any 365 days" in capsys.readouterr().err.replace("\n", " ")
    page = (Path(__file__).parents[2] / "clients" / "typescript" / "page" / "index.html").read_text(encoding="utf-8")
    for field, value in (("all-epsilon", "4"), ("all-delta", "1e-5"), ("all-period", "365d")):
        assert re.search(f'id="{field}"[^>]*value="{value}"', page), field
    assert DeviceBudget(file).limit() == BudgetLimit(4.0, 1e-5, 365 * DAY)


def test_a_name_that_turns_the_writing_is_shown_clean(tmp_path, run):
    """The attack: a right-to-left mark in a task's name changes how the lines around it read."""
    file = tmp_path / "budget.json"
    DeviceBudget(file).charge("ab" * 32, "a\u202eb\x1b[2J\u2066", "ab" * 32, promise(0.1))
    for text in (run("--ledger", "--budget-file", file), run("--ledger", "--json", "--budget-file", file)):
        assert not set("\u202e\x1b\u2066") & set(json.loads(text)["tasks"][0]["name"] if text.startswith("{") else text)


@pytest.mark.parametrize("name", ["[/x]", "[link=https://a.example]b[/link]", "[bold]a[/]", ":skull:"])
def test_a_name_with_marks_of_the_terminals_language_is_shown_as_it_is(tmp_path, run, monkeypatch, name):
    """The attack: a closing tag that nothing opened ended `croupier join --ledger` in a traceback, for ever."""
    monkeypatch.setenv("COLUMNS", "300")
    file = tmp_path / "budget.json"
    DeviceBudget(file).charge("ab" * 32, name, "ab" * 32, promise(0.1))
    assert name in run("--ledger", "--budget-file", file)


def test_a_ledger_begins_on_a_file_system_without_links(tmp_path, monkeypatch):
    """FAT, say: the system refuses a second name for a file."""

    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    budget = DeviceBudget(tmp_path / "budget.json")
    budget.allow(LIMIT)
    assert budget.limit() == LIMIT
    assert sorted(file.name for file in tmp_path.iterdir()) == ["budget.json", "budget.lock"]
