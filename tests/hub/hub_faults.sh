# SPDX-License-Identifier: MIT
# moeflux pull from a hub, and a store behind it, that fail: what passes is tried again, what comes is
# what the hub listed or it is not taken.
. ./lib_hub.sh
start_hub
repo=$scratch/repo
mkdir "$repo"
head -c 30000000 /dev/urandom >"$repo/m-Q4_K_M.gguf"
publish org/m "$repo"

# good_pull: a fresh one ends well, with the right bytes
good_pull() {
    last="moeflux pull with faults: $1"
    forget_cache
    run pull org/m --force --retries "${2:-10}"
    fault
    expect_code 0
    expect_same "$(snapshot org/m)/m-Q4_K_M.gguf" "$repo/m-Q4_K_M.gguf"
    expect_true is_pulled org/m "$repo"
}

# bad_pull WHAT MESSAGE: nothing gets a name in the cache
bad_pull() {
    last="moeflux pull with faults: $1"
    forget_cache
    run pull org/m --force --retries 2 -q
    fault
    expect_error "org/m: $2"
    expect_true [ ! -e "$(snapshot org/m)" ]
    expect_true [ ! -e "$cache/models--org--m/refs" ]
}

good_pull none 0
expect_true [ "$(n_requests '^hub GET /org/m/resolve')" -le 20 ]

# of the store, more often than there are requests at once
for kind in drop range long 503 429 403; do
    fault $kind 9 /store/
    good_pull $kind
    expect_true [ "$(n_requests " $kind\$")" -eq 9 ]
done
fault drop 5 /store/
fault range 2 /store/
fault 503 2 /store/
fault etag 1 /store/
good_pull mixed
# no ranges at all
fault norange 1000 /store/
good_pull "never ranges"
# a status of 429 says when to come again: a second, not a quarter
fault 429 1 /api/
began=$(date +%s%N)
good_pull "429 of the listing"
expect_true [ $(($(date +%s%N) - began)) -gt 1000000000 ]
# or at what time: within the third second from now, so two of them or more
fault 429date 1 /api/
began=$(date +%s%N)
good_pull "429 of the listing, with a date"
expect_true [ $(($(date +%s%N) - began)) -gt 1500000000 ]
# another content in the middle: begun anew; a wrong bit is found at the end
fault etag 2 /store/
good_pull etag
fault flip 1 /store/
fault flip 1 /store/
good_pull flip

# what does not pass
fault 503 1000 /store/
bad_pull "always 503" "*HTTP status 503: said by the hub ?[31mred"
fault 404 1000 /api/
bad_pull "404" "*HTTP status 404*(no such model, revision or file)"
fault 401 1 /api/
bad_pull "401" "*HTTP status 401*(a gated or private model wants a token *)"
fault range 1000 /store/
bad_pull "always other ranges" "*the answer is of another range than was asked for"
fault drop 1000 /api/
bad_pull "the listing is cut" "*/api/models/org/m/revision/main*"
fault endless 1000 /api/
bad_pull "an endless listing" "*longer than 67108864 bytes"
for kind in loop file nowhere; do
    fault $kind 1000 resolve
    bad_pull $kind "*redirected *"
done
fault linked 1000 resolve
bad_pull linked "m-Q4_K_M.gguf: the hub listed it with another content than it sends"
expect_true [ "$(n_requests '^hub GET /etc')" -eq 0 ]

# the hash is wrong each time: the file is not named, and the next time it is fetched from the start
cp "$root/files/org/m/m-Q4_K_M.gguf" "$scratch/right"
printf 'not what it was' | dd of="$root/files/org/m/m-Q4_K_M.gguf" bs=1 seek=20000000 conv=notrunc 2>/dev/null
bad_pull "wrong content" "m-Q4_K_M.gguf: wrong content, twice: its hash is *, the hub listed *"
expect_true [ -z "$(find "$cache" -path '*blobs*' ! -name '*.moeflux-*' -type f)" ]
cp "$scratch/right" "$root/files/org/m/m-Q4_K_M.gguf"
run pull org/m --force
expect_code 0
expect_true is_pulled org/m "$repo"

# the file is shorter than listed
cp "$scratch/right" "$scratch/short"
truncate -s 10000000 "$root/files/org/m/m-Q4_K_M.gguf"
bad_pull "a shorter file" "*"
cp "$scratch/right" "$root/files/org/m/m-Q4_K_M.gguf"

# nobody listens
last="pull from nobody"
HF_ENDPOINT=http://127.0.0.1:1 "$MOEFLUX" pull org/m --retries 1 -q >"$out" 2>"$err" </dev/null
code=$?
expect_error "org/m: http://127.0.0.1:1/api/models/org/m/revision/main?blobs=true: *onnect*"
HF_ENDPOINT=file:///etc "$MOEFLUX" pull org/m --retries 1 -q >"$out" 2>"$err" </dev/null
code=$?
expect_error "org/m: *rotocol*"

# a full drive: said before anything is fetched, and nothing is lost where it fills up meanwhile
if [ "$(id -u)" = 0 ] && mkdir "$scratch/full" && mount -t tmpfs -o size=20m none "$scratch/full" 2>/dev/null; then
    last="pull to a drive that is too small"
    HF_HUB_CACHE="$scratch/full/hub" "$MOEFLUX" pull org/m --force >"$out" 2>"$err" </dev/null
    code=$?
    expect_error "org/m: *: the drive has 0.02 GiB free, and 0.04 GiB are wanted (HF_HUB_CACHE names another place)"
    mount -o remount,size=60m "$scratch/full"
    fault slow 1000 Q4_K_M
    HF_HUB_CACHE="$scratch/full/hub" "$MOEFLUX" pull org/m --force -q --retries 1 >"$out" 2>"$err" </dev/null &
    pid=$!
    has_part() { ls "$scratch"/full/hub/models--org--m/blobs/*.moeflux-part >/dev/null 2>&1; }
    wait_for has_part
    head -c 50000000 /dev/zero >"$scratch/full/filler" 2>/dev/null
    fault
    wait $pid
    code=$?
    # its space was reserved
    expect_code 0
    expect_same "$scratch/full/hub/models--org--m/snapshots/$commit/m-Q4_K_M.gguf" "$repo/m-Q4_K_M.gguf"
    umount "$scratch/full" || umount -l "$scratch/full"
fi
# a cache that cannot be written
last="pull to no place"
HF_HUB_CACHE="/proc/nowhere" "$MOEFLUX" pull org/m --force -q >"$out" 2>"$err" </dev/null
code=$?
expect_error "org/m: /proc/nowhere*"
(ulimit -f 20000 && trap '' XFSZ && HF_HUB_CACHE="$scratch/limited" exec "$MOEFLUX" pull org/m --force -q >"$out" 2>"$err" </dev/null)
code=$?
expect_error "org/m: *File too large"
finish
