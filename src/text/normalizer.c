/* SPDX-License-Identifier: MIT */
/* The normalizer as a list of steps, each of which writes what the next reads. */
#include "text/normalizer.h"

#include "text/bpe_chars.h"

#include <string.h>

#define WHAT "normalised text"

/* ----------------------------------------------------------------------------------- loading -- */

static mf_status load_step(mf_normalizer *n, const mf_json *json, yyjson_val *step, mf_error *error)
{
    yyjson_val *type = yyjson_obj_get(step, "type");
    if (n->n_steps == MF_MAX_NORMAL_STEPS)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: normalizer: more than %d steps", json->path,
                       MF_MAX_NORMAL_STEPS);
    if (yyjson_equals_str(type, "NFC")) {
        n->steps[n->n_steps++] = MF_NORMAL_NFC;
        return MF_OK;
    }
    if (yyjson_equals_str(type, "Prepend")) {
        if (!yyjson_equals_str(yyjson_obj_get(step, "prepend"), MF_BLANK_MARK))
            return mf_fail(error, MF_ERR_UNSUPPORTED,
                           "%s: normalizer.prepend: expected \"" MF_BLANK_MARK "\"", json->path);
        n->steps[n->n_steps++] = MF_NORMAL_PREPEND_MARK;
        return MF_OK;
    }
    if (!yyjson_equals_str(type, "Replace"))
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: normalizer.type: \"%.64s\", expected NFC, Prepend or Replace",
                       json->path, yyjson_is_str(type) ? yyjson_get_str(type) : "?");
    if (!yyjson_equals_str(yyjson_obj_get(yyjson_obj_get(step, "pattern"), "String"), " ") ||
        !yyjson_equals_str(yyjson_obj_get(step, "content"), MF_BLANK_MARK))
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: normalizer.pattern: expected {\"String\": \" \"} with content "
                       "\"" MF_BLANK_MARK "\"",
                       json->path);
    n->steps[n->n_steps++] = MF_NORMAL_MARK_BLANKS;
    return MF_OK;
}

mf_status mf_normalizer_load(mf_normalizer *n, const mf_json *json, mf_error *error)
{
    yyjson_val *root = yyjson_obj_get(json->root, "normalizer");
    if (root == NULL || yyjson_is_null(root))
        return MF_OK;
    if (!yyjson_equals_str(yyjson_obj_get(root, "type"), "Sequence"))
        return load_step(n, json, root, error);
    size_t i, n_steps;
    yyjson_val *step;
    yyjson_arr_foreach(yyjson_obj_get(root, "normalizers"), i, n_steps, step)
    {
        MF_TRY(load_step(n, json, step, error));
    }
    return MF_OK;
}

bool mf_normalizer_has(const mf_normalizer *n, mf_normal_step step)
{
    for (size_t i = 0; i < n->n_steps; i++)
        if (n->steps[i] == step)
            return true;
    return false;
}

/* ----------------------------------------------------------------------------------- running -- */

void mf_normal_scratch_init(mf_normal_scratch *scratch, const mf_allocator *a)
{
    mf_nfc_scratch_init(&scratch->nfc, a);
    mf_buffer_init(&scratch->buffers[0], a);
    mf_buffer_init(&scratch->buffers[1], a);
}

void mf_normal_scratch_free(mf_normal_scratch *scratch)
{
    mf_nfc_scratch_free(&scratch->nfc);
    mf_buffer_free(&scratch->buffers[0]);
    mf_buffer_free(&scratch->buffers[1]);
}

static bool is_trivial(mf_normal_step step, const unsigned char *text, size_t n_bytes)
{
    switch (step) {
    case MF_NORMAL_NFC:
        return mf_nfc_is_trivial(text, n_bytes);
    case MF_NORMAL_MARK_BLANKS:
        return memchr(text, ' ', n_bytes) == NULL;
    case MF_NORMAL_PREPEND_MARK:
        break;
    }
    return false;
}

mf_status mf_normalise(const mf_normalizer *n, mf_normal_scratch *scratch,
                       const unsigned char **text, size_t *n_bytes, mf_error *error)
{
    size_t i_out = 0;
    for (size_t i = 0; *n_bytes > 0 && i < n->n_steps; i++) {
        mf_buffer *out = &scratch->buffers[i_out];
        if (is_trivial(n->steps[i], *text, *n_bytes))
            continue;
        out->n_bytes = 0;
        switch (n->steps[i]) {
        case MF_NORMAL_NFC:
            MF_TRY(mf_nfc(&scratch->nfc, *text, *n_bytes, out, error));
            break;
        case MF_NORMAL_MARK_BLANKS:
            MF_TRY(mf_blanks_mark(*text, *n_bytes, out, WHAT, error));
            break;
        case MF_NORMAL_PREPEND_MARK:
            MF_TRY(mf_buffer_append(out, MF_BLANK_MARK, MF_BLANK_MARK_BYTES, WHAT, error));
            MF_TRY(mf_buffer_append(out, *text, *n_bytes, WHAT, error));
            break;
        }
        *text = out->data;
        *n_bytes = out->n_bytes;
        i_out = 1 - i_out;
    }
    return MF_OK;
}
