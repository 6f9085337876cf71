# SPDX-License-Identifier: MIT
# What the documents say: links lead somewhere, commands and their options are there, files that are
# named exist, every error message has its cure, and what stands in blocks does what it should, in a
# folder of its own. A block's first line says how it is tried: CONTRIBUTING.md has the kinds.
. ./lib.sh
has_model "$demo" || skip "models/demo is not there"
cd "$SOURCE" || exit 1
documents="README.md CONTRIBUTING.md CHANGELOG.md $(echo docs/*.md) models/demo/README.md python/README.md"

# anchors FILE: of its headings, as they are made of them for the web
anchors() {
    awk '/^```/ { inside = !inside } !inside && /^#+ /' "$1" | sed 's/^#* //; s/`//g' | tr '[:upper:]' '[:lower:]' |
        sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}
for document in $documents; do
    awk '/^```/ { inside = !inside; next } !inside' "$document" | grep -oE '\]\([^)]+\)' | sed 's/^](//; s/)$//' >"$scratch/links"
    while read -r link; do
        case $link in
        https://*) continue ;; # tools/release.sh asks those
        http://localhost:8080*) continue ;;
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
        awk '/^```(sh .*|text)$/ { inside = 1; next } /^```/ { inside = 0; next } inside' "$1"
        awk '/^```/ { inside = !inside; next } !inside' "$1" | grep -oE '`[^`]+`' | tr -d '`'
    } | grep -oE '(^|[ /])moeflux (run|info|devices|doctor|tokenize|template|perplexity|bench|convert|replay|serve|pull|plan)( .*|$)' |
        sed 's/^[ \/]//; s/ #.*//; s/[|>;&].*//'
}
for name in run info devices doctor tokenize template perplexity bench convert replay serve pull plan; do
    "$MOEFLUX" help $name >"$scratch/help.$name" 2>&1
done
"$MOEFLUX" --help >"$scratch/help.moeflux" 2>&1
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
    # options in words: the program's, or of the project's other programs and scripts
    for option in $(grep -oE '`[^`]+`' "$document" | grep -oE '(^|[` ])--[a-z][a-z0-9-]+' | tr -d '` ' | sort -u); do
        case $option in --now | --timing | --collect-routing) continue ;; # systemctl's, and the reference's
        esac
        n_checks=$((n_checks + 1))
        last="$document: $option"
        grep -qE -e "(^|[^a-z-])$option([^a-z0-9-]|\$)" "$scratch"/help.* ||
            grep -rqF --include='*.c' --include='*.py' --include='*.sh' --include=Makefile -e "$option" tools bench python tests Makefile .ci ||
            fail "no program has such an option"
    done
    # programs, scripts and data of the project
    for file in $(grep -oE '(^|[` ])(build/)?(tools|bench|tests|cli|src)/[A-Za-z0-9_/.-]+' "$document" | tr -d '` ' | sed 's/[.:,]*$//' | sort -u); do
        case $file in *[A-Z][A-Z][A-Z]*) continue ;; esac # a name that stands for others
        n_checks=$((n_checks + 1))
        last="$document: $file"
        set -- "${file#build/}"*
        [ -e "$1" ] || fail "no such file"
    done
done

# Messages that the guide explains, and warnings, are said somewhere: their longest part without dots
# and numbers.
awk '/^## / { on = /What messages mean|Warnings/ } on && /^\| `/' docs/GUIDE.md docs/MESSAGES.md | sed 's/^| `//; s/`.*//' >"$scratch/messages"
while read -r message; do
    part=$(printf '%s\n' "$message" | sed "s/ *\.\.\. */\n/g" | awk '{ if (length($0) > length(best)) best = $0 } END { print best }')
    n_checks=$((n_checks + 1))
    last="$message"
    grep -rqF --include='*.c' -e "$part" src cli server hub || fail "nothing says: $part"
done <"$scratch/messages"
expect_true [ "$(wc -l <"$scratch/messages")" -ge 20 ]
# Every error that the sources make has its row in MESSAGES.md, and every row such an error.
find src cli server hub -name '*.c' | LC_ALL=C sort | xargs awk -f tests/cli/messages.awk >"$scratch/said"
expect_true [ "$(wc -l <"$scratch/said")" -ge 1000 ]
awk -f tests/cli/messages_check.awk docs/MESSAGES.md "$scratch/said" >"$scratch/unsaid"
n_checks=$((n_checks + $(wc -l <"$scratch/said")))
while read -r line; do
    last="docs/MESSAGES.md"
    fail "$line"
done <"$scratch/unsaid"

# Every block says what it is; commands stand in blocks.
kinds='sh test|sh server|sh client|sh hub|sh long|c|cpp|python|text'
for document in $documents; do
    n_checks=$((n_checks + 1))
    last=$document
    awk -v kinds="^($kinds)\$" '
        /^```/ && !inside { inside = 1; if (substr($0, 4) !~ kinds) { print FILENAME ":" FNR ": " $0; bad = 1 }; next }
        /^```/ { inside = 0; next }
        !inside && /^    [^ ]/ && before == "" { print FILENAME ":" FNR ": " $0; bad = 1 }
        { before = $0 }
        END { exit bad + inside }' "$document" >"$out" || fail "a block of no known kind, or none that is closed"
done
# What is not run here is there at least: targets of make, scripts, programs.
for document in $documents; do
    awk '/^```sh long$/ { on = 1; next } /^```/ { on = 0 } on' "$document" | sed 's/ *#.*//' >"$scratch/long"
    while read -r line; do
        last="$document: $line"
        n_checks=$((n_checks + 1))
        # shellcheck disable=SC2086 # a command's words
        set -- $line
        [ "${1:-}" != sh ] || shift
        case ${1:-} in
        make) [ $# -lt 2 ] || grep -qE "^$2:" Makefile || fail "make has no target $2" ;;
        build/bench/*) [ -e "bench/${1#build/bench/}.c" ] || fail "no such program" ;;
        build/make_random_checkpoint) [ -e tools/make_random_checkpoint.c ] || fail "no such program" ;;
        */*.sh | .ci/run) [ -e "$1" ] || fail "no such script" ;;
        esac
    done <"$scratch/long"
done
# The labels of the README's info are those of the program.
if [ -d tests/model/data/mlx_4bit ]; then
    "$MOEFLUX" info tests/model/data/mlx_4bit --ram 1G | sed 's/  .*//' >"$scratch/labels"
    awk '/^\$ build\/moeflux info/ { on = 1; next } /^```/ { on = 0 } on { sub(/  .*/, ""); print }' README.md >"$scratch/shown"
    last="moeflux info"
    expect_true [ -s "$scratch/shown" ]
    while IFS= read -r label; do
        n_checks=$((n_checks + 1))
        grep -qxF -e "$label" "$scratch/labels" || fail "info says nothing of \"$label\""
    done <"$scratch/shown"
fi

# The picture and the table are those that were measured.
if [ -f bench/compare/results.tsv ]; then
    last="bench/compare/publish.sh --check"
    expect_true sh bench/compare/publish.sh --check
fi

[ -z "${SANITIZE:-}" ] || finish # their own memory does not fit the budgets in the blocks

# What asks for port 8080 gets a socket: no test needs a port. MODEL is a model.
there=$scratch/there
mkdir -p "$there/bin" "$there/build"
ln -s "$SOURCE/models" "$there/models"
ln -s "$SOURCE/models/demo" "$there/MODEL"
cat >"$there/bin/moeflux" <<EOF
#!/bin/sh
for word do
    shift
    case \$word in
    --port) set -- "\$@" --unix ;;
    8080) set -- "\$@" 8080 ;;
    *) set -- "\$@" "\$word" ;;
    esac
done
exec "$MOEFLUX" "\$@"
EOF
cat >"$there/bin/curl" <<EOF
#!/bin/sh
for word do
    shift
    case \$word in
    localhost:8080/*) set -- "\$@" -sSf --unix-socket 8080 "http://localhost/\${word#*/}" ;;
    *) set -- "\$@" "\$word" ;;
    esac
done
exec "$(command -v curl)" "\$@"
EOF
chmod +x "$there/bin/moeflux" "$there/bin/curl"
ln -s ../bin/moeflux "$there/build/moeflux"
server_pid=
end_server() {
    [ -z "$server_pid" ] || kill "$server_pid" 2>/dev/null
    [ -z "$server_pid" ] || wait "$server_pid"
    server_pid=
    rm -f "$there/8080"
}
trap 'end_server; chmod -R u+rwx "$scratch"; rm -rf "$scratch"' EXIT
# start_server COMMAND: it serves until a block is no client of it
start_server() {
    end_server
    rm -f "$scratch/served"
    (cd "$there" && PATH=$there/bin:$PATH exec bash -c "exec $1") >"$scratch/served" 2>"$err" &
    server_pid=$!
    pid=$server_pid
    wait_for test -s "$scratch/served" || fail "it does not serve"
}
for document in $documents; do
    rm -f "$scratch"/block.*
    awk -v out="$scratch/block" '/^```sh (test|server|client)$/ { file = sprintf("%s.%02d.%s", out, ++n, $2); next }
        /^```/ { file = "" }
        file != "" { print >file }' "$document"
    for block in "$scratch"/block.*; do
        [ -f "$block" ] || continue
        last="$document: $(head -1 "$block")"
        n_checks=$((n_checks + 1))
        case $block in
        *.server)
            start_server "$(cat "$block")"
            continue
            ;;
        *.test) end_server ;;
        esac
        (cd "$there" && PATH=$there/bin:$PATH bash -eu "$block") >"$out" 2>"$err" || fail "a block does not do what it should"
        expect_true [ -s "$out" ]
    done
    end_server
done
finish
