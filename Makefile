# Two commands do everything on a fresh machine:
#   make demo   migrate a plain script, review the diff, train it on two processes
#   make test   environment, lint, types, every test
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export OMP_NUM_THREADS ?= 1
# xdist workers; CI has two cores.
WORKERS ?= 2

.PHONY: demo test lint types tests env golden bench clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

env: $(STAMP)

demo: $(STAMP)
	@$(BIN)/python -m tests.demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

tests: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -q

test: lint types tests

# Writes golden/*/after.py and report.json anew; the review is the git diff.
golden: $(STAMP)
	$(BIN)/python -m tests.golden.regenerate

bench: $(STAMP)
	$(BIN)/python -m tests.benchmarks

clean:
	rm -rf $(VENV) .demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
