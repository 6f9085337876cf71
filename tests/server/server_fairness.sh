# SPDX-License-Identifier: MIT
# Who has to wait for whom: a client with much to ask, readers who are behind, memory that is short,
# bodies of all connections together. Clients are told apart by their address: 127.0.0.x.
. ./lib_server.sh
slow="--threads 1 --cpu-tier scalar"
[ -z "${SANITIZE:-}" ] || slow="--threads 2" # is slow enough
# ask_long NAME WORDS [TOKENS]: an answer of 600 tokens, into $scratch/NAME; sets client
ask_long() {
    curl -s -N -m 900 "$url/v1/completions" --data-binary \
        "{\"prompt\":\"$2\",\"max_tokens\":${3:-600},\"seed\":4,\"ignore_eos\":true,\"stream\":true}" >"$scratch/$1" &
    client=$!
}
# longer than what is too short for the store (64 tokens)
story=$(head -c 1200 "$SOURCE/models/demo/heldout.txt" | tr '\n"\\' '   ')
king="Once upon a time there was a king. $story"
girl="In the old days a girl lived by the sea. $story"

# Two answers of one client take both places; another client's does not wait for the end of either.
# shellcheck disable=SC2086 # a list
start_server "$demo" --sessions 2 --queue 2 --state-dir "$scratch/states" $slow
n_prompts=0
for words in "$king" "$girl"; do
    post /tokenize "{\"content\":\"$words\"}"
    expect_true test "$(value count)" -gt 64
    n_prompts=$((n_prompts + $(value count)))
done
ask_long first "$king"
first=$client
ask_long second "$girl"
second=$client
expect_true wait_for stat_is answers_running 2
# both have read their prompts (a token that was just sampled is not evaluated yet)
have_read() {
    n=$(stat evaluated_tokens_total)
    [ $((n + 2 - $(value_in "$scratch/stats" answer_tokens_total))) -ge $n_prompts ]
}
expect_true wait_for have_read
# the queue is full of one client's requests; another's is taken all the same
ask_long third "The wolf" 8
third=$client
expect_true wait_for stat_is answers_waiting 1
ask_long fourth "The bear" 8
fourth=$client
expect_true wait_for stat_is answers_waiting 2
post /v1/completions '{"prompt":"x","max_tokens":1}'
expect_status 429
post /v1/completions '{"prompt":"Meanwhile","max_tokens":5,"ignore_eos":true}' --interface 127.0.0.2
expect_status 200
expect_equal "$(value completion_tokens)" 5
n_mean=$(value prompt_tokens)
expect_equal "$(stat jobs_finished_total)" 1
expect_true test "$(stat preemptions_total)" -ge 1
kill -KILL $third $fourth
wait $third $fourth 2>/dev/null
wait $first $second
# who gave way lost nothing, and was not read again: its state was in the store (those who hung up may
# have been begun)
expect_true test "$(stat evaluated_tokens_total)" -le $((n_prompts + 2 * 599 + n_mean + 4 + 2 * (2 + 7)))
for name in first second; do
    joined "$scratch/$name" text >"$scratch/$name.text"
    expect_equal "$(tail -2 "$scratch/$name" | head -1)" 'data: [DONE]'
done
stop_server
expect_empty "$err"
start_server "$demo"
ask_long alone "$king"
wait "$client"
expect_equal "$(joined "$scratch/alone" text)" "$(cat "$scratch/first.text")"
ask_long alone "$girl"
wait "$client"
expect_equal "$(joined "$scratch/alone" text)" "$(cat "$scratch/second.text")"
stop_server

# A reader that reads nothing keeps its place from nobody, though there is but one.
start_server "$demo" --sessions 1
mkfifo "$scratch/gate"
exec 4<>"$scratch/gate"
body='{"messages":[{"role":"user","content":"x"}],"seed":2,"ignore_eos":true,"max_tokens":700,"stream":true,"logprobs":true,"top_logprobs":20}'
printf 'POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' ${#body} "$body" |
    "$RAW" "$port" deaf 3<"$scratch/gate" >"$scratch/deaf" &
client=$!
expect_true wait_for stat_is answers_paused 1
post /v1/completions '{"prompt":"Meanwhile","max_tokens":5,"ignore_eos":true}'
expect_status 200
expect_equal "$(value completion_tokens)" 5
expect_equal "$(stat answers_waiting)" 1
echo >&4
wait $client
exec 4>&-
expect_true test "$(cat "$scratch/deaf")" -gt 1000000
expect_true wait_for stat_is answers_waiting 0
stop_server

# Memory for two answers of four: those put back go to the store, and are taken up from there.
if [ -z "${SANITIZE:-}" ]; then
    start_server "$demo" --ctx 1024 --sessions 4 --state-dir "$scratch/more"
    tales=$(for i in 1 2 3 4; do printf ',"Tale %d of the king"' $i; done)
    post /v1/completions "{\"prompt\":[${tales#,}],\"max_tokens\":900,\"seed\":3,\"ignore_eos\":true}"
    expect_status 200
    cp "$out" "$scratch/together"
    expect_true test "$(stat preemptions_total)" -gt 0
    expect_true test "$(stat evaluated_tokens_total)" -lt 3700
    for i in 1 2 3 4; do
        post /v1/completions "{\"prompt\":\"Tale $i of the king\",\"max_tokens\":900,\"seed\":3,\"ignore_eos\":true}"
        expect_status 200
        expect_equal "$(nth_text "$scratch/together" $i)" "$(nth_text "$out" 1)"
    done
    stop_server
    expect_empty "$err"
fi

# Bodies that are on their way: all together they are bounded.
start_server "$demo" --max-body 100K
exec 5<>"$scratch/gate"
clients=
for i in 1 2 3 4 5 6 7 8; do
    { printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 102400\r\n\r\n' &&
        head -c 102000 /dev/zero | tr '\0' ' ' && read -r line <&5; } | "$RAW" "$port" leave >/dev/null &
    clients="$clients $!"
done
head -c 102000 /dev/zero | tr '\0' ' ' >"$scratch/body"
too_much() {
    ask /v1/completions --data-binary @"$scratch/body"
    [ "$status" = 503 ]
}
expect_true wait_for too_much
expect_true grep -qi '^retry-after: [1-9]' "$headers"
post /v1/completions '{"prompt":"x","max_tokens":1}'
expect_status 200
for i in 1 2 3 4 5 6 7 8; do echo; done >&5
# shellcheck disable=SC2086
wait $clients
exec 5>&-
ask /v1/completions --data-binary @"$scratch/body"
expect_status 400
stop_server
finish
