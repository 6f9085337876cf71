# SPDX-License-Identifier: MIT
# Responses that are made whether their client waits or not: asked for later, read again from any
# event on, by several at once, cancelled, deleted; and conversations that responses are added to.
. ./lib_server.sh
printf 'first-key\nsecond-key\n' >"$scratch/keys"
start_server "$demo" --api-key-file "$scratch/keys" --ctx 4096 --sessions 1
as() { # KEY PATH BODY
    post "$2" "$3" -H "Authorization: Bearer $1-key"
}
get() { # KEY PATH [CURL ARGUMENTS...]
    key=$1
    path=$2
    shift 2
    ask "$path" -H "Authorization: Bearer $key-key" "$@"
}
status_is() { # ID STATUS
    get first "/v1/responses/$1"
    [ "$(value status)" = "$2" ]
}
asked='"input":"Once upon a time","seed":3'

# what an answer is that was waited for
as first /v1/responses "{$asked,\"max_output_tokens\":40}"
expect_status 200
text=$(value text)

# it is queued, and later there
as first /v1/responses "{$asked,\"max_output_tokens\":40,\"background\":true}"
expect_status 200
expect_body '"status":"queued","background":true'
expect_body '"output":[]'
expect_body '"usage":null'
id=$(value id)
expect_true wait_for status_is "$id" incomplete
expect_equal "$(value text)" "$text"
expect_body '"incomplete_details":{"reason":"max_output_tokens"}'
expect_equal "$(value output_tokens)" 40
get second "/v1/responses/$id"
expect_status 404
get first "/v1/responses/$id?stream=true"
expect_status 400
expect_body '"param":"stream"'
# it can be gone on with, and one that is over cannot be cancelled any more
as first /v1/responses "{\"previous_response_id\":\"$id\",\"input\":\"And?\",\"max_output_tokens\":1}"
expect_status 200
get first "/v1/responses/$id/cancel" -X POST
expect_status 200
expect_body '"status":"incomplete"'
get first "/v1/responses/$(value id)/cancels" -X POST
expect_status 404

# streamed: the same events whoever reads them, whenever
as first /v1/responses "{$asked,\"max_output_tokens\":40,\"background\":true,\"stream\":true}"
expect_status 200
expect_true grep -qi '^content-type: text/event-stream' "$headers"
events() { # of the last body, without signs of life and empty lines
    grep -v '^:' "$out" | grep -v '^$'
}
events >"$scratch/whole"
expect_equal "$(sed -n 's/^event: //p' "$out" | head -4 | tr '\n' ' ')" \
    'response.created response.queued response.in_progress response.output_item.added '
expect_equal "$(sed -n 's/^event: //p' "$out" | tail -1)" response.incomplete
expect_equal "$(joined "$out" delta)" "$text"
id=$(grep -o '"id":"resp_[^"]*' "$out" | head -1 | sed 's/.*"//')
get first "/v1/responses/$id?stream=true"
expect_status 200
expect_equal "$(events)" "$(cat "$scratch/whole")"
get first "/v1/responses/$id?stream=true&starting_after=5"
expect_equal "$(grep -o '"sequence_number":[0-9]*' "$out" | head -1)" '"sequence_number":6'
expect_equal "$(grep -c '^event:' "$out")" "$(($(grep -c '^event:' "$scratch/whole") - 6))"
get first "/v1/responses/$id?stream=true&starting_after=9999"
expect_status 200
expect_equal "$(wc -c <"$out")" 0
for wrong in 'stream=yes' 'starting_after=1' 'stream=true&starting_after=-1' 'stream=true&starting_after='; do
    get first "/v1/responses/$id?$wrong"
    expect_status 400
done

# one that is being made, whose client has gone: others read on, from anywhere; cancelled it ends, and
# what it said is kept, and so are its events (or it was over by then)
long='"input":"The dog","seed":5,"temperature":1,"ignore_eos":true,"background":true,"max_output_tokens":4000'
curl -s -N -m 900 -o "$scratch/gone" -H 'Authorization: Bearer first-key' \
    --data-binary "{$long,\"stream\":true}" "$url/v1/responses" &
reader=$!
has() { # FILE WORDS
    [ -f "$1" ] && grep -q "$2" "$1"
}
expect_true wait_for has "$scratch/gone" '"type":"response.output_text.delta"'
kill -KILL "$reader"
wait "$reader" 2>/dev/null
id=$(grep -o '"id":"resp_[^"]*' "$scratch/gone" | head -1 | sed 's/.*"//')
for i in 1 2; do
    curl -s -N -m 900 -o "$scratch/reader$i" -H 'Authorization: Bearer first-key' \
        "$url/v1/responses/$id?stream=true&starting_after=$i" &
    eval "reader$i=\$!"
done
for i in 1 2; do
    expect_true wait_for has "$scratch/reader$i" '"type":"response.output_text.delta"'
done
get second "/v1/responses/$id/cancel" -X POST
expect_status 404
get first "/v1/responses/$id/cancel" -X POST
expect_status 200
told=$(value status)
expect_true test "$told" = cancelled -o "$told" = incomplete
wait "$reader1" "$reader2"
said=$(joined "$scratch/reader1" delta)
expect_equal "$(joined "$scratch/reader2" delta)" "$said"
expect_true wait_for status_is "$id" "$told"
expect_equal "$(value text)" "$said"
get first "/v1/responses/$id?stream=true"
expect_equal "$(joined "$out" delta)" "$said"

# while others have the only place: queued, not to be gone on with, read, cancelled, deleted
curl -s -m 900 -o "$scratch/others" -H 'Authorization: Bearer first-key' \
    --data-binary '{"prompt":"Once","n":128,"max_tokens":4000,"ignore_eos":true,"stream":true}' "$url/v1/completions" &
others=$!
stat_options='-H x-api-key:first-key'
expect_true wait_for stat_is answers_running 1
as first /v1/responses "{$long,\"stream\":false}"
waiting=$(value id)
get first "/v1/responses/$waiting"
expect_body '"status":"queued","background":true'
get first "/v1/responses/$waiting/input_items"
expect_status 200
expect_body '"text":"The dog"*"has_more":false'
as first /v1/responses "{\"previous_response_id\":\"$waiting\",\"input\":\"And?\"}"
expect_status 400
get first "/v1/responses/$waiting" -X DELETE
expect_status 200
get first "/v1/responses/$waiting"
expect_status 404
curl -s -N -m 900 -o "$scratch/queued" -H 'Authorization: Bearer first-key' \
    --data-binary "{$long,\"stream\":true}" "$url/v1/responses" &
reader=$!
expect_true wait_for has "$scratch/queued" 'event: response.queued'
id=$(grep -o '"id":"resp_[^"]*' "$scratch/queued" | head -1 | sed 's/.*"//')
get first "/v1/responses/$id/cancel" -X POST
expect_body '"status":"cancelled","background":true'
wait "$reader"
get first "/v1/responses/$id/cancel" -X POST
expect_status 200
expect_body '"status":"cancelled"'
expect_body '"output":[]'
kill -KILL "$others"
wait "$others" 2>/dev/null
expect_true wait_for stat_is answers_running 0

# a conversation: items with ids, listed in both orders, page by page
as first /v1/conversations '{"metadata":{"a":"b"},"items":[{"role":"user","content":"Once upon a time"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"there was a dog."}]}]}'
expect_status 200
expect_body '"object":"conversation"'
expect_body '"metadata":{"a":"b"}'
conversation=$(value id)
get first "/v1/conversations/$conversation/items?order=asc"
expect_status 200
expect_body '"content":[{"type":"input_text","text":"Once upon a time"}]'
expect_body '"has_more":false'
first_item=$(value first_id)
last_item=$(value last_id)
get first "/v1/conversations/$conversation/items?limit=1"
expect_equal "$(value first_id)" "$last_item"
expect_body '"has_more":true'
get first "/v1/conversations/$conversation/items?limit=1&after=$last_item"
expect_equal "$(value first_id)" "$first_item"
expect_body '"has_more":false'
get first "/v1/conversations/$conversation/items/$first_item"
expect_body '"role":"user"'
for wrong in limit=0 limit=101 limit=x order=up after=msg_0; do
    get first "/v1/conversations/$conversation/items?$wrong"
    expect_status 400
done
# ids that clients give twice do not lead back
as first /v1/conversations '{"items":[{"id":"a","role":"user","content":"1"},{"id":"b","role":"user","content":"2"},{"id":"c","role":"user","content":"3"},{"id":"b","role":"user","content":"4"},{"id":"d","role":"user","content":"5"}]}'
get first "/v1/conversations/$(value id)/items?order=asc&limit=2&after=b"
expect_equal "$(value first_id)" d
expect_body '"has_more":false'
# a response goes on from it and is added to it, as if all of it had been sent
said='{"role":"user","content":"Once upon a time"},{"role":"assistant","content":"there was a dog."}'
as first /v1/responses "{\"input\":[$said,{\"role\":\"user\",\"content\":\"And?\"}],\"seed\":3,\"max_output_tokens\":12}"
whole=$(value text)
n_whole=$(value input_tokens)
as first /v1/responses "{\"conversation\":\"$conversation\",\"input\":\"And?\",\"seed\":3,\"max_output_tokens\":12}"
expect_status 200
expect_body "\"conversation\":{\"id\":\"$conversation\"}"
expect_equal "$(value text)" "$whole"
expect_equal "$(value input_tokens)" "$n_whole"
get first "/v1/responses/$(value id)/input_items?limit=2"
expect_body '"text":"And?"*"text":"there was a dog."*"has_more":true'
own_item=$(value first_id)
get first "/v1/conversations/$conversation/items/$own_item" # it is the same one
expect_body '"text":"And?"'
get first "/v1/conversations/$conversation/items?order=asc"
expect_equal "$(grep -o '"role":"[a-z]*"' "$out" | tr -dc 'a-z:\n' | sed 's/role://' | tr '\n' ' ')" \
    'user assistant user assistant '
expect_equal "$(grep -o '"text":"\([^"\\]\|\\.\)*"' "$out" | tail -1)" "\"text\":\"$whole\""
# what it has may be all that is asked; nothing at all may not
as first /v1/responses/input_tokens '{"input":[{"role":"user","content":"Once upon a time"}]}'
n_asked=$(value input_tokens)
as first /v1/conversations '{"items":[{"role":"user","content":"Once upon a time"}]}'
for input in '' ',"input":null' ',"input":[]'; do
    as first /v1/responses/input_tokens "{\"conversation\":\"$(value id)\"$input}"
    expect_equal "$(value input_tokens)" "$n_asked"
    as first /v1/conversations '{"items":[{"role":"user","content":"Once upon a time"}]}'
done
told=$(value id)
as first /v1/responses "{\"conversation\":\"$told\",\"max_output_tokens\":2}"
expect_status 200
get first "/v1/conversations/$told/items?order=asc"
expect_equal "$(grep -o '"role":' "$out" | wc -l)" 2
as first /v1/conversations '{}'
as first /v1/responses "{\"conversation\":\"$(value id)\"}"
expect_status 400
expect_body '"param":"input"'
# also in the background, where the conversation is an object
as first /v1/responses "{\"conversation\":{\"id\":\"$conversation\"},\"input\":[{\"role\":\"user\",\"content\":\"So?\"}],\"max_output_tokens\":2,\"background\":true,\"store\":true}"
expect_status 200
expect_true wait_for status_is "$(value id)" incomplete
get first "/v1/conversations/$conversation/items?limit=100"
expect_equal "$(grep -o '"role":' "$out" | grep -c .)" 6
as first /v1/responses "{\"conversation\":\"$conversation\",\"previous_response_id\":\"resp_1\",\"input\":\"x\"}"
expect_status 400
expect_body '"param":"conversation"'
as second /v1/responses "{\"conversation\":\"$conversation\",\"input\":\"x\"}"
expect_status 404
# changed, and deleted
as first "/v1/conversations/$conversation/items" '{"items":[{"role":"user","content":"More"}]}'
expect_status 200
expect_body '"object":"list"'
added=$(value first_id)
get first "/v1/conversations/$conversation/items/$added" -X DELETE
expect_status 200
expect_body "\"id\":\"$conversation\""
get first "/v1/conversations/$conversation/items/$added"
expect_status 404
as first "/v1/conversations/$conversation" '{"metadata":{"c":"d"}}'
expect_body '"metadata":{"c":"d"}'
get first "/v1/conversations/$conversation"
expect_body '"metadata":{"c":"d"}'
get second "/v1/conversations/$conversation"
expect_status 404
as first "/v1/conversations/$conversation" '{}'
expect_status 400
expect_body '"param":"metadata"'
for wrong in '{"items":7}' '{"items":[{"type":"riddle"}]}' '{"items":[7]}' '{"metadata":[]}' '{"metadata":{"a":1}}' '{"name":"x"}'; do
    as first /v1/conversations "$wrong"
    expect_status 400
done
as first "/v1/conversations/$conversation/items" '{}'
expect_status 400
expect_body '"param":"items"'
# changes at once are all made
# a long one makes each of them take a while
awk 'BEGIN { printf "{\"items\":[{\"role\":\"user\",\"content\":\""; for (i = 0; i < 80000; i++) printf "%064d", i; print "\"}]}" }' >"$scratch/large"
get first "/v1/conversations/$conversation/items" --data-binary "@$scratch/large"
expect_status 200
n_changes=8
for i in $(seq $n_changes); do
    as first "/v1/conversations/$conversation/items" "{\"items\":[{\"id\":\"old_$i\",\"role\":\"user\",\"content\":\"a\"}]}"
done
changes=
for i in $(seq $n_changes); do
    curl -s -m 900 -o "$scratch/change" -H 'Authorization: Bearer first-key' -X DELETE "$url/v1/conversations/$conversation/items/old_$i" &
    changes="$changes $!"
    curl -s -m 900 -o "$scratch/change" -H 'Authorization: Bearer first-key' --data-binary "{\"items\":[{\"id\":\"new_$i\",\"role\":\"user\",\"content\":\"a\"}]}" "$url/v1/conversations/$conversation/items" &
    changes="$changes $!"
done
# shellcheck disable=SC2086 # words
wait $changes
get first "/v1/conversations/$conversation/items?limit=100"
expect_equal "$(grep -o '"id":"old_' "$out" | wc -l)" 0
expect_equal "$(grep -o '"id":"new_' "$out" | wc -l)" $n_changes
get first "/v1/conversations/$conversation" -X DELETE
expect_exact "$out" "{\"id\":\"$conversation\",\"object\":\"conversation.deleted\",\"deleted\":true}"
get first "/v1/conversations/$conversation"
expect_status 404
# one that would be more than all that is kept is refused, and is as it was
awk 'BEGIN { printf "{\"items\":[{\"role\":\"user\",\"content\":\""; for (i = 0; i < 300000; i++) printf "%064d", i; print "\"}]}" }' >"$scratch/large"
get first /v1/conversations --data-binary "@$scratch/large"
expect_status 200
conversation=$(value id)
get first "/v1/conversations/$conversation/items" --data-binary "@$scratch/large"
expect_status 400
expect_body '"param":"items"'
as first "/v1/conversations/$conversation" '{"metadata":{"c":"d"}}'
expect_status 200
get first "/v1/conversations/$conversation/items"
expect_equal "$(grep -o '"role":' "$out" | wc -l)" 1
expect_true test "$(wc -c <"$out")" -gt 19000000
as first "/v1/conversations/$conversation/items" '{"items":[{"role":"user","content":"More"}]}'
expect_status 200
get first "/v1/conversations/$conversation/items/$(value first_id)" -X DELETE
expect_status 200
get first "/v1/conversations/$conversation/items"
expect_equal "$(grep -o '"role":' "$out" | wc -l)" 1
awk 'BEGIN { printf "{\"items\":[{\"role\":\"user\",\"content\":\""; for (i = 0; i < 524286; i++) printf "%064d", i; print "\"}]}" }' >"$scratch/large"
get first /v1/conversations --data-binary "@$scratch/large"
expect_status 400
expect_body '"param":"items"'
get first "/v1/conversations/$conversation"
expect_status 200
# so is an answer with which it would be
awk 'BEGIN { printf "{\"items\":[{\"type\":\"web_search_call\",\"x\":\""; for (i = 0; i < 524272; i++) printf "%064d", i; print "\"}]}" }' >"$scratch/large"
get first /v1/conversations --data-binary "@$scratch/large"
expect_status 200
conversation=$(value id)
for how in '' ',"stream":true'; do
    as first /v1/responses "{\"conversation\":\"$conversation\",\"input\":\"Once\",\"max_output_tokens\":200,\"ignore_eos\":true,\"store\":false$how}"
    expect_status 200
    expect_body '"status":"failed"*"error":{"code":"server_error","message":"conversation: with this answer it would have more than'
done
expect_body 'event: response.failed'
get first "/v1/conversations/$conversation/items"
expect_status 200
expect_body '"has_more":false'
expect_no_body '"role":'
stop_server
expect_empty "$err"
finish
