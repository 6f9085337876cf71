/* SPDX-License-Identifier: MIT */
/* Opening a tokenizer and encoding text. */
#include "text/tokenizer.h"

#include "format/checkpoint_mistakes.h"
#include "text/gguf_text.h"
#include "text/nfc.h"
#include "text/tiktoken.h"
#include "text/utf8.h"

#include <errno.h>
#include <sys/stat.h>

#define MAX_TOKENIZER_BYTES ((size_t)256 << 20)
#define MAX_PATH_BYTES 4096
/* Of tokenization_kimi.py, in characters. */
#define MAX_PIECE_CHARS ((size_t)400000)
#define MAX_RUN_CHARS ((size_t)25000)

/* ----------------------------------------------------------------------------------- opening -- */

static mf_status load_normalizer_step(mf_tokenizer *t, const mf_json *json, yyjson_val *step,
                                      mf_error *error)
{
    yyjson_val *type = yyjson_obj_get(step, "type");
    if (!yyjson_equals_str(type, "NFC"))
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: normalizer.type: \"%.64s\", expected NFC",
                       json->path, yyjson_is_str(type) ? yyjson_get_str(type) : "?");
    t->uses_nfc = true;
    return MF_OK;
}

static mf_status load_normalizer(mf_tokenizer *t, const mf_json *json, mf_error *error)
{
    yyjson_val *root = yyjson_obj_get(json->root, "normalizer");
    if (root == NULL || yyjson_is_null(root))
        return MF_OK;
    if (!yyjson_equals_str(yyjson_obj_get(root, "type"), "Sequence"))
        return load_normalizer_step(t, json, root, error);
    size_t i, n;
    yyjson_val *step;
    yyjson_arr_foreach(yyjson_obj_get(root, "normalizers"), i, n, step)
    {
        MF_TRY(load_normalizer_step(t, json, step, error));
    }
    return MF_OK;
}

static mf_status check_decoder(const mf_json *json, mf_error *error)
{
    yyjson_val *root = yyjson_obj_get(json->root, "decoder");
    yyjson_val *type = yyjson_obj_get(root, "type");
    if (yyjson_equals_str(type, "Sequence")) {
        yyjson_val *decoders = yyjson_obj_get(root, "decoders");
        if (yyjson_arr_size(decoders) == 1)
            type = yyjson_obj_get(yyjson_arr_get_first(decoders), "type");
    }
    if (!yyjson_equals_str(type, "ByteLevel"))
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: decoder.type: \"%.64s\", expected ByteLevel",
                       json->path, yyjson_is_str(type) ? yyjson_get_str(type) : "?");
    return MF_OK;
}

mf_status mf_text_open_json(const mf_json *json, const mf_allocator *a, mf_tokenizer **out,
                            mf_error *error)
{
    if (!yyjson_is_obj(json->root))
        return mf_fail(error, MF_ERR_FORMAT, "%s: expected an object", json->path);
    mf_tokenizer *t = mf_alloc_zeroed(a, sizeof *t);
    if (t == NULL)
        return mf_fail_memory(error, sizeof *t, "a tokenizer");
    t->allocator = *a;
    t->start_token = -1;
    mf_status status;
    MF_TRY_GOTO(load_normalizer(t, json, error));
    MF_TRY_GOTO(mf_pretokenizer_load(&t->pretokenizer, a, json, error));
    MF_TRY_GOTO(check_decoder(json, error));
    MF_TRY_GOTO(mf_bpe_load(&t->bpe, a, json, error));
    MF_TRY_GOTO(mf_added_tokens_load(&t->added, a, json, t->uses_nfc, &t->bpe, error));
    mf_start_token_load(t, json);
    *out = t;
    return MF_OK;
fail:
    mf_text_close(&t);
    return status;
}

mf_status mf_text_open_tiktoken(const mf_tiktoken_files *files, const mf_allocator *a,
                                mf_tokenizer **out, mf_error *error)
{
    mf_tokenizer *t = mf_alloc_zeroed(a, sizeof *t);
    if (t == NULL)
        return mf_fail_memory(error, sizeof *t, "a tokenizer");
    t->allocator = *a;
    t->start_token = -1;
    t->cuts_runs = true;
    mf_status status;
    MF_TRY_GOTO(mf_pretokenizer_make(&t->pretokenizer, a, mf_kimi_pattern, error));
    MF_TRY_GOTO(mf_tiktoken_load(&t->bpe, &t->added, a, files, error));
    *out = t;
    return MF_OK;
fail:
    mf_text_close(&t);
    return status;
}

static mf_status open_json_file(const char *file, const mf_allocator *a, mf_tokenizer **out,
                                mf_error *error)
{
    mf_json json = {0};
    MF_TRY(mf_json_read(a, file, MAX_TOKENIZER_BYTES, &json, error));
    mf_status status = mf_text_open_json(&json, a, out, error);
    mf_json_free(&json);
    return status;
}

static mf_status open_tiktoken_file(const char *path, const char *file, const mf_allocator *a,
                                    mf_tokenizer **out, mf_error *error)
{
    char config_file[MAX_PATH_BYTES];
    mf_json config = {0};
    char *text;
    size_t n_bytes;
    MF_TRY(mf_path_join(config_file, sizeof config_file, path, "tokenizer_config.json", error));
    bool has_config = mf_file_exists(config_file);
    if (has_config)
        MF_TRY(mf_json_read(a, config_file, MAX_TOKENIZER_BYTES, &config, error));
    mf_status status = mf_file_read(a, file, MAX_TOKENIZER_BYTES, &text, &n_bytes, error);
    if (status == MF_OK) {
        const mf_tiktoken_files files = {file, text, n_bytes, has_config ? &config : NULL};
        status = mf_text_open_tiktoken(&files, a, out, error);
        mf_free(a, text, n_bytes + 1);
    }
    mf_json_free(&config);
    return status;
}

/* tokenizer.json, or else tiktoken.model. */
static mf_status open_file(const char *path, const mf_allocator *a, mf_tokenizer **out,
                           mf_error *error)
{
    char json_file[MAX_PATH_BYTES], ranks_file[MAX_PATH_BYTES];
    MF_TRY(mf_path_join(json_file, sizeof json_file, path, "tokenizer.json", error));
    MF_TRY(mf_path_join(ranks_file, sizeof ranks_file, path, "tiktoken.model", error));
    if (!mf_file_exists(json_file) && mf_file_exists(ranks_file))
        return open_tiktoken_file(path, ranks_file, a, out, error);
    return open_json_file(json_file, a, out, error);
}

static mf_status open_folder(const char *path, const mf_allocator *a, mf_tokenizer **out,
                             mf_error *error)
{
    mf_tokenizer *t = NULL;
    mf_status status;
    MF_TRY(open_file(path, a, &t, error));
    MF_TRY_GOTO(mf_end_tokens_load(t, path, error));
    MF_TRY_GOTO(mf_chat_load(&t->chat, a, path, error));
    *out = t;
    return MF_OK;
fail:
    mf_text_close(&t);
    return status;
}

static mf_status check_directory(const char *path, mf_error *error)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return mf_fail_no_directory(path, errno, error);
    return S_ISDIR(st.st_mode) ? MF_OK : mf_fail_no_directory(path, ENOTDIR, error);
}

/* Cogito's packed form keeps its text files in a folder of their own. */
mf_status mf_text_open(const char *path, const mf_allocator *a, mf_tokenizer **out, mf_error *error)
{
    char file[MAX_PATH_BYTES];
    bool is_gguf;
    MF_TRY(mf_gguf_locate_text(path, file, sizeof file, &is_gguf, error));
    if (is_gguf)
        return mf_text_open_gguf(file, a, out, error);
    MF_TRY(check_directory(path, error));
    MF_TRY(mf_path_join(file, sizeof file, path, "artifacts/model_weights.json", error));
    if (!mf_file_exists(file))
        return open_folder(path, a, out, error);
    MF_TRY(mf_path_join(file, sizeof file, path, "mlx", error));
    return open_folder(file, a, out, error);
}

void mf_text_close(mf_tokenizer **tokenizer)
{
    mf_tokenizer *t = *tokenizer;
    *tokenizer = NULL;
    if (t == NULL)
        return;
    mf_allocator a = t->allocator;
    mf_chat_free(&t->chat);
    mf_added_tokens_free(&t->added);
    mf_pretokenizer_free(&t->pretokenizer);
    mf_spm_free(&t->spm);
    mf_bpe_free(&t->bpe);
    mf_free(&a, t, sizeof *t);
}

/* ---------------------------------------------------------------------------------- encoding -- */

typedef struct mf_encoding {
    const mf_tokenizer *tokenizer;
    bool parse_special;
    int32_t *tokens;
    size_t capacity, n_tokens;
    mf_bpe_scratch bpe;
    mf_nfc_scratch nfc;
    mf_buffer repaired, normalized;
    mf_pretoken_run pretoken;
    const mf_text_range *literal; /* of the text at `whole` */
    size_t n_literal;
    const unsigned char *whole;
    mf_error *error;
} mf_encoding;

static void emit(mf_encoding *e, uint32_t id)
{
    if (e->n_tokens < e->capacity)
        e->tokens[e->n_tokens] = (int32_t)id;
    e->n_tokens++;
}

/* A stretch of text, of which nothing has been cut. */
static mf_status encode_spm(mf_encoding *e, const unsigned char *text, size_t n_bytes)
{
    const mf_tokenizer *t = e->tokenizer;
    MF_TRY(mf_spm_normalise(&t->spm, text, n_bytes, &e->normalized, e->error));
    for (size_t at = 0, n; at < e->normalized.n_bytes; at += n) {
        mf_bpe_ids found;
        n = mf_spm_word(&t->spm, e->normalized.data + at, e->normalized.n_bytes - at);
        MF_TRY(
            mf_spm_encode(&t->spm, &t->bpe, &e->bpe, e->normalized.data + at, n, &found, e->error));
        for (size_t i = 0; i < found.n_ids; i++)
            emit(e, found.ids[i]);
    }
    return MF_OK;
}

static mf_status encode_word(void *ctx, const unsigned char *word, size_t n_bytes, mf_error *error)
{
    mf_encoding *e = ctx;
    mf_bpe_ids found;
    if (e->tokenizer->spm.scores != NULL)
        return encode_spm(e, word, n_bytes);
    MF_TRY(mf_bpe_encode(&e->tokenizer->bpe, &e->bpe, word, n_bytes, &found, error));
    for (size_t i = 0; i < found.n_ids; i++)
        emit(e, found.ids[i]);
    return MF_OK;
}

/* A search of text[n_bytes], which is part of the whole; the ranges that end before it are passed.
 */
static mf_added_scan scan_of(const mf_encoding *e, const unsigned char *text, size_t n_bytes)
{
    return (mf_added_scan){.text = text,
                           .n_bytes = n_bytes,
                           .literal = e->literal,
                           .n_literal = e->n_literal,
                           .offset = (size_t)(text - e->whole)};
}

/* A stretch without raw added tokens: normalise it, cut out the normalised ones, encode the rest.
 * Where that changed it the ranges fit no more: if there are any, all of it is literal. */
static mf_status encode_stretch(mf_encoding *e, const unsigned char *text, size_t n_bytes)
{
    static const mf_text_range all = {0, SIZE_MAX};
    mf_added_scan scan = scan_of(e, text, n_bytes);
    if (e->tokenizer->uses_nfc && !mf_nfc_is_trivial(text, n_bytes)) {
        e->normalized.n_bytes = 0;
        MF_TRY(mf_nfc(&e->nfc, text, n_bytes, &e->normalized, e->error));
        text = e->normalized.data;
        n_bytes = e->normalized.n_bytes;
        scan = (mf_added_scan){
            .text = text, .n_bytes = n_bytes, .literal = &all, .n_literal = e->n_literal != 0};
    }
    const mf_added_token *token;
    size_t start, end;
    while (mf_added_next(&e->tokenizer->added.normalized, &scan, e->parse_special, &token, &start,
                         &end)) {
        if (token != NULL)
            emit(e, token->id);
        else
            MF_TRY(mf_pretoken_run_text(&e->pretoken, text + start, end - start));
    }
    return MF_OK;
}

/* Valid UTF-8: cut out the raw added tokens, encode the rest. */
static mf_status encode_valid(mf_encoding *e, const unsigned char *text, size_t n_bytes)
{
    mf_added_scan scan = scan_of(e, text, n_bytes);
    const mf_added_token *token;
    size_t start, end;
    while (mf_added_next(&e->tokenizer->added.raw, &scan, e->parse_special, &token, &start, &end)) {
        if (token != NULL)
            emit(e, token->id);
        else
            MF_TRY(encode_stretch(e, text + start, end - start));
    }
    return MF_OK;
}

/*
 * tokenization_kimi.py hands its text on in pieces: of MAX_PIECE_CHARS characters, and those again
 * cut wherever MAX_RUN_CHARS characters in a row were white space, or were not. Each is encoded as
 * if it were alone.
 */
static mf_status encode_cut(mf_encoding *e, const unsigned char *text, size_t n_bytes)
{
    size_t start = 0, n_piece = 0, n_run = 0, n_char;
    bool was_blank = false;
    for (size_t at = 0; at < n_bytes; at += n_char) {
        uint32_t c;
        (void)mf_utf8_next(text + at, n_bytes - at, &c, &n_char);
        bool blank = mf_utf8_is_blank(c), ends_piece = n_piece == MAX_PIECE_CHARS;
        bool goes_on = !ends_piece && n_piece > 0 && blank == was_blank;
        if (ends_piece || (goes_on && n_run == MAX_RUN_CHARS)) {
            MF_TRY(encode_valid(e, text + start, at - start));
            start = at;
            goes_on = false;
        }
        n_piece = ends_piece ? 1 : n_piece + 1;
        n_run = goes_on ? n_run + 1 : 1;
        was_blank = blank;
    }
    return encode_valid(e, text + start, n_bytes - start);
}

static mf_status encode_text(mf_encoding *e, const unsigned char *text, size_t n_bytes)
{
    if (!mf_utf8_is_valid(text, n_bytes)) {
        size_t n = mf_utf8_repair(text, n_bytes, NULL);
        MF_TRY(mf_buffer_reserve(&e->repaired, n, "repaired text", e->error));
        n_bytes = mf_utf8_repair(text, n_bytes, e->repaired.data);
        text = e->repaired.data;
    }
    e->whole = text;
    return e->tokenizer->cuts_runs && n_bytes > MAX_RUN_CHARS ? encode_cut(e, text, n_bytes)
                                                              : encode_valid(e, text, n_bytes);
}

/* Runs an encoding of which tokenizer, literal ranges and error are set. */
static mf_status run_encoding(mf_encoding *e, const char *text, size_t n_bytes)
{
    const mf_allocator *a = &e->tokenizer->allocator;
    mf_bpe_scratch_init(&e->bpe, a);
    mf_nfc_scratch_init(&e->nfc, a);
    mf_buffer_init(&e->repaired, a);
    mf_buffer_init(&e->normalized, a);
    mf_status status;
    MF_TRY_GOTO(mf_pretoken_run_init(&e->pretoken, &e->tokenizer->pretokenizer, a, encode_word, e,
                                     e->error));
    MF_TRY_GOTO(encode_text(e, (const unsigned char *)text, n_bytes));
fail:
    mf_pretoken_run_free(&e->pretoken);
    mf_buffer_free(&e->normalized);
    mf_buffer_free(&e->repaired);
    mf_nfc_scratch_free(&e->nfc);
    mf_bpe_scratch_free(&e->bpe);
    return status;
}

mf_status mf_text_encode(const mf_tokenizer *t, const mf_text_input *input, mf_token_list *out,
                         mf_error *error)
{
    mf_encoding e = {.tokenizer = t,
                     .parse_special = input->parse_special,
                     .tokens = out->tokens,
                     .capacity = out->capacity,
                     .literal = input->literal,
                     .n_literal = input->n_literal,
                     .error = error};
    MF_TRY(run_encoding(&e, input->text, input->n_bytes));
    out->n_tokens = e.n_tokens;
    return MF_OK;
}
