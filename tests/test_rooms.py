"""The rooms of the house: which may import which, at the top of a module or inside a function, and one name for one class."""

from __future__ import annotations

import ast
import importlib
from collections import defaultdict
from pathlib import Path

import pytest

import croupier

PACKAGE = Path(croupier.__file__).parent
# Leaves: every room may import them. They import nothing of ours.
LEAVES = {
    "validation": set(),
    "arithmetic": set(),
    "files": set(),
}
# From the bottom to the top: a room may import those of earlier lines, and nothing else. Rooms of one line do not know each other.
STOREYS = [
    {"privacy", "problem"},
    {"protocol"},
    {"population", "features"},
    {"optimizer", "statistics"},
    {"estimator"},
    {"table"},
    {"service", "report"},
    {"audit", "flower"},
    {"cli"},
]
# `problem` stands beside the stair from `population` down: what is asked of users is not known to whoever asks.
UNKNOWN = {"protocol": {"problem"}, "population": {"problem"}}
# Fronts: they give names of rooms to users, and hold no code of their own.
FRONTS = {"client": {"service"}, "masked": {"service"}, "__main__": {"cli"}}
# Who may import a module by its name in a text: the package's front imports rooms when they are first used, the command's front all
# commands once it is known that one is wanted, and a round and verified reports their compiled passes, of the same room, where
# numba is installed.
BY_TEXT = {"__init__.py", "cli/__init__.py", "protocol/_fused.py", "service/prio3/prio3.py"}


def allowed() -> dict[str, set[str]]:
    below, table = set(LEAVES), {**LEAVES, **FRONTS}
    for storey in STOREYS:
        table |= {room: below - UNKNOWN.get(room, set()) for room in storey}
        below = below | storey
    return table


def modules():
    return [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path, tree: ast.AST):
    """The rooms and leaves that a module imports, each with its line; from the top of the package only its version."""
    parents = ["croupier", *path.relative_to(PACKAGE).with_suffix("").parts]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = parents[: len(parents) - node.level] if node.level else []
            start = [*start, *(node.module.split(".") if node.module else [])]
            targets = [[*start, alias.name] for alias in node.names]
        else:
            continue
        for target in targets:
            if target[0] == "croupier" and target != ["croupier", "__version__"]:
                yield node.lineno, (target[1] if len(target) > 1 else "croupier")


@pytest.mark.parametrize("room", sorted({room_of(path) for path in modules()}))
def test_arrows_between_rooms_point_one_way(room):
    table = allowed()
    assert room in table, f"{room} is a new room: say in this table where it stands"
    wrong = []
    for path in [path for path in modules() if room_of(path) == room]:
        tree, name = ast.parse(path.read_text()), str(path.relative_to(PACKAGE))
        wrong += [f"{name}:{line} imports {to}" for line, to in imported(path, tree) if to not in table[room] | {room}]
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        names = {getattr(call, "id", getattr(call, "attr", "")) for call in calls}
        if name not in BY_TEXT and not names.isdisjoint({"import_module", "__import__"}):
            wrong.append(f"{name} has an import that this test cannot see")
    assert not wrong, f"{room} may import {sorted(table[room])} only"


def test_the_arrows_would_notice_a_wrong_import():
    cases = {
        "from ..report import html_report": "report",
        "from .. import estimator": "estimator",
        "import croupier.cli.app": "cli",
        "def f():\n    from croupier.service.wire.task import Task": "service",
        "from ..cli.fit import promise": "cli",
    }
    for text, room in cases.items():
        found = [target for _, target in imported(PACKAGE / "privacy" / "plan.py", ast.parse(text))]
        assert found == [room]
        assert room not in allowed()["privacy"]
    assert list(imported(PACKAGE / "service" / "prio3" / "prio3.py", ast.parse("from ...validation import x"))) == [
        (1, "validation")
    ]
    assert list(imported(PACKAGE / "report" / "html.py", ast.parse("from .. import __version__"))) == []


def test_only_the_command_line_imports_the_audit():
    assert [room for room, others in allowed().items() if "audit" in others] == ["cli"]


def test_no_two_classes_have_one_name():
    """Whoever reads a name in a traceback knows which class it is."""
    homes = defaultdict(list)
    for path in [*modules(), PACKAGE / "__init__.py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert len(homes) > 100
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


# Commands and deployed roles: docs/protocol.md and the pages of the commands specify them, and they export nothing.
UNEXPORTED = {"cli", "service"}


@pytest.mark.parametrize("room", sorted({path.parent.name for path in PACKAGE.glob("*/__init__.py")} - UNEXPORTED))
def test_a_module_exports_something_or_begins_with_an_underscore(room):
    """So that "public" needs no list."""
    front = importlib.import_module(f"croupier.{room}")
    values = [getattr(front, name) for name in front.__all__]
    homes = {getattr(value, "__module__", value.__name__).rpartition(".")[2] for value in values}
    tree = ast.parse((PACKAGE / room / "__init__.py").read_text())  # a name without a module, and a module that gathers names
    homes |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module}
    plain = {path.stem for path in (PACKAGE / room).glob("*.py") if not path.stem.startswith("_")}
    assert plain - homes == set(), "modules that export nothing: begin their names with _"
    assert {home for home in homes if home.startswith("_")} == set(), "modules that export something: no _"
