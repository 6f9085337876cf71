/* SPDX-License-Identifier: MIT */
/* What memory this process has and may have, from /proc and the cgroup hierarchy (v1 and v2). */
#ifndef MF_BASE_MEMORY_LIMITS_H
#define MF_BASE_MEMORY_LIMITS_H

#include <stdint.h>

/* Resident bytes of this process now (VmRSS); 0 if unknown. */
uint64_t mf_memory_resident_bytes(void);
/* Of the machine, all; 0 if unknown. */
uint64_t mf_memory_machine_bytes(void);
/* Bytes this process could still take without pushing the machine or its cgroup into swap; 0 if
 * unknown. */
uint64_t mf_memory_available_bytes(void);
/* The same of what the machine has available (0: unknown) and the cgroups leave (UINT64_MAX: no
 * limit). */
uint64_t mf_memory_available_of(uint64_t machine_bytes, uint64_t group_bytes);

#endif
