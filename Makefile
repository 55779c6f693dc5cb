# `make test` on a fresh machine sets up everything it needs and then runs everything. `make help` lists the rest.
# Another interpreter: make test PYTHON=python3.13 VENV=.venv-3.13

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
# Most tests wait for something, so there are more of them at a time than cores. Types and the tests of the simulation
# compute. They get what the others leave of the cores: as idle tasks, which keep nobody from waking up in time, as they
# would even at the lowest priority.
WORKERS ?= 4
IDLE := $(shell chrt --idle 0 true 2>/dev/null && echo chrt --idle 0)
# Which stores a test of all stores runs over: tests/support/sample.py.
SAMPLE ?= 0
CORES ?= $(shell nproc 2>/dev/null || echo 2)

# The tests of the library itself: `make coverage` measures them, `make test-local` runs those that need no server,
# and those of the command line that need nothing of Linux.
COVERED ?= tests/core tests/runtime tests/api tests/compat tests/conformance tests/fencing tests/stores
LOCAL_CLI := $(addprefix tests/cli/test_,completion.py failures.py locks.py schema.py text.py waiting.py)

# Of `make doctor-next`: where its servers are, for all users of this machine, and its tests.
NEXT ?= /var/tmp/gripfast-next
DOCTORS := $(addprefix tests/stores/test_,$(addsuffix _doctor.py,redis redlock sentinel cluster postgres mysql zookeeper etcd))

# Hundreds of tests start an interpreter: none of them need compile what one before it has compiled.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(VENV)/bin
READY := $(VENV)/.ready
LOCAL := $(VENV)/.local-ready
BENCH := $(VENV)/.bench-ready
DOCS := $(VENV)/.docs-ready
INTEROP := tests/interop/node_modules/.ready

.PHONY: help test beside test-all test-local coverage lint format types compiled pytest simtest sweep observers chaos doctor-next sim bench docs clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

test: $(READY)  ## lint, types and tests; of the tests only a sample, which is printed; SAMPLE=n takes another
	$(MAKE) --no-print-directory --jobs 2 lint compiled
	$(MAKE) --no-print-directory --jobs 2 pytest beside

beside: $(READY)
	@# What it says is shown when it is over: two runs of tests would write between each other's lines.
	@$(IDLE) $(MAKE) --no-print-directory types simtest >$(VENV)/beside.log 2>&1; ended=$$?; cat $(VENV)/beside.log; exit $$ended

test-all:  ## the same with all tests, over every store, sync and async
	$(MAKE) --no-print-directory test SAMPLE=all

test-local: $(LOCAL)  ## the tests that need no server: core, memory, sqlite, the command line; also on macOS
	GRIPFAST_TESTS=local $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile -rfE --sample all $(COVERED) $(LOCAL_CLI) $(ARGS)

coverage: $(READY)  ## the test coverage of the library, in per cent; COVERED="tests/core" for a part of the tests
	$(BIN)/python -m coverage run -m pytest -q $(COVERED) $(ARGS)
	$(BIN)/python -m coverage report

lint: $(READY)  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY)  ## let ruff fix and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(READY)  ## mypy, strict
	$(BIN)/mypy

compiled: $(READY)
	@# By one process: all workers of pytest would compile all tests at the same time. What is wrong, pytest will tell.
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1 || true

pytest: $(READY) $(INTEROP)  ## the tests alone, without those of the simulation; ARGS="-k name" picks some
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --ignore tests/sim --sample $(SAMPLE) $(ARGS)

simtest: $(READY)  ## the tests of the simulation: seeds, mutants, small worlds
	$(BIN)/python -m pytest --numprocesses $(CORES) --dist loadfile --timeout 1800 --sample $(SAMPLE) tests/sim

sweep: $(READY)  ## every point of every sweep, every test over every store, sync and async; takes long
	GRIPFAST_SWEEP=full $(BIN)/python -m pytest tests/sweeps tests/conformance tests/compat tests/regressions tests/chaos/test_cuts.py tests/sim --timeout 3600 $(ARGS)

observers: $(READY)  ## the conformance suite beside observers that misbehave, over every store, sync and async; takes long
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist load --sample all --observer all tests/conformance $(ARGS)

chaos: $(READY)  ## breaks servers and processes under load; takes long
	GRIPFAST_CHAOS=long $(BIN)/python -m pytest tests/chaos tests/cli/test_verify.py tests/processes/test_permits.py tests/processes/test_readers.py tests/processes/test_once.py tests/processes/test_hand_over.py tests/processes/test_election.py tests/stores/test_redis_readers.py tests/fencing/test_redlock_paused_writer.py tests/fencing/test_sql_paused_writer.py --timeout 600 $(ARGS)

doctor-next: $(READY)  ## tests gripfast doctor at newer servers than this machine has: downloads 150 MB once
	PYTHON="$(PYTHON)" scripts/system-needs next
	scripts/next-servers $(NEXT)
	PATH="$(NEXT)/bin:$$PATH" ZOOKEEPER_JARS=$(NEXT)/java-forky/usr/share/java $(BIN)/python -m pytest $(DOCTORS) $(ARGS)
	PATH="$(NEXT)/valkey:$$PATH" $(BIN)/python -m pytest tests/stores/test_redis_doctor.py $(ARGS)
	ZOOKEEPER_JARS=$(NEXT)/java-trixie/usr/share/java $(BIN)/python -m pytest tests/stores/test_zookeeper_doctor.py $(ARGS)

sim: $(READY)  ## a million seeds of the simulation of one Redis server; ARGS="--seeds 10000" for fewer
	$(BIN)/python -m gripfast_lab.sim --seeds 1000000 --jobs $(CORES) $(ARGS)

bench: $(BENCH) $(INTEROP)  ## the benchmarks; ARGS="pair" picks some, ARGS=--list lists them
	$(BIN)/python -m bench $(ARGS)

docs: $(DOCS)  ## the pages that are generated, and the site, in build/docs
	$(BIN)/python scripts/reference.py
	$(BIN)/python -m gripfast_lab.page docs
	$(BIN)/python -m gripfast_lab.chinese docs
	$(BIN)/python -m sphinx -q -W --keep-going -E -j $(CORES) docs build/docs
	@echo "build/docs/index.html"

clean:  ## remove what these targets made
	rm -rf $(VENV) $(dir $(INTEROP)) build dist bench/results .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
	find . -name __pycache__ -prune -exec rm -rf {} +

$(LOCAL): NEEDS := python
$(READY) $(LOCAL): pyproject.toml lab/pyproject.toml scripts/system-needs
	PYTHON="$(PYTHON)" scripts/system-needs $(NEEDS)
	$(PYTHON) -m venv $(VENV)
	echo '*' >$(VENV)/.gitignore # whatever it is called, its files are not the project's
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all,dev]' --editable ./lab
	touch $@

$(INTEROP): tests/interop/package.json tests/interop/package-lock.json | $(READY)
	npm ci --prefix tests/interop --loglevel=error
	touch $@

$(BENCH): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all,bench]'
	touch $@

$(DOCS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all,docs]'
	touch $@
