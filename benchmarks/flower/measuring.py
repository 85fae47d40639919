"""One run per method and rate, in an environment with Flower and torch; the rate is chosen on devices that were held out."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import croupier as cr
from croupier.privacy import central_noise_std, plan_lots

from ..cells import Cells, fingerprint
from ..command import read
from ..paths import environment
from ..protocol import Results

HERE = Path(__file__).parent
METHODS = ("croupier", "flower", "none")
RATES = (1.0, 2.0, 3.0, 4.0)
SETTINGS: dict[str, Any] = {
    "epsilon": 1.0,
    "delta": 1e-5,
    "devices": 5000,
    "images": 11,
    "rounds": 20,
    "weights": 26_010,
    "clip": 0.3,
    "local_rate": 0.1,
    "epochs": 5,
    "batch": 11,
    "momentum": 0.5,
    "max_inflation": 1.02,
}
QUICK = {"devices": 600, "rounds": 5}
# Models whose reports are timed: weights and blocks.
SIZES = ((26_010, 1), (1_000_000, 1), (1_000_000, 2), (1_000_000, 4), (10_000_000, 1))


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument("--device", action="store_true", help="measure only what a report costs a device; the rest stays as stored")
    alone = {"--redraw", "--device"} & set(sys.argv)
    parser.add_argument("--data", type=Path, required=not alone, help="folder with load.py and mnist.npz")
    parser.add_argument("--venvs", type=Path, default=cache / "croupier" / "flower", help="where the environment is made")
    parser.add_argument("--python", type=Path, help="a Python with flwr 1.41 and torch, in place of one in --venvs")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each method at its chosen rate")
    parser.add_argument("--fresh", action="store_true", help="measure again what is there already")


def python_in(folder: Path) -> Path:
    """The Python of the environment, which is made on first use."""
    python, stamp, listed = folder / "bin" / "python", folder / "made-from.txt", HERE / "requirements.txt"
    if not stamp.exists() or stamp.read_text() != listed.read_text():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "-r", str(listed)], check=True)
        stamp.write_text(listed.read_text())
    return python


class Runner:
    """The other environment's process: one line of JSON asks, one line answers."""

    def __init__(self, python: Path) -> None:
        package = str(Path(cr.__file__).parents[1])
        inherited = environment()
        paths = os.pathsep.join([package, inherited["PYTHONPATH"]])
        self._process = subprocess.Popen(
            [str(python), str(HERE / "foreign.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=inherited | {"PYTHONPATH": paths, "FLWR_TELEMETRY_ENABLED": "0"},
        )

    def __call__(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the environment with Flower ended before it answered")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise SystemExit(f"{job['method']}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def costs(sizes: Sequence[tuple[int, int]], settings: dict[str, Any]) -> list[dict[str, Any]]:
    """What a report costs a device, each size in a process of its own; this environment has all that it needs."""
    commands = [[sys.executable, str(HERE / "device.py"), *map(str, size), json.dumps(settings)] for size in sizes]
    env = environment() | {"OMP_NUM_THREADS": "1"}
    return [json.loads(subprocess.run(one, env=env, check=True, stdout=subprocess.PIPE).stdout) for one in commands]


def measure(arguments: argparse.Namespace) -> Results:
    """All rates of all methods, then more seeds at the chosen ones; and what a report costs."""
    settings = SETTINGS | (QUICK if arguments.quick else {})
    device = costs(SIZES[:1] if arguments.quick else SIZES, SETTINGS)
    if arguments.device:
        return read("flower", arguments.folder) | {"device": device}
    rates = RATES[:1] if arguments.quick else RATES
    plan = plan_lots(
        **{name: settings[name] for name in ("epsilon", "delta", "rounds", "max_inflation")},
        users=settings["devices"],
        dim=settings["weights"],
        neighbours="zero-out",
        rotation=None,
    )
    multiplier = central_noise_std(settings["epsilon"], settings["delta"], 1.0)
    common = {"settings": settings, "data": str(arguments.data.resolve()), "multiplier": multiplier}
    code = fingerprint(HERE / "foreign.py")
    cells = Cells(arguments.folder / "flower.cells.jsonl", {"settings": settings, "code": code}, fresh=arguments.fresh)
    runner = Runner(arguments.python or python_in(arguments.venvs.resolve()))
    rows = {}
    try:
        for method in METHODS:
            jobs = [{"method": method, "rate": rate, "seed": 0} for rate in rates]
            tried = cells.all(jobs, lambda job: runner(common | job), description=f"{method}: rates")
            best = max(range(len(jobs)), key=lambda place: tried[place]["held_out"])
            more = [jobs[best] | {"seed": seed} for seed in range(1, arguments.seeds)]
            final = [tried[best], *cells.all(more, lambda job: runner(common | job), description=f"{method}: seeds")]
            rows[method] = {"tried": [one["held_out"] for one in tried], "rate": rates[best], "runs": final}
    finally:
        runner.close()
    watched = plan.guarantee.if_watched
    figures = {
        "noise_std": plan.noise_std,
        "reports_in_round": plan.size,
        "certified_delta": plan.certified_delta,
        "watched_epsilon": watched.epsilon(settings["delta"]) if watched.slack < settings["delta"] else None,
        "bits": (plan.size * plan.one_round.bits_per_coordinate).bit_length(),
    }
    about = {"python": platform.python_version(), "machine": platform.machine(), "croupier": cr.__version__}
    return {
        "quick": arguments.quick,
        "settings": settings,
        "rates": list(rates),
        "multiplier": multiplier,
        "plan": figures,
        "rows": rows,
        "device": device,
        "about": about,
    }
