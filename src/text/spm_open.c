/* SPDX-License-Identifier: MIT */
/*
 * A tokenizer from tokenizer.model and what lies beside it: added_tokens_decoder of
 * tokenizer_config.json, added_tokens.json and special_tokens_map.json, which add tokens and say
 * which are special.
 */
#include "text/bpe_chars.h"
#include "text/json_flags.h"
#include "text/spm_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WHERE_BYTES 512
#define MAX_NAME_BYTES ((size_t)1 << 10)
/* Ids after the pieces may have gaps, but not so many that a small file asks for much memory. */
#define MAX_GAP_IDS ((size_t)1 << 16)

typedef struct spm_opener {
    const mf_spm_files *files;
    mf_spm_model model;
    mf_spm_sizes sizes;
    mf_tokenizer *t;
    mf_error *error;
} spm_opener;

static yyjson_val *field(const mf_json *json, const char *name)
{
    return json != NULL ? yyjson_obj_get(json->root, name) : NULL;
}

static yyjson_val *decoder_of(const spm_opener *o)
{
    return field(o->files->config, "added_tokens_decoder");
}

/* -------------------------------------------------------------------------------- what it says --
 */

static mf_status check_model(const spm_opener *o)
{
    static const char *const kinds[] = {"of no kind that is known", "UNIGRAM", "BPE", "WORD",
                                        "CHAR"};
    const mf_spm_model *m = &o->model;
    const char *path = o->files->path;
    if (m->kind != MF_SPM_BPE && m->kind != MF_SPM_UNIGRAM)
        return mf_fail(o->error, MF_ERR_UNSUPPORTED,
                       "%s: trainer_spec.model_type: %s, expected BPE or UNIGRAM (a tokenizer.json "
                       "is read instead where there is one)",
                       path, kinds[m->kind]);
    if (m->blanks_are_suffixes)
        return mf_fail(o->error, MF_ERR_UNSUPPORTED,
                       "%s: trainer_spec.treat_whitespace_as_suffix: expected false", path);
    if (!m->marks_blanks)
        return mf_fail(o->error, MF_ERR_UNSUPPORTED,
                       "%s: normalizer_spec.escape_whitespaces: expected true", path);
    if (m->has_denormalizer)
        return mf_fail(o->error, MF_ERR_UNSUPPORTED,
                       "%s: denormalizer_spec.precompiled_charsmap: expected none", path);
    return MF_OK;
}

static mf_status check_object(const mf_json *json, mf_error *error)
{
    if (json != NULL && !yyjson_is_obj(json->root))
        return mf_fail(error, MF_ERR_FORMAT, "%s: expected an object", json->path);
    return MF_OK;
}

static bool read_id(const char *text, size_t *id)
{
    char *end;
    if (text[0] < '0' || text[0] > '9' || strlen(text) > 9)
        return false;
    *id = (size_t)strtoul(text, &end, 10);
    return *end == '\0';
}

static mf_status count_name(spm_opener *o, const char *path, const char *name, size_t n_name,
                            size_t id)
{
    const size_t most = o->model.n_pieces + MAX_GAP_IDS;
    if (n_name == 0 || n_name > MAX_NAME_BYTES)
        return mf_fail(o->error, MF_ERR_FORMAT,
                       "%s: added tokens: \"%.64s\": expected a name of 1 to %zu bytes", path, name,
                       MAX_NAME_BYTES);
    if (id >= most)
        return mf_fail(o->error, MF_ERR_FORMAT,
                       "%s: added tokens: \"%.64s\": expected an id below %zu", path, name, most);
    o->sizes.n_added++;
    o->sizes.n_extra_bytes += n_name;
    if (id >= o->model.n_pieces + o->sizes.n_extra)
        o->sizes.n_extra = id + 1 - o->model.n_pieces;
    return MF_OK;
}

/* Of added_tokens_decoder {"ID": {"content": ...}} and of added_tokens.json {"NAME": ID}. */
static mf_status count_added(spm_opener *o)
{
    yyjson_val *decoder = decoder_of(o);
    size_t i, n, id = 0;
    yyjson_val *key, *value;
    if (decoder != NULL && !yyjson_is_obj(decoder))
        return mf_fail(o->error, MF_ERR_FORMAT, "%s: added_tokens_decoder: expected an object",
                       o->files->config->path);
    if (decoder != NULL) {
        yyjson_obj_foreach(decoder, i, n, key, value)
        {
            yyjson_val *content = yyjson_obj_get(value, "content");
            if (!read_id(yyjson_get_str(key), &id) || !yyjson_is_str(content))
                return mf_fail(o->error, MF_ERR_FORMAT,
                               "%s: added_tokens_decoder: \"%.32s\", expected an id with an object "
                               "whose content is a string",
                               o->files->config->path, yyjson_get_str(key));
            MF_TRY(count_name(o, o->files->config->path, yyjson_get_str(content),
                              yyjson_get_len(content), id));
        }
    }
    if (o->files->added == NULL)
        return MF_OK;
    yyjson_obj_foreach(o->files->added->root, i, n, key, value)
    {
        id = yyjson_is_uint(value) && yyjson_get_uint(value) < SIZE_MAX
                 ? (size_t)yyjson_get_uint(value)
                 : SIZE_MAX;
        MF_TRY(count_name(o, o->files->added->path, yyjson_get_str(key), yyjson_get_len(key), id));
    }
    return MF_OK;
}

/* Names in the fields that name one token or several. */
typedef mf_status (*name_fn)(spm_opener *o, const char *name, size_t n_name);

static mf_status each_special(spm_opener *o, const mf_json *json, name_fn fn)
{
    static const char *const names[] = {
        "bos_token", "eos_token", "unk_token",  "sep_token",
        "pad_token", "cls_token", "mask_token", "additional_special_tokens"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        yyjson_val *value = field(json, names[k]);
        const size_t n = yyjson_is_arr(value) ? yyjson_arr_size(value) : value != NULL;
        for (size_t i = 0; i < n; i++) {
            yyjson_val *item = yyjson_is_arr(value) ? yyjson_arr_get(value, i) : value;
            if (yyjson_is_obj(item))
                item = yyjson_obj_get(item, "content");
            if (yyjson_is_str(item) && yyjson_get_len(item) > 0)
                MF_TRY(fn(o, yyjson_get_str(item), yyjson_get_len(item)));
        }
    }
    return MF_OK;
}

static mf_status count_special(spm_opener *o, const char *name, size_t n_name)
{
    (void)name;
    (void)n_name;
    o->sizes.n_added++;
    return MF_OK;
}

static mf_status measure(spm_opener *o)
{
    mf_spm_piece piece;
    o->sizes.n_pieces = o->model.n_pieces;
    o->sizes.n_piece_bytes = o->model.n_piece_bytes;
    for (size_t at = 0; mf_spm_model_next(&o->model, &at, &piece);)
        o->sizes.n_added += mf_spm_is_added(piece.type);
    MF_TRY(count_added(o));
    MF_TRY(each_special(o, o->files->config, count_special));
    MF_TRY(each_special(o, o->files->specials, count_special));
    if (o->sizes.n_added > MF_SPM_MAX_ADDED)
        return mf_fail(o->error, MF_ERR_UNSUPPORTED,
                       "%s: %zu control, user-defined and added tokens, expected at most %zu",
                       o->files->path, o->sizes.n_added, MF_SPM_MAX_ADDED);
    return MF_OK;
}

/* ------------------------------------------------------------------------------- what it takes --
 */

static bool has_name(const mf_bpe *bpe, uint32_t id, const char *name, size_t n_name)
{
    return id < bpe->n_ids && bpe->pieces[id].n_bytes == n_name &&
           memcmp(bpe->bytes + bpe->pieces[id].offset, name, n_name) == 0;
}

/* The added token of a name; the id is the file's, which then has this name. */
static mf_status take_name(spm_opener *o, const char *name, size_t n_name, uint32_t id,
                           mf_added_token **out)
{
    mf_added_tokens *added = &o->t->added;
    mf_bpe *bpe = &o->t->bpe;
    const mf_added_token *known = mf_added_tokens_find(added, name, n_name);
    if (known != NULL) {
        *out = &added->tokens[known - added->tokens];
        return MF_OK;
    }
    if (!has_name(bpe, id, name, n_name))
        MF_TRY(mf_bpe_add_literal(bpe, id, name, n_name, o->error));
    return mf_added_tokens_add(added, id, name, n_name, out, o->error);
}

static mf_status take_decoder(spm_opener *o)
{
    size_t i, n, id = 0;
    yyjson_val *key, *value;
    if (decoder_of(o) == NULL)
        return MF_OK;
    yyjson_obj_foreach(decoder_of(o), i, n, key, value)
    {
        yyjson_val *content = yyjson_obj_get(value, "content");
        mf_added_token *token;
        MF_TRY(mf_json_flags_check_added(o->files->config->path, yyjson_get_str(key), value,
                                         o->error));
        (void)read_id(yyjson_get_str(key), &id);
        MF_TRY(
            take_name(o, yyjson_get_str(content), yyjson_get_len(content), (uint32_t)id, &token));
        token->is_special = yyjson_get_bool(yyjson_obj_get(value, "special"));
        token->single_word = yyjson_get_bool(yyjson_obj_get(value, "single_word"));
        token->strips_left = yyjson_get_bool(yyjson_obj_get(value, "lstrip"));
        token->strips_right = yyjson_get_bool(yyjson_obj_get(value, "rstrip"));
        token->is_normalized = false;
        o->t->bpe.pieces[token->id].is_special = token->is_special;
    }
    return MF_OK;
}

static mf_status take_added(spm_opener *o)
{
    size_t i, n;
    yyjson_val *key, *value;
    if (o->files->added == NULL)
        return MF_OK;
    yyjson_obj_foreach(o->files->added->root, i, n, key, value)
    {
        mf_added_token *token;
        MF_TRY(take_name(o, yyjson_get_str(key), yyjson_get_len(key),
                         (uint32_t)yyjson_get_uint(value), &token));
        token->is_normalized = false;
    }
    return MF_OK;
}

/* A name that no token has is none of them. */
static mf_status take_special(spm_opener *o, const char *name, size_t n_name)
{
    mf_buffer scratch;
    mf_added_token *token;
    mf_status status;
    if (mf_added_tokens_find(&o->t->added, name, n_name) == NULL) {
        mf_buffer_init(&scratch, &o->t->allocator);
        const uint32_t id = mf_bpe_find_key(&o->t->bpe, name, n_name, &scratch, o->error, &status);
        mf_buffer_free(&scratch);
        if (status != MF_OK || id == MF_BPE_NONE)
            return status;
        MF_TRY(take_name(o, name, n_name, id, &token));
    } else {
        MF_TRY(take_name(o, name, n_name, 0, &token));
    }
    token->is_special = true;
    token->is_normalized = false;
    o->t->bpe.pieces[token->id].is_special = 1;
    return MF_OK;
}

static mf_status take_pieces(spm_opener *o)
{
    const mf_spm_symbols symbols =
        o->model.kind == MF_SPM_UNIGRAM ? MF_SPM_AMONG_TOKENS : MF_SPM_IN_NORMALISED;
    mf_spm_piece piece;
    uint32_t id = 0;
    for (size_t at = 0; mf_spm_model_next(&o->model, &at, &piece); id++)
        MF_TRY(mf_spm_build_piece(o->t, id, &piece, symbols, o->error));
    if (!o->model.falls_to_bytes)
        for (size_t b = 0; b < 256; b++)
            o->t->bpe.byte_ids[b] = MF_BPE_NONE;
    if (o->model.kind != MF_SPM_UNIGRAM)
        return MF_OK;
    o->t->unigram.rounds_sums = true;
    o->t->unigram.falls_to_bytes = o->model.falls_to_bytes;
    return mf_spm_build_unigram(o->t, o->files->path, o->error);
}

/* What the model defines for its user is not normalised. */
static mf_status take_symbols(spm_opener *o)
{
    const mf_allocator *a = &o->t->allocator;
    mf_spm_piece piece;
    const size_t size = (o->sizes.n_added + 1) * sizeof(mf_prefix);
    mf_prefix *entries = mf_alloc(a, size);
    size_t n = 0;
    if (entries == NULL)
        return mf_fail_memory(o->error, size, "a vocabulary");
    for (size_t at = 0; mf_spm_model_next(&o->model, &at, &piece);)
        if (piece.type == MF_SPM_USER_DEFINED)
            entries[n++] = (mf_prefix){(const unsigned char *)piece.text.text,
                                       (uint32_t)piece.text.n_bytes, 0};
    const mf_status status = mf_prefix_tree_build(&o->t->spm.symbols, a, entries, n, o->error);
    mf_free(a, entries, size);
    return status;
}

/* An id of the model's own fields, where it is one of its pieces. */
static int32_t piece_id(const spm_opener *o, int32_t id)
{
    return id >= 0 && (size_t)id < o->model.n_pieces ? id : -1;
}

/* Llama's and Gemma's tokenizers put it there unless add_bos_token says otherwise. */
static bool adds_start(const spm_opener *o)
{
    yyjson_val *name = field(o->files->config, "tokenizer_class");
    const char *text = yyjson_is_str(name) ? yyjson_get_str(name) : "Llama";
    return strncmp(text, "Llama", 5) == 0 || strncmp(text, "CodeLlama", 9) == 0 ||
           strncmp(text, "Gemma", 5) == 0;
}

/* transformers' "legacy" is to begin each stretch between added tokens as a text is begun. */
static mf_prepend_scheme prepend_of(const spm_opener *o)
{
    if (!o->model.adds_blank || yyjson_is_false(field(o->files->config, "add_prefix_space")))
        return MF_PREPEND_NEVER;
    return yyjson_is_false(field(o->files->config, "legacy")) ? MF_PREPEND_FIRST
                                                              : MF_PREPEND_ALWAYS;
}

static mf_status set_behaviour(spm_opener *o)
{
    mf_tokenizer *t = o->t;
    const mf_spm_model *m = &o->model;
    const bool fills_unknown = !m->falls_to_bytes;
    t->spm.prepend = prepend_of(o);
    t->spm.removes_extra_blanks = m->removes_extra_blanks;
    t->spm.fuses_unknown = fills_unknown;
    /* A run of unknown characters may reach over a blank that is unknown itself. */
    if (fills_unknown && !mf_bpe_has(&t->bpe, (const unsigned char *)" ", 1))
        t->spm.cuts_words = false;
    t->bpe.cuts_before_unknown = !fills_unknown;
    MF_TRY(mf_bpe_index_characters(&t->bpe, o->error));
    t->decoding = (mf_decoding){.unmarks_blanks = true,
                                .joins_bytes = true,
                                .strip = m->removes_extra_blanks              ? MF_STRIP_MARKS
                                         : t->spm.prepend != MF_PREPEND_NEVER ? MF_STRIP_MARK
                                                                              : MF_STRIP_NONE};
    t->start_token = adds_start(o) ? piece_id(o, m->start_id) : -1;
    t->model_end = piece_id(o, m->end_id);
    char where[MAX_WHERE_BYTES];
    snprintf(where, sizeof where, "%.400s: normalizer_spec.precompiled_charsmap", o->files->path);
    return mf_charsmap_load(&t->spm.charsmap, &t->allocator, where, m->charsmap.text,
                            m->charsmap.n_bytes, o->error);
}

static mf_status load(spm_opener *o)
{
    const mf_spm_files *f = o->files;
    MF_TRY(mf_spm_model_read(&o->model, f->path, f->model, f->n_bytes, o->error));
    MF_TRY(check_model(o));
    MF_TRY(check_object(f->config, o->error));
    MF_TRY(check_object(f->added, o->error));
    MF_TRY(check_object(f->specials, o->error));
    MF_TRY(measure(o));
    MF_TRY(mf_spm_build_begin(o->t, &o->sizes, o->error));
    MF_TRY(take_pieces(o));
    MF_TRY(take_symbols(o));
    MF_TRY(take_decoder(o));
    MF_TRY(take_added(o));
    MF_TRY(each_special(o, f->config, take_special));
    MF_TRY(each_special(o, f->specials, take_special));
    mf_added_tokens_finish(&o->t->added);
    return set_behaviour(o);
}

mf_status mf_text_open_spm(const mf_spm_files *files, const mf_allocator *a, mf_tokenizer **out,
                           mf_error *error)
{
    spm_opener o = {.files = files, .t = mf_text_create(a), .error = error};
    if (o.t == NULL)
        return mf_fail_memory(error, sizeof *o.t, "a tokenizer");
    const mf_status status = load(&o);
    if (status == MF_OK)
        *out = o.t;
    else
        mf_text_close(&o.t);
    return status;
}
