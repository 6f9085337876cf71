/* SPDX-License-Identifier: MIT */
/* Finding values that are no numbers, and where they come from. */
#include "forward/finite.h"

#include "forward/forward.h"

#include <math.h>
#include <string.h>

#define LANES ((size_t)16)

float mf_finite_bound(const float *values, size_t n)
{
    const uint32_t exponent = 0x7F800000u;
    uint32_t seen[LANES] = {0};
    float highest[LANES];
    for (size_t j = 0; j < LANES; j++)
        highest[j] = values[0];
    for (size_t i = 0; i < n; i += LANES) {
        const size_t n_lanes = n - i < LANES ? n - i : LANES;
        float x[LANES];
        uint32_t bits[LANES];
        for (size_t j = 0; j < LANES; j++)
            x[j] = values[j < n_lanes ? i + j : i];
        memcpy(bits, x, sizeof bits);
        for (size_t j = 0; j < LANES; j++) {
            seen[j] |= (bits[j] & exponent) == exponent ? 1u : 0u;
            highest[j] = x[j] > highest[j] ? x[j] : highest[j];
        }
    }
    for (size_t j = 1; j < LANES; j++) {
        seen[0] |= seen[j];
        highest[0] = highest[j] > highest[0] ? highest[j] : highest[0];
    }
    return seen[0] != 0 ? NAN : highest[0];
}

bool mf_all_finite(const float *values, size_t n)
{
    return n == 0 || !isnan(mf_finite_bound(values, n));
}

/* A mf_batch_watch's ctx. */
typedef struct search {
    const float *row; /* [hidden_size], within what the trace is given */
    size_t hidden_size;
    bool found;
    uint32_t layer;
} search;

static void look(void *ctx, uint32_t layer, const float *hidden)
{
    search *s = ctx;
    (void)hidden; /* s->row is part of it */
    if (s->found || mf_all_finite(s->row, s->hidden_size))
        return;
    s->found = true;
    s->layer = layer;
}

static uint64_t position_of(const mf_batch *batch, uint32_t row)
{
    const mf_batch_part *part = batch->parts;
    for (; row >= part->n_rows; part++)
        row -= part->n_rows;
    return part->position + row;
}

mf_status mf_fail_not_finite(mf_runner *r, const mf_batch *batch, uint32_t row, mf_error *error)
{
    unsigned long long position = position_of(batch, row);
    size_t n_bytes = (size_t)batch->n_rows * r->h.hidden_size * sizeof(float);
    float *rows = mf_alloc(&r->allocator, n_bytes);
    if (rows == NULL)
        return mf_fail(error, MF_ERR_FORMAT, "the logits of token %llu are not finite numbers",
                       position);
    search s = {.row = rows + (size_t)row * r->h.hidden_size, .hidden_size = r->h.hidden_size};
    const mf_batch_watch watch = {.ctx = &s, .trace = look, .trace_rows = rows};
    mf_batch again = *batch;
    again.watch = &watch;
    mf_status status = mf_forward_layers(r, &again, NULL);
    mf_free(&r->allocator, rows, n_bytes);
    if (status == MF_OK && s.found)
        return mf_fail(error, MF_ERR_FORMAT,
                       "the logits of token %llu are not finite numbers; the first that is none "
                       "comes out of layer %u: a weight there, or of the embedding if it is the "
                       "first, is damaged or too large",
                       position, s.layer);
    return mf_fail(error, MF_ERR_FORMAT, "the logits of token %llu are not finite numbers%s",
                   position,
                   status == MF_OK ? "; those that come out of the last layer are: the weights of "
                                     "the final norm or the output head are damaged or too large"
                                   : "");
}
