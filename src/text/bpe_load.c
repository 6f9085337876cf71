/* SPDX-License-Identifier: MIT */
/* Builds the BPE tables from tokenizer.json's "model" object, which is checked whole: afterwards
 * every id in the tables is below n_ids. */
#include "text/bpe_load.h"

#include "base/checked.h"
#include "text/bpe_chars.h"
#include "text/bpe_tables.h"
#include "text/utf8.h"

#include <string.h>

#define MAX_ENTRIES ((size_t)1 << 24)
#define MAX_KEY_BYTES ((size_t)1 << 20)
/* Ids may have gaps, but not so many that a small file asks for much memory. */
#define MAX_GAP_IDS ((size_t)1 << 16)
#define ALPHABET_END 0x144u

/* The byte value that each character of the alphabet stands for, or -1. The printable Latin-1
 * characters stand for themselves; the other 68 bytes, in order, follow from U+0100 on. */
static void alphabet_init(int16_t alphabet[ALPHABET_END])
{
    uint32_t next = 0x100;
    for (uint32_t c = 0; c < ALPHABET_END; c++)
        alphabet[c] = -1;
    for (uint32_t b = 0; b < 256; b++) {
        bool prints = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        alphabet[prints ? b : next++] = (int16_t)b;
    }
}

/* Writes the bytes that a key stands for (never more than the key has); false if a character is not
 * of the alphabet. The key is valid UTF-8: the JSON parser saw to it. */
static bool key_to_bytes(const int16_t *alphabet, const char *key, size_t n, unsigned char *out,
                         size_t *n_out)
{
    size_t used = 0;
    for (size_t i = 0; i < n; used++) {
        uint32_t c = (unsigned char)key[i++];
        if (c >= 0x80) {
            if (c < 0xC4 || c > 0xC5) { /* U+0100..U+017F; C2 and C3 are U+0080..U+00FF */
                if (c != 0xC2 && c != 0xC3)
                    return false;
            }
            if (i == n)
                return false;
            c = (c & 0x1F) << 6 | ((unsigned char)key[i++] & 0x3F);
        }
        if (c >= ALPHABET_END || alphabet[c] < 0)
            return false;
        out[used] = (unsigned char)alphabet[c];
    }
    *n_out = used;
    return true;
}

/* A key as it is kept, of either kind of vocabulary; false if it is raw. */
static bool keep_key(const mf_bpe *bpe, const int16_t *alphabet, const char *key, size_t n,
                     unsigned char *out, size_t *n_out)
{
    return bpe->of_characters ? mf_bpe_keep_key(bpe, key, n, out, n_out)
                              : key_to_bytes(alphabet, key, n, out, n_out);
}

/* A key's bytes in scratch, and whether they are raw. */
static mf_status key_bytes(const mf_bpe *bpe, const int16_t *alphabet, const char *key, size_t n,
                           mf_buffer *scratch, bool *is_raw, mf_error *error)
{
    scratch->n_bytes = 0;
    MF_TRY(mf_buffer_reserve(scratch, n, "a token", error));
    *is_raw = !keep_key(bpe, alphabet, key, n, scratch->data, &scratch->n_bytes);
    if (*is_raw)
        MF_TRY(mf_buffer_append(scratch, key, n, "a token", error));
    return MF_OK;
}

uint32_t mf_bpe_find_key(const mf_bpe *bpe, const char *key, size_t n_bytes, mf_buffer *scratch,
                         mf_error *error, mf_status *status)
{
    int16_t alphabet[ALPHABET_END];
    bool is_raw;
    unsigned char byte;
    *status = MF_OK;
    if (bpe->has_byte_keys && mf_bpe_is_byte_key(key, n_bytes, &byte))
        return bpe->byte_ids[byte];
    alphabet_init(alphabet);
    *status = key_bytes(bpe, alphabet, key, n_bytes, scratch, &is_raw, error);
    if (*status != MF_OK)
        return MF_BPE_NONE;
    return mf_bpe_find(bpe, scratch->data, scratch->n_bytes, is_raw);
}

mf_status mf_bpe_add_literal(mf_bpe *bpe, uint32_t id, const char *text, size_t n_bytes,
                             mf_error *error)
{
    if (id >= bpe->pieces_capacity || n_bytes > bpe->bytes_capacity - bpe->n_bytes)
        return mf_fail(error, MF_ERR_FORMAT, "added_tokens: id %u does not fit", id);
    const bool has_blank = memchr(text, ' ', n_bytes) != NULL;
    if (bpe->marks_blanks)
        MF_TRY(mf_bpe_write_text(bpe, text, n_bytes, &n_bytes, error));
    else
        memcpy(bpe->bytes + bpe->n_bytes, text, n_bytes);
    bpe->pieces[id] = (mf_piece){.offset = (uint32_t)bpe->n_bytes,
                                 .n_bytes = (uint32_t)n_bytes,
                                 .is_raw = !bpe->marks_blanks || has_blank,
                                 .is_special = bpe->pieces[id].is_special};
    bpe->n_bytes += n_bytes;
    if (id >= bpe->n_ids)
        bpe->n_ids = (size_t)id + 1;
    return MF_OK;
}

mf_status mf_bpe_keep_keys(mf_bpe *bpe, mf_error *error)
{
    const size_t n_bytes = bpe->pieces_capacity * sizeof *bpe->keys;
    if (bpe->keys != NULL)
        return MF_OK;
    bpe->keys = mf_alloc_array(&bpe->allocator, bpe->pieces_capacity, sizeof *bpe->keys);
    if (bpe->keys == NULL)
        return mf_fail_memory(error, n_bytes, "the vocabulary");
    memcpy(bpe->keys, bpe->pieces, n_bytes);
    return MF_OK;
}

static void insert_slot(mf_bpe *bpe, uint32_t id)
{
    const mf_piece *p = &bpe->pieces[id];
    size_t i = mf_bpe_hash(bpe->bytes + p->offset, p->n_bytes, p->is_raw) & (bpe->n_slots - 1);
    while (bpe->slots[i] != MF_BPE_NONE)
        i = (i + 1) & (bpe->n_slots - 1);
    bpe->slots[i] = id;
}

mf_status mf_bpe_measure_key(const mf_json *json, yyjson_val *key, mf_bpe_sizes *sizes,
                             mf_error *error)
{
    if (yyjson_get_len(key) > MAX_KEY_BYTES)
        return mf_fail(error, MF_ERR_FORMAT, "%s: model.vocab: a token of %zu bytes", json->path,
                       yyjson_get_len(key));
    sizes->n_bytes += yyjson_get_len(key);
    return MF_OK;
}

/* First pass over the vocabulary: highest id and total length. */
static mf_status measure_vocab(const mf_json *json, yyjson_val *vocab, mf_bpe_sizes *sizes,
                               mf_error *error)
{
    size_t i, n;
    yyjson_val *key, *value;
    uint64_t highest = 0;
    yyjson_obj_foreach(vocab, i, n, key, value)
    {
        if (!yyjson_is_uint(value) || yyjson_get_uint(value) >= MAX_ENTRIES + MAX_GAP_IDS)
            return mf_fail(error, MF_ERR_FORMAT, "%s: model.vocab: \"%.64s\" has no usable id",
                           json->path, yyjson_get_str(key));
        MF_TRY(mf_bpe_measure_key(json, key, sizes, error));
        if (yyjson_get_uint(value) > highest)
            highest = yyjson_get_uint(value);
    }
    if (n != 0 && highest >= 2 * n + MAX_GAP_IDS)
        return mf_fail(error, MF_ERR_FORMAT, "%s: model.vocab: id %llu in a vocabulary of %zu",
                       json->path, (unsigned long long)highest, n);
    sizes->n_entries = n;
    sizes->n_ids = (size_t)highest + 1;
    return MF_OK;
}

/* What added_tokens may need on top: one id each, and their text; where it is shown as it is after
 * normalising, which may make it three times as long, with a mark in front, this too. */
static void measure_added(const mf_bpe *bpe, const mf_json *json, size_t *n_ids, size_t *n_bytes)
{
    size_t i, n;
    yyjson_val *token;
    yyjson_arr_foreach(yyjson_obj_get(json->root, "added_tokens"), i, n, token)
    {
        *n_ids += 1;
        const size_t n_content = yyjson_get_len(yyjson_obj_get(token, "content"));
        *n_bytes += bpe->marks_blanks ? 4 * n_content + MF_BLANK_MARK_BYTES : n_content;
    }
}

static size_t table_size(size_t n)
{
    size_t size = 16;
    while (size < n * 2)
        size *= 2;
    return size;
}

mf_status mf_bpe_reserve_json(mf_bpe *bpe, const mf_json *json, mf_bpe_sizes *sizes,
                              mf_error *error)
{
    size_t n_ids = sizes->n_ids, n_bytes = sizes->n_bytes;
    if (sizes->n_entries == 0 || sizes->n_entries > MAX_ENTRIES)
        return mf_fail(error, MF_ERR_FORMAT, "%s: model.vocab: %zu tokens, expected 1 to %zu",
                       json->path, sizes->n_entries, MAX_ENTRIES);
    if (n_bytes > UINT32_MAX / 2)
        return mf_fail(error, MF_ERR_FORMAT, "%s: model.vocab: %zu bytes, expected at most %u",
                       json->path, n_bytes, UINT32_MAX / 2);
    bpe->n_ids = n_ids;
    /* Added tokens are numbered from the number of entries, or from the ids they share. */
    if (n_ids < sizes->n_entries)
        n_ids = sizes->n_entries;
    measure_added(bpe, json, &n_ids, &n_bytes);
    return mf_bpe_reserve(bpe, sizes->n_entries, n_ids, n_bytes, error);
}

mf_status mf_bpe_reserve(mf_bpe *bpe, size_t n_entries, size_t n_ids, size_t n_bytes,
                         mf_error *error)
{
    bpe->n_entries = n_entries;
    bpe->pieces_capacity = n_ids;
    bpe->bytes_capacity = n_bytes;
    bpe->n_slots = table_size(n_entries);
    bpe->pieces = mf_alloc_array(&bpe->allocator, n_ids, sizeof *bpe->pieces);
    bpe->bytes = mf_alloc(&bpe->allocator, n_bytes);
    bpe->slots = mf_alloc_array(&bpe->allocator, bpe->n_slots, sizeof *bpe->slots);
    if (bpe->pieces == NULL || bpe->bytes == NULL || bpe->slots == NULL)
        return mf_fail_memory(error, n_bytes + n_ids * sizeof *bpe->pieces, "the vocabulary");
    for (size_t i = 0; i < bpe->n_slots; i++)
        bpe->slots[i] = MF_BPE_NONE;
    return MF_OK;
}

void mf_bpe_take_token(mf_bpe *bpe, uint32_t id, size_t n_bytes, bool is_raw)
{
    bpe->pieces[id] = (mf_piece){(uint32_t)bpe->n_bytes, (uint32_t)n_bytes, is_raw, 0};
    bpe->n_bytes += n_bytes;
    insert_slot(bpe, id);
}

bool mf_bpe_has(const mf_bpe *bpe, const unsigned char *bytes, size_t n_bytes)
{
    return mf_bpe_find(bpe, bytes, n_bytes, false) != MF_BPE_NONE;
}

bool mf_bpe_index_bytes(mf_bpe *bpe)
{
    bool has_all = true;
    for (uint32_t b = 0; b < 256; b++) {
        unsigned char byte = (unsigned char)b;
        bpe->byte_ids[b] = mf_bpe_find(bpe, &byte, 1, false);
        has_all = has_all && bpe->byte_ids[b] != MF_BPE_NONE;
    }
    return has_all;
}

/* A byte's token has an id and no name. */
static bool take_byte(mf_bpe *bpe, uint32_t id, const char *name, size_t n_name)
{
    unsigned char *to = bpe->bytes + bpe->n_bytes;
    if (!bpe->has_byte_keys || !mf_bpe_is_byte_key(name, n_name, to))
        return false;
    bpe->byte_ids[*to] = id;
    bpe->pieces[id] = (mf_piece){(uint32_t)bpe->n_bytes++, 1, 1, 0};
    return true;
}

mf_status mf_bpe_take_key(mf_bpe *bpe, const mf_json *json, const int16_t *alphabet,
                          yyjson_val *key, uint32_t id, mf_error *error)
{
    const char *name = yyjson_get_str(key);
    size_t n_name = yyjson_get_len(key), n_bytes = 0;
    unsigned char *to = bpe->bytes + bpe->n_bytes;
    if (bpe->pieces[id].n_bytes != 0)
        return mf_fail(error, MF_ERR_FORMAT, "%s: model.vocab: id %u is given twice", json->path,
                       id);
    if (take_byte(bpe, id, name, n_name))
        return MF_OK;
    bool is_raw = !keep_key(bpe, alphabet, name, n_name, to, &n_bytes);
    if (is_raw)
        memcpy(to, name, n_bytes = n_name);
    if (n_bytes == 0)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: model.vocab: an empty token", json->path);
    if (mf_bpe_find(bpe, to, n_bytes, is_raw) != MF_BPE_NONE)
        return mf_fail(error, MF_ERR_FORMAT, "%s: model.vocab: \"%.64s\" is listed twice",
                       json->path, name);
    mf_bpe_take_token(bpe, id, n_bytes, is_raw);
    return MF_OK;
}

static mf_status load_vocab(mf_bpe *bpe, const mf_json *json, const int16_t *alphabet,
                            mf_error *error)
{
    yyjson_val *vocab = yyjson_obj_get(yyjson_obj_get(json->root, "model"), "vocab");
    if (!yyjson_is_obj(vocab))
        return mf_fail(error, MF_ERR_FORMAT, "%s: model.vocab: expected an object", json->path);
    mf_bpe_sizes sizes = {0};
    MF_TRY(measure_vocab(json, vocab, &sizes, error));
    MF_TRY(mf_bpe_reserve_json(bpe, json, &sizes, error));
    size_t i, n;
    yyjson_val *key, *value;
    yyjson_obj_foreach(vocab, i, n, key, value)
    {
        MF_TRY(mf_bpe_take_key(bpe, json, alphabet, key, (uint32_t)yyjson_get_uint(value), error));
    }
    return MF_OK;
}

/* The two sides of a merge as the file has them. */
typedef struct merge_sides {
    const char *text[2];
    size_t n[2];
} merge_sides;

/* From ["a", "b"] or "a b". */
static bool read_sides(yyjson_val *merge, merge_sides *out)
{
    if (yyjson_is_str(merge)) {
        const char *text = yyjson_get_str(merge);
        size_t n = yyjson_get_len(merge);
        const char *space = memchr(text, ' ', n);
        if (space == NULL)
            return false;
        out->text[0] = text;
        out->n[0] = (size_t)(space - text);
        out->text[1] = space + 1;
        out->n[1] = n - out->n[0] - 1;
        return memchr(out->text[1], ' ', out->n[1]) == NULL;
    }
    if (!yyjson_is_arr(merge) || yyjson_arr_size(merge) != 2)
        return false;
    for (size_t i = 0; i < 2; i++) {
        yyjson_val *side = yyjson_arr_get(merge, i);
        if (!yyjson_is_str(side))
            return false;
        out->text[i] = yyjson_get_str(side);
        out->n[i] = yyjson_get_len(side);
    }
    return true;
}

static bool piece_is(const mf_bpe *bpe, uint32_t id, const unsigned char *bytes, size_t n_bytes)
{
    return id < bpe->n_ids && bpe->pieces[id].n_bytes == n_bytes && !bpe->pieces[id].is_raw &&
           memcmp(bpe->bytes + bpe->pieces[id].offset, bytes, n_bytes) == 0;
}

/* Merges under way. */
typedef struct merge_loader {
    mf_bpe *bpe;
    const int16_t *alphabet;
    mf_buffer *scratch;
    uint32_t guess; /* the next joined token by the file's usual order: it saves a lookup */
} merge_loader;

/* The ids of a merge's sides and of what they join to. Raw keys never meet a merge, so `skip` is
 * set for them. */
static mf_status resolve_merge(const merge_loader *l, const merge_sides *sides, mf_merge *out,
                               bool *skip, mf_error *error)
{
    const mf_bpe *bpe = l->bpe;
    mf_buffer *scratch = l->scratch;
    size_t n_left = 0, n_right = 0;
    scratch->n_bytes = 0;
    MF_TRY(mf_buffer_reserve(scratch, sides->n[0] + sides->n[1], "a merge", error));
    *skip = true;
    if (!keep_key(bpe, l->alphabet, sides->text[0], sides->n[0], scratch->data, &n_left) ||
        !keep_key(bpe, l->alphabet, sides->text[1], sides->n[1], scratch->data + n_left, &n_right))
        return MF_OK;
    *skip = false;
    size_t n = n_left + n_right;
    out->left = mf_bpe_find(bpe, scratch->data, n_left, false);
    out->right = mf_bpe_find(bpe, scratch->data + n_left, n_right, false);
    out->merged = piece_is(bpe, l->guess, scratch->data, n)
                      ? l->guess
                      : mf_bpe_find(bpe, scratch->data, n, false);
    return MF_OK;
}

static void insert_merge(mf_bpe *bpe, mf_merge merge)
{
    size_t i = mf_bpe_hash_pair(merge.left, merge.right) & (bpe->n_merge_slots - 1);
    while (bpe->merges[i].left != MF_BPE_NONE &&
           (bpe->merges[i].left != merge.left || bpe->merges[i].right != merge.right))
        i = (i + 1) & (bpe->n_merge_slots - 1);
    bpe->merges[i] = merge; /* of a pair listed twice the last counts */
}

static mf_status load_merges(mf_bpe *bpe, const mf_json *json, const int16_t *alphabet,
                             mf_buffer *scratch, mf_error *error)
{
    yyjson_val *merges = yyjson_obj_get(yyjson_obj_get(json->root, "model"), "merges");
    if (!yyjson_is_arr(merges) || yyjson_arr_size(merges) > MAX_ENTRIES)
        return mf_fail(error, MF_ERR_FORMAT, "%s: model.merges: expected an array of at most %zu",
                       json->path, MAX_ENTRIES);
    bpe->n_merge_slots = table_size(yyjson_arr_size(merges));
    bpe->merges = mf_alloc_array(&bpe->allocator, bpe->n_merge_slots, sizeof *bpe->merges);
    if (bpe->merges == NULL)
        return mf_fail_memory(error, bpe->n_merge_slots * sizeof *bpe->merges, "the merges");
    for (size_t i = 0; i < bpe->n_merge_slots; i++)
        bpe->merges[i].left = MF_BPE_NONE;
    size_t i, n;
    yyjson_val *item;
    merge_loader loader = {bpe, alphabet, scratch, 0};
    yyjson_arr_foreach(merges, i, n, item)
    {
        merge_sides sides;
        mf_merge merge = {.rank = (uint32_t)i};
        bool skip;
        if (!read_sides(item, &sides))
            return mf_fail(error, MF_ERR_FORMAT,
                           "%s: model.merges[%zu]: expected \"a b\" or [\"a\", \"b\"]", json->path,
                           i);
        MF_TRY(resolve_merge(&loader, &sides, &merge, &skip, error));
        if (skip)
            continue;
        if (merge.left == MF_BPE_NONE || merge.right == MF_BPE_NONE || merge.merged == MF_BPE_NONE)
            return mf_fail(error, MF_ERR_FORMAT,
                           "%s: model.merges[%zu]: \"%.*s\" + \"%.*s\" is not in model.vocab",
                           json->path, i, (int)(sides.n[0] > 64 ? 64 : sides.n[0]), sides.text[0],
                           (int)(sides.n[1] > 64 ? 64 : sides.n[1]), sides.text[1]);
        loader.guess = merge.merged + 1;
        insert_merge(bpe, merge);
    }
    return MF_OK;
}

static bool is_absent_or_empty(yyjson_val *value)
{
    return value == NULL || yyjson_is_null(value) ||
           (yyjson_is_str(value) && yyjson_get_len(value) == 0);
}

static bool has_bytes(const mf_bpe *bpe)
{
    for (size_t b = 0; b < 256; b++)
        if (bpe->byte_ids[b] == MF_BPE_NONE)
            return false;
    return true;
}

mf_status mf_bpe_fail_fallback(const mf_json *json, mf_error *error)
{
    return mf_fail(error, MF_ERR_UNSUPPORTED,
                   "%s: model.byte_fallback with a decoder that lacks ByteFallback, expected both "
                   "or none",
                   json->path);
}

/* What becomes of a character that is no token. */
static mf_status read_unknown(mf_bpe *bpe, const mf_json *json, mf_error *error)
{
    yyjson_val *model = yyjson_obj_get(json->root, "model");
    yyjson_val *name = yyjson_obj_get(model, "unk_token");
    mf_buffer scratch;
    mf_status status;
    bpe->fuses_unknown = yyjson_get_bool(yyjson_obj_get(model, "fuse_unk"));
    bpe->falls_to_bytes = yyjson_get_bool(yyjson_obj_get(model, "byte_fallback"));
    if (bpe->falls_to_bytes && !bpe->has_byte_keys)
        return mf_bpe_fail_fallback(json, error);
    bpe->cuts_before_unknown = is_absent_or_empty(name) || (bpe->falls_to_bytes && has_bytes(bpe));
    if (is_absent_or_empty(name))
        return MF_OK;
    if (!yyjson_is_str(name))
        return mf_fail(error, MF_ERR_FORMAT, "%s: model.unk_token: expected a string", json->path);
    mf_buffer_init(&scratch, &bpe->allocator);
    bpe->unknown =
        mf_bpe_find_key(bpe, yyjson_get_str(name), yyjson_get_len(name), &scratch, error, &status);
    mf_buffer_free(&scratch);
    if (status == MF_OK && bpe->unknown == MF_BPE_NONE)
        return mf_fail(error, MF_ERR_FORMAT, "%s: model.unk_token: \"%.64s\" is not in model.vocab",
                       json->path, yyjson_get_str(name));
    return status;
}

static mf_status check_options(mf_bpe *bpe, const mf_json *json, mf_error *error)
{
    yyjson_val *model = yyjson_obj_get(json->root, "model");
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < sizeof affixes / sizeof *affixes; i++) {
        yyjson_val *value = yyjson_obj_get(model, affixes[i]);
        if (!is_absent_or_empty(value))
            return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: model.%s: \"%.64s\", expected none",
                           json->path, affixes[i],
                           yyjson_is_str(value) ? yyjson_get_str(value) : "?");
    }
    yyjson_val *dropout = yyjson_obj_get(model, "dropout"); /* leaves merges out, at random */
    if (dropout != NULL && !yyjson_is_null(dropout) &&
        (!yyjson_is_num(dropout) || yyjson_get_num(dropout) != 0))
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: model.dropout: expected null or 0, by which the same text has the same "
                       "ids each time",
                       json->path);
    if (bpe->of_characters)
        return read_unknown(bpe, json, error);
    if (mf_bpe_index_bytes(bpe)) /* nothing is ever unknown, so neither option matters */
        return MF_OK;
    if (!is_absent_or_empty(yyjson_obj_get(model, "unk_token")))
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: model.unk_token with a vocabulary that lacks single bytes", json->path);
    if (yyjson_get_bool(yyjson_obj_get(model, "byte_fallback")))
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: model.byte_fallback with a vocabulary that lacks single bytes",
                       json->path);
    return MF_OK;
}

mf_status mf_bpe_load(mf_bpe *bpe, const mf_allocator *a, const mf_json *json, mf_error *error)
{
    bpe->allocator = *a;
    yyjson_val *model = yyjson_obj_get(json->root, "model");
    if (!yyjson_is_obj(model))
        return mf_fail(error, MF_ERR_FORMAT, "%s: model: expected an object", json->path);
    yyjson_val *type = yyjson_obj_get(model, "type"); /* absent in the oldest files */
    if (type != NULL && !yyjson_equals_str(type, "BPE"))
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: model.type: \"%.64s\", expected BPE or Unigram", json->path,
                       yyjson_is_str(type) ? yyjson_get_str(type) : "?");
    bpe->ignores_merges = yyjson_get_bool(yyjson_obj_get(model, "ignore_merges"));
    bpe->unknown = MF_BPE_NONE;
    for (size_t b = 0; b < 256; b++)
        bpe->byte_ids[b] = MF_BPE_NONE;
    int16_t alphabet[ALPHABET_END];
    alphabet_init(alphabet);
    MF_TRY(load_vocab(bpe, json, alphabet, error));
    MF_TRY(check_options(bpe, json, error));
    mf_buffer scratch;
    mf_buffer_init(&scratch, a);
    mf_status status = load_merges(bpe, json, alphabet, &scratch, error);
    mf_buffer_free(&scratch);
    return status == MF_OK && bpe->of_characters ? mf_bpe_index_characters(bpe, error) : status;
}

void mf_bpe_free(mf_bpe *bpe)
{
    const mf_allocator *a = &bpe->allocator;
    mf_free(a, bpe->bytes, bpe->bytes_capacity);
    mf_free(a, bpe->pieces, bpe->pieces_capacity * sizeof *bpe->pieces);
    mf_free(a, bpe->keys, bpe->pieces_capacity * sizeof *bpe->keys);
    mf_free(a, bpe->slots, bpe->n_slots * sizeof *bpe->slots);
    mf_free(a, bpe->merges, bpe->n_merge_slots * sizeof *bpe->merges);
    if (bpe->own_blanks != NULL)
        mf_free(a, bpe->own_blanks, bpe->bytes_capacity / 8 + 1);
    mf_free(a, bpe->joints, bpe->n_joint_bits / 8);
    *bpe = (mf_bpe){0};
}
