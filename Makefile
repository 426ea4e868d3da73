# gridhook: `make run` starts a server, `make test` tests it. Both make sure of the tools they need.

# Build results live outside of the working copy, so that copies share them and nothing in here grows.
export CARGO_TARGET_DIR ?= $(HOME)/.cache/gridhook/target

# A test of the server waits more than it computes.
export RUST_TEST_THREADS ?= $(shell expr 3 '*' "$$(getconf _NPROCESSORS_ONLN)")

# As in the unit: RocksDB's threads share what is free.
export MALLOC_ARENA_MAX ?= 1

CARGO := .ci/with-tools cargo
TEST := .ci/with-tools --tests .ci/test

.PHONY: help run check test soak fuzz bench build deb

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-6s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## Build and start the server with config/gridhook.toml, its data in ./data; ARGS are added, as ARGS="--listen 127.0.0.1:9000"
	$(CARGO) run --release --locked -- serve --config config/gridhook.toml $(ARGS)

check: ## Check format and lints, and run the tests of architecture, language and policy, which need cargo only
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --locked --workspace --all-targets -- -D warnings
	.ci/with-tools .ci/test architecture:: language:: policy::

test: ## Run every test; ARGS are added, as ARGS="config::"
	$(TEST) $(ARGS)

soak: ## Run the tests of the whole server in their long form, one after another, with what they measure
	GRIDHOOK_SOAK=1 $(TEST) server:: abuse:: sdk::terraform dashboard::browser::a_tail --test-threads 1 --nocapture $(ARGS)

# The modules of tests that change valid inputs and look what is made of them.
FUZZ := fuzz publish::garbage publish::sas journal::records journal::chunks journal::keys policy::filter::index

fuzz: ## Change valid inputs of every reader for long: CASES=200000 for each property
	PROPTEST_CASES=$(or $(CASES),200000) $(TEST) $(FUZZ) $(ARGS)

bench: ## Hold the server against what its parts cost alone; NAME=single runs one bench, BENCH_SCALE=quick measures less
ifneq ($(filter pure,$(or $(NAME),pure)),)
	$(CARGO) bench --locked --bench pure -- $(ARGS)
endif
ifneq ($(NAME),pure)
	.ci/with-tools $(if $(filter destinations cluster slow-disk,$(or $(NAME),cluster)),--tests) cargo bench --locked --bench gridhook -- $(NAME)
endif

build: ## Build the binary
	$(CARGO) build --release --locked

# The package is built for speed, apart from what `make run` and `make test` build.
OPTIMIZED := $(CARGO_TARGET_DIR)/optimized
# What the binary writes itself, for the package: manual and completions.
WRITTEN := $(OPTIMIZED)/release/packaging

deb: ## Make the package of Debian; the last line is its path
	.ci/with-tools --package .ci/optimized
	mkdir -p $(WRITTEN)/completions
	$(OPTIMIZED)/release/gridhook man $(WRITTEN)/man
	$(OPTIMIZED)/release/gridhook completions bash > $(WRITTEN)/completions/gridhook
	$(OPTIMIZED)/release/gridhook completions zsh > $(WRITTEN)/completions/_gridhook
	$(OPTIMIZED)/release/gridhook completions fish > $(WRITTEN)/completions/gridhook.fish
	CARGO_TARGET_DIR=$(OPTIMIZED) .ci/with-tools --package cargo deb --no-build --locked $(ARGS)
