# SPDX-License-Identifier: MIT
# moeflux devices, the names that --device takes, and what is said of those that are not there. Also
# where there is no Vulkan loader and no driver; "auto" is never a device in software.
. ./lib.sh
model=$SOURCE/tests/model/data/mlx_4bit
has_no_auto() {
    unset MOEFLUX_DEVICE
    "$@"
    export MOEFLUX_DEVICE=cpu
}

run devices
expect_code 0
expect_empty "$err"
expect_glob "$out" "cpu *cpu * threads, *GiB free*"
cp "$out" "$scratch/list"
n=$(grep -c '^vulkan:' "$scratch/list")
run devices --json
expect_code 0
expect_lines "$out" 1
expect_glob "$out" '{"devices": [[]{"id": "cpu", "kind": "cpu", "name": "*}[]], "no_gpu": "*"}'
expect_true [ "$(grep -o '"id": "vulkan:[0-9]*"' "$out" | wc -l)" = "$n" ]
expect_true [ "$(grep -o '"matrix_units": ' "$out" | wc -l)" = $((n + 1)) ]
expect_true [ "$(grep -o '"tiers": "scalar' "$out" | wc -l)" = 1 ]

# names that are none, and one that is not there
for name in vulkan: vulkan:x vulkan:16 Vulkan GPU ""; do
    run info "$model" --device "$name"
    expect_error "device '$name' is not known; there are: auto, cpu, vulkan, vulkan:N"
done
run info "$model" --device vulkan:15
if [ "$n" -gt 0 ]; then
    expect_error "device 'vulkan:15' is not there; there are: auto, cpu, vulkan:0 (*)*"
else
    expect_error "device 'vulkan:15': *there are: auto, cpu"
fi
run run "$model" --raw -p hi --expert-device vulkan:15
expect_error "expert_device 'vulkan:15'*there are: auto, cpu*"

run run "$model" --raw -p hi --expert-device hybird
expect_error "expert_device 'hybird' is not known; there are: auto, cpu, hybrid, hybrid:N, hybrid:auto, vulkan, vulkan:N"
run info "$model" --device vulkan --expert-device hybrid:4
expect_error "expert_device 'hybrid:4': 3 layers have experts, which is the most"

# experts on the CPU, those of long runs on the device; where that is the CPU, all on it
run info "$model" --device cpu --expert-device hybrid --json
expect_code 0
expect_glob "$out" '*"device": "cpu", "expert_device": "cpu"*'
if [ "$n" -gt 0 ]; then
    run info "$model" --device vulkan --expert-device hybrid --json
    expect_code 0
    expect_glob "$out" '*"device": "vulkan:0", "expert_device": "hybrid"*'
    run info "$model" --device vulkan --expert-device hybrid
    expect_glob "$out" "*device  * vulkan:0, experts on cpu, a prompt's on the device*"
    run info "$model" --device vulkan --expert-device hybrid:2
    expect_glob "$out" "*device  * vulkan:0, experts on cpu, a prompt's and 2 layers' on the device*"
    run info "$model" --device vulkan --expert-device hybrid:auto --vram 2G --json
    expect_glob "$out" '*"device": "vulkan:0", "expert_device": "hybrid:3"*'
    # all layers' experts on the device: its text; of three layers: a text (cli_devices_long)
    set -- run "$demo" --raw -p "Once upon a time" -n 8 --temp 0 --quiet --device vulkan
    run "$@"
    expect_code 0
    cp "$out" "$scratch/there"
    run "$@" --expert-device hybrid:8
    expect_code 0
    expect_true cmp "$out" "$scratch/there"
    if [ -n "${MF_TEST_LONG:-}" ]; then
        run "$@" --expert-device hybrid:3
        expect_code 0
        expect_true [ -s "$out" ]
    fi
fi

# the environment names the default, the option comes first
MOEFLUX_DEVICE=abacus
run info "$model"
expect_error "device 'abacus' is not known*"
run info "$model" --device cpu --json
expect_code 0
expect_glob "$out" '*"device": "cpu", "expert_device": "cpu", "device_why": ""*'

# auto, by name and by itself: a discrete GPU or the CPU, with the reason
has_no_auto run info "$model" --json
cp "$out" "$scratch/auto"
run info "$model" --json --device auto
expect_code 0
expect_true [ "$(json "$out" device)" = "$(json "$scratch/auto" device)" ]
expect_glob "$out" '*"device_why": "?*"*'
if ! grep -q '^vulkan:[0-9]* *discrete' "$scratch/list"; then
    expect_glob "$out" '*"device": "cpu"*'
    run info "$model" --device auto
    expect_glob "$out" "*device  * cpu (auto: no *GPU is there)*"
    run run "$model" --raw -p hi -n 1 --temp 0 --device auto --stats --quiet
    expect_code 1 # it has no tokenizer
    has_model "$demo" && run run "$demo" -p hi -n 1 --temp 0 --device auto --stats --quiet
    has_model "$demo" && expect_glob "$err" "*device  * cpu (auto: no *GPU is there)*"
fi
# a budget that leaves a GPU's driver no room is the CPU's, on any machine
run info "$model" --json
run info "$model" --json --device auto --ram "$(json "$out" floor_bytes)"
expect_code 0
expect_glob "$out" '*"device": "cpu"*'

# a loader without drivers, and no loader
export VK_DRIVER_FILES=/no/such/driver.json VK_ICD_FILENAMES=/no/such/driver.json
run devices
expect_code 0
expect_glob "$out" "cpu *
no GPU: *no Vulkan*"
unset VK_DRIVER_FILES VK_ICD_FILENAMES
mkdir "$scratch/none"
for name in libvulkan.so.1 libvulkan.so libvulkan.1.dylib libMoltenVK.dylib; do
    echo "no library" >"$scratch/none/$name" # found first
done
export LD_LIBRARY_PATH="$scratch/none${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
run devices
expect_code 0
expect_glob "$out" "cpu *
no GPU: *no Vulkan*"
expect_lines "$out" 2
run info "$model" --device vulkan
expect_error "device 'vulkan': *no Vulkan*; there are: auto, cpu"
run info "$model" --device auto
expect_code 0
finish
