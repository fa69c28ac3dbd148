# Every target sets up what it needs, from nothing, inside this folder and the user's cache; done once, that is quick.
# Needed on the machine: Python 3.11 or newer with its venv module, and Java 17 or 21 for all but `check` and `lock`.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help demo test check bench soak fuzz lock clean java python

PYTHON ?= python3
VENV ?= .venv
ROUNDS ?= 20
SECONDS ?= 60

# Two stamps, each written last: a set-up cut half way has none and is begun again.
LOCKED := $(VENV)/.locked
READY := $(VENV)/.ready

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: java $(READY) ## run the quickstart: a few thousand events into tables that move together
	@$(VENV)/bin/python -m anabranch.cli.demo

# Two processes, each with servers of its own; a file of tests stays in one, for what its tests share.
test: java $(READY) ## run every test
	@$(VENV)/bin/python tests/spark_classes.py || true  # tests do without
	@$(VENV)/bin/python -m pytest -n 2 --dist loadfile

check: $(READY) ## look at the code: ruff, mypy --strict, who may import whom
	@$(VENV)/bin/ruff check
	@$(VENV)/bin/ruff format --check
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports

bench: java $(READY) ## measure, and write bench/results; QUICK=1: within three minutes; ONLY=three,small: some cases
	@$(VENV)/bin/python bench/run.py $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

soak: java $(READY) ## kill and recover a pipeline, ROUNDS times (default 20)
	@$(VENV)/bin/python tests/crash/soak.py --rounds $(ROUNDS)

fuzz: java $(READY) ## look for records that the native pass reads differently from Spark, for SECONDS (default 60)
	@$(VENV)/bin/python tests/native/fuzz.py --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

lock: python ## choose the newest allowed versions and write requirements.lock
	@tools=$$(mktemp -d); trap 'rm -rf "$$tools"' EXIT; \
	$(PYTHON) -m venv "$$tools/venv"; \
	"$$tools/venv/bin/pip" install --quiet uv; \
	"$$tools/venv/bin/uv" pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-emit-index-url --group dev pyproject.toml --output-file "$$tools/requirements.lock"; \
	if grep -n '://' "$$tools/requirements.lock"; then \
	  echo 'make lock: the lock must not name a host; requirements.lock is left as it was' >&2; exit 2; fi; \
	cp "$$tools/requirements.lock" requirements.lock

clean: ## remove all that was made here (the jars in the user's cache stay)
	@rm -rf $(VENV) demo dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} +

# Asked before anything is downloaded; which version it is, the engine checks when it starts Spark.
java:
	@if [ -n "$${JAVA_HOME:-}" ]; then \
	  [ -x "$$JAVA_HOME/bin/java" ] || { \
	    echo "Java is missing: JAVA_HOME is $$JAVA_HOME, but there is no bin/java in it." >&2; \
	    echo "Unset JAVA_HOME, or install Java 17: apt install openjdk-17-jre-headless" >&2; exit 2; }; \
	elif ! command -v java >/dev/null; then \
	  echo "Java is missing: no java on PATH, and JAVA_HOME is not set." >&2; \
	  echo "Install Java 17: apt install openjdk-17-jre-headless (Debian, Ubuntu)," >&2; \
	  echo "dnf install java-17-openjdk-headless (Fedora), brew install openjdk@17 (macOS)." >&2; exit 2; \
	fi

python:
	@command -v $(PYTHON) >/dev/null || { echo "Python is missing: no $(PYTHON) on PATH. Install Python 3.11 or newer." >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$$($(PYTHON) --version) is too old: Python 3.11 or newer is needed." >&2; \
	  echo "If there is one under another name: make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "$$($(PYTHON) --version) has no venv module. Install it: apt install python3-venv" >&2; exit 2; }

# The lock is complete, so pip need not work out dependencies (--no-deps); hashes are checked for each file.
# `python` is order-only: it is a question, not a file, and must not make the environment look out of date.
$(LOCKED): requirements.lock | python
	@echo "setting up $(VENV), once ..." >&2
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements.lock
	@touch $@

$(READY): $(LOCKED) pyproject.toml
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
