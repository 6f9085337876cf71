# SPDX-License-Identifier: MIT
# Sourced by the tests that are programs: they start servers themselves. Longer with `make load`.
. ./lib_server.sh
programs=$(dirname "$RAW")
text=$SOURCE/models/demo/heldout.txt
: "${SANITIZE:=}" "${LOAD_SEED:=1}"
# A sanitizer keeps what was freed.
[ -z "$SANITIZE" ] || export MF_NO_MEMORY_CHECK=1

# program NAME ARGUMENTS...: ends with 0 and says that it passed
program() {
    last="$*"
    name=$1
    shift
    "$programs/$name" "$text" "$@" >"$out" 2>"$err"
    code=$?
    cat "$out"
    expect_code 0
    [ "$code" -eq 0 ] || sed 's/^/  /' "$err" | head -60
    expect_true grep -q '^passed$' "$out"
}
