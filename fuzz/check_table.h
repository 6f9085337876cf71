/* SPDX-License-Identifier: MIT */
/* What a complete table of tensors promises, whatever file it was read from. */
#ifndef MF_FUZZ_CHECK_TABLE_H
#define MF_FUZZ_CHECK_TABLE_H

#include "format/tensors.h"

#include <stdlib.h>

static inline void check_table(const mf_tensor_table *table, uint64_t file_bytes)
{
    for (size_t i = 0; i < table->n_tensors; i++) {
        const mf_tensor *t = &table->tensors[i];
        if (t->offset > file_bytes || t->n_bytes > file_bytes - t->offset ||
            mf_tensor_find(table, t->name) == NULL)
            abort();
    }
}

#endif
