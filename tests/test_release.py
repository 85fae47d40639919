"""What a release must have: one version, no placeholder, actions pinned by hash, a wheel that works alone."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
FILES = (
    "CHANGELOG.md",
    "CITATION.cff",
    "README.md",
    "pyproject.toml",
    "clients/typescript/package.json",
    "src/croupier/__init__.py",
    "tools/conda/recipe.yaml",
)


@pytest.fixture(scope="module")
def release():
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools" / "release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path):
    """The files that a release looks at, in a folder of their own."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def edit(path: Path, pattern: str, replacement: str) -> None:
    text = path.read_text(encoding="utf-8")
    changed = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    assert changed != text
    path.write_text(changed, encoding="utf-8")


def test_coverage_is_measured_and_shown_by_the_workflow_as_the_readme_says():
    steps = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]["coverage"]["steps"]
    measure, show = [step["run"] for step in steps if "run" in step]
    assert measure.startswith("make coverage ")
    assert "coverage report" in show
    assert show.endswith('>> "$GITHUB_STEP_SUMMARY"')
    assert "--cov" in re.search(r"^coverage:.*\n\t(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert "`make coverage` measures" in (ROOT / "README.md").read_text()


def test_a_release_refuses_placeholders_and_a_dry_run_lists_them(release, tree, capsys):
    version = release.versions(tree)["src/croupier/__init__.py"]
    assert release.check(tree, f"v{version}", dry_run=False) == 1
    listed = capsys.readouterr().out
    assert "urls.Homepage" in listed
    assert all(f"package.json, {name}: " in listed for name in ("homepage", "repository", "bugs"))
    assert release.check(tree, None, dry_run=True) == 0
    assert "to do: pyproject.toml, maintainers" in capsys.readouterr().out


def test_a_finished_tree_is_released_under_its_own_tag_alone(release, tree):
    version = release.versions(tree)["src/croupier/__init__.py"]
    for name in ("pyproject.toml", "clients/typescript/package.json"):
        edit(tree / name, r"example\.org", "croupier.test")
    edit(tree / "CHANGELOG.md", rf"^## {re.escape(version)}.*$", f"## {version} (2027-01-31)")
    assert release.check(tree, f"v{version}", dry_run=False) == 0
    assert release.check(tree, "v9.9.9", dry_run=False) == 1


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("CITATION.cff", "^version: .*$"),
        ("clients/typescript/package.json", '^  "version": .*$'),
        ("tools/conda/recipe.yaml", "^  version: .*$"),
    ],
)
def test_a_version_that_differs_is_wrong_in_a_dry_run_too(release, tree, name, pattern):
    stated = {"CITATION.cff": "version: 9.9", "clients/typescript/package.json": '  "version": "9.9",'}
    edit(tree / name, pattern, stated.get(name, '  version: "9.9"'))
    assert release.check(tree, None, dry_run=True) == 1
    assert name in " ".join(release.faults(tree, None)[0])


def test_every_action_is_pinned_by_a_hash_and_says_its_version():
    lines = [line for path in (ROOT / ".github/workflows").glob("*.yml") for line in path.read_text().splitlines()]
    uses = [line.strip() for line in lines if "uses:" in line]
    assert len(uses) > 10
    for line in uses:
        assert re.fullmatch(r"(- )?uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_workflows_are_yaml_with_least_rights_and_a_time_limit():
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert workflow["permissions"] == {"contents": "read"}, path.name
        for job in workflow["jobs"].values():
            assert "timeout-minutes" in job or job.get("environment") == "release", path.name


def test_the_conda_recipe_needs_what_the_package_needs(release):
    recipe = yaml.safe_load((ROOT / "tools/conda/recipe.yaml").read_text(encoding="utf-8"))
    project = release.tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {line.replace(" ", "") for line in recipe["requirements"]["run"]} - {f"python{project['requires-python']}"}
    assert wanted == set(project["dependencies"])


@pytest.mark.process
def test_the_wheel_installed_alone_runs_the_first_example(tmp_path):
    command = [sys.executable, str(ROOT / "tools" / "release.py"), "try", "--dist", str(tmp_path / "dist")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^accuracy 0\.8", done.stdout, re.MULTILINE)
    assert "differentially private for replace-one neighbours" in done.stdout
    assert {path.suffix for path in (tmp_path / "dist").iterdir()} >= {".whl", ".gz"}
