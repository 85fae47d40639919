"""Croupier for Flower: deep networks across devices, each asked once, with masked sums and a certified promise. docs/flower.md.

Nothing here imports Flower before it is used: the second party, who opens masks, needs the plain package alone.
"""

from .analyzer import MaskAnalyzer, RemoteMaskAnalyzer
from .mod import CroupierMod
from .strategy import CroupierStrategy

__all__ = ["CroupierMod", "CroupierStrategy", "MaskAnalyzer", "RemoteMaskAnalyzer"]
