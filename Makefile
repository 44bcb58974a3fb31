# Building, testing and trying Packstone. `make help` lists the targets.
#
# Each target installs what it needs first (scripts/setup.sh, quick when nothing is missing), so that a fresh Debian 12
# machine needs no step before it.

export PATH := $(if $(CARGO_HOME),$(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
HARNESS_RELEASE := $(TARGET)/release/packstone-harness
SIM_SECONDS ?= 300
HARNESS_DEBUG := $(TARGET)/debug/packstone-harness

.DEFAULT_GOAL := build
.PHONY: help setup suites lab-tools build demo test check bench kv-bench bugs fuzz posix sim crash-points soak fmt clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: ## install what the other targets need
	@scripts/setup.sh

suites: ## install what the other targets need, and the test suites of others
	@scripts/setup.sh --suites

lab-tools: setup ## install what the other targets need, and what the lab compares with
	@scripts/setup.sh --lab

build: setup ## build the release binaries: target/release/packstone
	@cargo build --release --locked --workspace --bins

demo: build ## PostgreSQL with a million click events on a compressed pool (KEEP=1, EVENTS=n, DEMO_DIR=dir)
	@$(HARNESS_RELEASE) demo

test: suites ## every test, unattended, with one summary line
	@cargo build --locked --workspace --bins
	@$(HARNESS_DEBUG) test

posix: suites build ## test suites of others through the mount, in full (POSIX_ARGS='--suite fsx', --quick, --json)
	@$(HARNESS_RELEASE) posix $(POSIX_ARGS)

sim: setup ## random lives over a failing device: pinned seeds, then fresh ones (SIM_SECONDS=300, SIM_FROM=seed)
	@cargo build --locked --profile sim -p packstone-sim
	@$(TARGET)/sim/packstone-sim run --pinned crates/sim/seeds.txt --fresh $(if $(SIM_FROM),--from $(SIM_FROM)) \
		--seconds $(SIM_SECONDS) --threads $$(nproc)

check: setup ## formatting, clippy and rustdoc with warnings denied, layout rules, licences
	@scripts/check.sh

bench: lab-tools build ## pgbench on ext4, xfs, btrfs and Packstone in turns, with a report (BENCH_ARGS=--help)
	@$(TARGET)/release/packstone lab run experiments/pgbench.toml $(BENCH_ARGS)

kv-bench: setup ## the pool's trees beside LMDB, redb, SQLite and fjall (KV_BENCH_ARGS='--rounds 4 --directory dir')
	@cargo run --release --locked --quiet -p packstone-kv-bench --features peers -- $(KV_BENCH_ARGS)

bugs: setup ## deliberate bugs put into a copy one at a time, and which test catches each (BUGS_ARGS='--only flush')
	@cargo build --locked -p packstone-harness
	@$(HARNESS_DEBUG) bugs $(BUGS_ARGS)

fuzz: setup ## fuzz every decoder and whole images, a minute each (FUZZ_SECONDS=60, FUZZ_TARGETS='image node')
	@scripts/fuzz.sh $(FUZZ_TARGETS)

soak: build ## power cuts under PostgreSQL on a lossy member (SOAK_CYCLES=50, SOAK_SECONDS=n, SOAK_SEED=n, SOAK_DIR=dir)
	@$(HARNESS_RELEASE) soak

crash-points: setup ## every crash point of short scripts, a million states (CRASH_POINTS_ARGS='--states 50000')
	@cargo build --locked --profile sim -p packstone-sim
	@$(TARGET)/sim/packstone-sim exhaustive --threads 2 $(CRASH_POINTS_ARGS)

fmt: setup ## format the sources
	@cargo fmt --all

clean: ## remove everything that was built
	@cargo clean
