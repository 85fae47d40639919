"""The model, and who has which images: four of scikit-learn's digits a device; the last 197 are public."""

from __future__ import annotations

import numpy as np
import torch
from flwr.app import Array
from sklearn.datasets import load_digits
from torch import nn

DIGITS = load_digits()
PUBLIC, PER_DEVICE = 1600, 4


def images_of(device: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The images of one device, and what they show."""
    start = device * PER_DEVICE % PUBLIC
    return _tensors(slice(start, start + PER_DEVICE))


def public_images() -> tuple[torch.Tensor, torch.Tensor]:
    """Images that nobody's privacy is about."""
    return _tensors(slice(PUBLIC, None))


def _tensors(which: slice) -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.tensor(DIGITS.images[which, np.newaxis] / 16, dtype=torch.float32)
    return images, torch.tensor(DIGITS.target[which])


class Model:
    """A convolution and a linear layer: 730 weights."""

    def __init__(self, arrays=None) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.AvgPool1d(2), nn.Linear(64, 10)
        )
        if arrays is not None:
            self.net.load_state_dict({name: torch.tensor(array.numpy()) for name, array in arrays.items()})

    def arrays(self) -> dict[str, Array]:
        """What Flower sends."""
        return {name: Array(tensor.numpy()) for name, tensor in self.net.state_dict().items()}

    def train(self, images: torch.Tensor, digits: torch.Tensor, steps: int = 5, rate: float = 0.5) -> float:
        """Take some steps of gradient descent; the last loss."""
        optimizer = torch.optim.SGD(self.net.parameters(), lr=rate)
        for _ in range(steps):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.net(images), digits)
            loss.backward()
            optimizer.step()
        return loss.item()

    @torch.no_grad()
    def accuracy(self, images: torch.Tensor, digits: torch.Tensor) -> float:
        """The share of images that it reads right."""
        return (self.net(images).argmax(dim=1) == digits).float().mean().item()
