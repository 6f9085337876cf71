/* SPDX-License-Identifier: MIT */
/* Memory: few large allocations, buffers cut from them in the order of their offsets. What the host
 * reaches is the process's own memory where the device can import it: direct reads from disk go
 * there on every driver, which is not so of memory that a driver maps. */
#include "backend/vulkan/vk_internal.h"

#include "base/checked.h"
#include "base/memory_limits.h"

#include <stdio.h>
#include <string.h>

#define ALIGN ((uint64_t)4096)
/* Smaller buffers share blocks of this size. */
#define SHARED_BLOCK_BYTES ((uint64_t)16 << 20)
#define SHARED_HOST_BLOCK_BYTES ((uint64_t)4 << 20)
#define SHARED_MOST_BYTES ((uint64_t)2 << 20)

/* ----------------------------------------------------------------------------------- types -- */

typedef struct wish {
    VkMemoryPropertyFlags needed, wanted, unwanted;
} wish;

static uint32_t count(VkMemoryPropertyFlags flags)
{
    return (uint32_t)__builtin_popcount(flags);
}

/* The best type among `bits`; VK_MAX_MEMORY_TYPES: none. */
static uint32_t best_type(const mf_vk_device *d, uint32_t bits, const wish *w)
{
    uint32_t best = VK_MAX_MEMORY_TYPES, best_score = 0;
    for (uint32_t i = 0; i < d->memory.memoryTypeCount; i++) {
        const VkMemoryPropertyFlags flags = d->memory.memoryTypes[i].propertyFlags;
        if ((bits >> i & 1) == 0 || (flags & w->needed) != w->needed ||
            (flags &
             (VK_MEMORY_PROPERTY_PROTECTED_BIT | VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT)) != 0)
            continue;
        const uint32_t score = 1 + 8 * count(flags & w->wanted) + 4 - count(flags & w->unwanted);
        if (score > best_score) {
            best_score = score;
            best = i;
        }
    }
    return best;
}

static uint32_t type_for(const mf_vk_device *d, uint32_t bits, mf_vk_place place)
{
    static const wish wishes[MF_VK_PLACES] = {
        [MF_VK_ON_DEVICE] = {0, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
                             VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                 VK_MEMORY_PROPERTY_HOST_CACHED_BIT},
        [MF_VK_ON_HOST] = {VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                               VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
                           VK_MEMORY_PROPERTY_HOST_CACHED_BIT, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT},
        [MF_VK_SHARED] = {VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                              VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
                          VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0},
    };
    return best_type(d, bits, &wishes[place]);
}

bool mf_vk_shares_memory(const mf_vk_device *d)
{
    const uint32_t type = type_for(d, UINT32_MAX, MF_VK_SHARED);
    return type != VK_MAX_MEMORY_TYPES &&
           (d->memory.memoryTypes[type].propertyFlags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) != 0;
}

/* ---------------------------------------------------------------------------------- blocks -- */

void mf_vk_block_free(mf_vk_backend *be, mf_vk_block *b)
{
    for (mf_vk_block *next; b != NULL; b = next) {
        next = b->more == 0 ? NULL : &be->blocks[b->more - 1];
        if (b->memory != VK_NULL_HANDLE) {
            be->device.api.FreeMemory(be->device.handle, b->memory, NULL); /* unmaps too */
            be->heap_taken[b->heap] -= b->n_bytes;
            be->device_bytes -= b->is_counted ? b->n_bytes : 0;
        }
        mf_region_free(&be->allocator, &b->region);
        memset(b, 0, sizeof *b);
    }
}

/* Whether the promise bounds the block: what a device with memory of its own has of that; of one
 * that has not, all but bytes on their way. */
static bool is_counted(const mf_vk_backend *be, const mf_vk_block *b, uint32_t type)
{
    const VkMemoryPropertyFlags flags = be->device.memory.memoryTypes[type].propertyFlags;
    if (be->device.info.is_unified)
        return b->place != MF_VK_ON_HOST || b->has_operands;
    return b->place != MF_VK_ON_HOST && (flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) != 0;
}

static mf_status check_promise(const mf_vk_backend *be, const mf_vk_block *b, uint32_t type,
                               const char *what, mf_error *error)
{
    const uint64_t most = be->promised_bytes;
    if (most == 0 || !is_counted(be, b, type) ||
        (b->n_bytes <= most && be->device_bytes <= most - b->n_bytes))
        return MF_OK;
    return mf_fail(
        error, MF_ERR_NO_MEMORY,
        "%llu bytes for %s do not fit the %llu of the device's memory that are promised, "
        "of which %llu are taken",
        (unsigned long long)b->n_bytes, what, (unsigned long long)most,
        (unsigned long long)be->device_bytes);
}

/* A driver has no word of its own for an allocation that is more than its device makes. */
static mf_status fail_allocation(const mf_vk_backend *be, const mf_vk_block *b, VkResult result,
                                 const char *what, mf_error *error)
{
    const unsigned long long n = b->n_bytes, most = be->device.most_allocation_bytes;
    char line[128];
    if (n > most)
        return mf_fail(error, MF_ERR_NO_MEMORY,
                       "%llu bytes for %s: an allocation of %s has at most %llu", n, what,
                       be->device.info.name, most);
    (void)snprintf(line, sizeof line, "%llu bytes for %.64s", n, what);
    return mf_vk_fail(error, result, line);
}

static mf_status allocate(mf_vk_backend *be, mf_vk_block *b, uint32_t type, const void *next,
                          const char *what, mf_error *error)
{
    const mf_vk_api *api = &be->device.api;
    const VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                             .pNext = next,
                                             .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .pNext = &flags,
                                       .allocationSize = b->n_bytes,
                                       .memoryTypeIndex = type};
    MF_TRY(check_promise(be, b, type, what, error));
    VkResult result = api->AllocateMemory(be->device.handle, &info, NULL, &b->memory);
    if (result != VK_SUCCESS) {
        b->memory = VK_NULL_HANDLE;
        return fail_allocation(be, b, result, what, error);
    }
    b->heap = be->device.memory.memoryTypes[type].heapIndex;
    be->heap_taken[b->heap] += b->n_bytes;
    b->is_counted = is_counted(be, b, type);
    be->device_bytes += b->is_counted ? b->n_bytes : 0;
    return MF_OK;
}

/* The process's own memory, which the device then sees. */
static mf_status import(mf_vk_backend *be, mf_vk_block *b, const mf_vk_request *r, uint32_t bits,
                        mf_error *error)
{
    const char *what = r->what;
    const mf_vk_device *d = &be->device;
    const VkExternalMemoryHandleTypeFlagBits kind =
        VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
    VkMemoryHostPointerPropertiesEXT pointer = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
    if (r->given == NULL)
        MF_TRY(mf_region_create(&be->allocator, b->n_bytes, what, &b->region, error));
    unsigned char *bytes = r->given != NULL ? r->given : b->region.base;
    VkResult result = d->api.GetMemoryHostPointerPropertiesEXT(d->handle, kind, bytes, &pointer);
    if (result != VK_SUCCESS)
        return mf_vk_fail(error, result, what);
    const uint32_t type = type_for(d, bits & pointer.memoryTypeBits, MF_VK_ON_HOST);
    if (type == VK_MAX_MEMORY_TYPES)
        return mf_vk_fail(error, VK_ERROR_INVALID_EXTERNAL_HANDLE, what);
    const VkImportMemoryHostPointerInfoEXT given = {
        .sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
        .handleType = kind,
        .pHostPointer = bytes};
    MF_TRY(allocate(be, b, type, &given, what, error));
    b->host = bytes;
    return MF_OK;
}

/* Where the driver had no memory of the type: one of the host's for what lies on the device for its
 * reads alone. Without resizable BAR the host writes to 256 MiB there, which all processes share.
 * VK_MAX_MEMORY_TYPES: none. */
static uint32_t type_instead(const mf_vk_backend *be, const mf_vk_block *b, const mf_vk_request *r,
                             uint32_t bits, uint32_t type)
{
    const uint32_t other = type_for(&be->device, bits, MF_VK_ON_HOST);
    const bool may_differ = b->place == MF_VK_SHARED && r->use != MF_USE_SHARED && other != type &&
                            check_promise(be, b, type, r->what, NULL) == MF_OK;
    return may_differ ? other : VK_MAX_MEMORY_TYPES;
}

static mf_status allocate_own(mf_vk_backend *be, mf_vk_block *b, const mf_vk_request *r,
                              uint32_t bits, mf_error *error)
{
    const char *what = r->what;
    const uint32_t type = type_for(&be->device, bits, b->place);
    if (type == VK_MAX_MEMORY_TYPES)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s has no memory of the kind for %s",
                       be->device.info.name, what);
    mf_status status = allocate(be, b, type, NULL, what, error);
    if (status == MF_ERR_NO_MEMORY) {
        const uint32_t other = type_instead(be, b, r, bits, type);
        b->is_instead = other != VK_MAX_MEMORY_TYPES;
        status = b->is_instead ? allocate(be, b, other, NULL, what, error) : status;
    }
    MF_TRY(status);
    if (b->place == MF_VK_ON_DEVICE)
        return MF_OK;
    void *host = NULL;
    VkResult result =
        be->device.api.MapMemory(be->device.handle, b->memory, 0, VK_WHOLE_SIZE, 0, &host);
    if (result != VK_SUCCESS)
        return mf_vk_fail(error, result, what);
    b->host = host;
    return MF_OK;
}

static bool is_imported(const mf_vk_backend *be, mf_vk_place place)
{
    return place == MF_VK_ON_HOST && be->device.import_align != 0 &&
           be->device.import_align <= ALIGN &&
           be->device.api.GetMemoryHostPointerPropertiesEXT != NULL;
}

mf_status mf_vk_block_create(mf_vk_backend *be, const mf_vk_request *r, uint32_t type_bits,
                             uint32_t *out, mf_error *error)
{
    uint32_t i = 0;
    while (i < MF_VK_MAX_BLOCKS && be->blocks[i].memory != VK_NULL_HANDLE)
        i++;
    if (i == MF_VK_MAX_BLOCKS)
        return mf_fail(error, MF_ERR_NO_MEMORY, "more than %d allocations (%s)", MF_VK_MAX_BLOCKS,
                       r->what);
    mf_vk_block *b = &be->blocks[i];
    *b = (mf_vk_block){.place = r->place,
                       .n_bytes = mf_round_up(r->n_bytes, ALIGN),
                       .has_operands = r->use == MF_USE_HOST};
    mf_status status = is_imported(be, r->place) ? import(be, b, r, type_bits, error)
                                                 : allocate_own(be, b, r, type_bits, error);
    if (status != MF_OK) {
        mf_vk_block_free(be, b);
        return status;
    }
    *out = i;
    return MF_OK;
}

/* Room in a block for m's bytes, as the driver wants them aligned: they begin after the buffer of
 * id *after (0: first). */
static bool find_gap(const mf_vk_backend *be, const mf_vk_block *b, mf_vk_memory *m, uint64_t align,
                     uint32_t *after)
{
    const uint64_t first = b->host == NULL ? 0 : -(uintptr_t)b->host & (ALIGN - 1);
    const uint64_t unit = align > ALIGN ? align : ALIGN;
    uint64_t at = first;
    uint32_t previous = 0;
    for (uint32_t id = b->first; id != 0; id = be->buffers[id - 1].next) {
        const mf_vk_memory *other = &be->buffers[id - 1];
        if (other->begin >= at && other->begin - at >= m->size)
            break;
        at = first + mf_round_up(other->begin + other->size - first, unit);
        previous = id;
    }
    m->begin = at;
    *after = previous;
    return at <= b->n_bytes && b->n_bytes - at >= m->size;
}

/* --------------------------------------------------------------------------------- buffers -- */

static VkResult create_vk_buffer(mf_vk_backend *be, const mf_vk_request *r, VkBuffer *out)
{
    const VkExternalMemoryBufferCreateInfo external = {
        .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
        .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT};
    /* uploads reach them from either queue, and hand nothing over */
    const uint32_t families[] = {be->device.family, be->device.copy_family};
    const bool is_shared = families[0] != families[1];
    const VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .queueFamilyIndexCount = is_shared ? 2 : 0,
        .pQueueFamilyIndices = families,
        .pNext = is_imported(be, r->place) ? &external : NULL,
        .flags = mf_vk_is_sparse(be, r) ? VK_BUFFER_CREATE_SPARSE_BINDING_BIT : 0,
        .size = r->n_bytes == 0 ? 1 : r->n_bytes,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                 VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                 (be->device.has_conditions && r->place == MF_VK_ON_DEVICE
                      ? VK_BUFFER_USAGE_CONDITIONAL_RENDERING_BIT_EXT
                      : 0),
        .sharingMode = is_shared ? VK_SHARING_MODE_CONCURRENT : VK_SHARING_MODE_EXCLUSIVE};
    return be->device.api.CreateBuffer(be->device.handle, &info, NULL, out);
}

/* A place for m's bytes, in a block that there is or a new one. */
static mf_status find_place(mf_vk_backend *be, mf_vk_memory *m, const mf_vk_request *r,
                            const VkMemoryRequirements *needs, uint32_t *after, mf_error *error)
{
    const bool shares = m->size <= SHARED_MOST_BYTES && r->given == NULL;
    const bool is_mapped = r->place != MF_VK_ON_DEVICE && r->given == NULL;
    for (uint32_t i = 0; i < MF_VK_MAX_BLOCKS && shares; i++) {
        const mf_vk_block *b = &be->blocks[i];
        m->block = i;
        if (b->memory != VK_NULL_HANDLE && b->place == r->place &&
            b->has_operands == (r->use == MF_USE_HOST) &&
            !(b->is_instead && r->use == MF_USE_SHARED) &&
            find_gap(be, b, m, needs->alignment, after))
            return MF_OK;
    }
    mf_vk_request request = *r;
    if (shares)
        request.n_bytes = is_mapped ? SHARED_HOST_BLOCK_BYTES : SHARED_BLOCK_BYTES;
    else /* one page more: a mapping need not begin at one */
        request.n_bytes = m->size + (is_mapped ? ALIGN : 0);
    MF_TRY(mf_vk_block_create(be, &request, needs->memoryTypeBits, &m->block, error));
    (void)find_gap(be, &be->blocks[m->block], m, needs->alignment, after);
    return MF_OK;
}

static void link_after(mf_vk_backend *be, uint32_t id, uint32_t after)
{
    mf_vk_memory *m = &be->buffers[id - 1];
    uint32_t *link = after == 0 ? &be->blocks[m->block].first : &be->buffers[after - 1].next;
    m->next = *link;
    *link = id;
}

static void unlink_from_block(mf_vk_backend *be, uint32_t id)
{
    const mf_vk_memory *m = &be->buffers[id - 1];
    mf_vk_block *b = &be->blocks[m->block];
    uint32_t *link = &b->first;
    while (*link != id)
        link = &be->buffers[*link - 1].next;
    *link = m->next;
    if (b->first == 0)
        mf_vk_block_free(be, b);
}

static mf_status bind_in_block(mf_vk_backend *be, uint32_t id, const mf_vk_request *r,
                               const VkMemoryRequirements *needs, mf_error *error)
{
    mf_vk_memory *m = &be->buffers[id - 1];
    uint32_t after = 0;
    m->size = mf_round_up(needs->size, ALIGN);
    MF_TRY(find_place(be, m, r, needs, &after, error));
    link_after(be, id, after);
    VkResult result = be->device.api.BindBufferMemory(be->device.handle, m->buffer,
                                                      be->blocks[m->block].memory, m->begin);
    if (result != VK_SUCCESS) {
        unlink_from_block(be, id);
        return mf_vk_fail(error, result, r->what);
    }
    return MF_OK;
}

static mf_status bind(mf_vk_backend *be, uint32_t id, const mf_vk_request *r, mf_error *error)
{
    const mf_vk_api *api = &be->device.api;
    mf_vk_memory *m = &be->buffers[id - 1];
    VkMemoryRequirements needs;
    api->GetBufferMemoryRequirements(be->device.handle, m->buffer, &needs);
    if (mf_vk_is_sparse(be, r))
        MF_TRY(mf_vk_sparse_bind(be, id, &needs, r->what, error));
    else
        MF_TRY(bind_in_block(be, id, r, &needs, error));
    const VkBufferDeviceAddressInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                            .buffer = m->buffer};
    m->address = api->GetBufferDeviceAddress(be->device.handle, &info);
    m->host = be->blocks[m->block].host == NULL ? NULL : be->blocks[m->block].host + m->begin;
    return MF_OK;
}

/* An id that is free; 0: none. */
static uint32_t free_id(const mf_vk_backend *be, bool is_internal)
{
    const uint32_t first = is_internal ? MF_VK_MAX_BUFFERS + 1 : 1;
    const uint32_t last = is_internal ? MF_VK_MAX_IDS : MF_VK_MAX_BUFFERS;
    for (uint32_t id = first; id <= last; id++)
        if (be->buffers[id - 1].buffer == VK_NULL_HANDLE)
            return id;
    return 0;
}

mf_status mf_vk_buffer_create(mf_vk_backend *be, const mf_vk_request *r, mf_buffer *out,
                              mf_error *error)
{
    const uint32_t id = free_id(be, r->is_internal);
    if (id == 0)
        return mf_fail(error, MF_ERR_NO_MEMORY, "more than %d buffers on one backend (%s)",
                       MF_VK_MAX_BUFFERS, r->what);
    if (r->n_bytes > be->device.most_buffer_bytes)
        return mf_fail(error, MF_ERR_NO_MEMORY,
                       "%llu bytes for %s: a buffer of %s has at most %llu",
                       (unsigned long long)r->n_bytes, r->what, be->device.info.name,
                       (unsigned long long)be->device.most_buffer_bytes);
    mf_vk_memory *m = &be->buffers[id - 1];
    *m = (mf_vk_memory){.n_bytes = r->n_bytes, .use = r->use};
    VkResult result = create_vk_buffer(be, r, &m->buffer);
    if (result != VK_SUCCESS) {
        m->buffer = VK_NULL_HANDLE;
        return mf_vk_fail(error, result, r->what);
    }
    mf_status status = bind(be, id, r, error);
    if (status != MF_OK) {
        be->device.api.DestroyBuffer(be->device.handle, m->buffer, NULL);
        *m = (mf_vk_memory){0};
        return status;
    }
    if (!r->is_internal && id > be->n_buffers)
        be->n_buffers = id;
    *out = (mf_buffer){id};
    return MF_OK;
}

void mf_vk_buffer_drop(mf_vk_backend *be, mf_buffer buffer)
{
    if (buffer.id == 0)
        return;
    mf_vk_memory *m = &be->buffers[buffer.id - 1];
    be->n_freed -= m->is_freed;
    be->device.api.DestroyBuffer(be->device.handle, m->buffer, NULL);
    unlink_from_block(be, buffer.id);
    *m = (mf_vk_memory){0};
}

/* A buffer of it has so many bytes, or more where that would be too many of them. */
#define REACHED_BYTES ((uint64_t)256 << 20)

void mf_vk_reach(mf_vk_backend *be, unsigned char *memory, uint64_t n_bytes, uint64_t unit_bytes)
{
    uint64_t n_units = REACHED_BYTES / unit_bytes + 1;
    const uint64_t least = n_bytes / unit_bytes / MF_VK_MAX_REACHED + 1;
    n_units = n_units < least ? least : n_units;
    if (is_imported(be, MF_VK_ON_HOST))
        be->reached = (mf_vk_reached){memory, n_bytes, n_units * unit_bytes, {{0}}, {false}};
}

/* The buffer of reached memory from `at` on, made when it is asked for first: the driver takes hold
 * of its pages, which by then have been written to. id 0: the driver would not. */
static mf_buffer reached_buffer(mf_vk_backend *be, uint64_t at)
{
    mf_vk_reached *r = &be->reached;
    const uint64_t i = at / r->each_bytes, from = i * r->each_bytes, left = r->n_bytes - from;
    const mf_vk_request request = {.n_bytes = left < r->each_bytes ? left : r->each_bytes,
                                   .place = MF_VK_ON_HOST,
                                   .use = MF_USE_STAGING,
                                   .what = "memory that is uploaded from",
                                   .given = r->base + from};
    if (!r->is_tried[i] && mf_vk_buffer_create(be, &request, &r->buffers[i], NULL) != MF_OK)
        r->buffers[i] = (mf_buffer){0};
    r->is_tried[i] = true;
    return r->buffers[i];
}

static mf_span span_of_reached(mf_vk_backend *be, uint64_t at, uint64_t n_bytes)
{
    const uint64_t offset = at % be->reached.each_bytes;
    if (n_bytes > be->reached.each_bytes - offset || n_bytes > be->reached.n_bytes - at)
        return (mf_span){{0}, 0};
    return (mf_span){reached_buffer(be, at), offset};
}

mf_span mf_vk_span_of_host(mf_vk_backend *be, const void *bytes, uint64_t n_bytes)
{
    const uintptr_t at = (uintptr_t)bytes, reached = (uintptr_t)be->reached.base;
    if (at >= reached && at - reached < be->reached.n_bytes)
        return span_of_reached(be, at - reached, n_bytes);
    for (uint32_t i = 0; i < be->n_buffers; i++) {
        const mf_vk_memory *m = &be->buffers[i];
        const uintptr_t host = (uintptr_t)m->host;
        if (m->host != NULL && m->use != MF_USE_DEVICE && at >= host && at - host <= m->n_bytes &&
            m->n_bytes - (at - host) >= n_bytes)
            return (mf_span){{i + 1}, at - host};
    }
    return (mf_span){{0}, 0};
}

uint32_t mf_vk_memories(mf_vk_backend *be, mf_backend_memory *out)
{
    const mf_vk_device *d = &be->device;
    const uint32_t on_host = 1u << MF_USE_HOST | 1u << MF_USE_STAGING;
    const uint32_t type = type_for(d, UINT32_MAX, MF_VK_ON_DEVICE);
    const uint32_t heap = d->memory.memoryTypes[type].heapIndex;
    uint64_t left = mf_vk_heap_free(d, heap, be->heap_taken[heap]);
    const uint64_t available = mf_memory_available_bytes();
    out[0] = (mf_backend_memory){.uses = 1u << MF_USE_DEVICE | 1u << MF_USE_SHARED,
                                 .takes_promise = true,
                                 .taken_bytes = be->device_bytes};
    (void)snprintf(out[0].name, sizeof out[0].name, "%.63s", d->info.name);
    if (d->info.is_unified) {
        out[0].uses |= on_host;
        out[0].is_host = true;
        left = available != 0 && available < left ? available : left;
    }
    const uint64_t promised =
        be->promised_bytes > be->device_bytes ? be->promised_bytes - be->device_bytes : 0;
    if (be->promised_bytes != 0 && promised < left)
        left = promised;
    out[0].n_bytes = left;
    if (d->info.is_unified)
        return 1;
    out[1] = (mf_backend_memory){
        .name = "memory", .n_bytes = available, .uses = on_host, .is_host = true};
    return 2;
}

void mf_vk_memory_close(mf_vk_backend *be)
{
    for (uint32_t id = 1; id <= MF_VK_MAX_IDS; id++)
        if (be->buffers[id - 1].buffer != VK_NULL_HANDLE)
            mf_vk_buffer_drop(be, (mf_buffer){id});
}
