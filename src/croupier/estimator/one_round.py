"""One private round for an estimator: planned by its parameters, charged to its account, then asked."""

from __future__ import annotations

from ..population import Population
from ..privacy import SumPlan
from ..protocol import SumEstimate
from ..statistics import Moments, plan_for
from ..statistics.asking import answered
from .files import require_range
from .private import PrivateEstimator


def plan_once(estimator: PrivateEstimator, query: Moments, users: int) -> SumPlan:
    """Plan the round. No data is touched.

    Parameters
    ----------
    estimator : PrivateEstimator
        States what is promised.
    query : Moments
        What is asked.
    users : int
        How many people are asked.

    Returns
    -------
    SumPlan
        Proved for the query's range.

    Raises
    ------
    ArgumentError
        Where a parameter is out of range.
    NoCertificateError
        Where no plan can be proved for this request.
    """
    return plan_for(
        query,
        users,
        epsilon=estimator.epsilon,
        delta=estimator._delta(users),
        honest=estimator.honest,
        neighbours=estimator.neighbours,
        calibration=estimator.calibration,
    )


def ask_once(estimator: PrivateEstimator, query: Moments, population: Population, plan: SumPlan) -> SumEstimate:
    """Check records, write the round down on the account, and ask everybody.

    Parameters
    ----------
    estimator : PrivateEstimator
        Whose account is charged, and whose `random_state` seeds the noise.
    query : Moments
        What is asked.
    population : Population
        Everybody.
    plan : SumPlan
        From `plan_once`.

    Returns
    -------
    SumEstimate
        The noisy sum.

    Raises
    ------
    ArgumentError
        Where records are not valid; nobody was asked.
    BudgetExceededError
        Where the account has no room; nobody was asked.
    """
    population.prepare(query.check_records)
    estimator._charge(population, plan.guarantee)
    return answered(query, population, plan, estimator.random_state)


def check_once(plan: SumPlan, query: Moments) -> None:
    """Refuse a plan in a file that is proved for vectors of another range than the query's.

    Parameters
    ----------
    plan : SumPlan
        The plan in the file.
    query : Moments
        What such a model asks.

    Raises
    ------
    ArgumentError
        Where the ranges differ.
    """
    require_range(plan, query.dim, query.norm, min(query.diameter, 2 * query.norm))
