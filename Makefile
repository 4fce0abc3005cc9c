# Everything runs in .venv, which the first target that needs it creates. `make help` lists the targets.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# All that the demo needs: no torch, no tools.
DEMO   := $(VENV)/.demo
# One release for everybody's tests; any from 2.6 on runs the scorers.
TORCH  ?= torch==2.13.0
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help install demo serve check test test-fast test-integration test-isolated format parity bench clean

help:           ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP)  ## create .venv and install everything into it

define make-venv
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; try: make PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
endef

$(STAMP): pyproject.toml
	$(make-venv)
	@echo "installing into $(VENV): the service, its scorers with torch, and the tools (some minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input '$(TORCH)' -e '.[dev]'
	@touch $@ $(DEMO)

$(DEMO): pyproject.toml
	$(make-venv)
	@echo "installing into $(VENV): Ray, FastAPI and the demo's scorers (about a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input -e '.[demo]'
	@touch $@

demo: $(DEMO)  ## start the demo service, score the sample pictures, print the table, stop
	@$(BIN)/reward-service demo

serve: $(DEMO)  ## start the demo service and keep it running (Ctrl-C stops it)
	@$(BIN)/python -m reward_service --config configs/demo.yaml

check: $(STAMP)  ## the fast gate: format, lint, types, import layers, fast tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) -q -m "not gpu and not slow and not integration and not isolated"

test: $(STAMP)  ## everything that a CPU can run
	$(PYTEST) -m "not gpu"

test-fast: $(STAMP)  ## the fast tests alone
	$(PYTEST) -q -m "not gpu and not slow and not integration and not isolated"

test-integration: $(STAMP)  ## tests against a real service with Ray
	$(PYTEST) tests/integration -m integration

test-isolated: $(STAMP)  ## tests that build environments from a package registry
	$(PYTEST) -m isolated

format: $(STAMP)  ## format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

parity: $(STAMP)  ## compare every scorer with the official package, in environments that this builds (tens of GB)
	$(BIN)/python tests/parity/run.py

bench: $(STAMP)  ## measure the service against scoring in one process
	$(BIN)/python benchmarks/run.py

clean:          ## remove .venv and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .parity
