#!/bin/sh
# SPDX-License-Identifier: MIT
# drive_table.sh [--build DIR] [--work DIR] [--checkpoint DIR] [--rounds N] [--small]
# What the drive is kept at while experts are read, beside what it is to reach: decoding with --ram 8G and
# 3G (--predict off and auto in turn), prefills of 512 and 4,096 tokens, eight sessions together, hits beside
# LFU and Belady, the replay beside the engine, and a cold start. Makes a random checkpoint of the true
# Qwen3.6-35B-A3B shape first (20 GB of disk there); medians of N rounds (default 3); about 25 minutes on an
# idle machine. --small: a checkpoint of 8 layers and 64 experts with budgets to match, to try the script.
# Each ratio is taken within one run, the raw drive measured in the same rounds. Prints a table in Markdown.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build
work=$root/build/bench-work
checkpoint=
rounds=3
large=8G small=3G budgets="3G 5G 8G 11G" prompts="512 4096" n_gen=32 shape=
trace=$root/bench/routing/books-256x8.trace
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2 ;;
    --work) work=$2 ;;
    --checkpoint) checkpoint=$2 ;;
    --rounds) rounds=$2 ;;
    --small)
        shape="--layers 8 --experts 64"
        large=1200M small=1000M budgets="1000M 1100M 1200M 1300M" prompts="128 512" n_gen=16 trace=
        shift
        continue
        ;;
    *)
        sed -n '3,9s/^# //p' "$0"
        exit 2
        ;;
    esac
    shift 2
done
moeflux=$build/moeflux
mkdir -p "$work"
export MOEFLUX_DEVICE=cpu
if [ -z "$checkpoint" ]; then
    checkpoint=$work/drive-qwen3.6-35b-a3b${shape:+-small}
    # shellcheck disable=SC2086 # options
    [ -f "$checkpoint/config.json" ] ||
        "$build/make_random_checkpoint" --preset qwen3.6-35b-a3b $shape --tokenizer "$root/models/demo" "$checkpoint" >&2
fi
follow=${trace:+--routing $trace}

# json FILE KEY
json() {
    sed -n "s/.*\"$2\": \([^,}]*\)[,}].*/\1/p" "$1" | tail -1
}
# calculate EXPRESSION: of numbers
calculate() {
    awk "BEGIN { printf \"%.4g\\n\", $1 }" 2>/dev/null || echo -
}
# bench NAME OPTION...: $work/NAME.json
bench() {
    run=$1
    shift
    echo "moeflux bench $*" >&2
    "$moeflux" bench "$checkpoint" "$@" --quiet --json >"$work/$run.json"
}
# row WHAT HOW MEASURED RELATION TARGET
row() {
    verdict=$(awk -v a="$3" -v b="$5" -v r="$4" 'BEGIN {
        if (a !~ /^-?[0-9]/) print "not measured"
        else if (r == "<=" ? a + 0 <= b + 0 : a + 0 >= b + 0) print "reached"
        else print "**missed**"
    }')
    printf '| %s | %s | %s | %s %s | %s |\n' "$1" "$2" "$3" "$4" "$5" "$verdict" >>"$work/rows"
}
rm -f "$work/rows"

# ---- decode, off and auto in turn; over the greater of computing and what was missed over the raw drive
# median FILE: of its lines
median() {
    sort -g "$1" | awk '{ v[NR] = $1 } END { if (NR) printf "%.4g", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}
# decode NAME BUDGET OPTION...: figures of all rounds in $work/NAME-PREDICT.*
decode() {
    what=$1 budget=$2
    shift 2
    rm -f "$work/$what"-*.tps "$work/$what"-*.ratio "$work/$what"-*.busy
    for round in $(seq "$rounds"); do
        for predict in off auto; do
            bench "$what-$predict" --ram "$budget" --warmup 1 --prompt-tokens 32 --gen-tokens $n_gen --repeat 1 \
                --predict $predict "$@"
            f=$work/$what-$predict.json
            tps=$(json "$f" decode_tokens_per_s) raw=$(json "$f" raw_read_bytes_per_s)
            bytes=$(json "$f" read_bytes_per_token) waits=$(json "$f" wait_fraction)
            echo "$tps" >>"$work/$what-$predict.tps"
            calculate "(1 / $tps) / ((1 - $waits) / $tps > $bytes / $raw ? (1 - $waits) / $tps : $bytes / $raw)" \
                >>"$work/$what-$predict.ratio"
            calculate "$bytes * $tps / $raw" >>"$work/$what-$predict.busy"
        done
    done
    how="off $(median "$work/$what-off.tps"), auto $(median "$work/$what-auto.tps") tokens/s; the last round: hits $(json "$work/$what-auto.json" hit_rate | cut -c1-5), raw $(calculate "$(json "$work/$what-auto.json" raw_read_bytes_per_s) / 1e9") GB/s"
}
gain() {
    calculate "$(median "$work/$1-auto.tps") / $(median "$work/$1-off.tps")"
}
if [ -n "$follow" ]; then
    # shellcheck disable=SC2086 # options
    decode trace-large $large $follow
    row "decode, $large, the real trace: over the greater of computing and bytes missed / raw" "$how" "$(median "$work/trace-large-auto.ratio")" "<=" 1.15
    row "the same: auto over off" "$how" "$(gain trace-large)" ">=" 0.98
    # shellcheck disable=SC2086
    decode trace-small $small $follow
    row "decode, $small, the real trace: the drive busy, of all the time" "$how" "$(median "$work/trace-small-auto.busy")" ">=" 0.92
    row "the same: auto over off" "$how" "$(gain trace-small)" ">=" 0.98
fi
decode large $large
row "decode, $large, the router's own choice: over the greater of computing and bytes missed / raw" "$how" "$(median "$work/large-auto.ratio")" "<=" 1.15
row "the same: auto over off" "$how" "$(gain large)" ">=" 0.98
decode small $small
row "decode, $small, the router's own choice: the drive busy, of all the time" "$how" "$(median "$work/small-auto.busy")" ">=" 0.92
row "the same: auto over off" "$how" "$(gain small)" ">=" 0.98

# ---- prefills
for n in $prompts; do
    bench "prefill-$n" --ram $large --warmup 0 --prompt-tokens "$n" --gen-tokens 1 --repeat 1
    f=$work/prefill-$n.json
    raw=$(json "$f" raw_read_bytes_per_s) waits=$(json "$f" prefill_wait_fraction)
    seconds=$(calculate "$n / $(json "$f" prefill_tokens_per_s)")
    sweep=$(calculate "$(json "$f" prefill_read_bytes) / $raw")
    row "prefill of $n tokens, $large: over the greater of computing and its reads / raw" \
        "$seconds s, waiting $(calculate "100 * $waits") %, reads / raw $sweep s" \
        "$(calculate "$seconds / ($seconds * (1 - $waits) > $sweep ? $seconds * (1 - $waits) : $sweep)")" "<=" 1.1
done

# ---- eight sessions together, the least cache
for halves in never auto; do
    "$build/bench/bench_sessions" "$checkpoint" --part decode --sessions 8 --prompt 4 --steps 16 --rounds 1 \
        --halves $halves >"$work/sessions-$halves.txt"
    together=$(sed -n '/^together:/,$s/^ *read a second *\([0-9.e+]*\) .*/\1/p' "$work/sessions-$halves.txt")
    raw=$(sed -n 's/^the raw drive *\([0-9.e+]*\) .*/\1/p' "$work/sessions-$halves.txt")
    tps=$(sed -n '/^together:/,/over/s/^ *tokens\/s *\([0-9.e+]*\).*/\1/p' "$work/sessions-$halves.txt" | head -1)
    row "8 sessions, least cache, halves $halves: the drive busy, of all the time" "$tps tokens/s, raw $(calculate "$raw / 1000") GB/s" \
        "$(calculate "$together / $raw")" ">=" 0.95
done

# ---- hits by replay
"$moeflux" perplexity "$root/models/demo" "$root/models/demo/heldout.txt" --prefill-chunk 1 --tokens 2048 --ctx 2048 \
    --predict next-layer --trace "$work/demo.trace" --quiet >/dev/null
for of in "$work/demo.trace" "${trace:-$work/demo.trace}"; do
    for slots in 10% 25% 50%; do
        "$moeflux" replay "$of" --slots $slots --policy next-use --json >"$work/own.json"
        "$moeflux" replay "$of" --slots $slots --policy lfu --json >"$work/lfu.json"
        all=$(calculate "$(json "$work/own.json" expert_hits) + $(json "$work/own.json" expert_misses)")
        own=$(calculate "$(json "$work/own.json" expert_hits) / $all")
        lfu=$(calculate "$(json "$work/lfu.json" expert_hits) / $all")
        best=$(calculate "$(json "$work/own.json" best_hits) / $all")
        name=$(basename "$of" .trace)
        row "hits, $name, slots for $slots: less those of LFU" "$own, LFU $lfu" "$(calculate "$own - $lfu")" ">=" 0
        row "the same: points below Belady" "Belady $best" "$(calculate "100 * ($best - $own)")" "<=" 12
    done
    [ -n "$trace" ] || break
done

# ---- the replay beside the engine: the second round of two counts, of which a token is the prompt
for budget in $budgets; do
    # shellcheck disable=SC2086
    bench "replay-$budget" --ram "$budget" --warmup 1 --prompt-tokens 1 --gen-tokens $n_gen --repeat 1 --predict off \
        --trace "$work/replay.trace" $follow
    f=$work/replay-$budget.json
    "$moeflux" replay "$work/replay.trace" --slots "$(json "$f" n_slots)" \
        --drive "$(json "$f" raw_read_bytes_per_s | cut -d. -f1)" --warmup $((n_gen + 2)) --json >"$work/replayed.json"
    engine=$(json "$f" decode_tokens_per_s) replayed=$(json "$work/replayed.json" tokens_per_s)
    row "replay over the engine, $budget: tokens/s, points apart" "engine $engine, replay $replayed" \
        "$(calculate "100 * ($replayed > $engine ? $replayed / $engine - 1 : 1 - $replayed / $engine)")" "<=" 10
done

# ---- a cold start
cold=no
if sync && echo 3 2>/dev/null >/proc/sys/vm/drop_caches; then
    cold=yes
fi
head -c 400 "$root/models/demo/heldout.txt" >"$work/prompt.txt"
began=$(date +%s%N)
"$moeflux" run "$checkpoint" --raw -f "$work/prompt.txt" -n 1 --ram $large --quiet --stats=json:"$work/cold.json" >/dev/null
seconds=$(calculate "($(date +%s%N) - $began) / 1e9")
"$moeflux" info "$checkpoint" --ram $large --json >"$work/info.json"
resident=$(json "$work/info.json" resident_bytes)
raw=$(json "$work/large-auto.json" raw_read_bytes_per_s)
least=$(calculate "($resident + $(json "$work/cold.json" prefill_read_bytes)) / $raw")
row "first token from a cold start, $large: over (resident bytes + first sweep) / raw" \
    "$seconds s, bytes / raw $least s, caches dropped: $cold" "$(calculate "$seconds / $least")" "<=" 1.2

echo "| what | | measured | target | |"
echo "|---|---|---|---|---|"
cat "$work/rows"
! grep -q 'missed' "$work/rows"
