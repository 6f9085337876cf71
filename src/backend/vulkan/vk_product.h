/* SPDX-License-Identifier: MIT */
/* Products of weights and rows of activations: what operations hand to the shaders of it. */
#ifndef MF_BACKEND_VULKAN_VK_PRODUCT_H
#define MF_BACKEND_VULKAN_VK_PRODUCT_H

#include "backend/vulkan/vk_internal.h"

/* As Job of jobs.glsl: y[t, o] = weight[first_row + o] . x[row t], and of pairs
 * silu(weight x) * (up x). */
typedef struct mf_vk_job {
    mf_vk_weight weight, up; /* up: of pairs */
    uint64_t x, y;
    uint64_t rows;     /* of x, uint32_t; 0: one after another */
    uint64_t x_scales; /* of x in float16 */
    uint32_t first_row, n_rows;
    uint32_t n_tokens, x_stride, y_stride; /* strides in floats */
    uint32_t y_rows; /* the rows of y, so many words after `rows`; 0: one after another. Not where x
                        is in float16 */
} mf_vk_job;

/* A job of each pick, made on the device of the one that there is: the expert's weights for those
 * of slot 0, rows of x and y by its number. As the shader's push constants have it. */
typedef struct mf_vk_routing {
    uint64_t ids, slot; /* int32_t of each pick; uint32_t of each expert */
    uint64_t slot_bytes;
    uint32_t scales_stride, biases_stride; /* of an expert's arrays that are not in slots; 0: are */
    uint32_t per_row;                      /* picks of a row of x */
    uint32_t unused;
} mf_vk_routing;

/* Jobs that the device made: by class of tokens, up to 1, 2, 4, 8 at a time, each one's after the
 * other's n_picks; what is none has no rows. */
#define MF_VK_MADE_CLASSES 4u
typedef struct mf_vk_made {
    uint64_t jobs;
    uint32_t n_picks, most_tokens; /* of a job */
} mf_vk_made;

/* Jobs that a class can have at most, of so many picks. */
static inline uint32_t mf_vk_made_most(uint32_t n_picks, uint32_t class)
{
    static const uint32_t least[MF_VK_MADE_CLASSES] = {1, 2, 3, 5};
    return n_picks / least[class];
}

/* What a product of one token does before and after: mf_input_step, mf_output_step. */
typedef struct mf_vk_steps {
    mf_input_kind before;
    mf_output_kind after;
    uint64_t weight; /* of the norm */
    uint64_t more;   /* the gate; the convolution, as matvec_one.comp's */
    uint32_t head_dim, width;
    float eps;
} mf_vk_steps;

/* Jobs of one form and number of columns that are dispatched together. */
typedef struct mf_vk_product {
    const mf_weight_shape *shape; /* n_rows are the jobs' */
    bool is_pair;
    uint32_t n_jobs;
    /* Fills in the i-th; asked for in order, from 0 on, and perhaps once more. */
    void (*job)(void *ctx, uint32_t i, mf_vk_job *out);
    void *ctx;
    bool is_expert; /* as mf_vk_product_reserve was told */
    bool is_half;   /* x is as mf_vk_halves_fill leaves it, and matrix units multiply it */
    const mf_vk_routing *routing; /* NULL: the jobs are what they are */
    uint32_t n_picks;
    const mf_vk_steps *steps; /* NULL: none */
    bool is_turned;           /* its picks' rows of y lie as mf_vk_is_turned says */
    /* Not NULL: nothing is recorded, but what this would take is prepared. Of one token. */
    struct mf_vk_preparing *preparing;
} mf_vk_product;

typedef struct mf_vk_preparing {
    mf_status status;
    mf_error *error;
} mf_vk_preparing;

/* Rows of activations as matrix units want them: float16, with a scale for each row. */
typedef struct mf_vk_halves {
    uint64_t x, scales;
    uint32_t n_cols, n_padded;
} mf_vk_halves;

/* Whether the operation's rows are to be multiplied by them. */
static inline bool mf_vk_wants_units(const mf_vk_backend *be, const mf_op *op)
{
    return be->is_mixed && op->is_long;
}
/* Rows that are multiplied at a time: an operation goes in pieces, which share the room for them.
 */
uint32_t mf_vk_halves_padded(uint32_t n_cols); /* columns with the zeros at their end */
uint32_t mf_vk_halves_rows(uint32_t n_cols);
uint64_t mf_vk_halves_bytes(uint32_t n_rows, uint32_t n_cols);
mf_status mf_vk_halves_reserve(mf_vk_backend *be, mf_error *error);
/* Room for them, of the scratch ring; then what they are, of rows of float32. */
mf_vk_halves mf_vk_halves_take(mf_vk_backend *be, uint32_t n_rows, uint32_t n_cols);
void mf_vk_halves_fill(mf_vk_backend *be, const mf_vk_halves *to, uint64_t x, uint32_t x_stride,
                       uint64_t rows, uint32_t n_rows);
static inline void mf_vk_halves_at(const mf_vk_halves *h, uint64_t row, mf_vk_job *job)
{
    job->x = h->x + row * h->n_padded * 2;
    job->x_scales = h->scales + row * 4;
}

/* Whether jobs with these weights can be dispatched together. */
bool mf_vk_same_form(const mf_weight_shape *a, const mf_weight_shape *b);
/* Whether weights of this form can be multiplied. */
bool mf_vk_product_supports(const mf_weight_shape *shape);

/* What a weight's chunks are read as, of chunks.glsl: its shaders' variants. */
typedef enum mf_vk_chunks {
    MF_VK_CHUNKS_ANY,
    MF_VK_CHUNKS_AFFINE,
    MF_VK_CHUNKS_FP8,
    MF_VK_CHUNKS_FLOATS,
    MF_VK_CHUNKS
} mf_vk_chunks;

mf_vk_chunks mf_vk_chunks_of(const mf_weight_shape *shape);
/* The pipelines for the product's jobs (of which shape, is_pair and is_expert are looked at), of up
 * to n_tokens, n_rows of all jobs together. */
mf_status mf_vk_product_reserve(mf_vk_backend *be, const mf_vk_product *product, uint32_t n_tokens,
                                uint64_t n_rows, mf_error *error);
/* The pipelines for picks of routed experts. */
mf_status mf_vk_routed_reserve(mf_vk_backend *be, const mf_weight_shape *shape, bool is_pair,
                               uint32_t n_picks, mf_error *error);
/* Whether jobs of one token may have these steps; the pipelines of such picks, of n_rows in all. */
bool mf_vk_steps_support(const mf_weight_shape *shape, const mf_vk_steps *steps);
mf_status mf_vk_steps_reserve(mf_vk_backend *be, const mf_vk_product *product, uint64_t n_rows,
                              mf_error *error);
/* Whether loads of the job's weights may be wide; and whether the form has such loads at all. */
bool mf_vk_job_is_wide(const mf_vk_product *product, const mf_vk_job *job);
bool mf_vk_has_wide(const mf_weight_shape *shape);
uint64_t mf_vk_product_bytes(uint32_t n_jobs);
void mf_vk_product_record(mf_vk_backend *be, const mf_vk_product *product);
/* Of jobs that the device made of the product's one job, whose weights lie as aligned as its. */
void mf_vk_product_record_made(mf_vk_backend *be, const mf_vk_product *product,
                               const mf_vk_made *made);

/* vk_tiles.c: a kernel for several tokens of a form that has shaders of its own, whose loads are
 * wide; NULL: there is none. n_tokens: of a job; n_rows: of all jobs. */
typedef struct mf_vk_product_tile {
    mf_vk_shader shader;
    uint32_t n_threads, n_tokens, n_rows; /* tokens and rows of a lane */
    uint32_t n_beside; /* workgroups that a large device's multiprocessor has room for */
} mf_vk_product_tile;
const mf_vk_product_tile *mf_vk_product_tile_of(const mf_vk_backend *be,
                                                const mf_vk_product *product, uint32_t n_tokens,
                                                uint64_t n_rows);
/* Workgroups for a job's most_rows rows, which go through n_rows of all jobs and tokens' groups: as
 * many as a device has room for, each as many blocks of rows as it takes. */
uint32_t mf_vk_product_tile_groups(const mf_vk_backend *be, const mf_vk_product_tile *tile,
                                   uint32_t most_rows, uint64_t n_rows);
mf_vk_kernel mf_vk_product_tile_kernel(const mf_vk_product_tile *tile,
                                       const mf_weight_shape *shape);
mf_status mf_vk_product_tiles_reserve(mf_vk_backend *be, const mf_vk_product *product,
                                      uint32_t n_tokens, mf_error *error);

/* vk_op_expert_steps.c: what stands between the products of experts, of rows of act and out. */
typedef struct mf_vk_expert_rows {
    uint64_t act, out;
    uint64_t rows;    /* which of them, uint32_t; 0: one after another */
    uint64_t experts; /* of each, uint32_t */
    uint32_t n_rows, hidden, n_cols;
} mf_vk_expert_rows;
mf_status mf_vk_expert_steps_reserve(mf_vk_backend *be, mf_error *error);
/* After gate and up have been seen. */
void mf_vk_expert_act(mf_vk_backend *be, const mf_expert_steps *steps,
                      const mf_vk_expert_rows *rows);
/* After the product of `down`; waits for it itself. Nothing where there is no bias. */
void mf_vk_expert_bias(mf_vk_backend *be, const mf_expert_steps *steps,
                       const mf_vk_expert_rows *rows);

/* vk_experts_out.c: the last product of one row's routed experts, summed (mf_expert_sum). Whether
 * what it multiplies lies in the order in which its lanes take columns (teams.glsl's turned). */
bool mf_vk_is_turned(const mf_routed_experts_params *p);
mf_status mf_vk_experts_out_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error);
void mf_vk_experts_out_record(mf_vk_backend *be, const mf_op *op, const mf_vk_product *down);

/* vk_grouped.c: routed experts of several rows, each expert's weights read once for all of its
 * rows. */
bool mf_vk_grouped_wants(const mf_op *op);
mf_status mf_vk_grouped_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error);
/* in, out: the products of an expert in slot 0, and how they are routed. */
void mf_vk_grouped_record(mf_vk_backend *be, const mf_op *op, const mf_vk_product *in,
                          const mf_vk_product *out);

#endif
