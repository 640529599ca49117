# make demo and make test are all a newcomer needs: each builds .venv first, if it has to.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO_OUT ?= demo-out

.PHONY: demo test lint docs bench bench-learning bench-large clean

demo: $(READY)
	$(BIN)/proxmatch demo --out $(DEMO_OUT)

# One process a core with one thread each: the tests are small, and threads would only fight.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The documentation, in docs/_build/html.
docs: $(VENV)/.docs
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

$(VENV)/.docs: $(READY)
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $@

bench: $(READY)
	$(BIN)/python -m benchmarks

# make bench-learning IMAGES=folder MINUTES=10 (embedded photographs by default)
bench-learning: $(READY)
	$(BIN)/python -m benchmarks.learning --minutes $(or $(MINUTES),10) $(if $(IMAGES),--images $(IMAGES))

# A 4096 x 4096 picture beside one of 512 x 512: a quarter of an hour.
bench-large: $(READY)
	$(BIN)/python -m benchmarks.large

clean:
	rm -rf $(VENV) $(DEMO_OUT) docs/_build docs/api docs/auto_gallery docs/sg_execution_times.rst .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "proxmatch needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@
