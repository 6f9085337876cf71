/* SPDX-License-Identifier: MIT */
/* What a complete table of tensors promises, whatever file it was read from. */
#ifndef MF_FUZZ_CHECK_TABLE_H
#define MF_FUZZ_CHECK_TABLE_H

#include "format/tensors.h"

#include <stdlib.h>

/* Bits that shape and dtype mean; 0 for shapes that are not kept. */
static inline uint64_t bits_of(const mf_tensor *t)
{
    mf_tensor_type type;
    uint32_t eighths;
    if (!mf_tensor_type_parse(t->type_name, &type, &eighths) || type != t->type)
        abort();
    uint64_t n_bits = t->n_dims <= MF_MAX_DIMS ? eighths : 0;
    for (uint32_t d = 0; d < t->n_dims && n_bits != 0; d++)
        n_bits *= t->shape[d];
    return n_bits;
}

static inline void check_table(const mf_tensor_table *table, uint64_t file_bytes)
{
    for (size_t i = 0; i < table->n_tensors; i++) {
        const mf_tensor *t = &table->tensors[i];
        if (t->offset > file_bytes || t->n_bytes > file_bytes - t->offset ||
            mf_tensor_find(table, t->name) == NULL)
            abort();
        if (t->n_dims <= MF_MAX_DIMS && bits_of(t) != 8 * t->n_bytes)
            abort();
    }
}

#endif
