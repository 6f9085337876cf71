#!/bin/sh
# SPDX-License-Identifier: MIT
# fuzz.sh SECONDS [TARGET...]: runs each libFuzzer target for so long, starting from its corpus.
# New inputs go to build-fuzz/corpus, crashes to build-fuzz/crashes.
set -eu
seconds=${1:-60}
[ $# -gt 0 ] && shift
cd "$(dirname "$0")/.."
command -v clang >/dev/null 2>&1 || sh tools/setup.sh --dev

cmake --preset fuzz >/dev/null
cmake --build build-fuzz --target fuzz_targets
mkdir -p build-fuzz/crashes
n=0
for program in build-fuzz/fuzz/fuzz_*; do
    [ -x "$program" ] && [ -f "$program" ] || continue
    target=$(basename "$program")
    if [ $# -gt 0 ]; then
        case " $* " in *" $target "*) ;; *) continue ;; esac
    fi
    mkdir -p "build-fuzz/corpus/$target"
    echo "fuzz: $target for $seconds s"
    "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix=build-fuzz/crashes/ "build-fuzz/corpus/$target" "fuzz/corpus/${target#fuzz_}" \
        >"build-fuzz/$target.log" 2>&1 || {
        tail -40 "build-fuzz/$target.log" >&2
        echo "fuzz: $target failed" >&2
        exit 1
    }
    grep -E 'stat::number_of_executed_units|stat::new_units' "build-fuzz/$target.log"
    n=$((n + 1))
done
[ "$n" -ne 0 ] && echo "fuzz: $n targets, no failure"
