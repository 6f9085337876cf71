/* SPDX-License-Identifier: MIT */
/*
 * What op_spans.h says of every operation of the list, held against what the operation does: no
 * byte changes but those it may write or lose, no result depends on a byte that it does not read,
 * and nothing is lost that the contract promises.
 */
#include "backend/op_spans.h"
#include "op_cases.h"
#include "test.h"

typedef struct byte_map {
    const scene *s;
    const char *name;
    unsigned char *access; /* [SCENE_BYTES] */
    size_t n_spans;
} byte_map;

static void add_span(void *ctx, mf_span span, uint64_t n_bytes, uint32_t access)
{
    byte_map *m = ctx;
    m->n_spans++;
    bool is_inside =
        span.buffer.id == m->s->buffer.id && n_bytes > 0 && span.offset + n_bytes <= m->s->n_bytes;
    CHECK_MSG(is_inside, "%s: %llu bytes at %llu", m->name, (unsigned long long)n_bytes,
              (unsigned long long)span.offset);
    for (uint64_t i = 0; is_inside && i < n_bytes; i++)
        m->access[span.offset + i] |= (unsigned char)access;
}

static void play(scene *s, mf_backend *be, unsigned char *result)
{
    mf_error error = {0};
    REQUIRE_OK(scene_play(s, be, SCENE_WHOLE, result, &error), &error);
}

static void check_changes(const byte_map *m, const unsigned char *result)
{
    const scene *s = m->s;
    size_t changed = SIZE_MAX, lost = SIZE_MAX;
    for (size_t i = 0; i < s->n_bytes; i++) {
        if (result[i] != s->image[i] && (m->access[i] & (MF_WRITES | MF_LOSES)) == 0)
            changed = i;
        if ((m->access[i] & MF_LOSES) != 0 && s->roles[i / 4] != SCENE_SCRATCH)
            lost = i;
    }
    CHECK_MSG(changed == SIZE_MAX, "%s: byte %zu is written", m->name, changed);
    CHECK_MSG(lost == SIZE_MAX, "%s: byte %zu is not scratch", m->name, lost);
}

static void check_case(const op_case *c, scene *s, mf_backend *be)
{
    mf_error error = {0};
    mf_buffer buffer = {0};
    unsigned char *first = malloc(SCENE_BYTES), *second = malloc(SCENE_BYTES);
    byte_map m = {.s = s, .name = c->name, .access = calloc(1, SCENE_BYTES)};
    REQUIRE(first != NULL && second != NULL && m.access != NULL);
    REQUIRE_OK(be->ops->buffer_create(be, SCENE_BYTES, MF_USE_DEVICE, "scene", &buffer, &error),
               &error);
    op_case_build(c, s, buffer, 0);
    mf_op_spans(&s->op, s->sequences, s->n_sequences, add_span, &m);
    CHECK(m.n_spans >= 2);
    play(s, be, first);
    check_changes(&m, first);
    for (size_t i = 0; i < s->n_bytes; i++)
        s->image[i] ^= (m.access[i] & MF_READS) == 0 ? 0x5a : 0;
    play(s, be, second);
    CHECK_MSG(scene_differs(s, first, second) == SIZE_MAX,
              "%s: the result at byte %zu depends on what is not read", c->name,
              scene_differs(s, first, second) * 4);
    be->ops->buffer_free(be, buffer);
    free(first);
    free(second);
    free(m.access);
}

typedef struct offsets {
    uint64_t read, written;
} offsets;

static void note_offset(void *ctx, mf_span span, uint64_t n_bytes, uint32_t access)
{
    offsets *o = ctx;
    (void)n_bytes;
    if (span.buffer.id == 7)
        *((access & MF_READS) != 0 ? &o->read : &o->written) = span.offset;
}

/* A layer's part of a state begins at the operation's offset, in the old one and the new one. */
static void check_state_offset(void)
{
    mf_op ops[] = {{.kind = MF_OP_CONV1D_SILU, .n_rows = 1},
                   {.kind = MF_OP_GATED_DELTA, .n_rows = 1}};
    const mf_sequence seq = {.n_rows = 1, .state = {{{7}, 4096}, {{7}, 65536}}};
    ops[0].u.conv1d_silu.n_channels = ops[0].u.conv1d_silu.width = 4;
    ops[0].u.conv1d_silu.state_offset = 256;
    ops[1].u.gated_delta.n_k_heads = ops[1].u.gated_delta.n_v_heads = 2;
    ops[1].u.gated_delta.key_dim = ops[1].u.gated_delta.value_dim = 4;
    ops[1].u.gated_delta.state_offset = 256;
    for (int i = 0; i < 2; i++) {
        offsets o = {0};
        mf_op_spans(&ops[i], &seq, 1, note_offset, &o);
        CHECK_U64(o.read, 4096 + 256);
        CHECK_U64(o.written, 65536 + 256);
    }
}

int main(void)
{
    mf_error error = {0};
    mf_backend *be = NULL;
    const mf_backend_options options = {.n_threads = 1};
    scene *s = scene_new();
    REQUIRE(s != NULL);
    REQUIRE_OK(mf_backend_open(&options, &be, &error), &error);
    for (size_t i = 0; i < n_op_cases; i++)
        check_case(&op_cases[i], s, be);
    check_state_offset();
    be->ops->destroy(be);
    scene_free(s);
    return test_result();
}
