# SPDX-License-Identifier: MIT
# embed.cpp: requests on threads of their own get the text that each gets alone.
. ../cli/lib.sh
: "${EXAMPLES:=$SOURCE/build/examples}"
[ -x "$EXAMPLES/embed" ] || skip "embed is not built: no C++ compiler, or another's sanitizers"
has_model "$demo" || skip "models/demo is not there"

# example ARGUMENTS...
example() {
    last="embed $*"
    "$EXAMPLES/embed" "$@" >"$out" 2>"$err"
    code=$?
}

: >"$scratch/text"
for prompt in "Once upon a time" "The sea was" "Call me" "It is a truth"; do
    run run "$demo" -p "$prompt" -n 32 --seed 0 --quiet
    expect_code 0
    cat "$out" >>"$scratch/text"
done
example "$demo" 32 "Once upon a time" "The sea was" "Call me" "It is a truth"
expect_code 0
expect_empty "$err"
expect_same "$out" "$scratch/text"

example "$demo" 4 "" # which begins with nothing, not even a token
expect_code 1
expect_empty "$out"
expect_glob "$err" "embed: *no logits*"

example "$scratch/nowhere" 1 "x"
expect_code 1
expect_empty "$out"
expect_glob "$err" "embed: *nowhere*(not found)"
finish
