# SPDX-License-Identifier: MIT
# The manual has every command and option that the program's help has; pages and completions are made
# of that help.
. ./lib.sh
pages=$scratch/pages
last="make_pages.sh"
sh "$SOURCE/tools/make_pages.sh" "$MOEFLUX" "$pages" >"$out" 2>"$err"
code=$?
expect_code 0
expect_empty "$err"
commands=$("$MOEFLUX" help | awk '/^Commands:/ { on = 1; next } on && !/^  [a-z]/ { exit } on { print $1 }')
for name in $commands; do
    expect_true [ -s "$pages/moeflux-$name.1" ]
    expect_true grep -q "^\.B.* \?$name\$\|^\.B $name" "$SOURCE/cli/moeflux.1"
    for option in $("$MOEFLUX" help "$name" | grep -oE '^  (-[a-zA-Z], )?--[a-z0-9-]+' | sed 's/.*--//' | sort -u); do
        n_checks=$((n_checks + 1))
        escaped=$(printf '%s' "$option" | sed 's/-/\\\\-/g')
        grep -q -e "\\\\-\\\\-$escaped\([^a-z\\\\]\|\$\)" "$SOURCE/cli/moeflux.1" || fail "moeflux.1 says nothing of $name --$option"
        grep -q -e "\\\\-\\\\-$escaped\([^a-z\\\\]\|\$\)" "$pages/moeflux-$name.1" || fail "moeflux-$name.1 says nothing of --$option"
        grep -q "seen_subcommand_from $name' -l $option " "$pages/moeflux.fish" || fail "fish does not complete $name --$option"
    done
done
# and what these take
for option in cpu-tier kv-type precision predict io numa; do
    run run model --$option '?'
    expect_code 2
    for value in $(sed -n "1s/.*'?' is not //p" "$err" | sed 's/,/ /g; s/ or / /'); do
        n_checks=$((n_checks + 1))
        escaped=$(printf '%s' "$value" | sed 's/-/\\\\-/g')
        grep -q "^\.BR\? $escaped\( .*\)\?\$" "$SOURCE/cli/moeflux.1" || fail "moeflux.1 says nothing of --$option $value"
    done
done
if command -v man >/dev/null; then
    for page in "$SOURCE/cli/moeflux.1" "$pages"/*.1; do
        n_checks=$((n_checks + 1))
        [ -z "$(man --warnings -E UTF-8 -l "$page" 2>&1 >/dev/null)" ] || fail "man complains of $page"
    done
fi

# complete WORD...: what bash offers for the last of them
complete() {
    last="completion of: $*"
    bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _moeflux; printf "%s\n" "${COMPREPLY[@]}"' \
        bash "$pages/moeflux.bash" "$@" | tr '\n' ' ' >"$out"
}
complete moeflux pe
expect_exact "$out" "perplexity "
complete moeflux help ser
expect_exact "$out" "serve "
complete moeflux run x --max-t
expect_exact "$out" "--max-tokens "
complete moeflux info --max-t
expect_exact "$out" " "
complete moeflux run --io ""
expect_exact "$out" "uring pool auto "
complete moeflux bench --kv-type ""
expect_exact "$out" "f32 bf16 q8 "
complete moeflux serve --cache-policy ""
expect_exact "$out" "next-use lru lfu s3-fifo "
complete moeflux run --predict ""
expect_exact "$out" "auto off next-layer last-token frequency wrong "
complete moeflux run --numa ""
expect_exact "$out" "auto off "
complete moeflux serve --state-dir "$SOURCE/mod"
expect_exact "$out" "$SOURCE/models "
complete moeflux run "$SOURCE/mod"
expect_exact "$out" "$SOURCE/models "
! command -v zsh >/dev/null || expect_true zsh -n "$pages/_moeflux"
! command -v fish >/dev/null || expect_true fish -n "$pages/moeflux.fish"
finish
