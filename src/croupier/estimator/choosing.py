"""`choose`: the best of several settings by one private round on people who were set aside, and what that costs in all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from ..files import Figures
from ..population import Query
from ..privacy import Guarantee, SumPlan
from ..privacy import _statements as words
from ..privacy.gaussian import gaussian_mu
from ..privacy.plan import default_delta
from ..protocol import SumEstimate
from ..statistics import Answer, ask
from ..statistics._holdout import HoldOut
from ..statistics.asking import plan_for
from ..statistics.describing import part_of
from ..statistics.evaluating import evaluation_query
from ..statistics.histogram import Score
from ..validation import ArgumentError, Found, real, whole
from .account import PrivacyAccount

Floats = NDArray[np.float64]
# Parts of delta: of all fits together, of the evaluation, and what a Gaussian that covers secret lots may leave out.
_OF_FITS, _OF_SCORES, _COVER = 0.5, 0.9, 0.01
MOST = 1_000


@dataclass(frozen=True)
class Contest(Query):
    """How good each of several models is: a record has one score for each, between 0 and 1; NaN counts as 1/2.

    A vector is the scores less 1/2, so two differ by at most 1 in each coordinate: norm sqrt(K) / 2, diameter sqrt(K).
    """

    names: tuple[str, ...]
    blanks = True
    parallel = True

    @property
    def dim(self) -> int:
        return len(self.names)

    @property
    def norm(self) -> float:
        return math.sqrt(len(self.names)) / 2 * (1 + 1e-12)

    @property
    def diameter(self) -> float:
        return 2 * self.norm

    def check_records(self, X: Any, y: Any) -> None:
        if X.shape[1] != len(self.names):
            raise ArgumentError("scores", Found(f"has {X.shape[1]} columns"), f"{len(self.names)}", "One column per candidate.")

    def __call__(self, X: Any, y: Any) -> Floats:
        return np.clip(np.nan_to_num(np.asarray(X, dtype=np.float64), nan=0.5), 0.0, 1.0) - 0.5

    def decode(self, estimate: SumEstimate) -> dict[str, Score]:
        """Each candidate's mean score with its error bar: sampling at its largest for that mean, and noise."""
        found = {}
        for name, mean in zip(self.names, (estimate.mean + 0.5).tolist(), strict=True):
            inside = min(max(mean, 0.0), 1.0)
            std = math.hypot(estimate.mean_noise_std, math.sqrt(inside * (1 - inside) / estimate.users))
            found[name] = Score(mean, std, None, 0.0, 1.0)
        return found


@dataclass(frozen=True, eq=False)
class Choice(Figures):
    """The best of several models by a private evaluation, and how sure that is.

    `best`: The name of the candidate with the highest score. `models`: All candidates, fitted, by name. `answer`: The private
    evaluation; its value are the scores. `fits`: What fits reveal about a person who was not set aside; None if nothing was fitted
    here, or it is NOT private. `promise`: What holds for everybody, in words. `model`: The chosen one. `scores`: Accuracy of
    classifiers; of regressors 1 less the squared error, in units of the squared width of the target's range. `guarantee`: What fits
    and evaluation together reveal about anybody: nobody is in both. None if it is NOT private.

    Guarantee
    ---------
    `guarantee`, for each user, for all models and all scores together.
    """

    best: str
    models: dict[str, Any]
    answer: Answer
    fits: Guarantee | None = field(repr=False)
    promise: str

    @property
    def model(self) -> Any:
        """The chosen one."""
        return self.models[self.best]

    @property
    def scores(self) -> dict[str, Score]:
        """Each candidate's score with its error bar."""
        scores: dict[str, Score] = self.answer.value
        return scores

    @property
    def guarantee(self) -> Guarantee | None:
        """What fits and evaluation together reveal about anybody."""
        scored: Guarantee | None = self.answer.guarantee
        return scored if scored is None or self.fits is None else together(self.fits, scored, self.answer.plan.delta)

    def within(self, points: float, *, of_these_people: bool = False) -> float:
        """Return how probable it is, at least, that the chosen candidate is at most this many points below the best.

        A candidate that is worse by more is chosen only if the difference of two errors is as large, once for each of the others.
        Returns a lower bound.

        `points`: In hundredths of the score: 1 for one per cent of accuracy. `of_these_people`: Whether the best is meant for the
        people who were asked, rather than for people like them.
        """
        real("points", points, at_least=0, remedy="1 is one per cent of accuracy.")
        noise, users = self.answer.estimate.mean_noise_std, self.answer.users
        missed = 0.0
        for name, score in self.scores.items():
            if name != self.best:
                # scores differ by at most 1, and only where one of them is below 1, and one is above 0
                both = score.value + self.scores[self.best].value
                sampling = 0.0 if of_these_people else min(both, 2 - both, 1.0) / users
                missed += float(ndtr(-points / 100 / math.sqrt(2 * noise**2 + sampling)))
        return max(0.0, 1 - missed)

    def to_dict(self) -> dict[str, Any]:
        """Return the scores with error bars, how sure the choice is, and the guarantee, in plain JSON types: "best", "users",
        "scores", "within", by points, and "guarantee", which is None if the choice is NOT private."""
        scores = {name: {"value": score.value, "std": score.std} for name, score in self.scores.items()}
        within = {f"{points:g}": self.within(points) for points in (0.5, 1.0, 2.0, 5.0)}
        guarantee = self.guarantee.to_dict() if self.guarantee else None
        return {"best": self.best, "users": self.answer.users, "scores": scores, "within": within, "guarantee": guarantee}

    def figures(self) -> list[dict[str, Any]]:
        """Return one row per candidate, the best first: "candidate", "score" and "std"."""
        ranked = sorted(self.scores.items(), key=lambda item: -item[1].value)
        return [{"candidate": name, "score": score.value, "std": score.std} for name, score in ranked]

    def __str__(self) -> str:
        lines = [f"{self.best}, of {len(self.models)} candidates; {self.promise}"]
        for name, score in sorted(self.scores.items(), key=lambda item: -item[1].value):
            lines.append(f"{name:30} {score.value:.4f} +- {1.96 * score.std:.4f}")
        lines.append(f"within 1 point of the best with probability at least {self.within(1.0):.2f}")
        return "\n".join(lines)


def choose(
    candidates: Any,
    data: Any,
    *,
    epsilon: float,
    delta: float | None = None,
    share: float | None = 0.2,
    honest: float = 1.0,
    seed: int | None = None,
    account: PrivacyAccount | None = None,
) -> Choice:
    """Choose among settings: fit each on most of the people, and ask the others once which is best.

    Fits of all candidates see the same people, so each has a part of epsilon, such that all together keep it. Nobody who is asked
    for the evaluation was fitted on.

    Parameters
    ----------
    candidates : mapping of str to estimator, or iterable of estimators
        Estimators of this package, of one kind of target, with everything but epsilon and delta. With `share` = None fitted ones.
    data : tuple of (X, y)
        Rows and targets, one per person.
    epsilon : float
        Epsilon of the promise to everybody, for all of it.
    delta : float, optional
        Below 1 / users. Default: 1e-6, or 0.1 / users if that is less.
    share : float or None, default 0.2
        The share of the people that is set aside for the evaluation. None asks everybody about models that were fitted on others.
    honest : float, default 1.0
        Fraction of the users whose noise is counted on in the evaluation; fits have their own.
    seed : int, optional
        Fixes noise and who is set aside, for tests: the choice is NOT private.
    account : PrivacyAccount, optional
        Charged for all of it before anybody is asked: fits on one part of the people, the evaluation on the other.

    Returns
    -------
    Choice
        The best model, all scores, and how sure the choice is.

    Raises
    ------
    ArgumentError
        A bad argument or bad records; nobody was asked, and nothing was spent.

    Guarantee
    ---------
    (epsilon, delta) for each user, for all fitted models and all scores together. A person who is set aside is asked for the
    evaluation alone, everybody else for the fits alone, and who is which does not depend on records.

    Examples
    --------
    >>> import numpy as np, croupier as cr
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.5, 0.5, size=(20_000, 3))
    >>> y = (X @ [1.0, 2.0, 0.0] + 0.1 * rng.normal(size=20_000) > 0).astype(int)
    >>> settings = {f"radius {r}": cr.ShuffleLogisticRegression(classes=[0, 1], feature_norm=1.0, radius=r) for r in (0.1, 10.0)}
    >>> choice = cr.choose(settings, (X, y), epsilon=2.0, delta=1e-6)
    >>> choice.guarantee.delta(2.0) <= 1e-6, len(choice.scores)
    (True, 2)
    """
    named = _named(candidates)
    X, y = _records(data)
    users = len(y)
    delta = default_delta(users) if delta is None else real("delta", delta, above=0, below=1 / users, remedy="Choose much less.")
    if account is not None and not isinstance(account, PrivacyAccount):
        raise ArgumentError("account", account, "a PrivacyAccount", "For a file: PrivacyAccount(path).")
    if seed is not None:
        whole("seed", seed, at_least=0, remedy="Leave it out: a seed makes the choice reproducible, NOT private.")
    query = Contest(tuple(named))
    aside, fits = None, None
    settings: dict[str, Any] = {}
    asked = np.ones(users, dtype=bool)
    if share is not None:
        aside = HoldOut.fresh(share) if seed is None else HoldOut(share, f"{seed:032x}"[-32:])
        asked = aside.places(0, users)
    else:
        _require_fitted(named)
    rest, count = ~asked, int(asked.sum())
    if count < 2 or (share is not None and rest.sum() < 2):
        raise ArgumentError("share", share, "one that leaves at least two people on each side", "Choose another share.")
    plan = plan_for(query, count, epsilon=epsilon, delta=_OF_SCORES * delta if share is not None else delta, honest=honest)
    if share is not None:
        settings, fits = _within_promise(named, int(rest.sum()), X.shape[1], epsilon, delta, plan)
    _check_targets(named if share is None else settings, X, y)
    if account is not None:
        part = None if aside is None else part_of(aside, users, None)
        if fits is not None and part is not None:
            account.charge(f"choose: {len(named)} fits", int(rest.sum()), None if seed is not None else fits, part=part.other)
        account.charge("choose: scores", count, None if seed is not None else plan.guarantee, part=part)
    models = named if share is None else _fitted(settings, X[rest], y[rest], seed)
    scores = np.column_stack([scores_of(model, X[asked], y[asked]) for model in models.values()])
    answer = ask(query, scores, epsilon=epsilon, delta=plan.delta, honest=honest, seed=seed)
    return chosen(models, answer, fits, delta)


def chosen(models: dict[str, Any], answer: Answer, fits: Guarantee | None = None, delta: float | None = None) -> Choice:
    """The choice that an answer to `Contest` means."""
    plan = answer.plan
    best = max(answer.value, key=lambda name: float(answer.value[name].value))
    promise = words.brief(plan.epsilon, plan.delta if delta is None else delta, plan.neighbours)
    promise = promise if answer.private else f"NOT PRIVATE ({words.SEEDED})"
    return Choice(best, models, answer, fits if answer.private else None, promise)


def together(fits: Guarantee, scored: Guarantee, delta: float) -> Guarantee:
    """The guarantee of fits and of an evaluation of other people: both as Gaussians, the worse of each figure."""
    return fits.as_gaussian(_COVER * delta).worst_of(scored)


def scores_of(model: Any, X: Any, y: Any) -> Floats:
    """Each record's score, between 0 and 1: whether a classifier is right; of a regressor 1 less the squared error in the range."""
    if hasattr(model, "classes_"):
        return np.asarray(np.asarray(model.predict(X)) == y, dtype=np.float64)
    query: Any = evaluation_query(model)
    width = query.high - query.low
    errors = (np.clip(np.asarray(model.predict(X), dtype=np.float64).ravel(), query.low, query.high) - y) / width
    return np.asarray(1 - np.clip(errors, -1, 1) ** 2)


def _named(candidates: Any) -> dict[str, Any]:
    if not isinstance(candidates, Mapping):
        if not isinstance(candidates, Iterable) or isinstance(candidates, str):
            raise ArgumentError("candidates", candidates, "a mapping from names to estimators", "Name each setting.")
        found = list(candidates)
        candidates = {f"candidate {number + 1}": model for number, model in enumerate(found)}
    if not 2 <= len(candidates) <= MOST:
        raise ArgumentError("candidates", len(candidates), f"2 to {MOST} of them", "There is nothing to choose among fewer.")
    for name, model in candidates.items():
        if not hasattr(model, "predict"):
            raise ArgumentError(f"candidates[{name!r}]", type(model).__name__, "an estimator", "Use Shuffle... estimators.")
    return {str(name): model for name, model in candidates.items()}


def _records(data: Any) -> tuple[Any, NDArray[Any]]:
    if not isinstance(data, tuple) or len(data) != 2:
        raise ArgumentError("data", type(data).__name__, "(X, y)", "Pass rows and targets.")
    X, y = np.asarray(data[0]), np.asarray(data[1])
    if X.ndim != 2 or y.shape != (len(X),) or X.dtype.kind not in "biuf":
        raise ArgumentError("data", Found(f"has the shapes {X.shape} and {y.shape}"), "(users, features) and (users,)", "Check it.")
    if not np.isfinite(X).all():
        raise ArgumentError("data", Found("contains NaN or infinity"), "finite numbers", "Impute or drop them; nobody was asked.")
    return X, y


def _require_fitted(named: Mapping[str, Any]) -> None:
    for name, model in named.items():
        try:
            check_is_fitted(model)
        except (NotFittedError, TypeError):
            remedy = "State a share of the people to set aside; candidates are fitted on the others."
            raise ArgumentError(
                f"candidates[{name!r}]", Found("is not fitted"), "a fitted estimator where share is None", remedy
            ) from None


def _check_targets(named: Mapping[str, Any], X: Any, y: NDArray[Any]) -> None:
    """Refuse targets that a candidate does not take, before anything is spent."""
    for name, model in named.items():
        classes = getattr(model, "classes_", getattr(model, "classes", None))
        if classes is not None and not np.isin(y, np.asarray(classes)).all():
            raise ArgumentError("data", Found("has an undeclared label"), f"labels that {name!r} declares", "Declare all classes.")
        if classes is None and y.dtype.kind not in "biuf":
            raise ArgumentError("data", Found("has a target that is not a number"), "numbers", "Nobody was asked.")


def _within_promise(
    named: Mapping[str, Any], users: int, features: int, epsilon: float, delta: float, scores: SumPlan
) -> tuple[dict[str, Any], Guarantee]:
    """Candidates with an epsilon and a delta each, such that all fits together keep the promise beside the evaluation."""
    for name, model in named.items():
        if not hasattr(model, "plan"):
            raise ArgumentError(f"candidates[{name!r}]", type(model).__name__, "an estimator of this package", "Use Shuffle...")
        for field_name, of in (("random_state", "seed"), ("account", "account")):  # one for all fits and the evaluation
            if getattr(model, field_name, None) is not None:
                remedy = f"Leave it out, and pass {of}= to choose."
                raise ArgumentError(f"candidates[{name!r}].{field_name}", Found("is given"), "None", remedy)
    count, each = len(named), _OF_FITS * delta / len(named)
    most = gaussian_mu(epsilon, delta) / math.sqrt(count)
    low, high = 0.0, epsilon
    for _ in range(60):  # the epsilon of one Gaussian fit whose mu is this part of the whole
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_mu(middle, each) <= most else (low, middle)
    part = low
    for _ in range(40):
        settings = {
            name: clone(model).set_params(epsilon=part, delta=each, account=PrivacyAccount()) for name, model in named.items()
        }
        plans = [model.plan(users, features).guarantee for model in settings.values()]
        fits = plans[0].compose(*plans[1:])
        if together(fits, scores.guarantee, scores.delta).delta(epsilon) <= delta:
            return settings, fits
        part *= 0.96
    raise ArgumentError("epsilon", epsilon, f"enough for {count} fits", "Choose among fewer candidates.")


def _fitted(settings: Mapping[str, Any], X: Any, y: NDArray[Any], seed: int | None) -> dict[str, Any]:
    for number, model in enumerate(settings.values()):
        if seed is not None:
            model.set_params(random_state=seed + number)
        model.fit(X, y)
    return dict(settings)
