/* SPDX-License-Identifier: MIT */
/* What bench_vulkan_layer measures: operations of the shapes of a mixture of 35B, made one by one.
 */
#ifndef MF_BENCH_VULKAN_LAYER_H
#define MF_BENCH_VULKAN_LAYER_H

#include "bench_gpu.h"

#define MAX_TOKENS 64u
#define MAX_PAGES 8192u
#define OPERANDS 8u
#define OPERAND_BYTES ((uint64_t)MAX_TOKENS * 248320 * 4)
#define N_EXPERTS 256u
#define N_CHOSEN 8u                      /* of a row */
#define N_CHOICES 32u                    /* operations that choose others each */
#define STATE_BYTES ((uint64_t)64 << 20) /* before the weights */

typedef enum bench_joined {
    BENCH_ALONE,
    BENCH_MIXTURE,
    BENCH_LINEAR_ROW,
    BENCH_ATTEND_ROW,
    BENCH_LATENT_ROW,
    BENCH_JOINED
} bench_joined;

typedef struct bench {
    const char *device, *only;
    const char *ways, *form_name;
    const char *order;    /* of four layers: see bench_vulkan_layer.c */
    mf_weight_shape form; /* of weights; of affine ones bits are an operation's */
    uint32_t n_mib, n_repeats, n_tokens, n_slices, n_rows, barrier, prefetches, again;
    uint32_t cache_bytes; /* of a value that attention reads: 2, 4 */
    bench_gpu gpu;
    mf_span weights, x, tables; /* tables: see write_tables */
    mf_span choices;            /* of routed experts of several rows: see write_choices */
    uint64_t n_bytes, at;       /* of weights; where the next one goes */
    uint64_t n_touched;         /* bytes of states and caches of the operation made last */
    double read;                /* bytes a second, at best */
    double layers[2], ahead;    /* us of a layer that is linear, that attends; outside of layers */
    double fused;               /* us of four layers of one token, one that attends */
    uint32_t n_routed;          /* operations of routed experts so far */
    bool is_free;               /* nothing waits for what is recorded before it */
    bool has[BENCH_JOINED];     /* the device has these as one operation */
} bench;

typedef struct subject {
    const char *name;
    void (*make)(bench *b, const struct subject *s, mf_op *op);
    uint32_t a, b, context; /* what make makes of them */
    uint32_t in_linear, in_full, in_token;
    /* What it is a part of, or all of: where the device has that as one operation, it is in layers
     * in place of its parts. */
    bench_joined joined;
    bool is_whole;
} subject;

/* Of one token, with steps in the products: in the order in which a layer has them. */
extern const subject fused_subjects[];
extern const size_t n_fused;
/* Of one token, of a layer with latents as Cogito-V2-671B's: in_linear of one with a dense MLP,
 * in_full of one with experts. */
extern const subject latent_subjects[];
extern const size_t n_latent;
/* Each step an operation: in that order, then others. The first is nothing. */
extern const subject subjects[];
extern const size_t n_subjects;

/* The i-th of OPERANDS activations. */
mf_span bench_operand(const bench *b, uint32_t i);
/* The norm's weight of what is fused. */
void bench_write_norm(bench *b);
/* The sequences that a subject's operation has to do with. */
void bench_begin_batch(bench *b, const subject *s);

#endif
