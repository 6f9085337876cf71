#!/bin/bash
# SPDX-License-Identifier: MIT
# check_image.sh [BASE_TAR]: the image of server/deploy/Dockerfile, built and used where no registry can be
# reached: its two bases are a fresh root of Debian (BASE_TAR, or made here). Needs root, buildah (Debian's;
# chroot isolation, no daemon) and a mirror of Debian. The image's user is not root, it answers a client
# with a key and refuses one without, and its size is said.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
base=${1:-}
[ "$(id -u)" = 0 ] || { echo "check_image: root is needed" >&2; exit 1; }
image() {
    buildah --storage-driver vfs --root "$work/storage" --runroot "$work/run" "$@"
}
server=
cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    [ -z "$server" ] || wait "$server" || true
    image rm --all >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap cleanup EXIT
fail() {
    echo "check_image: $1" >&2
    exit 1
}
if [ -z "$base" ]; then
    base=$work/base.tar
    debootstrap --variant=minbase bookworm "$work/root" http://deb.debian.org/debian >"$work/log" 2>&1 || fail "$(tail -3 "$work/log")"
    tar -cf "$base" -C "$work/root" .
    rm -rf "$work/root"
fi

from=$(image from scratch)
image add -q "$from" "$base" / >/dev/null
image commit -q "$from" docker.io/library/debian:12 >/dev/null
image tag docker.io/library/debian:12 docker.io/library/debian:12-slim
image rm "$from" >/dev/null
mkdir "$work/context"
git -C "$root" archive HEAD | tar -x -C "$work/context"
image build --isolation chroot --pull-never --format docker -f "$work/context/server/deploy/Dockerfile" -t moeflux "$work/context" >"$work/log" 2>&1 ||
    fail "$(tail -15 "$work/log")"
echo "check_image: built ($SECONDS s)"

box=$(image from --pull-never moeflux)
[ "$(image inspect --format '{{.OCIv1.Config.User}}' moeflux)" = moeflux ] || fail "its user is not moeflux"
place=$(image mount "$box")
before=$(tar -tf "$base" >/dev/null && stat -c %s "$base")
echo "check_image: $(du -sm "$place" | cut -f1) MiB, of which its base $((before >> 20))"
mkdir "$work/keys"
echo "secret-of-the-test" >"$work/keys/keys"
chmod -R a+rX "$work/keys" "$work"
port=$((20000 + $$ % 10000))
entry=$(image inspect --format '{{range .OCIv1.Config.Entrypoint}}{{.}} {{end}}' moeflux)
# shellcheck disable=SC2086 # a list of words
image run --isolation chroot -v "$root/models/demo:/model:ro" -v "$work/keys/keys:/keys:ro" "$box" -- $entry --port "$port" >"$work/out" 2>&1 &
server=$!
for _ in $(seq 300); do
    ! grep -q 'http' "$work/out" || break
    kill -0 "$server" 2>/dev/null || fail "it does not start: $(tail -3 "$work/out")"
    sleep 0.1
done
ask() {
    curl -s -m 60 -o "$work/answer" -w '%{http_code}' "$@" "http://127.0.0.1:$port/v1/completions" -d '{"prompt":"Once","max_tokens":4}'
}
[ "$(ask)" = 401 ] || fail "without a key it answers: $(cat "$work/answer")"
[ "$(ask -H 'Authorization: Bearer secret-of-the-test')" = 200 ] || fail "with a key: $(cat "$work/answer")"
pgrep -u moeflux -f 'moeflux serve' >/dev/null 2>&1 || [ "$(ps -o uid= -p "$(pgrep -f "moeflux serve /model" | tail -1)")" -ne 0 ] ||
    fail "it runs as root"
echo "check_image: answers as another user than root ($SECONDS s)"
