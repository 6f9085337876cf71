/* SPDX-License-Identifier: MIT */
/* Reading the head of a GGUF file. Everything is checked where it is met: what is kept afterwards
 * lies within mf_gguf.bytes. */
#include "format/gguf.h"

#include "base/checked.h"
#include "base/files.h"
#include "base/little_endian.h"
#include "format/checkpoint_mistakes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_READ ((size_t)1 << 16)
#define MAX_KEY_BYTES 65535u
/* The least that a tensor's descriptor and a pair of key and value take. */
#define LEAST_TENSOR_BYTES 25u
#define LEAST_PAIR_BYTES 14u
#define KEPT_BYTES 4096u

/* A head being read. */
typedef struct gguf_reader {
    mf_gguf *g;
    int fd; /* -1: all that there is, is in memory */
    size_t at;
    mf_error *error;
} gguf_reader;

static const uint8_t type_bytes[MF_GGUF_TYPES] = {
    [MF_GGUF_U8] = 1,  [MF_GGUF_I8] = 1,  [MF_GGUF_U16] = 2, [MF_GGUF_I16] = 2,
    [MF_GGUF_U32] = 4, [MF_GGUF_I32] = 4, [MF_GGUF_F32] = 4, [MF_GGUF_BOOL] = 1,
    [MF_GGUF_U64] = 8, [MF_GGUF_I64] = 8, [MF_GGUF_F64] = 8,
};

static mf_status bad(const gguf_reader *r, const char *what)
{
    return mf_fail_at(r->error, MF_ERR_FORMAT, r->at, "%s: at byte %zu: %s", r->g->path, r->at,
                      what);
}

/* ----------------------------------------------------------------------------------- reading -- */

static mf_status grow_bytes(mf_gguf *g, size_t wanted, mf_error *error)
{
    size_t capacity = g->capacity * 2 > wanted ? g->capacity * 2 : wanted;
    if (capacity > g->file_bytes)
        capacity = (size_t)g->file_bytes;
    capacity = capacity == 0 ? 1 : capacity;
    unsigned char *grown = mf_realloc(&g->allocator, g->bytes, g->capacity, capacity);
    if (grown == NULL)
        return mf_fail_memory(error, capacity, g->path);
    g->bytes = grown;
    g->capacity = capacity;
    return MF_OK;
}

/* Fills what there is room for. */
static mf_status read_more(gguf_reader *r)
{
    mf_gguf *g = r->g;
    const size_t n_asked = r->fd >= 0 ? g->capacity - g->n_bytes : 0;
    const size_t n_read = mf_read_whole(r->fd, g->bytes + g->n_bytes, n_asked, g->n_bytes);
    g->n_bytes += n_read;
    if (n_read < n_asked && errno != 0)
        return mf_fail_os(r->error, MF_ERR_IO, errno, "%s: read failed at byte %zu", g->path,
                          g->n_bytes);
    return MF_OK;
}

/* The next n bytes are there. */
static mf_status need(gguf_reader *r, uint64_t n, const char *what)
{
    mf_gguf *g = r->g;
    uint64_t end;
    if (!mf_add_u64(r->at, n, &end) || end > g->file_bytes || (r->fd < 0 && end > g->n_bytes)) {
        char text[96];
        snprintf(text, sizeof text, "the file ends within %s", what);
        return bad(r, text);
    }
    if (end > MF_GGUF_MAX_HEAD)
        return mf_fail_at(r->error, MF_ERR_UNSUPPORTED, r->at,
                          "%s: more than %llu bytes of metadata", g->path,
                          (unsigned long long)MF_GGUF_MAX_HEAD);
    if (end <= g->n_bytes)
        return MF_OK;
    if (end > g->capacity)
        MF_TRY(grow_bytes(g, (size_t)end, r->error));
    MF_TRY(read_more(r));
    return end <= g->n_bytes ? MF_OK : bad(r, "the file became shorter");
}

static mf_status take(gguf_reader *r, uint32_t n_bytes, const char *what, uint64_t *out)
{
    MF_TRY(need(r, n_bytes, what));
    *out = mf_get_le(r->g->bytes + r->at, n_bytes);
    r->at += n_bytes;
    return MF_OK;
}

/* A string of 1 to `most` bytes without a NUL. */
static mf_status take_name(gguf_reader *r, uint64_t most, const char *what, size_t *at, size_t *n)
{
    char text[96];
    uint64_t length;
    MF_TRY(take(r, 8, what, &length));
    if (length == 0 || length > most) {
        snprintf(text, sizeof text, "%s of %llu bytes, expected 1 to %llu", what,
                 (unsigned long long)length, (unsigned long long)most);
        return bad(r, text);
    }
    MF_TRY(need(r, length, what));
    if (memchr(r->g->bytes + r->at, 0, (size_t)length) != NULL) {
        snprintf(text, sizeof text, "a NUL in %s", what);
        return bad(r, text);
    }
    *at = r->at;
    *n = (size_t)length;
    r->at += (size_t)length;
    return MF_OK;
}

/* ---------------------------------------------------------------------------------- metadata -- */

static mf_status skip_strings(gguf_reader *r, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint64_t length;
        MF_TRY(take(r, 8, "the length of a string", &length));
        MF_TRY(need(r, length, "a string"));
        r->at += (size_t)length;
    }
    return MF_OK;
}

static mf_status take_type(gguf_reader *r, mf_gguf_type *out)
{
    uint64_t type;
    MF_TRY(take(r, 4, "the type of a value", &type));
    if (type >= MF_GGUF_TYPES)
        return bad(r, "a value of an unknown type");
    *out = (mf_gguf_type)type;
    return MF_OK;
}

static mf_status take_value(gguf_reader *r, mf_gguf_value *v)
{
    MF_TRY(take_name(r, MAX_KEY_BYTES, "a key", &v->key, &v->key_bytes));
    MF_TRY(take_type(r, &v->type));
    v->n = 1;
    v->is_array = v->type == MF_GGUF_ARRAY;
    if (v->is_array) {
        MF_TRY(take_type(r, &v->type));
        MF_TRY(take(r, 8, "the length of an array", &v->n));
        if (v->type == MF_GGUF_ARRAY)
            return bad(r, "an array of arrays, which is not supported");
    }
    v->at = r->at;
    if (v->type == MF_GGUF_STRING) {
        MF_TRY(skip_strings(r, v->n));
    } else {
        uint64_t n_bytes;
        if (!mf_mul_u64(v->n, type_bytes[v->type], &n_bytes))
            return bad(r, "the length of an array overflows");
        MF_TRY(need(r, n_bytes, "an array"));
        r->at += (size_t)n_bytes;
    }
    v->n_bytes = r->at - v->at;
    return MF_OK;
}

static int compare_keys(const mf_gguf *g, const mf_gguf_value *v, const char *key, size_t n)
{
    size_t shorter = v->key_bytes < n ? v->key_bytes : n;
    int order = memcmp(g->bytes + v->key, key, shorter);
    return order != 0 ? order : (v->key_bytes > n) - (v->key_bytes < n);
}

/* Heapsort: nothing to pass a context through in qsort. */
static void sift(mf_gguf *g, size_t root, size_t n)
{
    mf_gguf_value *v = g->values;
    for (size_t child; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && compare_keys(g, &v[child], (const char *)g->bytes + v[child + 1].key,
                                          v[child + 1].key_bytes) < 0)
            child++;
        if (compare_keys(g, &v[root], (const char *)g->bytes + v[child].key, v[child].key_bytes) >=
            0)
            return;
        const mf_gguf_value kept = v[root];
        v[root] = v[child];
        v[child] = kept;
    }
}

static mf_status sort_values(gguf_reader *r)
{
    mf_gguf *g = r->g;
    for (size_t i = g->n_values / 2; i-- > 0;)
        sift(g, i, g->n_values);
    for (size_t n = g->n_values; n > 1; n--) {
        const mf_gguf_value kept = g->values[0];
        g->values[0] = g->values[n - 1];
        g->values[n - 1] = kept;
        sift(g, 0, n - 1);
    }
    for (size_t i = 1; i < g->n_values; i++) {
        const mf_gguf_value *a = &g->values[i - 1];
        const char *key = (const char *)g->bytes + a->key;
        if (compare_keys(g, &g->values[i], key, a->key_bytes) == 0)
            return mf_fail(r->error, MF_ERR_FORMAT, "%s: key %.*s is given twice", g->path,
                           (int)(a->key_bytes > 128 ? 128 : a->key_bytes), key);
    }
    return MF_OK;
}

static mf_status take_values(gguf_reader *r, uint64_t n)
{
    mf_gguf *g = r->g;
    if (n > MF_GGUF_MAX_KEYS || n > g->file_bytes / LEAST_PAIR_BYTES)
        return bad(r, "more keys than the file can hold, or than 65536");
    g->values_capacity = (size_t)n;
    g->values = mf_alloc_array(&g->allocator, (size_t)n + 1, sizeof *g->values);
    if (g->values == NULL)
        return mf_fail_memory(r->error, (size_t)n * sizeof *g->values, g->path);
    for (; g->n_values < n; g->n_values++)
        MF_TRY(take_value(r, &g->values[g->n_values]));
    return sort_values(r);
}

/* ------------------------------------------------------------------------------- descriptors -- */

static mf_status bad_tensor(const gguf_reader *r, const mf_gguf_tensor *t, const char *what)
{
    return mf_fail_at(r->error, MF_ERR_FORMAT, r->at, "%s: at byte %zu: tensor %.*s has %s",
                      r->g->path, r->at, (int)t->name_bytes, (const char *)r->g->bytes + t->name,
                      what);
}

static mf_status take_tensor(gguf_reader *r, mf_gguf_tensor *t)
{
    uint64_t n_dims, type;
    MF_TRY(take_name(r, MF_GGUF_MAX_NAME, "a tensor's name", &t->name, &t->name_bytes));
    MF_TRY(take(r, 4, "a tensor's dimensions", &n_dims));
    if (n_dims == 0 || n_dims > MF_MAX_DIMS)
        return bad_tensor(r, t, "not 1 to 4 dimensions");
    t->n_dims = (uint32_t)n_dims;
    for (uint32_t i = 0; i < t->n_dims; i++) {
        MF_TRY(take(r, 8, "a tensor's dimensions", &t->ne[i]));
        if (t->ne[i] == 0)
            return bad_tensor(r, t, "a dimension of 0");
    }
    MF_TRY(take(r, 4, "a tensor's type", &type));
    t->type = (uint32_t)type;
    return take(r, 8, "a tensor's offset", &t->offset);
}

static mf_status take_tensors(gguf_reader *r, uint64_t n)
{
    mf_gguf *g = r->g;
    if (n > MF_MAX_TENSORS || n > g->file_bytes / LEAST_TENSOR_BYTES)
        return bad(r, "more tensors than the file can hold, or than 2000000");
    g->tensors_capacity = (size_t)n;
    g->tensors = mf_alloc_array(&g->allocator, (size_t)n + 1, sizeof *g->tensors);
    if (g->tensors == NULL)
        return mf_fail_memory(r->error, (size_t)n * sizeof *g->tensors, g->path);
    for (; g->n_tensors < n; g->n_tensors++)
        MF_TRY(take_tensor(r, &g->tensors[g->n_tensors]));
    return MF_OK;
}

/* ---------------------------------------------------------------------------------- the head -- */

static mf_status check_magic(gguf_reader *r)
{
    mf_gguf *g = r->g;
    uint64_t version;
    const size_t n_pointer = sizeof MF_LFS_POINTER - 1;
    MF_TRY(need(r, 4, "its first four bytes"));
    if (g->n_bytes >= n_pointer && memcmp(g->bytes, MF_LFS_POINTER, n_pointer) == 0)
        return mf_fail_lfs_pointer(g->path, r->error);
    if (memcmp(g->bytes, "GGUF", 4) != 0)
        return mf_fail(r->error, MF_ERR_FORMAT,
                       "%s: not a GGUF file: it begins with other bytes than GGUF", g->path);
    r->at = 4;
    MF_TRY(take(r, 4, "its version", &version));
    if (version >> 16 != 0 && (version & 0xffff) == 0)
        return mf_fail(r->error, MF_ERR_UNSUPPORTED,
                       "%s: a GGUF file for big-endian machines, which is not supported", g->path);
    if (version != 2 && version != 3)
        return mf_fail(r->error, MF_ERR_UNSUPPORTED, "%s: GGUF version %llu; supported are 2 and 3",
                       g->path, (unsigned long long)version);
    g->version = (uint32_t)version;
    return MF_OK;
}

static mf_status set_data_offset(gguf_reader *r)
{
    static const char key[] = "general.alignment";
    mf_gguf *g = r->g;
    const mf_gguf_value *v = mf_gguf_find(g, key);
    double alignment = 32;
    if (v != NULL && (!mf_gguf_number(g, v, 0, &alignment) || v->is_array || alignment < 1 ||
                      alignment > 1 << 30 || (uint64_t)alignment != alignment ||
                      ((uint64_t)alignment & ((uint64_t)alignment - 1)) != 0))
        return mf_fail(r->error, MF_ERR_FORMAT, "%s: key %s is not a power of two up to 2^30",
                       g->path, key);
    g->alignment = (uint64_t)alignment;
    g->data_offset = (r->at + g->alignment - 1) & ~(g->alignment - 1);
    if (g->n_tensors > 0 && g->data_offset > g->file_bytes)
        return bad(r, "the file ends before its data");
    return MF_OK;
}

static mf_status take_head(gguf_reader *r)
{
    uint64_t n_tensors, n_values;
    MF_TRY(check_magic(r));
    MF_TRY(take(r, 8, "the number of tensors", &n_tensors));
    MF_TRY(take(r, 8, "the number of keys", &n_values));
    MF_TRY(take_values(r, n_values));
    r->g->keys_end = r->at;
    MF_TRY(take_tensors(r, n_tensors));
    return set_data_offset(r);
}

static mf_status begin(const mf_allocator *a, const char *path, uint64_t file_bytes, mf_gguf *g,
                       mf_error *error)
{
    *g = (mf_gguf){.allocator = *a, .file_bytes = file_bytes, .path_bytes = strlen(path) + 1};
    g->path = mf_alloc(a, g->path_bytes);
    if (g->path == NULL)
        return mf_fail_memory(error, g->path_bytes, path);
    memcpy(g->path, path, g->path_bytes);
    size_t first = file_bytes < FIRST_READ ? (size_t)file_bytes : FIRST_READ;
    return grow_bytes(g, first, error);
}

static mf_status finish(gguf_reader *r, mf_gguf *g, mf_status status, mf_gguf *out)
{
    if (status == MF_OK)
        status = take_head(r);
    if (status == MF_OK)
        *out = *g;
    else
        mf_gguf_free(g);
    return status;
}

mf_status mf_gguf_parse(const mf_allocator *a, const char *path, const unsigned char *bytes,
                        size_t n_bytes, uint64_t file_bytes, mf_gguf *out, mf_error *error)
{
    mf_gguf g;
    gguf_reader r = {&g, -1, 0, error};
    mf_status status = begin(a, path, file_bytes, &g, error);
    if (status == MF_OK && n_bytes > g.capacity)
        status = grow_bytes(&g, n_bytes, error);
    if (status == MF_OK && n_bytes > 0) {
        g.n_bytes = n_bytes < g.capacity ? n_bytes : g.capacity;
        memcpy(g.bytes, bytes, g.n_bytes);
    }
    return finish(&r, &g, status, out);
}

mf_status mf_gguf_open(const mf_allocator *a, const char *path, mf_gguf *out, mf_error *error)
{
    mf_gguf g;
    struct stat st;
    gguf_reader r = {&g, open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), 0, error};
    if (r.fd < 0)
        return mf_fail_os(error, errno == ENOENT ? MF_ERR_NOT_FOUND : MF_ERR_IO, errno,
                          "%s: cannot open", path);
    if (fstat(r.fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(r.fd);
        return mf_fail(error, MF_ERR_IO, "%s: not a regular file", path);
    }
    mf_status status = begin(a, path, (uint64_t)st.st_size, &g, error);
    if (status == MF_OK)
        status = read_more(&r);
    status = finish(&r, &g, status, out);
    close(r.fd);
    return status;
}

void mf_gguf_free(mf_gguf *g)
{
    const mf_allocator a = g->allocator;
    if (a.free == NULL)
        return;
    mf_free(&a, g->path, g->path_bytes);
    mf_free(&a, g->bytes, g->capacity);
    if (g->values != NULL)
        mf_free(&a, g->values, (g->values_capacity + 1) * sizeof *g->values);
    if (g->tensors != NULL)
        mf_free(&a, g->tensors, (g->tensors_capacity + 1) * sizeof *g->tensors);
    *g = (mf_gguf){0};
}

/* Copies n bytes behind those that are kept. */
static size_t keep(const mf_gguf *g, unsigned char *to, size_t *used, size_t at, size_t n)
{
    const size_t place = *used;
    memcpy(to + place, g->bytes + at, n);
    *used += n;
    return place;
}

mf_status mf_gguf_shrink(mf_gguf *g, mf_error *error)
{
    size_t n_bytes = 1, n_kept = 0, used = 0;
    for (size_t i = 0; i < g->n_values; i++)
        if (g->values[i].n_bytes <= KEPT_BYTES)
            n_bytes += g->values[i].key_bytes + g->values[i].n_bytes;
    unsigned char *kept = mf_alloc(&g->allocator, n_bytes);
    if (kept == NULL)
        return mf_fail_memory(error, n_bytes, g->path);
    for (size_t i = 0; i < g->n_values; i++) {
        mf_gguf_value v = g->values[i];
        if (v.n_bytes > KEPT_BYTES)
            continue;
        v.key = keep(g, kept, &used, v.key, v.key_bytes);
        v.at = keep(g, kept, &used, v.at, v.n_bytes);
        g->values[n_kept++] = v;
    }
    mf_free(&g->allocator, g->bytes, g->capacity);
    g->bytes = kept;
    g->n_bytes = g->capacity = n_bytes;
    g->n_values = n_kept;
    mf_free(&g->allocator, g->tensors, (g->tensors_capacity + 1) * sizeof *g->tensors);
    g->tensors = NULL;
    g->n_tensors = 0;
    return MF_OK;
}

/* ------------------------------------------------------------------------------------ values -- */

const mf_gguf_value *mf_gguf_find(const mf_gguf *g, const char *key)
{
    const size_t n = strlen(key);
    size_t low = 0, high = g->n_values;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = compare_keys(g, &g->values[middle], key, n);
        if (order == 0)
            return &g->values[middle];
        if (order > 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static double signed_of(uint64_t word, uint32_t n_bits)
{
    const uint64_t sign = (uint64_t)1 << (n_bits - 1);
    return (double)(int64_t)((word ^ sign) - sign);
}

bool mf_gguf_number(const mf_gguf *g, const mf_gguf_value *v, uint64_t index, double *out)
{
    if (v == NULL || v->type == MF_GGUF_STRING || index >= v->n)
        return false;
    const uint32_t width = type_bytes[v->type];
    const uint64_t word = mf_get_le(g->bytes + v->at + (size_t)index * width, width);
    float single;
    uint32_t half = (uint32_t)word;
    switch (v->type) {
    case MF_GGUF_I8:
    case MF_GGUF_I16:
    case MF_GGUF_I32:
    case MF_GGUF_I64:
        *out = signed_of(word, width * 8);
        break;
    case MF_GGUF_F32:
        memcpy(&single, &half, sizeof single);
        *out = (double)single;
        break;
    case MF_GGUF_F64:
        memcpy(out, &word, sizeof *out);
        break;
    case MF_GGUF_BOOL:
        *out = word != 0;
        break;
    default:
        *out = (double)word;
    }
    return true;
}

bool mf_gguf_next(const mf_gguf *g, const mf_gguf_value *v, size_t *at, mf_gguf_text *out)
{
    if (v == NULL || v->type != MF_GGUF_STRING || *at >= v->n_bytes)
        return false;
    const unsigned char *p = g->bytes + v->at + *at;
    out->n_bytes = (size_t)mf_get_le(p, 8);
    out->text = (const char *)p + 8;
    *at += 8 + out->n_bytes;
    return true;
}

bool mf_gguf_string(const mf_gguf *g, const mf_gguf_value *v, mf_gguf_text *out)
{
    size_t at = 0;
    return v != NULL && !v->is_array && mf_gguf_next(g, v, &at, out);
}

bool mf_gguf_is(const mf_gguf *g, const char *key, const char *text)
{
    mf_gguf_text value;
    return mf_gguf_string(g, mf_gguf_find(g, key), &value) && value.n_bytes == strlen(text) &&
           memcmp(value.text, text, value.n_bytes) == 0;
}

/* ----------------------------------------------------------------------------------- tensors -- */

static mf_status describe(const mf_gguf *g, const mf_gguf_tensor *t, mf_tensor *out,
                          mf_error *error)
{
    const char *name = (const char *)g->bytes + t->name;
    const int n_name = (int)t->name_bytes;
    mf_gguf_block block;
    uint64_t n = 1, end;
    if (!mf_gguf_block_of(t->type, &block))
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: tensor %.*s: type %u is not known", g->path,
                       n_name, name, t->type);
    for (uint32_t i = 0; i < t->n_dims; i++) {
        out->shape[t->n_dims - 1 - i] = t->ne[i];
        if (!mf_mul_u64(n, t->ne[i], &n))
            return mf_fail(error, MF_ERR_FORMAT, "%s: tensor %.*s: its shape overflows", g->path,
                           n_name, name);
    }
    if (t->ne[0] % block.n_values != 0)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: tensor %.*s: rows of %llu values, but blocks of %s have %u", g->path,
                       n_name, name, (unsigned long long)t->ne[0], block.name, block.n_values);
    if (t->offset % g->alignment != 0)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: tensor %.*s: offset %llu is no multiple of the alignment %llu", g->path,
                       n_name, name, (unsigned long long)t->offset,
                       (unsigned long long)g->alignment);
    if (!mf_mul_u64(n / block.n_values, block.n_bytes, &out->n_bytes) ||
        !mf_add_u64(g->data_offset, t->offset, &out->offset) ||
        !mf_add_u64(out->offset, out->n_bytes, &end) || end > g->file_bytes)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: tensor %.*s lies outside the file, which has %llu bytes (is the "
                       "download complete?)",
                       g->path, n_name, name, (unsigned long long)g->file_bytes);
    out->n_dims = t->n_dims;
    out->type = block.type;
    out->kind = block.kind;
    snprintf(out->type_name, sizeof out->type_name, "%s", block.name);
    return MF_OK;
}

mf_status mf_gguf_add_tensors(const mf_gguf *g, mf_tensor_table *table, mf_error *error)
{
    uint32_t file;
    MF_TRY(mf_tensor_table_add_file(table, g->path, &file, error));
    for (size_t i = 0; i < g->n_tensors; i++) {
        const mf_gguf_tensor *t = &g->tensors[i];
        mf_tensor tensor = {.file = file, .name = (const char *)g->bytes + t->name};
        MF_TRY(describe(g, t, &tensor, error));
        MF_TRY(mf_tensor_table_add(table, &tensor, t->name_bytes, error));
    }
    return MF_OK;
}
