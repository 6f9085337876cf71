/* SPDX-License-Identifier: MIT */
/* XXH3 from xxHash's header, compiled in: nothing to link, no symbol of it leaves this file. */
#include "base/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(sizeof(XXH3_state_t) <= sizeof(mf_checksum), "mf_checksum is too small");

static XXH3_state_t *state_of(mf_checksum *c)
{
    return (XXH3_state_t *)(void *)c->state;
}

/* Resetting and adding fail for a NULL state alone. */
void mf_checksum_begin(mf_checksum *c, uint64_t seed)
{
    XXH3_INITSTATE(state_of(c));
    (void)XXH3_64bits_reset_withSeed(state_of(c), seed);
}

void mf_checksum_add(mf_checksum *c, const void *data, size_t n_bytes)
{
    (void)XXH3_64bits_update(state_of(c), data, n_bytes);
}

uint64_t mf_checksum_end(const mf_checksum *c)
{
    return XXH3_64bits_digest((const XXH3_state_t *)(const void *)c->state);
}

uint64_t mf_checksum_of(const void *data, size_t n_bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, n_bytes, seed);
}

void mf_fingerprint_begin(mf_checksum *c)
{
    XXH3_INITSTATE(state_of(c));
    (void)XXH3_128bits_reset(state_of(c));
}

void mf_fingerprint_add(mf_checksum *c, const void *data, size_t n_bytes)
{
    (void)XXH3_128bits_update(state_of(c), data, n_bytes);
}

void mf_fingerprint_end(const mf_checksum *c, uint8_t out[MF_FINGERPRINT_BYTES])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical,
                             XXH3_128bits_digest((const XXH3_state_t *)(const void *)c->state));
    for (int i = 0; i < MF_FINGERPRINT_BYTES; i++)
        out[i] = canonical.digest[i];
}
