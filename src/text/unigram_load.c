/* SPDX-License-Identifier: MIT */
/* Tokens and scores in the order of the ids. As the tokenizers package has it, every entry is
 * looked for in text: those of bytes by their names, too. */
#include "text/unigram_load.h"

#include "text/bpe_load.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

bool mf_unigram_is_in(const mf_json *json)
{
    return yyjson_equals_str(yyjson_obj_get(yyjson_obj_get(json->root, "model"), "type"),
                             "Unigram");
}

static mf_status check_entry(const mf_json *json, yyjson_val *entry, size_t i, mf_error *error)
{
    if (yyjson_arr_size(entry) != 2 || !yyjson_is_str(yyjson_arr_get(entry, 0)) ||
        !yyjson_is_num(yyjson_arr_get(entry, 1)) || isnan(yyjson_get_num(yyjson_arr_get(entry, 1))))
        return mf_fail(error, MF_ERR_FORMAT, "%s: model.vocab[%zu]: expected a token and its score",
                       json->path, i);
    return MF_OK;
}

static mf_status measure(const mf_json *json, yyjson_val *vocab, mf_bpe_sizes *sizes,
                         mf_error *error)
{
    size_t i, n;
    yyjson_val *entry;
    yyjson_arr_foreach(vocab, i, n, entry)
    {
        MF_TRY(check_entry(json, entry, i, error));
        MF_TRY(mf_bpe_measure_key(json, yyjson_arr_get(entry, 0), sizes, error));
    }
    sizes->n_entries = sizes->n_ids = yyjson_arr_size(vocab);
    return MF_OK;
}

/* unk_id may be null, or an entry. */
static mf_status read_unknown(mf_unigram *u, const mf_json *json, yyjson_val *model,
                              mf_error *error)
{
    yyjson_val *id = yyjson_obj_get(model, "unk_id");
    if (id == NULL || yyjson_is_null(id))
        return MF_OK;
    if (!yyjson_is_uint(id) || yyjson_get_uint(id) >= u->n_scores)
        return mf_fail(error, MF_ERR_FORMAT, "%s: model.unk_id: expected an id below %zu",
                       json->path, u->n_scores);
    u->unknown = (uint32_t)yyjson_get_uint(id);
    return MF_OK;
}

/* A number's digits as one whole number, which is to be multiplied by 10^*exponent; false: they are
 * too many. */
static bool read_digits(const char *text, size_t n_bytes, uint64_t *digits, int *exponent)
{
    bool is_behind = false;
    for (size_t i = 0; i < n_bytes; i++) {
        if (text[i] == 'e' || text[i] == 'E') {
            *exponent += (int)strtol(text + i + 1, NULL, 10);
            break;
        }
        is_behind = is_behind || text[i] == '.';
        if (text[i] < '0' || text[i] > '9')
            continue;
        if (*digits >= UINT64_MAX / 10)
            return false;
        *digits = *digits * 10 + (uint64_t)(text[i] - '0');
        *exponent -= is_behind;
    }
    return true;
}

/*
 * A score as the package reads it: its reader of JSON (serde_json) takes the digits for a whole
 * number and divides it by a power of ten, and rounds both. Of long numbers one in eight comes out
 * as the neighbour of what is written, which decides where sums are all but equal. The shortest
 * digits of a number are those that files have.
 */
static double score_of(yyjson_val *score)
{
    _Alignas(16) char memory[512];
    char power[16];
    yyjson_alc alc;
    size_t n = 0;
    uint64_t digits = 0;
    int exponent = 0;
    const double exact = yyjson_get_num(score);
    if (!yyjson_is_real(score))
        return exact;
    yyjson_alc_pool_init(&alc, memory, sizeof memory);
    const char *text = yyjson_val_write_opts(score, YYJSON_WRITE_NOFLAG, &alc, &n, NULL);
    if (text == NULL || !read_digits(text, n, &digits, &exponent) || exponent < -308 ||
        exponent > 308)
        return exact;
    snprintf(power, sizeof power, "1e%d", exponent < 0 ? -exponent : exponent);
    const double ten = strtod(power, NULL);
    const double read = exponent < 0 ? (double)digits / ten : (double)digits * ten;
    return !isfinite(read) ? exact : exact < 0 ? -read : read;
}

static mf_status take_entries(mf_unigram *u, mf_bpe *bpe, const mf_json *json, yyjson_val *vocab,
                              mf_error *error)
{
    size_t i, n;
    yyjson_val *entry;
    double least = INFINITY;
    yyjson_arr_foreach(vocab, i, n, entry)
    {
        u->scores[i] = score_of(yyjson_arr_get(entry, 1));
        least = fmin(least, u->scores[i]);
        MF_TRY(mf_bpe_take_key(bpe, json, NULL, yyjson_arr_get(entry, 0), (uint32_t)i, error));
    }
    u->unknown_score = least - MF_UNKNOWN_PENALTY;
    return MF_OK;
}

mf_status mf_unigram_load(mf_unigram *u, mf_bpe *bpe, const mf_allocator *a, const mf_json *json,
                          mf_error *error)
{
    yyjson_val *model = yyjson_obj_get(json->root, "model"),
               *vocab = yyjson_obj_get(model, "vocab");
    mf_bpe_sizes sizes = {0};
    bpe->allocator = *a;
    bpe->unknown = MF_BPE_NONE;
    for (size_t b = 0; b < 256; b++)
        bpe->byte_ids[b] = MF_BPE_NONE;
    if (!bpe->of_characters)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: model: Unigram behind a ByteLevel pre_tokenizer, expected BPE",
                       json->path);
    if (!yyjson_is_arr(vocab))
        return mf_fail(error, MF_ERR_FORMAT, "%s: model.vocab: expected an array", json->path);
    u->falls_to_bytes = yyjson_get_bool(yyjson_obj_get(model, "byte_fallback"));
    if (u->falls_to_bytes && !bpe->has_byte_keys)
        return mf_bpe_fail_fallback(json, error);
    MF_TRY(measure(json, vocab, &sizes, error));
    MF_TRY(mf_bpe_reserve_json(bpe, json, &sizes, error));
    MF_TRY(mf_unigram_reserve(u, a, sizes.n_ids, error));
    MF_TRY(take_entries(u, bpe, json, vocab, error));
    MF_TRY(read_unknown(u, json, model, error));
    return mf_unigram_finish(u, bpe, true, json->path, error);
}
