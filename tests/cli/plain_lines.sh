# SPDX-License-Identifier: MIT
# What a file's name or a text would do to a terminal: names are printed without control characters,
# wherever they go; a text as it is, but for a terminal.
. ./lib.sh
random_model
name="$scratch/$(printf 'a\033[2Jb\nc\302\233d')"
mv "$model" "$name"
shown='a?\[2Jb?c?d'

# has no control character but line ends
is_plain() {
    ! LC_ALL=C grep -q "$(printf '[\001-\010\013-\037\177]')\|$(printf '\302[\200-\237]')" "$1"
}

# named: the name is there, in one line
named() {
    expect_code 0
    expect_true grep -q "$shown" "$out"
    expect_true is_plain "$out"
}

run plan "$name" --drive 1G --memory 8G
named
run plan "$name" "$name" --drive 1G --memory 8G
named
run bench "$name" --measure-ms 0 --prompt-tokens 4 --gen-tokens 2 --repeat 1 --warmup 0 --trace "$name.trace"
named
run replay "$name.trace" --slots 50%
named
run doctor "$name" --no-measure
expect_true is_plain "$out"
run convert "$name" "$name.out"
named
for command in plan bench replay; do
    case $command in replay) of=$name.trace ;; *) of=$name ;; esac
    run $command "$of.none"
    expect_code 1
    expect_true grep -q "$shown" "$err"
    expect_true is_plain "$err"
done

# as JSON the name is itself
run plan "$name" --drive 1G --memory 8G --json
expect_true grep -qF 'a\u001b[2Jb\u000ac' "$out"

# What was typed into a chat, said back to it.
has_model "$demo" || skip "models/demo is not there"
: >"$name.empty"
printf '/files \033[2J\302\233\n/quit\n' >"$scratch/lines"
run_with "$scratch/lines" run "$demo"
expect_true grep -qF '/files ?[2J? is not a command; //files' "$err"
expect_true is_plain "$err"

# A text, of a conversation or of tokens.
. ./terminal.sh
printf '[{"role": "user", "content": "x\\u001b[2J\\u009by"}]' >"$scratch/messages.json"
cp -r "$SOURCE/tests/text/data/deepseek" "$scratch/model"
printf '{%%- for m in messages %%}{{ m.content }}{%%- endfor %%}' >"$scratch/model/chat_template.jinja"
"$PTY" "$MOEFLUX" template "$scratch/model" --messages "$scratch/messages.json" </dev/null >"$out"
expect_true grep -qF 'x\x1b[2J\u009by' "$out"
run template "$scratch/model" --messages "$scratch/messages.json"
expect_true grep -qF "x$esc[2J$(printf '\302\233')y" "$out"
run tokenize "$demo" -p "x$esc[2Jy" --ids
ids=$(cat "$out")
# shellcheck disable=SC2086 # each id is an argument
"$PTY" "$MOEFLUX" tokenize "$demo" --decode $ids </dev/null >"$out"
expect_true grep -qF 'x\x1b[2Jy' "$out"
# shellcheck disable=SC2086
run tokenize "$demo" --decode $ids
expect_exact "$out" "x$esc[2Jy"
finish
