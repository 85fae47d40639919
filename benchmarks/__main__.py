"""python -m benchmarks NAME ...: one benchmark, or `evidence`, the page that gathers them."""

from __future__ import annotations

import sys

from . import command, evidence
from .protocol import NAMES


def main(arguments: list[str]) -> None:
    """Run what the first argument names with the rest as its options."""
    name, *options = arguments or ["--help"]
    if name == "evidence":
        evidence.main(options)
    elif name in NAMES:
        command.run(name, options)
    else:
        usage = f"usage: python -m {__package__} NAME [options], NAME one of {', '.join(NAMES)}, evidence; NAME --help says more"
        sys.exit(usage if name not in ("-h", "--help") else print(usage))


if __name__ == "__main__":
    main(sys.argv[1:])
