# SPDX-License-Identifier: MIT
# Several at once: each is answered as if alone; who hangs up is given up; the queue is bounded; slow
# readers hold nobody else; signals. What has to be under way while something is looked at takes many
# times as long as the look, on any machine.
. ./lib_server.sh
slow="--threads 1 --cpu-tier scalar"
[ -z "${SANITIZE:-}" ] || slow="--threads 2" # is slow enough
start_server "$demo" --ctx 1024

# words SEED: how a story of its own begins
words() {
    printf '%s Then' "$(sed -n "$(($1 * 7 + 1))p" "$SOURCE/models/demo/heldout.txt" | tr -d '"\\' | head -c 200)"
}
# body N SEED MORE: N tokens of that story
body() {
    printf '{"prompt":"%s","max_tokens":%d,"seed":%d,"ignore_eos":true%s}' "$(words "$2")" "$1" "$2" "${3:-}"
}
# clients 1 to 6, every second one streamed: as alone
clients=
for i in 1 2 3 4 5 6; do
    stream=
    [ $((i % 2)) -eq 0 ] || stream=,\"stream\":true
    curl -s -m 900 "$url/v1/completions" --data-binary "$(body 60 $i "$stream")" >"$scratch/together.$i" &
    clients="$clients $!"
done
# shellcheck disable=SC2086 # a list
wait $clients
for i in 1 2 3 4 5 6; do
    post /v1/completions "$(body 60 $i)"
    expect_status 200
    expect_equal "$(joined "$scratch/together.$i" text)" "$(value text)"
done
# longer than memory has room for together, and asked for in one request, so that they are: some are
# put back, and go on where they were
if [ -z "${SANITIZE:-}" ]; then
    stories=$(for i in 1 2 3 4 5 6; do printf ',"%s"' "$(words $i)"; done)
    post /v1/completions "{\"prompt\":[${stories#,}],\"max_tokens\":900,\"seed\":7,\"ignore_eos\":true}"
    expect_status 200
    expect_true test "$(stat preemptions_total)" -gt 0
    cp "$out" "$scratch/long"
    for i in 1 6; do
        post /v1/completions "{\"prompt\":\"$(words $i)\",\"max_tokens\":900,\"seed\":7,\"ignore_eos\":true}"
        expect_equal "$(nth_text "$scratch/long" $i)" "$(nth_text "$out" 1)"
    done
fi

# a client that hangs up: in its answers, streamed or not, which would take minutes
is_busy() {
    [ "$(stat answers_running)" -gt 0 ]
}
for stream in true false; do
    before=$(stat jobs_cancelled_total)
    curl -s -N "$url/v1/completions" --data-binary "$(body 900 1 ",\"stream\":$stream,\"n\":128")" >"$scratch/gone" &
    client=$!
    expect_true wait_for is_busy
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

# a queue of two behind an answer that takes many times longer than what is looked at meanwhile
# shellcheck disable=SC2086
start_server "$demo" --sessions 1 --queue 2 $slow --drain 600
curl -s -N "$url/v1/completions" --data-binary "$(body 3900 1 ',"stream":true')" >"$scratch/first" &
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
kill -KILL $first
wait $first 2>/dev/null
expect_true wait_for stat_is answers_running 0
# a signal: what was taken in is answered to its end, and nothing more is taken in
n_jobs=$(stat jobs_total)
curl -s -N "$url/v1/completions" --data-binary "$(body 300 1 ',"stream":true')" >"$scratch/first" &
first=$!
curl -s "$url/v1/completions" --data-binary "$(body 5 4)" >"$scratch/third" &
third=$!
expect_true wait_for stat_is jobs_total $((n_jobs + 2))
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
# shellcheck disable=SC2086
start_server "$demo" --sessions 2 --drain 0 $slow
curl -s -N "$url/v1/chat/completions" --data-binary '{"messages":[{"role":"user","content":"x"}],"max_tokens":4000,"ignore_eos":true,"stream":true}' >"$scratch/first" &
first=$!
curl -s "$url/v1/messages" -w '%{http_code}' --data-binary '{"messages":[{"role":"user","content":"x"}],"max_tokens":4000,"ignore_eos":true}' >"$scratch/second" &
second=$!
expect_true wait_for stat_is answers_running 2
curl -s -N "$url/v1/responses" --data-binary '{"input":"x","stream":true}' >"$scratch/third" &
third=$!
expect_true wait_for stat_is answers_waiting 1
kill -INT "$pid"
wait $first
wait $second
wait $third
wait "$pid"
code=$?
pid=
expect_code 0
cp "$scratch/first" "$out"
expect_body 'data: {"error":{"message":"the server is shutting down","type":"overloaded_error"'
cp "$scratch/second" "$out"
expect_body '{"type":"error","error":{"type":"overloaded_error","message":"the server is shutting down"},"request_id":"msg_*"}503'
# who has waited, too, hears of a response before its end
expect_equal "$(sed -n 's/^event: //p' "$scratch/third" | tr '\n' ' ')" 'response.created response.in_progress response.failed '

# a limit of time
# shellcheck disable=SC2086
start_server "$demo" --time-limit 1 $slow
post /v1/completions "$(body 4000 1)"
expect_status 504
expect_body '"type":"timeout_error"'
post /v1/completions "$(body 4000 1 ',"stream":true')"
expect_status 200
expect_body 'data: {"error":{"message":"the request took longer'
stop_server
finish
