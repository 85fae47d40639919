"""Files described in one private round: what is public, what becomes of odd values, and a fit that leaves out who was asked."""

from __future__ import annotations

import numpy as np
import pytest
from pyarrow import csv as arrow_csv
from pyarrow import parquet

import croupier as cr
from croupier.report._tables import described_lines
from croupier.statistics._columns import NumberGuess
from croupier.table import Schema, describe_table, fit_table, schema_from
from croupier.table._encode import Encoder
from croupier.table._population import Engine, _blocks
from croupier.table._read import Source
from croupier.table.describe import TableGuess, guess_for
from croupier.table.model import Request
from croupier.validation import ArgumentError

GUESS = """
[target]
column = "ill"
classes = ["no", "yes"]

[columns.age]
low = 0
high = 1000
whole = true

[columns.pay]
low = 0
high = 1e7
"""


def written(folder, name="people.csv", count=3_000, seed=0, change=None):
    rng = np.random.default_rng(seed)
    age, pay = rng.integers(18, 91, count), rng.lognormal(10, 0.5, count)
    ill = np.where(age + rng.normal(scale=10, size=count) > 55, "yes", "no")
    rows = [f"{a},{p:.2f},{i},p{n // 2}" for n, (a, p, i) in enumerate(zip(age, pay, ill, strict=True))]
    for place, row in (change or {}).items():
        rows[place] = row
    path = folder / name
    path.write_text("\n".join(["age,pay,ill,name", *rows, ""]))
    return path


@pytest.mark.parametrize(("epsilon", "hidden"), [(1.0, False), (0.2, True)])
def test_the_quantiles_beside_a_range_lie_in_it(tmp_path, epsilon, hidden):
    """Where noise hides the tails, the 95 % quantile beside a range contradicted it."""
    guess = TableGuess.from_toml(GUESS)
    for seed in range(5):
        schema, notes = schema_from(describe_table(written(tmp_path), guess, epsilon=epsilon, seed=seed), guess)
        for name, column in schema.columns.items():
            figures, noisy, _ = notes[name].partition("; noise hides those further out")
            assert bool(noisy) == hidden
            first, _, last = (float(part.split()[2]) for part in figures.split(", "))
            assert column.low <= first <= last <= column.high


def test_a_described_schema_has_ranges_that_fit_the_data(tmp_path):
    guess = TableGuess.from_toml(GUESS)
    schema, notes = schema_from(describe_table(written(tmp_path), guess, epsilon=1.0, seed=0), guess)
    age, pay = schema.columns["age"], schema.columns["pay"]
    assert 0 <= age.low <= 20
    assert 85 <= age.high <= 120
    assert set(notes) == {"age", "pay", "ill"}
    assert pay.low <= 12_000
    assert 50_000 <= pay.high <= 250_000
    assert Schema.from_toml(schema.to_toml(notes)) == schema
    assert schema.described.epsilon == 1.0
    assert schema.described.aside is None
    schema, _ = schema_from(describe_table(tmp_path / "people.csv", guess, epsilon=1.0), guess)
    model = fit_table(tmp_path / "people.csv", schema, epsilon=1.0)
    assert model.estimator.n_users_ == 3_000
    assert "2e-06 in total" in schema.described.lines((1.0, 1e-6))[0]


def test_csv_and_parquet_give_the_same_description(tmp_path):
    path = written(tmp_path)
    parquet.write_table(arrow_csv.read_csv(path), tmp_path / "people.parquet")
    guess = TableGuess.from_toml(GUESS)
    first, second = (describe_table(tmp_path / f"people.{kind}", guess, epsilon=1.0, seed=1) for kind in ("csv", "parquet"))
    assert first.to_dict() == second.to_dict()


def test_odd_values_are_counted_and_never_refused(tmp_path):
    odd = {n: ",,maybe,x" if n % 2 else "old,1e400,no,x" for n in range(1_000)}
    description = describe_table(written(tmp_path, change=odd), TableGuess.from_toml(GUESS), epsilon=8.0)
    assert abs(description.columns["age"].missing.value - 1 / 3) < 0.02
    assert abs(description.columns["pay"].above.value - 1 / 6 / (1 - 1 / 6)) < 0.05
    assert abs(description.columns["ill"].other.value - 1 / 6) < 0.02
    assert "missing or not a number" in description.hints["age"]
    assert "none of the levels" in description.hints["ill"]


def test_a_header_alone_makes_guesses(tmp_path):
    source = Source(written(tmp_path))
    guess = guess_for(source, target="ill", user="name", levels={"ill": "no,yes"}, whole=["age"], ranges={"pay": "0..1e7"})
    assert list(guess.columns) == ["age", "pay", "ill"]
    assert guess.columns["age"].whole
    assert guess.user == "name"
    assert guess.columns["pay"].high == 1e7
    assert guess.classes == ("no", "yes")
    plain = guess_for(source, leave_out=["name", "ill"])
    assert list(plain.columns) == ["age", "pay"]
    assert plain.columns["pay"].low == -1e9
    parquet.write_table(arrow_csv.read_csv(source.path), tmp_path / "people.parquet")
    typed = guess_for(Source(tmp_path / "people.parquet"))
    assert list(typed.columns) == ["age", "pay"]
    assert typed.columns["age"].whole
    assert len(typed.left_out) == 2


def test_who_was_set_aside_has_no_part_in_the_fit_nor_the_others_in_the_description(tmp_path, monkeypatch):
    """With all randomness fixed: another record of one kind of people leaves the other release the same, bit for bit."""
    monkeypatch.setattr("croupier.statistics._holdout.secrets.token_hex", lambda size: "5" * (2 * size))
    guess = TableGuess.from_toml(GUESS)
    path = written(tmp_path)
    description = describe_table(path, guess, epsilon=1.0, share=0.2, seed=1)
    schema, _ = schema_from(description, guess)
    model = fit_table(path, schema, epsilon=1.0, random_state=1)
    chosen = schema.described.aside.places(0, 3_000)
    assert description.users == chosen.sum()
    assert description.of == 3_000
    assert model.estimator.n_users_ == 3_000 - chosen.sum()
    theirs, ours = int(np.flatnonzero(chosen)[7]), int(np.flatnonzero(~chosen)[7])
    other = written(tmp_path, "other.csv", change={theirs: "1,1,yes,q"})
    again = fit_table(other, schema, epsilon=1.0, random_state=1)
    assert np.array_equal(again.estimator.coef_, model.estimator.coef_)
    assert describe_table(other, guess, epsilon=1.0, share=0.2, seed=1).to_dict() != description.to_dict()
    other = written(tmp_path, "other.csv", change={ours: "1,1,yes,q"})
    assert describe_table(other, guess, epsilon=1.0, share=0.2, seed=1).to_dict() == description.to_dict()
    assert not np.array_equal(fit_table(other, schema, epsilon=1.0, random_state=1).estimator.coef_, model.estimator.coef_)


def test_blocks_of_either_engine_leave_out_the_same_people(tmp_path):
    guess = TableGuess.from_toml(GUESS)
    folder = tmp_path / "parts"
    folder.mkdir()
    for number in range(3):
        table = arrow_csv.read_csv(written(tmp_path, count=1_000, seed=number))
        parquet.write_table(table, folder / f"{number}.parquet", row_group_size=300)
    source = Source(folder)
    schema, _ = schema_from(describe_table(source, guess, epsilon=1.0, share=0.3), guess)
    encoder = Encoder(schema)
    maker = Request("classify", {}, None).estimator(schema, users=2_000)
    blocks = _blocks(source, encoder, maker)
    read = [block.read() for block in blocks]
    assert [block.users for block in blocks] == [len(rows) for rows, _ in read]
    with Engine().people(source, encoder, maker) as people:
        assert people.users == sum(block.users for block in blocks) == int((~schema.described.aside.places(0, 3_000)).sum())
        assert np.array_equal(people.X, np.concatenate([rows for rows, _ in read]))


def test_names_are_set_aside_with_all_their_rows(tmp_path):
    guess = TableGuess.from_toml(f'user = "name"\n{GUESS}')
    path = written(tmp_path, change={5: "30,100,no,"})
    description = describe_table(path, guess, epsilon=1.0, share=0.3)
    schema, _ = schema_from(description, guess)
    assert schema.described.rows is None
    assert schema.user == "name"
    path = written(tmp_path)
    assert fit_table(path, schema, epsilon=1.0).estimator.n_users_ == 1_500 - description.users
    with pytest.raises(ArgumentError, match="set aside"):
        schema.with_user("age2")
    text = schema.to_toml().replace('user = "name"\n', "")
    with pytest.raises(ArgumentError, match="set aside"):
        Schema.from_toml(text)


def test_another_file_than_the_described_one_is_refused(tmp_path):
    guess = TableGuess.from_toml(GUESS)
    schema, _ = schema_from(describe_table(written(tmp_path), guess, epsilon=1.0, share=0.2), guess)
    shorter = written(tmp_path, "shorter.csv", count=2_999)
    with pytest.raises(ArgumentError, match="nobody was asked") as caught:
        fit_table(shorter, schema, epsilon=1.0)
    assert caught.value.name == "DATA"
    with pytest.raises(ArgumentError, match="user_column"):
        fit_table(written(tmp_path), schema.with_user("name"), epsilon=1.0)


def test_a_seeded_description_is_not_covered(tmp_path):
    guess = TableGuess.from_toml(GUESS)
    schema, _ = schema_from(describe_table(written(tmp_path), guess, epsilon=1.0, seed=3), guess)
    assert Schema.from_toml(schema.to_toml()).described.private is False
    model = fit_table(tmp_path / "people.csv", schema, epsilon=1.0)
    assert model.estimator.read_off_data_


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[columns.age]\nlow = 5\nhigh = 1\n", "high"),
        ("[columns.age]\nhight = 1\n", "did you mean 'high'"),
        ("[columns]\n", "at least one column"),
        ('user = "age"\n[columns.age]\n', "not described"),
        ('[target]\ncolumn = "age"\n[columns.age]\n', "listed twice"),
        ("[columns.age]\nlevels = 3\n", "list of levels"),
        ("no toml", "TOML"),
        ("[columns.other]\n", "missing from"),
    ],
)
def test_bad_guesses_are_refused_in_a_line(tmp_path, text, message):
    with pytest.raises(ArgumentError) as caught:
        describe_table(written(tmp_path, count=50), TableGuess.from_toml(text), epsilon=1.0)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_numbers_at_the_ends_of_a_guess_are_within_it(tmp_path):
    """0.1 in single precision lies above 0.1, and 0.7 below 0.7."""
    path = tmp_path / "ends.csv"
    path.write_text("x,y\n" + "0.1,0.7\n" * 2_000)
    guess = TableGuess.from_toml("[columns.x]\nlow = 0\nhigh = 0.1\n[columns.y]\nlow = 0.7\nhigh = 2\n")
    looks = describe_table(path, guess, epsilon=4.0, seed=0)
    assert looks.columns["x"].above.value < 0.1
    assert looks.columns["y"].below.value < 0.1


def test_no_sum_is_promised_beside_a_fit_that_is_not_private(tmp_path):
    path, guess = written(tmp_path), TableGuess.from_toml(GUESS)
    for share, words in (
        (None, "people who are also in the fit, which is NOT private, are promised nothing"),
        (0.3, "nothing is promised to the others"),
    ):
        schema, _ = schema_from(describe_table(path, guess, epsilon=1.0, share=share), guess)
        seeded = fit_table(path, schema, epsilon=1.0, random_state=0)
        (line,) = described_lines(seeded.schema, seeded.estimator)
        assert words in line
        assert "in total" not in line
    (line,) = described_lines(schema, fit_table(path, schema, epsilon=1.0).estimator)
    assert "only what this fit promises" in line


def test_a_description_for_other_neighbours_makes_no_schema():
    """Its epsilon would be added to that of a fit, which is for replace-one neighbours."""
    guess = TableGuess({"age": NumberGuess(0, 1000), "pay": NumberGuess(0, 1e7)}, target="pay")
    looks = cr.describe(np.ones((3_000, 2)), guess.columns, epsilon=1.0, delta=1e-6, neighbours="zero-out")
    with pytest.raises(ArgumentError, match="replace-one"):
        schema_from(looks, guess)
