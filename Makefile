PYTHON ?= python3
RUNNER ?= local
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install format check test test-long bench demo clean

install: $(STAMP)

$(STAMP): setup.cfg setup.py tests/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python -c tests/constraints.txt -e '.[dev]'
	touch $@

format: $(STAMP)
	$(BIN)/ruff format --config tests/ruff.toml .
	$(BIN)/ruff check --config tests/ruff.toml --fix .

check: $(STAMP)
	$(BIN)/ruff format --config tests/ruff.toml --check .
	$(BIN)/ruff check --config tests/ruff.toml .
	$(BIN)/mypy

test: $(STAMP)
	$(BIN)/python -m pytest -m 'not long and not live' $(ARGS)

test-long: $(STAMP)
	$(BIN)/python -m pytest -m 'long and not live' --timeout=3600 $(ARGS)

bench: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m benchmarks.run

demo: $(STAMP)
	$(BIN)/python pipelines/demo.py --demo_runner=$(RUNNER)

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
