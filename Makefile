PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHARED := ../shared

# real tables and reference figures, where they are at hand; tests that need them skip otherwise
ifneq ($(wildcard $(SHARED)/data),)
export LVGP_DATA ?= $(abspath $(SHARED)/data)
endif
ifneq ($(wildcard $(SHARED)/reference),)
export LVGP_REFERENCE ?= $(abspath $(SHARED)/reference)
endif

.PHONY: demo test test-long lint types docs bench clean

demo: $(VENV)/.installed
	$(BIN)/lvgp demo --output demo --force

# most of the time goes into compiling hundreds of small programs, which XLA does faster when it
# optimises less; the long tests run what users run
test: export XLA_FLAGS += --xla_backend_optimization_level=1
test: $(VENV)/.installed-dev
	$(BIN)/pytest -n auto --dist worksteal -m "not long" --durations=60

test-long: $(VENV)/.installed-dev
	$(BIN)/pytest -m long

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

docs: $(VENV)/.installed-dev
	$(BIN)/mkdocs build --strict --site-dir site

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/gradient.py
	$(BIN)/python benchmarks/optimizers.py
	$(BIN)/python benchmarks/sampling.py
	$(BIN)/python benchmarks/accuracy.py

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build dist site demo .pytest_cache .mypy_cache .ruff_cache
