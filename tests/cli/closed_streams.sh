# SPDX-License-Identifier: MIT
# Standard streams that are closed: what is printed goes nowhere, and into no file that the program
# has open. A store whose lock another process keeps: the answer comes all the same.
. ./lib.sh
has_model "$demo" || skip "models/demo is not there"

i=0
while [ "$i" -lt 30 ]; do
    printf ' Once upon a time there was a small dog who lived in a red house near the forest.'
    i=$((i + 1))
done >"$scratch/prompt"
set -- run "$demo" -n 24 --temp 0 --ctx 1024 -f "$scratch/prompt" --stats=json
run "$@"
expect_code 0
cp "$out" "$scratch/text"

# all three, with a store to write: neither lock nor entry has the text
store=$scratch/store
last="moeflux, streams closed"
"$MOEFLUX" "$@" --state-dir "$store" <&- >&- 2>&-
code=$?
expect_code 1
expect_true [ -e "$store/lock" ]
expect_true [ ! -s "$store/lock" ]
run "$@" --state-dir "$store"
expect_code 0
expect_same "$out" "$scratch/text"
expect_true [ "$(json "$err" store_tokens)" -gt 0 ]

# an output that is closed is an error, an input that nobody asks for is none
"$MOEFLUX" "$@" >&- 2>"$err" </dev/null
code=$?
expect_code 1
expect_glob "$err" '*standard output: cannot write*'
"$MOEFLUX" "$@" >"$out" 2>"$err" <&-
code=$?
expect_code 0
expect_same "$out" "$scratch/text"
"$MOEFLUX" --version >"$out" 2>&- <&-
code=$?
expect_code 0

# an output that fails, a full device or a pipe that nobody reads, ends the answer at once
mkfifo "$scratch/pipe"
exec 8<>"$scratch/pipe" 9>"$scratch/pipe" 8<&-
for sink in full pipe; do
    last="moeflux, standard output: $sink"
    if [ $sink = full ]; then
        "$MOEFLUX" "$@" >/dev/full 2>"$err" </dev/null 9>&-
    else
        (trap '' PIPE && exec "$MOEFLUX" "$@" >&9 2>"$err" </dev/null 9>&-)
    fi
    code=$?
    : >"$out"
    expect_code 1
    expect_glob "$err" '*standard output: cannot write*'
    expect_true [ "$(json "$err" generated_tokens)" -eq 1 ]
done
exec 9>&-

# kept by this shell, through a descriptor that the program does not have
: >>"$scratch/store/lock"
exec 9>>"$scratch/store/lock"
flock 9 || skip "this file system has no locks"
last="moeflux, lock held"
"$MOEFLUX" "$@" --state-dir "$store" --experts-per-token 1 >"$out" 2>"$err" </dev/null 9>&-
code=$?
expect_code 0
expect_glob "$err" '*the state was not kept: *lock: held by another process*'
exec 9>&-
finish
