#!/bin/sh
# SPDX-License-Identifier: MIT
# pull.sh [--bytes N] [--rounds N] [--dir DIR] [--target RATIO]
# moeflux pull and curl by turns, which one first changing from round to round, of one file of N bytes (default
# 1 GB) from the hub of the tests on this machine, to DIR (default TMPDIR or /tmp; one in /dev/shm leaves the
# drive out). pull checks the content's SHA-256 and brings it to the drive, curl does neither: so sha256sum of
# the same file is timed too. Prints each round, then medians: rates, pull's as a part of curl's, and processor
# seconds (user and system) of pull beside curl and sha256sum. Wants build/ with tests/hub/hub_server, and at
# least three cores that nobody else uses: server, receiving and hashing. Exit code 1 where pull stays below
# RATIO (default 0.9) of curl.
set -u
bytes=1000000000 rounds=7 target=0.9
while [ $# -gt 0 ]; do
    case $1 in
    --bytes) bytes=$2 ;;
    --rounds) rounds=$2 ;;
    --dir) TMPDIR=$2 && export TMPDIR ;;
    --target) target=$2 ;;
    *)
        sed -n '3,10s/^# //p' "$0"
        exit 2
        ;;
    esac
    [ $# -ge 2 ] || exit 2
    shift 2
done
cd "$(dirname "$0")/../tests/hub" || exit 1
. ./lib_hub.sh
start_hub
mkdir "$scratch/repo"
head -c "$bytes" /dev/urandom >"$scratch/repo/m-Q4_0.gguf"
publish org/m "$scratch/repo"
rm -r "$scratch/repo"
figures=$scratch/figures
: >"$figures"

# Processor seconds of this shell's children, of what `times` wrote.
children() {
    awk 'NR == 2 { gsub(/s/, ""); split($1 "m" $2, t, "m"); print t[1] * 60 + t[2] + t[3] * 60 + t[4] }' "$scratch/times"
}

# measure NAME COMMAND...: a line of figures: NAME, seconds, processor seconds
measure() {
    name=$1
    shift
    times >"$scratch/times"
    cpu_before=$(children)
    began=$(date +%s%N)
    "$@" >/dev/null || exit 1
    ended=$(date +%s%N)
    times >"$scratch/times"
    echo "$name $began $ended $cpu_before $(children)" |
        awk '{ printf "%s %.4f %.4f\n", $1, ($3 - $2) / 1e9, $5 - $4 }' >>"$figures"
}

by_curl() {
    measure curl curl -sfL -o "$scratch/curl.out" "$HF_ENDPOINT/org/m/resolve/$commit/m-Q4_0.gguf"
    measure sha256sum sha256sum "$scratch/curl.out"
    rm -f "$scratch/curl.out"
}

by_pull() {
    forget_cache
    measure pull "$MOEFLUX" pull org/m --force -q
    forget_cache
}

median() {
    awk -v name="$1" -v column="$2" '$1 == name { print $column }' "$figures" | sort -n |
        awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

i=0
while [ $i -lt "$rounds" ]; do
    i=$((i + 1))
    if [ $((i % 2)) -eq 1 ]; then by_curl && by_pull; else by_pull && by_curl; fi
    tail -n 3 "$figures" | awk -v n="$bytes" -v round=$i '{ s[$1] = $2; c[$1] = $3 }
        END { printf "round %d: curl %.0f MB/s (%.2f s of processor), pull %.0f MB/s (%.2f s), sha256sum %.0f MB/s (%.2f s)\n",
              round, n / s["curl"] / 1e6, c["curl"], n / s["pull"] / 1e6, c["pull"], n / s["sha256sum"] / 1e6, c["sha256sum"] }'
done
echo "$bytes $(median curl 2) $(median pull 2) $(median sha256sum 2) $(median curl 3) $(median pull 3) $(median sha256sum 3) $target" |
    awk '{ printf "medians: curl %.0f MB/s, pull %.0f MB/s\n", $1 / $2 / 1e6, $1 / $3 / 1e6
           printf "processor: pull %.2f s, curl %.2f s and sha256sum %.2f s: %.2f of both\n", $6, $5, $7, $6 / ($5 + $7)
           printf "pull reaches %.2f of curl, %.2f of curl and then sha256sum\n", $2 / $3, ($2 + $4) / $3
           exit $2 / $3 < $8 }'
