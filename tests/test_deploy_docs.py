"""Deploying: the example files are well formed, and every command that a page or an example names exists, with its options."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from contextlib import ExitStack
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from croupier.cli.app import app
from croupier.service.analyzer.task_file import FIELDS, QUERY_FIELDS, TaskFile
from croupier.service.enroller import read_invitations
from croupier.service.net.server import development_certificate
from croupier.service.shuffler.role import hidden_among
from croupier.table import Schema

pytestmark = pytest.mark.process

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples" / "deploy"
UNITS = ["croupier-shuffler.service", "croupier-analyzer.service", "croupier-enroller.service"]
ROLES = ("key", "rotate-key", "enrol", "shuffler", "analyzer", "page", "enroller", "enroller-keys", "invitations", "invite", "plan")
PAGES = ["deploy.md", "threat-model.md", "protocol.md", "browser.md", "flower.md"]


def options_of(words: list[str]) -> tuple[list[str], dict[str, bool]]:
    """The command that these words begin with, and its options: whether each is a flag. Fails where there is no such command."""
    group, path = typer.main.get_command(app), []
    while hasattr(group, "commands"):
        name = words[len(path)] if len(path) < len(words) else "nothing"
        assert name in group.commands, f"croupier {' '.join(words)}: no command {name}"
        group = group.commands[name]
        path.append(name)
    found = {"--help": True}
    for parameter in group.params:
        found |= {option: bool(getattr(parameter, "is_flag", False)) for option in parameter.opts}
    return path, found


def check(command: str) -> str:
    """Refuse a command line with an option that does not exist, or without one that is needed. Returns the command's name."""
    words = shlex.split(command, comments=True)
    words = words[words.index(next(word for word in words if Path(word).name == "croupier")) + 1 :]
    words = words[: words.index(">")] if ">" in words else words
    path, options = options_of(words)
    rest = iter(words[len(path) :])
    given = set()
    for word in rest:
        name, _, attached = word.partition("=")
        if not name.startswith("-"):
            continue  # an argument
        assert name in options, f"{command}: no option {name}"
        given.add(name)
        if not options[name] and not attached:
            value = next(rest, None)
            assert value is not None, f"{command}: {name} has no value"
            assert not value.startswith("--"), f"{command}: {name} has no value"
    return " ".join(path)


def blocks(text: str) -> list[str]:
    """Lines of indented code that start a command of ours."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    return [line for line in lines if re.match(r"(\w+=\S* )?croupier ", line)]


def inline(text: str) -> list[str]:
    return [code for code in re.findall(r"`(croupier [a-z][^`]*)`", text) if code.split()[1] != "serve" or len(code.split()) > 2]


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_pages_exist(page):
    text = (ROOT / "docs" / page).read_text()
    for label in ("`croupier signature v1`", "`croupier token v1`", "`croupier features KIND SEED`"):  # bytes, not a command
        text = text.replace(label, "")
    for command in [*blocks(text), *inline(text)]:
        check(command)


def test_commands_of_the_front_page_exist():
    text = (ROOT / "README.md").read_text()
    names = {
        check(command)
        for command in [*blocks(text), *inline(text)]
        if command.split()[1:2] not in (["serve"], ["join"]) or "--" in command
    }
    assert {"serve analyzer", "serve shuffler", "join", "demo", "fit", "plan"} <= names


def test_the_page_on_deploying_shows_every_role():
    names = {check(command) for command in blocks((ROOT / "docs" / "deploy.md").read_text())}
    enrolling = {"serve enroller-keys", "serve invitations", "serve enroller"}
    roles = {
        "serve enrol",
        "serve analyzer",
        "serve shuffler",
        "serve excluded",
        "serve revoke",
        "serve rotate-key",
        "serve invite",
    }
    tasks = {f"serve task {name}" for name in ("add", "list", "pause", "token", "succeed")}
    assert names == {"join", "doctor"} | roles | enrolling | tasks


@pytest.mark.parametrize("page", PAGES)
def test_options_that_pages_mention_exist_somewhere(page):
    known = set()
    tasks = [["serve", "task", name] for name in ("add", "list", "pause", "resume", "end", "token", "succeed")]
    for words in (["demo"], ["join"], ["plan"], ["doctor"], *tasks, *(["serve", name] for name in ROLES)):
        known |= options_of(words)[1].keys()
    mentioned = set(re.findall(r"`(--[a-z-]+)", (ROOT / "docs" / page).read_text()))
    assert mentioned <= known


def test_a_wrong_command_would_be_found():
    check("croupier serve key --dir x")
    for wrong in (
        "croupier serve nothing",
        "croupier serve key --folder x",
        "croupier serve key --dir",
        "croupier join --data --wait 3",
    ):
        with pytest.raises(AssertionError):
            check(wrong)


def test_the_example_task_is_one_that_the_analyzer_takes():
    asked = TaskFile.load(EXAMPLES / "task.toml")
    assert (asked.users, asked.transport, asked.secret.seconds, asked.turnout) == (20_000, "verified-sum", 3600, 0.8)
    assert asked.facts == Schema.load(EXAMPLES / "schema.toml")
    task = asked.task()
    smallest = hidden_among(task)
    for text in (
        (EXAMPLES / UNITS[0]).read_text(),
        (EXAMPLES / "Containerfile").read_text(),
        (ROOT / "docs/deploy.md").read_text(),
    ):
        (floor,) = set(re.findall(r"--smallest (\d+)", text))
        assert smallest >= int(floor)  # or the shuffler of the examples would refuse their task


def test_the_task_table_of_the_page_is_the_commands():
    text = (ROOT / "docs" / "deploy.md").read_text()
    table = text[text.index("| key | meaning | default |") :].split("\n\n")[0]
    named = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == set(FIELDS)
    block, question = re.findall(r"```toml\n(.*?)```", text, flags=re.S)
    section = text[text.index("## Ask one question") : text.index("## TLS")]
    assert set(tomllib.loads(question)) <= set(QUERY_FIELDS)
    assert set(QUERY_FIELDS) <= set(re.findall(r"`(\w+)`", section))
    assert set(tomllib.loads(block)) <= set(FIELDS)


def test_the_sizes_of_reports_that_the_page_states():
    from croupier.service.wire.transports import TRANSPORTS  # noqa: PLC0415

    text = (ROOT / "docs" / "deploy.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| a report, d coordinates |"))
    assert "| 128 + d k / 8 bytes, k the bits of users (g + b) |" in row
    assert "| 48 + 49 d (g + b) bytes |" in row
    assert "7,544 bytes at d = 100, g + b = 50 |" in row
    assert TRANSPORTS["verified-sum"].report_bytes(100, 50) == 7544
    assert TRANSPORTS["masked-sum"].report_bytes(30, 17, 20) == 128 + 30 * 20 / 8
    assert TRANSPORTS["messages"].report_bytes(30, 17) == 48 + 49 * 30 * 17


@pytest.mark.parametrize("name", UNITS)
def test_units_are_well_formed(name):
    lines = [line for line in (EXAMPLES / name).read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.match(r"\[\w+\]$|\w+=.+", line) for line in lines)
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read_string("\n".join(lines))
    assert parser.sections() == ["Unit", "Service", "Install"]
    service = parser["Service"]
    role = name.removeprefix("croupier-").removesuffix(".service")
    assert check(service["ExecStart"]) == f"serve {role}"
    assert service["StateDirectory"] == f"croupier-{role}"
    assert "--host 0.0.0.0" in service["ExecStart"]
    assert "--certificate ${CREDENTIALS_DIRECTORY}/certificate.pem" in service["ExecStart"]
    credentials = {line.split(":")[0] for line in lines if line.startswith("LoadCredential=")}
    assert credentials == {"LoadCredential=certificate.pem", "LoadCredential=key.pem"}  # 1 MB in all: no list of people
    if role == "enroller":
        assert service["StandardInput"] == "file:/etc/croupier/people.txt"
        assert "--people - " in service["ExecStart"]
    known_variables = {"STATE_DIRECTORY", "CREDENTIALS_DIRECTORY", "ANALYZER", "ANALYZER_KEY"}
    assert set(re.findall(r"\$\{(\w+)\}", service["ExecStart"])) <= known_variables


def test_the_containerfile_starts_a_role_and_copies_what_is_there():
    text = (EXAMPLES / "Containerfile").read_text()
    instructions = [line for line in text.splitlines() if line and not line.startswith("#")]
    known = ("FROM", "COPY", "RUN", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD")
    assert all(line.startswith((*known, "    ")) for line in instructions)
    entry = json.loads(next(line for line in instructions if line.startswith("ENTRYPOINT")).split(" ", 1)[1])
    assert entry == ["croupier", "serve"]
    for line in instructions:
        if line.startswith("COPY"):
            assert all((ROOT / source).exists() for source in line.split()[1:-1])
    joined = text.replace("\\\n#", "")
    used = re.findall(r"^#   .*?podman run .*? croupier +(.*?)\)?$", joined, flags=re.M)
    assert {check(f"croupier serve {command}") for command in used} == {
        "serve key",
        "serve enrol",
        "serve analyzer",
        "serve shuffler",
    }
    extras = re.findall(r"/src\[([\w,]+)\]", text)[0].split(",")
    assert set(extras) <= tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()


def test_the_pages_are_in_the_navigation():
    nav = (ROOT / "mkdocs.yml").read_text()
    for page in PAGES:
        assert f": {page}\n" in nav


@pytest.mark.parametrize("page", PAGES)
def test_what_pages_say_of_the_code_is_there(page):
    """Names in square brackets that are no links are places in the code."""
    source = "\n".join(file.read_text() for file in (ROOT / "src" / "croupier").rglob("*.py"))
    text = (ROOT / "docs" / page).read_text()
    for group in re.findall(r"\[((?:(?:table )?`[^`]+`(?:, )?)+)\](?!\()", text):
        for name in re.findall(r"`([^`]+)`", group):
            if "/" in name:
                assert (ROOT / "src" / "croupier" / name).exists()
            else:
                for part in name.split("."):
                    found = re.search(rf"(def|class) {re.escape(part)}\b|^{re.escape(part)} = ", source, flags=re.M)
                    assert found or (ROOT / "src" / "croupier" / "service" / f"{part}.py").exists(), name


# What the page on threats must not say, and what it must.

THREATS = (ROOT / "docs" / "threat-model.md").read_text()


def section(title: str) -> str:
    return THREATS.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_page_says_that_a_shuffler_without_an_enroller_must_be_actively_honest():
    """It enrols n - 1 users of its own, and solves the next theta for the one that is left: that takes no analyzer."""
    alone = section("The shuffler, alone")
    for words in ("actively honest about enrolment", "enrols n - 1 users of its own", "publishes the next theta", "noisy counts"):
        assert words in alone, words
    assert "of use to it if it is told" not in THREATS
    promise = section("The promise, and what it rests on")
    assert re.search(r"^\| A0 \| with an enroller: .* without one: the shuffler enrols only real people", promise, flags=re.M)
    assert "the shuffler alone reads your noisy counts" in promise


def test_the_page_does_not_say_that_shuffler_and_clients_learn_nothing():
    rows = [row for row in section("Together").splitlines() if row.startswith("| shuffler + ")]
    clients = next(row for row in rows if "client" in row.split("|")[1])
    assert "everything: the others' reports stay sealed" not in clients
    assert "by the next theta the sum of the batch" in clients
    assert "Of one client that is left: its own noise alone" in clients


def test_the_page_says_what_an_enroller_does_and_what_it_does_not():
    about = section("The enroller")
    for words in ("Blindness", "Times", "With *messages*", "invites invented people"):
        assert words in about, words
    assert not re.search(r"tokens that a third party issues.*not built yet", THREATS)


@pytest.mark.parametrize("page", ["threat-model.md", "deploy.md", "protocol.md"])
def test_no_page_says_that_rounds_are_filled_in_the_order_of_arrival(page):
    text = (ROOT / "docs" / page).read_text()
    for words in ("filled in the order of arrival", "takes the first that come", "places are promised", "Enrol more than `users`"):
        assert words not in text, words
    assert re.search("drawn by lot|draws? .*at random", text)


def test_the_pages_state_the_pace_of_the_code():
    from croupier.service.wire.task import LONGEST_PACE, PACE  # noqa: PLC0415

    row = next(row for row in (ROOT / "docs" / "deploy.md").read_text().splitlines() if row.startswith("| `pace` |"))
    assert row.endswith(f"| {PACE:g} |")
    assert f"at most {LONGEST_PACE:g}" in row
    assert f"above 0 and at most {LONGEST_PACE:g}" in (ROOT / "docs" / "protocol.md").read_text()


def test_the_containerfile_s_first_commands_run(tmp_path):
    """The attack: `enrol > tokens` was refused, since tokens are printed to a terminal alone."""
    text = (EXAMPLES / "Containerfile").read_text()
    commands = re.findall(r"^#   (.*)podman run --rm -v shuffler:/state croupier (.*?)\)?$", text, flags=re.M)
    assert [(before, command.split()[0]) for before, command in commands] == [("", "key"), ("(umask 077; ", "enrol")]
    for _, command in commands:
        words = shlex.split(command.replace("/state", str(tmp_path)).replace("20000", "3").partition(">")[0])
        done = CliRunner().invoke(app, ["serve", *words])
        assert done.exit_code == 0, done.exception
    assert len(done.stdout.split()) == 3


def test_the_enroller_takes_more_invitations_than_a_credential_of_systemd_holds(tmp_path, monkeypatch):
    """As its unit starts it: the file is standard input, and has more than 1 MB."""
    people = tmp_path / "people.txt"
    people.write_text("".join(f"{person:043}\n" for person in range(24_000)))
    assert people.stat().st_size > 1 << 20
    with people.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        assert len(read_invitations(Path("-"))) == 24_000


def test_the_six_commands_take_two_parties_from_nothing_to_an_answer(tmp_path, monkeypatch):
    """As they are typed on the page, but for free ports: servers as processes, all others in this one."""
    text = (ROOT / "docs" / "deploy.md").read_text()
    commands = blocks(text[text.index("## Six commands") : text.index("## For real")])
    assert len(commands) == 6
    shutil.copytree(EXAMPLES, tmp_path / "examples" / "deploy")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    known: dict[str, str] = {}
    with ExitStack() as running:
        for command in commands:
            for word, value in known.items():
                command = command.replace(word, value)  # noqa: PLW2901
            assert "_KEY" not in command
            words = shlex.split(command)[1:]
            role = words[1]
            if role not in ("analyzer", "shuffler"):
                done = CliRunner().invoke(app, words)
                assert done.exit_code == 0, (command, done.output, done.exception)
                continue
            program = [sys.executable, "-c", "from croupier.cli import main; main()", *words, "--port", "0"]
            with Path(f"{role}.log").open("w") as log:
                one = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=log, text=True)
            running.callback(_stopped, one)
            address, key = (one.stdout.readline().split()[-1] for _ in range(2))
            port = {"analyzer": 8802, "shuffler": 8801}[role]
            known |= {f"{role.upper()}_KEY": key, f"https://127.0.0.1:{port}": address}
        answer = tmp_path / "analyzer" / "tasks" / "first" / "answer.json"
        for _ in range(600):
            if answer.is_file():
                break
            time.sleep(0.1)
    figures = json.loads(answer.read_text())
    ages = [int(line) for line in (EXAMPLES / "first.csv").read_text().split()[1:]]
    assert figures["users"] == len(ages) == 200
    true = [sum(low <= age < low + 20 for age in ages) for low in range(0, 100, 20)]
    # six standard deviations of each of five counts: a false alarm in 10^8
    assert all(abs(said - count) <= 6 * figures["count_std"] + 1e-9 for said, count in zip(figures["counts"], true, strict=True))
    assert not (tmp_path / ".croupier" / "budget.json").exists()  # a rehearsal is on nobody's ledger


@pytest.mark.parametrize("page", ["README.md", "docs/deploy.md"])
def test_the_lines_for_real_hosts_run_as_printed(page, tmp_path, monkeypatch):
    """But for hosts and ports, which are this machine's: both roles with certificates, and one of 200 people joins."""
    lines = blocks((ROOT / page).read_text())
    first = {
        name: next(line for line in lines if line.startswith(name)) for name in ("croupier serve analyzer --task", "CROUPIER_TOKEN")
    }
    serve_analyzer, join = first.values()
    serve_shuffler = next(line for line in lines if line.startswith("croupier serve shuffler") and "analyzer.example" in line)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for role in ("analyzer", "shuffler"):
        (tmp_path / f"of-{role}").mkdir()
        certificate, key = development_certificate(tmp_path / f"of-{role}")
        certificate.rename(f"{role}.pem")
        key.rename(f"{role}.key")
    Path("all.pem").write_text(Path("analyzer.pem").read_text() + Path("shuffler.pem").read_text())
    monkeypatch.setenv("SSL_CERT_FILE", "all.pem")
    analyzer_key, key = (
        CliRunner().invoke(app, ["serve", "key", "--dir", role]).output.strip() for role in ("analyzer", "shuffler")
    )
    Path("task.toml").write_text(f'{(EXAMPLES / "first.toml").read_text()}shuffler_key = "{key}"\n')
    assert CliRunner().invoke(app, ["serve", "enrol", "--dir", "shuffler", "--clients", "200", "--output", "tokens"]).exit_code == 0
    (mine, *others), (name, *ages) = Path("tokens").read_text().split(), (EXAMPLES / "first.csv").read_text().split()
    Path("others").write_text("\n".join(others))
    Path("others.csv").write_text("\n".join([name, *ages[1:]]) + "\n")
    Path("me.csv").write_text(f"{name}\n{ages[0]}\n")
    known = {" KEY": f" {analyzer_key}"}

    def here(command: str) -> list[str]:
        for word, value in known.items():
            command = command.replace(word, value)
        words = shlex.split(re.sub(r"--host 0\.0\.0\.0 --port \d+", "--host 127.0.0.1 --port 0", command))
        assert not re.search(r"\.example|\bKEY\b", " ".join(words))
        return words[words.index("croupier") + 1 :]

    with ExitStack() as running:

        def start(command: str) -> subprocess.Popen[str]:
            program = [sys.executable, "-c", "from croupier.cli import main; main()", *here(command)]
            log = running.enter_context(Path(f"log-{len(known)}").open("w"))
            one = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=log, text=True)
            running.callback(_stopped, one)
            return one

        known["https://analyzer.example:8802"] = start(serve_analyzer).stdout.readline().split()[-1]
        known["https://shuffler.example:8801"] = start(serve_shuffler).stdout.readline().split()[-1]
        for line in [line for line in lines if line.startswith("croupier doctor")]:
            assert (done := CliRunner().invoke(app, here(line))).exit_code == 0, done.output
        start("croupier join --rehearse others --data others.csv --shuffler https://shuffler.example:8801 --analyzer-key KEY")
        done = CliRunner().invoke(app, here(join), env={"CROUPIER_TOKEN": mine})
        assert done.exit_code == 0, (done.output, done.exception)
        for _ in range(600):
            if Path("answer.json").is_file():
                break
            time.sleep(0.1)
    assert json.loads(Path("answer.json").read_text())["users"] == 200


def _stopped(one: subprocess.Popen[str]) -> None:
    one.terminate()
    one.wait(30)
    one.stdout.close()
