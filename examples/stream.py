"""A model that learns from a stream and may be searched at any moment: the pan-private AC-SA of Algorithm 6.

One record after the other is taken in and forgotten. Anyone who breaks in and copies the state learns nothing much about anyone.
"""

from __future__ import annotations

import numpy as np
from style import GREY, PRIVATE, plt, save

import croupier as cr

rng = np.random.default_rng(0)
users, dim = 20_000, 5
truth = np.array([2.0, -1.0, 0.5, 0.0, 1.0])
X = rng.normal(size=(users, dim)) / np.sqrt(dim)
y = X @ truth + rng.logistic(size=users) / 2 > 0

problem = cr.Problem(loss=cr.losses.Logistic(), domain=cr.domains.Ball(dim=dim, radius=6.0), feature_norm=1.0)
learner = cr.PanPrivate(problem, users, epsilon=2.0, delta=1e-6)
print(learner.schedule)
taken, losses, shown = [], [], []
for i in range(users):
    learner.feed(X[i], y[i])
    if (i + 1) % 500 == 0:
        taken.append(i + 1)
        losses.append(problem.losses(learner.theta, X, y).mean())
        if not learner.finished:  # what an intruder would find in the first coordinate, less what is public about it
            plan, state = learner.schedule.phases[0].plan, learner.state
            public = plan.users * plan.noise_bits * plan.noise_probability + state.taken * plan.levels / 2
            shown.append((i + 1, state.counts[0] - public))
print(learner.guarantee)

figure, (above, below) = plt.subplots(2, 1, figsize=(5.5, 4), sharex=True)
above.plot(taken, losses, color=PRIVATE)
above.axhline(np.log(2), color=GREY, linewidth=1)
above.annotate("before the first record", (users, np.log(2)), xytext=(0, -12), textcoords="offset points", color=GREY, ha="right")
above.set(ylabel="mean loss")
below.axhline(0, color=GREY, linewidth=1)
below.plot(*zip(*shown, strict=True), ".", color=PRIVATE)
below.set(ylabel="state (1 of 5)", xlabel="records taken in")
save(figure, "stream")
