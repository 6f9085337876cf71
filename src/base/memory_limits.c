/* SPDX-License-Identifier: MIT */
/* Memory figures by the kernel's own count. */
#include "base/memory_limits.h"

#include "base/cgroup.h"

/* A "KEY:   N kB" line of a /proc file, in bytes; 0 if absent. */
static uint64_t proc_entry(const char *path, const char *key)
{
    char text[8192];
    return mf_read_small_file(path, text, sizeof text) ? mf_entry_of(text, key, ':') * 1024 : 0;
}

uint64_t mf_memory_resident_bytes(void)
{
    return proc_entry("/proc/self/status", "VmRSS");
}

uint64_t mf_memory_machine_bytes(void)
{
    return proc_entry("/proc/meminfo", "MemTotal");
}

uint64_t mf_memory_available_of(uint64_t machine_bytes, uint64_t group_bytes)
{
    if (machine_bytes == 0)
        return group_bytes != UINT64_MAX ? group_bytes : 0;
    return group_bytes < machine_bytes ? group_bytes : machine_bytes;
}

uint64_t mf_memory_available_bytes(void)
{
    return mf_memory_available_of(proc_entry("/proc/meminfo", "MemAvailable"),
                                  mf_cgroup_memory_room_bytes(MF_CGROUP_SELF, MF_CGROUP_MOUNT));
}
