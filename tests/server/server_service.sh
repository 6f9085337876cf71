# SPDX-License-Identifier: MIT
# As a service: what it tells systemd, sockets that are given, without a network of its own; the unit
# and the image.
. ./lib_server.sh
deploy=$SOURCE/server/deploy

wait_for_file() {
    while [ ! -e "$1" ] && kill -0 "$told" 2>/dev/null; do sleep 0.05; done
    [ -e "$1" ]
}

# it says when it is ready, after the socket answers, and when it is ending
"$RAW" "$scratch/notify" notify >"$scratch/told" &
told=$!
expect_true wait_for_file "$scratch/notify"
NOTIFY_SOCKET=$scratch/notify "$MOEFLUX" serve "$demo" --port 0 </dev/null >"$server_out" 2>"$server_err" &
pid=$!
expect_true wait_for grep -q '^READY=1' "$scratch/told"
url=$(sed -n 's|.* at \(http[^ ]*\) .*|\1|p' "$server_out")
ask /health
expect_status 200
stop_server
wait $told
expect_equal "$(tail -1 "$scratch/told")" 'STOPPING=1'

# an output that is full is named at the end, and no other reason for it
if [ -c /dev/full ]; then
    last="moeflux serve >/dev/full"
    "$MOEFLUX" serve "$demo" --unix "$scratch/full" </dev/null >/dev/full 2>"$server_err" &
    pid=$!
    expect_true wait_for test -S "$scratch/full"
    url=http://localhost
    ask /health --unix-socket "$scratch/full" # once the model is loaded
    expect_status 200
    kill -TERM "$pid"
    wait "$pid"
    code=$?
    pid=
    expect_code 1
    expect_exact "$server_err" "moeflux: standard output: cannot write"
fi

# given_socket ADDRESS COMMAND...: a socket listens there and runs the command when it is called.
# Below the ports that the system gives to whoever calls others; one that is taken is passed over.
port=$((20000 + $$ % 10000))
given_socket() {
    address=$1
    shift
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        port=$((port + 1))
        systemd-socket-activate -l "$address:$port" "$@" </dev/null >"$server_out" 2>"$server_err" &
        pid=$!
        wait_for grep -q -e '^Listening on' -e 'Address already in use' "$server_err"
        grep -q 'Address already in use' "$server_err" || break
        wait "$pid"
    done
    url=http://127.0.0.1:$port
}

# sockets that are given: the server needs no network to serve them
if command -v systemd-socket-activate >/dev/null && unshare -rn true 2>/dev/null; then
    given_socket 127.0.0.1 unshare -rn "$MOEFLUX" serve "$demo" --name given
    answers() {
        ask /health
        [ "$status" = 200 ]
    }
    expect_true wait_for answers
    post /v1/completions '{"prompt":"Once","max_tokens":3,"ignore_eos":true,"stream":true}'
    expect_status 200
    expect_body 'data: [DONE]'
    stop_server
    # others reach it: not without keys
    given_socket 0.0.0.0 "$MOEFLUX" serve "$demo"
    refuses() {
        curl -s -m 5 "http://127.0.0.1:$port/health" >/dev/null 2>&1
        ! kill -0 "$pid" 2>/dev/null
    }
    expect_true wait_for refuses
    wait "$pid"
    code=$?
    pid=
    expect_code 1
    expect_true grep -q 'can be reached by others: --api-key-file is needed' "$server_err"
fi

# The unit is one, and lets little through: systemd's own figure, 10 is no protection at all.
if command -v systemd-analyze >/dev/null; then
    sed "s|@MOEFLUX@|$MOEFLUX|" "$deploy/moeflux@.service" >"$scratch/moeflux@.service"
    cp "$deploy/moeflux@.socket" "$scratch/"
    last="systemd-analyze verify"
    (cd "$scratch" && SYSTEMD_UNIT_PATH=$scratch: systemd-analyze verify --man=no ./moeflux@x.service) >"$out" 2>&1
    code=$?
    n_checks=$((n_checks + 1))
    ! grep -q 'moeflux@' "$out" || fail "the unit has faults"
    if (cd "$scratch" && systemd-analyze security --offline=yes --threshold=15 ./moeflux@x.service) >"$scratch/security" 2>&1; then
        n_checks=$((n_checks + 1))
    elif grep -q 'exposure level' "$scratch/security"; then
        fail "the unit lets more through than it should: $(tail -1 "$scratch/security")"
    fi
fi
for line in PrivateNetwork=yes ProtectSystem=strict 'ReadOnlyPaths=/var/lib/moeflux/%i' NoNewPrivileges=yes DynamicUser=yes Type=notify; do
    expect_true grep -qx "$line" "$deploy/moeflux@.service"
done

# The image has the packages of all libraries that the program needs, by their names in its release.
if grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release && command -v dpkg >/dev/null && command -v ldd >/dev/null && [ -z "${SANITIZE:-}" ]; then
    image=$(sed -n '/^FROM debian:12-slim/,$p' "$deploy/Dockerfile" | tr '\n' ' ')
    for library in $(readelf -d "$MOEFLUX" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p'); do
        case $library in libc.so* | libm.so* | ld-linux* | libgcc_s* | libpthread* | libdl*) continue ;; esac
        package=$(dpkg -S "*/$library" 2>/dev/null | sed -n '1s/:.*//p')
        [ -n "$package" ] || continue
        n_checks=$((n_checks + 1))
        case $image in *" $package "*) ;; *) fail "$library is of $package, which the image does not install" ;; esac
    done
fi
finish
