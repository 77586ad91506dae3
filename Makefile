# Two targets matter: `make demo` shows the whole product on real input, `make test` runs the suite.
# Both set up .venv first. PYTHON chooses the interpreter, TORCH_INDEX_URL an index for torch.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH_INDEX_URL ?=
PIP_TORCH := $(if $(TORCH_INDEX_URL),--extra-index-url $(TORCH_INDEX_URL),)
STAMP := $(VENV)/.installed

.PHONY: setup demo test serve lint bench eval guides clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(PIP_TORCH) -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet $(PIP_TORCH) -c constraints.txt -e '.[torch,dev]'
	$(BIN)/python -m compileall -q src $(VENV)/lib > /dev/null || true
	touch $(STAMP)

demo: setup
	$(BIN)/fsdp-mcp demo

test: setup
	$(BIN)/python -m pytest -m "not nightly"

serve: setup
	$(BIN)/fsdp-mcp serve

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m tools.bench

# Retrieval beside plain BM25 and agents-docs, a documentation server from PyPI that needs an environment of its own
# (left out when it cannot be installed). QUESTIONS=FILE asks other questions, such as
# tests/data/further_questions.jsonl. Then diagnose_log on logs with a known cause.
QUESTIONS ?= tests/data/public_questions.jsonl
PEER := build/eval-peer

eval: setup
	@test -x $(PEER)/bin/agents-docs || { $(PYTHON) -m venv $(PEER) && $(PEER)/bin/pip install --quiet agents-docs==0.45.0; } || true
	$(BIN)/python -m tools.eval $(QUESTIONS) --misses $$(test -x $(PEER)/bin/agents-docs && echo --peer $(PEER)/bin/python)
	$(BIN)/python -m tools.eval_failures tests/data/failure_logs.jsonl tests/data/thread_failure_logs.jsonl --misses

# Runs every example of the guides on CPU Gloo and compares its output with the page.
guides: setup
	$(BIN)/python -m tools.run_guides

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
