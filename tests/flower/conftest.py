"""The tests in `inside` need Flower: without it they are not collected here, and test_flower.py runs them where it is."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("flwr") else ["inside/*"]
