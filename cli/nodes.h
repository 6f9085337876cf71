/* SPDX-License-Identifier: MIT */
/* On which nodes (NUMA) a process's memory lies. */
#ifndef MF_CLI_NODES_H
#define MF_CLI_NODES_H

#include <stddef.h>
#include <stdint.h>

#define MF_CLI_NODE_MAPS "/proc/self/numa_maps"

typedef struct mf_cli_node {
    uint32_t id;
    uint64_t n_bytes;
} mf_cli_node;

/* Bytes by node, in rising order of ids, of a file as /proc/PID/numa_maps is; returns how many
 * nodes have some, at most capacity. 0: there is no such file. */
size_t mf_cli_read_nodes(const char *path, mf_cli_node *out, size_t capacity);

/* How many nodes the machine has, by folder (the system's is MF_CLI_NODE_FOLDER); 0: it does not
 * say. */
#define MF_CLI_NODE_FOLDER "/sys/devices/system/node"
size_t mf_cli_count_nodes(const char *folder);

#endif
