# SPDX-License-Identifier: MIT
# --state-dir: what was evaluated serves the next server, also after one that was killed.
. ./lib_server.sh
prompt=$(head -c 1500 "$SOURCE/models/demo/heldout.txt" | tr '\n"\\' '   ')
ask_long() {
    post /v1/completions "{\"prompt\":\"$prompt\",\"max_tokens\":8,\"temperature\":0}"
    expect_status 200
}
run serve "$demo" --state-dir-size 64M
expect_usage_error "serve: --state-dir-size needs --state-dir"
start_server "$demo" --state-dir "$scratch/states" --state-dir-size 64M
ask_long
text=$(value text)
n=$(value prompt_tokens)
expect_equal "$(value cached_tokens)" 0
expect_true test "$n" -gt 300
expect_true wait_for stat_is sessions_stored_total 1
kill -KILL "$pid"
wait "$pid" 2>/dev/null
start_server "$demo" --state-dir "$scratch/states"
ask_long
expect_equal "$(value text)" "$text"
expect_equal "$(value cached_tokens)" $((n - 1))
expect_true test "$(stat evaluated_tokens_total)" -lt 20
post /v1/completions "{\"prompt\":\"Another beginning. $prompt\",\"max_tokens\":4,\"temperature\":0}"
stop_server # what is not yet stored is stored first
start_server "$demo" --state-dir "$scratch/states"
post /v1/completions "{\"prompt\":\"Another beginning. $prompt\",\"max_tokens\":4,\"temperature\":0}"
expect_equal "$(value cached_tokens)" $(($(value prompt_tokens) - 1))
stop_server
: >"$scratch/file"
run serve "$demo" --port 0 --state-dir "$scratch/file"
expect_error "*$scratch/file*"
finish
