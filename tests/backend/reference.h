/* SPDX-License-Identifier: MIT */
/* What the files of the float64 reference share. */
#ifndef MF_TESTS_REFERENCE_H
#define MF_TESTS_REFERENCE_H

#include "scene.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RELATIVE 4e-6
#define TINY 1e-30

static inline const float *floats(const scene *s, mf_span span)
{
    return scene_at(s, span);
}

/* What float32 may be off by in a sum of n products whose sizes add up to `magnitude`. */
static inline double sum_slack(size_t n, double magnitude)
{
    return 4.0 * FLT_EPSILON * sqrt((double)n) * magnitude + TINY;
}

static inline double *new_doubles(size_t n)
{
    double *p = calloc(n, sizeof *p);
    if (p == NULL)
        abort();
    return p;
}

static inline void expect_relative(scene *s, mf_span span, size_t i, double want)
{
    scene_expect(s, span, i, want, RELATIVE * fabs(want) + TINY);
}

/* A row's values; `size` (may be NULL): |q scale| + |bias|, what their rounding depends on. */
void reference_weight_row(const scene *s, const mf_weight *w, uint32_t row, double *out,
                          double *size);

/* Value i of an array of floats of a type. */
double reference_decode(const unsigned char *at, mf_dtype type, size_t i);

/* reference_attention.c */
void reference_attention(scene *s);
void reference_latent_attention(scene *s);

/* reference_latent.c */
void reference_route(scene *s);
void reference_rope(scene *s);
void reference_head_matmul(scene *s);

/* The nearest bfloat16, of two the even one. */
static inline uint32_t reference_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t kept = bits >> 16, rest = bits & 0xffff;
    return kept + (rest > 0x8000 || (rest == 0x8000 && kept % 2 == 1));
}

/* reference_entries.c */
void reference_streams_in(scene *s);
void reference_streams_out(scene *s);
void reference_compress(scene *s);
void reference_entry_attention(scene *s);
/* Latent attention with an indexer. */
void reference_chosen_attention(scene *s);

#endif
