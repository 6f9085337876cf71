#!/bin/bash
# SPDX-License-Identifier: MIT
# gpu.sh [--build DIR] [--device NAME] [--rounds N] CHECKPOINT [COGITO]
# The figures of docs/PERFORMANCE.md on a GPU: a random checkpoint of the Qwen3.6-35B-A3B shape with
# everything in video memory, with 6 GiB of it, with half of its experts, and with 8 GiB of memory
# too; experts in RAM, those of no layer, of half of them or of as many as 6 GiB hold in video memory;
# sessions together; the CPU alone; Cogito's width. A line for each, JSON beside it in DIR/gpu.
set -eu
build=build device=vulkan rounds=3
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2 && shift 2 ;;
    --device) device=$2 && shift 2 ;;
    --rounds) rounds=$2 && shift 2 ;;
    *) break ;;
    esac
done
[ $# -ge 1 ] || { sed -n '3,7s/^# //p' "$0" && exit 2; }
model=$1 cogito=${2:-}
out=$build/gpu
mkdir -p "$out"

value() {
    sed -n "s/.*\"$2\": \([^,}]*\)[,}].*/\1/p" "$1"
}

# bench NAME MODEL OPTIONS...
bench() {
    local name=$1
    shift
    if "$build/moeflux" bench "$@" --quiet --json --repeat "$rounds" >"$out/$name.json" 2>"$out/$name.log"; then
        printf '%-22s prompt %9.1f decode %8.2f tokens/s, hits %.3f, open %.1f s, weights %.3g of memory, reading %.3g of the drive\n' \
            "$name" $(for key in prefill_tokens_per_s decode_tokens_per_s hit_rate open_seconds \
                weight_over_dram read_over_raw; do value "$out/$name.json" $key | sed 's/null/nan/'; done)
    else
        printf '%-22s FAILED: %s\n' "$name" "$(tail -1 "$out/$name.log")"
    fi
}

bench all-512 "$model" --device "$device" --prompt-tokens 512 --gen-tokens 128
bench all-4096 "$model" --device "$device" --prompt-tokens 4096 --ctx 4352 --gen-tokens 32 --measure-ms 0
bench all-4096-chunk "$model" --device "$device" --prompt-tokens 4096 --prefill-chunk 4096 --ctx 4352 --gen-tokens 32 --measure-ms 0
for n in 8 32; do
    echo "sessions together: $n"
    "$build/bench/bench_sessions" "$model" --device "$device" --sessions $n --ram 100000 --rounds "$rounds" 2>&1 |
        grep -i 'tokens' || true
done
bench vram-6G "$model" --device "$device" --vram 6G --prompt-tokens 512 --gen-tokens 64 --measure-ms 0
bench vram-11G "$model" --device "$device" --vram 11G --prompt-tokens 512 --gen-tokens 64 --measure-ms 0
bench vram-6G-ram-8G "$model" --device "$device" --vram 6G --ram 8G --prompt-tokens 512 --gen-tokens 32
for n in 0 20 auto; do # of no layer, half of them, and as many as have room
    bench "hybrid-$n" "$model" --device "$device" --expert-device "hybrid:$n" --vram $([ $n = auto ] && echo 6G || echo 24G) \
        --prompt-tokens 512 --gen-tokens 64 --warmup 1 --measure-ms 0
done
bench cpu "$model" --device cpu --prompt-tokens 512 --gen-tokens 64
[ -z "$cogito" ] || bench cogito "$cogito" --device "$device" --prompt-tokens 128 --gen-tokens 64
