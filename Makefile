# Two commands: `make night` and `make test`. Both set up what they need, once.

PYTHON ?= python3
SCALE ?= smoke
ARGS ?=
BIN := .venv/bin
STAMP := .venv/.set-up

# uv does not read pip's find-links: pass them on (pip separates with spaces, uv with commas).
empty :=
space := $(empty) $(empty)
comma := ,
UV_FIND_LINKS ?= $(subst $(space),$(comma),$(strip $(PIP_FIND_LINKS)))
ifneq ($(UV_FIND_LINKS),)
export UV_FIND_LINKS
else
# Without links of one's own, uv picks torch's CPU build where there is no GPU.
TORCH := --torch-backend=auto
endif

# An environment holds absolute paths: where the clone was moved or copied, the stamp names another folder, and is made again.
ifneq ($(strip $(shell cat $(STAMP) 2>/dev/null)),$(strip $(CURDIR)))
.PHONY: $(STAMP)
endif

# A night starts many Python processes: let them keep the bytecode that they compile.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup night test test-long docs ui clean

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12
	@echo "variables: SCALE=$(SCALE) ARGS='--seed 3' PYTHON=$(PYTHON)"

setup: $(STAMP) ## the virtual environment and every package, as pinned in constraints.txt

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo "error: $(PYTHON) is not Python 3.11 or newer; say which one to use: make PYTHON=python3.11 setup" >&2; exit 2; }
	@stood=$$(cat $@ 2>/dev/null); case "$$stood" in ''|"$$(pwd -P)") ;; \
		*) echo "this clone was moved or copied from $$stood: its environment is set up again"; rm -rf .venv ;; esac
	@test -x $(BIN)/python || { rm -rf .venv && $(PYTHON) -m venv .venv; }
	@test -x $(BIN)/uv || $(BIN)/pip install --quiet --constraint constraints.txt uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python $(TORCH) --constraint constraints.txt --editable ".[dev]"
	@$(BIN)/python -c 'from ratchet.components.datasets.versioning.sealed_nights import ensure_build_file; ensure_build_file()'
	@pwd -P >$@

night: $(STAMP) ## one night: collect, build, train, evaluate, promote or not (SCALE=smoke)
	@$(BIN)/ratchet night --scale $(SCALE) $(ARGS)

test: $(STAMP) ## formatting, types, the import rule, then every test (ARGS='-m "not slow"' for the quick ones)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest -n auto --dist loadgroup $(ARGS)

test-long: $(STAMP) ## the tests that take minutes each; run them before a release (ARGS='-k docker')
	$(BIN)/python -m pytest -m long $(ARGS)

docs: $(STAMP) ## the documentation as a website in site/; a broken link or a page without a place in the navigation is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

ui: $(STAMP) ## Prefect and MLflow on loopback, until Ctrl-C
	@$(BIN)/ratchet ui $(ARGS)

clean: ## remove the environment and the caches; nights, models and data stay
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
