"""One's own parts: a domain (weights that are not negative) and a sum protocol (two servers in place of the shuffler).

The optimizer knows a domain by its projection and two distances, and people by their number and their answer to a question. Both
can be one's own. Here a person's bits are counted, and the counts split into two random shares, one for each of two servers that
do not talk to each other. The analyzer gets the sums of the shares: the same counts as from a shuffler, so the plan's proof
holds for them. It assumes two servers that do not collude in place of one shuffler that does not collude with the analyzer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from style import GREY, PLAIN, PRIVATE, plt, save

import croupier as cr
from croupier.population.population import Question, Test
from croupier.problem import Domain
from croupier.protocol import Counts, SumEstimate


@dataclass(frozen=True)
class NonNegativeBall(Domain):
    """Coordinates that are not negative, within `radius` of the origin: more of a feature never lowers the score."""

    dim: int
    radius: float

    def project(self, theta: np.ndarray) -> np.ndarray:
        """First onto the cone, then onto the ball about its tip: that is the projection onto both."""
        positive = np.maximum(theta, 0.0)
        return positive * min(1.0, self.radius / max(float(np.linalg.norm(positive)), 1e-300))

    def distance_bound(self, start: np.ndarray) -> float:
        return self.radius + float(np.linalg.norm(start))

    @property
    def diameter(self) -> float:
        return self.radius * (np.sqrt(2.0) if self.dim > 1 else 1.0)


class TwoServers:
    """People whose sums are taken by two servers, each of which sees uniformly random numbers alone."""

    def __init__(self, X: np.ndarray, y: np.ndarray) -> None:
        self.X, self.y = X, y
        self.seen: list[np.ndarray] = []  # what the first server was sent in the last round, for the figure

    @property
    def users(self) -> int:
        return len(self.X)

    def prepare(self, test: Test, key: bytes | None = None) -> bytes | None:
        test(self.X, self.y)  # records that the loss cannot take are refused before anybody is asked
        return None

    def answer(self, question: Question) -> SumEstimate:
        protocol = cr.VectorSum(question.plan)
        protocol.check_round(question.batch.size)
        members = question.batch.members(0, self.users)
        vectors = question.query(self.X[members], self.y[members])
        servers = np.zeros((2, question.plan.dim), dtype=np.uint64)
        self.seen = []
        for person, vector in zip(members.tolist(), vectors, strict=True):
            shares = self._shares(protocol, vector, question.secret.derive("person", person).source())
            servers += shares  # modulo 2^64
            self.seen.append(shares[0])
        ones = (servers[0] + servers[1]).astype(np.int64)  # what the analyzer computes from the two sums
        return protocol.analyze(Counts(ones, len(members), question.secret.private))

    @staticmethod
    def _shares(protocol: cr.VectorSum, vector: np.ndarray, random: Any) -> np.ndarray:
        """On a person's device: its bits with their noise, counted, and split into two shares that add up to them."""
        ones = protocol.randomize(vector, random).bits.sum(axis=1).astype(np.uint64)
        first = random.draw_bytes(8 * len(ones)).view(np.uint64)
        return np.stack([first, ones - first])


rng = np.random.default_rng(0)
users, dim = 6_000, 6
truth = np.array([3.0, 2.0, 1.0, 0.0, 0.0, 0.0])
X = rng.normal(size=(users, dim))
X /= np.linalg.norm(X, axis=1, keepdims=True)
y = X @ truth + rng.logistic(size=users) / 4 > 0

people = TwoServers(X, y)
problem = cr.Problem(loss=cr.losses.Logistic(), domain=NonNegativeBall(dim=dim, radius=10.0), feature_norm=1.0)
# open lots: these servers add no blanks, which secret lots would need
result = cr.minimize(problem, people, epsilon=1.0, delta=1e-6, rule="practical", lots="open")
print(result)
print("right:", float(np.mean((X @ result.theta > 0) == y)))

figure, (left, right) = plt.subplots(1, 2, figsize=(6.5, 2.8))
left.bar(np.arange(dim) - 0.2, truth / np.linalg.norm(truth), 0.4, color=GREY, label="true")
left.bar(np.arange(dim) + 0.2, result.theta / np.linalg.norm(result.theta), 0.4, color=PRIVATE, label="private, not negative")
left.set(xlabel="weight", ylabel="direction")
left.legend()
right.hist(np.concatenate(people.seen).astype(float) / 2.0**64, bins=20, color=PLAIN)
right.set(xlabel="what one server sees / 2^64", ylabel="numbers")
save(figure, "own_parts")
