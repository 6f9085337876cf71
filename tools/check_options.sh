#!/bin/bash
# SPDX-License-Identifier: MIT
# check_options.sh BUILD_DIR: moeflux builds without what it can do without. Each option that leaves
# something out is configured by itself, and once with none of the libraries there. In BUILD_DIR (made by
# another step, so that little is new) the program is then built with all of them off: it needs no library of
# theirs, says what it lacks, and runs; and at last the library alone, which needs nothing but PCRE2 and utf8proc.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:?usage: check_options.sh BUILD_DIR}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "options: $1" >&2
    tail -5 "$work/log" >&2 2>/dev/null || true
    exit 1
}

# A machine whose pkg-config knows two libraries.
mkdir "$work/pc"
for name in libpcre2-8 libutf8proc; do
    ln -s "$(pkg-config --variable=pcfiledir "$name")/$name.pc" "$work/pc/"
done
bare() {
    PKG_CONFIG_LIBDIR=$work/pc "$@"
}

configure() { # NAME OPTIONS...
    local name=$1
    shift
    cmake -S "$root" -B "$work/$name" -G Ninja "$@" >"$work/log" 2>&1
}
for option in MF_SERVER=OFF MF_PULL=OFF MF_URING=OFF MF_VULKAN=off MF_TESTS=OFF MF_AVX512=OFF; do
    configure "${option%=*}" "-D$option" || fail "-D$option cannot be configured"
done
grep -q 'mf_server' "$work/MF_SERVER/build.ninja" && fail "-DMF_SERVER=OFF builds the server"
grep -q 'cmd_pull' "$work/MF_PULL/build.ninja" && fail "-DMF_PULL=OFF builds pull"
grep -q 'io_uring\.c' "$work/MF_URING/build.ninja" && fail "-DMF_URING=OFF builds io_uring"
grep -q 'blocks_avx512' "$work/MF_AVX512/build.ninja" && fail "-DMF_AVX512=OFF builds kernels of AVX-512"
grep -q 'vk_device\.c' "$work/MF_VULKAN/build.ninja" && fail "-DMF_VULKAN=off builds for GPUs"
bare configure none -DMF_TESTS=OFF && fail "without libedit the program is configured"
grep -q libedit "$work/log" || fail "what is missing is not said"

# needed FILE: the libraries that it is linked with
needed() {
    readelf -d "$1" | sed -n 's/.*NEEDED.*\[\(.*\)\.so.*/\1/p' | sort | tr '\n' ' '
}
# said WORDS COMMAND...: the program ends with an error that says so
said() {
    local words=$1
    shift
    if "$build/moeflux" "$@" >"$work/log" 2>&1; then fail "moeflux $1 does what it was built without"; fi
    grep -qF -e "$words" "$work/log" || fail "moeflux $1 does not say: $words"
}
# Of a folder that was configured with them: what is switched off is out.
cmake -S "$root" -B "$build" -DMF_TESTS=OFF -DMF_SERVER=OFF -DMF_PULL=OFF -DMF_URING=OFF -DMF_VULKAN=off >"$work/log" 2>&1 ||
    fail "the program without all that can be left out cannot be configured"
cmake --build "$build" --target moeflux >"$work/log" 2>&1 || fail "the program without all that can be left out cannot be built"
case $(needed "$build/moeflux") in
"libc libedit libm libpcre2-8 libutf8proc ") ;;
*) fail "the program without all that can be left out needs $(needed "$build/moeflux")" ;;
esac
said "built without serve, which wants libmicrohttpd" serve "$root/models/demo"
said "built without pull, which wants libcurl" pull org/name
said "this build was made without it" run "$root/models/demo" -p Once -n 1 --io uring
"$build/moeflux" version | grep -q '^commands  all but serve but pull$' || fail "moeflux version does not say what it lacks"
"$build/moeflux" run "$root/models/demo" -p Once -n 4 -q 2>"$work/log" | grep -q . || fail "the program does not run"

bare cmake -S "$root" -B "$build" -DMF_CLI=OFF -DMF_TESTS=OFF -DMF_VULKAN=off >"$work/log" 2>&1 ||
    fail "the library alone cannot be configured"
cmake --build "$build" --target moeflux_shared moeflux_static >"$work/log" 2>&1 || fail "the library alone cannot be built"
case $(needed "$build/libmoeflux.so") in
"libc libm libpcre2-8 libutf8proc ") ;;
*) fail "the library alone needs $(needed "$build/libmoeflux.so")" ;;
esac
sh "$root/tools/check_symbols.sh" "$build" >"$work/log" 2>&1 || fail "the library alone offers something else"
echo "options: each by itself, the program with all of them off, and the library alone, which needs $(needed "$build/libmoeflux.so")"
