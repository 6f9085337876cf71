#!/bin/sh
# SPDX-License-Identifier: MIT
# check_install.sh BUILD_DIR: installs into a temporary tree, then builds and runs a small program
# against it through pkg-config (shared and static) and through CMake's find_package. The same for
# examples/, and the first of them writes a few words with models/demo.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:?usage: check_install.sh BUILD_DIR}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

DESTDIR="$work/stage" cmake --install "$build" --prefix /usr >/dev/null
prefix=$work/stage/usr
libdir=$(dirname "$(find "$prefix" -name libmoeflux.so | head -1)")
for file in bin/moeflux share/man/man1/moeflux.1 share/man/man1/moeflux-run.1 share/zsh/site-functions/_moeflux \
    share/bash-completion/completions/moeflux share/fish/vendor_completions.d/moeflux.fish $(cd "$root" && ls include/moeflux/*.h include/moeflux/*.hpp); do
    [ -f "$prefix/$file" ] || {
        echo "install: $file is missing" >&2
        exit 1
    }
done
[ -f "$libdir/libmoeflux.a" ] && [ -L "$libdir/libmoeflux.so.0" ]

cat >"$work/use.c" <<'END'
#include <moeflux/moeflux.h>
#include <stdio.h>
int main(void)
{
    mf_engine_options options;
    mf_engine *engine = NULL;
    mf_error error;
    mf_engine_options_default(&options);
    if (mf_engine_open("/nonexistent", &options, &engine, &error) == MF_OK)
        return 1;
    return printf("%s\n", mf_version()) < 0;
}
END

export PKG_CONFIG_PATH="$libdir/pkgconfig"
version=$(pkg-config --modversion moeflux)
# shellcheck disable=SC2046 # flags are words
cc -std=c99 -Wall -Wextra -Werror "$work/use.c" -o "$work/shared" $(pkg-config --cflags --libs moeflux)
# shellcheck disable=SC2046
cc -std=c99 "$work/use.c" -o "$work/static" $(pkg-config --cflags moeflux) "$libdir/libmoeflux.a" \
    $(pkg-config --static --libs moeflux | sed 's/-lmoeflux//')
# what pkg-config says is all that it takes: where only the archive lies, and where all is static
mkdir "$work/archive"
cp "$libdir/libmoeflux.a" "$work/archive/"
# shellcheck disable=SC2046
cc -std=c99 "$work/use.c" -o "$work/archived" -L"$work/archive" \
    $(pkg-config --static --cflags --libs moeflux)
# shellcheck disable=SC2046
cc -std=c99 -static "$work/use.c" -o "$work/all_static" \
    $(pkg-config --static --cflags --libs moeflux)
readelf -d "$work/all_static" | grep -q NEEDED && {
    echo "install: the program of archives alone needs a shared library" >&2
    exit 1
}
readelf -d "$work/static" "$work/archived" | grep -q libmoeflux && {
    echo "install: the static program needs the shared library" >&2
    exit 1
}
readelf -V "$work/shared" | grep -q 'Name: MOEFLUX_0\.' || {
    echo "install: the program does not ask for a version of libmoeflux.so" >&2
    exit 1
}

mkdir "$work/cmake"
cat >"$work/cmake/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(use C)
find_package(moeflux 0.1 REQUIRED)
add_executable(by_cmake ../use.c)
target_link_libraries(by_cmake PRIVATE moeflux::moeflux)
add_executable(by_cmake_static ../use.c)
target_link_libraries(by_cmake_static PRIVATE moeflux::moeflux_static)
END
cmake -S "$work/cmake" -B "$work/cmake/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 &&
    cmake --build "$work/cmake/build" >>"$work/log" 2>&1 || {
    cat "$work/log" >&2
    exit 1
}

for program in shared static archived all_static cmake/build/by_cmake cmake/build/by_cmake_static; do
    got=$(LD_LIBRARY_PATH="$libdir" "$work/$program")
    [ "$got" = "$version" ] || {
        echo "install: $program printed \"$got\", expected \"$version\"" >&2
        exit 1
    }
done
LD_LIBRARY_PATH="$libdir" "$prefix/bin/moeflux" --help >/dev/null

cmake -S "$root/examples" -B "$work/examples" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 &&
    cmake --build "$work/examples" >>"$work/log" 2>&1 || {
    cat "$work/log" >&2
    exit 1
}
"$work/examples/generate" "$root/models/demo" "Once upon a time" 8 | grep -q . || {
    echo "install: the example generate wrote nothing" >&2
    exit 1
}
# What was installed goes again, all of it.
DESTDIR="$work/stage" cmake -DMANIFEST="$build/install_manifest.txt" -P "$root/cmake/uninstall.cmake" >/dev/null 2>&1
left=$(find "$work/stage" ! -type d -o -name '*moeflux*')
[ -z "$left" ] || {
    echo "install: uninstalling leaves $left" >&2
    exit 1
}
# and is not said to have gone twice: who forgot DESTDIR removed nothing
DESTDIR="$work/stage" cmake -DMANIFEST="$build/install_manifest.txt" -P "$root/cmake/uninstall.cmake" 2>&1 |
    grep -q 'removed 0 of [0-9]* files' || {
    echo "install: uninstalling twice does not say that nothing was there" >&2
    exit 1
}
echo "install: header, libraries, pkg-config, CMake package and examples of version $version work"
