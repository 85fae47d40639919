"""What an attacker and an operator found, each as a test: tokens in clear, readable databases, large tasks, a kill after saving."""

from __future__ import annotations

import os
import re
import socket
import stat
import sys
import tracemalloc
import warnings
from pathlib import Path

import pytest
from helpers_records import reading
from sqlalchemy import func, select

from croupier import ArgumentError
from croupier.cli import main
from croupier.cli.processes import until_stopped
from croupier.cli.serve import ENDED
from croupier.estimator import WeakPrivacyWarning
from croupier.service.analyzer import population as analyzer_tables
from croupier.service.analyzer.dashboard import page, run_state
from croupier.service.client.client import Client
from croupier.service.net import database as store
from croupier.service.net.server import development_certificate
from croupier.service.shuffler import rounds as shuffler_tables
from croupier.service.wire.documents import WireError
from croupier.service.wire.queries import TrainingQuery, records_to_dict
from croupier.service.wire.task import Task
from croupier.table import Schema
from croupier.table.model import Request

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "url",
    [
        "http://shuffler.example:8801",
        "http://10.0.0.7",
        "http://127.0.0.1.example",
        "http://[2001:db8::1]:80",
        "ftp://127.0.0.1",
        "shuffler",
    ],
)
def test_no_token_travels_in_clear_to_another_machine(tmp_path, roles, url):
    key = roles.analyzer.public_key().public_bytes_raw().hex()
    with pytest.raises(ArgumentError, match="https"):
        Client(url, "token", key, folder=tmp_path)


@pytest.mark.parametrize("url", ["https://shuffler.example", "http://127.0.0.1:1", "http://localhost:8801", "http://[::1]:8801/at"])
def test_https_and_this_machine_are_allowed(tmp_path, roles, url):
    Client(url, "token", roles.analyzer.public_key().public_bytes_raw().hex(), folder=tmp_path)


@pytest.fixture
def umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("there", [False, True])
def test_a_database_and_what_lies_beside_it_are_its_owners_alone(tmp_path, there):
    file = tmp_path / "analyzer.db"
    if there:  # as an earlier version left it
        file.touch(0o644)
    kept = store.Database(f"sqlite:///{file}", analyzer_tables.ANALYZER)
    with kept.begin() as connection:
        connection.execute(analyzer_tables.asked.insert().values(id="a", number=1, document=b"", key=b"secret"))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    kept.close()
    assert modes["analyzer.db"] == 0o600
    assert set(modes.values()) == {0o600}
    assert len(modes) > 1  # the log was there


@pytest.mark.parametrize("place", ["domain", "plan"])
@pytest.mark.parametrize("dim", [300_000_000, 2**62, 1e300, 10**399])
def test_a_task_of_very_many_coordinates_is_refused_before_memory_is_taken(roles, place, dim):
    def grow(values):
        where = values["problem"]["domain"] if place == "domain" else values["schedule"]["phases"][0]["plan"]
        where["dim"] = dim

    document = roles.edited(roles.task().document(roles.analyzer), grow)
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match=r"dim is .*; it must be a whole number and at least 1 and at most 4194304"):
            Task.read(document, roles.analyzer.public_key())
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 1_000_000


@pytest.mark.parametrize("shortfall", ["0.1", None, [], {}, -1, 2.0, True])
def test_a_bad_shortfall_is_a_clean_refusal(roles, shortfall):
    def bend(values):
        values["schedule"]["shortfall"] = shortfall

    document = roles.edited(roles.task().document(roles.analyzer), bend)
    try:
        task = Task.read(document, roles.analyzer.public_key())
    except WireError:
        return
    assert task.schedule.guarantee.epsilon(0.5) >= 0  # whatever is read can be asked for its promise


def test_a_task_that_has_ended_is_not_started_again_by_its_unit():
    """And its exit code is none that a crash has."""
    unit = (ROOT / "examples" / "deploy" / "croupier-analyzer.service").read_text()
    assert str(ENDED) in re.search(r"^RestartPreventExitStatus=(.*)$", unit, flags=re.M)[1].split()
    assert ENDED not in (0, 1, 2, 130)
    assert f"{ENDED} the task has ended" in (ROOT / "docs" / "deploy.md").read_text()


def test_a_warning_is_a_line_of_a_role_s_log_however_often_it_comes(caplog, capsys):
    """As of two tasks that ask too much in the same words."""
    before = warnings.showwarning
    with until_stopped():
        for _ in range(2):
            warnings.warn("epsilon = 20.0: the odds may change", WeakPrivacyWarning, stacklevel=1)
    assert [record.getMessage() for record in caplog.records if record.name == "croupier"] == [
        "epsilon = 20.0: the odds may change"
    ] * 2
    assert "WeakPrivacyWarning" not in capsys.readouterr().err
    assert warnings.showwarning is before


@pytest.fixture
def enrol(monkeypatch, capsys):
    """`croupier serve enrol`, its exit code and what it prints."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["croupier", "serve", "enrol", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, capsys.readouterr()

    return run


def enrolled(folder: Path) -> int:
    kept = store.Database(f"sqlite:///{folder / 'shuffler.db'}", shuffler_tables.SHUFFLER)
    with kept.look() as connection:
        count = connection.execute(select(func.count()).select_from(shuffler_tables.clients)).scalar_one()
    kept.close()
    return count


@pytest.mark.usefixtures("umask")
def test_tokens_go_into_a_file_of_its_owner_alone(tmp_path, enrol):
    folder, file = tmp_path / "sh", tmp_path / "tokens"
    code, said = enrol("--dir", folder, "--clients", 25_001, "--output", file)
    assert not code
    assert f"25,001 tokens, one per line: {file}." in said.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    tokens = file.read_text().split()
    assert len(set(tokens)) == 25_001 == enrolled(folder)
    kept = store.Database(f"sqlite:///{folder / 'shuffler.db'}", shuffler_tables.SHUFFLER)
    some = [tokens[0], tokens[12_345], tokens[-1]]
    assert len(shuffler_tables.clients_of(kept, [store.hash_of(token) for token in some])) == 3
    kept.close()


def test_tokens_are_printed_to_a_terminal_alone_unless_asked_for(tmp_path, enrol):
    code, said = enrol("--dir", tmp_path / "sh", "--clients", 2)
    assert code == 2
    assert "--output" in said.err
    assert said.out == ""
    assert not (tmp_path / "sh").exists()
    code, said = enrol("--dir", tmp_path / "sh", "--clients", 2, "--output", "-")
    assert not code
    assert len(said.out.split()) == 2 == enrolled(tmp_path / "sh")


def test_a_file_that_is_there_is_not_written_over_and_nobody_is_enrolled(tmp_path, enrol):
    (tmp_path / "tokens").write_text("mine")
    code, said = enrol("--dir", tmp_path / "sh", "--output", tmp_path / "tokens")
    assert "exists, and secrets never replace a file. Name a new one" in said.err
    assert code == 2
    assert (tmp_path / "tokens").read_text() == "mine"
    assert not (tmp_path / "sh").exists()


def test_the_page_has_the_tasks_name_and_says_what_bits_and_bytes_are(roles):
    task = roles.task(name="heights <of> patients")
    state = run_state(task, [], None)
    assert state["name"] == "heights <of> patients"
    assert state["bits"]["travel"] == "as masked counts"
    html = page(state)
    assert "heights \\u003cof> patients" in html
    assert 'id="name"' in html
    assert "Sealed, a report has" not in html


# --- records from Python

FACTS = """
target = {column = "ill", classes = ["yes", "no"]}
columns = {age = {low = 0, high = 100}, town = {levels = ["Ulm", "Bonn"]}}
"""


def reads(**parameters) -> TrainingQuery:
    return reading(records_to_dict(Schema.from_toml(FACTS), Request("classify", {"epsilon": 1.0} | parameters, None)))


def test_records_become_the_rows_that_a_file_makes_of_them(tmp_path):
    reader = reads()
    (tmp_path / "me.csv").write_text("age,town,ill\n30,Ulm,yes\n71.5,Bonn,no\n")
    rows, targets = reader.read_file(tmp_path / "me.csv")
    mine = [{"age": 30, "town": "Ulm", "ill": "yes", "else": object()}, {"age": 71.5, "town": "Bonn", "ill": "no"}]
    for records in (mine, tuple(mine)):
        X, y = reader.read_records(records)
        assert X.tolist() == rows.tolist()
        assert y.tolist() == targets.tolist()
    X, y = reader.read_records(mine[0])
    assert X.tolist() == rows[:1].tolist()


@pytest.mark.parametrize(
    "record",
    [
        {"age": "SECRET", "town": "Ulm", "ill": "yes"},
        {"age": 30, "town": "Ulm", "ill": "SECRET"},
        {"age": ["SECRET"], "town": "Ulm", "ill": "no"},
    ],
)
def test_an_error_about_a_record_says_nothing_of_it(record):
    with pytest.raises(ArgumentError) as refusal:
        reads().read_records([record])
    assert "SECRET" not in str(refusal.value)
    assert refusal.value.__cause__ is None
    assert refusal.value.__context__ is None


def test_a_record_without_a_column_is_refused():
    with pytest.raises(ArgumentError, match="'town'"):
        reads().read_records({"age": 30, "ill": "no"})


def test_a_blanking_task_reads_what_it_can_of_records():
    reader = reads(invalid="blank")
    X, _ = reader.read_records([{"age": 30, "town": "Ulm", "ill": "yes"}, {"age": "thirty", "town": "Ulm", "ill": "no"}])
    assert X[0, 0] != 0
    assert X[1].tolist() == [0.0] * X.shape[1]


# What cannot be opened: each cause has a line of its own.


@pytest.fixture
def started(monkeypatch, capsys, tmp_path):
    """`croupier serve enroller` that is refused; what it says."""

    def run(*more: object) -> str:
        words = ["serve", "enroller", "--dir", tmp_path / "enroller", *more]
        monkeypatch.setattr(sys, "argv", ["croupier", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        return " ".join(capsys.readouterr().err.split())

    return run


def test_a_taken_port_and_a_missing_certificate_are_told_apart(started, tmp_path):
    """The fault: both were `the port could not be opened`, with advice on disks."""
    tls, other = development_certificate(tmp_path / "a"), development_certificate(tmp_path / "b")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = started("--port", port)
        assert f"--port = {port} is not allowed: it must be one that can be opened on 127.0.0.1 (address already in use)" in said
        assert "choose another port" in said
    assert "--certificate" in (said := started("--certificate", tmp_path / "no.pem", "--private-key", tls[1]))
    assert "No such file" in said
    assert "--private-key" in started("--certificate", tls[0], "--private-key", tmp_path / "no.pem")
    assert "KEY_VALUES_MISMATCH" in started("--certificate", tls[0], "--private-key", other[1])
    (tmp_path / "text.pem").write_text("nothing")
    assert "fits --private-key" in started("--certificate", tmp_path / "text.pem", "--private-key", tls[1])
    assert "--host" in started("--host", "no.such.host.invalid", "--certificate", tls[0], "--private-key", tls[1])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("task", "add", "--analyzer", "https://a.example/tasks/t", "--analyzer-key", "11" * 32, "--ca", "no.pem"),
            "--ca = 'no.pem'",
        ),
        (("task", "add", "--task", "t.toml", "--shuffler-key", "XYZ"), "--shuffler-key = 'XYZ'"),
        (("shuffler", "--enroller-ca", "no.pem"), "--enroller-ca = 'no.pem'"),
    ],
)
def test_a_file_or_key_that_cannot_be_used_is_refused_by_its_option_at_once(monkeypatch, capsys, tmp_path, words, said):
    """The faults: a task was added whose analyzer could never be trusted, and a wrong --shuffler-key had the name of the file's."""
    monkeypatch.setattr(sys, "argv", ["croupier", "serve", *words, "--dir", str(tmp_path / "d")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert f"{said} is not allowed" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "d").exists()
