"""Build docs/paper/paper.pdf with Typst, the command or the Python package: python tools/paper.py [--out FILE].

Every measured figure is read from benchmarks/results.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "docs" / "paper" / "paper.typ"


def build(out: Path) -> None:
    """Compile the paper, or exit with what has to be installed."""
    if command := shutil.which("typst"):
        subprocess.run([command, "compile", "--root", str(ROOT), str(SOURCE), str(out)], check=True)
    elif importlib.util.find_spec("typst"):
        import typst  # noqa: PLC0415

        typst.compile(str(SOURCE), output=str(out), root=str(ROOT))
    else:
        raise SystemExit("Typst is not installed. Install the command (https://typst.app/open-source) or: pip install typst")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=SOURCE.with_suffix(".pdf"))
    chosen = parser.parse_args().out
    build(chosen)
    print(f"the paper is in {chosen}")
