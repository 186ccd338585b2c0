# Two commands on a fresh machine: `make demo` and `make test`. Both set up everything they need in .venv.
PYTHON ?= python3
BIN := .venv/bin
# Networks this small gain nothing from a second thread, and lose much where another process wants the core.
export OMP_NUM_THREADS ?= 1

.PHONY: demo test lint unit benchmark clean

demo: .venv/installed
	rm -rf demo
	$(BIN)/raindrop demo --out demo

test: lint unit

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: .venv/installed-test .venv/browser
	$(BIN)/pytest -n 2

benchmark: .venv/installed-test
	OMP_NUM_THREADS=2 $(BIN)/python benchmarks/speed.py

.venv/bin/pip:
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/pip pyproject.toml
	$(BIN)/pip install --quiet --editable '.[plot,report]'
	touch $@

.venv/installed-test: .venv/installed pyproject.toml
	$(BIN)/pip install --quiet --editable '.[test,lint,plot,report,trees,log]'
	touch $@

# The report's tests open it in a browser; where none can be had they are skipped and say so.
.venv/browser: .venv/installed-test .ci/browser
	.ci/browser $(BIN)
	touch $@

clean:
	rm -rf .venv demo runs build dist
