# SPDX-License-Identifier: MIT
# --state-dir: the second start of the same prompt takes it from the directory, says so, and writes
# the same text; a longer prompt begins with it; damage is passed over; the chat uses it too.
. ./lib.sh
has_model "$demo" || skip "models/demo is not there"
store=$scratch/store

i=0
while [ "$i" -lt 30 ]; do
    printf ' Once upon a time there was a small dog who lived in a red house near the forest.'
    i=$((i + 1))
done >"$scratch/prompt"
(cat "$scratch/prompt" && printf ' One day the dog') >"$scratch/longer"

once() {
    run run "$demo" -n 24 --temp 0 --ctx 1024 --stats=json "$@"
    expect_code 0
}

once -f "$scratch/prompt"
cp "$out" "$scratch/text"
expect_true [ "$(json "$err" store_tokens)" -eq 0 ]
n_prompt=$(json "$err" prefill_tokens)
expect_true [ "$n_prompt" -gt 300 ]
once -f "$scratch/longer"
cp "$out" "$scratch/longer_text"

umask 022
once -f "$scratch/prompt" --state-dir "$store"
expect_same "$out" "$scratch/text"
# what users wrote is theirs alone
expect_true [ "$(stat -c %a "$store")" = 700 ]
expect_true [ -n "$(find "$store" -name 'hot-*' -perm 600)" ]
expect_true [ -z "$(find "$store" -name '*.mf*' -perm /077)" ]
expect_true [ "$(json "$err" store_tokens)" -eq 0 ]
expect_true [ "$(json "$err" prefill_tokens)" -eq "$n_prompt" ]

once -f "$scratch/prompt" --state-dir "$store"
expect_same "$out" "$scratch/text"
expect_true [ "$(json "$err" store_tokens)" -eq "$n_prompt" ]
expect_true [ "$(json "$err" prefill_tokens)" -eq 0 ]
expect_glob "$err" "*$n_prompt of $n_prompt tokens taken from $store*"

once -f "$scratch/longer" --state-dir "$store"
expect_same "$out" "$scratch/longer_text"
expect_true [ "$(json "$err" store_tokens)" -gt 200 ]
expect_true [ "$(json "$err" prefill_tokens)" -lt 100 ]

# another question after the same text begins at a checkpoint near its end
(cat "$scratch/prompt" && printf ' Then the dog saw a cat, and') >"$scratch/question"
once -f "$scratch/question"
cp "$out" "$scratch/question_text"
once -f "$scratch/longer" --prefill-chunk 32 --state-dir "$scratch/questions"
once -f "$scratch/question" --prefill-chunk 32 --state-dir "$scratch/questions"
expect_same "$out" "$scratch/question_text"
expect_true [ "$(json "$err" store_tokens)" -ge $((n_prompt * 3 / 4)) ]

# other numbers in the cache are another state
once -f "$scratch/prompt" --state-dir "$store" --experts-per-token 1
expect_true [ "$(json "$err" store_tokens)" -eq 0 ]

# a damaged entry is set aside, with a warning; the text is the same
for file in "$store"/*.mfstate; do
    printf 'xx' | dd of="$file" bs=1 seek=9000 conv=notrunc 2>/dev/null
done
run run "$demo" -n 24 --temp 0 --ctx 1024 -f "$scratch/prompt" --state-dir "$store"
expect_code 0
expect_same "$out" "$scratch/text"
expect_glob "$err" "*warning*damaged*"
expect_true test -n "$(ls "$store" | grep '^bad-')"

# so small a limit that nothing fits: a warning, and the answer all the same
run run "$demo" -n 24 --temp 0 --ctx 1024 -f "$scratch/prompt" --state-dir "$scratch/tiny" --state-dir-size 10K
expect_code 0
expect_same "$out" "$scratch/text"
expect_glob "$err" "*warning: the state was not kept*"

# the chat: each line that stands for itself; the second start takes what the first one left
cp "$scratch/prompt" "$scratch/lines"
echo >>"$scratch/lines"
run_with "$scratch/lines" run "$demo" -n 8 --temp 0 --ctx 1024 --state-dir "$scratch/chat" --stats=json
expect_code 0
cp "$out" "$scratch/chat_text"
run_with "$scratch/lines" run "$demo" -n 8 --temp 0 --ctx 1024 --state-dir "$scratch/chat" --stats=json
expect_code 0
expect_same "$out" "$scratch/chat_text"
expect_true [ "$(json "$err" store_tokens)" -gt 200 ]

# which experts were wanted most: read first the next time, when fewer are missed, unless the drive is
# behind all the while, as it may be where others use it; damaged: said
hot() {
    run run "$demo" -p "Once upon a time" -n 24 --temp 0 --expert-cache 12M --predict off \
        --state-dir "$scratch/hot" --stats=json:"$scratch/stats"
    expect_code 0
    expect_empty "$err"
    n_missed=$(json "$scratch/stats" decode_expert_misses)
}
hot
cp "$out" "$scratch/hot_text1"
n_cold=$n_missed
n=0
while [ "$n" -lt 20 ] && [ "$n_missed" -ge "$n_cold" ]; do
    hot
    expect_same "$out" "$scratch/hot_text1"
    n=$((n + 1))
done
expect_true [ "$n_missed" -lt "$n_cold" ]
echo damaged >"$(ls "$scratch"/hot/hot-*.mfhot)"
run run "$demo" -p "Once upon a time" -n 24 --temp 0 --expert-cache 12M --state-dir "$scratch/hot"
expect_code 0
expect_same "$out" "$scratch/hot_text1"
expect_glob "$err" "*warning: experts asked for most: hot-*.mfhot: not a list of experts*"

run run "$demo" -p x --state-dir /nonexistent/x/y
expect_error "/nonexistent/x/y: *"
run run "$demo" -p x --state-dir-size 0 --state-dir "$store"
expect_usage_error "--state-dir-size: '0' is not a size*"
run run "$demo" -p x --state-dir-size 1G
expect_usage_error "run: --state-dir-size needs --state-dir"
run run "$demo" -p x --state-dir
expect_usage_error "run: '--state-dir' needs a value"
finish
