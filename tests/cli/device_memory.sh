# SPDX-License-Identifier: MIT
# A model on a Vulkan device, with the least of its memory, more, and all: one text, the CPU's. The
# least that info names is accepted and kept, and a byte less refused; --ram holds beside it; what
# the driver compiled is kept in the cache folder, and a folder that cannot be had is no error.
. ./lib.sh
has_model "$demo" || skip "models/demo is not there"
run devices
grep -q '^vulkan:' "$out" || skip "$(tail -1 "$out")"
export LP_NUM_THREADS=0 # a device in software computes in the threads that wait for it
device=${MF_TEST_DEVICE:-vulkan}

write() {
    run run "$demo" -p "Once upon a time" -n 8 --temp 0 --ctx 512 --prefill-chunk 16 --quiet --stats=json "$@"
    expect_code 0
}
write --device cpu
cp "$out" "$scratch/text"
expect_true [ "$(json "$err" device_bytes_taken)" = 0 ]

run info "$demo" --device "$device" --ctx 512 --prefill-chunk 16 --json
expect_code 0
least=$(json "$out" device_floor_bytes)
ram=$(json "$out" floor_bytes)
expect_true [ "$least" -gt 0 ]
run run "$demo" -p hi --device "$device" --ctx 512 --prefill-chunk 16 --vram $((least - 1))
expect_error "device_bytes of * are $((least - 1)), below the floor of * MiB ($least bytes)*"
run run "$demo" -p hi --device "$device" --ctx 512 --prefill-chunk 16 --vram 1 # less than it is opened with
expect_error "device_bytes of * are 1, below the floor of * MiB ($least bytes)*"
run info "$demo" --device "$device" --ctx 512 --prefill-chunk 16 --vram $((least - 1))
expect_code 0
expect_glob "$out" "*least --vram *device memory *does not run: the device's memory is below the least --vram"

write --device "$device" --vram "$least" --ram "$ram"
expect_same "$out" "$scratch/text"
expect_true at_most "$(json "$err" device_bytes_taken)" "$least"
expect_true at_most 1 "$(json "$err" device_bytes_taken)"
[ -n "${SANITIZE:-}" ] || expect_true at_most "$(json "$err" peak_rss_bytes)" "$ram"
expect_true [ "$(json "$err" n_slots)" = 4 ]
expect_true [ -n "$(find "$XDG_CACHE_HOME/moeflux" -name 'vulkan-*.pipelines')" ]

# Where nothing is compiled yet each thread that compiles takes memory of the driver's.
XDG_CACHE_HOME=$scratch/many
run info "$demo" --device "$device" --ctx 512 --prefill-chunk 16 --threads 32 --json
expect_code 0
ram=$(json "$out" floor_bytes)
write --device "$device" --ram "$ram" --threads 32
expect_same "$out" "$scratch/text"
[ -n "${SANITIZE:-}" ] || expect_true at_most "$(json "$err" peak_rss_bytes)" "$ram"

XDG_CACHE_HOME=/dev/null/no/such
write --device "$device" --vram $((least + 8000000))
expect_same "$out" "$scratch/text"
expect_true [ "$(json "$err" n_slots)" -gt 4 ]
expect_true [ "$(json "$err" n_slots)" -lt 256 ]
expect_true at_most "$(json "$err" device_bytes_taken)" $((least + 8000000))

XDG_CACHE_HOME=$scratch/unused
write --device "$device" --no-shader-cache
expect_same "$out" "$scratch/text"
expect_true [ "$(json "$err" n_slots)" = 256 ]
expect_true [ ! -e "$XDG_CACHE_HOME/moeflux" ]

run bench "$SOURCE/tests/model/data/mlx_4bit" --device "$device" --prompt-tokens 8 --gen-tokens 1 --prefill-chunk 16 --warmup 0 \
    --repeat 1 --measure-ms 10 --operations --json --quiet
expect_code 0
expect_true at_most 1 "$(json "$out" dram_bytes_per_s)"
expect_true at_most 1 "$(json "$out" device_bytes_taken)"
expect_glob "$out" '*"prefill_operation_us": {*experts": *}, "decode_operation_us": {*"matmul": *}}'
expect_glob "$out" '*"link_to_bytes_per_s": *"link_from_bytes_per_s": *'
finish
