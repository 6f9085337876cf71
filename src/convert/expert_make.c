/* SPDX-License-Identifier: MIT */
/* One expert of the source becomes one of another form: its matrices one by one, row by row. */
#include "convert/experts.h"

#include <string.h>

/* What lies behind a part up to the next is zero. */
static void zero_gap(const mf_run *run, uint32_t part, unsigned char *out)
{
    const uint64_t end = run->part_at[part] + run->part_bytes[part];
    const uint64_t next =
        part + 1 < MF_MAX_EXPERT_PARTS ? run->part_at[part + 1] : run->padded_bytes;
    memset(out + end, 0, (size_t)(next - end));
}

static void copy_matrix(const mf_run *run, uint32_t matrix, const unsigned char *in,
                        unsigned char *out)
{
    for (uint32_t i = 0; i < MF_MAX_WEIGHT_ARRAYS; i++) {
        const uint32_t p = matrix * MF_MAX_WEIGHT_ARRAYS + i;
        memcpy(out + run->part_at[p], in + run->part_at[p], (size_t)run->part_bytes[p]);
        zero_gap(run, p, out);
    }
}

static mf_status fail_row(const mf_convert_make *m, uint32_t row, mf_error *error)
{
    static const char *const names[] = {"gate", "up", "down"};
    return mf_fail(error, MF_ERR_UNSUPPORTED,
                   "%s: expert %u of layer %u: row %u of %s has a value that is not finite or "
                   "above 65504, and cannot be quantised",
                   m->c->source.source->path, m->expert, m->layer->layer, row, names[m->matrix]);
}

mf_status mf_convert_make_matrix(const mf_convert_make *m, const unsigned char *in,
                                 unsigned char *out, float *row, mf_error *error)
{
    const mf_run *from = mf_target_source(m->layer, m->expert), *to = &m->layer->forms[m->form];
    const mf_weight_shape *s = &from->shapes[m->matrix], *t = &to->shapes[m->matrix];
    const uint32_t first = m->matrix * MF_MAX_WEIGHT_ARRAYS;
    const mf_quantise_form form = {t->bits, t->group};
    const unsigned char *arrays[MF_MAX_WEIGHT_ARRAYS];
    if (memcmp(s, t, sizeof *s) == 0) {
        copy_matrix(to, m->matrix, in, out);
        return MF_OK;
    }
    for (uint32_t i = 0; i < MF_MAX_WEIGHT_ARRAYS; i++)
        arrays[i] = in + from->part_at[first + i];
    for (uint32_t r = 0; r < s->n_rows; r++) {
        mf_quantise_job job = {.row = row, .importance = m->importance, .n_cols = s->n_cols};
        job.values = out + to->part_at[first] + r * mf_weight_array_row_bytes(t, MF_WEIGHT_VALUES);
        job.scales =
            out + to->part_at[first + 1] + r * mf_weight_array_row_bytes(t, MF_WEIGHT_SCALES);
        job.biases =
            out + to->part_at[first + 2] + r * mf_weight_array_row_bytes(t, MF_WEIGHT_BIASES);
        mf_weight_format_of(s)->decode_row(s, arrays, r, row);
        if (!mf_quantise_row(&form, &job, m->loss))
            return fail_row(m, r, error);
    }
    for (uint32_t i = 0; i < MF_MAX_WEIGHT_ARRAYS; i++)
        zero_gap(to, first + i, out);
    return MF_OK;
}
