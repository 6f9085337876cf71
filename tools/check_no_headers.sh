#!/bin/sh
# SPDX-License-Identifier: MIT
# check_no_headers.sh: where there are no headers of Vulkan, CMake says that moeflux is built without
# GPUs (as with -DMF_VULKAN=off, which .ci/run builds and tests), and with -DMF_VULKAN=on refuses.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Found before the system's, and no header of Vulkan.
mkdir -p "$work/include/vulkan"
echo '#error "hidden"' >"$work/include/vulkan/vulkan_core.h"
configure() {
    cmake -S . -B "$work/$1" -G Ninja -DCMAKE_C_FLAGS="-I$work/include" -DMF_VULKAN="$1" \
        >"$work/$1.log" 2>&1
}
configure auto || {
    tail -5 "$work/auto.log" >&2
    echo "headers: without Vulkan's, CMake fails" >&2
    exit 1
}
grep -q 'built without GPUs' "$work/auto.log" || {
    echo "headers: CMake does not say that moeflux is built without GPUs" >&2
    exit 1
}
if configure on || ! grep -q 'libvulkan-dev' "$work/on.log"; then
    echo "headers: MF_VULKAN=on is no error without them" >&2
    exit 1
fi
echo "headers: without Vulkan's, CMake leaves the GPU out and says so"
