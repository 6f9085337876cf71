# SPDX-License-Identifier: MIT
# The chat on a terminal: a paste, the history, what the model's text may do there, what is typed
# while it writes, and a terminal that does not read.
. ./lib.sh
. ./thinking_model.sh
. ./terminal.sh
random_model
# n_tokens TEXT
n_tokens() {
    printf '%b' "$1" >"$scratch/text"
    "$MOEFLUX" tokenize "$model" -f "$scratch/text" --parse-special --ids | wc -w
}

# total: the tokens of all prompts, by /stats
total() {
    tr -d '\r' <"$out" | sed -n 's/^prompts *\([0-9]*\) tokens.*/\1/p' | tail -1
}

# A paste of three lines is one message, whichever way its lines end; a tab is no completion.
chat="--raw -n 3 --temp 0 --ignore-eos --quiet"
# shellcheck disable=SC2086 # several options
type_to run "$model" $chat
keys '\033[200~the first line\r/quit\n\tthe third\033[201~\r'
expect_true wait_for prompts 2
keys '/stats\r'
expect_true wait_for prompts 3
expect_true [ "$(total)" -eq "$(n_tokens 'the first line\n/quit\n\tthe third')" ]
# a block, line by line
keys '"""one\r'
expect_true wait_for shown '... '
keys 'two"""\r'
expect_true wait_for prompts 5
keys '/stats\r'
expect_true wait_for prompts 6
n=$(($(n_tokens 'the first line\n/quit\n\tthe third') + $(n_tokens 'one\ntwo')))
expect_true [ "$(total)" -eq "$n" ]
# a carriage return and a line feed are one line's end
keys '\033[200~red\r\ngreen\r\n\r\nblue\033[201~\r'
expect_true wait_for prompts 7
keys '/stats\r'
expect_true wait_for prompts 8
n=$((n + $(n_tokens 'red\ngreen\n\nblue')))
expect_true [ "$(total)" -eq "$n" ]
# several lines are a message, though the first looks like a command; one line is one
keys '\033[200~/save x\nwhat is this?\033[201~\r'
expect_true wait_for prompts 9
keys '\033[200~/stats \n\033[201~\r'
expect_true wait_for prompts 10
n=$((n + $(n_tokens '/save x\nwhat is this?')))
expect_true [ "$(total)" -eq "$n" ]
keys '/quit\r'
left
# the terminal no longer marks pastes
expect_true [ "$(grep -o "$esc\[?2004[hl]" "$out" | tail -1)" = "$esc[?2004l" ]

# The next chat has the last one's lines, also those of a paste; nobody else may read them.
history=$scratch/state/moeflux/history
expect_true [ "$(ls -l "$history" | cut -c1-10)" = -rw------- ]
expect_true [ "$(ls "$scratch/state/moeflux" | wc -l)" -eq 1 ]
cp "$history" "$scratch/history"
# shellcheck disable=SC2086
type_to run "$model" $chat --no-history
keys '\033[A\r\004'
left
expect_same "$history" "$scratch/history"
# shellcheck disable=SC2086
type_to run "$model" $chat
# up over /quit, /stats, /save x, /stats, the colours, /stats, two""", """one, /stats
keys '\033[A\033[A\033[A\033[A\033[A\033[A\033[A\033[A\033[A\033[A\r'
expect_true wait_for prompts 2
keys '/stats\r'
expect_true wait_for prompts 3
expect_true [ "$(total)" -eq "$(n_tokens 'the first line\n/quit\n\tthe third')" ]
keys '/quit\r'
left

# A prompt that is shown cannot drive the terminal either.
# shellcheck disable=SC2086
type_to run "$model" $chat --show-prompt
printf 'a\033[1mb' >"$scratch/escape"
keys "/file $scratch/escape\r"
expect_true wait_for prompts 2
expect_true shown 'a\x1b[1mb'
# control characters of both sets to their ends, and what stands beside them
printf 'c\001\037 \176\177\302\200\302\237\302\240d' >"$scratch/escape"
keys "/file $scratch/escape\r"
expect_true wait_for prompts 3
expect_true shown "$(printf 'c\\x01\\x1f ~\\x7f\\u0080\\u009f\302\240d')"
keys '/quit\r'
left

# What is typed while the model writes does not get between. Ctrl-C throws it away.
slow="--threads 1 --cpu-tier scalar --quiet --ctx 60000"
# shellcheck disable=SC2086
type_to run "$model" --raw --ignore-eos --temp 0 -n 50000 $slow
keys 'hello\r'
size() {
    [ "$(wc -c <"$out")" -gt "$1" ]
}
n=$(wc -c <"$out")
expect_true wait_for size $((n + 200))
keys 'ZEBRA'
n=$(wc -c <"$out")
expect_true wait_for size $((n + 200))
keys '\003'
expect_true wait_for shown '(stopped)'
expect_true wait_for prompts 2
keys '/quit\r'
left
expect_true [ "$(grep -c ZEBRA "$out")" -eq 0 ]

# A model's text that would drive the terminal is shown; a pipe gets it as it is.
[ -f "$demo/tokenizer.json" ] || skip "models/demo is not there"
thinking_model "$scratch/escapes" qwen36.jinja '\u001b[2J\u009b\u007f'
run run "$scratch/escapes" --raw -p "Once upon a time" -n 8 --temp 0
expect_true grep -qF "$(printf '\033[2J\302\233\177')" "$out"
type_to run "$scratch/escapes" --raw -n 8 --temp 0 --quiet
keys 'Once upon a time\r'
expect_true wait_for shown '\x1b[2J\u009b\x7f'
keys '/quit\r'
left
expect_true [ "$(grep -cF "$esc[2J" "$out")" -eq 0 ]

# Words stay whole: lines on a terminal are of at most 79 of its 80 columns, also where a word was begun
# on the line before and taken back; the words are those that a pipe gets. There nothing is wrapped.
run run "$demo" -p "Once upon a time" -n 120 --temp 0 --quiet
expect_code 0
tr -s ' \n' '\n\n' <"$out" >"$scratch/words"
expect_true [ "$(wc -l <"$scratch/words")" -gt 60 ]
# screen: what is left to see of $out
screen() {
    tr -d '\r' <"$out" | awk -v esc="$esc" '{
        while (match($0, esc "\\[[0-9]+D" esc "\\[K")) {
            n = substr($0, RSTART + 2) + 0
            $0 = substr($0, 1, RSTART - 1 - n) substr($0, RSTART + RLENGTH)
        }
        print
    }'
}
last="moeflux run, wrapped"
"$PTY" "$MOEFLUX" run "$demo" -p "Once upon a time" -n 120 --temp 0 --quiet </dev/null >"$out" 2>"$err"
screen >"$scratch/screen"
expect_true [ "$(awk 'length > 79' "$scratch/screen" | wc -l)" -eq 0 ]
expect_true [ "$(awk 'length > 60' "$scratch/screen" | wc -l)" -gt 3 ]
expect_true grep -q "${esc}\\[[0-9]*D" "$out"
tr -s ' \n' '\n\n' <"$scratch/screen" >"$scratch/shown"
expect_same "$scratch/shown" "$scratch/words"
"$PTY" "$MOEFLUX" run "$demo" -p "Once upon a time" -n 120 --temp 0 --quiet --no-wrap </dev/null >"$out"
tr -d '\r' <"$out" | tr -s ' \n' '\n\n' >"$scratch/shown"
expect_same "$scratch/shown" "$scratch/words"
expect_true [ "$(tr -d '\r' <"$out" | awk 'length > 79' | wc -l)" -gt 0 ]

# Thoughts are dim up to the tag that ends them, unless asked otherwise; a pipe gets no codes.
dim=$esc[2m not_dim=$esc[22m
thinking_model "$scratch/thinks" qwen36.jinja
story="--raw -n 60 --temp 0 --quiet -f $scratch/story"
printf '<think>Once upon a time' >"$scratch/story"
# thinks ARGUMENTS...
thinks() {
    last="moeflux run $* (thinks)"
    # shellcheck disable=SC2086 # several options
    "$PTY" "$MOEFLUX" run "$scratch/thinks" $story "$@" </dev/null >"$out" 2>"$err"
}
thinks
expect_glob "$out" "$dim*</think>$not_dim*"
expect_true [ "$(grep -c "$esc\[2m" "$out")" -eq 1 ]
NO_COLOR=1 thinks
expect_true [ "$(grep -cF "$dim" "$out")" -eq 0 ]
NO_COLOR='' thinks
expect_glob "$out" "$dim*</think>$not_dim*"
NO_COLOR=1 thinks --color always
expect_glob "$out" "$dim*</think>$not_dim*"
thinks --color never
expect_true [ "$(grep -cF "$dim" "$out")" -eq 0 ]
(TERM=dumb && thinks)
expect_true [ "$(grep -cF "$esc" "$out")" -eq 0 ]
# shellcheck disable=SC2086
run run "$scratch/thinks" $story
expect_true [ "$(grep -cF "$esc" "$out")" -eq 0 ]
cp "$out" "$scratch/plain"
# shellcheck disable=SC2086
run run "$scratch/thinks" $story --color always
expect_glob "$out" "$dim*</think>$not_dim*"
sed "s/$esc\[22*m//g" "$out" >"$scratch/shown"
expect_same "$scratch/shown" "$scratch/plain"
run run "$scratch/thinks" -p Hello --color sometimes
expect_usage_error "--color: 'sometimes' is not auto, always or never"

# Ctrl-C while the output is not taken: what was written stays written, all of it, and the chat goes
# on. A reader that does not read stands for a terminal that was stopped; the pipe to it is nearly
# full beforehand.
mkfifo "$scratch/pipe"
long="--raw --ignore-eos --temp 1 --seed 1 -n 1500 --quiet"
# shellcheck disable=SC2086
run run "$model" -p hello $long
cp "$out" "$scratch/whole"
expect_true [ "$(wc -c <"$scratch/whole")" -gt 1500 ]
exec 4<>"$scratch/pipe"
head -c 64512 /dev/zero >&4
# shellcheck disable=SC2086
"$MOEFLUX" run "$model" $long <"$scratch/keys" >"$scratch/pipe" 2>"$err" &
pid=$!
exec 3>"$scratch/keys" 5<"$scratch/pipe"
exec 4>&-
echo hello >&3
# a byte that nobody else writes finds no room: the program waits for the reader, or will with what
# it says next
is_full() {
    ! printf '\001' | dd of="$scratch/pipe" bs=1 oflag=nonblock conv=notrunc,nocreat 2>/dev/null
}
expect_true wait_for is_full
kill -INT $pid
exec 3>&-
tail -c +64513 <&5 >"$scratch/rest"
tr -d '\001' <"$scratch/rest" >"$out"
exec 5<&-
wait $pid
code=$?
expect_code 0
expect_exact "$err" "(stopped)"
n=$(($(wc -c <"$out") - 1))
expect_true [ "$(wc -c <"$scratch/rest")" -gt 1024 ]
head -c $n "$scratch/whole" >"$scratch/expected"
head -c $n "$out" >"$scratch/got"
expect_same "$scratch/got" "$scratch/expected"
finish
