/* SPDX-License-Identifier: MIT */
/*
 * Which kernel multiplies a product's jobs. A row's bits depend on none of the choices made here:
 * how many tokens a weight is read for, how many rows a lane has, how wide its loads are, how many
 * lanes share a row.
 */
#include "backend/vulkan/vk_product_kernels.h"

#include <string.h>

#define THREADS 128u /* as in the shaders */
#define TEAM 16u
#define TEAMS (THREADS / TEAM)
#define TILE 512u /* columns */
/* Rows of a lane, where there are several tokens: as many as leave lanes enough. */
#define ROWS_FOR_2 4096u
#define ROWS_FOR_4 12288u
#define MOST_SPAN 8u /* of matvec_one.comp: tiles side by side */
/* Of matvec_few.comp: rows of a batch, without pairs; batches of a team; workgroups that a large
 * device is to have at least. */
#define FEW_BATCH 4u
#define MOST_BATCHES 4u
#define ENOUGH_FEW_GROUPS 528u
/* Of matmul_units.comp. */
#define UNIT_TOKENS 16u
#define UNIT_ROWS 128u

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

mf_vk_loads mf_vk_best_loads(const mf_weight_shape *shape)
{
    if (!mf_vk_has_wide(shape))
        return MF_VK_LOADS_NARROW;
    return shape->kind == MF_WEIGHT_AFFINE && shape->bits == 4 && shape->group == 64 &&
                   shape->float_type != MF_F32 && shape->n_cols % 512 == 0
               ? MF_VK_LOADS_SCALES
               : MF_VK_LOADS_WIDE;
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

uint32_t mf_vk_class_of(uint32_t n_tokens)
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
    for (uint32_t class = 1; class <= mf_vk_class_of(n_tokens) && class <= 2; class ++) {
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
        {{1, 1, 0}, {2, 2, 1 << 16}, {8, 2, 1 << 18}, {16, 2, 3 << 18}, {32, 4, 1 << 22}},
    .block_ways = {{1, 1, 0}, {2, 2, 1 << 16}, {8, 2, 1 << 18}, {16, 2, 3 << 18}, {16, 2, 1 << 22}},
    .long_ways = {{1, 1, 0}, {2, 2, 1 << 16}, {8, 4, 1 << 18}, {16, 2, 3 << 17}, {32, 2, 3 << 18}},
    .narrow_way = {8, 8, 3 << 17},
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

static bool is_quantised(const mf_weight_shape *shape, bool is_wide)
{
    return is_known(shape, is_wide) && shape->kind != MF_WEIGHT_FLOAT;
}

/* The last way: tiles of a row one after another. Side by side an eighth of the lanes or more would
 * have none at the row's end. */
#define NARROW MF_VK_N_WAYS

static bool can_be_narrow(const mf_weight_shape *shape, bool is_wide)
{
    const uint32_t n_tiles = mf_vk_groups(shape->n_cols, TILE), span = span_of(shape->n_cols);
    return is_quantised(shape, is_wide) && 8 * n_tiles <= 7 * mf_vk_groups(n_tiles, span) * span;
}

static const mf_vk_way *ways_of(const mf_vk_backend *be, const mf_weight_shape *shape, bool is_wide)
{
    if (!is_quantised(shape, is_wide))
        return be->tuning.ways;
    if (shape->kind != MF_WEIGHT_AFFINE)
        return be->tuning.block_ways;
    return span_of(shape->n_cols) == MOST_SPAN ? be->tuning.long_ways : be->tuning.affine_ways;
}

static uint32_t way_of(const mf_vk_backend *be, const mf_weight_shape *shape, bool is_pair,
                       bool is_wide, uint64_t n_rows)
{
    const bool is_processor = be->device.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    const mf_vk_way *ways = ways_of(be, shape, is_wide);
    const uint64_t n_narrow =
        n_rows * (is_pair ? 2 : 1) * TEAM * (is_processor ? LANES_OF_PROCESSORS : 1);
    const uint64_t n = n_narrow * span_of(shape->n_cols);
    uint32_t way = 0;
    if (can_be_narrow(shape, is_wide) && n_narrow >= be->tuning.narrow_way.n_needed)
        return NARROW;
    while (is_wide && way + 1 < MF_VK_N_WAYS && n >= ways[way + 1].n_needed)
        way++;
    return way;
}

/* How a kernel of one token is cut. */
typedef struct cut {
    uint32_t span, n_threads, n_rows, n_ahead; /* rows of a lane; of them on their way at once */
} cut;

/* A row of many tiles has twice the invocations for two side by side; floats take registers. */
static cut cut_of(const mf_vk_backend *be, const mf_vk_product *p, uint32_t which, bool is_wide)
{
    const mf_vk_way *way =
        which == NARROW ? &be->tuning.narrow_way : &ways_of(be, p->shape, is_wide)[which];
    const bool is_processor = be->device.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    const uint32_t span = which == NARROW ? 1 : span_of(p->shape->n_cols);
    const uint32_t n_matrices = p->is_pair ? 2 : 1;
    const bool is_double = is_quantised(p->shape, is_wide) && span == MOST_SPAN;
    const uint32_t halves = is_double && way->n_chunks > 1 ? 2 : 1;
    const uint32_t n_way = way->n_chunks / halves, most = span == 1 ? 8 : 16;
    const uint32_t n_chunks = n_way < most ? n_way : most;
    const uint32_t wanted = is_double && p->shape->kind != MF_WEIGHT_AFFINE ? 4 : way->n_ahead;
    const uint32_t n_ahead = wanted < n_chunks ? wanted : n_chunks;
    const uint32_t n_rows = n_chunks > n_matrices ? n_chunks / n_matrices : 1;
    return (cut){.span = span,
                 .n_threads = is_double ? 2 * THREADS : THREADS,
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
    k.constants[k.n_constants++] = c.span;
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

/* ------------------------------------------------------------------------------ matrix units -- */

/* Tiles of 16 tokens that a workgroup of matmul_units.comp has. */
static const uint32_t unit_tiles[] = {1, 2, 4, 5, 8};
#define UNIT_CLASSES 5u
#define PLAIN_CLASSES 2u

uint32_t mf_vk_unit_classes(const mf_vk_backend *be)
{
    return be->device.info.has_units ? UNIT_CLASSES : PLAIN_CLASSES;
}

uint32_t mf_vk_unit_rows(const mf_vk_product *p)
{
    return p->is_pair ? UNIT_ROWS / 2 : UNIT_ROWS;
}

uint32_t mf_vk_unit_tokens(uint32_t class)
{
    return UNIT_TOKENS * unit_tiles[class];
}

static mf_vk_kernel units_kernel(const mf_vk_backend *be, const mf_weight_shape *shape,
                                 bool is_pair, uint32_t class, mf_vk_loads how)
{
    mf_vk_kernel k = {
        shader_of(be, be->device.info.has_units ? UNITS : PLAIN, shape, is_pair), 1, {THREADS}};
    mf_vk_weight_constants(shape, &k);
    k.constants[k.n_constants++] = unit_tiles[class];
    k.constants[k.n_constants++] = how == MF_VK_LOADS_SCALES;
    k.constants[k.n_constants++] = how != MF_VK_LOADS_NARROW;
    return k;
}

/* Tiles that are computed for a job's tokens, and as many again as it costs to unpack weights. */
static uint32_t units_cost(uint32_t n_tokens, uint32_t class)
{
    const uint32_t n = mf_vk_groups(n_tokens, UNIT_TOKENS);
    return mf_vk_groups(n, unit_tiles[class]) * (unit_tiles[class] + 2);
}

uint32_t mf_vk_unit_class(uint32_t n_tokens, uint32_t n_classes)
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
    const mf_vk_loads best = mf_vk_best_loads(shape);
    const mf_vk_kernel slow =
        units_kernel(be, shape, is_pair, MF_VK_SLOW_CLASS, MF_VK_LOADS_NARROW);
    MF_TRY(mf_vk_prepare(be, &slow, error));
    for (uint32_t i = 0; i < mf_vk_unit_classes(be) && best != MF_VK_LOADS_NARROW; i++) {
        const mf_vk_kernel k = units_kernel(be, shape, is_pair, i, best);
        MF_TRY(mf_vk_prepare(be, &k, error));
    }
    return mf_vk_halves_reserve(be, error);
}

/* ---------------------------------------------------------------------------------- choices -- */

mf_vk_choice mf_vk_choose_one(const mf_vk_backend *be, const mf_vk_product *p, bool is_wide,
                              uint64_t n_rows, uint32_t least_rows)
{
    const uint32_t way = way_of(be, p->shape, p->is_pair, is_wide, n_rows);
    const mf_vk_kernel k = one_kernel(be, p, way, is_wide, least_rows);
    return (mf_vk_choice){.kernel = k, .n_rows = one_group_rows(&k), .n_tokens = 1};
}

mf_vk_choice mf_vk_choose_units(const mf_vk_backend *be, const mf_vk_product *p, uint32_t class,
                                bool is_wide)
{
    const mf_vk_loads how = is_wide ? mf_vk_best_loads(p->shape) : MF_VK_LOADS_NARROW;
    return (mf_vk_choice){.kernel = units_kernel(be, p->shape, p->is_pair, class, how),
                          .n_rows = mf_vk_unit_rows(p),
                          .n_tokens = mf_vk_unit_tokens(class)};
}

mf_vk_choice mf_vk_choose_several(const mf_vk_backend *be, const mf_vk_product *p, uint32_t class,
                                  bool is_wide, uint32_t n_tokens, uint64_t n_rows)
{
    if (is_few(p)) {
        const uint32_t n = few_batches(p->shape, p->is_pair, class, n_tokens, n_rows);
        return (mf_vk_choice){.kernel = few_kernel(be, p->shape, p->is_pair, class, n, is_wide),
                              .n_rows = few_group_rows(p->shape, p->is_pair, n),
                              .n_tokens = few_tokens(class)};
    }
    const uint32_t n = lane_rows(p->shape, p->is_pair, is_wide, n_rows);
    return (mf_vk_choice){.kernel = kernel_for(be, p->shape, p->is_pair, class, n, is_wide),
                          .n_rows = TEAMS * n,
                          .n_tokens = 1u << class};
}

/* ------------------------------------------------------------------------------------- room -- */

/* Of up to n_rows in all. */
static mf_status reserve_ones(mf_vk_backend *be, const mf_vk_product *p, uint64_t n_rows,
                              mf_error *error)
{
    for (uint32_t is_wide = 0; is_wide <= mf_vk_has_wide(p->shape); is_wide++) {
        const uint32_t most = way_of(be, p->shape, p->is_pair, is_wide != 0, n_rows);
        for (uint32_t way = 0; way <= most; way++) { /* NARROW is the last */
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
    for (uint32_t class = 1; class <= mf_vk_class_of(n_tokens); class ++) {
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

mf_status mf_vk_routed_reserve(mf_vk_backend *be, const mf_weight_shape *shape, bool is_pair,
                               uint32_t n_picks, mf_error *error)
{
    const mf_vk_routing routing = {0};
    const mf_vk_product p = {.shape = shape, .is_pair = is_pair, .routing = &routing};
    return reserve_ones(be, &p, (uint64_t)shape->n_rows * n_picks, error);
}
