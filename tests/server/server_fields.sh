# SPDX-License-Identifier: MIT
# Fields that are wrong, unknown or not supported are refused by name; those that change nothing are
# taken.
. ./lib_server.sh
start_server "$demo" --max-body 1M
chat='"messages":[{"role":"user","content":"Once"}],"max_tokens":1'
text='"prompt":"Once","max_tokens":1'
claude='"messages":[{"role":"user","content":"Once"}],"max_tokens":1'
response='"input":"Once","max_output_tokens":1'

# FIELD BODY: refused by all that answer
refused_by_all() {
    expect_refused /v1/chat/completions "{$chat,$2}" 400 "$1"
    expect_refused /v1/completions "{$text,$2}" 400 "$1"
    expect_refused /v1/responses "{$response,$2}" 400 "$1"
    post /v1/messages "{$claude,$2}"
    expect_status 400
    expect_body "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"$1: "
    expect_body '"request_id":"*_*"}'
}
refused_by_all temperature '"temperature":-0.1'
refused_by_all temperature '"temperature":"hot"'
refused_by_all temperature '"temperature":1e39'
refused_by_all top_p '"top_p":1.01'
refused_by_all top_k '"top_k":1.5'
refused_by_all top_k '"top_k":-2'
expect_body 'top_k: expected a whole number from 0 to 2147483647, or -1'
refused_by_all min_p '"min_p":2'
refused_by_all repetition_penalty '"repetition_penalty":0'
refused_by_all presence_penalty '"presence_penalty":2.1'
refused_by_all frequency_penalty '"frequency_penalty":[]'
refused_by_all dry_multiplier '"dry_multiplier":-1'
refused_by_all dry_base '"dry_base":0.5'
refused_by_all dry_allowed_length '"dry_allowed_length":0'
refused_by_all dry_penalty_last_n '"dry_penalty_last_n":-2'
expect_body 'dry_penalty_last_n: expected a whole number from 0 to 16777216, or -1'
refused_by_all dry_sequence_breakers '"dry_sequence_breakers":"\\n"'
refused_by_all dry_sequence_breakers '"dry_sequence_breakers":["a",""]'
refused_by_all dry_sequence_breakers '"dry_sequence_breakers":[1]'
refused_by_all dry_sequence_breakers '"dry_sequence_breakers":["12345678901234567890123456789012345678901234567890123456789012345"]'
refused_by_all xtc_probability '"xtc_probability":1.1'
refused_by_all xtc_threshold '"xtc_threshold":-0.1'
refused_by_all seed '"seed":1.5'
refused_by_all seed '"seed":"1"'
refused_by_all seed '"seed":18446744073709551616'
expect_body 'seed: expected a whole number from -9223372036854775808 to 18446744073709551615'
seed_text() {
    post /v1/completions "{\"prompt\":\"Once\",\"max_tokens\":8,\"temperature\":1,\"seed\":$1}"
    expect_status 200
    nth_text "$out" 1
}
expect_equal "$(seed_text 7.0)" "$(seed_text 7)"
expect_equal "$(seed_text -1e3)" "$(seed_text -1000)"
refused_by_all logit_bias '"logit_bias":[]'
refused_by_all logit_bias '"logit_bias":{"x":1}'
refused_by_all logit_bias '"logit_bias":{"4096":1}'
refused_by_all logit_bias '"logit_bias":{"1":101}'
refused_by_all logit_bias '"logit_bias":{"-1":1}'
refused_by_all stream '"stream":1'
refused_by_all model '"model":7'
refused_by_all grammars '"grammars":"root ::= x"'
expect_body 'this server does not know such a field'
refused_by_all seed '"seed":1,"seed":2'
expect_body 'given twice'

# taken by all, and nothing depends on them
for api in "/v1/chat/completions|$chat" "/v1/completions|$text" "/v1/responses|$response" "/v1/messages|$claude"; do
    post "${api%%|*}" "{${api#*|},\"user\":\"u\",\"metadata\":{\"a\":\"b\"},\"store\":true,\"service_tier\":\"auto\",\"prompt_cache_key\":\"k\",\"safety_identifier\":\"s\",\"temperature\":null,\"nothing\":null,\"seed\":-1,\"top_k\":-1,\"logit_bias\":{\"5\":-100,\"6\":100},\"presence_penalty\":1,\"frequency_penalty\":-1,\"repetition_penalty\":1.1,\"min_p\":0.1}"
    expect_status 200
done

# DRY breaks a repetition off, here of a word that a bias repeats, unless what it is made of breaks
# it; XTC with two candidates and certainty takes the second, whatever the seed
post /tokenize '{"content":" dog"}'
again="\"prompt\":\"The\",\"max_tokens\":6,\"temperature\":0,\"logit_bias\":{\"$(value tokens | tr -d '[]')\":50}"
completion() {
    post /v1/completions "{$again$1}"
    expect_status 200
    value text
}
plain=' dog dog dog dog dog dog'
expect_equal "$(completion '')" "$plain"
dry=',"dry_multiplier":50'
expect_equal "$(completion "$dry" | cut -c1-12)" ' dog dog dog'
expect_true [ "$(completion "$dry")" != "$plain" ]
expect_true [ "$(completion "$dry,\"dry_sequence_breakers\":[]")" != "$plain" ]
expect_true [ "$(completion "$dry,\"dry_penalty_last_n\":-1,\"dry_base\":1,\"dry_allowed_length\":3")" != "$plain" ]
for off in '"dry_penalty_last_n":0' '"dry_penalty_last_n":2' '"dry_sequence_breakers":["og","x"]' '"dry_sequence_breakers":["g d"]' \
    '"dry_allowed_length":5'; do
    expect_equal "$(completion "$dry,$off")" "$plain"
done
xtc='"top_k":2,"temperature":1,"xtc_probability":1,"xtc_threshold":0'
again='"prompt":"One day the","max_tokens":6'
second=$(completion ",$xtc,\"seed\":1")
expect_equal "$(completion ",$xtc,\"seed\":2")" "$second"
expect_true [ "$(completion ',"temperature":0')" != "$second" ]

# of best_of answers those n are given out, in falling order, whose tokens the model finds likeliest:
# the same answers with logprobs say which these are
several='"prompt":["Once","The dog"],"max_tokens":6,"seed":7,"temperature":1.5,"ignore_eos":true'
post /v1/completions "{$several,\"n\":5,\"logprobs\":0}"
grep -o '"text":"\([^"\\]\|\\.\)*"' "$out" >"$scratch/texts"
grep -o '"token_logprobs":\[[^]]*' "$out" | sed 's/.*\[//' |
    awk -F, '{ sum = 0; for (i = 1; i <= NF; i++) sum += $i; printf "%d %.6f %d\n", (NR - 1) / 5, sum, NR }' |
    sort -k1,1n -k2,2gr | awk '$1 != was { was = $1; n = 0 } n++ < 2 { print $3 }' was=-1 |
    while read -r i; do sed -n "${i}p" "$scratch/texts"; done >"$scratch/best"
expect_equal "$(wc -l <"$scratch/texts") $(wc -l <"$scratch/best")" '10 4'
post /v1/completions "{$several,\"n\":2,\"best_of\":5}"
expect_status 200
expect_equal "$(grep -o '"text":"\([^"\\]\|\\.\)*"' "$out")" "$(cat "$scratch/best")"
expect_equal "$(grep -o '"index":[0-9]*' "$out" | tr -dc '0-9')" 0123
expect_equal "$(value completion_tokens)" 60
expect_body '"logprobs":null'
post /v1/completions "{$several,\"n\":2,\"best_of\":2,\"stream\":true}"
expect_status 200

# what is not there yet is refused by name; where it says nothing it is taken
expect_refused /v1/chat/completions "{$chat,\"tools\":[{\"type\":\"function\"}]}" 400 'tools[0].function'
expect_refused /v1/chat/completions "{$chat,\"tools\":7}" 400 tools
expect_refused /v1/chat/completions "{$chat,\"tools\":[7]}" 400 'tools[0]'
expect_refused /v1/chat/completions "{$chat,\"tools\":[{\"type\":\"function\",\"function\":{}}]}" 400 'tools[0].function.name'
expect_refused /v1/chat/completions "{$chat,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"\"}}]}" 400 'tools[0].function.name'
expect_refused /v1/chat/completions "{$chat,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":[]}}]}" 400 'tools[0].function.parameters'
expect_refused /v1/chat/completions "{$chat,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":\"yes\"}}]}" 400 'tools[0].function.strict'
expect_refused /v1/responses "{$response,\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"strict\":1}]}" 400 'tools[0].strict'
# what would take long to compare is taken quickly, or refused
many() { # N FORMAT: so many, with commas between
    awk -v n="$1" -v format="$2" 'BEGIN { for (i = 0; i < n; i++) printf (i > 0 ? "," : "") format, i }'
}
printf '{%s,%s}' "$chat" "$(many 60000 '"k%d":null')" >"$scratch/nulls"
post /v1/chat/completions "@$scratch/nulls" -m 3
expect_status 200
printf '{%s,"tools":[{"type":"namespace","name":"a","tools":[%s]}]}' "$response" "$(many 5000 '{"type":"function","name":"f%d"}')" >"$scratch/group"
expect_refused /v1/responses "@$scratch/group" 400 'tools[0].tools[4096]'
customs=$(many 1024 '{"type":"custom","name":"f%d"}')
again="{\"type\":\"additional_tools\",\"tools\":[$customs]}"
printf '{"max_output_tokens":1,"input":[%s,%s,%s,%s,%s,{"role":"user","content":"x"}]}' "$again" "$again" "$again" "$again" "$again" >"$scratch/customs"
expect_refused /v1/responses "@$scratch/customs" 400 tools
expect_body 'more than 4096 custom tools'
printf '{%s,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[%s]}}}' "$chat" "$(many 5000 '{"name":"f%d"}')" >"$scratch/allowed"
expect_refused /v1/chat/completions "@$scratch/allowed" 400 tool_choice
expect_body 'at most 4096'
# a name that a syntax of calls would read otherwise, of any kind of tool
for name in 'a\"b' 'a\\b' '<a' 'a>' 'a\nb' ''; do
    expect_refused /v1/chat/completions "{$chat,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"$name\"}}]}" 400 'tools[0].function.name'
    expect_refused /v1/chat/completions "{$chat,\"tools\":[{\"type\":\"custom\",\"custom\":{\"name\":\"$name\"}}]}" 400 'tools[0].custom.name'
    expect_refused /v1/responses "{$response,\"tools\":[{\"type\":\"namespace\",\"name\":\"$name\",\"tools\":[]}]}" 400 'tools[0].name'
done
expect_refused /v1/chat/completions "{$chat,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"schema\":{}}}]}" 400 'tools[0].function.schema'
expect_refused /v1/chat/completions "{$chat,\"parallel_tool_calls\":1}" 400 parallel_tool_calls
expect_refused /v1/chat/completions "{$chat,\"documents\":[1]}" 400 documents
# the demo model has no template, and so no words for tools
expect_refused /v1/chat/completions "{$chat,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}" 400 tools
expect_refused /v1/chat/completions "{$chat,\"tools\":[{\"type\":\"retrieval\"}]}" 400 'tools[0].type'
expect_body '"code":"unsupported_parameter"'
expect_refused /v1/chat/completions "{$chat,\"functions\":[{}]}" 400 'functions[0].name'
expect_refused /v1/chat/completions "{$chat,\"functions\":[{\"name\":\"f\"}],\"tools\":[{}]}" 400 functions
expect_refused /v1/chat/completions "{$chat,\"function_call\":{\"name\":\"f\"}}" 400 tool_choice
expect_refused /v1/chat/completions "{$chat,\"function_call\":7}" 400 function_call
expect_refused /v1/chat/completions "{$chat,\"function_call\":\"auto\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}" 400 function_call
expect_refused /v1/chat/completions "{$chat,\"functions\":[{\"name\":\"f\"}],\"tool_choice\":\"none\"}" 400 tool_choice
expect_refused /v1/chat/completions '{"input":"Once","functions":[{"name":"f"}]}' 400 functions
expect_refused /v1/chat/completions '{"input":"Once","response_format":{"type":"json_objects"}}' 400 response_format.type
expect_refused /v1/chat/completions '{"input":"Once","text":{"format":{"type":"json_objects"}}}' 400 text.format.type
expect_refused /v1/chat/completions "{$chat,\"response_format\":{\"type\":\"json_objects\"}}" 400 response_format.type
# a schema that is misspelt, or given twice, would be one that the answer is not held to
for format in 'shema {"type":"json_object","shema":{}}' 'type {"type":"text","type":"json_object"}' \
    'schema {"type":"text","schema":{}}' 'schema {"type":"json_schema","json_schema":{"schema":{}},"schema":{"type":"string"}}' \
    'json_schema.shema {"type":"json_schema","json_schema":{"name":"a","schema":{},"shema":{}}}' \
    'json_schema.schema {"type":"json_schema","json_schema":{"schema":{},"schema":{"type":"string"}}}' \
    'json_schema {"type":"json_schema","json_schema":"x"}'; do
    expect_refused /v1/chat/completions "{$chat,\"response_format\":${format#* }}" 400 "response_format.${format%% *}"
done
expect_refused /v1/responses '{"input":"Once","text":{"format":{"type":"json_object","shema":{}}}}' 400 text.format.shema
post /v1/chat/completions "{$chat,\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\",\"description\":\"b\",\"strict\":true,\"schema\":{\"type\":\"string\"}}}}"
expect_status 200
expect_refused /v1/chat/completions "{$chat,\"tool_choice\":\"required\"}" 400 tool_choice
expect_refused /v1/chat/completions "{$chat,\"tool_choice\":{\"type\":\"function\"}}" 400 tool_choice
expect_refused /v1/chat/completions "{$chat,\"modalities\":[\"text\",\"audio\"]}" 400 modalities
expect_refused /v1/chat/completions "{$chat,\"audio\":{\"voice\":\"x\"}}" 400 audio
expect_refused /v1/chat/completions "{$chat,\"top_logprobs\":2}" 400 top_logprobs
expect_refused /v1/chat/completions "{$chat,\"logprobs\":true,\"top_logprobs\":21}" 400 top_logprobs
expect_refused /v1/chat/completions "{$chat,\"n\":0}" 400 n
expect_refused /v1/chat/completions "{$chat,\"n\":1000000}" 400 n
expect_refused /v1/chat/completions "{$chat,\"stop\":[\"\"]}" 400 stop
expect_refused /v1/chat/completions "{$chat,\"stop\":7}" 400 stop
expect_refused /v1/chat/completions "{$chat,\"stop\":[1]}" 400 stop
expect_refused /v1/chat/completions "{$chat,\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\"]}" 400 stop
expect_refused /v1/chat/completions "{$chat,\"stream_options\":{\"include\":true}}" 400 stream_options.include
expect_refused /v1/chat/completions "{$chat,\"chat_template_kwargs\":{\"template\":\"x\"}}" 400 chat_template_kwargs.template
expect_refused /v1/chat/completions "{$chat,\"reasoning_effort\":\"enormous\"}" 400 reasoning_effort

# -1 is no limit, as clients of other servers say it; nothing else below zero is one
digits='"grammar":"root ::= [0-9]{40}"'
for asked in '/v1/completions {"prompt":"Once","max_tokens":-1' '/v1/chat/completions {"messages":[{"role":"user","content":"Once"}],"max_tokens":-1' \
    '/v1/chat/completions {"messages":[{"role":"user","content":"Once"}],"max_tokens":9,"max_completion_tokens":-1.0'; do
    post "${asked%% *}" "${asked#* },$digits}"
    expect_status 200
    expect_equal "$(value finish_reason)" stop
done
post /v1/responses "{\"input\":\"Once\",\"max_output_tokens\":-1,$digits}"
expect_status 200
expect_body '"status":"completed"*"max_output_tokens":null'
expect_refused /v1/completions '{"prompt":"Once","max_tokens":-2}' 400 max_tokens
expect_refused /v1/chat/completions '{"messages":[{"role":"user","content":"Once"}],"max_tokens":-0.5}' 400 max_tokens
post /v1/messages '{"messages":[{"role":"user","content":"Once"}],"max_tokens":-1}'
expect_status 400

# fields within fields are named with what they are of
expect_refused /v1/chat/completions "{$chat,\"reasoning\":{\"effort\":\"enormous\"}}" 400 reasoning.effort
expect_refused /v1/chat/completions "{$chat,\"reasoning\":{\"enabled\":1}}" 400 reasoning.enabled
expect_refused /v1/chat/completions "{$chat,\"reasoning\":{\"max_tokens\":-1}}" 400 reasoning.max_tokens
expect_refused /v1/responses "{$response,\"reasoning\":{\"context\":7}}" 400 reasoning.context
expect_refused /v1/chat/completions "{$chat,\"thinking\":{\"type\":7}}" 400 thinking.type
expect_refused /v1/chat/completions "{$chat,\"thinking\":{\"budget_tokens\":0.5}}" 400 thinking.budget_tokens
expect_refused /v1/chat/completions "{$chat,\"chat_template_kwargs\":{\"thinking\":0}}" 400 chat_template_kwargs.thinking
expect_refused /v1/chat/completions "{$chat,\"stream_options\":{\"include_usage\":1}}" 400 stream_options.include_usage
post /v1/messages "{$claude,\"output_config\":{\"effort\":\"enormous\"}}"
expect_body '"message":"output_config.effort: '
post /v1/messages "{$claude,\"tools\":[],\"tool_choice\":{\"disable_parallel_tool_use\":1}}"
expect_body '"message":"tool_choice.disable_parallel_tool_use: '
post /v1/messages '{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","is_error":7}]}]}'
expect_body '"message":"messages[0].content[0].is_error: '
# a name with a zero in it is no other's
expect_refused /v1/chat/completions "{$chat,\"temperature\\u0000x\":0}" 400 temperature
expect_body '"code":"unknown_parameter"'

expect_refused /v1/chat/completions "{$chat,\"thinking\":{\"type\":\"maybe\"}}" 400 thinking.type
post /v1/chat/completions "{$chat,\"tools\":[],\"tool_choice\":\"auto\",\"response_format\":{\"type\":\"text\"},\"modalities\":[\"text\"],\"parallel_tool_calls\":false,\"n\":1,\"stop\":null,\"reasoning_effort\":\"low\",\"chat_template_kwargs\":{\"enable_thinking\":false}}"
expect_status 200
expect_refused /v1/completions "{$text,\"suffix\":\"end\"}" 400 suffix
expect_refused /v1/completions "{$text,\"best_of\":1,\"n\":2}" 400 best_of
expect_refused /v1/completions "{$text,\"best_of\":129}" 400 best_of
expect_refused /v1/completions "{$text,\"best_of\":3,\"stream\":true}" 400 best_of
expect_refused /v1/completions "{$text,\"logprobs\":21}" 400 logprobs
expect_refused /v1/completions '{"prompt":[1,4096]}' 400 prompt
expect_refused /v1/completions '{"prompt":[1,-1]}' 400 prompt
expect_refused /v1/completions '{"prompt":[1,"a"]}' 400 prompt
expect_refused /v1/completions '{"prompt":["a",1]}' 400 prompt
expect_refused /v1/completions '{"prompt":[]}' 400 prompt
expect_refused /v1/completions '{"prompt":[[]]}' 400 ''
expect_refused /v1/completions '{"prompt":""}' 400 ''
expect_refused /v1/completions '{}' 400 prompt
expect_refused /v1/responses "{$response,\"tools\":[{}]}" 400 'tools[0].type'
expect_refused /v1/responses "{$response,\"previous_response_id\":\"resp_1\"}" 400 previous_response_id
expect_refused /v1/responses "{$response,\"background\":1}" 400 background
expect_refused /v1/responses "{$response,\"background\":true,\"store\":false}" 400 background
expect_refused /v1/responses "{$response,\"conversation\":7}" 400 conversation
expect_refused /v1/responses "{$response,\"conversation\":\"conv_1\"}" 404 conversation
expect_refused /v1/responses "{$response,\"max_tool_calls\":0}" 400 max_tool_calls
expect_refused /v1/responses "{$response,\"truncation\":\"early\"}" 400 truncation
expect_refused /v1/responses "{$response,\"text\":{\"format\":{\"type\":\"json_schema\"}}}" 400 text.format.schema
expect_refused /v1/responses '{"input":[{"type":"function_call_output","call_id":"1","output":"x"}]}' 400 messages
expect_refused /v1/responses '{"input":[{"type":"item_reference","id":"1"}]}' 400 'input[0].id'
expect_refused /v1/responses '{"input":[{"type":"function_call","call_id":1,"name":"f","arguments":"{}"}]}' 400 'input[0].call_id'
expect_refused /v1/responses '{"input":[{"type":"function_call","call_id":"1","arguments":"{}"}]}' 400 'input[0].name'
expect_refused /v1/responses '{"input":[]}' 400 input
post /v1/messages '{"messages":[{"role":"user","content":"x"}]}'
expect_status 400
expect_body 'max_tokens: is missing'
post /v1/messages "{$claude,\"tools\":[{\"name\":\"f\"}]}"
expect_status 400
expect_body '"tools: this model has no chat template'
post /v1/messages "{$claude,\"tools\":[{\"name\":\"f\",\"parameters\":{}}]}"
expect_body 'tools[0].parameters'
post /v1/messages "{$claude,\"tool_choice\":{\"type\":\"any\"}}"
expect_status 400
expect_body tool_choice
post /v1/messages '{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":""}}]}]}'
expect_status 400
expect_body 'messages[0].content[0].type: *image'
post /v1/messages '{"max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":7}]}]}'
expect_status 400
expect_body 'messages[0].content[0].input: '
post /v1/messages '{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result","content":"x"}]}]}'
expect_status 400
expect_body 'messages[0].content[0].tool_use_id: '
post /v1/messages "{$claude,\"context_management\":{\"edits\":[]},\"output_config\":{\"effort\":\"high\"},\"thinking\":{\"type\":\"adaptive\"},\"stop_sequences\":[]}"
expect_status 200
# what the clients' own types have beside, and nothing here depends on
post '/v1/messages?beta=true' "{$claude,\"billing_policy\":{\"type\":\"billing_policy\"},\"fallbacks\":\"default\",\"fallback_credit_token\":\"x\",\"user_profile_id\":\"u\",\"workspace_id\":\"w\",\"speed\":\"standard\",\"inference_geo\":\"eu\",\"diagnostics\":{\"previous_message_id\":null},\"cache_control\":{\"type\":\"ephemeral\"},\"betas\":[\"x\"],\"service_tier\":\"auto\",\"metadata\":{\"user_id\":\"u\"},\"thinking\":{\"type\":\"adaptive\",\"display\":\"summarized\",\"block_binding\":{}},\"output_config\":{\"task_budget\":{\"type\":\"tokens\",\"total\":9}},\"container\":null,\"mcp_servers\":[]}" -H 'anthropic-beta: a,b'
expect_status 200
for field in compaction thread container mcp_servers; do
    post /v1/messages "{$claude,\"$field\":{\"type\":\"x\"}}"
    expect_status 400
    expect_body "\"message\":\"$field: not supported"
done
expect_refused /v1/chat/completions "{$chat,\"moderation\":{\"model\":\"m\"}}" 400 moderation
expect_refused /v1/responses "{$response,\"moderation\":{\"model\":\"m\"}}" 400 moderation
for asked in '"reasoning.encrypted_content"' '[7]'; do
    expect_refused /v1/responses "{$response,\"include\":$asked}" 400 include
done
# an empty object is how a search is asked for
for asked in '{}' '{"search_context_size":"low"}'; do
    expect_refused /v1/chat/completions "{$chat,\"web_search_options\":$asked}" 400 web_search_options
done
post /v1/chat/completions "{$chat,\"web_search_options\":null,\"moderation\":{},\"audio\":false}"
expect_status 200
post /v1/responses "{$response,\"context_management\":[{\"type\":\"compaction\",\"compact_threshold\":9}],\"max_tool_calls\":3,\"stream_options\":{\"include_obfuscation\":false},\"safety_identifier\":\"s\",\"prompt_cache_options\":{},\"prompt_cache_retention\":\"24h\"}"
expect_status 200
post /v1/messages "{$claude,\"output_config\":{\"format\":{\"type\":\"json_schema\"}}}"
expect_status 400
expect_body output_config.format

# messages
refused_message() {
    expect_refused /v1/chat/completions "{\"messages\":$1}" 400 "$2"
}
refused_message '[]' messages
refused_message '"x"' messages
refused_message '[7]' 'messages[0].role'
refused_message '[{"content":"x"}]' 'messages[0].role'
refused_message '[{"role":"oracle","content":"x"}]' 'messages[0].role'
refused_message '[{"role":"user","content":"x"},{"role":"tool","content":"y"}]' messages
refused_message '[{"role":"user","content":"x","tool_calls":[{"function":{"name":"f"}}]}]' 'messages[0].tool_calls'
refused_message '[{"role":"assistant","tool_calls":7}]' 'messages[0].tool_calls'
refused_message '[{"role":"assistant","tool_calls":[{"id":7,"function":{"name":"f"}}]}]' 'messages[0].tool_calls[0].id'
refused_message '[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":7}}]}]' 'messages[0].tool_calls[0].function.arguments'
refused_message '[{"role":"tool","content":"x","tool_call_id":7}]' 'messages[0].tool_call_id'
refused_message '[{"role":"user","content":7}]' 'messages[0].content'
refused_message '[{"role":"user","content":[7]}]' 'messages[0].content'
refused_message '[{"role":"user","content":[{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}]}]' 'messages[0].content[0].type'
refused_message '[{"role":"user","name":"a\u0000b","content":"x"}]' 'messages[0].name'
# a word with U+0000 is not the word before it
refused_message '[{"role":"user\u0000x","content":"x"}]' 'messages[0].role'
refused_message '[{"role":"user","content":[{"type":"text\u0000x","text":"x"}]}]' 'messages[0].content[0].type'
expect_refused /v1/responses '{"input":[{"type":"a\u0000_call"}]}' 400 'input[0].type'
expect_refused /v1/responses '{"input":"x","tools":[{"type":"function\u0000","name":"a"}]}' 400 'tools[0].type'
post /v1/messages '{"messages":[{"role":"user","content":"x"}],"max_tokens":1,"tools":[{"type":"custom\u0000","name":"a","input_schema":{}}]}'
expect_status 400
expect_body 'tools[0].type: contains the character U+0000'
expect_refused /v1/completions '{"prompt":"x","logit_bias":{"5\u0000x":1}}' 400 logit_bias
refused_message '[{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}]' 'messages[0].tool_calls[0].function.name'
refused_message '[{"role":"assistant","content":""}]' messages
post /v1/chat/completions '{"messages":[{"role":"developer","content":"x","name":"n"},{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":null,"tool_calls":[]},{"role":"user","content":"b"},{"role":"assistant","content":""}],"max_tokens":1}'
expect_status 200

# a prompt that is too long, in the words that agents look for
long=$(awk 'BEGIN { for (i = 0; i < 5000; i++) printf "word " }')
expect_refused /v1/chat/completions "{\"messages\":[{\"role\":\"user\",\"content\":\"$long\"}]}" 400 ''
expect_body "This model's maximum context length is 4096 tokens"
expect_body '"code":"context_length_exceeded"'
post /v1/messages "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"$long\"}]}"
expect_status 400
expect_body 'prompt is too long: * tokens > 4096 maximum'
# as long as it may be
post /v1/completions "{\"prompt\":[$(awk 'BEGIN { for (i = 1; i < 4096; i++) printf "%d,", i % 50 + 300; print 300 }')],\"max_tokens\":0}"
expect_status 200
stop_server
expect_empty "$err"
finish
