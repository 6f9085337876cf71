#!/bin/bash
# SPDX-License-Identifier: MIT
# check_root.sh SUITE [MIRROR] [KEYRING]: what the README promises of a fresh machine, in a fresh root of
# a Debian or Ubuntu release (bookworm, noble): make demo and make test, which install what they need.
# Needs root, debootstrap and the release's mirror; some 4 GB in $TMPDIR. Without the release's keyring
# (Debian has none of Ubuntu's) its packages are not checked against it: KEYRING says where one is.
# KEEP=FOLDER leaves the root there. LABELS='cli server': of make test only those, and
# no more is built than they want.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
suite=${1:?usage: check_root.sh SUITE [MIRROR] [KEYRING]}
case $suite in
jammy | noble | questing) standard=http://archive.ubuntu.com/ubuntu script=gutsy keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg ;;
*) standard=http://deb.debian.org/debian script=sid keyring=/usr/share/keyrings/debian-archive-keyring.gpg ;;
esac
mirror=${2:-$standard}
keyring=${3:-$keyring}
[ "$(id -u)" = 0 ] || { echo "check_root: a fresh root wants to be made by root" >&2; exit 1; }
# The mounts below are of a namespace of its own: killed at any moment it leaves none behind, through
# which the removal of a kept root would reach this machine's /dev.
[ -n "${MF_OWN_MOUNTS:-}" ] || MF_OWN_MOUNTS=1 exec unshare --mount --propagation private bash "$0" "$@"
trusted=(--no-check-gpg)
[ ! -f "$keyring" ] || trusted=("--keyring=$keyring")
place=${KEEP:-$(mktemp -d)}
cleanup() {
    for mounted in "$place/dev" "$place/proc"; do
        ! mountpoint -q "$mounted" || umount -R "$mounted"
    done
    [ -n "${KEEP:-}" ] || rm -rf --one-file-system "$place"
}
trap cleanup EXIT
components=main
[ "$script" != gutsy ] || components=main,universe

if [ ! -e "$place/etc/os-release" ]; then
    debootstrap --variant=minbase "--components=$components" "${trusted[@]}" "$suite" "$place" "$mirror" \
        "/usr/share/debootstrap/scripts/$script" >"$place.log" 2>&1 || { tail -5 "$place.log" >&2; exit 1; }
    rm "$place.log"
fi
mkdir -p "$place/src"
git -C "$root" archive HEAD | tar -x -C "$place/src"
mount -t proc proc "$place/proc"
mount --rbind /dev "$place/dev"
cp -L /etc/resolv.conf "$place/etc/resolv.conf" 2>/dev/null || true
in_root() {
    DEBIAN_FRONTEND=noninteractive chroot "$place" "$@"
}
. "$place/etc/os-release"
echo "check_root: $PRETTY_NAME, as it comes"
in_root sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends git make ca-certificates' >/dev/null
in_root sh -c 'cd /src && make --no-print-directory demo'
echo "check_root: make demo passed ($SECONDS s)"
if [ -n "${LABELS:-}" ]; then
    export LABELS
    in_root sh -c 'cd /src && sh tools/setup.sh --test && for label in $LABELS; do cmake --build build --target "tests/$label/all" || exit 1; done &&
        sh tools/run_tests.sh build --label-regex "^($(echo $LABELS | tr " " "|"))\$" --label-exclude "^long\$"'
    echo "check_root: $PRETTY_NAME: make demo and the tests of $LABELS passed ($SECONDS s)"
else
    in_root sh -c 'cd /src && make --no-print-directory test'
    echo "check_root: $PRETTY_NAME: make demo and make test passed ($SECONDS s)"
fi
