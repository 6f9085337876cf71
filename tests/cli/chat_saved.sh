# SPDX-License-Identifier: MIT
# Saved conversations: written whole or not at all, gone on with as if nothing had been between, in
# the form that clients of chat servers use; files that are anything else are refused.
. ./lib.sh
. ./thinking_model.sh
[ -f "$demo/tokenizer.json" ] || skip "models/demo is not there"
export XDG_STATE_HOME="$scratch/state" HOME="$scratch"
chats=$scratch/state/moeflux/chats
thinking_model "$scratch/thinks" qwen36.jinja
how="-n 30 --temp 0 --quiet --think-budget 6"

# chat LINES OPTIONS...: lines with \n between
chat() {
    printf '%b' "$1" >"$scratch/lines"
    shift
    # shellcheck disable=SC2086 # several options
    run_with "$scratch/lines" run "$scratch/thinks" $how "$@"
}

# the whole of it in one go, and saved in between and gone on with
chat 'Once upon a time\nAnd then?\nAnd what then?\n'
expect_code 0
cp "$out" "$scratch/whole"
chat 'Once upon a time\n/save story\nAnd then?\n'
expect_code 0
expect_glob "$err" '*(saved as story, and after each turn from here on)*'
cp "$out" "$scratch/parts"
expect_true [ "$(ls -l "$chats/story.json" | cut -c1-10)" = -rw------- ]
expect_true [ "$(ls "$chats" | wc -l)" -eq 1 ]
expect_true [ "$(grep -c '"role": "user"' "$chats/story.json")" -eq 2 ]
expect_true [ "$(grep -c '"role": "assistant", "reasoning_content": "[^"]' "$chats/story.json")" -eq 2 ]
expect_true [ "$(grep -c '"content": "[^"]*<think>' "$chats/story.json")" -eq 0 ]
chat 'And what then?\n' --resume story
expect_code 0
expect_glob "$err" '(story: 4 messages; it is saved after each turn)*'
cat "$out" >>"$scratch/parts"
expect_same "$scratch/parts" "$scratch/whole"
expect_true [ "$(grep -c '"role": "user"' "$chats/story.json")" -eq 3 ]
# the file is what templates and servers take
run template "$scratch/thinks" --messages "$chats/story.json"
expect_code 0
expect_glob "$out" '*Once upon a time*And what then?*'

# another one: listed with the first, the newest is gone on with, and a new chat has no file
touch -d '2020-01-01' "$chats/story.json"
chat 'Hello\n/save two words\n/clear\nAgain\n/list\n'
expect_glob "$err" '*(a new conversation)*  two words*  story*'
expect_true [ "$(grep -c '"role": "user"' "$chats/two words.json")" -eq 1 ]
chat '/list  \n' --continue
expect_glob "$err" '(two words: 2 messages*'
chat '/load story\n/load two words\nMore\n'
expect_true [ "$(grep -c '"role": "user"' "$chats/two words.json")" -eq 2 ]
expect_true [ "$(grep -c '"role": "user"' "$chats/story.json")" -eq 3 ]
chat 'Hi\n/save\n'
expect_glob "$err" '(saved as 20[0-9][0-9]-*, and after each turn*'
expect_true [ "$(ls "$chats" | wc -l)" -eq 3 ]

# a turn's penalties count the conversation as it stands: as when the whole of it is asked at once
how="-n 30 --temp 0 --quiet --no-think --logit-bias 316=-100 --presence-penalty 2 --frequency-penalty 1 --repeat-penalty 1.2 --dry-multiplier 2"
chat 'Once upon a time\nAnd then?\n/save turns\nAnd what then?\n'
cp "$out" "$scratch/turns"
sed '/^\]/d; $d' "$chats/turns.json" | sed '$d' | sed '$s/,$//' >"$scratch/asked.json"
echo ']' >>"$scratch/asked.json"
expect_true [ "$(grep -c '"role": "user"' "$scratch/asked.json")" -eq 3 ]
expect_true [ "$(grep -c '"role": "assistant"' "$scratch/asked.json")" -eq 2 ]
# shellcheck disable=SC2086
run run "$scratch/thinks" $how --messages "$scratch/asked.json"
expect_code 0
tail -c "$(wc -c <"$out")" "$scratch/turns" >"$scratch/last"
expect_same "$out" "$scratch/last"
how="-n 30 --temp 0 --quiet --think-budget 6"

# texts of all kinds come back as they were
printf 'tab\there "quotes" \\back\\ \303\251 \001 </think> end\n/save odd\n' >"$scratch/lines"
# shellcheck disable=SC2086
run_with "$scratch/lines" run "$scratch/thinks" $how
cp "$chats/odd.json" "$scratch/odd.json"
chat '/save\n' --resume odd # bytes that were no characters are U+FFFD from then on
expect_true [ "$(sed -n 2p "$chats/odd.json")" = "$(sed -n 2p "$scratch/odd.json")" ]
cp "$chats/odd.json" "$scratch/odd.json"
chat '/save\n' --resume odd
expect_same "$chats/odd.json" "$scratch/odd.json"

# written elsewhere: a system message, parts, null, no thoughts
cat >"$chats/foreign.json" <<'END'
[{"role": "developer", "content": "Be kind."}, {"role": "user", "content": [{"type": "text", "text": "On"}, {"type": "text", "text": "ce"}]},
 {"role": "assistant", "content": "yes", "tool_calls": []}]
END
chat 'And?\n' --resume foreign --show-prompt
expect_code 0
expect_glob "$err" '*system*Be kind.*Once*yes*And?*'
expect_true [ "$(grep -c . "$chats/foreign.json")" -eq 7 ]

# What is no conversation is refused, and the chat that was there goes on
refused() {
    printf '%b' "$1" >"$chats/bad.json"
    cp "$chats/bad.json" "$scratch/bad.json"
    chat 'x\n' --resume bad
    expect_code 1
    expect_empty "$out"
    expect_lines "$err" 1
    expect_glob "$err" "moeflux: $chats/bad.json: $2"
    expect_same "$chats/bad.json" "$scratch/bad.json"
}
refused '' 'not JSON at byte 0: *'
refused '{"a"' 'not JSON at byte *'
refused '{}' 'expected an array*'
refused '[7]' 'message 0: expected an object'
refused '[{"role":"user","content":"a"},{"role":"oracle","content":"b"}]' 'message 1: role: *'
refused '[{"content":"a"}]' 'message 0: role: *'
refused '[{"role":7,"content":"a"}]' 'message 0: role: *'
refused '[{"role":"function","content":"a"}]' 'message 0: role: *'
refused '[{"role":"tool","content":"a","tool_call_id":7}]' 'message 0: tool_call_id: *'
refused '[{"role":"user","content":7}]' 'message 0: content: *'
refused '[{"role":"user","content":"a\\u0000b"}]' 'message 0: content: *'
refused '[{"role":"user","content":[{"type":"image_url"}]}]' 'message 0: expected parts of type text alone'
refused '[{"role":"user","content":[7]}]' 'message 0: *'
refused '[{"role":"assistant","reasoning_content":7}]' 'message 0: reasoning_content: *'
refused '[{"role":"assistant","tool_calls":[{"id":"1"}]}]' 'message 0: tool_calls: *'
refused '[{"role":"assistant","tool_calls":[7]}]' 'message 0: tool_calls: *'
refused '[{"role":"assistant","tool_calls":7}]' 'message 0: tool_calls: *'
refused '[{"role":"user","tool_calls":[{"function":{"name":"f"}}]}]' 'message 0: tool_calls: *'
refused '[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":7}}]}]' 'message 0: arguments: *'
refused '[{"role":"user","content":"\\377"}]' 'not JSON at byte *'
awk 'BEGIN { for (i = 0; i < 100000; i++) printf "[" }' >"$chats/bad.json"
chat 'x\n' --resume bad
expect_code 1
awk 'BEGIN { printf "[\""; for (i = 0; i < 1400000; i++) printf "a"; print "\"]" }' >"$chats/bad.json"
chat 'x\n' --resume bad
expect_error "$chats/bad.json: a text of more than *"
rm "$chats/bad.json"
mkfifo "$chats/bad.json"
chat 'x\n' --resume bad
expect_error "$chats/bad.json: not a regular file"
chat '/list\n'
expect_true [ "$(grep -c bad "$err")" -eq 0 ]
rm "$chats/bad.json"
chat 'Hello\n/load bad\n/load\nAgain\n'
expect_code 0
expect_glob "$err" "*$chats/bad.json: cannot open: *
/load wants a name; /list lists them."
cp "$out" "$scratch/went_on"
chat 'Hello\nAgain\n'
expect_same "$out" "$scratch/went_on"

# no name leads elsewhere
for name in ../out a/b .hidden -v "$(printf 'a\001b')" "$(awk 'BEGIN { for (i = 0; i < 101; i++) printf "n" }')"; do
    chat "/save $name\n"
    expect_code 0
    expect_glob "$err" "moeflux: '*' cannot be a conversation's name: *"
    chat 'x\n' --resume="$name"
    expect_error "'*' cannot be a conversation's name: *"
done
chat 'x\n' --resume=
expect_error "'' cannot be a conversation's name: *"
expect_true [ "$(find "$scratch/state" -name '*out*' -o -name '*hidden*' | wc -l)" -eq 0 ]

# a folder that cannot be written leaves the old file; the chat goes on
if [ "$(id -u)" -ne 0 ]; then
    cp "$chats/story.json" "$scratch/story.json"
    chmod 500 "$chats"
    chat 'Hello\nAgain\n' --resume story
    expect_code 0
    expect_glob "$err" "*$chats/story.json: cannot write: *"
    chmod 700 "$chats"
    expect_same "$chats/story.json" "$scratch/story.json"
fi
# nothing half-written is left behind
expect_true [ "$(find "$chats" -name '*.json.*' | wc -l)" -eq 0 ]

run run "$scratch/thinks" -p x --resume story
expect_usage_error "run: --resume is for a chat, without -p and -f"
run run "$scratch/thinks" --raw --continue
expect_usage_error "run: --continue excludes --raw and --system"
run run "$scratch/thinks" --resume story --continue
expect_usage_error "run: --resume and --continue exclude each other"
rm -r "$chats"
chat '' --continue
expect_error "there is no saved conversation"
rm "$scratch/thinks/chat_template.jinja"
chat '' --continue
expect_error "--resume and --continue want a model with a chat template"
chat '/save x\n'
expect_glob "$err" "Without a chat template there is no conversation to keep."
finish
