# The commands of this repository. `make run` and `make test` need only python3 (3.11 or newer), git and a package registry.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST := $(BIN)/python -m pytest

.PHONY: help run test test-long check fix bench docs clean
help: ## say what each command does
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/run.ok: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@echo "Setting up $(VENV) (once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(VENV)/test.ok: $(VENV)/run.ok
	@echo "Adding what the tests and checks need (once) ..."
	@$(PIP) install --constraint constraints.txt --editable '.[test,check]'
	@touch $@

run: $(VENV)/run.ok ## serve the weather example on 127.0.0.1:8000, no key needed
	@$(BIN)/polyport serve examples/weather $(ARGS)

test: $(VENV)/test.ok ## run the tests
	@$(PYTEST) -m "not long" $(ARGS)

test-long: $(VENV)/test.ok ## run the tests that take minutes or large packages
	@$(PYTEST) -m long $(ARGS)

check: $(VENV)/test.ok ## format, lint, types, floors, sizes
	@$(BIN)/ruff format --check --quiet . || (echo "run: make fix" && exit 1)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/pyright --warnings
	@$(BIN)/lint-imports --no-cache --no-logo
	@$(BIN)/python tests/shape/sizes.py

fix: $(VENV)/test.ok ## format and repair what lint can
	@$(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format --quiet .

bench: $(VENV)/run.ok ## measure against google-adk on this machine; prints one table
	@$(BIN)/python benches/main.py $(ARGS)

docs: $(VENV)/test.ok ## run every example of the documentation
	@$(PYTEST) tests/docs $(ARGS)

clean: ## remove the environments
	rm -rf $(VENV) .bench
