# Two commands do everything on a fresh machine:
#   make demo   migrate a plain script, review the diff, train it on two processes
#   make test   environment, lint, types, documentation, the short set of tests
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export OMP_NUM_THREADS ?= 1
# xdist workers; CI has two cores.
WORKERS ?= 2

.PHONY: demo test test-all test-xla test-cpus lint types tests env golden docs dist bench faults fuzz mutants gpu-check gpu-dry-run clean

$(STAMP): pyproject.toml constraints.txt
	@echo "installing PyTorch and the tools into $(VENV): two to four minutes the first time"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --constraint constraints.txt --editable '.[dev]'
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

# The environment for XLA is mostly downloads, which neither the other environment nor the other checks need to wait for.
test:
	@$(MAKE) --no-print-directory $(XLA)/.installed & pid=$$!; \
	$(MAKE) --no-print-directory -j2 lint types docs && $(MAKE) --no-print-directory tests || { kill $$pid; exit 1; }; \
	wait $$pid && $(MAKE) --no-print-directory test-xla

# The slow tests too.
test-all: lint types docs test-xla
	CROSSTRAIN_TEST_ALL=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -q

# torch_xla needs a torch of its own, so an environment of its own: three to five minutes and 7 GB the first time, because
# no registry has torch 2.9.1 without CUDA. The large wheels come one by one, each gone before the next is there: 9 GB of disk
# are enough.
XLA := $(VENV)-xla
$(XLA)/.installed: pyproject.toml constraints-xla.txt
	@free=$$(df -Pk . | awk 'NR == 2 {print int($$4 / 1000000)}'); test "$$free" -ge 9 || { \
		echo "$(XLA) needs 9 GB of disk, and $$free GB are free: make room, or run make lint types docs tests" >&2; exit 1; }
	@echo "installing PyTorch/XLA and its PyTorch into $(XLA): three to ten minutes the first time"
	$(PYTHON) -m venv $(XLA)
	grep -E '^(nvidia|torch|triton)' constraints-xla.txt | xargs -n 1 $(XLA)/bin/python -m pip install --quiet --no-deps --no-cache-dir
	$(XLA)/bin/python -m pip install --quiet --constraint constraints-xla.txt --editable '.[tpu]' pytest pytest-xdist scikit-learn
	@touch $@

test-xla: $(XLA)/.installed
	$(XLA)/bin/python -m pytest tests/xla -n $(WORKERS) --dist worksteal -q

# The tests that compare numbers, under every setting that changes how the CPU rounds: about 10 minutes each. A CPU that has no
# AVX2 or AVX-512 takes the best that it has.
ROUNDINGS := native=1 ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 ATEN_CPU_CAPABILITY=avx512 \
	MKL_ENABLE_INSTRUCTIONS=SSE4_2,ONEDNN_MAX_CPU_ISA=SSE41 OMP_NUM_THREADS=2
test-cpus: $(STAMP)
	failed=; for setting in $(ROUNDINGS); do echo "== $$setting"; env $$(echo $$setting | tr , ' ') $(BIN)/python -m pytest \
		-n $(WORKERS) --dist worksteal -q tests/golden tests/verify tests/runtime tests/notebooks tests/corpora \
		|| failed="$$failed $$setting"; done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

# Writes golden/*/after.py and report.json anew; the review is the git diff.
golden: $(STAMP)
	$(BIN)/python -m tests.golden.regenerate

# The documentation as a site, in docs/_build/html. Every warning is an error.
docs: $(STAMP)
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -b html docs docs/_build/html

# Hundreds of kills and full disks; nothing may be lost.
faults: $(STAMP)
	CROSSTRAIN_TEST_ALL=1 CROSSTRAIN_FAULTS=23 $(BIN)/python -m pytest -q tests/faults/test_faults.py

# Everything that needs a GPU, into build/gpu-check.md. Exit code 3 of the command: this machine has none, and XLA's CPU client
# stands in for it.
gpu-check: $(STAMP)
	$(BIN)/python -m tests.gpu_check || { test $$? -eq 3 && $(MAKE) --no-print-directory gpu-dry-run; }

gpu-dry-run: $(XLA)/.installed
	$(XLA)/bin/python -m tests.gpu_check --device xla --fast

# The wheel, in dist/. Needs Python and pip, and none of the environment above.
dist:
	PIP_CONSTRAINT=constraints.txt $(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir dist .

# A hundred planted mistakes, one after another: which test notices each, into build/mutants.md. Most of a night.
mutants: $(STAMP)
	$(BIN)/python -m tests.mutants --workers $(WORKERS)

# Golden scripts with lines changed, new ones on every run; the smallest that breaks an oracle is shown.
fuzz: $(STAMP)
	CROSSTRAIN_FUZZ=5000 $(BIN)/python -m pytest -q tests/fuzz

# Ratios of the runtime to its peers, of conversions to those by hand, of the tool to other tools, and its growth.
bench: $(STAMP)
	$(BIN)/python -m tests.benchmarks
	$(BIN)/python -m tests.benchmarks.saving
	$(BIN)/python -m tests.benchmarks.variance
	$(BIN)/python -m tests.benchmarks.conversions
	$(BIN)/python -m tests.benchmarks.tools
	$(BIN)/python -m tests.benchmarks.growth

clean:
	rm -rf $(VENV) $(XLA) docs/_build docs/rules docs/reference/command_line.md .demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
