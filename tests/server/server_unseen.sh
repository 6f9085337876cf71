# SPDX-License-Identifier: MIT
# What the model cannot be shown, an image for one: refused by name where a user asks about it; in
# what tools have found, and further back, a word in its place, so that no conversation is wedged.
. ./lib_server.sh
thinking_model "$scratch/tools" qwen36.jinja
cp "$SOURCE/tests/text/data/jinja/hermes.jinja" "$scratch/tools/chat_template.jinja"
start_server "$scratch/tools"
ask /props
expect_body '"chat_template_caps":{"supports_tools":true}'
word='[an image that cannot be shown here]'
picture='{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}'
block='{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}'
input='{"type":"input_image","image_url":"data:image/png;base64,iVBORw0KGgo="}'

# refused: in a question, also when its answer is begun, and beside text
for messages in "[{\"role\":\"user\",\"content\":[$picture]}]" "[{\"role\":\"user\",\"content\":[$picture]},{\"role\":\"assistant\",\"content\":\"I\"}]"; do
    expect_refused /v1/chat/completions "{\"messages\":$messages,\"max_tokens\":1}" 400 'messages[0].content[0].type'
    expect_body "'image_url' is not supported by this server"
    expect_body '"code":"unsupported_parameter"'
done
expect_refused /v1/chat/completions "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"c\"},{\"type\":\"hologram\"}]}]}" 400 'messages[2].content[1].type'
post /v1/messages "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},$block]}]}"
expect_status 400
expect_body 'messages[0].content[1].type: '
expect_refused /v1/responses "{\"input\":[{\"role\":\"user\",\"content\":[$input]}]}" 400 'input[0].content[0].type'

# further back it is a word; the question behind it is answered
post /apply-template "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"What is it?\"},$picture]},{\"role\":\"assistant\",\"content\":\"b\"},{\"role\":\"user\",\"content\":\"c\"}]}"
expect_status 200
expect_body "What is it?\\n$word"

# a result of a tool, by all APIs: as the word would be
call='{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"look","arguments":"{}"}}]}'
post /apply-template "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},$call,{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":[{\"type\":\"text\",\"text\":\"Here:\"},$picture]}]}"
expect_status 200
expect_body "Here:\\n$word"

# claude RESULT: the tokens of a conversation with it
claude() {
    post /v1/messages/count_tokens "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"look\",\"input\":{}}]},{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t1\",\"content\":[$1]}]}]}"
    expect_status 200
    value input_tokens
}
n_word=$(claude "{\"type\":\"text\",\"text\":\"$word\\n\"}")
expect_equal "$(claude "$block")" "$n_word"
expect_true test "$(claude '{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0="}}')" -gt 8
# blocks of tools that ran elsewhere, in an answer
post /v1/messages/count_tokens '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"x"}},{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]},{"type":"text","text":"Found."}]},{"role":"user","content":"b"}]}'
expect_status 200

# a tool that is declared may be called anyway
post /v1/messages/count_tokens '{"messages":[{"role":"user","content":"a"}]}'
n_plain=$(value input_tokens)
post /v1/messages/count_tokens '{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"tool_addition","tool":{"type":"tool_reference","name":"f"}}]}]}'
expect_equal "$(value input_tokens)" "$n_plain"

# tools that clients run and Anthropic's models know by their date are shown with their parameters;
# what its servers run is not
claude_tools() {
    post /v1/messages/count_tokens "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[$1]}"
    expect_status 200
    value input_tokens
}
expect_equal "$(claude_tools '{"type":"web_search_20250305","name":"web_search","max_uses":5}')" "$n_plain"
for tool in '"type":"bash_20250124","name":"bash"' '"type":"text_editor_20250728","name":"str_replace_based_edit_tool","max_characters":9' '"type":"memory_20250818","name":"memory"'; do
    expect_true test "$(claude_tools "{$tool}")" -gt $((n_plain + 60))
    name=$(printf '%s' "$tool" | sed 's/.*"name":"\([a-z_]*\)".*/\1/')
    post /v1/messages "{\"max_tokens\":400,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{$tool}],\"tool_choice\":{\"type\":\"tool\",\"name\":\"$name\"},\"seed\":1,\"temperature\":0.5}"
    expect_status 200
    expect_body "\"type\":\"tool_use\",\"id\":\"toolu_*\",\"name\":\"$name\",\"input\":{"
done

# responses RESULT
responses() {
    post /v1/responses/input_tokens "{\"input\":[{\"role\":\"user\",\"content\":\"a\"},{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"look\",\"arguments\":\"{}\"},{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":[$1]}]}"
    expect_status 200
    value input_tokens
}
n_word=$(responses "{\"type\":\"input_text\",\"text\":\"$word\\n\"}")
expect_equal "$(responses "$input")" "$n_word"
stop_server
expect_empty "$err"
finish
