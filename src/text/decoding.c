/* SPDX-License-Identifier: MIT */
/* Loading "decoder": ByteLevel, or the steps of SentencePiece's vocabularies in an order in which
 * they mean what mf_decoding says. */
#include "text/decoding.h"

#include "text/bpe_chars.h"

static mf_status refuse(const mf_json *json, const char *field, const char *expected,
                        mf_error *error)
{
    return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: decoder.%s: expected %s", json->path, field,
                   expected);
}

/* Steps so far. */
typedef struct decoder_loader {
    const mf_json *json;
    mf_decoding *out;
    bool fuses;
    mf_error *error;
} decoder_loader;

/* What bytes were joined to before is as good as what tokens have. */
static void unmark(mf_decoding *d)
{
    d->unmarks_blanks = true;
    d->unmarks_bytes = d->joins_bytes;
}

static mf_status take_replace(const decoder_loader *l, yyjson_val *step)
{
    if (!yyjson_equals_str(yyjson_obj_get(yyjson_obj_get(step, "pattern"), "String"),
                           MF_BLANK_MARK) ||
        !yyjson_equals_str(yyjson_obj_get(step, "content"), " "))
        return refuse(l->json, "pattern", "{\"String\": \"" MF_BLANK_MARK "\"} with content \" \"",
                      l->error);
    if (l->out->strip != MF_STRIP_NONE)
        return refuse(l->json, "Replace", "one before a Strip and without a Metaspace", l->error);
    unmark(l->out);
    return MF_OK;
}

/* It works on each token by itself, unless they were joined. */
static mf_status take_strip(const decoder_loader *l, yyjson_val *step)
{
    const uint64_t start = yyjson_get_uint(yyjson_obj_get(step, "start"));
    if (!l->fuses || !yyjson_equals_str(yyjson_obj_get(step, "content"), " ") || start > 1 ||
        yyjson_get_uint(yyjson_obj_get(step, "stop")) != 0)
        return refuse(l->json, "Strip", "content \" \", start 0 or 1 and stop 0, behind a Fuse",
                      l->error);
    if (start == 1)
        l->out->strip = MF_STRIP_BLANK;
    return MF_OK;
}

/* add_prefix_space and prepend_scheme as of the pre-tokenizer; their default is to prepend. */
static mf_status take_metaspace(const decoder_loader *l, yyjson_val *step)
{
    yyjson_val *adds = yyjson_obj_get(step, "add_prefix_space");
    const bool never =
        yyjson_is_false(adds) || yyjson_equals_str(yyjson_obj_get(step, "prepend_scheme"), "never");
    if (l->fuses || l->out->unmarks_blanks ||
        !yyjson_equals_str(yyjson_obj_get(step, "replacement"), MF_BLANK_MARK))
        return refuse(l->json, "Metaspace",
                      "replacement \"" MF_BLANK_MARK "\", before a Fuse and without a Replace",
                      l->error);
    unmark(l->out);
    l->out->strip = never ? MF_STRIP_NONE : MF_STRIP_FIRST_TOKEN;
    return MF_OK;
}

static mf_status take_step(decoder_loader *l, yyjson_val *step)
{
    yyjson_val *type = yyjson_obj_get(step, "type");
    if (yyjson_equals_str(type, "Replace"))
        return take_replace(l, step);
    if (yyjson_equals_str(type, "Strip"))
        return take_strip(l, step);
    if (yyjson_equals_str(type, "Metaspace"))
        return take_metaspace(l, step);
    if (yyjson_equals_str(type, "ByteFallback") && !l->fuses) {
        l->out->joins_bytes = true;
        return MF_OK;
    }
    if (yyjson_equals_str(type, "Fuse")) {
        l->fuses = true;
        return MF_OK;
    }
    return mf_fail(l->error, MF_ERR_UNSUPPORTED,
                   "%s: decoder.type: \"%.64s\", expected ByteLevel, Metaspace, or Replace, "
                   "ByteFallback, Fuse and Strip",
                   l->json->path, yyjson_is_str(type) ? yyjson_get_str(type) : "?");
}

mf_status mf_decoding_load(mf_decoding *d, const mf_json *json, mf_error *error)
{
    yyjson_val *root = yyjson_obj_get(json->root, "decoder");
    yyjson_val *steps = yyjson_obj_get(root, "decoders");
    const bool is_sequence = yyjson_equals_str(yyjson_obj_get(root, "type"), "Sequence");
    decoder_loader l = {.json = json, .out = d, .error = error};
    if (is_sequence && yyjson_arr_size(steps) == 1)
        root = yyjson_arr_get_first(steps);
    d->is_byte_level = yyjson_equals_str(yyjson_obj_get(root, "type"), "ByteLevel");
    if (d->is_byte_level)
        return MF_OK;
    if (!is_sequence || yyjson_arr_size(steps) == 1) {
        MF_TRY(take_step(&l, root));
    } else {
        size_t i, n;
        yyjson_val *step;
        yyjson_arr_foreach(steps, i, n, step)
        {
            MF_TRY(take_step(&l, step));
        }
    }
    return MF_OK;
}
