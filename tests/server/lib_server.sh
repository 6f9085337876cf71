# SPDX-License-Identifier: MIT
# Sourced by the tests of the server, in their own folder.
cd ../cli || exit 1
. ./lib.sh
. ./thinking_model.sh
cd ../server || exit 1
: "${RAW:=$SOURCE/build/tests/server/server_raw}"
"$MOEFLUX" serve --help 2>/dev/null | grep -q -e --port || skip "moeflux is built without serve"
command -v curl >/dev/null || skip "there is no curl"
pid=
trap '[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null; chmod -R u+rwx "$scratch"; rm -rf "$scratch"' EXIT
server_out=$scratch/server.out
server_err=$scratch/server.err
headers=$scratch/headers
status=0

# start_server MODEL OPTIONS...: sets pid, port and url
start_server() {
    last="moeflux serve $*"
    : >"$server_out"
    "$MOEFLUX" serve "$@" --port 0 </dev/null >"$server_out" 2>"$server_err" &
    pid=$!
    if ! wait_for grep -q "http.*tokens)" "$server_out"; then
        cp "$server_err" "$err"
        fail "the server did not start"
        finish
    fi
    port=$(sed -n 's|.*://[^ ]*:\([0-9]*\) .*|\1|p' "$server_out")
    url=http://127.0.0.1:$port
}

# stop_server: by SIGTERM; sets code
stop_server() {
    last="SIGTERM"
    kill -TERM "$pid"
    wait "$pid"
    code=$?
    pid=
    cp "$server_err" "$err"
    expect_code 0
}

# ask PATH [CURL ARGUMENTS...]: sets status; body in $out
ask() {
    path=$1
    shift
    last="curl $path $*"
    status=$(curl -s -m 900 -D "$headers" -o "$out" -w '%{http_code}' "$@" "$url$path" 2>"$err")
    code=$?
    [ -f "$out" ] || : >"$out"
}

# post PATH BODY [CURL ARGUMENTS...]
post() {
    path=$1
    body=$2
    shift 2
    ask "$path" -H 'Content-Type: application/json' --data-binary "$body" "$@"
    last="POST $path $body"
}

expect_status() {
    n_checks=$((n_checks + 1))
    [ "$status" = "$1" ] || fail "HTTP status $1 expected, not $status"
}

# expect_body PATTERN: a shell pattern without brackets somewhere in the body
expect_body() {
    n_checks=$((n_checks + 1))
    pattern=$(printf '%s' "$1" | sed 's/[][\\]/\\&/g')
    # shellcheck disable=SC2254 # the pattern is meant as one
    case $(cat "$out") in
    *$pattern*) ;;
    *) fail "the body was expected to have: $1" ;;
    esac
}

expect_no_body() {
    n_checks=$((n_checks + 1))
    # shellcheck disable=SC2254
    case $(cat "$out") in
    *"$1"*) fail "the body was not expected to have: $1" ;;
    esac
}

# expect_equal A B
expect_equal() {
    n_checks=$((n_checks + 1))
    [ "$1" = "$2" ] || fail "expected '$2', not '$1'"
}

# expect_refused PATH BODY STATUS FIELD: in OpenAI's shape
expect_refused() {
    post "$1" "$2"
    expect_status "$3"
    expect_body '{"error":{"message":"'
    [ -z "$4" ] || expect_body "\"param\":\"$4\""
}

# value NAME: of the last body, the first that is so called: a number, or a string as JSON has it
value() {
    value_in "$out" "$1"
}

value_in() {
    grep -o "\"$2\":\(\"\([^\"\\\\]\|\\\\.\)*\"\|[^,}]*\)" "$1" | sed "s/^\"$2\"://; s/^\"//; s/\"\$//; q"
}

# joined FILE NAME: all strings of that name, one behind the other, as JSON has them
joined() {
    grep -o "\"$2\":\"\([^\"\\\\]\|\\\\.\)*\"" "$1" | sed "s/^\"$2\":\"//; s/\"\$//" | tr -d '\n'
}

# nth_text FILE N: the text of the answer's choice N, from 1
nth_text() {
    grep -o '"text":"\([^"\\]\|\\.\)*"' "$1" | sed -n "$2p"
}

# stat NAME: a figure of /v1/moeflux/stats
stat() {
    curl -s -m 900 "$url/v1/moeflux/stats" $stat_options >"$scratch/stats"
    value_in "$scratch/stats" "$1"
}
stat_options=

stat_is() {
    [ "$(stat "$1")" = "$2" ]
}
