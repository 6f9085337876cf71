/* SPDX-License-Identifier: MIT */
/* What a tokenizer's files say with true or false. Anything else there would pass for false. */
#ifndef MF_TEXT_JSON_FLAGS_H
#define MF_TEXT_JSON_FLAGS_H

#include "format/json.h"

/* The members of an object that are flags; `where` is what it is called in the file. */
mf_status mf_json_flags_check(const char *path, const char *where, yyjson_val *object,
                              mf_error *error);
/* The same of added_tokens_decoder[id] of a tokenizer_config.json. */
mf_status mf_json_flags_check_added(const char *path, const char *id, yyjson_val *object,
                                    mf_error *error);
/* Those of all parts of a tokenizer.json, and that its sequences are arrays. */
mf_status mf_json_flags_check_all(const mf_json *json, mf_error *error);

#endif
