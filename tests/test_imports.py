"""What is imported, and when: heavy packages only by what needs them, and every public name from the top."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import croupier as cr

PACKAGE = Path(cr.__file__).parent
HEAVY = (
    "numpy",
    "scipy",
    "sklearn",
    "pyarrow",
    "cryptography",
    "typer",
    "rich",
    "fastapi",
    "sqlalchemy",
    "matplotlib",
    "ray",
    "numba",
)
VERSION = """
import sys
from croupier.cli import main
sys.argv = ["croupier", "--version"]
try:
    main()
except SystemExit as stop:
    assert stop.code in (0, None)
"""

# A Python that has the core packages and no extra, as `make demo` leaves it.
PLAIN = """
import sys
from importlib.abc import MetaPathFinder
class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {extras!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
from croupier.cli import main
sys.argv = ["croupier", *{arguments!r}]
main()
"""
EXTRAS = (
    *("fastapi", "starlette", "uvicorn", "httptools", "uvloop", "sqlalchemy", "prometheus_client", "jwt", "segno"),
    *("ray", "psycopg", "flwr", "numba", "flint", "dp_accounting", "matplotlib"),
)


@pytest.mark.process
@pytest.mark.parametrize(
    "arguments",
    [("serve", "--help"), ("demo", "--synthetic", "--users", "3000"), ("serve", "key", "--dir", "role")],
    ids=" ".join,
)
def test_commands_need_no_extra_before_they_use_it(arguments, tmp_path):
    script = PLAIN.format(extras=EXTRAS, arguments=arguments)
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    if arguments[:2] == ("serve", "key"):
        assert found.returncode == 2
        assert "comes with the extra `service`" in found.stderr
    else:
        assert found.returncode == 0, found.stderr


def loaded_by(code):
    """What a fresh Python has imported after this code, and what it printed."""
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    *said, modules = found.stdout.splitlines()
    return set(modules.split()), said


@pytest.mark.process
@pytest.mark.parametrize("code", ["import croupier", VERSION], ids=["import croupier", "croupier --version"])
def test_nothing_heavy_is_imported_before_it_is_needed(code):
    modules, said = loaded_by(code)
    assert modules.isdisjoint(HEAVY)
    assert "croupier" in modules
    assert said == ([] if code == "import croupier" else [cr.__version__])


@pytest.mark.process
def test_a_room_is_found_from_the_top_without_an_import_of_its_own():
    modules, said = loaded_by("import croupier as cr; print(cr.estimator.ShuffleRidge.__name__, cr.losses.Logistic.__name__)")
    assert said == ["ShuffleRidge Logistic"]
    assert "croupier.estimator" in modules


@pytest.mark.process
def test_a_private_sum_imports_no_estimator_and_no_table():
    modules, _ = loaded_by("import croupier as cr; cr.plan_sum, cr.VectorSum")
    assert {"sklearn", "pyarrow", "croupier.estimator", "croupier.table", "croupier.cli"}.isdisjoint(modules)
    assert "scipy.stats" not in modules  # a third of the time that all of it takes


def test_every_public_name_is_there_and_type_checkers_see_the_same():
    homes = {}
    (block,) = [node for node in ast.parse((PACKAGE / "__init__.py").read_text()).body if isinstance(node, ast.If)]
    for node in block.body:
        for alias in node.names:
            homes.setdefault(node.module or alias.name, set()).update([alias.name] if node.module else [])
    assert homes == {room: set(names) for room, names in cr._ROOMS.items()}
    assert set(cr.__all__) == set(cr._HOMES)
    for name in cr.__all__:
        assert getattr(cr, name) is getattr(getattr(cr, cr._HOMES[name]), name)
    assert {*cr.__all__, *cr._ROOMS} <= set(dir(cr))
    with pytest.raises(AttributeError, match="no attribute 'kink'"):
        cr.kink  # noqa: B018


def test_the_package_draws_without_matplotlib():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.partition(".")[0] == "matplotlib"], path
