# SPDX-License-Identifier: MIT
# Ctrl-C: ends an answer to -p with exit code 130, in the prefill too; stops the chat's answer and
# not the chat.
. ./lib.sh
random_model
slow="--threads 1 --cpu-tier scalar --quiet --ctx 60000"

# start INPUT ARGUMENTS...: in the background, as $pid
start() {
    input=$1
    shift
    last="moeflux $*"
    : >"$out"
    "$MOEFLUX" "$@" <"$input" >"$out" 2>"$err" &
    pid=$!
}

ended() {
    wait "$pid"
    code=$?
}

# an answer
# shellcheck disable=SC2086 # several options
start /dev/null run "$model" --raw -p hello --ignore-eos --temp 0 -n 50000 $slow
expect_true wait_for 60 test -s "$out"
kill -INT $pid
ended
expect_code 130
expect_true [ "$(wc -c <"$out")" -lt 200000 ]

# a prefill. Until the program has opened the model a background job of a shell ignores the signal,
# hence more than one.
yes 'a long prompt of many words,' | head -8000 >"$scratch/long"
# shellcheck disable=SC2086
start /dev/null run "$model" --raw -f "$scratch/long" -n 1 --prefill-chunk 8 $slow
tries=0
while kill -INT $pid 2>/dev/null && [ $tries -lt 600 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
ended
expect_code 130
expect_empty "$out"

# the chat: the answer stops, the next one comes, and the exit is a good one
mkfifo "$scratch/lines"
# shellcheck disable=SC2086
start "$scratch/lines" run "$model" --raw --ignore-eos --temp 0 -n 50000 $slow
exec 3>"$scratch/lines"
echo hello >&3
expect_true wait_for 60 test -s "$out"
kill -INT $pid
expect_true wait_for 60 grep -q '^(stopped)$' "$err"
size=$(wc -c <"$out")
echo again >&3
grown() {
    [ "$(wc -c <"$out")" -gt "$size" ]
}
expect_true wait_for 60 grown
kill -INT $pid
expect_true wait_for 60 sh -c '[ "$(grep -c "^(stopped)$" "$0")" -eq 2 ]' "$err"
# at the prompt the first one says how to leave, the second leaves
kill -INT $pid
expect_true wait_for 60 grep -q '^(Ctrl-C again' "$err"
kill -INT $pid
ended
expect_code 0
exec 3>&-
finish
