#!/bin/sh
# SPDX-License-Identifier: MIT
# The public header, and each of its parts, compiles alone, as C99, C17 and C++, without a warning, by gcc and clang;
# moeflux.hpp as C++17 and C++20.
set -eu
cd "${1:-$(dirname "$0")/..}"

header=include/moeflux/moeflux.h
n=0
for compiler in "gcc -x c" "clang -x c" "g++ -x c++" "clang++ -x c++"; do
    command -v "${compiler%% *}" >/dev/null 2>&1 || {
        echo "header: ${compiler%% *} is not installed" >&2
        exit 1
    }
    case $compiler in
    *c++) standards="c++11 c++20" ;;
    *) standards="c99 c17" ;;
    esac
    for standard in $standards; do
        for header in include/moeflux/*.h; do
            printf '#include <%s>\n' "${header#include/}" |
                $compiler -std=$standard -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only -
        done
        n=$((n + 1))
    done
done
for compiler in g++ clang++; do
    for standard in c++17 c++20; do
        printf '#include <moeflux/moeflux.hpp>\n' |
            $compiler -x c++ -std=$standard -pedantic -Wall -Wextra -Wshadow -Werror -Iinclude -fsyntax-only -
    done
done
# What moeflux.hpp wants is said by itself, not by errors within it.
for compiler in g++ clang++; do
    for wants in "C++17:-std=c++14" "exceptions:-std=c++17 -fno-exceptions"; do
        # shellcheck disable=SC2086 # flags are words
        said=$(printf '#include <moeflux/moeflux.hpp>\n' |
            $compiler -x c++ ${wants#*:} -Iinclude -fsyntax-only - 2>&1 | grep -c 'error:') || true
        # shellcheck disable=SC2086
        printf '#include <moeflux/moeflux.hpp>\n' | $compiler -x c++ ${wants#*:} -Iinclude -fsyntax-only - 2>&1 |
            grep -q "error:.*moeflux.hpp.*${wants%%:*}" && [ "$said" -eq 1 ] || {
            echo "header: $compiler ${wants#*:}: $said errors, expected one that names ${wants%%:*}" >&2
            exit 1
        }
    done
done
[ -f include/moeflux/moeflux.h ] && echo "header: compiles alone in $n ways"
