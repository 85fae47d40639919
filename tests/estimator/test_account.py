"""What fits spend together: searches warn, accounts count, limits hold, pipelines compose."""

from __future__ import annotations

import contextlib
import copy
import pickle
import re
import threading
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

from croupier.estimator import (
    BudgetWarning,
    PrivacyAccount,
    ShuffleLogisticRegression,
    ShuffleScaler,
    total_guarantee,
)
from croupier.privacy import Guarantee, plan_lots, plan_sum
from croupier.privacy._filter import first_cap, gaussian_bound, odometer
from croupier.privacy._ledger import BudgetExceededError
from croupier.validation import ArgumentError

BINARY = {"classes": [False, True]}
GUARANTEE = Guarantee(mu=0.2, slack=1e-9, theorem="a theorem")


def by_hand(*guarantees):
    """epsilon at 1e-6 by the definition: squares of mu and slacks add up. Of runs with open lots."""
    assert not any(g.allocations for g in guarantees)
    mu = np.sqrt(sum(g.mu**2 for g in guarantees))
    return Guarantee(mu=float(mu), slack=sum(g.slack for g in guarantees), theorem="by hand").epsilon(1e-6)


def test_a_search_warns_with_default_arguments(people):
    X, score = people
    with pytest.warns(BudgetWarning, match="Tuning on private data.*PrivacyAccount.*held-out") as caught:
        GridSearchCV(ShuffleLogisticRegression(**BINARY), {"radius": [5.0, 50.0]}, cv=2).fit(X, score > 0)
    fits = [str(w.message).split("fit ")[1].split()[0] for w in caught if w.category is BudgetWarning]
    assert fits == ["2", "4"]  # of 5: loud, but a search of a hundred stays readable
    with pytest.warns(BudgetWarning):
        cross_val_score(ShuffleLogisticRegression(**BINARY), X, score > 0, cv=2)


def test_a_second_fit_warns_and_a_first_does_not(people):
    X, score = people
    model = ShuffleLogisticRegression(**BINARY)
    model.fit(X, score > 0)  # warnings are errors here
    with pytest.warns(BudgetWarning, match=r"fit 2 of it and its clones.*together epsilon = 1\.[67]\d* at delta = 1e-06"):
        clone(model).fit(X, score > 0)
    with pytest.warns(BudgetWarning, match="with other neighbours, are not counted"):
        clone(model).set_params(neighbours="zero-out").fit(X, score > 0)


def test_the_warning_of_a_later_fit_is_at_the_delta_of_the_first(people):
    """A delta that is chosen after looking at a fit proves nothing for both."""
    X, score = people
    model = ShuffleLogisticRegression(**BINARY, delta=1e-7).fit(X, score > 0)
    with pytest.warns(BudgetWarning, match="together epsilon = .* at delta = 1e-07"):
        clone(model).set_params(delta=1e-8).fit(X, score > 0)


def test_a_copy_from_a_pickle_warns(people):
    X, score = people
    model = pickle.loads(pickle.dumps(ShuffleLogisticRegression(**BINARY)))
    clone(model)
    with pytest.warns(BudgetWarning, match="another process"):
        pickle.loads(pickle.dumps(clone(ShuffleLogisticRegression(**BINARY).fit(X, score > 0)))).fit(X, score > 0)


def test_an_account_counts_every_fit_of_a_search_without_a_warning(people):
    X, score = people
    account = PrivacyAccount()
    model = ShuffleLogisticRegression(**BINARY, account=account, lots="open")
    search = GridSearchCV(model, {"epsilon": [0.5, 1.0]}, cv=3).fit(X, score > 0)
    assert len(account.fits) == 7
    assert [fit.users for fit in account.fits[:6]] == [3333, 3333, 3334] * 2
    assert account.fits[-1].guarantee == search.best_estimator_.guarantee_
    plain = by_hand(*(fit.guarantee for fit in account.fits))
    assert 2 < plain < account.spent() < 1.6 * plain  # what holds whenever one stops is more than the sum
    assert "7 fits, together epsilon = " in str(account)
    assert copy.deepcopy(account) is account
    assert clone(model).account is account


def test_a_limit_refuses_before_anybody_is_asked(people):
    X, score = people
    account = PrivacyAccount(epsilon=1.2, delta=1e-6)
    model = ShuffleLogisticRegression(**BINARY, account=account, lots="open").fit(X, score > 0)
    kept = model.guarantee_
    with pytest.raises(BudgetExceededError, match=r"with this fit, 2 on this account.*Nobody was asked"):
        clone(model).fit(X, score > 0)
    assert [fit.guarantee for fit in account.fits] == [kept]
    clone(model).set_params(epsilon=0.3).fit(X, score > 0)  # a smaller one still fits in
    assert by_hand(*(fit.guarantee for fit in account.fits)) <= 1.2
    assert "2 fits within the limit epsilon = 1.2, delta = 1e-06; used 0.8" in str(account)
    with pytest.raises(ArgumentError, match="epsilon"):
        PrivacyAccount(epsilon=0)


def test_seeded_fits_make_an_account_not_private(people):
    X, score = people
    account = PrivacyAccount()
    ShuffleLogisticRegression(**BINARY, account=account, random_state=0).fit(X, score > 0)
    assert account.spent() == float("inf")
    assert "NOT PRIVATE" in str(account)
    assert PrivacyAccount().spent() == 0
    with pytest.raises(BudgetExceededError):
        ShuffleLogisticRegression(**BINARY, account=PrivacyAccount(epsilon=9), random_state=0).fit(X, score > 0)


def test_neighbouring_relations_do_not_mix():
    account = PrivacyAccount()
    account.charge("one", 10, GUARANTEE)
    with pytest.raises(ArgumentError, match="neighbours"):
        account.charge("two", 10, Guarantee(mu=0.2, neighbours="zero-out", theorem="a theorem"))
    assert len(account.fits) == 1


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_fits_by_person_and_fits_by_row_do_not_mix(people, tmp_path, kind):
    """Together they would print one epsilon, which is true for rows only: a person with two rows is in two users of the second."""
    X, score = people
    account = PrivacyAccount(tmp_path / "account.jsonl" if kind == "file" else None)
    by_person = ShuffleLogisticRegression(**BINARY, account=account).fit(X, score > 0, groups=np.arange(len(X)) // 2)
    for by_row in (clone(by_person), ShuffleScaler(feature_range=(-1, 1), account=account)):
        with pytest.raises(ArgumentError, match=r"unit = \['person', 'row'\].*groups= to every fit, or to none"):
            by_row.fit(X, score > 0)
    assert [fit.unit for fit in account.fits] == ["person"]
    clone(by_person).fit(X, score > 0, groups=np.arange(len(X)) // 2)
    assert len(account.fits) == 2
    with pytest.raises(ArgumentError, match="unit"):
        account.charge("fit", 10, GUARANTEE, unit="household")


def test_a_pipeline_of_fits_by_person_and_by_row_is_refused(people):
    """As many persons as rows, so that the number of users does not tell."""
    X, score = people
    scaler = ShuffleScaler(feature_range=(-1, 1)).fit(X[:2500])
    model = ShuffleLogisticRegression(**BINARY).fit(X, score > 0, groups=np.arange(len(X)) // 2)
    assert (scaler.n_users_, scaler.unit_, model.n_users_, model.unit_) == (2500, "row", 2500, "person")
    with pytest.raises(ArgumentError, match="unit_"):
        total_guarantee(make_pipeline(scaler, model))
    assert ShuffleLogisticRegression.from_json(model.to_json()).unit_ == "person"


def test_a_second_fit_by_another_unit_warns(people):
    X, score = people
    model = ShuffleLogisticRegression(**BINARY).fit(X, score > 0)
    with pytest.warns(BudgetWarning, match=r"another unit \(row, person\).*not counted here") as caught:
        clone(model).fit(X, score > 0, groups=np.arange(len(X)) // 2)
    assert "together epsilon" not in str(caught[0].message)


@pytest.mark.parametrize("calibration", ["tight", "paper"])
def test_one_fit_that_keeps_the_limit_by_itself_is_taken_and_is_the_last(calibration):
    """Its mu or its slack may be beyond the caps: with nothing before it and nothing after it, its own delta decides."""
    plan = plan_sum(epsilon=1.0, delta=1e-6, users=2000, dim=5, calibration=calibration).guarantee
    account = PrivacyAccount(epsilon=1.0, delta=1e-6)
    assert account.charge("fit", 2000, plan) == 1
    with pytest.raises(BudgetExceededError):
        account.charge("another", 2000, Guarantee(mu=1e-6, slack=plan.slack, theorem="a theorem"))
    with pytest.raises(BudgetExceededError, match="1 on this account"):
        PrivacyAccount(epsilon=0.99, delta=1e-6).charge("fit", 2000, plan)


def test_slacks_have_a_cap_of_their_own():
    account = PrivacyAccount(epsilon=5.0, delta=1e-6)
    for _ in range(9):
        account.charge("fit", 10, Guarantee(mu=0.01, slack=2.7e-8, theorem="a theorem"))
    with pytest.raises(BudgetExceededError, match="smaller delta"):
        account.charge("fit", 10, Guarantee(mu=0.01, slack=2.7e-8, theorem="a theorem"))


def test_the_first_line_of_a_file_fixes_the_limit(tmp_path):
    path = tmp_path / "account.jsonl"
    PrivacyAccount(path, epsilon=1.5, delta=1e-6).charge("a", 10, GUARANTEE)
    for other in ({"epsilon": 3.0}, {"epsilon": 1.5, "delta": 1e-5}):
        with pytest.raises(ArgumentError, match=r"epsilon, delta.*limit epsilon = 1\.5.*Leave epsilon and delta out"):
            PrivacyAccount(path, **other).charge("b", 10, GUARANTEE)
    heir = PrivacyAccount(path)  # takes over the limit
    assert "within the limit epsilon = 1.5" in str(heir)
    with pytest.raises(BudgetExceededError):
        heir.charge("c", 10, Guarantee(mu=0.5, theorem="a theorem"))
    unlimited = tmp_path / "unlimited.jsonl"
    PrivacyAccount(unlimited).charge("a", 10, GUARANTEE)
    with pytest.raises(ArgumentError, match="no limit"):
        PrivacyAccount(unlimited, epsilon=9.0).charge("b", 10, GUARANTEE)


def test_two_that_begin_a_file_at_once_have_one_limit(tmp_path, monkeypatch):
    """The other's first line comes between looking and writing: the first that is on the disk counts."""
    path = tmp_path / "account.jsonl"
    late, begin = PrivacyAccount(path, epsilon=9.0), PrivacyAccount._begin

    def begin_late(account, bound):
        monkeypatch.setattr(PrivacyAccount, "_begin", begin)
        PrivacyAccount(path, epsilon=1.0).charge("first", 10, GUARANTEE)
        begin(account, bound)

    monkeypatch.setattr(PrivacyAccount, "_begin", begin_late)
    with pytest.raises(ArgumentError, match=r"limit epsilon = 1,"):
        late.charge("late", 10, GUARANTEE)
    assert [fit.what for fit in PrivacyAccount(path, epsilon=1.0).fits] == ["first"]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda lines: lines[1:], "an account without terms"),  # whose first line is gone
        (lambda lines: [lines[0].replace('"mu": 0.', '"mu": 1.'), *lines[1:]], "caps"),
        (lambda lines: [lines[0], lines[1].replace('"row"', '"rows"')], "unit"),
        (lambda lines: [lines[0], lines[1].replace('"unit": "row"', '"u": 1')], "unit"),
        (lambda lines: [lines[0], lines[1][:-9]], "line 2"),
        (lambda lines: [lines[0], "7"], "line 2"),
    ],
)
def test_a_file_that_was_edited_or_cut_off_is_refused(tmp_path, edit, said):
    path = tmp_path / "account.jsonl"
    PrivacyAccount(path, epsilon=1.5).charge("a", 10, GUARANTEE)
    path.write_text("\n".join(edit(path.read_text().splitlines())))
    for use in (lambda: PrivacyAccount(path).fits, lambda: PrivacyAccount(path).charge("b", 10, GUARANTEE)):
        with pytest.raises(ArgumentError, match=said):
            use()


def test_an_account_in_a_file_is_shared(tmp_path):
    path = tmp_path / "account.jsonl"
    first, second = PrivacyAccount(path, epsilon=1.5), pickle.loads(pickle.dumps(PrivacyAccount(path, epsilon=1.5)))
    first.charge("a", 10, GUARANTEE)
    assert second.charge("b", 10, GUARANTEE) == 2
    assert first.fits == second.fits
    for _ in range(10):
        with contextlib.suppress(BudgetExceededError):
            second.charge("c", 10, GUARANTEE)
    assert 2 <= len(first.fits) < 12
    plain = by_hand(*[GUARANTEE] * len(first.fits))
    assert plain <= 1.5
    assert plain < PrivacyAccount(path).spent() == first.spent() < 1.5 * plain


def test_secret_lots_are_counted_with_other_fits_and_come_back_from_a_file(tmp_path):
    lots = plan_lots(epsilon=0.5, delta=1e-6, users=10_000, rounds=20, dim=5).guarantee
    account = PrivacyAccount(tmp_path / "account", epsilon=1.0, delta=5e-6)
    account.charge("lots", 10_000, lots)
    account.charge("plain", 10_000, GUARANTEE)
    again = PrivacyAccount(tmp_path / "account", epsilon=1.0, delta=5e-6)
    assert [spent.guarantee for spent in again.fits] == [lots, GUARANTEE]
    assert lots.compose(GUARANTEE).epsilon(5e-6) <= again.spent() < 1.5
    with pytest.raises(BudgetExceededError):
        again.charge("lots again", 10_000, lots)


def test_many_at_once_never_pass_the_limit_together(tmp_path):
    path = tmp_path / "account.jsonl"
    limit = by_hand(*[GUARANTEE] * 5)

    def spend():
        account = PrivacyAccount(path, epsilon=limit * 1.001)
        for _ in range(3):
            with contextlib.suppress(BudgetExceededError):
                account.charge("x", 10, GUARANTEE)

    threads = [threading.Thread(target=spend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= len(PrivacyAccount(path).fits) <= 5


def test_an_account_in_memory_refuses_another_process(people):
    X, score = people
    account = pickle.loads(pickle.dumps(PrivacyAccount()))
    with pytest.raises(BudgetExceededError, match=r"n_jobs=1.*PrivacyAccount\(path\)"):
        ShuffleLogisticRegression(**BINARY, account=account).fit(X, score > 0)


@pytest.fixture(scope="module")
def pipeline(people):
    X, score = people
    steps = (
        Normalizer(),
        FunctionTransformer(),
        ShuffleScaler(epsilon=0.5, feature_range=(-1, 1)),
        ShuffleLogisticRegression(**BINARY, lots="open"),
    )
    return make_pipeline(*steps).fit(X, score > 0)


def test_a_pipeline_composes(pipeline):
    scaler, model = pipeline[-2], pipeline[-1]
    total = total_guarantee(pipeline)
    assert total.epsilon(1e-6) == pytest.approx(by_hand(scaler.guarantee_, model.guarantee_), rel=1e-6)
    assert 1.0 < total.epsilon(1e-6) < 1.5
    assert total_guarantee(model) == model.guarantee_
    assert total_guarantee(make_pipeline(pipeline, "passthrough")).mu == total.mu


def test_a_step_without_guarantee_is_refused(people):
    X, score = people
    pipe = make_pipeline(StandardScaler(), ShuffleLogisticRegression(**BINARY)).fit(X, score > 0)
    with pytest.raises(ArgumentError, match=r"standardscaler.*No guarantee covers.*ShuffleScaler"):
        total_guarantee(pipe)
    assert total_guarantee(pipe, public_steps=("standardscaler",)) == pipe[-1].guarantee_
    seeded = ShuffleLogisticRegression(**BINARY, random_state=0).fit(X, score > 0)
    assert total_guarantee(seeded) is None


def test_steps_must_agree_who_is_a_user(people):
    X, score = people
    pipe = make_pipeline(ShuffleScaler(feature_range=(-1, 1)), ShuffleLogisticRegression(**BINARY))
    groups = np.arange(len(X)) // 2
    pipe.fit(X, score > 0, shufflelogisticregression__groups=groups)
    with pytest.raises(ArgumentError, match=r"n_users_.*groups= to every step"):
        total_guarantee(pipe)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BudgetWarning)
        pipe.fit(X, score > 0, shufflelogisticregression__groups=groups, shufflescaler__groups=groups)
    assert total_guarantee(pipe).epsilon(1e-6) > 1


@pytest.mark.parametrize("kept", ["in memory", "in a file"])
@pytest.mark.parametrize(
    "again",
    [{"guarantee": Guarantee(mu=50.0, slack=1e-9, theorem="a theorem")}, {"guarantee": None}, {"unit": "person"}],
    ids=["more", "seeded", "another unit"],
)
def test_a_run_by_the_name_of_one_that_reveals_less_is_refused(tmp_path, kept, again):
    account = PrivacyAccount(tmp_path / "account" if kept == "in a file" else None, epsilon=1.0)
    charge = {"what": "a model", "users": 100, "guarantee": GUARANTEE, "run": "one run"}
    assert account.charge(**charge) == account.charge(**charge) == 1
    with pytest.raises(ArgumentError, match="run"):
        account.charge(**charge | again)


def test_an_account_says_what_is_left_to_somebody_who_knows_when_each_user_answered(tmp_path):
    """Two routes: the odometer of the single figures by hand, and what is at least that of fits that were fixed beforehand."""
    plain = plan_sum(epsilon=0.5, delta=1e-8, users=10_000, dim=5).guarantee
    lots = plan_lots(epsilon=0.5, delta=1e-8, users=10_000, rounds=20, dim=5).guarantee
    account = PrivacyAccount(tmp_path / "account")
    account.charge("a sum", 10_000, plain)
    assert account.spent_if_watched() == pytest.approx(account.spent())
    assert "somebody" not in str(account)
    account.charge("a fit", 10_000, lots)
    bounds = [gaussian_bound(plain), gaussian_bound(lots.if_watched)]
    expected = odometer(bounds, 1e-6, first_cap(bounds[0]))
    again = PrivacyAccount(tmp_path / "account")
    assert again.spent_if_watched() == pytest.approx(expected)
    assert again.spent_if_watched() >= plain.compose(lots).if_watched.epsilon(1e-6) > again.spent()
    figure = re.search(r"knows when each user answered epsilon = ([\d.]+)", str(again))
    assert expected <= float(figure[1]) <= 1.01 * expected
    limited = PrivacyAccount(epsilon=2.0, delta=1e-6)
    limited.charge("a fit", 10_000, lots)
    assert "knows when each user answered epsilon" in str(limited)
    few = plan_lots(epsilon=1.0, delta=1e-8, users=100, rounds=20, dim=5).guarantee
    account.charge("a fit", 100, few)
    assert account.spent_if_watched() == float("inf")
    assert "knows when each user answered no promise" in str(account)


def test_the_warning_of_a_second_fit_names_both_totals(people):
    X, score = people
    model = ShuffleLogisticRegression(**BINARY, lots="secret", rounds=5).fit(X, score > 0)
    with pytest.warns(BudgetWarning, match=r"together epsilon = .*knows when each user answered epsilon = "):
        clone(model).fit(X, score > 0)


def test_an_account_that_promises_nothing_says_so_in_words():
    """Slacks above a quarter of delta: it said "epsilon = inf"."""
    account = PrivacyAccount(delta=1e-9)
    account.charge("a fit", 1_000, Guarantee(mu=0.2, slack=1e-8, theorem="a theorem"))
    assert "together no promise at delta = 1e-09" in str(account)
    assert "inf" not in str(account)


@pytest.mark.parametrize("fits", [0, 1])
def test_a_delta_is_no_part(fits):
    """`spent` took a delta once; one that is chosen after looking proves nothing."""
    account = PrivacyAccount()
    for _ in range(fits):
        account.charge("a fit", 1_000, GUARANTEE)
    with pytest.raises(ArgumentError, match=r"part = 1e-05 .* fixed before the first fit"):
        account.spent(1e-5)


def test_a_run_is_not_the_same_with_other_neighbours_or_open_lots():
    """By its name it would not be charged again: what the other promise reveals more was counted nowhere."""
    account, plan = PrivacyAccount(), plan_lots(epsilon=1.0, delta=1e-7, users=10_000, rounds=20, dim=5)
    account.charge("a fit", 1_000, GUARANTEE, "one")
    with pytest.raises(ArgumentError, match="run = 'one'"):
        account.charge("a fit", 1_000, replace(GUARANTEE, neighbours="zero-out"), "one")
    told = gaussian_bound(plan.guarantee)
    account.charge("a fit", 10_000, Guarantee(mu=told.mu, slack=told.slack, theorem="open lots"), "two")
    with pytest.raises(ArgumentError, match="run = 'two'"):
        account.charge("a fit", 10_000, plan.guarantee, "two")
    assert account.charge("a fit", 1_000, GUARANTEE, "one") == 2
