"""The model, and who has which images: four of scikit-learn's digits a device; the last 197 are public."""

from __future__ import annotations

import numpy as np
from flwr.app import Array
from sklearn.datasets import load_digits

DIGITS = load_digits()
PUBLIC, PER_DEVICE = 1600, 4


def images_of(device: int) -> tuple[np.ndarray, np.ndarray]:
    """The images of one device, and what they show."""
    start = device * PER_DEVICE % PUBLIC
    return _scaled(DIGITS.data[start : start + PER_DEVICE]), DIGITS.target[start : start + PER_DEVICE]


def public_images() -> tuple[np.ndarray, np.ndarray]:
    """Images that nobody's privacy is about."""
    return _scaled(DIGITS.data[PUBLIC:]), DIGITS.target[PUBLIC:]


def _scaled(images: np.ndarray) -> np.ndarray:
    return (images / 16).astype(np.float32)


class Model:
    """Softmax regression."""

    def __init__(self, arrays=None) -> None:
        self.weights = np.zeros((64, 10), np.float32) if arrays is None else arrays["weights"].numpy().copy()
        self.bias = np.zeros(10, np.float32) if arrays is None else arrays["bias"].numpy().copy()

    def arrays(self) -> dict[str, Array]:
        """What Flower sends."""
        return {"weights": Array(self.weights), "bias": Array(self.bias)}

    def train(self, images: np.ndarray, digits: np.ndarray, steps: int = 5, rate: float = 0.5) -> float:
        """Take some steps of gradient descent; the last loss."""
        loss = 0.0
        for _ in range(steps):
            shares = self._shares(images)
            loss = float(-np.log(shares[np.arange(len(digits)), digits]).mean())
            error = (shares - np.eye(10, dtype=np.float32)[digits]) / len(digits)
            self.weights -= rate * images.T @ error
            self.bias -= rate * error.sum(axis=0)
        return loss

    def accuracy(self, images: np.ndarray, digits: np.ndarray) -> float:
        """The share of images that it reads right."""
        return float((self._shares(images).argmax(axis=1) == digits).mean())

    def _shares(self, images: np.ndarray) -> np.ndarray:
        scores = images @ self.weights + self.bias
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        return scores / scores.sum(axis=1, keepdims=True)
