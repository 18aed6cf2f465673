# Everything starts here: `make` lists the targets. Each target first installs
# what it needs into .venv; nothing is installed twice.
#
#   make test PYTHON=python3.12    makes .venv with this Python
#   make setup TORCH=there         makes a .venv that sees this Python's torch
#   make test ENV=/path/to/one     uses this environment and makes none

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
READY  := $(VENV)/ready
# If this file exists, the environment sees a torch that was there before it.
OUTER  := $(VENV)/without-torch.txt

# Some shells set a variable ENV: only the one on make's command line counts.
ifeq ($(origin ENV),command line)
PY    := $(firstword $(wildcard $(addprefix $(abspath $(ENV))/bin/,\
           python python3)))
READY :=
ifeq ($(PY),)
$(error there is no Python in the environment (ENV: $(ENV)); \
  give the folder that holds bin/python)
endif
export PYTHONPATH := $(CURDIR):$(CURDIR)/book$(if $(PYTHONPATH),:$(PYTHONPATH))
endif
unexport ENV

# make test ON=cpu, and so on, runs the target on-cpu.
KINDS := $(sort $(shell sed -n 's/^on-\([a-z-]*\):.*/\1/p' \
           $(firstword $(MAKEFILE_LIST))))
# Some shells set such variables: these count on make's command line alone.
$(foreach option,ON FILES SHUFFLE NAME CHECK SHORT VERSIONS,\
  $(if $(filter command,$(origin $(option))),,$(eval $(option) :=)))
ifneq ($(and $(ON),$(filter test,$(MAKECMDGOALS))),)
ifeq ($(filter $(KINDS),$(ON)),)
$(error unknown kind of test (ON: $(ON), known: $(KINDS)))
endif
endif
# Chapters are executed on simulated devices, whose outputs are stored, or on GPUs.
ifneq ($(and $(filter-out gpu,$(ON)),$(filter execute,$(MAKECMDGOALS))),)
$(error chapters cannot be executed there (ON: $(ON), known: gpu))
endif

ifeq ($(origin TORCH),command line)
ifeq ($(ON),ranks)
# An environment of its own, with this version from the package index.
OTHER := .venv-torch-$(TORCH)
PY    := $(OTHER)/bin/python
READY := $(OTHER)/ready
else ifneq ($(TORCH),there)
$(error unknown torch (TORCH: $(TORCH), known: there))
endif
WITHOUT_TORCH := yes
endif

PACKAGES := .venv-packages
# What builds the files of a release; nothing else needs it.
RELEASE  := .venv-release
# otter-grader, which grades assignments.
OTTER    := .venv-otter

# The stored outputs of the chapters are those of the simulated devices.
ON_SIM := DPKIT_DEVICES=sim
PYTEST := $(PY) -m pytest
# The library and the code of the book: their examples, and their tests.
CODE   := dpkit book/dpbook
TESTS  := tests/sim tests/kit tests/runs tests/book tests/seeds
# Which of them: some need a GPU, and some run each week, by make test-all.
MARKS  := not cuda and not weekly
# Workers with one thread each: with more threads than cores, they spin. Large
# tensors go back to the system when they are freed; else glibc keeps them, and
# a worker grows to 4 GB. They come in pages of 2 MB, where Linux has them: in
# pages of 4 KB, LeNet scores images in twice the time.
ONE    := OMP_NUM_THREADS=1 MALLOC_MMAP_THRESHOLD_=4194304 \
  THP_MEM_ALLOC_ENABLE=1
# One worker more than the machine has cores, if it has the memory
# (tests/running/workers.py). Each takes one file at a time, the longest first,
# or in an order that is shuffled by SHUFFLE=seed (tests/running/order.py). One
# test that failed is tried again (tests/running/second_try.py).
SHARED = -n auto --dist loadscope --no-loadscope-reorder \
  $(if $(SHUFFLE),--shuffle="$(SHUFFLE)") --junitxml=_build/test-run.xml
UNITS  = $(PYTEST) $(SHARED) --doctest-modules -m "$(MARKS)"
# On a busy machine a kernel may need more than the minute that nbval gives it.
NBVAL  := --nbval-current-env --nbval-kernel-name=python3 \
  --nbval-kernel-startup-timeout=1200
# A driver of GPUs makes such files. To ask torch instead takes seconds.
HAS_DRIVER := ls /dev /proc/driver 2>/dev/null | grep -Eq '^(nvidia|nvhost|dxg|kfd)'
# In a few seconds: can the tests run here at all? Can they use the GPUs?
FIT := $(PY) -P scripts/environment/fit_for_tests.py
# These tests run without DPKIT_DEVICES, as for a reader who has not set it.
FOUND := $(patsubst %,tests/kit/test_%.py,processes workers machine) \
  $(patsubst %,tests/sim/test_%.py,sim configuration pinned) \
  tests/book/test_job.py::test_any_number_of_ranks
# These run on any torch that dpkit.sim.TRIED names.
ON_RANKS := $(patsubst %,tests/runs/test_%.py,\
  ranks ranks_waiting engines_on_ranks needed)
# torch itself is not asked, because it counts simulated devices too.
ASK_GPUS := from dpkit.accelerator import real_devices, why_unusable; \
  gpus = real_devices()

# Older and other CPUs, as this one can play them: their kernels round in other
# places, and draw other numbers. CPU=avx2 has no AVX-512, and CPU=compat rounds
# as any x86-64 does (and torch.randn draws what it draws on ARM). On a CPU with
# AMX, attention in bfloat16 would pack its tensors by kernels of AVX-512 all the
# same, and fail; so oneDNN is told of no AMX.
CPU = compat
NO_AMX    := ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16
AS_avx2   := ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 $(NO_AMX)
AS_compat := ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE $(NO_AMX)
# What can change with the CPU: every chapter, and the files of tests that speak
# of torch. The others are about pages, pictures, schedules and exact times.
WITH_TORCH = $(shell grep -il torch $(TESTS:%=%/test_*.py))

# The tests start a few hundred Pythons. None of them should compile dpkit
# again.
unexport PYTHONDONTWRITEBYTECODE

# The notebooks that a target runs: all of them, or the one in ONLY=name.
CHAPTERS := $(sort $(wildcard book/*.ipynb))
CHOSEN := $(if $(ONLY),$(filter book/$(ONLY).ipynb,$(CHAPTERS)),$(CHAPTERS))
ifeq ($(CHOSEN),)
$(error there is no such chapter (ONLY: $(ONLY), known: \
  $(patsubst book/%.ipynb,%,$(CHAPTERS))))
endif
# On GPUs: the files that are named, or one chapter, or all.
GPU_TESTS := $(if $(FILES),$(filter-out %.ipynb,$(FILES)),$(if $(ONLY),,tests))
GPU_CHAPTERS := $(if $(FILES),$(filter %.ipynb,$(FILES)),$(CHOSEN))
# Chapters at once: each has its own memory on the GPUs.
LANES = $(shell $(PY) -c 'import os; print(max(1, min(4, os.cpu_count() // 2)))')
PORT := 8000
# JupyterLab does not start for root, as one often is in a container, without
# this option.
LAB = $(PY) -m jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root)
# Modules of scripts/recorders, each in a process of its own.
RECORDERS := headline published recipe large_batches resident framework \
  comparisons seven_billion split_steps mesh gpu_forecasts
# STAND_IN=2 rehearses on the CPU, as if there were two GPUs. AGAIN=all, failed
# or the names of parts runs these again. LIMIT is in seconds, for all parts.
REPORT = $(if $(STAND_IN),--stand-in $(STAND_IN)) \
  $(if $(AGAIN),--again $(AGAIN)) $(if $(LIMIT),--limit $(LIMIT))

.DEFAULT_GOAL := help
.PHONY: $(shell grep -oE '^[a-z][a-z-]*:' $(firstword $(MAKEFILE_LIST)) | tr -d :)

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) \
	  | awk -F ':.*## ' '{ printf "make %-16s %s\n", $$1, $$2 }'
	@echo "make test ON=one of: $(KINDS)"

$(VENV)/ready: requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; \
	  sys.exit(f"Python 3.11 or newer is needed ({sys.executable}: {v}); \
	name one with: make setup PYTHON=python3.11" \
	  if sys.version_info < (3, 11) else 0)'
ifneq ($(WITHOUT_TORCH)$(wildcard $(OUTER)),)
	$(PYTHON) -P scripts/environment/torch_there.py $(VENV)
	$(VENV)/bin/python -m pip install --disable-pip-version-check --no-deps \
	  -r $(OUTER)
else
	@$(PYTHON) -P scripts/environment/gpu_fits.py
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --disable-pip-version-check \
	  -r requirements.txt
endif
	$(VENV)/bin/python -m pip install --disable-pip-version-check \
	  --no-deps --no-build-isolation --editable .
	@touch $@

ifdef OTHER
$(READY): pyproject.toml
	$(PYTHON) -m venv $(OTHER)
	$(PY) -m pip install --disable-pip-version-check "torch==$(TORCH).*" \
	  torchvision tqdm cloudpickle matplotlib expecttest filelock hypothesis \
	  psutil pytest pytest-timeout pytest-xdist "setuptools>=77"
	$(PY) -m pip install --disable-pip-version-check \
	  --no-deps --no-build-isolation --editable .
	@touch $@
endif

ifeq ($(VERSIONS),newest)
# Resolved each time, and so not kept: what it installs is newer next week.
setup:
	rm -rf .venv-newest
	$(PYTHON) -m venv .venv-newest
	.venv-newest/bin/python -m pip install --disable-pip-version-check \
	  --editable ".[dev]"
	.venv-newest/bin/python -m pip list
else
# Which GPUs will not work is said before the download, and again at the end.
setup: $(READY)  ## install the pinned environment, .venv; or VERSIONS=newest
	@$(FIT) || true
endif

book: $(READY)  ## build the site into _build/html
	$(PY) scripts/pages/build_site.py .

# Where BUILT_SITE says that the site is built, it is not built again.
check: $(if $(BUILT_SITE),,book)  ## look at every page: axe, links, spelling, … or CHECKS="links"
	$(ON_SIM) $(ONE) scripts/check/run.sh . $(PY) $(CHECKS)

# The port is tried first: nobody should wait until the pages are built, and
# then learn that the port is taken.
serve: free-port book  ## show the site on http://localhost:8000, or on PORT=…
	@$(PY) scripts/pages/serve.py _build/html "$(PORT)"

free-port: $(READY)
	@$(PY) scripts/pages/serve.py --try "$(PORT)"

# The site has the plain notebooks. It is built where a chapter is newer than
# the index of the search, which is written last.
WHOLE_SITE := _build/html/_static/search/words.js
$(WHOLE_SITE): $(wildcard book/*.ipynb) | $(READY)
	$(PY) scripts/pages/build_site.py .

# JupyterLab shows stored pictures only of notebooks that are trusted.
notebooks: $(READY) $(WHOLE_SITE)  ## open the plain notebooks in JupyterLab
	@$(PY) scripts/chapters/copy_notebooks.py .
	@$(PY) -m nbformat.sign notebooks/*.ipynb >/dev/null
	$(LAB) notebooks

edit: $(READY)  ## open the chapters themselves in JupyterLab, to change them
	@$(PY) -m nbformat.sign $(CHAPTERS) >/dev/null
	$(LAB) book

notebooks-branch: book  ## commit plain notebooks to the branch `notebooks`
	@$(PY) scripts/owner/notebooks_branch.py . notebooks

# With CHECK=yes nothing is stored: it fails where a notebook would change. On
# GPUs the outputs go to _build/gpu.
execute: $(READY)  ## run every notebook, or ONLY=name; store its outputs, or CHECK=yes, ON=gpu
ifneq ($(CHECK),)
	printf '%s\n' $(CHOSEN) | $(ON_SIM) $(ONE) xargs -n 1 \
	  -P $$($(PY) -m tests.running.workers) \
	  $(PY) scripts/execute_notebooks.py --check
else ifeq ($(ON),gpu)
	rm -rf _build/gpu && mkdir -p _build && cp -R book _build/gpu
	env -u DPKIT_DEVICES $(PY) scripts/execute_notebooks.py --live \
	  _build/gpu/*.ipynb
else
	$(ON_SIM) $(ONE) $(PY) scripts/execute_notebooks.py \
	  $(if $(LIVE),--live) $(CHOSEN)
endif

# On GPUs the chapters run on these, and so do the tests that need CUDA. The
# simulated devices are the same everywhere: ON=sim compares them strictly.
ifneq ($(ON),)
test: on-$(ON)
else
test: $(READY)  ## all cells and tests, on GPUs or on sim; ONLY=, FILES=, or ON=
	@$(FIT)
	@if { $(HAS_DRIVER); } && $(PY) -c '$(ASK_GPUS); exit(not gpus)'; \
	then $(MAKE) test ON=gpu; else $(MAKE) test ON=sim; fi
endif

# The same on simulated devices.
on-sim: $(READY)
	$(ON_SIM) $(ONE) $(UNITS) --nbval $(NBVAL) \
	  $(or $(FILES),$(if $(ONLY),,$(CODE) $(TESTS)) $(CHOSEN))

# The tests that need CUDA, and the chapters on CUDA.
on-gpu: $(READY)
	@$(PY) -c '$(ASK_GPUS); exit(0 if gpus else \
	  "torch can use no GPU here (python -m dpkit devices tells more) " \
	  + why_unusable())'
	$(if $(GPU_TESTS),env -u DPKIT_DEVICES $(PYTEST) -m cuda $(GPU_TESTS) \
	  $(if $(FILES),|| { [ $$? = 5 ] && echo "none of these tests needs CUDA \
	(make test ON=sim runs them)"; }))
	$(if $(GPU_CHAPTERS),@$(PY) -c '$(ASK_GPUS); \
	  print(f"Chapters on {len(gpus)} GPU(s); a cell that asks for more", \
	  "gets simulated ones.")')
	$(if $(GPU_CHAPTERS),env -u DPKIT_DEVICES $(ONE) $(PYTEST) -n $(LANES) \
	  --dist loadscope -p tests.running.gpus_used --nbval-lax $(NBVAL) \
	  $(GPU_CHAPTERS))

one: $(READY)  ## the tests of one file, in seconds (FILE=dpkit/losses.py)
	$(ON_SIM) $(ONE) $(PY) scripts/testing/run_one.py "$(FILE)"

# What runs each week: all ways of all engines, all pages, other CPUs, …
test-all: $(READY)  ## all there is to run, in parts that go on where it stopped
	@$(PY) scripts/testing/run_parts.py $(PARTS)

# The text and the pages; with BUILT_SITE=, those that are built.
on-site: $(READY)
	$(ON_SIM) $(ONE) $(UNITS) $(or $(FILES),tests/site/pages)

# The plain notebooks: with open stubs, then solved.
on-plain: book
	printf '%s\n' $(CHOSEN) | $(ON_SIM) $(ONE) xargs -n 1 \
	  -P $$($(PY) -m tests.running.workers) \
	  $(PY) scripts/chapters/run_plain.py _build/html

test-report:  ## write one file about the last run of tests, to attach
	@$(PYTHON) scripts/testing/report_tests.py

# PyTorch's engines on 2, 4 and 8 ranks; with TORCH=2.11, by that torch.
on-ranks: $(READY)
	DPKIT_RANKS="2 4 8" $(ON_SIM) $(ONE) $(PYTEST) $(SHARED) \
	  $(or $(FILES),$(ON_RANKS))

# What changes with the CPU, as CPU=avx2 or compat.
on-other-cpu: $(READY)
	$(if $(AS_$(CPU)),,$(error unknown CPU (CPU: $(CPU), known: avx2, compat)))
	$(AS_$(CPU)) $(ON_SIM) $(ONE) $(UNITS) --nbval $(NBVAL) \
	  $(or $(FILES),$(if $(ONLY),,$(CODE) $(WITH_TORCH)) $(CHOSEN))

# The tests of which devices are found by default.
on-reader: $(READY)
	env -u DPKIT_DEVICES $(ONE) $(PYTEST) $(SHARED) -m "$(MARKS)" \
	  $(or $(FILES),$(FOUND))

# The tests reach 95 % of the library and of the code of the book.
on-coverage: $(READY)
	rm -rf _build/coverage && mkdir -p _build/coverage
	$(ON_SIM) $(ONE) $(PY) -m coverage run -m \
	  pytest $(SHARED) --doctest-modules -m "$(MARKS) and not untraced" \
	  $(or $(FILES),$(CODE) $(TESTS))
	$(PY) -m coverage combine --quiet
	$(PY) -m coverage report --fail-under=95

# Every chapter on the CPU.
on-cpu: $(READY)
	DPKIT_DEVICES=cpu $(ONE) $(PYTEST) $(SHARED) --nbval-lax $(NBVAL) \
	  $(or $(FILES),$(CHOSEN))

gpu-report: $(READY)  ## write what runs on the GPUs, and how fast, to attach
	env -u DPKIT_DEVICES $(PY) scripts/gpu_report.py $(REPORT)

# All that GPUs run, on a double of CUDA (GPUS=1, 2, 4, 8). With SHORT=yes: of
# that, where dpkit meets torch, and three chapters.
on-double: $(READY)
	$(PY) scripts/rehearse.py $(if $(SHORT),short,$(or $(GPUS),2))

new-chapter: $(READY)  ## make a chapter that passes all checks (NAME=…)
	@$(ON_SIM) $(ONE) $(PY) scripts/chapters/new_chapter.py "$(NAME)"

address:  ## write the public address, URL=https://…, and AUTHORS="A and B"
	@$(PYTHON) scripts/owner/set_address.py "$(URL)" --pages "$(PAGES)" \
	  --authors "$(AUTHORS)"

bench: $(READY)  ## measure speed, as ratios; AGAINST=commit, ROWS=, RECORD=yes
	$(PY) scripts/bench.py $(if $(AGAINST),--against "$(AGAINST)") \
	  $(if $(RECORD),--record) $(ROWS)

elsewhere: $(READY)  ## the step in JAX, TensorFlow, MXNet; FRAMEWORK=, RENEW=1
	$(ONE) $(PY) scripts/elsewhere.py $(FRAMEWORK) $(if $(RENEW),--renew) \
	  $(if $(STRICT),--strict)

# What these packages need beside them, torch too, is that of $(PY).
$(PACKAGES)/ready: tests/packages/requirements.txt | $(READY)
	$(PY) -P scripts/environment/torch_there.py $(PACKAGES)
	$(PACKAGES)/bin/python -m pip install --disable-pip-version-check \
	  --no-deps -r tests/packages/requirements.txt
	@touch $@

# Scripts inside Accelerate and Lightning, on ranks.
on-packages: $(PACKAGES)/ready
	$(ON_SIM) $(ONE) PYTHONPATH=. $(PACKAGES)/bin/python -m pytest $(SHARED) \
	  $(or $(FILES),tests/packages/scripts_of_packages.py)

# It needs packages that nothing else does, so it has an environment.
$(OTTER)/ready: scripts/teaching/assignment/requirements.txt | $(READY)
	$(PY) -P scripts/environment/torch_there.py $(OTTER)
	$(OTTER)/bin/python -m pip install --disable-pip-version-check \
	  --no-deps -r scripts/teaching/assignment/requirements.txt
	$(OTTER)/bin/python -m pip install --disable-pip-version-check \
	  --no-deps --no-build-isolation --editable .
	@touch $@

# The exercises of a chapter for a course: FOR=plain or otter; SEED=number gives
# other numbers than the book; HINTS=no.
assignment: $(READY) $(if $(filter otter,$(FOR)),$(OTTER)/ready)  ## exercises of CHAPTER=name for a course, FOR=plain or otter
	@$(PY) scripts/teaching/make_assignment.py "$(CHAPTER)" --for "$(or $(FOR),plain)" \
	  $(if $(SEED),--seed "$(SEED)") $(if $(filter no,$(HINTS)),--no-hints) \
	  $(if $(filter otter,$(FOR)),--otter $(OTTER)/bin/otter)

grade: $(READY)  ## grade notebooks, FILES="a.ipynb b.ipynb", of an assignment, FOLDER=
	@$(ONE) $(PY) scripts/teaching/grade_assignment.py "$(FOLDER)" $(FILES)

# Each exercise, with its solution, its stub and its wrong answers, by both
# graders. They are in one file, whose tests all workers share.
on-assignments: $(OTTER)/ready
	$(ON_SIM) $(ONE) PYTHONPATH=$(CURDIR):$(CURDIR)/book \
	  $(OTTER)/bin/python -m pytest $(SHARED) --dist load \
	  $(or $(FILES),tests/packages/graded_assignments.py)

$(RELEASE)/ready: scripts/owner/release_requirements.txt
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python -m pip install --disable-pip-version-check --quiet \
	  -r scripts/owner/release_requirements.txt
	@touch $@

release: $(RELEASE)/ready  ## the files of a release, checked, in _build/release
	$(RELEASE)/bin/python scripts/owner/build_release.py . _build/release

archive: book release  ## one zip to teach from without a network, in _build/archive
	$(PY) scripts/owner/build_archive.py . _build/archive

# NAME=forecasts, public_scripts or planted_mistakes runs scripts of others, in
# FOLDER.
reproduce: $(READY)  ## rerun the long experiments recorded in book/_data, or NAME=
ifneq ($(NAME),)
	$(PY) scripts/record.py $(NAME) $(if $(FOLDER),"$(FOLDER)")
else
	set -e; for name in $(RECORDERS); do $(PY) scripts/record.py $$name; done
endif

# With SINCE=commit, style and workflows are checked where files differ from it.
CHANGED = $(shell git diff --name-only --diff-filter=d "$(SINCE)"; \
  git ls-files --others --exclude-standard)
STYLED  = $(if $(SINCE),$(filter %.py %.ipynb,$(CHANGED)) conftest.py,.)
lint: $(READY)  ## check style (notebooks too), types, words and workflows
	$(PY) -m ruff format --check $(STYLED)
	$(PY) -m ruff check $(STYLED)
	$(PY) -m mypy
	$(PY) -c 'from importlinter.cli import lint_imports_command as lint; lint()'
	$(PY) scripts/check/words.py
ifneq ($(if $(SINCE),$(filter .github/%,$(CHANGED)),all),)
	PATH="$(dir $(PY)):$$PATH" zizmor --offline --quiet .github
	scripts/check/lint_workflows
endif

format: $(READY)  ## format and mend with ruff
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

lock: $(READY)  ## resolve pyproject.toml again into requirements.txt
	$(PY) -m pip install --quiet uv
	$(PY) -m uv pip compile --universal --python-version 3.11 --extra dev \
	  --no-header --no-annotate --upgrade pyproject.toml -o requirements.txt

clean:  ## remove what was built (the environment stays: rm -r .venv)
	rm -rf _build .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -r {} +
