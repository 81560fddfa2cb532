# Two commands need nothing done beforehand: `make demo` and `make test`. Each makes .venv, installs what it needs from the
# package index, builds the extension and runs. Stamp files in .venv make the next run quick. Both use one build of the
# dependencies: optimised a little.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.NOTPARALLEL:

VENV := $(CURDIR)/.venv
PY := $(VENV)/bin/python
PATH := $(VENV)/bin:$(PATH):$(HOME)/.cargo/bin
export PATH
export VIRTUAL_ENV := $(VENV)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# One interpreter for every build, so that switching between targets does not rebuild the binding.
export PYO3_PYTHON := $(PY)
export PYSPARK_PYTHON := $(PY)
export PYSPARK_DRIVER_PYTHON := $(PY)
export SPARK_LOCAL_IP ?= 127.0.0.1
unexport PYTHONPATH PYTHONHOME SPARK_HOME CONDA_PREFIX

# The first Python that is new enough.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1 && echo "$$python" && break; done)

# Compiled Rust is kept outside the checkout when there is a cache to keep it in.
ifeq ($(origin CARGO_TARGET_DIR),undefined)
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/deltic
ifeq ($(shell mkdir -p '$(CACHE)' 2>/dev/null && test -w '$(CACHE)' && echo writable),writable)
export CARGO_TARGET_DIR := $(CACHE)/target
endif
endif

RUST := $(shell find rust -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock pyproject.toml
JAVA_HOME_OR_STOP = home=$$(.ci/java-home '$(VENV)') && export JAVA_HOME="$$home"

PROGRESS = $(PY) .ci/progress

.PHONY: help demo check test test-rust test-python fuzz soak coverage bench bench-quick lint fmt wheel docs clean

help: ## Say what there is
	@sed -n 's/^\([a-z-]*\):.*## /  make \1|/p' $(MAKEFILE_LIST) | column -t -s '|' 2>/dev/null || grep '##' $(MAKEFILE_LIST)

demo: ready-demo ## Build the extension and run the demo on real flights
	@$(JAVA_HOME_OR_STOP); exec $(PY) examples/flights.py

check: ready-dev ## The quick test while changing code
	@tests/quick $(PY)
	@echo "== Checked; \`make test\` runs everything"

test: ready-dev ## Build the extension and run all tests
	@$(JAVA_HOME_OR_STOP)
	@$(MAKE) test-rust test-python
	@echo "== All tests passed"

test-rust: $(VENV)/packages-build ## The Rust tests alone
	@echo "== Rust tests, and beside them the model of the commit loop"
	@$(PROGRESS) cargo test --workspace --locked --no-run
	@$(PROGRESS) cargo test --manifest-path tests/model/Cargo.toml --locked --no-run
	@cargo test --manifest-path tests/model/Cargo.toml --locked --quiet & model=$$!; \
	cargo test --workspace --locked --quiet || failed=1; \
	wait $$model && test -z "$${failed:-}"

test-python: ready-dev ## The Python, Spark, interoperability and process tests alone
	@$(JAVA_HOME_OR_STOP); exec tests/suites $(PY)

fuzz: ## Fuzz every target (FUZZ_SECONDS=600 each, FUZZ_JOBS=1 at a time); needs nightly Rust
	@fuzz/run

soak: $(VENV)/packages-dev $(VENV)/release ## Prove commits at length: processes, kills, crashes, a million simulated histories; hours
	@$(JAVA_HOME_OR_STOP); exec tests/soak

coverage: ## Measure which lines of rust/protocol its own tests run; fails under 90 %
	@.ci/coverage

bench: $(VENV)/packages-dev $(VENV)/release ## Run the benchmarks and write benches/README.md, and what README.md shows of it
	@$(JAVA_HOME_OR_STOP); $(PY) benches/run.py && $(PY) docs/generate.py

bench-quick: $(VENV)/packages-dev $(VENV)/release ## The same on 100,000 files, in a few minutes; writes nothing
	@$(JAVA_HOME_OR_STOP); exec $(PY) benches/run.py --quick

lint: ready-dev ## Check formatting, types, the stub and the house rules
	@echo "== cargo fmt, clippy"
	@cargo fmt --all --check
	@cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
	@cargo fmt --manifest-path tests/model/Cargo.toml --check
	@cargo clippy --manifest-path tests/model/Cargo.toml --all-targets --locked --quiet -- -D warnings
	@echo "== ruff"
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@echo "== mypy, stubtest"
	@$(PY) -m mypy
	@$(PY) -m mypy.stubtest deltic._deltic --ignore-disjoint-bases
	@echo "== house rules"
	@$(PY) -m pytest tests/python/test_tidy.py
	@echo "== All lints passed"

fmt: $(VENV)/packages-dev ## Format everything
	@cargo fmt --all
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

wheel: $(VENV)/packages-build ## Build a wheel into dist/; installs maturin and nothing else
	@$(PROGRESS) maturin build --profile dist --locked --out dist

docs: ready-dev ## Regenerate what docs/ and README have from the code, and build the Rust documentation
	@$(PY) docs/generate.py
	@DELTIC_UPDATE_DOCS=1 cargo test --workspace --locked --quiet --test protocol \
		the_documentation_says_what
	@cargo doc --workspace --no-deps --locked --quiet

clean: ## Remove what the other targets made here
	rm -rf '$(VENV)' dist target demo-table python/deltic/*.so

# --- what the targets above stand on ---

.PHONY: tools
tools:
	@test -n '$(PYTHON)' || { echo "error: Python 3.10 or newer is missing: get it from https://www.python.org or with: apt install python3 python3-venv" >&2; exit 1; }
	@command -v cargo >/dev/null || { echo "error: cargo (Rust 1.89 or newer) is missing: get it from https://rustup.rs" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "error: a C compiler (cc) is missing: apt install build-essential, or on a Mac: xcode-select --install" >&2; exit 1; }

$(VENV)/python: | tools
	@test -x '$(PY)' || '$(PYTHON)' -m venv '$(VENV)' || { rm -rf '$(VENV)'; echo "error: Python's venv module is missing: apt install python3-venv" >&2; exit 1; }
	@$(PY) -m pip install --quiet --upgrade pip
	@touch $@

# One group of pyproject.toml each: build, demo, dev.
DOWNLOADS_build := 10 MB
DOWNLOADS_demo := 600 MB
DOWNLOADS_dev := 700 MB
$(VENV)/packages-%: pyproject.toml $(VENV)/python
	@echo "== Installing Python packages of the group $* into .venv (the first time downloads some $(DOWNLOADS_$*))"
	@$(PY) -m pip install --quiet --group $*
	@touch $@

# The extension and a group of packages. The first time the packages are downloaded while the dependencies are compiled.
.PHONY: ready-demo ready-dev
ready-demo ready-dev: ready-%: $(VENV)/packages-build
	@$(MAKE) $(VENV)/packages-$* & installing=$$!; built=0; \
	test -e $(VENV)/debug || test -e $(VENV)/release || { \
		echo "== Compiling what deltic depends on"; \
		$(PROGRESS) cargo build --locked --package deltic-table || built=$$?; \
	}; \
	wait $$installing && exit $$built
	@$(MAKE) $(VENV)/debug

# Both profiles install to the same place, so each build forgets the other's stamp. Without a group maturin would install the
# packages of `dev`.
$(VENV)/debug: $(VENV)/packages-build $(RUST)
	@echo "== Building the extension (some minutes the first time)"
	@$(PROGRESS) maturin develop --locked --group build
	@rm -f $(VENV)/release && touch $@

$(VENV)/release: $(VENV)/packages-build $(RUST)
	@echo "== Building the extension for speed (some minutes the first time)"
	@$(PROGRESS) maturin develop --release --locked --group build
	@rm -f $(VENV)/debug && touch $@
