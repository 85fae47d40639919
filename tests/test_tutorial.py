"""The tutorial runs as it is printed: the page's commands in their order, and the notebook's cells."""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "cli"))

from helpers_cli import croupier  # noqa: E402

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")


def test_every_command_of_the_page_runs_and_the_figures_hold(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    printed = ""
    commands = [line.strip() for line in PAGE.splitlines() if re.match(r"    (croupier|cd) ", line)]
    for command in commands:
        words = shlex.split(command)
        if words[0] == "cd":
            monkeypatch.chdir(tmp_path / words[1])
            continue
        done = croupier(*words[1:])
        assert done.returncode == 0, f"{command}: {done.stderr}"
        printed += done.stdout
    assert {words.split()[1] for words in commands} >= {"example", "describe", "fit", "evaluate", "report", "predict", "show"}
    guess = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)[1]
    assert tomllib.loads(guess) == tomllib.loads(Path("guess.toml").read_text())
    # 5 000 people, noise of both rounds: six runs were within 0.01 of 0.87; the tolerance is five times that
    accuracy = float(re.search(r"^accuracy +([\d.]+)", printed, re.MULTILINE)[1])
    assert accuracy == pytest.approx(float(re.search(r"accuracy is about ([\d.]+)", PAGE)[1]), abs=0.05)
    shown = croupier("show", "model.json").stdout
    guessed = float(re.search(r"is right at most ([\d.]+) % of the time", shown)[1])
    assert guessed <= float(re.search(r"correctly at most ([\d.]+) % of the time", PAGE)[1]) <= guessed + 1
    assert Path("report.html").stat().st_size > 10_000


@pytest.mark.process  # three fits and a description, one after the other
def test_every_command_of_the_page_on_files_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert croupier("example", "clinic").returncode == 0
    monkeypatch.chdir(tmp_path / "clinic")
    text = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    commands = [line.strip() for line in text.splitlines() if line.startswith("    croupier ")]
    assert {line.split()[1] for line in commands} == {"schema", "describe", "fit", "show", "predict", "evaluate", "report"}
    for command in commands:
        done = croupier(*shlex.split(command, comments=True)[1:])
        assert done.returncode == 0, f"{command}: {done.stderr}"


def commands_of(page: str) -> list[str]:
    """The commands that a page prints, in their order."""
    return [line.strip() for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if line.startswith("    croupier ")]


def run(command: str) -> None:
    done = croupier(*shlex.split(command, comments=True)[1:])
    assert done.returncode == 0, f"{command}: {done.stderr}"


@pytest.mark.process  # two fits; words and tables of some thousand people
def test_every_command_of_the_page_on_statistics_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text, rng = (ROOT / "docs" / "statistics.md").read_text(encoding="utf-8"), random.Random(1)
    Path("guess.toml").write_text(re.search(r"```toml\n(.*?)```", text, re.DOTALL)[1])
    kinds, incomes, regions = ["private", "public", "self-employed"], ["<=50K", ">50K"], ["north", "south", "west"]
    rows = [
        (rng.randrange(18, 90), round(rng.expovariate(1e-3)), rng.choice(kinds), rng.choice(incomes), rng.choice(regions))
        for _ in range(8_000)
    ]
    Path("people.csv").write_text(
        "age,capital,workclass,income,region\n" + "".join("{},{},{},{},{}\n".format(*row) for row in rows)
    )
    terms = [(device, rng.choice(["hello", "rain", f"rare {device}"])) for device in range(4_000) for _ in range(2)]
    Path("searches.csv").write_text("device,term\n" + "".join(f"{device},{term}\n" for device, term in terms))
    commands = commands_of("docs/statistics.md")
    assert [line.split()[1] for line in commands] == ["describe", "words", "table", "choose"]
    for command in commands[:3]:
        run(command)
    assert {"page.html", "words.html", "schema.toml"} <= {path.name for path in Path().iterdir()}
    run("croupier example clinic")
    monkeypatch.chdir("clinic")
    Path("new.csv").rename("others.csv")
    for name, rounds in (("a", 2), ("b", 3), ("c", 4)):
        run(f"croupier fit people.csv --schema guess.toml --rule plain --rounds {rounds} -o model-{name}.json")
    run(commands[3])


def test_commands_that_plan_and_prove_run_as_printed(tmp_path, monkeypatch):
    """Those of the README, of sums by hand and of certificates; the last one is checked by the program that the page names."""
    pytest.importorskip("flint")
    monkeypatch.chdir(tmp_path)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (plan,) = commands_of("docs/optimizer.md")
    assert f"`{plan}`" in readme
    run(plan)
    page = (ROOT / "docs" / "certificates.md").read_text(encoding="utf-8")
    install, prove, check = re.search(r"```console\n(.*?)```", page, re.DOTALL)[1].strip().splitlines()
    assert "mpmath" in install  # what the last one needs
    run(prove)
    program, *words = shlex.split(check)[1:]
    done = subprocess.run([sys.executable, ROOT / program, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_commands_of_operators_that_need_no_server_run_as_printed(tmp_path, monkeypatch):
    """With 3 people for 20 000. Those that serve run in test_deploy_docs and in the deployed demo."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CROUPIER_BUDGET_FILE", raising=False)
    run("croupier serve key --dir analyzer")
    alone = ("enrol", "invite", "enroller-keys", "invitations", "rotate-key", "excluded", "task list", "task token")
    ran = set()
    for command in commands_of("docs/deploy.md"):
        words = (
            command.partition(" > ")[0]
            .replace("20000", "3")
            .replace(" KEY", f" {'ab' * 32}")
            .replace("--clients 200 ", "--clients 3 ")
        )
        name = next((name for name in alone if words.startswith(f"croupier serve {name} ")), None)
        if name == "enrol" and name in ran:
            Path("tokens").unlink()
        if name or "--ledger" in words or "--budget-epsilon" in words:
            run(words.replace(" --task NAME", "") if name == "excluded" else words)
            ran.add(name or words.split()[2])
    assert ran == {*alone, "--ledger", "--budget-epsilon"}
    assert len(Path("links.txt").read_text().splitlines()) == 3


def test_the_notebook_runs_and_is_small(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = ROOT / "docs" / "tutorial.ipynb"
    assert path.stat().st_size < 20_000
    names: dict[str, object] = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        if source.startswith("!"):
            assert croupier(*shlex.split(source)[1:]).returncode == 0, source
        else:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(source, names)
    assert "model" in names


def test_the_example_is_not_overwritten_unasked(tmp_path):
    assert croupier("example", str(tmp_path / "new")).returncode == 0
    refused = croupier("example", str(tmp_path / "new"))
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    assert croupier("example", str(tmp_path / "new"), "--force").returncode == 0
