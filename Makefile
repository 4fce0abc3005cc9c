# Everything runs in .venv, which the first target that needs it creates. `make help` lists the targets.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help install demo serve check test test-fast test-integration test-isolated format bench docs clean

help:           ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP)  ## create .venv and install everything into it

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; try: make PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	@echo "installing into $(VENV): Ray, FastAPI, the demo's scorers and the tools (about a minute)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input -e '.[dev]'
	@touch $@

demo: $(STAMP)  ## start the demo service, score the sample pictures, print the table, stop
	@$(BIN)/reward-service demo

serve: $(STAMP)  ## start the demo service and keep it running (Ctrl-C stops it)
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

bench: $(STAMP)  ## measure the service against scoring in one process
	$(BIN)/python benchmarks/run.py

clean:          ## remove .venv and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
