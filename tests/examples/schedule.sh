# SPDX-License-Identifier: MIT
# schedule.c: requests that come one after the other and are evaluated together get what each gets
# alone, from generate.c.
. ../cli/lib.sh
: "${EXAMPLES:=$SOURCE/build/examples}"
has_model "$demo" || skip "models/demo is not there"

# example ARGUMENTS...
example() {
    last="schedule $*"
    "$EXAMPLES/schedule" "$@" >"$out" 2>"$err"
    code=$?
}

first="Once upon a time" second="The sea was" third="The old woman said to the fox and to the geese"
i=0
for prompt in "$first" "$second" "$third"; do
    i=$((i + 1))
    "$EXAMPLES/generate" "$demo" "$prompt" 32 >"$scratch/text" 2>"$err" || fail "generate"
    (printf '[%s]' $i && cat "$scratch/text") >>"$scratch/expected"
done
example "$demo" 32 "$first" "$second" "$third"
expect_code 0
expect_empty "$err"
expect_same "$out" "$scratch/expected"

# an answer that ends within a character
"$EXAMPLES/generate" "$demo" "the sea —" 3 >"$scratch/text" 2>"$err" || fail "generate"
(printf '[1]' && cat "$scratch/text") >"$scratch/expected"
example "$demo" 3 "the sea —"
expect_code 0
expect_same "$out" "$scratch/expected"

# more requests than there are places: whoever is left over comes in when one has gone
set --
while [ $# -lt 20 ]; do
    set -- "$@" "$first"
done
example "$demo" 8 "$@"
expect_code 0
expect_true [ "$(grep -c '^\[[0-9]*\]' "$out")" -eq 20 ]
expect_true [ "$(sed 's/^\[[0-9]*\]/[]/' "$out" | awk '/^\[\]/ { n++ } { t[n] = t[n] $0 } END { for (i in t) print t[i] }' | sort -u | wc -l)" -eq 1 ]

example "$demo" 8
expect_code 2
example "$scratch/nowhere" 8 x
expect_code 1
expect_glob "$err" "schedule: *nowhere*(not found)"
finish
