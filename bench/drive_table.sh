#!/bin/sh
# SPDX-License-Identifier: MIT
# drive_table.sh [--build DIR] [--work DIR] [--checkpoint MODEL] [--rounds N] [--minutes N] [--prepare] [--small]
# What the drive is kept at while experts are read, beside what it is to reach: decoding with --ram 8G and
# 3G, with Cogito's width and with experts that are foretold (--predict off and auto in turn), prefills of 512
# and 4,096 tokens, eight sessions together, hits beside LFU and Belady, the replay beside the engine, and a
# cold start. Needs checkpoints of random weights in --work, which --prepare makes and then stops (30 GB of
# disk; a run makes those that are missing): the shape of Qwen3.6-35B-A3B (--checkpoint: this one instead, of
# 256 experts, 8 a token), two layers of Cogito-V2's width, and the 35B width with the demo's 32 experts.
# Medians of up to N rounds (default 3), as many as N minutes (default 24) have room for; what is left out is
# said. --small: shapes and budgets of a quarter GB, to try the script.
# Each ratio is taken within one run or pair of runs, the raw drive measured in the same processes. Prints a
# table in Markdown; exit code 0 if all that was measured reaches its target, 1 if not.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build
work=$root/build/bench-work
checkpoint=
rounds=3 minutes=24 is_small=no only_prepare=no
large=8G small=3G between="5G 11G" prompts="512 4096" n_gen=48 n_few=32 wide_cache=1G n_steps=12
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2 ;;
    --work) work=$2 ;;
    --checkpoint) checkpoint=$2 ;;
    --rounds) rounds=$2 ;;
    --minutes) minutes=$2 ;;
    --small | --prepare)
        [ "$1" = --small ] && is_small=yes
        [ "$1" = --prepare ] && only_prepare=yes
        shift
        continue
        ;;
    *)
        sed -n '3,14s/^# //p' "$0"
        exit 2
        ;;
    esac
    shift 2
done
moeflux=$build/moeflux
trace=$root/bench/routing/books-256x8.trace
mkdir -p "$work"
export MOEFLUX_DEVICE=cpu

# ---- checkpoints
# make NAME OPTION...: its folder
make() {
    dir=$work/drive-$1
    shift
    [ -f "$dir/config.json" ] || {
        echo "make_random_checkpoint $*" >&2
        "$build/make_random_checkpoint" --quiet --force "$@" "$dir" >&2
    }
    echo "$dir"
}
# shellcheck disable=SC2086 # options
if [ $is_small = yes ]; then
    large=700M small=550M between="600M 650M" prompts="64 128" n_gen=12 n_few=8 wide_cache=40M n_steps=8
    tiny="--preset qwen3.6-35b-a3b --layers 4 --hidden 512 --expert-hidden 128 --vocab 8192"
    [ -n "$checkpoint" ] || checkpoint=$(make small $tiny)
    wide=$(make wide-small --preset cogito-v2-671b --layers 2 --dense-layers 1 --hidden 512 --expert-hidden 128 --vocab 8192)
    told=$(make told-small $tiny --experts 32 --experts-per-token 4)
else
    [ -n "$checkpoint" ] || checkpoint=$(make qwen3.6-35b-a3b --preset qwen3.6-35b-a3b)
    wide=$(make cogito-width --preset cogito-v2-671b --layers 3 --dense-layers 1 --experts 128)
    told=$(make 35b-width-32 --preset qwen3.6-35b-a3b --experts 32 --experts-per-token 4)
fi
[ $only_prepare = no ] || exit 0

# ---- what all rows need
began=$(date +%s)
ends=$((began + minutes * 60))
rm -f "$work/rows" "$work/raws"
touch "$work/raws"

# is_time SECONDS: whether a part that takes so long may begin
is_time() {
    [ $(($(date +%s) + $1)) -le $ends ]
}
# json FILE KEY: the last value of the key
json() {
    sed -n "s/.*\"$2\": \([^,}]*\)[,}].*/\1/p" "$1" | tail -1
}
# total FILE KEY: the sum of all values of the key
total() {
    grep -o "\"$2\": [0-9.]*" "$1" | awk '{ n += $2 } END { print n + 0 }'
}
# calculate EXPRESSION: of numbers
calculate() {
    awk "BEGIN { printf \"%.4g\\n\", $1 }" 2>/dev/null || echo -
}
# median FILE: of its lines
median() {
    [ -s "$1" ] || {
        echo -
        return
    }
    sort -g "$1" | awk '{ v[NR] = $1 } END { printf "%.4g", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}
# bench NAME MODEL OPTION...: $work/NAME.json
bench() {
    run=$1 model=$2
    shift 2
    echo "$(($(date +%s) - began)) s: moeflux bench $model $*" >&2
    "$moeflux" bench "$model" "$@" --measure-ms 700 --quiet --json >"$work/$run.json"
    json "$work/$run.json" raw_read_bytes_per_s >>"$work/raws"
}
# row WHAT HOW MEASURED RELATION TARGET
row() {
    verdict=$(awk -v a="$3" -v b="$5" -v r="$4" 'BEGIN {
        if (a !~ /^-?[0-9]/) print "not measured"
        else if (r == "<=" ? a + 0 <= b + 0 : a + 0 >= b + 0) print "reached"
        else print "**missed**"
    }')
    printf '| %s | %s | %s | %s %s | %s |\n' "$1" "$2" "$3" "$4" "$5" "$verdict" | tee -a "$work/rows" >&2
}

# ---- decode: off and auto in turn
# The first tokens fill the cache one by one and are not counted; those that count are others, of the router's
# own choice or of the trace behind them. Computing is the time that the run without prediction does not wait.
# decode NAME MODEL TOKENS OPTION...: figures of all rounds in $work/NAME.*
decode() {
    what=$1 model=$2 n_tokens=$3
    shift 3
    rm -f "$work/$what".*
    round=0 longest=0
    while [ $round -lt "$rounds" ] && is_time $longest; do
        at=$(date +%s)
        for predict in off auto; do
            trace_to=
            [ $predict = auto ] || trace_to="--trace $work/$what.trace"
            # shellcheck disable=SC2086 # options
            bench "$what.$predict" "$model" --warmup 0 --prefill-chunk 1 --prompt-tokens "$n_tokens" \
                --gen-tokens "$n_tokens" --repeat 1 --predict $predict $trace_to "$@"
        done
        off=$work/$what.off.json auto=$work/$what.auto.json
        t_off=$(calculate "1 / $(json "$off" decode_tokens_per_s)")
        t_auto=$(calculate "1 / $(json "$auto" decode_tokens_per_s)")
        raw_off=$(json "$off" raw_read_bytes_per_s) raw_auto=$(json "$auto" raw_read_bytes_per_s)
        computing=$(calculate "$t_off * (1 - $(json "$off" wait_fraction))")
        reading=$(calculate "$(json "$off" read_bytes_per_token) / (($raw_off + $raw_auto) / 2)")
        calculate "1 / $t_off" >>"$work/$what.tps_off"
        calculate "1 / $t_auto" >>"$work/$what.tps_auto"
        calculate "$t_off / $t_auto" >>"$work/$what.gain"
        calculate "$t_auto / ($computing > $reading ? $computing : $reading)" >>"$work/$what.ratio"
        calculate "$(json "$auto" read_bytes_per_token) / $t_auto / $raw_auto" >>"$work/$what.busy"
        echo "$computing" >>"$work/$what.computing"
        echo "$reading" >>"$work/$what.reading"
        calculate "$(json "$auto" read_bytes_per_token) / $(json "$off" read_bytes_per_token)" >>"$work/$what.bytes"
        round=$((round + 1)) longest=$(($(date +%s) - at))
    done
    how="no time left"
    [ $round -gt 0 ] || return 0
    how="$round pairs: off $(median "$work/$what.tps_off"), auto $(median "$work/$what.tps_auto") tokens/s; computing $(median "$work/$what.computing") s, reading $(median "$work/$what.reading") s a token; hits $(json "$off" hit_rate | cut -c1-5); auto: bytes $(median "$work/$what.bytes") times, of $(total "$auto" hints) hints $(total "$auto" hints_useful) of use, $(total "$auto" hints_late) late"
}
# rows_of NAME WHAT ratio|busy
rows_of() {
    if [ "$3" = ratio ]; then
        row "$2: time over the greater of computing and bytes missed / raw drive" "$how" "$(median "$work/$1.ratio")" "<=" 1.15
    else
        row "$2: the drive busy, of all the time" "$how" "$(median "$work/$1.busy")" ">=" 0.92
    fi
    row "the same: auto over off" "least of the pairs $(sort -g "$work/$1.gain" 2>/dev/null | head -1)" "$(median "$work/$1.gain")" ">=" 0.98
}
# first, since others need it: a real text's routing with what was foretold
"$moeflux" perplexity "$root/models/demo" "$root/models/demo/heldout.txt" --prefill-chunk 1 --tokens 2048 --ctx 2048 \
    --predict next-layer --trace "$work/demo.trace" --quiet >/dev/null
decode trace-large "$checkpoint" $n_gen --ram $large --routing "$trace"
rows_of trace-large "decode, $large, routing of the real trace" ratio
decode trace-small "$checkpoint" $n_gen --ram $small --routing "$trace"
rows_of trace-small "decode, $small, routing of the real trace" busy
decode wide "$wide" $n_few --expert-cache $wide_cache
rows_of wide "decode, Cogito's width, expert cache $wide_cache" busy
all=$("$moeflux" info "$told" --json >"$work/info.json" && json "$work/info.json" expert_bytes)
for share in 25 50; do
    decode told-$share "$told" $n_few --expert-cache "$(calculate "int($all * $share / 100 / 1048576)")M" --routing "$work/demo.trace"
    rows_of told-$share "decode, 35B width, the demo's routing and what was foretold of it, slots for $share %" ratio
done

# ---- eight sessions together, the least cache
for halves in never always; do
    together='' raw='' tps='' s=$work/sessions-$halves.txt
    if is_time 60; then
        echo "$(($(date +%s) - began)) s: bench_sessions --halves $halves" >&2
        "$build/bench/bench_sessions" "$checkpoint" --part together --sessions 8 --prompt 1 --steps $n_steps --rounds 1 \
            --halves $halves >"$s"
        together=$(sed -n '/^together:/,$s/^ *read a second *\([0-9.e+]*\) .*/\1/p' "$s")
        raw=$(sed -n 's/^the raw drive *\([0-9.e+]*\) .*/\1/p' "$s")
        tps=$(sed -n '/^together:/,$s/^ *tokens\/s *\([0-9.e+]*\).*/\1/p' "$s" | head -1)
    fi
    row "8 sessions, least cache, halves $halves: the drive busy, of all the time" "${tps:-no} tokens/s" \
        "$(calculate "${together:-x} / ${raw:-x}")" ">=" 0.95
done

# ---- prefills
for n in $prompts; do
    if ! is_time $((n / 20)); then
        row "prefill of $n tokens, $large: over the greater of computing and its reads / raw drive" "no time left" - "<=" 1.1
        continue
    fi
    bench "prefill-$n" "$checkpoint" --ram $large --warmup 0 --prompt-tokens "$n" --gen-tokens 1 --repeat 1
    f=$work/prefill-$n.json
    raw=$(json "$f" raw_read_bytes_per_s) waits=$(json "$f" prefill_wait_fraction)
    seconds=$(calculate "$n / $(json "$f" prefill_tokens_per_s)")
    sweep=$(calculate "$(json "$f" prefill_read_bytes) / $raw")
    row "prefill of $n tokens, $large: over the greater of computing and its reads / raw drive" \
        "$seconds s, waiting $(calculate "100 * $waits") %, reads / raw $sweep s" \
        "$(calculate "$seconds / ($seconds * (1 - $waits) > $sweep ? $seconds * (1 - $waits) : $sweep)")" "<=" 1.1
done

# ---- a cold start
cold=no
if sync && echo 3 2>/dev/null >/proc/sys/vm/drop_caches; then
    cold=yes
fi
at=$(date +%s%N)
"$moeflux" bench "$checkpoint" --ram $large --warmup 0 --prompt-tokens 100 --gen-tokens 0 --repeat 1 --measure-ms 0 \
    --quiet --json >"$work/cold.json"
seconds=$(calculate "($(date +%s%N) - $at) / 1e9")
"$moeflux" info "$checkpoint" --ram $large --json >"$work/info.json"
raw=$(median "$work/raws")
least=$(calculate "($(json "$work/info.json" resident_bytes) + $(json "$work/cold.json" prefill_read_bytes)) / $raw")
row "first token from a cold start, 100 tokens, $large: over (resident bytes + first sweep) / raw drive" \
    "$seconds s, bytes / raw $least s, caches dropped: $cold" "$(calculate "$seconds / $least")" "<=" 1.2

# ---- hits by replay
for of in "$work/demo.trace" "$trace"; do
    for slots in 10% 25% 50%; do
        "$moeflux" replay "$of" --slots $slots --json >"$work/own.json"
        "$moeflux" replay "$of" --slots $slots --policy lfu --json >"$work/lfu.json"
        all=$(calculate "$(json "$work/own.json" expert_hits) + $(json "$work/own.json" expert_misses)")
        own=$(calculate "$(json "$work/own.json" expert_hits) / $all")
        lfu=$(calculate "$(json "$work/lfu.json" expert_hits) / $all")
        best=$(calculate "$(json "$work/own.json" best_hits) / $all")
        name=$(basename "$of" .trace)
        row "hits, $name, slots for $slots: less those of LFU" "$own, LFU $lfu" "$(calculate "$own - $lfu")" ">=" 0
        row "the same: points below Belady" "Belady $best" "$(calculate "100 * ($best - $own)")" "<=" 12
    done
done

# ---- the replay beside the engine: runs without prediction, each tried again on a drive of numbers
# replayed NAME: $work/NAME.off.json and $work/NAME.trace
replayed() {
    f=$work/$1.off.json what="replay beside the engine, $2: tokens/s, percent apart"
    [ -s "$f" ] || {
        row "$what" "no time left" - "<=" 10
        return 0
    }
    latency=$(json "$f" raw_read_latency_us | cut -d. -f1)
    "$moeflux" replay "$work/$1.trace" --slots "$(json "$f" n_slots)" \
        --drive "$(json "$f" raw_read_bytes_per_s | cut -d. -f1)" --latency "${latency:-0}us" --warmup $n_gen --json >"$work/replayed.json"
    engine=$(json "$f" decode_tokens_per_s) told_tps=$(json "$work/replayed.json" tokens_per_s)
    row "$what" \
        "engine $engine, replay $told_tps; latency $latency us; bytes a token $(calculate "$(json "$f" read_bytes_per_token) / 1e6"), $(calculate "$(json "$work/replayed.json" read_bytes) / $(json "$work/replayed.json" tokens) / 1e6") MB" \
        "$(calculate "100 * ($told_tps > $engine ? $told_tps / $engine - 1 : 1 - $told_tps / $engine)")" "<=" 10
}
replayed trace-small $small
for budget in $between; do
    rm -f "$work/between-$budget.off.json"
    ! is_time 30 ||
        bench "between-$budget.off" "$checkpoint" --ram "$budget" --warmup 0 --prefill-chunk 1 --prompt-tokens $n_gen \
            --gen-tokens $n_gen --repeat 1 --predict off --trace "$work/between-$budget.trace" --routing "$trace"
    replayed "between-$budget" "$budget"
done
replayed trace-large $large

# ---- last, since it is least like real text: the router's own choice of random tokens
decode large "$checkpoint" $n_few --ram $large
rows_of large "decode, $large, the router's own choice of random tokens" ratio
decode small "$checkpoint" $n_few --ram $small
rows_of small "decode, $small, the router's own choice of random tokens" busy

echo
echo "| what | how | measured | target | |"
echo "|---|---|---|---|---|"
cat "$work/rows"
echo
echo "The raw drive in these runs: $(sort -g "$work/raws" | awk '{ v[NR] = $1 / 1e9 } END { printf "%.2f to %.2f, median %.2f", v[1], v[NR], v[int((NR + 1) / 2)] }') GB/s; $(($(date +%s) - began)) s in all."
! grep -q 'missed' "$work/rows"
