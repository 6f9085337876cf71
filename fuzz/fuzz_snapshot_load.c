/* SPDX-License-Identifier: MIT */
/*
 * Snapshots from anywhere, loaded into sessions of two tiny models, one with recurrent layers and
 * one with latent attention. The input is loaded as it is; then with the model's key and all
 * checksums put right, so that only its sizes and values can be wrong. What does not load leaves
 * the session as it was; what loads is saved again as it came.
 */
#include "put_right.h"

#include "session/session.h"
#include "session/snapshot.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define N_CONTEXT 80

typedef struct model {
    mf_engine *engine;
    mf_session *session;
    mf_snapshot_key key;
    int32_t held; /* the session's only token before an input */
} model;

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void open_model(model *m, const char *path)
{
    mf_engine_options options;
    mf_error error = {0};
    mf_engine_options_default(&options);
    options.n_context_tokens = N_CONTEXT;
    options.n_threads = 1;
    options.n_chunk_tokens = 16;
    if (mf_engine_open(path, &options, &m->engine, &error) != MF_OK) {
        fprintf(stderr, "%s\n", error.message); /* to be run from the repository's root */
        abort();
    }
    must(mf_session_create(m->engine, &m->session, NULL) == MF_OK);
    must(mf_engine_snapshot_key(m->engine, &m->key, NULL) == MF_OK);
    m->held = 3;
}

/* The same for every input, so that one input alone shows what it does. */
static void reset(model *m)
{
    mf_session_clear(m->session);
    must(mf_session_eval(m->session, &m->held, 1, NULL) == MF_OK);
}

static model *model_of(const uint8_t *data, size_t n_bytes)
{
    static model models[2];
    static const uint8_t none[8];
    if (models[0].engine == NULL) {
        open_model(&models[0], "tests/model/data/v3_yarn_f32");
        open_model(&models[1], "tests/model/data/hf_tied_f32");
    }
    bool is_recurrent = n_bytes >= 88 && memcmp(data + 80, none, 8) != 0;
    return &models[is_recurrent];
}

/* Of the engine's own sizes, as far as the snapshot reaches. */
static void put_part_right(uint8_t *data, size_t n_bytes, const mf_snapshot_head *head, uint64_t i,
                           uint64_t *before, uint64_t n_part)
{
    uint64_t at = mf_snapshot_part_offset(head, i, *before);
    *before += n_part;
    if (at > n_bytes || n_part > n_bytes - at || n_bytes - at - n_part < 8)
        return;
    uint64_t sum = mf_checksum_of(data + at, (size_t)n_part, head->checksum + i);
    memcpy(data + at + n_part, &sum, 8);
}

static void put_parts_right(const mf_engine *e, uint8_t *data, size_t n_bytes,
                            const mf_snapshot_head *head)
{
    uint64_t i = 0, before = 0, n = head->n_tokens;
    uint32_t n_state = mf_state_n_parts(e, n);
    for (; i < n_state; i++)
        put_part_right(data, n_bytes, head, i, &before, mf_state_part_bytes(e, n, (uint32_t)i));
    if (head->has_logits)
        put_part_right(data, n_bytes, head, i++, &before, head->n_vocab * 4);
    for (uint32_t k = 0; k < head->n_marks * head->mark_parts; k++)
        put_part_right(data, n_bytes, head, i++, &before,
                       mf_state_mark_part_bytes(e, k % head->mark_parts));
}

static void put_right(model *m, uint8_t *data, size_t n_bytes)
{
    mf_buffer_source source;
    mf_snapshot_head head;
    if (n_bytes < MF_SNAPSHOT_HEADER_BYTES)
        return;
    memcpy(data + 24, m->key.fingerprint, MF_FINGERPRINT_BYTES);
    memcpy(data + 40, &m->key.kv_type, 4);
    memcpy(data + 44, &m->key.cpu_tier, 4);
    put_head_right(data, n_bytes);
    mf_buffer_source_init(&source, data, n_bytes);
    if (mf_snapshot_read_header(&source.source, &head, NULL) != MF_OK ||
        mf_snapshot_check(m->engine, &head, NULL) != MF_OK || head.n_tokens > N_CONTEXT)
        return;
    int32_t tokens[N_CONTEXT];
    if (mf_snapshot_read_tokens(&source.source, &head, tokens, NULL) == MF_OK)
        put_parts_right(m->engine, data, n_bytes, &head);
}

/* Loaded, it is what its head says, and saves as it came but for marks. */
static void check_loaded(const model *m, const uint8_t *data, size_t n_bytes)
{
    mf_buffer_source source;
    mf_snapshot_head head;
    mf_buffer_source_init(&source, data, n_bytes);
    must(mf_snapshot_read_header(&source.source, &head, NULL) == MF_OK);
    must(mf_session_position(m->session) == head.n_tokens);
    must((mf_session_logits(m->session) != NULL) == head.has_logits);
    size_t n_again = (size_t)mf_snapshot_bytes(m->session);
    uint8_t *again = malloc(n_again);
    must(again != NULL && mf_snapshot_save(m->session, again, n_again, NULL) == MF_OK);
    if (head.n_marks == 0 && memcmp(&head.key, &m->key, sizeof m->key) == 0)
        must(n_again == n_bytes && memcmp(again, data, n_bytes) == 0);
    free(again);
}

static void try_load(model *m, const uint8_t *data, size_t n_bytes)
{
    mf_error error = {0};
    reset(m);
    if (mf_snapshot_load(m->session, data, n_bytes, &error) == MF_OK) {
        check_loaded(m, data, n_bytes);
        return;
    }
    must(error.message[0] != '\0');
    must(mf_session_position(m->session) == 1 && mf_session_logits(m->session) != NULL);
    must(mf_session_tokens(m->session)[0] == m->held);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes > 1 << 16)
        return 0;
    model *m = model_of(data, n_bytes);
    try_load(m, data, n_bytes);
    uint8_t *copy = copy_of(data, n_bytes);
    put_right(m, copy, n_bytes);
    try_load(m, copy, n_bytes);
    free(copy);
    return 0;
}
