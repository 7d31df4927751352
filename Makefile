# `make demo` and `make test` work in a fresh clone: each sets the machine up and builds first.
# PYTHON picks the interpreter (3.11, 3.12 or 3.13); its virtual environment lies outside the checkout.

PYTHON ?= python3
OXYFUEL_HOME ?= $(HOME)/.cache/oxyfuel
export OXYFUEL_HOME
export LLVM_SYS_191_PREFIX ?= /usr/lib/llvm-19

VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
VENV := $(or $(OXYFUEL_VENV),$(OXYFUEL_HOME)/venv-$(VERSION))
VENV_PYTHON := $(VENV)/bin/python
# this checkout's package, whichever checkout the environment was last built for
RUN := PYTHONPATH=$(CURDIR)/python $(VENV_PYTHON)
CARGO := PYO3_PYTHON=$(VENV_PYTHON) cargo

WORKERS ?= 2
SUITES ?= tests/conformance tests/cases tests/surface tests/models \
  tests/capture tests/fuzz tests/numerics tests/trace
PYTEST := $(RUN) -m pytest -n $(WORKERS) --max-worker-restart=1000
# scripts that prove the frame driver, the decoder and the guards on one interpreter without torch
FRAME_TESTS := tests/frames/run.sh crates/oxy_bytecode/tests/run_stdlib.sh tests/guards/run.sh

.PHONY: help setup build demo test test-rust test-python test-frames lint bench bless

help:
	@echo "make demo         compile five real models; ARGS=--vs-torch adds torch.compile's columns"
	@echo "make test         all tests on $(PYTHON)"
	@echo "make test-frames  the frame driver's stress tests on every CPython found"
	@echo "make lint         rustfmt, clippy and ruff, warnings as errors"
	@echo "make bench        the benchmark's core workloads; ARGS=... for python -m bench's own options"
	@echo "make bless        rewrite tests/expected_failures from a run"

setup:
	@scripts/setup.sh $(PYTHON)

build: setup
	@scripts/build.sh $(VENV_PYTHON)

demo: build
	@$(RUN) -m demo $(ARGS)

test: test-rust test-python

test-rust: setup
	$(CARGO) test --workspace --quiet

test-python: build
	$(PYTEST) $(SUITES) $(ARGS)

test-frames:
	@scripts/test_frames.sh $(FRAME_TESTS)

lint: setup
	cargo fmt --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	$(VENV)/bin/ruff check .

ARGS_BENCH = $(or $(ARGS),--compare torch,oxyfuel --suite models --tag core)
bench: build
	cd benches && PYTHONPATH=$(CURDIR)/python:. $(VENV_PYTHON) -m bench $(ARGS_BENCH)

bless: build
	$(RUN) scripts/bless_expected_failures.py $(ARGS)
