# make demo, make test: everything is set up in .venv on first use. Needs Python 3.11 or newer and make, nothing else.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv)

.PHONY: demo test lint types check bench clean

demo: $(VENV)/core.stamp
	$(BIN)/croupier demo

test: lint types check

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp
	$(BIN)/mypy

check: $(VENV)/dev.stamp
	$(BIN)/pytest -n 2

bench: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/round.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	$(if $(UV),$(UV) venv --python $(PYTHON) $(VENV),$(PYTHON) -m venv $(VENV))

$(VENV)/core.stamp: $(BIN)/python pyproject.toml
	$(if $(UV),$(UV) pip install --quiet --python $(BIN)/python -e .,$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .)
	touch $@

$(VENV)/dev.stamp: $(BIN)/python pyproject.toml
	$(if $(UV),$(UV) pip install --quiet --python $(BIN)/python -e ".[dev]",$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]")
	touch $@ $(VENV)/core.stamp
