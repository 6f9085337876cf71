#!/bin/bash
# SPDX-License-Identifier: MIT
# check_packages.sh BUILD_DIR: the packages as a user has them. Builds them, from a copy of the sources
# in another folder than BUILD_DIR's: what was built there of the same sources must have the same
# bytes, and packing it twice too. lintian has no error to tell; in a fresh root (debootstrap, which
# needs a mirror of Debian, and root) they are installed, used and purged. The archive is put
# elsewhere and used there. The last release's ABI is held against the one that is built.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:?usage: check_packages.sh BUILD_DIR}" && pwd)
work=$(mktemp -d)
cleanup() {
    for mounted in "$work/root/proc"; do
        mountpoint -q "$mounted" && umount "$mounted"
    done
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT
fail() {
    echo "packages: $1" >&2
    exit 1
}
said() {
    echo "packages: $1 ($SECONDS s)"
}

# ---- built in another folder, with nothing but what git knows
place=$work/another_place
mkdir "$place"
git -C "$root" ls-files -z --cached --others --exclude-standard |
    (cd "$root" && xargs -0 sh -c 'for f; do [ -e "$f" ] && printf "%s\0" "$f"; done' sh) |
    tar -C "$root" --null -T - -cf - | tar -xf - -C "$place"
git -C "$root" rev-parse --short=12 HEAD >"$place/COMMIT"
export SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct)
# Half of the time goes to kernels, which know nothing of where they lie: where CI's ccache has them, they
# come from there. All else is compiled.
if [ -n "${CCACHE_BASEDIR:-}" ]; then
    cmake -S "$place" -B "$place/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr -DMF_WERROR=ON \
        -DMF_TESTS=OFF -DCMAKE_SKIP_INSTALL_ALL_DEPENDENCY=ON -DCMAKE_C_FLAGS="-ffile-prefix-map=$place=." >/dev/null
    # shellcheck disable=SC2046 # a list of words
    CCACHE_BASEDIR=$place cmake --build "$place/build" --target \
        $(cmake --build "$place/build" --target help | sed -n 's/^\(mf_kernels[a-z0-9_]*\): phony$/\1/p') >/dev/null
    unset CCACHE_BASEDIR
fi
sh "$place/tools/build_packages.sh" "$place/build" "$build/packaged"
said "built"
if git -C "$root" diff --quiet HEAD; then
    cmp "$build/libmoeflux.so" "$place/build/libmoeflux.so" || fail "libmoeflux.so has other bytes in another folder"
    cmp "$build/libmoeflux.a" "$place/build/libmoeflux.a" || fail "libmoeflux.a has other bytes in another folder"
    cmp "$build/moeflux" "$place/build/moeflux" || fail "the program has other bytes in another folder"
else
    echo "packages: what is built is not what was committed: its bytes are not compared"
fi
cp -R "$build/packaged" "$work/first"
sh "$place/tools/build_packages.sh" "$place/build" "$build/packaged"
diff -r "$work/first" "$build/packaged" || fail "packing twice gives other bytes"
said "the same bytes, built and packed twice"

# ---- what Debian thinks of them
cd "$build/packaged"
sha256sum --quiet -c SHA256SUMS
for package in libmoeflux0 libmoeflux-dev moeflux moeflux-server; do
    ls "${package}"_*.deb >/dev/null || fail "$package is missing"
done
lintian --fail-on error --suppress-tags initial-upload-closes-no-bugs ./*.deb >"$work/lintian" 2>&1 || {
    grep '^E:' "$work/lintian" >&2
    fail "lintian finds errors"
}
said "lintian: $(grep -c '^W:' "$work/lintian" || true) warnings, no errors"
python3 -c 'import json, sys
names = {p["name"] for p in json.load(open("moeflux.spdx.json"))["packages"]}
sys.exit(not {"moeflux", "yyjson", "xxhash", "libpcre2-8-0", "libutf8proc2"} <= names)' || fail "the SBOM is not whole"

# ---- the archive, put anywhere
mkdir "$work/elsewhere"
tar -xJf ./moeflux-*.tar.xz -C "$work/elsewhere" --strip-components=1
elsewhere=$work/elsewhere
"$elsewhere/bin/moeflux" run "$root/models/demo" -p "Once upon a time" -n 4 --device cpu | grep -q . ||
    fail "the archive's program writes nothing"
pc=$(dirname "$(find "$elsewhere" -name moeflux.pc)")
[ "$(PKG_CONFIG_PATH=$pc pkg-config --variable=prefix moeflux | xargs realpath)" = "$(realpath "$elsewhere")" ] ||
    fail "the archive's moeflux.pc says another prefix"
# shellcheck disable=SC2046 # flags are words
cc "$root/examples/next_token.c" -o "$work/next_token" $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs moeflux)
LD_LIBRARY_PATH=$(dirname "$pc") "$work/next_token" "$root/models/demo" 1 2 3 | grep -q . ||
    fail "a program does not run with the archive's library"
said "the archive works elsewhere"

# ---- installed, used and purged in a fresh root
[ "$(id -u)" = 0 ] || fail "a fresh root wants to be made by root"
mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -1)
base=$build/packages-root.tar
if [ ! -f "$base" ]; then
    debootstrap --variant=minbase bookworm "$work/root" "${mirror:-http://deb.debian.org/debian}" >"$work/log" 2>&1 || {
        tail -5 "$work/log" >&2
        fail "debootstrap fails"
    }
    tar -cf "$base" -C "$work/root" .
    rm -rf "$work/root"
fi
mkdir -p "$work/root"
tar -xf "$base" -C "$work/root"
in_root() {
    DEBIAN_FRONTEND=noninteractive chroot "$work/root" "$@"
}
cp ./*.deb "$work/root/tmp/"
cp -R "$root/models/demo" "$work/root/tmp/demo"
cp "$root/examples/next_token.c" "$work/root/tmp/"
mount -t proc proc "$work/root/proc" 2>/dev/null || echo "packages: no /proc in the fresh root"
in_root sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends /tmp/libmoeflux0_*.deb /tmp/moeflux_*.deb' \
    >"$work/log" 2>&1 || {
    tail -15 "$work/log" >&2
    fail "the packages cannot be installed"
}
in_root sh -c 'grep -q "Yann Collet" /usr/share/doc/libmoeflux0/copyright && grep -q "Yann Collet" /usr/share/doc/moeflux/copyright' ||
    fail "what is compiled in has no license"
in_root test -s /usr/share/doc/moeflux/docs/MESSAGES.md || fail "the documents that README names are missing"
in_root moeflux run /tmp/demo -p "Once upon a time" -n 4 --device cpu --io pool | grep -q . || fail "the program writes nothing"
in_root sh -c 'ldconfig -p | grep -q libmoeflux.so.0' || fail "the dynamic linker does not know the library"
# Those that want what is large, a compiler or systemd, are unpacked without it.
in_root sh -c 'dpkg --force-depends -i /tmp/libmoeflux-dev_*.deb /tmp/moeflux-server_*.deb' >"$work/log" 2>&1 ||
    fail "dpkg: $(tail -3 "$work/log")"
unit=$(in_root dpkg -L moeflux-server | grep '/moeflux@.service$') || fail "moeflux-server has no unit"
in_root grep -q '^ExecStart=/usr/bin/moeflux serve' "$unit" || fail "the unit starts another program"
cc -I"$work/root/usr/include" "$root/examples/next_token.c" -o "$work/root/tmp/next_token" \
    -L"$work/root/usr/lib/x86_64-linux-gnu" -lmoeflux || fail "a program is not linked with the -dev package"
in_root /tmp/next_token /tmp/demo 1 2 3 | grep -q . || fail "a program does not run with the installed library"
said "installed and used in a fresh root"
in_root dpkg --purge moeflux-server libmoeflux-dev moeflux libmoeflux0 >"$work/log" 2>&1 ||
    fail "dpkg --purge: $(tail -3 "$work/log")"
in_root sh -c 'find / -xdev -path /proc -prune -o -path /tmp -prune -o -iname "*moeflux*" -print' |
    grep -v '^/var/lib/apt\|^/var/log\|^/var/cache/apt' >"$work/left" || true
[ ! -s "$work/left" ] || fail "purging leaves $(head -3 "$work/left" | tr '\n' ' ')"
said "purged without a trace"
