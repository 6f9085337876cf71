/* SPDX-License-Identifier: MIT */
/* Walking the double array. Whatever its units say, no step leaves it. */
#include "text/charsmap.h"

#include "text/utf8.h"

#include <string.h>

#define HEAD_BYTES ((size_t)4)

static uint32_t read_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

mf_status mf_charsmap_load(mf_charsmap *map, const mf_allocator *a, const char *path,
                           const void *data, size_t n_bytes, mf_error *error)
{
    const size_t n_trie = n_bytes >= HEAD_BYTES ? read_u32(data) : 0;
    if (n_bytes == 0)
        return MF_OK;
    if (n_trie == 0 || n_trie % 4 != 0 || n_trie >= n_bytes - HEAD_BYTES ||
        ((const unsigned char *)data)[n_bytes - 1] != 0)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: normalizer_spec.precompiled_charsmap: expected a trie's length, the "
                       "trie, and replacements that end with a zero byte",
                       path);
    map->allocator = *a;
    map->data = mf_alloc(a, n_bytes);
    if (map->data == NULL)
        return mf_fail_memory(error, n_bytes, "a map of characters");
    memcpy(map->data, data, n_bytes);
    map->n_bytes = n_bytes;
    map->n_units = n_trie / 4;
    return MF_OK;
}

void mf_charsmap_free(mf_charsmap *map)
{
    if (map->data != NULL)
        mf_free(&map->allocator, map->data, map->n_bytes);
    *map = (mf_charsmap){0};
}

/* Of darts_unit.h: a unit has an offset to its children, the byte that leads to it, and whether a
 * child is a leaf, which has a value. */
static uint32_t offset_of(uint32_t unit)
{
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}

static bool unit_at(const mf_charsmap *map, size_t i, uint32_t *out)
{
    if (i >= map->n_units)
        return false;
    *out = read_u32(map->data + HEAD_BYTES + 4 * i);
    return true;
}

const unsigned char *mf_charsmap_find(const mf_charsmap *map, const unsigned char *text,
                                      size_t n_bytes, size_t *n_used, size_t *n_out)
{
    uint32_t unit, leaf;
    size_t value = SIZE_MAX;
    *n_used = *n_out = 0;
    if (!unit_at(map, 0, &unit))
        return NULL;
    size_t node = offset_of(unit);
    for (size_t i = 0; i < n_bytes; i++) {
        node ^= text[i];
        if (!unit_at(map, node, &unit) || (unit & (1u << 31 | 0xFF)) != text[i])
            break;
        node ^= offset_of(unit);
        if ((unit >> 8 & 1) != 0 && unit_at(map, node, &leaf)) {
            value = leaf & 0x7FFFFFFF;
            *n_used = i + 1;
        }
    }
    const unsigned char *texts = map->data + HEAD_BYTES + 4 * map->n_units;
    const size_t n_texts = map->n_bytes - HEAD_BYTES - 4 * map->n_units;
    if (*n_used == 0 || value >= n_texts) {
        *n_used = 0;
        return NULL;
    }
    *n_out = strlen((const char *)texts + value); /* the last byte is zero */
    if (mf_utf8_is_valid(texts + value, *n_out))
        return texts + value;
    *n_used = 0;
    return NULL;
}
