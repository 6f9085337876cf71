# SPDX-License-Identifier: MIT
# A short front for the CMake presets. `make help` lists the targets.
PREFIX ?= /usr/local
DESTDIR ?=
FUZZ_SECONDS ?= 60
LOAD_SECONDS ?= 300
DEMO_RAM ?= 84M

all: build/build.ninja
	cmake --build build --target product

help:
	@echo 'make           build/moeflux, build/libmoeflux.a, build/libmoeflux.so'
	@echo 'make demo      the demo model writes, its experts read from disk under a memory budget'
	@echo 'make test      all tests but the long ones; ends with their count'
	@echo 'make test-long the tests that take minutes each (label long)'
	@echo 'make test-gpu  the tests on a GPU (MF_TEST_DEVICE, or the best), the long ones too'
	@echo 'make test-arm  the tests built for 64-bit ARM, run by qemu-user (slow)'
	@echo 'make load      the server: 64 clients for LOAD_SECONDS ($(LOAD_SECONDS)), kill -9, hostile requests'
	@echo 'make install   to PREFIX ($(PREFIX)), below DESTDIR'
	@echo 'make uninstall removes what the last make install wrote'
	@echo 'make packages  Debian packages, an archive, an SBOM, into build-packages/out'
	@echo 'make bench     micro-benchmarks into build/bench'
	@echo 'make fuzz      each fuzz target for FUZZ_SECONDS ($(FUZZ_SECONDS))'
	@echo 'make format    clang-format all sources; make lint: clang-tidy and the layer table'
	@echo 'Missing Debian packages are installed; NO_INSTALL=1 lists them instead.'

setup:
	@sh tools/setup.sh

build/build.ninja: | setup
	cmake --preset release

demo: all
	build/moeflux run models/demo -p "Once upon a time" -n 256 --ram $(DEMO_RAM) --seed 0 --stats

test: build/build.ninja
	@sh tools/setup.sh --test
	cmake --build build
	@sh tools/run_tests.sh build

test-long: build/build.ninja
	@sh tools/setup.sh --test
	cmake --build build
	@sh tools/run_tests.sh build --label-regex '^long$$'

test-gpu: build/build.ninja
	@sh tools/setup.sh --test
	cmake --build build
	@sh tools/run_tests.sh build --label-regex vulkan

test-arm:
	@sh tools/setup.sh --arm
	@sh tools/test_arm.sh

load: build/build.ninja
	@sh tools/setup.sh --test
	@sh tools/load.sh build $(LOAD_SECONDS)

install: all
	DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)"

uninstall:
	DESTDIR="$(DESTDIR)" cmake -DMANIFEST=build/install_manifest.txt -P cmake/uninstall.cmake

packages: setup
	@sh tools/build_packages.sh build-packages build-packages/out

bench: build/build.ninja
	cmake --build build

format:
	@sh tools/format.sh

lint: build/build.ninja
	@sh tools/check_layers.sh
	@sh tools/lint.sh build

fuzz: setup
	@sh tools/fuzz.sh $(FUZZ_SECONDS)

clean:
	rm -rf build build-dev build-asan build-tsan build-fuzz build-arm64

.PHONY: all help setup demo test test-long test-gpu test-arm load install uninstall packages bench format lint fuzz clean
