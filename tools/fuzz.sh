#!/bin/sh
# SPDX-License-Identifier: MIT
# fuzz.sh [SECONDS [TARGET...]]: runs each libFuzzer target (or those named, "spm" or "fuzz_spm") for so
# long, 60 s by default, starting from its corpus; one after the other, at the lowest priority.
# New inputs go to build-fuzz/corpus, what failed to build-fuzz/crashes; a target that fails is
# named, and the others run all the same.
set -eu
seconds=${1:-60}
[ $# -gt 0 ] && shift
cd "$(dirname "$0")/.."
command -v clang >/dev/null 2>&1 || sh tools/setup.sh --dev

# wanted TARGET [NAME...]: whether a target is among those named, if any are
wanted() {
    wanted_target=$1
    shift
    [ $# -gt 0 ] || return 0
    for name in "$@"; do
        [ "fuzz_${name#fuzz_}" != "$wanted_target" ] || return 0
    done
    return 1
}

cmake --preset fuzz >/dev/null
cmake --build build-fuzz --target fuzz_targets
mkdir -p build-fuzz/crashes
n=0
failed=
for program in build-fuzz/fuzz/fuzz_*; do
    [ -x "$program" ] && [ -f "$program" ] || continue
    target=$(basename "$program")
    wanted "$target" "$@" || continue
    mkdir -p "build-fuzz/corpus/$target"
    echo "fuzz: $target for $seconds s"
    if nice -n 19 "$program" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="build-fuzz/crashes/$target-" "build-fuzz/corpus/$target" "fuzz/corpus/${target#fuzz_}" \
        >"build-fuzz/$target.log" 2>&1; then
        grep -E 'stat::number_of_executed_units|stat::new_units' "build-fuzz/$target.log"
    else
        tail -40 "build-fuzz/$target.log" >&2
        failed="$failed $target"
    fi
    n=$((n + 1))
done
[ "$n" -ne 0 ] || { echo "fuzz: no such target: $*" >&2 && exit 2; }
[ -z "$failed" ] || { echo "fuzz: failed:$failed" >&2 && exit 1; }
echo "fuzz: $n targets, no failure"
