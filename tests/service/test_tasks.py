"""One service, many tasks: people enrol once, each task has its own draw, keys and storage, each analyzer its own tasks."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from contextlib import ExitStack
from functools import partial

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from helpers_roles import Web, postgres_server, soon, why_no_postgres
from helpers_tasks import QUESTION, Analyzer, Service, bearer
from sqlalchemy import func, select

from croupier.cli import main
from croupier.cli.join import TasksAt
from croupier.service.analyzer.app import add_files, add_task_list, files_of
from croupier.service.client.budget import BudgetLimit, DeviceBudget
from croupier.service.client.state import listed_tasks, trusted_keys
from croupier.service.net.database import Database, hash_of
from croupier.service.net.http import Server, require_public
from croupier.service.net.limits import limit_addresses
from croupier.service.net.registry import MOST_TASKS, Keyring, Operator, Registry, TaskState, front_app
from croupier.service.net.server import Loop, Served, TurnOutcome, name_task
from croupier.service.shuffler import rounds as tables
from croupier.service.shuffler.app import add_claims, invite
from croupier.service.shuffler.host import HostedShuffler, ShufflerHost
from croupier.service.shuffler.relay import AnalyzerRelay
from croupier.service.wire.documents import SUCCESSION, Document, WireError, followed, hex_of, parsed, succession
from croupier.service.wire.task import RefusedError, RefusedTaskError

YEAR = 365 * 86_400.0


def limit_for(guarantee, tasks: int) -> BudgetLimit:
    """The owner's limit that so many of these tasks keep, and one more does not; found by trying, not by its formula."""
    for hundredths in range(50, 5000, 5):
        limit = BudgetLimit(hundredths / 100, 1e-3, YEAR)
        if limit.keeps([guarantee] * tasks):
            assert not limit.keeps([guarantee] * (tasks + 1))
            return limit
    raise AssertionError("no limit")


@pytest.mark.parametrize(
    ("people", "tasks", "poor"),
    [(24, 4, 3), pytest.param(1000, 20, 50, marks=pytest.mark.slow)],
)
def test_people_who_enrol_once_take_part_in_many_tasks_within_their_budgets_and_all_sums_are_exact(tmp_path, people, tasks, poor):
    """Tasks of two analyzers, every second one for fewer people than are enrolled. Some budgets allow half of the tasks."""
    with ExitStack() as stack:
        analyzers = [Analyzer(tmp_path / name, stack) for name in ("ann", "bob")]
        service = Service(tmp_path, stack, honest=1.0)
        service.enrol(people, tmp_path)
        names = {f"task-{number}": analyzers[number % 2] for number in range(tasks)}
        for number, (name, analyzer) in enumerate(names.items()):
            service.ask(analyzer, name, people - (number % 2) * people // 8)
        guarantee = service.open_round("task-0", analyzers[0])[0].schedule.guarantee
        little, enough = limit_for(guarantee, tasks // 2), limit_for(guarantee, tasks)
        for person in service.people:
            person.budget.allow(little if person.number < poor else enough)
        for name, analyzer in names.items():
            service.answer(name, analyzer)
        for name, analyzer in names.items():
            soon(lambda: service.ended(name))  # noqa: B023
            assert analyzer.ones(name) == service.expected(name)
            assert (analyzer.folder / "tasks" / name / "answer.json").is_file()
            soon(lambda: name not in analyzer.host._served)  # noqa: B023
            for path in ("", "answer"):  # the pages stay
                with urllib.request.urlopen(f"{analyzer.url}/tasks/{name}/{path}", timeout=60) as page:
                    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
                    assert b"<html" in page.read()
        for person in service.people:
            entries = person.budget.entries()
            assert len(person.answers) <= len(entries) <= (tasks // 2 if person.number < poor else tasks)
            assert person.budget.limit().keeps([entry.guarantee for entry in entries])
            assert bool(person.refused) == (person.number < poor)
            if not person.refused and len(person.answers) == tasks:
                with pytest.raises(RefusedTaskError, match="beyond the owner's limit"):
                    person.budget.check("another", guarantee)
        sizes = [service.expected(name)[-1] for name in names]
        assert all(size >= 0.8 * (people - people // 8) for size in sizes)


def rows_of(service: Service, name: str, table) -> int:
    kept = service.host.registry.database(name, "shuffler", tables.SHUFFLER)
    with kept.look() as connection:
        count = len(connection.execute(table.select()).all())
    kept.close()
    return count


def test_a_task_is_paused_resumed_and_ended_and_what_people_sent_goes_at_once_and_the_rest_by_the_rule(tmp_path):
    days = [0.0]
    with ExitStack() as stack:
        analyzer = Analyzer(tmp_path / "ann", stack)
        service = Service(tmp_path, stack, clock=lambda: time.time() + days[0] * 86_400, keep_days=30)
        service.enrol(12, tmp_path)
        registry, at = service.host.registry, "/v1/admin/tasks"
        service.ask(analyzer, "one", 12)
        service.post(f"{at}/one/pause", {}, service.operator)
        service.ask(analyzer, "two", 12)
        service.open_round("two", analyzer)
        service.host.turn()
        paused = service.host._served["one"]
        soon(lambda: service.web.get("/tasks/one/v1/task").status == 200)
        assert paused.relay.paused
        assert service.web.get("/tasks/one/v1/round").content == b""
        assert service.web.get("/v1/task").status == 404  # two are served: the short address is nobody's
        assert json.loads(service.post(f"{at}/one/resume", {}, service.operator).text)["state"] == "running"
        service.open_round("one", analyzer)
        assert service.web.get("/tasks/one/v1/lot", bearer(service.people[0].token)).status == 404  # no secret lots here
        for person in service.people[6:]:
            person.budget.allow(BudgetLimit(0.01, 1e-9, YEAR))  # half of them stay away: the round stays open
        service.answer("one", analyzer)
        assert rows_of(service, "one", tables.reports) == 6
        assert service.post(f"{at}/one/end", {}, service.operator).status == 200
        soon(lambda: service.web.get("/tasks/one/v1/round").status == 410)
        soon(lambda: not rows_of(service, "one", tables.reports))
        for table in (tables.reports, tables.lots, tables.taken_part, tables.clients):
            assert rows_of(service, "one", table) == 0
        assert service.post(f"{at}/one/resume", {}, service.operator).status == 409
        assert soon(lambda: analyzer.host.registry.row("one").why).startswith("the shuffler's operator has ended")
        assert service.web.get("/v1/task").status == 200  # one is left: the short address is its
        # Its storage goes after 30 days; its name and id stay, and neither is served again.
        folder = tmp_path / "shuffler" / "tasks" / "one"
        days[0] = 29.9
        service.host.turn()
        assert folder.exists()
        days[0] = 30.1
        service.host.turn()
        assert not folder.exists()
        known = registry.row("one")
        assert known.deleted is not None
        assert known.task is not None
        assert (tmp_path / "shuffler" / "tasks" / "two").exists()
        about = {"name": "one", "analyzer": f"{analyzer.url}/tasks/other", "analyzer_key": analyzer.key}
        assert service.post(at, about, service.operator).status == 409


def test_an_analyzer_ends_a_task_and_clients_hear_its_signed_word(tmp_path):
    with ExitStack() as stack:
        analyzer, service = Analyzer(tmp_path / "ann", stack), None
        service = Service(tmp_path, stack)
        service.enrol(12, tmp_path)
        service.ask(analyzer, "one", 12)
        service.open_round("one", analyzer)
        analyzer.host.registry.change("one", TaskState.ENDED, why="enough")
        soon(lambda: service.ended("one"))
        assert "operator has ended the task" in service.host.registry.row("one").why
        soon(lambda: service.web.get("/tasks/one/v1/end").content)
        soon(lambda: service.post("/tasks/one/v1/report", b"x", service.people[0].token).status == 410)
        soon(lambda: "one" not in analyzer.host._served)
        assert (tmp_path / "ann" / "tasks" / "one" / "task.toml").is_file()


def test_at_no_moment_of_its_end_a_task_is_said_not_to_exist(tmp_path, monkeypatch):
    """Clients ask for its end at any time, and give up where there is no such task."""
    with ExitStack() as stack:
        analyzer, service = Analyzer(tmp_path / "ann", stack), Service(tmp_path, stack)
        service.enrol(12, tmp_path)
        service.ask(analyzer, "one", 12)
        service.open_round("one", analyzer)
        hosts, refused = [service.host, analyzer.host], []

        class Watched(dict):
            """Tasks that are served: after one is taken out, the host is asked for it."""

            def pop(self, name, *default):
                gone = super().pop(name, *default)
                refused.extend(host.app(name) for host in hosts)
                return gone

            def __delitem__(self, name):
                self.pop(name)

        for host in hosts:
            monkeypatch.setattr(host, "_served", Watched(host._served))
        analyzer.host.registry.change("one", TaskState.ENDED, why="enough")
        soon(lambda: not any(host._served for host in hosts))
        soon(lambda: len(refused) >= 4)
        assert not [answer for answer in refused if isinstance(answer, RefusedError) and answer.status == 404]


def test_what_people_sent_is_deleted_at_a_task_s_end_also_while_its_analyzer_does_not_answer(tmp_path, monkeypatch):
    with ExitStack() as stack:
        analyzer, service = Analyzer(tmp_path / "ann", stack), Service(tmp_path, stack)
        service.enrol(12, tmp_path)
        service.ask(analyzer, "one", 12)
        service.open_round("one", analyzer)
        one, asked, answered = service.host._served["one"], threading.Event(), threading.Event()
        stack.callback(answered.set)

        def never(path, body=None):
            asked.set()
            answered.wait()
            return b""

        def drawn():
            with one.role.store.look() as connection:
                return connection.execute(select(func.count()).select_from(tables.clients)).scalar_one()

        assert drawn() == 12
        monkeypatch.setattr(one.relay, "_sent", never)
        asked.wait()
        service.host.registry.change("one", TaskState.ENDED)
        soon(lambda: drawn() == 0)
        assert one.relay.loop.stopping()  # still asking
        answered.set()
        soon(lambda: "one" not in service.host._served)


@pytest.mark.parametrize(
    "address", ["https://127.0.0.1:9", "https://[::1]", "https://10.0.0.1", "https://169.254.169.254", "https://localhost",
                "https://[::ffff:192.168.0.1]", "https://[fd00::1]", "https://0.0.0.0", "https://224.0.0.1"]
)  # fmt: skip
def test_an_enroller_of_a_private_network_is_refused(address):
    with pytest.raises(WireError, match="private network"):
        require_public(address, "enroller")
    require_public("https://93.184.215.14:8803/at", "enroller")


def test_a_task_added_by_token_makes_the_shuffler_ask_nobody_within_its_network(tmp_path, caplog):
    """Nobody is asked; where the operator allows it, what an enroller says stays out of what the analyzer can read."""
    with ExitStack() as stack:
        analyzer, service = Analyzer(tmp_path / "ann", stack), Service(tmp_path, stack)
        service.enrol(12, tmp_path)
        service.ask(analyzer, "by-operator", 12)
        soon(lambda: "by-operator" in service.host._served)
        assert not service.host._served["by-operator"].relay._public
        token = service.host.registry.new_operator(analyzer.key, analyzer.url)
        service.ask(analyzer, "by-token", 12, token=token)
        soon(lambda: "by-token" in service.host._served)
        one = service.host._served["by-token"]
        with pytest.raises(WireError, match="private network"):
            one.relay._signed_blanks(f"{analyzer.url}/nothing", b"x")
        open_relay = AnalyzerRelay(one.role, analyzer.url)
        open_relay._tried(lambda: open_relay._signed_blanks(f"{analyzer.url}/nothing", b"x"))
        assert "404" in open_relay.loop.causes()
        assert "Not Found" not in open_relay.loop.causes()
        assert "Not Found" in caplog.text
        open_relay._leadership.close()
        free = ShufflerHost(tmp_path / "free", f"sqlite:///{service.folder}/shuffler.db", private_enrollers=True)
        stack.callback(free.people.close)
        begun = free._begun(service.host.registry.row("by-token"))
        stack.callback(begun.role.store.close)
        stack.callback(begun.relay.__exit__)
        assert not begun.relay._public


@pytest.fixture
def registry(tmp_path):
    kept = tables_of(tmp_path / "shuffler.db")
    yield Registry(kept, tmp_path)
    kept.close()


def tables_of(file):
    return Database(f"sqlite:///{file}", tables.SHUFFLER)


ANN, BOB = (hex_of(Ed25519PrivateKey.from_private_bytes(bytes([number] * 32))) for number in (1, 2))
BAD_NAMES = ["..", "../x", "a/b", "a%2fb", "", "A", "a_b", "-a", "a-", "a" * 41, "a\n", "a.b", "tasks/../..", "\u0430", "a\x00"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_is_one_part_of_a_path_and_nothing_else(registry, tmp_path, name):
    add = partial(registry.add, name, ANN, "https://a.example/tasks/x")
    for act in (add, partial(registry.folder, name), partial(registry.row, name)):
        with pytest.raises(RefusedError, match="name"):
            act()
    assert not (tmp_path / "tasks").exists()


def test_one_analyzer_cannot_touch_or_see_another_s_tasks_or_make_the_shuffler_ask_strangers(registry):
    ann = registry.operator(registry.new_operator(ANN, "https://a.example:8802", 2))
    bob = registry.operator(registry.new_operator(BOB, "https://b.example"))
    registry.add("one", ANN, "https://a.example:8802/tasks/one", operator=ann)
    for change in TaskState:
        with pytest.raises(RefusedError) as refusal:
            registry.change("one", change, bob)
        assert refusal.value.status == 404  # as if there were none
    assert registry.row("one").state is TaskState.RUNNING
    with pytest.raises(RefusedError, match="another analyzer"):
        registry.add("two", ANN, "https://b.example/tasks/two", operator=bob)
    for address in (
        "https://a.example:8802/tasks/x",
        "https://b.example.evil/tasks/x",
        "https://b.example@evil/tasks/x",
        "https://b.example/../x",
        "https://b.example//evil/x",
        "https://b.example/tasks/x?y=1",
        "http://127.0.0.1:5432/x",
        "https://b.example",
    ):
        with pytest.raises(RefusedError) as refusal:
            registry.add("two", BOB, address, operator=bob)
        assert refusal.value.status == 403, address
    registry.add("two", ANN, "https://a.example:8802/tasks/two", operator=ann)
    with pytest.raises(RefusedError, match="no more tasks"):
        registry.add("three", ANN, "https://a.example:8802/tasks/three", operator=ann)
    registry.change("one", TaskState.ENDED, ann)
    registry.add("three", ANN, "https://a.example:8802/tasks/three", operator=ann)
    with pytest.raises(RefusedError, match="served already"):
        registry.add("again", ANN, "https://a.example:8802/tasks/two")
    for number in range(MOST_TASKS - 2):
        registry.add(f"b{number}", BOB, f"https://b.example/tasks/{number}", operator=Operator())
    with pytest.raises(RefusedError, match="no more tasks"):
        registry.add("last", BOB, "https://b.example/tasks/last")
    with pytest.raises(RefusedError) as refusal:
        registry.operator("x")
    assert refusal.value.status == 401


def test_one_id_is_served_under_one_name(registry):
    for name in ("one", "two"):
        registry.add(name, ANN, f"https://a.example/tasks/{name}")
    registry.claim("one", "ab" * 32, ANN)
    registry.claim("one", "ab" * 32, ANN)
    with pytest.raises(WireError, match="another name"):
        registry.claim("two", "ab" * 32, ANN)


def test_files_that_come_by_the_network_stay_in_their_folder_and_name_none_of_this_machine_s(tmp_path):
    kept = tables_of(tmp_path / "analyzer.db")
    registry, keys = Registry(kept, tmp_path), Keyring(tmp_path)
    good = QUESTION.format(name="x", users=12, epsilon=1.0, honest=0.8, key="aa" * 32)
    train = f'schema = "{{}}"\nusers = 12\nshuffler_key = "{"aa" * 32}"\n'
    for files in (
        {"../task.toml": good, "task.toml": good},
        {"task.toml": train.format("/etc/passwd")},
        {"task.toml": train.format("../../signing.key")},
        {"task.toml": good + 'output = "../../x.json"\n'},
        {"task.toml": good, "analyzer.db": "x"},
        {"task.toml": good, "run.journal": "x"},
        {"task.toml": good, ".hidden": "x"},
        {"task.toml": "=", "x": "y"},
        {"other.toml": good},
        {"task.toml": 3},
    ):
        with pytest.raises(RefusedError):
            add_files(registry, keys, "one", files)
        assert registry.rows() == []
    add_files(registry, keys, "one", {"task.toml": good})
    with pytest.raises(RefusedError, match="another name"):
        add_files(registry, keys, "two", {"task.toml": good})
    assert [path.name for path in (tmp_path / "tasks").iterdir()] == ["one"]
    kept.close()


def test_the_interface_for_operators_asks_for_a_token_of_its_own(tmp_path):
    with ExitStack() as stack:
        service = Service(tmp_path, stack)
        service.enrol(1, tmp_path)
        for token in ("", "x", service.people[0].token):
            assert service.web.get("/v1/admin/tasks", bearer(token)).status == 401
            for path in ("/v1/admin/tasks", "/v1/admin/tasks/x/end", "/v1/admin/keys"):
                assert service.post(path, {}, token).status == 401
        assert service.post("/v1/admin/tasks", b"[", service.operator).status == 400
        assert service.post("/v1/admin/tasks", [], service.operator).status == 400
        assert service.post("/v1/admin/tasks", {"name": "x"}, service.operator).status == 400
        assert service.post("/v1/admin/tasks/x/burn", {}, service.operator).status == 404
        assert service.post("/v1/admin/tasks/x/end", {}, service.operator).status == 404
        for path in (
            "/tasks/../v1/task",
            "/tasks/x/../../v1/admin/tasks",
            "/tasks//v1/task",
            "/tasks/X/v1/task",
            "/tasks/x/v1/task",
        ):
            assert service.web.get(path).status == 404
        assert service.web.get("/v1/task").status == 503
        assert "tasks: 0 running" in service.web.get("/healthz").text
        files = b"".join(file.read_bytes() for file in (tmp_path / "shuffler").glob("shuffler.db*"))
        assert service.operator.encode() not in files


class FixedCrowd(HostedShuffler):
    """The check of a draw alone."""

    def __init__(self, honest) -> None:
        self._honest_people = honest


def test_a_draw_of_fewer_people_than_are_enrolled_holds_the_honest_share_or_is_refused(roles):
    """By exact hypergeometric tails: the route of the code is a bound on relative entropies."""
    from scipy.stats import hypergeom  # noqa: PLC0415

    from croupier.service.wire.task import Task  # noqa: PLC0415

    class _Asked:
        honest = 0.9

    def task(users):
        made = object.__new__(Task)
        object.__setattr__(made, "users", users)
        object.__setattr__(made, "schedule", _Asked)
        return made

    FixedCrowd(None)._require_crowd(task(1000), 1000)
    with pytest.raises(WireError, match="where 999 are enrolled"):
        FixedCrowd(1.0)._require_crowd(task(1000), 999)
    with pytest.raises(WireError, match="nothing is said"):
        FixedCrowd(None)._require_crowd(task(1000), 1001)
    with pytest.raises(WireError, match="could hold fewer"):
        FixedCrowd(0.9)._require_crowd(task(1000), 100_000)
    FixedCrowd(1.0)._require_crowd(task(1000), 100_000)
    taken = []
    for thousandths in range(900, 1000, 5):
        try:
            FixedCrowd(thousandths / 1000)._require_crowd(task(1000), 100_000)
        except WireError:
            continue
        # the user at stake is honest and drawn: of 999 others fewer than 899 are honest
        tail = hypergeom(99_999, thousandths * 100 - 1, 999).cdf(898)
        assert tail <= 1e-12
        taken.append(thousandths)
    assert taken
    assert taken[0] <= 975  # not so careful that nothing is served


def test_who_is_drawn_is_a_random_set_and_strangers_and_the_revoked_are_none_of_it(tmp_path):
    with ExitStack() as stack:
        analyzer = Analyzer(tmp_path / "ann", stack)
        service = Service(tmp_path, stack, honest=1.0)
        service.enrol(24, tmp_path)
        with service.host.people.look() as connection:
            names = [row.id for row in connection.execute(tables.clients.select())]
        tables.revoke(service.host.people, names[:4])
        for name in ("one", "two"):
            service.ask(analyzer, name, 10)
            service.open_round(name, analyzer)
        service.enrol(5, tmp_path)  # too late for both
        drawn = []
        for name in ("one", "two"):
            kept = service.host._served[name].role.store
            with kept.look() as connection:
                drawn.append({row.id for row in connection.execute(tables.clients.select())})
            assert len(drawn[-1]) == 10
            assert drawn[-1] <= set(names[4:])
        assert drawn[0] != drawn[1]  # the same with probability 1 / (20 choose 10), 5e-6


def test_people_are_invited_to_the_service_and_drawn_whether_they_have_claimed_or_not(tmp_path):
    """Whether somebody claims in time may depend on their records: it must not decide who is drawn. Who is withdrawn is not."""
    with ExitStack() as stack:
        analyzer, service = Analyzer(tmp_path / "ann", stack), None
        service = Service(tmp_path, stack)
        names = [tables.new_name() for _ in range(13)]
        codes = invite(service.host.people, names, time.time() + 3600)
        tables.revoke(service.host.people, names[12:])
        app = front_app("shuffler", service.host, service.host.people)
        add_claims(app, service.host)
        service.ask(analyzer, "one", 12)
        with Web(app) as web:
            for number, path in enumerate(("/v1/claim", "/tasks/one/v1/claim")):
                claim = hash_of(f"token-{number}").encode()
                assert web.post(path, claim, bearer(codes[number])).status == 200
            assert web.post("/v1/claim", hash_of("x").encode(), bearer(codes[12])).status in (409, 410)
            service.open_round("one", analyzer)
            kept = service.host._served["one"].role.store
            with kept.look() as connection:
                assert {row.id for row in connection.execute(tables.clients.select())} == set(names[:12])
            assert web.get("/tasks/one/v1/round", bearer("token-1")).content
            assert web.get("/tasks/one/v1/round", bearer(codes[1])).status == 401


def test_a_task_for_more_people_than_are_enrolled_says_so_and_begins_when_they_are(tmp_path, caplog):
    with ExitStack() as stack:
        caplog.handler.addFilter(name_task)
        stack.callback(caplog.handler.removeFilter, name_task)
        analyzer, service = Analyzer(tmp_path / "ann", stack), None
        service = Service(tmp_path, stack)
        service.enrol(11, tmp_path)
        service.ask(analyzer, "one", 12)
        soon(lambda: "enrol them first" in service.host.registry.row("one").why)
        soon(lambda: "enrol them first" in analyzer.host.registry.row("one").why)
        why = "a task for 12 users, drawn by lot, where 11 are enrolled: enrol them first"
        assert f"task one: refused: {why}" in caplog.messages  # by the shuffler's thread, and a request at the analyzer
        assert f"task one: the shuffler does not serve the task: {why}" in caplog.messages
        service.enrol(1, tmp_path)
        service.open_round("one", analyzer)
        soon(lambda: service.host.registry.row("one").why == "")


# Keys.


def test_a_new_key_is_announced_once_by_the_old_one_and_the_old_one_goes_when_nothing_uses_it(tmp_path):
    keys = Keyring(tmp_path)
    first = hex_of(keys.current)
    announced = keys.rotate()
    second = hex_of(keys.current)
    assert first != second
    assert followed(first, keys.successions()) == [first, second]
    assert hex_of(keys.of(first)) == first
    keys.prune({first})
    assert keys.of(first) is not None
    keys.prune(set())
    assert keys.of(first) is None
    assert keys.of("../signing") is None
    third = keys.rotate()
    assert followed(first, [third, announced]) == [first, second, hex_of(keys.current)]
    with pytest.raises(WireError, match="signature"):
        announced.said(SUCCESSION, keys.current.public_key())
    # killed after the announcement was written: the same again completes it, with the same key
    (tmp_path / "signing.key").write_text((tmp_path / "keys" / f"{second}.key").read_text())
    assert keys.rotate() == third


def test_two_successors_of_a_key_are_believed_by_nobody(tmp_path, registry):
    old, one, two = (Ed25519PrivateKey.from_private_bytes(bytes([number] * 32)) for number in (1, 5, 6))
    forks = [succession(old, key) for key in (one, two)]
    with pytest.raises(WireError, match="leaked"):
        followed(hex_of(old), forks)
    stranger = succession(two, one)
    with pytest.raises(WireError, match="no analyzer"):
        registry.succeed(forks[0])
    token = registry.new_operator(hex_of(old), "https://a.example")
    other = registry.operator(registry.new_operator(BOB, "https://b.example"))
    with pytest.raises(WireError, match="no analyzer"):
        registry.succeed(forks[0], other)
    with pytest.raises(WireError, match="no analyzer"):
        registry.succeed(stranger)
    assert registry.succeed(forks[0]) == registry.succeed(forks[0]) == (hex_of(old), hex_of(one))
    with pytest.raises(WireError, match="leaked"):
        registry.succeed(forks[1])
    mine = registry.operator(token)
    assert mine.keys == (hex_of(old), hex_of(one))
    with pytest.raises(RefusedError, match="was followed by"):
        registry.add("one", hex_of(old), "https://a.example/tasks/one", operator=mine)
    registry.add("one", hex_of(one), "https://a.example/tasks/one", operator=mine)
    good = parsed(forks[0].text)
    proofs = [parsed(forks[1].text)["proof"], parsed(stranger.text)["proof"], good["proof"][:-2], 1, None]
    wrong = [{"key": hex_of(old)}, {"key": "x"}, {"key": hex_of(one)}, good | {"more": 1}, {}]
    for words in (*wrong, *(good | {"proof": proof} for proof in proofs)):
        assert followed(hex_of(old), [Document.signed(SUCCESSION, words, old)]) == [hex_of(old)]


def test_nobody_names_another_analyzer_s_key_as_its_own_successor(registry):
    """Bob's word that Ann's key follows his gives his token nothing of hers: her key has not signed his."""
    bob, ann = (Ed25519PrivateKey.from_private_bytes(bytes([number] * 32)) for number in (1, 2))
    tokens = [registry.new_operator(hex_of(key), f"https://{name}.example") for key, name in ((bob, "b"), (ann, "a"))]
    bob_s, ann_s = map(registry.operator, tokens)
    registry.add("hers", hex_of(ann), "https://a.example/tasks/hers", operator=ann_s)
    own = parsed(succession(bob, Ed25519PrivateKey.generate()).text)["proof"]
    for words in ({"key": hex_of(ann)}, {"key": hex_of(ann), "proof": own}):
        with pytest.raises(WireError, match="no analyzer"):
            registry.succeed(Document.signed(SUCCESSION, words, bob), bob_s)
    bob_s = registry.operator(tokens[0])
    assert bob_s.keys == (hex_of(bob),)
    with pytest.raises(RefusedError, match="no task"):
        registry.change("hers", TaskState.ENDED, bob_s)


def test_tasks_that_have_begun_keep_their_keys_and_people_follow_the_analyzer_s_new_one(tmp_path):
    """Both roles change keys between two tasks. The first ends under the old keys, the second is under the new ones."""
    with ExitStack() as stack:
        analyzer = Analyzer(tmp_path / "ann", stack)
        service = Service(tmp_path, stack)
        service.enrol(12, tmp_path)
        service.ask(analyzer, "one", 12)
        service.open_round("one", analyzer)
        old, leaked = analyzer.key, Keyring(analyzer.folder).current
        announced = Keyring(analyzer.folder).rotate()
        Keyring(service.folder).rotate()
        old_shuffler, service.key = service.key, hex_of(Keyring(service.folder).current)
        assert service.post("/v1/admin/keys", announced.to_bytes(), service.operator).status == 200
        new = hex_of(Keyring(analyzer.folder).current)
        analyzer.key = new
        service.ask(analyzer, "two", 12)
        service.answer("two", analyzer)
        analyzer.key = old
        service.answer("one", analyzer)
        for name in ("one", "two"):
            soon(lambda: service.ended(name))  # noqa: B023
            assert analyzer.ones(name) == service.expected(name)
        soon(lambda: Keyring(service.folder).of(old_shuffler) is None)
        # A device that knows the old key alone finds both tasks; one that knows neither finds none.
        url = stack.enter_context(Served(front_app("shuffler", service.host, service.host.people))).url
        server = Server(url)
        assert [(one.name, one.analyzer) for one in listed_tasks(server)] == [("one", old), ("two", new)]
        assert trusted_keys(server, [old], tmp_path / "device") == {old, new}
        assert trusted_keys(server, [BOB], tmp_path / "device") == {BOB}
        assert trusted_keys(server, [new], tmp_path / "device") == {new}
        forged = succession(leaked, Ed25519PrivateKey.generate())
        kept = json.loads((tmp_path / "device" / "successions.json").read_text())
        (tmp_path / "device" / "successions.json").write_text(json.dumps([*kept, forged.to_bytes().hex()]))
        with pytest.raises(WireError, match="leaked"):
            trusted_keys(server, [old], tmp_path / "device")


def test_tokens_are_taken_back_and_what_they_do_is_recorded_before_it_is_done(tmp_path, registry):
    """By the web interface: each act with whose token it was, also one that is refused; and none of a token that has ended."""
    acts = []

    class Only:
        loop, keys = Loop("tasks", lambda: TurnOutcome.DONE, pause=1, longest=1), list

        def __init__(self, registry):
            self.registry = registry

        def only(self):
            return None

        def app(self, name):
            return RefusedError(404, "no task")

        def add(self, values, operator):
            assert acts[-1][0] == "add task"
            self.registry.add(values["name"], values["analyzer_key"], values["analyzer"], operator=operator)
            return values["name"]

    own, ann = registry.new_operator(), registry.new_operator(ANN, "https://a.example")
    other = registry.new_operator(BOB, "https://b.example")
    about = {"name": "one", "analyzer": "https://a.example/tasks/one", "analyzer_key": ANN}
    app = front_app("shuffler", Only(registry), registry.store, lambda act, **facts: acts.append((act, facts)))
    limit_addresses(app, header="X-From")
    with Web(app) as web:

        def post(path, body, token):
            return web.post(
                f"/v1/admin/{path}", body if isinstance(body, bytes) else json.dumps(body).encode(), bearer(token)
            ).status

        assert post("tasks", about, ann) == 200
        assert acts == [("add task", {"by": f"token of the analyzer {ANN}", **about})]
        assert post("tasks/one/pause", b"", other) == 404
        assert post("tasks/one/pause", b"", own) == 200
        assert [act for act, _ in acts[1:]] == ["pause task"] * 2
        assert [facts["by"] for _, facts in acts[1:]] == [f"token of the analyzer {BOB}", "token of an operator"]
        assert registry.revoke(ANN) == 1
        assert registry.revoke(ANN) == 0
        assert registry.has_token(ANN)
        assert post("tasks/one/end", b"", ann) == 401
        assert len(acts) == 3
        assert [registry.operator(token).keys for token in (own, other)] == [(), (BOB,)]
        assert registry.revoke(None) == 1
        assert post("tasks/one/end", b"", own) == 401
        # an answer of the front's and a limited one are as careful as all others
        front = web.get("/tasks/one/v1/task")
        app.state.limit.admits = lambda address, has_token: False
        limited = web.get("/v1/tasks", {"X-From": "192.0.2.7"})
        assert [one.status for one in (front, limited)] == [404, 429]
        assert [one.headers["x-content-type-options"] for one in (front, limited)] == ["nosniff"] * 2


def test_a_name_of_no_task_is_refused_and_says_where_the_names_are(tmp_path, capsys, monkeypatch):
    Database(f"sqlite:///{tmp_path}/shuffler.db", tables.SHUFFLER).close()
    monkeypatch.setattr("sys.argv", ["croupier", "serve", "task", "pause", "--dir", str(tmp_path), "--name", "second"])
    with pytest.raises(SystemExit) as end:
        main()
    said = " ".join(capsys.readouterr().err.split())
    assert (end.value.code, "no task second" in said, "croupier serve task list prints the names" in said) == (2, True, True)
    assert json.loads((tmp_path / "audit.jsonl").read_text())["act"] == "pause task"


def test_an_ended_task_is_not_added_again_and_says_so(registry):
    registry.add("one", ANN, "https://a.example/tasks/one")
    registry.add("one", ANN, "https://a.example/tasks/one")
    registry.change("one", TaskState.ENDED)
    with pytest.raises(RefusedError, match="there is, or was"):
        registry.add("one", ANN, "https://a.example/tasks/one")


def test_an_analyzer_takes_no_task_of_a_token_for_others_nor_files_that_are_no_names(tmp_path):
    with ExitStack() as stack:
        host = Analyzer(tmp_path / "ann", stack).host
        file = tmp_path / "one.toml"
        file.write_text(QUESTION.format(name="one", users=12, epsilon=1.0, honest=0.8, key=BOB))
        scoped = host.registry.operator(host.registry.new_operator(BOB, "https://b.example"))
        with pytest.raises(RefusedError) as refused:
            host.add({"name": "one", "files": files_of(file)}, scoped)
        assert refused.value.status == 403
        assert not host.registry.rows()
        for wrong in ("[]", "1", "{}"):
            with pytest.raises(RefusedError, match="names of files"):
                host.add({"name": "one", "files": {"task.toml": f"schema = {wrong}"}}, Operator())
        host.add({"name": "one", "files": files_of(file)}, Operator())


def test_a_device_keeps_no_successions_of_strangers(tmp_path):
    old, new, *others = (Ed25519PrivateKey.from_private_bytes(bytes([number] * 32)) for number in range(1, 5))
    told = [succession(old, new), succession(*others)]

    class Told:
        def send(self, path):
            return json.dumps({"successions": [document.to_bytes().hex() for document in told]}).encode()

    assert trusted_keys(Told(), [hex_of(old)], tmp_path) == {hex_of(old), hex_of(new)}
    assert json.loads((tmp_path / "successions.json").read_text()) == [told[0].to_bytes().hex()]
    told *= 5001
    with pytest.raises(WireError, match="at most"):
        trusted_keys(Told(), [hex_of(old)], tmp_path)


# A device.


def test_a_device_joins_all_tasks_that_its_limits_allow_and_no_others(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "500")
    with ExitStack() as stack:
        ann, bob = (Analyzer(tmp_path / name, stack) for name in ("ann", "bob"))
        service = Service(tmp_path, stack)
        service.enrol(2, tmp_path)
        for name, analyzer, epsilon in (("one", ann, 1.0), ("two", bob, 1.0), ("wide", ann, 3.0), ("three", ann, 1.0)):
            service.ask(analyzer, name, 2, epsilon=epsilon, honest=1.0)
            guarantee = service.open_round(name, analyzer)[0].schedule.guarantee
        url = stack.enter_context(Served(front_app("shuffler", service.host, service.host.people))).url
        options = {"max_epsilon": 1.0, "max_delta": 1e-5, "max_epsilon_if_watched": 10.0, "ca": None}
        joined = []

        def take_part(client):
            joined.append(client.task().name)
            client._at_once = True
            assert client.take_part([[30.0]], [None]) is not None

        budget = DeviceBudget(tmp_path / "budget.json")
        budget.allow(limit_for(guarantee, 2))
        token = service.people[0].token
        known = TasksAt(url, [ann.key], tmp_path / "device", time.monotonic() + 60, options)
        known.show(budget)
        shown = capsys.readouterr().out
        assert "two" not in shown  # an analyzer that the device does not know
        assert "more than the 1 that is allowed" in shown
        with pytest.raises(ValueError, match="a key that you do not know"):
            known.answer(["two"], token, budget, take_part)
        both = TasksAt(url, [ann.key, bob.key], tmp_path / "device", time.monotonic() + 60, options)
        both.answer([], token, budget, take_part)
        assert sorted(joined) == ["one", "two"]  # "wide" promises too little, and with "three" the budget would be passed
        said = capsys.readouterr().err
        assert "wide is left out: the task reveals epsilon" in said
        assert "three is left out: with this task" in said
        assert {entry.name for entry in budget.entries()} == {"one", "two"}
        assert sorted(path.name for path in (tmp_path / "device").iterdir() if path.is_dir()) == sorted(
            one.task for one in listed_tasks(Server(url)) if one.name in ("one", "two")
        )


@pytest.mark.process
@pytest.mark.skipif(why_no_postgres() is not None, reason=str(why_no_postgres()))
def test_with_postgres_each_task_has_a_schema_that_goes_with_it(tmp_path):
    with postgres_server() as server, ExitStack() as stack:
        days = [0.0]
        analyzer = Analyzer(tmp_path / "ann", stack)
        options = {"clock": lambda: time.time() + days[0] * 86_400}
        service = Service(tmp_path, stack, server("shuffler"), **options)
        service.enrol(12, tmp_path)
        for name in ("one", "two-b"):
            service.ask(analyzer, name, 12)
        for name in ("one", "two-b"):
            service.answer(name, analyzer)
            soon(lambda: service.ended(name))  # noqa: B023
            assert analyzer.ones(name) == service.expected(name)

        def schemas():
            with service.host.people.look() as connection:
                found = connection.exec_driver_sql("SELECT nspname FROM pg_namespace WHERE left(nspname, 4) = 'task' ORDER BY 1")
                return list(found.scalars())

        assert schemas() == ["task_one", "task_two_b"]
        days[0] = 31
        soon(lambda: schemas() == [])
        soon(lambda: service.web.get("/tasks/one/v1/task").status == 410)


def test_a_file_s_own_words_are_copied_with_the_files_that_it_names(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "facts.toml").write_text("x")
    file = tmp_path / "task.toml"
    file.write_text('schema = "deep/facts.toml"\nusers = 3\nshuffler_key = "old"\noutput = "deep/m.json"\n')
    assert files_of(file, "new") == {
        "task.toml": 'schema = "facts.toml"\nusers = 3\nshuffler_key = "new"\noutput = "m.json"\n',
        "facts.toml": "x",
    }
    file.write_text("users = 3\n")
    assert files_of(file, "new") == {"task.toml": 'shuffler_key = "new"\nusers = 3\n'}


def test_a_task_whose_files_are_not_here_yet_says_so_and_begins_when_they_are(tmp_path):
    """It is registered before its folder has its name, so that nobody begins what is refused."""
    with ExitStack() as stack:
        analyzer, service = Analyzer(tmp_path / "ann", stack), Service(tmp_path, stack)
        analyzer.host.loop.stop()  # turns are this test's
        service.ask(analyzer, "late", 24)
        folder = analyzer.folder / "tasks" / "late"
        folder.rename(folder.with_name("elsewhere"))
        assert analyzer.host.turn() is TurnOutcome.WAITING
        assert "its files are not here yet" in analyzer.host.registry.row("late").why
        folder.with_name("elsewhere").rename(folder)
        assert analyzer.host.turn() is TurnOutcome.DONE
        assert analyzer.host.registry.row("late").why == ""


def test_the_web_app_of_an_analyzer_of_many_tasks_shows_each_at_its_own_address(tmp_path):
    """The faults: the front page and an address without a slash at its end were a bare 404; where all tasks had ended, `doctor`
    was told that there is no task yet."""
    with ExitStack() as stack:
        analyzer = Analyzer(tmp_path / "ann", stack)
        service = Service(tmp_path, stack)
        app = front_app("analyzer", analyzer.host, analyzer.host.store)
        add_task_list(app, analyzer.host)
        with Web(app) as web:
            assert "No task yet" in web.get("/").text
            assert (web.get("/v1/task").status, web.get("/v1/task").text) == (503, "no task yet\n")
            for name in ("one", "two"):
                service.ask(analyzer, name, 12)
            states = [soon(lambda: (got := web.get(f"/tasks/{name}/v1/state")).status == 200 and got) for name in ("one", "two")]  # noqa: B023
            assert [json.loads(state.text)["name"] for state in states] == ["one", "two"]
            assert web.get("/tasks/one/").status == 200
            assert (web.get("/tasks/one").status, web.get("/tasks/one").headers["location"]) == (307, "./one/")
            assert web.get("/v1/round").status == 404
            listed = json.loads(web.get("/v1/tasks").text)["tasks"]
            assert [row["task"] for row in listed] == [json.loads(state.text)["task"] for state in states]
            analyzer.host.registry.change("two", TaskState.ENDED)
            front = web.get("/")
            assert '<li><a href="tasks/one/">one</a>, running</li>\n<li><a href="tasks/two/">two</a>, ended</li>' in front.text
            assert front.headers["content-security-policy"].startswith("default-src 'none'")
            analyzer.host.registry.change("one", TaskState.ENDED)
            soon(lambda: web.get("/v1/task").status == 503)
            assert web.get("/v1/task").text == "no task now: all have ended\n"
