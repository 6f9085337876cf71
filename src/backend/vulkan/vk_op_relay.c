/* SPDX-License-Identifier: MIT */
/*
 * What passes between the stream and the host while the stream goes on (relay.comp). Vulkan does
 * not promise that a dispatch finds what the host writes meanwhile. A device that runs workgroups
 * side by side (mf_vk_device.n_resident) does where the words lie in its own memory; an H100 that
 * asks for words in the host's never finds them changed, as it keeps what it has read.
 */
#include "backend/vulkan/vk_internal.h"

#define THREADS 256u

/* Half a minute or so: a device asks its own memory once in half a microsecond. */
#define MOST_SPINS (1u << 26)
/* Mesa's devices in software leave a loop after 65,536 rounds, and run one workgroup after the
 * other: so many ask in turn, 64 times a round. */
#define SOFTWARE_TURNS 32u

static bool is_software(const mf_vk_backend *be)
{
    return be->device.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
}

static bool relay_supports(const mf_vk_backend *be, const mf_op *op)
{
    (void)op;
    return be->device.n_resident != 0 && mf_vk_shares_memory(&be->device);
}

static mf_vk_kernel from_host_kernel(const mf_vk_backend *be)
{
    const mf_vk_shader shader =
        is_software(be) ? MF_VK_SHADER_relay_from_host_software : MF_VK_SHADER_relay_from_host;
    return (mf_vk_kernel){shader, 2, {THREADS, MOST_SPINS}};
}

static mf_status to_host_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    (void)op;
    return mf_vk_prepare_shader(be, MF_VK_SHADER_relay_to_host, THREADS, error);
}

static void to_host_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_to_host_params *p = &op->u.to_host;
    const mf_vk_kernel kernel = {MF_VK_SHADER_relay_to_host, 1, {THREADS}};
    const uint32_t n[] = {op->n_rows * p->n_cols[0], op->n_rows * p->n_cols[1],
                          op->n_rows * p->n_cols[2]};
    const struct {
        uint64_t words, arrays[MF_TO_HOST_ARRAYS];
        uint32_t n[MF_TO_HOST_ARRAYS], number;
    } push = {mf_vk_address(be, p->words),
              {mf_vk_address(be, p->arrays[0]), mf_vk_address(be, p->arrays[1]),
               mf_vk_address(be, p->arrays[2])},
              {n[0], n[1], n[2]},
              p->number};
    mf_vk_dispatch(be, &kernel, &push, sizeof push,
                   (const uint32_t[]){mf_vk_groups(n[0] + n[1] + n[2], THREADS), 1, 1});
}

static mf_status from_host_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const mf_vk_kernel kernel = from_host_kernel(be);
    (void)op;
    return mf_vk_prepare(be, &kernel, error);
}

static void from_host_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_from_host_params *p = &op->u.from_host;
    const mf_vk_kernel kernel = from_host_kernel(be);
    const uint32_t n = op->n_rows * p->n_cols;
    const uint32_t n_turns = is_software(be) ? SOFTWARE_TURNS : 1;
    const struct {
        uint64_t words, out, late;
        uint32_t n, number;
    } push = {mf_vk_address(be, p->words), mf_vk_address(be, p->out), mf_vk_address(be, p->late), n,
              p->number};
    mf_vk_dispatch(be, &kernel, &push, sizeof push,
                   (const uint32_t[]){mf_vk_groups(n, THREADS), n_turns, 1});
}

const mf_vk_op mf_vk_op_to_host = {relay_supports, to_host_reserve, to_host_record};
const mf_vk_op mf_vk_op_from_host = {relay_supports, from_host_reserve, from_host_record};
