# Everything runs from .venv, which the stamp rule builds on first use and refreshes when pyproject.toml changes.

PYTHON ?= python3
SEEDS ?= 1000

BIN := .venv/bin
STAMP := .venv/.stamp
CODE := $(wildcard src tests benchmarks examples)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo test lint docs campaign bench package clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP)  ## build .venv with the package and the development tools

demo: $(STAMP)  ## five real members through loss, a crash and a partition, Spark meanwhile, then the audit
	$(BIN)/motet demo

test: lint  ## lint, then run all tests
	$(BIN)/python -m pytest -n 2 --dist loadgroup

lint: $(STAMP)  ## ruff (rules and format) and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(CODE)

docs: $(STAMP)  ## write the pages that are made from the code, and build all of them into build/site
	$(BIN)/python -m tests.docs.reference
	$(BIN)/python -m tests.serve.operations_guide
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

package: $(STAMP)  ## build wheel and sdist into dist, and try the wheel in an empty environment
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/python -m tests.packaging.clean_install

campaign: $(STAMP)  ## SEEDS (default 1000) of each scenario, every small world, 50 kills, a million hostile datagrams
	$(BIN)/motet sim --seeds 0:$(SEEDS) --scenario channels
	$(BIN)/motet sim --seeds 0:$(SEEDS) --scenario membership
	$(BIN)/motet sim --seeds 0:$(SEEDS) --scenario torn
	$(BIN)/motet sim --seeds 0:$(SEEDS) --scenario total-order
	$(BIN)/motet sim --seeds 0:$(SEEDS) --scenario snapshot
	$(BIN)/motet sim --seeds 0:3 --scenario membership-100
	$(BIN)/motet sim --seeds all --scenario small-world
	$(BIN)/python -m tests.aio.kills --kills 50
	$(BIN)/python benchmarks/hostile.py

bench: $(STAMP)  ## measure the path of a frame through a channel, view changes and detection in virtual time
	$(BIN)/python benchmarks/channel_path.py
	$(BIN)/python benchmarks/view_changes.py
	$(BIN)/python benchmarks/detection.py
	$(BIN)/python benchmarks/flight.py
	$(BIN)/python benchmarks/journal.py
	$(BIN)/python benchmarks/idle_and_slow.py

clean:  ## remove .venv, caches and build output
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml
	@command -v "$(PYTHON)" >/dev/null || { \
	    echo "Motet needs Python 3.11 or newer, and there is no '$(PYTHON)' here. Name one: make PYTHON=python3.12 venv" >&2; \
	    exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Motet needs Python 3.11 or newer; '$(PYTHON)' is $$("$(PYTHON)" --version 2>&1). Name a newer one: make PYTHON=python3.12 venv" >&2; \
	    exit 1; }
	"$(PYTHON)" -m venv .venv
	$(BIN)/python -m pip install --quiet --no-input --disable-pip-version-check --editable '.[dev]'
	@touch $@
