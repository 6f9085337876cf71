/* SPDX-License-Identifier: MIT */
/*
 * Public structs of other sizes than the library's own: a program that was built against an older
 * header has smaller ones, one against a newer header larger ones.
 */
#include "golden.h"

#include "session/engine.h"

#define GUARD 0x5a

/* `n` bytes in a block that is `room` larger, all GUARD. */
typedef struct block {
    unsigned char *bytes;
    size_t n, room;
} block;

static block block_make(size_t n, size_t room)
{
    block b = {malloc(n + room), n, room};
    REQUIRE(b.bytes != NULL);
    memset(b.bytes, GUARD, n + room);
    return b;
}

/* Nothing was written behind the struct. */
static void block_end(block *b, const char *what)
{
    size_t i = b->n;
    while (i < b->n + b->room && b->bytes[i] == GUARD)
        i++;
    CHECK_MSG(i == b->n + b->room, "%s: byte %zu behind the struct was written", what, i - b->n);
    free(b->bytes);
}

static size_t size_of(const block *b)
{
    size_t n;
    memcpy(&n, b->bytes, sizeof n);
    return n;
}

/* Options of the case in a struct that ends before `kv_type`, as an older header might have it. */
static block old_options(const golden_case *c)
{
    block b = block_make(offsetof(mf_engine_options, kv_type), sizeof(mf_engine_options));
    mf_engine_options *options = (mf_engine_options *)(void *)b.bytes;
    mf_engine_options_init(options, b.n);
    CHECK_U64(options->struct_bytes, b.n);
    CHECK_U64(options->expert_cache_bytes, MF_EXPERT_CACHE_AUTO);
    CHECK_U64(options->n_sessions, 1);
    options->n_context_tokens = 100;
    options->n_chunk_tokens = 7;
    options->packed_expert_bits = c->packed_bits;
    return b;
}

static void check_older(const golden_case *c)
{
    block options = old_options(c);
    block info = block_make(offsetof(mf_model_info, page_tokens), 64);
    block stats = block_make(offsetof(mf_stats, n_reads), 64);
    const mf_engine_options *o = (const mf_engine_options *)(const void *)options.bytes;
    mf_engine *engine = NULL;
    mf_error error = {0};
    mf_model_info *i = (mf_model_info *)(void *)info.bytes;
    REQUIRE_OK(mf_model_inspect_sized(golden_path(c->name), o, i, info.n, &error), &error);
    CHECK(size_of(&info) == info.n && i->n_chunk_tokens == 7 && i->n_context_tokens == 100);
    /* what lies behind the caller's struct is GUARD: read as kv_type, it would be refused */
    REQUIRE_OK(mf_engine_open(golden_path(c->name), o, &engine, &error), &error);
    CHECK_U64(engine->options.kv_type, MF_KV_F32);
    CHECK_U64(engine->options.struct_bytes, sizeof engine->options);
    memset(info.bytes, GUARD, info.n);
    mf_engine_info_sized(engine, i, info.n);
    CHECK(size_of(&info) == info.n && i->n_chunk_tokens == 7);
    mf_engine_stats_sized(engine, (mf_stats *)(void *)stats.bytes, stats.n);
    CHECK(size_of(&stats) == stats.n && ((mf_stats *)(void *)stats.bytes)->n_tokens == 0);
    mf_engine_close(&engine);
    block_end(&options, "engine options");
    block_end(&info, "model info");
    block_end(&stats, "stats");
}

static void check_newer(const golden_case *c)
{
    block options = block_make(sizeof(mf_engine_options) + 24, 0);
    block info = block_make(sizeof(mf_model_info) + 8, 16);
    mf_engine_options *o = (mf_engine_options *)(void *)options.bytes;
    mf_model_info *i = (mf_model_info *)(void *)info.bytes;
    mf_error error = {0};
    mf_engine_options_init(o, options.n);
    CHECK_U64(o->struct_bytes, options.n);
    o->n_context_tokens = 64;
    REQUIRE_OK(mf_model_inspect_sized(golden_path(c->name), o, i, info.n, &error), &error);
    CHECK_U64(i->struct_bytes, sizeof *i); /* what was filled */
    CHECK(i->n_context_tokens == 64 && info.bytes[sizeof *i] == 0);
    options.bytes[options.n - 1] = 1; /* an option that this library does not know */
    CHECK_STATUS(mf_model_inspect(golden_path(c->name), o, i, &error), MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, "newer version");
    block_end(&options, "engine options");
    block_end(&info, "model info");
}

/* Somebody who forgot the defaults is told. */
static void check_unset(const golden_case *c)
{
    mf_engine_options options = {.n_sessions = 1};
    const mf_store_options store_options = {.min_tokens = 1};
    const mf_sampler_options sampler_options = {.top_p = 1, .repetition_penalty = 1};
    mf_engine *engine = NULL;
    mf_store *store = NULL;
    mf_sampler *sampler = NULL;
    mf_model_info info;
    mf_error error = {0};
    CHECK_STATUS(mf_engine_open(golden_path(c->name), &options, &engine, &error), MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, "mf_engine_options_default");
    CHECK_STATUS(mf_model_inspect(golden_path(c->name), &options, &info, &error), MF_ERR_ARGUMENT);
    CHECK_STATUS(mf_store_open("/nonexistent/store", &store_options, &store, &error),
                 MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, "mf_store_options_default");
    CHECK_STATUS(mf_sampler_create(&sampler_options, 10, NULL, &sampler, &error), MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, "mf_sampler_options_default");
    CHECK(engine == NULL && store == NULL && sampler == NULL);
}

/* An allocator that lacks a function is refused wherever one is taken: not replaced by the C
 * library's, which nobody would notice. */
static void check_half_allocator(const golden_case *c)
{
    mf_allocator half = mf_allocator_default();
    half.realloc = NULL;
    mf_engine_options options = golden_options(c);
    mf_store_options store_options;
    mf_sampler_options sampler_options;
    mf_convert_options convert_options;
    mf_engine *engine = NULL;
    mf_store *store = NULL;
    mf_sampler *sampler = NULL;
    mf_tokenizer *tokenizer = NULL;
    mf_reply_syntax *syntax = NULL;
    mf_routing *routing = NULL;
    mf_convert_result result;
    mf_model_info info;
    mf_error e = {0};
    mf_store_options_default(&store_options);
    mf_sampler_options_default(&sampler_options);
    mf_convert_options_default(&convert_options);
    options.allocator = store_options.allocator = convert_options.allocator = half;
    convert_options.is_dry_run = 1;
    const char *path = golden_path(c->name);
    CHECK_STATUS(mf_engine_open(path, &options, &engine, &e), MF_ERR_ARGUMENT);
    CHECK_CONTAINS(e.message, "mf_allocator: realloc is NULL");
    CHECK_STATUS(mf_model_inspect(path, &options, &info, &e), MF_ERR_ARGUMENT);
    CHECK_STATUS(mf_store_open("/nonexistent/store", &store_options, &store, &e), MF_ERR_ARGUMENT);
    CHECK_STATUS(mf_sampler_create(&sampler_options, 10, &half, &sampler, &e), MF_ERR_ARGUMENT);
    CHECK_STATUS(mf_tokenizer_open("models/demo", &half, &tokenizer, &e), MF_ERR_ARGUMENT);
    CHECK_STATUS(mf_reply_syntax_named("plain", &half, &syntax, &e), MF_ERR_ARGUMENT);
    CHECK_STATUS(mf_routing_open("/nonexistent", &half, &routing, &e), MF_ERR_ARGUMENT);
    CHECK_STATUS(mf_convert(path, "/nonexistent/out", &convert_options, &result, &e),
                 MF_ERR_ARGUMENT);
    CHECK_CONTAINS(e.message, "mf_allocator: realloc is NULL");
    CHECK_STATUS(mf_convert_verify(path, &convert_options, &e), MF_ERR_ARGUMENT);
    CHECK_CONTAINS(e.message, "mf_allocator: realloc is NULL");
}

static void check_sampler_and_store(void)
{
    block old = block_make(offsetof(mf_sampler_options, repetition_penalty), 64);
    block old_store = block_make(offsetof(mf_store_options, min_tokens), 64);
    mf_sampler_options *o = (mf_sampler_options *)(void *)old.bytes;
    mf_sampler *sampler = NULL;
    mf_error error = {0};
    mf_sampler_options_init(o, old.n);
    o->temperature = 0.0f;
    REQUIRE_OK(mf_sampler_options_load("tests/model/data", o, &error), &error);
    REQUIRE_OK(mf_sampler_create(o, 3, NULL, &sampler, &error), &error);
    const float logits[] = {1.0f, 3.0f, 2.0f};
    CHECK_U64(mf_sampler_sample(sampler, logits), 1);
    mf_sampler_free(&sampler);
    mf_store_options_init((mf_store_options *)(void *)old_store.bytes, old_store.n);
    CHECK_U64(size_of(&old_store), old_store.n);
    block_end(&old, "sampler options");
    block_end(&old_store, "store options");
}

/* What the options come to, as the engine has it. */
static void check_in_force(const char *name)
{
    const golden_case *c = golden_case_find(name);
    mf_engine_options options = golden_options(c);
    options.n_context_tokens = 50;
    options.n_chunk_tokens = 4096; /* no more than the context makes sense */
    options.n_sessions = 3;
    options.state_bytes = 64 << 20;
    mf_engine *e = golden_open(c, &options);
    const mf_plan *p = &e->runner.plan;
    mf_model_info info;
    mf_engine_info(e, &info);
    CHECK_U64(info.n_context_tokens, 50);
    CHECK_U64(info.n_chunk_tokens, p->n_chunk);
    CHECK_U64(info.n_chunk_tokens, 50);
    CHECK_U64(info.n_sessions, 3);
    CHECK_U64(info.page_tokens, MF_PAGE_TOKENS);
    CHECK_U64(info.page_bytes, p->page_bytes);
    CHECK_U64(info.recurrent_bytes, p->recurrent_bytes);
    CHECK((info.recurrent_bytes != 0) == (info.n_linear_attention_layers != 0));
    CHECK((info.qk_rope_head_dim != 0) == (info.n_latent_attention_layers != 0));
    /* one of the three: two pages, one that a mark may share, three states */
    CHECK_U64(info.session_bytes, 3 * info.page_bytes + 3 * info.recurrent_bytes);
    CHECK_U64(info.state_bytes, e->pool.limit_bytes);
    CHECK_U64(info.mark_bytes, e->mark_limit);
    CHECK_U64(info.mark_bytes, options.state_bytes / 4);
    CHECK_U64(info.one_mark_bytes,
              p->page_bytes + p->recurrent_bytes + info.n_vocab * sizeof(float));
    mf_engine_close(&e);
}

int main(void)
{
    const golden_case *c = golden_case_find("mlx_4bit");
    check_older(c);
    check_newer(c);
    check_unset(c);
    check_half_allocator(c);
    check_sampler_and_store();
    check_in_force("mlx_4bit");
    check_in_force("v2_lite_bf16");
    return test_result();
}
