"""`python -m croupier`."""

from .cli import main

main()
