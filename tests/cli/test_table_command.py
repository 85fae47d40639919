"""`croupier table`: counts of combinations of columns, and a number within groups, from a file."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers_cli import croupier


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "people.csv"
    rows = [f"{['north', 'south', ''][n % 3]},{20 if n % 3 else 70},{n // 2}" for n in range(6_000)]
    path.write_text("\n".join(["region,age,who", *rows, ""]), encoding="utf-8")
    return path


STATED = ("--levels", "region=north,south", "--edges", "age=0,18,65,120")


def test_a_table_of_a_file(people, tmp_path):
    page = tmp_path / "page.html"
    done = croupier("table", str(people), "--columns", "region", "age", *STATED, "--epsilon", "1", "--html", str(page))
    assert done.returncode == 0, done.stderr
    assert "18 .. 65" in done.stdout
    assert "6,000 people, one private round; epsilon = 1" in done.stdout
    assert "south" in page.read_text(encoding="utf-8")


def test_counts_are_those_of_the_file_and_people_with_several_rows_count_once(people):
    done = croupier("table", str(people), "--columns", "region", "--columns", "age", *STATED, "--epsilon", "4", "--json")
    found = json.loads(done.stdout)
    truth = np.zeros((3, 4))
    truth[0, 2], truth[1, 1], truth[2, 1] = 2_000, 2_000, 2_000  # north at 70, south and nobody's at 20
    assert np.abs(np.array(found["counts"]) - truth).max() < 6 * found["std"]
    options = ("--user-column", "who", "--epsilon", "4", "--json")
    mine = json.loads(croupier("table", str(people), "--columns", "region", "age", *STATED, *options).stdout)
    assert mine["users"] == 3_000
    assert sum(map(sum, mine["counts"])) == pytest.approx(3_000)


def test_a_number_within_groups(people):
    options = ("--by", "region", "--levels", "region=north,south", "--range", "age=0..120", "--epsilon", "4", "--json")
    found = json.loads(croupier("table", str(people), "--columns", "age", *options).stdout)
    means = {group["group"][0]: group["mean"]["value"] for group in found["groups"]}
    assert means["north"] == pytest.approx(70, abs=3)
    assert means["south"] == pytest.approx(20, abs=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--columns", "region", "--epsilon", "1"), "--columns = 'region'"),
        (("--columns", "region", "--levels", "region=a", "--epsilon", "1", "extra"), "'extra'"),
        (("--columns", "age", "--range", "age=0..x", "--epsilon", "1"), "--range age"),
        (("--columns", "age", "--edges", "age=0,9", "--epsilon", "1"), "--edges age"),
        (("--columns", "age", "--range", "age=9..0", "--epsilon", "1"), "ascend"),
        (("--columns", "town", "--levels", "town=a", "--epsilon", "1"), "town"),
        (("--columns", "age", "--range", "age=0..9", "--epsilon", "1", "--marginals", "1"), "--marginals"),
    ],
)
def test_bad_options_are_one_line(people, options, message):
    done = croupier("table", str(people), *options)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") <= 3
