/* SPDX-License-Identifier: MIT */
/* The body of a request as JSON. */
#ifndef MF_SERVER_BODY_H
#define MF_SERVER_BODY_H

#include "bytes.h"
#include "refusal.h"

#include "yyjson_prefix.h"

#include "yyjson.h"

#define MF_SRV_MAX_JSON_DEPTH 128

/* An object, of a body that is NUL-terminated; to be freed by yyjson_doc_free. NULL: the refusal
 * says why not. */
yyjson_doc *mf_srv_parse_body(const mf_srv_bytes *body, mf_srv_refusal *r);

#endif
