/* SPDX-License-Identifier: MIT */
/* What the CPU backend's files share: the backend struct and one entry per operation group. */
#ifndef MF_BACKEND_CPU_CPU_INTERNAL_H
#define MF_BACKEND_CPU_CPU_INTERNAL_H

#include "backend/cpu/cpu_backend.h"
#include "base/threads.h"
#include "kernels/kernels.h"

#include <pthread.h>

#define MF_CPU_MAX_BUFFERS 1024

/* Most of what is taken for tokens in a form that matrices are multiplied by. */
#define MF_CPU_PREPARED_BYTES_MAX ((size_t)8 << 20)

/* Room for parts of an attention: those of one token's, 16 heads of 256, over 32,768 positions. */
#define MF_CPU_PARTS_BYTES ((size_t)1 << 20)

typedef struct mf_cpu_backend {
    mf_backend base;
    mf_allocator allocator;
    const mf_kernels *kernels;
    mf_thread_pool *pool;
    uint32_t n_threads, n_homes;
    mf_numa_nodes nodes;                   /* none: memory lies where it is first touched */
    pthread_mutex_t lock;                  /* of what follows, where buffers come and go */
    mf_region buffers[MF_CPU_MAX_BUFFERS]; /* id - 1 */
    bool is_device[MF_CPU_MAX_BUFFERS];    /* the host is not to see it */
    bool has_homes[MF_CPU_MAX_BUFFERS];    /* rows of what it holds have been shared out to nodes */
    unsigned char *scratch; /* n_threads blocks of scratch_bytes each, 64-byte aligned */
    unsigned char *scratch_memory;
    size_t scratch_bytes, scratch_memory_bytes;
    float *gather; /* rows of an expert's input, contiguous; delta gates */
    size_t gather_bytes;
    unsigned char *prepared; /* tokens in the form that some matrices are multiplied by */
    size_t prepared_bytes;
    unsigned char *parts; /* of long attentions, which wait to be joined */
    size_t parts_bytes;
    /* The batch at hand: its sequences, and where the pages of each lie, one after the other. */
    mf_sequence *sequences;
    uint32_t n_sequences;
    size_t *first_page; /* [n_sequences, 2], in pages; the second: of the window's */
    const unsigned char **pages;
    size_t sequences_bytes, first_page_bytes, pages_bytes;
    uint64_t weight_bytes;
    mf_timeline *timeline; /* or NULL */
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
void mf_cpu_finite(mf_cpu_backend *be, const mf_op *op);
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
void mf_cpu_routed_experts(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_combine(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_rope(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_head_matmul(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_latent_attention(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_compress(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_entry_attention(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_streams_in(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_streams_out(mf_cpu_backend *be, const mf_op *op);
mf_status mf_cpu_measure(mf_backend *base, const mf_span *spans, const uint64_t *span_bytes,
                         uint32_t n_spans, uint32_t n_milliseconds, double *bytes_per_second,
                         double *fma_per_second, mf_error *error);

/* Limits what goes into a SwiGLU, as mf_swiglu_params says; 0: not. */
static inline void mf_cpu_limit(float *gate, float *up, uint32_t n, float limit)
{
    for (uint32_t i = 0; limit != 0 && i < n; i++) {
        gate[i] = gate[i] > limit ? limit : gate[i];
        up[i] = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
    }
}

/* The sequence that holds a row of the batch. Batches have few sequences: a scan is enough. */
static inline const mf_sequence *mf_cpu_sequence_of(const mf_cpu_backend *be, uint32_t row)
{
    for (uint32_t s = 0; s + 1 < be->n_sequences; s++) {
        if (row - be->sequences[s].first_row < be->sequences[s].n_rows)
            return &be->sequences[s];
    }
    return &be->sequences[be->n_sequences - 1];
}

/* Where the batch's row stands in its sequence. */
static inline uint64_t mf_cpu_position_of(const mf_sequence *seq, uint32_t row)
{
    return seq->position + row - seq->first_row;
}

/* The pages of one of the batch's sequences, or its window's. */
static inline const unsigned char *const *mf_cpu_pages_of(const mf_cpu_backend *be,
                                                          const mf_sequence *seq, bool is_window)
{
    return be->pages + be->first_page[2 * (seq - be->sequences) + is_window];
}

/* Where rows go in the sequences' caches. */
typedef struct mf_cpu_cache {
    uint64_t page_offset;
    uint32_t n_heads, dim; /* floats of a row */
    mf_dtype type;
    bool is_in_window_pages;
} mf_cpu_cache;

/* Copies the operation's rows, from x on, into the caches of the sequences that they belong to. */
void mf_cpu_append(mf_cpu_backend *be, const mf_op *op, mf_span x, const mf_cpu_cache *cache);

/* Attends to what has been appended; the scratch that a thread needs for it. */
void mf_cpu_attend(mf_cpu_backend *be, const mf_op *op);
size_t mf_cpu_attend_scratch(const mf_op *op);

/* Of latent attention with an indexer: its keys into the cache; and the latents that a row sees,
 * gathered, as pages[mf_pages_of(n_most)]. */
void mf_cpu_index_append(mf_cpu_backend *be, const mf_op *op);
void mf_cpu_index_gather(mf_cpu_backend *be, const mf_op *op, uint32_t row,
                         const unsigned char **pages);

/* An indexer's score of one key: of a row's queries and weights of heads. */
float mf_cpu_index_score(const mf_index_params *x, const float *q, const float *weights,
                         const void *key, mf_dtype type);
/* The k of n scores that are largest, the first among equals, rising; scratch: [n], which chosen
 * may begin at. */
void mf_cpu_choose_most(const float *scores, uint32_t n, uint32_t k, float *scratch,
                        uint32_t *chosen);
/* As MF_OP_ROPE, interleaved. */
void mf_cpu_rotate_pairs(float *x, const float *cos, const float *sin, uint32_t n_rot);

/* Rows of floats that the making of an entry needs. */
#define MF_CPU_COMPRESS_ROWS 5u
/* Scratch of a thread for attention to entries. */
size_t mf_cpu_entry_scratch(const mf_entry_attention_params *p);

/* Runs fn for each row of the operation, by the threads where that pays. */
typedef void (*mf_cpu_row_fn)(mf_cpu_backend *be, const mf_op *op, uint32_t row);
void mf_cpu_for_rows(mf_cpu_backend *be, const mf_op *op, uint32_t floats_per_row,
                     mf_cpu_row_fn fn);

/* Values of a head with key decays, at most. */
#define MF_CPU_KEYED_VALUES 1024u

/* Picks of routed experts that are multiplied together. */
#define MF_CPU_ROUTED_ITEMS 32u

/* Rows that a transposed product expands at a time: what stays in the first cache. */
#define MF_CPU_TRANSPOSED_ROWS 8u

/* Products that go to the threads together, at most. */
#define MF_CPU_MAX_PRODUCTS 64u

/* One product of a set. */
typedef struct mf_cpu_product {
    mf_matrix w;
    uint32_t first_row, n_rows; /* of w; y begins with the row 0 of w */
    const float *x;
    size_t x_stride;
    const void *prepared; /* the same tokens as w's kernel takes them, or NULL */
    uint32_t n_tokens;
    float *y;
    size_t y_stride;
} mf_cpu_product;

/* Up to MF_CPU_MAX_PRODUCTS products cut into tasks, each of some rows by some tokens. The products
 * are the caller's, and may be filled in later but for shapes and numbers of tokens. */
typedef struct mf_cpu_product_tasks {
    mf_cpu_backend *be;
    const mf_cpu_product *products;
    uint32_t n;
    uint32_t first_task[MF_CPU_MAX_PRODUCTS + 1]; /* of each product; the number of all */
    uint32_t block_rows[MF_CPU_MAX_PRODUCTS], block_tokens[MF_CPU_MAX_PRODUCTS];
} mf_cpu_product_tasks;

void mf_cpu_cut_products(mf_cpu_backend *be, const mf_cpu_product *products, uint32_t n,
                         mf_cpu_product_tasks *out);
/* The product that a task is of. */
uint32_t mf_cpu_product_of_task(const mf_cpu_product_tasks *tasks, uint32_t task);
void mf_cpu_run_product_task(const mf_cpu_product_tasks *tasks, uint32_t task, uint32_t thread);
/* Few tokens: no task is of some of them alone. */
bool mf_cpu_has_few_tokens(const mf_cpu_product *product);
/* The tasks by the homes where their rows lie, of weights that are interleaved and few tokens:
 * order[first ..] = first + task, those of home h before end[h]. */
void mf_cpu_sort_tasks(const mf_cpu_product_tasks *tasks, uint32_t first, uint16_t *order,
                       uint32_t *end);

#endif
