/* SPDX-License-Identifier: MIT */
/* What the loaders of tokenizer.json's models share: vocabularies of keys. */
#ifndef MF_TEXT_BPE_LOAD_H
#define MF_TEXT_BPE_LOAD_H

#include "text/bpe.h"

typedef struct mf_bpe_sizes {
    size_t n_entries, n_ids, n_bytes;
} mf_bpe_sizes;

/* Adds a key's bytes, after a look at its length. */
mf_status mf_bpe_measure_key(const mf_json *json, yyjson_val *key, mf_bpe_sizes *sizes,
                             mf_error *error);
/* Room for a vocabulary of these sizes and the file's added tokens. Errors: MF_ERR_FORMAT (none,
 * or too many), MF_ERR_NO_MEMORY. */
mf_status mf_bpe_reserve_json(mf_bpe *bpe, const mf_json *json, mf_bpe_sizes *sizes,
                              mf_error *error);
/* Takes a key as token `id`, below n_ids; alphabet: of bytes, NULL where keys are characters. */
mf_status mf_bpe_take_key(mf_bpe *bpe, const mf_json *json, const int16_t *alphabet,
                          yyjson_val *key, uint32_t id, mf_error *error);
/* Bytes that nothing would decode. */
mf_status mf_bpe_fail_fallback(const mf_json *json, mf_error *error);

#endif
