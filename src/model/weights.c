/* SPDX-License-Identifier: MIT */
/* The memory of bound weights. */
#include "model/weights.h"

void mf_expert_tables_free(mf_expert_tables *t, const mf_allocator *a)
{
    mf_free(a, t->parts, t->parts_bytes);
    mf_free(a, t->each_file, t->each_count * sizeof *t->each_file);
    mf_free(a, t->each_offset, t->each_count * sizeof *t->each_offset);
    *t = (mf_expert_tables){0};
}
