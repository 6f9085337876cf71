/* SPDX-License-Identifier: MIT */
/* Resident weights loaded into memory that the host cannot reach (as a GPU's) are byte for byte
 * those loaded in place, also where they are larger than a piece. */
#include "session/engine.h"
#include "strict_backend.h"
#include "test.h"

/* Loads into a poisoned buffer; returns what it holds then. */
static unsigned char *load(mf_backend *be, const mf_model *m, uint32_t n_threads)
{
    mf_error error = {0};
    mf_buffer buffer = {0};
    uint64_t n_bytes = m->binder.resident_bytes;
    unsigned char *bytes = malloc(n_bytes);
    REQUIRE(bytes != NULL && n_bytes > 0);
    REQUIRE_OK(
        be->ops->buffer_create(be, n_bytes, mf_backend_operand_use(be), "weights", &buffer, &error),
        &error);
    memset(bytes, 0xa5, n_bytes);
    be->ops->write(be, (mf_span){buffer, 0}, bytes, n_bytes);
    REQUIRE_OK(mf_backend_finish(be, &error), &error);
    REQUIRE_OK(mf_load_resident(be, buffer, &m->binder, n_threads, &error), &error);
    REQUIRE_OK(mf_backend_read(be, (mf_span){buffer, 0}, bytes, n_bytes, &error), &error);
    be->ops->buffer_free(be, buffer);
    return bytes;
}

static mf_model read_model(const char *path)
{
    mf_error error = {0};
    mf_model m;
    mf_engine_options options;
    mf_engine_options_default(&options);
    const mf_allocator a = mf_allocator_default();
    REQUIRE_OK(mf_model_read(&a, path, &options, mf_layer_kind_table, &m, &error), &error);
    return m;
}

static void check_model(mf_backend *cpu, mf_backend *strict, const char *path)
{
    mf_model m = read_model(path);
    uint64_t n_bytes = m.binder.resident_bytes;
    unsigned char *direct = load(cpu, &m, 1);
    for (uint32_t n_threads = 1; n_threads <= 3; n_threads++) {
        unsigned char *staged = load(strict, &m, n_threads);
        CHECK_MSG(memcmp(staged, direct, n_bytes) == 0, "%s, %u threads: staged weights differ",
                  path, n_threads);
        free(staged);
    }
    unsigned char *again = load(cpu, &m, 3);
    CHECK_MSG(memcmp(again, direct, n_bytes) == 0, "%s: loading by threads differs", path);
    free(again);
    free(direct);
    mf_model_release(&m);
}

/* A device that is lost while weights are on their way says so. */
static void check_lost(const char *path)
{
    mf_error error = {0};
    mf_model m = read_model(path);
    const mf_backend_options backend = {.n_threads = 1};
    for (uint64_t n = 1; n <= 4; n++) {
        mf_backend *be = NULL;
        mf_buffer buffer = {0};
        strict_options strict = {.lost_at_run = n};
        REQUIRE_OK(strict_backend_open(&strict, &backend, &be, &error), &error);
        REQUIRE_OK(be->ops->buffer_create(be, m.binder.resident_bytes, MF_USE_DEVICE, "weights",
                                          &buffer, &error),
                   &error);
        CHECK_STATUS(mf_load_resident(be, buffer, &m.binder, 1 + n % 2, &error), MF_ERR_IO);
        CHECK_CONTAINS(error.message, "lost");
        be->ops->destroy(be);
    }
    mf_model_release(&m);
}

/* A file that was cut short since its header was read, wherever it is and whoever reads it: the
 * place is named, and the other weights' success is none. */
static void check_cut(mf_backend *be, const char *path)
{
    mf_error error = {0};
    mf_model m = read_model(path);
    mf_buffer buffer = {0};
    REQUIRE_OK(be->ops->buffer_create(be, m.binder.resident_bytes, mf_backend_operand_use(be),
                                      "weights", &buffer, &error),
               &error);
    const size_t n = m.binder.n_copies;
    const size_t places[] = {0, n / 2, n - 1};
    for (uint32_t i = 0; i < 6; i++) {
        mf_copy *copy = &m.binder.copies[places[i % 3]];
        const uint64_t beyond = (uint64_t)1 << 40;
        copy->source += beyond;
        error = (mf_error){0};
        CHECK_STATUS(mf_load_resident(be, buffer, &m.binder, 1 + 2 * (i / 3), &error),
                     MF_ERR_FORMAT);
        CHECK_CONTAINS(error.message, "inside a tensor");
        for (size_t k = 0; k < n; k++) /* loading sorts them */
            if (m.binder.copies[k].source >= beyond)
                m.binder.copies[k].source -= beyond;
    }
    CHECK_STATUS(mf_load_resident(be, buffer, &m.binder, 3, &error), MF_OK);
    be->ops->buffer_free(be, buffer);
    mf_model_release(&m);
}

int main(void)
{
    static const char *const models[] = {"tests/model/data/mlx_4bit", "tests/model/data/next_bf16",
                                         "models/demo"};
    mf_error error = {0};
    mf_backend *cpu = NULL, *strict = NULL;
    const mf_backend_options options = {.n_threads = 1};
    REQUIRE_OK(mf_backend_open(&options, &cpu, &error), &error);
    REQUIRE_OK(strict_backend_open(NULL, &options, &strict, &error), &error);
    CHECK(mf_backend_operand_use(cpu) == MF_USE_HOST);
    CHECK(mf_backend_operand_use(strict) == MF_USE_DEVICE);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        check_model(cpu, strict, models[i]);
    check_lost("models/demo");
    check_cut(cpu, models[0]);
    check_cut(strict, models[0]);
    cpu->ops->destroy(cpu);
    strict->ops->destroy(strict);
    return test_result();
}
