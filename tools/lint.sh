#!/bin/sh
# SPDX-License-Identifier: MIT
# lint.sh [--few] BUILD_DIR: clang-tidy (.clang-tidy says what) over the library, the program and the tools.
# --few: the analyzer, which takes nine tenths of the time, follows a ninth of a function's paths.
set -eu
cd "$(dirname "$0")/.."
config=''
if [ "${1:-}" = "--few" ]; then
    shift
    # of 225,000 states
    config='--extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang --extra-arg=max-nodes=25000'
fi
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
echo $files | tr ' ' '\n' | xargs -P "$(nproc)" -n 1 "$tool" -p "$build" --quiet --warnings-as-errors='*' $config \
    2>/dev/null || {
    echo "lint: clang-tidy found something" >&2
    exit 1
}
echo "lint: $(echo "$files" | wc -l) files"
