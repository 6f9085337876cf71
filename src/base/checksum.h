/* SPDX-License-Identifier: MIT */
/* Checksums and fingerprints of bytes: XXH3 with 64 and with 128 bits. Against accidents, not
 * against forgery. */
#ifndef MF_BASE_CHECKSUM_H
#define MF_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Bytes in any number of pieces; opaque. */
typedef struct mf_checksum {
    _Alignas(64) unsigned char state[640];
} mf_checksum;

void mf_checksum_begin(mf_checksum *c, uint64_t seed);
void mf_checksum_add(mf_checksum *c, const void *data, size_t n_bytes);
uint64_t mf_checksum_end(const mf_checksum *c);
uint64_t mf_checksum_of(const void *data, size_t n_bytes, uint64_t seed);

#define MF_FINGERPRINT_BYTES 16

void mf_fingerprint_begin(mf_checksum *c);
void mf_fingerprint_add(mf_checksum *c, const void *data, size_t n_bytes);
void mf_fingerprint_end(const mf_checksum *c, uint8_t out[MF_FINGERPRINT_BYTES]);

#endif
