#!/bin/sh
# Runs all GPU tests of this project, one after another, through the runner: never beside another
# process of yours that does the same. Arguments go to the runner (--match 'pool.*', --gpu-jobs 2,
# --show-output, …; build/rocmforge test --help lists them), its exit status comes back: 0 all is
# well, 1 a test failed, 2 wrong usage, 77 no GPU.
#
#   BUILD=folder    the build folder; built first where that is needed
#   RF_DRIVER=sim   on the simulated GPU
cd "$(dirname "$0")" || exit 2
build=${BUILD:-build}
if command -v make >/dev/null && [ -w . ]; then
    make --no-print-directory build BUILD="$build" >&2 || exit 2
elif [ ! -x "$build/rocmforge" ]; then
    echo "run_gpu_tests.sh: there is no $build/rocmforge: run make build" >&2
    exit 2
fi
# shellcheck disable=SC2046 # one path a line, none with spaces
exec "$build/rocmforge" test --gpu-only "$@" $(python3 tools/test_executables.py "$build")
