"""python -m benchmarks NAME ...: one benchmark, or a page that gathers stored results."""

from __future__ import annotations

import sys

from . import command, pages, protocol


def main(arguments: list[str]) -> None:
    """Run what the first argument names with the rest as its options."""
    name, *options = arguments or ["--help"]
    if name in pages.NAMES:
        pages.run(name, options)
    elif name in protocol.NAMES:
        command.run(name, options)
    else:
        names = ", ".join((*protocol.NAMES, *pages.NAMES))
        usage = f"usage: python -m {__package__} NAME [options], NAME one of {names}; NAME --help says more"
        sys.exit(usage if name not in ("-h", "--help") else print(usage))


if __name__ == "__main__":
    main(sys.argv[1:])
