# SPDX-License-Identifier: MIT
# OpenAI's responses, beyond one request: ids to go on from, items that refer to others or say
# nothing to the model, thoughts that the client carries, what an answer repeats of its request,
# logprobs, and a prompt that is too long for a stream.
. ./lib_server.sh
thinking_model "$scratch/thinks" qwen36.jinja
printf 'first-key\nsecond-key\n' >"$scratch/keys"
start_server "$scratch/thinks" --api-key-file "$scratch/keys" --set preserve_thinking=true
as() { # KEY PATH BODY
    post "$2" "$3" -H "Authorization: Bearer $1-key"
}
n_tokens() { # BODY: how many the items are
    as first /v1/responses/input_tokens "{$1}"
    expect_status 200
    n_tokens=$(value input_tokens)
}
asked='"seed":3,"max_output_tokens":24,"reasoning":{"effort":"none"}'

# a response is gone on with by its id, as if all of it were sent
as first /v1/responses "{\"input\":\"Once upon a time\",$asked}"
expect_status 200
id=$(value id)
text=$(value text)
item=$(grep -o '"id":"msg_[^"]*' "$out" | sed 's/.*"//')
n_held=$(value total_tokens)
expect_body '"store":true'
n_tokens "\"input\":[{\"role\":\"user\",\"content\":\"Once upon a time\"},{\"role\":\"assistant\",\"content\":\"$text\"},{\"role\":\"user\",\"content\":\"And?\"}],\"reasoning\":{\"effort\":\"none\"}"
n_whole=$n_tokens
as first /v1/responses "{\"previous_response_id\":\"$id\",\"input\":\"And?\",$asked}"
expect_status 200
expect_equal "$(value input_tokens)" "$n_whole"
expect_true test "$(value cached_tokens)" -ge $((n_held - 1))
expect_body "\"previous_response_id\":\"$id\""
second=$(value id)
# instructions are each request's own; a third turn, streamed
as first /v1/responses "{\"previous_response_id\":\"$second\",\"instructions\":\"Tell.\",\"input\":[{\"role\":\"user\",\"content\":\"More?\"}],$asked,\"stream\":true}"
expect_status 200
third=$(grep -o '"id":"resp_[^"]*' "$out" | head -1 | sed 's/.*"//')
n_tokens "\"previous_response_id\":\"$third\",\"input\":\"x\""
n_third=$n_tokens
n_tokens "\"previous_response_id\":\"$second\",\"input\":\"x\""
expect_true test "$n_third" -gt "$n_tokens"
# an item by its id
n_tokens "\"input\":[{\"role\":\"user\",\"content\":\"Once upon a time\"},{\"type\":\"item_reference\",\"id\":\"$item\"},{\"role\":\"user\",\"content\":\"And?\"}],\"reasoning\":{\"effort\":\"none\"}"
expect_equal "$n_tokens" "$n_whole"
# one that was asked with, be its id this server's or the client's, and one of a conversation
ask "/v1/responses/$id/input_items" -H 'x-api-key: first-key'
n_tokens "\"input\":[{\"type\":\"item_reference\",\"id\":\"$(value first_id)\"},{\"type\":\"item_reference\",\"id\":\"$item\"},{\"role\":\"user\",\"content\":\"And?\"}],\"reasoning\":{\"effort\":\"none\"}"
expect_equal "$n_tokens" "$n_whole"
as first /v1/responses "{\"input\":[{\"id\":\"mine \\\"1\\\"\",\"role\":\"user\",\"content\":\"Once upon a time\"}],$asked}"
n_tokens "\"input\":[{\"type\":\"item_reference\",\"id\":\"mine \\\"1\\\"\"},{\"type\":\"item_reference\",\"id\":\"$item\"},{\"role\":\"user\",\"content\":\"And?\"}],\"reasoning\":{\"effort\":\"none\"}"
expect_equal "$n_tokens" "$n_whole"
as first /v1/conversations '{"items":[{"id":"told_1","role":"user","content":"Once upon a time"}]}'
n_tokens "\"input\":[{\"type\":\"item_reference\",\"id\":\"told_1\"},{\"type\":\"item_reference\",\"id\":\"$item\"},{\"role\":\"user\",\"content\":\"And?\"}],\"reasoning\":{\"effort\":\"none\"}"
expect_equal "$n_tokens" "$n_whole"
as second /v1/responses '{"input":[{"type":"item_reference","id":"told_1"}]}'
expect_status 400
for none in "${item}0" msg_ msg_x_0 "resp_x" "${id}_9"; do
    as first /v1/responses "{\"input\":[{\"type\":\"item_reference\",\"id\":\"$none\"}]}"
    expect_status 400
    expect_body '"param":"input[0].id"'
done
# nothing is compacted: as where there is nothing, not as where a response could be
as first /v1/responses/compact '{"input":"x","model":"m"}'
expect_status 404
expect_body 'there is nothing at /v1/responses/compact'
as second "/v1/responses/$id" '{}'
expect_status 405
# what a response was made from, each item with an id that stays, in pages
items_of() { # QUERY: of the second response
    ask "/v1/responses/$second/input_items$1" -H 'x-api-key: first-key'
    expect_status 200
}
items_of '?order=asc'
expect_body "{\"object\":\"list\",\"data\":[{\"id\":\"msg_*\",\"type\":\"message\",\"status\":\"completed\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"Once upon a time\"}]},{\"id\":\"$item\",*\"text\":\"$text\"*\"text\":\"And?\"}]}],\"first_id\":\"msg_*\",\"last_id\":\"msg_*\",\"has_more\":false}"
expect_equal "$(grep -o '"role":' "$out" | wc -l)" 3
first_item=$(value first_id)
last_item=$(value last_id)
items_of ''
expect_equal "$(value first_id) $(value last_id)" "$last_item $first_item"
items_of "?limit=1&after=$last_item"
expect_equal "$(value first_id)" "$item"
expect_body '"has_more":true'
items_of "?limit=1&order=asc&after=$item"
expect_equal "$(value first_id)" "$last_item"
expect_body '"has_more":false'
for wrong in limit=0 order=up "after=${item}0"; do
    ask "/v1/responses/$second/input_items?$wrong" -H 'x-api-key: first-key'
    expect_status 400
done
ask "/v1/responses/$second/input_items" -H 'x-api-key: second-key'
expect_status 404
# ids that the client gave, and items that are none of the model's
as first /v1/responses "{\"input\":[{\"id\":\"own_1\",\"role\":\"user\",\"content\":\"a\"},{\"type\":\"web_search_call\",\"status\":\"completed\"}],$asked}"
ask "/v1/responses/$(value id)/input_items" -H 'x-api-key: first-key'
expect_body '"data":[{"id":"item_*","type":"web_search_call","status":"completed"},{"id":"own_1",'
expect_body '"last_id":"own_1"'
# got and deleted, by whom they are
ask "/v1/responses/$id" -H 'x-api-key: first-key'
expect_status 200
expect_body "{\"id\":\"$id\",\"object\":\"response\",*\"status\":\"incomplete\""
expect_equal "$(value text)" "$text"
ask "/v1/responses/$id" -H 'x-api-key: second-key'
expect_status 404
as second /v1/responses "{\"previous_response_id\":\"$id\",\"input\":\"And?\",$asked}"
expect_status 400
expect_body '"code":"previous_response_not_found"'
ask "/v1/responses/$id" -X DELETE -H 'x-api-key: second-key'
expect_status 404
ask "/v1/responses/$id" -X DELETE -H 'x-api-key: first-key'
expect_exact "$out" "{\"id\":\"$id\",\"object\":\"response\",\"deleted\":true}"
ask "/v1/responses/$id" -H 'x-api-key: first-key'
expect_status 404
n_tokens "\"previous_response_id\":\"$second\",\"input\":\"x\"" # which has all of the first
# not kept
as first /v1/responses "{\"input\":\"Once\",$asked,\"store\":false}"
expect_body '"store":false'
as first /v1/responses "{\"previous_response_id\":\"$(value id)\",\"input\":\"And?\"}"
expect_status 400
expect_body '"param":"previous_response_id"'
as first /v1/responses '{"input":"Once","store":"no"}'
expect_status 400

# what is asked is repeated
as first /v1/responses "{\"input\":\"Once\",$asked,\"instructions\":\"Tell.\",\"metadata\":{\"a\":\"b\"},\"text\":{\"verbosity\":\"low\"},\"truncation\":\"auto\",\"tool_choice\":\"none\",\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}]}"
expect_status 200
expect_body '"instructions":"Tell."'
expect_body '"metadata":{"a":"b"}'
expect_body '"text":{"format":{"type":"text"},"verbosity":"low"}'
expect_body '"tool_choice":"none"'
expect_body '"reasoning":{"effort":"none"}'
expect_body '"tools":[{"type":"function","name":"f","description":null,"parameters":{"type":"object"},"strict":false}]'

# thoughts that the client carries: the blob alone says them
as first /v1/responses '{"input":"Once upon a time","seed":3,"max_output_tokens":20,"include":["reasoning.encrypted_content"]}'
expect_body '"encrypted_content":"moeflux1.'
blob=$(value encrypted_content)
thought=$(value text)
history() { # what of the reasoning item comes back
    printf '"input":[{"role":"user","content":"Once, otherwise"},{"type":"reasoning","id":"rs_1","summary":[]%s},{"role":"assistant","content":"Hm."},{"role":"user","content":"And?"}]' "$1"
}
n_tokens "$(history "")"
n_none=$n_tokens
n_tokens "$(history ",\"content\":[{\"type\":\"reasoning_text\",\"text\":\"$thought\"}]")"
n_open=$n_tokens
expect_true test "$n_open" -gt "$n_none"
n_tokens "$(history ",\"encrypted_content\":\"$blob\"")"
expect_equal "$n_tokens" "$n_open"
# others', and what is broken or no text, is none
for foreign in gAAAAABo1 moeflux1. moeflux1.a moeflux1.a=== 'moeflux1.!!!!' moeflux1./////w== "moeflux1.YQ==YQ==" 'moeflux2.YQ=='; do
    n_tokens "$(history ",\"encrypted_content\":\"$foreign\"")"
    expect_equal "$n_tokens" "$n_none"
done

# a thought of any characters
n_tokens "$(history ',"content":[{"type":"reasoning_text","text":"\u0000\u0000\u0000"}]')"
n_open=$n_tokens
expect_true test "$n_open" -gt "$n_none"
n_tokens "$(history ',"encrypted_content":"moeflux1.AAAA"')"
expect_equal "$n_tokens" "$n_open"

# items that say nothing to the model; what one agent says to another; tools that come later
once='{"role":"user","content":"Once upon a time"}'
n_tokens "\"input\":[$once]"
n_once=$n_tokens
n_tokens "\"input\":[{\"type\":\"web_search_call\",\"id\":\"ws_1\",\"status\":\"completed\"},{\"type\":\"local_shell_call\",\"call_id\":\"1\",\"action\":{}},{\"type\":\"local_shell_call_output\",\"id\":\"1\",\"output\":\"x\"},{\"type\":\"compaction\",\"encrypted_content\":\"x\"},{\"type\":\"ghost_snapshot\"},$once]"
expect_equal "$n_tokens" "$n_once"
n_tokens "\"input\":[{\"type\":\"agent_message\",\"author\":\"/root\",\"recipient\":\"/root/a\",\"content\":[{\"type\":\"input_text\",\"text\":\"Once upon a time\"}]}]"
expect_equal "$n_tokens" "$n_once"
as first /v1/responses "{\"input\":[{\"type\":\"riddle\"},$once]}"
expect_status 400
expect_body '"param":"input[0].type"'

# logprobs are those of the chat
plain='"seed":3,"reasoning_effort":"none"'
as first /v1/chat/completions "{\"messages\":[$once],$plain,\"max_tokens\":6,\"logprobs\":true,\"top_logprobs\":2}"
scores=$(sed 's/.*"logprobs":{"content":\(.*\),"refusal":null}.*/\1/' "$out")
expect_true test ${#scores} -gt 300
as first /v1/responses "{\"input\":[$once],\"seed\":3,\"reasoning\":{\"effort\":\"none\"},\"max_output_tokens\":6,\"top_logprobs\":2,\"include\":[\"message.output_text.logprobs\"]}"
expect_body '"top_logprobs":2'
expect_equal "$(sed 's/.*"annotations":\[\],"logprobs":\(.*\),"text":.*/\1/; s/,"text":"[^"]*"}.*//' "$out")" "$scores"
as first /v1/responses "{\"input\":[$once],\"seed\":3,\"reasoning\":{\"effort\":\"none\"},\"max_output_tokens\":6,\"top_logprobs\":2,\"stream\":true}"
grep '"type":"response.output_text.done"' "$out" >"$scratch/done"
expect_equal "$(sed 's/.*"logprobs":\(.*\),"text":.*/\1/' "$scratch/done")" "$scores"
grep '"type":"response.output_text.delta"' "$out" >"$scratch/deltas"
expect_equal "$(sed 's/.*"logprobs":\[\(.*\)\],"delta":.*/\1/' "$scratch/deltas" | grep -v '^$' | tr '\n' ',')" \
    "$(printf '%s' "$scores" | sed 's/^\[//; s/\]$//'),"
as first /v1/responses '{"input":"x","include":"all"}'
expect_status 400

# too long: as OpenAI says it, in a stream as its last event
long=$(awk 'BEGIN { for (i = 0; i < 5000; i++) printf "word " }')
as first /v1/responses "{\"input\":\"$long$long$long$long\",\"stream\":true}"
expect_status 200
expect_true grep -qi '^content-type: text/event-stream' "$headers"
expect_equal "$(sed -n 's/^event: //p' "$out" | tr '\n' ' ')" 'response.created response.in_progress response.failed '
expect_body '"status":"failed"*"error":{"code":"context_length_exceeded","message":"This model'
as first /v1/responses "{\"input\":\"$long$long$long$long\"}"
expect_status 400
expect_body '"code":"context_length_exceeded"'
stop_server

thinking_model "$scratch/tools" qwen36.jinja
cp "$SOURCE/tests/text/data/jinja/hermes.jinja" "$scratch/tools/chat_template.jinja"
start_server "$scratch/tools"
tool='{"type":"function","name":"noon","description":"Tells noon.","parameters":{"type":"object","properties":{}}}'
post /v1/responses/input_tokens "{\"input\":[$once],\"tools\":[$tool]}"
n_tokens=$(value input_tokens)
expect_true test "$n_tokens" -gt $((n_once + 20))
post /v1/responses/input_tokens "{\"input\":[{\"type\":\"additional_tools\",\"role\":\"developer\",\"tools\":[$tool]},$once]}"
expect_equal "$(value input_tokens)" "$n_tokens"
# a custom tool's text may have any character
post /v1/responses/input_tokens "{\"input\":[$once,{\"type\":\"custom_tool_call\",\"call_id\":\"1\",\"name\":\"noon\",\"input\":\"a\\u0000b\"},{\"type\":\"custom_tool_call_output\",\"call_id\":\"1\",\"output\":\"x\"}],\"tools\":[$tool]}"
expect_status 200
stop_server

# what is more than can be kept is not said to be
start_server "$scratch/thinks" --max-body 40M
with_image() { # FILE N_BYTES FIELDS: a request with an image of so many bytes, which is kept as it came
    printf '{"input":[{"role":"user","content":"Once"},{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"1","output":[{"type":"input_image","image_url":"' >"$1"
    head -c "$2" /dev/zero | tr '\0' a >>"$1"
    printf '"}]}],"reasoning":{"effort":"none"},"seed":3,%s}' "$3" >>"$1"
}
with_image "$scratch/body" 33554432 '"max_output_tokens":2'
post /v1/responses "@$scratch/body"
expect_status 200
expect_body '"store":false'
ask "/v1/responses/$(value id)"
expect_status 404
with_image "$scratch/body" 33554432 '"max_output_tokens":2,"stream":true'
post /v1/responses "@$scratch/body"
expect_body '"type":"response.incomplete"'
expect_equal "$(grep -A1 '^event: response.incomplete' "$out" | grep -c '"store":false')" 1
with_image "$scratch/body" 33554432 '"max_output_tokens":2,"background":true'
expect_refused /v1/responses "@$scratch/body" 400 background
# in the background it is known at the end alone, and said in its place
with_image "$scratch/body" 33488000 '"max_output_tokens":60,"background":true,"top_logprobs":20,"ignore_eos":true'
post /v1/responses "@$scratch/body"
expect_status 200
id=$(value id)
is_over() {
    ask "/v1/responses/$id"
    [ "$(value status)" != queued ] && [ "$(value status)" != in_progress ]
}
wait_for is_over
expect_status 200
expect_equal "$(value status)" failed
expect_body 'the response is too large to be kept'
with_image "$scratch/body" 33000000 '"max_output_tokens":2,"background":true'
post /v1/responses "@$scratch/body"
id=$(value id)
wait_for is_over
expect_equal "$(value status)" incomplete
expect_body '"store":true'
# references to what has to be read again for each
for name in one two; do
    with_image "$scratch/body" 12000000 '"max_output_tokens":1'
    sed "s/{\"role\"/{\"id\":\"$name\",\"role\"/; s/{\"type\":\"function_call_output\"/{\"id\":\"large\",\"type\":\"function_call_output\"/" "$scratch/body" >"$scratch/named"
    post /v1/responses "@$scratch/named"
    expect_body '"store":true'
done
pair='{"type":"item_reference","id":"one"},{"type":"item_reference","id":"two"}'
post /v1/responses "{\"input\":[$pair],\"max_output_tokens\":1,\"store\":false}"
expect_status 200
expect_refused /v1/responses "{\"input\":[$(awk -v pair="$pair" 'BEGIN { for (i = 0; i < 100; i++) printf "%s,", pair }')$pair]}" 400 ''
expect_body 'too much is kept'
large='{"type":"item_reference","id":"large"}'
expect_refused /v1/responses "{\"input\":[$large,$large,$large]}" 400 'input[2].id'
expect_body 'items that are referred to have more than 33554432 bytes'
# results whose calls nobody has seen: each is looked for in what is before it, but not in all of that
results() { # N: a message of so many
    printf '{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"x"}'
    awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) printf ",{\"type\":\"tool_result\",\"tool_use_id\":\"1\"}" }'
    printf ']}]}'
}
results 99000 >"$scratch/body"
post /v1/messages "@$scratch/body" -m "$([ -n "${SANITIZE:-}" ] && echo 200 || echo 12)"
expect_status 400
expect_body 'prompt is too long'
results 100001 >"$scratch/body"
post /v1/messages "@$scratch/body"
expect_status 400
expect_body 'more than 100000 messages'
stop_server
expect_empty "$err"
finish
