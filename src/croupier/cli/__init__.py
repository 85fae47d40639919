"""The `croupier` command."""

import sys
from importlib import import_module

from .. import __version__

__all__ = ["main"]


def main() -> None:
    """Run the command. The version is told at once; the commands, and all that they need, are imported for anything else."""
    if sys.argv[1:] == ["--version"]:
        print(__version__)
        sys.exit(0)
    import_module(".app", __name__).main()
