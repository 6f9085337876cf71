# SPDX-License-Identifier: MIT
# Sourced by the tests of the program, in their own folder. The build sets MOEFLUX,
# MAKE_CHECKPOINT, SOURCE and SANITIZE; without it build/ is used: cd tests/cli && sh usage.sh
# A failed expectation is printed and the test goes on; `finish` gives the exit code.
# Devices are the CPU, whatever GPUs there are, but where a test names one.
set -u
export MOEFLUX_DEVICE=cpu
: "${SOURCE:=$(cd ../.. && pwd)}"
: "${MOEFLUX:=$SOURCE/build/moeflux}"
: "${MAKE_CHECKPOINT:=$SOURCE/build/make_random_checkpoint}"
scratch=$(mktemp -d "${TMPDIR:-/tmp}/moeflux-cli.XXXXXX") || exit 1
# What a device in software compiled may be had from other tests: the driver's cache, not ours.
export MESA_SHADER_CACHE_DIR="${MESA_SHADER_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-$scratch}/.cache}}"
export XDG_CACHE_HOME="$scratch/cache"
trap 'chmod -R u+rwx "$scratch"; rm -rf "$scratch"' EXIT
trap 'exit 1' HUP TERM
out=$scratch/out
err=$scratch/err
n_checks=0
n_failed=0
code=0
last=
demo=$SOURCE/models/demo

skip() {
    echo "skipped: $*"
    exit 77
}

fail() {
    n_failed=$((n_failed + 1))
    echo "FAILED: $*"
    echo "  after: $last"
    echo "  exit code $code"
    sed 's/^/  stdout: /' "$out" | head -5
    sed 's/^/  stderr: /' "$err" | head -5
}

finish() {
    echo "$n_checks checks, $n_failed failed"
    [ "$n_failed" -eq 0 ] && [ "$n_checks" -gt 0 ]
    exit
}

# run ARGUMENTS...: the program, with no input. Sets code; output in $out and $err.
run() {
    run_with /dev/null "$@"
}

# run_with INPUT ARGUMENTS...
run_with() {
    input=$1
    shift
    last="moeflux $*"
    "$MOEFLUX" "$@" <"$input" >"$out" 2>"$err"
    code=$?
}

expect_code() {
    n_checks=$((n_checks + 1))
    [ "$code" -eq "$1" ] || fail "exit code $1 expected"
}

# expect_lines FILE N
expect_lines() {
    n_checks=$((n_checks + 1))
    [ "$(wc -l <"$1")" -eq "$2" ] || fail "$(basename "$1"): $2 lines expected"
}

expect_empty() {
    n_checks=$((n_checks + 1))
    [ ! -s "$1" ] || fail "$(basename "$1"): nothing expected"
}

# expect_exact FILE TEXT: the whole file; TEXT without its last newline.
expect_exact() {
    n_checks=$((n_checks + 1))
    [ "$(cat "$1")" = "$2" ] || fail "$(basename "$1"): expected exactly: $2"
}

# expect_glob FILE PATTERN: the whole file against a shell pattern.
expect_glob() {
    n_checks=$((n_checks + 1))
    text=$(cat "$1")
    # shellcheck disable=SC2254 # the pattern is meant as one
    case $text in
    $2) ;;
    *) fail "$(basename "$1"): expected to match: $2" ;;
    esac
}

expect_same() {
    n_checks=$((n_checks + 1))
    cmp -s "$1" "$2" || fail "$(basename "$1") and $(basename "$2") differ"
}

# expect_true COMMAND...
expect_true() {
    n_checks=$((n_checks + 1))
    "$@" || fail "does not hold: $*"
}

# expect_usage_error GLOB: exit code 2, one line, one hint, no output.
expect_usage_error() {
    expect_code 2
    expect_empty "$out"
    expect_lines "$err" 2
    expect_glob "$err" "moeflux: $1
Try 'moeflux *--help'."
}

# expect_error GLOB: exit code 1, one line, no output.
expect_error() {
    expect_code 1
    expect_empty "$out"
    expect_lines "$err" 1
    expect_glob "$err" "moeflux: $1"
}

# json FILE KEY: the member's value, of a flat object on one line.
json() {
    sed -n "s/.*\"$2\": \([^,}]*\)[,}].*/\1/p" "$1"
}

# at_most A B, for numbers with fractions
at_most() {
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a ~ /^[0-9]/ && a + 0 <= b + 0) }'
}

# wait_for COMMAND...: until the command succeeds; not so if the program $pid ends before it does.
# There is no other limit than the test's own: what is slow is not wrong.
wait_for() {
    while kill -0 "$pid" 2>/dev/null; do
        "$@" && return 0
        sleep 0.05
    done
    "$@"
}

# has_model DIR: a checkpoint is there.
has_model() {
    [ -f "$1/config.json" ] && [ -f "$1/tokenizer.json" ]
}

# random_model: a small random checkpoint with the demo model's tokenizer, as $model.
random_model() {
    [ -x "$MAKE_CHECKPOINT" ] || skip "make_random_checkpoint is not built"
    [ -f "$demo/tokenizer.json" ] || skip "models/demo is not there"
    model=$scratch/model
    "$MAKE_CHECKPOINT" --preset qwen3.6-35b-a3b --layers 4 --experts 16 --experts-per-token 4 \
        --hidden 128 --expert-hidden 64 --shared-hidden 64 --vocab 16384 --heads 4 --kv-heads 2 \
        --head-dim 64 --linear-v-heads 4 --linear-k-heads 2 --linear-k-dim 32 --linear-v-dim 32 \
        --tokenizer "$demo" --quiet "$model" >/dev/null 2>"$err" || {
        echo "FAILED: make_random_checkpoint: $(cat "$err")"
        exit 1
    }
    shard=$(ls "$model"/*.safetensors | head -1)
}
