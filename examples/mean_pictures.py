"""The mean picture of every digit, from 1 797 people who keep theirs: one private sum.

Each person sends one noisy vector: ten blocks of 64 pixels and a count, of which only the block of their own digit is filled.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from style import plt, save

import croupier as cr

digits = load_digits()
pictures, labels = digits.data / 16, digits.target
users = len(pictures)

# One vector per person: (pixels, 1) in the block of their digit. Clipped to a public norm; most pictures are shorter.
contribution = np.zeros((users, 10, 65))
contribution[np.arange(users), labels, :64] = pictures
contribution[np.arange(users), labels, 64] = 1.0
plan = cr.plan_sum(epsilon=4.0, delta=1e-6, users=users, dim=650, norm=5.0)
print(plan)
estimate = cr.VectorSum(plan).run(contribution.reshape(users, 650))
print(estimate.guarantee)

sums = estimate.sum.reshape(10, 65)
means = sums[:, :64] / np.maximum(sums[:, 64:], 1.0)
truth = np.array([pictures[labels == digit].mean(axis=0) for digit in range(10)])

figure, axes = plt.subplots(2, 10, figsize=(8, 1.9))
for row, (name, images) in enumerate((("true mean", truth), ("private,\nepsilon 4", means))):
    for digit, image in enumerate(images):
        axes[row, digit].imshow(image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
        axes[row, digit].set(xticks=[], yticks=[])
        axes[row, digit].spines[:].set_visible(False)
    axes[row, 0].set_ylabel(name, rotation=0, ha="right", va="center")
save(figure, "mean_pictures")
