/* SPDX-License-Identifier: MIT */
/* Walks the cgroup path of this process to its root and takes the smallest limit. A container often
 * shows a path of the host that does not exist in its own mount: the mount's root is then the
 * container's group, which the walk ends with in any case. */
#include "base/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 1024
#define TEXT_BYTES 8192

/* A v1 "no limit" is the largest page multiple of an int64; anything this large is none. */
#define NO_LIMIT ((uint64_t)1 << 60)

typedef struct hierarchy {
    const char *controller; /* of v1; NULL: the unified hierarchy */
    const char *directory;  /* below the mount */
} hierarchy;

bool mf_read_small_file(const char *path, char *text, size_t capacity)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    size_t used = 0;
    bool whole = false;
    while (used < capacity) {
        ssize_t n = read(fd, text + used, capacity - used);
        if (n < 0 && errno == EINTR)
            continue;
        whole = n == 0;
        if (n <= 0)
            break;
        used += (size_t)n;
    }
    close(fd);
    if (!whole)
        return false;
    text[used] = '\0';
    return true;
}

uint64_t mf_entry_of(const char *text, const char *key, char behind)
{
    const size_t n = strlen(key);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) == 0 && line[n] == behind)
            return strtoull(line + n + 1, NULL, 10);
    }
    return 0;
}

static bool read_value(const char *directory, const char *name, char *text, size_t capacity)
{
    char path[PATH_BYTES + 64];
    int n = snprintf(path, sizeof path, "%s/%s", directory, name);
    return n > 0 && (size_t)n < sizeof path && mf_read_small_file(path, text, capacity);
}

/* A decimal number; false for "max", negative numbers and an absent file. */
static bool read_number(const char *directory, const char *name, uint64_t *out)
{
    char text[128];
    if (!read_value(directory, name, text, sizeof text) || text[0] < '0' || text[0] > '9')
        return false;
    *out = strtoull(text, NULL, 10);
    return true;
}

/* Pages of files can be dropped; of those in active use half, as the kernel's own MemAvailable. */
static uint64_t reclaimable_bytes(const char *directory, bool unified)
{
    char text[TEXT_BYTES];
    if (!read_value(directory, "memory.stat", text, sizeof text))
        return 0;
    const char *inactive = unified ? "inactive_file" : "total_inactive_file";
    const char *active = unified ? "active_file" : "total_active_file";
    return mf_entry_of(text, inactive, ' ') + mf_entry_of(text, active, ' ') / 2;
}

/* UINT64_MAX: none. Beyond memory.high a group is not killed, but slowed down until it has given
 * memory back: as good as a limit. */
static uint64_t memory_limit(const char *directory, bool unified)
{
    static const char *const names[] = {"memory.limit_in_bytes", "memory.max", "memory.high"};
    uint64_t least = UINT64_MAX, limit;
    for (int i = unified ? 1 : 0; i < (unified ? 3 : 1); i++)
        if (read_number(directory, names[i], &limit) && limit < NO_LIMIT && limit < least)
            least = limit;
    return least;
}

static uint64_t memory_room(const char *directory, bool unified)
{
    uint64_t used, limit = memory_limit(directory, unified);
    const char *used_name = unified ? "memory.current" : "memory.usage_in_bytes";
    if (limit == UINT64_MAX)
        return UINT64_MAX;
    if (!read_number(directory, used_name, &used))
        return limit;
    uint64_t reclaimable = reclaimable_bytes(directory, unified);
    used -= reclaimable < used ? reclaimable : used;
    return used < limit ? limit - used : 0;
}

static uint64_t cpu_limit(const char *directory, bool unified)
{
    uint64_t quota, period = 0;
    if (unified) {
        char text[128], *end;
        if (!read_value(directory, "cpu.max", text, sizeof text) || text[0] < '0' || text[0] > '9')
            return UINT64_MAX;
        quota = strtoull(text, &end, 10);
        period = strtoull(end, NULL, 10);
    } else if (!read_number(directory, "cpu.cfs_quota_us", &quota) ||
               !read_number(directory, "cpu.cfs_period_us", &period)) {
        return UINT64_MAX;
    }
    if (period == 0)
        return UINT64_MAX;
    uint64_t n = quota / period + (quota % period != 0);
    return n == 0 ? 1 : n;
}

/* True if the comma-separated list[0..n) holds the word. */
static bool list_has(const char *list, size_t n, const char *word)
{
    size_t n_word = strlen(word);
    for (size_t at = 0; at < n;) {
        const char *comma = memchr(list + at, ',', n - at);
        size_t end = comma != NULL ? (size_t)(comma - list) : n;
        if (end - at == n_word && memcmp(list + at, word, n_word) == 0)
            return true;
        at = end + 1;
    }
    return false;
}

/* The process's path in one hierarchy, from lines "ID:CONTROLLERS:PATH". */
static bool find_group(const char *lines, const char *controller, char *group, size_t capacity)
{
    for (const char *line = lines; *line != '\0';) {
        size_t n_line = strcspn(line, "\n");
        const char *list = memchr(line, ':', n_line);
        const char *path =
            list != NULL ? memchr(list + 1, ':', n_line - (size_t)(list + 1 - line)) : NULL;
        if (path != NULL) {
            size_t n_list = (size_t)(path - list) - 1;
            size_t n_path = n_line - (size_t)(path + 1 - line);
            bool match = controller == NULL ? n_list == 0 : list_has(list + 1, n_list, controller);
            if (match && n_path < capacity) {
                memcpy(group, path + 1, n_path);
                group[n_path] = '\0';
                return true;
            }
        }
        line += n_line + (line[n_line] == '\n');
    }
    return false;
}

/* The least of `limit` over the group and its ancestors in one hierarchy. */
static uint64_t walk(const char *lines, const char *mount, hierarchy h,
                     uint64_t (*limit)(const char *directory, bool unified))
{
    char group[PATH_BYTES / 2], directory[PATH_BYTES];
    if (!find_group(lines, h.controller, group, sizeof group))
        return UINT64_MAX;
    uint64_t least = UINT64_MAX;
    for (;;) {
        int n = snprintf(directory, sizeof directory, "%s%s%s", mount, h.directory, group);
        if (n > 0 && (size_t)n < sizeof directory) {
            uint64_t here = limit(directory, h.controller == NULL);
            least = here < least ? here : least;
        }
        char *slash = strrchr(group, '/');
        if (slash == NULL)
            return least;
        *slash = '\0';
    }
}

static uint64_t least_limit(const char *self, const char *mount, const char *controller,
                            uint64_t (*limit)(const char *directory, bool unified))
{
    char lines[TEXT_BYTES], v1_directory[64];
    if (!mf_read_small_file(self, lines, sizeof lines))
        return UINT64_MAX;
    snprintf(v1_directory, sizeof v1_directory, "/%s", controller);
    const hierarchy all[] = {{controller, v1_directory}, {NULL, ""}, {NULL, "/unified"}};
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        uint64_t here = walk(lines, mount, all[i], limit);
        least = here < least ? here : least;
    }
    return least;
}

uint64_t mf_cgroup_memory_room_bytes(const char *self, const char *mount)
{
    return least_limit(self, mount, "memory", memory_room);
}

uint64_t mf_cgroup_memory_limit_bytes(const char *self, const char *mount)
{
    return least_limit(self, mount, "memory", memory_limit);
}

/* The total of the line "some"; UINT64_MAX without one. */
static uint64_t stalled_us(const char *path)
{
    char text[512];
    if (!mf_read_small_file(path, text, sizeof text) || strncmp(text, "some ", 5) != 0)
        return UINT64_MAX;
    const char *total = strstr(text, "total=");
    return total != NULL ? strtoull(total + 6, NULL, 10) : UINT64_MAX;
}

uint64_t mf_cgroup_memory_stalled_us(const char *self, const char *mount)
{
    static const char *const mounts[] = {"", "/unified"};
    char lines[TEXT_BYTES], group[PATH_BYTES / 2], path[PATH_BYTES + 64];
    uint64_t us = UINT64_MAX;
    if (mf_read_small_file(self, lines, sizeof lines) &&
        find_group(lines, NULL, group, sizeof group))
        for (size_t i = 0; i < 2 && us == UINT64_MAX; i++) {
            const int n =
                snprintf(path, sizeof path, "%s%s%s/memory.pressure", mount, mounts[i], group);
            us = n > 0 && (size_t)n < sizeof path ? stalled_us(path) : UINT64_MAX;
        }
    us = us == UINT64_MAX ? stalled_us("/proc/pressure/memory") : us;
    return us == UINT64_MAX ? 0 : us;
}

uint32_t mf_cgroup_cpu_limit(const char *self, const char *mount)
{
    uint64_t n = least_limit(self, mount, "cpu", cpu_limit);
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}
