# SPDX-License-Identifier: MIT
# What the server is told of the template's variables and of thoughts, for clients that cannot say it:
# it holds where a request is silent, and gives way where it is not.
. ./lib_server.sh
thinking_model "$scratch/thinks" qwen36.jinja
for wrong in preserve_thinking '=1' 'a-b=1' 'x=' preserve_thinking=yes 'x={' 'x=1,"y":2'; do
    run serve "$scratch/thinks" --port 0 --set "$wrong"
    expect_usage_error "--set: '$wrong' is not NAME=JSON"
done
run serve "$scratch/thinks" --port 0 --set enable_thinking=1
expect_error "--set: enable_thinking and thinking are true or false"

messages='"messages":[{"role":"user","content":"Once upon a time"}]'
n_tokens() {
    post /v1/messages/count_tokens "{$messages$1}"
    expect_status 200
    n_tokens=$(value input_tokens)
}
start_server "$scratch/thinks" --no-think
post /apply-template "{$messages}"
expect_body '<think>\n\n</think>\n\n"}'
n_tokens ''
n_closed=$n_tokens
n_tokens ',"thinking":{"type":"adaptive"}'
expect_equal "$n_tokens" "$n_closed"
for on in '"chat_template_kwargs":{"enable_thinking":true}' '"reasoning_effort":"low"' '"thinking":{"type":"enabled"}'; do
    post /v1/chat/completions "{$messages,\"max_tokens\":4,\"seed\":3,$on}"
    expect_equal "$(value reasoning_tokens)" 4
done
post /v1/chat/completions "{$messages,\"max_tokens\":4,\"seed\":3}"
expect_equal "$(value reasoning_tokens)" 0
stop_server

# a budget: 5 tokens, a line's end and the mark; a request may have another
start_server "$scratch/thinks" --think-budget 5 --set enable_thinking=true
post /v1/chat/completions "{$messages,\"max_tokens\":60,\"seed\":3}"
expect_equal "$(value reasoning_tokens)" 7
post /v1/responses '{"input":"Once upon a time","max_output_tokens":60,"seed":3}'
expect_equal "$(value reasoning_tokens)" 7
post /v1/messages "{$messages,\"max_tokens\":60,\"seed\":3}"
expect_body '"content":[{"type":"thinking","thinking":"*","signature":"*"},{"type":"text","text":"'
post /v1/chat/completions "{$messages,\"max_tokens\":60,\"seed\":3,\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":3}}"
expect_equal "$(value reasoning_tokens)" 5
stop_server

# thoughts that stay: what was sampled is the next prompt's beginning, to the last token
turns() {
    history='{"role":"user","content":"Once upon a time"}' n_held=0
    for turn in 1 2 3; do
        post /v1/chat/completions "{\"messages\":[$history],\"max_tokens\":24,\"seed\":$turn,\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":4}$1}"
        expect_status 200
        n_cached=$(value cached_tokens)
        [ $turn -eq 1 ] || expect_true test "$n_cached" "$2" $((n_held - 1))
        n_held=$(($(value prompt_tokens) + $(value completion_tokens)))
        history="$history,{\"role\":\"assistant\",\"content\":\"$(value content)\"},{\"role\":\"user\",\"content\":\"And $turn?\"}"
    done
}
start_server "$scratch/thinks" --set preserve_thinking=true
turns '' -ge
stop_server
start_server "$scratch/thinks" --set preserve_thinking=true --set unused='{"a": [1]}'
turns ',"chat_template_kwargs":{"preserve_thinking":false}' -lt
stop_server
# and so it is where the template drops them and has no switch
sed 's/(preserve_thinking is defined and preserve_thinking is true) or //' "$SOURCE/tests/text/data/chat/qwen36.jinja" >"$scratch/thinks/chat_template.jinja"
expect_true test "$(grep -c preserve_thinking "$scratch/thinks/chat_template.jinja")" -eq 0
start_server "$scratch/thinks"
turns '' -lt
turns ',"chat_template_kwargs":{"preserve_thinking":true}' -ge
# answers that come back with another thought are not taken for those
again="\"max_tokens\":1,\"chat_template_kwargs\":{\"preserve_thinking\":true}"
post /v1/chat/completions "{\"messages\":[$history],$again}"
expect_true test "$(value cached_tokens)" -ge $((n_held - 1))
n_prompt=$(value prompt_tokens)
# nor is anything read again when something is said instead of waiting for the answer
post /v1/chat/completions "{\"messages\":[$history,{\"role\":\"user\",\"content\":\"Quick!\"}],$again}"
expect_true test "$(value cached_tokens)" -ge $((n_prompt - 9))
post /v1/chat/completions "{\"messages\":[$(printf '%s' "$history" | sed 's/"role":"assistant"/"reasoning_content":"Other.",&/g')],$again}"
expect_status 200
expect_true test "$(value prompt_tokens)" -lt "$n_prompt"
stop_server

# a gap in a text: what is asked is the prefix, the suffix and the place between them, by their tokens
expect_refused_gap() {
    expect_refused /v1/completions "{\"prompt\":\"Once\",$1}" 400 suffix
}
start_server "$demo"
expect_refused_gap '"suffix":"end"'
expect_body 'this model has no tokens for a gap'
post /v1/completions '{"prompt":"Once","suffix":"","max_tokens":1}'
expect_status 200
stop_server
thinking_model "$scratch/gaps" qwen36.jinja
rm "$scratch/gaps/chat_template.jinja"
sed 's/<think>/<|fim_prefix|>/; s/<|im_start|>/<|fim_suffix|>/; s/<|endofturn|>/<|fim_middle|>/' "$scratch/gaps/tokenizer.json" >"$scratch/tokenizer"
mv "$scratch/tokenizer" "$scratch/gaps/tokenizer.json"
start_server "$scratch/gaps"
ids() {
    post /tokenize "{\"content\":\"$1\",\"parse_special\":false}"
    expect_status 200
    sed 's/.*"tokens":\[\([^]]*\)\].*/\1/' "$out"
}
before=$(ids 'Once upon <|fim_middle|>')
behind=$(ids ' a king')
post /v1/completions "{\"prompt\":[757,$before,3175,$behind,3872],\"max_tokens\":8,\"seed\":3}"
expect_status 200
text=$(value text)
n_prompt=$(value prompt_tokens)
post /v1/completions '{"prompt":"Once upon <|fim_middle|>","suffix":" a king","max_tokens":8,"seed":3}'
expect_equal "$(value text)" "$text"
expect_equal "$(value prompt_tokens)" "$n_prompt"
expect_equal "$(value cached_tokens)" "$n_prompt"
expect_refused_gap '"suffix":7'
expect_refused_gap '"suffix":"x","echo":true'
expect_refused /v1/completions '{"prompt":[1,2],"suffix":"x"}' 400 suffix
stop_server
expect_empty "$err"
finish
