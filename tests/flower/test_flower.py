"""Flower itself: the mod, the strategy and the two example apps, in a virtual environment of its own.

Flower's pins do not go with those of `dev`, so these tests look for a Python that has it: CROUPIER_FLOWER_PYTHON, this one, or
.venv-flower in the checkout, which `make test-process` makes. Without one they are skipped, and say so.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("flower")]
ROOT = Path(__file__).parents[2]


def runs(python: str | Path, text: str) -> bool:
    try:
        return subprocess.run([python, "-c", text], capture_output=True, check=False, timeout=120).returncode == 0
    except OSError:
        return False


def environment() -> dict[str, str]:
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return os.environ | quiet | {"PYTHONPATH": str(ROOT / "src")}


@pytest.fixture(scope="module")
def python() -> str:
    """A Python with Flower and its simulation."""
    known = [os.environ.get("CROUPIER_FLOWER_PYTHON"), sys.executable, str(ROOT / ".venv-flower" / "bin" / "python")]
    for candidate in filter(None, known):
        if runs(candidate, "import flwr, ray, sklearn, pyarrow, pytest; assert flwr.__version__.startswith('1.41.')"):
            return candidate
    pytest.skip("no Python with Flower 1.41 and its simulation: `make test-process` makes .venv-flower")


def test_the_mod_and_the_strategy_inside_flower(python):
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "filterwarnings=default", "-o", "addopts=", "."]
    done = subprocess.run(
        command, cwd=Path(__file__).parent / "inside", env=environment(), capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert int(re.search(r"(\d+) passed", done.stdout).group(1)) >= 29
    assert "skipped" not in done.stdout


# torch is no dependency: where it is, its app is run nightly
@pytest.mark.parametrize(("name", "devices"), [("numpy_app", 160), pytest.param("torch_app", 400, marks=pytest.mark.slow)])
def test_an_app_runs_under_flower_s_simulation_engine(python, name, devices):
    """Masks are opened by a process of its own. 0.1 is chance; what it reads right is above it by far, whatever the noise."""
    if name == "torch_app" and not runs(python, "import torch"):
        pytest.skip("torch is not installed in the environment with Flower: it is no dependency")
    done = subprocess.run(
        [python, "simulate.py", name, str(devices)],
        cwd=ROOT / "examples" / "flower",
        env=environment(),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-5000:]
    accuracy = re.search(r"accuracy on public images: (0\.\d+)", said)
    assert accuracy, said[-5000:]
    assert float(accuracy.group(1)) > 0.4
    assert f"each of {devices} devices is asked once" in said
    assert "If the mask analyzer is run by another operator" in said
    assert "(8, " in said
    assert "when each device answered, as this server does, epsilon" in said
