# SPDX-License-Identifier: MIT
# run --json-schema and --grammar: whatever the model says, it is what was asked for.
. ./lib.sh

schema='{"type":"object","properties":{"n":{"type":"integer","minimum":10,"maximum":99},
 "c":{"enum":["red","green"]}},"required":["n","c"],"additionalProperties":false}'
echo "$schema" >"$scratch/schema.json"
for seed in 1 2 3 4 5 6; do
    run run "$demo" -p hello -q --temp 3 -s $seed --json-schema "$schema"
    expect_code 0
    expect_empty "$err"
    tr -d ' \t\n' <"$out" >"$scratch/dense"
    expect_true grep -qE '^\{"n":[1-9][0-9],"c":"(red|green)"\}$' "$scratch/dense"
    mv "$out" "$scratch/inline"
    run run "$demo" -p hello -q --temp 3 -s $seed --json-schema "$scratch/schema.json"
    expect_same "$out" "$scratch/inline"
done

# greedy, with --ignore-eos, and an answer that the length cuts
run run "$demo" -p hello -q --temp 0 --ignore-eos --json-schema '{"const": "abc"}'
expect_exact "$out" '"abc"'
run run "$demo" -p hello -q --temp 0 -n 2 --json --json-schema '{"const": "a long constant, cut"}'
expect_glob "$out" '*"finish_reason": "length"*'
run run "$demo" -p hello -q --temp 0 --json --json-schema '{"const": 1}'
expect_glob "$out" '{"text": "1",*"finish_reason": "end"*'

printf 'root ::= ("yes" | "no") " " [a-f]{3,5} "!" # done\n' >"$scratch/g.gbnf"
for seed in 1 2 3; do
    run run "$demo" --raw -p hello -q --temp 2 -s $seed --grammar "$scratch/g.gbnf"
    expect_code 0
    expect_true grep -qxE '(yes|no) [a-f]{3,5}!' "$out"
done

# what a grammar leaves no choice about is evaluated together: the same text as one by one, which is
# how it goes with --logprobs
printf 'root ::= ("yes" | "no") "@#^~\\x01" [a-f]{3} "~^#@"\n' >"$scratch/forced.gbnf"
for seed in 1 2 3; do
    run run "$demo" --raw -p hello --temp 2 -s $seed --json --stats=json --grammar "$scratch/forced.gbnf"
    expect_code 0
    expect_true [ "$(json "$err" forced_tokens)" -gt 4 ]
    expect_true [ "$(json "$err" generated_tokens)" -gt "$(json "$err" forced_tokens)" ]
    sed 's/, "usage.*//' "$out" >"$scratch/together"
    run run "$demo" --raw -p hello --temp 2 -s $seed --json --stats=json --logprobs 0 --grammar "$scratch/forced.gbnf"
    expect_code 0
    expect_true [ "$(json "$err" forced_tokens)" = 0 ]
    sed 's/, "usage.*//; s/, "logprobs.*//' "$out" >"$scratch/alone"
    expect_same "$scratch/together" "$scratch/alone"
done
run run "$demo" --raw -p hello --temp 0 -n 4 --json --grammar "$scratch/forced.gbnf"
expect_glob "$out" '*"finish_reason": "length"*"completion_tokens": 4*'

run run "$demo" -p hello --json-schema '{"properties": {"a": {"not": {}}}}'
expect_error 'schema: #/properties/a: the keyword "not" is not supported'
run run "$demo" -p hello --json-schema '{"type":'
expect_error 'schema: not valid JSON*'
run run "$demo" -p hello --json-schema "$SOURCE/README.md"
expect_error "$SOURCE/README.md: schema: not valid JSON*"
run run "$demo" -p hello --json-schema "$scratch/none.json"
expect_error '*none.json: *'
printf 'root ::= "a" b\n' >"$scratch/bad.gbnf"
run run "$demo" -p hello --grammar "$scratch/bad.gbnf"
expect_error '*the rule b is used but not defined'
run run "$demo" -p hello --grammar a --json-schema '{}'
expect_usage_error 'run: --json-schema and --grammar exclude each other'
finish
