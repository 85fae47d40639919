"""Data sets that a user of the benchmarks provides."""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path
from types import ModuleType


@lru_cache(maxsize=1)
def loader(folder: Path) -> ModuleType:
    """Return the module load.py of this folder; the program ends where there is none."""
    spec = importlib.util.spec_from_file_location("croupier_benchmarks_data", folder / "load.py")
    if spec is None or spec.loader is None or not (folder / "load.py").exists():
        raise SystemExit(f"there is no load.py in {folder}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
