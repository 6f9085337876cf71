# SPDX-License-Identifier: MIT
# Several at once: each is answered as if alone; who hangs up is given up; the queue is bounded; slow
# readers hold nobody else; signals.
. ./lib_server.sh
start_server "$demo" --ctx 1024

# body N SEED MORE: N tokens of a story of its own
body() {
    printf '{"prompt":"%s","max_tokens":%d,"seed":%d,"ignore_eos":true%s}' \
        "$(sed -n "$(($2 * 7 + 1))p" "$SOURCE/models/demo/heldout.txt" | tr -d '"\\' | head -c 200) Then" "$1" "$2" "${3:-}"
}
# all_at_once N: clients 1 to 6, N tokens each, every second one streamed; texts in $scratch/NAME.I
all_at_once() {
    for i in 1 2 3 4 5 6; do
        stream=
        [ $((i % 2)) -eq 0 ] || stream=,\"stream\":true
        curl -s -m 500 "$url/v1/completions" --data-binary "$(body "$1" $i "$stream")" >"$scratch/raw.$i" &
        clients="${clients:-} $!"
    done
    # shellcheck disable=SC2086 # a list
    wait $clients
    clients=
    for i in 1 2 3 4 5 6; do
        joined "$scratch/raw.$i" text >"$scratch/$2.$i"
    done
}
# equal_alone N NAME CLIENTS
equal_alone() {
    for i in $3; do
        post /v1/completions "$(body "$1" $i)"
        expect_status 200
        expect_equal "$(cat "$scratch/$2.$i")" "$(value text)"
    done
}
all_at_once 60 together
equal_alone 60 together "1 2 3 4 5 6"
expect_true test "$(stat evaluated_tokens_total)" -gt "$(stat steps_total)"
# longer than memory has room for together: some are put back, and go on where they were
all_at_once 900 long
expect_true test "$(stat preemptions_total)" -gt 0
equal_alone 900 long "1 6"

# a client that hangs up: in its answer, streamed or not
for stream in true false; do
    before=$(stat jobs_cancelled_total)
    curl -s -N "$url/v1/completions" --data-binary "$(body 900 1 ",\"stream\":$stream")" >"$scratch/gone" &
    client=$!
    expect_true wait_for stat_is answers_running 1
    kill -KILL $client
    wait $client 2>/dev/null
    expect_true wait_for stat_is answers_running 0
    expect_equal "$(stat jobs_cancelled_total)" $((before + 1))
done

# the next turn evaluates what is new alone
post /v1/chat/completions '{"messages":[{"role":"system","content":"A tale of the sea, long ago, when ships had sails."},{"role":"user","content":"Once upon a time there was a man who"}],"max_tokens":20,"seed":5}'
answer=$(value content)
n_first=$(value prompt_tokens)
before=$(stat evaluated_tokens_total)
post /v1/chat/completions "{\"messages\":[{\"role\":\"system\",\"content\":\"A tale of the sea, long ago, when ships had sails.\"},{\"role\":\"user\",\"content\":\"Once upon a time there was a man who\"},{\"role\":\"assistant\",\"content\":\"$answer\"},{\"role\":\"user\",\"content\":\"And then?\"}],\"max_tokens\":1,\"seed\":5}"
expect_status 200
expect_true test "$(value cached_tokens)" -ge "$n_first"
expect_equal "$(stat evaluated_tokens_total)" $((before + $(value prompt_tokens) - $(value cached_tokens)))
# the same again: nothing
before=$(stat evaluated_tokens_total)
post /v1/completions '{"prompt":"A prompt that comes twice","max_tokens":1}'
post /v1/completions '{"prompt":"A prompt that comes twice","max_tokens":1}'
expect_equal "$(value cached_tokens)" "$(value prompt_tokens)"
expect_equal "$(stat evaluated_tokens_total)" $((before + $(value prompt_tokens)))

# a reader that reads nothing: its answer waits, those of others do not, and nothing is lost
mkfifo "$scratch/gate"
exec 4<>"$scratch/gate"
text='{"messages":[{"role":"user","content":"x"}],"ignore_eos":true,"max_tokens":700,"stream":true,"logprobs":true,"top_logprobs":20}'
printf 'POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' ${#text} "$text" |
    "$RAW" "$port" deaf 3<"$scratch/gate" >"$scratch/deaf" &
client=$!
expect_true wait_for stat_is answers_paused 1
post /v1/completions '{"prompt":"Meanwhile","max_tokens":5}'
expect_equal "$(value completion_tokens)" 5
expect_equal "$(stat answers_paused)" 1
echo >&4
wait $client
exec 4>&-
expect_true test "$(cat "$scratch/deaf")" -gt 1000000
expect_true wait_for stat_is answers_running 0
stop_server
expect_empty "$err"

# a queue of two behind an answer of one, which takes long enough for a sign of life on any machine
start_server "$demo" --sessions 1 --queue 2 --threads 1 --cpu-tier scalar --drain 600
curl -s -N "$url/v1/completions" --data-binary "$(body 600 1 ',"stream":true')" >"$scratch/first" &
first=$!
expect_true wait_for stat_is answers_running 1
curl -s "$url/v1/completions" --data-binary "$(body 5 2)" >"$scratch/second" &
second=$!
expect_true wait_for stat_is answers_waiting 1
# a stream that waits shows signs of life
curl -s -N "$url/v1/chat/completions" --data-binary '{"messages":[{"role":"user","content":"x"}],"max_tokens":3,"stream":true}' >"$scratch/waits" &
waits=$!
expect_true wait_for stat_is answers_waiting 2
post /v1/completions "$(body 5 3)"
expect_status 429
expect_true grep -qi '^retry-after: [1-9]' "$headers"
expect_body '"type":"rate_limit_error"'
post /v1/messages '{"messages":[{"role":"user","content":"x"}],"max_tokens":1}'
expect_status 429
expect_body '{"type":"error","error":{"type":"rate_limit_error"'
post /v1/messages/count_tokens '{"messages":[{"role":"user","content":"x"}]}' # is not queued
expect_status 200
kill -KILL $second # while it waits
wait $second 2>/dev/null
expect_true wait_for stat_is answers_waiting 1
expect_true wait_for grep -q '^: keep-alive$' "$scratch/waits"
expect_equal "$(stat answers_running)" 1
kill -KILL $waits
wait $waits 2>/dev/null
expect_true wait_for stat_is answers_waiting 0
curl -s "$url/v1/completions" --data-binary "$(body 5 4)" >"$scratch/third" &
third=$!
expect_true wait_for stat_is answers_waiting 1
# a signal: what was taken in is answered to its end, and nothing more is taken in
kill -TERM "$pid"
refused() {
    ! curl -s -m 60 "$url/health" >/dev/null 2>&1
}
expect_true wait_for refused
wait $first
wait $third
wait "$pid"
code=$?
expect_code 0
expect_equal "$(tail -2 "$scratch/first" | head -1)" 'data: [DONE]'
expect_equal "$(value_in "$scratch/third" completion_tokens)" 5

# no time to drain: clients are told
start_server "$demo" --drain 0
curl -s -N "$url/v1/chat/completions" --data-binary '{"messages":[{"role":"user","content":"x"}],"max_tokens":4000,"ignore_eos":true,"stream":true}' >"$scratch/first" &
first=$!
curl -s "$url/v1/messages" -w '%{http_code}' --data-binary '{"messages":[{"role":"user","content":"x"}],"max_tokens":4000,"ignore_eos":true}' >"$scratch/second" &
second=$!
expect_true wait_for stat_is answers_running 2
kill -INT "$pid"
wait $first
wait $second
wait "$pid"
code=$?
pid=
expect_code 0
cp "$scratch/first" "$out"
expect_body 'data: {"error":{"message":"the server is shutting down","type":"overloaded_error"'
cp "$scratch/second" "$out"
expect_body '{"type":"error","error":{"type":"overloaded_error","message":"the server is shutting down"},"request_id":"msg_*"}503'

# a limit of time
start_server "$demo" --time-limit 1
post /v1/completions "$(body 4000 1)"
expect_status 504
expect_body '"type":"timeout_error"'
post /v1/completions "$(body 4000 1 ',"stream":true')"
expect_status 200
expect_body 'data: {"error":{"message":"the request took longer'
stop_server
finish
