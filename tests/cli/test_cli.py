"""The command line as a user meets it: output, one line for every mistake, exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from helpers_cli import croupier

from croupier.validation import how_to_install

ROOT = Path(__file__).parents[2]
PLAN = ["plan", "--epsilon", "1", "--delta", "1e-6", "--users", "10000", "--dim", "100"]
NAMES = [
    "levels",
    "noise_bits",
    "noise_probability",
    "honest_users",
    "neighbours",
    "bits_per_coordinate",
    "bits_per_user",
    "noise_std",
    "central_noise_std",
    "inflation",
    "certified_delta",
    "mu",
    "epsilon",
    "delta",
    "users",
    "dim",
    "norm",
    "honest",
    "rounds",
    "calibration",
    "max_inflation",
    "max_bits",
]


def as_json(*arguments: str) -> dict:
    result = croupier(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize(("arguments", "code"), [(PLAN, 0), (["plan", "--epsilon", "-1"], 2)])
@pytest.mark.process
def test_a_real_process_does_the_same(arguments, code):
    result = subprocess.run([sys.executable, "-m", "croupier", *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == code
    assert (result.stdout, result.stderr) == (croupier(*arguments).stdout, croupier(*arguments).stderr)


def test_plan_prints_the_figures_and_the_relation():
    result = croupier(*PLAN)
    assert result.returncode == 0
    for word in ("28 bits per coordinate", "replace-one", "Theorem B", "all 10,000 users"):
        assert word in result.stdout


def test_a_plan_without_a_promise_if_watched_names_the_option_that_clients_need(tmp_path):
    """The fault: it said `no promise`, and clients with default limits all refused the task."""
    few = ("plan", "--epsilon", "1", "--delta", "1e-6", "--users", "400", "--dim", "10", "--honest", "0.9", "--lots", "20")
    assert "clients join only with --max-epsilon-if-watched inf" in " ".join(re.sub("[│]", " ", croupier(*few).stdout).split())
    assert "--max-epsilon-if-watched" not in croupier(*PLAN, "--lots", "20").stdout
    (tmp_path / "schema.toml").write_text('[target]\ncolumn = "ill"\nclasses = ["no", "yes"]\n[columns.age]\nlow = 0\nhigh = 99\n')
    task = f'schema = "schema.toml"\nusers = 2000\nhonest = 0.9\nlots = "secret"\nshuffler_key = "{"11" * 32}"\n'
    for more, said in (("rounds = 60", "inf"), ("rounds = 4\nepsilon = 8", r"[1-9]\d\.\d+"), ("rounds = 2", None)):
        (tmp_path / "task.toml").write_text(task + more)
        text = " ".join(croupier("serve", "plan", "--task", str(tmp_path / "task.toml")).stdout.split())
        found = re.search(r"clients join only with --max-epsilon-if-watched (\S+)", text)
        assert (found is None) == (said is None), text
        assert found is None or re.fullmatch(said, found[1])


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (
            ("--users", "30", "--dim", "1", "--lots", "2"),
            r"epsilon = 10 at delta = 1e-300 cannot be .* 30 users, .* 2 secret rounds",
        ),
        (("--users", "20", "--dim", "300", "--lots", "2"), ""),
        (("--users", "3", "--dim", "5", "--max-bits", "20"), r"--max-bits = 20 is not allowed: it must be at least \d+"),
        (
            ("--users", "3", "--dim", "5", "--calibration", "paper", "--epsilon", "60"),
            "--epsilon = 60.0 .* Use the tight calibration",
        ),
        (("--users", "3", "--dim", "5", "--lots", "2", "--epsilon", "1e6"), "--epsilon = 1000000.0 .* no privacy"),
        (("--users", "3", "--dim", "300", "--epsilon", "100"), "--delta = 1e-300 .* Choose a larger delta"),
        (
            ("--users", "5", "--dim", "300", "--delta", "0.1", "--epsilon", "1e-6", "--lots", "1"),
            "--delta = 0.1 .* a larger epsilon",
        ),
    ],
)
def test_a_plan_at_the_edge_works_or_is_refused_in_one_line(extra, said):
    """The faults: an error with all fields of a request in it, a warning of scipy's, and names and values of Python's."""
    with warnings.catch_warnings(action="error"):
        result = croupier("plan", "--epsilon", "10", "--delta", "1e-300", *extra)
    assert result.returncode == (2 if said else 0), result.stderr
    assert re.search(said, " ".join(result.stderr.split()))
    assert "SumRequest" not in result.stderr
    assert bool(said) or not result.stderr


def test_plan_with_secret_lots_prints_both_figures():
    text = " ".join(croupier(*PLAN, "--lots", "20").stdout.split())
    for word in ("secret lots", "639, blanks included", "certified", "if watched", "epsilon 1"):
        assert word in text
    plan = as_json(*PLAN, "--lots", "20", "--honest", "0.9")
    assert plan["certified_delta"] <= 1e-6
    assert (plan["rounds"], plan["size"], plan["guarantee"]["allocations"][0]["rounds"]) == (20, 639, 20)
    assert plan["guarantee"]["watched"]["mu"] > 1


@pytest.mark.parametrize(
    "extra",
    [
        ["--lots", "0"],
        ["--lots", "20", "--rounds", "2"],
        ["--lots", "5", "--calibration", "paper"],
        ["--lots", "5", "--diameter", "1.5"],
    ],
)
def test_lots_that_cannot_be_are_refused_in_one_line(extra):
    result = croupier(*PLAN, *extra)
    assert result.returncode == 2
    assert result.stderr.startswith("croupier: ")


def test_plan_json_has_every_name_and_keeps_its_promise():
    plan = as_json(*PLAN)
    assert set(NAMES) <= set(plan)
    assert plan["bits_per_coordinate"] <= 58
    assert plan["inflation"] <= 1.05
    assert plan["certified_delta"] <= 1e-6


@pytest.mark.parametrize(
    ("extra", "name", "value"),
    [
        (["--max-inflation", "1.2"], "max_inflation", 1.2),
        (["--max-bits", "30"], "max_bits", 30),
        (["--honest", "0.8"], "honest_users", 8000),
        (["--rounds", "10"], "rounds", 10),
        (["--norm", "3"], "norm", 3.0),
        (["--neighbours", "zero-out"], "neighbours", "zero-out"),
        (["--calibration", "paper"], "bits_per_coordinate", 82_222_840),
    ],
)
def test_every_option_reaches_the_plan(extra, name, value):
    plan = as_json(*PLAN, *extra)
    assert plan[name] == value
    assert plan["certified_delta"] <= 1e-6


def test_compare_puts_paper_tight_central_and_local_side_by_side():
    text = croupier(*PLAN, "--compare")
    assert text.returncode == 0
    for word in ("shuffle, rotated", "shuffle, not rotated", "shuffle (paper)", "central Gaussian", "local", "replace-one"):
        assert word in text.stdout
    figures = as_json(*PLAN, "--compare")
    assert round(figures["paper"]["inflation"]) == 537
    assert figures["central"]["inflation"] == 1
    assert 1 < figures["tight"]["inflation"] <= 1.05 < figures["local"]["inflation"] < figures["paper"]["inflation"]


def test_compare_says_why_the_paper_covers_less():
    result = croupier("plan", "--epsilon", "20", "--delta", "1e-6", "--users", "1000", "--dim", "10", "--compare")
    assert result.returncode == 0
    assert "not covered" in result.stdout
    assert (
        "refused" in as_json("plan", "--epsilon", "20", "--delta", "1e-6", "--users", "1000", "--dim", "10", "--compare")["paper"]
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--epsilon", "0"], ["epsilon = 0", "greater than 0"]),
        (["--epsilon", "-1"], ["epsilon = -1", "greater than 0"]),
        (["--epsilon", "nan"], ["epsilon = nan", "finite"]),
        (["--epsilon", "abc"], ["--epsilon"]),
        (["--delta", "1"], ["delta = 1", "less than 1"]),
        (["--users", "0"], ["users = 0", "at least 1"]),
        (["--users", "2.5"], ["--users"]),
        (["--honest", "0"], ["honest = 0"]),
        (["--rounds", "0"], ["rounds = 0"]),
        (["--norm", "-2"], ["norm = -2"]),
        (["--neighbours", "both"], ["neighbours = 'both'", "'replace-one', 'zero-out'"]),
        (["--calibration", "loose"], ["calibration = 'loose'", "'tight'"]),
        (["--max-inflation", "1"], ["--max-inflation = 1", "greater than 1"]),
        (["--max-bits", "1"], ["--max-bits = 1", "at least 2"]),
        (["--max-bits", "3", "--epsilon", "0.001"], ["--max-bits = 3", "at least"]),
        (["--calibration", "paper", "--epsilon", "16"], ["epsilon = 16", "at most 15", "tight"]),
        (["--frobnicate"], ["--frobnicate"]),
    ],
)
def test_bad_arguments_end_with_code_2_and_one_helpful_line(arguments, words):
    result = croupier(*PLAN, *arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    for word in words:
        assert word in result.stderr


def test_missing_argument_and_unknown_command_are_one_line_too():
    for arguments in (["plan", "--epsilon", "1"], ["plna"], ["audit", "--trials", "3"]):
        result = croupier(*arguments)
        assert result.returncode == 2
        assert len(result.stderr.strip().splitlines()) == 1


def test_help_and_version():
    assert "plan" in croupier().stdout
    assert croupier("--version").stdout.strip()
    for command in ("plan", "audit", "demo"):
        assert "--json" in croupier(command, "--help").stdout


def test_audit_reports_all_routes():
    report = as_json("audit", "--trials", "300")
    assert report["passed"]
    assert report["game"]["passed"]
    limit = report["plan"]["certified_delta"]
    exact, other = (report["computed_deltas"][f"{route}, one coordinate"] for route in ("exact", "dp_accounting"))
    assert 0 < other <= exact <= limit
    assert exact == pytest.approx(other, rel=1e-2)
    assert "holds" in croupier("audit", "--trials", "300").stdout


def test_audit_of_robust_zero_out_and_paper_plans():
    report = as_json("audit", "--trials", "100", "--honest", "0.5", "--neighbours", "zero-out", "--users", "30")
    assert report["passed"]
    assert report["plan"]["neighbours"] == "zero-out"
    assert as_json("audit", "--trials", "100", "--calibration", "paper", "--users", "10", "--epsilon", "15", "--dim", "1")["passed"]


def test_ctrl_c_stops_with_a_line():
    with mock.patch("croupier.cli.audit.empirical_audit", side_effect=KeyboardInterrupt):
        result = croupier("audit", "--trials", "100", "--dim", "1")
    assert result.returncode == 130
    assert result.stderr.strip() == "croupier: stopped"


def test_the_install_hint_of_a_missing_extra_is_printed_whole():
    with mock.patch.dict(sys.modules, {"dp_accounting.pld": None}), mock.patch.dict(os.environ, {"COLUMNS": "200"}):
        assert how_to_install("bench") in croupier("audit", "--trials", "100", "--dim", "1").stdout


def test_an_epsilon_too_small_for_the_paper_is_a_reason_not_a_crash():
    with mock.patch.dict(os.environ, {"COLUMNS": "200"}):
        result = croupier("plan", "--epsilon", "1e-300", "--delta", "1e-6", "--users", "10", "--dim", "1", "--compare")
    assert result.returncode == 0
    assert "not covered" in result.stdout


@pytest.mark.process
def test_a_role_without_its_extra_says_what_to_install(tmp_path):
    script = "import sys; sys.modules['uvicorn'] = None; from croupier.cli import main; main()"
    command = [sys.executable, "-c", script, "serve", "key", "--dir", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert how_to_install("service") in result.stderr


def test_audit_of_everything_is_one_table_with_claim_estimate_and_bound(monkeypatch):
    from croupier.audit._games import PROTOCOL  # noqa: PLC0415
    from croupier.cli import audit  # noqa: PLC0415

    real, some = audit.play_all, PROTOCOL[:4]  # all games take minutes
    monkeypatch.setattr(audit, "play_all", lambda **options: real(some, **options))
    plain = as_json("audit", "--all", "--trials", "100")
    assert plain["passed"]
    assert plain["private"]
    assert plain["false_alarm"] == 1e-6
    assert len(plain["rows"]) == len({row["kind"] for row in plain["rows"]}) == len(some)
    assert sum(row["false_alarm"] for row in plain["rows"]) == pytest.approx(1e-6)


def test_audit_of_everything_refutes_with_exit_code_1(monkeypatch):
    from croupier.audit.play import KINDS  # noqa: PLC0415
    from croupier.cli import audit  # noqa: PLC0415
    from croupier.protocol import _randomizer as randomizer  # noqa: PLC0415

    real, longest = audit.play_all, max((kind.name for kind in KINDS), key=len)
    some = [replace(KINDS[0], name=longest), KINDS[1]]
    monkeypatch.setattr(audit, "play_all", lambda **options: real(some, **options))
    with mock.patch.dict(os.environ, {"COLUMNS": "80"}):
        honest = croupier("audit", "--all", "--trials", "100")
        assert honest.returncode == 0
        assert "\u2026" not in honest.stdout  # no figure is cut off on a narrow terminal
        assert honest.stdout.count("holds") == 2
        assert "any is refuted is at most 1e-06" in " ".join(honest.stdout.split())
        drawn = randomizer.binomial
        monkeypatch.setattr(randomizer, "binomial", lambda random, trials, p, size: drawn(random, trials // 9, p, size))
        broken = croupier("audit", "--all", "--trials", "300")
    assert broken.returncode == 1
    assert broken.stdout.count("REFUTED") == 2


@pytest.mark.slow
@pytest.mark.process
def test_the_whole_audit_refutes_nothing_as_it_is_printed():
    """False alarms: 1e-6, by the command's own count."""
    from croupier.audit.play import KINDS  # noqa: PLC0415

    assert "    croupier audit --all " in (ROOT / "docs" / "audit.md").read_text()
    narrow = os.environ | {"COLUMNS": "80"}
    result = subprocess.run(
        [sys.executable, "-m", "croupier", "audit", "--all"], capture_output=True, text=True, check=False, env=narrow
    )
    assert result.returncode == 0, result.stdout
    assert result.stdout.count("holds") == len(KINDS)


@pytest.mark.parametrize("arguments", [["--all", "--users", "30"], ["--all", "--trials", "3"], ["--quick"]])
def test_audit_of_everything_refuses_what_it_would_pass_over(arguments):
    result = croupier("audit", *arguments)
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 1


def test_plan_proves_and_exports_a_certificate(tmp_path):
    small = ["plan", "--epsilon", "1", "--delta", "1e-6", "--users", "100", "--dim", "2"]
    file = tmp_path / "certificate.json"
    result = croupier(*small, "--prove", "-o", str(file))
    assert result.returncode == 0, result.stderr
    assert "Proved in ball arithmetic" in result.stdout
    assert "…" not in result.stdout  # a number cut short is a wrong number
    certificate = json.loads(file.read_text())
    assert certificate == as_json(*small, "--prove")
    assert float(certificate["bounds"]["delta"][1]) <= as_json(*small)["certified_delta"] <= 1e-6


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["-o", "certificate.json"], "Add --prove"),
        (["--prove", "--compare"], "--prove goes with neither --compare nor --lots"),
        (["--prove", "--lots", "5"], "--prove goes with neither --compare nor --lots"),
        (["--prove", "--calibration", "paper"], "do not rest on Theorem B"),
        (["--prove", "-o", "/nowhere/certificate.json"], "in a folder that exists"),
    ],
)
def test_what_cannot_be_proved_is_refused_in_one_line(extra, said):
    result = croupier(*PLAN, *extra)
    assert result.returncode == 2
    assert said in result.stderr


def test_prove_without_its_extra_says_which_one():
    with mock.patch.dict(sys.modules, {"flint": None}):
        for name in ("croupier.privacy._proof", "croupier.privacy._proof"):
            sys.modules.pop(name, None)
        result = croupier(*PLAN, "--prove")
    assert result.returncode == 2
    assert how_to_install("proof") in result.stderr


def test_a_question_ends_with_its_mark():
    result = croupier("fitt")
    assert result.returncode == 2
    assert "No such command 'fitt'. Did you mean 'fit'? See croupier --help" in result.stderr


@pytest.mark.parametrize("group", [("serve",), ("serve", "task"), ()])
def test_a_group_without_a_command_prints_its_help(group):
    done = croupier(*group)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) > 10


@pytest.mark.parametrize("group", [(), ("serve",), ("serve", "task")])
def test_help_has_room_for_every_line(group):
    assert "..." not in croupier(*group, "--help").stdout.partition("Commands:")[2]


def test_a_file_that_is_not_there_is_named_with_what_to_do(tmp_path):
    result = croupier("serve", "task", "add", "--task", str(tmp_path / "no.toml"), "--dir", str(tmp_path))
    assert result.returncode == 2
    assert result.stderr == f"croupier: {tmp_path / 'no.toml'}: No such file or directory. Check the path.\n"
