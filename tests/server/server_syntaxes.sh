# SPDX-License-Identifier: MIT
# Calls in other syntaxes than Hermes', end to end: forced by the grammar of the model's own template,
# read back, given to the client, sent back by it with results, and found again: each turn evaluates
# what is new. The model says what it likes within the schemas. The last two templates know no tools:
# there the first message tells of them, and a call is an object of JSON.
. ./lib_server.sh
tools='"tools":[{"type":"function","function":{"name":"paint","description":"Paints.","parameters":{"type":"object","properties":{"colour":{"enum":["red","green"]},"n":{"type":"integer","minimum":1,"maximum":9}},"required":["colour","n"],"additionalProperties":false},"strict":true}}]'
forced='"tool_choice":"required","parallel_tool_calls":false,"max_tokens":400,"reasoning_effort":"none"'

# As JSON has them in a string.
is_arguments() {
    printf '%s\n' "$1" | grep -q '^{ *\\"colour\\": *\\"\(red\|green\)\\", *\\"n\\": *[1-9] *}$'
}

# syntax TEMPLATE: three turns of an agent
syntax() {
    thinking_model "$scratch/$1" qwen36.jinja
    # what ends a turn is a token of the demo's
    sed 's/<|end_of_msg|>/<|im_end|>/g; s/\[e~\[/<|im_end|>/g; s/<|eo[mt]|>/<|im_end|>/g; s/<turn|>/<|im_end|>/g; s/<|tool_response>/<|im_end|>/g; s/<end_of_turn>/<|im_end|>/g' "$SOURCE/tests/text/data/jinja/$1.jinja" \
        >"$scratch/$1/chat_template.jinja"
    start_server "$scratch/$1"
    post /apply-template "{\"messages\":[{\"role\":\"user\",\"content\":\"Once\"}],$tools}"
    expect_body paint
    history='{"role":"user","content":"Once upon a time"}'
    n_held=0 turn=0
    while [ $turn -lt 3 ]; do
        request="{\"messages\":[$history],$tools,$forced,\"seed\":$turn"
        post /v1/chat/completions "$request}"
        expect_status 200
        expect_equal "$(value finish_reason)" tool_calls
        expect_body '"type":"function","function":{"name":"paint","arguments":"{'
        arguments=$(value arguments)
        id=$(grep -o '"id":"[^"]*","type":"function"' "$out" | sed 's/"id":"//; s/".*//')
        expect_true is_arguments "$arguments"
        expect_true test "$(value cached_tokens)" -ge $((n_held - 4)) # the grammar ended it
        n_held=$(($(value prompt_tokens) + $(value completion_tokens)))
        # streamed, the same seed says the same
        post /v1/chat/completions "$request,\"stream\":true}"
        expect_equal "$(joined "$out" arguments)" "$arguments"
        expect_equal "$(grep -o '"finish_reason":"[^"]*' "$out")" '"finish_reason":"tool_calls'
        # as clients send it: spaced otherwise
        arguments=$(printf '%s' "$arguments" | sed 's/, *\\"n\\": */,   \\"n\\":/')
        history="$history,{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"$id\",\"type\":\"function\",\"function\":{\"name\":\"paint\",\"arguments\":\"$arguments\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"$id\",\"name\":\"paint\",\"content\":\"Painted $turn.\"}"
        turn=$((turn + 1))
    done
    stop_server
}
for template in coder_xml minicpm kimi_k3 gemma4 minimax_m3 llama4 gemma phi; do
    syntax $template
done
finish
