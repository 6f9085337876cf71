/* SPDX-License-Identifier: MIT */
/*
 * A file of experts of the aligned form (docs/FORMATS.md): a head that names the model, the layer
 * and where each expert lies, then the experts, each one run of bytes that begins at a multiple of
 * 4096. Bytes to checked descriptors and back; nothing here knows what an expert is made of.
 */
#ifndef MF_FORMAT_ALIGNED_FILE_H
#define MF_FORMAT_ALIGNED_FILE_H

#include "base/alloc.h"

#define MF_ALIGNED_VERSION 1u
#define MF_ALIGNED_BYTES 4096u
#define MF_ALIGNED_ID_BYTES 16u
#define MF_ALIGNED_HEAD_BYTES 64u
#define MF_ALIGNED_ENTRY_BYTES 32u
/* Experts of one file, at most. */
#define MF_ALIGNED_MAX_EXPERTS 65536u

/* One expert of a file. */
typedef struct mf_aligned_entry {
    uint32_t expert;
    uint32_t form; /* which of the layer's forms it has */
    uint64_t offset, n_bytes;
    uint64_t checksum; /* XXH3-64 of its bytes, seed 0 */
} mf_aligned_entry;

typedef struct mf_aligned_head {
    uint8_t id[MF_ALIGNED_ID_BYTES]; /* of the model, as its manifest has it */
    uint32_t layer;
    uint32_t n_experts;
    uint64_t first; /* where the first may begin */
    uint64_t file_bytes;
} mf_aligned_head;

/* What a head of n experts takes, a multiple of 4096. */
uint64_t mf_aligned_head_bytes(uint32_t n_experts);
/* Writes all of it to out [mf_aligned_head_bytes]; first is filled in. */
void mf_aligned_head_write(const mf_aligned_head *head, const mf_aligned_entry *entries,
                           unsigned char *out);
/* The first MF_ALIGNED_HEAD_BYTES of a file of file_bytes. Errors: MF_ERR_FORMAT,
 * MF_ERR_UNSUPPORTED (another version). */
mf_status mf_aligned_head_read(const unsigned char *bytes, uint64_t file_bytes, const char *path,
                               mf_aligned_head *out, mf_error *error);
/* The whole head, mf_aligned_head_bytes of it: its checksum, and entries [head->n_experts], which
 * rise in place, do not overlap and lie within the file. */
mf_status mf_aligned_entries_read(const unsigned char *bytes, const mf_aligned_head *head,
                                  const char *path, mf_aligned_entry *entries, mf_error *error);

/* The head of a file that is there: both of the above. *entries [head->n_experts] is the caller's
 * to free. Errors: also MF_ERR_NOT_FOUND, MF_ERR_IO, MF_ERR_NO_MEMORY. */
mf_status mf_aligned_file_read(const mf_allocator *a, const char *path, mf_aligned_head *head,
                               mf_aligned_entry **entries, mf_error *error);

/* 32 hex digits and back; false for any other text. */
void mf_aligned_id_text(const uint8_t id[MF_ALIGNED_ID_BYTES], char text[33]);
bool mf_aligned_id_parse(const char *text, uint8_t id[MF_ALIGNED_ID_BYTES]);

#endif
