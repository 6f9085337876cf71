/* SPDX-License-Identifier: MIT */
/*
 * The snapshot format (docs/FORMATS.md): a head with the model it belongs to and the tokens, then
 * the state in parts whose number and sizes follow from the head. Every byte is under a checksum.
 * This file knows nothing of sessions: the parts are anyone's bytes.
 */
#ifndef MF_STATE_SNAPSHOT_FORMAT_H
#define MF_STATE_SNAPSHOT_FORMAT_H

#include "base/checksum.h"
#include "base/visit.h"
#include "state/byte_stream.h"

#include <stdbool.h>

#define MF_SNAPSHOT_VERSION 2u
#define MF_SNAPSHOT_MAGIC_BYTES 8u
#define MF_SNAPSHOT_HEADER_BYTES 128u
/* The head (header, tokens, zeros, checksum) is a multiple of this. */
#define MF_SNAPSHOT_HEAD_ALIGN 4096u
#define MF_SNAPSHOT_MAX_TOKENS ((uint64_t)1 << 30)
#define MF_SNAPSHOT_MAX_PARTS ((uint64_t)1 << 24)
#define MF_SNAPSHOT_MAX_MARKS 16u

/* Which states may stand in for one another. */
typedef struct mf_snapshot_key {
    uint8_t fingerprint[MF_FINGERPRINT_BYTES]; /* of the model */
    uint32_t kv_type;                          /* mf_kv_type */
    uint32_t cpu_tier; /* whose order of summing the state has; any tier can go on from it */
} mf_snapshot_key;

typedef struct mf_snapshot_head {
    mf_snapshot_key key;
    uint64_t n_tokens;
    uint32_t n_layers, n_vocab;
    uint32_t page_tokens;          /* positions of a page */
    uint64_t page_bytes;           /* of a full page */
    uint64_t recurrent_bytes;      /* 0 where no layer is recurrent */
    bool has_logits;               /* of the last token: the last part */
    uint64_t n_parts, parts_bytes; /* all there are, those of marks included */
    /* Earlier positions that the snapshot can be taken up at; their parts are the last ones. */
    uint32_t n_marks;
    uint32_t mark_parts;                   /* of each */
    uint64_t mark_bytes;                   /* of each, without checksums */
    uint32_t marks[MF_SNAPSHOT_MAX_MARKS]; /* rising; known with the tokens */
    uint64_t checksum;                     /* of the whole head; filled by writing and reading */
} mf_snapshot_head;

/* Whether something begins as snapshots of any version do. */
bool mf_snapshot_has_magic(const unsigned char begin[MF_SNAPSHOT_MAGIC_BYTES]);

/* The whole snapshot's size, from what the head says. */
uint64_t mf_snapshot_total_bytes(const mf_snapshot_head *head);
uint64_t mf_snapshot_head_bytes(uint64_t n_tokens, uint32_t n_marks);
/* Where part i begins, given the bytes of the parts before it. */
uint64_t mf_snapshot_part_offset(const mf_snapshot_head *head, uint64_t i, uint64_t bytes_before);

/* Where the parts of mark k begin; of k = n_marks, where the snapshot ends. */
uint64_t mf_snapshot_mark_offset(const mf_snapshot_head *head, uint32_t k);

struct mf_part_place;

/* Checksum and copy take turns on pieces that stay in the cache between them. */
#define MF_SNAPSHOT_PIECE_BYTES MF_VISIT_BYTES

/* A part's bytes in memory that the host may not reach. Any thread may ask, several at once. */
typedef struct mf_part_memory {
    void *ctx;
    mf_status (*visit)(void *ctx, const struct mf_part_place *from, size_t n_bytes, mf_visit_fn fn,
                       void *fn_ctx, mf_error *error);
    mf_status (*produce)(void *ctx, const struct mf_part_place *to, size_t n_bytes,
                         mf_produce_fn fn, void *fn_ctx, mf_error *error);
} mf_part_memory;

typedef struct mf_part_place {
    const mf_part_memory *memory;
    uint32_t buffer;
    uint64_t offset;
} mf_part_place;

/* Writing: the head first, then every part in order. */
mf_status mf_snapshot_write_head(mf_byte_sink *sink, mf_snapshot_head *head, const int32_t *tokens,
                                 mf_error *error);
mf_status mf_snapshot_write_part(mf_byte_sink *sink, const mf_snapshot_head *head, uint64_t i,
                                 const void *data, size_t n_bytes, mf_error *error);
mf_status mf_snapshot_write_part_from(mf_byte_sink *sink, const mf_snapshot_head *head, uint64_t i,
                                      const mf_part_place *from, size_t n_bytes, mf_error *error);

/*
 * Reading: the header (checked by itself, sizes within the limits above and without contradiction),
 * then the tokens, then the parts. What has been read is checked when the call returns.
 */
mf_status mf_snapshot_read_header(mf_byte_source *source, mf_snapshot_head *out, mf_error *error);
/* tokens[head->n_tokens], and the marks' positions into the head; checks the head's checksum,
 * that every id is in the vocabulary, and that the positions rise and lie within. */
mf_status mf_snapshot_read_tokens(mf_byte_source *source, mf_snapshot_head *head, int32_t *tokens,
                                  mf_error *error);
mf_status mf_snapshot_read_part(mf_byte_source *source, const mf_snapshot_head *head, uint64_t i,
                                void *dest, size_t n_bytes, mf_error *error);
mf_status mf_snapshot_read_part_to(mf_byte_source *source, const mf_snapshot_head *head, uint64_t i,
                                   const mf_part_place *to, size_t n_bytes, mf_error *error);
/* Checks a part that nobody wants. */
mf_status mf_snapshot_pass_part(mf_byte_source *source, const mf_snapshot_head *head, uint64_t i,
                                size_t n_bytes, mf_error *error);

#endif
