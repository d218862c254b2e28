# The two commands: `make demo` and `make test`. Each sets everything up by itself.
VENV := .venv
BIN := $(VENV)/bin
.DEFAULT_GOAL := help
# Compiled modules are kept: without them every Harbor process and every test process compiles all it loads.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help setup tools demo test check chaos scale real-tasks agents simulate format lock clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup:  ## Find a Python, make .venv, install what a run needs, pinned (no-op when done)
	@sh scripts/setup.sh $(VENV) run

tools:  ## The same with what the checks need; `make test` does it by itself
	@sh scripts/setup.sh $(VENV) all

demo: setup  ## Run the quickstart experiment: no Docker, no key, about a minute
	@$(BIN)/tbench run experiments/quickstart.toml
	@echo && $(BIN)/tbench compare experiments/quickstart.toml

test:  ## Set up, then run every check and test
	@sh scripts/test-clients.sh $(VENV) & sh scripts/setup.sh $(VENV) all && wait $$!
	@$(MAKE) --no-print-directory check

check:  ## Every check and test, without set-up (FAST=1: nothing end to end)
	@sh scripts/tests.sh $(BIN)

chaos: tools  ## Kill runs, nights, arms, trainings, imports and image pulls at random moments, and count what is lost
	@$(BIN)/python tests/chaos/chaos.py --rounds 200
	@$(BIN)/python tests/chaos/commands.py --kills 60
	@$(BIN)/python tests/chaos/guarded.py --kills 20
	@$(BIN)/python tests/chaos/trainings.py --rounds 20

scale: tools  ## A Ray cluster of several nodes that loses a node and its head; what 100,000 trials cost the orchestrator
	@$(BIN)/python tests/scale/scale.py

real-tasks: tools  ## Public tasks (TASKS=FOLDER) on images of a local registry: how many are measured, and why the others are not
	@$(BIN)/python tests/real_tasks/real_tasks.py $(TASKS)

agents: tools  ## Install Harbor's agents of npm and PyPI, run each against a scripted server, write docs/agents.md (AGENTS=NAME,...)
	@sh scripts/test-clients.sh $(VENV)
	@TBENCH_AGENTS=$(or $(AGENTS),all) $(BIN)/python -m pytest tests/e2e/test_harbor_agents.py --workers 1

simulate: tools  ## Measure the statistics where the truth is known: false positives, coverage, power (an hour)
	@$(BIN)/python tests/simulate/simulate.py

format:  ## Format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: tools  ## Refresh the lock files (names, versions and hashes; no addresses)
	@sh scripts/lock.sh $(VENV)

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .import_linter_cache
