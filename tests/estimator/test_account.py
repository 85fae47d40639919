"""What fits spend together: searches warn, accounts count, limits hold, pipelines compose."""

from __future__ import annotations

import contextlib
import copy
import pickle
import threading
import warnings

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
from croupier.privacy import Guarantee, plan_lots
from croupier.privacy.ledger import BudgetExceededError
from croupier.validation import ArgumentError

BINARY = {"classes": [False, True]}
GUARANTEE = Guarantee(mu=0.2, slack=1e-9, theorem="a theorem")


def by_hand(*guarantees):
    """epsilon at 1e-6 by the definition: squares of mu and slacks add up."""
    mu = np.sqrt(sum(g.mu**2 for g in guarantees))
    return Guarantee(mu=float(mu), slack=sum(g.slack for g in guarantees), theorem="by hand").epsilon(1e-6)


def test_a_search_warns_with_default_arguments(people):
    X, score = people
    with pytest.warns(BudgetWarning, match="Tuning on private data.*PrivacyAccount.*held-out") as caught:
        GridSearchCV(ShuffleLogisticRegression(**BINARY), {"radius": [5.0, 50.0]}, cv=2).fit(X, score > 0)
    fits = [str(w.message).split("fit ")[1].split()[0] for w in caught]
    assert fits == ["2", "4"]  # of 5: loud, but a search of a hundred stays readable
    with pytest.warns(BudgetWarning):
        cross_val_score(ShuffleLogisticRegression(**BINARY), X, score > 0, cv=2)


def test_a_second_fit_warns_and_a_first_does_not(people):
    X, score = people
    model = ShuffleLogisticRegression(**BINARY)
    model.fit(X, score > 0)  # warnings are errors here
    with pytest.warns(BudgetWarning, match=r"fit 2 of it and its clones.*together epsilon = 1\.4"):
        clone(model).fit(X, score > 0)
    with pytest.warns(BudgetWarning, match="with other neighbours, are not counted"):
        clone(model).set_params(neighbours="zero-out").fit(X, score > 0)


def test_a_copy_from_a_pickle_warns(people):
    X, score = people
    model = pickle.loads(pickle.dumps(ShuffleLogisticRegression(**BINARY)))
    clone(model)
    with pytest.warns(BudgetWarning, match="another process"):
        pickle.loads(pickle.dumps(clone(ShuffleLogisticRegression(**BINARY).fit(X, score > 0)))).fit(X, score > 0)


def test_an_account_counts_every_fit_of_a_search_without_a_warning(people):
    X, score = people
    account = PrivacyAccount()
    model = ShuffleLogisticRegression(**BINARY, account=account)
    search = GridSearchCV(model, {"epsilon": [0.5, 1.0]}, cv=3).fit(X, score > 0)
    assert len(account.fits) == 7
    assert [fit.users for fit in account.fits[:6]] == [3333, 3333, 3334] * 2
    assert account.fits[-1].guarantee == search.best_estimator_.guarantee_
    assert account.spent(1e-6) == pytest.approx(by_hand(*(fit.guarantee for fit in account.fits)), rel=1e-6)
    assert account.spent() > 2
    assert "7 fits, together epsilon = " in str(account)
    assert copy.deepcopy(account) is account
    assert clone(model).account is account


def test_a_limit_refuses_before_anybody_is_asked(people):
    X, score = people
    account = PrivacyAccount(epsilon=1.2, delta=1e-6)
    model = ShuffleLogisticRegression(**BINARY, account=account).fit(X, score > 0)
    kept = model.guarantee_
    with pytest.raises(BudgetExceededError, match=r"with this fit, 2 on this account.*Nobody was asked"):
        clone(model).fit(X, score > 0)
    assert [fit.guarantee for fit in account.fits] == [kept]
    clone(model).set_params(epsilon=0.3).fit(X, score > 0)  # a smaller one still fits in
    assert account.guarantee.delta(1.2) <= 1e-6
    with pytest.raises(ArgumentError, match="epsilon"):
        PrivacyAccount(epsilon=0)


def test_seeded_fits_make_an_account_not_private(people):
    X, score = people
    account = PrivacyAccount()
    ShuffleLogisticRegression(**BINARY, account=account, random_state=0).fit(X, score > 0)
    assert account.guarantee is None
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
    assert first.guarantee.delta(1.5) <= 1e-6
    assert PrivacyAccount(path).spent() == pytest.approx(by_hand(*[GUARANTEE] * len(first.fits)), rel=1e-6)


def test_secret_lots_are_counted_with_other_fits_and_come_back_from_a_file(tmp_path):
    lots = plan_lots(epsilon=0.5, delta=1e-6, users=10_000, rounds=20, dim=5).guarantee
    account = PrivacyAccount(tmp_path / "account", epsilon=1.0, delta=5e-6)
    account.charge("lots", 10_000, lots)
    account.charge("plain", 10_000, GUARANTEE)
    again = PrivacyAccount(tmp_path / "account", epsilon=1.0, delta=5e-6)
    assert again.guarantee == lots.compose(GUARANTEE)
    assert 0.5 < again.spent() <= 1.0
    assert again.guarantee.if_watched.epsilon(5e-6) > 2 * again.spent()
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
        ShuffleLogisticRegression(**BINARY),
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
    with pytest.raises(ArgumentError, match=r"standardscaler.*not covered.*ShuffleScaler"):
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
