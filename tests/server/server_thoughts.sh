# SPDX-License-Identifier: MIT
# A model that thinks: thoughts apart from the content, switched off, cut at a budget, in history;
# system messages where the template wants none; answers that are gone on with.
. ./lib_server.sh
thinking_model "$scratch/thinks" qwen36.jinja
start_server "$scratch/thinks"
once='"messages":[{"role":"user","content":"Once upon a time"}],"seed":3'
chat() {
    post /v1/chat/completions "{$once,\"max_tokens\":60$1}"
    expect_status 200
}
post /apply-template "{\"messages\":[{\"role\":\"user\",\"content\":\"Once\"}]}"
expect_exact "$out" '{"prompt":"<|im_start|>user\nOnce<|im_end|>\n<|im_start|>assistant\n<think>\n"}'
post /apply-template "{\"messages\":[{\"role\":\"user\",\"content\":\"Once\"}],\"chat_template_kwargs\":{\"enable_thinking\":false}}"
expect_body '<think>\n\n</think>\n\n"}'

chat ',"thinking":{"type":"enabled","budget_tokens":5}'
thought=$(value reasoning_content)
content=$(value content)
expect_true test -n "$thought" -a -n "$content"
expect_equal "$(value reasoning_tokens)" 7 # 5, a line's end and the mark
expect_no_body 'think>'
chat ',"stream":true,"thinking":{"type":"enabled","budget_tokens":5}'
expect_equal "$(joined "$out" reasoning_content)" "$thought"
expect_equal "$(joined "$out" content)" "$content"
expect_no_body 'think>'
# a thought may have any character, as texts have
for how in '' ',"stream":true'; do
    chat ",\"logit_bias\":{\"188\":100},\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":3}$how"
    expect_equal "$(joined "$out" reasoning_content)" '\u0000\u0000\u0000'
done
# and a response that had one is gone on with
post /v1/responses '{"input":"Once upon a time","max_output_tokens":3,"logit_bias":{"188":100}}'
expect_body '"text":"\u0000\u0000\u0000"'
post /v1/responses "{\"previous_response_id\":\"$(value id)\",\"input\":\"And?\",\"max_output_tokens\":1}"
expect_status 200
# each token of the content has its logprob, whatever blanks stood behind the thought
for seed in 0 1 2 3 4; do
    for how in '' ',"stream":true,"stream_options":{"include_usage":true}' ',"stop":["@@@"]'; do
        post /v1/chat/completions "{${once%,*},\"seed\":$seed,\"max_tokens\":24,\"ignore_eos\":true,\"logprobs\":true,\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":2}$how}"
        expect_equal "$(grep -o '"token":' "$out" | wc -l)" $((24 - $(value reasoning_tokens)))
    done
done
for switch in '"reasoning_effort":"none"' '"thinking":{"type":"disabled"}' '"reasoning":{"effort":"none"}' '"chat_template_kwargs":{"enable_thinking":false}'; do
    chat ",$switch"
    expect_no_body reasoning_content
    expect_equal "$(value reasoning_tokens)" 0
done
for budget in '"enable_thinking":true,"thinking_budget":5' '"reasoning":{"enabled":true,"max_tokens":5}'; do
    chat ",$budget"
    expect_equal "$(value reasoning_content)" "$thought"
done
for switch in '"enable_thinking":false' '"reasoning":{"enabled":false}'; do
    chat ",$switch"
    expect_equal "$(value reasoning_tokens)" 0
done
expect_refused /v1/chat/completions "{$once,\"reasoning\":{\"exclude\":true}}" 400 reasoning.exclude
chat ''
expect_equal "$(value content)" ''
expect_equal "$(value reasoning_tokens)" 60

# stop strings are looked for in the content alone
first=$(printf '%s' "$thought" | cut -c1-7)
chat ",\"stop\":[\"$first\"],\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":5}"
expect_equal "$(value reasoning_content)" "$thought"

# Anthropic: a block of each, and back again
post /v1/messages "{$once,\"max_tokens\":60,\"stream\":true,\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":5}}"
expect_equal "$(sed -n 's/^event: //p' "$out" | uniq | tr '\n' ' ')" \
    "message_start content_block_start content_block_delta content_block_stop content_block_start content_block_delta content_block_stop message_delta message_stop "
expect_equal "$(grep -o '"thinking_delta","thinking":.*' "$out" | sed 's/"thinking_delta",//' >"$scratch/deltas" && joined "$scratch/deltas" thinking)" "$thought"
expect_body '"delta":{"type":"signature_delta","signature":"'
post /v1/messages "{$once,\"max_tokens\":60,\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":5}}"
expect_body '"content":[{"type":"thinking","thinking":"*","signature":"*"},{"type":"text","text":"'
post /v1/responses '{"input":"Once upon a time","seed":3,"max_output_tokens":60,"stream":true,"thinking":{"type":"enabled","budget_tokens":5}}'
expect_status 400 # it is not OpenAI's
post /v1/responses '{"input":"Once upon a time","seed":3,"max_output_tokens":20,"stream":true}'
expect_equal "$(joined "$out" delta | head -c 3)" "$(printf '%s' "$thought" | head -c 3)"
expect_body '"type":"response.reasoning_text.delta","sequence_number":3,"item_id":"rs_*","output_index":0,"content_index":0'

# thoughts that come back are dropped by the template, and the prefix is found all the same
turn='{"role":"user","content":"Once upon a time"},{"role":"assistant","content":"A king.",%s},{"role":"user","content":"And then?"}'
for back in '"name":"x"' '"reasoning_content":"hm"' '"reasoning":"hm"'; do
    # shellcheck disable=SC2059 # the turn is a format
    post /apply-template "{\"messages\":[$(printf "$turn" "$back")]}"
    expect_exact "$out" '{"prompt":"<|im_start|>user\nOnce upon a time<|im_end|>\n<|im_start|>assistant\nA king.<|im_end|>\n<|im_start|>user\nAnd then?<|im_end|>\n<|im_start|>assistant\n<think>\n"}'
    # shellcheck disable=SC2059
    post /v1/chat/completions "{\"messages\":[$(printf "$turn" "$back")],\"max_tokens\":1}"
    expect_true test "$(value cached_tokens)" -gt 8
done
post /v1/messages "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"Once upon a time\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"s\"},{\"type\":\"text\",\"text\":\"A king.\"}]},{\"role\":\"user\",\"content\":\"And then?\"}]}"
expect_status 200
expect_true test "$(value cache_read_input_tokens)" -gt 20

# late system messages stay where they are; the first block of Claude Code's is dropped
post /apply-template '{"messages":[{"role":"system","content":"S"},{"role":"user","content":"a"},{"role":"system","content":"late"}]}'
expect_body '<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>user\n<system-reminder>\nlate\n</system-reminder><|im_end|>'
post /v1/messages/count_tokens '{"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=1; cch=2;"},{"type":"text","text":"S"}],"messages":[{"role":"user","content":"a"}]}'
n_tokens=$(value input_tokens)
post /v1/messages/count_tokens '{"system":"S","messages":[{"role":"user","content":"a"}]}'
expect_equal "$n_tokens" "$(value input_tokens)"

# what users write is no special token
post /v1/messages/count_tokens '{"messages":[{"role":"user","content":"<|im_end|>"}]}'
n_tokens=$(value input_tokens)
post /v1/messages/count_tokens '{"messages":[{"role":"user","content":""}]}'
expect_true test "$n_tokens" -gt $(($(value input_tokens) + 1))

# an answer of which the beginning is given: no thoughts, and it goes on there
post /apply-template '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"The king"}]}'
expect_body '<|im_start|>assistant\n<think>\n\n</think>\n\nThe king"}'
# Anthropic's way to keep earlier thoughts, where the template knows a switch for it
turns='"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking","thinking":"one two three four","signature":"s"},{"type":"text","text":"b"}]},{"role":"user","content":"c"}]'
for edits in '' ',"context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]}' ',"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":{"type":"thinking_turns","value":1}}]}'; do
    post /v1/messages/count_tokens "{$turns$edits}"
    n_dropped=$(value input_tokens)
done
post /v1/messages/count_tokens "{$turns,\"context_management\":{\"edits\":[{\"type\":\"clear_thinking_20251015\",\"keep\":\"all\"}]}}"
expect_true test "$(value input_tokens)" -ge $((n_dropped + 4))
# OpenAI's way
items='"input":[{"role":"user","content":"a"},{"type":"reasoning","summary":[{"type":"summary_text","text":"one two three four"}]},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]'
for context in current_turn auto; do
    post /v1/responses/input_tokens "{$items,\"reasoning\":{\"context\":\"$context\",\"mode\":\"standard\"}}"
    expect_equal "$(value input_tokens)" "$n_dropped"
done
post /v1/responses/input_tokens "{$items,\"reasoning\":{\"context\":\"all_turns\"}}"
expect_true test "$(value input_tokens)" -ge $((n_dropped + 4))
post /v1/responses/input_tokens "{$items,\"reasoning\":{\"context\":\"none\"}}"
expect_status 400
post /v1/messages "{$turns,\"max_tokens\":1,\"context_management\":{\"edits\":[]}}"
expect_body '"context_management":{"applied_edits":[]}'
post /v1/messages "{$turns,\"max_tokens\":1,\"stream\":true,\"context_management\":{\"edits\":[]}}"
expect_body '"type":"message_delta"*"context_management":{"applied_edits":[]}'
post /v1/messages "{$turns,\"max_tokens\":1}"
expect_no_body context_management
post /v1/messages "{$turns,\"max_tokens\":1,\"context_management\":{\"edits\":7}}"
expect_status 400
post /v1/messages "{$turns,\"max_tokens\":8,\"thinking\":{\"type\":\"disabled\"},\"output_format\":{\"type\":\"json_schema\",\"schema\":{\"const\":7}}}"
expect_body '"content":[{"type":"text","text":"7"}]'
stop_server

# the word for how much is thought is the template's, by each API's name for it
{
    echo "{%- if reasoning_effort is defined and reasoning_effort == 'max' %}{{- 'one two three four five six' }}{%- endif %}"
    cat "$SOURCE/tests/text/data/chat/qwen36.jinja"
} >"$scratch/thinks/chat_template.jinja"
start_server "$scratch/thinks"
post /v1/messages/count_tokens "{$turns}"
n_tokens=$(value input_tokens)
post /v1/messages/count_tokens "{$turns,\"output_config\":{\"effort\":\"low\"}}"
expect_equal "$(value input_tokens)" "$n_tokens"
post /v1/messages/count_tokens "{$turns,\"output_config\":{\"effort\":\"max\"}}"
expect_true test "$(value input_tokens)" -ge $((n_tokens + 6))
post /v1/messages/count_tokens "{$turns,\"output_config\":{\"effort\":\"vast\"}}"
expect_status 400
post /apply-template "{$once,\"reasoning_effort\":\"max\"}" # it is not asked for a seed
expect_status 400
post /apply-template '{"messages":[{"role":"user","content":"a"}],"reasoning_effort":"max"}'
expect_body 'one two three four five six<|im_start|>'
stop_server

# a template that is not understood is no reason to guess
echo '{{ messages | mystery }}' >"$scratch/thinks/chat_template.jinja"
start_server "$scratch/thinks"
post /v1/chat/completions "{$once}"
expect_status 400
expect_body '"param":"messages"'
post /v1/completions '{"prompt":"Once","max_tokens":1}'
expect_status 200
stop_server
finish
