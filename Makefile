# What people type; CMake does the work. `make help` lists the targets.
PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc)

.PHONY: all run test install clean format check lint fuzz bench-store bench-rdzv bench-etcd bench-run asan tsan clang coverage help

all: ## build the library and the command (build/rdzv)
	@scripts/setup build
	@cmake --preset release -DRDZV_TESTS=OFF -DRDZV_BENCH=OFF >/dev/null
	@cmake --build build -j $(JOBS)

run: all ## install what is missing, build, and show a job whose nodes die and are replaced
	@$(CC) -O2 -Iinclude examples/ring.c -o build/ring -Lbuild -lrdzv -Wl,-rpath,$(CURDIR)/build
	@examples/run-demo build/rdzv build/ring

test: ## install the test peers too, build, and run all tests
	@scripts/setup test
	@scripts/test release

asan tsan clang coverage: ## build and run the suites with that preset
	@scripts/setup test
	@scripts/test $@

fuzz: ## run every fuzz target for FUZZ_SECONDS (10)
	@scripts/setup test
	@scripts/fuzz $(or $(FUZZ_SECONDS),10)

check: ## format, include directions, shell scripts
	@scripts/setup test
	@scripts/check

lint: ## clang-tidy
	@scripts/setup test
	@scripts/lint

format: ## reformat the C sources
	@clang-format -i $$(git ls-files '*.c' '*.h')

bench-store: ## compare the store server with PyTorch's and with a raw echo server
	@scripts/setup test
	@cmake --preset release -DRDZV_TESTS=ON -DRDZV_BENCH=ON >/dev/null
	@cmake --build build -j $(JOBS)
	@bench/store build $(BENCH_FLAGS)

bench-rdzv: ## time N nodes that join at once, side by side with PyTorch's; draws build/bench-rdzv.svg
	@scripts/setup test
	@cmake --preset release -DRDZV_TESTS=ON -DRDZV_BENCH=ON >/dev/null
	@cmake --build build -j $(JOBS)
	@bench/rendezvous build $(BENCH_FLAGS)

bench-etcd: ## time N nodes that join at once through an etcd, side by side with PyTorch's
	@scripts/setup test
	@cmake --preset release -DRDZV_TESTS=ON -DRDZV_BENCH=ON >/dev/null
	@cmake --build build -j $(JOBS)
	@bench/etcd build $(BENCH_FLAGS)

bench-run: ## time start, restart and memory of rdzv run, side by side with torchrun's
	@scripts/setup test
	@cmake --preset release -DRDZV_TESTS=ON -DRDZV_BENCH=ON >/dev/null
	@cmake --build build -j $(JOBS)
	@bench/run build $(BENCH_FLAGS)

install: all ## install to PREFIX (/usr/local), below DESTDIR
	@cmake --preset release -DCMAKE_INSTALL_PREFIX=$(PREFIX) >/dev/null
	@cmake --build build -j $(JOBS)
	@DESTDIR=$(DESTDIR) cmake --install build

clean: ## remove the build folders
	@rm -rf build build-*

help: ## print this
	@sed -nE 's/^([a-z][a-z -]*):.*## (.*)/  \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'
