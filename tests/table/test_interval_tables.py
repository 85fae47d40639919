"""Regressions with intervals on files: rows as they are, references of categories, coefficients in the units of the schema."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy.special import expit, ndtr
from typer.testing import CliRunner

from croupier.cli.app import app
from croupier.cli.terminal import Stopped
from croupier.estimator import ShuffleLinearRegression, ShuffleLogit
from croupier.estimator.intervals import RegressionTable
from croupier.population import ArrayPopulation
from croupier.population._blocks import BlockPopulation
from croupier.population.population import UnreachableError
from croupier.report import html_report
from croupier.table import Schema, TableModel, fit_table
from croupier.table._encode import Encoder
from croupier.table._population import Engine, _blocks
from croupier.table._read import Source
from croupier.table.apply import read_table
from croupier.table.model import in_schema_units, interval_schema
from croupier.validation import ArgumentError

# A test of an estimate against the truth at so many standard errors has a false alarm in 2e-9 of its runs.
SIGMAS = 6.0
COLUMNS = {
    "age": {"low": 18, "high": 80},
    "sex": {"levels": ["f", "m"]},
    "work": {"levels": ["private", "public", "self"], "reference": "public", "unknown": "refuse"},
    "pay": {"low": 10, "high": 20_000, "scale": "log"},
    "hours": {"low": 0, "high": 80, "missing": True},
}
NAMES = (
    "age",
    "sex=m (against f or unlisted)",
    "work=private (against public)",
    "work=self (against public)",
    "log(1 + pay - 10)",
    "hours",
    "hours missing (against 40)",
    "(intercept)",
)
TRUTH = np.array([3.0, 40.0, 60.0, 80.0, 50.0, 1.5, 25.0, 140.0])
ODDS = np.array([0.05, 0.8, 0.4, 0.0, 0.0, 0.0, 0.0, -3.0])


def schema(target):
    return Schema.from_dict({"target": target, "columns": COLUMNS})


SPEND, ILL = schema({"column": "spend", "range": [0, 1500]}), schema({"column": "ill", "classes": ["no", "yes"]})


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """A file, and its columns in raw units as a statistician would have them: a constant last."""
    rng, users = np.random.default_rng(8), 30_000
    age, sex = rng.integers(18, 81, users), rng.choice(["f", "m"], users)
    work = rng.choice(["private", "public", "self"], users, p=[0.5, 0.3, 0.2])
    pay, hours = 10 + np.exp(rng.normal(6.5, 1.0, users)).clip(0, 19_990), rng.uniform(10, 70, users)
    missing = rng.random(users) < 0.15
    filled = np.where(missing, 40.0, hours)
    indicators = [sex == "m", work == "private", work == "self", np.log1p(pay - 10), filled, missing, np.ones(users)]
    raw = np.column_stack([age, *indicators]).astype(float)
    spend = raw @ TRUTH + rng.normal(scale=60, size=users)
    ill = np.where(rng.random(users) < expit(raw @ ODDS), "yes", "no")
    table = pa.table(
        {
            "age": age,
            "sex": sex,
            "work": work,
            "pay": pay,
            "hours": pa.array(hours, mask=missing),
            "spend": spend,
            "ill": ill,
        }
    )
    folder = tmp_path_factory.mktemp("people")
    parquet.write_table(table, folder / "people.parquet", row_group_size=7_000)
    for name, facts in (("spend", SPEND), ("ill", ILL)):
        (folder / f"{name}.toml").write_text(facts.to_toml())
    return folder, raw, spend


def least_squares(X, y):
    """The textbook: coefficients, covariance, two-sided p-values."""
    inverse = np.linalg.inv(X.T @ X)
    coef = inverse @ X.T @ y
    covariance = inverse * np.sum((y - X @ coef) ** 2) / len(y)
    std = np.sqrt(covariance.diagonal())
    return coef, covariance, std, 2 * ndtr(-np.abs(coef / std))


def table_of(coef, covariance, std, p_values, determined=None):
    known = np.ones(len(coef), dtype=bool) if determined is None else determined
    ends = np.column_stack([coef - std, coef + std])
    return RegressionTable(("?",) * len(coef), coef, std, ends, p_values, known, 0.95, None, 9, "", covariance=covariance)


def test_units_are_those_of_least_squares_on_raw_columns(people):
    """Two routes without any noise: fit encoded rows and change units, or fit the raw columns."""
    folder, raw, spend = people
    rows, targets = read_table(interval_schema(SPEND), Source(folder / "people.parquet"))
    np.testing.assert_array_equal(targets, spend)
    encoded = np.column_stack([rows.astype(float), np.ones(len(rows))])
    units = in_schema_units(table_of(*least_squares(encoded, spend)), interval_schema(SPEND))
    coef, covariance, std, p_values = least_squares(raw, spend)
    assert units.names == NAMES
    np.testing.assert_allclose(units.coef, coef, rtol=1e-3, atol=1e-3)  # rows are float32
    np.testing.assert_allclose(units.std, std, rtol=1e-4)
    np.testing.assert_allclose(units.covariance, covariance, rtol=1e-2, atol=1e-2 * std.min() ** 2)
    np.testing.assert_allclose(units.p_values, p_values, rtol=0.05, atol=1e-12)
    half = 1.959963984540054 * std
    np.testing.assert_allclose(units.intervals, np.column_stack([coef - half, coef + half]), rtol=1e-3, atol=1e-3)


def test_the_data_decide_a_combination_where_they_decide_all_of_its_parts(people):
    coef, covariance, std, p_values = least_squares(people[1], people[2])
    known = np.array([True] * 5 + [False] + [True] * 2)  # hours, from whose middle the intercept is moved
    units = in_schema_units(table_of(coef, covariance, std, p_values, known), interval_schema(SPEND))
    assert units.determined.tolist() == [True, True, True, True, True, False, True, False]
    assert units.intervals[[5, 7]].tolist() == [[-np.inf, np.inf]] * 2
    assert np.isfinite(np.delete(units.intervals, [5, 7], axis=0)).all()
    assert str(units).count("(-inf, inf)") == 2


@pytest.mark.filterwarnings("ignore::croupier.estimator.WeakPrivacyWarning")
def test_linear_regression_from_a_file_finds_the_truth_in_its_units(people):
    folder, *_ = people
    model = fit_table(folder / "people.parquet", SPEND, task="linear", epsilon=4.0)
    table = model.summary()
    assert (model.task, table.names) == ("linear", NAMES)
    assert table.determined.all()
    assert (np.abs(table.coef - TRUTH) < SIGMAS * table.std).all()
    assert table.std[0] < 0.1  # a year of age, to a tenth
    assert model.estimator.exclusive == ((2, 3),)
    assert model.estimator.guarantee_.delta(4.0) <= 1e-6
    again = fit_table(folder / "people.parquet", SPEND, task="linear", epsilon=50.0, random_state=1, delta=1e-9).summary()
    _, _, std, _ = least_squares(people[1], people[2])
    np.testing.assert_allclose(again.std, std, rtol=0.3)  # with hardly any noise: the textbook's standard errors
    assert (again.std > 0.99 * std).all()


def test_logistic_regression_from_a_file_finds_the_truth_in_its_units(people, tmp_path):
    folder, *_ = people
    model = fit_table(folder / "people.parquet", ILL, task="logit", epsilon=8.0)
    table = model.summary(0.9)
    assert (model.task, table.names, table.level) == ("logit", NAMES, 0.9)
    assert "log-odds of ill = yes against no" in str(table)
    assert table.to_dict()["of"] == "log-odds of ill = yes against no"
    assert (np.abs(table.coef - ODDS)[table.determined] < SIGMAS * table.std[table.determined]).all()
    assert table.determined[0]
    model.save(tmp_path / "model.json")
    again = TableModel.load(tmp_path / "model.json")
    assert str(again.summary(0.9)) == str(table)
    assert again.estimator.guarantee_ == model.estimator.guarantee_


@pytest.mark.parametrize(("task", "facts"), [("linear", SPEND), ("logit", ILL)])
def test_files_and_memory_give_the_same_bits(people, task, facts):
    """Streamed Parquet, CSV-like rows in memory and blocks elsewhere: one secret, one model."""
    folder, *_ = people
    source, kind = Source(folder / "people.parquet"), {"linear": ShuffleLinearRegression, "logit": ShuffleLogit}[task]
    streamed = fit_table(source, facts, task=task, random_state=3).estimator
    declared = {name: value for name, value in streamed.get_params().items() if name != "account"}
    rows, targets = read_table(interval_schema(facts), source)
    model = kind(**declared)
    X, y = model.records(rows, targets)
    blocks = BlockPopulation(parts := _blocks(source, Encoder(interval_schema(facts)), kind(**declared)))
    here = ArrayPopulation(X.astype(np.float32), y, blocks=[part.users for part in parts])
    np.testing.assert_array_equal(model.fit_population(here, rows.shape[1]).coef_, streamed.coef_)
    np.testing.assert_array_equal(kind(**declared).fit_population(blocks, rows.shape[1]).coef_, streamed.coef_)


def test_the_command_prints_draws_predicts_and_evaluates(people, tmp_path):
    folder, *_ = people
    run = lambda *words: CliRunner().invoke(app, [str(word) for word in words])  # noqa: E731
    data, output, once = folder / "people.parquet", tmp_path / "model.json", ("--method", "moments")
    fitted = run("fit", data, "--schema", folder / "spend.toml", "--task", "linear", "--epsilon", 4, "-o", output, *once)
    assert fitted.exit_code == 0, fitted.output
    table = str(TableModel.load(output).summary())
    assert table in fitted.output
    assert table in run("show", output).output
    found = json.loads(run("show", output, "--json").output)
    assert [row["name"] for row in found["coefficients"]["rows"]] == list(NAMES)
    assert (found["task"], found["method"], found["users"], "rounds" in found) == ("linear", "moments", 30_000, False)
    assert run("report", output, "-o", tmp_path / "page.html").exit_code == 0
    page = (tmp_path / "page.html").read_text()
    assert "work=self (against public)" in page
    assert "compared with public" in page
    assert run("predict", output, data, "-o", tmp_path / "predictions.csv").exit_code == 0
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 30_001
    assert "rmse" in run("evaluate", output, data).output
    assert "R^2" in run("evaluate", output, data, "--epsilon", 1).output
    logit = run(
        "fit", data, "--schema", folder / "ill.toml", "--task", "logit", "--epsilon", 4, "-o", output, "--force", "--json", *once
    )
    assert json.loads(logit.stdout)["method"] == "three groups"
    assert "probability yes" in run("predict", output, data, "--proba").output
    assert "AUC" in run("evaluate", output, data, "--epsilon", 1).output
    ridge = run("fit", data, "--schema", folder / "spend.toml", "--task", "regress-mean", "-o", output, "--force", *once)
    assert "Made from one round of second moments" in ridge.output
    assert "Made from one round of second moments" in run("show", output).output
    assert run("report", output, "-o", tmp_path / "page.html", "--force").exit_code == 0
    assert "hours missing" in (tmp_path / "page.html").read_text()
    rounds = run(
        "fit", data, "--schema", folder / "spend.toml", "--task", "regress-mean", "--method", "rounds", "-o", output, "--force"
    )
    assert "rounds" in rounds.output
    assert TableModel.load(output).estimator.method_ == "rounds"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--task", "linear", "--rounds", "5"], "--rounds"),
        (["--task", "linear", "--radius", "5"], "--radius"),
        (["--task", "linear", "--interactivity", "full"], "--interactivity"),
        (["--task", "linear", "--lots", "open"], "--lots"),
        (["--task", "linear", "--method", "moments", "--checkpoint", "run.journal"], "no rounds to resume"),
        (["--task", "quantile", "--method", "moments"], "--task regress-mean or linear or logit"),
        (["--task", "linear", "--method", "momments"], "'moments'"),
        (["--task", "logit"], "has a range"),
        (["--task", "linnear"], "'linear'"),
        (["--task", "regress-mean", "--method", "moments", "--rounds", "3"], "left out with method='moments'"),
        (["--task", "regress-mean", "--method", "moments", "--checkpoint", "run.journal"], "checkpoint"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(people, tmp_path, words, said, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder, *_ = people
    ran = CliRunner().invoke(app, ["fit", str(folder / "people.parquet"), "--schema", str(folder / "spend.toml"), *words])
    assert isinstance(ran.exception, ArgumentError)
    assert said in str(ran.exception)


@pytest.mark.parametrize(
    ("task", "said"), [("linear", "No model was saved."), ("regress-mean", "Stopped before anybody answered; no model was saved.")]
)
def test_people_who_are_gone_end_the_command_in_one_line(people, tmp_path, monkeypatch, task, said):
    def gone(self, question):
        raise UnreachableError("people.parquet is gone")

    monkeypatch.setattr(ArrayPopulation, "answer", gone)
    folder, *_ = people
    words = ["--schema", str(folder / "spend.toml"), "--task", task, "-o", str(tmp_path / "model.json")]
    ran = CliRunner().invoke(app, ["fit", str(folder / "people.parquet"), *words])
    assert isinstance(ran.exception, Stopped)
    assert str(ran.exception) == f"people.parquet is gone. {said}"
    assert not (tmp_path / "model.json").exists()


def test_facts_that_do_not_fit_are_refused(people, tmp_path):
    folder, *_ = people
    data = folder / "people.parquet"
    three = schema({"column": "work2", "classes": ["a", "b", "c"]})
    with pytest.raises(ArgumentError, match="more than two classes"):
        fit_table(data, three, task="logit")
    for wrong in ("nobody", 3):
        with pytest.raises(ArgumentError, match="reference"):
            Schema.from_dict(
                {"target": {"column": "y", "range": [0, 1]}, "columns": {"sex": {"levels": ["f"], "reference": wrong}}}
            )
    with pytest.raises(ArgumentError, match="callbacks"):
        fit_table(data, SPEND, task="linear", callbacks=(print,))
    with pytest.raises(ArgumentError, match="follows from the schema"):
        fit_table(data, SPEND, task="linear", feature_norm=3.0)
    without = fit_table(data, SPEND, task="linear", fit_intercept=False).summary()
    assert without.names == NAMES  # counted from the middles of ranges, it has an intercept of its own at 0
    with pytest.raises(ArgumentError, match="standard errors"):
        fit_table(data, SPEND, task="regress-huber", rounds=3).summary()
    model = fit_table(data, SPEND, task="linear")
    with pytest.raises(ArgumentError, match="divided by its own length"):
        in_schema_units(model.estimator.summary(), SPEND)
    values = model.to_dict()
    for change in ({"rows": "unit"}, {"columns": values["schema"]["columns"] | {"sex": {"levels": ["f", "m"]}}}):
        with pytest.raises(ArgumentError, match="belongs to another model"):
            TableModel.from_dict(values | {"schema": values["schema"] | change})
    public = fit_table(data, SPEND, task="linear", data_is_public=True).estimator
    assert "the schema (ranges, levels, classes)" in str(public.guarantee_)
    assert "the schema (ranges, levels, classes)" in html_report(public)
    with pytest.raises(ArgumentError, match="work_dir"):
        fit_table(data, SPEND, task="linear", engine=Engine(work_dir=tmp_path / "none"))


def test_a_reference_has_no_feature_of_its_own(people):
    folder, *_ = people
    source = Source(folder / "people.parquet")
    facts = {"target": {"column": "spend", "range": [0, 1500]}, "rows": "as-is"}
    levels = {"levels": ["private", "public", "self"]}
    plain, _ = read_table(Schema.from_dict(facts | {"columns": {"work": levels}}), source)
    for place, reference in enumerate(levels["levels"]):
        named = Schema.from_dict(facts | {"columns": {"work": levels | {"reference": reference}}})
        rows, _ = read_table(named, source)
        np.testing.assert_array_equal(rows, np.delete(plain, place, axis=1))
        assert Schema.from_toml(named.to_toml()) == named
