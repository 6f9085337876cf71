# SPDX-License-Identifier: MIT
# Other ways in: a socket in the file system, sockets of systemd, TLS.
. ./lib_server.sh
run serve "$demo" --unix x --host 127.0.0.1
expect_usage_error "serve: --unix excludes --host and --port"
run serve "$demo" --unix "$demo/no/socket" --port 8080
expect_usage_error "serve: --unix excludes --host and --port"
run serve "$demo" --tls-cert x
expect_usage_error "serve: --tls-cert and --tls-key need each other"

# serve_at WORDS...: the program, without a port of its own; sets pid
serve_at() {
    : >"$server_out"
    last="$*"
    "$@" </dev/null >"$server_out" 2>"$server_err" &
    pid=$!
    wait_for grep -q "^moeflux: " "$server_out" || {
        cp "$server_err" "$err"
        fail "the server did not start"
        finish
    }
}
place=$scratch/socket
serve_at "$MOEFLUX" serve "$demo" --unix "$place"
expect_glob "$server_out" "moeflux: demo at unix:$place (8 sessions, context 4096 tokens)"
expect_equal "$(ls -l "$place" | cut -c1-10)" "srw-------"
url=http://localhost
ask /health --unix-socket "$place"
expect_status 200
post /v1/completions '{"prompt":"Once","max_tokens":3,"stream":true}' --unix-socket "$place"
expect_status 200
expect_body 'data: [DONE]'
run serve "$demo" --unix "$place" # somebody is there
expect_error "$place: cannot listen: *"
kill -KILL "$pid"
wait "$pid" 2>/dev/null
expect_true test -S "$place"
serve_at "$MOEFLUX" serve "$demo" --unix "$place" # nobody is there
ask /health --unix-socket "$place"
expect_status 200
stop_server
expect_true test ! -e "$place"
: >"$scratch/file"
run serve "$demo" --unix "$scratch/file"
expect_error "$scratch/file: cannot listen: *"
expect_true test -f "$scratch/file"

# localhost is both addresses: who asks there must not meet another server
if grep -q . /proc/net/if_inet6 2>/dev/null; then
    serve_at "$MOEFLUX" serve "$demo" --host ::1 --port 0
    port=$(sed -n 's|.*://.*:\([0-9]*\) .*|\1|p' "$server_out")
    for host in '' '--host localhost'; do
        # shellcheck disable=SC2086 # words
        run serve "$demo" --ram 1 --port "$port" $host
        expect_error "::1, port $port: cannot listen: Address already in use"
    done
    stop_server
fi

# an address is tried before the model, and a model that cannot be loaded leaves no socket
run serve "$demo" --unix "$scratch/file" --ram 1
expect_error "$scratch/file: cannot listen: *"
run serve "$demo" --unix "$place" --ram 1
expect_code 1
expect_true test ! -e "$place"

# a signal ends what is still loading a model, and takes the socket along: here one that came before
if env --block-signal=TERM true 2>/dev/null; then
    for signal in TERM INT; do
        last="SIG$signal while a model is loaded"
        # shellcheck disable=SC2016 # of the inner shell
        env --block-signal=TERM,INT sh -c 'kill -$0 $$; exec "$@"' $signal "$MOEFLUX" serve "$demo" \
            --unix "$place" </dev/null >"$out" 2>"$err"
        code=$?
        [ $signal = TERM ] && expect_code 143 || expect_code 130
        expect_lines "$out" 0
        expect_true test ! -e "$place"
    done
fi

# of systemd: listening already when the server starts
if command -v systemd-socket-activate >/dev/null; then
    systemd-socket-activate -l "$place" "$MOEFLUX" serve "$demo" --name given </dev/null >"$server_out" 2>"$server_err" &
    pid=$!
    expect_true wait_for grep -q '^Listening on' "$server_err" # the file is there before it listens
    ask /v1/models --unix-socket "$place"
    expect_status 200
    expect_body '"id":"given"'
    stop_server
fi

# a taken port
start_server "$demo"
run serve "$demo" --port "$port" --ram 1
expect_error "127.0.0.1, port $port: cannot listen: *"
stop_server

if command -v openssl >/dev/null && openssl req -x509 -newkey rsa:2048 -nodes -keyout "$scratch/key" \
    -out "$scratch/cert" -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost 2>/dev/null; then
    start_server "$demo" --tls-cert "$scratch/cert" --tls-key "$scratch/key"
    expect_glob "$server_out" "moeflux: demo at https://127.0.0.1:*"
    url=https://localhost:$port
    ask /health --cacert "$scratch/cert"
    expect_status 200
    post /v1/completions '{"prompt":"Once","max_tokens":3,"stream":true}' --cacert "$scratch/cert"
    expect_status 200
    expect_body 'data: [DONE]'
    stop_server
    run serve "$demo" --port 0 --tls-cert "$scratch/key" --tls-key "$scratch/cert"
    expect_error "*cannot serve: --tls-cert and --tls-key are no certificate and its key, in PEM"
    run serve "$demo" --port 0 --tls-cert "$scratch/none" --tls-key "$scratch/key"
    expect_error "$scratch/none: cannot read: *"
    run serve "$demo" --port 0 --tls-cert "$scratch/cert" --tls-key "$scratch/cert" --ram 1
    expect_error "$scratch/cert: cannot serve: --tls-cert and --tls-key are no certificate and its key, in PEM"
fi
finish
