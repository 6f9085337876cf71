# SPDX-License-Identifier: MIT
# moeflux run: lengths, seeds, JSON, the prompt shown, statistics, the context's end.
. ./lib.sh
random_model

run run "$model" --raw -p "Hello there" -n 0 --quiet
expect_code 0
expect_exact "$out" ""
run run "$model" --raw -p "" -n 4
expect_error "$model: the prompt is empty"

# what a model without a template makes no use of is said, in a chat as well
if has_model "$demo"; then
    for words in '-p x' ''; do
        # shellcheck disable=SC2086 # an option and its value, or none
        run run "$demo" $words -n 1 --temp 0 --system Be. --set a=1 --no-think
        expect_code 0
        for option in --system --set --think; do
            expect_glob "$err" "*moeflux: warning: $option is not used: the model has no chat template*"
        done
        # shellcheck disable=SC2086
        run run "$demo" $words -n 1 --temp 0 --quiet
        expect_empty "$err"
    done
fi

# a seed says it all
run run "$model" --raw -p "Hello there" -n 24 --seed 5 --temp 1 --ignore-eos --quiet
expect_code 0
cp "$out" "$scratch/seed5"
run run "$model" --raw -p "Hello there" -n 24 --seed 5 --temp 1 --ignore-eos --quiet --threads 1
expect_same "$out" "$scratch/seed5"
run run "$model" --raw -p "Hello there" -n 24 --seed 6 --temp 1 --ignore-eos --quiet
expect_true sh -c '! cmp -s "$0" "$1"' "$out" "$scratch/seed5"
run run "$model" --raw -p "Hello there" -n 24 --seed 6 --top-k 1 --temp 1 --ignore-eos --quiet
cp "$out" "$scratch/greedy"
run run "$model" --raw -p "Hello there" -n 24 --temp 0 --ignore-eos --quiet
expect_same "$out" "$scratch/greedy"

# without a seed another one each time, which is said and says it all too
sampled="--raw -n 24 --temp 1 --ignore-eos"
# shellcheck disable=SC2086 # several options
run run "$model" -p "Hello there" $sampled --stats=json:"$scratch/stats"
expect_code 0
cp "$out" "$scratch/drawn"
seed=$(sed -n 's/^moeflux: seed \([0-9]*\)$/\1/p' "$err")
expect_true [ -n "$seed" ]
expect_true [ "$(json "$scratch/stats" seed)" = "$seed" ]
# shellcheck disable=SC2086 # several options
run run "$model" -p "Hello there" $sampled --seed "$seed"
expect_same "$out" "$scratch/drawn"
expect_empty "$err"
# shellcheck disable=SC2086 # several options
run run "$model" -p "Hello there" $sampled --quiet --stats=json
expect_lines "$err" 1
expect_true [ "$(json "$err" seed)" != "$seed" ]
run run "$model" --raw -p "Hello there" -n 4 --temp 0 --seed 7 --stats=json
expect_lines "$err" 1
expect_true [ "$(json "$err" seed)" = null ]

# one JSON object: the text that is written without it, and its ids
# shellcheck disable=SC2086 # several options
run run "$demo" -p "Hello there" $sampled --seed 5 --quiet
cp "$out" "$scratch/plain"
# shellcheck disable=SC2086
run run "$demo" -p "Hello there" $sampled --seed 5 --json --verbose
expect_code 0
expect_lines "$out" 1
expect_glob "$out" '{"text": "*", "tokens": [[]*[]], "finish_reason": "length", "thoughts": "", "calls": [[][]], "usage": {"prompt_tokens": *}, "seed": 5, "stats": {"prefill_tokens": *}}'
expect_true [ "$(json "$out" generated_tokens)" = 24 ]
ids=$(sed 's/.*"tokens": \[\([0-9, ]*\)\], "finish.*/\1/' "$out")
text=$(sed 's/, "tokens": \[.*/}/' "$out")
run tokenize "$demo" --decode -p "$ids"
echo >>"$out"
expect_same "$out" "$scratch/plain"
run tokenize "$demo" --decode --json -p "$ids"
expect_exact "$out" "$text"
expect_true [ "$(echo "$ids" | wc -w)" = 24 ]
run run "$model" --raw -p "Hello there" -n 0 --temp 0 --json
expect_empty "$err"
expect_glob "$out" '{"text": "", "tokens": [[][]], "finish_reason": "length", "thoughts": "", "calls": [[][]], "usage": {*}, "seed": null, "stats": {*}}'
run run "$model" --raw -p "Hello there" -n 64 --temp 0 --ignore-eos --ctx 8 --json --quiet --stats=json:"$scratch/stats"
expect_glob "$out" '*"finish_reason": "context"*'
expect_true [ "$(json "$scratch/stats" tokens)" = 8 ]
run run "$model" --raw -p "" --json
expect_error "$model: the prompt is empty"
run run "$model" --json
expect_usage_error "run: --json wants a prompt: -p, -f or --messages"

# the prompt as the model gets it
printf 'Hello\033[1m there' >"$scratch/escape"
run run "$model" --raw -f "$scratch/escape" -n 0 --show-prompt --temp 0 --quiet
expect_code 0
printf '\n' >>"$scratch/escape"
expect_same "$err" "$scratch/escape"

# statistics
run run "$model" --raw -p "Hello there" -n 8 --temp 0 --ignore-eos --quiet --stats=json
expect_code 0
expect_lines "$err" 1
expect_glob "$err" "{*}"
expect_true [ "$(json "$err" generated_tokens)" = 8 ]
expect_true [ "$(json "$err" decode_tokens)" = 7 ]
for key in prefill_tokens_per_s decode_tokens_per_s expert_hits expert_misses hit_rate expert_host_hits upload_bytes read_bytes \
    read_bytes_per_token wait_us wait_us_per_token peak_rss_bytes ram_bytes; do
    expect_true at_most 0 "$(json "$err" $key)"
done
n_tokens=$(($(json "$err" prefill_tokens) + 7))
expect_true [ "$(json "$err" tokens)" = "$n_tokens" ]
run run "$model" --raw -p "Hello there" -n 8 --temp 0 --ignore-eos --quiet --stats
expect_glob "$err" "*prompt*answer*total*tokens/s*hit rate*peak memory*"

# how long a long prompt would take was known beforehand
run run "$SOURCE/models/demo" -p "$(head -c 1200 "$SOURCE/models/demo/heldout.txt")" -n 1 --temp 0 --quiet --stats
expect_glob "$err" "*announced * s, took * s*"
run run "$SOURCE/models/demo" -p "Once" -n 1 --temp 0 --quiet --stats=json
expect_true [ "$(json "$err" prefill_announced_seconds)" = 0 ]

# the phases add up, rates are those of their figures, and the table has the same ones
how="--raw -n 8 --temp 0 --ignore-eos --quiet --predict off --prefill-chunk 2 --ram 1G"
# shellcheck disable=SC2086
run run "$model" -p "Hello there, what is this?" $how --stats=json
cat >"$scratch/figures.awk" <<'END'
function is_near(what, got, expected) {
    n_seen++
    if (got == "" || got - expected > 1e-3 * expected || expected - got > 1e-3 * expected)
        print what ": " got ", expected " expected
}
{
    gsub(/[{}]/, "")
    n = split($0, members, ", ")
    for (i = 1; i <= n; i++) {
        at = index(members[i], ": ")
        key = substr(members[i], 2, at - 3)
        v[key] = substr(members[i], at + 2)
    }
}
END {
    n = split("tokens seconds expert_hits expert_misses reads read_bytes wait_us reading_us", sums, " ")
    for (i = 1; i <= n; i++)
        is_near(sums[i], v[sums[i]], v["prefill_" sums[i]] + v["decode_" sums[i]])
    n = split("prefill_ decode_ -", phases, " ")
    for (i = 1; i <= n; i++) {
        p = phases[i] == "-" ? "" : phases[i]
        is_near(p "tokens_per_s", v[p "tokens_per_s"], v[p "tokens"] / v[p "seconds"])
        is_near(p "hit_rate", v[p "hit_rate"],
                v[p "expert_hits"] / (v[p "expert_hits"] + v[p "expert_misses"]))
        is_near(p "read_bytes_per_token", v[p "read_bytes_per_token"],
                v[p "read_bytes"] / v[p "tokens"])
        is_near(p "wait_us_per_token", v[p "wait_us_per_token"], v[p "wait_us"] / v[p "tokens"])
    }
    n_bytes = v["prefill_weight_bytes_per_token"] * v["prefill_tokens"]
    n_bytes += v["decode_weight_bytes_per_token"] * v["decode_tokens"]
    is_near("weight_bytes_per_token", v["weight_bytes_per_token"] * v["tokens"], n_bytes)
    is_near("decode requests", v["decode_expert_hits"] + v["decode_expert_misses"], 7 * 16)
    is_near("prefill tokens", v["prefill_tokens"], v["prompt_tokens"])
    print n_seen
}
END
awk -f "$scratch/figures.awk" "$err" >"$scratch/figures"
expect_exact "$scratch/figures" 23
cp "$err" "$scratch/stats"
# shellcheck disable=SC2086
run run "$model" -p "Hello there, what is this?" $how --stats
for row in "tokens evaluated:tokens" "expert hits:expert_hits" "expert misses:expert_misses"; do
    key=${row#*:}
    expect_true [ "$(sed -n "s/^${row%:*}  *//p" "$err" | tr -s ' ')" = "$(json "$scratch/stats" \
        "prefill_$key") $(json "$scratch/stats" "decode_$key") $(json "$scratch/stats" "$key")" ]
done
expect_glob "$err" "*
prompts *$(json "$scratch/stats" prompt_tokens) tokens, 0 reused, $(json "$scratch/stats" prompt_tokens) new
generated * 8 tokens
experts a token * 4 (the model's own: 4)
expert slots * $(json "$scratch/stats" n_slots) of *
peak memory * of a budget of 1.00 GiB"

# by themselves in a file, whatever else is said on standard error
run run "$model" --raw -p "Hello there" -n 8 --temp 0 --ignore-eos --verbose --stats=json:"$scratch/stats"
expect_code 0
expect_lines "$scratch/stats" 1
expect_glob "$scratch/stats" "{*}"
expect_true [ "$(json "$scratch/stats" generated_tokens)" = 8 ]
expect_true [ -z "$(json "$err" generated_tokens)" ]
run run "$model" --raw -p "Hello there" -n 1 --quiet --stats=json:"$scratch/none/stats"
expect_code 1
expect_glob "$err" "moeflux: $scratch/none/stats: cannot open: *"
# a prompt's text is bounded by the context, to the byte: 1 MiB and 32 bytes a token
head -c 1050624 /dev/zero | tr '\0' 'a' >"$scratch/long"
run run "$model" --raw -f "$scratch/long" -n 1 --ctx 64 --quiet
expect_error "*the context holds 64*"
printf 'a' >>"$scratch/long"
run run "$model" --raw -f "$scratch/long" -n 1 --ctx 64 --quiet
expect_error "*a text of more than 1050624 bytes, the most that is taken here*"
if [ -c /dev/full ]; then
    run run "$model" --raw -p "Hello there" -n 1 --quiet --stats=json:/dev/full
    expect_code 1
    expect_glob "$err" "moeflux: /dev/full: cannot write: *"
fi
run run "$model" --stats=json:
expect_usage_error "--stats: 'json:' is not layers, json or json:FILE"

# one request an expert of a layer and step: 4 layers, 4 experts
run run "$model" --raw -p "Hello there" -n 8 --temp 0 --ignore-eos --quiet --stats=json --prefill-chunk 1
expect_true [ "$(($(json "$err" expert_hits) + $(json "$err" expert_misses)))" = "$((16 * n_tokens))" ]
run run "$model" --raw -p "Hello there" -n 8 --temp 0 --ignore-eos --quiet --stats=json --prefill-chunk 1 --experts-per-token 2
expect_true [ "$(($(json "$err" expert_hits) + $(json "$err" expert_misses)))" = "$((8 * n_tokens))" ]
expect_true [ "$(json "$err" experts_per_token)/$(json "$err" experts_per_token_model)" = 2/4 ]
run run "$model" --raw -p "Hello there" -n 2 --experts-per-token 3 --quiet --stats
expect_glob "$err" "*experts a token *3 (the model's own: 4)*"

# the context's end
run run "$model" --raw -p "Hello there" -n 64 --temp 0 --ignore-eos --ctx "$n_tokens" --stats=json
expect_code 0
expect_glob "$err" "*moeflux: warning: *context is full*"
expect_true [ "$(json "$err" tokens)" = "$n_tokens" ]

# plain text begins with the token that tokenizer_config.json wants in front, once
special=$(sed -n 's/.*"eos_token" *: *"\([^"]*\)".*/\1/p' "$model/tokenizer_config.json")
expect_true [ -n "$special" ]
prompt_tokens() {
    run run "$model" --raw -p "$1" -n 1 --temp 0 --ignore-eos --quiet --stats=json
    json "$err" prefill_tokens
}
before=$(prompt_tokens "Hello there")
named=$(prompt_tokens "${special}Hello there")
sed '/"bos_token"/d; /"add_bos_token"/d' "$model/tokenizer_config.json" >"$scratch/config"
sed '1s/{/{"add_bos_token": true, "bos_token": "'"$special"'",/' "$scratch/config" >"$model/tokenizer_config.json"
expect_true [ "$(prompt_tokens "Hello there")" = "$((before + 1))" ]
expect_true [ "$(prompt_tokens "${special}Hello there")" = "$named" ]
cp "$scratch/config" "$model/tokenizer_config.json"

run run "$model" --raw -p x -n 1 --experts-per-token 17
expect_error "*"
run run "$model" --raw -p x -n 2 --verbose
expect_code 0

# where figures cannot be written is known before the model is looked at
run run "$scratch/none" -p x --stats=json:"$scratch/no/stats"
expect_error "$scratch/no/stats: cannot open: No such file or directory"
run run "$scratch/none" -p x --stats=json:"$scratch"
expect_error "$scratch: cannot open: Is a directory"
finish
