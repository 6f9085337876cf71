/* SPDX-License-Identifier: MIT */
#include "nodes.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t add(mf_cli_node *list, size_t n, size_t capacity, uint32_t id, uint64_t n_bytes)
{
    size_t at = 0;
    while (at < n && list[at].id < id)
        at++;
    if (at == n || list[at].id != id) {
        if (n == capacity)
            return n;
        memmove(&list[at + 1], &list[at], (n - at) * sizeof *list);
        list[at] = (mf_cli_node){.id = id};
        n++;
    }
    list[at].n_bytes += n_bytes;
    return n;
}

/* A mapping's words " N0=12" count pages of the size that its last word says. */
static size_t add_mapping(const char *line, mf_cli_node *list, size_t n, size_t capacity)
{
    const char *size = strstr(line, " kernelpagesize_kB=");
    const uint64_t page = size ? 1024 * strtoull(strchr(size, '=') + 1, NULL, 10) : 0;
    for (const char *word = line; (word = strstr(word, " N")) != NULL;) {
        char *end;
        word += 2;
        const unsigned long id = strtoul(word, &end, 10);
        if (end != word && *end == '=')
            n = add(list, n, capacity, (uint32_t)id, page * strtoull(end + 1, NULL, 10));
    }
    return n;
}

size_t mf_cli_read_nodes(const char *path, mf_cli_node *out, size_t capacity)
{
    char *line = NULL;
    size_t room = 0, n = 0;
    FILE *file = fopen(path, "re");
    while (file && getline(&line, &room, file) > 0)
        n = add_mapping(line, out, n, capacity);
    free(line);
    if (file)
        fclose(file);
    return n;
}

size_t mf_cli_count_nodes(const char *folder)
{
    size_t n = 0;
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir && (e = readdir(dir)) != NULL;)
        n += strncmp(e->d_name, "node", 4) == 0 && isdigit((unsigned char)e->d_name[4]);
    if (dir)
        closedir(dir);
    return n;
}
