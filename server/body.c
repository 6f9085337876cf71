/* SPDX-License-Identifier: MIT */
/* Depth is looked at first: what follows may go down as deep as the text does. */
#include "body.h"

static bool is_too_deep(const char *text, size_t n_bytes)
{
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < n_bytes; i++) {
        char c = text[i];
        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > MF_SRV_MAX_JSON_DEPTH)
                return true;
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
    }
    return false;
}

yyjson_doc *mf_srv_parse_body(const mf_srv_bytes *body, mf_srv_refusal *r)
{
    yyjson_read_err error;
    if (is_too_deep(body->data, body->n_bytes)) {
        mf_srv_refuse(r, 400, "the body is JSON nested deeper than %d", MF_SRV_MAX_JSON_DEPTH);
        return NULL;
    }
    yyjson_doc *document =
        yyjson_read_opts(body->data, body->n_bytes, YYJSON_READ_NOFLAG, NULL, &error);
    if (!document) {
        mf_srv_refuse(r, 400, "the body is not valid JSON: %s at byte %zu", error.msg, error.pos);
        return NULL;
    }
    if (yyjson_is_obj(yyjson_doc_get_root(document)))
        return document;
    mf_srv_refuse(r, 400, "the body is not a JSON object");
    yyjson_doc_free(document);
    return NULL;
}
