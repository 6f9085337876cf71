#!/bin/sh
# SPDX-License-Identifier: MIT
# check_no_vulkan.sh BUILD_DIR: a machine without a Vulkan loader, and one with a loader that finds no
# driver. The program runs on the CPU, says why a GPU is none, and the GPU's tests are skipped.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A file that is no library ends the search for the loader.
mkdir "$work/lib"
for name in libvulkan.so.1 libvulkan.so libvulkan.1.dylib libMoltenVK.dylib; do
    : >"$work/lib/$name"
done

fail() {
    echo "no vulkan: $1" >&2
    tail -5 "$work/out" >&2
    exit 1
}

# check WHAT SAID VARIABLE=VALUE...
check() {
    what=$1 said=$2
    shift 2
    env "$@" "$build/moeflux" run models/demo -p "Once upon a time" -n 8 --temp 0 </dev/null \
        >"$work/text" 2>"$work/out" || fail "$what: the demo does not run"
    [ -s "$work/text" ] || fail "$what: the demo writes nothing"
    if env "$@" "$build/moeflux" run models/demo -p "Once" -n 1 --device vulkan </dev/null \
        >"$work/out" 2>&1; then
        fail "$what: --device vulkan ran"
    fi
    grep -q "$said" "$work/out" || fail "$what: the message lacks '$said'"
    env "$@" ctest --test-dir "$build" --label-regex '^vulkan$' </dev/null >"$work/out" 2>&1 ||
        fail "$what: a test failed"
    n=$(grep -c '\*\*\*Skipped' "$work/out" || true)
    ran=$(grep -c ' Passed ' "$work/out" || true)
    [ "$n" -gt 10 ] && [ "$ran" -eq 0 ] || fail "$what: $n tests were skipped, $ran ran"
    echo "no vulkan, $what: the demo runs on the CPU, $n tests are skipped"
}

check "no loader" "no Vulkan loader" LD_LIBRARY_PATH="$work/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
check "no driver" "Vulkan" VK_DRIVER_FILES=/nonexistent VK_ICD_FILENAMES=/nonexistent
