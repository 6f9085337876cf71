# SPDX-License-Identifier: MIT
# Thoughts on a terminal, cut short, hidden and interrupted; a saved conversation shown again.
. ./lib.sh
. ./thinking_model.sh
. ./terminal.sh
[ -f "$demo/tokenizer.json" ] || skip "models/demo is not there"
thinking_model "$scratch/thinks" qwen36.jinja
how="-n 30 --temp 0 --ctx 16000"
dim=$esc[2m not_dim=$esc[22m

# plain ARGUMENTS...: what a pipe gets for the one question
plain() {
    # shellcheck disable=SC2086 # several options
    "$MOEFLUX" run "$scratch/thinks" $how -p "Once upon a time" --quiet "$@" 2>"$err"
}

# Hidden: how long they take is seen while they last, and gone before the answer; the answer is what
# a pipe gets.
# shellcheck disable=SC2086
type_to run "$scratch/thinks" $how --think-budget 6 --thoughts hide
keys 'Once upon a time\r'
expect_true wait_for prompts 2
expect_true shown "thinking, 1 tokens so far$esc[K"
expect_true [ "$(grep -c '</think>' "$out")" -eq 0 ]
words=$(plain --think-budget 6 --thoughts hide | head -1 | cut -d ' ' -f1-4)
expect_true [ -n "$words" ]
expect_true grep -qF "$esc[K$words" "$out"
# kept, and shown again
keys '/save kept\r'
expect_true wait_for shown '(saved as kept'
keys '/quit\r'
left
# shellcheck disable=SC2086
type_to run "$scratch/thinks" $how --continue --thoughts show --think-budget 6
expect_true shown '>>> Once upon a time'
expect_true shown "$words"
expect_true shown '(kept: 2 messages'
keys 'And then?\r'
expect_true wait_for prompts 2
keys '/quit\r'
left
# shown: nothing of the answer is dim
expect_true shown '</think>'
expect_true [ "$(grep -F "$dim" "$out" | grep -vc '(kept: \|(/help ')" -eq 0 ]
expect_true [ "$(grep -c '"role": "user"' "$XDG_STATE_HOME/moeflux/chats/kept.json")" -eq 2 ]

# dim by default, up to the mark that the budget brought
# shellcheck disable=SC2086
type_to run "$scratch/thinks" $how --think-budget 6
keys 'Once upon a time\r'
expect_true wait_for prompts 2
keys '/quit\r'
left
expect_true [ "$(tr -d '\r' <"$out" | grep -cF "</think>$not_dim")" -eq 1 ]

# Ctrl-C within hidden thoughts stops them; the next turn goes on
# shellcheck disable=SC2086
type_to run "$scratch/thinks" -n 12000 --temp 0 --ctx 16000 --thoughts hide --threads 1 --cpu-tier scalar --logit-bias 316=-100 --ignore-eos
keys 'Once upon a time\r'
expect_true wait_for shown 'thinking, '
keys '\003'
expect_true wait_for shown '(stopped)'
expect_true wait_for prompts 2
keys '/quit\r'
left
finish
