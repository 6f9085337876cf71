# SPDX-License-Identifier: MIT
# next_token.c: the token that `moeflux run` writes first when it always takes the most likely.
. ../cli/lib.sh
: "${EXAMPLES:=$SOURCE/build/examples}"
has_model "$demo" || skip "models/demo is not there"

run run "$demo" --raw -p "Once upon a time" -n 1 --temp 0 --json
expect_code 0
token=$(sed 's/.*"tokens": \[\([0-9]*\)\].*/\1/' "$out")
run tokenize "$demo" -p "Once upon a time" --ids
last="next_token"
# shellcheck disable=SC2046 # an argument for each id
"$EXAMPLES/next_token" "$demo" $(cat "$out") >"$scratch/next" 2>"$err"
code=$?
expect_code 0
expect_empty "$err"
expect_exact "$scratch/next" "$token"
"$EXAMPLES/next_token" "$demo" 99999999 >"$out" 2>"$err"
code=$?
expect_code 1
expect_glob "$err" "next_token: *99999999*"
finish
