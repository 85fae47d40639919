# make demo, make test: everything is set up in .venv on first use. Needs Python 3.11 or newer and make, nothing else.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv)
# Flower's pins do not go with those of `dev` (pyproject.toml): its tests have an environment of their own.
FLOWER := .venv-flower
# Without byte code every worker rewrites every test's assertions, and every program that a test starts compiles the package.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-process test-all lint types check coverage release bench rates sum scale statistics proofs accountants evidence gallery docs paper client clean

demo: $(VENV)/demo.stamp
	$(BIN)/croupier demo

PYTEST := $(BIN)/pytest -n 3 --dist loadgroup
# What needs no process, browser, cluster, site or wheel.
CHECK := $(PYTEST) -m "not process and not slow"

# The types are checked beside the tests, and printed after them.
test: lint $(VENV)/dev.stamp
	$(BIN)/mypy > $(VENV)/types.log 2>&1 & types=$$!; \
	$(CHECK); tests=$$?; \
	wait $$types; typed=$$?; cat $(VENV)/types.log; exit $$((tests || typed))

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp
	$(BIN)/mypy

check: $(VENV)/dev.stamp
	$(CHECK)

# What needs one.
test-process: $(VENV)/dev.stamp $(FLOWER)/flower.stamp
	$(PYTEST) -m "process and not slow"

# Everything; the slow tests take some 40 minutes.
test-all: lint types $(VENV)/dev.stamp $(FLOWER)/flower.stamp
	$(PYTEST)

# How much of the package the tests without processes run: printed, and as coverage.xml.
coverage: $(VENV)/dev.stamp
	$(CHECK) --cov --cov-report=term:skip-covered --cov-report=xml

# What a release would be: built, checked, installed alone and tried. Publishes nothing.
release:
	$(PYTHON) tools/release.py check --dry-run
	$(PYTHON) tools/release.py try --dist dist

bench: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks round
	$(BIN)/python -m benchmarks speed

rates: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks rates

sum: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks sum

scale: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks scale

# make statistics DATA=folder, with adult.npz, covtype.npz and load.py
statistics: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks private_statistics --data $(DATA)

proofs: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks proofs

accountants: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks accountants

evidence: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks evidence
	$(BIN)/python -m benchmarks audit

gallery: $(VENV)/dev.stamp
	for program in $(filter-out examples/style.py,$(wildcard examples/*.py)); do $(BIN)/python $$program || exit 1; done

docs: $(VENV)/docs.stamp
	$(BIN)/python tools/reference.py
	$(BIN)/zensical build --clean --strict
	@echo "the site is in site/index.html"

# Our own paper, where Typst is installed (the command, or the Python package).
paper:
	$(PYTHON) tools/paper.py

# The browser's client and the page, from clients/typescript into the package. Needs Node 20 and npm.
client:
	cd clients/typescript && npm ci --no-audit --no-fund && npm run types && npm run build

clean:
	rm -rf $(VENV) $(FLOWER) site .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	$(if $(UV),$(UV) venv --python $(PYTHON) $(VENV),$(PYTHON) -m venv $(VENV))

$(VENV)/demo.stamp: $(BIN)/python pyproject.toml
	$(if $(UV),$(UV) pip install --quiet --python $(BIN)/python -e ".[demo]",$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[demo]")
	touch $@

$(VENV)/dev.stamp: $(BIN)/python pyproject.toml
	$(if $(UV),$(UV) pip install --quiet --python $(BIN)/python -e ".[dev]",$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]")
	touch $@ $(VENV)/demo.stamp $(VENV)/docs.stamp

$(VENV)/docs.stamp: $(BIN)/python pyproject.toml
	$(if $(UV),$(UV) pip install --quiet --python $(BIN)/python -e ".[docs]",$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]")
	touch $@

$(FLOWER)/flower.stamp: pyproject.toml
	$(if $(UV),$(UV) venv --clear --python $(PYTHON) $(FLOWER),$(PYTHON) -m venv --clear $(FLOWER))
	$(if $(UV),$(UV) pip install --quiet --python $(FLOWER)/bin/python,$(FLOWER)/bin/python -m pip install --quiet --disable-pip-version-check) -e ".[flower]" "flwr[simulation]" pytest
	touch $@
