"""The programs of the gallery run and draw their figures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "style")


@pytest.mark.parametrize("name", NAMES)
def test_example_runs_and_draws(name, tmp_path):
    done = subprocess.run([sys.executable, EXAMPLES / f"{name}.py", "--out", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / f"{name}.svg").read_text().rstrip().endswith("</svg>")


def test_digits_says_its_options_and_refuses_others():
    run = [sys.executable, EXAMPLES / "digits.py"]
    shown = subprocess.run([*run, "--help"], capture_output=True, text=True, check=True).stdout
    assert "--out" in shown
    assert "--mnist" in shown
    refused = subprocess.run([*run, "--mnits", "mnist.npz"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "--mnits" in refused.stderr


def test_the_gallery_shows_every_example():
    page = (EXAMPLES.parent / "docs" / "gallery.md").read_text()
    assert len(NAMES) >= 4
    for name in NAMES:
        assert f"<summary>examples/{name}.py</summary>" in page
        assert f'--8<-- "examples/{name}.py"' in page  # the site shows the code
        assert f"(gallery/{name}.svg)" in page
