#!/bin/sh
# SPDX-License-Identifier: MIT
# test_arm.sh [--few]: builds for 64-bit ARM and runs the tests under qemu-user: all kinds of them
# that are programs of their own. Those of the kernels run on each of the processors that have other
# kernels. --few: of the models' tests only some golden cases, of the texts' those with goldens and what is
# short, in minutes.
set -u
cd "$(dirname "$0")/.."
build=build-arm64
labels='unit|kernels|text'
goldens="hf_tied_f32 next_mlx_4bit mlx_4bit k2_fp8 v2_groups_f16 gguf_35_q4_k gguf_v3_q8_0 gpt_oss_mxfp4"
targets="tests_unit tests_kernels tests_text test_goldens"
# What the flags of each file of kernels do not rule out, whole models find: on the older processors too.
older="hf_tied_f32 v2_groups_f16 k2_fp8 gguf_v3_q8_0"
kernels='test_row_kernels'
slow='test_(wide_matrices|jinja|spm|tiktoken|text_limits|sampler_bounds)'
if [ "${1:-}" != "--few" ]; then
    kernels='.*' slow=none older=""
    labels="$labels|backend|model|format|grammar|state"
    goldens=""
    targets="tests_unit tests_kernels tests_text tests_backend tests_model tests_format tests_grammar tests_state"
fi

# shellcheck disable=SC2086 # a list of words
cmake --preset arm64 -DMF_WERROR=ON "-DCMAKE_C_FLAGS=-ffile-prefix-map=$PWD=." >$build.log 2>&1 &&
    cmake --build $build --target $targets >>$build.log 2>&1 || {
    grep -E -A6 'error|warning|FAILED' $build.log | head -60
    exit 1
}

failed=0
# on CPU CTEST_ARGUMENTS...
on() {
    cpu=$1
    shift
    echo "== $cpu"
    QEMU_CPU=$cpu sh tools/run_tests.sh $build "$@" || failed=1
}
on max --label-regex "^($labels)\$" --exclude-regex "^$slow\$"
for cpu in cortex-a72 neoverse-n1; do
    on $cpu --label-regex '^kernels$' --tests-regex "^$kernels\$"
    QEMU_CPU=$cpu qemu-aarch64-static $build/tests/unit/test_memory_limits || failed=1
    if [ -n "$older" ]; then
        # shellcheck disable=SC2086
        QEMU_CPU=$cpu qemu-aarch64-static $build/tests/model/test_goldens $older || failed=1
    fi
done
if [ -n "$goldens" ]; then
    # shellcheck disable=SC2086
    qemu-aarch64-static $build/tests/model/test_goldens $goldens || failed=1
fi
exit $failed
