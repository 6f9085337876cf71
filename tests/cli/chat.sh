# SPDX-License-Identifier: MIT
# The chat, its lines from a pipe.
. ./lib.sh
random_model

printf '/help\nhello\n\n/stats\nagain\n/clear\n/sing\nhello\n/quit\nnever\n' >"$scratch/lines"
run_with "$scratch/lines" run "$model" --raw -n 5 --temp 0 --ignore-eos --quiet
expect_code 0
expect_glob "$err" "*/clear *tokens/s*(a new conversation)*/sing is not a command; //sing *"
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

# with a template the conversation goes on, and a turn evaluates only what is new: the same line
# again costs what it cost the first time, but for the end of the answer before it
cat >"$model/chat_template.jinja" <<'END'
{%- for message in messages %}
{%- if message.role == 'system' %}
{{- '<|im_start|>system\n' + message.content + '<|im_end|>\n' }}
{%- else %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\n' }}
{%- endif %}
END
answer="-n 20 --temp 0 --ignore-eos --quiet --stats=json"
# shellcheck disable=SC2086 # several options
run run "$model" -p hello $answer
expect_code 0
cp "$out" "$scratch/single"
cp "$err" "$scratch/single.json"
first=$(json "$err" prefill_tokens)
printf '<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n' >"$scratch/formatted"
run tokenize "$model" -f "$scratch/formatted" --parse-special --ids
expect_true [ "$(wc -w <"$out")" = "$first" ]
run run "$model" -p hello -n 0 --temp 0 --show-prompt --quiet
echo >>"$scratch/formatted"
expect_same "$err" "$scratch/formatted"
printf '<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n' >"$scratch/formatted"
# shellcheck disable=SC2086
run run "$model" --raw -f "$scratch/formatted" $answer
expect_same "$out" "$scratch/single"
printf 'hello\nhello\n' >"$scratch/lines"
# shellcheck disable=SC2086
run_with "$scratch/lines" run "$model" $answer
expect_code 0
expect_true [ "$(json "$err" prefill_tokens)" -lt $((2 * first + 20)) ]
head -c "$(wc -c <"$scratch/single")" "$out" >"$scratch/first"
expect_same "$scratch/first" "$scratch/single"
# a new conversation answers as the first did
printf 'hello\n/clear\nhello\n' >"$scratch/lines"
# shellcheck disable=SC2086
run_with "$scratch/lines" run "$model" $answer
cat "$scratch/single" "$scratch/single" >"$scratch/twice"
expect_same "$out" "$scratch/twice"
# another answer to the same message, which at temperature 0 is the same, evaluates nothing of the
# prompt; what is taken back was not said
printf 'hello\n/again\n' >"$scratch/lines"
# shellcheck disable=SC2086
run_with "$scratch/lines" run "$model" $answer
expect_same "$out" "$scratch/twice"
expect_true [ "$(json "$err" prefill_tokens)" -le $((first + 1)) ]
printf 'hello\n/undo\nhello\n' >"$scratch/lines"
# shellcheck disable=SC2086
run_with "$scratch/lines" run "$model" $answer
expect_same "$out" "$scratch/twice"
printf '/undo\n/again\n' >"$scratch/lines"
run_with "$scratch/lines" run "$model" --quiet
expect_code 0
expect_empty "$out"
expect_glob "$err" "*There is no message to take back.*There is no message to answer again.*"
printf 'hello\n/undo\n/again\n' >"$scratch/lines"
run_with "$scratch/lines" run "$model" --raw --quiet -n 2
expect_code 0
expect_glob "$err" "*Without a chat template nothing is kept of what was said.*Without a chat template nothing is*"
printf 'hello\n/clear\nhello\n' >"$scratch/lines"
# shellcheck disable=SC2086
run_with "$scratch/lines" run "$model" $answer
# ... and finds it all evaluated
expect_true [ "$(json "$err" prefill_tokens)" -eq "$first" ]
expect_true [ "$(json "$err" prompt_tokens)" -eq $((2 * first)) ]
# a system message is part of the prompt
# shellcheck disable=SC2086
run_with "$scratch/lines" run "$model" --system "Be kind." $answer
expect_true [ "$(json "$err" prompt_tokens)" -gt $((2 * first)) ]
expect_true [ "$(json "$err" prefill_tokens)" -gt "$first" ]

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
