"""Croupier: private sums, and models trained on them, in the shuffle model."""

__version__ = "0.1.0"
