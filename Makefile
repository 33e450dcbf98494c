# `make demo` and `make test` need only Python 3.11 or newer. Each target creates .venv and installs what it needs, and installs
# again when setup.cfg changes.

PYTHON ?= python3
VENV ?= .venv
FLOOR_VENV ?= .venv-floor
BENCH_VENV ?= .venv-bench
DJANGO_VENVS ?= .venv-django
ARGS ?=
# Tests mostly wait, so more of them run in parallel than there are cores. PARALLEL= runs them one after another.
PARALLEL ?= -n 4 --dist loadfile

RUN := $(VENV)/bin/python -m
READY := $(VENV)/.installed
FLOOR_READY := $(FLOOR_VENV)/.installed
BENCH_READY := $(BENCH_VENV)/.installed
FUZZ_READY := $(VENV)/.installed-fuzz
PACKAGING := setup.cfg setup.py pyproject.toml

.DEFAULT_GOAL := help
.PHONY: help demo test check format docs stress realcli floor browser django-matrix bench bench-quick example-django clean

help: ## Show all targets.
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / { sub("%", "NAME", $$1); printf "make %-14s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo 'Options: PYTHON=python3.12 (another interpreter), ARGS="-k idle -x" (more arguments for pytest, bench or example).'

demo: $(READY) ## Show a stream that hangs, and how a limit ends it (20 s, and the install).
	@$(VENV)/bin/streamguard demo

test: $(READY) ## Run the tests, in random order, without the stress tests and the real agent programs.
	$(RUN) pytest -m "not stress and not realcli" $(PARALLEL) $(ARGS)

check: $(READY) ## Check style (ruff), types (mypy --strict), and the documents.
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy --strict streamguard $(wildcard examples benchmarks)
	$(RUN) pytest -q tests/test_docs.py

format: $(READY) ## Format the code, and fix what ruff can fix.
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

docs: $(READY) ## Run the snippets of README and docs/, and check their links.
	$(RUN) pytest tests/test_docs.py $(ARGS)

stress: $(FUZZ_READY) ## Run the stress tests and the fuzzer: a thousand stalls, breaks, cancels (under 10 minutes).
	$(RUN) pytest -m stress --timeout=600 $(ARGS)

realcli: $(READY) ## Run six real agent programs against a gateway that hangs (installs them once, 1.6 GB).
	$(RUN) pytest -m realcli $(ARGS)

floor: $(FLOOR_READY) ## Run the tests on the oldest dependencies that setup.cfg allows.
	$(FLOOR_VENV)/bin/python -m pytest -m "not stress and not realcli" $(PARALLEL) $(ARGS)

browser: ## Install Debian's chromium and chromedriver if they are missing (as root).
	./.ci/chromium

django-matrix: ## Run tests/django on the oldest Django that we allow, and on the newest that a Python here can run.
	$(call django,$(DJANGO_VENVS)-oldest,$(PYTHON),Django==5.2)
	$(call django,$(DJANGO_VENVS)-newest,$$(./requirements/newest-python $(PYTHON)),Django)

bench: $(BENCH_READY) ## Measure everything, with other libraries, and write docs/performance.md (under 10 minutes).
	$(BENCH_VENV)/bin/python -m benchmarks.run $(ARGS)
	$(BENCH_VENV)/bin/python -m benchmarks.page

bench-quick: $(BENCH_READY) ## Measure a little of everything, and print it (under 90 s).
	$(BENCH_VENV)/bin/python -m benchmarks.run --quick $(ARGS)

example-django: $(READY) ## Serve the chat page on loopback, with scripted models.
	$(VENV)/bin/python examples/django_chat/serve.py $(ARGS)

example-%: $(READY) ## Run examples/NAME.py.
	$(VENV)/bin/python examples/$*.py $(ARGS)

clean: ## Remove the virtual environments and every cache.
	rm -rf $(VENV) $(FLOOR_VENV) $(BENCH_VENV) $(DJANGO_VENVS)-oldest $(DJANGO_VENVS)-newest build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .realcli .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): $(PACKAGING)
	$(call install,$(VENV),)

$(FUZZ_READY): $(READY)
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]' \
		|| echo 'atheris could not be installed: its tests are skipped'
	@touch $@

$(BENCH_READY): $(PACKAGING)
	$(call install,$(BENCH_VENV),,bench)

$(FLOOR_READY): $(PACKAGING) requirements/floor.txt
	$(call install,$(FLOOR_VENV),--constraint requirements/floor.txt)

# $(call install,VENV,PIP OPTIONS[,EXTRAS])
define install
@$(PYTHON) -c 'import sys; sys.exit("streamguard needs Python 3.11 or newer: make PYTHON=..." if sys.version_info < (3, 11) else 0)'
@echo "Installing into $(1) (once, about a minute)"
@$(PYTHON) -m venv $(1)
@$(1)/bin/python -m pip install --quiet --disable-pip-version-check $(2) --editable '.[$(or $(3),dev)]'
@touch $(1)/.installed
endef

# $(call django,VENV,PYTHON,DJANGO)
define django
@$(2) -m venv $(1)
@$(1)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[django,testing]' '$(3)' \
	--requirement requirements/django-tests.txt
@$(1)/bin/python -c 'import django, sys; print("Django", django.__version__, "on Python", sys.version.split()[0])'
$(1)/bin/python -m pytest tests/django $(ARGS)
endef
