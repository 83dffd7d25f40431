#!/bin/sh
# Every public header must compile alone, as C11 and as C++17, by gcc and by clang, without a
# warning; and so must a small program that uses the macros.
set -eu
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
flags="-Iinclude -Wall -Wextra -Wpedantic -Werror -fsyntax-only"
count=0

compile() { # compile FILE
    for compiler in gcc clang-19; do
        # shellcheck disable=SC2086
        $compiler -std=c11 $flags -x c "$1"
    done
    for compiler in g++ clang++-19; do
        # shellcheck disable=SC2086
        $compiler -std=c++17 $flags -x c++ "$1"
    done
    count=$((count + 4))
}

for header in include/rocmforge/*.h; do
    echo "#include <rocmforge/$(basename "$header")>" >"$folder/alone.c"
    echo "int used_by_nobody; /* a file of its own may not be empty */" >>"$folder/alone.c"
    compile "$folder/alone.c"
done

cat >"$folder/user.c" <<'END'
#include <rocmforge/rocmforge.h>
#include <string.h>
rf_status use(struct rf_device *device, struct rf_buffer **out);
rf_status use(struct rf_device *device, struct rf_buffer **out) {
    RF_PARAMS(struct rf_buffer_params, params);
    struct rf_arg arg = rf_arg_f32(1.5f);
    params.bytes = arg.bytes;
    return rf_buffer_create_safe(device, &params, out);
}
rf_status answer(struct rf_session *session, const struct rf_engine *engine, int32_t **ids, size_t *count);
rf_status answer(struct rf_session *session, const struct rf_engine *engine, int32_t **ids, size_t *count) {
    RF_PARAMS(struct rf_sample_params, sampling);
    RF_PARAMS(struct rf_generate_params, params);
    RF_PARAMS(struct rf_generate_result, result);
    struct rf_chat_message hello;
    memset(&hello, 0, sizeof hello);
    hello.role = RF_CHAT_USER;
    hello.text = "Hello";
    params.sampling = &sampling;
    rf_status status = rf_chat_encode(engine, RF_CHAT_CHATML, &hello, 1, ids, count);
    return status != RF_OK ? status : rf_session_generate(session, &params, &result);
}
END
compile "$folder/user.c"
echo "headers: $count compilations without a warning"
