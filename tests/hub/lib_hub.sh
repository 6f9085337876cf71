# SPDX-License-Identifier: MIT
# Sourced by the tests of pull, after lib.sh's variables: a hub of the tests' own, and models on it.
. ../cli/lib.sh
: "${HUB_SERVER:=$SOURCE/build/tests/hub/hub_server}"
[ -x "$HUB_SERVER" ] || skip "hub_server is not built"
command -v curl >/dev/null || skip "no curl"
command -v sha256sum >/dev/null || skip "no sha256sum"

commit=0123456789abcdef0123456789abcdef01234567
root=$scratch/hub
log=$scratch/hub.log
export HF_HOME="$scratch/hf" HF_TOKEN=hf_secret
unset HF_HUB_CACHE HUGGINGFACE_HUB_CACHE HUGGING_FACE_HUB_TOKEN HF_TOKEN_PATH http_proxy https_proxy
unset HF_HUB_OFFLINE HF_HUB_DISABLE_IMPLICIT_TOKEN ALL_PROXY all_proxy HTTPS_PROXY
cache=$HF_HOME/hub

start_hub() {
    mkdir -p "$root/api" "$root/files" "$root/etags"
    rm -f "$scratch/ready"
    "$HUB_SERVER" "$root" "$scratch/ready" "$log" &
    hub_pid=$!
    trap 'kill $hub_pid 2>/dev/null; chmod -R u+rwx "$scratch"; rm -rf "$scratch"' EXIT
    pid=$hub_pid
    wait_for test -s "$scratch/ready" || skip "the hub does not start"
    read -r hub_port store_port <"$scratch/ready"
    export HF_ENDPOINT="http://127.0.0.1:$hub_port"
}

# fault KIND [N [MATCH]]; without any: no more faults
fault() {
    curl -s "$HF_ENDPOINT/control${1:+?fault=$1&n=${2:-1}&match=${3:-}}" >/dev/null
}

# The hash of a small file as git has it.
git_hash() {
    { printf 'blob %s\0' "$(wc -c <"$1" | tr -d ' ')" && cat "$1"; } | sha1sum | cut -d' ' -f1
}

# pad_gguf FILE TO: the same model, its header longer by 17 MiB and 32 bytes, of a value that nobody wants.
pad_gguf() {
    {
        head -c 16 "$1"
        # shellcheck disable=SC2059 # the number of values, one more
        printf "$(printf '\\%03o' $(($(od -An -t u1 -j 16 -N 1 "$1") + 1)))"
        head -c 24 "$1" | tail -c 7
        printf '\011\0\0\0\0\0\0\0pad.blank\011\0\0\0\0\0\0\0\377\377\017\001\0\0\0\0'
        head -c 17825791 /dev/zero
        tail -c +25 "$1"
    } >"$2"
}

# publish ORG/NAME DIR: DIR's files are a repository of the hub.
publish() {
    rm -rf "${root:?}/files/$1" "$root/etags/$1" "$root/api/$1"
    mkdir -p "$root/files/$1" "$root/etags/$1" "$root/api/$1/revision" "$root/api/$1/tree"
    cp -rL "$2/." "$root/files/$1/"
    (cd "$root/files/$1" && find . -type f | sed 's|^\./||' | sort) >"$scratch/names"
    list_repo "$1"
}

# list_repo ORG/NAME: what the API says of it.
list_repo() {
    separator= tree=$root/api/$1/tree/$commit listing=$root/api/$1/revision/main
    printf '{"id": "%s", "sha": "%s", "siblings": [' "$1" $commit >"$listing"
    printf '[' >"$tree"
    while IFS= read -r name; do
        file=$root/files/$1/$name
        n=$(wc -c <"$file" | tr -d ' ')
        git=$(git_hash "$file") sha=$(sha256sum "$file" | cut -d' ' -f1)
        mkdir -p "$(dirname "$root/etags/$1/$name")"
        printf '%s{"rfilename": "%s", "size": %s, "blobId": "%s"' "$separator" "$name" "$n" "$git" >>"$listing"
        printf '%s{"type": "file", "path": "%s", "size": %s, "oid": "%s"' "$separator" "$name" "$n" "$git" >>"$tree"
        if [ "$n" -gt 4096 ]; then
            echo "$sha" >"$root/etags/$1/$name"
            printf ', "lfs": {"sha256": "%s", "size": %s, "pointerSize": 134}' "$sha" "$n" >>"$listing"
            printf ', "lfs": {"oid": "%s", "size": %s, "pointerSize": 134}' "$sha" "$n" >>"$tree"
        else
            echo "$git" >"$root/etags/$1/$name"
        fi
        printf '}' >>"$listing"
        printf '}' >>"$tree"
        separator=', '
    done <"$scratch/names"
    printf ']}' >>"$listing"
    printf ']' >>"$tree"
    cp "$listing" "$root/api/$1/revision/$commit"
}

# snapshot ORG/NAME: where it lies in the cache
snapshot() {
    echo "$cache/models--$(echo "$1" | sed 's|/|--|')/snapshots/$commit"
}

# is_pulled ORG/NAME DIR: each file that the cache has under its name is DIR's, and none is missing of
# those listed in $wanted (all of DIR's if unset)
is_pulled() {
    at=$(snapshot "$1")
    (cd "$at" && find . -type l -o -type f) >"$scratch/has" || return 1
    while IFS= read -r name; do
        cmp -s "$at/$name" "$2/$name" || return 1
    done <"$scratch/has"
    for name in ${wanted:-$(cd "$2" && find . -type f)}; do
        [ -f "$at/$name" ] || return 1
    done
    ! find "$cache" -name '*.moeflux-*' | grep -q .
}

# n_requests PATTERN: lines of the log with it
n_requests() {
    grep -c -- "$1" "$log" || true
}

forget_cache() {
    rm -rf "$HF_HOME"
    : >"$log"
}
