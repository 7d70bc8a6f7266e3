# Each target makes .venv once, installs what it needs, and runs; a second call starts at once.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check bench clean

demo: .venv/base
	@echo "== demo: makes runs, then validates, evaluates and compares them, offline"
	$(BIN)/python examples/demo.py

test: .venv/dev
	@echo "== test: unit, property, oracle, documentation and command-line tests"
	$(BIN)/python -m pytest

check: .venv/dev
	@echo "== check: ruff format, ruff, mypy --strict"
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: .venv/dev
	@echo "== bench: speed and memory against the peers, in one run on this machine"
	$(BIN)/python benchmarks/evaluate.py

clean:
	rm -rf .venv demo

.venv/bin/python:
	@echo "== making .venv with $(PYTHON)"
	$(PYTHON) -m venv .venv

.venv/base: .venv/bin/python pyproject.toml
	@echo "== installing ragauge"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

.venv/dev: .venv/bin/python pyproject.toml
	@echo "== installing ragauge with the test, check and benchmark tools"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ .venv/base
