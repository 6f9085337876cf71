# SPDX-License-Identifier: MIT
# Answers held to a schema, to JSON, or to a grammar, by all APIs, streamed and not; and what is
# refused because it cannot be held to.
. ./lib_server.sh
start_server "$demo"

schema='{"type":"object","properties":{"n":{"type":"integer","minimum":10,"maximum":99},"c":{"enum":["red","green"]}},"required":["n","c"],"additionalProperties":false}'
ask='"messages":[{"role":"user","content":"hello"}],"temperature":2'
format="{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"strict\":true,\"schema\":$schema}}"
flat="{\"type\":\"json_schema\",\"name\":\"x\",\"strict\":true,\"schema\":$schema}"

# is_whole TEXT: as JSON quotes it
is_whole() {
    printf '%s' "$1" | sed 's/\\[nt]//g; s/\\"/"/g; s/[ 	]//g' >"$scratch/dense"
    expect_true grep -qE '^\{"n":[1-9][0-9],"c":"(red|green)"\}$' "$scratch/dense"
}

for seed in 1 2 3 4; do
    post /v1/chat/completions "{$ask,\"seed\":$seed,\"response_format\":$format}"
    expect_status 200
    is_whole "$(value content)"
    expect_body '"finish_reason":"stop"'
    whole=$(value content)
    post /v1/chat/completions "{$ask,\"seed\":$seed,\"response_format\":$format,\"stream\":true}"
    expect_equal "$(joined "$out" content)" "$whole"
    post /v1/responses "{\"input\":\"hello\",\"temperature\":2,\"seed\":$seed,\"text\":{\"format\":$flat}}"
    expect_status 200
    is_whole "$(value text)"
    post /v1/messages "{$ask,\"seed\":$seed,\"max_tokens\":200,\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":$schema}}}"
    expect_status 200
    is_whole "$(value text)"
    expect_body '"stop_reason":"end_turn"'
    post /v1/completions "{\"prompt\":\"hello\",\"temperature\":2,\"seed\":$seed,\"max_tokens\":200,\"response_format\":$format}"
    is_whole "$(value text)"
done

# several choices, each by its own guide; an end token that is ignored is still the end here
post /v1/chat/completions "{$ask,\"seed\":5,\"n\":3,\"ignore_eos\":true,\"response_format\":$format}"
expect_equal "$(grep -o '"finish_reason":"stop"' "$out" | wc -l)" 3
post /v1/chat/completions "{$ask,\"seed\":5,\"max_tokens\":3,\"response_format\":$format}"
expect_body '"finish_reason":"length"'
post /v1/chat/completions "{$ask,\"seed\":5,\"max_tokens\":40,\"response_format\":{\"type\":\"json_object\"}}"
expect_true grep -qE '"content":"\{' "$out"
post /v1/chat/completions "{$ask,\"seed\":5,\"grammar\":\"root ::= (\\\"yes\\\" | \\\"no\\\") \\\" \\\" [a-f]{3}\"}"
expect_true grep -qE '"content":"(yes|no) [a-f]{3}"' "$out"
post /v1/chat/completions "{$ask,\"response_format\":{\"type\":\"text\"},\"grammar\":null,\"max_tokens\":1}"
expect_status 200

# the same by other servers' names
for name in "\"json_schema\":$schema" "\"guided_json\":$schema" "\"structured_outputs\":{\"json\":$schema}" \
    "\"guided_json\":\"$(printf '%s' "$schema" | sed 's/"/\\"/g')\""; do
    post /v1/chat/completions "{$ask,\"seed\":6,$name}"
    expect_status 200
    is_whole "$(value content)"
done
for name in '"guided_choice":["yes\"\\","n\u00e9"]' '"structured_outputs":{"choice":["yes\"\\","n\u00e9"]}'; do
    for seed in 1 2 3 4; do
        post /v1/completions "{\"prompt\":\"hello\",\"temperature\":2,\"seed\":$seed,$name}"
        expect_true grep -qE '"text":"(yes\\"\\\\|né)"' "$out"
    done
done
post /v1/chat/completions "{$ask,\"guided_grammar\":\"root ::= [a-f]{3}\"}"
expect_true grep -qE '"content":"[a-f]{3}"' "$out"
post /v1/chat/completions "{$ask,\"structured_outputs\":{\"json_object\":true},\"max_tokens\":9}"
expect_true grep -qE '"content":"\{' "$out"
expect_refused /v1/chat/completions "{$ask,\"guided_choice\":[]}" 400 guided_choice
expect_refused /v1/chat/completions "{$ask,\"guided_choice\":[\"a\",7]}" 400 guided_choice
expect_refused /v1/chat/completions "{$ask,\"guided_regex\":\"a+\"}" 400 guided_regex
expect_refused /v1/chat/completions "{$ask,\"structured_outputs\":{\"regex\":\"a+\"}}" 400 structured_outputs.regex
expect_refused /v1/chat/completions "{$ask,\"guided_json\":\"{\"}" 400 guided_json
expect_refused /v1/chat/completions "{$ask,\"json_schema\":$schema,\"grammar\":\"root ::= \\\"x\\\"\"}" 400 json_schema
expect_refused /v1/chat/completions "{$ask,\"grammar\":\"root ::= (\"}" 400 grammar
expect_body '"message":"grammar: the grammar'\''s line 1: '

# what a grammar leaves no choice about is evaluated together: the same answer as token by token,
# which is how it goes with logprobs; streamed, several at once, and up to a limit within it
forced='"grammar":"root ::= (\"yes\" | \"no\") \"@#^~@#^~\" [a-f]{3} \"~^#@\""'
for seed in 1 2 3; do
    before=$(stat forced_tokens_total)
    post /v1/chat/completions "{$ask,\"seed\":$seed,$forced,\"logprobs\":true}"
    expect_status 200
    alone=$(value content)
    n=$(value completion_tokens)
    expect_equal "$(stat forced_tokens_total)" "$before"
    n_steps=$(stat steps_total)
    post /v1/chat/completions "{$ask,\"seed\":$seed,$forced}"
    expect_equal "$(value content)" "$alone"
    expect_equal "$(value completion_tokens)" "$n"
    n_forced=$(($(stat forced_tokens_total) - before))
    expect_true test "$n_forced" -gt 6
    expect_true test $(($(stat steps_total) - n_steps)) -le $((n - n_forced + 1))
    post /v1/chat/completions "{$ask,\"seed\":$seed,$forced,\"stream\":true}"
    expect_equal "$(joined "$out" content)" "$alone"
    post /v1/chat/completions "{$ask,\"seed\":$seed,$forced,\"n\":2,\"max_tokens\":5}"
    expect_equal "$(grep -o '"finish_reason":"length"' "$out" | wc -l)" 2
    expect_equal "$(value completion_tokens)" 10
done

# what cannot be held to is refused, and says what it is
refused() {
    expect_refused /v1/chat/completions "{$ask,$1}" 400 "$2"
    expect_body "$3"
}
refused '"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"properties":{"a":{"not":{}}}}}}' \
    response_format.json_schema.schema '#/properties/a: the keyword \"not\" is not supported'
refused '"response_format":{"type":"json_schema","json_schema":{"name":"x"}}' response_format.json_schema.schema schema
refused '"response_format":{"type":"xml"}' response_format.type json_schema
refused '"response_format":"json"' response_format object
refused '"grammar":"root ::= a"' grammar 'the rule a is used but not defined'
refused '"grammar":3' grammar string
refused "\"grammar\":\"root ::= []\",\"response_format\":$format" grammar excludes
expect_refused /v1/responses "{\"input\":\"x\",\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"x\",\"schema\":{\"uniqueItems\":true,\"type\":\"array\"}}}}" 400 text.format.schema
stop_server

# behind the thought that the template opens, whatever is thought in it; and when it is cut short
thinking_model "$scratch/thinks" qwen36.jinja
start_server "$scratch/thinks"
for budget in 0 3; do
    post /v1/chat/completions "{$ask,\"seed\":3,\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":$budget},\"response_format\":$format}"
    expect_status 200
    is_whole "$(value content)"
done
post /v1/chat/completions "{$ask,\"seed\":3,\"chat_template_kwargs\":{\"enable_thinking\":false},\"response_format\":$format}"
is_whole "$(value content)"
stop_server

# calls that must come, in the model's own syntax, and are held to the schemas
thinking_model "$scratch/calls" qwen36.jinja '<tool_call>'
cp "$SOURCE/tests/text/data/jinja/hermes.jinja" "$scratch/calls/chat_template.jinja"
start_server "$scratch/calls"
tools="\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"paint\",\"strict\":true,\"parameters\":$schema}},{\"type\":\"function\",\"function\":{\"name\":\"stop\",\"parameters\":{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}}}]"
flat="\"tools\":[{\"type\":\"function\",\"name\":\"paint\",\"strict\":true,\"parameters\":$schema},{\"type\":\"function\",\"name\":\"stop\"}]"
claude="\"tools\":[{\"name\":\"paint\",\"strict\":true,\"input_schema\":$schema},{\"name\":\"stop\",\"input_schema\":{\"type\":\"object\",\"properties\":{}}}]"
for seed in 1 2 3; do
    post /v1/chat/completions "{$ask,\"seed\":$seed,$tools,\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"paint\"}}}"
    expect_status 200
    expect_body '"finish_reason":"tool_calls"'
    expect_body '"name":"paint"'
    is_whole "$(value arguments)"
    whole=$(value arguments)
    post /v1/chat/completions "{$ask,\"seed\":$seed,$tools,\"stream\":true,\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"paint\"}}}"
    expect_equal "$(joined "$out" arguments)" "$whole"
    post /v1/chat/completions "{$ask,\"seed\":$seed,$tools,\"tool_choice\":\"required\",\"parallel_tool_calls\":false}"
    expect_body '"finish_reason":"tool_calls"'
    expect_equal "$(grep -o '"id":"call_[^"]*' "$out" | wc -l)" 1
    post /v1/chat/completions "{$ask,\"seed\":$seed,$tools,\"tool_choice\":\"required\",\"max_tokens\":200}"
    expect_body '"tool_calls"'
    post /v1/responses "{\"input\":\"hello\",\"temperature\":2,\"seed\":$seed,$flat,\"tool_choice\":{\"type\":\"function\",\"name\":\"paint\"}}"
    is_whole "$(value arguments)"
    post /v1/messages "{$ask,\"seed\":$seed,\"max_tokens\":200,$claude,\"tool_choice\":{\"type\":\"tool\",\"name\":\"stop\",\"disable_parallel_tool_use\":true}}"
    expect_body '"stop_reason":"tool_use"'
    expect_body '"name":"stop"'
    post /v1/messages "{$ask,\"seed\":$seed,\"max_tokens\":200,$claude,\"tool_choice\":{\"type\":\"any\",\"disable_parallel_tool_use\":true}}"
    expect_body '"stop_reason":"tool_use"'
    # left to the model: free text, and from the opening on held to the schemas
    post /v1/chat/completions "{$ask,\"seed\":$seed,$tools,\"parallel_tool_calls\":false,\"logit_bias\":{\"316\":100}}"
    expect_body '"finish_reason":"tool_calls"'
    expect_true grep -qE '"name":"(paint|stop)"' "$out"
done
post /v1/chat/completions "{$ask,$tools,\"max_tokens\":3,\"logit_bias\":{\"316\":-100}}"
expect_status 200
expect_no_body '"tool_calls"'
refused "$tools,\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"none\"}}" tool_choice "no tool is called 'none'"
refused "$tools,\"tool_choice\":{\"type\":\"function\"}" tool_choice name
refused "\"tool_choice\":\"required\"" tool_choice 'no tools'
refused "$tools,\"tool_choice\":\"required\",\"response_format\":$format" tool_choice excludes
refused '"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object","properties":{"a":{"contains":{}}}}}}]' \
    tools '\"contains\" is not supported'
post /v1/chat/completions "{$ask,\"max_tokens\":400,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"not\":{}}}}],\"tool_choice\":\"required\"}"
expect_status 200 # any object: its schema is not supported, and not strict
# what is found too ambiguous on the way is the request's fault, which is not to be sent again
awk -v ask="$ask" 'BEGIN {
    printf "{%s,\"json_schema\":{\"type\":\"array\",\"items\":{\"enum\":[", ask
    for (i = 0; i < 8000; i++)
        printf "%s{\"a\":%d,\"b\":[%d]}", i ? "," : "", i, i
    print "]}}}"
}' >"$scratch/ambiguous"
post /v1/chat/completions "@$scratch/ambiguous"
expect_status 400
expect_body 'the grammar is too ambiguous'
post /v1/completions '{"prompt":"x","temperature":0,"max_tokens":300,"ignore_eos":true,"grammar":"root ::= (a | b | c){300,400}\na ::= [a-z]+ \" \"\nb ::= [a-z ]* \".\"\nc ::= [^\\n]{1,50}"}'
expect_status 400
expect_body 'the grammar is too ambiguous'
stop_server
finish
