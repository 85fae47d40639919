"""A stand-in for users, for sweeps that release nothing: the plan's noise, without anybody's randomness. NOT private."""

from __future__ import annotations

from typing import Any

import numpy as np

from croupier.population import ArrayPopulation
from croupier.population.population import Question
from croupier.privacy import ArgumentError
from croupier.protocol import SumEstimate, VectorSum
from croupier.protocol._encoding import Rotation, as_linear, clip_to_ball, transformed


class SurrogatePopulation(ArrayPopulation):
    """NOT private: the exact sum of the users' clipped vectors, with Gaussian noise of the plan's variance.

    For choosing a schedule or drawing a curve on data that are public or synthetic. A private round costs one random rounding per
    user and coordinate; this one a multiplication. Mean and largest variance are those of a private round, the noise is not: no
    estimate or result that is made with it has a guarantee.
    """

    private = False  # a fit on it is charged as one without a guarantee

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.mode != "counting":
            raise ArgumentError("mode", self.mode, "'counting' for a stand-in", "Messages are those of an ArrayPopulation.")

    def answer(self, question: Question) -> SumEstimate:
        plan, users = question.plan, question.size
        VectorSum(plan).check_round(users)
        total, noise_std = np.zeros(plan.dim), plan.noise_std_for(users)
        for placed in self.shard.placed:
            for vectors in self.shard.vectors_of(placed, question):
                for unit in clip_to_ball(as_linear(vectors, plan.dim), plan.norm):
                    total += plan.norm * unit.total()
        if plan.blocks > 1:  # a user sends one block of the rotated vector: the estimate is that block's part
            total, noise_std = block_of(total, question), noise_std / plan.blocks**1.5
        rng = np.random.default_rng(list(question.secret.derive("surrogate").key))
        return SumEstimate(sum=rng.normal(total, noise_std), users=users, noise_std=noise_std, guarantee=None)


def block_of(total: np.ndarray, question: Question) -> np.ndarray:
    """What the question's block says of each coordinate of a sum; the blocks of a round add up to it."""
    rotation = Rotation.of(question.plan, question.rotation)
    column = np.zeros((rotation.padded, 1))
    column[: total.size, 0] = total * rotation.signs[: total.size]
    turned = transformed(column)[rotation.part(question.block), 0] / np.sqrt(rotation.padded)
    return rotation.back(turned, question.block)
