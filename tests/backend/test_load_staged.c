/* SPDX-License-Identifier: MIT */
/* Resident weights loaded into memory that the host cannot reach (as a GPU's) are byte for byte
 * those loaded in place. */
#include "session/engine.h"
#include "test.h"

/* The CPU's memory behind a backend that hides it. */
typedef struct hidden {
    mf_backend base;
    mf_backend *inner;
    uint64_t n_written;
} hidden;

static unsigned char *hidden_host(mf_backend *be, mf_buffer buffer)
{
    (void)be;
    (void)buffer;
    return NULL;
}

static void hidden_write(mf_backend *be, mf_span dest, const void *src, uint64_t n_bytes)
{
    hidden *h = (hidden *)be;
    h->n_written += n_bytes;
    h->inner->ops->write(h->inner, dest, src, n_bytes);
}

/* Loads into a poisoned buffer; returns what it holds then. */
static unsigned char *load(mf_backend *be, mf_backend *loader, const mf_model *m,
                           uint32_t n_threads)
{
    mf_error error = {0};
    mf_buffer buffer = {0};
    uint64_t n_bytes = m->binder.resident_bytes;
    unsigned char *bytes = malloc(n_bytes);
    REQUIRE(bytes != NULL && n_bytes > 0);
    REQUIRE_OK(be->ops->buffer_create(be, n_bytes, MF_USE_HOST, "weights", &buffer, &error),
               &error);
    memset(bytes, 0xa5, n_bytes);
    be->ops->write(be, (mf_span){buffer, 0}, bytes, n_bytes);
    REQUIRE_OK(mf_load_resident(loader, buffer, &m->binder, n_threads, &error), &error);
    REQUIRE_OK(mf_backend_read(be, (mf_span){buffer, 0}, bytes, n_bytes, &error), &error);
    be->ops->buffer_free(be, buffer);
    return bytes;
}

static void check_model(mf_backend *cpu, const char *path)
{
    static const mf_backend_ops ops = {
        .name = "hidden", .buffer_host = hidden_host, .write = hidden_write};
    mf_error error = {0};
    mf_model m;
    mf_engine_options options;
    mf_engine_options_default(&options);
    const mf_allocator a = mf_allocator_default();
    REQUIRE_OK(mf_model_read(&a, path, &options, mf_layer_kind_table, &m, &error), &error);
    uint64_t n_bytes = m.binder.resident_bytes;
    unsigned char *direct = load(cpu, cpu, &m, 1);
    for (uint32_t n_threads = 1; n_threads <= 3; n_threads++) {
        hidden h = {{&ops}, cpu, 0};
        unsigned char *staged = load(cpu, &h.base, &m, n_threads);
        CHECK_MSG(memcmp(staged, direct, n_bytes) == 0, "%s, %u threads: staged weights differ",
                  path, n_threads);
        CHECK(h.n_written > n_bytes / 2 && h.n_written <= n_bytes);
        free(staged);
    }
    unsigned char *again = load(cpu, cpu, &m, 3);
    CHECK_MSG(memcmp(again, direct, n_bytes) == 0, "%s: loading by threads differs", path);
    free(again);
    free(direct);
    mf_model_release(&m);
}

int main(void)
{
    mf_error error = {0};
    mf_backend *cpu = NULL;
    const mf_backend_options options = {.n_threads = 1};
    REQUIRE_OK(mf_backend_open(&options, &cpu, &error), &error);
    check_model(cpu, "tests/model/data/mlx_4bit");
    check_model(cpu, "tests/model/data/next_bf16");
    cpu->ops->destroy(cpu);
    return test_result();
}
