# SPDX-License-Identifier: MIT
# What the documents say: links lead somewhere, commands and their options are there, files that are
# named exist, and blocks that begin with "```sh test" do what they should, in a folder of their own.
. ./lib.sh
has_model "$demo" || skip "models/demo is not there"
cd "$SOURCE" || exit 1
documents="README.md CONTRIBUTING.md $(echo docs/*.md) models/demo/README.md"

# anchors FILE: of its headings, as they are made of them for the web
anchors() {
    awk '/^```/ { inside = !inside } !inside && /^#+ /' "$1" | sed 's/^#* //; s/`//g' | tr '[:upper:]' '[:lower:]' |
        sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}
for document in $documents; do
    awk '/^```/ { inside = !inside; next } !inside' "$document" | grep -oE '\]\([^)]+\)' | sed 's/^](//; s/)$//' >"$scratch/links"
    while read -r link; do
        case $link in
        http://* | https://*) continue ;;
        esac
        file=${link%%#*}
        target=$(dirname "$document")/$file
        [ -n "$file" ] || target=$document
        n_checks=$((n_checks + 1))
        last="$document: $link"
        if [ ! -e "$target" ]; then
            fail "a link that leads nowhere"
        elif [ "$file" != "$link" ]; then
            anchors "$target" | grep -qxF -e "${link#*#}" || fail "no such heading in $target"
        fi
    done <"$scratch/links"
done

# commands DOCUMENT: those of the program, of its blocks and of words set as code
commands() {
    {
        awk '/^```(sh|sh test)?$/ { inside = !inside; next } /^```/ { inside = 0; next } inside' "$1"
        awk '/^```/ { inside = !inside; next } !inside' "$1" | grep -oE '`[^`]+`' | tr -d '`'
    } | grep -oE '(^|[ /])moeflux (run|info|devices|doctor|tokenize|template|perplexity|bench|convert|replay|serve|pull|plan)( .*|$)' |
        sed 's/^[ \/]//; s/ #.*//; s/[|>;&].*//'
}
for name in run info devices doctor tokenize template perplexity bench convert replay serve pull plan; do
    "$MOEFLUX" help $name >"$scratch/help.$name" 2>&1
done
for document in $documents; do
    commands "$document" >"$scratch/commands"
    while read -r line; do
        name=$(echo "$line" | cut -d' ' -f2)
        for option in $(echo "$line" | grep -oE ' --[a-z][a-z0-9-]*'); do
            n_checks=$((n_checks + 1))
            last="$document: $line"
            grep -qE -e "^  (-[a-z], )?$option([^a-z0-9-]|\$)" "$scratch/help.$name" || fail "$name has no $option"
        done
    done <"$scratch/commands"
    # programs, scripts and data of the project
    for file in $(grep -oE '(^|[` ])(build/)?(tools|bench|tests|cli|src)/[A-Za-z0-9_/.-]+' "$document" | tr -d '` ' | sed 's/[.:,]*$//' | sort -u); do
        case $file in *[A-Z][A-Z][A-Z]*) continue ;; esac # a name that stands for others
        n_checks=$((n_checks + 1))
        last="$document: $file"
        set -- "${file#build/}"*
        [ -e "$1" ] || fail "no such file"
    done
done

# Messages that the guide explains are said somewhere: their longest part without dots and numbers.
awk '/^## What messages mean/ { on = 1 } on && /^\| `/' docs/GUIDE.md | sed 's/^| `//; s/`.*//' >"$scratch/messages"
while read -r message; do
    part=$(printf '%s\n' "$message" | sed "s/ *\.\.\. */\n/g" | awk '{ if (length($0) > length(best)) best = $0 } END { print best }')
    n_checks=$((n_checks + 1))
    last="$message"
    grep -rqF --include='*.c' -e "$part" src cli server hub || fail "nothing says: $part"
done <"$scratch/messages"
expect_true [ "$(wc -l <"$scratch/messages")" -ge 10 ]

[ -z "${SANITIZE:-}" ] || finish # their own memory does not fit the budgets in the blocks
for document in $documents; do
    rm -f "$scratch"/block.*
    awk -v out="$scratch/block" '/^```sh test$/ { n++; on = 1; next } /^```/ { on = 0 }
        on { print >sprintf("%s.%02d", out, n) }' "$document"
    mkdir -p "$scratch/there/bin"
    ln -sfn "$SOURCE/models" "$scratch/there/models"
    ln -sfn "$MOEFLUX" "$scratch/there/bin/moeflux"
    for block in "$scratch"/block.*; do
        [ -f "$block" ] || continue
        last="$document: $(head -1 "$block")"
        n_checks=$((n_checks + 1))
        (cd "$scratch/there" && PATH=$scratch/there/bin:$PATH bash -eu "$block") >"$out" 2>"$err" || fail "a block does not do what it should"
    done
done
finish
