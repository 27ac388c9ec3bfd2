# `make test` and `make demo` need only Python 3.11+, git and make; everything else is installed here.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# Tests start many processes: let them find the package compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help quick test lint types unit demo docs dist audit bench soak clean

help: ## list what can be made
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 8

quick: lint ## lint and the fast tests, in under a minute on two idle cores: no types, Java, PostgreSQL or browser
	$(PYTEST) auto --quick

test: lint types unit ## everything that CI runs: lint, types and all tests, in about ten minutes on two cores

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kanab needs Python 3.11 or newer; set PYTHON=…")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

# The demonstration needs little; where everything is installed already, that serves.
DEMO := $(VENV)/.demo
$(DEMO): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[server]'
	touch $@

lint: $(READY) ## check style and format with ruff
	$(BIN)/ruff check src tests benchmarks examples docs .ci
	$(BIN)/ruff format --check src tests benchmarks examples docs .ci

types: $(READY) ## check types with mypy
	$(BIN)/mypy --num-workers auto

# What must be covered wholly is run first and watched; watching the rest too would double its time.
WATCHED := $(addprefix tests/unit/,tally stats scan/stats)
PYTEST  := $(BIN)/pytest --dist loadfile --numprocesses
# Tests of servers and pages wait for much of their time: one worker more than there are cores.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

unit: $(READY) ## all tests; those of tally and stats must run every line and branch
	$(PYTEST) auto --cov --cov-report=term $(WATCHED)
	$(BIN)/python .ci/coverage_floor.py
	$(PYTEST) $(WORKERS) $(addprefix --ignore=,$(WATCHED))

demo: $(if $(wildcard $(READY)),$(READY),$(DEMO)) ## a shop, its collector and its dashboard, with visitors
	$(BIN)/kanab demo build/demo

docs: $(READY) ## the documentation site, in build/site; a link that leads nowhere is an error
	$(BIN)/python docs/site/build.py
	@echo "build/site/index.html. With search: $(BIN)/python -m http.server --directory build/site"

dist: $(READY) ## wheel, source archive and SBOM (CycloneDX, of kanab[all] as pinned) in build/dist
	rm -rf build/dist
	$(BIN)/python -m build --outdir build/dist .
	$(BIN)/python .ci/sbom.py build/dist/kanab.cdx.json

audit: $(READY) ## known vulnerabilities of the pinned packages, where the index of pip-audit can be reached
	$(BIN)/python .ci/audit.py

bench: $(READY) ## run every benchmark
	for script in benchmarks/bench_*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

soak: $(READY) ## kill, attack and starve collectors for about two hours; one line of result for each kind of trouble
	$(BIN)/python -m tests.soak

clean: ## remove the environment and everything that was made
	rm -rf $(VENV) .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
