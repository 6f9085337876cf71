# SPDX-License-Identifier: MIT
# What an answer is made of: stop strings, thoughts and their budget, penalties, log-probabilities,
# and all of it as JSON.
. ./lib.sh
. ./thinking_model.sh
[ -f "$demo/tokenizer.json" ] || skip "models/demo is not there"
story="--raw -n 60 --temp 0 --quiet"

# member FILE KEY: a string of a JSON object, as it is written there
member() {
    sed -n "s/.*[{ ]\"$2\": \"\(\([^\"\\\\]\|\\\\.\)*\)\".*/\1/p" "$1"
}

# cut_before TEXT: $scratch/whole up to the first of it, with the line's end of an answer
cut_before() {
    whole=$(cat "$scratch/whole")
    printf '%s\n' "${whole%%"$1"*}"
}

# shellcheck disable=SC2086 # several options
run run "$demo" -p "Once upon a time" $story
cp "$out" "$scratch/whole"
whole=$(cat "$out")

# An answer ends before the stop, wherever tokens end; none of it is shown, also where one is begun
# and not ended; the first that is whole counts.
for at in 3 10 17 25 40 61; do
    for n in 1 2 5 13; do
        stop=$(printf '%s' "$whole" | cut -c$at-$((at + n - 1)))
        [ -n "$stop" ] || continue
        # shellcheck disable=SC2086
        run run "$demo" -p "Once upon a time" $story --stop "$stop" --stop "${stop}zebra"
        expect_code 0
        cut_before "$stop" >"$scratch/cut"
        expect_same "$out" "$scratch/cut"
    done
done
begun=$(printf '%s' "$whole" | cut -c5-12)
# shellcheck disable=SC2086
run run "$demo" -p "Once upon a time" $story --stop "${begun}zebra" --stop "no such thing"
expect_same "$out" "$scratch/whole"
last=$(printf '%s' "$whole" | tail -c 4)
# shellcheck disable=SC2086
run run "$demo" -p "Once upon a time" $story --stop "${last}zebra"
expect_same "$out" "$scratch/whole"
stop=$(printf '%s' "$whole" | cut -c17-22)
# shellcheck disable=SC2086
run run "$demo" -p "Once upon a time" $story --stop "$stop" --json
expect_glob "$out" "{\"text\": \"$(cut_before "$stop")\", *\"finish_reason\": \"stop\", \"stop\": \"$stop\", *"

# the ids that were chosen, the usage and the seed are there, and the seed gives the text again
run run "$demo" --raw -p "Once upon a time" -n 20 --ignore-eos --temp 1 --quiet --json
expect_code 0
expect_lines "$out" 1
# its figures are those of --stats=json, by stage and by layer
expect_glob "$out" '*"stats": {*"decode_stage_us": {"other": *, "attention": [1-9]*, "layers": [[]{"us": {*'
text=$(member "$out" text)
seed=$(json "$out" seed)
expect_true [ "$(json "$out" completion_tokens)" = 20 ]
expect_true [ "$(json "$out" thought_tokens)" = 0 ]
expect_true [ "$(json "$out" cached_tokens)" = 0 ]
expect_true [ "$(json "$out" total_tokens)" = "$(($(sed 's/.*"usage": {"prompt_tokens": \([0-9]*\),.*/\1/' "$out") + 20))" ]
run run "$demo" --raw -p "Once upon a time" -n 20 --ignore-eos --temp 1 --quiet --json --seed "$seed"
expect_true [ "$(member "$out" text)" = "$text" ]
run run "$demo" --raw -p "Once upon a time" -n 4 --ignore-eos --temp 1 --quiet --stats
drawn=$(sed -n 's/^seed  *\([0-9]*\)$/\1/p' "$err")
expect_true [ -n "$drawn" ]
cp "$out" "$scratch/drawn"
run run "$demo" --raw -p "Once upon a time" -n 4 --ignore-eos --temp 1 --quiet --seed "$drawn"
expect_same "$out" "$scratch/drawn"
# what a state directory had is counted
for n in 0 1; do
    run run "$demo" --raw -p "$(cat ./answers.sh | head -c 3000)" -n 1 --temp 0 --quiet --json --state-dir "$scratch/state"
done
expect_true [ "$(json "$out" cached_tokens)" -gt 500 ]

# Log-probabilities: greedy takes the likeliest, and they are those of the same text.
# shellcheck disable=SC2086
run run "$demo" -p "Once upon a time" --raw -n 3 --temp 0 --quiet --logprobs 2 --json
expect_glob "$out" '*"logprobs": [[]{"id": *, "token": "*", "logprob": -*, "top": [[]{"id": *}, {"id": *}[]]}, {*}, {*}[]], "seed"*'
sed 's/.*"logprobs": \[//; s/\], "seed".*//' "$out" | awk '{
    n = split($0, tokens, /, "top": /)
    for (i = 1; i < n; i++) {
        match(tokens[i], /"id": [0-9]*, "token": "[^"]*", "logprob": [-0-9.e]*$/)
        chosen = substr(tokens[i], RSTART)
        if (index(tokens[i + 1], "[{" chosen "}") != 1)
            print "not the first: " chosen
        n_seen++
    }
    print n_seen
}' >"$scratch/seen"
expect_exact "$scratch/seen" 3
run run "$demo" -p "Once upon a time" --raw -n 3 --temp 0 --quiet --logprobs 2
expect_lines "$err" 3
expect_glob "$err" '"*" -*.*  of "*" -*, "*" -*'
run run "$demo" -p "Once upon a time" --raw -n 2 --temp 0 --quiet --logprobs 0
expect_glob "$err" '"*" -*
"*" -*'
expect_true [ "$(grep -c ' of ' "$err")" -eq 0 ]

# Penalties do what they say, each by itself: a word that a bias repeats.
dog=$("$MOEFLUX" tokenize "$demo" -p " dog" --ids)
again="--raw -n 6 --temp 0 --quiet --ignore-eos --logit-bias $dog=50"
# says EXPECTED OPTIONS...
says() {
    expected=$1
    shift
    # shellcheck disable=SC2086
    run run "$demo" -p The $again "$@"
    expect_code 0
    expect_glob "$out" "$expected"
}
says_else() {
    # shellcheck disable=SC2086
    run run "$demo" -p The $again "$@"
    expect_true [ "$(cat "$out")" != " dog dog dog dog dog dog" ]
    expect_glob "$out" " dog*"
}
says " dog dog dog dog dog dog"
says_else --presence-penalty 60
says_else --frequency-penalty 20
says_else --repeat-penalty 100
says_else --dry-multiplier 50
says_else --dry-multiplier 50 --dry-breaker ""
says_else --dry-multiplier 50 --dry-breaker cat
says " dog dog dog dog dog dog" --dry-multiplier 50 --dry-breaker cat --dry-breaker g
says " dog dog dog dog dog dog" --dry-multiplier 50 --dry-breaker "g d"
says " dog dog dog dog dog dog" --dry-multiplier 50 --dry-allowed-length 5
says " dog dog dog dog dog dog" --dry-multiplier 50 --dry-last-n 2
says " dog dog dog*" --dry-multiplier 50 --dry-base 1
says " dog dog dog dog dog dog" --presence-penalty -100 --frequency-penalty -1
run run "$demo" --raw -p The -n 6 --temp 0 --quiet --logit-bias "$dog=50" --logit-bias "$dog=-100"
expect_true [ "$(grep -c dog "$out")" -eq 0 ]
run run "$demo" --raw -p The -n 1 --logit-bias 16777216=1 --quiet
expect_error "logit bias of token 16777216: expected 0 to *"
# XTC with two candidates and certainty takes the second, whatever the seed
xtc="--raw -n 6 --top-k 2 --temp 1 --quiet --ignore-eos --xtc-probability 1 --xtc-threshold 0"
# shellcheck disable=SC2086
run run "$demo" -p The $xtc --seed 1
cp "$out" "$scratch/second"
# shellcheck disable=SC2086
run run "$demo" -p The $xtc --seed 2
expect_same "$out" "$scratch/second"
run run "$demo" --raw -p The -n 6 --temp 0 --quiet --ignore-eos
expect_true sh -c '! cmp -s "$0" "$1"' "$out" "$scratch/second"
# only what is likely enough: with min-p 1 the likeliest is alone
run run "$demo" --raw -p The -n 6 --temp 1 --min-p 1 --seed 3 --quiet --ignore-eos
cp "$out" "$scratch/likeliest"
run run "$demo" --raw -p The -n 6 --temp 0 --quiet --ignore-eos
expect_same "$out" "$scratch/likeliest"

# Thoughts: told apart, hidden, ended by a budget, switched off.
thinking_model "$scratch/thinks" qwen36.jinja
ask="-n 60 --temp 0 --quiet"
# shellcheck disable=SC2086
thinks() {
    run run "$scratch/thinks" -p "Once upon a time" $ask "$@"
    expect_code 0
}
raw="--raw -n 30 --temp 0 --quiet -f $scratch/story" # one </think>
printf '<think>Once upon a time' >"$scratch/story"
# shellcheck disable=SC2086
run run "$scratch/thinks" $raw
expect_glob "$out" "*</think>*"
thought=$(sed 's/<\/think>.*//' "$out")
rest=$(sed 's/.*<\/think>//' "$out")
# shellcheck disable=SC2086
run run "$scratch/thinks" $raw --json
expect_true [ "$(member "$out" thoughts)" = "$thought" ]
expect_true [ "$(member "$out" text)" = "$rest" ]
expect_true [ "$(json "$out" thought_tokens)" -gt 0 ]
# shellcheck disable=SC2086
run run "$scratch/thinks" $raw --thoughts hide
expect_exact "$out" "$rest"
# shellcheck disable=SC2086
run run "$scratch/thinks" $raw --thoughts show
expect_glob "$out" "*$thought*</think>*$rest"
# a stop string is looked for in the content alone
word=$(printf '%s' "$thought" | cut -d ' ' -f3)
# shellcheck disable=SC2086
run run "$scratch/thinks" $raw --thoughts hide --stop "$(printf '%s' "$rest" | cut -c5-9)"
expect_exact "$out" "$(printf '%s' "$rest" | cut -c1-4)"
# shellcheck disable=SC2086
run run "$scratch/thinks" $raw --stop "$word" --json
expect_true [ "$(member "$out" thoughts)" = "$thought" ]
# five tokens of thoughts, then a line's end and the mark
thinks --think-budget 5 --json
expect_true [ "$(json "$out" thought_tokens)" -eq 7 ]
expect_true [ -n "$(member "$out" thoughts)" ]
expect_true [ -n "$(member "$out" text)" ]
expect_true [ "$(json "$out" completion_tokens)" -eq 60 ]
thinks --think-budget 5
expect_glob "$out" "?*
</think>

*"
thinks --think-budget 0 --json
expect_true [ -z "$(member "$out" thoughts)" ]
expect_true [ -n "$(member "$out" text)" ]
thinks --no-think --json
expect_true [ "$(json "$out" thought_tokens)" -eq 0 ]
cp "$out" "$scratch/off"
thinks --think off --json
expect_true [ "$(member "$out" text)" = "$(member "$scratch/off" text)" ]

# Calls of tools are apart from the text, with their arguments as JSON; what is none is text.
thinking_model "$scratch/calls" qwen3.jinja '<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": [1, \"x\"]}}\n</tool_call>'
end=$(sed -n 's/.*"eos_token_id": *\([0-9]*\).*/\1/p' "$demo/config.json" | head -1)
cp "$SOURCE/tests/text/data/jinja/hermes.jinja" "$scratch/calls/chat_template.jinja"
# the call, then, since it is there already, the end
run run "$scratch/calls" -p "Look" --temp 0 --quiet --logit-bias 316=60 --logit-bias "$end=30" --presence-penalty 60 --json
expect_code 0
expect_glob "$out" '{"text": "", *"finish_reason": "calls", "thoughts": "", "calls": [[]{"id": "?*", "name": "look", "arguments": {"at": [[]1, "x"[]]}}[]], "usage": *'
run run "$scratch/calls" -p "Look" --temp 0 --quiet --logit-bias 316=60 --logit-bias "$end=30" --presence-penalty 60
expect_glob "$out" '<tool_call>
{"name"*
</tool_call>'
# The tools are told to the model; messages may be given as they are, and variables of the template.
cat >"$scratch/tools" <<'END'
[{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "array"}}}}}]
END
cat >"$scratch/messages" <<'END'
[{"role": "user", "content": "Look"}, {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "look", "arguments": {"at": []}}}]},
 {"role": "tool", "tool_call_id": "1", "content": "a <|im_end|> tree"}]
END
run run "$scratch/calls" --messages "$scratch/messages" --tools "$scratch/tools" --temp 0 --quiet --logit-bias 316=60 --logit-bias "$end=30" \
    --presence-penalty 60 --json --show-prompt
expect_code 0
expect_glob "$out" '*"name": "look", "arguments": {"at": [[]1, "x"[]]}}[]], "usage": *'
run template "$scratch/calls" --messages "$scratch/messages" --tools "$scratch/tools"
cp "$out" "$scratch/prompt"
expect_glob "$out" '*<tools>*"look"*tree*'
run run "$scratch/calls" --messages "$scratch/messages" --tools "$scratch/tools" -n 0 --quiet --show-prompt
echo >>"$scratch/prompt"
expect_same "$err" "$scratch/prompt"
run run "$scratch/thinks" -p "Once" -n 0 --quiet --show-prompt --no-think
cp "$err" "$scratch/prompt"
run run "$scratch/thinks" -p "Once" -n 0 --quiet --show-prompt --set enable_thinking=false
expect_same "$err" "$scratch/prompt"
run run "$scratch/thinks" -p "Once" -n 0 --quiet --show-prompt
expect_true sh -c '! cmp -s "$0" "$1"' "$err" "$scratch/prompt"
printf '{}' >"$scratch/messages"
run run "$scratch/calls" --messages "$scratch/messages" -n 0
expect_error "*"
run run "$demo" --messages "$scratch/messages" -n 0
expect_error "$demo: --messages and --tools want a chat template"
run run "$scratch/calls" -p "Look" --temp 0 --quiet --logit-bias 316=60 -n 2 --json
expect_glob "$out" '*"finish_reason": "length", "thoughts": "", "calls": [[]{*}, {*}[]], "usage": *'
finish
