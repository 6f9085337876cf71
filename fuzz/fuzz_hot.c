/* SPDX-License-Identifier: MIT */
/* Lists of experts from anywhere; as they are, and once more with what is checked first put right.
 */
#include "state/hot_file.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define N_LAYERS 4u
#define N_EXPERTS 16u
#define N_KEYS (N_LAYERS * N_EXPERTS)

static void read_it(const uint8_t *data, size_t n_bytes, const mf_hot_shape *shape)
{
    float *shares = malloc(N_KEYS * sizeof *shares);
    uint32_t *keys = malloc(N_KEYS * sizeof *keys);
    mf_hot_list list = {shares, keys, 0};
    mf_error error = {0};
    if (shares == NULL || keys == NULL)
        abort();
    if (mf_hot_parse(data, n_bytes, "input", shape, &list, &error) != MF_OK) {
        if (error.message[0] == '\0')
            abort();
    } else {
        for (uint32_t i = 0; i < list.n; i++)
            if (keys[i] >= N_KEYS || !(shares[keys[i]] > 0) || shares[keys[i]] > 1)
                abort();
    }
    free(shares);
    free(keys);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    mf_hot_shape shape = {{0}, N_LAYERS, N_EXPERTS};
    uint64_t sum;
    if (n_bytes > 1 << 16)
        return 0;
    read_it(data, n_bytes, &shape);
    uint8_t *copy = malloc(n_bytes + 1);
    if (copy == NULL)
        abort();
    if (n_bytes > 0)
        memcpy(copy, data, n_bytes);
    if (n_bytes >= 72) {
        const uint32_t n = (uint32_t)((n_bytes - 72) / 8), layers = N_LAYERS, experts = N_EXPERTS;
        static const unsigned char begin[16] = {'M', 'F', 'H', 'O', 'T', '\n', 0,
                                                0,   1,   0,   0,   0,   64};
        memcpy(copy, begin, sizeof begin);
        memcpy(shape.fingerprint, copy + 16, sizeof shape.fingerprint);
        memcpy(copy + 32, &layers, 4);
        memcpy(copy + 36, &experts, 4);
        memcpy(copy + 40, &n, 4);
        n_bytes = 72 + (size_t)n * 8;
        sum = mf_checksum_of(copy, n_bytes - 8, 0);
        memcpy(copy + n_bytes - 8, &sum, 8);
    }
    read_it(copy, n_bytes, &shape);
    free(copy);
    return 0;
}
