"""Check and try a release before anything is published.

    python tools/release.py check --tag v0.2.0    # versions agree, the changelog is dated, no placeholder is left
    python tools/release.py check --dry-run       # the same, placeholders and the missing date only listed
    python tools/release.py try --dist dist       # build, check metadata, install the wheel alone, run README's first example

Needs Python 3.11 and a package registry, nothing else: `try` makes its own environments.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACEHOLDER = re.compile(r"example\.(org|com)|PLACEHOLDER")
METADATA = """
import sys, zipfile
from packaging.metadata import Metadata
for path in sys.argv[1:]:
    with zipfile.ZipFile(path) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        found = Metadata.from_email(wheel.read(name), validate=True)
    assert found.description and found.description_content_type == "text/markdown", "the wheel has no description"
    print(found.name, found.version)
"""


def versions(root: Path) -> dict[str, str]:
    """The version that each file states; all must be the same."""
    stated = re.search(r'^__version__ = "(.+)"', (root / "src/croupier/__init__.py").read_text(encoding="utf-8"), re.MULTILINE)
    cited = re.search(r"^version: (.+)$", (root / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    recipe = re.search(r'^  version: "(.+)"$', (root / "tools/conda/recipe.yaml").read_text(encoding="utf-8"), re.MULTILINE)
    package = json.loads((root / "clients/typescript/package.json").read_text(encoding="utf-8"))
    return {
        "src/croupier/__init__.py": stated[1] if stated else "none",
        "CITATION.cff": cited[1] if cited else "none",
        "tools/conda/recipe.yaml": recipe[1] if recipe else "none",
        "clients/typescript/package.json": package["version"],
    }


def faults(root: Path, tag: str | None) -> tuple[list[str], list[str]]:
    """What is wrong in any case, and what only a release must not have."""
    found = versions(root)
    version = found["src/croupier/__init__.py"]
    wrong = [f"{name} says {stated}, the package {version}" for name, stated in found.items() if stated != version]
    if tag is not None and tag != f"v{version}":
        wrong.append(f"the tag is {tag}, the package v{version}")
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = re.search(rf"^## {re.escape(version)} *\(?([^)\n]*)\)?", changes, re.MULTILINE)
    if heading is None:
        wrong.append(f"CHANGELOG.md has no section {version}")
    dated = heading is None or re.search(r"\d{4}-\d\d-\d\d", heading[1])
    not_yet = [] if dated else [f"CHANGELOG.md: section {version} has no date"]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    not_yet += [f"pyproject.toml, urls.{name}: {url}" for name, url in project["urls"].items() if PLACEHOLDER.search(url)]
    not_yet += [f"pyproject.toml, maintainers: {person}" for person in project["maintainers"] if PLACEHOLDER.search(str(person))]
    package = json.loads((root / "clients/typescript/package.json").read_text(encoding="utf-8"))
    for name in ("homepage", "repository", "bugs"):
        if PLACEHOLDER.search(str(package.get(name, "PLACEHOLDER"))):
            not_yet.append(f"clients/typescript/package.json, {name}: {package.get(name, 'missing')}")
    return wrong, not_yet


def check(root: Path, tag: str | None, dry_run: bool) -> int:
    """Print what stands between this tree and a release; 0 if nothing does."""
    wrong, not_yet = faults(root, tag)
    for line in wrong:
        print(f"wrong: {line}")
    for line in not_yet:
        print(f"{'to do' if dry_run else 'wrong'}: {line}")
    if wrong or (not_yet and not dry_run):
        print("Not released: nothing was built or published.")
        return 1
    print(f"version {versions(root)['src/croupier/__init__.py']}: ready" + (", except for what is listed" if not_yet else ""))
    return 0


def first_example(root: Path) -> str:
    """README's first block of Python."""
    found = re.search(r"```python\n(.*?)```", (root / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    if found is None:
        raise SystemExit("README.md has no example")
    return found[1]


def environment(folder: Path, *packages: str) -> Path:
    """Make a fresh environment with these packages; its interpreter."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    if packages:
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return python


def run(*command: object, cwd: Path | None = None) -> str:
    """Run a command outside this tree; its output, or an exit with what it said."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command[:4]))} ...: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def try_out(root: Path, dist: Path) -> int:
    """Build, check the metadata, install the wheel alone in a fresh environment and run README's first example there."""
    dist.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        builder = environment(scratch / "builder", "hatchling>=1.27", "packaging>=24")
        run(builder, "-m", "hatchling", "build", "-d", dist.resolve(), cwd=root)
        (wheel,) = dist.glob(f"croupier-{versions(root)['src/croupier/__init__.py']}-*.whl")
        print("built", run(builder, "-c", METADATA, wheel).strip(), "as", ", ".join(sorted(path.name for path in dist.iterdir())))
        user = environment(scratch / "user", str(wheel.resolve()))
        (scratch / "first.py").write_text(first_example(root), encoding="utf-8")
        print(run(user, scratch / "first.py", cwd=scratch).strip())
        print(run(user, "-m", "croupier", "--version", cwd=scratch).strip())
    return 0


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    checking = commands.add_parser("check")
    which = checking.add_mutually_exclusive_group(required=True)
    which.add_argument("--tag")
    which.add_argument("--dry-run", action="store_true")
    commands.add_parser("try").add_argument("--dist", type=Path, required=True)
    given = parser.parse_args()
    return check(ROOT, given.tag, given.dry_run) if given.command == "check" else try_out(ROOT, given.dist)


if __name__ == "__main__":
    sys.exit(main())
