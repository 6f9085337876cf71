/* SPDX-License-Identifier: MIT */
/* The choice of a backend, and what is built on any backend's functions. */
#include "backend/backend.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/vulkan/vulkan_backend.h"

#include <stdlib.h>
#include <string.h>

static bool is_auto(const char *device)
{
    return device == NULL || strcmp(device, "auto") == 0;
}

static bool is_cpu(const char *device)
{
    return is_auto(device) || strcmp(device, "cpu") == 0;
}

static mf_status fail_name(const char *option, const char *device, const char *names,
                           mf_error *error)
{
    return mf_fail(error, MF_ERR_ARGUMENT, "%s '%s' is not known; there are: %s", option, device,
                   names);
}

mf_status mf_backend_check_device(const char *option, const char *device, mf_error *error)
{
    if (is_cpu(device) || mf_vulkan_is_name(device))
        return MF_OK;
    return fail_name(option, device, "auto, cpu, vulkan, vulkan:N", error);
}

mf_status mf_backend_check_expert_device(const char *device, mf_error *error)
{
    if (mf_backend_is_hybrid(device) || is_cpu(device) || mf_vulkan_is_name(device))
        return MF_OK;
    return fail_name("expert_device", device,
                     "auto, cpu, hybrid, hybrid:N, hybrid:auto, vulkan, vulkan:N", error);
}

/* Of one to six digits. */
static bool read_layers(const char *digits, uint32_t *n)
{
    const size_t n_digits = strspn(digits, "0123456789");
    *n = (uint32_t)strtoul(digits, NULL, 10);
    return n_digits >= 1 && n_digits <= 6 && digits[n_digits] == '\0';
}

/* "hybrid", "hybrid:N" or "hybrid:auto", and the layers that it gives away; false: it is something
 * else. */
static bool read_hybrid(const char *name, uint32_t *n_layers)
{
    const size_t n = strlen(MF_DEVICE_HYBRID);
    if (name == NULL || strncmp(name, MF_DEVICE_HYBRID, n) != 0)
        return false;
    const char *after = name + n;
    *n_layers = strcmp(after, ":auto") == 0 ? MF_GIVEN_AUTO : 0;
    if (after[0] == '\0' || *n_layers == MF_GIVEN_AUTO)
        return true;
    return after[0] == ':' && read_layers(after + 1, n_layers);
}

bool mf_backend_is_hybrid(const char *expert_device)
{
    uint32_t n_layers;
    return read_hybrid(expert_device, &n_layers);
}

uint32_t mf_backend_given_layers(const char *expert_device)
{
    uint32_t n_layers;
    return read_hybrid(expert_device, &n_layers) ? n_layers : 0;
}

const char *mf_backend_device(const char *device)
{
    return is_auto(device) || mf_backend_is_hybrid(device) ? "cpu" : device;
}

bool mf_backend_are_apart(const char *device, const char *expert_device)
{
    return !is_auto(expert_device) &&
           strcmp(mf_backend_device(device), mf_backend_device(expert_device)) != 0;
}

mf_status mf_backend_open(const mf_backend_options *options, mf_backend **out, mf_error *error)
{
    MF_TRY(mf_backend_check_device("device", options->device, error));
    if (mf_vulkan_is_name(options->device))
        return mf_vulkan_backend_create(options, out, error);
    return mf_cpu_backend_create(options, out, error);
}

uint64_t mf_backend_host_bytes(const char *device, uint64_t n_rows, uint64_t n_cols)
{
    if (mf_vulkan_is_name(device))
        return mf_vulkan_host_bytes(n_rows, n_cols);
    return is_cpu(device) ? mf_cpu_host_bytes(n_rows, n_cols) : 0;
}

uint64_t mf_backend_driver_bytes(const char *device, uint32_t n_threads)
{
    return mf_vulkan_is_name(device) ? mf_vulkan_driver_bytes(n_threads) : 0;
}

uint64_t mf_backend_device_bytes(const char *device, const mf_backend_sizes *sizes)
{
    return mf_vulkan_is_name(device) ? mf_vulkan_device_bytes(sizes) : 0;
}

const char *mf_op_name(mf_op_kind kind)
{
    static const char *const names[] = {
        [MF_OP_EMBED] = "embed",
        [MF_OP_COPY_ROWS] = "copy rows",
        [MF_OP_RMSNORM] = "rmsnorm",
        [MF_OP_RMSNORM_GATED] = "gated rmsnorm",
        [MF_OP_MATMUL] = "matmul",
        [MF_OP_HEAD_NORM_ROPE] = "head norm and rope",
        [MF_OP_ATTENTION] = "attention",
        [MF_OP_SIGMOID_MUL] = "sigmoid mul",
        [MF_OP_CONV1D_SILU] = "conv1d silu",
        [MF_OP_GATED_DELTA] = "gated delta",
        [MF_OP_ADD] = "add",
        [MF_OP_SWIGLU] = "swiglu",
        [MF_OP_ROUTE] = "route",
        [MF_OP_EXPERTS] = "experts",
        [MF_OP_ROUTED_EXPERTS] = "routed experts",
        [MF_OP_COMBINE] = "combine",
        [MF_OP_ROPE] = "rope",
        [MF_OP_HEAD_MATMUL] = "head matmul",
        [MF_OP_LATENT_ATTENTION] = "latent attention",
        [MF_OP_COMPRESS] = "compress",
        [MF_OP_ENTRY_ATTENTION] = "entry attention",
        [MF_OP_STREAMS_IN] = "streams in",
        [MF_OP_STREAMS_OUT] = "streams out",
        [MF_OP_FINITE] = "finite",
        [MF_OP_MIXTURE] = "mixture",
        [MF_OP_LINEAR_ROW] = "linear row",
        [MF_OP_ATTEND_ROW] = "attend row",
        [MF_OP_LATENT_ROW] = "latent row",
        [MF_OP_TO_HOST] = "to the host",
        [MF_OP_FROM_HOST] = "from the host",
    };
    uint32_t n = sizeof names / sizeof names[0], i = (uint32_t)kind;
    return i < n && names[i] != NULL ? names[i] : "unknown";
}

mf_weight mf_routed_weight(const mf_routed_experts_params *p, const mf_weight *w, uint32_t expert,
                           uint32_t slot)
{
    const mf_weight_format *format = mf_weight_format_of(&w->shape);
    mf_weight of = *w;
    for (uint32_t i = 0; i < format->n_arrays; i++)
        of.arrays[i].offset += p->has_resident_scales && format->arrays[i].is_float32
                                   ? expert * mf_weight_array_bytes(&w->shape, i)
                                   : slot * p->slot_bytes;
    return of;
}

mf_buffer_use mf_backend_operand_use(const mf_backend *be)
{
    const uint32_t both = 1u << MF_USE_DEVICE | 1u << MF_USE_HOST;
    mf_backend_memory memories[MF_MAX_MEMORIES];
    uint32_t n = be->ops->memories(be, memories);
    for (uint32_t i = 0; i < n; i++)
        if (memories[i].is_host && (memories[i].uses & both) == both)
            return MF_USE_HOST;
    return MF_USE_DEVICE;
}

void mf_backend_gather(mf_backend *be)
{
    if (be->ops->gather != NULL)
        be->ops->gather(be);
}

mf_status mf_backend_gathered(mf_backend *be, mf_error *error)
{
    return be->ops->gathered != NULL ? be->ops->gathered(be, error) : MF_OK;
}

bool mf_backend_is_mixed(const mf_backend *be)
{
    return be->ops->is_mixed != NULL && be->ops->is_mixed(be);
}

mf_status mf_backend_reserve(mf_backend *be, const mf_op *op, mf_error *error)
{
    if (!be->ops->supports_op(be, op))
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "device %s (%s) lacks the operation '%s' in the form that this model needs",
                       be->ops->name, be->ops->device_name(be), mf_op_name(op->kind));
    return be->ops->reserve(be, op, error);
}

mf_ticket mf_backend_upload_ahead(mf_backend *be, const mf_upload *uploads, uint32_t n)
{
    mf_ticket ticket = 0;
    if (be->ops->upload_ahead != NULL)
        return be->ops->upload_ahead(be, uploads, n);
    for (uint32_t i = 0; i < n; i++) /* the last one's is done after the others' */
        ticket = be->ops->upload(be, uploads[i].dest, uploads[i].src, uploads[i].n_bytes);
    return ticket;
}

mf_status mf_backend_finish(mf_backend *be, mf_error *error)
{
    return be->ops->wait_for(be, be->ops->mark(be), error);
}

mf_status mf_backend_read(mf_backend *be, mf_span src, void *dest, uint64_t n_bytes,
                          mf_error *error)
{
    be->ops->read(be, src, dest, n_bytes);
    return mf_backend_finish(be, error);
}
