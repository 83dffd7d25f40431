#!/bin/sh
# Installs what is missing to build and test, by package name, on Debian and Ubuntu.
#
#   tools/setup.sh        what `make run` and `make test` need
#   tools/setup.sh --ci   also what the sanitizer builds, the fuzzers and the checks need
#
# Does nothing, quickly, where all is present. Needs root or a sudo that asks no password;
# without either it prints the one command and exits with 1.
set -eu

ci=false
[ "${1:-}" = --ci ] && ci=true

missing=
need() { # need PACKAGE COMMAND…: all the commands come with the package
    package=$1
    shift
    for command in "$@"; do
        command -v "$command" >/dev/null 2>&1 && continue
        missing="$missing $package"
        return 0
    done
}
need_file() { # need_file PACKAGE FILE
    [ -e "$2" ] || missing="$missing $1"
}

need gcc gcc cc
need_file libc6-dev /usr/include/stdio.h
need make make
need meson meson
need ninja-build ninja
need pkg-config pkg-config
need python3 python3
need zstd zstd
need_file libzstd-dev /usr/include/zstd.h
need_file libjansson-dev /usr/include/jansson.h
need clang-19 clang-19
need lld-19 ld.lld-19
need llvm-19 llvm-readelf-19 llvm-objdump-19
need_file libedit-dev /usr/include/editline/readline.h
if $ci; then
    need g++ g++
    need clang-format-19 clang-format-19
    need binutils strings
    # The chat templates' language is compared with it. Debian's Python has it, whatever other Python is in the path.
    /usr/bin/python3 -c 'import jinja2' 2>/dev/null || missing="$missing python3-jinja2"
    # The sanitizers, and libFuzzer for `make fuzz`. clang-19 comes without them where recommended packages are left out.
    runtimes="$(clang-19 --print-resource-dir 2>/dev/null || echo /nonexistent)/lib/linux"
    for runtime in asan fuzzer tsan; do
        [ -e "$runtimes/libclang_rt.$runtime-$(uname -m).a" ] && continue
        missing="$missing libclang-rt-19-dev"
        break
    done
fi

optional=
if $ci && command -v apt-cache >/dev/null 2>&1; then
    # A real HIP runtime without a GPU, and its headers, to test against; not everywhere packaged.
    # The JSON Schema test suite.
    for package in libamdhip64-5 libamdhip64-dev json-schema-test-suite; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || optional="$optional $package"
    done
fi

[ -z "$missing$optional" ] && exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    [ -z "$missing" ] && exit 0
    echo "setup: these are missing and there is no apt-get to install them (Debian's names):$missing" >&2
    exit 1
fi

if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root=sudo
elif [ -z "$missing" ]; then
    exit 0
else
    echo "setup: please install what is missing, then try again:" >&2
    echo "    sudo apt-get install -y$missing" >&2
    exit 1
fi

known() { apt-cache show "$1" >/dev/null 2>&1; }

for package in $missing $optional; do
    known "$package" && continue
    echo "setup: reading the package lists" >&2
    $as_root apt-get update -qq || true
    break
done
for package in $optional; do
    known "$package" && missing="$missing $package"
done
[ -z "$missing" ] && exit 0

echo "setup: installing$missing" >&2

# Reads what apt-get writes to APT::Status-Fd (KIND:PACKAGE:PERCENT:TEXT) and shows it: on a terminal in one line that
# is rewritten, elsewhere as a line every ten seconds. The last line is status::NUMBER:, and that is its exit status.
show_progress() {
    terminal=false last=$(date +%s) result=1
    [ -t 2 ] && [ "${TERM:-dumb}" != dumb ] && terminal=true
    while IFS=: read -r kind _ percent text; do
        case $kind in
        status) result=$percent ;;
        dlstatus) line="setup: downloading, ${percent%%.*}%" ;;
        pmstatus) line="setup: installing, ${percent%%.*}%: $text" ;;
        *) continue ;;
        esac
        if [ "$kind" = status ]; then
            if $terminal; then printf '\r\033[K' >&2; fi
        elif $terminal; then
            printf '\r\033[K%.79s' "$line" >&2
        elif [ $(($(date +%s) - last)) -ge 10 ]; then
            last=$(date +%s)
            echo "$line" >&2
        fi
    done
    return "$result"
}
# The status descriptor is opened inside: sudo passes on no other than the three.
install_all() {
    {
        # shellcheck disable=SC2086  # words on purpose
        $as_root env DEBIAN_FRONTEND=noninteractive sh -c \
            'exec apt-get install -y -qq --no-install-recommends -o APT::Status-Fd=3 "$@" 3>&1 >/dev/null' sh $missing &&
            echo status::0: || echo "status::$?:"
    } | show_progress
}
install_all || { $as_root apt-get update -qq && install_all; }
