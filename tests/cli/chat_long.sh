# SPDX-License-Identifier: MIT
# A long chat on a family with recurrent layers, with a template that drops old thoughts: twenty
# turns evaluate the tokens that are new and at most a tenth more, and so does another process
# through --state-dir. What is new is counted here, from the texts, and not by the program.
. ./lib.sh
. ./thinking_model.sh
has_model "$demo" || skip "models/demo is not there"
n_turns=20
thinking_model "$scratch/model" deepseek_v31.jinja
model=$scratch/model
system=$(cat "$demo/heldout.txt" && head -c 1500 "$demo/heldout.txt")
settings="-n 32 --temp 0 --ctx 8192"

question() {
    echo "Question $1: what did the dog, the cat and the king do then?"
}

# history FILE: the text of the turns so far, up to the next question; FILE grows by `remember`
printf '%s' "$system" >"$scratch/history"

# prompt QUESTION: the text that the model has to answer, by the template's rules
prompt() {
    cat "$scratch/history"
    printf '<｜User｜>%s<｜Assistant｜><think>' "$1"
}

# remember QUESTION ANSWER-FILE: what is left of a turn in later prompts: no thoughts, and nothing of
# an answer that was nothing else
remember() {
    printf '<｜User｜>%s<｜Assistant｜></think>' "$1" >>"$scratch/history"
    awk 'BEGIN { RS = "\001" }
        {
            at = index($0, "</think>")
            printf "%s", at ? substr($0, at + 10) : ""
        }' "$2" >>"$scratch/history"
    printf '<｜end▁of▁sentence｜>' >>"$scratch/history"
}

ids() {
    "$MOEFLUX" tokenize "$model" -f "$1" --parse-special --ids | tr ' ' '\n'
}

# n_new IDS SEEN: how many of the one are behind what both begin with
n_new() {
    awk 'NR == FNR { seen[NR] = $0; next }
        !is_new && $0 != seen[FNR] { is_new = 1 }
        is_new { n++ }
        END { print n + 0 }' "$2" "$1"
}

# The chat, one question after the other, to know where each answer ends.
mkfifo "$scratch/lines"
last="moeflux run, $n_turns turns"
# shellcheck disable=SC2086 # several options
"$MOEFLUX" run "$model" --system "$system" --think on $settings --stats=json --state-dir "$scratch/store" \
    <"$scratch/lines" >"$out" 2>"$err" &
pid=$!
exec 3>"$scratch/lines"
answered() {
    [ "$(grep -c '^generated' "$err")" -eq "$turn" ]
}
turn=0
n_before=0
n_prompts=0
n_all_new=0
echo none >"$scratch/seen"
while [ "$turn" -lt "$n_turns" ]; do
    turn=$((turn + 1))
    question $turn >&3
    echo /stats >&3
    expect_true wait_for answered
    n_after=$(wc -c <"$out")
    tail -c +$((n_before + 1)) "$out" | head -c $((n_after - n_before - 1)) >"$scratch/answer"
    n_before=$n_after
    prompt "$(question $turn)" >"$scratch/prompt"
    ids "$scratch/prompt" >"$scratch/ids"
    n_prompts=$((n_prompts + $(wc -l <"$scratch/ids")))
    n_all_new=$((n_all_new + $(n_new "$scratch/ids" "$scratch/seen")))
    [ $turn -gt 1 ] || cp "$scratch/ids" "$scratch/first_ids"
    cat "$scratch/prompt" "$scratch/answer" >"$scratch/whole"
    ids "$scratch/whole" >"$scratch/seen"
    remember "$(question $turn)" "$scratch/answer"
done
exec 3>&-
wait $pid
code=$?
expect_code 0
n_evaluated=$(json "$err" prefill_tokens)
echo "$n_turns turns: $n_prompts tokens of prompts, $n_all_new new, $n_evaluated evaluated"
expect_true [ "$(wc -l <"$scratch/first_ids")" -gt 5000 ]
expect_true grep -q '</think>' "$out"
expect_true [ "$(json "$err" prompt_tokens)" -eq "$n_prompts" ]
expect_true [ "$n_evaluated" -le $((n_all_new * 11 / 10)) ]
expect_true [ "$(json "$err" prompt_new_tokens)" -le "$n_evaluated" ]
expect_true [ "$n_evaluated" -eq $((n_prompts - $(json "$err" prompt_reused_tokens))) ]
cp "$out" "$scratch/chat"

# the last answer is that of a model which reads the whole text at once
# shellcheck disable=SC2086
run run "$model" --raw -f "$scratch/prompt" $settings --quiet
# the chat has the first mark in lines of its own, and none of those that end nothing
tr -d '\n' <"$scratch/answer" | sed 's|</think>||g' >"$scratch/last"
tr -d '\n' <"$out" | sed 's|</think>||g' >"$scratch/at_once"
expect_true grep -q '</think>' "$scratch/answer"
expect_same "$scratch/at_once" "$scratch/last"

# another process, the same questions: nothing is new
turn=0
while [ "$turn" -lt "$n_turns" ]; do
    turn=$((turn + 1))
    question $turn
done >"$scratch/questions"
# shellcheck disable=SC2086
run_with "$scratch/questions" run "$model" --system "$system" --think on $settings --stats=json \
    --state-dir "$scratch/store" --quiet
expect_code 0
expect_same "$out" "$scratch/chat"
expect_true [ "$(json "$err" prefill_tokens)" -eq 0 ]
expect_true [ "$(json "$err" prompt_tokens)" -eq "$n_prompts" ]
expect_true [ "$(json "$err" prompt_reused_tokens)" -eq "$n_prompts" ]
expect_true [ "$(json "$err" store_tokens)" -eq "$n_all_new" ] # what it had itself is not counted

# each prompt is kept, and no answer: the next prompt does not begin with its thoughts
expect_true [ "$(ls "$scratch/store" | grep -c '[.]mfstate$')" -eq "$n_turns" ]

# and another question after the same system message: what the message does not say
printf '%s' "$system" >"$scratch/history"
prompt "Something else?" >"$scratch/prompt"
ids "$scratch/prompt" >"$scratch/ids"
n=$(n_new "$scratch/ids" "$scratch/first_ids")
echo "Something else?" >"$scratch/questions"
# shellcheck disable=SC2086
run_with "$scratch/questions" run "$model" --system "$system" --think on $settings --stats=json \
    --state-dir "$scratch/store" --quiet
expect_code 0
expect_true [ "$n" -lt 20 ]
expect_true [ "$(json "$err" prefill_tokens)" -le $((n + n / 10)) ]

# ... whatever the first question began with: none of it belongs to what all conversations share
system=$(head -c 1500 "$demo/heldout.txt")
for first in 'x is a letter' 'y is another'; do
    printf '%s' "$system" >"$scratch/history"
    prompt "$first" >"$scratch/prompt"
    ids "$scratch/prompt" >"$scratch/first_ids"
    prompt "Something else?" >"$scratch/prompt"
    ids "$scratch/prompt" >"$scratch/ids"
    n=$(n_new "$scratch/ids" "$scratch/first_ids")
    for question in "$first" "Something else?"; do
        echo "$question" >"$scratch/questions"
        # shellcheck disable=SC2086
        run_with "$scratch/questions" run "$model" --system "$system" --think on $settings -n 2 --stats=json \
            --state-dir "$scratch/$first" --quiet
        expect_code 0
    done
    expect_true [ "$(json "$err" prompt_tokens)" -gt 300 ]
    expect_true [ "$(json "$err" prefill_tokens)" -eq "$n" ]
done

# Thoughts off, answers stay as they are: each turn goes on where the answer ended, also where its
# tokens are not those of its text (at this temperature they rarely are).
off="-n 30 --top-k 0 --top-p 1 --stats=json"
printf 'Hello\nMore\n<｜User｜>\nMore\n' >"$scratch/lines4"
# shellcheck disable=SC2086
run_with "$scratch/lines4" run "$model" --temp 3 --seed 1 --think off $off
expect_code 0
expect_true [ "$(json "$err" prompt_tokens)" -gt 200 ]
expect_true [ "$(json "$err" prefill_tokens)" -eq "$(json "$err" prompt_new_tokens)" ]
# with tokens that are those of the text: what reading all of it at once gives
printf 'Hello\nMore\n' >"$scratch/lines4"
# shellcheck disable=SC2086
run_with "$scratch/lines4" run "$model" --temp 0 --think off $off
expect_true [ "$(json "$err" prefill_tokens)" -eq "$(json "$err" prompt_new_tokens)" ]
cp "$out" "$scratch/chat"
# shellcheck disable=SC2086
run run "$model" -p Hello --temp 0 --think off $off
cp "$out" "$scratch/both"
{
    printf '<｜User｜>Hello<｜Assistant｜></think>'
    head -c $(($(wc -c <"$out") - 1)) "$out"
    printf '<｜end▁of▁sentence｜><｜User｜>More<｜Assistant｜></think>'
} >"$scratch/prompt"
# shellcheck disable=SC2086
run run "$model" --raw -f "$scratch/prompt" --temp 0 $off
cat "$out" >>"$scratch/both"
expect_same "$scratch/chat" "$scratch/both"

# A template that drops thoughts too, with its text in several tokens instead of special ones, as
# the demo's own tokenizer has it; new: what the program says, held against what it evaluates.
mkdir "$scratch/plain"
for file in "$demo"/*; do
    ln -s "$file" "$scratch/plain/"
done
cp "$SOURCE/tests/text/data/chat/qwen36.jinja" "$scratch/plain/chat_template.jinja"
printf 'Hello\nMore\nMore\n' >"$scratch/lines3"
run_with "$scratch/lines3" run "$scratch/plain" --system "$(head -c 5000 "$demo/heldout.txt")" \
    -n 20 --stats=json
expect_code 0
n=$(json "$err" prompt_new_tokens)
expect_true [ "$n" -gt 1300 ]
expect_true [ "$(json "$err" prefill_tokens)" -le $((n * 11 / 10)) ]
# an answer that stays as it is, thoughts being off, goes on where it ended
run_with "$scratch/lines3" run "$scratch/plain" --system "$(head -c 5000 "$demo/heldout.txt")" \
    -n 20 --think off --temp 0 --stats=json
expect_code 0
n=$(json "$err" prompt_new_tokens)
expect_true [ "$(json "$err" prefill_tokens)" -le $((n * 11 / 10)) ]
finish
