# SPDX-License-Identifier: MIT
# Who may ask: keys, Host, Origin, methods and paths.
. ./lib_server.sh
run serve "$demo" --host 0.0.0.0 --port 0
expect_error "0.0.0.0 can be reached by others: --api-key-file is needed"
run serve "$demo" --port 0 --api-key-file "$scratch/none"
expect_error "$scratch/none: cannot open: *"
printf '# a comment\n\n' >"$scratch/keys"
run serve "$demo" --port 0 --api-key-file "$scratch/keys"
expect_error "$scratch/keys: no key in it: *"
run serve "$demo" --port 0 --api-key-file "$scratch"
expect_error "$scratch: cannot read: *"
# keys would not help a name, or an address with a port
for host in somewhere 127.0.0.1:80 ''; do
    run serve "$demo" --port 0 --host "$host"
    expect_error "--host $host: expected an address"
done

# what no Host and no Origin can be, so that nobody would be let in by it
for name in '' models.test:80 http://models.test 'a b'; do
    run serve "$demo" --port 0 --allow-host "$name"
    expect_usage_error "--allow-host: '$name' is not a name alone, like models.example"
done
for origin in '' '*' localhost:3000 http://localhost:3000/ http://models.test/chat ://; do
    run serve "$demo" --port 0 --cors-origin "$origin"
    expect_usage_error "--cors-origin: '$origin' is not an origin as browsers send it, like http://localhost:3000"
done
# nor a name that says nothing, and a socket that nobody finds
run serve "$demo" --port 0 --name ''
expect_usage_error "--name: '' is not a name"
run serve "$demo" --unix ''
expect_usage_error "--unix: '' is not a path"

start_server "$demo" --cors-origin http://localhost:3000 --allow-host models.test
ask /v1/models -H 'Authorization: Bearer dummy' # clients without a key send one
expect_status 200
# both addresses of this machine, where it has both
if curl -s -m 5 -g "http://[::1]:$port/health" >"$out" 2>"$err"; then
    expect_exact "$out" '{"status":"ok"}'
fi
for host in localhost "localhost:$port" 127.0.0.1 127.1.2.3 '[::1]' '[::1]:80' x.localhost MODELS.test:80; do
    ask /health -H "Host: $host"
    expect_status 200
done
for host in evil.test 192.168.1.1 localhost.evil.test 127.0.0.1.evil.test '[::1' ':80' '[2001:db8::1]'; do
    ask /health -H "Host: $host"
    expect_status 403
done
# pages: those allowed, and our own
ask /v1/models -H 'Origin: http://localhost:3000'
expect_status 200
expect_true grep -qi '^access-control-allow-origin: http://localhost:3000' "$headers"
expect_true grep -qi '^vary: origin' "$headers"
expect_true grep -qi '^access-control-expose-headers: .*request-id.*retry-after' "$headers"
ask /v1/models -H "Origin: $url"
expect_status 200
for origin in http://evil.test null http://localhost:3001 "http://localhost:3000.evil.test"; do
    ask /v1/models -H "Origin: $origin"
    expect_status 403
    expect_true test "$(grep -ci '^access-control' "$headers")" -eq 0
    post /v1/completions '{"prompt":"x","max_tokens":1}' -H "Origin: $origin" -H 'Content-Type: text/plain'
    expect_status 403
done
ask /v1/chat/completions -X OPTIONS -H 'Origin: http://localhost:3000' -H 'Access-Control-Request-Method: POST' \
    -H 'Access-Control-Request-Headers: authorization, content-type, x-stainless-os'
expect_status 204
expect_true grep -qi '^access-control-allow-headers: authorization, content-type, x-stainless-os' "$headers"
expect_true grep -qi '^access-control-allow-methods: .*POST' "$headers"
expect_equal "$(grep -ci '^access-control-allow-private-network' "$headers")" 0
ask /v1/chat/completions -X OPTIONS -H 'Origin: http://localhost:3000' -H 'Access-Control-Request-Private-Network: true'
expect_true grep -qi '^access-control-allow-private-network: true' "$headers"
ask /v1/chat/completions -X OPTIONS -H 'Origin: http://evil.test'
expect_status 403
# paths and methods
ask /v1/nothing
expect_status 404
expect_body '"type":"not_found_error"'
ask /v1/chat/completions
expect_status 405
allows() { # PATH METHODS: it has other methods than PUT, and says which
    ask "$1" -X PUT
    expect_status 405
    expect_equal "$(sed -n 's/^[Aa]llow: //p' "$headers" | tr -d '\r')" "$2"
}
allows /v1/chat/completions POST
allows /v1/models/x/y 'GET, HEAD'
allows /v1/responses/x 'GET, HEAD, DELETE'
allows /v1/responses/x/cancel POST
allows /v1/conversations/x/ 'GET, HEAD, POST, DELETE'
allows /v1/conversations/x/items 'GET, HEAD, POST'
allows /conversations/x/items/y 'GET, HEAD, DELETE'
for path in /v1/responses/x/y /v1/conversations/x/y /v1/conversations/x/items/y/z; do
    ask "$path" -X PUT
    expect_status 404
done
post /v1/models '{}'
expect_status 405
ask /v1/messages
expect_status 405
expect_body '{"type":"error","error":{"type":"invalid_request_error"'
# errors have the form of who asks, also where there is nothing, or before anything is looked at
for path in /v1/messages/batches /messages/nothing; do
    ask "$path"
    expect_status 404
    expect_body '{"type":"error","error":{"type":"not_found_error"*"request_id":"req_'
done
ask /v1/models/none -H 'anthropic-version: 2023-06-01'
expect_body '{"type":"error","error":{"type":"not_found_error"'
ask /v1/messagesx
expect_body '{"error":{"message":'
post /v1/messages '{}' -H 'Host: evil.test'
expect_status 403
expect_body '{"type":"error","error":{"type":"permission_error"'
post /v1/messages '{"max_tokens":' # broken JSON
expect_status 400
expect_body '{"type":"error","error":{"type":"invalid_request_error"'
post /v1/messages '{}' -H 'Content-Encoding: br'
expect_status 415
expect_body '{"type":"error",'
stop_server

printf '# for all\n\n  first-key  \nsecond-key\n' >"$scratch/keys"
start_server "$demo" --host 127.0.0.1 --api-key-file "$scratch/keys" --cors-origin http://localhost:3000
ask /health
expect_status 200
for path in /v1/models /metrics /props /v1/moeflux/stats; do
    ask "$path"
    expect_status 401
    expect_true grep -qi '^www-authenticate: Bearer' "$headers"
done
expect_body '"message":"an API key is missing","type":"authentication_error"'
for key in first-key second-key; do
    ask /v1/models -H "Authorization: Bearer $key"
    expect_status 200
    ask /v1/models -H "x-api-key: $key"
    expect_status 200
done
for key in '' first-ke first-key2 'first-keyfirst-key' 'for all' '# for all' FIRST-KEY; do
    ask /v1/models -H "Authorization: Bearer $key"
    expect_status 401
    ask /v1/models -H "x-api-key: $key"
    expect_status 401
done
post /v1/messages '{"messages":[{"role":"user","content":"x"}],"max_tokens":1}'
expect_status 401
expect_body '{"type":"error","error":{"type":"authentication_error"'
ask /v1/models -X OPTIONS -H 'Origin: http://localhost:3000'
expect_status 204
stop_server
n_checks=$((n_checks + 1))
! grep -q 'first-key' "$server_out" "$server_err" || fail "a key was printed"

start_server "$demo" --host 0.0.0.0 --api-key-file "$scratch/keys"
ask /health -H 'Host: 192.168.7.7:80' # an address cannot be made to point here
expect_status 200
ask /health -H 'Host: evil.test'
expect_status 403
stop_server
finish
