"""`croupier words`: texts that many people hold, from a file."""

from __future__ import annotations

import json

import pytest
from helpers_cli import croupier


@pytest.fixture(scope="module")
def towns(tmp_path_factory):
    path = tmp_path_factory.mktemp("words") / "towns.csv"
    rows = [f"Zürich,{person}" for person in range(2_000)] + [f"town {person},{person}" for person in range(3_000)]
    path.write_text("\n".join(["town,who", *rows, ""]), encoding="utf-8")
    return path


def test_words_of_a_file(towns, tmp_path):
    page = tmp_path / "page.html"
    done = croupier("words", str(towns), "--column", "town", "--epsilon", "1", "--html", str(page))
    assert done.returncode == 0, done.stderr
    assert "Zürich" in done.stdout
    assert "5,000 people, one private round; epsilon = 1" in done.stdout
    assert "Zürich" in page.read_text(encoding="utf-8")


def test_several_words_a_person_as_json(towns):
    options = ("--user-column", "who", "--per-person", "2", "--json")
    done = croupier("words", str(towns), "--column", "town", "--epsilon", "2", *options)
    found = json.loads(done.stdout)
    assert found["users"] == 3_000
    (word,) = found["words"]
    assert word["word"] == "Zürich"
    assert abs(word["count"] - 2_000) < 6 * word["std"]
    assert found["guarantee"]["mu"] > 0
    assert set(found["found_from"]) == {"4", "8", "16", "32"}


@pytest.mark.parametrize(
    ("options", "message"),
    [(("--column", "twon"), "did you mean 'town'"), (("--column", "town", "--cells", "1000"), "--cells = 1000")],
)
def test_bad_options_are_one_line(towns, options, message):
    done = croupier("words", str(towns), "--epsilon", "1", *options)
    assert done.returncode == 2
    assert message in done.stderr
