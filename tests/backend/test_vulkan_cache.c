/* SPDX-License-Identifier: MIT */
/* The pipelines' file: written, read again, and of no consequence where it is broken, another
 * device's, or cannot be written. */
#include "backend/vulkan/vk_internal.h"
#include "test.h"
#include "vulkan_open.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD_BYTES 56u /* of the file */

static char folder[] = "/tmp/moeflux-test-cache-XXXXXX";
static char file[1200];
static size_t n_given; /* bytes that the driver was given at the last opening */
static mf_vk_api driver;

static VkResult see_data(VkDevice device, const VkPipelineCacheCreateInfo *info,
                         const VkAllocationCallbacks *a, VkPipelineCache *out)
{
    n_given = info->initialDataSize;
    return driver.CreatePipelineCache(device, info, a, out);
}

static void stand_between(void *ctx, mf_vk_api *api)
{
    (void)ctx;
    driver = *api;
    api->CreatePipelineCache = see_data;
}

/* Opens, makes a pipeline, and closes. */
static void live(const char *cache_dir)
{
    const mf_vk_hooks hooks = {.loaded = stand_between};
    const mf_backend_options options = {.device = vulkan_test_device(), .cache_dir = cache_dir};
    const mf_op add = {.kind = MF_OP_ADD, .n_rows = 1};
    mf_error error = {0};
    mf_backend *be = NULL;
    n_given = SIZE_MAX;
    REQUIRE_OK(mf_vk_backend_create(&options, &hooks, &be, &error), &error);
    REQUIRE_OK(mf_backend_reserve(be, &add, &error), &error);
    be->ops->destroy(be);
}

/* The only file in the folder. */
static uint32_t find_file(void)
{
    DIR *dir = opendir(folder);
    uint32_t n = 0;
    REQUIRE(dir != NULL);
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(file, sizeof file, "%s/%s", folder, e->d_name);
        n++;
    }
    (void)closedir(dir);
    return n;
}

static size_t read_file(unsigned char *bytes, size_t most)
{
    FILE *f = fopen(file, "rb");
    REQUIRE(f != NULL);
    size_t n = fread(bytes, 1, most, f);
    (void)fclose(f);
    return n;
}

static void write_file(const unsigned char *bytes, size_t n)
{
    FILE *f = fopen(file, "wb");
    REQUIRE(f != NULL && fwrite(bytes, 1, n, f) == n);
    (void)fclose(f);
}

/* No change of a byte of its head or its data gets to the driver; each is mended. */
static void check_broken(const unsigned char *good, size_t n)
{
    unsigned char *bytes = malloc(n);
    REQUIRE(bytes != NULL);
    for (size_t at = 0; at < n; at += at < HEAD_BYTES ? 1 : n / 7 + 1) {
        memcpy(bytes, good, n);
        bytes[at] ^= 0x11;
        write_file(bytes, n);
        live(folder);
        CHECK_MSG(n_given == 0, "byte %zu changed: the driver was given %zu", at, n_given);
    }
    static const size_t cuts[] = {0, 1, 40, HEAD_BYTES - 1, HEAD_BYTES, HEAD_BYTES + 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        write_file(good, cuts[i]);
        live(folder);
        CHECK_MSG(n_given == 0, "cut to %zu bytes: the driver was given %zu", cuts[i], n_given);
    }
    live(folder);
    CHECK(n_given > 0 && n_given != SIZE_MAX);
    free(bytes);
}

/* What is no file, and would be waited for until somebody writes to it. */
static void check_pipe(void)
{
    struct stat is;
    REQUIRE(unlink(file) == 0 && mkfifo(file, 0600) == 0);
    (void)alarm(60);
    live(folder);
    (void)alarm(0);
    CHECK_U64(n_given, 0);
    CHECK(stat(file, &is) == 0 && S_ISREG(is.st_mode)); /* another has its place */
    live(folder);
    CHECK(n_given > 0 && n_given != SIZE_MAX);
}

/* A process of the same number, in another container that shares the folder, writes at the same
 * time: each has a file of its own. */
static void check_same_number(void)
{
    char other[sizeof file + 32], left[8] = "";
    snprintf(other, sizeof other, "%s.%lx.tmp", file, (unsigned long)getpid());
    const int fd = open(other, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0 && flock(fd, LOCK_EX) == 0 && write(fd, "other", 5) == 5);
    REQUIRE(unlink(file) == 0);
    live(folder);
    CHECK(pread(fd, left, sizeof left - 1, 0) == 5 && strcmp(left, "other") == 0);
    CHECK(access(other, F_OK) == 0 && access(file, F_OK) == 0);
    CHECK(close(fd) == 0 && unlink(other) == 0);
}

/* Whose states a device's are: another driver's are not its. */
static void check_rounding(void)
{
    mf_backend *be = vulkan_open(NULL);
    REQUIRE(be != NULL);
    const uint32_t rounding = be->ops->rounding(be);
    CHECK(rounding >= UINT32_C(1) << 31);
    CHECK_U64(be->ops->rounding(be), rounding);
    ((mf_vk_backend *)be)->device.properties.driverVersion++;
    CHECK(be->ops->rounding(be) != rounding && be->ops->rounding(be) >= UINT32_C(1) << 31);
    be->ops->destroy(be);
}

int main(void)
{
    static unsigned char good[1 << 20];
    if (!vulkan_is_there())
        return TEST_SKIPPED;
    REQUIRE(mkdtemp(folder) != NULL);
    REQUIRE(rmdir(folder) == 0); /* it is made where it is missing */
    live(NULL);
    CHECK_U64(n_given, 0);
    live(folder);
    CHECK_U64(n_given, 0);
    REQUIRE(find_file() == 1);
    size_t n = read_file(good, sizeof good);
    CHECK(n > HEAD_BYTES && n < sizeof good);
    live(folder);
    CHECK_U64(n_given, n - HEAD_BYTES);
    CHECK_U64(find_file(), 1); /* nothing is left beside it */
    check_broken(good, n);
    check_pipe();
    check_same_number();
    CHECK_U64(find_file(), 1);
    live("/proc/no/such/folder");
    CHECK_U64(n_given, 0);
    CHECK(unlink(file) == 0 && rmdir(folder) == 0);
    check_rounding();
    return test_result();
}
