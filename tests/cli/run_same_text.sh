# SPDX-License-Identifier: MIT
# The same greedy text from the demo model whatever the cache, the I/O engine, the threads and the
# chunk. (CPU tiers sum in different orders, so they are not among these.)
. ./lib.sh
has_model "$demo" || skip "models/demo is not there"

same() {
    run run "$demo" -p "Once upon a time" -n 64 --temp 0 --quiet "$@"
    expect_code 0
    expect_empty "$err"
    expect_same "$out" "$scratch/text"
}

run run "$demo" -p "Once upon a time" -n 64 --temp 0
expect_code 0
cp "$out" "$scratch/text"
expect_true [ "$(wc -w <"$scratch/text")" -ge 16 ]

same
same --expert-cache 0
same --expert-cache 2M
same --io pool
same --io auto
same --threads 1
same --threads 2
same --prefill-chunk 1
same --prefill-chunk 3
same --expert-cache 0 --io pool --threads 1 --prefill-chunk 1
same --seed 7 --top-k 5
run run "$demo" -p x -n 1 --quiet --io uring
[ "$code" -ne 0 ] || same --io uring

printf 'Once upon a time' >"$scratch/prompt"
run run "$demo" -f "$scratch/prompt" -n 64 --temp 0
expect_same "$out" "$scratch/text"
run_with "$scratch/prompt" run "$demo" -f - -n 64 --temp 0
expect_same "$out" "$scratch/text"

# the least cache runs, with a warning that says what would help
run run "$demo" -p "Once upon a time" -n 64 --temp 0 --expert-cache 0
expect_same "$out" "$scratch/text"
expect_glob "$err" "moeflux: warning: *"
finish
