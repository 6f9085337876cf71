# SPDX-License-Identifier: MIT
# Two turns as agents send them, field by field: Claude Code, Codex, editors by the AI SDK (OpenCode,
# Cline), Open WebUI. The second turn finds what the first has left, whatever the client did to it.
. ./lib_server.sh
call='<tool_call>\n{\"name\":\"Bash\",  \"arguments\":{\"command\":\"ls\",\"timeout\":9.0}}\n</tool_call>'
thinking_model "$scratch/agent" qwen36.jinja "$call"
cp "$SOURCE/tests/text/data/jinja/hermes.jinja" "$scratch/agent/chat_template.jinja"
start_server "$scratch/agent"
bias='"logit_bias":{"316":100},"temperature":0'
schema='{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"command":{"type":"string","description":"What to run"},"timeout":{"type":"number"}},"required":["command"],"additionalProperties":false}'

# events NAME...: of the last stream, in their order, each once
expect_events() {
    expect_equal "$(sed -n 's/^event: //p' "$out" | uniq | tr '\n' ' ')" "$1"
}

# Claude Code: attribution and marks of the cache in the system, reminders in the user's turn
claude() {
    printf '%s' "{\"model\":\"claude-sonnet-5\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"<system-reminder>\\nToday is Monday.\\n</system-reminder>\\n\"},{\"type\":\"text\",\"text\":\"List the files\"$1}]}$2],\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: cc_version=2.1.300.$3; cc_entrypoint=cli; cch=$3;\"},{\"type\":\"text\",\"text\":\"You are an agent.\",\"cache_control\":{\"type\":\"ephemeral\"}}],\"tools\":[{\"name\":\"Bash\",\"description\":\"Runs a command\",\"input_schema\":$schema}],\"metadata\":{\"user_id\":\"user_1_account__session_2\"},\"max_tokens\":32,\"thinking\":{\"type\":\"adaptive\"},\"context_management\":{\"edits\":[{\"type\":\"clear_thinking_20251015\",\"keep\":\"all\"}]},\"output_config\":{\"effort\":\"medium\"},\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":true},$bias,\"stream\":true}"
}
ask_claude() {
    post '/v1/messages?beta=true' "$1" -H 'anthropic-version: 2023-06-01' \
        -H 'anthropic-beta: claude-code-20250219,interleaved-thinking-2025-05-14' \
        -H 'x-app: cli' -H 'User-Agent: claude-cli/2.1.300 (external, cli)' -H 'x-stainless-retry-count: 0'
    expect_status 200
    expect_events 'message_start content_block_start content_block_delta content_block_stop message_delta message_stop '
    expect_body '"stop_reason":"tool_use"'
}
ask_claude "$(claude ',"cache_control":{"type":"ephemeral"}' '' a1b)"
expect_equal "$(joined "$out" partial_json)" '{\"command\":\"ls\",\"timeout\":9.0}'
n_held=$(value input_tokens)
id=$(grep -o '"id":"toolu_[^"]*' "$out" | sed 's/.*"//')
ask_claude "$(claude '' ",{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"$id\",\"name\":\"Bash\",\"input\":{\"timeout\":9,\"command\":\"ls\"}}]},{\"role\":\"user\",\"content\":[{\"tool_use_id\":\"$id\",\"type\":\"tool_result\",\"content\":\"a.c\\nb.c\",\"is_error\":false,\"cache_control\":{\"type\":\"ephemeral\"}}]}" c2d)"
expect_true test "$(value cache_read_input_tokens)" -ge "$n_held"

# Codex: items, a developer's message, tools that are flat
codex() {
    printf '%s' "{\"model\":\"gpt-5.4-codex\",\"instructions\":\"You are an agent.\",\"input\":[{\"type\":\"message\",\"role\":\"developer\",\"content\":[{\"type\":\"input_text\",\"text\":\"<permissions>read-only</permissions>\"}]},{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"List the files\"}]}$1],\"tools\":[{\"type\":\"function\",\"name\":\"Bash\",\"description\":\"Runs a command\",\"strict\":false,\"parameters\":$schema},{\"type\":\"web_search\",\"external_web_access\":false}],\"tool_choice\":\"auto\",\"parallel_tool_calls\":false,\"reasoning\":{\"effort\":\"medium\",\"summary\":\"auto\"},\"store\":false,\"stream\":true,\"include\":[\"reasoning.encrypted_content\"],\"prompt_cache_key\":\"0199\",\"text\":{\"verbosity\":\"medium\"},\"max_output_tokens\":32,$bias}"
}
post /v1/responses "$(codex '')" -H 'originator: codex_cli_rs' -H 'Accept: text/event-stream'
expect_status 200
expect_events 'response.created response.in_progress response.output_item.added response.function_call_arguments.delta response.function_call_arguments.done response.output_item.done response.completed '
n_held=$(value total_tokens)
id=$(value call_id)
post /v1/responses "$(codex ",{\"type\":\"function_call\",\"name\":\"Bash\",\"arguments\":\"{\\\"command\\\":\\\"ls\\\",\\\"timeout\\\":9}\",\"call_id\":\"$id\"},{\"type\":\"function_call_output\",\"call_id\":\"$id\",\"output\":\"a.c\\nb.c\"}")"
expect_status 200
expect_true test "$(value cached_tokens)" -ge $((n_held - 1))

# Editors by the AI SDK: no content beside calls, usage asked for
sdk() {
    printf '%s' "{\"model\":\"local/demo\",\"max_tokens\":32,$bias,\"top_p\":1,\"messages\":[{\"role\":\"system\",\"content\":\"You are an agent.\"},{\"role\":\"user\",\"content\":$1}$2],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"Bash\",\"description\":\"Runs a command\",\"parameters\":$schema}}],\"tool_choice\":\"auto\",\"parallel_tool_calls\":false,\"stream\":true,\"stream_options\":{\"include_usage\":true}}"
}
for content in '"List the files"' '[{"type":"text","text":"List the files"}]'; do
    post /v1/chat/completions "$(sdk "$content" '')"
    expect_status 200
    expect_equal "$(grep -o '"finish_reason":"[^"]*' "$out")" '"finish_reason":"tool_calls'
    expect_equal "$(tail -n 2 "$out" | head -1)" 'data: [DONE]'
    n_held=$(grep -o '"total_tokens":[0-9]*' "$out" | tail -1 | tr -dc 0-9)
    id=$(grep -o '"id":"call_[^"]*' "$out" | sed 's/.*"//')
    post /v1/chat/completions "$(sdk "$content" ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"$id\",\"type\":\"function\",\"function\":{\"name\":\"Bash\",\"arguments\":\"{\\\"command\\\":\\\"ls\\\",\\\"timeout\\\":9}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"$id\",\"content\":\"a.c\\nb.c\"}")"
    expect_status 200
    expect_true test "$(grep -o '"cached_tokens":[0-9]*' "$out" | tail -1 | tr -dc 0-9)" -ge $((n_held - 1))
done

# Open WebUI: the thoughts of an answer come back in its content
post /v1/chat/completions '{"stream":true,"model":"agent","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"<think>\nHm.\n</think>\nHello."},{"role":"user","content":"And?"}],"max_tokens":4,"stream_options":{"include_usage":true}}'
expect_status 200
expect_body '"finish_reason":"length"'
stop_server
finish
