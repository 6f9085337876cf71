/* SPDX-License-Identifier: MIT */
/* Buffers that are larger than an allocation may be (4 GiB on many devices): several allocations
 * behind one address, where the device can. */
#include "backend/vulkan/vk_internal.h"

#define MOST_PIECES 512u
#define PIECE_BYTES ((uint64_t)1 << 30)

bool mf_vk_is_sparse(const mf_vk_backend *be, const mf_vk_request *r)
{
    return r->place == MF_VK_ON_DEVICE && r->n_bytes > be->device.most_allocation_bytes &&
           be->device.has_sparse_buffers;
}

static uint64_t piece_bytes(const mf_vk_backend *be, const VkMemoryRequirements *needs)
{
    const uint64_t most = be->device.most_allocation_bytes;
    return (most < PIECE_BYTES ? most : PIECE_BYTES) / needs->alignment * needs->alignment;
}

/* Allocates the pieces, each behind the one before it. */
static mf_status allocate_pieces(mf_vk_backend *be, mf_vk_memory *m,
                                 const VkMemoryRequirements *needs, VkSparseMemoryBind *binds,
                                 const char *what, mf_error *error)
{
    const uint64_t piece = piece_bytes(be, needs);
    uint32_t last = 0, i = 0;
    for (uint64_t at = 0; at < needs->size; at += piece, i++) {
        const uint64_t n = needs->size - at < piece ? needs->size - at : piece;
        const mf_vk_request request = {
            .n_bytes = n, .place = MF_VK_ON_DEVICE, .use = MF_USE_DEVICE, .what = what};
        uint32_t block;
        mf_status status = mf_vk_block_create(be, &request, needs->memoryTypeBits, &block, error);
        if (status != MF_OK) {
            if (i > 0)
                mf_vk_block_free(be, &be->blocks[m->block]);
            return status;
        }
        if (i == 0)
            m->block = block;
        else
            be->blocks[last].more = block + 1;
        last = block;
        binds[i] = (VkSparseMemoryBind){
            .resourceOffset = at, .size = n, .memory = be->blocks[block].memory};
    }
    return MF_OK;
}

mf_status mf_vk_sparse_bind(mf_vk_backend *be, uint32_t id, const VkMemoryRequirements *needs,
                            const char *what, mf_error *error)
{
    const mf_vk_device *d = &be->device;
    mf_vk_memory *m = &be->buffers[id - 1];
    VkSparseMemoryBind binds[MOST_PIECES];
    const uint64_t piece = piece_bytes(be, needs);
    if (piece == 0 || needs->size / piece >= MOST_PIECES)
        return mf_fail(error, MF_ERR_NO_MEMORY, "%llu bytes for %s are too many for one buffer",
                       (unsigned long long)needs->size, what);
    MF_TRY(allocate_pieces(be, m, needs, binds, what, error));
    const VkSparseBufferMemoryBindInfo buffer = {.buffer = m->buffer,
                                                 .bindCount =
                                                     (uint32_t)((needs->size + piece - 1) / piece),
                                                 .pBinds = binds};
    const VkBindSparseInfo info = {
        .sType = VK_STRUCTURE_TYPE_BIND_SPARSE_INFO, .bufferBindCount = 1, .pBufferBinds = &buffer};
    VkResult result = d->api.QueueBindSparse(d->queue, 1, &info, VK_NULL_HANDLE);
    if (result == VK_SUCCESS) /* what uses it is submitted later, and must find it bound */
        result = d->api.QueueWaitIdle(d->queue);
    if (result != VK_SUCCESS) {
        mf_vk_block_free(be, &be->blocks[m->block]);
        return mf_vk_fail(error, result, what);
    }
    m->begin = 0;
    m->size = needs->size;
    m->next = 0;
    /* whole: nobody else finds room in them */
    for (uint32_t i = m->block + 1; i != 0; i = be->blocks[i - 1].more)
        be->blocks[i - 1].first = id;
    return MF_OK;
}
