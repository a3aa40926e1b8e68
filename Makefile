# What people type; CMake does the work. `make help` lists the targets.
#   BUILD=DIR   the build folder (build); nothing else is written to
#   PREFIX=DIR  where `make install` installs (/usr/local), below DESTDIR
PREFIX ?= /usr/local
DESTDIR ?=
BUILD ?= build
JOBS ?= $(shell nproc)
export PREFIX DESTDIR BUILD

.PHONY: all deps run test chaos explore install uninstall clean format check abi reference lint fuzz bench-build bench-store bench-rdzv bench-docs bench-etcd bench-run bench-torchrun \
  wheel asan tsan clang coverage help

all: ## build the library and the command (build/rdzv); installs nothing
	@scripts/setup look
	@cmake --build "$(BUILD)" -j $(JOBS)

deps: ## install what the build needs (Debian packages, by name)
	@scripts/setup build

run: deps ## install what is missing, build, and show a job whose nodes die and are replaced
	@$(MAKE) --no-print-directory all
	@$(CC) -O2 -Iinclude examples/ring.c -o "$(BUILD)/ring" -L"$(BUILD)" -lrdzv -Wl,-rpath,'$$ORIGIN'
	@examples/run-demo "$(BUILD)/rdzv" "$(BUILD)/ring"

test: ## install the test peers too, build, and run all tests, or those of T=REGEX
	@scripts/setup test
	@scripts/test release $(if $(T),-R '$(patsubst tests/%,%,$(patsubst %.c,%,$(patsubst %.py,%,$(T))))')

asan tsan clang coverage: ## build and run the suites with that preset
	@scripts/setup test
	@scripts/test $@

fuzz: ## run every fuzz target for FUZZ_SECONDS (10)
	@scripts/setup test
	@scripts/fuzz $(or $(FUZZ_SECONDS),10)

chaos: bench-build ## cut, kill, stop and restart for CHAOS_SECONDS (300), from CHAOS_SEED
	@RDZV_BUILD="$(abspath $(BUILD))" scripts/chaos

explore: bench-build ## every order of events of three nodes, up to EXPLORE_STATES (3000000) states a scenario
	@"$(BUILD)"/tests/explore --suite $(or $(EXPLORE_STATES),3000000)

check: ## format, include directions, shell scripts
	@scripts/setup test
	@scripts/check

abi: ## compare the interface of the library with the baseline in abi/
	@scripts/setup test
	@scripts/abi check

reference: ## build the reference of the C interface from the headers (build/reference)
	@scripts/setup test
	@scripts/reference

lint: ## clang-tidy
	@scripts/setup test
	@scripts/lint

format: ## reformat the C sources
	@clang-format -i $$(git ls-files '*.c' '*.h')

bench-build:
	@scripts/setup test
	@scripts/configure release -DRDZV_TESTS=ON -DRDZV_BENCH=ON >/dev/null
	@cmake --build "$(BUILD)" -j $(JOBS)

bench-store: bench-build ## compare the store server with PyTorch's and with a raw echo server
	@bench/store "$(BUILD)" $(BENCH_FLAGS)
	@bench/durable "$(BUILD)"
	@bench/failover "$(BUILD)" $(BENCH_FLAGS)

bench-rdzv: bench-build ## time N nodes that join at once, side by side with PyTorch's; draws build/bench-rdzv.svg
	@bench/rendezvous "$(BUILD)" $(BENCH_FLAGS)

bench-docs: bench-build ## measure barriers and rendezvous again, and put the tables into docs/benchmarks.md and README.md
	@bench/store "$(BUILD)" --only-barrier --docs .
	@bench/rendezvous "$(BUILD)" --docs .

bench-etcd: bench-build ## time N nodes that join at once through an etcd, side by side with PyTorch's
	@bench/etcd "$(BUILD)" $(BENCH_FLAGS)

bench-run: bench-build ## time start, restart and memory of rdzv run, side by side with torchrun's and mpiexec's
	@bench/run "$(BUILD)" $(BENCH_FLAGS)

bench-torchrun: bench-build ## time rounds, deaths and gets of torchrun with the plug-in, side by side with c10d
	@bench/torchrun "$(BUILD)" $(BENCH_FLAGS)

wheel: ## build a wheel of the Python package that needs nothing else (build/wheel)
	@scripts/setup build
	@folder=$$(scripts/configure release -DRDZV_TESTS=OFF -DRDZV_BENCH=OFF 2>/dev/null) && \
	  cmake --build "$$folder" -j $(JOBS) --target rdzv_bundled rdzv_bundled_command && \
	  /usr/bin/env python3 scripts/python-package wheel "$$folder"

install: all ## build and install to PREFIX (/usr/local), below DESTDIR
	@scripts/install

uninstall: ## remove what `make install` installed last
	@scripts/uninstall

clean: ## remove the build folders
	@rm -rf "$(BUILD)" "$(BUILD)"-*

help: ## print this
	@sed -nE 's/^([a-z][a-z -]*):.*## (.*)/  \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'
