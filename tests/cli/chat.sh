# SPDX-License-Identifier: MIT
# The chat, its lines from a pipe.
. ./lib.sh
random_model

printf '/help\nhello\n\n/stats\nagain\n/clear\n/sing\nhello\n/quit\nnever\n' >"$scratch/lines"
run_with "$scratch/lines" run "$model" --raw -n 5 --temp 0 --ignore-eos --quiet
expect_code 0
expect_glob "$err" "*/clear *tokens/s*(a new conversation)*/sing is not a command.*"
cp "$out" "$scratch/chat"

# without a template each line is a prompt of its own
for line in hello again hello; do
    run run "$model" --raw -p $line -n 5 --temp 0 --ignore-eos --quiet
    cat "$out"
done >"$scratch/single"
expect_same "$scratch/chat" "$scratch/single"

run run "$model" -n 5
expect_code 0
expect_empty "$out"

# a line that does not fit is refused, and the chat goes on
long=$(printf 'word %.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20)
printf '%s\nhi\n' "$long" >"$scratch/lines"
run_with "$scratch/lines" run "$model" --raw -n 2 --temp 0 --ignore-eos --ctx 12 --quiet
expect_code 0
expect_lines "$err" 1
expect_glob "$err" "moeflux: the conversation has * tokens, but the context holds 12: */clear*"
cp "$out" "$scratch/chat"
run run "$model" --raw -p hi -n 2 --temp 0 --ignore-eos --ctx 12 --quiet
expect_same "$out" "$scratch/chat"
finish
