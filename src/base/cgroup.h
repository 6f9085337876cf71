/* SPDX-License-Identifier: MIT */
/*
 * What the control groups (v1 and v2) that hold this process allow it. A limit on any ancestor
 * binds too, so the smallest along the path counts. Nothing is allocated.
 */
#ifndef MF_BASE_CGROUP_H
#define MF_BASE_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MF_CGROUP_SELF "/proc/self/cgroup"
#define MF_CGROUP_MOUNT "/sys/fs/cgroup"

/* Bytes that may still be taken before a memory limit is met, page cache counted as free;
 * UINT64_MAX without a limit. The arguments are the two paths above; tests give others. */
uint64_t mf_cgroup_memory_room_bytes(const char *self, const char *mount);

/* The least of those limits; UINT64_MAX without one. */
uint64_t mf_cgroup_memory_limit_bytes(const char *self, const char *mount);

/* Microseconds in which some task of this process's group (v2), or where that does not say, of the
 * machine, waited for memory, ever; 0 where nobody counts. */
uint64_t mf_cgroup_memory_stalled_us(const char *self, const char *mount);

/* CPUs that the smallest CPU quota pays for, rounded up; UINT32_MAX without a quota. */
uint32_t mf_cgroup_cpu_limit(const char *self, const char *mount);

/* Reads a small file whole into text[capacity] and terminates it; false if it cannot be read or
 * does not fit. For the files of /proc and /sys. */
bool mf_read_small_file(const char *path, char *text, size_t capacity);
/* The number on the line of such a file that begins with the key and the character behind it; 0 if
 * there is none. */
uint64_t mf_entry_of(const char *text, const char *key, char behind);

#endif
