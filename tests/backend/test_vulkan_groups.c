/* SPDX-License-Identifier: MIT */
/*
 * Workgroups of a dispatch: in no direction more than every device has, however many rows or tiles
 * an operation has. Software has as many as it is asked for; others leave out what is too much, or
 * do anything. Each dispatch is seen on its way to the driver, and the bytes are those that they
 * have to be.
 */
#include "backend/vulkan/vk_internal.h"
#include "test.h"
#include "vulkan_open.h"

#include <math.h>

#define MOST_GROUPS 65535u /* that each device has */
#define MANY_ROWS (MOST_GROUPS + 4466u)

static mf_vk_api driver;
static uint32_t most_groups;

static void see_dispatch(VkCommandBuffer commands, uint32_t x, uint32_t y, uint32_t z)
{
    const uint32_t most = x > y ? x : y;
    most_groups = most > most_groups ? most : most_groups;
    most_groups = z > most_groups ? z : most_groups;
    driver.CmdDispatch(commands, x, y, z);
}

static void stand_between(void *ctx, mf_vk_api *api)
{
    (void)ctx;
    driver = *api;
    api->CmdDispatch = see_dispatch;
}

static mf_backend *be;

static mf_span make(uint64_t n_floats, const float *values)
{
    mf_error error = {0};
    mf_buffer buffer = {0};
    const uint64_t n_bytes = n_floats * sizeof(float);
    REQUIRE_OK(be->ops->buffer_create(be, n_bytes, MF_USE_DEVICE, "floats", &buffer, &error),
               &error);
    if (values != NULL)
        be->ops->write(be, (mf_span){buffer, 0}, values, n_bytes);
    return (mf_span){buffer, 0};
}

/* What the operation makes of its rows. */
static void run(const mf_op *op, mf_span result, float *got, uint64_t n_floats)
{
    mf_error error = {0};
    most_groups = 0;
    REQUIRE_OK(mf_backend_reserve(be, op, &error), &error);
    be->ops->record(be, op);
    REQUIRE_OK(mf_backend_read(be, result, got, n_floats * sizeof(float), &error), &error);
    CHECK_MSG(most_groups > 0 && most_groups <= MOST_GROUPS, "a dispatch of %u workgroups",
              most_groups);
    be->ops->buffer_free(be, result.buffer);
}

static float *floats(uint64_t n)
{
    float *x = malloc(n * sizeof *x);
    REQUIRE(x != NULL);
    for (uint64_t i = 0; i < n; i++)
        x[i] = (float)(i % 1009) - 500.0f;
    return x;
}

/* Heads are rows of a norm: a chunk of 512 rows with 128 of them has one too many. */
static void check_norms(uint32_t n_cols, bool is_centred)
{
    const uint64_t n = (uint64_t)MANY_ROWS * n_cols;
    float *x = floats(n), *got = floats(n), ones[8];
    for (uint32_t i = 0; i < 8; i++)
        ones[i] = 1.0f;
    const mf_span rows = make(n, x), weight = make(n_cols, ones);
    const mf_op op = {.kind = MF_OP_RMSNORM,
                      .n_rows = MANY_ROWS,
                      .u.rmsnorm = {.x = rows,
                                    .weight = weight,
                                    .out = rows,
                                    .n_cols = n_cols,
                                    .eps = 1e-6f,
                                    .is_centred = is_centred}};
    run(&op, rows, got, n);
    for (uint32_t r = 0; r < MANY_ROWS; r++) {
        const float *row = x + (uint64_t)r * n_cols;
        double mean = 0.0, squares = 0.0;
        for (uint32_t i = 0; i < n_cols && is_centred; i++)
            mean += (double)row[i] / n_cols;
        for (uint32_t i = 0; i < n_cols; i++)
            squares += (row[i] - mean) * (row[i] - mean);
        const double expected = (row[0] - mean) / sqrt(squares / n_cols + 1e-6);
        const double off = fabs((double)got[(uint64_t)r * n_cols] - expected);
        if (off > 1e-4) {
            CHECK_MSG(false, "row %u is off by %g", r, off);
            break;
        }
    }
    be->ops->buffer_free(be, weight.buffer);
    free(x);
    free(got);
}

static void check_copies(void)
{
    const uint32_t n_cols = 3, n_from = 100;
    const uint64_t n = (uint64_t)MANY_ROWS * n_cols;
    float *x = floats((uint64_t)n_from * n_cols), *got = floats(n);
    uint32_t *rows = malloc(MANY_ROWS * sizeof *rows);
    REQUIRE(rows != NULL);
    for (uint32_t i = 0; i < MANY_ROWS; i++)
        rows[i] = i * 7 % n_from;
    const mf_span from = make((uint64_t)n_from * n_cols, x), to = make(n, NULL);
    const mf_op op = {.kind = MF_OP_COPY_ROWS,
                      .n_rows = MANY_ROWS,
                      .u.copy_rows = {.x = from, .out = to, .rows = rows, .n_cols = n_cols}};
    run(&op, to, got, n);
    for (uint64_t i = 0; i < n; i++)
        if (got[i] != x[rows[i / n_cols] * n_cols + i % n_cols]) {
            CHECK_MSG(false, "row %llu is %g", (unsigned long long)(i / n_cols), (double)got[i]);
            break;
        }
    be->ops->buffer_free(be, from.buffer);
    free(x);
    free(got);
    free(rows);
}

/* More tiles of queries than fit a dispatch, which have few where these do not lie at 16 bytes.
 * Each row sees itself alone, so that it gets its own value. */
static void check_tiles(void)
{
    enum { N_ROWS = 8200, N_HEADS = 64, DIM = 4, N_PAGES = N_ROWS / MF_PAGE_TOKENS + 1 };
    const uint64_t n = (uint64_t)N_ROWS * N_HEADS * DIM, page = MF_PAGE_TOKENS * DIM;
    float *q = floats(n), *got = floats(n), *values = floats((uint64_t)N_ROWS * DIM);
    static mf_span pages[N_PAGES];
    const mf_span room = make(n + 1, NULL), queries = mf_span_at(room, sizeof(float)),
                  out = make(n, NULL);
    const mf_span fresh = make((uint64_t)N_ROWS * DIM, values),
                  cache = make(2 * N_PAGES * page, NULL);
    mf_error error = {0};
    for (uint32_t i = 0; i < N_PAGES; i++)
        pages[i] = mf_span_at(cache, i * 2 * page * sizeof(float));
    const mf_sequence sequence = {.n_rows = N_ROWS, .pages = pages};
    const mf_op op = {.kind = MF_OP_ATTENTION,
                      .n_rows = N_ROWS,
                      .u.attention = {.q = queries,
                                      .k = fresh,
                                      .v = fresh,
                                      .out = out,
                                      .n_heads = N_HEADS,
                                      .n_kv_heads = 1,
                                      .head_dim = DIM,
                                      .window = 1,
                                      .cache_type = MF_F32,
                                      .page_offset = {0, page * sizeof(float)},
                                      .scale = 1.0f}};
    be->ops->write(be, queries, q, n * sizeof *q);
    REQUIRE_OK(be->ops->reserve_batch(be, 1, N_PAGES, &error), &error);
    be->ops->begin_batch(be, &sequence, 1);
    run(&op, out, got, n);
    for (uint64_t i = 0; i < n; i++) {
        const float expected = values[i / (N_HEADS * DIM) * DIM + i % DIM];
        if (fabsf(got[i] - expected) > 1e-3f) {
            CHECK_MSG(false, "row %llu is %g", (unsigned long long)(i / (N_HEADS * DIM)),
                      (double)got[i]);
            break;
        }
    }
    be->ops->buffer_free(be, room.buffer);
    be->ops->buffer_free(be, fresh.buffer);
    be->ops->buffer_free(be, cache.buffer);
    free(q);
    free(got);
    free(values);
}

/* Most operations have a row in each workgroup of y: a chunk is not larger. */
static void check_chunk(void)
{
    static const mf_op_kind kinds[] = {MF_OP_EMBED, MF_OP_ROPE, MF_OP_HEAD_NORM_ROPE};
    mf_error error = {0};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        mf_op op = {.kind = kinds[i], .n_rows = MOST_GROUPS + 1};
        if (kinds[i] == MF_OP_EMBED)
            op.u.embed.weight.shape = (mf_weight_shape){
                .kind = MF_WEIGHT_FLOAT, .float_type = MF_F32, .n_rows = 4, .n_cols = 4};
        CHECK_STATUS(mf_backend_reserve(be, &op, &error), MF_ERR_UNSUPPORTED);
        CHECK_CONTAINS(error.message, "n_chunk_tokens");
        CHECK_CONTAINS(error.message, "65536");
        op.n_rows = MOST_GROUPS;
        REQUIRE_OK(mf_backend_reserve(be, &op, &error), &error);
    }
}

int main(void)
{
    const mf_vk_hooks hooks = {.loaded = stand_between};
    const mf_backend_options options = {.device = vulkan_test_device()};
    mf_error error = {0};
    if (!vulkan_is_there())
        return TEST_SKIPPED;
    REQUIRE_OK(mf_vk_backend_create(&options, &hooks, &be, &error), &error);
    check_norms(4, false);
    check_norms(3, true);
    check_copies();
    if (!vulkan_is_short())
        check_tiles();
    check_chunk();
    be->ops->destroy(be);
    return test_result();
}
