# make demo, make test: everything is set up in .venv on first use. Needs Python 3.11 or newer and make, nothing else.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv)

.PHONY: demo test test-process test-all lint types check bench rates sum scale statistics proofs accountants evidence gallery docs client clean

demo: $(VENV)/demo.stamp
	$(BIN)/croupier demo

test: lint types check

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp
	$(BIN)/mypy

# What needs no process, browser, cluster, site or wheel.
check: $(VENV)/dev.stamp
	$(BIN)/pytest -n 2 --dist loadgroup -m "not process and not slow"

# What needs one.
test-process: $(VENV)/dev.stamp
	$(BIN)/pytest -n 2 --dist loadgroup -m "process and not slow"

# Everything; the slow tests take some 40 minutes.
test-all: lint types $(VENV)/dev.stamp
	$(BIN)/pytest -n 2 --dist loadgroup

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
	for name in mean_pictures price_of_privacy prediction_band stream; do $(BIN)/python examples/$$name.py || exit 1; done

docs: $(VENV)/docs.stamp
	$(BIN)/python tools/reference.py
	$(BIN)/zensical build --clean --strict
	@echo "the site is in site/index.html"

# The browser's client and the page, from clients/typescript into the package. Needs Node 20 and npm.
client:
	cd clients/typescript && npm ci --no-audit --no-fund && npm run types && npm run build

clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis

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
