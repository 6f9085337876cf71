/* SPDX-License-Identifier: MIT */
/* CPU detection: which kernel tiers this machine runs, and how many CPUs this process may use. */
#ifndef MF_BASE_CPU_H
#define MF_BASE_CPU_H

#include <moeflux/devices.h>

/* The best tier of CPU and operating system (XGETBV), at most `limit` (0: no limit). */
mf_cpu_tier mf_cpu_detect(uint32_t limit);
const char *mf_cpu_tier_name(mf_cpu_tier tier);
/* CPUs in this process's affinity mask, at least 1; a cgroup's CPU quota is respected. */
uint32_t mf_cpu_count(void);

#endif
