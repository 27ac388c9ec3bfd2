# `make test` and `make demo` need only Python 3.11+, git and make; everything else is installed here.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: test lint types unit demo bench clean

test: lint types unit

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kanab needs Python 3.11 or newer; set PYTHON=…")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks examples .ci
	$(BIN)/ruff format --check src tests benchmarks examples .ci

types: $(READY)
	$(BIN)/mypy

# What must be covered wholly is run first and watched; watching the rest too would double its time.
WATCHED := $(addprefix tests/unit/,tally stats scan/stats)
PYTEST  := $(BIN)/pytest --numprocesses auto --dist loadfile

unit: $(READY)
	$(PYTEST) --cov --cov-report=term $(WATCHED)
	$(BIN)/python .ci/coverage_floor.py
	$(PYTEST) $(addprefix --ignore=,$(WATCHED))

demo: $(READY)
	$(BIN)/kanab demo build/demo

bench: $(READY)
	for script in benchmarks/bench_*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
