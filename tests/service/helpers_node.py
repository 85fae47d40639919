"""Node, where it is installed: what the TypeScript client makes of what is asked."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "clients" / "typescript"
PAGE = ROOT / "src" / "croupier" / "service" / "shuffler" / "page"


def why_no_node() -> str | None:
    """Why Node cannot be used here; None where it can. The client needs Node 20."""
    node = shutil.which("node")
    if node is None:
        return "Node is not installed"
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    number = version.removeprefix("v").split(".")[0]
    return None if number.isdecimal() and int(number) >= 20 else f"Node {version} is too old"


needs_node = pytest.mark.skipif(why_no_node() is not None, reason=str(why_no_node()))


def node(*arguments: str | Path, text: str = "", timeout: float = 600) -> str:
    """What a program in Node prints; an error with what it complained about."""
    command = ["node", *map(str, arguments)]

    def run(seconds: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=seconds, check=False)

    try:
        done = run(min(timeout, 240))
    except subprocess.TimeoutExpired:  # once in some thousand starts Node 20 hangs before it runs anything
        done = run(timeout)
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    return done.stdout


def asked(what: str, **values: Any) -> Any:
    """What the TypeScript client makes of these values: test/ask.mjs."""
    return json.loads(node(CLIENT / "test" / "ask.mjs", text=json.dumps({"what": what, **values})))
