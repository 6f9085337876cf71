# SPDX-License-Identifier: MIT
# Ctrl-C: ends an answer to -p with exit code 130, in the prefill too, convert's evaluation of a
# text, and perplexity and bench, which keep their traces; stops the chat's answer and not the chat.
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
expect_true wait_for test -s "$out"
kill -INT $pid
ended
expect_code 130
expect_true [ "$(wc -c <"$out")" -lt 200000 ]

# the same as JSON: what there is of it
# shellcheck disable=SC2086
start /dev/null run "$model" --raw -p hello --ignore-eos --temp 0 -n 50000 --json --show-prompt $slow
expect_true wait_for test -s "$err"
kill -INT $pid
ended
expect_code 130
expect_lines "$out" 1
expect_glob "$out" '{"text": "*", "tokens": [[]*[]], "finish_reason": "cancelled", "thoughts": "*", "calls": [[][]], "usage": {*}, "seed": null, *}'

# interrupt_until COMMAND...: signals until the command succeeds. A signal that comes where the
# program does not look for one yet, before it has opened the model or just before it waits for a
# line, is lost.
interrupt_until() {
    while kill -INT "$pid" 2>/dev/null; do
        sleep 0.1
        "$@" && return 0
    done
    "$@"
}

has_ended() {
    ! kill -0 "$pid" 2>/dev/null
}

# processor time of the program, in hundredths of a second
n_ticks() {
    sed 's/.*) //' "/proc/$pid/stat" | awk '{ print $12 + $13 }'
}

# a prefill; once the prompt has been read, it is the program that gets the signals
mkfifo "$scratch/prompt" "$scratch/lines"
# shellcheck disable=SC2086
start "$scratch/prompt" run "$model" --raw -f - -n 1 --prefill-chunk 8 $slow
yes 'a long prompt of many words,' | head -6000 >"$scratch/prompt"
interrupt_until has_ended
ended
expect_code 130
expect_empty "$out"

# convert's texts: the one that is read before anything is written, the one that is read at the end
yes 'a long text of many words,' | head -12000 >"$scratch/text"
start /dev/null convert "$model" "$scratch/calibrated" --bits 8 -t 1 --calibrate "$scratch/text" --calibrate-tokens 60000
interrupt_until has_ended
ended
expect_code 130
expect_empty "$err" # the conversion was not begun
start /dev/null convert "$model" "$scratch/checked" -t 1 --check "$scratch/text" --check-tokens 60000
expect_true wait_for test -e "$scratch/checked/moeflux.json"
interrupt_until has_ended
ended
expect_code 130
expect_empty "$out"

# perplexity and bench: the router's choices until then are there to be replayed. A program that had
# evaluated nothing yet is given more time.
has_computed() {
    [ "$(n_ticks)" -ge "$least" ]
}
keeps_trace() {
    for least in 50 200 800 3200; do
        # shellcheck disable=SC2086
        start /dev/null "$@" --trace "$scratch/trace" --prefill-chunk 8 $slow
        expect_true wait_for has_computed
        interrupt_until has_ended
        ended
        expect_code 130
        expect_empty "$out"
        "$MOEFLUX" replay "$scratch/trace" --slots 50% >"$scratch/replayed" 2>&1 && return
    done
    cat "$scratch/replayed"
    return 1
}
expect_true keeps_trace perplexity "$model" "$scratch/text"
expect_true keeps_trace bench "$model" --prompt-tokens 50000

# bench measures the machine after the last token, too: no figures, and not a success
start /dev/null bench "$model" --prompt-tokens 1 --gen-tokens 0 --repeat 1 --measure-ms 1500 -v
expect_true wait_for grep -q 'warm-up 1 done' "$err"
sleep 0.5
kill -INT $pid
ended
expect_code 130
expect_empty "$out"

# the chat: the answer stops, the next one comes, and the exit is a good one
# shellcheck disable=SC2086
start "$scratch/lines" run "$model" --raw --ignore-eos --temp 0 -n 50000 $slow
exec 3>"$scratch/lines"
echo hello >&3
expect_true wait_for test -s "$out"
kill -INT $pid
expect_true wait_for grep -q '^(stopped)$' "$err"
size=$(wc -c <"$out")
echo again >&3
grown() {
    [ "$(wc -c <"$out")" -gt "$size" ]
}
expect_true wait_for grown
kill -INT $pid
expect_true wait_for sh -c '[ "$(grep -c "^(stopped)$" "$0")" -eq 2 ]' "$err"
# at the prompt the first one says how to leave, the second leaves
expect_true interrupt_until grep -q '^(Ctrl-C again' "$err"
interrupt_until has_ended
ended
expect_code 0
exec 3>&-

# the chat's prefill: the message is not taken, but what was read of it is there for the next time.
# A try may be stopped before its first chunk was done: each leaves the program more time.
# shellcheck disable=SC2086
start "$scratch/lines" run "$model" --raw --ignore-eos -n 1 --prefill-chunk 8 $slow
exec 3>"$scratch/lines"
n_tries=0
n_stopped=0
n_reused=0
has_stopped() {
    [ "$(grep -c '^(stopped; the message was not taken)$' "$err")" -gt "$n_stopped" ]
}
# that it is well into the prompt
has_worked() {
    [ "$(n_ticks)" -ge $((before + 30 * n_tries)) ]
}
has_figures() {
    [ "$(grep -c '^prompts' "$err")" -eq "$n_tries" ]
}
while [ "$n_reused" -eq 0 ] && [ "$n_tries" -lt 20 ]; do
    n_tries=$((n_tries + 1))
    before=$(n_ticks)
    yes 'a long prompt of many words,' | head -3000 | tr '\n' ' ' >&3
    echo >&3
    expect_true wait_for has_worked # a signal at the prompt would say how to leave, and a second leave
    expect_true interrupt_until has_stopped
    n_stopped=$(grep -c '^(stopped; the message was not taken)$' "$err")
    echo /stats >&3
    expect_true wait_for has_figures
    n_reused=$(sed -n 's/^prompts.* \([0-9]*\) reused.*/\1/p' "$err" | tail -1)
done
expect_true [ "$n_reused" -gt 0 ]
exec 3>&-
ended
expect_code 0
expect_empty "$out"
finish
