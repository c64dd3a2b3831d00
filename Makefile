# Two commands: `make night` and `make test`. Both set up what they need, once.

PYTHON ?= python3
SCALE ?= smoke
ARGS ?=
BIN := .venv/bin
STAMP := .venv/.set-up
WEB := components/inspector/web
ASSETS := components/inspector/assets/index.html

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
.PHONY: help setup inspector inspector-test night test test-long gpu docs ui requirements audit sbom release-check pin-images clean

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 15
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

inspector: $(ASSETS) ## the page of `ratchet inspect`, built once from its TypeScript; needs Node.js 18 or newer with npm

$(ASSETS): $(STAMP) $(wildcard components/inspector/*.py) $(addprefix $(WEB)/,package-lock.json index.html tsconfig.json vite.config.ts) \
		$(shell find $(WEB)/src $(WEB)/public -type f ! -name schema.d.ts)
	@command -v npm >/dev/null || { echo "error: npm is absent; install Node.js 18 or newer with npm, then: make inspector" >&2; exit 2; }
	@cd $(WEB) && cmp -s package-lock.json node_modules/.from-lock || { npm ci --silent && cp package-lock.json node_modules/.from-lock; } \
		|| { echo "error: npm could not install what $(WEB)/package-lock.json names; is its registry reachable?" >&2; exit 4; }
	@$(BIN)/python -m ratchet.components.inspector.app >$(WEB)/openapi.json
	@cd $(WEB) && npm run --silent types >/dev/null && npm run --silent build

# Where npm is absent or cannot install, the tests in Python still run, and those of the page in Chromium are skipped.
inspector-test: ## lint, types and unit tests of that page
	@if ! command -v npm >/dev/null; then echo "inspector: npm is absent; its front end is not checked"; \
	elif ! $(MAKE) --no-print-directory inspector; then \
		test ! -e $(WEB)/node_modules/.from-lock || exit 1; echo "inspector: npm could not install; its front end is not checked"; \
	else cd $(WEB) && npm run --silent lint && npm run --silent test; fi

night: $(STAMP) ## one night: collect, build, train, evaluate, promote or not (SCALE=smoke)
	@$(BIN)/ratchet night --scale $(SCALE) $(ARGS)

test: $(STAMP) ## formatting, types, the import rule, then every test (ARGS='-m "not slow"' for the quick ones)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	@$(MAKE) --no-print-directory inspector-test
	$(BIN)/python -m pytest -n auto --dist loadgroup $(ARGS)

test-long: $(STAMP) ## the tests that take minutes each; run them before a release (ARGS='-k docker')
	$(BIN)/python -m pytest -m long $(ARGS)

# Sets up nothing: a machine with a GPU may have no network. A PYTHON of one's own comes before the environment of the clone.
gpu: ## GPU tests and training speed on this GPU in ten minutes, without network (PYTHON=python3: its packages)
	@$(firstword $(if $(filter file,$(origin PYTHON)),$(wildcard $(BIN)/python)) $(PYTHON)) benchmarks/gpu.py $(ARGS)

docs: $(STAMP) ## the documentation as a website in site/; a broken link or a page without a place in the navigation is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

ui: $(STAMP) ## Prefect and MLflow on loopback, until Ctrl-C
	@$(BIN)/ratchet ui $(ARGS)

requirements: $(STAMP) ## requirements.txt anew: the versions of constraints.txt with the hashes of their files, without torch
	@echo '# Every package of constraints.txt with the hashes of its files. Without torch: its build depends on the machine.' >requirements.tmp
	@echo '# Made anew by `make requirements`; docs/releasing.md says how to install from it.' >>requirements.tmp
	$(BIN)/uv pip compile --quiet pyproject.toml --extra dev --python-version 3.11 --constraint constraints.txt \
		--generate-hashes --no-annotate --no-header --no-emit-package torch >>requirements.tmp || { rm -f requirements.tmp; exit 4; }
	@mv requirements.tmp requirements.txt

audit: $(STAMP) ## known vulnerabilities of the packages in constraints.txt; needs the package index and its advisories
	@$(BIN)/uvx --quiet pip-audit==2.10.1 --strict --no-deps --disable-pip --progress-spinner off --requirement constraints.txt \
		|| { echo "error: vulnerabilities were found, or the package index gave no advisories (offline, or a mirror): see above" >&2; exit 1; }

sbom: $(STAMP) ## dist/sbom.cdx.json: the installed packages with versions and licences, as CycloneDX
	@mkdir -p dist
	@$(BIN)/uvx --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
		--output-file dist/sbom.cdx.json $(BIN)/python
	@echo dist/sbom.cdx.json

release-check: $(STAMP) inspector ## build the packages into dist/ and check that they can be released; uploads nothing
	@UV=$(BIN)/uv .ci/release-check

pin-images: $(STAMP) ## write the digests of the images of infra/ into its files; needs their registries
	@$(BIN)/python infra/pin_images.py

clean: ## remove the environment and the caches; nights, models and data stay
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache *.egg-info $(WEB)/node_modules $(dir $(ASSETS))
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
