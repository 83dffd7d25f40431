# The front door: `make run` and `make test` do everything on a fresh Debian 12 or Ubuntu 24.04.
# Meson does the building; `make help` lists the rest.
#
#   BUILD=folder        another build folder
#   MESON_FLAGS=…       further options when a build folder is first configured
#   TEST_FLAGS=…        passed to the test runner: --match 'budget.*', --jobs 1, …
#   PREFIX=folder       where `make install` installs (DESTDIR= is honoured)

BUILD ?= build
PREFIX ?= /usr/local
MESON_FLAGS ?=
TEST_FLAGS ?=
# All but the kernels' own tests, which are arithmetic and slow there. Threads are below the models.
TSAN_FOLDERS ?= $(addprefix --folder ,base runtime testing budget gpu sim graph)
ASAN_FOLDERS ?= $(TSAN_FOLDERS) $(addprefix --folder ,probe cli misbehaving gguf tokenizer infer)

ALL_KERNEL_TARGETS = sm_80,sm_90,sm_90a,gfx90a,gfx942,gfx1030,gfx1036,gfx1100,gfx1101,gfx1102,gfx1103,gfx1150,gfx1151,gfx1200,gfx1201
# Calls through the drivers' tables have void * where the vendors' headers name opaque structs: not checked by type.
SANITIZER_FLAGS = -Dkernel_targets=gfx942,gfx1100,gfx1201 -Dsanitized=true -Dchecks=2 -Db_lundef=false -Doptimization=1 -Ddebug=true \
    -Dc_args="-fno-sanitize-recover=all -fno-sanitize=function"
# Headers of a released version stay as they were.
FORMATTED = $(shell find src include tests bench examples -name '*.[ch]' -not -path 'tests/abi/0.*')

# Kernel blobs are the same in every build folder of this tree.
export RF_KERNEL_CACHE ?= $(CURDIR)/.cache/kernels

.PHONY: help setup build run test test-all bench format check-format check asan tsan kernels-all hooks install clean fuzz

help:
	@echo "make run           set up, build, and tell a story with the bundled model on the best device"
	@echo "make test          set up, build, and run the tests"
	@echo "make test-all      the long ones too"
	@echo "make build         set up and build into $(BUILD)/"
	@echo "make bench         the benchmarks"
	@echo "make asan, tsan    the same tests under ASan and UBSan, or TSan (clang-19)"
	@echo "make fuzz          the fuzzers, FUZZ_SECONDS (600) each, under ASan and UBSan (clang-19)"
	@echo "make check         layers, format, public structs and headers"
	@echo "make format        clang-format-19 over all C"
	@echo "make kernels-all   the kernels for every GPU target, checked"
	@echo "make hooks         a pre-commit hook that runs the quick checks"
	@echo "make install       to PREFIX ($(PREFIX))"
	@echo "make clean         removes the build folders"

setup:
	@tools/setup.sh

build: setup
	@test -f $(BUILD)/build.ninja || meson setup $(BUILD) $(MESON_FLAGS)
	@ninja -C $(BUILD) --quiet

run: build
	@$(BUILD)/rocmforge doctor --quick | grep '^No usable GPU' || true # where there is one, --stats shows it
	$(BUILD)/rocmforge run -m models/stories.gguf -p "Once upon a time" -n 400 --temp 0.8 --seed 1 --stats

test: build
	@$(BUILD)/rocmforge test --timeout-scale 10 --skip-tag slow $(TEST_FLAGS) $$(python3 tools/test_executables.py $(BUILD))

# The long ones too: thousands of rounds, every driver call failing once with every code.
test-all: build
	@$(BUILD)/rocmforge test --timeout-scale 10 $(TEST_FLAGS) $$(python3 tools/test_executables.py $(BUILD))

bench: build
	@python3 tools/test_executables.py --prefix bench_ $(BUILD) | while read -r program; do \
	    echo "== $$program"; $$program || test $$? = 77 || exit 1; done # 77: it needs a GPU

# Of a sanitizer's build only what its tests need.
SANITIZED_TARGETS = rocmforge rocmforge-probe librfsim-hip.so librfsim-kernels.so librfsim-test-kernels.so
asan: SANITIZED_FOLDERS = $(ASAN_FOLDERS)
tsan: SANITIZED_FOLDERS = $(TSAN_FOLDERS)
asan: SANITIZER = address,undefined
tsan: SANITIZER = thread
# Without those that compute the same for long: what they call, others call too.
asan: SANITIZED_SKIP = --skip-tag heavy
tsan: SANITIZED_SKIP = --skip-tag heavy --skip-tag faults
asan tsan:
	@tools/setup.sh --ci
	@test -f build-$@/build.ninja || CC=clang-19 meson setup build-$@ -Db_sanitize=$(SANITIZER) $(SANITIZER_FLAGS) $(MESON_FLAGS)
	@ninja -C build-$@ --quiet build.ninja
	@ninja -C build-$@ --quiet $(SANITIZED_TARGETS) $$(python3 tools/test_executables.py --all $(SANITIZED_FOLDERS) build-$@ | sed 's,^build-$@/,,')
	@TSAN_OPTIONS="atexit_sleep_ms=0 $$TSAN_OPTIONS" build-$@/rocmforge test --timeout-scale 10 --skip-tag slow $(SANITIZED_SKIP) $(TEST_FLAGS) $$(python3 tools/test_executables.py $(SANITIZED_FOLDERS) build-$@)

# New inputs are kept in the build folder; findings are written beside them and fail the target.
FUZZ_SECONDS ?= 600
fuzz: build
	@ninja -C $(BUILD) --quiet fuzzers
	@for program in $(BUILD)/tests/fuzz/fuzz_*; do \
	    name=$${program##*/fuzz_}; test -f "$$program" && mkdir -p $(BUILD)/corpus/$$name || continue; \
	    echo "== fuzz_$$name, $(FUZZ_SECONDS) s"; \
	    $$program -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -malloc_limit_mb=256 -print_final_stats=1 -verbosity=0 \
	        -artifact_prefix=$(BUILD)/corpus/$$name- $(BUILD)/corpus/$$name tests/fuzz/corpus/$$name || exit 1; done

check: check-format
	@python3 tools/check_layers.py
	@python3 tools/check_structs.py
	@tools/check_headers.sh

format:
	@clang-format-19 -i $(FORMATTED)

check-format:
	@clang-format-19 --dry-run --Werror $(FORMATTED)

kernels-all: setup
	@test -f build-kernels-all/build.ninja || meson setup build-kernels-all -Dkernel_targets=$(ALL_KERNEL_TARGETS) $(MESON_FLAGS)
	@ninja -C build-kernels-all --quiet rocmforge
	@build-kernels-all/rocmforge kernels

hooks:
	@install -D -m 755 tools/pre-commit "$$(git rev-parse --git-path hooks)/pre-commit"
	@echo "the pre-commit hook is installed; git commit --no-verify passes it by"

install: build
	@meson configure $(BUILD) --prefix $(abspath $(PREFIX))
	@ninja -C $(BUILD) --quiet install

clean:
	rm -rf build build-asan build-tsan build-ci build-release build-checks build-kernels-all .cache
