/* SPDX-License-Identifier: MIT */
/*
 * Tensor tables: the checked descriptors of every tensor of a checkpoint, from safetensors headers
 * or from the packed form's manifest. A table says where bytes lie; it never reads them. Every
 * entry is inside its file, entries of one file do not overlap, and sizes agree with shape and
 * dtype.
 */
#ifndef MF_FORMAT_TENSORS_H
#define MF_FORMAT_TENSORS_H

#include "base/weight_repack.h"
#include "format/json_members.h"

#define MF_MAX_DIMS 4
#define MF_MAX_SHARDS 1024
#define MF_MAX_TENSORS 2000000
#define MF_MAX_PATH 4096

typedef enum mf_tensor_type {
    MF_TENSOR_OTHER = 0, /* a dtype that nothing here reads; sized and placed all the same */
    MF_TENSOR_F32 = 1,
    MF_TENSOR_F16 = 2,
    MF_TENSOR_BF16 = 3,
    MF_TENSOR_U32 = 4,
    MF_TENSOR_F8_E4M3 = 5,
    MF_TENSOR_BLOCKS = 6, /* of mf_tensor.kind, scales inside */
    MF_TENSOR_I32 = 8,
    MF_TENSOR_U8 = 9,
    MF_TENSOR_I8 = 10,
    MF_TENSOR_I64 = 11
} mf_tensor_type;

typedef struct mf_tensor {
    const char *name; /* in the table's string memory */
    mf_tensor_type type;
    char type_name[12]; /* as the file writes it */
    uint32_t n_dims;
    uint64_t shape[MF_MAX_DIMS];
    uint32_t file;   /* index into mf_tensor_table.files */
    uint64_t offset; /* in the file */
    uint64_t n_bytes;
    uint32_t bits;       /* manifest only: 0 where not stated */
    mf_weight_kind kind; /* MF_TENSOR_BLOCKS: 0 where nothing reads them. Others, once found: how
                            the matrix is stored where its arrays do not say; MF_WEIGHT_INT4: in 4
                            or 8 bits, as the shape says */
    mf_packing packing;  /* once found: of a matrix that is repacked when it is read */
    bool is_negated_exp; /* what is stored is -exp(x) */
    bool used;           /* set by whoever binds it */
} mf_tensor;

typedef struct mf_tensor_file {
    char *path;
    size_t path_bytes; /* allocated */
    uint64_t n_bytes;
} mf_tensor_file;

typedef struct mf_tensor_table {
    mf_allocator allocator;
    mf_tensor *tensors; /* sorted by name once complete */
    size_t n_tensors, capacity;
    mf_tensor_file *files;
    size_t n_files, files_capacity;
    struct mf_string_block *strings;
} mf_tensor_table;

void mf_tensor_table_init(mf_tensor_table *table, const mf_allocator *a);
void mf_tensor_table_free(mf_tensor_table *table);

/* Parses one safetensors header, the JSON after the 8 bytes of its length; tensor data starts
 * behind it in a file of file_bytes. Adds to the table under file index `file`. (For fuzzing;
 * mf_safetensors_add_file calls it.) */
mf_status mf_safetensors_parse(mf_tensor_table *table, uint32_t file, const char *path,
                               mf_json_piece header, uint64_t file_bytes, mf_error *error);
/* Adds every tensor of one safetensors file. */
mf_status mf_safetensors_add_file(mf_tensor_table *table, const char *path, mf_error *error);
/* Adds dir/model.safetensors, or every shard that dir/model.safetensors.index.json names, and
 * checks that the index and the shards agree. */
mf_status mf_safetensors_add_dir(mf_tensor_table *table, const char *dir, mf_error *error);

/* Parses the packed form's manifest; offsets must lie in a file of weights_bytes. (For fuzzing
 * too.) */
mf_status mf_manifest_parse(mf_tensor_table *table, uint32_t file, const mf_json *manifest,
                            uint64_t weights_bytes, mf_error *error);

/* Adds a file to the table and finds its size. */
mf_status mf_tensor_table_add_file(mf_tensor_table *table, const char *path, uint32_t *file,
                                   mf_error *error);
/* Adds one tensor; the name is copied. */
mf_status mf_tensor_table_add(mf_tensor_table *table, const mf_tensor *tensor, size_t name_bytes,
                              mf_error *error);
/* Sorts by name and refuses duplicates and overlaps. */
mf_status mf_tensor_table_finish(mf_tensor_table *table, mf_error *error);
/* NULL if there is none of that name. */
mf_tensor *mf_tensor_find(const mf_tensor_table *table, const char *name);

/* dtype name -> type and bytes per element in eighths (so that sub-byte types fit); false if
 * unknown. */
bool mf_tensor_type_parse(const char *name, mf_tensor_type *type, uint32_t *eighths);
/* "[2, 3]" into text. */
void mf_shape_text(const uint64_t *shape, uint32_t n_dims, char *text, size_t capacity);

#endif
