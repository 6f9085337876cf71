# SPDX-License-Identifier: MIT
# Thoughts and calls of all families' syntaxes in run and in the chat: told apart, shown in one form,
# hidden, ended by a budget, saved, and gone on with as if nothing had been between.
. ./lib.sh
. ./thinking_model.sh
[ -f "$demo/tokenizer.json" ] || skip "models/demo is not there"
export XDG_STATE_HOME="$scratch/state" HOME="$scratch"
chats=$scratch/state/moeflux/chats
end=$(sed -n 's/.*"eos_token_id": *\([0-9]*\).*/\1/p' "$demo/config.json" | head -1)
# what is said, then, since it is there already, the end
says="--temp 0 --quiet --logit-bias 316=60 --logit-bias $end=30 --presence-penalty 60"
cat >"$scratch/tools" <<'END'
[{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {"at": {"type": "string"}, "n": {"type": "integer"}}}}}]
END

# model TEMPLATE SAID: $scratch/model; SAID is what the model says, or begins with, as a JSON string
model() {
    rm -rf "$scratch/model"
    thinking_model "$scratch/model" qwen36.jinja "$2"
    cp "$SOURCE/tests/text/data/jinja/$1.jinja" "$scratch/model/chat_template.jinja"
    name=$1
}

# chat LINES OPTIONS...: lines with \n between
chat() {
    printf '%b' "$1" >"$scratch/lines"
    shift
    # shellcheck disable=SC2086
    run_with "$scratch/lines" run "$scratch/model" $says "$@"
}

# is_in FILE TEXT: on one line of it
is_in() {
    grep -qF -- "$2" "$1"
}

# thinks TEMPLATE OPEN CLOSE END [THINK]: an answer with a thought
thinks() {
    model "$1" "$2Hm, hm.$3It is green.$4"
    # shellcheck disable=SC2086
    run run "$scratch/model" -p Look $says --think "${5:-on}" --json
    expect_code 0
    expect_glob "$out" '{"text": "It is green.", *"finish_reason": "end", "thoughts": "Hm, hm.", "calls": [[][]], "usage"*'
    # shellcheck disable=SC2086
    run run "$scratch/model" -p Look $says --think "${5:-on}" --thoughts hide
    expect_exact "$out" "It is green."
    chat 'Look\n/save green\n' --think "${5:-on}"
    expect_code 0
    expect_glob "$out" "*Hm, hm.
</think>

It is green."
    expect_true is_in "$chats/green.json" '{"role": "assistant", "reasoning_content": "Hm, hm.", "content": "It is green."}'
    goes_on "${5:-on}"
}

# calls TEMPLATE SAID: a call with the arguments that all have here
calls() {
    model "$1" "$2"
    # shellcheck disable=SC2086
    run run "$scratch/model" -p Look $says --tools "$scratch/tools" --think off --json
    expect_code 0
    expect_glob "$out" '{"text": "", *"finish_reason": "calls", "thoughts": "", "calls": [[]{"id": "?*", "name": "look", "arguments": {"at":*"a tree",*"n":*3}}[]], "usage"*'
    # shellcheck disable=SC2086
    run run "$scratch/model" -p Look $says --tools "$scratch/tools" --think off
    expect_glob "$out" '<tool_call>
{"name": "look", "arguments": {"at":*"a tree",*"n":*3}}
</tool_call>'
    chat 'Look\n/save green\n' --think off --tools "$scratch/tools"
    expect_glob "$out" '<tool_call>
{"name": "look", "arguments": {"at":*"a tree",*"n":*3}}
</tool_call>'
    expect_true is_in "$chats/green.json" '"content": null, "tool_calls": [{"id": "'
    expect_true is_in "$chats/green.json" '"function": {"name": "look", "arguments": "{\"at\"'
    # as clients send it back: arguments as text are the object that the template wants
    cp "$chats/green.json" "$scratch/sent.json"
    sed '$d' "$scratch/sent.json" | sed '$s/$/,/' >"$scratch/asked.json"
    id=$(sed -n 's/.*"tool_calls": \[{"id": "\([^"]*\)".*/\1/p' "$scratch/sent.json" | head -1)
    echo "{\"role\": \"tool\", \"tool_call_id\": \"$id\", \"name\": \"look\", \"content\": \"Green.\"}]" >>"$scratch/asked.json"
    run run "$scratch/model" --messages "$scratch/asked.json" --tools "$scratch/tools" --think off -n 0 --quiet --show-prompt
    expect_code 0
    expect_true is_in "$err" "Green."
    sed 's/"arguments": "\({.*}\)"}}\]/"arguments": \1}}]/; s/\\"/"/g' "$scratch/asked.json" >"$scratch/objects.json"
    cp "$err" "$scratch/prompt"
    run run "$scratch/model" --messages "$scratch/objects.json" --tools "$scratch/tools" --think off -n 0 --quiet --show-prompt
    expect_same "$err" "$scratch/prompt"
    # the result goes back as the call's, in the form that clients use, and the model goes on
    chat '/result No.\nLook\n/save green\n/result It is green.\n' --think off --tools "$scratch/tools" --show-prompt
    expect_code 0
    expect_true is_in "$err" "It is green."
    expect_true is_in "$err" "No call of the model waits for a result."
    id=$(sed -n 's/.*"tool_calls": \[{"id": "\([^"]*\)".*/\1/p' "$chats/green.json" | head -1)
    expect_true is_in "$chats/green.json" "{\"role\": \"tool\", \"content\": \"It is green.\", \"tool_call_id\": \"$id\", \"name\": \"look\"}"
    grep -v '^(saved\|^No call' "$err" >"$scratch/prompts"
    sed '/"role": "tool"/,$d' "$chats/green.json" | sed '$s/,$//' >"$scratch/called.json"
    echo ']' >>"$scratch/called.json"
    cp "$scratch/called.json" "$chats/green.json"
    chat '/result It is green.\n' --think off --tools "$scratch/tools" --show-prompt --resume green
    grep -v '^(green: ' "$err" >"$scratch/prompt"
    tail -c "$(wc -c <"$scratch/prompt")" "$scratch/prompts" >"$scratch/last"
    expect_same "$scratch/prompt" "$scratch/last"
}

# goes_on THINK: the next turn's prompt is the same in another chat, and as clients would ask for it
goes_on() {
    cp "$chats/green.json" "$scratch/before.json"
    chat 'Look\nAnd now?\n' --think "$1" --show-prompt
    expect_true is_in "$err" "And now?"
    cp "$err" "$scratch/prompts"
    chat 'And now?\n' --think "$1" --show-prompt --resume green
    expect_code 0
    grep -v '^(green: ' "$err" >"$scratch/prompt"
    tail -c "$(wc -c <"$scratch/prompt")" "$scratch/prompts" >"$scratch/last"
    expect_same "$scratch/prompt" "$scratch/last"
    cp "$scratch/before.json" "$chats/green.json"
    chat '/save\n' --resume green
    expect_same "$chats/green.json" "$scratch/before.json"
}

# budget TEMPLATE OPEN MARK: five tokens of thoughts and what ends them, then the answer
budget() {
    model "$1" "$2"
    opens="-n 40 --temp 0 --quiet --ignore-eos --logit-bias 316=60 --presence-penalty 60"
    # shellcheck disable=SC2086
    run run "$scratch/model" -p Look $opens --think on --think-budget 5 --json
    expect_code 0
    n=$(json "$out" thought_tokens)
    expect_true [ "$n" -ge 5 ]
    expect_true [ "$n" -lt 30 ]
    expect_glob "$out" '{"text": "?*", *"thoughts": "?*", "calls"*'
    # shellcheck disable=SC2086
    run run "$scratch/model" -p Look $opens --think on --think-budget 0 --json
    expect_glob "$out" '{"text": "?*", *"thoughts": "", "calls"*'
}

# A schema holds the content: behind the mark that content has, and a thought before that, or at once.
model harmony '<|channel|>'
schema='{"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 1}'
f=$("$MOEFLUX" tokenize "$demo" -p f --ids)
for bias in 60 -100; do
    run run "$scratch/model" -p Look --temp 0 --quiet --logit-bias "316=$bias" --logit-bias "$f=40" --presence-penalty 99 --json --json-schema "$schema"
    expect_code 0
    n=$(grep -c '"tokens": \[316, ' "$out")
    expect_true [ "$n" -eq $((bias > 0)) ]
    expect_true grep -q '^{"text": "\[[^a-z]*\(true\|false\)[^a-z]*\]", .*"thoughts": ""' "$out"
done

ds='<｜tool▁' us='▁'
thinks harmony '<|channel|>analysis<|message|>' '<|end|><|start|>assistant<|channel|>final<|message|>' '<|return|>'
thinks glm '\n<think>' '</think>\n' ''
thinks gemma4 '<|channel>thought\n' '\n<channel|>' ''
thinks minimax_m3 '' '</mm:think>' ''
thinks kimi_k3 '' '<|close|>think<|sep|><|open|>response<|sep|>' '<|close|>response<|sep|>'
thinks deepseek_v31 '' '</think>' ''
budget harmony '<|channel|>analysis<|message|>'
budget gemma4 '<|channel>thought\n'
budget kimi_k3 ''
calls harmony '<|channel|>commentary to=functions.look <|constrain|>json<|message|>{\"at\": \"a tree\", \"n\": 3}<|call|>'
calls deepseek_v31 "${ds}calls${us}begin｜>${ds}call${us}begin｜>look${ds}sep｜>{\\\"at\\\": \\\"a tree\\\", \\\"n\\\": 3}${ds}call${us}end｜>${ds}calls${us}end｜>"
calls glm '<tool_call>look\n<arg_key>at</arg_key>\n<arg_value>a tree</arg_value>\n<arg_key>n</arg_key>\n<arg_value>3</arg_value>\n</tool_call>'
calls gemma4 '<|tool_call>call:look{at:<|\"|>a tree<|\"|>,n:3}<tool_call|>'
calls mistral '[TOOL_CALLS] [{\"name\": \"look\", \"arguments\": {\"at\": \"a tree\", \"n\": 3}}]'
calls llama4 '<|python_start|>[look(at=\"a tree\", n=3)]<|python_end|>'
finish
