"""A network across devices, in Flower: Croupier beside Flower's own differential privacy and beside no noise, on MNIST.

--data is a folder with `load.py` and MNIST. 5 000 simulated devices with 11 images each train the convolutional network of 26 010
weights that the literature on private learning uses; each device is asked once, in one of 20 rounds. Everything goes through
Flower's own message API, with the mod and the strategy as they are; only the devices' training runs many at a time. Every method
tries the same server rates, and the images of 454 further devices choose; the test images judge. Finished runs are kept in
flower.cells.jsonl. Flower and torch get a virtual environment of their own in --venvs, or --python names one. --quick: 600 devices,
5 rounds, one rate.
"""

from __future__ import annotations

from ..protocol import no_figures as figures
from .judging import judge
from .measuring import measure, options
from .writing import headline, page, summary

__all__ = ["figures", "headline", "judge", "measure", "options", "page", "summary"]
