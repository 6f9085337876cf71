/* SPDX-License-Identifier: MIT */
/* Part of <moeflux/moeflux.h>, which programs include and which states the conventions: the CPU and
 * the GPUs that can compute. */
#ifndef MOEFLUX_DEVICES_H
#define MOEFLUX_DEVICES_H

#include <moeflux/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a GPU multiplies the tokens of long runs with: those that one call brings to a session, 128
 * or more (docs/GPU.md). Other tokens are multiplied in float32. The CPU takes no notice. */
typedef enum mf_precision {
    /* MF_PRECISION_MIXED where the device has matrix units for it, else MF_PRECISION_F32. */
    MF_PRECISION_AUTO = 0,
    /* float32. */
    MF_PRECISION_F32 = 1,
    /* Weights and activations rounded to float16, sums in float32. */
    MF_PRECISION_MIXED = 2
} mf_precision;

/* What is made of nodes: memory that is near to some CPUs and far from the others (NUMA). */
typedef enum mf_numa_use {
    /* Nothing: there is one. */
    MF_NUMA_ONE_NODE = 0,
    /* Compute threads stay with a node each, dense weights lie with those that multiply them, what
     * all use is spread over the nodes. */
    MF_NUMA_USED = 1,
    /* Nothing: the process was given a policy for its memory (numactl), which holds. */
    MF_NUMA_GIVEN = 2,
    /* Nothing: the system refuses get_mempolicy (a container without CAP_SYS_NICE). */
    MF_NUMA_FORBIDDEN = 3,
    /* Nothing: some CPUs that the process may use have no memory of their own that it may use, or
     * there are more than 16 nodes. */
    MF_NUMA_UNEVEN = 4
} mf_numa_use;

/* What can compute. */
typedef struct mf_device_info {
    size_t struct_bytes;
    /* As mf_engine_options.device takes it: "cpu", "vulkan:0". */
    char id[32];
    /* "cpu", "discrete", "integrated", "virtual", "software". */
    char kind[16];
    /* A GPU's name; the CPU's threads and instruction set. */
    char name[256];
    /* Of a GPU: its driver and that one's version, and "Vulkan 1.3.242". */
    char driver[256];
    char api[32];
    /* What the engine needs and it lacks, so that it cannot be used; empty: nothing. */
    char lacks[64];
    /* Where weights would lie: all there is, and what is free (0: not known). */
    uint64_t memory_bytes;
    uint64_t free_bytes;
    /* Not 0: that memory is the process's, which ram_bytes bounds. */
    uint32_t shares_memory;
    /* Not 0: it has matrix units that the engine uses. */
    uint32_t has_matrix_units;
    /* Of the CPU: the names that mf_engine_options.cpu_tier may have here, with ", " between, the
     * best last; of others empty. */
    char tiers[96];
    /* Of the CPU: how many CPUs the control groups of this process pay for; 0: no limit. */
    uint32_t n_paid_cpus;
    /* Of the CPU: nodes that have both CPUs and memory which this process may use, 1 at least; and
     * what an engine makes of them, unless its options say otherwise. */
    uint32_t n_nodes;
    mf_numa_use numa_use;
} mf_device_info;

/* Fills out[0 .. capacity - 1] (out may be NULL), the CPU first, and returns how many devices there
 * are. Loads the drivers of GPUs and lets them go again. Where there is no GPU, *no_gpu (may be
 * NULL) has MF_ERR_UNSUPPORTED and says why, else MF_OK. */
MF_API size_t mf_device_list_sized(mf_device_info *out, size_t capacity, size_t struct_bytes,
                                   mf_error *no_gpu);
static inline size_t mf_device_list(mf_device_info *out, size_t capacity, mf_error *no_gpu)
{
    return mf_device_list_sized(out, capacity, sizeof *out, no_gpu);
}

#ifdef __cplusplus
}
#endif
#endif
