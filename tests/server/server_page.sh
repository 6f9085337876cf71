# SPDX-License-Identifier: MIT
# The page as it is sent, and what it is fed with: headers, compression, keys, refusals.
. ./lib_server.sh

# header NAME: of the last answer
header() {
    sed -n "s/^$1: //Ip" "$headers" | tr -d '\r'
}

start_server "$demo"
ask /
expect_status 200
expect_equal "$(header content-type)" "text/html; charset=utf-8"
expect_equal "$(header x-content-type-options)" nosniff
expect_equal "$(header x-frame-options)" DENY
expect_equal "$(header referrer-policy)" no-referrer
expect_equal "$(header cross-origin-opener-policy)" same-origin
expect_equal "$(header cache-control)" no-cache
expect_equal "$(header vary)" Accept-Encoding
expect_equal "$(header content-length)" "$(wc -c <"$out" | tr -d ' ')"
expect_true grep -q '^<!DOCTYPE html>$' "$out"
expect_true grep -q '</html>$' "$out"
cp "$out" "$scratch/page.html"
tag=$(header etag)

# Nothing of it comes from elsewhere, nothing in it is a handler or a style of an element, and the
# policy names its script and style by what they are.
expect_true test "$(grep -c '<script' "$out")" -eq 1
expect_true test "$(grep -c '<style' "$out")" -eq 1
has_none() {
    n_checks=$((n_checks + 1))
    grep -Eq "$1" "$scratch/page.html" && fail "the page has: $1"
}
has_none '<(link|img|script|iframe|object|embed)[^>]*(src|href)="?https?:'
has_none '<[a-z][^>]* on[a-z]+='
has_none '<[a-z][^>]* style='
has_none '@import|url\('
has_none '\.(innerHTML|outerHTML|insertAdjacentHTML)|document\.write|eval\('
policy=$(header content-security-policy)
n_checks=$((n_checks + 1))
case $policy in
"default-src 'none'; script-src 'sha256-"*"'; style-src 'sha256-"*"'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'") ;;
*) fail "the policy is $policy" ;;
esac
# inner TAG: what stands between its tags, to the byte
inner() {
    awk -v first="<$1>" -v last="</$1>" '
        BEGIN { RS = "\001"; ORS = "" }
        { at = index($0, first) + length(first); print substr($0, at, index($0, last) - at) }' "$scratch/page.html"
}
if command -v sha256sum >/dev/null && command -v base64 >/dev/null && env printf '\x41' | grep -q '^A$'; then
    for tag_name in script style; do
        n_checks=$((n_checks + 1))
        hash=$(env printf "$(inner "$tag_name" | sha256sum | cut -c1-64 | sed 's/../\\x&/g')" | base64)
        case $policy in
        *"$tag_name-src 'sha256-$hash'"*) ;;
        *) fail "the hash of the $tag_name is $hash, the policy is $policy" ;;
        esac
    done
fi

# whoever has it gets nothing again
rm "$out"
ask / -H "If-None-Match: $tag"
expect_status 304
expect_empty "$out"
expect_equal "$(header etag)" "$tag"
ask / -H 'If-None-Match: "another"'
expect_status 200

# compressed for those who take it, and the same
ask / -H 'Accept-Encoding: br, gzip;q=0.5'
expect_equal "$(header content-encoding)" gzip
expect_true test "$(wc -c <"$out")" -lt "$(($(wc -c <"$scratch/page.html") / 2))"
gzip -dc <"$out" >"$scratch/unpacked"
expect_true cmp -s "$scratch/unpacked" "$scratch/page.html"
for coding in 'gzip;q=0' 'gzip; q=0.0, br' 'br' 'xgzip' ''; do
    ask / -H "Accept-Encoding: $coding"
    expect_equal "$(header content-encoding)" ""
    expect_true cmp -s "$out" "$scratch/page.html"
done
ask / -I -H 'Accept-Encoding: gzip'
expect_status 200
expect_equal "$(header content-encoding)" gzip

# other methods
for method in POST PUT DELETE; do
    ask / -X "$method"
    expect_status 405
    expect_equal "$(header allow)" 'GET, HEAD'
done
ask /page.html
expect_status 404

# figures
post /v1/completions '{"prompt":"Once upon a time","max_tokens":8,"seed":3}'
expect_status 200
ask /v1/moeflux/stats
expect_status 200
expect_body '"memory":{"process_bytes":'
expect_body '"drive":{"io":"'
expect_body '"measured_bytes_per_second":null'
expect_body '"model_info":{"family":"qwen3_5_moe","form":"mlx-affine","device":"cpu"'
expect_body '"has_chat":false,"has_thoughts":false,"sampling":{"temperature":'
expect_equal "$(value n_experts)" 32
expect_equal "$(value n_moe_layers)" 8
expect_true test "$(value process_bytes)" -gt 10000000
expect_true test "$(value process_bytes)" -lt "$(value budget_bytes)"
asked=$(($(value expert_hits_total) + $(value expert_misses_total)))

# the experts: all of them are held, and their uses are what was asked for
ask /v1/moeflux/experts
expect_status 200
expect_body '{"n_layers":8,"n_experts":32,"n_experts_per_token":4,"names":["absent","queued","reading","held","below"],"states":["'
expect_equal "$(sed 's/.*"states":\[\([^]]*\)\].*/\1/' "$out" | tr , '\n' | grep -Ec '^"[0-4]{32}"$')" 8
expect_equal "$(sed 's/.*"uses":\[\[\(.*\)\]\]}$/\1/; s/\],\[/\n/g' "$out" | awk -F, 'NF == 32' | wc -l | tr -d ' ')" 8
expect_equal "$(sed 's/.*"uses":\[\[\(.*\)\]\]}$/\1/; s/\],\[/,/g' "$out" | tr , '\n' | awk '{ n += $1 } END { print n }')" "$asked"
ask /v1/moeflux/experts -X POST
expect_status 405
stop_server

# Fewer fit: some are held, and the drive was measured.
start_server "$demo" --expert-cache 2M -c 512 --sessions 1
post /v1/completions '{"prompt":"Once upon a time","max_tokens":20,"seed":3}'
expect_status 200
ask /v1/moeflux/stats
n_slots=$(value expert_slots)
expect_true test "$n_slots" -lt 256
n_checks=$((n_checks + 1))
awk -v rate="$(value measured_bytes_per_second)" 'BEGIN { exit !(rate > 0) }' ||
    fail "the drive was not measured"
ask /v1/moeflux/experts
held=$(sed 's/.*"states":\[\([^]]*\)\].*/\1/' "$out" | tr -cd 3 | wc -c)
expect_true test "$held" -gt 0
expect_true test "$held" -le "$n_slots"
stop_server

# With keys the page comes all the same, for it asks for one; what it wants to know does not.
echo secret >"$scratch/keys"
chmod 600 "$scratch/keys"
start_server "$demo" --api-key-file "$scratch/keys"
ask /
expect_status 200
expect_true cmp -s "$out" "$scratch/page.html"
for path in /v1/moeflux/stats /v1/moeflux/experts /v1/models; do
    ask "$path"
    expect_status 401
    ask "$path" -H 'Authorization: Bearer secret'
    expect_status 200
done
# nor for a page elsewhere, or under a name that points here
ask / -H 'Host: evil.example'
expect_status 403
ask /v1/moeflux/stats -H 'Origin: http://evil.example' -H 'Authorization: Bearer secret'
expect_status 403
ask /v1/moeflux/stats -H "Origin: $url" -H 'Authorization: Bearer secret'
expect_status 200
stop_server
finish
