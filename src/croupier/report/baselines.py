"""What people would do instead of a shuffle: trust a curator, or trust nobody. For comparison only.

The simulations use ordinary floating-point noise and are not for release.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from ..optimizer.phases import Phase
from ..privacy import SumPlan, central_noise_std
from ..privacy.plan import SumRequest

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Baseline:
    """A mechanism beside ours.

    `name`: Name of the mechanism. `noise_std`: Standard deviation of its noise in a coordinate of the sum, in one round.
    `bits_per_coordinate`: What a user sends. `trust`: Who must be trusted.

    Examples
    --------
    >>> from croupier.report.baselines import Baseline
    >>> Baseline("central Gaussian", noise_std=4.2, bits_per_coordinate=64, trust="a curator").trust
    'a curator'
    """

    name: str
    noise_std: float
    bits_per_coordinate: int
    trust: str


def central(plan: SumPlan) -> Baseline:
    """Return the analytic Gaussian mechanism (Balle and Wang 2018) at the plan's guarantee.

    Parameters
    ----------
    plan : SumPlan
        The plan whose guarantee is to be given.

    Returns
    -------
    Baseline
        The mechanism of a curator.

    Examples
    --------
    >>> import croupier as cr
    >>> from croupier.report import central
    >>> plan = cr.plan_sum(epsilon=1.0, delta=1e-6, users=1_000, dim=2)
    >>> central(plan).noise_std <= plan.noise_std
    True
    """
    return Baseline("central Gaussian", plan.central_noise_std, 64, "a curator")


def local(plan: SumPlan | SumRequest) -> Baseline:
    """Return the better of two local mechanisms.

    They are Gaussian noise on every device, and the sphere sampler of Duchi, Jordan and Wainwright.

    Parameters
    ----------
    plan : SumPlan or SumRequest
        The plan whose guarantee is to be given.

    Returns
    -------
    Baseline
        The mechanism with less noise. Nobody needs to be trusted.

    Examples
    --------
    >>> import croupier as cr
    >>> from croupier.report import local
    >>> plan = cr.plan_sum(epsilon=1.0, delta=1e-6, users=1_000, dim=2)
    >>> local(plan).trust, local(plan).noise_std > plan.noise_std
    ('nobody', True)
    """
    gaussian = math.sqrt(plan.users) * central_noise_std(plan.epsilon, plan.delta, plan.sensitivity, plan.rounds)
    sphere = plan.norm * _sphere_radius(plan.epsilon / plan.rounds, plan.dim) * math.sqrt(plan.users / plan.dim)
    if gaussian <= sphere:
        return Baseline("local Gaussian", gaussian, 64, "nobody")
    return Baseline("local (Duchi et al.)", sphere, 64, "nobody")


def alone_request(phase: Phase, epsilon: float) -> SumPlan | SumRequest:
    """What the users of a round would have to keep alone: the plan's promise, or that of the whole run where lots are secret.

    Everybody's own message is seen in the local model, so lots hide nothing there.
    """
    if phase.lots is None:
        return phase.plan
    lots, plan = phase.lots, phase.plan
    return SumRequest(
        epsilon=epsilon,
        delta=lots.delta,
        users=max(1, round(lots.users_in_round)),
        dim=plan.dim,
        norm=plan.norm,
        neighbours=lots.neighbours,
    )


def simulate_central(vectors: Floats, plan: SumPlan, rng: np.random.Generator) -> Floats:
    """Simulate a curator: the true sum plus the curator's noise."""
    return np.asarray(vectors.sum(axis=0) + rng.normal(scale=plan.central_noise_std, size=plan.dim))


def simulate_local(vectors: Floats, plan: SumPlan, rng: np.random.Generator) -> Floats:
    """Simulate the local model: the sum of what every user would send alone, by the mechanism that `local` names."""
    baseline = local(plan)
    if baseline.name == "local Gaussian":
        return np.asarray((vectors + rng.normal(scale=baseline.noise_std / math.sqrt(plan.users), size=vectors.shape)).sum(axis=0))
    epsilon = plan.epsilon / plan.rounds
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    directions = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    directions[lengths[:, 0] == 0, 0] = 1.0
    users = len(vectors)
    # step 1: a random sign makes every vector one of full length with the right mean; step 2: a half sphere, seldom the wrong one
    signs = np.where(rng.random(users) < 0.5 + lengths[:, 0] / (2 * plan.norm), 1.0, -1.0)
    toward = np.where(rng.random(users) < 1 / (1 + math.exp(-epsilon)), 1.0, -1.0)
    sent = rng.normal(size=vectors.shape)
    sent /= np.linalg.norm(sent, axis=1, keepdims=True)
    side = np.sign(np.einsum("ij,ij->i", sent, directions)) * signs * toward
    return np.asarray((plan.norm * _sphere_radius(epsilon, plan.dim) * side[:, np.newaxis] * sent).sum(axis=0))


def _sphere_radius(epsilon: float, dim: int) -> float:
    """Length of what a user of norm 1 sends, so that its mean is right: 1 / ((e^eps - 1)/(e^eps + 1) * E|u_1|), u on the sphere."""
    log_mean = gammaln(dim / 2) - gammaln((dim + 1) / 2) - math.log(math.pi) / 2
    return 1 / (math.tanh(epsilon / 2) * math.exp(float(log_mean)))
