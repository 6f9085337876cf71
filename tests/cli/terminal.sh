# SPDX-License-Identifier: MIT
# Sourced after lib.sh: the program on a terminal.
: "${PTY:=$SOURCE/build/tests/cli/cli_pty}"
[ -x "$PTY" ] || skip "cli_pty is not built"
# what the line editor's library leaves behind is not the program's
export LSAN_OPTIONS="suppressions=$SOURCE/tests/cli/libraries.supp:print_suppressions=0"
export TERM=xterm XDG_STATE_HOME="$scratch/state" HOME="$scratch"
esc=$(printf '\033')
mkfifo "$scratch/keys"

# type_to ARGUMENTS...: the program on a terminal, in the background, as $pid; `keys` types
type_to() {
    last="moeflux $* (on a terminal)"
    : >"$out"
    "$PTY" "$MOEFLUX" "$@" <"$scratch/keys" >"$out" 2>"$err" &
    pid=$!
    exec 3>"$scratch/keys"
    expect_true wait_for prompts 1
}

keys() {
    printf '%b' "$1" >&3
}

# prompts N: the terminal shows that many prompts of the chat that were waited at
prompts() {
    [ "$(grep -o "$esc\[?2004h" "$out" | wc -l)" -ge "$1" ]
}

left() {
    exec 3>&-
    wait "$pid"
    code=$?
    expect_code 0
}

shown() {
    grep -qF "$1" "$out"
}
