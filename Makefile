# The commands of this project; `make help` lists them.

# The Python (3.11 to 3.13) that makes the environment, and that runs gpu-test.
PYTHON ?= python3
# Number of test files that run in parallel.
WORKERS ?= 2
# The solver that bench-peers compares, and the peer of each.
SOLVER ?= cavity
PEER_cavity := devito
PEER_blood := lbmpy
PEER_flow := dolfinx
# The Python of a peer that the system installs; others get an environment of their own.
PYTHON_FOR_flow := /usr/bin/python3

# One environment for each version: .venv for python3, .venv-3.13 for PYTHON=python3.13. If .venv is of
# an earlier python3, it is left as it is. A PYTHON that does not run has none, and is refused.
VERSION := $(shell '$(PYTHON)' -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
VERSION_OF_VENV := $(shell sed -n 's/^version *= *\([0-9]*\.[0-9]*\).*/\1/p' .venv/pyvenv.cfg 2>/dev/null)
VENV := .venv-$(or $(VERSION),none)
ifeq ($(PYTHON),python3)
ifneq ($(filter $(VERSION),$(or $(VERSION_OF_VENV),$(VERSION))),)
VENV := .venv
endif
endif
PEERS_VENV := .venv-peers-$(SOLVER)
DOCS_VENV := .venv-docs
DOCS := docs/_build/html
RUN := $(VENV)/bin/python -m

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start Python some thousand times: it compiles our sources once, not each time.
export PYTHONDONTWRITEBYTECODE :=

# Kernels are compiled when first needed: a machine without a C++ compiler gets one as a package.
COMPILES := $(shell for compiler in '$(CXX)' g++; do \
	echo 'int main() {}' | $$compiler -x c++ -fopenmp -S -o - - >/dev/null 2>&1 \
	&& echo yes && break; done)
comma := ,
COMPILER_EXTRA := $(if $(COMPILES),,$(comma)compiler)
# One stamp for each set of extras, with - for the comma.
stamp = $(VENV)/.installed-$(subst $(comma),-,$(1)$(COMPILER_EXTRA))
RUN_STAMP := $(call stamp,mpi)
TEST_STAMP := $(call stamp,mpi$(comma)dev$(comma)nvrtc)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test unit-test again-test small-test case-test wheel-test page-test lint docs gpu-test bench bench-peers clean

help:
	@echo 'make demo         run a small case (a fresh clone needs only Python 3.11 to 3.13)'
	@echo 'make test         check sources and run all tests; GPU tests are skipped without a GPU'
	@echo 'make unit-test    run the unit tests only'
	@echo 'make again-test   run the tests that failed last time, one at a time'
	@echo 'make small-test   run a few unit tests and one case of each solver, in a minute'
	@echo 'make wheel-test   build a wheel, install it outside this folder and run two cases with it'
	@echo 'make page-test    run commands of the pages at full size and compare their numbers'
	@echo 'make lint         check sources only: ruff, mypy, import-linter'
	@echo 'make docs         build the documentation site, $(DOCS)/index.html'
	@echo 'make gpu-test     run tests/gpu with PYTHON, which must have the packages of the tests'
	@echo 'make bench        measure kernel rates and the memory bandwidth of this machine'
	@echo 'make bench-peers  compare rates with other programs; SOLVER=cavity, blood or flow'
	@echo 'make clean        remove environments and caches, keep runs/'
	@echo 'PYTHON=...        Python to use; default python3. Each version has its own environment'
	@echo 'WORKERS=...       test files that run in parallel; default 2'

demo: $(RUN_STAMP)
	$(VENV)/bin/haloscope run cases/cavity-demo.toml

test: lint
	$(RUN) pytest --numprocesses $(WORKERS) --dist loadfile

unit-test: $(TEST_STAMP)
	$(RUN) pytest --numprocesses $(WORKERS) --dist loadfile tests/unit

again-test: $(TEST_STAMP)
	$(RUN) pytest --last-failed --last-failed-no-failures none

# Parts that depend on the version of Python, and each solver.
SMALL_TESTS := $(addprefix tests/unit/test_,$(addsuffix .py,atomic case errors expressions regions \
	run templates vtkhdf))
SMALL_CASES := cavity-2d maxwell-cavity blood-red-cell flow-lid

small-test: $(TEST_STAMP)
	$(RUN) pytest --numprocesses $(WORKERS) --dist loadfile $(SMALL_TESTS)
	$(MAKE) case-test

case-test: $(TEST_STAMP)
	rm -rf build/small-test
	mkdir -p build/small-test
	for case in $(SMALL_CASES); do \
		$(VENV)/bin/haloscope run cases/$$case.toml --steps 2 --device cpu --out build/small-test/$$case \
		>build/small-test/$$case.txt 2>&1 || { cat build/small-test/$$case.txt; exit 1; }; done

wheel-test: $(TEST_STAMP)
	$(RUN) pytest -m slow tests/unit/test_installed_wheel.py

page-test: $(TEST_STAMP)
	$(RUN) pytest -m slow tests/unit/test_doc_blocks.py

lint: $(TEST_STAMP)
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(VENV)/bin/lint-imports

docs: $(DOCS_VENV)/.installed
	$(DOCS_VENV)/bin/python -m sphinx -W --keep-going -q -c docs -d docs/_build/doctrees . $(DOCS)
	$(DOCS_VENV)/bin/python docs/check_site.py $(DOCS)
	@echo 'open $(DOCS)/index.html'

gpu-test:
	PYTHONPATH=src$${PYTHONPATH:+:$$PYTHONPATH} $(PYTHON) -m pytest tests/gpu -q

bench: $(RUN_STAMP)
	$(VENV)/bin/haloscope bench

bench-peers: $(RUN_STAMP) $(if $(PYTHON_FOR_$(SOLVER)),,$(PEERS_VENV)/.installed)
	$(VENV)/bin/python bench/$(SOLVER)_against_$(PEER_$(SOLVER)).py \
		--peer-python $(or $(PYTHON_FOR_$(SOLVER)),$(PEERS_VENV)/bin/python)

clean:
	rm -rf .venv .venv-[0-9]* $(DOCS_VENV) .venv-peers-* build docs/_build .coverage \
		.import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests bench -name __pycache__ -prune -exec rm -rf {} +
	rm -rf src/*.egg-info

$(VENV)/.installed-%: pyproject.toml | $(VENV)/bin/pip
	@echo 'installing haloscope[$(subst -,$(comma),$*)] into $(VENV) ...'
	@$(RUN) pip install --quiet --editable '.[$(subst -,$(comma),$*)]'
	@touch $@

$(DOCS_VENV)/.installed: pyproject.toml | $(DOCS_VENV)/bin/pip
	@echo 'installing haloscope[docs] into $(DOCS_VENV) ...'
	@$(DOCS_VENV)/bin/python -m pip install --quiet --editable '.[docs]'
	@touch $@

$(PEERS_VENV)/.installed: bench/peers/requirements-$(SOLVER).txt | $(PEERS_VENV)/bin/pip
	@echo 'installing the peers of $(SOLVER) into $(PEERS_VENV) ...'
	@$(PEERS_VENV)/bin/python -m pip install --quiet --requirement $<
	@touch $@

# pip is what venv puts in last.
.venv%/bin/pip:
	$(make_environment)
$(VENV)/bin/pip:
	$(make_environment)

define make_environment
@'$(PYTHON)' -c '' 2>/dev/null || { echo >&2 \
	'$(PYTHON) is not installed; install Python 3.11 to 3.13, or select one: make PYTHON=python3.12'; \
	exit 1; }
@'$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo >&2 \
	"$(PYTHON) is $$('$(PYTHON)' -V 2>&1); allowed: Python 3.11 to 3.13;" \
	"select another: make PYTHON=python3.12"; exit 1; }
@'$(PYTHON)' -c 'import ensurepip, venv' 2>/dev/null || { echo >&2 \
	'$(PYTHON) cannot create environments; install its venv module' \
	'(Debian, Ubuntu: apt install python3-venv) and try again'; exit 1; }
@'$(PYTHON)' -m venv '$(@D:/bin=)'
endef

# An unknown SOLVER is refused before anything is installed.
ifneq ($(filter bench-peers,$(MAKECMDGOALS)),)
ifeq ($(PEER_$(SOLVER)),)
$(error SOLVER is $(SOLVER); allowed: $(patsubst PEER_%,%,$(filter PEER_%,$(.VARIABLES))))
endif
endif
