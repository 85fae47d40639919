"""Linear models: a loss of the scores over a domain, with the constants that schedules and privacy need.

All constants come from public facts (feature_norm, the domain, the loss's own parameters), never from data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack, issparse
from scipy.special import expit

from ..arithmetic import ConstantBeside, LinearVectors, in_single, row_dots, row_squares, single_tells, turned_rows
from ..validation import ArgumentError, Found, RecordError, real
from .classification import Logistic, Weighted
from .custom import CustomProblem, fingerprint, is_known
from .domains import Domain, Floats
from .loss import Loss

__all__ = [
    "CustomProblem",
    "Objective",
    "Problem",
    "Smoothed",
]


# What an optimizer minimises, as it sees it.


class Objective(Protocol):
    """Per-user functions over a domain, as an optimizer sees them: gradients, and three constants.

    `Problem`, `Smoothed` and `CustomProblem` are objectives.

    Guarantee
    ---------
    Privacy does not rest on the constants: every gradient is clipped to `lipschitz`, whatever is stated. It does rest on
    `gradients` mapping each user's record alone.
    """

    @property
    def domain(self) -> Domain:
        """Where theta may lie."""
        ...

    @property
    def dim(self) -> int:
        """The number of parameters."""
        ...

    @property
    def lipschitz(self) -> float:
        """A bound on the l2 norm of every user's gradient; longer ones are clipped to it."""
        ...

    @property
    def smoothness(self) -> float | None:
        """A bound on how fast every user's gradient changes; None for a nonsmooth loss."""
        ...

    @property
    def strong_convexity(self) -> float:
        """How strongly convex every user's function is at least; 0 where it is merely convex."""
        ...

    def gradients(self, theta: Floats, X: Any, y: Any) -> Floats:
        """Give the gradient of every user's function at theta.

        Parameters
        ----------
        theta : numpy.ndarray of shape (dim,)
            The parameters.
        X, y : array_like
            The records, one row of X and one entry of y per user.

        Returns
        -------
        numpy.ndarray of shape (users, dim)
            One gradient per user.
        """
        ...


# What every user does to its own row, in training and in prediction alike: scale it down to the public norm, add the constant.


def clip_rows(X: Any, norm: float) -> Any:
    """X with every row longer than `norm` by a part in a million scaled down to it; a map of each row alone.

    Dense or CSR, as it came, and of the precision that it came in, where that can tell lengths about the norm.
    """
    if X.dtype == np.float32 and not single_tells(norm):
        X = X.astype(np.float64)
    long = too_long(row_squares_of(X), norm)
    return scaled_down(X, long, norm) if long.any() else X


def too_long(squares: Floats, norm: float, slack: float = 0.0) -> NDArray[np.bool_]:
    """Which rows, of these squared lengths, are longer than `norm` by more than a part in a million; NaN counts as too long.

    `slack` is the relative error of the squares up to which a row still counts as short enough.
    """
    return np.asarray(~(np.sqrt(squares) <= norm * (1 + 1e-6) * math.sqrt(1 + slack)))


def scaled_down(X: Any, long: NDArray[np.bool_], norm: float) -> Any:
    """X with these rows scaled to the length `norm`, of whatever size they are; dense or CSR, and of the precision it came in."""
    rows = X[long].astype(np.float64)
    _scale(rows, 1 / _dense(np.abs(rows).max(axis=1)))  # squares of huge numbers overflow
    _scale(rows, norm / row_norms(rows))
    scaled = X.copy()
    if issparse(X):
        scaled.data[np.repeat(long, np.diff(X.indptr))] = rows.data
    else:
        scaled[long] = rows
    return scaled


def with_constant(X: Any, constant: float) -> Any:
    """X with one more column, the same for everybody: the intercept's."""
    if not issparse(X):
        return ConstantBeside(X, constant).toarray()
    return hstack([X, csr_array(np.full((X.shape[0], 1), constant, dtype=X.dtype))], format="csr")


def row_norms(X: Any) -> Floats:
    """The length of every row, dense or sparse."""
    return np.sqrt(row_squares_of(X))


def row_squares_of(X: Any) -> Floats:
    """The squared length of every row, dense or sparse; infinite if it cannot be told."""
    with np.errstate(over="ignore"):  # infinite is longer than any norm, which is all that is asked
        return _dense(X.multiply(X).sum(axis=1)) if issparse(X) else row_squares(X)


def _scale(rows: Any, factors: Floats) -> None:
    """Each row times its factor, in place."""
    if issparse(rows):
        rows.data *= np.repeat(factors, np.diff(rows.indptr))
    else:
        rows *= factors[:, np.newaxis]


def _dense(column: Any) -> Floats:
    return np.asarray(column.toarray() if issparse(column) else column, dtype=np.float64).ravel()


# The Moreau envelope of a problem's losses, which is smooth where they are not.


@dataclass(frozen=True)
class Smoothed:
    """The beta-Moreau envelope of a problem's losses (Lemma 4.6): convex, beta-smooth, as steep as the problem (erratum 4).

    `problem`: Whose losses are smoothed, the regulariser included. `beta`: The smoothness of the envelope, above 0: larger is
    closer to the loss.
    """

    problem: Problem
    beta: float

    def __post_init__(self) -> None:
        real("beta", self.beta, above=0, remedy="Larger is closer to the loss and less smooth.")

    @property
    def domain(self) -> Domain:
        """Where theta may lie."""
        return self.problem.domain

    @property
    def dim(self) -> int:
        """The number of parameters."""
        return self.domain.dim

    @property
    def lipschitz(self) -> float:
        """A bound on the l2 norm of every user's gradient: that of the problem."""
        return self.problem.lipschitz

    @property
    def smoothness(self) -> float:
        """A bound on how fast every user's gradient changes: beta."""
        return self.beta

    @property
    def strong_convexity(self) -> float:
        """How strongly convex every user's envelope is at least; 0 where the problem is merely convex."""
        strong = self.problem.strong_convexity
        return strong * self.beta / (strong + self.beta)

    @property
    def bias(self) -> float:
        """How far the envelope may lie below the loss: L^2 / (2 beta)."""
        return self.lipschitz**2 / (2 * self.beta)

    def gradients(self, theta: Floats, X: Any, y: Any) -> Floats:
        """Give the gradient of every user's envelope at theta."""
        return self.problem.moreau_gradients(theta, X, y, self.beta)

    def linear_gradients(self, theta: Floats, X: Any, y: Any) -> LinearVectors:
        """Give the same gradients as slopes times features, which takes less memory."""
        return self.problem.linear_moreau_gradients(theta, X, y, self.beta)


@dataclass(frozen=True)
class Problem:
    """A linear model: loss(<theta, x>, y) + (l2 / 2) ||theta||^2 over a domain, for features of norm at most `feature_norm`.

    Rows longer than `feature_norm` are scaled down to it on the user's side.

    Parameters
    ----------
    loss : Loss
        The loss of a user's score.
    domain : Domain
        Where theta may lie; its dim is the number of features times the loss's outputs.
    feature_norm : float, default 1.0
        A public bound on the l2 norm of a row of X, above 0.
    l2 : float, default 0.0
        The weight of the regulariser, at least 0. Above 0 the problem is strongly convex.
    constant : float, default 0.0
        The last entry of every row, where it is an intercept's and so the same for everybody; 0 where there is none. Rules that
        centre rows need it.

    Raises
    ------
    ArgumentError
        If an argument is out of its range, domain.dim is not a multiple of the loss's outputs, or gradients have no public bound.

    Guarantee
    ---------
    All constants follow from these arguments, never from data.

    Examples
    --------
    >>> from croupier.problem import Ball, Logistic, Problem
    >>> problem = Problem(loss=Logistic(), domain=Ball(dim=20, radius=10.0), feature_norm=1.0)
    >>> round(problem.lipschitz, 4), problem.smoothness, problem.strong_convexity
    (1.0, 0.25, 0.0)
    """

    loss: Loss
    domain: Domain
    feature_norm: float = 1.0
    l2: float = 0.0
    constant: float = 0.0

    def __post_init__(self) -> None:
        for name, kind in (("loss", Loss), ("domain", Domain)):
            if not isinstance(getattr(self, name), kind):
                raise ArgumentError(
                    name,
                    getattr(self, name),
                    f"a {kind.__name__}",
                    "For example loss=Logistic(), domain=Ball(dim=20, radius=10.0).",
                )
        remedy = "State a public bound on the l2 norm of a row of X."
        real("feature_norm", self.feature_norm, above=0, at_most=1e100, remedy=remedy)
        real("l2", self.l2, at_least=0, remedy="0 is no regularisation.")
        remedy = "It is the last entry of every row, so less than feature_norm; leave it out where rows have none."
        real("constant", self.constant, at_least=0, below=self.feature_norm, remedy=remedy)
        if self.domain.dim % self.loss.outputs:
            raise ArgumentError(
                "domain.dim",
                self.domain.dim,
                f"a multiple of the loss's {self.loss.outputs} outputs",
                "theta holds one row of weights per class: dim = classes x features.",
            )
        if not math.isfinite(self.lipschitz):
            raise ArgumentError(
                "domain",
                self.domain,
                "bounded for this loss or with l2 > 0",
                "Use Ball or Box: the gradient must have a public bound.",
            )

    @property
    def dim(self) -> int:
        """The number of parameters: features times the loss's outputs."""
        return self.domain.dim

    @property
    def features(self) -> int:
        """The number of columns of X."""
        return self.dim // self.loss.outputs

    @property
    def lipschitz(self) -> float:
        """A bound on the l2 norm of every user's gradient, the regulariser's included."""
        return self._loss_lipschitz + (self.l2 * self.domain.norm_bound if self.l2 else 0.0)

    @property
    def _loss_lipschitz(self) -> float:
        return self.loss.slope_bound(self.feature_norm * self.domain.norm_bound) * self.feature_norm

    @property
    def smoothness(self) -> float | None:
        """A bound on how fast every user's gradient changes, the regulariser's included; None for a nonsmooth loss."""
        return None if self.loss.curvature is None else self.loss.curvature * self.feature_norm**2 + self.l2

    @property
    def strong_convexity(self) -> float:
        """How strongly convex every user's function is at least: l2."""
        return self.l2

    @property
    def usual_lipschitz(self) -> float:
        """The steepest gradient at theta = 0: few users have a steeper one once the model is any good."""
        return min(self.lipschitz, self.loss.slope_bound(0.0) * self.feature_norm + (self.lipschitz - self._loss_lipschitz))

    @property
    def usual_smoothness(self) -> float | None:
        """Smoothness of the mean loss as real data show it; see `Loss.usual_curvature`."""
        usual = self.loss.usual_curvature
        if usual is None:
            return None
        square = self.feature_norm**2
        if self.loss.curvature is None and self.domain.norm_bound > 0:
            # scores that fill less than [-2, 2] are for targets that fill less than [-1, 1]
            square = max(square, 2 * self.feature_norm / self.domain.norm_bound)
        return usual * square + self.l2

    def losses(self, theta: Floats, X: Any, y: Any) -> Floats:
        """Give the loss of each user at theta, the regulariser included.

        Parameters
        ----------
        theta, X, y : array_like
            As in `gradients`.

        Returns
        -------
        numpy.ndarray of shape (users,)
            The losses.
        """
        rows, _, targets = self._records(X, y)
        return self.loss.value(self._scores(theta, rows), targets) + self.l2 / 2 * float(theta @ theta)

    @property
    def fingerprint(self) -> str:
        """Tells this problem from others, in any process."""
        own = [fingerprint(part) for part in (self.loss, self.domain) if not is_known(type(part))]
        return " ".join([repr(self), *own])

    def check_records(self, X: Any, y: Any) -> None:
        """Refuse records of another shape, and labels or targets that the loss does not take.

        Parameters
        ----------
        X : numpy.ndarray or sparse matrix of shape (users, features)
            One row of features per user.
        y : numpy.ndarray of shape (users,) or None
            One label or target per user.

        Raises
        ------
        ArgumentError
            If y is missing, or X has another number of columns.
        RecordError
            If the loss does not take a label or target.
        """
        self.check_shape(X, y)
        self.loss.targets(y)

    def check_shape(self, X: Any, y: Any) -> None:
        """Refuse records without targets or with another number of columns: what is wrong whatever is in them.

        Parameters
        ----------
        X, y : numpy.ndarray
            As in `check_records`.

        Raises
        ------
        ArgumentError
            If y is missing, or X has another number of columns.
        """
        if y is None:
            raise ArgumentError("data", Found("is X alone"), "(X, y) for this loss", "Pass the labels or targets.")
        if X.shape[1] != self.features:
            remedy = f"Make the domain's dim {self.loss.outputs} x the columns of X, or drop columns."
            raise ArgumentError("X.shape", X.shape, f"(users, {self.features}) for this problem", remedy)

    def gradients(self, theta: Floats, X: Any, y: Any) -> Floats:
        """Give the gradient of every user's loss at theta, the regulariser's included.

        Parameters
        ----------
        theta : numpy.ndarray of shape (dim,)
            The parameters.
        X : array_like of shape (users, features)
            One row of features per user; rows longer than `feature_norm` are scaled down to it.
        y : array_like of shape (users,)
            One label or target per user.

        Returns
        -------
        numpy.ndarray of shape (users, dim)
            One gradient per user.

        Raises
        ------
        ArgumentError
            Where X or y has another shape, or is not made of numbers.
        RecordError
            If a feature is not finite, or the loss does not take a label or target.
        """
        return np.asarray(self.linear_gradients(theta, X, y))

    def linear_gradients(self, theta: Floats, X: Any, y: Any) -> LinearVectors:
        """Give the same gradients as slopes times features, which takes less memory.

        Parameters
        ----------
        theta, X, y : array_like
            As in `gradients`.

        Returns
        -------
        LinearVectors
            One gradient per user.
        """
        rows, squares, targets = self._records(X, y)
        return self._linear(rows, squares, self.loss.slope(self._scores(theta, rows), targets), theta)

    def moreau_gradients(self, theta: Floats, X: Any, y: Any, beta: float) -> Floats:
        """Give the gradients of the beta-Moreau envelopes: beta (theta - prox(theta)), without constraint (Lemma 4.6).

        Parameters
        ----------
        theta, X, y : array_like
            As in `gradients`.
        beta : float
            The smoothness of the envelope, above 0: larger is closer to the loss.

        Returns
        -------
        numpy.ndarray of shape (users, dim)
            One gradient per user.
        """
        return np.asarray(self.linear_moreau_gradients(theta, X, y, beta))

    def linear_moreau_gradients(self, theta: Floats, X: Any, y: Any, beta: float) -> LinearVectors:
        """Give the same gradients of envelopes as slopes times features.

        The regulariser joins the quadratic: prox of f + l2/2 |.|^2 at beta is prox of f at beta + l2, at theta beta / (beta + l2).

        Parameters
        ----------
        theta, X, y : array_like
            As in `gradients`.
        beta : float
            The smoothness of the envelope, above 0: larger is closer to the loss.

        Returns
        -------
        LinearVectors
            One gradient per user.

        Raises
        ------
        ArgumentError
            If beta is not above 0.
        """
        beta = real("beta", beta, above=0, remedy="Larger is closer to the loss and less smooth.")
        rows, squares, targets = self._records(X, y)
        total = beta + self.l2
        centre = theta * (beta / total)
        # x = 0 leaves theta where it is: any positive q gives slope times 0
        q = np.maximum(squares / total, np.finfo(np.float64).tiny)
        return self._linear(rows, squares, beta / total * self.loss.prox_slope(self._scores(centre, rows), targets, q), centre)

    def prox(self, theta: Floats, X: Any, y: Any, beta: float) -> Floats:
        """Give every user's prox: the theta' that minimises loss(theta') + (beta / 2) ||theta - theta'||^2.

        Parameters
        ----------
        theta, X, y : array_like
            As in `gradients`.
        beta : float
            The smoothness of the envelope, above 0: larger is closer to the loss.

        Returns
        -------
        numpy.ndarray of shape (users, dim)
            One theta' per user.
        """
        return theta - self.moreau_gradients(theta, X, y, beta) / beta

    def smoothed(self, beta: float) -> Smoothed:
        """Give the Moreau-smoothed problem: beta-smooth, and at most lipschitz^2 / (2 beta) below this one.

        Parameters
        ----------
        beta : float
            The smoothness of the envelope, above 0: larger is closer to the loss.

        Returns
        -------
        Smoothed
            The smoothed problem.
        """
        return Smoothed(self, beta)

    def _records(self, X: Any, y: Any) -> tuple[NDArray[Any], Floats, Floats]:
        """The rows of features, their squared lengths, and the targets."""
        rows, squares = self._rows(X)
        if np.shape(y) != rows.shape[:1]:
            raise ArgumentError("y.shape", np.shape(y), f"({len(rows)},)", "Give one label or target per row of X.")
        return rows, squares, self.loss.targets(y)

    def _rows(self, X: Any) -> tuple[NDArray[Any], Floats]:
        single = in_single(X, self.feature_norm) and not self.l2
        try:
            rows = np.ascontiguousarray(X, dtype=np.float32 if single else np.float64)
        except (TypeError, ValueError):
            raise ArgumentError("X", type(X).__name__, "a table of numbers", "Encode other features; make sparse dense.") from None
        if rows.ndim != 2 or rows.shape[1] != self.features:
            raise ArgumentError("X.shape", rows.shape, f"(users, {self.features})", "Give one row of features per user.")
        # Rows that were scaled down in single precision already are left, and gradients are clipped all the same.
        with np.errstate(over="ignore"):
            squares = row_squares(rows)
        long = too_long(squares, self.feature_norm, slack=single * (self.features + 2) * 2.0**-23)
        if long.any():
            if not np.all(np.isfinite(rows)):
                raise RecordError("X", float(rows[~np.isfinite(rows)][0]), "finite", "Fill in or leave out missing features.")
            rows = scaled_down(rows, long, self.feature_norm)
            squares[long] = row_squares(rows[long])
        return rows, squares

    def _scores(self, theta: Floats, rows: NDArray[Any]) -> Floats:
        if self.loss.outputs == 1:
            return row_dots(rows, theta)
        return np.stack([row_dots(rows, weights) for weights in theta.reshape(self.loss.outputs, -1)], axis=1)

    def _linear(self, rows: NDArray[Any], squares: Floats, slopes: Floats, point: Floats) -> LinearVectors:
        """Slopes times features, and the regulariser's gradient at a point."""
        slopes = slopes.reshape(len(rows), self.loss.outputs)
        return LinearVectors(rows, slopes, (self.l2 * point).reshape(self.loss.outputs, -1) if self.l2 else None, squares)


# A helper for people who bring their own loss: sample for violations of the constants they state.


def check(problem: Objective, X: Any, y: Any, *, samples: int = 200, seed: int = 0, tolerance: float = 1e-6) -> list[str]:
    """Look for violations of the convexity, Lipschitz, smoothness and strong-convexity constants at random points.

    Samples pairs of points of the domain and compares every user's gradients there. This is not private: use public or synthetic
    records.

    Parameters
    ----------
    problem : Objective
        Whose gradients and constants are compared; of a Problem, or a CustomProblem with `value`, the values too.
    X, y : array_like
        Public or synthetic records, one row and one target per user; y may be None if the problem needs none.
    samples : int, default 200
        Number of pairs of points to draw.
    seed : int, default 0
        The seed of the points.
    tolerance : float, default 1e-6
        The relative excess up to which a constant counts as kept.

    Returns
    -------
    list of str
        The worst violation of each kind; empty if none was found, which does not prove that there is none.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.problem import Ball, CustomProblem, check
    >>> wrong = CustomProblem(lambda theta, X, y: theta - X, Ball(dim=2, radius=1.0), lipschitz=1.0, smoothness=1.0)
    >>> check(wrong, np.ones((5, 2)), None)[0]  # doctest: +ELLIPSIS
    'lipschitz: a gradient has norm ..., stated 1'
    """
    rng = np.random.default_rng(seed)
    worst: dict[str, tuple[float, str]] = {}

    def report(name: str, excess: float, text: str) -> None:
        if excess > tolerance and excess > worst.get(name, (0.0, ""))[0]:
            worst[name] = (excess, f"{name}: {text}")

    for _ in range(samples):
        a, b = (_random_point(problem.domain, rng) for _ in range(2))
        b = a + 10 ** (-3 * rng.random()) * (b - a)  # near and far
        at_a, at_b = (problem.gradients(theta, X, y) for theta in (a, b))
        if not (np.all(np.isfinite(at_a)) and np.all(np.isfinite(at_b))):
            return ["gradient: not finite at some point of the domain"]
        steepest = float(np.linalg.norm(at_a, axis=1).max())
        report("lipschitz", steepest / problem.lipschitz - 1, f"a gradient has norm {steepest:.6g}, stated {problem.lipschitz:.6g}")
        gap = float(np.linalg.norm(a - b))
        if gap == 0:
            continue
        change = float(np.linalg.norm(at_a - at_b, axis=1).max()) / gap
        if problem.smoothness is not None:
            text = f"gradients change by {change:.6g} times the distance, stated {problem.smoothness:.6g}"
            report("smoothness", (change - 1e-12 * problem.lipschitz / gap) / problem.smoothness - 1, text)  # less rounding
        curved = float(((at_a - at_b) @ (a - b)).min()) / gap**2
        text = f"<g(a) - g(b), a - b> is {curved:.6g} |a - b|^2, stated at least {problem.strong_convexity:.6g}"
        scale = max(problem.strong_convexity, change, 1e-9 * problem.lipschitz / gap)  # the last: rounding
        report("convexity", (problem.strong_convexity - curved) / scale, text)
        _compare_with_values(problem, X, y, a, b, report)
    return [text for _, text in worst.values()]


def _compare_with_values(problem: Objective, X: Any, y: Any, a: Floats, b: Floats, report: Any) -> None:
    """Gradients against values, where there are values: by central differences on the way from a to b, so inside the domain, or,
    where the loss may be nonsmooth, by f(b) >= f(a) + <g(a), b - a>."""
    value = problem.losses if isinstance(problem, Problem) else problem.value if isinstance(problem, CustomProblem) else None
    if value is None:
        return
    gap = float(np.linalg.norm(b - a))
    direction, middle = (b - a) / gap, (a + b) / 2
    if problem.smoothness is None:
        f = value(a, X, y)
        short = float(np.max(f + problem.gradients(a, X, y) @ (b - a) - value(b, X, y)))
        rounding = 1e-12 * float(np.max(np.abs(f)))
        report("gradient", (short - rounding) / (problem.lipschitz * gap), f"f(a) + <g(a), b - a> exceeds f(b) by {short:.3g}")
        return
    step = min(gap / 4, 1e-5 * max(1.0, float(np.linalg.norm(middle))))
    slope = (value(middle + step * direction, X, y) - value(middle - step * direction, X, y)) / (2 * step)
    off = float(np.max(np.abs(slope - problem.gradients(middle, X, y) @ direction)))
    # differences may be off by smoothness x step, and by rounding: reported from 1e-4 lipschitz on
    excess = (off - problem.smoothness * step) / (1e2 * problem.lipschitz)
    report("gradient", excess, f"differs from the value's differences by {off:.3g}")


def _random_point(domain: Domain, rng: np.random.Generator) -> Floats:
    scale = domain.diameter if np.isfinite(domain.diameter) else 10.0
    return domain.project(domain.start() + scale * rng.random() * rng.normal(size=domain.dim) / np.sqrt(domain.dim))


# Rows seen in other coordinates: a public linear map of rows, and the gradients of a problem's losses in what it makes of them.
#
# Where columns have very different sizes or a common mean, the same noise costs less in coordinates in which rows have no mean
# and the same size in every direction. Such a map is found from sums that were released before (`croupier.optimizer._rules`), so
# it is public; scores, and so losses and predictions, are the same in all coordinates.


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The linear map x = turn (u - centre u_last / constant) of rows u, u_last the entry that is `constant` in every row.

    A row of zeros stays one: it stands for an invalid record, whose gradient is 0.

    `turn` (features,): A factor for each column, or a matrix; x has zeros for the rows that it has fewer than columns. `centre`
    (features,): What is taken off every row, 0 in its last entry; None for nothing. `constant`: The last entry of every row; needed
    with a centre. `focus`: Of two classes, how much less people count whose odds are far from even (`focused`), 0 for all alike.
    ArgumentError: If the shapes do not fit, an entry is not finite, or a centre comes without a constant.
    """

    turn: Floats
    centre: Floats | None = None
    constant: float = 0.0
    focus: float = 0.0

    def __post_init__(self) -> None:
        # Single precision is precise enough, and is the same on machines whose linear algebra differs in the last bits.
        for name in ("turn", "centre"):
            if getattr(self, name) is not None:
                rounded = np.asarray(getattr(self, name), dtype=np.float32).astype(np.float64)
                rounded.setflags(write=False)
                object.__setattr__(self, name, rounded)
        parts = [part for part in (self.turn, self.centre) if part is not None]
        shaped = self.turn.ndim == 1 or (self.turn.ndim == 2 and min(2, self.features) <= len(self.turn) <= self.features)
        fits = shaped and parts[-1].shape[-1:] == (self.features,)
        if not fits or not all(np.isfinite(part).all() for part in parts):
            allowed = "finite, factors or a matrix of 2 rows or more, but no more than columns, and a centre as long"
            raise ArgumentError("coordinates", self.turn.shape, allowed, "Make them from released sums.")
        if self.centre is not None:
            real("constant", self.constant, above=0, remedy="Rows that are centred end with a constant.")
        real("focus", self.focus, at_least=0, at_most=1, remedy="0 lets all people count alike.")

    @property
    def features(self) -> int:
        """How many columns rows have."""
        return int(self.turn.shape[-1])

    @property
    def digest(self) -> bytes:
        """All of it as bytes, to tell questions apart."""
        parts = [self.turn.tobytes(), b"" if self.centre is None else self.centre.tobytes()]
        numbers = [self.constant, self.focus][: 1 + bool(self.focus)]
        return b"".join([len(part).to_bytes(8, "little") + part for part in parts] + [np.array(numbers).tobytes()])

    def to_dict(self) -> dict[str, Any]:
        """Return the words of it, without the rows' constant: numbers in single precision, little endian, as hex; and the focus."""
        parts = {"turn": self.turn, "centre": self.centre}
        words = {name: part.astype("<f4").tobytes().hex() for name, part in parts.items() if part is not None}
        return words | ({"focus": self.focus} if self.focus else {})

    @classmethod
    def from_dict(cls, words: dict[str, Any], features: int, constant: float) -> Self:
        """Return what such words state of rows of so many columns: a factor for each, or a matrix."""
        texts = {name: text for name, text in words.items() if name != "focus"}
        parts = {name: np.frombuffer(bytes.fromhex(text), "<f4") for name, text in texts.items()}
        turn = parts["turn"]
        if turn.size > features > 0 and turn.size % features == 0:
            turn = turn.reshape(-1, features)
        return cls(turn, parts.get("centre"), constant, words.get("focus", 0.0))

    def rows(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return what the map makes of rows, in their precision; each row's by itself, whatever rows are beside it."""
        if self.centre is not None:
            rows = rows - np.outer(rows[:, -1] / rows.dtype.type(self.constant), self.centre.astype(rows.dtype))
        turn = self.turn.astype(rows.dtype)
        if turn.ndim == 1:
            return np.asarray(rows * turn)
        turned = turned_rows(rows, turn)
        return np.pad(turned, ((0, 0), (0, self.features - len(turn)))) if len(turn) < self.features else turned

    def weights(self, theta: Floats) -> Floats:
        """Return the weights of rows as they come whose scores are those of `theta` in these coordinates; one row per output."""
        outputs = theta.reshape(-1, self.features)
        weights = outputs * self.turn if self.turn.ndim == 1 else outputs[:, : len(self.turn)] @ self.turn
        if self.centre is not None:
            weights[:, -1] -= weights @ self.centre / self.constant
        return np.asarray(weights.reshape(theta.shape))


def log_odds(loss: Loss) -> bool:
    """Whether scores are the log-odds of two classes, with or without weights of these."""
    return isinstance(loss.loss if isinstance(loss, Weighted) else loss, Logistic)


def focused(scores: Floats, focus: float) -> Floats:
    """How much people count of whom the model has these log-odds: 1 at even odds, 1 - focus far from them.

    A factor that depends on the odds alone leaves the mean gradient 0 at the true parameters of a logistic model.
    """
    rare = expit(-np.abs(scores))
    even = 4 * rare * (1 - rare)
    return np.asarray(1 - focus * (1 - even * even))


@dataclass(frozen=True, eq=False)
class Recast:
    """A problem whose gradients are taken in other coordinates and clipped to length `clip`.

    `theta` is in the problem's own coordinates: scores are the same in all of them. Nobody's gradient is longer than `clip`. With
    `alike`, where the loss is one of classes, the factor that shortens a gradient depends on the row and on theta alone
    (`Loss.capped_slope`), so at the true parameters of a logistic model the mean gradient is 0.

    `problem`: Whose gradients these are; without l2. `coordinates`: The map of rows. `clip`: The length that gradients are
    shortened to. `alike`: Whether one factor shortens the gradients of all labels. False shortens only gradients that are too long:
    people whose label was expected lose less, and the minimiser moves. The entries of a centred row's constant are shortened alike
    all the same, so that classes stay as likely as they are frequent.
    """

    problem: Problem
    coordinates: Coordinates
    clip: float
    alike: bool = True

    def __post_init__(self) -> None:
        if self.problem.l2:
            raise ArgumentError("problem.l2", self.problem.l2, "0 in other coordinates", 'Use rule="plain".')
        if self.coordinates.focus and not (self.alike and log_odds(self.problem.loss)):
            raise ArgumentError("focus", self.coordinates.focus, "0 except for the logistic loss of two classes", "Leave it out.")

    @property
    def domain(self) -> Domain:
        """Where theta may lie."""
        return self.problem.domain

    @property
    def dim(self) -> int:
        """The number of parameters."""
        return self.problem.dim

    @property
    def lipschitz(self) -> float:
        """A bound on the length of every user's gradient."""
        return self.clip

    smoothness: float | None = None
    strong_convexity: float = 0.0

    def gradients(self, theta: Floats, X: Any, y: Any) -> Floats:
        """Give the gradient of every user's loss at theta, in the other coordinates."""
        return np.asarray(self.linear_gradients(theta, X, y))

    def linear_gradients(self, theta: Floats, X: Any, y: Any) -> LinearVectors:
        """Give the same gradients as slopes times rows, which takes less memory."""
        problem = self.problem
        rows, _, targets = problem._records(X, y)
        seen = self.coordinates.rows(rows)
        squares = row_squares(seen)
        limits = self.clip / np.sqrt(np.maximum(squares, np.finfo(np.float64).tiny))
        scores = problem._scores(theta, rows)
        slopes = problem.loss.capped_slope(scores, targets, limits if self.alike else np.full(len(limits), np.inf))
        if self.coordinates.focus:
            slopes = slopes * focused(scores, self.coordinates.focus)
        slopes = slopes.reshape(len(seen), problem.loss.outputs)
        if not self.alike:
            lengths = np.sqrt(row_squares(slopes))
            slopes *= (limits / np.maximum(limits, lengths))[:, np.newaxis]
            if self.coordinates.centre is not None:
                even = problem.loss.capped_slope(scores, targets, limits).reshape(slopes.shape)
                left = np.sqrt(row_squares(even)) / np.maximum(np.minimum(limits, lengths), np.finfo(np.float64).tiny)
                seen[:, -1] *= np.minimum(left, 1.0)
                squares = row_squares(seen)
        return LinearVectors(seen, slopes, None, squares)
