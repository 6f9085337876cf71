# SPDX-License-Identifier: MIT
# Requests that are broken, too large, or end early. The server goes on.
. ./lib_server.sh
start_server "$demo" --max-body 1M

bad() {
    printf "$1" >"$scratch/body"
    ask "${2:-/v1/chat/completions}" --data-binary @"$scratch/body"
    expect_status 400
    expect_body '{"error":{"message":"the body is'
}
bad ''
bad '{'
bad '{"messages":[{"role":"user","content":"x"}'
bad '[]'
bad '7'
bad 'null'
bad '{"a":1,}'
bad '{"a":NaN}'
bad '{"a":"\\ud800"}'
bad '{"messages":[{"role":"user","content":"\377"}]}'
bad '{"messages":[{"role":"user","content":"\355\240\200"}]}'
bad '{"a":"b\nc"}'
bad '\000\001\002'
bad '{}{}'
awk 'BEGIN { for (i = 0; i < 100000; i++) printf "[" }' >"$scratch/body"
ask /v1/chat/completions --data-binary @"$scratch/body"
expect_status 400
expect_body 'nested deeper than'
awk 'BEGIN { printf "{\"a\":"; for (i = 0; i < 100000; i++) printf "["; for (i = 0; i < 100000; i++) printf "]"; print "}" }' >"$scratch/body"
ask /v1/messages --data-binary @"$scratch/body"
expect_status 400
expect_body '"type":"error"'

# sizes
head -c 1048577 /dev/zero | tr '\0' ' ' >"$scratch/body"
ask /v1/completions --data-binary @"$scratch/body"
expect_status 413
ask /v1/messages --data-binary @"$scratch/body"
expect_status 413
expect_body request_too_large
ask /v1/completions -H 'Transfer-Encoding: chunked' --data-binary @"$scratch/body"
expect_status 413
head -c 8000000 /dev/zero | tr '\0' ' ' >"$scratch/body"
ask /v1/completions -H 'Transfer-Encoding: chunked' -H Expect: --data-binary @"$scratch/body"
n_checks=$((n_checks + 1))
case $status in 413 | 000) ;; *) fail "a chunked body without end: $status" ;; esac
ask /health -H "X-Long: $(head -c 60000 /dev/zero | tr '\0' x)"
n_checks=$((n_checks + 1))
case $status in 431 | 413 | 400) ;; *) fail "a long head: $status" ;; esac
printf '{"prompt":"Once","max_tokens":1}' >"$scratch/body"
ask /v1/completions -H 'Transfer-Encoding: chunked' --data-binary @"$scratch/body"
expect_status 200
ask /v1/completions -H 'Expect: 100-continue' --data-binary @"$scratch/body"
expect_status 200
# compressed bodies: whole, cut, with something behind, of nothing, bombs, of another kind
for coding in gzip zstd; do
    command -v $coding >/dev/null || continue
    packed() {
        ask /v1/completions -H "Content-Encoding: $coding" --data-binary @"$scratch/packed"
    }
    $coding -c <"$scratch/body" >"$scratch/packed"
    packed
    expect_status 200
    expect_equal "$(value completion_tokens)" 1
    cp "$scratch/packed" "$scratch/whole"
    head -c 20 "$scratch/whole" >"$scratch/packed"
    packed
    expect_status 400
    (cat "$scratch/whole" && echo x) >"$scratch/packed"
    packed
    expect_status 400
    : >"$scratch/packed"
    packed
    expect_status 400
    cp "$scratch/body" "$scratch/packed"
    packed
    expect_status 400
    expect_body "the body is not valid $coding"
    head -c 300000000 /dev/zero | $coding -c >"$scratch/packed"
    packed
    expect_status 413
    expect_body 'after decoding'
done
ask /v1/completions -H "Content-Encoding: br" --data-binary @"$scratch/body"
expect_status 415

# what stands behind a NUL is part of a path, and of an argument
ask /v1/models/demo
expect_status 200
for path in /health%00 /v1/models%00/x /v1/models/demo%00x; do
    ask "$path"
    expect_status 404
done
post /v1/conversations '{"items":[{"type":"message","role":"user","content":"Hi"}]}'
ask "/v1/conversations/$(value id)/items?limit=1%00x"
expect_status 400

# raw TEXT [HOW]: text as printf has it
raw() {
    last="raw $*"
    printf "$1" | "$RAW" "$port" ${2:-} >"$out" 2>"$err"
    code=$?
}
expect_http() {
    n_checks=$((n_checks + 1))
    [ "$(head -c 12 "$out" | cut -d' ' -f2)" = "$1" ] || fail "HTTP $1 expected"
}
body='{"prompt":"Once","max_tokens":1}'
n=${#body}
raw "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: $n\r\n\r\n$body"
expect_http 200
raw "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: $n\r\nContent-Length: $n\r\n\r\n$body"
expect_http 400
raw "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: $n\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
expect_http 400
# libmicrohttpd takes these for headers of other names, and reads the body by the other length
for name in 'Transfer-Encoding ' 'Transfer-Encoding\t' 'X: y\r\n Z' 'X:\r\n Content-Length: 1\r\nY'; do
    raw "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n$name: chunked\r\nContent-Length: $n\r\n\r\n$body"
    expect_http 400
done
raw "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding:\r\n chunked\r\nContent-Length: $n\r\n\r\n$body"
expect_http 400
raw "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nHost: evil.test\r\nConnection: close\r\nContent-Length: $n\r\n\r\n$body"
expect_http 400
expect_body 'Host is given twice'
raw "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"
n_checks=$((n_checks + 1))
! grep -q '^HTTP/1.1 200' "$out" || fail "a coding that nobody knows"
raw "POST /v1/completions HTTP/1.1\r\nConnection: close\r\nContent-Length: $n\r\n\r\n$body"
expect_http 400
raw 'nonsense\r\n\r\n' half
n_checks=$((n_checks + 1))
! grep -q ' 200 ' "$out" || fail "nonsense was answered"
raw "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{" leave
raw "POST /v1/comple" leave
raw "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{\"a\":1}zz" half
raw "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nx" half
n_checks=$((n_checks + 1))
! grep -q ' 200 ' "$out" || fail "a chunk of no size was answered"
# two requests in one go are answered in order
raw "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v1/nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
expect_equal "$(grep -ao 'HTTP/1.1 [0-9]*' "$out" | tr '\n' ' ')" "HTTP/1.1 200 HTTP/1.1 404 "

# a target that is a whole URL, as proxies are sent them
raw "GET HTTP://LocalHost/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
expect_http 200
raw "GET http://evil.test/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
expect_http 400
expect_body 'the target names another host than Host'
raw "GET http://localhost HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
expect_http 200
raw "GET http://evil.test/health HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n"
expect_http 403

# gone at every moment of an answer
body='{"prompt":"Once upon a time","max_tokens":2000,"ignore_eos":true,"stream":true}'
n=${#body}
for i in 1 2 3 4 5 6 7 8; do
    raw "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: $n\r\n\r\n$body" leave
    raw "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: $((n - 10))\r\n\r\n$(echo "$body" | sed 's/,"stream":true/          /')" leave
done
expect_true wait_for stat_is answers_running 0
expect_true wait_for stat_is answers_waiting 0
expect_equal "$(stat jobs_finished_total)" "$(($(stat jobs_total) - $(stat jobs_cancelled_total)))"
expect_true test "$(stat jobs_cancelled_total)" -ge 8

# nothing of that did harm
post /v1/completions '{"prompt":"Once upon a time","max_tokens":4,"temperature":0}'
expect_status 200
expect_equal "$(value completion_tokens)" 4
stop_server
expect_empty "$err"
finish
