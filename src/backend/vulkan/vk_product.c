/* SPDX-License-Identifier: MIT */
/*
 * Which kernel multiplies a product's jobs. A row's bits depend on none of the choices made here:
 * how many tokens a weight is read for, how many rows a lane has, how wide its loads are, how many
 * lanes share a row.
 */
#include "backend/vulkan/vk_product.h"

#include <string.h>

#define THREADS 128u /* as in the shaders */
#define TEAM 16u
#define TEAMS (THREADS / TEAM)
#define TILE 512u       /* columns */
#define MOST_CLASSES 5u /* of jobs: up to 1, 2, 4, 8 tokens at a time; or as unit_tiles says */
/* Rows of a lane, where there are several tokens: as many as leave lanes enough. */
#define ROWS_FOR_2 4096u
#define ROWS_FOR_4 12288u
#define MOST_TOKEN_GROUPS 64u
/* Of matvec_one.comp: tiles side by side, jobs in push constants. */
#define MOST_SPAN 8u
#define MOST_DIRECT 4u
#define MOST_GROUPS 65535u
/* Of matvec_few.comp: rows of a batch, without pairs; batches of a team; workgroups that a large
 * device is to have at least. */
#define FEW_BATCH 4u
#define MOST_BATCHES 4u
#define ENOUGH_FEW_GROUPS 528u
/* Of matmul_units.comp. */
#define UNIT_TOKENS 16u
#define UNIT_ROWS 128u
#define MOST_KEPT 256u /* jobs, of 104 bytes each */

static uint32_t unit_rows(const mf_vk_product *p)
{
    return p->is_pair ? UNIT_ROWS / 2 : UNIT_ROWS;
}

bool mf_vk_product_supports(const mf_weight_shape *shape)
{
    return shape->kind >= MF_WEIGHT_FLOAT && shape->kind < MF_WEIGHT_KINDS;
}

mf_vk_chunks mf_vk_chunks_of(const mf_weight_shape *shape)
{
    switch (shape->kind) {
    case MF_WEIGHT_AFFINE:
        return MF_VK_CHUNKS_AFFINE;
    case MF_WEIGHT_FP8_BLOCK:
        return MF_VK_CHUNKS_FP8;
    case MF_WEIGHT_FLOAT:
        return MF_VK_CHUNKS_FLOATS;
    default:
        return MF_VK_CHUNKS_ANY;
    }
}

bool mf_vk_same_form(const mf_weight_shape *a, const mf_weight_shape *b)
{
    return a->kind == b->kind && a->float_type == b->float_type && a->bits == b->bits &&
           a->group == b->group && a->scale_rows == b->scale_rows && a->n_cols == b->n_cols;
}

typedef enum family { MATVEC, MATVEC_ONE, MATVEC_FEW, PLAIN, UNITS } family;

#define FORMS(name)                                                            \
    {                                                                          \
        {MF_VK_SHADER_##name##_any, MF_VK_SHADER_##name##_any_pair},           \
            {MF_VK_SHADER_##name##_affine, MF_VK_SHADER_##name##_affine_pair}, \
            {MF_VK_SHADER_##name##_fp8, MF_VK_SHADER_##name##_fp8_pair},       \
        {                                                                      \
            MF_VK_SHADER_##name##_float, MF_VK_SHADER_##name##_float_pair      \
        }                                                                      \
    }

/* Of affine weights where floats below the least normal one are kept. A device has either these or
 * the others everywhere, so that bits do not depend on which kernel multiplies. */
static mf_vk_shader small_shader_of(family of, bool is_pair)
{
    static const mf_vk_shader shaders[][2] = {
        [MATVEC] = {MF_VK_SHADER_matvec_affine_small, MF_VK_SHADER_matvec_affine_pair_small},
        [MATVEC_ONE] = {MF_VK_SHADER_matvec_one_affine_small,
                        MF_VK_SHADER_matvec_one_affine_pair_small},
        [MATVEC_FEW] = {MF_VK_SHADER_matvec_few_affine_small,
                        MF_VK_SHADER_matvec_few_affine_pair_small}};
    return shaders[of][is_pair];
}

static mf_vk_shader shader_of(const mf_vk_backend *be, family of, const mf_weight_shape *shape,
                              bool is_pair)
{
    static const mf_vk_shader shaders[][MF_VK_CHUNKS][2] = {[MATVEC] = FORMS(matvec),
                                                            [MATVEC_ONE] = FORMS(matvec_one),
                                                            [MATVEC_FEW] = FORMS(matvec_few),
                                                            [PLAIN] = FORMS(plain),
                                                            [UNITS] = FORMS(units)};
    if (be->device.keeps_small && shape->kind == MF_WEIGHT_AFFINE && of <= MATVEC_FEW)
        return small_shader_of(of, is_pair);
    return shaders[of][mf_vk_chunks_of(shape)][is_pair];
}

/* Whether wide loads can be had at all: rows are whole numbers of them. Where a form has none, x's
 * are meant. */
bool mf_vk_has_wide(const mf_weight_shape *shape)
{
    switch (shape->kind) {
    case MF_WEIGHT_FP8_BLOCK:
        return shape->n_cols % 16 == 0;
    case MF_WEIGHT_FLOAT:
        return shape->n_cols % (16 / mf_dtype_bytes(shape->float_type)) == 0;
    case MF_WEIGHT_NVFP4:
        return shape->n_cols % 32 == 0;
    default: /* x alone: what lies behind a row may be no number, and meets a zero */
        return shape->n_cols % 4 == 0;
    }
}

/* How matmul_units.comp loads weights. */
typedef enum loads {
    LOADS_NARROW = 0,
    LOADS_WIDE,
    LOADS_SCALES /* wide, and the scales of 512 columns at once */
} loads;

/* Of a form, where its arrays are aligned. */
static loads best_loads(const mf_weight_shape *shape)
{
    if (!mf_vk_has_wide(shape))
        return LOADS_NARROW;
    return shape->kind == MF_WEIGHT_AFFINE && shape->bits == 4 && shape->group == 64 &&
                   shape->float_type != MF_F32 && shape->n_cols % 512 == 0
               ? LOADS_SCALES
               : LOADS_WIDE;
}

/* Rows of a lane: what is not loaded widely waits for something else than memory. */
static uint32_t lane_rows(const mf_weight_shape *shape, bool is_pair, bool is_wide, uint64_t n_rows)
{
    const uint64_t n = n_rows * (is_pair ? 2 : 1);
    const bool is_light =
        is_wide && (shape->kind == MF_WEIGHT_AFFINE || shape->kind == MF_WEIGHT_FP8_BLOCK);
    const uint32_t most = n < ROWS_FOR_2 ? 1 : n < ROWS_FOR_4 ? 2 : 4;
    return !is_light ? 1 : is_pair && most > 1 ? most / 2 : most;
}

/* n_rows: of a lane. Processors take long to compile loads that are on their way early. */
static mf_vk_kernel kernel_for(const mf_vk_backend *be, const mf_weight_shape *shape, bool is_pair,
                               uint32_t class, uint32_t n_rows, bool is_wide)
{
    const bool is_processor = be->device.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    mf_vk_kernel k = {shader_of(be, MATVEC, shape, is_pair), 1, {THREADS}};
    mf_vk_weight_constants(shape, &k);
    k.constants[k.n_constants++] = 1u << class;
    k.constants[k.n_constants++] = n_rows;
    k.constants[k.n_constants++] = is_wide;
    k.constants[k.n_constants++] = !is_processor;
    return k;
}

static uint32_t class_of(uint32_t n_tokens)
{
    return n_tokens <= 1 ? 0 : n_tokens == 2 ? 1 : n_tokens <= 4 ? 2 : 3;
}

/* Tiles of a row that are multiplied side by side. */
static uint32_t span_of(uint32_t n_cols)
{
    uint32_t span = 1;
    while (span < MOST_SPAN && span * TILE < n_cols)
        span *= 2;
    return span;
}

/* ----------------------------------------------------------------------- few tokens of a job -- */

/* Whether matvec_few.comp multiplies several tokens: a tile of a row is for each of its teams. On
 * an H200 it takes less time for experts, whose jobs have few tokens, and more for dense weights.
 */
static bool is_few(const mf_vk_product *p)
{
    return p->is_expert && p->shape->n_cols <= MOST_SPAN * TILE;
}

static uint32_t few_tokens(uint32_t class)
{
    return class == 1 ? 2 : 4;
}

/* Rows of a workgroup. */
static uint32_t few_group_rows(const mf_weight_shape *shape, bool is_pair, uint32_t n_batches)
{
    return TEAMS / span_of(shape->n_cols) * (is_pair ? FEW_BATCH / 2 : FEW_BATCH) * n_batches;
}

/* Batches of rows that a team goes through with its x: as many as leave workgroups enough. */
static uint32_t few_batches(const mf_weight_shape *shape, bool is_pair, uint32_t class,
                            uint32_t n_tokens, uint64_t n_rows)
{
    const uint64_t n = n_rows * mf_vk_groups(n_tokens, few_tokens(class));
    uint32_t n_batches = 1;
    while (n_batches < MOST_BATCHES &&
           n / few_group_rows(shape, is_pair, 2 * n_batches) >= ENOUGH_FEW_GROUPS)
        n_batches *= 2;
    return n_batches;
}

static mf_vk_kernel few_kernel(const mf_vk_backend *be, const mf_weight_shape *shape, bool is_pair,
                               uint32_t class, uint32_t n_batches, bool is_wide)
{
    mf_vk_kernel k = {shader_of(be, MATVEC_FEW, shape, is_pair), 1, {THREADS}};
    mf_vk_weight_constants(shape, &k);
    k.constants[k.n_constants++] = few_tokens(class);
    k.constants[k.n_constants++] = span_of(shape->n_cols);
    k.constants[k.n_constants++] = is_wide;
    k.constants[k.n_constants++] = n_batches;
    return k;
}

static mf_status reserve_few(mf_vk_backend *be, const mf_weight_shape *shape, bool is_pair,
                             uint32_t n_tokens, uint64_t n_rows, mf_error *error)
{
    for (uint32_t class = 1; class <= class_of(n_tokens) && class <= 2; class ++) {
        const uint32_t most = few_batches(shape, is_pair, class, n_tokens, n_rows);
        for (uint32_t is_wide = 0; is_wide <= mf_vk_has_wide(shape); is_wide++)
            for (uint32_t n = 1; n <= most; n *= 2) {
                const mf_vk_kernel k = few_kernel(be, shape, is_pair, class, n, is_wide != 0);
                MF_TRY(mf_vk_prepare(be, &k, error));
            }
    }
    return MF_OK;
}

/* ------------------------------------------------------------------------ one token of a job -- */

const mf_vk_tuning mf_vk_tuning_default = {
    .ways = {{1, 1, 0}, {4, 2, 1 << 16}, {8, 2, 1 << 18}, {16, 2, 3 << 18}, {16, 2, 1 << 22}},
    .affine_ways =
        {{1, 1, 0}, {2, 2, 1 << 16}, {8, 2, 1 << 18}, {16, 2, 3 << 18}, {16, 4, 1 << 22}},
    .block_ways = {{1, 1, 0}, {2, 2, 1 << 16}, {8, 2, 1 << 18}, {16, 2, 3 << 18}, {16, 2, 1 << 22}},
    .attention_ahead = 2,
    .team_rows = 4,
    .unit_groups = 256,
};
/* A processor has few lanes: this is for tests. */
#define LANES_OF_PROCESSORS 256u

/* Weights whose loads are wide have kernels that know their columns, but for forms that decode
 * values one by one. */
static bool is_known(const mf_weight_shape *shape, bool is_wide)
{
    return is_wide && (shape->kind == MF_WEIGHT_AFFINE || shape->kind == MF_WEIGHT_FLOAT ||
                       mf_vk_is_blocks(shape));
}

static const mf_vk_way *ways_of(const mf_vk_backend *be, const mf_weight_shape *shape, bool is_wide)
{
    if (!is_known(shape, is_wide) || shape->kind == MF_WEIGHT_FLOAT)
        return be->tuning.ways;
    return shape->kind == MF_WEIGHT_AFFINE ? be->tuning.affine_ways : be->tuning.block_ways;
}

static uint32_t way_of(const mf_vk_backend *be, const mf_weight_shape *shape, bool is_pair,
                       bool is_wide, uint64_t n_rows)
{
    const bool is_processor = be->device.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    const mf_vk_way *ways = ways_of(be, shape, is_wide);
    const uint64_t n = n_rows * (is_pair ? 2 : 1) * span_of(shape->n_cols) * TEAM;
    uint32_t way = 0;
    while (is_wide && way + 1 < MF_VK_N_WAYS &&
           n * (is_processor ? LANES_OF_PROCESSORS : 1) >= ways[way + 1].n_needed)
        way++;
    return way;
}

/* How a kernel of one token is cut. */
typedef struct cut {
    uint32_t n_threads, n_rows, n_ahead; /* rows of a lane; of them on their way at once */
} cut;

/* A row of many tiles has twice the invocations for two side by side; floats take registers. */
static cut cut_of(const mf_vk_backend *be, const mf_vk_product *p, uint32_t which, bool is_wide)
{
    const mf_vk_way *way = &ways_of(be, p->shape, is_wide)[which];
    const bool is_processor = be->device.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    const uint32_t span = span_of(p->shape->n_cols), n_matrices = p->is_pair ? 2 : 1;
    const bool is_double =
        is_known(p->shape, is_wide) && span == MOST_SPAN && p->shape->kind != MF_WEIGHT_FLOAT;
    const uint32_t halves = is_double && way->n_chunks > 1 ? 2 : 1;
    const uint32_t n_way = way->n_chunks / halves, most = span == 1 ? 8 : 16;
    const uint32_t n_chunks = n_way < most ? n_way : most;
    const uint32_t wanted = is_double ? 4 : way->n_ahead;
    const uint32_t n_ahead = wanted < n_chunks ? wanted : n_chunks;
    const uint32_t n_rows = n_chunks > n_matrices ? n_chunks / n_matrices : 1;
    return (cut){.n_threads = is_double ? 2 * THREADS : THREADS,
                 .n_rows = n_rows,
                 .n_ahead = span == 1                              ? n_rows
                            : is_processor || n_ahead < n_matrices ? 1
                                                                   : n_ahead / n_matrices};
}

/* least_rows: of a job. */
static mf_vk_kernel one_kernel(const mf_vk_backend *be, const mf_vk_product *p, uint32_t which,
                               bool is_wide, uint32_t least_rows)
{
    const cut c = cut_of(be, p, which, is_wide);
    const bool is_regular = is_known(p->shape, is_wide) && least_rows >= c.n_rows;
    const mf_vk_steps none = {0}, *steps = p->steps != NULL ? p->steps : &none;
    mf_vk_kernel k = {shader_of(be, MATVEC_ONE, p->shape, p->is_pair), 1, {c.n_threads}};
    mf_vk_weight_constants(p->shape, &k);
    k.constants[k.n_constants++] = span_of(p->shape->n_cols);
    k.constants[k.n_constants++] = c.n_rows;
    k.constants[k.n_constants++] = is_wide;
    k.constants[k.n_constants++] = c.n_ahead;
    k.constants[k.n_constants++] = p->routing != NULL;
    k.constants[k.n_constants++] = (uint32_t)steps->before;
    k.constants[k.n_constants++] = (uint32_t)steps->after;
    memcpy(&k.constants[k.n_constants++], &steps->eps, sizeof steps->eps);
    k.constants[k.n_constants++] = steps->head_dim != 0 ? steps->head_dim : 4;
    k.constants[k.n_constants++] = steps->width != 0 ? steps->width : 2;
    k.constants[k.n_constants++] = is_known(p->shape, is_wide) ? p->shape->n_cols : 0;
    k.constants[k.n_constants++] = is_regular;
    k.constants[k.n_constants++] = p->is_turned;
    return k;
}

static uint32_t one_group_rows(const mf_vk_kernel *k)
{
    return k->constants[0] / (TEAM * k->constants[6]) * k->constants[7];
}

/* As in matvec_one.comp: distances from the first job's arrays in units of 4 bytes. */
typedef struct direct {
    uint64_t values;
    int32_t scales, biases, y;
    uint32_t n_rows;
} direct;

typedef struct one_push {
    uint64_t jobs, y, more;
    int32_t x;
    uint32_t sizes;
    direct direct[MOST_DIRECT];
} one_push;

/* Of jobs in memory. */
static one_push push_of(const mf_vk_product *p, uint64_t jobs)
{
    one_push push = {.jobs = jobs, .sizes = p->shape->n_cols << 3};
    if (p->steps != NULL) {
        push.more = p->steps->more;
        push.direct[MOST_DIRECT - 1].values = p->steps->weight;
    }
    return push;
}

/* to - from in units of 4 bytes; false: it is no such number. */
static bool distance(uint64_t from, uint64_t to, int32_t *out)
{
    const int64_t d = (int64_t)(to - from) / 4;
    *out = (int32_t)d;
    return to == 0 || (*out == d && from + (uint64_t)d * 4 == to);
}

static bool put_weight(direct *d, const mf_vk_weight *w)
{
    d->values = w->values;
    return distance(w->values, w->scales, &d->scales) && distance(w->values, w->biases, &d->biases);
}

/* Whether another job could be put into the push constants, and was. */
static bool put_direct(one_push *push, const mf_vk_job *job, bool is_pair)
{
    const uint32_t n = push->sizes & 7;
    direct *d = &push->direct[n];
    int32_t x = 0;
    if (n + (is_pair ? 2 : 1) > MOST_DIRECT || job->rows != 0 || job->first_row != 0)
        return false;
    if (n == 0)
        push->y = job->y;
    if (!distance(push->y, job->x, &x) || (n != 0 && x != push->x))
        return false;
    push->x = x;
    d->n_rows = job->n_rows;
    push->sizes += is_pair ? 2 : 1;
    return put_weight(d, &job->weight) && distance(push->y, job->y, &d->y) &&
           (!is_pair || put_weight(d + 1, &job->up));
}

/* ------------------------------------------------------------------------------ matrix units -- */

/* Tiles of 16 tokens that a workgroup of matmul_units.comp has. */
static const uint32_t unit_tiles[] = {1, 2, 4, 5, 8};
#define UNIT_CLASSES 5u
#define PLAIN_CLASSES 2u
#define SLOW_CLASS 1u /* of weights that are not aligned */

static uint32_t unit_classes(const mf_vk_backend *be)
{
    return be->device.info.has_units ? UNIT_CLASSES : PLAIN_CLASSES;
}

static mf_vk_kernel units_kernel(const mf_vk_backend *be, const mf_weight_shape *shape,
                                 bool is_pair, uint32_t class, loads how)
{
    mf_vk_kernel k = {
        shader_of(be, be->device.info.has_units ? UNITS : PLAIN, shape, is_pair), 1, {THREADS}};
    mf_vk_weight_constants(shape, &k);
    k.constants[k.n_constants++] = unit_tiles[class];
    k.constants[k.n_constants++] = how == LOADS_SCALES;
    k.constants[k.n_constants++] = how != LOADS_NARROW;
    return k;
}

/* Tiles that are computed for a job's tokens, and as many again as it costs to unpack weights. */
static uint32_t units_cost(uint32_t n_tokens, uint32_t class)
{
    const uint32_t n = mf_vk_groups(n_tokens, UNIT_TOKENS);
    return mf_vk_groups(n, unit_tiles[class]) * (unit_tiles[class] + 2);
}

static uint32_t units_class(uint32_t n_tokens, uint32_t n_classes)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n_classes; i++)
        if (units_cost(n_tokens, i) <= units_cost(n_tokens, best))
            best = i;
    return best;
}

static mf_status reserve_units(mf_vk_backend *be, const mf_weight_shape *shape, bool is_pair,
                               mf_error *error)
{
    const loads best = best_loads(shape);
    const mf_vk_kernel slow = units_kernel(be, shape, is_pair, SLOW_CLASS, LOADS_NARROW);
    MF_TRY(mf_vk_prepare(be, &slow, error));
    for (uint32_t i = 0; i < unit_classes(be) && best != LOADS_NARROW; i++) {
        const mf_vk_kernel k = units_kernel(be, shape, is_pair, i, best);
        MF_TRY(mf_vk_prepare(be, &k, error));
    }
    return mf_vk_halves_reserve(be, error);
}

/* Of up to n_rows in all. */
static mf_status reserve_ones(mf_vk_backend *be, const mf_vk_product *p, uint64_t n_rows,
                              mf_error *error)
{
    for (uint32_t is_wide = 0; is_wide <= mf_vk_has_wide(p->shape); is_wide++) {
        const uint32_t most = way_of(be, p->shape, p->is_pair, is_wide != 0, n_rows);
        for (uint32_t way = 0; way <= most; way++) {
            const mf_vk_kernel k = one_kernel(be, p, way, is_wide != 0, p->shape->n_rows);
            const mf_vk_kernel beside_less = one_kernel(be, p, way, is_wide != 0, 0);
            MF_TRY(mf_vk_prepare(be, &k, error));
            if (p->routing == NULL) /* it may be dispatched with a job of fewer rows */
                MF_TRY(mf_vk_prepare(be, &beside_less, error));
        }
    }
    return MF_OK;
}

bool mf_vk_steps_support(const mf_weight_shape *shape, const mf_vk_steps *steps)
{
    const uint32_t head = steps->head_dim;
    if (steps->before == MF_INPUT_HEADS_GATED) /* a head is the lanes of a subgroup, or fewer */
        return head >= 4 && head <= 128 && (head & (head - 1)) == 0 && shape->n_cols % head == 0;
    return steps->after != MF_OUTPUT_CONVOLVED ||
           (steps->width >= 2 && steps->width <= MF_VK_CONV_WIDTH);
}

mf_status mf_vk_steps_reserve(mf_vk_backend *be, const mf_vk_product *p, uint64_t n_rows,
                              mf_error *error)
{
    return reserve_ones(be, p, n_rows, error);
}

/* Of rows that matvec_few.comp does not take. */
static mf_status reserve_several(mf_vk_backend *be, const mf_weight_shape *shape, bool is_pair,
                                 uint32_t n_tokens, uint64_t n_rows, mf_error *error)
{
    for (uint32_t class = 1; class <= class_of(n_tokens); class ++) {
        for (uint32_t is_wide = 0; is_wide <= mf_vk_has_wide(shape); is_wide++) {
            const uint32_t most = lane_rows(shape, is_pair, is_wide != 0, n_rows);
            for (uint32_t n = 1; n <= most; n *= 2) {
                const mf_vk_kernel k = kernel_for(be, shape, is_pair, class, n, is_wide != 0);
                MF_TRY(mf_vk_prepare(be, &k, error));
            }
        }
    }
    return MF_OK;
}

mf_status mf_vk_product_reserve(mf_vk_backend *be, const mf_vk_product *p, uint32_t n_tokens,
                                uint64_t n_rows, mf_error *error)
{
    MF_TRY(reserve_ones(be, p, n_rows, error));
    MF_TRY(mf_vk_product_tiles_reserve(be, p, n_tokens, error));
    if (is_few(p))
        MF_TRY(reserve_few(be, p->shape, p->is_pair, n_tokens, n_rows, error));
    else
        MF_TRY(reserve_several(be, p->shape, p->is_pair, n_tokens, n_rows, error));
    return be->is_mixed ? reserve_units(be, p->shape, p->is_pair, error) : MF_OK;
}

uint64_t mf_vk_product_bytes(uint32_t n_jobs)
{
    return n_jobs * sizeof(mf_vk_job) + 2 * MOST_CLASSES * 256;
}

/* What the form's values are to be aligned to for wide loads, less one: as blocks.glsl reads them.
 */
static uint64_t value_mask(mf_weight_kind kind)
{
    switch (kind) {
    case MF_WEIGHT_GGUF_Q4_0:
    case MF_WEIGHT_GGUF_Q4_1:
    case MF_WEIGHT_GGUF_Q5_0:
    case MF_WEIGHT_GGUF_Q5_1:
    case MF_WEIGHT_GGUF_Q8_0:
    case MF_WEIGHT_GGUF_Q6_K:
    case MF_WEIGHT_GGUF_IQ4_NL:
    case MF_WEIGHT_GGUF_MXFP4:
        return 1;
    case MF_WEIGHT_GGUF_IQ4_XS:
        return 7;
    default:
        return 15;
    }
}

/* Whether the form's wide loads may be used: x is read by 16 bytes, and so are most weights. */
static bool is_aligned(const mf_vk_product *p, const mf_vk_job *job)
{
    const uint64_t mask = value_mask(p->shape->kind);
    const bool has_x = p->is_half || ((job->x | (uint64_t)job->x_stride * 4) & 15) == 0;
    return has_x && ((job->weight.values | job->up.values) & mask) == 0;
}

bool mf_vk_job_is_wide(const mf_vk_product *p, const mf_vk_job *job)
{
    const bool is_even = p->routing == NULL || p->routing->slot_bytes % 16 == 0;
    return is_even && mf_vk_has_wide(p->shape) && is_aligned(p, job);
}

static loads loads_of(const mf_vk_product *p, const mf_vk_job *job)
{
    const loads best = best_loads(p->shape);
    const uint64_t scales =
        job->weight.scales | job->weight.biases | job->up.scales | job->up.biases;
    if (!is_aligned(p, job) || (best == LOADS_SCALES && (scales & 15) != 0))
        return LOADS_NARROW;
    return best;
}

/* A class, and whether loads are wide: jobs that have both in common are dispatched together. */
typedef struct bunch {
    uint32_t n_jobs, most_rows, most_tokens, least_rows;
    uint64_t n_rows;
    uint32_t n_side; /* jobs that workgroups have side by side, then the next; 0: all */
} bunch;

/* n_classes: of matrix units, that may be used. */
static uint32_t bunch_of(const mf_vk_product *p, const mf_vk_job *job, uint32_t n_classes)
{
    if (!p->is_half)
        return 2 * class_of(job->n_tokens) + (mf_vk_has_wide(p->shape) && is_aligned(p, job));
    if (loads_of(p, job) == LOADS_NARROW)
        return 2 * SLOW_CLASS;
    return 2 * units_class(job->n_tokens, n_classes) + 1;
}

mf_status mf_vk_routed_reserve(mf_vk_backend *be, const mf_weight_shape *shape, bool is_pair,
                               uint32_t n_picks, mf_error *error)
{
    const mf_vk_routing routing = {0};
    const mf_vk_product p = {.shape = shape, .is_pair = is_pair, .routing = &routing};
    return reserve_ones(be, &p, (uint64_t)shape->n_rows * n_picks, error);
}

/* Its one job stands for all picks: their slots are as far from each other as is wide. */
static void record_routed(mf_vk_backend *be, const mf_vk_product *p)
{
    mf_vk_job job = {0};
    const mf_vk_routing *r = p->routing;
    p->job(p->ctx, 0, &job);
    const bool is_wide = mf_vk_job_is_wide(p, &job);
    const uint32_t way =
        way_of(be, p->shape, p->is_pair, is_wide, (uint64_t)p->n_picks * job.n_rows);
    const mf_vk_kernel k = one_kernel(be, p, way, is_wide, job.n_rows);
    one_push push = push_of(p, mf_vk_array(be, &job, sizeof job));
    push.y = job.x;
    push.x = (int32_t)job.x_stride;
    push.direct[0] = (direct){r->ids, (int32_t)r->scales_stride, (int32_t)r->biases_stride,
                              (int32_t)r->per_row, 0};
    push.direct[1].values = r->slot;
    push.direct[2].values = r->slot_bytes;
    mf_vk_dispatch(be, &k, &push, sizeof push,
                   (const uint32_t[]){mf_vk_groups(job.n_rows, one_group_rows(&k)), p->n_picks, 1});
}

static void dispatch_bunch(mf_vk_backend *be, const mf_vk_product *p, uint32_t which,
                           const bunch *b, uint64_t jobs)
{
    const uint32_t class = which / 2, n_cols = p->shape->n_cols;
    const bool is_wide = which % 2 != 0;
    const struct {
        uint64_t jobs;
        uint32_t n_cols, n; /* of matrix units padded columns, else jobs */
    } push = {jobs, n_cols, p->is_half ? mf_vk_halves_padded(n_cols) : b->n_jobs};
    const mf_vk_product_tile *tile = mf_vk_product_tile_of(be, p, b->most_tokens, b->n_rows);
    uint32_t groups[3] = {0, b->n_side != 0 ? b->n_side : b->n_jobs, 0};
    mf_vk_kernel k;
    if (p->is_half) {
        k = units_kernel(be, p->shape, p->is_pair, class,
                         is_wide ? best_loads(p->shape) : LOADS_NARROW);
        groups[0] = mf_vk_groups(b->most_rows, unit_rows(p));
        groups[2] = mf_vk_groups(b->most_tokens, UNIT_TOKENS * unit_tiles[class]);
    } else if (is_wide && tile != NULL) {
        k = mf_vk_product_tile_kernel(tile, p->shape);
        groups[2] = mf_vk_groups(b->most_tokens, tile->n_tokens);
        groups[0] = mf_vk_product_tile_groups(be, tile, b->most_rows,
                                              b->n_side != 0 ? 0 : b->n_rows * groups[2]);
    } else if (is_few(p)) {
        const uint32_t n = few_batches(p->shape, p->is_pair, class, b->most_tokens, b->n_rows);
        k = few_kernel(be, p->shape, p->is_pair, class, n, is_wide);
        groups[0] = mf_vk_groups(b->most_rows, few_group_rows(p->shape, p->is_pair, n));
        groups[2] = mf_vk_groups(b->most_tokens, few_tokens(class));
    } else {
        const uint32_t n = lane_rows(p->shape, p->is_pair, is_wide, b->n_rows);
        k = kernel_for(be, p->shape, p->is_pair, class, n, is_wide);
        groups[0] = mf_vk_groups(b->most_rows, TEAMS * n);
        groups[2] = mf_vk_groups(b->most_tokens, 1u << class);
    }
    if (!p->is_half && groups[2] > MOST_TOKEN_GROUPS)
        groups[2] = MOST_TOKEN_GROUPS;
    if (b->n_side != 0 && groups[2] > 1)
        groups[2] = 2; /* experts of more rows are few */
    mf_vk_dispatch(be, &k, &push, sizeof push, groups);
}

/* The jobs of a bunch to where shaders read them; 0: lost. */
static uint64_t put_jobs(mf_vk_backend *be, const mf_vk_product *p, uint32_t n_classes,
                         uint32_t which, const bunch *b)
{
    uint64_t address = 0;
    mf_vk_job *jobs = mf_vk_parameters(be, b->n_jobs * sizeof *jobs, &address);
    for (uint32_t i = 0; i < p->n_jobs && jobs != NULL; i++) {
        mf_vk_job job = {0};
        p->job(p->ctx, i, &job);
        if (bunch_of(p, &job, n_classes) == which)
            *jobs++ = job;
    }
    return address;
}

/* Jobs of a token each, a workgroup's y each. */
static void dispatch_ones(mf_vk_backend *be, const mf_vk_product *p, bool is_wide, const bunch *b,
                          uint64_t jobs)
{
    const uint32_t way = way_of(be, p->shape, p->is_pair, is_wide, b->n_rows);
    mf_vk_product made = *p;
    made.routing = NULL; /* jobs that the device made of picks are jobs as any */
    const mf_vk_kernel k = one_kernel(be, &made, way, is_wide, b->least_rows);
    const one_push push = push_of(p, jobs);
    mf_vk_dispatch(
        be, &k, &push, sizeof push,
        (const uint32_t[]){mf_vk_groups(b->most_rows, one_group_rows(&k)), b->n_jobs, 1});
}

/* Jobs of a token each. */
static void record_ones(mf_vk_backend *be, const mf_vk_product *p, uint32_t which, const bunch *b)
{
    const bool is_wide = which % 2 != 0;
    const uint32_t way = way_of(be, p->shape, p->is_pair, is_wide, b->n_rows);
    const mf_vk_kernel k = one_kernel(be, p, way, is_wide, b->least_rows);
    if (p->preparing != NULL) {
        if (p->preparing->status == MF_OK)
            p->preparing->status = mf_vk_prepare(be, &k, p->preparing->error);
        return;
    }
    const uint32_t per_group = one_group_rows(&k);
    one_push push = {.sizes = p->shape->n_cols << 3};
    uint32_t groups[3] = {0, 1, 1};
    bool is_direct = true;
    for (uint32_t i = 0; i < p->n_jobs && is_direct; i++) {
        mf_vk_job job = {0};
        p->job(p->ctx, i, &job);
        if (bunch_of(p, &job, 1) != which)
            continue;
        is_direct = job.n_tokens == 1 && put_direct(&push, &job, p->is_pair);
        groups[0] += mf_vk_groups(job.n_rows, per_group);
    }
    if (!is_direct || groups[0] > MOST_GROUPS) {
        dispatch_ones(be, p, is_wide, b, put_jobs(be, p, 1, which, b));
        return;
    }
    if (p->steps != NULL) {
        push.jobs = p->steps->weight;
        push.more = p->steps->more;
    }
    mf_vk_dispatch(be, &k, &push, sizeof push, groups);
}

void mf_vk_product_record_made(mf_vk_backend *be, const mf_vk_product *p, const mf_vk_made *made)
{
    mf_vk_job job = {0};
    p->job(p->ctx, 0, &job);
    const bool is_wide = mf_vk_job_is_wide(p, &job);
    for (uint32_t class = 0; class < MF_VK_MADE_CLASSES; class ++) {
        const uint32_t n = mf_vk_made_most(made->n_picks, class);
        const uint32_t most = class + 1 < MF_VK_MADE_CLASSES ? 1u << class : made->most_tokens;
        /* Nobody knows how many there are, and each workgroup that finds none has its place, of
         * which kernels that need much have few, for as long as it takes to look. */
        const uint32_t n_side = made->n_picks >> (class + 1) > 0 ? made->n_picks >> (class + 1) : 1;
        const bunch b = {.n_jobs = n,
                         .most_rows = job.n_rows,
                         .most_tokens = most,
                         .least_rows = job.n_rows,
                         .n_rows = (uint64_t)n * job.n_rows,
                         .n_side = n_side < n ? n_side : n};
        const uint64_t jobs = made->jobs + (uint64_t) class * made->n_picks * sizeof job;
        if (n == 0 || class > class_of(made->most_tokens))
            continue;
        if (class == 0)
            dispatch_ones(be, p, is_wide, &b, jobs);
        else
            dispatch_bunch(be, p, 2 * class + is_wide, &b, jobs);
    }
}

static void record_bunch(mf_vk_backend *be, const mf_vk_product *p, uint32_t n_classes,
                         uint32_t which, const bunch *b)
{
    if (which / 2 == 0 && !p->is_half) {
        record_ones(be, p, which, b);
        return;
    }
    const uint64_t jobs = put_jobs(be, p, n_classes, which, b);
    if (jobs != 0)
        dispatch_bunch(be, p, which, b, jobs);
}

/* Large tiles only as long as there are workgroups enough for a large device. */
static uint32_t usable_classes(const mf_vk_backend *be, const mf_vk_product *p)
{
    uint32_t n = p->is_half ? unit_classes(be) : 1;
    for (uint64_t n_groups = 0; n > 1; n--, n_groups = 0) {
        for (uint32_t i = 0; i < p->n_jobs && n_groups < be->tuning.unit_groups; i++) {
            mf_vk_job job = {0};
            p->job(p->ctx, i, &job);
            const uint32_t tiles = unit_tiles[units_class(job.n_tokens, n)];
            n_groups += (uint64_t)mf_vk_groups(job.n_rows, unit_rows(p)) *
                        mf_vk_groups(job.n_tokens, UNIT_TOKENS * tiles);
        }
        if (n_groups >= be->tuning.unit_groups)
            break;
    }
    return n;
}

static void record_all(mf_vk_backend *be, const mf_vk_product *p)
{
    bunch bunches[2 * MOST_CLASSES] = {{0}};
    const uint32_t n_classes = usable_classes(be, p);
    for (uint32_t i = 0; i < p->n_jobs; i++) {
        mf_vk_job job = {0};
        p->job(p->ctx, i, &job);
        bunch *b = &bunches[bunch_of(p, &job, n_classes)];
        b->least_rows = b->n_jobs++ == 0 || job.n_rows < b->least_rows ? job.n_rows : b->least_rows;
        b->n_rows += job.n_rows;
        b->most_rows = job.n_rows > b->most_rows ? job.n_rows : b->most_rows;
        b->most_tokens = job.n_tokens > b->most_tokens ? job.n_tokens : b->most_tokens;
    }
    for (uint32_t which = 0; which < 2 * MOST_CLASSES; which++)
        if (bunches[which].n_jobs != 0)
            record_bunch(be, p, n_classes, which, &bunches[which]);
}

static void kept_job(void *ctx, uint32_t i, mf_vk_job *out)
{
    *out = ((const mf_vk_job *)ctx)[i];
}

/* Jobs are looked at some ten times: those of a prompt's experts are many, and made once. */
void mf_vk_product_record(mf_vk_backend *be, const mf_vk_product *p)
{
    mf_vk_job jobs[MOST_KEPT];
    mf_vk_product kept = *p;
    if (p->routing != NULL) {
        record_routed(be, p);
        return;
    }
    if (p->n_jobs > MOST_KEPT) {
        record_all(be, p);
        return;
    }
    for (uint32_t i = 0; i < p->n_jobs; i++) {
        jobs[i] = (mf_vk_job){0};
        p->job(p->ctx, i, &jobs[i]);
    }
    kept.job = kept_job;
    kept.ctx = jobs;
    record_all(be, &kept);
}
