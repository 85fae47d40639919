"""Accuracy over epsilon: one pass, full batches, and no privacy, on a population of 6 000.

The figure that decides whether a private model is worth having: how far below the plain one it stays, for which promise.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression
from style import GREY, PLAIN, PRIVATE, plt, save

from croupier.estimator import BudgetWarning, FewPeopleWarning, ShuffleLogisticRegression

warnings.simplefilter("ignore", BudgetWarning)  # generated people: nobody's budget is spent by fitting again
warnings.simplefilter("ignore", FewPeopleWarning)  # at epsilon 0.1 they are few, as the figure shows
rng = np.random.default_rng(0)
weights = rng.normal(size=20)


def people(count: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(count, 20))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, 4 * X @ weights + rng.logistic(size=count) > 0


X, y = people(6_000)
X_test, y_test = people(20_000)
plain = LogisticRegression(C=1e4).fit(X, y).score(X_test, y_test)
epsilons = [0.1, 0.3, 1.0, 3.0]
scores = {
    how: [
        ShuffleLogisticRegression(epsilon=epsilon, classes=[False, True], interactivity=how, radius=20.0, feature_norm=1.0)
        .fit(X, y)
        .score(X_test, y_test)
        for epsilon in epsilons
    ]
    for how in ("sequential", "full")
}
print(plain, scores)

figure, axis = plt.subplots(figsize=(5.5, 3.2))
axis.axhline(plain, color=GREY, linewidth=1)
axis.annotate("without privacy", (epsilons[0], plain), xytext=(0, 4), textcoords="offset points", color=GREY)
for how, colour, text in (("full", PRIVATE, "full: asked in every round"), ("sequential", PLAIN, "sequential: asked once")):
    axis.plot(epsilons, scores[how], "o-", color=colour, label=text)
axis.legend(frameon=False, loc="lower right")
axis.set(xscale="log", xlabel="epsilon (smaller is more private)", ylabel="test accuracy", xticks=epsilons, ylim=(0.5, 1.0))
axis.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
axis.minorticks_off()
save(figure, "price_of_privacy")
