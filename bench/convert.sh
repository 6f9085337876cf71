#!/bin/sh
# SPDX-License-Identifier: MIT
# convert.sh [--model DIR] [--work DIR] [--out DIR] [--rounds N] [--layers N] [--target RATIO]
# moeflux convert beside its drives, by turns: direct reads of the model's files (dd, 16 MiB at a time), direct
# writes of as many bytes to --out's drive, both at once, convert with the model dropped from the page cache
# (it ends when all is on the drive), and reading back what it wrote (convert --verify), likewise not from
# memory. The model: one given, or N layers (default 6, 3 GB) of Qwen3.6-35B-A3B's shape in MLX's form, made
# in --work (default build/bench-work); --out is below it, unless it is on another drive. Prints each round,
# then medians, the processor seconds of convert, and its rate as a part of the slower of reading and writing.
# Exit code 1 where that stays below RATIO (default 0.7).
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
work=$root/build/bench-work model='' out='' rounds=5 layers=6 target=0.7
while [ $# -gt 0 ]; do
    case $1 in
    --model) model=$2 ;;
    --work) work=$2 ;;
    --out) out=$2 ;;
    --rounds) rounds=$2 ;;
    --layers) layers=$2 ;;
    --target) target=$2 ;;
    *)
        sed -n '3,11s/^# //p' "$0"
        exit 2
        ;;
    esac
    [ $# -ge 2 ] || exit 2
    shift 2
done
mkdir -p "$work"
if [ -z "$model" ]; then
    model=$work/convert-$layers-layers
    [ -f "$model/config.json" ] ||
        "$root/build/make_random_checkpoint" --preset qwen3.6-35b-a3b --layers "$layers" "$model" >"$work/log"
fi
: "${out:=$work/converted}"
mkdir -p "$out"
scratch=$(mktemp -d /dev/shm/moeflux-convert.XXXXXX)
trap 'rm -rf "$scratch" "$out/raw" "$out/model"' EXIT
trap 'exit 1' HUP INT TERM
piece_mb=256
head -c $((piece_mb << 20)) /dev/urandom >"$scratch/piece"
files=$(find "$model" -type f -size +1M)
# shellcheck disable=SC2086 # a list
bytes=$(cat $files | wc -c)
n_pieces=$((bytes / (piece_mb << 20) + 1))
figures=$scratch/figures
: >"$figures"

drop() { # FILE...: from the page cache
    sync
    for file in "$@"; do
        dd if="$file" iflag=nocache count=0 2>/dev/null
    done
}

read_raw() {
    for file in $files; do
        dd if="$file" of=/dev/null bs=16M iflag=direct 2>/dev/null
    done
}

write_raw() {
    for piece in $(seq 0 $((n_pieces - 1))); do
        dd if="$scratch/piece" of="$out/raw" bs=16M oflag=direct conv=notrunc,fsync seek=$((piece * piece_mb / 16)) 2>/dev/null
    done
    rm "$out/raw"
}

both_raw() {
    read_raw &
    reader=$!
    write_raw
    wait $reader
}

convert() {
    "$root/build/moeflux" convert "$model" "$out/model" -q >"$scratch/log" 2>&1
}

read_back() {
    "$root/build/moeflux" convert --verify "$out/model" -q >"$scratch/log" 2>&1
}

children() {
    awk 'NR == 2 { gsub(/s/, ""); split($1 "m" $2, t, "m"); print t[1] * 60 + t[2] + t[3] * 60 + t[4] }' "$scratch/times"
}

# measure NAME BYTES: a line of figures: NAME, MB/s, processor seconds
measure() {
    times >"$scratch/times"
    before=$(children)
    began=$(date +%s%N)
    "$1"
    ended=$(date +%s%N)
    times >"$scratch/times"
    echo "$1 $2 $began $ended $before $(children)" |
        awk '{ printf "%s %.1f %.2f\n", $1, $2 / ($4 - $3) * 1e3, $6 - $5 }' >>"$figures"
}

median() {
    awk -v name="$1" -v column="$2" '$1 == name { print $column }' "$figures" | sort -n |
        awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

i=0
while [ $i -lt "$rounds" ]; do
    i=$((i + 1))
    measure read_raw "$bytes"
    measure write_raw $((n_pieces * (piece_mb << 20)))
    measure both_raw "$bytes"
    # shellcheck disable=SC2086
    drop $files
    rm -rf "$out/model"
    measure convert "$bytes"
    # shellcheck disable=SC2046
    drop $(find "$out/model" -type f)
    measure read_back "$bytes"
    tail -n 5 "$figures" | awk -v round=$i '{ r[$1] = $2; c[$1] = $3 }
        END { printf "round %d: reads %.0f MB/s, writes %.0f, both at once %.0f each, convert %.0f (%.1f s of processor), reading back %.0f (%.1f s)\n",
              round, r["read_raw"], r["write_raw"], r["both_raw"], r["convert"], c["convert"], r["read_back"], c["read_back"] }'
done
echo "$(median read_raw 2) $(median write_raw 2) $(median both_raw 2) $(median convert 2) $(median convert 3) $(median read_back 2) $bytes $target" |
    awk '{ slower = $1 < $2 ? $1 : $2
           printf "medians: reads %.0f MB/s, writes %.0f, both at once %.0f each, convert %.0f, reading back %.0f\n", $1, $2, $3, $4, $6
           printf "processor: %.2f s a GB\n", $5 / $7 * 1e9
           printf "convert reaches %.2f of the slower of reading and writing, %.2f of what the drive does of both at once; with reading back %.2f\n",
               $4 / slower, $4 / $3, 1 / (1 / $4 + 1 / $6) / slower
           exit $4 / slower < $8 }'
