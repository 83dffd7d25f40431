# The front door: `make run` and `make test` do everything on a fresh Debian 12 or Ubuntu 24.04.
# Meson does the building; `make help` lists the rest.
#
#   BUILD=folder        another build folder
#   MESON_FLAGS=…       further options when a build folder is first configured
#   TEST_FLAGS=…        passed to the test runner: --match 'budget.*', --jobs 1, …
#   TEST_JOBS=…         tests at a time; default: two for each core, and four
#   PREFIX=folder       where `make install` installs (DESTDIR= is honoured)

BUILD ?= build
PREFIX ?= /usr/local
MESON_FLAGS ?=
TEST_FLAGS ?=
# Many tests wait more than they compute: for a deadline, for a process. A GPU is the simulated one, each process has
# its own, unless RF_DRIVER names a driver.
TEST_JOBS ?= $(shell expr 2 \* $$(nproc) + 4)
RUN_TESTS = $(BUILD)/rocmforge test --timeout-scale 10 --jobs $(TEST_JOBS) --gpu-jobs $(if $(RF_DRIVER),1,$(TEST_JOBS))
# All but the kernels' own tests, which are arithmetic and slow there. Threads are below the models.
TSAN_FOLDERS ?= $(addprefix --folder ,base runtime testing budget gpu sim graph)
ASAN_FOLDERS ?= $(TSAN_FOLDERS) $(addprefix --folder ,probe cli misbehaving gguf tokenizer template chat grammar infer hostile)

# Calls through the drivers' tables have void * where the vendors' headers name opaque structs: not checked by type.
SANITIZER_FLAGS = -Dkernel_targets=sm_90,gfx942,gfx1100,gfx1201 -Dsanitized=true -Dchecks=2 -Db_lundef=false -Doptimization=1 -Ddebug=true \
    -Dc_args="-fno-sanitize-recover=all -fno-sanitize=function"
KERNEL_SOURCES = $(wildcard src/kernels/*.hip)
# Headers of a released version stay as they were.
FORMATTED = $(shell find src include tests bench examples -name '*.[ch]' -not -path 'tests/abi/0.*')

# Kernel blobs are the same in every build folder of this tree.
export RF_KERNEL_CACHE ?= $(CURDIR)/.cache/kernels

.PHONY: help setup build run test test-all test-hostile bench format check-format check asan tsan kernels-all kernels-verify hooks install clean fuzz mutate

help:
	@echo "make run           set up, build, and tell a story with the bundled model on the best device"
	@echo "make test          set up, build, and run the tests"
	@echo "make test-all      the long ones too"
	@echo "make test-hostile  attacks: model mutants, drivers, faults, signals; HOSTILE_SECONDS (600) for each, SEED"
	@echo "make build         set up and build into $(BUILD)/"
	@echo "make bench         the benchmarks"
	@echo "make asan, tsan    the same tests under ASan and UBSan, or TSan (clang-19)"
	@echo "make fuzz          the fuzzers, FUZZ_SECONDS (600) each, under ASan and UBSan (clang-19)"
	@echo "make mutate        the first N (20) mutants of SEED (14): does a test notice each?"
	@echo "make check         layers, format, public structs and headers"
	@echo "make format        clang-format-19 over all C"
	@echo "make kernels-all   builds $(BUILD)/ with the kernels for every GPU target that is known"
	@echo "make kernels-verify  compiles the kernels that are made from another target's, and compares"
	@echo "make hooks         a pre-commit hook that runs the quick checks"
	@echo "make install       to PREFIX ($(PREFIX))"
	@echo "make clean         removes the build folders"

setup:
	@tools/setup.sh

build: setup
	@test -f $(BUILD)/build.ninja || tools/build.py --configure $(BUILD) $(MESON_FLAGS)
	@tools/build.py $(BUILD)

run: build
	@$(BUILD)/rocmforge doctor --quick | grep '^No usable GPU' || true # where there is one, --stats shows it
	$(BUILD)/rocmforge run -m models/stories.gguf -p "Once upon a time" -n 400 --temp 0.8 --seed 1 --stats

test: build
	@$(RUN_TESTS) --skip-tag slow $(TEST_FLAGS) $$(python3 tools/test_executables.py $(BUILD))

# The long ones too: thousands of rounds, every driver call failing once with every code.
test-all: build
	@$(RUN_TESTS) $(TEST_FLAGS) $$(python3 tools/test_executables.py $(BUILD))

# The attacks of tests/hostile for HOSTILE_SECONDS each, all rows of one together, and the long storms of leases. A
# failure names its seed and the row that repeats it.
HOSTILE_SECONDS ?= 600
test-hostile: build
	@HOSTILE_SECONDS=$(HOSTILE_SECONDS) $(RUN_TESTS) --tag hostile $(if $(SEED),--seed $(SEED)) $(TEST_FLAGS) $$(python3 tools/test_executables.py --folder hostile --folder budget $(BUILD))

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
	@test -f build-$@/build.ninja || CC=clang-19 tools/build.py --configure build-$@ -Db_sanitize=$(SANITIZER) $(SANITIZER_FLAGS) $(MESON_FLAGS)
	@tools/build.py build-$@ build.ninja
	@tools/build.py build-$@ $(SANITIZED_TARGETS) $$(python3 tools/test_executables.py --all $(SANITIZED_FOLDERS) build-$@ | sed 's,^build-$@/,,')
	@TSAN_OPTIONS="atexit_sleep_ms=0 $$TSAN_OPTIONS" build-$@/rocmforge test --timeout-scale 10 --skip-tag slow $(SANITIZED_SKIP) $(TEST_FLAGS) $$(python3 tools/test_executables.py $(SANITIZED_FOLDERS) build-$@)

# New inputs are kept in the build folder; findings are written beside them and fail the target.
FUZZ_SECONDS ?= 600
fuzz: build
	@tools/setup.sh --ci
	@tools/build.py $(BUILD) fuzzers
	@for program in $(BUILD)/tests/fuzz/fuzz_*; do \
	    name=$${program##*/fuzz_}; test -f "$$program" && mkdir -p $(BUILD)/corpus/$$name || continue; \
	    echo "== fuzz_$$name, $(FUZZ_SECONDS) s"; \
	    $$program -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -malloc_limit_mb=256 -print_final_stats=1 -verbosity=0 \
	        -artifact_prefix=$(BUILD)/corpus/$$name- $(BUILD)/corpus/$$name tests/fuzz/corpus/$$name || exit 1; done

# Changes one thing at a time and sees whether a test notices: the first N mutants of SEED (docs/mutation.md).
N ?= 20
mutate: setup
	@tools/mutate.py run --count $(N) --seed $(or $(SEED),14) $(MUTATE_FLAGS)

check: check-format
	@python3 tools/check_layers.py
	@python3 tools/check_structs.py
	@tools/check_headers.sh

format:
	@clang-format-19 -i $(FORMATTED)

check-format:
	@clang-format-19 --dry-run --Werror $(FORMATTED)

# What `rocmforge doctor` names to the owner of a GPU that the default targets leave out.
kernels-all: setup
	@test -f $(BUILD)/build.ninja || tools/build.py --configure $(BUILD) $(MESON_FLAGS)
	@meson configure $(BUILD) -Dkernel_targets=$$(python3 tools/build_kernels.py targets)
	@tools/build.py $(BUILD)
	@echo "$(BUILD)/rocmforge has kernels for $$(python3 tools/build_kernels.py targets)"

# Some targets' kernels are made from another's, whose code is the same: compiles them all and compares.
kernels-verify: setup
	@python3 tools/build_kernels.py verify --include src $(KERNEL_SOURCES)

hooks:
	@install -D -m 755 tools/pre-commit "$$(git rev-parse --git-path hooks)/pre-commit"
	@echo "the pre-commit hook is installed; git commit --no-verify passes it by"

install: build
	@meson configure $(BUILD) --prefix $(abspath $(PREFIX))
	@tools/build.py $(BUILD) install

clean:
	rm -rf build build-asan build-tsan build-ci build-release build-checks build-mutate .cache
