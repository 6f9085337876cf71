/* SPDX-License-Identifier: MIT */
/* Nodes of /sys, policies of memory, affinity. */
#include "base/numa.h"

#include "base/cgroup.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Bits of a set of nodes: no kernel has more of them. */
#define MAX_IDS 1024u
#define LIST_CHARS 16384
#define WORD_BITS (8 * sizeof(unsigned long))

/* ------------------------------------------------------------------------- what there is -- */

/* A number of at most 9 digits. */
static bool take_number(const char **text, uint32_t *out)
{
    uint32_t value = 0, n = 0;
    for (; **text >= '0' && **text <= '9' && n < 9; ++*text, n++)
        value = value * 10 + (uint32_t)(**text - '0');
    *out = value;
    return n > 0;
}

bool mf_numa_parse_list(const char *text, uint64_t *set, uint32_t n)
{
    memset(set, 0, n / 8);
    bool is_first = true;
    while (*text != '\0' && *text != '\n') {
        uint32_t from, to;
        if (!is_first && *text++ != ',')
            return false;
        is_first = false;
        if (!take_number(&text, &from))
            return false;
        to = from;
        if (*text == '-' && (text++, !take_number(&text, &to) || to < from))
            return false;
        for (uint32_t i = from; i <= to && i < n; i++)
            set[i / 64] |= (uint64_t)1 << i % 64;
    }
    return text[0] == '\0' || text[1] == '\0';
}

static bool has(const uint64_t *set, uint32_t i)
{
    return (set[i / 64] >> i % 64 & 1) != 0;
}

static bool read_list(const char *path, uint64_t *set, uint32_t n)
{
    char text[LIST_CHARS];
    return mf_read_small_file(path, text, sizeof text) && mf_numa_parse_list(text, set, n);
}

static bool read_file_list(const char *folder, const char *name, uint64_t *set, uint32_t n)
{
    char path[512];
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length > 0 && (size_t)length < sizeof path && read_list(path, set, n);
}

/* Those whose memory the process may use. */
static bool read_allowed(const char *status, uint64_t *set)
{
    static const char key[] = "\nMems_allowed_list:";
    char text[LIST_CHARS];
    if (!mf_read_small_file(status, text, sizeof text))
        return false;
    char *line = strstr(text, key);
    if (line == NULL)
        return false;
    line += strlen(key);
    line += strspn(line, " \t");
    line[strcspn(line, "\n")] = '\0';
    return mf_numa_parse_list(line, set, MAX_IDS);
}

/* The node's CPUs that are in the set; false if they are not known. */
static bool read_node(const char *folder, uint32_t id, const uint64_t *cpus, mf_numa_node *out)
{
    char name[32];
    (void)snprintf(name, sizeof name, "node%u/cpulist", id);
    *out = (mf_numa_node){.id = id};
    if (!read_file_list(folder, name, out->cpus, MF_NUMA_MAX_CPUS))
        return false;
    for (uint32_t i = 0; i < MF_NUMA_MAX_CPUS / 64; i++) {
        out->cpus[i] &= cpus[i];
        out->n_cpus += (uint32_t)__builtin_popcountll(out->cpus[i]);
    }
    return true;
}

uint32_t mf_numa_read(const char *folder, const char *status, const uint64_t *cpus,
                      mf_numa_nodes *out)
{
    uint64_t with_memory[MAX_IDS / 64], allowed[MAX_IDS / 64];
    uint32_t n = 0, n_cpus = 0, n_covered = 0;
    out->n = 0;
    if (!read_file_list(folder, "has_memory", with_memory, MAX_IDS) ||
        !read_allowed(status, allowed))
        return 1;
    for (uint32_t i = 0; i < MF_NUMA_MAX_CPUS / 64; i++)
        n_cpus += (uint32_t)__builtin_popcountll(cpus[i]);
    for (uint32_t id = 0; id < MAX_IDS; id++) {
        mf_numa_node node;
        if (!has(with_memory, id) || !has(allowed, id))
            continue;
        if (!read_node(folder, id, cpus, &node))
            return 1;
        if (node.n_cpus == 0)
            continue;
        if (n < MF_NUMA_MAX_NODES)
            out->node[n] = node;
        n_covered += node.n_cpus;
        n++;
    }
    /* CPUs without memory of their own would be left idle */
    out->n = n > 1 && n <= MF_NUMA_MAX_NODES && n_covered == n_cpus ? n : 0;
    return n == 0 ? 1 : n;
}

/* Whoever started the process has said where its memory goes, or may not be asked. */
static mf_numa_use use_of_policy(void)
{
    int mode = MPOL_DEFAULT;
    if (syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0) != 0)
        return MF_NUMA_FORBIDDEN;
    return mode == MPOL_DEFAULT ? MF_NUMA_USED : MF_NUMA_GIVEN;
}

uint32_t mf_numa_find(mf_numa_nodes *out, mf_numa_use *use)
{
    uint64_t cpus[MF_NUMA_MAX_CPUS / 64] = {0};
    out->n = 0;
    *use = MF_NUMA_ONE_NODE;
    if (sched_getaffinity(0, sizeof cpus, (cpu_set_t *)(void *)cpus) != 0)
        return 1;
    const uint32_t n = mf_numa_read(MF_NUMA_FOLDER, MF_NUMA_STATUS, cpus, out);
    if (n < 2)
        return 1;
    *use = out->n == 0 ? MF_NUMA_UNEVEN : use_of_policy();
    if (*use != MF_NUMA_USED)
        out->n = 0;
    return n;
}

/* ------------------------------------------------------------------------- where it goes -- */

typedef struct node_mask {
    unsigned long words[MAX_IDS / WORD_BITS];
} node_mask;

static void add_node(node_mask *mask, const mf_numa_node *node)
{
    mask->words[node->id / WORD_BITS] |= 1ul << node->id % WORD_BITS;
}

/* Whole pages; of pages that are there already nothing changes. */
static bool set_policy(void *base, size_t n_bytes, int mode, const node_mask *mask)
{
    return syscall(SYS_mbind, base, n_bytes, mode, mask->words, MAX_IDS + 1, 0) == 0;
}

bool mf_numa_interleave(const mf_numa_nodes *nodes, void *base, size_t n_bytes)
{
    node_mask mask = {{0}};
    for (uint32_t i = 0; i < nodes->n; i++)
        add_node(&mask, &nodes->node[i]);
    return set_policy(base, n_bytes, MPOL_INTERLEAVE, &mask);
}

/* The unit's boundary that is nearest. */
static uint64_t nearest_unit(uint64_t at)
{
    return (at + MF_NUMA_UNIT / 2) / MF_NUMA_UNIT * MF_NUMA_UNIT;
}

bool mf_numa_share(const mf_numa_nodes *nodes, unsigned char *base, uint64_t at, uint64_t n_bytes)
{
    bool is_done = true;
    for (uint32_t i = 0; i < nodes->n; i++) {
        const uint64_t from = nearest_unit(at + n_bytes / nodes->n * i);
        const uint64_t to =
            nearest_unit(i + 1 == nodes->n ? at + n_bytes : at + n_bytes / nodes->n * (i + 1));
        node_mask mask = {{0}};
        add_node(&mask, &nodes->node[i]);
        if (from < to) /* preferred: a node that is full is no failure */
            is_done = set_policy(base + from, to - from, MPOL_PREFERRED, &mask) && is_done;
    }
    return is_done;
}

static uint8_t index_of(const mf_numa_nodes *nodes, int id)
{
    uint32_t i = 0;
    while (i < nodes->n && (id < 0 || nodes->node[i].id != (uint32_t)id))
        i++;
    return (uint8_t)i;
}

void mf_numa_locate(const mf_numa_nodes *nodes, const void *base, size_t apart, uint32_t n,
                    uint8_t *out)
{
    enum { AT_ONCE = 256 };
    for (uint32_t first = 0; first < n; first += AT_ONCE) {
        const uint32_t n_now = n - first < AT_ONCE ? n - first : AT_ONCE;
        const void *pages[AT_ONCE];
        int ids[AT_ONCE];
        for (uint32_t i = 0; i < n_now; i++) {
            pages[i] = base ? (const unsigned char *)base + apart * (first + i) : NULL;
            ids[i] = -1;
        }
        /* without nodes to move to it only tells */
        (void)syscall(SYS_move_pages, 0, (unsigned long)n_now, pages, NULL, ids, 0);
        for (uint32_t i = 0; i < n_now; i++)
            out[first + i] = index_of(nodes, ids[i]);
    }
}

bool mf_numa_stay(const mf_numa_node *node)
{
    return sched_setaffinity(0, sizeof node->cpus, (const cpu_set_t *)(const void *)node->cpus) ==
           0;
}

uint32_t mf_numa_here(const mf_numa_nodes *nodes)
{
    unsigned cpu, id;
    if (getcpu(&cpu, &id) != 0)
        return 0;
    const uint8_t i = index_of(nodes, (int)id);
    return i < nodes->n ? i : 0;
}
