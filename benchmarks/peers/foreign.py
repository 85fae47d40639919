"""Fits by other libraries, run inside a virtual environment of theirs: one line of JSON asks, one line of JSON answers.

A request names the peer, a folder with X.npy and y.npy, the loss, epsilon, delta, a seed and settings; the answer holds the weights
and the seconds that the fit took, and those of the processor, without imports and reading. Started by `methods.py`; it imports
nothing of this project.
"""

from __future__ import annotations

import functools
import json
import math
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np


@functools.lru_cache(maxsize=2)
def rows(folder: str) -> tuple[np.ndarray, np.ndarray]:
    """The training rows and their labels."""
    return np.load(Path(folder) / "X.npy"), np.load(Path(folder) / "y.npy")


def started() -> tuple[float, float]:
    """The time by the clock, and the processor's."""
    return time.perf_counter(), time.process_time()


def took(begun: tuple[float, float]) -> dict[str, float]:
    """The seconds since then, of both."""
    return dict(zip(("seconds", "cpu"), (now - then for now, then in zip(started(), begun, strict=True)), strict=True))


def opacus(request: dict[str, Any]) -> tuple[np.ndarray, dict[str, float], int]:
    """DP-SGD as Opacus documents it: Poisson sampling, a DataLoader, the PRV accountant; SGD with momentum 0.9 from 0.

    loader="plain" fetches rows one by one, as TensorDataset does; otherwise a batch is fetched at once, which gives the same rows.
    """
    import torch  # noqa: PLC0415  (each peer has its own environment)
    from opacus import PrivacyEngine  # noqa: PLC0415
    from torch.utils.data import DataLoader, TensorDataset  # noqa: PLC0415

    class AtOnce(TensorDataset):
        def __getitems__(self, indices: list[int]) -> tuple[Any, ...]:
            return tuple(tensor[indices] for tensor in self.tensors)

    X, y = rows(request["folder"])
    loss = {
        ("logistic", False): lambda scores, y: torch.nn.functional.binary_cross_entropy_with_logits(scores[:, 0], y),
        ("logistic", True): torch.nn.functional.cross_entropy,
        ("svm", False): lambda scores, y: torch.relu(1 - (2 * y - 1) * scores[:, 0]).mean(),
        ("ridge", False): lambda scores, y: ((scores[:, 0] - y) ** 2).mean() / 2,
    }[request["loss"], request["outputs"] > 1]
    torch.manual_seed(request["seed"])
    begun = started()
    labels = torch.as_tensor(y.astype(np.int64 if request["outputs"] > 1 else np.float32))
    if request.get("loader") == "plain":
        data = DataLoader(TensorDataset(torch.as_tensor(X), labels), batch_size=request["batch"])
    else:
        data = DataLoader(AtOnce(torch.as_tensor(X), labels), batch_size=request["batch"], collate_fn=lambda batch: batch)
    model = torch.nn.Linear(X.shape[1], request["outputs"], bias=False)
    torch.nn.init.zeros_(model.weight)
    model, optimizer, data = PrivacyEngine().make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=request["step"], momentum=0.9),
        data_loader=data,
        target_epsilon=request["epsilon"],
        target_delta=request["delta"],
        epochs=request["epochs"],
        max_grad_norm=request["clip"],
    )
    steps = 0
    for _ in range(request["epochs"]):
        for features, targets in data:
            if len(features):
                optimizer.zero_grad()
                loss(model(features), targets).backward()
                optimizer.step()
                steps += 1
    return model._module.weight.detach().numpy(), took(begun), steps


def diffprivlib(request: dict[str, Any]) -> tuple[np.ndarray, dict[str, float], None]:
    """Objective perturbation for the logistic loss, the functional mechanism for least squares: both pure epsilon."""
    from diffprivlib.models import LinearRegression, LogisticRegression  # noqa: PLC0415

    X, y = rows(request["folder"])
    options = {"epsilon": request["epsilon"], "fit_intercept": False, "random_state": request["seed"]}
    begun = started()
    if request["loss"] == "ridge":
        model = LinearRegression(bounds_X=(-1.0, 1.0), bounds_y=(-1.0, 1.0), **options)
    else:  # rows were scaled to norm 1 in single precision
        model = LogisticRegression(data_norm=1 + 1e-6, C=request["weight"], **options)
    model.fit(X, y)
    return np.asarray(model.coef_), took(begun), None


def main() -> None:
    """Answer one request a line until there are no more."""
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        request = json.loads(line)
        try:
            theta, seconds, rounds = {"opacus": opacus, "diffprivlib": diffprivlib}[request["peer"]](request)
            if not math.isfinite(float(np.abs(theta).sum())):
                raise FloatingPointError("the weights are not finite")
            answer = {"theta": np.ravel(theta).astype(float).tolist(), **seconds, "rounds": rounds}
        except Exception as error:  # whatever a peer stumbles over is its cell in the table
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
