# SPDX-License-Identifier: MIT
# pair.sh [BYTES [ROUNDS]]: curl and moeflux pull by turns from the hub of the tests, which is on the same
# machine, into TMPDIR. pull hashes what it fetches, curl does not. Not a test: figures.
cd "$(dirname "$0")" || exit 1
. ./lib_hub.sh
n_bytes=${1:-1000000000}
start_hub
mkdir "$scratch/repo"
head -c "$n_bytes" /dev/urandom >"$scratch/repo/m-Q4_0.gguf"
publish org/m "$scratch/repo"
now() {
    date +%s.%N
}
i=0
while [ $i -lt "${2:-5}" ]; do
    i=$((i + 1))
    a=$(now)
    curl -sL -o "$scratch/curl.out" "$HF_ENDPOINT/org/m/resolve/$commit/m-Q4_0.gguf"
    b=$(now)
    rm -f "$scratch/curl.out"
    forget_cache
    c=$(now)
    "$MOEFLUX" pull org/m --force -q >/dev/null
    d=$(now)
    echo "$a $b $c $d $n_bytes"
done | awk '{
    printf "curl %5.0f MB/s, pull %5.0f MB/s\n", $5 / ($2 - $1) / 1e6, $5 / ($4 - $3) / 1e6
    curl += $2 - $1; pull += $4 - $3
} END { printf "pull reaches %.2f of curl\n", curl / pull }'
