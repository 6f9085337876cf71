/* SPDX-License-Identifier: MIT */
/*
 * Binding, on made-up tensors: after the planned copies each row of a matrix has its own values and
 * the scales of its own block, however its rows are rearranged and whatever they share; what is
 * counted; experts stored one by one that are not all alike.
 */
#include "model/binder.h"

#include "base/half.h"
#include "test.h"

#define FILE_BYTES ((size_t)4 << 20)
#define MAX_RUNS 4u
#define MAX_ROWS 2048u

/* A source that has one matrix, or the experts of one layer; its file is memory. */
typedef struct made_source {
    mf_source base;
    mf_tensor tensors[3][8][3]; /* [matrix][expert][array] */
    bool has_scales, has_biases;
    mf_expert_layout layout;
    mf_packed_experts packed;
    mf_tensor_file file;
    unsigned char *bytes;
    uint64_t n_bytes;
    uint64_t random;
} made_source;

static mf_status find_made(mf_source *source, mf_tensor_id id, mf_stored *out, mf_error *error)
{
    made_source *m = (made_source *)source;
    const bool is_expert = id.role >= MF_ROLE_EXPERT_GATE && id.role <= MF_ROLE_EXPERT_DOWN;
    mf_tensor *t = m->tensors[is_expert ? id.role - MF_ROLE_EXPERT_GATE : 0]
                             [is_expert && id.expert != MF_ALL_EXPERTS ? id.expert : 0];
    (void)error;
    *out = (mf_stored){.data = &t[0],
                       .scales = t[1].name != NULL ? &t[1] : NULL,
                       .biases = t[2].name != NULL ? &t[2] : NULL};
    return MF_OK;
}

static mf_status check_made(const mf_source *source, const mf_stored *stored, uint32_t bits,
                            uint32_t group, mf_error *error)
{
    (void)source;
    (void)stored;
    (void)error;
    CHECK((bits == 4 && group == 32) || (bits == 8 && group == 128));
    return MF_OK;
}

static mf_expert_layout layout_made(const mf_source *source, uint32_t layer)
{
    (void)layer;
    return ((const made_source *)source)->layout;
}

static mf_status packed_made(mf_source *source, uint32_t layer, mf_packed_experts *out,
                             mf_error *error)
{
    (void)layer;
    (void)error;
    *out = ((made_source *)source)->packed;
    return MF_OK;
}

static const mf_source_ops made_ops = {.packed_experts = packed_made,

                                       .find = find_made,
                                       .check_affine = check_made,
                                       .expert_layout = layout_made};

static made_source *made_create(uint64_t seed)
{
    made_source *m = calloc(1, sizeof *m);
    REQUIRE(m != NULL);
    m->file = (mf_tensor_file){.path = (char *)"made.safetensors", .n_bytes = FILE_BYTES};
    m->base = (mf_source){.ops = &made_ops, .path = "made", .hparam_path = "made"};
    m->base.table.files = &m->file;
    m->base.table.n_files = 1;
    m->bytes = malloc(FILE_BYTES);
    m->random = seed;
    REQUIRE(m->bytes != NULL);
    for (size_t i = 0; i < FILE_BYTES; i += 8) {
        uint64_t word = test_random(&m->random) & UINT64_C(0x3fff3fff3fff3fff); /* all finite */
        memcpy(m->bytes + i, &word, 8);
    }
    return m;
}

static void made_free(made_source *m)
{
    free(m->bytes);
    free(m);
}

static uint32_t below(made_source *m, uint32_t n)
{
    return (uint32_t)(test_random(&m->random) % n);
}

/* A tensor [n_stacked, rows, cols], the first dimension only if not 0, somewhere in the file. */
static mf_tensor made_tensor(made_source *m, mf_tensor_type type, mf_matrix_shape s)
{
    static const char *const names[] = {"other", "F32", "F16", "BF16", "U32", "F8_E4M3"};
    static const uint32_t widths[] = {1, 4, 2, 2, 4, 1};
    mf_tensor t = {.name = "made", .type = type};
    if (s.n_stacked != 0)
        t.shape[t.n_dims++] = s.n_stacked;
    t.shape[t.n_dims++] = s.n_rows;
    t.shape[t.n_dims++] = s.n_cols;
    snprintf(t.type_name, sizeof t.type_name, "%s", names[type]);
    t.n_bytes = (uint64_t)(s.n_stacked == 0 ? 1 : s.n_stacked) * s.n_rows * s.n_cols * widths[type];
    t.offset = m->n_bytes;
    m->n_bytes += t.n_bytes + 8 * below(m, 5);
    REQUIRE(m->n_bytes <= FILE_BYTES);
    return t;
}

static void make_fp8(made_source *m, mf_tensor *t, mf_matrix_shape s, mf_tensor_type scales)
{
    t[0] = made_tensor(m, MF_TENSOR_F8_E4M3, s);
    t[1] = made_tensor(
        m, scales, (mf_matrix_shape){s.n_stacked, (s.n_rows + 127) / 128, (s.n_cols + 127) / 128});
}

/* ---------------------------------------- copies ---------------------------------------- */

static float value_at(const unsigned char *p, mf_tensor_type type)
{
    uint16_t half;
    float value;
    if (type == MF_TENSOR_F32) {
        memcpy(&value, p, sizeof value);
        return value;
    }
    memcpy(&half, p, sizeof half);
    return type == MF_TENSOR_BF16 ? mf_f32_from_bf16(half) : mf_f32_from_f16(half);
}

/* What the loader makes of the plan; no byte is written twice. */
static unsigned char *load(const made_source *m, const mf_binder *b)
{
    unsigned char *to = calloc(2, (size_t)b->resident_bytes + 1);
    unsigned char *is_written = to + b->resident_bytes;
    REQUIRE(to != NULL);
    for (size_t i = 0; i < b->n_copies; i++) {
        const mf_copy *c = &b->copies[i];
        const uint64_t width = c->convert == MF_TENSOR_OTHER ? 1
                               : c->convert == MF_TENSOR_F32 ? 4
                                                             : 2;
        const uint64_t n = c->n_bytes / width, out = c->convert == MF_TENSOR_OTHER ? 1 : 4;
        REQUIRE(c->source + c->n_bytes <= m->n_bytes && c->dest + n * out <= b->resident_bytes);
        for (uint64_t k = 0; k < n; k++) {
            unsigned char *dest = to + c->dest + k * out;
            const unsigned char *from = m->bytes + c->source + k * width;
            const float value = out == 1 ? 0 : value_at(from, c->convert) + c->add;
            memcpy(dest, out == 1 ? (const void *)from : (const void *)&value, (size_t)out);
            CHECK(is_written[c->dest + k * out] == 0);
            memset(is_written + c->dest + k * out, 1, (size_t)out);
        }
    }
    return to;
}

/* Row `row` of the stored matrices taken together, and row `at` of the bound one. */
static void check_row(const made_source *m, const mf_tensor *t, const unsigned char *loaded,
                      const mf_weight *w, mf_matrix_shape s, uint32_t row, uint32_t at)
{
    const mf_weight_format *format = mf_weight_format_of(&w->shape);
    for (uint32_t i = 0; i < format->n_arrays; i++) {
        const uint64_t n_bytes = mf_weight_array_row_bytes(&w->shape, i);
        const unsigned char *got =
            loaded + w->arrays[i].offset + at / mf_weight_array_step(&w->shape, i) * n_bytes;
        const unsigned char *from = m->bytes + t[i].offset;
        if (!format->arrays[i].is_float32) {
            CHECK_MSG(memcmp(got, from + row * n_bytes, n_bytes) == 0,
                      "array %u: row %u is not stored row %u", i, at, row);
            continue;
        }
        const uint32_t n_cols = (s.n_cols + 127) / 128, n_rows = (s.n_rows + 127) / 128;
        const uint32_t width = t[i].type == MF_TENSOR_F32 ? 4 : 2;
        from += (size_t)(row / s.n_rows * n_rows + row % s.n_rows / 128) * n_cols * width;
        for (uint32_t c = 0; c < n_cols; c++)
            CHECK_MSG(value_at(got + 4 * c, MF_TENSOR_F32) == value_at(from + c * width, t[i].type),
                      "row %u has not the scales of stored row %u", at, row);
    }
}

/* ---------------------------------------- matrices ---------------------------------------- */

/* Runs of blocks, each within one of the stacked matrices. */
static uint32_t random_runs(made_source *m, mf_matrix_shape s, mf_rows *runs)
{
    const uint32_t n_runs = 1 + below(m, MAX_RUNS), n_stacked = s.n_stacked == 0 ? 1 : s.n_stacked;
    for (uint32_t i = 0; i < n_runs; i++) {
        const uint32_t unit = 1u << below(m, 8), n_units = s.n_rows / unit;
        const uint32_t parts = 1 + below(m, 3);
        mf_rows *r = &runs[i];
        if (n_units < parts || parts == 1) { /* a block of each, or one of one */
            const uint32_t first = below(m, s.n_rows), n = 1 + below(m, s.n_rows - first);
            const bool is_one = below(m, 2) == 0;
            *r = (mf_rows){is_one ? 1 : n_stacked, n, s.n_rows,
                           first + (is_one ? below(m, n_stacked) * s.n_rows : 0)};
            continue;
        }
        const uint32_t stride = n_units / parts * unit;
        *r = (mf_rows){parts, unit * (1 + below(m, stride / unit)), stride, 0};
        r->offset = (stride - r->block_rows) / unit * unit * below(m, 2);
    }
    return n_runs;
}

static void make_matrix(made_source *m, int form, mf_matrix_shape s)
{
    mf_tensor *t = m->tensors[0][0];
    m->n_bytes = 0;
    t[1].name = t[2].name = NULL;
    if (form == 0) {
        t[0] = made_tensor(m, MF_TENSOR_BF16, s);
    } else if (form == 1) {
        const mf_matrix_shape words = {s.n_stacked, s.n_rows, s.n_cols / 8};
        const mf_matrix_shape groups = {s.n_stacked, s.n_rows, s.n_cols / 32};
        t[0] = made_tensor(m, MF_TENSOR_U32, words);
        t[1] = made_tensor(m, MF_TENSOR_F16, groups);
        t[2] = made_tensor(m, MF_TENSOR_F16, groups);
    } else {
        make_fp8(m, t, s, form == 2 ? MF_TENSOR_F32 : MF_TENSOR_BF16);
    }
}

static void check_matrix(made_source *m, int form)
{
    mf_error error = {0};
    mf_rows runs[MAX_RUNS];
    mf_binder b;
    mf_weight w[2];
    const mf_allocator a = mf_allocator_or_default(NULL);
    const mf_matrix_shape s = {below(m, 3), 1 + below(m, 400), 32 * (1 + below(m, 10))};
    const uint32_t n_runs = random_runs(m, s, runs);
    make_matrix(m, form, s);
    mf_binder_init(&b, &a, &m->base);
    const mf_tensor_id id = mf_tensor_of(MF_ROLE_Q, 0);
    REQUIRE_OK(mf_bind_matrix_rows(&b, id, s, &(mf_row_list){runs, n_runs}, &w[0], &error), &error);
    const uint64_t n_counted = b.n_parameters;
    REQUIRE_OK(mf_bind_matrix(&b, id, s, &w[1], &error), &error);
    unsigned char *loaded = load(m, &b);
    uint32_t at = 0;
    for (uint32_t i = 0; i < n_runs; i++)
        for (uint32_t block = 0; block < runs[i].n_blocks; block++)
            for (uint32_t k = 0; k < runs[i].block_rows; k++)
                check_row(m, m->tensors[0][0], loaded, &w[0], s,
                          runs[i].offset + block * runs[i].stride + k, at++);
    CHECK_U64(w[0].shape.n_rows, at);
    CHECK_U64(n_counted, (uint64_t)at * s.n_cols);
    const uint32_t n_all = (s.n_stacked == 0 ? 1 : s.n_stacked) * s.n_rows;
    for (uint32_t row = 0; row < n_all; row++)
        check_row(m, m->tensors[0][0], loaded, &w[1], s, row, row);
    CHECK_U64(w[1].shape.n_rows, n_all);
    CHECK_U64(b.n_parameters, n_counted + (uint64_t)n_all * s.n_cols);
    free(loaded);
    mf_binder_free(&b);
}

/* Bits and groups follow from the shapes: those that no kernel has are refused, and shapes that say
 * nothing. */
static void check_affine_shapes(made_source *m)
{
    static const struct {
        uint32_t words, groups;
        mf_status status;
    } cases[] = {
        {32, 8, MF_OK},               /* 4 bits of 256 values in groups of 32 */
        {64, 2, MF_OK},               /* 8 in groups of 128 */
        {32, 16, MF_ERR_UNSUPPORTED}, /* groups of 16 */
        {32, 1, MF_ERR_UNSUPPORTED},  /* of 256 */
        {56, 8, MF_ERR_UNSUPPORTED},  /* 7 bits */
        {8, 8, MF_ERR_UNSUPPORTED},   /* 1 */
        {33, 8, MF_ERR_FORMAT},       /* 4 1/8 */
        {32, 7, MF_ERR_FORMAT},
    };
    const mf_allocator a = mf_allocator_or_default(NULL);
    mf_tensor *t = m->tensors[0][0];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mf_error error = {0};
        mf_binder b;
        mf_weight w;
        m->n_bytes = 0;
        t[0] = made_tensor(m, MF_TENSOR_U32, (mf_matrix_shape){0, 10, cases[i].words});
        t[1] = made_tensor(m, MF_TENSOR_BF16, (mf_matrix_shape){0, 10, cases[i].groups});
        t[2] = made_tensor(m, MF_TENSOR_BF16, (mf_matrix_shape){0, 10, cases[i].groups});
        mf_binder_init(&b, &a, &m->base);
        const mf_matrix_shape s = {0, 10, 256};
        mf_status status = mf_bind_matrix(&b, mf_tensor_of(MF_ROLE_Q, 0), s, &w, &error);
        CHECK_MSG(status == cases[i].status, "%u words, %u groups: %s", cases[i].words,
                  cases[i].groups, mf_status_name(status));
        mf_binder_free(&b);
    }
    m->n_bytes = 0;
    t[0] = made_tensor(m, MF_TENSOR_U32, (mf_matrix_shape){0, 10, 32});
    t[1] = made_tensor(m, MF_TENSOR_BF16, (mf_matrix_shape){0, 10, 8});
    for (int i = 0; i < 2; i++) { /* biases unlike the scales */
        mf_error error = {0};
        mf_binder b;
        mf_weight w;
        const mf_matrix_shape s = {0, 10, 256}, of_biases = {0, 10, i == 0 ? 4 : 8};
        t[2] = made_tensor(m, i == 0 ? MF_TENSOR_BF16 : MF_TENSOR_F16, of_biases);
        mf_binder_init(&b, &a, &m->base);
        CHECK_STATUS(mf_bind_matrix(&b, mf_tensor_of(MF_ROLE_Q, 0), s, &w, &error), MF_ERR_FORMAT);
        CHECK_CONTAINS(error.message, "the shape and dtype of the scales");
        mf_binder_free(&b);
    }
}

/* The rows that share a row of scales are as many as can: of whole matrices 128. */
static void check_sharing(made_source *m)
{
    static const struct {
        mf_rows runs[3];
        uint32_t n_runs, scale_rows;
    } cases[] = {
        {{{1, 300, 300, 0}}, 1, 128},
        {{{1, 256, 0, 0}, {1, 44, 0, 256}}, 2, 128},
        {{{1, 24, 0, 0}, {1, 128, 0, 128}}, 2, 8}, /* the second does not begin a block here */
        {{{1, 128, 0, 128}, {1, 24, 0, 0}}, 2, 128},
        {{{1, 100, 0, 64}}, 1, 64},
        {{{2, 64, 128, 0}}, 1, 64},
        {{{2, 128, 160, 0}}, 1, 32},
        {{{1, 128, 0, 0}, {2, 12, 128, 128}, {1, 7, 0, 256}}, 3, 4},
    };
    mf_error error = {0};
    const mf_allocator a = mf_allocator_or_default(NULL);
    const mf_matrix_shape s = {0, 300, 256};
    make_matrix(m, 2, s);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mf_binder b;
        mf_weight w;
        mf_binder_init(&b, &a, &m->base);
        REQUIRE_OK(mf_bind_matrix_rows(&b, mf_tensor_of(MF_ROLE_Q, 0), s,
                                       &(mf_row_list){cases[i].runs, cases[i].n_runs}, &w, &error),
                   &error);
        CHECK_MSG(w.shape.scale_rows == cases[i].scale_rows, "case %zu: %u rows share scales", i,
                  w.shape.scale_rows);
        mf_binder_free(&b);
    }
}

/* ---------------------------------------- vectors ---------------------------------------- */

static void check_norms(made_source *m)
{
    mf_error error = {0};
    const mf_tensor_id id = mf_tensor_of(MF_ROLE_INPUT_NORM, 0);
    const mf_allocator a = mf_allocator_or_default(NULL);
    static const mf_tensor_type types[] = {MF_TENSOR_F32, MF_TENSOR_F16, MF_TENSOR_BF16};
    for (int i = 0; i < 6; i++) {
        mf_binder b;
        mf_span norm, vector;
        mf_tensor *t = m->tensors[0][0];
        m->n_bytes = 0;
        t[0] = made_tensor(m, types[i % 3], (mf_matrix_shape){0, 30, 7});
        m->base.norms_as_published = i < 3;
        mf_binder_init(&b, &a, &m->base);
        REQUIRE_OK(mf_bind_norm(&b, id, 210, 1.0f, &norm, &error), &error);
        CHECK_U64(b.n_parameters, 210);
        REQUIRE_OK(mf_bind_vector(&b, id, 210, &vector, &error), &error);
        CHECK_U64(b.n_parameters, 420);
        CHECK_STATUS(mf_bind_vector(&b, id, 211, &vector, &error), MF_ERR_FORMAT);
        CHECK_STATUS(mf_bind_vector(&b, id, 30, &vector, &error), MF_ERR_FORMAT);
        unsigned char *loaded = load(m, &b);
        const uint32_t width = types[i % 3] == MF_TENSOR_F32 ? 4 : 2;
        for (uint32_t k = 0; k < 210; k++) {
            const float stored = value_at(m->bytes + t[0].offset + k * width, t[0].type);
            const float added = i < 3 ? stored + 1.0f : stored;
            CHECK(value_at(loaded + norm.offset + 4 * k, MF_TENSOR_F32) == added);
            CHECK(value_at(loaded + vector.offset + 4 * k, MF_TENSOR_F32) == stored);
        }
        free(loaded);
        mf_binder_free(&b);
    }
}

/* ---------------------------------------- experts ---------------------------------------- */

enum { N_EXPERTS = 5, HIDDEN = 160, EXPERT_HIDDEN = 256 };

static mf_matrix_shape shape_of(int matrix)
{
    return matrix == 2 ? (mf_matrix_shape){0, HIDDEN, EXPERT_HIDDEN}
                       : (mf_matrix_shape){0, EXPERT_HIDDEN, HIDDEN};
}

/* Experts in FP8, one by one, with scales of that type. */
static void make_experts(made_source *m, mf_tensor_type scales)
{
    m->n_bytes = 0;
    m->layout = MF_EXPERTS_EACH;
    memset(m->tensors, 0, sizeof m->tensors);
    for (int j = 0; j < 3; j++)
        for (int e = 0; e < N_EXPERTS; e++)
            make_fp8(m, m->tensors[j][e], shape_of(j), scales);
}

static mf_status bind_experts_of(made_source *m, uint32_t expert_hidden, mf_binder *b,
                                 mf_expert_shape *out, mf_error *error)
{
    const mf_hparams h = {.n_layers = 2,
                          .n_moe_layers = 2,
                          .moe_index = {0, 1},
                          .n_experts = N_EXPERTS,
                          .hidden_size = HIDDEN,
                          .expert_hidden = expert_hidden};
    const mf_allocator a = mf_allocator_or_default(NULL);
    *out = (mf_expert_shape){.has_resident_scales = false};
    mf_binder_init(b, &a, &m->base);
    return mf_bind_experts(b, &h, 1, out, error);
}

static mf_status bind_experts(made_source *m, mf_binder *b, mf_expert_shape *out, mf_error *error)
{
    return bind_experts_of(m, EXPERT_HIDDEN, b, out, error);
}

/* The resident scales of matrix j, loaded: of each expert's stored ones run `at` of n_runs. */
static void check_resident(const made_source *m, const unsigned char *loaded, const mf_weight *w,
                           const mf_tensor *t, uint64_t at, uint64_t n_runs)
{
    const uint64_t n = mf_weight_array_bytes(&w->shape, 1) / 4;
    for (uint64_t k = 0; k < n * N_EXPERTS; k++) {
        const uint64_t stored = (k / n * n_runs + at) * n + k % n;
        CHECK(value_at(loaded + w->arrays[1].offset + 4 * k, MF_TENSOR_F32) ==
              value_at(m->bytes + t->offset + 2 * stored, MF_TENSOR_BF16));
    }
}

/* Stacked in FP8: read in place, but for scales that are not what kernels read, which are loaded;
 * those of one matrix of another type than the others. */
static void check_stacked(made_source *m, mf_tensor_type scales, bool is_mixed)
{
    mf_error error = {0};
    mf_binder b;
    mf_expert_shape shape;
    const bool is_resident = scales != MF_TENSOR_F32;
    make_experts(m, scales);
    m->n_bytes = 0;
    m->layout = MF_EXPERTS_STACKED;
    for (int j = 0; j < 3; j++) {
        const mf_matrix_shape s = shape_of(j);
        make_fp8(m, m->tensors[j][0], (mf_matrix_shape){N_EXPERTS, s.n_rows, s.n_cols},
                 j == 1 && is_mixed ? (is_resident ? MF_TENSOR_F32 : MF_TENSOR_BF16) : scales);
    }
    mf_status status = bind_experts(m, &b, &shape, &error);
    CHECK_STATUS(status, is_mixed ? MF_ERR_UNSUPPORTED : MF_OK);
    if (status != MF_OK)
        CHECK_CONTAINS(error.message, "scales of stacked FP8 experts must be all F32, or none");
    unsigned char *loaded = status == MF_OK ? load(m, &b) : NULL;
    const mf_weight *const weights[] = {&shape.gate, &shape.up, &shape.down};
    for (int j = 0; j < 3 && status == MF_OK; j++)
        for (int i = 0; i < 2; i++) {
            const mf_expert_part *part =
                &b.experts.parts[MF_MAX_EXPERT_PARTS + MF_MAX_WEIGHT_ARRAYS * j + i];
            const mf_tensor *t = &m->tensors[j][0][i];
            if (i == 1 && is_resident) {
                CHECK_U64(part->n_bytes, 0);
                check_resident(m, loaded, weights[j], t, 0, 1);
                continue;
            }
            CHECK_U64(part->offset, t->offset);
            CHECK_U64(part->n_bytes * N_EXPERTS, t->n_bytes);
            CHECK_U64(part->stride, part->n_bytes);
        }
    CHECK(status != MF_OK || shape.has_resident_scales == is_resident);
    free(loaded);
    mf_binder_free(&b);
}

/* Where the values are; scales that are not float32 are, expert after expert. */
static void check_experts(made_source *m, mf_tensor_type scales)
{
    mf_error error = {0};
    mf_binder b;
    mf_expert_shape shape;
    make_experts(m, scales);
    REQUIRE_OK(bind_experts(m, &b, &shape, &error), &error);
    const bool is_resident = scales != MF_TENSOR_F32;
    const mf_weight *const weights[] = {&shape.gate, &shape.up, &shape.down};
    unsigned char *loaded = load(m, &b);
    CHECK(shape.has_resident_scales == is_resident);
    CHECK_U64(b.n_parameters, (uint64_t)N_EXPERTS * 3 * HIDDEN * EXPERT_HIDDEN);
    for (int j = 0; j < 3; j++) {
        const mf_expert_part *parts =
            b.experts.parts + MF_MAX_EXPERT_PARTS + (size_t)MF_MAX_WEIGHT_ARRAYS * j;
        const mf_weight_shape *s = &weights[j]->shape;
        CHECK(s->n_rows == shape_of(j).n_rows && s->n_cols == shape_of(j).n_cols);
        CHECK_U64(parts[0].n_bytes, HIDDEN * EXPERT_HIDDEN);
        CHECK((parts[1].n_bytes == 0) == is_resident);
        for (int e = 0; e < N_EXPERTS; e++) {
            const mf_tensor *t = m->tensors[j][e];
            CHECK_U64(parts[0].each_offset[e], t[0].offset);
            if (!is_resident) {
                CHECK_U64(parts[1].each_offset[e], t[1].offset);
                continue;
            }
            const uint64_t n = mf_weight_array_bytes(s, 1);
            for (uint64_t k = 0; k < n / 4; k++)
                CHECK(value_at(loaded + weights[j]->arrays[1].offset + e * n + 4 * k,
                               MF_TENSOR_F32) ==
                      value_at(m->bytes + t[1].offset + 2 * k, MF_TENSOR_BF16));
        }
    }
    free(loaded);
    mf_binder_free(&b);
}

/* One matrix of one expert is stored in another way than all others. */
static void check_unlike(made_source *m)
{
    mf_error error = {0};
    mf_binder b;
    mf_expert_shape shape;
    for (int form = 0; form < 4; form++) {
        for (int j = 0; j < 3; j++) {
            const mf_matrix_shape s = shape_of(j);
            make_experts(m, form == 0 ? MF_TENSOR_BF16 : MF_TENSOR_F32);
            mf_tensor *t = m->tensors[j][N_EXPERTS - 1];
            if (form < 2)
                make_fp8(m, t, s, form == 0 ? MF_TENSOR_F32 : MF_TENSOR_BF16);
            for (int k = 0; form == 3 && k < 3 * N_EXPERTS; k++) {
                m->tensors[k / N_EXPERTS][k % N_EXPERTS][0] =
                    made_tensor(m, MF_TENSOR_F16, shape_of(k / N_EXPERTS));
                m->tensors[k / N_EXPERTS][k % N_EXPERTS][1].name = NULL;
            }
            if (form >= 2) {
                t[0] = made_tensor(m, MF_TENSOR_BF16, s);
                t[1].name = NULL;
            }
            CHECK_STATUS(bind_experts(m, &b, &shape, &error), MF_ERR_UNSUPPORTED);
            CHECK_CONTAINS(error.message,
                           "must be all of one floating-point dtype, or all quantised alike");
            mf_binder_free(&b);
        }
    }
}

/* Array i of matrix j lies in tensor t from its `at`-th half on, of `n_halves`. */
static void check_half(const mf_binder *b, int j, int i, const mf_tensor *t, int at, int n_halves)
{
    const mf_expert_part *part =
        &b->experts.parts[MF_MAX_EXPERT_PARTS + MF_MAX_WEIGHT_ARRAYS * j + i];
    const uint64_t stride = t->n_bytes / N_EXPERTS, n = stride / (uint64_t)n_halves;
    CHECK_U64(part->offset, t->offset + n * (uint64_t)at);
    CHECK_U64(part->stride, stride);
    CHECK_U64(part->n_bytes, n);
}

/* Gate and up in one tensor, gate first: floats, or FP8 whose blocks are of either. */
static void check_fused(made_source *m)
{
    static const struct {
        bool is_fp8[2]; /* gate and up, down */
        mf_tensor_type scales;
        uint32_t width;
        const char *refused;
    } cases[] = {
        {{false, false}, MF_TENSOR_F32, EXPERT_HIDDEN, NULL},
        {{true, false}, MF_TENSOR_F32, EXPERT_HIDDEN, NULL},
        {{false, true}, MF_TENSOR_F32, EXPERT_HIDDEN, NULL},
        {{true, true}, MF_TENSOR_F32, EXPERT_HIDDEN, NULL},
        {{false, true}, MF_TENSOR_F32, 96, NULL},
        {{true, false}, MF_TENSOR_F32, 192, "192 rows each for gate and up"},
        {{true, true}, MF_TENSOR_BF16, EXPERT_HIDDEN, NULL},
        {{true, false}, MF_TENSOR_BF16, EXPERT_HIDDEN, NULL},
        {{false, true}, MF_TENSOR_BF16, EXPERT_HIDDEN, NULL},
    };
    memset(m->tensors, 0, sizeof m->tensors);
    m->layout = MF_EXPERTS_FUSED;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const uint32_t width = cases[c].width;
        const mf_matrix_shape both = {N_EXPERTS, 2 * width, HIDDEN};
        const mf_matrix_shape down = {N_EXPERTS, HIDDEN, width};
        mf_error error = {0};
        mf_binder b;
        mf_expert_shape shape;
        mf_tensor *t[] = {m->tensors[0][0], m->tensors[2][0]};
        m->n_bytes = 0;
        for (int i = 0; i < 2; i++) {
            t[i][1].name = NULL;
            if (cases[c].is_fp8[i])
                make_fp8(m, t[i], i == 0 ? both : down, cases[c].scales);
            else
                t[i][0] = made_tensor(m, MF_TENSOR_BF16, i == 0 ? both : down);
        }
        mf_status status = bind_experts_of(m, width, &b, &shape, &error);
        CHECK_STATUS(status, cases[c].refused == NULL ? MF_OK : MF_ERR_UNSUPPORTED);
        if (status == MF_OK) {
            const bool is_resident = cases[c].scales != MF_TENSOR_F32;
            for (int i = 0; i < 1 + (cases[c].is_fp8[0] && !is_resident); i++) {
                check_half(&b, 0, i, &t[0][i], 0, 2);
                check_half(&b, 1, i, &t[0][i], 1, 2);
            }
            for (int i = 0; i < 1 + (cases[c].is_fp8[1] && !is_resident); i++)
                check_half(&b, 2, i, &t[1][i], 0, 1);
            unsigned char *loaded = is_resident ? load(m, &b) : NULL;
            if (is_resident && cases[c].is_fp8[0]) {
                check_resident(m, loaded, &shape.gate, &t[0][1], 0, 2);
                check_resident(m, loaded, &shape.up, &t[0][1], 1, 2);
            }
            if (is_resident && cases[c].is_fp8[1])
                check_resident(m, loaded, &shape.down, &t[1][1], 0, 1);
            CHECK(shape.has_resident_scales == is_resident);
            free(loaded);
            CHECK_U64(b.n_parameters, (uint64_t)3 * N_EXPERTS * HIDDEN * width);
            CHECK(shape.gate.shape.n_rows == width && shape.up.shape.n_rows == width);
            CHECK(shape.gate.shape.kind ==
                  (cases[c].is_fp8[0] ? MF_WEIGHT_FP8_BLOCK : MF_WEIGHT_FLOAT));
            CHECK(shape.up.shape.kind == shape.gate.shape.kind);
            CHECK(shape.down.shape.n_rows == HIDDEN && shape.down.shape.n_cols == width);
        } else if (cases[c].refused != NULL) {
            CHECK_CONTAINS(error.message, cases[c].refused);
        }
        mf_binder_free(&b);
    }
}

/* Nine parts an expert, one after the other; groups that divide rows of both sizes. */
static void check_packed(made_source *m)
{
    static const struct {
        uint32_t hidden, expert_hidden, group;
        mf_status status;
    } cases[] = {{128, 256, 128, MF_OK},
                 {160, 96, 32, MF_OK},
                 {160, 256, 64, MF_ERR_FORMAT},
                 {256, 160, 64, MF_ERR_FORMAT}};
    const mf_allocator a = mf_allocator_or_default(NULL);
    m->layout = MF_EXPERTS_PACKED;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mf_error error = {0};
        mf_binder b;
        mf_expert_shape shape = {.has_resident_scales = false};
        const uint64_t n_values = (uint64_t)cases[i].hidden * cases[i].expert_hidden;
        const uint64_t codes = n_values / 2, factors = n_values / cases[i].group * 2;
        const uint64_t one = 3 * (codes + 2 * factors);
        const mf_hparams h = {.n_layers = 1,
                              .n_moe_layers = 1,
                              .n_experts = N_EXPERTS,
                              .hidden_size = cases[i].hidden,
                              .expert_hidden = cases[i].expert_hidden};
        m->packed = (mf_packed_experts){.file = 0, .bits = 4, .group = cases[i].group};
        m->file.n_bytes = one * N_EXPERTS;
        mf_binder_init(&b, &a, &m->base);
        CHECK_STATUS(mf_bind_experts(&b, &h, 0, &shape, &error), cases[i].status);
        for (uint32_t p = 0; p < 9 && cases[i].status == MF_OK; p++) {
            const mf_expert_part *part = &b.experts.parts[p];
            CHECK_U64(part->stride, one);
            CHECK_U64(part->n_bytes, p % 3 == 0 ? codes : factors);
            CHECK_U64(part->offset, p / 3 * (codes + 2 * factors) +
                                        (p % 3 == 0 ? 0 : codes + (p % 3 - 1) * factors));
        }
        CHECK_U64(b.n_parameters, cases[i].status == MF_OK ? 3 * N_EXPERTS * n_values : 0);
        mf_binder_free(&b);
        for (int off = -1; off <= 1 && cases[i].status == MF_OK; off += 2) {
            m->file.n_bytes = one * N_EXPERTS + (uint64_t)off;
            mf_binder_init(&b, &a, &m->base);
            CHECK_STATUS(mf_bind_experts(&b, &h, 0, &shape, &error), MF_ERR_FORMAT);
            mf_binder_free(&b);
        }
    }
    m->file.n_bytes = FILE_BYTES;
}

/* ---------------------------------------- models ---------------------------------------- */

/* Of models whose tensors are all of floats: the elements, by the headers, of all that is not of a
 * part which text models do without. */
static void check_parameters(const char *name)
{
    char dir[256];
    mf_error error = {0};
    mf_model_info info;
    mf_tensor_table table;
    const mf_allocator a = mf_allocator_or_default(NULL);
    uint64_t n_all = 0;
    snprintf(dir, sizeof dir, "tests/model/data/%s", name);
    mf_tensor_table_init(&table, &a);
    REQUIRE_OK(mf_safetensors_add_dir(&table, dir, &error), &error);
    REQUIRE_OK(mf_tensor_table_finish(&table, &error), &error);
    REQUIRE_OK(mf_model_inspect(dir, NULL, &info, &error), &error);
    for (size_t i = 0; i < table.n_tensors; i++) {
        const mf_tensor *t = &table.tensors[i];
        if (strncmp(t->name, "mtp.", 4) != 0 && strstr(t->name, "visual.") == NULL)
            n_all += t->n_bytes / (t->type == MF_TENSOR_F32 ? 4 : 2);
    }
    CHECK_MSG(info.n_parameters == n_all, "%s: %llu parameters, expected %llu", name,
              (unsigned long long)info.n_parameters, (unsigned long long)n_all);
    const uint64_t of_experts = (uint64_t)info.n_moe_layers * info.n_experts * 3 *
                                info.hidden_size * info.expert_hidden_size;
    CHECK_U64(info.expert_bytes, of_experts * 2);
    CHECK_U64(info.one_expert_bytes, 3ull * info.hidden_size * info.expert_hidden_size * 2);
    CHECK_U64(info.working_set_bytes,
              info.one_expert_bytes * info.n_moe_layers * info.n_experts_per_token);
    CHECK(info.slot_bytes >= info.one_expert_bytes);
    /* the rest stays in memory, vectors as float32 */
    CHECK(info.resident_bytes >= (n_all - of_experts) * 2 &&
          info.resident_bytes <= (n_all - of_experts) * 4);
    CHECK(info.scratch_bytes > 0 && info.floor_bytes > info.resident_bytes + info.scratch_bytes);
    mf_tensor_table_free(&table);
}

int main(void)
{
    made_source *m = made_create(11);
    for (int i = 0; i < 400; i++)
        check_matrix(m, i % 4);
    check_affine_shapes(m);
    check_sharing(m);
    check_norms(m);
    check_experts(m, MF_TENSOR_F32);
    check_experts(m, MF_TENSOR_BF16);
    for (int is_mixed = 0; is_mixed < 2; is_mixed++) {
        check_stacked(m, MF_TENSOR_F32, is_mixed);
        check_stacked(m, MF_TENSOR_BF16, is_mixed);
    }
    check_unlike(m);
    check_fused(m);
    check_packed(m);
    made_free(m);
    static const char *const names[] = {"hf_bf16", "next_bf16", "v2_lite_bf16", "v3_bf16"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_parameters(names[i]);
    return test_result();
}
