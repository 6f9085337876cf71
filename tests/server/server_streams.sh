# SPDX-License-Identifier: MIT
# Streams: their framing, that fragments make the whole answer, stop strings over borders of tokens.
. ./lib_server.sh
start_server "$demo"
once='"messages":[{"role":"user","content":"Once upon a time"}],"seed":3'

# every event is data lines and a blank line; sets n_events
check_framing() {
    n_checks=$((n_checks + 1))
    awk -v named="$1" '
        /^$/ { if (!data) bad = 1; data = 0; name = 0; next }
        /^event: / { if (name || data || !named) bad = 1; name = 1; next }
        /^data: / { if (data || (named && !name)) bad = 1; data = 1; next }
        /^: / { data = 1; next }
        { bad = 1 }
        END { exit bad || data }' "$out" || fail "framing"
    expect_true grep -qi '^content-type: text/event-stream' "$headers"
}

post /v1/chat/completions "{$once,\"max_tokens\":40}"
whole=$(value content)
post /v1/chat/completions "{$once,\"max_tokens\":40,\"stream\":true}"
expect_status 200
check_framing ""
expect_equal "$(joined "$out" content)" "$whole"
expect_equal "$(grep -c '"role"' "$out")" 1
expect_equal "$(grep -c '"finish_reason":"length"' "$out")" 1
expect_equal "$(grep -c usage "$out")" 0
expect_equal "$(grep -o '"id":"[^"]*"' "$out" | sort -u | wc -l)" 1
expect_equal "$(grep -o '"object":"[^"]*"' "$out" | sort -u)" '"object":"chat.completion.chunk"'
expect_equal "$(tail -2 "$out" | head -1)" 'data: [DONE]'
post /v1/chat/completions "{$once,\"max_tokens\":4,\"stream\":true,\"n\":3,\"stream_options\":{\"include_usage\":true},\"logprobs\":true,\"top_logprobs\":1}"
check_framing ""
expect_equal "$(grep -c '"delta":{}' "$out")" 3
expect_equal "$(grep -c '"role"' "$out")" 3
expect_equal "$(grep -c '"usage":null' "$out")" $(($(grep -c '^data: {' "$out") - 1))
expect_body '"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":12,'
expect_equal "$(grep -o '"top_logprobs"' "$out" | wc -l)" 12

post /v1/completions "{\"prompt\":\"Once upon a time\",\"seed\":3,\"max_tokens\":40,\"stream\":true}"
check_framing ""
expect_equal "$(joined "$out" text)" "$whole"
post /v1/completions "{\"prompt\":\"Once upon a time\",\"seed\":3,\"max_tokens\":4,\"stream\":true,\"echo\":true,\"logprobs\":2}"
expect_equal "$(joined "$out" text)" "Once upon a time$(printf '%s' "$whole" | cut -d' ' -f1-5)"

# OpenAI's responses: numbered, in order
post /v1/responses "{\"input\":\"Once upon a time\",\"seed\":3,\"max_output_tokens\":40,\"stream\":true}"
expect_status 200
check_framing named
expect_equal "$(joined "$out" delta)" "$whole"
expect_true awk 'BEGIN { n = -1 } match($0, /"sequence_number":[0-9]+/) {
    if (substr($0, RSTART + 18, RLENGTH - 18) != ++n) exit 1 }' "$out"
expect_true awk '/^event: / { name = $2 } /^data: / && index($0, "\"type\":\"" name "\"") != 8 { exit 1 }' "$out"
expect_equal "$(sed -n 's/^event: response\.//p' "$out" | uniq | tr '\n' ' ')" \
    "created in_progress output_item.added content_part.added output_text.delta output_text.done content_part.done output_item.done incomplete "

# Anthropic's messages
post /v1/messages "{$once,\"max_tokens\":40,\"stream\":true}"
expect_status 200
check_framing named
expect_equal "$(grep -o '"text_delta","text":.*' "$out" | sed 's/"text_delta",//' >"$scratch/deltas" && joined "$scratch/deltas" text)" "$whole"
expect_true awk '/^event: / { name = $2 } /^data: / && index($0, "\"type\":\"" name "\"") != 8 { exit 1 }' "$out"
expect_equal "$(sed -n 's/^event: //p' "$out" | uniq | tr '\n' ' ')" \
    "message_start content_block_start content_block_delta content_block_stop message_delta message_stop "
expect_body '"stop_reason":"max_tokens","stop_sequence":null},"usage":{"input_tokens":'

# Stop strings: every cut of the answer, streamed and whole. The text is cut before the string,
# wherever its tokens begin and end, and no beginning of it is ever sent.
plain=$(printf '%b' "$whole" | tr '\n' '#')
i=3
while [ $i -lt 60 ]; do
    stop=$(printf '%s' "$plain" | cut -c$i-$((i + 4)))
    before=${plain%%"$stop"*}
    i=$((i + 7))
    case $stop in *'#'* | *'"'* | *'\'*) continue ;; esac
    for stream in true false; do
        post /v1/chat/completions "{$once,\"max_tokens\":40,\"stream\":$stream,\"stop\":[\"never this\",\"$stop\"]}"
        expect_equal "$(printf '%b' "$(joined "$out" content)" | tr '\n' '#')" "$before"
        expect_body '"finish_reason":"stop"'
    done
    post /v1/messages "{$once,\"max_tokens\":40,\"stop_sequences\":[\"$stop\"]}"
    expect_body "\"stop_reason\":\"stop_sequence\",\"stop_sequence\":\"$stop\""
done
# one that begins again and again, and never comes: all of it is sent in the end
post /v1/chat/completions "{$once,\"max_tokens\":40,\"stream\":true,\"stop\":[\"$(printf '%s' "$whole" | tail -c 6)!never\",\" \\u0001\"]}"
expect_equal "$(joined "$out" content)" "$whole"
expect_body '"finish_reason":"length"'

# Characters of several tokens: none is sent in part. Bias leaves no other tokens than the bytes of
# a snowman, which is no character until its third.
post /tokenize '{"content":"☃"}'
expect_equal "$(value count)" 3
ids=$(sed 's/.*"tokens":\[\([^]]*\)\].*/\1/' "$out")
n=0
for id in $(echo "$ids" | tr , ' '); do
    post /v1/chat/completions "{$once,\"max_tokens\":3,\"temperature\":0,\"repetition_penalty\":1,\"stream\":true,\"logit_bias\":{\"$id\":100}}"
    expect_status 200
    check_framing ""
    iconv -f UTF-8 -t UTF-8 "$out" >/dev/null 2>&1 || fail "not UTF-8"
    n=$((n + 1))
done
expect_equal $n 3
post /v1/completions "{\"prompt\":[$ids],\"max_tokens\":0,\"echo\":true,\"stream\":true}"
expect_equal "$(joined "$out" text)" "☃"
expect_equal "$(grep -c '"text":"☃"' "$out")" 1

# biases and penalties do what they say
post /tokenize '{"content":" very"}'
very=$(sed 's/.*"tokens":\[\([^]]*\)\].*/\1/' "$out")
post /v1/chat/completions "{$once,\"max_tokens\":3,\"logit_bias\":{\"$very\":100},\"repetition_penalty\":1}"
expect_equal "$(value content)" " very very very"
post /v1/chat/completions "{$once,\"max_tokens\":40,\"temperature\":0,\"repetition_penalty\":1}"
same=$(value content)
post /v1/chat/completions "{$once,\"max_tokens\":40,\"temperature\":0,\"repetition_penalty\":1,\"frequency_penalty\":2,\"presence_penalty\":2}"
n_checks=$((n_checks + 1))
[ "$(value content)" != "$same" ] || fail "penalties change nothing"
stop_server
finish
