"""python simulate.py numpy_app [devices]: an app under Flower's simulation engine, masks opened by a process of its own."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


def main(name: str, devices: int = 400) -> None:
    """Start a mask analyzer, tell app and devices its key, and run."""
    from flwr.simulation import run_simulation  # noqa: PLC0415

    command = [sys.executable, "-m", "croupier", "mask-analyzer", "--port", "0"]
    with tempfile.TemporaryDirectory() as folder:
        analyzer = subprocess.Popen([*command, "--dir", folder], stderr=subprocess.PIPE, text=True)
        try:
            os.environ["CROUPIER_MASK_URL"] = analyzer.stderr.readline().split()[-1]
            os.environ["CROUPIER_MASK_KEY"] = analyzer.stderr.readline().split()[-1]
            # the simulation's workers have to find the app, too
            sys.path.insert(0, str(HERE))
            os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
            server = importlib.import_module(f"{name}.server_app")
            server.DEFAULTS["devices"] = devices
            client = importlib.import_module(f"{name}.client_app").app
            resources = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2}}
            run_simulation(server.app, client, num_supernodes=devices, backend_config=resources)
        finally:
            analyzer.terminate()
            analyzer.wait()


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
