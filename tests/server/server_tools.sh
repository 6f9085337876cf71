# SPDX-License-Identifier: MIT
# Tools and conversations with calls, through templates: the same by all three APIs, and as
# `moeflux template` has them, which is tested against transformers'.
. ./lib_server.sh
thinking_model "$scratch/calls" qwen36.jinja
with_template() {
    cp "$SOURCE/tests/text/data/jinja/$1.jinja" "$scratch/calls/chat_template.jinja"
}
# prompt_is FILE: the last /apply-template's text is what `moeflux template` printed there
prompt_is() {
    printf '{"prompt":"%s"}' "$(sed 's/\\/\\\\/g; s/"/\\"/g' "$1" | awk '{ printf "%s%s", (NR > 1 ? "\\n" : ""), $0 }')" >"$scratch/expected"
    n_checks=$((n_checks + 1))
    cmp -s "$out" "$scratch/expected" || {
        fail "the prompt was expected to be:"
        cat "$scratch/expected"
        echo
    }
}
# template_is [OPTIONS...]: with messages.json (and tools.json)
template_is() {
    "$MOEFLUX" template "$scratch/calls" --messages "$scratch/messages.json" "$@" >"$scratch/text" || fail "moeflux template"
    # the newline behind the last line is not the template's if it is not there
    tail -c1 "$scratch/text" | od -An -c | grep -q n && echo >>"$scratch/text"
    prompt_is "$scratch/text"
}

parameters='{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city"]}'
tools="[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"description\":\"Tells it.\",\"parameters\":$parameters}},{\"type\":\"function\",\"function\":{\"name\":\"noon\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]"
shuffled="[{\"function\":{\"strict\":true,\"parameters\":$parameters,\"name\":\"weather\",\"description\":\"Tells it.\"},\"type\":\"function\"},{\"type\":\"function\",\"function\":{\"name\":\"noon\",\"description\":null}}]"
flat="[{\"type\":\"function\",\"name\":\"weather\",\"description\":\"Tells it.\",\"parameters\":$parameters,\"strict\":false},{\"type\":\"web_search\"},{\"type\":\"function\",\"name\":\"noon\"}]"
claude="[{\"name\":\"weather\",\"description\":\"Tells it.\",\"input_schema\":$parameters,\"cache_control\":{\"type\":\"ephemeral\"}},{\"type\":\"web_search_20250305\",\"name\":\"web_search\"},{\"name\":\"noon\",\"input_schema\":{\"type\":\"object\",\"properties\":{}}}]"
printf '%s' "$tools" >"$scratch/tools.json"
cat >"$scratch/messages.json" <<'END'
[{"role":"system","content":"Help."},{"role":"user","content":"Rain?"},
{"role":"assistant","content":"I look.","reasoning_content":"Hm.","reasoning":"Hm.","thinking":"Hm.","tool_calls":[{"id":"call_1","type":"function","function":{"name":"weather","arguments":{"city":"Ulm","days":2}}},{"id":"call_2","type":"function","function":{"name":"noon","arguments":{}}}]},
{"role":"tool","content":"wet","tool_call_id":"call_1","name":"weather"},{"role":"tool","content":"12","tool_call_id":"call_2","name":"noon"}]
END
messages='[{"role":"developer","content":"Help."},{"role":"user","content":[{"type":"text","text":"Ra"},{"type":"text","text":"in?"}]},{"role":"assistant","content":"I look.","reasoning_content":"Hm.","tool_calls":[{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\": \"Ulm\",\"days\":2}"}},{"id":"call_2","type":"function","function":{"name":"noon","arguments":""}}]},{"role":"tool","tool_call_id":"call_1","content":[{"type":"text","text":"wet"}]},{"role":"tool","tool_call_id":"call_2","content":"12"}]'
items='[{"role":"user","content":"Rain?"},{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"short"}],"content":[{"type":"reasoning_text","text":"Hm."}]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"I look."}]},{"type":"function_call","call_id":"call_1","name":"weather","arguments":"{\"city\":\"Ulm\",\"days\":2}"},{"type":"function_call","call_id":"call_2","name":"noon","arguments":"{}"},{"type":"function_call_output","call_id":"call_1","output":"wet"},{"type":"function_call_output","call_id":"call_2","output":[{"type":"input_text","text":"12"}]}]'
blocks='[{"role":"user","content":"Rain?"},{"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"s"},{"type":"text","text":"I look."},{"type":"tool_use","id":"call_1","name":"weather","input":{"city":"Ulm","days":2}},{"type":"tool_use","id":"call_2","name":"noon","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_1","content":"wet"},{"type":"tool_result","tool_use_id":"call_2","content":[{"type":"text","text":"12"}]}]}]'

# n_tokens_are N: of the conversation by the other two APIs
n_tokens_are() {
    post /v1/responses/input_tokens "{\"instructions\":\"Help.\",\"input\":$items,\"tools\":$flat}"
    expect_status 200
    expect_equal "$(value input_tokens)" "$1"
    post /v1/messages/count_tokens "{\"system\":[{\"type\":\"text\",\"text\":\"Help.\"}],\"messages\":$blocks,\"tools\":$claude}"
    expect_status 200
    expect_equal "$(value input_tokens)" "$1"
}

# templates that take calls as objects, as text, with content that is null or never, in order
for name in hermes coder_xml deepseek_v3 deepseek_v31 dsml glm kimi minimax llama4 granite nemotron; do
    with_template $name
    start_server "$scratch/calls"
    post /apply-template "{\"messages\":$messages,\"tools\":$shuffled}"
    expect_status 200
    [ $name = deepseek_v3 ] || template_is --tools "$scratch/tools.json" # that one wants text
    expect_body weather
    expect_body Ulm
    expect_body wet
    prompt=$(cat "$out")
    post /tokenize "$(printf '%s' "$prompt" | sed 's/{"prompt":/{"content":/')"
    n_tokens_are "$(value count)"
    post /apply-template "{\"messages\":$messages}"
    expect_no_body 'Tells it.'
    post /apply-template "{\"messages\":$messages,\"tools\":$tools,\"tool_choice\":\"none\"}"
    expect_no_body 'Tells it.'
    stop_server
done

# a template that wants roles that alternate, and ids of nine letters and digits
with_template mistral
start_server "$scratch/calls"
post /apply-template "{\"messages\":$messages,\"tools\":$tools}"
expect_status 200
expect_body '"arguments*Ulm'
expect_no_body call_1
ids=$(grep -o '[\]"\(id\|call_id\)[\]": [\]"[0-9a-z]*' "$out" | sed 's/.*"//' | sort | uniq -c | tr -s ' \n' ' ')
expect_true test "$(expr "$ids" : ' 2 [0-9a-z]\{9\} 2 [0-9a-z]\{9\} $')" -gt 0 # each of a call and of its result
post /apply-template '{"messages":[{"role":"system","content":"S"},{"role":"user","content":"a"},{"role":"user","content":"b"},{"role":"assistant","content":"c"},{"role":"system","content":"d"},{"role":"user","content":"e"}]}'
expect_status 200
expect_body 'a\n\nb'
expect_body 'c*<system-reminder>\nd\n</system-reminder>\n\ne'
# two of one name could not be told apart
noon='{"type":"function","function":{"name":"noon"}}'
expect_refused /v1/chat/completions "{\"messages\":$messages,\"tools\":[$noon,{\"type\":\"function\",\"function\":{\"name\":\"dusk\"}},$noon]}" 400 'tools[2]'
expect_body "another tool is called 'noon'"
expect_refused /v1/responses '{"input":"a","tools":[{"type":"function","name":"noon"},{"type":"custom","name":"noon"}]}' 400 'tools[1]'
post /v1/messages '{"max_tokens":1,"messages":[{"role":"user","content":"a"}],"tools":[{"name":"noon","input_schema":{}},{"name":"noon","input_schema":{}}]}'
expect_status 400
expect_body "another tool is called 'noon'"
# one that refuses, whatever is said how
echo '{{ raise_exception("no tools " ~ messages[0].role) if tools else "" }}' >"$scratch/calls/chat_template.jinja"
stop_server
start_server "$scratch/calls"
expect_refused /apply-template "{\"messages\":$messages,\"tools\":$tools}" 400 messages
expect_body 'no tools system'
stop_server

# thoughts: where a template knows them in the content alone, they go there
sed 's/m\.reasoning_content/m.no_name_for_them/g' "$SOURCE/tests/text/data/jinja/hermes.jinja" >"$scratch/calls/chat_template.jinja"
start_server "$scratch/calls"
for back in '"reasoning_content":"Hm.","content":"I look."' '"reasoning":"Hm.","content":"I look."' '"content":"<think>\nHm.\n</think>\n\nI look."' '"reasoning_details":[{"type":"reasoning.text","text":"Hm."}],"content":"I look."'; do
    post /apply-template "{\"messages\":[{\"role\":\"user\",\"content\":\"Rain?\"},{\"role\":\"assistant\",$back,\"tool_calls\":[{\"function\":{\"name\":\"noon\",\"arguments\":{}}}]},{\"role\":\"tool\",\"content\":\"12\"}]}"
    expect_body 'assistant\n<think>\nHm.\n</think>\n\nI look.\n<tool_call>'
done
# whatever characters what was said has, and what comes behind them
for back in '"reasoning_content":"H\u0000m.","content":"I\u0000 look."' '"content":"<think>\nH\u0000m.\n</think>\n\nI\u0000 look."'; do
    post /apply-template "{\"messages\":[{\"role\":\"user\",\"content\":\"Rain\u0000?\"},{\"role\":\"assistant\",$back,\"tool_calls\":[{\"function\":{\"name\":\"noon\",\"arguments\":{}}}]},{\"role\":\"tool\",\"content\":\"1\u00002\"},{\"role\":\"assistant\",\"content\":\"So\u0000 it\"}]}"
    expect_body 'user\nRain\u0000?<|im_end|>*assistant\n<think>\nH\u0000m.\n</think>\n\nI\u0000 look.\n<tool_call>*\n1\u00002\n</tool_response>*\n\nSo\u0000 it"}'
done
post /apply-template "{\"messages\":$messages,\"documents\":[{\"title\":\"t\"}],\"chat_template_kwargs\":{\"preserve_thinking\":true}}"
expect_status 200
# documents of Anthropic's, and results that are errors
post /v1/messages/count_tokens '{"messages":[{"role":"user","content":[{"type":"document","title":"T","source":{"type":"text","media_type":"text/plain","data":"Words."}},{"type":"text","text":"?"}]}]}'
n_tokens=$(value input_tokens)
post /v1/messages/count_tokens '{"messages":[{"role":"user","content":"T\nWords.?"}]}'
expect_equal "$n_tokens" "$(value input_tokens)"
post /v1/messages/count_tokens '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"noon","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","is_error":true,"content":"no"},{"type":"text","text":"b"}]}]}'
n_tokens=$(value input_tokens)
post /apply-template '{"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"id":"t","function":{"name":"noon"}}]},{"role":"tool","tool_call_id":"t","content":"Error: no"},{"role":"user","content":"b"}]}'
post /tokenize "$(sed 's/{"prompt":/{"content":/' "$out")"
expect_equal "$(value count)" "$n_tokens"
stop_server
finish
