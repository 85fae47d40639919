"""Refusals: one wording, and they survive the way out of a worker process."""

from __future__ import annotations

import ast
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import croupier
import croupier as cr
from croupier.estimator import ShuffleRidge
from croupier.population import ArrayPopulation
from croupier.statistics import Histogram
from croupier.validation import ArgumentError, Found, how_to_install, one_of, real, whole

ROOT = Path(__file__).parent.parent


def test_an_argument_error_survives_pickling():
    error = ArgumentError("epsilon", -1, "greater than 0", "Choose another.")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert (again.name, again.value, again.allowed, again.remedy) == ("epsilon", -1, "greater than 0", "Choose another.")


def test_what_was_found_survives_pickling():
    error = ArgumentError("y", Found("contains NaN"), "finite", "Impute it.")
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == "y contains NaN; it must be finite. Impute it."


def test_long_values_are_shortened():
    assert len(str(ArgumentError("x", "a" * 10_000, "short", "Cut it."))) < 300
    assert "a int" in str(ArgumentError("x", 10**10_000, "small", "Less."))


@pytest.mark.parametrize("value", [True, "1", b"1", None, 10**400, float("nan"), float("inf"), 0.0, 1.0, -3])
def test_real_refuses(value):
    with pytest.raises(ArgumentError, match="greater than 0 and less than 1"):
        real("x", value, above=0, below=1, remedy="-")


def test_what_is_allowed_is_returned():
    assert real("x", 1, at_least=1, at_most=1, remedy="-") == 1.0
    assert whole("n", 3.0, at_least=1, remedy="-") == 3
    assert one_of("c", "a", ("a", "b"), "-") == "a"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: ArrayPopulation(np.zeros((3, 1)), [1.0, np.nan, 0.0]), "y contains NaN or infinity; it must be finite"),
        (
            lambda: ArrayPopulation(np.zeros((3, 1)), groups=[1] * 5),
            "groups has 5 entries, but X has 3 rows; it must be as long as X",
        ),
        (lambda: ShuffleRidge.from_json("{} {}"), "model is not a model file (invalid JSON at line 1, column 4); it must be"),
        (
            lambda: cr.ask(Histogram(0, 1), ArrayPopulation(np.zeros((3, 1))), groups=[1], epsilon=1.0),
            "groups is given; it must be left",
        ),
        (
            lambda: ShuffleRidge(target_range=(0, 1)).fit([[0.0], [1.0]], [0, 1], sample_weight=[1, 1]),
            "sample_weight is given; it must be left out",
        ),
    ],
)
def test_what_is_no_value_is_not_shown_as_one(call, text):
    """ "y = 'NaN or infinity' is not allowed" names a value that nobody gave."""
    with pytest.raises(ArgumentError) as refused:
        call()
    assert str(refused.value).startswith(text)


def test_no_error_shows_words_of_ours_as_a_value():
    """A literal text in the place of the value is either a predicate, `Found`, or a word that a caller may have given."""
    given = {"practical", "faithful", "whitened"}
    for path in sorted(Path(cr.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("ArgumentError", "RecordError"):
                value = node.args[1] if len(node.args) > 1 else None
                shown = isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and isinstance(value.value, str))
                assert not shown or getattr(value, "value", None) in given, f"{path}:{node.lineno}"


def test_in_a_checkout_an_extra_is_added_to_the_checkout():
    assert how_to_install("service") == f"pip install -e '{ROOT}[service]'"


@pytest.mark.parametrize(
    ("origin", "hint"),
    [
        ({"url": "{folder}/a.whl", "archive_info": {}}, "pip install 'croupier[service] @ {folder}/a.whl'"),
        ({"url": "{folder}", "dir_info": {}}, "pip install 'croupier[service] @ {folder}'"),
        ({"url": "{folder}/gone.whl", "archive_info": {}}, "pip install 'fastapi>=0.115'"),
        ({"url": "https://host/a.whl", "archive_info": {}}, "pip install 'croupier[service] @ https://host/a.whl'"),
        (
            {"url": "https://host/repository", "vcs_info": {"vcs": "git", "commit_id": "0a1b"}},
            "pip install 'croupier[service] @ git+https://host/repository@0a1b'",
        ),
        (None, "pip install 'fastapi>=0.115'"),  # from an index
    ],
)
def test_an_installed_copy_gets_an_extra_from_where_it_came(tmp_path, origin, hint):
    """The package lies in a folder as pip would have put it there, with the metadata of this version."""
    (tmp_path / "site/croupier").mkdir(parents=True)
    for name in ("__init__.py", "validation.py"):
        shutil.copy(Path(croupier.__file__).parent / name, tmp_path / "site/croupier")
    (tmp_path / "a.whl").touch()
    info = tmp_path / "site" / f"croupier-{croupier.__version__}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.4\nName: croupier\nVersion: {croupier.__version__}\n"
        "Requires-Dist: numpy>=2.0\nRequires-Dist: fastapi>=0.115; extra == 'service'\nRequires-Dist: ray>=2; extra == 'ray'\n"
    )
    if origin:
        (info / "direct_url.json").write_text(json.dumps(origin).replace("{folder}", tmp_path.as_uri()))
    printed = subprocess.run(
        [sys.executable, "-c", "from croupier.validation import how_to_install; print(how_to_install('service'))"],
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed.strip() == hint.replace("{folder}", tmp_path.as_uri())


def test_every_extra_that_a_message_names_exists():
    extras = set(metadata.metadata("croupier").get_all("Provides-Extra"))
    asked = [re.findall(r"how_to_install\(['\"](\w+)", path.read_text()) for path in (ROOT / "src").rglob("*.py")]
    named = {extra for found in asked for extra in found}
    assert {"bench", "demo", "fast", "proof", "ray", "service"} <= named <= extras


def test_nothing_says_to_install_a_package_that_is_not_ours():
    """A package named croupier on PyPI is not this one: README says so, and no page, message or program says otherwise."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    programs = [path for name in ("src", "benchmarks", "examples", "tests", "tools") for path in (ROOT / name).rglob("*.py")]
    other = [ROOT / "Makefile", ROOT / "examples/deploy/Containerfile", *(ROOT / ".github").rglob("*.yml")]
    advice = re.compile(r"pip3? install (?:-\S+ )*['\"]?croupier\b(?! *\[\w+\] @)")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()[:80]}"
        for path in {*pages, *programs, *other} - {Path(__file__)}
        for line in path.read_text().splitlines()
        if advice.search(line)
    ]
    assert found == ["README.md: Croupier is not on PyPI yet. Until a release is announced here, do not `pip inst"]
