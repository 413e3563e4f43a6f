# Everything runs from .venv. It is built on first use, refreshed when pyproject.toml changes, and built again when PYTHON
# names a Python of another version than the one that built it. Without PYTHON an existing .venv is used as it is.

PYTHON ?= python3
SUPPORTED := 3.11 3.12 3.13
SEEDS ?= 1000

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
CODE := $(wildcard src tests benchmarks examples)

version_of = $(shell "$(1)" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
BUILT := $(call version_of,$(BIN)/python)
IS_UNNAMED := $(filter file,$(origin PYTHON))
IS_USABLE := $(and $(BUILT),$(or $(IS_UNNAMED),$(filter $(BUILT),$(call version_of,$(PYTHON)))))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv venv-locked demo test test-all coverage lint lock docs campaign fuzz bench package clean interpreter

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP)  ## build .venv with the package and the development tools

venv-locked: interpreter  ## the same, each version and hash as in deploy/requirements-dev.lock: for CI
	$(BIN)/python -m pip install --quiet --no-input --disable-pip-version-check --require-hashes -r deploy/requirements-dev.lock
	$(BIN)/python -m pip install --quiet --no-input --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

demo: $(STAMP)  ## five real members through loss, a crash and a partition, Spark meanwhile, then the audit
	$(BIN)/motet demo

test: lint  ## lint, then run all tests
	$(BIN)/python -m pytest -n 2 --dist loadgroup

test-all:  ## lint and all tests with each supported Python that is found, in .venv-3.11, .venv-3.12 and so on
	@passed= failed= missing=; \
	for version in $(SUPPORTED); do \
	    if ! python$$version --version >/dev/null 2>&1; then missing="$$missing $$version"; \
	    elif $(MAKE) PYTHON=python$$version VENV=.venv-$$version test; then passed="$$passed $$version"; \
	    else failed="$$failed $$version"; fi; \
	done; \
	echo "Python: passed with$${passed:- none}; failed with$${failed:- none}; not found:$${missing:- none}"; \
	test -n "$$passed" && test -z "$$failed"

coverage: $(STAMP)  ## run all tests and write which lines they reach into build/coverage
	$(BIN)/python -m pip install --quiet --no-input --disable-pip-version-check 'pytest-cov>=6'
	$(BIN)/python -m pytest -n 2 --dist loadgroup --cov=motet --cov-report=term:skip-covered \
	    --cov-report=xml:build/coverage/coverage.xml --cov-report=html:build/coverage/html

lint: $(STAMP)  ## ruff (rules and format) and mypy --strict
	@echo "$$($(BIN)/python --version), in $(VENV)"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(CODE)

# uv resolves for all supported versions and platforms at once; where it found the packages is not written down.
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
    --no-emit-index-url --no-emit-find-links pyproject.toml

lock:  ## write deploy/requirements.lock and requirements-dev.lock anew from pyproject.toml; needs uv
	$(LOCK) > build.lock && { sed -n '/^#/p' deploy/requirements.lock; cat build.lock; } > new.lock && mv new.lock deploy/requirements.lock
	$(LOCK) --extra dev > build.lock && { sed -n '/^#/p' deploy/requirements-dev.lock; cat build.lock; } > new.lock && mv new.lock deploy/requirements-dev.lock
	rm -f build.lock

docs: $(STAMP)  ## write the pages that are made from the code, and build all of them into build/site
	$(BIN)/python -m tests.docs.reference
	$(BIN)/python -m tests.admin.operations_guide
	$(BIN)/python -m tests.docs.membership_tables
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

package: $(STAMP)  ## build wheel and sdist into dist, and try the wheel in an empty environment
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/python -m tests.packaging.clean_install

campaign: $(STAMP)  ## SEEDS (default 1000) of each scenario, every small world, 50 kills, a million hostile datagrams
	$(BIN)/motet sim --seeds 0:$(SEEDS) --scenario channels
	$(BIN)/motet sim --seeds 0:$(SEEDS) --scenario membership
	$(BIN)/motet sim --seeds 0:$(SEEDS) --scenario interrupted
	$(BIN)/motet sim --seeds 0:$(SEEDS) --scenario total-order
	$(BIN)/motet sim --seeds 0:$(SEEDS) --scenario snapshot
	$(BIN)/motet sim --seeds 0:$(SEEDS) --scenario presets
	$(BIN)/motet sim --seeds 0:$(SEEDS) --scenario busy
	$(BIN)/motet sim --seeds 0:3 --scenario membership-100
	$(BIN)/motet sim --seeds all --scenario small-world
	$(BIN)/python -m tests.runtime.kills --kills 50
	$(BIN)/python benchmarks/hostile.py

fuzz: $(STAMP)  ## hostile datagrams against whole members, the codec, and the services (coverage-guided with atheris)
	$(BIN)/python -m pip install --quiet --no-input --disable-pip-version-check atheris || echo "no atheris: at random"
	$(BIN)/python -m tests.fuzz.codec
	$(BIN)/python -m tests.fuzz.datagrams --frames 200000
	$(BIN)/python -m tests.fuzz.services --seconds 200

bench: $(STAMP)  ## measure the path of a frame through a channel, view changes and detection in virtual time
	$(BIN)/python benchmarks/channel_path.py
	$(BIN)/python benchmarks/view_changes.py
	$(BIN)/python benchmarks/detection.py
	$(BIN)/python benchmarks/flight.py
	$(BIN)/python benchmarks/journal.py
	$(BIN)/python benchmarks/idle_and_slow.py

clean:  ## remove .venv and those of test-all, caches and build output
	rm -rf .venv .venv-3.* .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml $(if $(IS_USABLE),,interpreter)
	@test -x $(BIN)/python || $(MAKE) --no-print-directory interpreter
	$(BIN)/python -m pip install --quiet --no-input --disable-pip-version-check --editable '.[dev]'
	@touch $@

interpreter:
	@"$(PYTHON)" -c '' 2>/dev/null || { \
	    echo "There is no '$(PYTHON)' here that runs. Motet supports Python $(SUPPORTED); name one: make PYTHON=python3.12 venv" >&2; \
	    exit 1; }
	@case " $(SUPPORTED) " in *" $(call version_of,$(PYTHON)) "*) ;; *) \
	    echo "Motet supports Python $(SUPPORTED), and '$(PYTHON)' is $$("$(PYTHON)" --version 2>&1). Name one: make PYTHON=python3.12 venv" >&2; \
	    exit 1; esac
	@test -z "$(BUILT)" || echo "$(VENV) was built with Python $(BUILT), and is built again with $$("$(PYTHON)" --version)."
	"$(PYTHON)" -m venv --clear $(VENV)
