#!/bin/sh
# SPDX-License-Identifier: MIT
# targets.sh [--build DIR] [--work DIR] [--checkpoint DIR] [--rounds N]
# Runs `moeflux bench` on a random checkpoint of the true Qwen3.6-35B-A3B shape: with every expert in
# memory, with a cache that makes nearly every expert a miss, with --ram 8G and with --ram 3G. Prints
# what was measured beside what it is to reach; all targets are ratios within one run, or bytes.
# Writes one JSON file a run into the work folder. Needs 20 GB of disk there, and 22 GB of memory for
# the first run: with less it takes a checkpoint of the same layers, but fewer of them, and says so.
# Exit code 0 if every target was reached, 1 if not.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build
work=$root/build/bench-work
checkpoint=
rounds=3
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2 ;;
    --work) work=$2 ;;
    --checkpoint) checkpoint=$2 ;;
    --rounds) rounds=$2 ;;
    *)
        sed -n '3,9s/^# //p' "$0"
        exit 2
        ;;
    esac
    shift 2
done
moeflux=$build/moeflux
mkdir -p "$work"

# json FILE KEY
json() {
    sed -n "s/.*\"$2\": \([^,}]*\)[,}].*/\1/p" "$1"
}

# make_checkpoint DIR OPTION...
make_checkpoint() {
    dir=$1
    shift
    [ -f "$dir/config.json" ] || "$build/make_random_checkpoint" --preset qwen3.6-35b-a3b "$@" "$dir"
}

# bench NAME MODEL OPTION...
bench() {
    name=$1
    model=$2
    shift 2
    echo "moeflux bench $model $* --json" >&2
    "$moeflux" bench "$model" "$@" --repeat "$rounds" --quiet --json >"$work/$name.json"
}

# number VALUE FORMAT [DIVISOR]; "-" for what was not measured
number() {
    awk -v a="$1" -v d="${3:-1}" 'BEGIN { if (a ~ /^[0-9]/) printf "'"$2"'", a / d; else printf "-" }'
}

n_missed=0
# target WHAT MEASURED RELATION LIMIT
target() {
    verdict=$(awk -v a="$2" -v b="$4" -v r="$3" 'BEGIN {
        ok = a ~ /^[0-9]/ && (r == ">=" ? a + 0 >= b + 0 : a + 0 <= b + 0)
        print ok ? "reached" : "MISSED"
    }')
    [ "$verdict" = reached ] || n_missed=$((n_missed + 1))
    printf '%-58s %14s  %s %-12s %s\n' "$1" "$(number "$2" %.4g)" "$3" "$4" "$verdict"
}

if [ -z "$checkpoint" ]; then
    checkpoint=$work/qwen3.6-35b-a3b-4bit
    make_checkpoint "$checkpoint"
fi

# everything in memory, if it fits
"$moeflux" info "$checkpoint" --json >"$work/info.json"
available=$(json "$work/info.json" available_bytes)
experts=$(json "$work/info.json" expert_bytes)
dense=$(json "$work/info.json" resident_bytes)
in_memory=$checkpoint
if [ "$available" -lt $((experts + dense + 1500000000)) ]; then
    layers=$(json "$work/info.json" n_layers)
    layers=$((layers * (available - dense - 1500000000) / experts / 4 * 4))
    [ "$layers" -ge 4 ] || {
        echo "targets.sh: only $available bytes of memory are available" >&2
        exit 1
    }
    in_memory=$work/qwen3.6-35b-a3b-4bit-$layers-layers
    echo "not all of the experts fit: $layers layers of the same shape for the first run" >&2
    make_checkpoint "$in_memory" --layers "$layers"
fi
bench memory "$in_memory" --expert-cache 64G --warmup 2 --gen-tokens 64
bench misses "$checkpoint" --expert-cache 0 --warmup 0 --gen-tokens 16
bench ram8 "$checkpoint" --ram 8G --warmup 1 --gen-tokens 64
bench ram3 "$checkpoint" --ram 3G --warmup 0 --gen-tokens 32

m=$work/memory.json s=$work/misses.json r=$work/ram3.json
echo
target "in memory: decode weights/s over memory bandwidth" "$(json "$m" weight_over_dram)" ">=" 0.60
target "in memory: prefill multiply-adds over the cores' peak" "$(json "$m" prefill_fma_over_peak)" ">=" 0.40
target "all misses: hit rate" "$(json "$s" hit_rate)" "<=" 0.20
target "all misses: decode reads over the raw drive" "$(json "$s" read_over_raw)" ">=" 0.80
for file in "$s" "$work/ram8.json" "$r"; do
    name=$(basename "$file" .json)
    target "$name: prefill reads an expert and chunk" "$(json "$file" prefill_reads_per_expert_and_chunk)" "<=" 1
    target "$name: prefill reads over the raw drive" "$(json "$file" prefill_read_over_raw)" ">=" 0.80
done
target "ram8: peak resident bytes" "$(json "$work/ram8.json" peak_rss_bytes)" "<=" $((8 << 30))
target "ram3: peak resident bytes" "$(json "$r" peak_rss_bytes)" "<=" $((3 << 30))

echo
printf '%-10s %12s %12s %14s %14s %10s %10s\n' run "prefill t/s" "decode t/s" "MB touched/t" \
    "MB read/t" "hit rate" "peak MiB"
for name in memory ram8 ram3 misses; do
    f=$work/$name.json
    printf '%-10s %12s %12s %14s %14s %10s %10s\n' $name \
        "$(number "$(json "$f" prefill_tokens_per_s)" %.2f)" \
        "$(number "$(json "$f" decode_tokens_per_s)" %.2f)" \
        "$(number "$(json "$f" weight_bytes_per_token)" %.1f 1e6)" \
        "$(number "$(json "$f" read_bytes_per_token)" %.1f 1e6)" \
        "$(number "$(json "$f" hit_rate)" %.3f)" \
        "$(number "$(json "$f" peak_rss_bytes)" %.0f 1048576)"
done
echo
if [ $n_missed -eq 0 ]; then
    echo "every target was reached; details in $work"
else
    echo "$n_missed targets were missed; details in $work"
fi
[ $n_missed -eq 0 ]
