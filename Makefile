# Everything starts here: `make` lists the targets. Each one installs what it
# needs into .venv first; nothing is installed twice.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/ready

# The stored outputs of the chapters are those of the simulated devices.
ON_SIM := DPKIT_DEVICES=sim
PYTEST := $(BIN)/python -m pytest
# Two workers with one thread each: more threads than cores would spin.
ONE    := OMP_NUM_THREADS=1
# Each takes a file at a time, the longest first (tests/conftest.py).
SHARED := -n 2 --dist loadscope --no-loadscope-reorder
UNITS  := $(PYTEST) $(SHARED) --doctest-modules
NBVAL  := --nbval-current-env --nbval-kernel-name=python3
# Drivers of GPUs make such files; torch takes seconds to say that none is.
HAS_DRIVER := ls /dev /proc/driver 2>/dev/null | grep -Eq '^(nvidia|nvhost|dxg|kfd)'

# The tests start a few hundred Pythons: none should compile dpkit again.
unexport PYTHONDONTWRITEBYTECODE

# The notebooks that a target runs: all, or with ONLY=name that one.
CHAPTERS := $(sort $(wildcard book/*.ipynb))
CHOSEN := $(if $(ONLY),$(filter book/$(ONLY).ipynb,$(CHAPTERS)),$(CHAPTERS))
ifeq ($(CHOSEN),)
$(error there is no such chapter (ONLY: $(ONLY), known: \
  $(patsubst book/%.ipynb,%,$(CHAPTERS))))
endif
PORT := 8000

.DEFAULT_GOAL := help
.PHONY: help setup book check serve notebooks execute test test-fast test-cpu \
        test-gpu address new-chapter gpu-outputs bench coverage reproduce \
        reproducible lint format lock clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) \
	  | awk -F ':.*## ' '{ printf "make %-12s %s\n", $$1, $$2 }'

$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; \
	  sys.exit(f"Python 3.11 or newer is needed ({sys.executable}: {v}); \
	name one with: make setup PYTHON=python3.11" \
	  if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --disable-pip-version-check \
	  --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(READY)  ## install the pinned environment into .venv

book: $(READY)  ## build the site into _build/html
	$(BIN)/python scripts/build_site.py .

check: book  ## look at every page in a browser: axe, links, spelling, …
	$(ON_SIM) $(ONE) scripts/check/run.sh . $(BIN)/python

serve: book  ## show the built site on http://localhost:8000, or on PORT=…
	$(BIN)/python -m http.server --bind localhost --directory _build/html $(PORT)

notebooks: $(READY)  ## open the chapters in JupyterLab
	$(BIN)/jupyter lab book

execute: $(READY)  ## run every notebook, or ONLY=name; store its outputs
	$(ON_SIM) $(ONE) $(BIN)/python scripts/execute_notebooks.py \
	  $(if $(LIVE),--live) $(CHOSEN)

reproducible: $(READY)  ## run every notebook, or ONLY=name; fail if it changes
	printf '%s\n' $(CHOSEN) | $(ON_SIM) $(ONE) xargs -n 1 -P 2 \
	  $(BIN)/python scripts/execute_notebooks.py --check

test: $(READY)  ## all tests and notebooks, or ONLY=name; test-gpu, if it can be
	@if $(HAS_DRIVER) && $(BIN)/python -c 'import sys, torch; \
	  sys.exit(not torch.cuda.is_available())'; then $(MAKE) test-gpu; fi
	$(ON_SIM) $(ONE) $(UNITS) -m "not cuda" --nbval $(NBVAL) \
	  $(if $(ONLY),,dpkit tests) $(CHOSEN)

test-fast: $(READY)  ## the tests without the slow ones and the notebooks
	$(ON_SIM) $(ONE) $(UNITS) -m "not cuda and not slow" dpkit tests

coverage: $(READY)  ## how much of dpkit the tests reach: 95 % or more
	rm -rf _build/coverage && mkdir -p _build/coverage
	$(ON_SIM) $(ONE) $(BIN)/python -m coverage run -m \
	  pytest $(SHARED) --doctest-modules -m "not cuda" dpkit tests
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --fail-under=95

test-cpu: $(READY)  ## every chapter, or ONLY=name, on the CPU; not compared
	DPKIT_DEVICES=cpu $(ONE) $(PYTEST) $(SHARED) --nbval-lax $(NBVAL) $(CHOSEN)

test-gpu: $(READY)  ## what needs CUDA: its tests, and the chapters on it
	@$(BIN)/python -c 'import sys, torch; sys.exit( \
	  0 if torch.cuda.is_available() else "no CUDA device (torch sees: 0)")'
	env -u DPKIT_DEVICES $(PYTEST) -m cuda tests
	@$(BIN)/python -c 'import torch; n = torch.cuda.device_count(); \
	  print(f"Chapters on {n} CUDA device(s); a cell that asks for more", \
	  "gets simulated ones.")'
	env -u DPKIT_DEVICES $(PYTEST) --nbval-lax $(NBVAL) book/*.ipynb

new-chapter: $(READY)  ## a chapter that passes all checks, to rewrite (NAME=…)
	@$(ON_SIM) $(ONE) $(BIN)/python scripts/new_chapter.py "$(NAME)"

address:  ## write the public address of the repository (URL=https://…)
	$(PYTHON) scripts/set_address.py "$(URL)"

gpu-outputs: $(READY)  ## the chapters' outputs on CUDA devices, in _build/gpu
	rm -rf _build/gpu && mkdir -p _build && cp -R book _build/gpu
	env -u DPKIT_DEVICES $(BIN)/python scripts/execute_notebooks.py --live \
	  _build/gpu/*.ipynb

bench: $(READY)  ## measure speed, as ratios taken side by side in one run
	$(BIN)/python scripts/bench.py

reproduce: $(READY)  ## rerun the long experiments recorded in book/_data
	$(BIN)/python scripts/reproduce.py
	$(BIN)/python scripts/simulate_published.py
	$(BIN)/python scripts/record_recipe.py
	$(BIN)/python scripts/record_large_batches.py
	$(BIN)/python scripts/record_resident.py

lint: $(READY)  ## style (notebooks too), types, and the workflows
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/zizmor --offline --quiet .github
	scripts/check/lint_workflows

format: $(READY)  ## let ruff format and mend what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(READY)  ## resolve pyproject.toml anew into requirements.txt
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --universal --python-version 3.11 --extra dev \
	  --no-header --no-annotate --upgrade pyproject.toml -o requirements.txt

clean:  ## remove what was built (the environment stays: rm -r .venv)
	rm -rf _build .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -r {} +
