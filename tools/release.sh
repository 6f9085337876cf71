#!/bin/sh
# SPDX-License-Identifier: MIT
# release.sh VERSION OUT_DIR [--tag]: everything that a release is made of, from a clean tree: sources,
# packages, wheel, SBOM, SHA256SUMS. What documents link to is asked for. With --tag the commit is tagged
# vVERSION when all of it was made.
# Nothing is sent anywhere.
set -eu
cd "$(dirname "$0")/.."
version=${1:?usage: release.sh VERSION OUT_DIR [--tag]}
mkdir -p "${2:?usage: release.sh VERSION OUT_DIR [--tag]}"
out=$(cd "$2" && pwd)
fail() {
    echo "release: $1" >&2
    exit 1
}

git diff --quiet HEAD || fail "what is here is not what was committed"
[ "$(sed -n 's/.*MF_VERSION_STRING "\(.*\)"/\1/p' include/moeflux/moeflux.h)" = "$version" ] ||
    fail "include/moeflux/moeflux.h has another version"
grep -q "^## $version (20[0-9-]*)\$" CHANGELOG.md || fail "CHANGELOG.md has no heading \"## $version (DATE)\""
head -1 cmake/deb/changelog | grep -q "^moeflux ($version-1) " || fail "cmake/deb/changelog begins with another version"
grep -q "libmoeflux0 (>= " cmake/deb/shlibs || fail "cmake/deb/shlibs names no version"
git rev-parse -q --verify "refs/tags/v$version" >/dev/null && fail "v$version is tagged already"

# Links that lead elsewhere; tests/cli/documents.sh has the others. OFFLINE=1: they are not asked.
for link in $(grep -ohE '\]\(https://[^)]+\)' ./*.md docs/*.md python/*.md models/demo/*.md | sed 's/^](//; s/)$//' | sort -u); do
    [ -n "${OFFLINE:-}" ] || curl -sfL -m 30 -o /dev/null "$link" || fail "nothing is at $link"
done

build=$(pwd)/build-release
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
rm -rf "$build"
sh tools/build_packages.sh "$build" "$out"
sh tools/build_wheel.sh "$build" "$out"
# The sources, with the name of their commit, which the program tells.
git rev-parse --short=12 HEAD >"$build/COMMIT"
git archive --format=tar --prefix="moeflux-$version/" --add-file="$build/COMMIT" HEAD |
    gzip -9n >"$out/moeflux-$version.tar.gz"
(cd "$out" && sha256sum ./*.deb ./*.tar.* ./*.whl ./*.json >SHA256SUMS)
# What the next release is held against.
cmake -S . -B "$build/abi" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG="-O0 -g" -DMF_CLI=OFF \
    -DMF_TESTS=OFF >"$build/abi.log" 2>&1 && cmake --build "$build/abi" --target moeflux_shared >>"$build/abi.log" 2>&1 ||
    fail "the library cannot be built with debugging information: $build/abi.log"
sh tools/check_abi.sh "$build/abi"
sh tools/check_abi.sh "$build/abi" --update
if [ "${3:-}" = --tag ]; then
    git tag -a "v$version" -m "moeflux $version"
    echo "release: tagged v$version"
fi
echo "release: $out has $(ls "$out" | wc -l) files; commit cmake/abi if it changed"
