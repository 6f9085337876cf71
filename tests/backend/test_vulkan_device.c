/* SPDX-License-Identifier: MIT */
/* Vulkan devices: the list, the names, what is said where one cannot be opened, several at once. */
#include "test.h"
#include "vulkan_open.h"

static void check_list(void)
{
    mf_vulkan_device devices[MF_VULKAN_MAX_DEVICES];
    const char *why = NULL;
    const uint32_t n = mf_vulkan_devices(devices, &why);
    REQUIRE(n >= 1);
    for (uint32_t i = 0; i < n; i++) {
        const mf_vulkan_device *d = &devices[i];
        fprintf(stderr, "vulkan:%u %s (%s), %s, %llu MiB, subgroups of %u, %u matrix shapes%s%s\n",
                i, d->name, d->driver, d->kind, (unsigned long long)(d->memory_bytes >> 20),
                d->subgroup_size, d->n_matrices, d->unusable != NULL ? ", lacks " : "",
                d->unusable != NULL ? d->unusable : "");
        CHECK(d->name[0] != 0 && d->driver[0] != 0 && d->kind[0] != 0);
        if (d->unusable != NULL)
            continue;
        CHECK(d->memory_bytes > 0 && d->shared_bytes > 16384);
        CHECK(d->subgroup_size >= 1 && d->subgroup_size <= 128);
        CHECK(d->least_subgroup <= d->subgroup_size && d->subgroup_size <= d->most_subgroup);
        CHECK(d->n_matrices <= MF_VULKAN_MAX_MATRICES);
        for (uint32_t j = 0; j < d->n_matrices; j++)
            CHECK(d->matrices[j].m > 0 && d->matrices[j].n > 0 && d->matrices[j].k > 0);
    }
}

static void check_names(void)
{
    static const char *const ours[] = {"vulkan", "vulkan:0", "vulkan:15"};
    static const char *const others[] = {"vulkan:",   "vulkan:x",  "vulkan:-1", "vulkan:1x",
                                         "vulkan:16", "vulkan: 1", "Vulkan",    "vulkan0",
                                         "cpu",       ""};
    mf_error error = {0};
    mf_backend *be = NULL;
    CHECK(!mf_vulkan_is_name(NULL));
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        CHECK(mf_vulkan_is_name(ours[i]));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        CHECK_MSG(!mf_vulkan_is_name(others[i]), "'%s'", others[i]);
        if (strncmp(others[i], "vulkan", 6) != 0)
            continue;
        const mf_backend_options options = {.device = others[i]};
        CHECK_STATUS(mf_backend_open(&options, &be, &error), MF_ERR_ARGUMENT);
        CHECK_CONTAINS(error.message, others[i]);
        CHECK_CONTAINS(error.message, "vulkan:N");
    }
    const mf_backend_options options = {.device = "vulkan:15"};
    CHECK_STATUS(mf_backend_open(&options, &be, &error), MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, "vulkan:15");
    CHECK(be == NULL);
}

/* Two on one device and one on the CPU know nothing of each other. */
static void check_several(void)
{
    static const char *const names[] = {NULL, "cpu", NULL};
    mf_backend *bes[3];
    mf_buffer buffers[3];
    mf_error error = {0};
    for (uint32_t i = 0; i < 3; i++) {
        const mf_backend_options options = {
            .n_threads = 1, .device = names[i] != NULL ? names[i] : vulkan_test_device()};
        REQUIRE_OK(mf_backend_open(&options, &bes[i], &error), &error);
        REQUIRE_OK(
            bes[i]->ops->buffer_create(bes[i], 64, MF_USE_DEVICE, "a number", &buffers[i], &error),
            &error);
        CHECK_U64(buffers[i].id, 1); /* as backend.h says of the first */
        bes[i]->ops->write(bes[i], (mf_span){buffers[i], 0}, &i, sizeof i);
    }
    bes[0]->ops->destroy(bes[0]); /* with work that nobody waited for */
    for (uint32_t i = 1; i < 3; i++) {
        uint32_t got = 77;
        REQUIRE_OK(mf_backend_read(bes[i], (mf_span){buffers[i], 0}, &got, sizeof got, &error),
                   &error);
        CHECK_U64(got, i);
        bes[i]->ops->destroy(bes[i]);
    }
}

/* An operation without shaders is refused by name; a GPU's states are no other's. */
static void check_refused(void)
{
    mf_error error = {0};
    mf_backend *be = vulkan_open(NULL);
    mf_op op = {.kind = MF_OP_EMBED, .n_rows = 1, .u.embed.weight.shape.kind = MF_WEIGHT_KINDS};
    REQUIRE(be != NULL);
    CHECK_STATUS(mf_backend_reserve(be, &op, &error), MF_ERR_UNSUPPORTED);
    CHECK_CONTAINS(error.message, "embed");
    CHECK_CONTAINS(error.message, be->ops->device_name(be));
    op.kind = (mf_op_kind)0;
    CHECK(!be->ops->supports_op(be, &op));
    op.kind = (mf_op_kind)(MF_OP_FROM_HOST + 1);
    CHECK(!be->ops->supports_op(be, &op));
    CHECK(be->ops->rounding(be) >= UINT32_C(1) << 31);
    be->ops->destroy(be);
}

/* Rates that a machine may have, and the bytes are as they were. */
static void check_measure(void)
{
    static unsigned char bytes[3 << 20], got[3 << 20];
    mf_error error = {0};
    mf_backend *be = vulkan_open(NULL);
    mf_buffer buffer = {0};
    double read_rate = 0.0, fma_rate = 0.0;
    REQUIRE(be != NULL);
    REQUIRE_OK(be->ops->buffer_create(be, sizeof bytes, MF_USE_DEVICE, "to read", &buffer, &error),
               &error);
    memset(bytes, 0x5a, sizeof bytes);
    be->ops->write(be, (mf_span){buffer, 0}, bytes, sizeof bytes);
    const mf_span spans[] = {{buffer, 0}, {buffer, 1000003}, {buffer, 7}};
    const uint64_t n_bytes[] = {1 << 20, 1 << 20, 3};
    REQUIRE_OK(be->ops->measure(be, spans, n_bytes, 3, 20, &read_rate, &fma_rate, &error), &error);
    fprintf(stderr, "%.3g bytes/s, %.3g multiply-adds/s\n", read_rate, fma_rate);
    CHECK(read_rate > 1e6 && read_rate < 1e14 && fma_rate > 1e6 && fma_rate < 1e16);
    REQUIRE_OK(mf_backend_read(be, (mf_span){buffer, 0}, got, sizeof got, &error), &error);
    CHECK_BYTES(got, bytes, sizeof bytes);
    be->ops->destroy(be);
}

/* Pipelines that several threads make. */
static void check_gathered(void)
{
    static const mf_op_kind kinds[] = {MF_OP_ADD,     MF_OP_SWIGLU,      MF_OP_COPY_ROWS,
                                       MF_OP_RMSNORM, MF_OP_SIGMOID_MUL, MF_OP_ADD};
    const mf_backend_options options = {.device = vulkan_test_device(), .n_threads = 3};
    float values[6] = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}, got[3];
    mf_backend *be = NULL;
    mf_buffer buffer = {0};
    mf_error error = {0};
    REQUIRE_OK(mf_backend_open(&options, &be, &error), &error);
    REQUIRE_OK(be->ops->buffer_create(be, 24, MF_USE_DEVICE, "rows", &buffer, &error), &error);
    mf_op op = {.n_rows = 1};
    mf_backend_gather(be);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        op.kind = kinds[i];
        REQUIRE_OK(mf_backend_reserve(be, &op, &error), &error);
    }
    REQUIRE_OK(mf_backend_gathered(be, &error), &error);
    REQUIRE_OK(mf_backend_gathered(be, &error), &error); /* with nothing to do */
    op.u.add = (mf_add_params){.x = {buffer, 0}, .y = {buffer, 12}, .n_cols = 3};
    be->ops->write(be, (mf_span){buffer, 0}, values, sizeof values);
    be->ops->record(be, &op);
    REQUIRE_OK(mf_backend_read(be, (mf_span){buffer, 0}, got, sizeof got, &error), &error);
    for (int i = 0; i < 3; i++)
        CHECK(got[i] == values[i] + values[3 + i]);
    be->ops->destroy(be);
}

/* Opening and closing again and again: a driver that is loaded anew each time runs out. */
static void check_many_times(void)
{
    for (uint32_t i = 0; i < 40; i++) {
        mf_backend *be = vulkan_open(NULL);
        REQUIRE(be != NULL);
        be->ops->destroy(be);
    }
}

/* A loader without drivers. */
static void check_no_driver(void)
{
    mf_vulkan_device devices[MF_VULKAN_MAX_DEVICES];
    const mf_backend_options options = {.device = "vulkan"};
    const char *why = NULL;
    mf_error error = {0};
    mf_backend *be = NULL;
    REQUIRE(setenv("VK_DRIVER_FILES", "/no/such/driver.json", 1) == 0 &&
            setenv("VK_ICD_FILENAMES", "/no/such/driver.json", 1) == 0);
    CHECK_U64(mf_vulkan_devices(devices, &why), 0);
    CHECK(why != NULL && strncmp(why, "there is no Vulkan", 18) == 0);
    mf_status status = mf_backend_open(&options, &be, &error);
    CHECK(status == MF_ERR_UNSUPPORTED || status == MF_ERR_ARGUMENT);
    CHECK(be == NULL && error.message[0] != 0);
    fprintf(stderr, "without a driver: %s; %s\n", why, error.message);
    const mf_backend_options cpu = {.n_threads = 1, .device = "auto"};
    REQUIRE_OK(mf_backend_open(&cpu, &be, &error), &error);
    CHECK_STR(be->ops->name, "cpu");
    be->ops->destroy(be);
}

int main(void)
{
    if (!vulkan_is_there())
        return TEST_SKIPPED;
    check_list();
    check_names();
    check_several();
    check_refused();
    check_measure();
    check_gathered();
    check_many_times();
    check_no_driver();
    return test_result();
}
