#!/usr/bin/env python3
"""Changes one thing at a time in the library and the command, and sees whether a test notices.

    tools/mutate.py prepare                     copies the tree, builds it, and finds which test executes which line
    tools/mutate.py run --count 20 --seed 14    the first 20 mutants of a seed; prints those that no test noticed
    tools/mutate.py try FILE OLD NEW            one change of your own: does a test notice?
    tools/mutate.py list --count 20 --seed 14   shows the mutants, runs nothing
    tools/mutate.py pack --out FILE.tar.xz      the prepared folder, for another machine: unpack it at the same path

tools/mutants.py says what is changed. Lines are drawn evenly: every line of src/ that has something to change is as
likely as any other, the seed alone decides which come first, and of the changes that a line offers one is taken.

The prepared folder (--work) holds s00, a copy of the tree with two builds: 'build', with all checks of invariants as
in .ci/run, and 'build-cover', whose tests report which lines they execute. Each job works in a copy of s00 of its own
(s01, s02, …), whose name is as long, so that the paths inside its executables can be replaced. A mutant costs one
compilation, and one link for each program that executes the line. The tests that execute the line then run, the
quickest of its own folder first, until one fails. s00's own `rocmforge test` runs them, so a change in the runner does
not judge itself.

Results, one a line in RESULTS.tsv:
  killed        a test failed, twice, or did not end; without the change it then passed
  survived      all tests that execute the line passed
  unsteady      a test failed once and then passed, and no other failed: counted as survived
  not executed  no test executes the line: counted as survived
  equivalent    the compiler makes the same code of it: not counted, another mutant takes its place
  not compiled  not counted either

Before the first mutant all tests run twice without a change, in the copies; those that fail are named and left out.
"""
import argparse
import gzip
import hashlib
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mutants  # noqa: E402

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
FIRST = "s00"
BATCH_SECONDS = 2.0      # tests of one executable that run in one go
CHECK_SECONDS = 5.0      # the same, in the self-check
LEAST_LIMIT_SECONDS = 20.0
LIMIT_FACTOR = 10.0
MEMORY_BYTES = 4 << 30   # what a process of a mutant may hold before it is ended
DISK_BYTES = 3 << 30     # what a mutant must leave free
COLUMNS = ["number", "file", "line", "function", "kind", "change", "text", "result", "test", "tests", "seconds"]
WAIT = object()
TIME_LIMIT = "(time limit)"
COUNTED = ("killed", "survived", "unsteady", "not executed")

# Counts the executed blocks of a module by the call that the compiler puts at each block's start. One byte for each
# byte of code, in a file that the processes of a test share: what a killed process executed is seen too.
COVER_RUNTIME = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#define HIDDEN __attribute__((visibility("hidden")))
extern const char __ehdr_start[] HIDDEN, etext[] HIDDEN;
static unsigned char *map;
static size_t size;
HIDDEN void __sanitizer_cov_trace_pc(void) {
    if (!map) return;
    size_t at = (size_t)((const char *)__builtin_return_address(0) - __ehdr_start);
    if (at < size) map[at] = 1;
}
static ssize_t slurp(const char *path, char *text, size_t room) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t length = 0, count;
    while (length < (ssize_t)room - 1 && (count = read(fd, text + length, room - 1 - (size_t)length)) > 0) length += count;
    close(fd);
    text[length] = 0;
    return length;
}
/* The outermost process with --run-one names the test. */
static int find_test(char *name, size_t room) {
    int found = 0;
    long pid = getpid();
    while (pid > 1) {
        char path[64], text[8192], exe[1024];
        snprintf(path, sizeof path, "/proc/%ld/cmdline", pid);
        ssize_t length = slurp(path, text, sizeof text);
        for (char *at = text; length > 0 && at < text + length; at += strlen(at) + 1)
            if (!strcmp(at, "--run-one") && at + 10 < text + length) {
                snprintf(path, sizeof path, "/proc/%ld/exe", pid);
                ssize_t linked = readlink(path, exe, sizeof exe - 1);
                exe[linked > 0 ? linked : 0] = 0;
                char *build = strstr(exe, "/build-cover/");
                if (build) snprintf(name, room, "%s@%s", build + 13, at + 10), found = 1;
            }
        snprintf(path, sizeof path, "/proc/%ld/stat", pid);
        if (slurp(path, text, sizeof text) <= 0) break;
        char *after = strrchr(text, ')');
        if (!after || sscanf(after + 1, " %*c %ld", &pid) != 1) break;
    }
    return found;
}
__attribute__((constructor(101))) static void begin(void) {
    char test[600], module[1024] = "", path[2048];
    const char *given = getenv("RF_COVER_TEST");
    if (given && strlen(given) < sizeof test) strcpy(test, given);
    else if (!find_test(test, sizeof test)) return;
    for (char *c = test; *c; c++) if (*c == '/') *c = '%';
    setenv("RF_COVER_TEST", test, 1);
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)(const void *)__ehdr_start;
    Dl_info info;
    if ((const char *)getauxval(AT_PHDR) == __ehdr_start + header->e_phoff) {
        ssize_t length = readlink("/proc/self/exe", module, sizeof module - 1);
        module[length > 0 ? length : 0] = 0;
    } else if (dladdr(__ehdr_start, &info) && info.dli_fname && !realpath(info.dli_fname, module)) {
        return;
    }
    char *build = strstr(module, "/build-cover/");
    if (!build) return;
    for (char *c = build + 13; *c; c++) if (*c == '/') *c = '%';
    snprintf(path, sizeof path, COVER_DIR "/%s", test);
    mkdir(path, 0777);
    snprintf(path, sizeof path, COVER_DIR "/%s/=%s", test, build + 13); /* "=": tests look for modules by "/name" */
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return;
    size = (size_t)(etext - __ehdr_start);
    if (ftruncate(fd, (off_t)size) == 0) {
        void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (mapped != MAP_FAILED) map = mapped;
    }
    close(fd);
}
"""


def say(*words):
    print(*words, flush=True)


def fail(text):
    sys.exit(f"mutate.py: {text}")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def run_quietly(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **options)
    if done.returncode:
        fail(f"{command if isinstance(command, str) else shlex.join(command)} failed:\n{done.stdout[-3000:]}")
    return done.stdout


# ---- the prepared folder ----

class Work:
    """A prepared folder: s00 with both builds, commands.json, cover.json.gz."""

    def __init__(self, folder):
        self.folder = os.path.abspath(folder)
        self.tree = os.path.join(self.folder, FIRST, "tree")
        self.build = os.path.join(self.tree, "build")
        self.cover = os.path.join(self.tree, "build-cover")

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def load(self):
        if not os.path.exists(self.path("cover.json.gz")):
            fail(f"{self.folder} is not prepared: run 'tools/mutate.py prepare --work {self.folder}' first")
        with open(self.path("commands.json"), encoding="utf-8") as file:
            commands = json.load(file)
        self.compile, self.links, self.archives = commands["compile"], commands["links"], commands["archives"]
        self.tests, self.commit = commands["tests"], commands["commit"]
        with gzip.open(self.path("cover.json.gz"), "rt", encoding="utf-8") as file:
            cover = json.load(file)
        self.pairs, self.sets, self.lines = cover["pairs"], cover["sets"], cover["lines"]
        self.pairs = [tuple(pair) for pair in self.pairs]

    def sources(self):
        found = []
        for folder in mutants.FOLDERS:
            names = sorted(os.listdir(os.path.join(self.tree, "src", folder)))
            for path in (f"src/{folder}/{name}" for name in names if name.endswith(".c")):
                if path not in mutants.GENERATED:
                    found.append(mutants.Source(path, read(os.path.join(self.tree, path))))
        return found

    def tests_of(self, source, line):
        """{(executable, test): {modules}} that execute a line, or the nearest line before that has code of its own."""
        lines = self.lines.get(source.path, {})
        around = source.function_lines(line)
        chosen = set()
        if around:
            at = line
            while at >= around[0] and str(at) not in lines:
                at -= 1
            if at < around[0]:
                at = next((n for n in range(line, around[1] + 1) if str(n) in lines), None)
            if at is not None:
                chosen.update(self.sets[lines[str(at)]])
        else:  # a table: whatever executes anything of the file
            for number in set(lines.values()):
                chosen.update(self.sets[number])
        tests = {}
        for index in chosen:
            test, module = self.pairs[index]
            tests.setdefault(test, set()).add(module)
        return tests


def tree_files():
    """What git knows of this tree and what it does not ignore."""
    listed = run_quietly(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]).split("\0")
    return {name for name in listed if name and os.path.isfile(os.path.join(ROOT, name))}


def tree_digest():
    """Of what is built and tested; a document or this tool may change without building anew."""
    digest = hashlib.sha256()
    for name in sorted(tree_files()):
        if name.startswith(("src/", "include/", "tests/", "models/", "examples/")) or name.endswith("meson.build"):
            with open(os.path.join(ROOT, name), "rb") as file:
                digest.update(name.encode() + b"\0" + hashlib.sha256(file.read()).digest())
    return digest.hexdigest()


def copy_tree(work):
    wanted = tree_files()
    for name in wanted:
        to = os.path.join(work.tree, name)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        source = os.path.join(ROOT, name)
        if os.path.exists(to):
            with open(source, "rb") as one, open(to, "rb") as two:
                if one.read() == two.read():
                    continue
        shutil.copy2(source, to)
        os.utime(to)
    for folder, folders, names in os.walk(os.path.join(work.tree)):
        folders[:] = [f for f in folders if not (folder == work.tree and f.startswith("build"))]
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), work.tree)
            if path not in wanted and path not in BROUGHT:
                os.remove(os.path.join(folder, name))


BROUGHT = ("include/libzstd.so.1", "include/zstd.h", "include/zstd_errors.h")
MESON = ["-Dkernel_targets=sm_90,gfx942,gfx1100,gfx1201", "-Dchecks=2", "-Doptimization=2", "-Ddebug=false"]


def configure(work, folder):
    if not os.path.exists(os.path.join(folder, "build.ninja")):
        run_quietly(["meson", "setup", folder, *MESON], cwd=work.tree)
    ninja = os.path.join(folder, "build.ninja")
    # What another machine may lack is linked in, or left out.
    text = read(ninja)
    library = re.search(r"/\S*/libzstd\.so(?![\w.])", text)
    if library:
        brought = os.path.join(work.tree, "include", "libzstd.so.1")
        if not brought.startswith(library.group()):
            shutil.copy(os.path.realpath(library.group()), brought)
            for header in ("zstd.h", "zstd_errors.h"):
                shutil.copy("/usr/include/" + header, os.path.join(work.tree, "include", header))
            text = text.replace(library.group(), brought)
    text = re.sub(r" -DRF_HAVE_EDITLINE| \S*/libedit\.so", "", text)
    return ninja, text


def write_if_changed(path, text):
    if not os.path.exists(path) or read(path) != text:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def build(work):
    ninja, text = configure(work, work.build)
    write_if_changed(ninja, text)
    say("building")
    run_quietly(["ninja", "-C", work.build, "all"])
    compile_commands, links, archives = {}, {}, {}
    for entry in json.loads(run_quietly(["ninja", "-C", work.build, "-t", "compdb"])):
        words = shlex.split(entry["command"])
        if words and os.path.basename(words[0]) == "ccache":
            words = words[1:]
        output = entry["output"]
        if "-c" in words:
            source = os.path.relpath(os.path.join(work.build, words[words.index("-c") + 1]), work.tree)
            if source.startswith("src/"):
                compile_commands.setdefault(source, {})[output] = words
        elif "-o" in words:
            links[output] = words
        elif "gcc-ar" in entry["command"] or re.search(r"\bar\b", entry["command"].split("&&")[-1].split()[0] if "&&" in entry["command"] else ""):
            words = shlex.split(entry["command"].split("&&")[-1])
            archives[output] = [word for word in words if word.endswith(".o")]
    links = {name: words for name, words in links.items() if os.path.exists(os.path.join(work.build, name))}
    tests = run_quietly([sys.executable, "tools/test_executables.py", "build"], cwd=work.tree).split()
    commit = run_quietly(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"]).strip()
    with open(work.path("commands.json"), "w", encoding="utf-8") as file:
        json.dump({"compile": compile_commands, "links": links, "archives": archives, "commit": commit,
                   "tests": [os.path.relpath(test, "build") for test in tests]}, file)


# ---- which test executes which line ----

def is_mutable(path):
    return path.endswith(".c") and path.startswith(tuple(f"src/{folder}/" for folder in mutants.FOLDERS))


def build_cover(work):
    folder = work.path("cover")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    runtime = work.path("cover_runtime.o")
    with open(work.path("cover_runtime.c"), "w", encoding="utf-8") as file:
        file.write(COVER_RUNTIME)
    run_quietly(["gcc", "-O2", "-fPIC", "-w", f'-DCOVER_DIR="{folder}"', "-c", work.path("cover_runtime.c"), "-o", runtime])
    ninja, text = configure(work, work.cover)
    lines, kind, output = text.split("\n"), None, ""
    for i, line in enumerate(lines):
        match = re.match(r"build (\S+): (\S+) (\S*)", line)
        if match:
            output, rule, source = match.groups()
            source = os.path.relpath(os.path.join(work.cover, source), work.tree)
            kind = "compile" if rule == "c_COMPILER" and is_mutable(source) else "link" if rule in ("c_LINKER", "cpp_LINKER") else None
        elif kind == "compile" and line.startswith(" ARGS ="):
            if "trace-pc" not in line:
                lines[i] = line + " -O0 -g -fsanitize-coverage=trace-pc"
        elif kind == "link" and line.startswith(" LINK_ARGS ="):
            if "cover_runtime" not in line:
                lines[i] = f"{line} {runtime} -Wl,-Map={output}.map"
    write_if_changed(ninja, "\n".join(lines))
    say("building with coverage")
    run_quietly(["ninja", "-C", work.cover, "all"])


def environment(folder, work):
    """Of the caller's environment only what a program needs; all folders private; no GPU's driver is found."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "USER", "LOGNAME") if name in os.environ}
    kept.update(TMPDIR=folder, HOME=folder, XDG_CACHE_HOME=folder + "/cache", RF_LEASE_DIR=folder + "/leases", TERM="dumb",
                RF_CUDA_LIBRARY="/nonexistent/libcuda.so.1", RF_NVML_LIBRARY="/nonexistent/libnvidia-ml.so.1",
                RF_MUTATE=folder)
    if not any(os.path.exists(f"{place}/libzstd.so.1") for place in ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu",
                                                                    "/lib64", "/usr/lib64", "/usr/lib")):
        kept["LD_LIBRARY_PATH"] = os.path.join(work.tree, "include")
    return kept


def short_folder():
    folder = tempfile.mkdtemp(prefix="m", dir="/tmp")
    os.chmod(folder, 0o755)  # some tests become another user
    return folder


def run_cover(work, jobs):
    say("running the tests with coverage")
    folder = short_folder()
    tests = [os.path.join(work.cover, test) for test in work_tests(work)]
    try:
        subprocess.run([os.path.join(work.cover, "rocmforge"), "test", "--quiet", "--jobs", str(jobs), "--skip-tag", "slow",
                        "--no-rerun", "--timeout-scale", "20", "--json", work.path("cover-run.json"), *tests],
                       env=environment(folder, work), cwd=work.tree)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def work_tests(work):
    with open(work.path("commands.json"), encoding="utf-8") as file:
        return json.load(file)["tests"]


def object_lines(path):
    """Of an object file: {offset behind a block's first call: {(line)}}."""
    calls = []
    for line in run_quietly(["readelf", "-rW", path]).split("\n"):
        fields = line.split()
        if line.startswith("Relocation section"):
            section = line.split("'")[1]
        elif len(fields) > 4 and fields[4].startswith("__sanitizer_cov_trace_pc") and section == ".rela.text":
            calls.append(int(fields[0], 16) + 4)
    calls.sort()
    rows = []
    for line in run_quietly(["objdump", "--dwarf=decodedline", path]).split("\n"):
        fields = line.split()
        if len(fields) >= 3 and fields[0].endswith(".c") and fields[1].isdigit() and fields[2].startswith("0x") or \
                (len(fields) >= 3 and fields[0].endswith(".c") and fields[1].isdigit() and fields[2] == "0"):
            rows.append((int(fields[2], 16), int(fields[1]), fields[0]))
    return calls, rows


def map_objects(path):
    """Of a linker's map: [(object, address of its code)]."""
    found = []
    previous = ""
    for line in read(path).split("\n"):
        if line.startswith(" .text ") or (previous.strip() == ".text" and line.startswith("     ")):
            fields = line.replace(".text", "").split()
            if len(fields) == 3 and fields[0].startswith("0x") and int(fields[1], 16):
                name = fields[2]
                inner = re.search(r"\((.*)\)$", name)
                found.append((inner.group(1) if inner else name, name, int(fields[0], 16)))
        previous = line
    return found


def analyse_cover(work):
    say("reading the coverage")
    import bisect
    archives, objects = {}, {}
    for entry in json.loads(run_quietly(["ninja", "-C", work.cover, "-t", "compdb"])):
        words = shlex.split(entry["command"])
        if "-c" in words:
            source = os.path.relpath(os.path.join(work.cover, words[words.index("-c") + 1]), work.tree)
            if is_mutable(source):
                objects[entry["output"]] = source
        elif "ar " in entry["command"] and "&&" in entry["command"]:
            words = shlex.split(entry["command"].split("&&")[-1])
            archives[entry["output"]] = {os.path.basename(word): word for word in words if word.endswith(".o")}
    # Of each object, the lines of each block.
    blocks = {}
    for output, source in objects.items():
        calls, rows = object_lines(os.path.join(work.cover, output))
        base = os.path.basename(source)
        lines = {}
        for address, line, name in rows:
            at = bisect.bisect_right(calls, address + 4) - 1
            # The call itself is the block's first instruction; its return address lies a few bytes behind.
            if name == base:
                block = None
                nxt = bisect.bisect_left(calls, address)
                if nxt < len(calls) and calls[nxt] - address <= 9:
                    block = calls[nxt]
                elif at >= 0:
                    block = calls[at]
                if block is not None:
                    lines.setdefault(block, set()).add(line)
        blocks[output] = lines
    modules = {}
    for folder, _, names in os.walk(work.cover):
        for name in names:
            if not name.endswith(".map"):
                continue
            module = os.path.relpath(os.path.join(folder, name[:-4]), work.cover)
            table = {}
            for short, full, address in map_objects(os.path.join(folder, name)):
                archive = full[:full.rfind("(")] if full.endswith(")") else None
                output = archives.get(archive, {}).get(short) if archive else full
                if output in blocks:
                    for offset, lines in blocks[output].items():
                        table[address + offset] = (objects[output], lines)
            modules[module] = table
    pairs, pair_numbers, hits = [], {}, {}
    for test in sorted(os.listdir(work.path("cover"))):
        executable, name = test.replace("%", "/").split("@", 1)
        for module in os.listdir(work.path("cover", test)):
            with open(work.path("cover", test, module), "rb") as file:
                data = file.read()
            module = module.lstrip("=").replace("%", "/")
            table = modules.get(module, {})
            number = len(pairs)
            pairs.append([f"{executable} {name}", module])
            for match in re.finditer(b"\1", data):
                known = table.get(match.start())
                if known:
                    for line in known[1]:
                        hits.setdefault((known[0], line), set()).add(number)
    sets, numbers, lines = [], {}, {}
    for output, source in objects.items():  # lines with code that no test executes
        for found in blocks[output].values():
            for line in found:
                hits.setdefault((source, line), set())
    for (path, line), found in sorted(hits.items()):
        frozen = tuple(sorted(found))
        if frozen not in numbers:
            numbers[frozen] = len(sets)
            sets.append(frozen)
        lines.setdefault(path, {})[line] = numbers[frozen]
    with gzip.open(work.path("cover.json.gz"), "wt", encoding="utf-8") as file:
        json.dump({"pairs": pairs, "sets": sets, "lines": lines}, file)
    dark = sum(1 for found in hits.values() if not found)
    say(f"{len(hits)} lines, {dark} of them executed by no test; {len({pair[0] for pair in pairs})} tests")


def prepare(arguments):
    work = Work(arguments.work)
    os.makedirs(work.tree, exist_ok=True)
    digest = tree_digest()
    copy_tree(work)
    build(work)
    coverage(arguments)
    with open(work.path("digest"), "w", encoding="utf-8") as file:
        file.write(digest)


def coverage(arguments):
    work = Work(arguments.work)
    build_cover(work)
    run_cover(work, arguments.jobs)
    analyse_cover(work)
    shutil.rmtree(work.path("cover"), ignore_errors=True)


# ---- processes ----

def end_processes(mark):
    """Ends whatever still runs with this folder in its environment."""
    wanted = b"RF_MUTATE=" + mark.encode() + b"\0"
    for _ in range(20):
        found = False
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) == os.getpid():
                continue
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if wanted not in file.read() + b"\0":
                        continue
                with open(f"/proc/{name}/stat", "rb") as file:
                    if file.read().rsplit(b")", 1)[1].split()[0] == b"Z":
                        continue
                os.kill(int(name), signal.SIGKILL)
                found = True
            except (OSError, IndexError):
                continue
        if not found:
            return
        time.sleep(0.05)


def watch(stop):
    """A mutant that allocates or writes without end must not take the machine with it."""
    page = os.sysconf("SC_PAGE_SIZE")
    while not stop.wait(0.5):
        full = shutil.disk_usage("/tmp").free < DISK_BYTES
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                with open(f"/proc/{name}/statm", encoding="ascii") as file:
                    fields = file.read().split()
                if not full and (int(fields[1]) - int(fields[2])) * page < MEMORY_BYTES:
                    continue
                with open(f"/proc/{name}/environ", "rb") as file:
                    if b"RF_MUTATE=" in file.read():
                        os.kill(int(name), signal.SIGKILL)
            except (OSError, IndexError, ValueError):
                continue


def limit_child():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


# ---- one copy of the tree for each job ----

class Slot:
    def __init__(self, work, number):
        self.work, self.name = work, f"s{number:02d}"
        self.tree = work.path(self.name, "tree")
        self.build = os.path.join(self.tree, "build")
        self.old, self.new = work.path(FIRST).encode() + b"/", work.path(self.name).encode() + b"/"
        self.mutant = work.path(self.name, "mutant")
        self.changed = []  # (path, its copy)
        self.tmp = None

    def make(self):
        """Files are links to those of s00, except those that name s00 inside."""
        shutil.rmtree(self.work.path(self.name), ignore_errors=True)
        for folder, folders, names in os.walk(self.work.tree):
            if folder == self.work.tree and "build-cover" in folders:
                folders.remove("build-cover")
            to = self.tree + folder[len(self.work.tree):]
            os.makedirs(to, exist_ok=True)
            for name in names:
                self._bring(os.path.join(folder, name), os.path.join(to, name))
        os.makedirs(self.mutant, exist_ok=True)

    def _bring(self, source, to):
        if os.path.islink(source):
            os.symlink(os.readlink(source), to)
            return
        if os.access(source, os.X_OK) and source.startswith(self.work.build):
            with open(source, "rb") as file:
                data = file.read()
            if data[:4] == b"\x7fELF" and self.old in data:
                with open(to, "wb") as file:
                    file.write(data.replace(self.old, self.new))
                shutil.copymode(source, to)
                return
        os.link(source, to)

    def set_source(self, path, text):
        to = os.path.join(self.tree, path)
        os.replace(to, to + ".kept")
        self.changed.append((to, to + ".kept"))
        with open(to, "w", encoding="utf-8") as file:
            file.write(text)

    def restore(self):
        for to, kept in reversed(self.changed):
            os.replace(kept, to)
        self.changed = []
        shutil.rmtree(self.mutant, ignore_errors=True)
        os.makedirs(self.mutant, exist_ok=True)

    def compile(self, words, output, to):
        words = list(words)
        words[words.index("-o") + 1] = to
        if "-MF" in words:
            words[words.index("-MF") + 1] = to + ".d"
        done = subprocess.run(words + ["-w"], cwd=self.build, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              errors="replace")
        return done.returncode == 0, done.stderr

    def link(self, module, objects):
        """Links a module with the changed objects in place of its own, or before the archive that has the others."""
        words = list(self.work.links[module])
        to = os.path.join(self.mutant, "linked")
        words[words.index("-o") + 1] = to
        first = []
        for output, changed in objects.items():
            if output in words:
                words[words.index(output)] = changed
            elif any(output in self.work.archives.get(word, ()) for word in words):
                first.append(changed)
        at = words.index("-o") + 2
        words[at:at] = first
        done = subprocess.run(words, cwd=self.build, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              errors="replace")
        if done.returncode:
            return False, done.stderr
        with open(to, "rb") as file:
            data = file.read().replace(self.old, self.new)
        target = os.path.join(self.build, module)
        os.replace(target, target + ".kept")
        self.changed.append((target, target + ".kept"))
        with open(target, "wb") as file:
            file.write(data)
        os.chmod(target, 0o755)
        return True, ""

    def run_tests(self, executable, names, limit, deadline, fail_fast=True, build=None):
        """Runs tests of one executable with s00's runner: {name: (verdict, seconds)}, and whether time was up."""
        self.tmp = short_folder()
        report = os.path.join(self.tmp, "report.json")
        command = [os.path.join(self.work.build, "rocmforge"), "test", "--quiet", "--jobs", "1", "--no-rerun", "--fail-fast",
                   "--seed", "14", "--skip-tag", "slow", "--timeout-scale", "10", "--json", report]
        for name in names or ():
            command += ["--match", re.sub(r"([\[\]*?\\])", r"\\\1", name)]
        if not fail_fast:
            command.remove("--fail-fast")
        command.append(os.path.join(build or self.build, executable))
        timed_out = False
        with open(os.path.join(self.tmp, "output"), "wb") as output:
            process = subprocess.Popen(command, cwd=self.tree, env=environment(self.tmp, self.work), stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=output, start_new_session=True, preexec_fn=limit_child)
            try:
                process.wait(timeout=max(0.1, min(limit, deadline - time.monotonic())))
            except subprocess.TimeoutExpired:
                timed_out = True
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()
        end_processes(self.tmp)
        verdicts = {}
        try:
            with open(report, encoding="utf-8", errors="replace") as file:
                for test in json.load(file)["tests"]:
                    verdicts[test["name"]] = (test["verdict"], test["seconds"])
        except (OSError, ValueError, KeyError):
            pass
        shutil.rmtree(self.tmp, ignore_errors=True)
        return verdicts, timed_out, process.returncode


class TimeUp(Exception):
    pass


class Campaign:
    def __init__(self, work, jobs, seconds, test_seconds):
        self.work, self.jobs, self.test_seconds = work, jobs, test_seconds
        self.deadline = time.monotonic() + seconds
        self.slots = [Slot(work, number + 1) for number in range(jobs)]
        self.seconds = {}  # of "executable name"
        self.left_out = {}
        self.sources = {source.path: source for source in work.sources()}
        self.lock = threading.Lock()
        self.reference = {}
        self.stop = threading.Event()
        threading.Thread(target=watch, args=(self.stop,), daemon=True).start()

    def in_parallel(self, take, call):
        """call(slot, take()) until take gives None, one at a time in each slot; WAIT: ask again. Ends when time is up."""
        trouble = []

        def work(slot):
            while time.monotonic() < self.deadline and not trouble:
                with self.lock:
                    item = take()
                if item is None:
                    return
                if item is WAIT:
                    time.sleep(0.1)
                    continue
                try:
                    call(slot, item)
                except TimeUp:
                    return
                except BaseException as error:  # noqa: BLE001 - shown by the main thread
                    trouble.append(error)
                    return

        threads = [threading.Thread(target=work, args=(slot,)) for slot in self.slots]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if trouble:
            raise trouble[0]

    def link_missing(self):
        """What a pack leaves out: shared libraries first, others need them."""
        missing = [module for module in self.work.links if not os.path.exists(os.path.join(self.work.build, module))]
        if not missing:
            return
        say(f"linking {len(missing)} programs")

        def link(_, module):
            to = os.path.join(self.work.build, module)
            os.makedirs(os.path.dirname(to), exist_ok=True)
            run_quietly(self.work.links[module], cwd=self.work.build)

        for left in ([module for module in missing if ".so" in module], [m for m in missing if ".so" not in m]):
            self.in_parallel(lambda left=left: left.pop(0) if left else None, link)

    def prepare(self, times):
        self.link_missing()
        for slot in self.slots:
            slot.make()
        if self._known(times):
            return
        # Without a change, in pieces, the longest first.
        executed = {pair[0] for pair in self.work.pairs}
        hints = self._hints()
        pieces = self._batches({test: hints.get(test, 1.0) for test in executed}, lambda executable: 1, CHECK_SECONDS)
        pieces.sort(key=lambda piece: -piece[2])

        def check(slot, piece):
            executable, names, _ = piece
            verdicts, timed_out, code = slot.run_tests(executable, names, 600, self.deadline, fail_fast=False)
            with self.lock:
                for name in names:
                    test = f"{executable} {name}"
                    verdict, seconds = verdicts.get(name, ("time was up" if timed_out else f"not run, status {code}", 0))
                    if verdict == "passed":
                        self.seconds[test] = max(self.seconds.get(test, 0), seconds)
                    else:
                        self.left_out[test] = verdict

        say(f"self-check: {len(executed)} tests, {times} times without a change")
        started = time.monotonic()
        left = pieces * times
        self.in_parallel(lambda: left.pop(0) if left else None, check)
        if left:
            fail("time was up during the self-check")
        for test in self.left_out:
            self.seconds.pop(test, None)
        say(f"self-check: {len(self.seconds)} tests passed in {time.monotonic() - started:.0f} s; "
            f"{len(self.left_out)} left out")
        for test, why in sorted(self.left_out.items()):
            say(f"  left out: {test}: {why}")
        if len(self.seconds) < 100:
            fail("too few tests pass without a change: nothing would be learnt")
        # A compilation and a link without a change must pass too.
        for path in ("src/gpu/pool.c", "src/cli/worker.c", "src/testing/assertions.c"):
            result = self.examine(self.slots[0], path, None, 5.0)
            if result[0] != "survived":
                fail(f"{path}, compiled and linked without a change: {result}")
        with open(self.work.path("self-check.json"), "w", encoding="utf-8") as file:
            json.dump({"key": self._key(), "times": times, "seconds": self.seconds, "left_out": self.left_out}, file)

    def _key(self):
        """A self-check holds for one machine and one build."""
        return f"{os.uname().nodename} {os.path.getmtime(os.path.join(self.work.build, 'librocmforge.a'))}"

    def _hints(self):
        """How long each test took, perhaps on another machine."""
        try:
            with open(self.work.path("self-check.json"), encoding="utf-8") as file:
                return json.load(file)["seconds"]
        except (OSError, ValueError):
            return {}

    def _known(self, times):
        try:
            with open(self.work.path("self-check.json"), encoding="utf-8") as file:
                known = json.load(file)
        except (OSError, ValueError):
            return False
        if known["key"] != self._key() or known["times"] < times:
            return False
        self.seconds, self.left_out = known["seconds"], known["left_out"]
        say(f"self-check: as before, {len(self.seconds)} tests, {len(self.left_out)} left out")
        return True

    def reference_of(self, slot, source, output):
        """The object that this machine's compiler makes of the unchanged file."""
        with self.lock:
            known = self.reference.get(output)
        if known:
            return known
        to = os.path.join(slot.mutant, "reference.o")
        good, why = slot.compile(self.work.compile[source][output], output, to)
        if not good:
            raise RuntimeError(f"{source} does not compile here without a change:\n{why}")
        with open(to, "rb") as file:
            known = hashlib.sha256(file.read()).hexdigest()
        with self.lock:
            self.reference[output] = known
        return known

    def batches(self, tests, path):
        """[(executable, [names], seconds)]: own folder first, quick tests first."""
        folder = path.split("/")[1]
        near = {"runtime": ("runtime", "budget"), "gpu": ("gpu", "budget", "probe"), "testing": ("testing", "misbehaving")}
        return self._batches({test: self.seconds[test] for test in tests},
                             lambda executable: 0.3 if executable.split("/")[1] in near.get(folder, (folder,)) else 1,
                             BATCH_SECONDS)

    @staticmethod
    def _batches(tests, weight, most):
        by_executable, ranked = {}, []
        for test, seconds in tests.items():
            executable, name = test.split(" ", 1)
            by_executable.setdefault(executable, []).append((seconds, name))
        for executable, found in by_executable.items():
            names, total = [], 0.0
            for seconds, name in sorted(found):
                if names and total + seconds > most:
                    ranked.append((total * weight(executable), executable, names, total))
                    names, total = [], 0.0
                names.append(name)
                total += seconds
            ranked.append((total * weight(executable), executable, names, total))
        return [(executable, names, total) for _, executable, names, total in sorted(ranked)]

    def examine(self, slot, path, text, most_seconds, line=None):
        """(result, test, how many tests ran) of a file with this text; text None: unchanged, all tests of the file."""
        work, source = self.work, self.sources[path]
        started = time.monotonic()
        try:
            outputs = work.compile[path]
            if text is not None:
                for output in outputs:
                    self.reference_of(slot, path, output)
                slot.set_source(path, text)
            objects, same = {}, 0
            for number, output in enumerate(outputs):
                to = os.path.join(slot.mutant, f"{number}.o")
                good, _ = slot.compile(outputs[output], output, to)
                if not good:
                    return "not compiled", "", 0
                with open(to, "rb") as file:
                    same += hashlib.sha256(file.read()).hexdigest() == self.reference.get(output)
                objects[output] = to
            if text is not None and same == len(objects):
                return "equivalent", "", 0
            covered = work.tests_of(source, line) if line else self._of_file(path)
            covered = {test: modules for test, modules in covered.items() if test in self.seconds}
            if not covered:
                return "not executed", "", 0
            linked, ran, unsteady, limited = set(), 0, "", False
            for executable, names, seconds in self.batches(covered, path):
                if time.monotonic() - started > most_seconds:
                    limited = True
                    break
                if time.monotonic() > self.deadline:
                    raise TimeUp
                needed = set().union(*(covered[f"{executable} {name}"] for name in names))
                for module in sorted(needed - linked):
                    good, why = slot.link(module, objects)
                    if not good:
                        return "not compiled", f"link of {module}: {why[-200:]}", ran
                linked |= needed
                failed = self._run(slot, executable, names, seconds)
                ran += len(names)
                if failed:
                    suspects = names if failed == TIME_LIMIT else [failed]
                    own = sum(self.seconds.get(f"{executable} {name}", 0) for name in suspects)
                    # It must fail again, and pass without the change.
                    again = failed == TIME_LIMIT or self._run(slot, executable, suspects, own)
                    if again and not self._run(slot, executable, suspects, own, work.build):
                        return "killed", f"{executable} {failed}", ran
                    unsteady = f"{executable} {failed}"
            if unsteady:
                return "unsteady", unsteady, ran
            return "survived", f"not all: {ran} of {len(covered)}" if limited else "", ran
        finally:
            slot.restore()

    def _of_file(self, path):
        tests = {}
        for number in set(self.work.lines.get(path, {}).values()):
            for index in self.work.sets[number]:
                test, module = self.work.pairs[index]
                tests.setdefault(test, set()).add(module)
        return tests

    def _run(self, slot, executable, names, seconds, build=None):
        """The first test that failed, TIME_LIMIT, or None."""
        limit = max(LEAST_LIMIT_SECONDS, LIMIT_FACTOR * seconds)
        verdicts, timed_out, code = slot.run_tests(executable, names, limit, self.deadline, build=build)
        if timed_out:
            if time.monotonic() >= self.deadline:
                raise TimeUp
            return TIME_LIMIT
        for name, (verdict, _) in verdicts.items():
            if verdict == "failed":
                return name
        if code == 0 and all(verdicts.get(name, ("", 0))[0] in ("passed", "skipped") for name in names):
            skipped = [name for name in names if verdicts[name][0] == "skipped"]
            return skipped[0] if skipped else None  # it passed without the change: what it needs is gone
        return names[0]


# ---- campaigns ----

def load_results(path):
    rows = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                fields = line.rstrip("\n").split("\t")
                if line.startswith("#") or fields[0] == COLUMNS[0]:
                    continue
                rows.append(dict(zip(COLUMNS, fields)))
    return rows


def choose(arguments, work, sources):
    """[(number, mutant)]: of the seed, or those of an earlier list, found again by their text."""
    if not arguments.again:
        return list(enumerate(mutants.draw(sources, arguments.seed), 1))
    wanted = load_results(arguments.again)
    if arguments.only:
        wanted = [row for row in wanted if row["result"] in arguments.only.split(",")]
    if arguments.numbers:
        wanted = [row for row in wanted if row["number"] in arguments.numbers.split(",")]
    known = {}
    for source in sources:
        for mutant in source.mutants():
            known.setdefault(mutant.key(), []).append(mutant)
    found = []
    for row in wanted:
        same = known.get((row["file"], row["function"], row["kind"], row["change"], row["text"]), [])
        if same:
            found.append((int(row["number"]), min(same, key=lambda mutant: abs(mutant.line - int(row["line"])))))
        else:
            say(f"gone: {row['number']} {row['file']}:{row['line']} {row['change']}")
    return found


def run(arguments):
    work = Work(arguments.work)
    packed = not os.path.exists(os.path.join(ROOT, "meson.build"))  # unpacked on another machine: nothing to build from
    if not packed and (not os.path.exists(work.path("digest")) or read(work.path("digest")) != tree_digest()):
        prepare(arguments)
    work.load()
    campaign = Campaign(work, arguments.jobs, arguments.seconds, arguments.test_seconds)
    chosen = choose(arguments, work, list(campaign.sources.values()))
    out = arguments.out or work.path(f"results-{arguments.seed}.tsv")
    done = {}
    if arguments.resume:
        done = {int(row["number"]): row["result"] for row in load_results(out)}
    campaign.prepare(arguments.self_checks)
    file = open(out, "a" if arguments.resume and done else "w", encoding="utf-8", buffering=1)
    if not done:
        compiler = run_quietly([next(iter(next(iter(work.compile.values())).values()))[0], "--version"]).split("\n")[0]
        file.write(f"# seed {arguments.seed}, commit {work.commit}, {len(chosen)} lines that can be changed; "
                   f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, {os.cpu_count()} cores, {compiler}\n")
        for test, why in sorted(campaign.left_out.items()):
            file.write(f"# left out: {test}: {why}\n")
        file.write("\t".join(COLUMNS) + "\n")
    counted = sum(1 for result in done.values() if result in COUNTED)
    state = {"counted": counted, "busy": 0, "results": dict(done)}
    wanted = arguments.count or len(chosen)
    left = [(number, mutant) for number, mutant in chosen if number not in done]

    def take():
        if state["counted"] >= wanted or not left:
            return None
        if state["counted"] + state["busy"] >= wanted:
            return WAIT
        state["busy"] += 1
        return left.pop(0)

    def examine(slot, item):
        number, mutant = item
        started = time.monotonic()
        result = None
        try:
            text = mutant.apply(campaign.sources[mutant.path].text)
            result, test, ran = campaign.examine(slot, mutant.path, text, campaign.test_seconds, mutant.line)
        finally:
            with campaign.lock:
                state["busy"] -= 1
                if result in COUNTED:
                    state["counted"] += 1
        row = [number, mutant.path, mutant.line, mutant.function, mutant.kind, mutant.change, mutant.text, result, test, ran,
               f"{time.monotonic() - started:.1f}"]
        with campaign.lock:
            state["results"][number] = result
            file.write("\t".join(re.sub(r"[\t\n]", " ", str(field)) for field in row) + "\n")
            say(f"[{state['counted']}/{wanted}] {number} {mutant.path}:{mutant.line} {mutant.kind}: {mutant.change}: {result}"
                + (f" ({test})" if test else ""))

    campaign.in_parallel(take, examine)
    campaign.stop.set()
    file.close()
    summary(out)
    return 0


def summary(path):
    rows = load_results(path)
    counts = {}
    for row in rows:
        counts[row["result"]] = counts.get(row["result"], 0) + 1
    counted = sum(counts.get(result, 0) for result in COUNTED)
    alive = [row for row in rows if row["result"] in COUNTED and row["result"] != "killed"]
    say(f"{counted} mutants: " + ", ".join(f"{counts[result]} {result}" for result in COUNTED if result in counts))
    say(f"not counted: {counts.get('equivalent', 0)} equivalent, {counts.get('not compiled', 0)} not compiled")
    for row in alive:
        say(f"{row['result']}: {row['file']}:{row['line']}: {row['function']}: {row['change']}"
            + (f" ({row['test']})" if row["test"] else ""))
    say(f"results: {path}")


def try_one(arguments):
    work = Work(arguments.work)
    work.load()
    campaign = Campaign(work, 1, arguments.seconds, arguments.test_seconds)
    source = campaign.sources.get(arguments.file) or fail(f"{arguments.file} is not one of the files that are changed")
    if source.text.count(arguments.old) != 1:
        fail(f"{arguments.file} has the text {source.text.count(arguments.old)} times, not once")
    line = source.line_of(source.text.index(arguments.old))
    campaign.prepare(1)
    result, test, ran = campaign.examine(campaign.slots[0], source.path, source.text.replace(arguments.old, arguments.new),
                                         arguments.test_seconds, line)
    campaign.stop.set()
    say(f"{source.path}:{line}: {result}" + (f" ({test})" if test else "") + f", {ran} tests")
    return 0 if result == "killed" else 1


def show(arguments):
    work = Work(arguments.work)
    for number, mutant in choose(arguments, work, work.sources())[:arguments.count or None]:
        say(f"{number}\t{mutant.path}:{mutant.line}\t{mutant.function}\t{mutant.kind}\t{mutant.change}")
    return 0


def pack(arguments):
    """Everything that 'run' needs, executables without symbols. To be unpacked at the same path."""
    work = Work(arguments.work)
    work.load()
    needed = {"commands.json", "cover.json.gz"}
    if os.path.exists(work.path("self-check.json")):
        needed.add("self-check.json")
    for folder, folders, names in os.walk(work.tree):
        inside = os.path.relpath(folder, work.tree)
        if inside == ".":
            folders[:] = [name for name in folders if name not in ("build-cover", ".git")]
        if inside in ("build/meson-private", "build/meson-logs", "build/meson-info", "build/corpus"):
            continue
        for name in names:
            path = os.path.join(folder, name)
            made = os.path.relpath(path, work.build)
            if inside.startswith("build") and name.endswith((".d", ".ninja", ".map")):
                continue
            # 'run' links what is missing.
            if made in work.links and "c++" not in work.links[made][0]:
                continue
            # Of the kernels only what is linked.
            if inside == "build/src/kernels" and not name.endswith((".c", ".h", ".c.o")):
                continue
            needed.add(os.path.relpath(path, work.folder))
    tools = work.path("tools")
    shutil.rmtree(tools, ignore_errors=True)
    os.makedirs(tools)
    for name in ("mutate.py", "mutants.py"):
        shutil.copy(os.path.join(os.path.dirname(os.path.abspath(__file__)), name), tools)
        needed.add(f"tools/{name}")
    names = "\n".join(sorted(needed)) + "\n"
    command = f"tar -C {shlex.quote(work.folder)} -cf - -T - | xz -T0 -4 > {shlex.quote(os.path.abspath(arguments.out))}"
    subprocess.run(command, shell=True, input=names, text=True, check=True)
    say(f"{arguments.out}: {os.path.getsize(arguments.out) / 2**20:.1f} MiB; unpack it in {work.folder}, then\n"
        f"  python3 {work.folder}/tools/mutate.py run --work {work.folder} --jobs 16 --seconds 540 --resume")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, call in (("prepare", prepare), ("coverage", coverage), ("run", run), ("try", try_one), ("list", show), ("pack", pack)):
        command = commands.add_parser(name)
        command.set_defaults(call=call)
        command.add_argument("--work", default=os.path.join(ROOT, "build-mutate"), help="the prepared folder")
        command.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
        command.add_argument("--seed", type=int, default=14)
        command.add_argument("--count", type=int, default=0, help="how many mutants; 0: all")
        command.add_argument("--seconds", type=float, default=86400, help="stop after this time")
        command.add_argument("--test-seconds", type=float, default=600, help="the most for one mutant's tests")
        command.add_argument("--self-checks", type=int, default=2, help="how often all tests run first, without a change")
        command.add_argument("--resume", action="store_true", help="go on with the results that are there")
        command.add_argument("--out", help="the file of results, or of the pack")
        command.add_argument("--again", metavar="FILE", help="the mutants of these results instead of a seed's")
        command.add_argument("--only", metavar="RESULTS", help="of --again: those with these results, with commas")
        command.add_argument("--numbers", metavar="NUMBERS", help="of --again: those with these numbers, with commas")
        if name == "try":
            command.add_argument("file")
            command.add_argument("old")
            command.add_argument("new")
    arguments = parser.parse_args()
    return arguments.call(arguments) or 0


if __name__ == "__main__":
    sys.exit(main())
