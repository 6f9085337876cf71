/* SPDX-License-Identifier: MIT */
/* Sessions to and from snapshots. */
#include "session/snapshot.h"

#include "session/session.h"
#include "state/snapshot_parts.h"

#include <fcntl.h>
#include <string.h>

mf_snapshot_head mf_snapshot_head_of(const mf_engine *engine, uint64_t n_tokens, bool has_logits,
                                     uint32_t n_marks)
{
    mf_snapshot_head head = {.n_tokens = n_tokens,
                             .n_layers = engine->runner.h.n_layers,
                             .n_vocab = engine->runner.h.n_vocab,
                             .page_tokens = MF_PAGE_TOKENS,
                             .page_bytes =
                                 engine->runner.plan.page_bytes + engine->runner.plan.window_bytes,
                             .recurrent_bytes = engine->runner.plan.recurrent_bytes,
                             .has_logits = has_logits,
                             .n_parts = mf_state_n_parts(engine, n_tokens),
                             .parts_bytes = mf_state_bytes(engine, n_tokens)};
    if (has_logits) {
        head.n_parts++;
        head.parts_bytes += (uint64_t)engine->runner.h.n_vocab * sizeof(float);
    }
    if (n_marks != 0 && !mf_engine_keeps_all(engine)) {
        head.n_marks = n_marks;
        head.mark_parts = mf_state_n_mark_parts(engine);
        for (uint32_t i = 0; i < head.mark_parts; i++)
            head.mark_bytes += mf_state_mark_part_bytes(engine, i);
        head.n_parts += (uint64_t)n_marks * head.mark_parts;
        head.parts_bytes += n_marks * head.mark_bytes;
    }
    return head;
}

static mf_snapshot_crew crew_of(const mf_engine *engine)
{
    return (mf_snapshot_crew){&engine->allocator, engine->n_threads};
}

static void list_part(mf_snapshot_parts *parts, uint64_t number, mf_state_part part)
{
    mf_snapshot_parts_add_place(parts, number, part.span.buffer.id, part.span.offset,
                                (size_t)part.n_bytes);
}

static mf_status visit_bytes(void *ctx, const mf_part_place *from, size_t n_bytes, mf_visit_fn fn,
                             void *fn_ctx, mf_error *error)
{
    mf_backend *be = ctx;
    return be->ops->visit(be, (mf_span){{from->buffer}, from->offset}, n_bytes, fn, fn_ctx, error);
}

/* That the device is well is asked when all is written. */
static mf_status produce_bytes(void *ctx, const mf_part_place *to, size_t n_bytes, mf_produce_fn fn,
                               void *fn_ctx, mf_error *error)
{
    mf_backend *be = ctx;
    return be->ops->produce(be, (mf_span){{to->buffer}, to->offset}, n_bytes, fn, fn_ctx, error);
}

static mf_part_memory memory_of(const mf_engine *e)
{
    return (mf_part_memory){e->runner.backend, visit_bytes, produce_bytes};
}

/* All parts that the head says the snapshot has. */
static void list_written(const mf_state *state, const mf_snapshot_head *head,
                         mf_snapshot_parts *parts)
{
    const mf_engine *e = state->engine;
    uint32_t n_parts = mf_state_n_parts(e, state->position);
    parts->memory = memory_of(e);
    for (uint32_t i = 0; i < n_parts; i++)
        list_part(parts, i, mf_state_part_at(state, i));
    if (head->has_logits)
        mf_snapshot_parts_add(parts, n_parts, state->logits,
                              e->runner.h.n_vocab * sizeof *state->logits);
    for (uint32_t k = 0; k < head->n_marks; k++)
        for (uint32_t i = 0; i < head->mark_parts; i++)
            list_part(parts, parts->n_parts, mf_state_mark_part(state, k, i));
}

mf_status mf_snapshot_write(const mf_state *state, mf_byte_sink *sink, mf_error *error)
{
    mf_engine *e = state->engine;
    mf_snapshot_parts parts;
    const mf_snapshot_crew crew = crew_of(e);
    mf_snapshot_head head =
        mf_snapshot_head_of(e, state->position, state->logits != NULL, state->n_marks);
    MF_TRY(mf_engine_snapshot_key(e, &head.key, error));
    for (uint32_t i = 0; i < head.n_marks; i++)
        head.marks[i] = (uint32_t)state->marks[i];
    MF_TRY(mf_snapshot_parts_init(&parts, &e->allocator, (uint32_t)head.n_parts, error));
    list_written(state, &head, &parts);
    mf_status status = mf_snapshot_write_head(sink, &head, state->tokens, error);
    if (status == MF_OK)
        status = mf_snapshot_write_parts(sink, &head, &parts, &crew, error);
    mf_snapshot_parts_free(&parts, &e->allocator);
    return status;
}

/* As --kv-type has it; the file's may be any number. */
static const char *kv_name(uint32_t kv_type)
{
    static const char *const names[] = {
        [MF_KV_F32] = "f32", [MF_KV_BF16] = "bf16", [MF_KV_Q8] = "q8"};
    return kv_type < sizeof names / sizeof *names ? names[kv_type] : "not known";
}

mf_status mf_snapshot_check(mf_engine *engine, const mf_snapshot_head *head, mf_error *error)
{
    mf_snapshot_key key;
    MF_TRY(mf_engine_snapshot_key(engine, &key, error));
    if (memcmp(head->key.fingerprint, key.fingerprint, sizeof key.fingerprint) != 0)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "snapshot of another model");
    if (head->key.kv_type != key.kv_type)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "snapshot of another cache type: its kv_type is %s, the engine's %s",
                       kv_name(head->key.kv_type), kv_name(key.kv_type));
    const mf_snapshot_head want =
        mf_snapshot_head_of(engine, head->n_tokens, head->has_logits, head->n_marks);
    if (head->n_layers != want.n_layers || head->n_vocab != want.n_vocab ||
        head->page_tokens != want.page_tokens || head->page_bytes != want.page_bytes ||
        head->recurrent_bytes != want.recurrent_bytes || head->n_parts != want.n_parts ||
        head->parts_bytes != want.parts_bytes || head->n_marks != want.n_marks ||
        head->mark_parts != want.mark_parts || head->mark_bytes != want.mark_bytes)
        return mf_fail(error, MF_ERR_FORMAT,
                       "snapshot: %llu parts of %llu bytes are not the state of %llu tokens of "
                       "this model, which has %llu of %llu",
                       (unsigned long long)head->n_parts, (unsigned long long)head->parts_bytes,
                       (unsigned long long)head->n_tokens, (unsigned long long)want.n_parts,
                       (unsigned long long)want.parts_bytes);
    return MF_OK;
}

mf_status mf_snapshot_load_tokens(mf_engine *engine, mf_snapshot_head *head, mf_byte_source *source,
                                  int32_t **out, mf_error *error)
{
    size_t n_bytes = ((size_t)head->n_tokens + 1) * sizeof **out;
    int32_t *tokens = mf_alloc(&engine->allocator, n_bytes);
    if (tokens == NULL)
        return mf_fail_memory(error, n_bytes, "a snapshot's tokens");
    mf_status status = mf_snapshot_read_tokens(source, head, tokens, error);
    if (status != MF_OK) {
        mf_free(&engine->allocator, tokens, n_bytes);
        return status;
    }
    *out = tokens;
    return MF_OK;
}

void mf_snapshot_free_tokens(mf_engine *engine, const mf_snapshot_head *head, int32_t **tokens)
{
    mf_free(&engine->allocator, *tokens, ((size_t)head->n_tokens + 1) * sizeof **tokens);
    *tokens = NULL;
}

/* Where the snapshot's part i begins. */
static uint64_t offset_of(const mf_engine *engine, const mf_snapshot_head *head, uint32_t i)
{
    uint64_t n_bytes = 0;
    for (uint32_t k = 0; k < i; k++)
        n_bytes += mf_state_part_bytes(engine, head->n_tokens, k);
    return mf_snapshot_part_offset(head, i, n_bytes);
}

mf_status mf_snapshot_find_extent(const mf_engine *engine, const mf_snapshot_head *head,
                                  uint64_t n_tokens, mf_snapshot_extent *out, mf_error *error)
{
    const uint64_t n = head->n_tokens;
    if (n_tokens == n) {
        *out = (mf_snapshot_extent){
            .n_tokens = n_tokens, .end = mf_snapshot_mark_offset(head, 0), .mark = head->n_marks};
        return MF_OK;
    }
    const uint64_t end = offset_of(engine, head, mf_state_n_page_parts(engine, n, n_tokens));
    if (mf_state_reaches_back(engine, n, n_tokens)) {
        const mf_state_run windows = mf_state_window_parts(engine, n, n_tokens);
        *out = (mf_snapshot_extent){n_tokens, end, end, end, head->n_marks};
        if (windows.end > windows.first) {
            out->gap_end = offset_of(engine, head, windows.first);
            out->end = offset_of(engine, head, windows.end);
        }
        return MF_OK;
    }
    uint32_t k = 0;
    while (k < head->n_marks && head->marks[k] != n_tokens)
        k++;
    if (k == head->n_marks)
        return mf_fail(error, MF_ERR_NOT_FOUND, "no mark at token %llu of the snapshot",
                       (unsigned long long)n_tokens);
    *out = (mf_snapshot_extent){n_tokens, end, mf_snapshot_mark_offset(head, k),
                                mf_snapshot_mark_offset(head, k + 1), k};
    return MF_OK;
}

static void list_run(const mf_state *state, uint64_t n_tokens, mf_state_run run,
                     mf_snapshot_parts *parts)
{
    for (uint32_t i = run.first; i < run.end; i++)
        list_part(parts, i, mf_state_part_in(state, n_tokens, i));
}

/* The snapshot's parts that the state is made of, where they belong in it. */
static void list_read(const mf_state *state, const mf_snapshot_head *head,
                      const mf_snapshot_extent *extent, mf_snapshot_parts *parts)
{
    const mf_engine *e = state->engine;
    const uint64_t n = head->n_tokens;
    list_run(state, n, (mf_state_run){0, mf_state_n_page_parts(e, n, state->position)}, parts);
    if (extent->mark < head->n_marks) {
        const uint64_t n_after = head->n_marks - extent->mark;
        const uint64_t first = head->n_parts - n_after * head->mark_parts;
        for (uint32_t i = 0; i < head->mark_parts; i++)
            list_part(parts, first + i, mf_state_part_of_mark(state, i));
        return;
    }
    list_run(state, n, mf_state_window_parts(e, n, state->position), parts);
    if (state->position == n)
        list_run(state, n, mf_state_recurrent_parts(e, n), parts);
    if (state->logits != NULL)
        mf_snapshot_parts_add(parts, mf_state_n_parts(e, n), state->logits,
                              head->n_vocab * sizeof *state->logits);
}

static mf_status read_parts(const mf_state *state, const mf_snapshot_head *head,
                            const mf_snapshot_extent *extent, mf_byte_source *source,
                            mf_error *error)
{
    const mf_allocator *a = &state->engine->allocator;
    const mf_snapshot_crew crew = crew_of(state->engine);
    mf_snapshot_parts parts;
    MF_TRY(mf_snapshot_parts_init(&parts, a, (uint32_t)head->n_parts, error));
    parts.memory = memory_of(state->engine);
    list_read(state, head, extent, &parts);
    mf_status status = mf_snapshot_read_parts(source, head, &parts, &crew, error);
    if (status == MF_OK)
        status = mf_backend_finish(state->engine->runner.backend, error);
    mf_snapshot_parts_free(&parts, a);
    return status;
}

mf_status mf_snapshot_read(mf_engine *engine, const mf_snapshot_body *body,
                           const mf_snapshot_extent *extent, mf_state **out, mf_error *error)
{
    mf_state *state = NULL;
    const mf_snapshot_head *head = body->head;
    bool has_logits = head->has_logits && extent->n_tokens == head->n_tokens;
    MF_TRY(mf_state_create(engine, body->tokens, extent->n_tokens, has_logits, &state, error));
    mf_status status = read_parts(state, head, extent, body->source, error);
    if (status != MF_OK) {
        mf_state_release(&state);
        return status;
    }
    *out = state;
    return MF_OK;
}

/* ------------------------------------------------------------------------------------ public -- */

uint64_t mf_snapshot_bytes(const mf_session *session)
{
    if (session == NULL)
        return 0;
    const mf_snapshot_head head =
        mf_snapshot_head_of(session->engine, session->position, session->has_logits, 0);
    return mf_snapshot_total_bytes(&head);
}

static mf_status save(const mf_session *session, mf_byte_sink *sink, mf_error *error)
{
    mf_state *state = NULL;
    /* holding counts references and nothing else */
    MF_TRY(mf_state_hold((mf_session *)session, session->position, &state, error));
    mf_status status = mf_snapshot_write(state, sink, error);
    mf_state_release(&state);
    return status;
}

mf_status mf_snapshot_save(const mf_session *session, void *buffer, size_t capacity,
                           mf_error *error)
{
    if (session == NULL || buffer == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_snapshot_save: session or buffer is NULL");
    uint64_t n_bytes = mf_snapshot_bytes(session);
    if (capacity < n_bytes)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "mf_snapshot_save: the snapshot is %llu bytes long, the buffer %zu",
                       (unsigned long long)n_bytes, capacity);
    mf_buffer_sink sink;
    mf_buffer_sink_init(&sink, buffer, capacity);
    return save(session, &sink.sink, error);
}

mf_status mf_snapshot_save_fd(const mf_session *session, int fd, mf_error *error)
{
    if (session == NULL || fd < 0)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "mf_snapshot_save_fd: session is NULL or fd negative");
    mf_fd_sink sink;
    mf_fd_sink_init(&sink, fd, "the snapshot's file");
    mf_fd_sink_gather(&sink, &session->engine->allocator);
    mf_status status = save(session, &sink.sink, error);
    return mf_fd_sink_end(&sink, status, error);
}

/* The state after all tokens. Those of marks, which an entry of the store may have, are
 * checked and left. */
static mf_status read_all(mf_engine *engine, mf_snapshot_head *head, mf_byte_source *source,
                          mf_state **out, mf_error *error)
{
    mf_snapshot_extent all = {0};
    int32_t *tokens = NULL;
    if (head->n_tokens > engine->runner.plan.n_context)
        return mf_fail(error, MF_ERR_CONTEXT, "%llu tokens do not fit the context of %u tokens",
                       (unsigned long long)head->n_tokens, engine->runner.plan.n_context);
    MF_TRY(mf_snapshot_load_tokens(engine, head, source, &tokens, error));
    mf_status status = mf_snapshot_find_extent(engine, head, head->n_tokens, &all, error);
    if (status == MF_OK)
        status =
            mf_snapshot_read(engine, &(mf_snapshot_body){head, tokens, source}, &all, out, error);
    mf_snapshot_free_tokens(engine, head, &tokens);
    uint64_t n_left = (uint64_t)head->n_marks * head->mark_parts;
    for (uint64_t i = head->n_parts - n_left; i < head->n_parts && status == MF_OK; i++) {
        uint64_t part = (i + n_left - head->n_parts) % head->mark_parts;
        uint64_t n_bytes = mf_state_mark_part_bytes(engine, (uint32_t)part);
        status = mf_snapshot_pass_part(source, head, i, (size_t)n_bytes, error);
    }
    if (status != MF_OK)
        mf_state_release(out);
    return status;
}

/* The state is built apart and given to the session when all of it has been checked. */
static mf_status load(mf_session *session, mf_snapshot_head *head, mf_byte_source *source,
                      mf_error *error)
{
    mf_state *state = NULL;
    mf_engine_lock(session->engine);
    mf_status free_to = mf_session_refuse(session, "loading a snapshot", error);
    mf_engine_unlock(session->engine);
    MF_TRY(free_to);
    MF_TRY(mf_snapshot_check(session->engine, head, error));
    MF_TRY(read_all(session->engine, head, source, &state, error));
    mf_status status = mf_session_adopt(session, state, error);
    mf_state_release(&state);
    return status;
}

mf_status mf_snapshot_load(mf_session *session, const void *buffer, size_t n_bytes, mf_error *error)
{
    if (session == NULL || buffer == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_snapshot_load: session or buffer is NULL");
    mf_buffer_source source;
    mf_snapshot_head head;
    mf_buffer_source_init(&source, buffer, n_bytes);
    MF_TRY(mf_snapshot_read_header(&source.source, &head, error));
    if (mf_snapshot_total_bytes(&head) != n_bytes)
        return mf_fail(error, MF_ERR_FORMAT, "the snapshot is %llu bytes long, the buffer %zu",
                       (unsigned long long)mf_snapshot_total_bytes(&head), n_bytes);
    return load(session, &head, &source.source, error);
}

mf_status mf_snapshot_load_fd(mf_session *session, int fd, mf_error *error)
{
    if (session == NULL || fd < 0)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "mf_snapshot_load_fd: session is NULL or fd negative");
    mf_fd_source source;
    mf_snapshot_head head;
    mf_fd_source_init(&source, fd, "the snapshot's file");
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL); /* a pipe takes no advice */
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED);
    MF_TRY(mf_snapshot_read_header(&source.source, &head, error));
    return load(session, &head, &source.source, error);
}
