# SPDX-License-Identifier: MIT
# --state-dir keeps what was sampled beside the states: an agent's conversation goes on after a
# kill -9, and its next turn evaluates what is new of it, though the client sends the history as
# clients do (without thoughts, arguments written otherwise, tools in another order).
. ./lib_server.sh
call='<think>\nHm.\n</think>\n\n<tool_call>\n{\"name\":\"noon\",  \"arguments\":{\"b\":2,\"a\":1.0}}\n</tool_call>'
thinking_model "$scratch/thinks" qwen36.jinja "$call"
cp "$SOURCE/tests/text/data/jinja/hermes.jinja" "$scratch/thinks/chat_template.jinja"
noon='{"type":"function","function":{"name":"noon","description":"Tells noon.","parameters":{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"integer"}}}}}'
dusk='{"type":"function","function":{"name":"dusk","parameters":{"type":"object","properties":{}}}}'
options='"temperature":0,"logit_bias":{"316":100},"parallel_tool_calls":false,"max_tokens":20'
history='{"role":"system","content":"You tell noon."},{"role":"user","content":"Once upon a time"}'
tools="[$noon,$dusk]"
turn=0
state="--state-dir $scratch/states"
answers=$scratch/states/answers-*.mfanswers

# A turn of the conversation: sets n_new, what of it was not there before, and n_evaluated.
turn() {
    post /v1/chat/completions "{\"messages\":[$history],\"tools\":$tools,$options}"
    expect_status 200
    expect_equal "$(value finish_reason)" tool_calls
    n_prompt=$(value prompt_tokens)
    n_evaluated=$((n_prompt - $(value cached_tokens)))
    id=$(grep -o '"id":"call_[^"]*' "$out" | sed 's/.*"//')
    history="$history,{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"$id\",\"type\":\"function\",\"function\":{\"name\":\"noon\",\"arguments\":\"{\\\"a\\\": 1, \\\"b\\\": 2}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"$id\",\"content\":\"It is $turn past noon.\"}"
    n_new=$n_prompt
    if [ $turn -gt 0 ]; then
        post /tokenize "{\"content\":\"<|im_end|>\\n<|im_start|>user\\n<tool_response>\\nIt is $turn past noon.\\n</tool_response><|im_end|>\\n<|im_start|>assistant\\n\"}"
        n_new=$(value count)
    fi
    turn=$((turn + 1))
}

file_grew() {
    [ "$(cat $answers | wc -c)" -gt "$n_file" ]
}

# kill_server N: when the states of N answers are stored, and the last answer's record
kill_server() {
    expect_true wait_for stat_is sessions_stored_total "$1"
    expect_true wait_for file_grew
    n_file=$(cat $answers | wc -c)
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null
}

n_file=0
# shellcheck disable=SC2086 # options
start_server "$scratch/thinks" $state
for i in 1 2 3 4; do
    turn
done
expect_true test "$n_evaluated" -le $((n_new * 11 / 10 + 1))
kill_server 4
expect_equal "$(find $answers -perm 600 | wc -l)" 1
tools="[$dusk,$noon]"
# shellcheck disable=SC2086
start_server "$scratch/thinks" $state
turn
echo "after kill -9: $n_new tokens new, $n_evaluated evaluated"
expect_true test "$n_evaluated" -le $((n_new * 11 / 10 + 1))
# what is damaged at its end is cut off, and the rest serves
kill_server 1
printf 'torn' >>"$(echo $answers)"
# shellcheck disable=SC2086
start_server "$scratch/thinks" $state
turn
expect_true test "$n_evaluated" -le $((n_new * 11 / 10 + 1))
expect_true grep -q "damaged at byte $n_file: what stands behind it is lost" "$server_err"
stop_server
# without the file the same turn evaluates what the template writes otherwise
rm $answers
# shellcheck disable=SC2086
start_server "$scratch/thinks" $state
turn
expect_true test "$n_evaluated" -gt $((n_new * 2))
# a second server beside it serves, and says that it keeps nothing
first=$pid
# shellcheck disable=SC2086
start_server "$scratch/thinks" $state
expect_true grep -q "another server keeps its answers there" "$server_err"
turn
stop_server
pid=$first
stop_server
finish
