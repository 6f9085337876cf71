#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs the Debian or Ubuntu packages that building moeflux needs and this machine lacks.
# `--dev` adds what .ci/run needs, `--test` a Vulkan device in software for the GPU's tests. `--arm`
# is for `make test-arm`: a cross compiler, arm64 libraries (dpkg learns of that architecture), qemu.
# NO_INSTALL=1: only lists them, and fails if there are any. Those for GPUs may be missing: without
# libvulkan-dev moeflux is built without GPUs, without a device their tests are skipped.
# Needs nothing itself but a POSIX shell, dpkg and apt-get.
set -eu

packages="build-essential cmake ninja-build pkg-config libpcre2-dev libutf8proc-dev liburing-dev libedit-dev libxxhash-dev libmicrohttpd-dev libsystemd-dev libzstd-dev zlib1g-dev libcurl4-openssl-dev libssl-dev curl"
arm="gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static libpcre2-dev:arm64 libutf8proc-dev:arm64 liburing-dev:arm64 libedit-dev:arm64 libxxhash-dev:arm64"
optional="libvulkan-dev"
case "${1:-}" in
"") ;;
--test) optional="$optional mesa-vulkan-drivers" ;;
--arm)
    packages="cmake ninja-build pkg-config $arm"
    optional=""
    ;;
--dev)
    packages="$packages clang clang-format-14 clang-tidy libclang-rt-14-dev llvm"
    packages="$packages $arm"
    packages="$packages libvulkan-dev mesa-vulkan-drivers vulkan-validationlayers spirv-cross python3-venv chromium cmark-gfm"
    packages="$packages lintian debootstrap abigail-tools ccache"
    optional=""
    ;;
-h | --help)
    echo "Usage: sh tools/setup.sh [--arm | --dev | --test]"
    echo "Installs the Debian or Ubuntu packages that building moeflux needs and this machine lacks."
    echo "--dev adds what .ci/run needs, --test a Vulkan device in software for the GPU's tests;"
    echo "--arm is for make test-arm: a cross compiler, arm64 libraries, qemu."
    echo "With NO_INSTALL=1 it only lists them."
    exit 0
    ;;
*)
    echo "setup: '$1' is not an option; there are --arm, --dev, --test and --help" >&2
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
    echo "setup: and the development files of PCRE2, utf8proc, liburing, libedit, xxHash, libmicrohttpd, libsystemd, libzstd, zlib, libcurl and OpenSSL" >&2
    exit 1
fi

# missing_of PACKAGES...: those of them that are not installed.
missing_of() {
    for package in "$@"; do
        # pkg-config became a transitional package of pkgconf; either will do, as will any provider.
        state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
        [ "$state" = "installed" ] || printf ' %s' "$package"
    done
}
# shellcheck disable=SC2086 # lists of words
missing=$(missing_of $packages) missing_optional=$(missing_of $optional)
[ -z "$missing$missing_optional" ] && exit 0

if [ "${NO_INSTALL:-}" = "1" ]; then
    [ -z "$missing_optional" ] || echo "setup: for GPUs these packages are missing:$missing_optional" >&2
    [ -z "$missing" ] && exit 0
    echo "setup: these packages are missing:$missing" >&2
    echo "setup: NO_INSTALL=1 is set, so nothing was installed" >&2
    exit 1
fi

as_root=""
if [ "$(id -u)" != "0" ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "setup: these packages are missing, and there is no sudo; as root, please type:" >&2
        echo "    apt-get install$missing$missing_optional" >&2
        [ -z "$missing" ] && exit 0
        exit 1
    fi
    as_root="sudo"
fi

# install PACKAGES...
install() {
    $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null
}

case $missing in
*:arm64*)
    if ! dpkg --print-foreign-architectures | grep -qx arm64; then
        echo "setup: dpkg --add-architecture arm64"
        $as_root dpkg --add-architecture arm64
    fi
    ;;
esac
echo "setup: installing${as_root:+ (with sudo)}:$missing$missing_optional"
$as_root apt-get update -qq || echo "setup: apt-get update failed; trying with the lists there are" >&2
# shellcheck disable=SC2086 # lists of words
if [ -n "$missing" ] && ! install $missing; then
    echo "setup: could not install:$missing" >&2
    exit 1
fi
# shellcheck disable=SC2086
if [ -n "$missing_optional" ] && ! install $missing_optional; then
    echo "setup: could not install, and goes on without:$missing_optional" >&2
fi
echo "setup: done"
