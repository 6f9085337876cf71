# SPDX-License-Identifier: MIT
# What is waited for while a model comes is asked for before everything else (test_hub_order.c). Each
# run has a model of its own name: what the one before it gave up may still be on its way to the hub.
. ./lib_hub.sh
: "${HUB_ORDER:=$SOURCE/build/tests/hub/test_hub_order}"
[ -x "$HUB_ORDER" ] || skip "test_hub_order is not built"
start_hub
repo=$scratch/repo
mkdir "$repo"
echo '{"model_type": "qwen3_moe"}' >"$repo/config.json"
# one tensor of 72 MiB less what stands before it
n_bytes=$((72 * 1048576 - 88))
{
    printf '\120\0\0\0\0\0\0\0%-80s' "{\"x\": {\"dtype\": \"U8\", \"shape\": [$n_bytes], \"data_offsets\": [0, $n_bytes]}}"
    head -c $n_bytes /dev/urandom
} >"$repo/model.safetensors"
publish org/m1 "$repo"
publish org/m3 "$repo"

for n_connections in 1 3; do
    last="test_hub_order with $n_connections connections"
    forget_cache
    "$HUB_ORDER" "org/m$n_connections" "$repo/model.safetensors" "$log" $n_connections "org/m$((4 - n_connections))" >"$out" 2>"$err"
    code=$?
    expect_code 0
done
finish
