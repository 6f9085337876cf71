# SPDX-License-Identifier: MIT
# Every endpoint, in its plainest use: status, shape, figures.
. ./lib_server.sh
run serve "$demo" --port 70000
expect_usage_error "--port: '70000' is not a number from 0 to 65535"
run serve
expect_usage_error "serve: MODEL is missing"
run serve "$scratch/nothing" --port 0
expect_error "$scratch/nothing*"

start_server "$demo" --name small
expect_lines "$server_out" 1
expect_glob "$server_out" "moeflux: small at http://127.0.0.1:* (8 sessions, context 4096 tokens)"

# what it is, by both names, with or without a slash, whatever the query
for path in /health /v1/health/ '/v1/health?beta=true'; do
    ask "$path"
    expect_status 200
    expect_exact "$out" '{"status":"ok"}'
done
for path in /v1/models /models '/v1/models?client_version=1&limit=1000'; do
    ask "$path"
    expect_status 200
    expect_body '{"object":"list","data":[{"id":"small","object":"model","type":"model","created":'
    expect_body '"models":[]'
    expect_body '"context_length":4096'
done
for path in /v1/models/small /models/small/ '/v1/models/small/?a=b'; do
    ask "$path"
    expect_status 200
    expect_body '{"id":"small","object":"model"'
done
ask /v1/models/other
expect_status 404
expect_body '"code":"model_not_found"'
ask /props
expect_status 200
expect_body '"n_ctx":4096'
expect_body '"chat_template_caps":{"supports_tools":false}'
for path in / /api/hello /health; do
    ask "$path" -I
    expect_status 200
done

# text and tokens
post /tokenize '{"content":"Once upon a time"}'
expect_status 200
tokens=$(sed 's/.*"tokens":\(\[[^]]*\]\).*/\1/' "$out")
run tokenize "$demo" --ids -p "Once upon a time"
expect_equal "$tokens" "[$(tr ' ' , <"$out")]"
post /detokenize "{\"tokens\":$tokens}"
expect_exact "$out" '{"content":"Once upon a time"}'
post /tokenize '{"prompt":"é","with_pieces":true}'
expect_body '{"tokens":[{"id":*,"piece":"'
post /tokenize '{"content":"<|endoftext|>"}'
expect_body '{"tokens":[4095],"count":1,"max_model_len":4096}'
post /tokenize '{"content":"<|endoftext|>","parse_special":false}'
expect_no_body 4095
post /apply-template '{"messages":[{"role":"system","content":"A tale."},{"role":"user","content":[{"type":"text","text":"Once"},{"type":"text","text":" upon"}]}]}'
expect_exact "$out" '{"prompt":"A tale.\n\nOnce upon"}'

# an answer is what the program says of the same prompt
run run "$demo" --raw -p "Once upon a time" -n 16 --seed 3
expected=$(cat "$out")
post /v1/completions '{"prompt":"Once upon a time","max_tokens":16,"seed":3}'
expect_status 200
expect_body '{"id":"cmpl-*","object":"text_completion","created":*,"model":"small","choices":[{"index":0,"text":"'
expect_equal "$(printf '%b' "$(value text)")" "$expected"
expect_equal "$(value finish_reason)" length
expect_equal "$(value prompt_tokens)" 5
expect_equal "$(value completion_tokens)" 16
expect_equal "$(value total_tokens)" 21
text=$(value text)
post /v1/completions "{\"prompt\":$tokens,\"max_tokens\":16,\"seed\":3,\"model\":\"any name\"}"
expect_equal "$(value text)" "$text"
expect_equal "$(value model)" "any name"
expect_equal "$(value cached_tokens)" 5
post /v1/completions "{\"prompt\":[$tokens,\"Once upon a time\"],\"max_tokens\":4,\"seed\":3,\"n\":2}"
expect_status 200
expect_body '"index":3'
expect_equal "$(value prompt_tokens)" 10
expect_equal "$(value completion_tokens)" 16
post /v1/completions '{"prompt":"Once upon a time","max_tokens":0,"echo":true}'
expect_equal "$(value text)" "Once upon a time"
expect_equal "$(value completion_tokens)" 0
# a token's place is counted in characters, also in a stream
asked='{"prompt":"\u00fc \u00e9 x","max_tokens":1,"echo":true,"logprobs":0,"temperature":0'
post /v1/completions "$asked}"
expect_body '"text_offset":[0,0,1,2,2,3,4,5]'
post /v1/completions "$asked,\"stream\":true}"
expect_equal "$(grep -o '"text_offset":\[[0-9,]*' "$out" | sed 's/.*\[//' | tr '\n' ',')" 0,0,1,2,2,3,4,5,

# logprobs of a given text are those of `perplexity`
head -c 600 "$SOURCE/models/demo/heldout.txt" >"$scratch/text"
run perplexity "$demo" "$scratch/text" --json
ppl=$(json "$out" perplexity)
body=$(awk 'BEGIN { ORS = "" } { gsub(/\\/, "\\\\"); gsub(/"/, "\\\""); print (NR > 1 ? "\\n" : "") $0 }' "$scratch/text")
post /v1/completions "{\"prompt\":\"$body\",\"max_tokens\":0,\"echo\":true,\"logprobs\":1}"
expect_status 200
expect_body '"token_logprobs":[null,-'
got=$(sed 's/.*"token_logprobs":\[null,\([^]]*\)\].*/\1/' "$out" | tr , '\n' |
    awk '{ sum += $1; n++ } END { print exp(-sum / n) }')
n_checks=$((n_checks + 1))
awk -v a="$got" -v b="$ppl" 'BEGIN { exit !(a > 0 && (a / b - 1) ^ 2 < 1e-4) }' || fail "perplexity $ppl, by logprobs $got"

# chat: the same text, where there is no template
post /v1/chat/completions '{"messages":[{"role":"user","content":"Once upon a time"}],"max_tokens":16,"seed":3}'
expect_status 200
expect_body '{"id":"chatcmpl-*","object":"chat.completion","created":'
expect_body '"message":{"role":"assistant","content":"'
expect_equal "$(value content)" "$text"
expect_equal "$(value finish_reason)" length
# the likeliest of those that have one text, which is no character's
post /v1/completions '{"prompt":[200,201,202],"max_tokens":4,"seed":3,"logprobs":20}'
expect_body '"top_logprobs":[{*"�":-'
expect_equal "$(sed 's/.*"top_logprobs":\[\(.*\)\],"text_offset".*/\1/' "$out" | sed 's/},{/}\n{/g' | grep -c '"�":.*"�":')" 0
post /v1/chat/completions '{"messages":[{"role":"user","content":"Once upon a time"}],"max_completion_tokens":3,"seed":3,"logprobs":true,"top_logprobs":2}'
expect_body '"logprobs":{"content":[{"token":"*","logprob":-*,"bytes":[*],"top_logprobs":[{"token":"'

post /v1/responses '{"input":"Once upon a time","max_output_tokens":16,"seed":3}'
expect_status 200
expect_body '{"id":"resp_*","object":"response",*"status":"incomplete"'
expect_body '"incomplete_details":{"reason":"max_output_tokens"}'
expect_body "\"text\":\"$text\""
expect_equal "$(value output_tokens)" 16
id=$(value id)
ask "/v1/responses/$id/"
expect_status 200
expect_body "\"id\":\"$id\""
ask "/v1/responses/$id/cancel/" -X POST
expect_body 'Cannot cancel a synchronous response.'
ask "/v1/responses/$id/" -X DELETE
expect_status 200
post /v1/responses/input_tokens '{"input":"Once upon a time"}'
expect_exact "$out" '{"object":"response.input_tokens","input_tokens":5}'

post '/v1/messages?beta=true' '{"messages":[{"role":"user","content":"Once upon a time"}],"max_tokens":16,"seed":3}'
expect_status 200
expect_body '{"id":"msg_*","type":"message","role":"assistant"'
expect_equal "$(sed 's/.*"content":\[{"type":"text","text":"\(.*\)"}\].*/\1/' "$out")" "$text"
expect_equal "$(value stop_reason)" max_tokens
expect_equal "$(value output_tokens)" 16
expect_equal "$(($(value input_tokens) + $(value cache_read_input_tokens)))" 5
expect_true grep -qi '^request-id: msg_' "$headers"
post /v1/messages/count_tokens '{"messages":[{"role":"user","content":"Once upon a time"}]}'
expect_exact "$out" '{"input_tokens":5}'

# figures
ask /metrics
expect_status 200
expect_true grep -qi '^content-type: text/plain; version=0.0.4' "$headers"
expect_body '# TYPE moeflux_answer_tokens_total counter'
expect_body 'moeflux_first_token_seconds_bucket{le="+Inf"} '
expect_true awk '/^[^#]/ && (NF != 2 || $2 !~ /^[0-9.e+-]+$/) { exit 1 }' "$out"
expect_equal "$(stat answers_running)" 0
expect_true test "$(stat answer_tokens_total)" -gt 60
stop_server
expect_lines "$server_out" 1
expect_empty "$err"

# a prompt that is given back is what was asked, without the token that texts begin with
mkdir "$scratch/begun"
ln -s "$demo"/* "$scratch/begun/"
rm "$scratch/begun/tokenizer_config.json"
sed 's/"bos_token": null/"bos_token": "<|endoftext|>", "add_bos_token": true/' "$demo/tokenizer_config.json" >"$scratch/begun/tokenizer_config.json"
start_server "$scratch/begun"
post /v1/completions '{"prompt":"Once upon a time","max_tokens":0,"echo":true,"logprobs":0}'
expect_equal "$(value text)" "Once upon a time"
expect_body '"tokens":["<|endoftext|>","O","nce",'
expect_body '"text_offset":[0,0,1,4,'
expect_equal "$(value prompt_tokens)" 6
post /v1/completions '{"prompt":"<|endoftext|>Once","max_tokens":0,"echo":true}'
expect_equal "$(value text)" "<|endoftext|>Once"
post /tokenize '{"content":"<|endoftext|>","add_special":true}'
expect_body '{"tokens":[4095],'
post /tokenize '{"content":"<|endoftext|>","add_special":true,"parse_special":false}'
expect_body '{"tokens":[4095,'
expect_equal "$(grep -o 4095 "$out" | wc -l)" 1
stop_server
finish
