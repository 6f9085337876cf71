#!/bin/sh
# SPDX-License-Identifier: MIT
# lint.sh BUILD_DIR: clang-tidy (.clang-tidy says what) over the library, the program and the tools.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
tool=clang-tidy-14
command -v "$tool" >/dev/null 2>&1 || tool=clang-tidy
[ -f "$build/compile_commands.json" ] || {
    echo "lint: $build has no compile_commands.json" >&2
    exit 1
}
dirs="src cli tools"
grep -q '/server/http.c' "$build/compile_commands.json" && dirs="$dirs server"
grep -q '/hub/hub_pull\|/hub/hub_client.c' "$build/compile_commands.json" && dirs="$dirs hub"
# shellcheck disable=SC2086 # a list of words
# Those this build has; without the one that is nothing but the words of shaders, half a minute of them.
files=$(find $dirs -name '*.c' -type f -not -path 'src/kernels/arm/*' -not -name vk_shaders.c | sort)
# shellcheck disable=SC2086 # a list of words
echo $files | tr ' ' '\n' | xargs -P "$(nproc)" -n 1 "$tool" -p "$build" --quiet --warnings-as-errors='*' \
    2>/dev/null || {
    echo "lint: clang-tidy found something" >&2
    exit 1
}
echo "lint: $(echo "$files" | wc -l) files"
