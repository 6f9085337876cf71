/* SPDX-License-Identifier: MIT */
/* How far a GGUF file's header reaches, by its beginning. What is wrong with one is the engine's to
 * say: here it is only told from one that goes on. */
#include "hub_model.h"

#include <string.h>

enum { STRING = 8, ARRAY = 9, N_TYPES = 13, MAX_DIMS = 4, MAX_NAME_BYTES = 65535 };

typedef struct walk {
    const unsigned char *bytes;
    uint64_t n_bytes, at;
    bool goes_on; /* past the bytes that are there */
    bool is_bad;  /* no further bytes make a header of it */
} walk;

static void skip(walk *w, uint64_t n_bytes)
{
    w->goes_on = w->goes_on || n_bytes > w->n_bytes - w->at;
    if (!w->goes_on)
        w->at += n_bytes;
}

static uint64_t take(walk *w, uint32_t n_bytes)
{
    const unsigned char *from = w->bytes + w->at;
    uint64_t number = 0;
    skip(w, n_bytes);
    for (uint32_t i = n_bytes; i-- > 0 && !w->goes_on;)
        number = number << 8 | from[i];
    return number;
}

static bool is_walking(const walk *w)
{
    return !w->goes_on && !w->is_bad;
}

static void skip_name(walk *w)
{
    const uint64_t n_bytes = take(w, 8);
    w->is_bad = w->is_bad || n_bytes > MAX_NAME_BYTES;
    skip(w, n_bytes);
}

static void skip_value(walk *w)
{
    static const uint8_t type_bytes[N_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    skip_name(w);
    uint64_t type = take(w, 4), n = 1;
    if (type == ARRAY) {
        type = take(w, 4);
        n = take(w, 8);
        w->is_bad = w->is_bad || type == ARRAY;
    }
    w->is_bad = w->is_bad || type >= N_TYPES || n > UINT64_MAX / 8;
    for (uint64_t i = 0; type == STRING && i < n && is_walking(w); i++)
        skip(w, take(w, 8));
    if (is_walking(w) && type != STRING)
        skip(w, n * type_bytes[type]);
}

static void skip_tensor(walk *w)
{
    skip_name(w);
    const uint64_t n_dims = take(w, 4);
    w->is_bad = w->is_bad || n_dims > MAX_DIMS;
    if (is_walking(w))
        skip(w, n_dims * 8 + 4 + 8); /* a type and an offset */
}

bool mf_hub_gguf_goes_on(const void *bytes, size_t n_bytes)
{
    walk w = {.bytes = bytes, .n_bytes = n_bytes};
    skip(&w, 8);
    const uint64_t n_tensors = take(&w, 8), n_values = take(&w, 8);
    w.is_bad = !w.goes_on && memcmp(bytes, "GGUF", 4) != 0;
    for (uint64_t i = 0; i < n_values && is_walking(&w); i++)
        skip_value(&w);
    for (uint64_t i = 0; i < n_tensors && is_walking(&w); i++)
        skip_tensor(&w);
    return w.goes_on && !w.is_bad;
}
