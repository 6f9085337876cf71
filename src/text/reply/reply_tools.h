/* SPDX-License-Identifier: MIT */
/* The tools that a reply may call: their names, and what their arguments may be. */
#ifndef MF_TEXT_REPLY_TOOLS_H
#define MF_TEXT_REPLY_TOOLS_H

#include "format/json.h"

/* What a value may be: a set. */
enum {
    MF_TYPE_STRING = 1,
    MF_TYPE_NUMBER = 2,
    MF_TYPE_BOOLEAN = 4,
    MF_TYPE_NULL = 8,
    MF_TYPE_OBJECT = 16,
    MF_TYPE_ARRAY = 32,
    MF_TYPE_ANY = 63
};

typedef struct mf_reply_tools {
    mf_json json; /* without a document: none are known */
} mf_reply_tools;

/* text: NULL, or an array of tools. Errors: MF_ERR_FORMAT, MF_ERR_NO_MEMORY. */
mf_status mf_reply_tools_read(const mf_allocator *a, const char *text, mf_reply_tools *out,
                              mf_error *error);
void mf_reply_tools_free(mf_reply_tools *tools);

/* What an argument may be by the tool's schema; 0: unknown. */
unsigned mf_reply_tools_types(const mf_reply_tools *tools, const char *name, size_t n_name,
                              const char *key, size_t n_key);

/* A schema within a tool's; of nothing: unknown. */
typedef struct mf_reply_schema {
    yyjson_val *root, *schema;
} mf_reply_schema;

mf_reply_schema mf_reply_tools_schema(const mf_reply_tools *tools, const char *name, size_t n_name,
                                      const char *key, size_t n_key);
/* Of a member, or with key NULL of an array's items. */
mf_reply_schema mf_reply_schema_child(mf_reply_schema schema, const char *key, size_t n_key);
unsigned mf_reply_schema_types(mf_reply_schema schema);

bool mf_reply_tools_has(const mf_reply_tools *tools, const char *name, size_t n_bytes);

#endif
