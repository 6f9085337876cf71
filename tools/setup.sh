#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs the Debian or Ubuntu packages that building moeflux needs and this machine lacks.
# `--dev` adds what .ci/run needs. NO_INSTALL=1: only lists them, and fails if there are any.
# Needs nothing itself but a POSIX shell, dpkg and apt-get.
set -eu

packages="build-essential cmake ninja-build pkg-config libpcre2-dev libutf8proc-dev liburing-dev libedit-dev libxxhash-dev"
case "${1:-}" in
"") ;;
--dev) packages="$packages clang clang-format-14 clang-tidy libclang-rt-14-dev" ;;
-h | --help)
    echo "Usage: sh tools/setup.sh [--dev]"
    echo "Installs the Debian or Ubuntu packages that building moeflux needs and this machine lacks."
    echo "--dev adds what .ci/run needs. With NO_INSTALL=1 it only lists them."
    exit 0
    ;;
*)
    echo "setup: '$1' is not an option; there is --dev, and --help" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null 2>&1; then
    missing=""
    for tool in cc cmake ninja pkg-config; do
        command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
    done
    [ -z "$missing" ] && exit 0
    echo "setup: this is no Debian or Ubuntu; please install:$missing" >&2
    echo "setup: and the development files of PCRE2, utf8proc, liburing, libedit and xxHash" >&2
    exit 1
fi

missing=""
for package in $packages; do
    # pkg-config became a transitional package of pkgconf; either will do, as will any provider.
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = "installed" ] || missing="$missing $package"
done
[ -z "$missing" ] && exit 0

if [ "${NO_INSTALL:-}" = "1" ]; then
    echo "setup: these packages are missing:$missing" >&2
    echo "setup: NO_INSTALL=1 is set, so nothing was installed" >&2
    exit 1
fi

as_root=""
if [ "$(id -u)" != "0" ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "setup: these packages are missing, and there is no sudo; as root, please type:" >&2
        echo "    apt-get install$missing" >&2
        exit 1
    fi
    as_root="sudo"
fi

echo "setup: installing${as_root:+ (with sudo)}:$missing"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq || echo "setup: apt-get update failed; trying with the lists there are" >&2
# shellcheck disable=SC2086 # a list of words
$as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends $missing </dev/null >/dev/null || {
    echo "setup: could not install:$missing" >&2
    exit 1
}
echo "setup: done"
