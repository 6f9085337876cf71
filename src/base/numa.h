/* SPDX-License-Identifier: MIT */
/*
 * Nodes: memory that is near to some CPUs and far from the others (NUMA). Which of them this
 * process may use, by the system's own files, and where its bytes and threads go, by the system's
 * own calls. A machine of one node, and one that is left as it is, have no nodes here. What the
 * system refuses is not done: only speed depends on it. Nothing is allocated.
 */
#ifndef MF_BASE_NUMA_H
#define MF_BASE_NUMA_H

#include <moeflux/devices.h>

#include <stdbool.h>

/* Of more nodes, or CPUs of larger numbers, nothing is made use of. */
#define MF_NUMA_MAX_NODES 16u
#define MF_NUMA_MAX_CPUS 8192u
/* What is placed on different nodes is cut at multiples of this address: huge pages stay whole. */
#define MF_NUMA_UNIT ((size_t)2 << 20)

#define MF_NUMA_FOLDER "/sys/devices/system/node"
#define MF_NUMA_STATUS "/proc/self/status"

typedef struct mf_numa_node {
    uint32_t id; /* the system's */
    uint32_t n_cpus;
    uint64_t cpus[MF_NUMA_MAX_CPUS / 64]; /* those that the process may use */
} mf_numa_node;

/* In rising order of ids; none, or two at least. */
typedef struct mf_numa_nodes {
    uint32_t n;
    mf_numa_node node[MF_NUMA_MAX_NODES];
} mf_numa_nodes;

/* The numbers of a list such as "0-3,8", one bit each in set[n / 64]; those from n on are left
 * out. False where it is no such list; an empty one is. The text may end with a newline. */
bool mf_numa_parse_list(const char *text, uint64_t *set, uint32_t n);

/* Nodes that have memory which a process whose /proc/PID/status is `status` may use, and CPUs of
 * the set cpus[MF_NUMA_MAX_CPUS / 64], which is its affinity mask. Returns how many there are; *out
 * has them if they are two or more and every CPU of the set belongs to one, else none. */
uint32_t mf_numa_read(const char *folder, const char *status, const uint64_t *cpus,
                      mf_numa_nodes *out);

/* The same of this process, which is told what to make of them in *use: *out has nodes only for
 * MF_NUMA_USED. */
uint32_t mf_numa_find(mf_numa_nodes *out, mf_numa_use *use);

/* Pages of these bytes come from the nodes in turn. False: the system refuses. */
bool mf_numa_interleave(const mf_numa_nodes *nodes, void *base, size_t n_bytes);
/* The index of the node that a huge page of such bytes comes from, unless that one is full; small
 * pages come from all. */
static inline uint32_t mf_numa_turn(uint32_t n_nodes, const void *at)
{
    return n_nodes < 2 ? 0 : (uint32_t)((uintptr_t)at / MF_NUMA_UNIT % n_nodes);
}
/* The rows of a matrix, n_bytes from base + at on, where base is a multiple of MF_NUMA_UNIT: an
 * even share of them for each node in turn, which begins and ends at the nearest multiple of it.
 * False: the system refuses. */
bool mf_numa_share(const mf_numa_nodes *nodes, unsigned char *base, uint64_t at, uint64_t n_bytes);
/* Where pages are that lie `apart` bytes from each other from base on: out[i] is the index of the
 * node, or nodes->n: of none, or not known. */
void mf_numa_locate(const mf_numa_nodes *nodes, const void *base, size_t apart, uint32_t n,
                    uint8_t *out);

/* The calling thread runs on CPUs of this node alone. False: the system refuses. */
bool mf_numa_stay(const mf_numa_node *node);
/* The index of the node that the calling thread runs on now; 0 if it is none of them. */
uint32_t mf_numa_here(const mf_numa_nodes *nodes);

#endif
