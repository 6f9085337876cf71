# SPDX-License-Identifier: MIT
# What is a message: lines, blocks of lines, files; what begins with a slash; and what becomes of a
# message that is refused.
. ./lib.sh
. ./thinking_model.sh
random_model
how="--raw -n 5 --temp 0 --ignore-eos --quiet"

# alone FILE: the answer to that text as a prompt of its own
alone() {
    # shellcheck disable=SC2086 # several options
    run run "$model" -f "$1" $how
    expect_code 0
    cat "$out" >>"$scratch/expected"
}

# chat: the answers to $scratch/lines are those of $scratch/expected
chat() {
    # shellcheck disable=SC2086
    run_with "$scratch/lines" run "$model" $how
    expect_code 0
    expect_same "$out" "$scratch/expected"
    rm "$scratch/expected"
}

# several lines, an empty one among them, are one message; so is one line, and what input ends in
printf 'one\n\n  two /quit\n/quit' >"$scratch/text"
(echo '"""' && cat "$scratch/text" && printf '\n"""\n') >"$scratch/lines"
alone "$scratch/text"
(printf '"""' && cat "$scratch/text" && printf '"""\n') >>"$scratch/lines"
alone "$scratch/text"
printf '"""/quit"""\n' >>"$scratch/lines"
printf '/quit' >"$scratch/text"
alone "$scratch/text"
printf '"""\nlast\nline\n' >>"$scratch/lines"
printf 'last\nline' >"$scratch/text"
alone "$scratch/text"
chat
expect_empty "$err"

# What the session had seen is not new, though a model with recurrent layers evaluates it again.
printf 'Once upon a time\nOnce upon a time\nOnce upon a day\n' >"$scratch/lines"
# shellcheck disable=SC2086
run_with "$scratch/lines" run "$model" $how --stats=json
expect_code 0
expect_true [ "$(json "$err" prompt_reused_tokens)" = 0 ]
expect_true [ "$(json "$err" prefill_tokens)" = "$(json "$err" prompt_tokens)" ]
printf 'Once upon a time' >"$scratch/text"
n=$("$MOEFLUX" tokenize "$model" -f "$scratch/text" --parse-special --ids | wc -w)
expect_true [ "$(json "$err" prompt_new_tokens)" -eq $((n + 1)) ]

# a path is a message, two slashes are one, a line of Windows has no carriage return
printf '/etc/passwd is a file\n//quit\nhello\r\n/v1.2\n' >"$scratch/lines"
for text in '/etc/passwd is a file' '/quit' 'hello' '/v1.2'; do
    printf '%s' "$text" >"$scratch/text"
    alone "$scratch/text"
done
chat
expect_empty "$err"

# either word leaves
for word in quit exit; do
    printf 'hello\n/%s\nnever\n' $word >"$scratch/lines"
    printf 'hello' >"$scratch/text"
    alone "$scratch/text"
    chat
    expect_empty "$err"
done

# a mistyped command is not sent
printf '/claer\n/clear now\n' >"$scratch/lines"
: >"$scratch/expected"
chat
expect_glob "$err" "/claer is not a command; //claer sends it as a message.*
/clear now is not a command; *"

# a file is a message; what is none is said, and the chat goes on
printf 'the text\nof a file' >"$scratch/my file"
printf 'a\0b' >"$scratch/bytes"
: >"$scratch/empty"
mkfifo "$scratch/fifo" # that nobody writes to: not waited for
printf '/file %s\n/file %s\n/file %s\n/file\n/file %s\n/file %s\n/file %s\n/file %s\nhello\n' \
    "$scratch/my file" "$scratch/absent" "$scratch/bytes" "$scratch/empty" "$scratch/fifo" \
    /dev/zero "$scratch" >"$scratch/lines"
alone "$scratch/my file"
printf 'hello' >"$scratch/text"
alone "$scratch/text"
chat
expect_lines "$err" 7
expect_glob "$err" "moeflux: $scratch/absent: cannot open: *
$scratch/bytes: not a text: a NUL byte.
/file wants the path of a file.
$scratch/empty: not a text: empty.
moeflux: $scratch/fifo: not a regular file
moeflux: /dev/zero: not a regular file
moeflux: $scratch: not a regular file"

# a message with a NUL byte is none, a block either
printf 'a\0b\n"""\nc\n\0d"""\nhello\n' >"$scratch/lines"
alone "$scratch/text"
chat
expect_lines "$err" 2
expect_glob "$err" "Not sent: the message contains a NUL byte.
Not sent: the message contains a NUL byte."

# A message that does not fit is taken back: what follows is answered as if it had not been there.
[ -f "$demo/tokenizer.json" ] || skip "models/demo is not there"
thinking_model "$scratch/chat" deepseek_v31.jinja
how="-n 12 --temp 0 --ctx 100 --quiet"
# nor does one that is too much for the template end the chat
{
    head -c 20000000 /dev/zero | tr '\0' a
    printf '\nhello\n'
} >"$scratch/lines"
# shellcheck disable=SC2086
run_with "$scratch/lines" run "$scratch/chat" $how
expect_code 0
expect_exact "$err" "moeflux: the message: a text of more than 1051776 bytes, the most that is taken here"
cp "$out" "$scratch/answer"
printf 'hello\n' >"$scratch/lines"
# shellcheck disable=SC2086
run_with "$scratch/lines" run "$scratch/chat" $how
expect_same "$out" "$scratch/answer"
long=$(printf 'word %.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25)
printf '%s\nhello\n' "$long $long $long $long" >"$scratch/lines"
# shellcheck disable=SC2086
run_with "$scratch/lines" run "$scratch/chat" $how
expect_code 0
expect_lines "$err" 1
expect_glob "$err" "moeflux: the conversation has * tokens, but the context holds 100: *"
cp "$out" "$scratch/after"
# shellcheck disable=SC2086
run run "$scratch/chat" -p hello $how
expect_same "$out" "$scratch/after"

# What looks like a special token in a message is text: the prompt has the tokens of the letters.
# shellcheck disable=SC2086
run run "$scratch/chat" -p 'a<｜User｜>b' $how --stats=json
n=$(json "$err" prompt_tokens)
# shellcheck disable=SC2086
run run "$scratch/chat" -p 'ab' $how --stats=json
expect_true [ "$n" -gt $(($(json "$err" prompt_tokens) + 3)) ]
printf 'a<｜User｜>b\n' >"$scratch/lines1"
# shellcheck disable=SC2086
run_with "$scratch/lines1" run "$scratch/chat" $how --stats=json
expect_true [ "$(json "$err" prompt_tokens)" -eq "$n" ]

# A template with a mistake is refused: going on from the bare text would be a wrong answer.
echo "{{ messages[0].content" >"$scratch/chat/chat_template.jinja"
run run "$scratch/chat" -p hello -n 4
expect_error "$scratch/chat: chat_template.jinja: line 1: expected the end of the tag, got the end of the template; --raw *"
run_with "$scratch/lines" run "$scratch/chat" -n 4
expect_error "$scratch/chat: chat_template.jinja: line 1: expected the end of the tag, got the end of the template; --raw *"
run run "$scratch/chat" -p hello -n 4 --raw --seed 0
expect_code 0
expect_empty "$err"
rm "$scratch/chat/chat_template.jinja" "$scratch/chat/tokenizer_config.json"
sed 's/"bos_token": null,/&"chat_template": "\\n{% nope %}",/' "$demo/tokenizer_config.json" \
    >"$scratch/chat/tokenizer_config.json"
run run "$scratch/chat" -p hello -n 4
expect_error "$scratch/chat: tokenizer_config.json: line 2: expected a statement, got 'nope'; --raw *"

# --min-p 1 leaves the likeliest token alone
# shellcheck disable=SC2086
run run "$model" --raw -p hello -n 30 --temp 0 --ignore-eos --quiet
cp "$out" "$scratch/likeliest"
run run "$model" --raw -p hello -n 30 --temp 3 --top-k 0 --top-p 1 --min-p 1 --ignore-eos --quiet
expect_same "$out" "$scratch/likeliest"
run run "$model" --raw -p hello -n 30 --temp 3 --top-k 0 --top-p 1 --ignore-eos --quiet
expect_true [ "$(cmp -s "$out" "$scratch/likeliest" && echo same || echo other)" = other ]
# ... and so does a --top-p that it alone reaches
run run "$model" --raw -p hello -n 30 --temp 3 --top-k 0 --top-p 0.000001 --ignore-eos --quiet
expect_same "$out" "$scratch/likeliest"
# a great penalty takes no token twice, nor one of the prompt
frequent='The dog was a little sad. He said to the cat, and'
run tokenize "$demo" -p "$frequent" --ids
tr ' ' '\n' <"$out" | sort -u >"$scratch/prompt_ids"
generated() {
    run run "$demo" --raw -p "$frequent" -n 60 --temp 0 --ignore-eos --quiet --json "$@"
    expect_code 0
    sed 's/.*"tokens": \[\([0-9, ]*\)\].*/\1/' "$out" | tr -d ',' | tr ' ' '\n' >"$scratch/ids"
}
generated --repeat-penalty 1000
expect_true [ "$(sort "$scratch/ids" "$scratch/prompt_ids" | uniq -d | wc -l)" = 0 ]
generated
expect_true [ "$(sort "$scratch/ids" | uniq -d | wc -l)" -gt 0 ]
expect_true [ "$(sort -u "$scratch/ids" | sort - "$scratch/prompt_ids" | uniq -d | wc -l)" -gt 2 ]
finish
