#!/bin/sh
# SPDX-License-Identifier: MIT
# Decode over memory budgets, ours beside llama.cpp on the same file: a model of random weights with a
# published shape, each program in a control group with the budget as its limit (root is needed), the
# drive's own rate in the same run. Usage: compare.sh FOLDER [BUDGETS...]   (G of memory; default 3 4 6 8 12 16 20)
# FOLDER (22 GB) keeps the model and the build of llama.cpp, from PyPI's source of llama-cpp-python, for
# the next time. Writes FOLDER/results.tsv and, drawn of it, FOLDER/results.svg; prints the table. What the
# README shows is made of bench/compare/results.tsv by publish.sh.
# Environment: PRESET (qwen3.6-35b-a3b), TYPE (Q4_0), THREADS (all), TOKENS (32), ROUNDS (3).
set -eu
cd "$(dirname "$0")/../.."
folder=$1
shift
budgets=${*:-3 4 6 8 12 16 20}
preset=${PRESET:-qwen3.6-35b-a3b}
type=${TYPE:-Q4_0}
threads=${THREADS:-$(nproc)}
tokens=${TOKENS:-32}
rounds=${ROUNDS:-3}
export MOEFLUX_DEVICE=cpu
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
model=$folder/model/model.gguf
theirs=$folder/llama/bin/llama-bench

fetch_theirs() {
    [ -d "$folder/source" ] || {
        mkdir "$folder/source.part"
        pip download -q --no-deps --no-binary :all: -d "$folder/source.part" llama-cpp-python
        tar -C "$folder/source.part" --strip-components 1 -xzf "$folder"/source.part/llama_cpp_python-*.tar.gz
        mv "$folder"/source.part/llama_cpp_python-*.tar.gz "$folder/"
        mv "$folder/source.part" "$folder/source"
    }
    cmake -S "$folder/source/vendor/llama.cpp" -B "$folder/llama" -G Ninja -DCMAKE_BUILD_TYPE=Release \
        -DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF >"$folder/llama.log" 2>&1
    cmake --build "$folder/llama" --target llama-bench >>"$folder/llama.log" 2>&1
}
[ -x "$theirs" ] || fetch_theirs
[ -f "$model" ] || build/make_random_checkpoint --preset "$preset" --form gguf --type "$type" "$folder/model"

group=
for root in /sys/fs/cgroup/memory /sys/fs/cgroup; do
    [ -n "$group" ] || ! mkdir "$root/moeflux-compare" 2>/dev/null || group=$root/moeflux-compare
done
[ -n "$group" ] || { echo "compare: a control group cannot be made (root is needed)" >&2; exit 1; }
trap 'rmdir "$group"' EXIT
if [ -e "$group/memory.limit_in_bytes" ]; then limit=memory.limit_in_bytes; else limit=memory.max; fi

# within G COMMAND...: with no page of a file in memory before, and at most so much after
within() {
    [ ! -e "$group/$limit" ] || echo "${1}G" >"$group/$limit"
    shift
    sync
    echo 3 >/proc/sys/vm/drop_caches
    sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$@"
}
number() {
    grep -o "\"$1\": *[0-9.]*" | head -1 | sed 's/.*: *//'
}
median() {
    sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}
# Both warm up by decoding; rounds one after the other, so that what the machine does beside it meets both.
# Of ours the more memory, the longer: its slots are filled by what is asked for. A quarter of the tokens
# does for what takes a hundred times as long.
ours_once() {
    within "$1" build/moeflux bench "$model" --ram "$(awk -v g="$1" 'BEGIN { printf "%d", g * 0.97 * 1024 }')M" --threads "$threads" \
        --prompt-tokens 4 --gen-tokens "$tokens" --repeat 1 --warmup "$((1 + $1 / 2))" --measure-ms 500 --json 2>>"$folder/log" >"$folder/ours.json"
    number decode_tokens_per_s <"$folder/ours.json"
    number raw_read_bytes_per_s <"$folder/ours.json" >>"$folder/drive"
}
# llama.cpp maps the file. Where a copy of its weights in another order has room it may make that, which
# can be faster: the better of both counts.
theirs_as() {
    within "$1" "$theirs" -m "$model" -lm mmap --repack "$2" -p 0 -n "$((tokens / 4))" -t "$threads" -r 2 -o json 2>>"$folder/log" |
        { tr -d '\n' && echo; } | sed -n 's/.*"samples_ts": *\[[^],]*, *\([0-9.e+-]*\).*/\1/p' # of two the second
}
theirs_once() {
    if [ "$1" -le "$((model_gib + 1))" ]; then
        theirs_as "$1" 0
    else
        { theirs_as "$1" 0 && theirs_as "$1" 1; } | sort -g | tail -1
    fi
}
model_gib=$(($(stat -c %s "$model") >> 30))
# What was measured, for the plot and the table. The line of the drive alone: what a token has to read if
# it never waits for anything else.
facts=$(build/moeflux info "$model" --json)
of() {
    echo "$facts" | number "$1"
}
gib() {
    awk -v b="$(of "$1")" 'BEGIN { printf "%.3f", b / 1073741824 }'
}
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
{
    printf '# title\tDecode, %s %s, %s cores\n' "$preset" "$type" "$threads"
    printf '# model\t%s %s, random weights\n' "$preset" "$type"
    printf '# machine\t%s, %s cores\n' "${cpu:-a processor without a name}" "$threads"
    printf '# date\t%s\n' "$(date -u +%Y-%m-%d)"
    printf '# moeflux\t%s\n' "$(build/moeflux --version | sed -n 's/^moeflux //p; s/^commit *//p' | paste -sd' ')"
    printf '# llama.cpp\t%s\n' "$(basename "$(ls "$folder"/llama_cpp_python-*.tar.gz | head -1)" .tar.gz)"
    printf '# bytes\t%s\n# dense\t%s\n# experts\t%s\n' "$(of working_set_bytes)" "$(gib floor_bytes)" "$(gib expert_bytes)"
    printf 'ram_gib\tmoeflux\tllama.cpp\tdrive_bytes_per_second\n'
} >"$folder/results.tsv"
for g in $budgets; do
    : >"$folder/a"
    : >"$folder/b"
    : >"$folder/drive"
    for _ in $(seq "$rounds"); do
        ours_once "$g" >>"$folder/a" || true
        theirs_once "$g" >>"$folder/b" || true
    done
    printf '%s\t%s\t%s\t%s\n' "$g" "$(median <"$folder/a")" "$(median <"$folder/b")" "$(median <"$folder/drive")" >>"$folder/results.tsv"
    tail -1 "$folder/results.tsv"
done

awk -f bench/compare/plot.awk "$folder/results.tsv" >"$folder/results.svg"
awk -f bench/compare/table.awk "$folder/results.tsv"
echo "$folder/results.svg"
