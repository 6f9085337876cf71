/* SPDX-License-Identifier: MIT */
/* What the CPU backend's files share: the backend struct and one entry per operation group. */
#ifndef MF_BACKEND_CPU_CPU_INTERNAL_H
#define MF_BACKEND_CPU_CPU_INTERNAL_H

#include "backend/cpu/cpu_backend.h"
#include "base/threads.h"
#include "kernels/kernels.h"

#define MF_CPU_MAX_BUFFERS 1024

typedef struct mf_cpu_backend {
    mf_backend base;
    mf_allocator allocator;
    const mf_kernels *kernels;
    mf_thread_pool *pool;
    uint32_t n_threads;
    mf_region buffers[MF_CPU_MAX_BUFFERS]; /* id - 1 */
    unsigned char *scratch; /* n_threads blocks of scratch_bytes each, 64-byte aligned */
    unsigned char *scratch_memory;
    size_t scratch_bytes, scratch_memory_bytes;
    float *gather; /* rows of an expert's input, contiguous; delta gates */
    size_t gather_bytes;
    unsigned char *prepared; /* tokens in the form that some matrices are multiplied by */
    size_t prepared_bytes;
    const unsigned char **pages; /* of all sequences of an attention, one after the other */
    size_t pages_bytes;
    uint64_t weight_bytes;
} mf_cpu_backend;

static inline unsigned char *mf_cpu_bytes(const mf_cpu_backend *be, mf_span span)
{
    return be->buffers[span.buffer.id - 1].base + span.offset;
}

static inline float *mf_cpu_floats(const mf_cpu_backend *be, mf_span span)
{
    return (float *)(void *)mf_cpu_bytes(be, span);
}

static inline void *mf_cpu_scratch(const mf_cpu_backend *be, uint32_t thread)
{
    return be->scratch + (size_t)thread * be->scratch_bytes;
}

mf_matrix mf_cpu_matrix(const mf_cpu_backend *be, const mf_weight *w);

void mf_cpu_embed(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_copy_rows(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_rmsnorm(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_rmsnorm_gated(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_sigmoid_mul(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_add(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_swiglu(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_matmul(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_head_norm_rope(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_attention(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_conv1d_silu(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_gated_delta(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_route(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_experts(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_combine(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_rope(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_head_matmul(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_latent_attention(mf_cpu_backend *be, const mf_op *op);
mf_status mf_cpu_measure(mf_backend *base, const mf_span *spans, const uint64_t *span_bytes,
                         uint32_t n_spans, uint32_t n_milliseconds, double *bytes_per_second,
                         double *fma_per_second, mf_error *error);

/* The sequence that holds a row. Batches have few sequences: a scan is enough. */
static inline const mf_sequence *mf_cpu_sequence_of(const mf_sequence *sequences, uint32_t n,
                                                    uint32_t row)
{
    for (uint32_t s = 0; s + 1 < n; s++) {
        if (row - sequences[s].first_row < sequences[s].n_rows)
            return &sequences[s];
    }
    return &sequences[n - 1];
}

/* Pages that the sequences' positions lie in. */
static inline size_t mf_cpu_count_pages(const mf_sequence *sequences, uint32_t n)
{
    size_t n_pages = 0;
    for (uint32_t i = 0; i < n; i++)
        n_pages += (size_t)((sequences[i].position + sequences[i].n_rows + MF_PAGE_TOKENS - 1) /
                            MF_PAGE_TOKENS);
    return n_pages;
}

/* Fills be->pages with the sequences' pages. */
void mf_cpu_find_pages(mf_cpu_backend *be, const mf_sequence *sequences, uint32_t n);
/* Where those of `seq`, one of the sequences, begin. */
const unsigned char *const *mf_cpu_pages_of(const mf_cpu_backend *be, const mf_sequence *sequences,
                                            const mf_sequence *seq);
/* Copies the sequence's rows of `width` floats from x into its cache, as `type`. */
void mf_cpu_append(mf_cpu_backend *be, const mf_sequence *seq, uint64_t page_offset, mf_span x,
                   size_t width, mf_dtype type);

/* Rows that a transposed product expands at a time: what stays in the first cache. */
#define MF_CPU_TRANSPOSED_ROWS 8u

/* Products that go to the threads together, at most. */
#define MF_CPU_MAX_PRODUCTS 64u

/* One product of a set: rows of w cut into blocks become tasks. */
typedef struct mf_cpu_product {
    mf_matrix w;
    const float *x;
    size_t x_stride;
    const void *prepared; /* the same tokens as w's kernel takes them, or NULL */
    uint32_t n_tokens;
    float *y;
    size_t y_stride;
} mf_cpu_product;

/* Runs several products at once; none reads what another writes. */
void mf_cpu_products(mf_cpu_backend *be, const mf_cpu_product *products, uint32_t n);

#endif
