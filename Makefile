# The two commands of the README are `make demo` and `make test`; both set up what they need.
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
OUT ?= whence-demo
WORKERS ?= 2
FUZZ_CASES ?= 10000
FUZZ_SEED ?= 0
ATTACK_ROUNDS ?= 20
ATTACK_SEED ?= 0

.PHONY: demo test docs fuzz attack lint bench wheel-check clean

demo: $(VENV)/.installed
	$(BIN)/whence demo --out $(OUT)

# First the tests that may share the machine, a worker per core, then the others one after another; both run whatever
# the first come to, and either fails it. Of a file all tests run in one worker, with its fixtures.
test: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -m "not alone" -n $(WORKERS) --dist loadfile; parallel=$$?; \
	$(BIN)/python -m pytest -m alone && exit $$parallel

# The manual, in docs/_build: its tutorials run, and a warning is an error.
docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs docs/_build
	@echo docs/_build/index.html

# Random calls, right and wrong. One that ends badly is run again alone: make fuzz FUZZ_SEED=0 FUZZ_CASE=7
fuzz: $(VENV)/.installed-dev
	$(BIN)/python -m tests.fuzz --cases $(FUZZ_CASES) --seed $(FUZZ_SEED) $(if $(FUZZ_CASE),--case $(FUZZ_CASE))

# Attacks on what is promised, many rounds with other places and sizes.
attack: $(VENV)/.installed-dev
	ATTACK_ROUNDS=$(ATTACK_ROUNDS) ATTACK_SEED=$(ATTACK_SEED) $(BIN)/python -m pytest tests/adversarial -n $(WORKERS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks

# Both distributions, in dist; the wheel is installed and tried in an environment of its own.
wheel-check: $(VENV)/.installed
	$(PIP) build
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m tools.clean_install dist/whence-*.whl

clean:
	rm -rf $(VENV) build dist src/*.egg-info docs/_build docs/gallery

$(VENV)/bin/python:
	python3 -m venv $(VENV)

# torch goes first and by its exact version, so that nothing else decides which build of it is taken.
$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) "$$(grep '^torch==' constraints.txt)"
	$(PIP) -e '.[app]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) -e '.[dev]'
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(PIP) -e '.[docs]'
	touch $@
