# `make help` lists the targets. Everything runs inside $(VENV), which is made on first use and
# installed again when pyproject.toml changes.

PYTHON ?= python3
VENV ?= .venv
# What pip installs: the working tree itself, so that an edit needs no new install.
INSTALL ?= --editable .[dev]
# Extra arguments for pytest, e.g. make test PYTEST_ARGS="-k golden -x"
PYTEST_ARGS ?=
# A process for each core: each imports TensorFlow and collects all tests, which takes long. A file's tests
# share what they have trained; tests/conftest.py puts the longest files first.
IN_PARALLEL ?= --numprocesses auto --dist loadfile --no-loadscope-reorder

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all lint types check format docs site clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(STAMP) ## create the virtual environment and install the project with its tools

# What users have suffices for the demo, without the developers' tools.
$(BIN)/bilm: PACKAGES = --editable .
$(STAMP): PACKAGES = $(INSTALL)
$(BIN)/bilm $(STAMP): pyproject.toml
	@echo "Installing into $(VENV); TensorFlow is a large download, this may take some minutes."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PACKAGES)
	@touch $@

demo: $(BIN)/bilm ## build a corpus and run the whole workflow on it: vocabulary, train, test, restart, test, dump
	PATH="$(abspath $(BIN)):$$PATH" bash examples/train_toy.sh

test: $(STAMP) ## run the quick tests: two minutes on two cores
	$(BIN)/pytest $(IN_PARALLEL) -m "not slow" $(PYTEST_ARGS)

test-all: $(STAMP) ## run all tests
	$(BIN)/pytest $(IN_PARALLEL) $(PYTEST_ARGS)

lint: $(STAMP) ## check format and style
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP) ## check the types
	$(BIN)/mypy

check: lint types test-all ## everything that CI checks

format: $(STAMP) ## format the code and sort its imports
	$(BIN)/ruff check --select I --fix .
	$(BIN)/ruff format .

docs: $(STAMP) ## write the pages of docs/ that follow from the code
	$(BIN)/python -m docs.generate

# In an environment of its own: neither users nor tests need these tools, and they need no TensorFlow.
SITE := build/site-tools
$(SITE)/.installed: Makefile
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check 'mkdocs>=1.6,<2' 'mkdocs-material>=9.6,<10'
	@touch $@

site: $(SITE)/.installed ## build the pages as a site with a search, in build/site
	$(PYTHON) -m docs.site
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build

clean: ## remove the virtual environment, the demo and what the tools left
	rm -rf $(VENV) demo build dist bilm_tf2.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
