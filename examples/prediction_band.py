"""A prediction band from two private quantile fits, and one account that counts both."""

from __future__ import annotations

import numpy as np
from style import GREY, PRIVATE, plt, save

from croupier.estimator import PrivacyAccount, ShuffleQuantileRegressor

rng = np.random.default_rng(0)
hours = rng.uniform(0, 1, size=100_000)
pay = 20 + 60 * hours + rng.gamma(2.0, 4 + 8 * hours)  # skewed, and wider to the right
X = hours[:, np.newaxis]

account = PrivacyAccount(epsilon=2.0, delta=1e-6)  # a fit beyond this would be refused
bands = {
    quantile: ShuffleQuantileRegressor(
        epsilon=0.9, quantile=quantile, target_range=(0, 150), feature_norm=1.0, account=account
    ).fit(X, pay)
    for quantile in (0.1, 0.9)
}
print(account)
low, high = (bands[quantile].predict(X) for quantile in (0.1, 0.9))
print(f"{np.mean((pay > low) & (pay < high)):.1%} of people lie in the band; 80 % is asked for")

figure, axis = plt.subplots(figsize=(5.5, 3.2))
some = slice(0, 600)
axis.plot(hours[some], pay[some], ".", color=GREY, alpha=0.35, markersize=2)
grid = np.linspace(0, 1, 50)[:, np.newaxis]
lines = {quantile: model.predict(grid) for quantile, model in bands.items()}
axis.fill_between(grid[:, 0], lines[0.1], lines[0.9], color=PRIVATE, alpha=0.2, linewidth=0)
for quantile, line in lines.items():
    axis.plot(grid[:, 0], line, color=PRIVATE)
    axis.annotate(f" {quantile:.0%}\n quantile", (1.0, line[-1]), va="center", color=PRIVATE)
axis.set(xlabel="hours (scaled)", ylabel="pay", ylim=(0, 150), xlim=(0, 1.17), xticks=[0, 0.5, 1])
save(figure, "prediction_band")
