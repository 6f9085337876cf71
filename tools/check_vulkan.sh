#!/bin/sh
# SPDX-License-Identifier: MIT
# check_vulkan.sh BUILD_DIR: runs the GPU's tests under Vulkan's validation layers, with
# synchronisation validation. Fails if a layer says anything, if a test fails, or if one is skipped:
# there is no machine that lacks a device in software (mesa-vulkan-drivers). Left out are those of what
# shaders compute, in operations that the others call too.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
layer=VK_LAYER_KHRONOS_validation

ls /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json >/dev/null 2>&1 || {
    echo "vulkan: the validation layers are missing (vulkan-validationlayers)" >&2
    exit 1
}
export VK_INSTANCE_LAYERS=$layer
export VK_LAYER_ENABLES=VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT
# Those of make test, and of the long ones what records, submits and waits in ways of its own.
long='test_vulkan_(attention|fused|mixture|levels|memory|dispatches_long)|test_model_(mixture|relay)'
{
    ctest --test-dir "$build" --label-regex '^vulkan$' --label-exclude '^long$' \
        --exclude-regex '^test_vulkan_(products|forms)$' --verbose </dev/null &&
        ctest --test-dir "$build" --tests-regex "^($long)\$" --verbose </dev/null
} >"$log" 2>&1 || {
    grep -E 'Failed|failed|\*\*\*' "$log" | head -20 >&2
    echo "vulkan: a test failed under the validation layers" >&2
    exit 1
}
if grep -qE '\*\*\*Skipped|No tests were found' "$log"; then
    grep -E 'Skipped|skipped' "$log" >&2
    echo "vulkan: tests were skipped" >&2
    exit 1
fi
if grep -qE 'Validation (Error|Warning|Performance)|VUID-|SYNC-HAZARD|UNASSIGNED-' "$log"; then
    grep -E -m 10 'Validation (Error|Warning|Performance)|VUID-|SYNC-HAZARD|UNASSIGNED-' "$log" >&2
    echo "vulkan: the validation layers have something to say" >&2
    exit 1
fi
grep -E 'tests passed' "$log" | sed 's/^/vulkan, validated: /'
