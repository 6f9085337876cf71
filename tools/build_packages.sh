#!/bin/sh
# SPDX-License-Identifier: MIT
# build_packages.sh BUILD_DIR OUT_DIR: Debian packages, a tree as an archive that may be put anywhere,
# an SBOM (SPDX), and SHA256SUMS. Of the same sources, with the same compilers and libraries, the
# bytes are the same in whichever folder they are built: no path of it is in them, and all times are
# those of the last commit (SOURCE_DATE_EPOCH, where it is set).
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "${1:?usage: build_packages.sh BUILD_DIR OUT_DIR}" "${2:?usage: build_packages.sh BUILD_DIR OUT_DIR}"
build=$(cd "$1" && pwd)
out=$(cd "$2" && pwd)
epoch=$(git -C "$root" log -1 --format=%ct 2>/dev/null || stat -c %Y "$root/CHANGELOG.md")
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$epoch}" LC_ALL=C TZ=UTC
umask 022

cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr \
    -DMF_TESTS=OFF -DCMAKE_SKIP_INSTALL_ALL_DEPENDENCY=ON -DCMAKE_C_FLAGS="${CFLAGS--ffile-prefix-map=$root=.}" >"$build/build.log" 2>&1 &&
    cmake --build "$build" --target product pages >>"$build/build.log" 2>&1 || {
    tail -30 "$build/build.log" >&2
    exit 1
}
rm -rf "$build/packages"
for generator in DEB TXZ; do
    (cd "$build" && cpack -G "$generator" >"$build/cpack.log" 2>&1) || {
        tail -30 "$build/cpack.log" >&2
        exit 1
    }
done
rm -f "$out"/*.deb "$out"/moeflux-*.tar.xz
cp "$build"/packages/*.tar.xz "$out/"
# CPack writes the time of day into the frames of a package, though not into what they hold.
for package in "$build"/packages/*.deb; do
    frame=$build/packages/frame
    rm -rf "$frame" && mkdir "$frame"
    (cd "$frame" && ar x "$package" && gunzip control.tar.gz data.tar.gz && gzip -9n control.tar data.tar &&
        ar rcDS "$out/${package##*/}" debian-binary control.tar.gz data.tar.gz)
done
python3 "$root/tools/make_sbom.py" "$build" >"$out/moeflux.spdx.json"
(cd "$out" && sha256sum ./*.deb ./*.tar.xz moeflux.spdx.json >SHA256SUMS)
echo "packages: $(cd "$out" && ls | wc -l) files in $out"
