/* SPDX-License-Identifier: MIT */
/*
 * Kept answers as bytes (docs/FORMATS.md): the head of their file, and a record for each answer and
 * for each set of tools. Bytes from a file are anybody's: what is read is checked, and nothing of
 * it is believed beyond its bounds.
 */
#ifndef MF_SERVER_RECALL_RECORD_H
#define MF_SERVER_RECALL_RECORD_H

#include "recall.h"

#define MF_SRV_ANSWERS_HEAD_BYTES 72u
#define MF_SRV_RECORD_HEAD_BYTES 24u
/* Of one record behind its head. */
#define MF_SRV_RECORD_MAX_BYTES ((uint32_t)64 << 20)

/* What a file is of. */
typedef struct mf_srv_answers_head {
    uint8_t model[16];
    mf_srv_digest_key key; /* of all digests in the file */
} mf_srv_answers_head;

void mf_srv_answers_head_write(const mf_srv_answers_head *head,
                               unsigned char out[MF_SRV_ANSWERS_HEAD_BYTES]);
/* False: it is none, of another version, or damaged. */
bool mf_srv_answers_head_read(const unsigned char bytes[MF_SRV_ANSWERS_HEAD_BYTES],
                              mf_srv_answers_head *out);

typedef enum mf_srv_record_kind {
    MF_SRV_RECORD_ANSWER = 1,
    MF_SRV_RECORD_TOOLS = 2
} mf_srv_record_kind;

typedef struct mf_srv_record_head {
    uint32_t kind, n_bytes;
    mf_srv_digest digest; /* of kind, n_bytes and all that follows */
} mf_srv_record_head;

/* Records with their heads, appended. */
void mf_srv_record_put_answer(const mf_srv_digest_key *key, const mf_srv_kept *kept,
                              mf_srv_bytes *out);
void mf_srv_record_put_tools(const mf_srv_digest_key *key, const char *tools, mf_srv_bytes *out);

/* False: longer than any record. */
bool mf_srv_record_head_read(const unsigned char bytes[MF_SRV_RECORD_HEAD_BYTES],
                             mf_srv_record_head *out);
bool mf_srv_record_is_whole(const mf_srv_digest_key *key, const mf_srv_record_head *head,
                            const unsigned char *bytes);
/* What stands behind the head of an answer, for a model of n_vocab tokens; NULL: it is none, or no
 * memory. */
mf_srv_kept *mf_srv_record_answer(const unsigned char *bytes, size_t n_bytes, uint32_t n_vocab);
/* The same of tools, as text from malloc. */
char *mf_srv_record_tools(const unsigned char *bytes, size_t n_bytes);

#endif
