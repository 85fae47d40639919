"""Handwritten digits by a public feature map: wavelet scattering beside the linear model on pixels, at the same privacy.

20 000 synthetic people each draw one of scikit-learn's digits anew: turned, slanted, stretched and shifted, on 16 x 16 pixels. The
map is fixed before anybody is asked, so it costs no privacy. `--mnist mnist.npz` takes the real digits (x_train, y_train, x_test,
y_test) in their place.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import numpy as np
from scipy.ndimage import map_coordinates
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize
from style import PLAIN, PRIVATE, parser, plt, save

import croupier as cr
from croupier.estimator import BudgetWarning, FewPeopleWarning, WeakPrivacyWarning
from croupier.features import FeatureMap, GroupNorm, Projection, Scattering

# nobody's budget is spent by fitting again, and every epsilon is shown; 60 steps without privacy are enough for a line
for needless in (BudgetWarning, FewPeopleWarning, WeakPrivacyWarning, ConvergenceWarning):
    warnings.simplefilter("ignore", needless)
SIDE, PEOPLE, EPSILONS = 16, 20_000, (0.5, 1.0, 2.0, 4.0)


def drawn_anew(pictures: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each picture as another hand might have drawn it."""
    count = len(pictures)
    at = (np.arange(SIDE) + 0.5) / SIDE - 0.5
    y, x = np.meshgrid(at, at, indexing="ij")
    turn, slant = rng.normal(0, 0.08, (count, 1, 1)), rng.normal(0, 0.1, (count, 1, 1))
    (wide, high), (right, down) = np.exp(rng.normal(0, 0.06, (2, count, 1, 1))), rng.uniform(-0.06, 0.06, (2, count, 1, 1))
    columns = wide * (x * np.cos(turn) + y * np.sin(turn) + slant * y) + right
    rows = high * (y * np.cos(turn) - x * np.sin(turn)) + down
    number = np.broadcast_to(np.arange(count)[:, np.newaxis, np.newaxis], rows.shape)
    places = [number, (1.25 * rows + 0.5) * 8 - 0.5, (1.25 * columns + 0.5) * 8 - 0.5]
    return np.clip(map_coordinates(pictures, places, order=1), 0, 1).astype(np.float32)


def synthetic() -> tuple[np.ndarray, ...]:
    """People who draw, and others, of other models, to test on."""
    digits, rng = load_digits(), np.random.default_rng(0)
    order = rng.permutation(len(digits.images))
    some = [rng.choice(part, count) for part, count in ((order[:1400], PEOPLE), (order[1400:], 3000))]
    return tuple(made for chosen in some for made in (drawn_anew(digits.images[chosen] / 16, rng), digits.target[chosen]))


parser.add_argument("--mnist", type=Path, help="the real digits, as an .npz file")
file = parser.parse_args().mnist
if file is None:
    pictures, labels, test_pictures, test_labels = synthetic()
else:
    mnist = np.load(file)
    pictures, test_pictures = (mnist[name].astype(np.float32) / 255 for name in ("x_train", "x_test"))
    labels, test_labels = mnist["y_train"], mnist["y_test"]

begun = time.process_time()
scattering = FeatureMap([Scattering(pictures.shape[1:]), GroupNorm(27), Projection(200 if file is None else 500)])
flat, test_flat = (some.reshape(len(some), -1) for some in (pictures, test_pictures))
views = {
    "pixels": (normalize(flat), normalize(test_flat), PLAIN),
    "scattering": (scattering.fit_transform(flat), scattering.transform(test_flat), PRIVATE),
}
print(f"the map takes {1e3 * (time.process_time() - begun) / (len(flat) + len(test_flat)):.2f} ms per picture")

figure = plt.figure(figsize=(8, 4.2))
left, right = figure.subfigures(1, 2, width_ratios=(1, 1.7))
for digit, place in enumerate(left.subplots(5, 2).ravel()):
    place.imshow(pictures[np.argmax(labels == digit)], cmap="gray_r", vmin=0, vmax=1)
    place.axis("off")
axes = right.subplots()
for name, (rows, test_rows, colour) in views.items():
    plain = LogisticRegression(C=100, max_iter=60).fit(rows[:8000], labels[:8000]).score(test_rows, test_labels)
    scores, bits = [], {}
    for epsilon in EPSILONS:
        model = cr.ShuffleLogisticRegression(epsilon=epsilon, delta=1e-6, classes=list(range(10)), feature_norm=1.0, rule="centred")
        scores.append(model.fit(rows, labels).score(test_rows, test_labels))
        bits[epsilon] = model.result_.bits_per_user
        print(f"{name}: epsilon {epsilon:g}: accuracy {scores[-1]:.3f}, {bits[epsilon]:,} bits per person")
    axes.plot(EPSILONS, scores, "o-", color=colour)
    price = f"{name}: {10 * (rows.shape[1] + 1):,} weights,\n{bits[1.0] / 8000:.0f} kB per person at epsilon 1"
    axes.annotate(price, (1.0, scores[1]), xytext=(4, -8), textcoords="offset points", color=colour, va="top", fontsize=9)
    axes.axhline(plain, color=colour, linestyle=":", linewidth=1)
    axes.annotate("without privacy", (EPSILONS[0], plain), color=colour, va="bottom", fontsize=8)
axes.set(xscale="log", xlabel="epsilon (delta 1e-6), each person asked once", ylabel="test accuracy", ylim=(None, 1.01))
axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
axes.minorticks_off()
save(figure, "digits")
