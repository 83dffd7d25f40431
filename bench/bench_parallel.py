#!/usr/bin/env python3
"""Parallel against serial: the suite of 200 GPU tests in tests/parallel, run by `rocmforge test`.

    bench/bench_parallel.py --build build                    on the simulated driver
    RF_DRIVER=auto bench/bench_parallel.py --build build     on a real GPU

Runs the whole suite with one GPU job and with several, alternately, and prints each wall time, the
medians and their ratio. Every run must pass. --atleast makes a smaller ratio a failure; without it
the timing decides nothing. Exit status: 0, 1 a run failed or the ratio was too small, 77 no GPU.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def run(build, jobs, repeat):
    """The seconds one run took, and its closing line."""
    command = [os.path.join(build, "rocmforge"), "test", "--quiet", "--gpu-jobs", str(jobs), "--repeat", str(repeat),
               os.path.join(build, "tests", "parallel", "test_parallel")]
    started = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    seconds = time.monotonic() - started
    lines = done.stdout.rstrip("\n").split("\n")
    counts = re.match(r"(\d+) passed, (\d+) failed, (\d+) skipped$", lines[-1])
    if done.returncode == 77 or counts and int(counts.group(1)) == 0 and int(counts.group(2)) == 0:
        print(done.stdout)
        sys.exit(77)
    if done.returncode or not counts or int(counts.group(1)) != 200 * repeat:
        print(done.stdout)
        sys.exit("%s: expected %d tests to pass" % (" ".join(command), 200 * repeat))
    return seconds, lines[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--jobs", type=int, default=2, help="GPU tests at a time (default: 2)")
    parser.add_argument("--runs", type=int, default=3, help="of each kind (default: 3)")
    parser.add_argument("--repeat", type=int, default=1, help="of each test in a run (default: 1)")
    parser.add_argument("--atleast", type=float, default=0, help="fail below this ratio")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    os.environ.setdefault("RF_DRIVER", "sim")
    times = {1: [], arguments.jobs: []}
    for number in range(arguments.runs):
        for jobs in (1, arguments.jobs):
            seconds, closing = run(arguments.build, jobs, arguments.repeat)
            times[jobs].append(seconds)
            print("run %d  %d at a time  %8.3f s  %s" % (number + 1, jobs, seconds, closing), flush=True)
    serial, parallel = statistics.median(times[1]), statistics.median(times[arguments.jobs])
    print("serial %.3f s, %d at a time %.3f s: %.2f times as fast, %d cores" %
          (serial, arguments.jobs, parallel, serial / parallel, len(os.sched_getaffinity(0))))
    return 1 if serial / parallel < arguments.atleast else 0


if __name__ == "__main__":
    sys.exit(main())
