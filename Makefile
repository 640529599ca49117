# make demo and make test are all a newcomer needs: each builds .venv first, if it has to.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
INSTALL = PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check
# RESOLUTION=lowest-direct or highest: the oldest or the newest versions that pyproject.toml allows,
# in an environment of their own, in place of the pinned ones.
ifdef RESOLUTION
VENV := .venv-$(RESOLUTION)
INSTALL = $(BIN)/uv pip install --quiet --python $(BIN)/python
endif
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO_OUT ?= demo-out
# One process a core with one thread each: the tests are small, and threads would only fight.
RUN_TESTS := OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile
# Lines and branches of the package that the tests must reach, in percent.
FLOOR ?= 85

.PHONY: demo test pytest coverage lint docs audit bench bench-learning bench-large soak clean

demo: $(READY)
	$(BIN)/proxmatch demo --out $(DEMO_OUT)

test: lint pytest

# The tests alone; with further extras by make pytest EXTRA="ray parquet".
pytest: $(READY) $(addprefix $(VENV)/.with-,$(EXTRA))
	$(RUN_TESTS)

coverage: $(READY)
	$(RUN_TESTS) --cov --cov-fail-under=$(FLOOR)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The documentation, in docs/_build/html.
docs: $(VENV)/.with-docs
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

# Known vulnerabilities of the pinned versions.
audit:
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/pip install --quiet --disable-pip-version-check pip-audit==2.10.1
	.venv-audit/bin/pip-audit --no-deps --disable-pip --requirement constraints.txt

bench: $(READY)
	$(BIN)/python -m benchmarks

# make bench-learning IMAGES=folder MINUTES=10 (embedded photographs by default)
bench-learning: $(READY)
	$(BIN)/python -m benchmarks.learning --minutes $(or $(MINUTES),10) $(if $(IMAGES),--images $(IMAGES))

# A 4096 x 4096 picture beside one of 512 x 512: half an hour.
bench-large: $(READY)
	$(BIN)/python -m benchmarks.large

# Commands killed at random moments for an hour, with too little memory (MINUTES=10 for less).
soak: $(READY)
	$(BIN)/python -m benchmarks.soak --minutes $(or $(MINUTES),60)

clean:
	rm -rf .venv .venv-* $(DEMO_OUT) docs/_build docs/api docs/auto_gallery docs/sg_execution_times.rst .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.* dist build

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "proxmatch needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
ifdef RESOLUTION
	$(BIN)/pip install --quiet --disable-pip-version-check uv==0.13.7
	$(INSTALL) --resolution $(RESOLUTION) -e .
endif
	$(INSTALL) -e '.[dev]'
	touch $@

$(VENV)/.with-%: $(READY)
	$(INSTALL) -e '.[$*]'
	touch $@
