# SPDX-License-Identifier: MIT
# Answers that call tools, by all three APIs, and an agent's thirty turns, whose history comes back
# as clients send it: no token of it is evaluated twice. One word of the demo model is a call as a
# text, so that it can be made to say it (by a bias), and says it in its own tokens and spacing.
. ./lib_server.sh
call='<tool_call>\n{\"name\":\"noon\",  \"arguments\":{\"b\":2,\"a\":1.0}}\n</tool_call>'
thinking_model "$scratch/calls" qwen36.jinja "$call"
thinking_model "$scratch/says" qwen36.jinja "I look.\\n\\n$call"
thinking_model "$scratch/thinks" qwen36.jinja "<think>\\nHm.\\n</think>\\n\\n$call"
thinking_model "$scratch/patches" qwen36.jinja '<tool_call>\n{\"name\":\"patch\",\"arguments\":{\"input\":\"*** \\\"x\\\"\"}}\n</tool_call>'
for model in calls says thinks patches; do
    cp "$SOURCE/tests/text/data/jinja/hermes.jinja" "$scratch/$model/chat_template.jinja"
done
it='"temperature":0,"logit_bias":{"316":100}'
tools='"tools":[{"type":"function","function":{"name":"noon","description":"Tells noon.","parameters":{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"integer"}}}}}]'
flat='"tools":[{"type":"function","name":"noon"}]'
claude='"tools":[{"name":"noon","input_schema":{"type":"object"}}]'
asked='"messages":[{"role":"user","content":"Once upon a time"}]'

start_server "$scratch/says"
# chat
post /v1/chat/completions "{$asked,$it,$tools,\"parallel_tool_calls\":false,\"max_tokens\":9}"
expect_status 200
expect_equal "$(value content)" 'I look.'
expect_body '"tool_calls":[{"id":"call_*","type":"function","function":{"name":"noon","arguments":"{\"b\":2,*\"a\":1.0}"}}]}'
expect_equal "$(value finish_reason)" tool_calls
expect_equal "$(value completion_tokens)" 1
arguments=$(value arguments)
post /v1/chat/completions "{$asked,$it,$tools,\"parallel_tool_calls\":false,\"max_tokens\":9,\"stream\":true}"
expect_equal "$(joined "$out" arguments)" "$arguments"
expect_equal "$(joined "$out" content)" 'I look.'
expect_equal "$(grep -c '"id":"call_' "$out")" 1
expect_equal "$(grep -c '"role":"assistant"' "$out")" 1
expect_equal "$(grep -o '"finish_reason":[^}]*' "$out" | grep -v null)" '"finish_reason":"tool_calls"'
post /v1/chat/completions "{$asked,$it,$tools,\"max_tokens\":3}"
expect_equal "$(grep -o '"id":"call_[^"]*' "$out" | sort -u | wc -l)" 3
expect_equal "$(value finish_reason)" length # it was cut
post /v1/chat/completions "{$asked,$it,$tools,\"max_tokens\":3,\"stream\":true}"
expect_equal "$(grep -o '"tool_calls":.{"index":[0-9]*,"id' "$out" | tr -dc '0-9\n' | tr '\n' ' ')" '0 1 2 '
post /v1/chat/completions "{$asked,$it,$tools,\"parallel_tool_calls\":false,\"n\":2,\"max_tokens\":9}"
expect_equal "$(grep -o '"id":"call_[^"]*' "$out" | sort -u | wc -l)" 2
# functions, the older form
functions='"functions":[{"name":"noon","parameters":{"type":"object","properties":{}}}]'
post /v1/chat/completions "{$asked,$it,$functions,\"max_tokens\":9}"
expect_body '"content":"I look.",*"function_call":{"name":"noon","arguments":"{\"b\":2,*\"a\":1.0}"}}'
expect_no_body tool_calls
expect_equal "$(value finish_reason)" function_call
post /v1/chat/completions "{$asked,$it,$functions,\"max_tokens\":9,\"stream\":true}"
expect_body '"delta":{"function_call":{"name":"noon","arguments":""}}'
expect_equal "$(joined "$out" arguments)" "$arguments"
expect_body '"finish_reason":"function_call"'
post /v1/chat/completions "{$asked,$it,$functions,\"function_call\":\"none\",\"max_tokens\":1}"
expect_no_body '"function_call"'
post /v1/chat/completions "{\"messages\":[{\"role\":\"user\",\"content\":\"Once upon a time\"},{\"role\":\"assistant\",\"content\":null,\"function_call\":{\"name\":\"noon\",\"arguments\":\"{}\"}},{\"role\":\"function\",\"name\":\"noon\",\"content\":\"now\"}],$functions,\"max_tokens\":1}"
expect_status 200
# without tools, or a choice, it is text
post /v1/chat/completions "{$asked,$it,\"max_tokens\":1}"
expect_body '"content":"I look.\n\n<tool_call>\n{\"name'
post /v1/chat/completions "{$asked,$it,$tools,\"tool_choice\":\"none\",\"max_tokens\":1}"
expect_no_body '"tool_calls"'
expect_body 'I look.\n\n<tool_call>'
# responses
post /v1/responses "{\"input\":\"Once\",$it,$flat,\"max_output_tokens\":9,\"max_tool_calls\":2}"
expect_body '"status":"completed"'
expect_body '"max_tool_calls":2'
expect_equal "$(grep -o '"type":"function_call"' "$out" | wc -l)" 2
post /v1/responses "{\"input\":\"Once\",$it,$flat,\"parallel_tool_calls\":false,\"max_output_tokens\":9}"
expect_body '"output":[{"id":"msg_*,"type":"message",*"I look."*},{"id":"fc_*","status":"completed","type":"function_call","call_id":"call_*","name":"noon","arguments":"{\"b\":2,*'
expect_body '"status":"completed"'
post /v1/responses "{\"input\":\"Once\",$it,$flat,\"parallel_tool_calls\":false,\"max_output_tokens\":9,\"stream\":true}"
expect_equal "$(sed -n 's/^event: response.//p' "$out" | uniq | tr '\n' ' ')" \
    "created in_progress output_item.added content_part.added output_text.delta output_text.done content_part.done output_item.done output_item.added function_call_arguments.delta function_call_arguments.done output_item.done completed "
expect_body '"response.function_call_arguments.delta","sequence_number":9,"item_id":"fc_*_1","output_index":1,"delta":"{'
expect_body '"response.function_call_arguments.done",*,"name":"noon","arguments":"{\"b\":2,'
# messages
post /v1/messages "{$asked,$it,$claude,\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":true},\"max_tokens\":9}"
expect_body '"content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"toolu_*","name":"noon","input":{"b":2,*"a":1.0}}],"stop_reason":"tool_use"'
post /v1/messages "{$asked,$it,$claude,\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":true},\"max_tokens\":9,\"stream\":true}"
expect_equal "$(sed -n 's/^event: //p' "$out" | tr '\n' ' ')" \
    "message_start content_block_start content_block_delta content_block_stop content_block_start content_block_delta content_block_stop message_delta message_stop "
expect_body '"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_*","name":"noon","input":{}}'
expect_body '"index":1,"delta":{"type":"input_json_delta","partial_json":"{\"b\":2,'
expect_body '"delta":{"stop_reason":"tool_use"'
stop_server

# Codex' tools: with a text, in groups, and those that are none of the model's
start_server "$scratch/patches"
codex='"tools":[{"type":"custom","name":"patch","description":"Patches.","format":{"type":"grammar","syntax":"lark","definition":"start: x"}},{"type":"namespace","name":"mcp__x","description":"Group.","tools":[{"type":"function","name":"noon","parameters":{"type":"object","properties":{}},"strict":false}]},{"type":"web_search","external_web_access":false},{"type":"local_shell"}],"tool_choice":"auto","parallel_tool_calls":false,"reasoning":{"effort":"medium","summary":"auto"},"store":false,"include":["reasoning.encrypted_content"],"prompt_cache_key":"k","text":{"verbosity":"low"},"client_metadata":{"a":"b"}'
item='{"role":"user","content":[{"type":"input_text","text":"Once"}]}'
# the same in a chat, and its history
custom='"tools":[{"type":"custom","custom":{"name":"patch","description":"Patches.","format":{"type":"text"}}}],"parallel_tool_calls":false'
post /v1/chat/completions "{$asked,$it,$custom}"
expect_status 200
expect_body '"tool_calls":[{"id":"call_*","type":"custom","custom":{"name":"patch","input":"*** \"x\""}}]}'
expect_equal "$(value finish_reason)" tool_calls
call_id=$(grep -o '"id":"call_[^"]*' "$out" | sed 's/.*"//')
n_held=$(value total_tokens)
post /v1/chat/completions "{$asked,$it,$custom,\"stream\":true}"
expect_body '"tool_calls":[{"index":0,"id":"call_*","type":"custom","custom":{"name":"patch","input":""}}]}'
expect_body '"tool_calls":[{"index":0,"custom":{"input":"*** \"x\""}}]}'
expect_no_body arguments
post /v1/chat/completions "{$(printf '%s' "$asked" | sed 's/]$//'),{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"$call_id\",\"type\":\"custom\",\"custom\":{\"name\":\"patch\",\"input\":\"*** \\\"x\\\"\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"$call_id\",\"content\":\"done\"}],$it,$custom}"
expect_status 200
expect_true test "$(value cached_tokens)" -ge $((n_held - 1))
# of one that is cut so much of the text as was written, wherever that is: not the JSON around it
for n in 16 24 32 40 48 56 64; do
    post /v1/chat/completions "{$asked,$custom,\"tool_choice\":{\"type\":\"custom\",\"custom\":{\"name\":\"patch\"}},\"seed\":2,\"max_tokens\":$n,\"stream\":true}"
    expect_body '"finish_reason":"length"'
    expect_no_body '"input":"{'
done
expect_true grep -q '"custom":{"input":"[^"{]' "$out"
# a response's request where a chat's belongs, as Cursor sends it: a chat's answer
post /v1/chat/completions "{\"instructions\":\"Code.\",\"input\":[$item],$it,\"tools\":[{\"type\":\"custom\",\"name\":\"patch\",\"description\":\"Patches.\"},{\"type\":\"function\",\"name\":\"one\",\"parameters\":{\"type\":\"object\"}}],\"parallel_tool_calls\":false,\"include\":[\"reasoning.encrypted_content\"],\"stream\":true}"
expect_status 200
expect_body '"object":"chat.completion.chunk"'
expect_body '"custom":{"input":"*** \"x\""}'
expect_refused /v1/chat/completions "{$asked,\"input\":[$item]}" 400 input
# of several tools those that are allowed, in both forms
some='{"type":"function","function":{"name":"one"}},{"type":"function","function":{"name":"two"}}'
allowed='"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"%s","tools":[%s]}}'
two='{"type":"function","function":{"name":"two"}}'
# shellcheck disable=SC2059 # the choice is a format
post /apply-template "{$asked,\"tools\":[$some],$(printf "$allowed" auto "$two")}"
expect_body 'two'
expect_no_body 'one\"'
# shellcheck disable=SC2059
post /v1/chat/completions "{$asked,\"tools\":[$some],\"seed\":1,\"max_tokens\":200,\"parallel_tool_calls\":false,$(printf "$allowed" required "$two")}"
expect_body '"function":{"name":"two","arguments":"'
# shellcheck disable=SC2059
expect_refused /v1/chat/completions "{$asked,\"tools\":[$some],$(printf "$allowed" auto '')}" 400 tool_choice
# shellcheck disable=SC2059
expect_refused /v1/chat/completions "{$asked,\"tools\":[$some],$(printf "$allowed" never "$two")}" 400 tool_choice
post /v1/responses "{\"input\":\"Once\",\"tools\":[{\"type\":\"function\",\"name\":\"one\"},{\"type\":\"function\",\"name\":\"two\"}],\"seed\":1,\"max_output_tokens\":200,\"parallel_tool_calls\":false,\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"required\",\"tools\":[{\"type\":\"function\",\"name\":\"one\"}]}}"
expect_body '"type":"function_call","call_id":"call_*","name":"one"'

post /v1/responses "{\"instructions\":\"Code.\",\"input\":[$item],$it,$codex}"
expect_status 200
expect_body '"output":[{"id":"ctc_*","type":"custom_tool_call","call_id":"call_*","name":"patch","input":"*** \"x\""}]'
n_held=$(value total_tokens)
call_id=$(value call_id)
post /v1/responses "{\"instructions\":\"Code.\",\"input\":[$item],$it,$codex,\"stream\":true}"
expect_equal "$(sed -n 's/^event: response.//p' "$out" | tr '\n' ' ')" \
    "created in_progress output_item.added custom_tool_call_input.delta custom_tool_call_input.done output_item.done completed "
post /v1/responses "{\"instructions\":\"Code.\",\"input\":[$item,{\"type\":\"custom_tool_call\",\"call_id\":\"$call_id\",\"name\":\"patch\",\"input\":\"*** \\\"x\\\"\"},{\"type\":\"custom_tool_call_output\",\"call_id\":\"$call_id\",\"output\":\"done\"}],$it,$codex}"
expect_status 200
expect_true test "$(value cached_tokens)" -ge $((n_held - 1))
stop_server
start_server "$scratch/calls"
post /v1/responses "{\"input\":[$item],$it,$codex}"
expect_body '"type":"function_call","call_id":"call_*","name":"noon","namespace":"mcp__x","arguments":"'
stop_server

# two groups with a tool of one name: the model sees two names, the client its own
groups='"tools":[{"type":"namespace","name":"mcp__a","tools":[{"type":"function","name":"noon","parameters":{"type":"object","properties":{}}}]},{"type":"namespace","name":"mcp__b","tools":[{"type":"function","name":"noon","description":"Another.","parameters":{"type":"object","properties":{"b":{"const":2}},"required":["b"]}}]}],"parallel_tool_calls":false,"seed":2,"max_output_tokens":300'
start_server "$scratch/calls"
post /v1/responses "{\"input\":[$item],$it,$groups}"
expect_body '"type":"function_call","call_id":"call_*","name":"noon","namespace":"mcp__a","arguments":"'
for stream in '' ',"stream":true'; do
    post /v1/responses "{\"input\":[$item],$groups,\"tool_choice\":{\"type\":\"function\",\"name\":\"mcp__b__noon\"}$stream}"
    expect_status 200
    expect_body '"name":"noon","namespace":"mcp__b","arguments":"{*\"b\":*2'
    expect_no_body 'mcp__b__noon","arguments'
done
call_id=$(value call_id)
n_held=$(value total_tokens)
post /v1/responses "{\"input\":[$item,{\"type\":\"function_call\",\"call_id\":\"$call_id\",\"name\":\"noon\",\"namespace\":\"mcp__b\",\"arguments\":\"{\\\"b\\\":2}\"},{\"type\":\"function_call_output\",\"call_id\":\"$call_id\",\"output\":\"now\"}],$groups}"
expect_status 200
expect_true test "$(value cached_tokens)" -ge $((n_held - 4)) # the grammar ended it
# a tool of no group keeps its name, also where it stands behind the group's
mixed='"tools":[{"type":"namespace","name":"mcp__a","tools":[{"type":"function","name":"noon","parameters":{"type":"object","properties":{}}}]},{"type":"function","name":"noon","parameters":{"type":"object","properties":{}}}],"seed":2,"max_output_tokens":300'
post /v1/responses "{\"input\":[$item],$mixed,\"tool_choice\":{\"type\":\"function\",\"name\":\"noon\"}}"
expect_status 200
expect_body '"type":"function_call","call_id":"call_*","name":"noon","arguments":"'
post /v1/responses "{\"input\":[$item],$mixed,\"tool_choice\":{\"type\":\"function\",\"name\":\"mcp__a__noon\"}}"
expect_body '"type":"function_call","call_id":"call_*","name":"noon","namespace":"mcp__a","arguments":"'
stop_server

# An agent: it calls, thirty times, and gets results. The history comes back without thoughts, its
# arguments sorted and spaced otherwise, contents null or "", ids as they were given.
# agent MODEL OPTIONS: what was evaluated of prompts, and what of them no answer had said
agent() {
    opening=${3:-}
    start_server "$1"
    history='{"role":"system","content":"You tell noon."},{"role":"user","content":"Once upon a time"}'
    n_evaluated=0 n_new=0 turn=0
    while [ $turn -lt 30 ]; do
        post /v1/chat/completions "{\"messages\":[$history],$it,$tools,\"parallel_tool_calls\":false,\"max_tokens\":20$2}"
        expect_status 200
        expect_equal "$(value finish_reason)" tool_calls
        n_prompt=$(value prompt_tokens)
        n_evaluated=$((n_evaluated + n_prompt - $(value cached_tokens)))
        id=$(grep -o '"id":"call_[^"]*' "$out" | sed 's/.*"//')
        text=$(value content)
        [ "$text" = null ] || text="\"$text\""
        history="$history,{\"role\":\"assistant\",\"content\":$text,\"tool_calls\":[{\"id\":\"$id\",\"type\":\"function\",\"function\":{\"name\":\"noon\",\"arguments\":\"{\\\"a\\\": 1, \\\"b\\\": 2}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"$id\",\"content\":\"It is $turn past noon.\"}"
        if [ $turn -gt 0 ]; then
            post /tokenize "{\"content\":\"<|im_end|>\\n<|im_start|>user\\n<tool_response>\\nIt is $turn past noon.\\n</tool_response><|im_end|>\\n<|im_start|>assistant\\n$opening\"}"
            n_prompt=$(value count)
        fi
        n_new=$((n_new + n_prompt))
        turn=$((turn + 1))
    done
    echo "$(basename "$1")$2: $n_new tokens new, $n_evaluated evaluated"
    expect_true test $((n_evaluated * 100)) -le $((n_new * 110))
    expect_true test $n_evaluated -ge $n_new
}
agent "$scratch/calls" ''
stop_server
# an empty thought that was opened for the answer is the same as none
agent "$scratch/calls" ',"chat_template_kwargs":{"enable_thinking":false}' '<think>\n\n</think>\n\n'
stop_server
agent "$scratch/says" ''
# the same, by Anthropic's API: its first two turns find what the other's made
turns='{"role":"user","content":"Once upon a time"}'
post /v1/messages "{\"messages\":[$turns],$it,$claude,\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":true},\"max_tokens\":9}"
n_held=$(($(value input_tokens) + $(value cache_read_input_tokens) + $(value output_tokens)))
id=$(grep -o '"id":"toolu_[^"]*' "$out" | sed 's/.*"//')
turns="$turns,{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"I look.\"},{\"type\":\"tool_use\",\"id\":\"$id\",\"name\":\"noon\",\"input\":{\"a\":1,\"b\":2}}]},{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"$id\",\"content\":\"now\"}]}"
post /v1/messages "{\"messages\":[$turns],$it,$claude,\"max_tokens\":1}"
expect_true test "$(value cache_read_input_tokens)" -ge $((n_held - 1))
n_all=$(($(value input_tokens) + $(value cache_read_input_tokens)))
post /v1/messages/count_tokens "{\"messages\":[$turns],$claude}"
expect_equal "$(value input_tokens)" $n_all
# nor do clients that drop what is said beside calls lose anything; other words are not taken for it
silent=$(printf '%s' "$turns" | sed 's/{"type":"text","text":"I look."},//')
expect_true test "$silent" != "$turns"
post /v1/messages/count_tokens "{\"messages\":[$silent],$claude}"
expect_equal "$(value input_tokens)" $n_all
post /v1/messages/count_tokens "{\"messages\":[$(printf '%s' "$turns" | sed 's/I look/I see/')],$claude}"
expect_true test "$(value input_tokens)" -gt $((n_all + 9)) # its call is written by the template
# reminders that are added behind, and tools in another order, change nothing of it
two='"tools":[{"name":"noon","input_schema":{"type":"object"}},{"name":"dusk","input_schema":{"type":"object"}}]'
owt='"tools":[{"name":"dusk","input_schema":{"type":"object"}},{"input_schema":{"type":"object"},"name":"noon"}]'
post /v1/messages "{\"messages\":[$turns],$it,$two,\"max_tokens\":1}"
n_held=$(($(value input_tokens) + $(value cache_read_input_tokens)))
post /v1/messages "{\"messages\":[$turns,{\"role\":\"system\",\"content\":\"9 tokens left\"}],$it,$owt,\"max_tokens\":1}"
expect_status 200
expect_true test "$(value cache_read_input_tokens)" -ge $((n_held - 9))
# what means something else is not taken for it: it is written by the template, in more tokens
post /v1/messages/count_tokens "{\"messages\":[$(printf '%s' "$turns" | sed 's/"a":1,/"a":3,/')],$claude}"
expect_true test "$(value input_tokens)" -gt $((n_all + 9))
# nor the same words in another place
post /v1/messages/count_tokens "{\"messages\":[$(printf '%s' "$turns" | sed 's/Once/Thus/')],$claude}"
expect_true test "$(value input_tokens)" -gt $((n_all + 9))
stop_server

# Thoughts that clients drop: within a run of calls the template shows them, and they are there
# again; a new question ends the run, and the template drops them.
agent "$scratch/thinks" ''
post /v1/chat/completions "{\"messages\":[$history],$it,$tools,\"parallel_tool_calls\":false,\"max_tokens\":20}"
expect_equal "$(value reasoning_content)" Hm.
expect_equal "$(value content)" null
n_run=$(value prompt_tokens)
question=',{"role":"user","content":"Once more"}'
post /v1/chat/completions "{\"messages\":[$history$question],$it,$tools,\"max_tokens\":1}"
expect_true test "$(value prompt_tokens)" -gt $((n_run + 300)) # thirty calls as the template writes them
expect_true test "$(value cached_tokens)" -gt 200              # all before the first thought
expect_true test "$(value cached_tokens)" -lt 400
n_prompt=$(value prompt_tokens)
post /apply-template "{\"messages\":[$(printf '%s' "$history" | sed 's/{\\"a\\": 1, \\"b\\": 2}/{\\"b\\": 2, \\"a\\": 1.0}/g')$question],$tools}"
post /tokenize "$(sed 's/{"prompt":/{"content":/' "$out")"
expect_equal "$(value count)" "$n_prompt"
# a thought that is another's is not taken for ours
first=$(printf '%s' "$history" | sed 's/"tool_calls"/"reasoning_content":"Other.","tool_calls"/')
post /v1/chat/completions "{\"messages\":[$first],$it,$tools,\"max_tokens\":1}"
expect_true test "$(value cached_tokens)" -lt 400
stop_server

# text alone: what was sampled is kept as well, where it was cut short as well
start_server "$scratch/calls"
history='{"role":"user","content":"Once upon a time"}'
turn=0 n_held=0
while [ $turn -lt 5 ]; do
    post /v1/chat/completions "{\"messages\":[$history],\"seed\":$turn,\"max_tokens\":24}"
    expect_true test "$(value cached_tokens)" -ge $((n_held - 1))
    n_held=$(($(value prompt_tokens) + $(value completion_tokens)))
    history="$history,{\"role\":\"assistant\",\"content\":\"$(value content)\"},{\"role\":\"user\",\"content\":\"And $turn?\"}"
    turn=$((turn + 1))
done

# and where a stop string ended it: no more than what that string is in, and is left of its first
# token, is evaluated again
turn=0 n_held=0
history='{"role":"user","content":"Once upon a time"}'
while [ $turn -lt 4 ]; do
    request="{\"messages\":[$history],\"seed\":$turn,\"max_tokens\":60,\"grammar\":\"root ::= [a-z ]{300}\""
    post /v1/chat/completions "$request}"
    expect_true test "$(value cached_tokens)" -ge $n_held
    stop=$(value content | cut -c61-69)
    expect_true test ${#stop} -eq 9
    post /v1/chat/completions "$request,\"stop\":[\"$stop\"]}"
    expect_equal "$(value finish_reason)" stop
    expect_no_body "$stop"
    n_held=$(($(value prompt_tokens) + $(value completion_tokens) - 10)) # nine bytes are in no more
    history="$history,{\"role\":\"assistant\",\"content\":\"$(value content)\"},{\"role\":\"user\",\"content\":\"And $turn?\"}"
    turn=$((turn + 1))
done
stop_server

# one that begins within the first token, of which the rest of the answer is
start_server "$scratch/says"
post /v1/chat/completions "{$asked,$it,\"stop\":[\"ool_call>\"]}"
expect_equal "$(value content)" 'I look.\n\n<t'
n_held=$(value prompt_tokens)
turns="${asked%]},{\"role\":\"assistant\",\"content\":\"I look.\\n\\n<t\"},{\"role\":\"user\",\"content\":\"And?\"}]"
post /v1/chat/completions "{$turns,$it,\"max_tokens\":1}"
expect_true test "$(value cached_tokens)" -ge $((n_held - 1))
n_prompt=$(value prompt_tokens)
post /apply-template "{$turns}"
post /tokenize "$(sed 's/{"prompt":/{"content":/' "$out")"
expect_equal "$(value count)" "$n_prompt"
stop_server
finish
