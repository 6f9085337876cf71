/* SPDX-License-Identifier: MIT */
/* Traces of routing from anywhere; as they are, and once more with their checksums put right. What
 * is taken is replayed. */
#include "base/checksum.h"
#include "routing/routing_format.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* Small enough to be gone through. */
#define MAX_KEYS (1u << 16)

static void replay(const mf_routing *t)
{
    mf_error error = {0};
    mf_replay_options options;
    mf_replay_result result;
    if ((uint64_t)t->head.n_layers * t->head.n_experts > MAX_KEYS || t->n_choices > MAX_KEYS)
        return;
    mf_replay_options_default(&options);
    options.n_slots = t->head.k + 3;
    mf_status status = mf_routing_replay(t, &options, &result, &error);
    if (status == MF_OK && result.n_tokens != t->n_rows)
        abort();
}

static void read_it(const uint8_t *data, size_t n_bytes)
{
    mf_error error = {0};
    mf_routing *t = NULL;
    if (mf_routing_read(NULL, data, n_bytes, "input", &t, &error) != MF_OK) {
        if (error.message[0] == '\0' || t != NULL)
            abort();
        return;
    }
    for (size_t i = 0; i < t->n_choices; i++)
        if (t->ids[i] >= t->head.n_experts)
            abort();
    replay(t);
    mf_routing_release(&t);
}

/* The table of sizes, if the header says that there is one and it is there; where it ends. */
static size_t put_table_right(uint8_t *data, size_t n_bytes)
{
    const size_t begin = MF_ROUTING_HEADER_BYTES;
    uint32_t n_layers, n_experts, n_sizes;
    memcpy(&n_layers, data + 16, 4);
    memcpy(&n_experts, data + 20, 4);
    memcpy(&n_sizes, data + 88, 4);
    const uint64_t n_keys = (uint64_t)n_layers * n_experts;
    if (data[8] != MF_ROUTING_VERSION_SIZES || n_keys > n_bytes || n_sizes > MF_ROUTING_MAX_SIZES ||
        16 * n_sizes + n_keys + 8 > n_bytes - begin)
        return begin;
    const size_t n_summed = 16 * n_sizes + (size_t)n_keys;
    const uint64_t sum = mf_checksum_of(data + begin, n_summed, 0);
    memcpy(data + begin + n_summed, &sum, 8);
    return begin + n_summed + 8;
}

static void put_right(uint8_t *data, size_t n_bytes)
{
    uint64_t sum, number = 0;
    if (n_bytes < MF_ROUTING_HEADER_BYTES)
        return;
    const uint8_t version = data[8] % 2 == 0 ? MF_ROUTING_VERSION_SIZES : MF_ROUTING_VERSION;
    memcpy(data, "MFROUTE\n\1\0\0\0\200\0\0\0", 16);
    data[8] = version;
    sum = mf_checksum_of(data, 120, 0);
    memcpy(data + 120, &sum, 8);
    for (size_t at = put_table_right(data, n_bytes); n_bytes - at >= 16;) {
        uint32_t n;
        memcpy(&n, data + at, 4);
        if (n > n_bytes - at - 16)
            return;
        sum = mf_checksum_of(data + at, (size_t)n + 8, ++number);
        memcpy(data + at + 8 + n, &sum, 8);
        at += (size_t)n + 16;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes > 1 << 16)
        return 0;
    read_it(data, n_bytes);
    uint8_t *copy = malloc(n_bytes + 1);
    if (copy == NULL)
        abort();
    if (n_bytes > 0)
        memcpy(copy, data, n_bytes);
    put_right(copy, n_bytes);
    read_it(copy, n_bytes);
    free(copy);
    return 0;
}
