/* SPDX-License-Identifier: MIT */
/* Drivers stay loaded once they are: NVIDIA's takes thread-local storage each time that it is
 * loaded, which the process does not get back, and can be loaded some fifteen times. */
#include "backend/vulkan/vk_api.h"

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>

static int note(struct dl_phdr_info *info, size_t size, void *ctx)
{
    mf_vk_libraries *known = ctx;
    (void)size;
    if (known->n == MF_VK_MAX_LIBRARIES)
        return 1;
    known->bases[known->n++] = info->dlpi_addr;
    return 0;
}

void mf_vk_libraries_note(mf_vk_libraries *known)
{
    known->n = 0;
    (void)dl_iterate_phdr(note, known);
}

typedef struct search {
    const mf_vk_libraries *known;
    uint32_t at, wanted; /* among the new ones */
    char name[1024];
} search;

static bool is_known(const mf_vk_libraries *known, uint64_t base)
{
    for (uint32_t i = 0; i < known->n; i++)
        if (known->bases[i] == base)
            return true;
    return false;
}

static int find(struct dl_phdr_info *info, size_t size, void *ctx)
{
    search *s = ctx;
    (void)size;
    if (is_known(s->known, info->dlpi_addr) || s->at++ != s->wanted)
        return 0;
    (void)snprintf(s->name, sizeof s->name, "%s", info->dlpi_name);
    return 1;
}

void mf_vk_libraries_pin_new(const mf_vk_libraries *known)
{
    if (known->n == MF_VK_MAX_LIBRARIES)
        return;
    for (uint32_t i = 0; i < MF_VK_MAX_LIBRARIES; i++) {
        search s = {.known = known, .wanted = i};
        /* no loading while the list is walked */
        if (dl_iterate_phdr(find, &s) == 0)
            return;
        void *library =
            s.name[0] == '\0' ? NULL : dlopen(s.name, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
        if (library != NULL)
            (void)dlclose(library);
    }
}
