/* SPDX-License-Identifier: MIT */
/*
 * The head of a GGUF file, versions 2 and 3: its metadata and its tensors' descriptors, checked
 * whole before anything is made of them. The bytes are read, not mapped: a file that shrinks
 * meanwhile is an error and no signal. What a key means is gguf_source.c's business.
 */
#ifndef MF_FORMAT_GGUF_H
#define MF_FORMAT_GGUF_H

#include "base/alloc.h"
#include "base/weight_format.h"
#include "format/tensors.h"

#define MF_GGUF_MAX_KEYS 65536
/* Of metadata and descriptors together: vocabularies are some ten million. */
#define MF_GGUF_MAX_HEAD ((uint64_t)512 << 20)
#define MF_GGUF_MAX_NAME 512

/* Types of values, as the file numbers them. */
typedef enum mf_gguf_type {
    MF_GGUF_U8 = 0,
    MF_GGUF_I8,
    MF_GGUF_U16,
    MF_GGUF_I16,
    MF_GGUF_U32,
    MF_GGUF_I32,
    MF_GGUF_F32,
    MF_GGUF_BOOL,
    MF_GGUF_STRING,
    MF_GGUF_ARRAY,
    MF_GGUF_U64,
    MF_GGUF_I64,
    MF_GGUF_F64,
    MF_GGUF_TYPES
} mf_gguf_type;

/* A key and where its value lies; offsets into mf_gguf.bytes. */
typedef struct mf_gguf_value {
    size_t key, key_bytes;
    mf_gguf_type type; /* of an array: of its elements */
    bool is_array;
    uint64_t n;         /* elements; 1 where it is no array */
    size_t at, n_bytes; /* of all elements; a string has its length, 8 bytes, before it */
} mf_gguf_value;

typedef struct mf_gguf_tensor {
    size_t name, name_bytes;
    uint32_t n_dims, type; /* as the file numbers it */
    uint64_t ne[MF_MAX_DIMS];
    uint64_t offset; /* in the data */
} mf_gguf_tensor;

typedef struct mf_gguf {
    mf_allocator allocator;
    char *path;
    size_t path_bytes;
    unsigned char *bytes; /* the file's beginning, as far as the head goes */
    size_t n_bytes, capacity;
    uint64_t file_bytes;
    mf_gguf_value *values; /* by key */
    size_t n_values, values_capacity;
    mf_gguf_tensor *tensors; /* in the file's order */
    size_t n_tensors, tensors_capacity;
    uint32_t version;
    uint64_t alignment, data_offset;
    size_t keys_end; /* where the tensors' descriptors begin */
} mf_gguf;

/* Reads the head of the file. Errors: MF_ERR_NOT_FOUND, _IO, _FORMAT, _UNSUPPORTED, _NO_MEMORY; the
 * first four name the file and the byte or the key. */
mf_status mf_gguf_open(const mf_allocator *a, const char *path, mf_gguf *out, mf_error *error);
/* The same of n_bytes in memory that are said to begin a file of file_bytes. (For fuzzing.) */
mf_status mf_gguf_parse(const mf_allocator *a, const char *path, const unsigned char *bytes,
                        size_t n_bytes, uint64_t file_bytes, mf_gguf *out, mf_error *error);
/* Takes a zeroed one. */
void mf_gguf_free(mf_gguf *gguf);
/* Forgets descriptors, and values of more than 4 KiB: what vocabularies take. */
mf_status mf_gguf_shrink(mf_gguf *gguf, mf_error *error);

/* Text that is not terminated. */
typedef struct mf_gguf_text {
    const char *text;
    size_t n_bytes;
} mf_gguf_text;

/* NULL if there is no such key. */
const mf_gguf_value *mf_gguf_find(const mf_gguf *gguf, const char *key);
/* Element `index` of a value (0 of one that is no array) as a number; bools are 0 and 1. False
 * where it is none, or out of range. */
bool mf_gguf_number(const mf_gguf *gguf, const mf_gguf_value *value, uint64_t index, double *out);
/* A string that is no array. */
bool mf_gguf_string(const mf_gguf *gguf, const mf_gguf_value *value, mf_gguf_text *out);
/* The strings of an array one after another; *at begins as 0. False at the end, or of others. */
bool mf_gguf_next(const mf_gguf *gguf, const mf_gguf_value *value, size_t *at, mf_gguf_text *out);
/* Both at once: the value of the key is this text. */
bool mf_gguf_is(const mf_gguf *gguf, const char *key, const char *text);

/* Adds all tensors of the file to the table, as tensors of a file that was added for it: shapes in
 * our order, the last dimension inputs. */
mf_status mf_gguf_add_tensors(const mf_gguf *gguf, mf_tensor_table *table, mf_error *error);

/* Which file a path means: *found says whether it is GGUF's at all. A directory that has a
 * checkpoint of another form is none; of a split model it is the first part. Errors:
 * MF_ERR_ARGUMENT where a directory has several. */
mf_status mf_gguf_locate(const char *path, char *file, size_t capacity, bool *found,
                         mf_error *error);
/* The same for text: also the metadata that a converted model keeps beside its weights. */
#define MF_GGUF_TEXT_FILE "text.gguf"
mf_status mf_gguf_locate_text(const char *path, char *file, size_t capacity, bool *found,
                              mf_error *error);
/* The path of part i (from 0) of a split model, from that of any part; n is 1 and the path its own
 * where its name says of none. */
mf_status mf_gguf_part(const char *path, uint32_t i, char *part, size_t capacity, mf_error *error);
uint32_t mf_gguf_count_parts(const char *path);

/* How values of a type are stored. */
typedef struct mf_gguf_block {
    const char *name;
    uint32_t n_values, n_bytes; /* of a block */
    mf_tensor_type type;
    mf_weight_kind kind; /* of blocks; 0: nothing reads them yet */
} mf_gguf_block;

/* False: the number is no type's, or the name. */
bool mf_gguf_block_of(uint32_t type, mf_gguf_block *out);
bool mf_gguf_block_named(const char *name, mf_gguf_block *out);

#endif
