# SPDX-License-Identifier: MIT
# generate.c writes what `moeflux run` writes: the same sampling, the same tokens.
. ../cli/lib.sh
: "${EXAMPLES:=$SOURCE/build/examples}"
has_model "$demo" || skip "models/demo is not there"

# example ARGUMENTS...
example() {
    last="generate $*"
    "$EXAMPLES/generate" "$@" >"$out" 2>"$err"
    code=$?
}

for prompt in "Once upon a time" "The sea was"; do
    run run "$demo" -p "$prompt" -n 48 --seed 0 --quiet
    expect_code 0
    cp "$out" "$scratch/text"
    example "$demo" "$prompt" 48
    expect_code 0
    expect_empty "$err"
    expect_same "$out" "$scratch/text"
done
expect_true [ "$(wc -w <"$scratch/text")" -ge 12 ]

example "$demo" "" 48
expect_code 2
example "$scratch/nowhere" "x" 48
expect_code 1
expect_empty "$out"
expect_glob "$err" "generate: *nowhere*(not found)"
finish
