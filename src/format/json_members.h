/* SPDX-License-Identifier: MIT */
/*
 * Large JSON objects member by member: a header of a hundred thousand tensors needs no more memory
 * than its text and one entry. Parses nothing itself but where a value ends; each piece is parsed
 * by yyjson in a fixed block of memory, so that what is not JSON is refused all the same.
 */
#ifndef MF_FORMAT_JSON_MEMBERS_H
#define MF_FORMAT_JSON_MEMBERS_H

#include "format/json.h"

#define MF_MEMBER_NAME_BYTES 1024u
#define MF_MEMBER_VALUE_BYTES 4096u

/* A run of the text. */
typedef struct mf_json_piece {
    const char *text;
    size_t n_bytes;
    uint64_t position; /* in the file, for messages */
} mf_json_piece;

typedef struct mf_json_members {
    const char *path; /* for messages */
    mf_json_piece object;
    size_t at; /* how far it has been read */
    /* yyjson's memory for one name and one value: 13 bytes a byte of text is what it may need. */
    _Alignas(16) char name_memory[13 * MF_MEMBER_NAME_BYTES + 512];
    _Alignas(16) char value_memory[13 * MF_MEMBER_VALUE_BYTES + 512];
} mf_json_members;

void mf_json_members_init(mf_json_members *members, const char *path, mf_json_piece object);

/* The next member: its name, and where its value stands. *name is NULL after the last, and valid
 * until the next call. Errors: MF_ERR_FORMAT with the byte position. */
mf_status mf_json_next(mf_json_members *members, const char **name, mf_json_piece *value,
                       mf_error *error);
/* The value itself, valid until the next call. `name` is for messages. */
mf_status mf_json_value(mf_json_members *members, const char *name, const mf_json_piece *piece,
                        yyjson_val **out, mf_error *error);

#endif
