# SPDX-License-Identifier: MIT
# chat.c: answers written together are those written alone, and a turn taken back leaves no trace.
. ../cli/lib.sh
: "${EXAMPLES:=$SOURCE/build/examples}"
has_model "$demo" || skip "models/demo is not there"

# example ANSWERS LINE...
example() {
    n_answers=$1
    shift
    printf '%s\n' "$@" >"$scratch/input"
    last="chat $demo $n_answers 24, lines: $*"
    "$EXAMPLES/chat" "$demo" "$n_answers" 24 <"$scratch/input" >"$out" 2>"$err"
    code=$?
}

# first FILE: the first answer of each turn
first() {
    awk '/^\[[0-9]+\]/ { of_first = /^\[1\]/ } of_first' "$1"
}

example 1 "Once upon a time" " The sea was"
expect_code 0
cp "$out" "$scratch/alone"
expect_true [ "$(grep -c '^\[1\]' "$out")" -eq 2 ]
expect_glob "$err" "?0 tokens from nothing, * evaluated?
?[1-9]* tokens from the session, [1-9]* evaluated?"
example 3 "Once upon a time" " The sea was"
expect_code 0
first "$out" >"$scratch/first"
expect_same "$scratch/first" "$scratch/alone"
expect_true [ "$(grep -c '^\[[123]\]' "$out")" -eq 6 ]
cp "$out" "$scratch/three"

# back and again: the same turn twice
example 3 "Once upon a time" /undo "Once upon a time" " The sea was"
expect_code 0
n_first=$(awk '/^\[1\]/ { n++ } n == 2 { exit } { print }' "$scratch/three" | wc -l)
tail -n +$((n_first + 1)) "$out" >"$scratch/again"
expect_same "$scratch/again" "$scratch/three"

# another answer gives another conversation, its state found in that answer's session
example 3 "Once upon a time" /2 " The sea was"
expect_code 0
expect_true [ "$(cmp -s "$out" "$scratch/three" && echo same || echo other)" = other ]
expect_glob "$err" "*
?[1-9]* tokens from another session, [1-9]* evaluated?"

# a template that drops old thoughts: every turn but the first goes on from the checkpoint before the
# answer, and evaluates the answer that is history now, the question and the beginning of the answer
mkdir "$scratch/thinks"
for file in "$demo"/*; do
    ln -s "$file" "$scratch/thinks/"
done
cp "$SOURCE/tests/text/data/chat/qwen36.jinja" "$scratch/thinks/chat_template.jinja"
demo=$scratch/thinks
for n_answers in 1 2; do
    example $n_answers "Once upon a time there was a dog" "And then?" "And then?" "And then?"
    expect_code 0
    expect_lines "$err" 4
    expect_glob "$err" "?0 tokens from nothing, *
?[1-9]* tokens from the session, * evaluated?
?[1-9]* tokens from the session, * evaluated?
?[1-9]* tokens from the session, * evaluated?"
    # the conversation grows, what is evaluated of it does not
    expect_true awk '{ n[NR] = $(NF - 1) } END { exit !(n[4] < n[2] + 20) }' "$err"
done

example 2 /undo
expect_code 0
expect_glob "$err" "?there is no turn yet?"
finish
