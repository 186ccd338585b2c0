# Two commands on a fresh machine: `make demo` and `make test`. Both set up everything they need in .venv.
PYTHON ?= python3
BIN := .venv/bin
LOWEST := .venv-lowest/bin
# Networks as small as those of the tests gain nothing from a second thread, and two processes share the cores.
# Tests of one file share its models, pages and services, so they stay in one process.
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest $(PARALLEL)
# Compiled Python is kept, whatever the environment says: the tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test docs quick lint unit test-cluster test-cpus test-lowest fuzz benchmark clean

demo: .venv/installed
	rm -rf demo
	$(BIN)/raindrop demo --out demo

# Side by side: the linters use one core for a minute, and the tests two for longer.
test: .venv/installed-test .venv/browser
	$(MAKE) --no-print-directory -j 2 lint unit

# The documentation as a site in build/site: strict, links checked, tutorials run anew. `make test` builds it too.
docs: .venv/installed-docs
	OMP_NUM_THREADS=1 $(BIN)/mkdocs build --quiet --strict
	@echo "open build/site/index.html"

# Everything but the tests marked slow: an answer within two minutes.
quick: .venv/installed-test
	$(PYTEST) -m "not slow"

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: .venv/installed-test .venv/browser
	$(PYTEST) -m "not cluster"

# Ray, and training on two nodes of this machine: they start many processes, so they are not part of `make test`.
test-cluster: .venv/installed-test
	$(BIN)/pip install --quiet --editable '.[ray]'
	OMP_NUM_THREADS=1 $(BIN)/pytest -m cluster

# The tests as other processors would compute them, with one and two threads: six runs, a table at the end.
test-cpus: .venv/installed-test .venv/browser
	.ci/cpus $(BIN) $(PARALLEL)

# The quick tests with the lowest versions that pyproject.toml admits. Old packages warn about new ones, so warnings
# are not errors here.
test-lowest: .venv-lowest/installed
	OMP_NUM_THREADS=1 $(LOWEST)/pytest $(PARALLEL) -m "not slow" -W default

# Hostile inputs for every entry point, for so long; prints a table (docs/reliability.md).
MINUTES ?= 60
fuzz: .venv/installed-test
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/run.py --minutes $(MINUTES)

benchmark: .venv/installed-test
	OMP_NUM_THREADS=2 $(BIN)/python benchmarks/speed.py

.venv/bin/pip:
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/pip pyproject.toml
	$(BIN)/pip install --quiet --editable '.[plot,report]'
	touch $@

.venv/installed-test: .venv/installed pyproject.toml
	$(BIN)/pip install --quiet --editable '.[test,lint,plot,report,trees,log,docs]'
	touch $@

.venv/installed-docs: .venv/installed pyproject.toml
	$(BIN)/pip install --quiet --editable '.[docs,plot,report]'
	touch $@

# The report's tests open it in a browser. Where none can be had they are skipped, or fail where CI=true.
.venv/browser: .venv/installed-test .ci/browser
	.ci/browser $(BIN)
	touch $@

.venv-lowest/installed: pyproject.toml tests/lowest.txt
	$(PYTHON) -m venv .venv-lowest
	$(LOWEST)/pip install --quiet --constraint tests/lowest.txt --editable '.[test,plot,report,trees,log]'
	touch $@

clean:
	rm -rf .venv .venv-lowest demo runs build dist
