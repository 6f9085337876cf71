/* SPDX-License-Identifier: MIT */
/* Walking the double array. Whatever its units say, no step leaves it, and no walk is long. */
#include "text/charsmap.h"

#include "text/utf8.h"

#include <string.h>

#define HEAD_BYTES ((size_t)4)
/* Of what is replaced, and of what replaces it; published maps have some 40 bytes at most. Without
 * a limit a text could take its length times the file's. */
#define MAX_UNIT_BYTES ((size_t)1024)

static uint32_t read_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static bool are_short(const unsigned char *texts, size_t n_bytes)
{
    for (size_t at = 0; at < n_bytes;) {
        const size_t n = strlen((const char *)texts + at); /* the last byte is zero */
        if (n > MAX_UNIT_BYTES)
            return false;
        at += n + 1;
    }
    return true;
}

mf_status mf_charsmap_load(mf_charsmap *map, const mf_allocator *a, const char *where,
                           const void *data, size_t n_bytes, mf_error *error)
{
    const size_t n_trie = n_bytes >= HEAD_BYTES ? read_u32(data) : 0;
    if (n_bytes == 0)
        return MF_OK;
    if (n_trie == 0 || n_trie % 4 != 0 || n_trie >= n_bytes - HEAD_BYTES ||
        ((const unsigned char *)data)[n_bytes - 1] != 0)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: expected a trie's length, the "
                       "trie, and replacements that end with a zero byte",
                       where);
    const unsigned char *texts = (const unsigned char *)data + HEAD_BYTES + n_trie;
    if (!are_short(texts, n_bytes - HEAD_BYTES - n_trie))
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: expected replacements of at most "
                       "%zu bytes",
                       where, MAX_UNIT_BYTES);
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

/* Where the replacement is of the longest beginning, or the shortest; SIZE_MAX: nowhere. */
static size_t walk(const mf_charsmap *map, const unsigned char *text, size_t n_bytes,
                   bool is_shortest, size_t *n_used)
{
    uint32_t unit, leaf;
    size_t value = SIZE_MAX;
    if (!unit_at(map, 0, &unit))
        return value;
    size_t node = offset_of(unit);
    for (size_t i = 0; i < n_bytes && i < MAX_UNIT_BYTES && !(is_shortest && value != SIZE_MAX);
         i++) {
        node ^= text[i];
        if (!unit_at(map, node, &unit) || (unit & (1u << 31 | 0xFF)) != text[i])
            break;
        node ^= offset_of(unit);
        if ((unit >> 8 & 1) != 0 && unit_at(map, node, &leaf)) {
            value = leaf & 0x7FFFFFFF;
            *n_used = i + 1;
        }
    }
    return value;
}

static const unsigned char *find(const mf_charsmap *map, const unsigned char *text, size_t n_bytes,
                                 bool is_shortest, size_t *n_used, size_t *n_out)
{
    *n_used = *n_out = 0;
    const size_t value = walk(map, text, n_bytes, is_shortest, n_used);
    if (value == SIZE_MAX)
        return NULL;
    const unsigned char *texts = map->data + HEAD_BYTES + 4 * map->n_units;
    const size_t n_texts = map->n_bytes - HEAD_BYTES - 4 * map->n_units;
    if (value >= n_texts) {
        *n_used = 0;
        return NULL;
    }
    *n_out = strlen((const char *)texts + value); /* the last byte is zero */
    if (mf_utf8_is_valid(texts + value, *n_out))
        return texts + value;
    *n_used = 0;
    return NULL;
}

const unsigned char *mf_charsmap_find(const mf_charsmap *map, const unsigned char *text,
                                      size_t n_bytes, size_t *n_used, size_t *n_out)
{
    return find(map, text, n_bytes, false, n_used, n_out);
}

const unsigned char *mf_charsmap_find_shortest(const mf_charsmap *map, const unsigned char *text,
                                               size_t n_bytes, size_t *n_used, size_t *n_out)
{
    return find(map, text, n_bytes, true, n_used, n_out);
}
