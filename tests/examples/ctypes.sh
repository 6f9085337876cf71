# SPDX-License-Identifier: MIT
# moeflux_ctypes.py: its structures are the C compiler's, its text is the program's, its snapshots
# come back.
. ../cli/lib.sh
: "${LIBRARY:=$SOURCE/build/libmoeflux.so}"
[ -z "${SANITIZE:-}" ] || skip "a sanitized library cannot be loaded by Python"
command -v python3 >/dev/null 2>&1 || skip "there is no python3"
has_model "$demo" || skip "models/demo is not there"

# example ARGUMENTS...
example() {
    last="moeflux_ctypes.py $*"
    python3 -B "$SOURCE/examples/moeflux_ctypes.py" --library "$LIBRARY" "$@" >"$out" 2>"$err"
    code=$?
}

example --layout
expect_code 0
"$LAYOUT" >"$scratch/layout"
expect_same "$out" "$scratch/layout"

run run "$demo" -p "Once upon a time" -n 48 --seed 0 --quiet
expect_code 0
cp "$out" "$scratch/text"
example "$demo" "Once upon a time" -n 48
expect_code 0
expect_empty "$err"
expect_same "$out" "$scratch/text"

# the first of three is what it is alone, and the others are others
example "$demo" "Once upon a time" -n 48 --alternatives 3
expect_code 0
head -n "$(wc -l <"$scratch/text")" "$out" >"$scratch/first"
expect_same "$scratch/first" "$scratch/text"
expect_true [ "$(wc -l <"$out")" -ge 3 ]
expect_true [ "$(sort -u "$out" | grep -c .)" -ge 3 ]

# a snapshot written by one process is continued by another
example "$demo" "Once upon a time" -n 48 --save "$scratch/snapshot"
expect_code 0
expect_same "$out" "$scratch/text"
example "$demo" "Once upon a time" -n 48 --load "$scratch/snapshot"
expect_code 0
expect_same "$out" "$scratch/text"
example "$demo" "The sea was" -n 48 --load "$scratch/snapshot"
expect_code 1
expect_glob "$err" "moeflux_ctypes.py: *holds another prompt"
head -c 1000 "$scratch/snapshot" >"$scratch/cut"
example "$demo" "Once upon a time" -n 48 --load "$scratch/cut"
expect_code 1
expect_empty "$out"

example "$scratch/nowhere" "x"
expect_code 1
expect_glob "$err" "moeflux_ctypes.py: *nowhere*(not found)"
finish
