/* SPDX-License-Identifier: MIT */
/* The pipeline cache between two runs: a file a device and driver. It is only ever a saving of
 * time: what is missing, broken or another driver's is made anew, and nobody hears of it. */
#include "backend/vulkan/vk_internal.h"

#include "base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_BYTES ((uint64_t)64 << 20)

typedef struct file_head {
    char magic[8];
    uint64_t n_bytes, hash; /* of what follows */
    uint32_t vendor, device, driver;
    uint8_t uuid[VK_UUID_SIZE];
    uint32_t unused;
} file_head;

static uint64_t hash_of(const unsigned char *bytes, uint64_t n)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (uint64_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    return hash;
}

static file_head head_for(const mf_vk_backend *be, const unsigned char *bytes, uint64_t n)
{
    const VkPhysicalDeviceProperties *p = &be->device.properties;
    file_head head = {.magic = "mfvkpc1",
                      .n_bytes = n,
                      .hash = hash_of(bytes, n),
                      .vendor = p->vendorID,
                      .device = p->deviceID,
                      .driver = p->driverVersion};
    memcpy(head.uuid, p->pipelineCacheUUID, sizeof head.uuid);
    return head;
}

/* NULL: there is none. Nobody is waited for, whatever has its name. */
static FILE *open_file(const char *path)
{
    struct stat is;
    const int fd = path[0] != 0 ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;
    FILE *f = fd >= 0 && fstat(fd, &is) == 0 && S_ISREG(is.st_mode) ? fdopen(fd, "rb") : NULL;
    if (f == NULL && fd >= 0)
        (void)close(fd);
    return f;
}

/* The file's bytes, from the allocator; NULL: there are none that can be used. */
static unsigned char *load(mf_vk_backend *be, uint64_t *n_bytes)
{
    file_head head;
    unsigned char *bytes = NULL;
    FILE *f = open_file(be->cache_path);
    if (f == NULL)
        return NULL;
    if (fread(&head, sizeof head, 1, f) == 1 && head.n_bytes > 0 && head.n_bytes <= MOST_BYTES)
        bytes = mf_alloc(&be->allocator, head.n_bytes);
    if (bytes != NULL) {
        const bool is_whole = fread(bytes, head.n_bytes, 1, f) == 1;
        const file_head expected = head_for(be, bytes, is_whole ? head.n_bytes : 0);
        if (!is_whole || memcmp(&expected, &head, sizeof head) != 0) {
            mf_free(&be->allocator, bytes, head.n_bytes);
            bytes = NULL;
        }
    }
    (void)fclose(f);
    *n_bytes = bytes != NULL ? head.n_bytes : 0;
    return bytes;
}

mf_status mf_vk_cache_open(mf_vk_backend *be, mf_error *error)
{
    const mf_vk_device *d = &be->device;
    uint64_t n_bytes = 0;
    unsigned char *bytes = load(be, &n_bytes);
    VkPipelineCacheCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
                                      .initialDataSize = n_bytes,
                                      .pInitialData = bytes};
    VkResult result = d->api.CreatePipelineCache(d->handle, &info, NULL, &be->pipelines.cache);
    if (result != VK_SUCCESS && bytes != NULL) { /* perhaps for what the file holds */
        info.initialDataSize = 0;
        result = d->api.CreatePipelineCache(d->handle, &info, NULL, &be->pipelines.cache);
    }
    mf_free(&be->allocator, bytes, n_bytes);
    be->pipelines.file_bytes = info.initialDataSize;
    if (result != VK_SUCCESS) {
        be->pipelines.cache = VK_NULL_HANDLE;
        return mf_vk_fail(error, result, "the cache of pipelines");
    }
    return MF_OK;
}

/* Written under another name first: a reader finds the old file or the new one. */
static void store(const mf_vk_backend *be, const unsigned char *bytes, size_t n_bytes)
{
    const file_head head = head_for(be, bytes, n_bytes);
    char front[sizeof be->cache_path + 1], name[sizeof be->cache_path + 32];
    (void)snprintf(front, sizeof front, "%s.", be->cache_path);
    const int fd = mf_make_aside(AT_FDCWD, front, ".tmp", 0666, name, sizeof name);
    FILE *f = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (f == NULL) {
        if (fd >= 0)
            (void)close(fd);
        return;
    }
    if (fwrite(&head, sizeof head, 1, f) != 1 || fwrite(bytes, n_bytes, 1, f) != 1 ||
        fflush(f) != 0 || rename(name, be->cache_path) != 0)
        (void)unlink(name);
    (void)fclose(f); /* locked until here: nobody takes it for one that was left */
}

void mf_vk_cache_close(mf_vk_backend *be)
{
    const mf_vk_device *d = &be->device;
    const VkPipelineCache cache = be->pipelines.cache;
    size_t n_bytes = 0;
    if (cache == VK_NULL_HANDLE)
        return;
    if (be->cache_path[0] != 0 && be->pipelines.n != 0 && be->stream.lost == MF_OK &&
        d->api.GetPipelineCacheData(d->handle, cache, &n_bytes, NULL) == VK_SUCCESS &&
        n_bytes != be->pipelines.file_bytes && n_bytes <= MOST_BYTES) {
        const size_t n_taken = n_bytes;
        unsigned char *bytes = mf_alloc(&be->allocator, n_taken);
        if (bytes != NULL &&
            d->api.GetPipelineCacheData(d->handle, cache, &n_bytes, bytes) == VK_SUCCESS)
            store(be, bytes, n_bytes);
        mf_free(&be->allocator, bytes, n_taken);
    }
    d->api.DestroyPipelineCache(d->handle, cache, NULL);
}

/* With the folders that it is in. */
static bool make_folder(const char *folder)
{
    char path[sizeof((mf_vk_backend *)0)->cache_path];
    int n = snprintf(path, sizeof path, "%s", folder);
    if (n <= 0 || (size_t)n >= sizeof path)
        return false;
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

void mf_vk_cache_name(mf_vk_backend *be, const char *folder)
{
    const VkPhysicalDeviceProperties *p = &be->device.properties;
    char uuid[2 * VK_UUID_SIZE + 1];
    if (folder == NULL || !make_folder(folder))
        return;
    for (size_t i = 0; i < VK_UUID_SIZE; i++)
        (void)snprintf(uuid + 2 * i, 3, "%02x", p->pipelineCacheUUID[i]);
    int n = snprintf(be->cache_path, sizeof be->cache_path, "%s/vulkan-%04x-%04x-%s.pipelines",
                     folder, p->vendorID, p->deviceID, uuid);
    if (n < 0 || (size_t)n >= sizeof be->cache_path)
        be->cache_path[0] = 0;
}
