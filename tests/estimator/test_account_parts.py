"""Accounts that know parts of the people: two sides of a split are not added up, and nothing else is let off."""

import itertools
import json
import pickle
import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from typer.testing import CliRunner

import croupier as cr
from croupier.cli.app import app
from croupier.estimator import PrivacyAccount, ShuffleLogisticRegression, ShuffleScaler, total_guarantee
from croupier.privacy import Guarantee, plan_sum
from croupier.privacy._ledger import BudgetExceededError
from croupier.privacy._statements import round_up
from croupier.statistics._columns import LevelGuess, NumberGuess
from croupier.statistics._holdout import HoldOut, Part
from croupier.table import describe_table, fit_table, schema_from
from croupier.table.describe import TableGuess
from croupier.validation import ArgumentError

ASIDE = Part(HoldOut(0.1, "0" * 32), "aside", rows=10_000)
REST = ASIDE.other
OTHER = Part(HoldOut(0.1, "1" * 32), "aside", rows=10_000)
NAMED = Part(HoldOut(0.1, "0" * 32), "aside", names="person")
GUARANTEE = Guarantee(mu=0.2, slack=1e-9, theorem="a theorem")
WEAKER = Guarantee(mu=0.3, slack=2e-9, theorem="a theorem")


def charged(*entries, account=None):
    """An account with these (guarantee, part) charged."""
    account = account or PrivacyAccount()
    for guarantee, part in entries:
        account.charge("a release", 10_000 if part is None else part.users or 77, guarantee, part=part)
    return account


def test_the_two_sides_of_a_split_are_the_worse_of_both():
    account = charged((GUARANTEE, ASIDE), (WEAKER, REST))
    alone = charged((GUARANTEE, None), (WEAKER, None))
    first = charged((GUARANTEE, None)).spent()
    assert account.spent(part=ASIDE) == first
    assert first < account.spent(part=REST) == account.spent() < alone.spent()
    assert account.spent() == charged((WEAKER, None)).spent()
    text = str(account)
    assert "the 1,003 people set aside by split 00000000 (1 fit)" in text
    assert "the other 8,997 people of split 00000000 (1 fit)" in text
    figures = account.to_dict()
    assert [part["side"] for part in figures["parts"]] == ["aside", "rest"]
    assert figures["parts"][0]["epsilon"] == first
    assert figures["epsilon"] == account.spent()
    assert json.loads(json.dumps(figures)) == figures


def test_more_splits_than_can_be_counted_are_refused():
    account = PrivacyAccount()
    for number in range(8):
        charged((GUARANTEE, Part(HoldOut(0.1, f"{number:032x}"), "aside", rows=100)), account=account)
    with pytest.raises(ArgumentError, match="at most 8 splits"):
        charged((GUARANTEE, Part(HoldOut(0.1, "8" * 32), "aside", rows=100)), account=account)
    assert len(account.fits) == 8


@pytest.mark.parametrize(
    "others",
    [(GUARANTEE, None), (GUARANTEE, OTHER), (GUARANTEE, OTHER.other), (GUARANTEE, ASIDE)],
    ids=["everybody", "another split", "the rest of another split", "the same side"],
)
def test_whatever_is_not_disjoint_is_added_up(others):
    assert charged((GUARANTEE, ASIDE), others).spent() == charged((GUARANTEE, None), (GUARANTEE, None)).spent()


def test_no_user_has_more_than_what_is_counted():
    """Users one by one, each on a side of every split by the splits' own masks: the account has the worst of them."""
    rng = np.random.default_rng(0)
    splits = [Part(HoldOut(0.4, f"{number:032x}"), "aside", rows=200) for number in range(3)]
    for _ in range(10):
        choices = [None, *splits, *(split.other for split in splits)]
        parts = [choices[number] for number in rng.integers(len(choices), size=6)]
        bounds = [
            Guarantee(mu=mu, slack=slack, theorem="t")
            for mu, slack in zip(rng.uniform(0, 0.3, 6), rng.uniform(0, 3e-8, 6), strict=True)
        ]
        account = PrivacyAccount()
        for guarantee, part in zip(bounds, parts, strict=True):
            account.charge("a release", 200 if part is None else part.users, guarantee, part=part)
        everybody = np.ones(200, dtype=bool)
        masks = [everybody if part is None else part.aside.places(0, 200) ^ (part.side == "rest") for part in parts]
        own = []
        for user in range(200):
            asked = [guarantee for guarantee, mask in zip(bounds, masks, strict=True) if mask[user]]
            own.append(charged(*((guarantee, None) for guarantee in asked)).spent() if asked else 0.0)
            if asked:
                assert asked[0].compose(*asked[1:]).epsilon(1e-6) <= own[-1]
        assert account.spent() == max(own)
        for part in filter(None, parts):
            side = part.aside.places(0, 200) ^ (part.side == "rest")
            assert account.spent(part=part) == max(epsilon for epsilon, there in zip(own, side, strict=True) if there)


def test_a_limit_holds_for_each_side_and_a_single_fit_of_each_may_use_it_up():
    plan = plan_sum(epsilon=1.0, delta=1e-6, users=1003, dim=3).guarantee
    account = charged((plan, ASIDE), (plan, REST), account=PrivacyAccount(epsilon=1.0, delta=1e-6))
    for part in (ASIDE, REST, None, OTHER):
        with pytest.raises(BudgetExceededError, match="3 on this account"):
            charged((Guarantee(mu=1e-3, theorem="a theorem"), part), account=account)
    assert len(account.fits) == 2


def test_different_splits_use_up_a_limit_together():
    account = PrivacyAccount(epsilon=1.0, delta=1e-6)
    plan = plan_sum(epsilon=0.7, delta=1e-7, users=1003, dim=3).guarantee
    charged((plan, ASIDE), (plan, REST), account=account)
    charged((plan, OTHER), account=account)
    with pytest.raises(BudgetExceededError):
        charged((plan, Part(HoldOut(0.2, "0" * 32), "rest", rows=10_000)), account=account)


@pytest.mark.parametrize(
    ("part", "users", "unit", "said"),
    [
        (ASIDE, 10_000, "row", "1,003, as many as are in this part"),  # everybody was asked, and one side is claimed
        (REST, 1003, "row", "8,997, as many as are in this part"),
        (ASIDE, 1003, "person", "may be on both sides"),
        (ASIDE, 1003, "user", "may be on both sides"),
        (NAMED, 77, "row", "may be on both sides"),
    ],
)
@pytest.mark.parametrize("kept", ["in memory", "in a file"])
def test_a_release_that_cannot_be_about_its_part_is_refused(tmp_path, kept, part, users, unit, said):
    account = PrivacyAccount(tmp_path / "account" if kept == "in a file" else None)
    with pytest.raises(ArgumentError, match=said):
        account.of_part(part).charge("a release", users, GUARANTEE, unit=unit)
    assert account.fits == ()


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda entry: entry | {"part": entry["part"] | {"side": "rest"}}, "users"),
        (lambda entry: entry | {"part": entry["part"] | {"side": "rest"}, "users": REST.users}, "as it was when"),
        (lambda entry: entry | {"part": entry["part"] | {"seed": "1" * 32}, "users": OTHER.users}, "as it was when"),
        (lambda entry: entry | {"part": NAMED.to_dict(), "unit": "person"}, "as it was when"),
        (lambda entry: entry | {"part": NAMED.to_dict()}, "unit"),
        (lambda entry: {name: value for name, value in entry.items() if name != "digest"}, "as it was when"),
        (lambda entry: entry | {"part": "aside"}, "part"),
        (lambda entry: entry | {"part": entry["part"] | {"more": 1}}, "part"),
        (lambda entry: entry | {"part": entry["part"] | {"side": "neither"}}, "side"),
        (lambda entry: entry | {"guarantee": entry["guarantee"] | {"mu": 0.01}}, "as it was when"),
    ],
)
def test_an_entry_that_claims_another_part_is_refused(tmp_path, edit, said):
    path = tmp_path / "account"
    charged((GUARANTEE, ASIDE), (GUARANTEE, REST), account=PrivacyAccount(path))
    terms, first, second = path.read_text().splitlines()
    path.write_text("\n".join([terms, json.dumps(edit(json.loads(first))), second]) + "\n")
    for use in (lambda: PrivacyAccount(path).spent(), lambda: PrivacyAccount(path).charge("more", 10, GUARANTEE)):
        with pytest.raises(ArgumentError, match=said):
            use()


def test_a_part_that_is_put_into_an_entry_about_everybody_is_refused(tmp_path):
    path = tmp_path / "account"
    charged((GUARANTEE, None), account=PrivacyAccount(path))
    terms, entry = path.read_text().splitlines()
    path.write_text("\n".join([terms, json.dumps(json.loads(entry) | {"part": REST.to_dict(), "users": REST.users})]) + "\n")
    with pytest.raises(ArgumentError, match="as it was when"):
        PrivacyAccount(path).spent()


def test_a_run_that_goes_on_is_about_the_same_part(tmp_path):
    account = PrivacyAccount(tmp_path / "account")
    assert account.charge("fit", ASIDE.users, GUARANTEE, "run", part=ASIDE) == 1
    assert account.charge("fit", ASIDE.users, GUARANTEE, "run", part=ASIDE) == 1
    for part, users in ((REST, REST.users), (None, 10_000)):
        with pytest.raises(ArgumentError, match="run"):
            account.charge("fit", users, GUARANTEE, "run", part=part)


def test_an_account_for_a_part_is_the_same_account(tmp_path):
    account = PrivacyAccount(epsilon=3.0)
    view = account.of_part(ASIDE)
    view.charge("a", ASIDE.users, GUARANTEE)
    account.charge("b", 10_000, GUARANTEE)
    assert account.fits == view.fits
    assert [fit.part for fit in view.fits] == [ASIDE, None]
    assert clone(ShuffleScaler(feature_range=(-1, 1), account=view)).account is view
    assert str(view) == str(account)
    with pytest.raises(BudgetExceededError, match="another process"):
        pickle.loads(pickle.dumps(view)).charge("c", ASIDE.users, GUARANTEE)
    in_file = PrivacyAccount(tmp_path / "account").of_part(ASIDE)
    pickle.loads(pickle.dumps(in_file)).charge("c", ASIDE.users, GUARANTEE)
    assert [fit.part for fit in PrivacyAccount(tmp_path / "account").fits] == [ASIDE]
    with pytest.raises(ArgumentError, match="a Part"):
        account.of_part("aside")


def test_a_seeded_release_spoils_its_own_side_only():
    account = charged((None, ASIDE), (GUARANTEE, REST))
    assert account.spent() == account.spent(part=ASIDE) == float("inf")
    assert account.spent(part=REST) < 1
    assert "NOT PRIVATE" in str(account)


def test_a_pipeline_whose_steps_saw_different_parts():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 2))
    looks = cr.describe(X, {"a": (-9, 9), "b": (-9, 9)}, epsilon=0.5, delta=1e-6, share=0.3)
    scaler = ShuffleScaler(epsilon=0.5, feature_range=(-5, 5)).fit(X[looks.asked])
    rest = scaler.transform(X[~looks.asked])
    model = ShuffleLogisticRegression(epsilon=0.5, classes=[False, True]).fit(rest, X[~looks.asked, 0] > 0)
    pipeline = make_pipeline(scaler, model)
    with pytest.raises(ArgumentError, match="n_users_"):
        total_guarantee(pipeline)
    parts = {"shufflescaler": looks.part, "shufflelogisticregression": looks.rest}
    total = total_guarantee(pipeline, parts=parts)
    worst = max(step.guarantee_.epsilon(1e-6) for step in (scaler, model))
    assert worst <= total.epsilon(1e-6) < 1.1 * worst
    with pytest.raises(ArgumentError, match="as many as are in this part"):
        total_guarantee(pipeline, parts={name: part.other for name, part in parts.items()})
    with pytest.raises(ArgumentError, match="names of steps"):
        total_guarantee(pipeline, parts=parts | {"another": looks.part})


def people(folder, count=4_000, names=None):
    rng = np.random.default_rng(3)
    path = folder / "people.csv"
    rows = [f"{age},{age + noise:.1f}" for age, noise in zip(rng.integers(18, 90, count), rng.normal(0, 5, count), strict=True)]
    labels = [f"{number % names}" for number in range(count)] if names else [""] * count
    path.write_text("age,pay,who\n" + "".join(f"{row},{label}\n" for row, label in zip(rows, labels, strict=True)))
    return path, TableGuess({"age": NumberGuess(0, 200), "pay": NumberGuess(0, 500)}, target="pay", user="who" if names else None)


@pytest.mark.parametrize("names", [None, 2_000])
def test_a_described_schema_and_its_fit_are_counted_on_two_parts(tmp_path, names):
    path, guess = people(tmp_path, names=names)
    account = PrivacyAccount(tmp_path / "account.jsonl", epsilon=1.0, delta=1e-5)
    schema, _ = schema_from(describe_table(path, guess, epsilon=0.9, delta=1e-6, share=0.3, account=account), guess)
    model = fit_table(path, schema, epsilon=0.9, delta=1e-6, account=account)
    first, second = account.fits
    assert first.part == second.part.other
    assert (first.part.side, first.part.names) == ("aside", "who" if names else None)
    assert model.estimator.account is account  # not the view: a later fit of it counts on everybody
    with pytest.raises(BudgetExceededError):
        fit_table(path, schema, epsilon=0.9, delta=1e-6, account=account)
    shown = CliRunner().invoke(app, ["show", str(account.path)])
    assert shown.exit_code == 0
    text = " ".join(shown.stdout.split())
    assert "1. Summaries" in text
    assert "counts for the other" in text
    assert "Nobody is on both sides of a split" in text
    parts = json.loads(CliRunner().invoke(app, ["show", str(account.path), "--json"]).stdout)["parts"]
    assert [part["side"] for part in parts] == ["aside", "rest"]


def test_a_fit_that_does_not_leave_anybody_out_is_added_to_both(tmp_path):
    path, guess = people(tmp_path)
    account = PrivacyAccount()
    schema, _ = schema_from(describe_table(path, guess, epsilon=0.9, delta=1e-6, share=0.3, account=account), guess)
    values = schema.to_dict()
    del values["described"]
    fit_table(path, type(schema).from_dict(values), epsilon=0.9, delta=1e-6, account=account)
    assert account.fits[1].part is None
    assert account.spent() > 1.2


@pytest.mark.parametrize("change", [{"seed": "a" * 32}, {"share": 0.31}])
def test_an_edited_schema_makes_another_split_and_is_added_up(tmp_path, change):
    path, guess = people(tmp_path)
    account = PrivacyAccount()
    schema, _ = schema_from(describe_table(path, guess, epsilon=0.9, delta=1e-6, share=0.3, account=account), guess)
    values = schema.to_dict()
    values["described"] |= change
    fit_table(path, type(schema).from_dict(values), epsilon=0.9, delta=1e-6, account=account)
    assert account.spent() > 1.2
    assert "different splits overlap" in str(account)


def test_labels_in_memory_make_no_schema_for_a_file():
    """People with one row each were set aside by labels; a fit would have left out others, by places, and asked some twice."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 2, 5_000), rng.uniform(20, 60, 5_000)])
    guess = TableGuess({"ill": LevelGuess(("0", "1")), "age": NumberGuess(0, 100)}, target="ill", classes=("0", "1"))
    description = cr.describe(X, guess.columns, epsilon=1.0, delta=1e-6, share=0.2, groups=[f"p{i}" for i in range(5_000)])
    assert description.part.names == "groups="
    with pytest.raises(ArgumentError, match="set aside by groups="):
        schema_from(description, guess)


def test_parts_come_back_as_they_were():
    for part in (ASIDE, REST, NAMED, NAMED.other):
        assert Part.from_dict(json.loads(json.dumps(part.to_dict()))) == part
    sizes = [part.users for part in (ASIDE, REST)]
    assert sizes == [int(count) for count in (ASIDE.aside.places(0, 10_000).sum(), (~ASIDE.aside.places(0, 10_000)).sum())]
    for rows, names in itertools.product((None, 10), (None, "who")):
        if (rows is None) == (names is None):
            with pytest.raises(ArgumentError, match="rows, names"):
                Part(ASIDE.aside, "aside", rows, names)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_share_of_any_kind_of_number_is_written_down(kind, tmp_path):
    account = PrivacyAccount(tmp_path / "account")
    people = np.random.default_rng(0).normal(size=(2_000, 1))
    seen = cr.describe(people, {"x": (-9, 9)}, epsilon=1.0, delta=1e-6, share=kind(0.25), account=account)
    part = Part(seen.aside, "rest", rows=np.int64(2_000))
    charged((GUARANTEE, part), account=account)
    assert [fit.part for fit in PrivacyAccount(tmp_path / "account").fits] == [seen.part, seen.rest]


@pytest.mark.parametrize("guarantee", [{}, 0, ""])
def test_a_line_without_its_guarantee_is_refused(guarantee, tmp_path):
    """It is neither a fit with a guarantee nor one that says that it has none."""
    path = tmp_path / "account"
    charged((GUARANTEE, None), account=PrivacyAccount(path))
    first, line = path.read_text().splitlines()
    path.write_text(first + "\n" + json.dumps(json.loads(line) | {"guarantee": guarantee}) + "\n")
    with pytest.raises(ArgumentError):
        PrivacyAccount(path).spent()


def test_with_a_limit_each_side_is_said_to_have_used_of_it():
    """One promise: which of limit and odometer is the smaller is known after looking."""
    account = charged((GUARANTEE, ASIDE), (GUARANTEE, ASIDE), (GUARANTEE, REST), account=PrivacyAccount(epsilon=1.25, delta=1e-6))
    assert account.spent(part=ASIDE) > 1.25 > account.spent(part=REST)
    used = [part["used_of_mu_squared"] for part in account.to_dict()["parts"]]
    assert used[0] == pytest.approx(2 * used[1])
    assert f"set aside by split 00000000 (2 fits) used {round_up(used[0])} of its mu^2" in str(account)
    assert f"8,997 people of split 00000000 (1 fit) used {round_up(used[1])} of its mu^2" in str(account)
    assert re.findall("epsilon = [0-9.]+", str(account)) == ["epsilon = 1.25"]
