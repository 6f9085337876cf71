/* SPDX-License-Identifier: MIT */
/* Opening a tokenizer and encoding text. */
#include "text/tokenizer.h"

#include "format/checkpoint_mistakes.h"
#include "text/bpe_chars.h"
#include "text/gguf_text.h"
#include "text/json_flags.h"
#include "text/tiktoken.h"
#include "text/unigram_load.h"
#include "text/utf8.h"

#include <errno.h>
#include <sys/stat.h>

#define MAX_TOKENIZER_BYTES ((size_t)256 << 20)
#define MAX_PATH_BYTES 4096
/* Of tokenization_kimi.py, in characters. */
#define MAX_PIECE_CHARS ((size_t)400000)
#define MAX_RUN_CHARS ((size_t)25000)

/* ----------------------------------------------------------------------------------- opening -- */

mf_tokenizer *mf_text_create(const mf_allocator *a)
{
    mf_tokenizer *t = mf_alloc_zeroed(a, sizeof *t);
    if (t != NULL) {
        t->allocator = *a;
        t->start_token = t->model_end = -1;
    }
    return t;
}

/* Whether the parts of a tokenizer.json are of one kind: bytes, or characters. Where blanks become
 * marks the decoder makes them blanks again. */
static mf_status match_parts(mf_tokenizer *t, const mf_json *json, mf_error *error)
{
    const bool marks_in_text = mf_normalizer_has(&t->normalizer, MF_NORMAL_MARK_BLANKS);
    const bool marks = marks_in_text || t->pretokenizer.marks_blanks;
    if (t->pretokenizer.is_byte_level != t->decoding.is_byte_level)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: pre_tokenizer and decoder: %s is ByteLevel, expected both or none",
                       json->path,
                       t->decoding.is_byte_level ? "the decoder alone" : "the pre_tokenizer alone");
    if (t->pretokenizer.is_byte_level) {
        if (marks || mf_normalizer_has(&t->normalizer, MF_NORMAL_PREPEND_MARK))
            return mf_fail(error, MF_ERR_UNSUPPORTED,
                           "%s: normalizer: Prepend or Replace before a ByteLevel pre_tokenizer, "
                           "expected NFC",
                           json->path);
        return MF_OK;
    }
    if (marks != t->decoding.unmarks_blanks)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: decoder: expected a Replace or Metaspace where the normalizer or the "
                       "pre_tokenizer has one, and only there",
                       json->path);
    t->bpe.of_characters = true;
    t->bpe.marks_blanks = marks;
    t->bpe.has_byte_keys = t->decoding.joins_bytes;
    return MF_OK;
}

mf_status mf_text_open_json(const mf_json *json, const mf_allocator *a, mf_tokenizer **out,
                            mf_error *error)
{
    if (!yyjson_is_obj(json->root))
        return mf_fail(error, MF_ERR_FORMAT, "%s: expected an object", json->path);
    MF_TRY(mf_json_flags_check_all(json, error));
    mf_tokenizer *t = mf_text_create(a);
    if (t == NULL)
        return mf_fail_memory(error, sizeof *t, "a tokenizer");
    mf_status status;
    MF_TRY_GOTO(mf_normalizer_load(&t->normalizer, a, json, error));
    MF_TRY_GOTO(mf_pretokenizer_load(&t->pretokenizer, a, json, error));
    MF_TRY_GOTO(mf_decoding_load(&t->decoding, json, error));
    MF_TRY_GOTO(match_parts(t, json, error));
    if (mf_unigram_is_in(json))
        MF_TRY_GOTO(mf_unigram_load(&t->unigram, &t->bpe, a, json, error));
    else
        MF_TRY_GOTO(mf_bpe_load(&t->bpe, a, json, error));
    const size_t n_key_bytes = t->bpe.n_bytes;
    MF_TRY_GOTO(mf_added_tokens_load(&t->added, a, json, &t->normalizer, &t->bpe, error));
    mf_start_token_load(t, json);
    MF_TRY_GOTO(mf_bpe_unmark_keys(&t->bpe, n_key_bytes, error));
    *out = t;
    return MF_OK;
fail:
    mf_text_close(&t);
    return status;
}

mf_status mf_text_open_tiktoken(const mf_tiktoken_files *files, const mf_allocator *a,
                                mf_tokenizer **out, mf_error *error)
{
    mf_tokenizer *t = mf_text_create(a);
    if (t == NULL)
        return mf_fail_memory(error, sizeof *t, "a tokenizer");
    mf_status status;
    if (files->is_hunyuan)
        t->normalizer = (mf_normalizer){.steps = {MF_NORMAL_NFC_NEW}, .n_steps = 1};
    t->cuts_runs = !files->is_hunyuan;
    MF_TRY_GOTO(mf_pretokenizer_make(
        &t->pretokenizer, a, files->is_hunyuan ? mf_hunyuan_pattern : mf_kimi_pattern, error));
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

/* A file of the directory that need not be there: then *out stays zeroed. */
static mf_status read_optional(const char *path, const char *name, const mf_allocator *a,
                               mf_json *out, mf_error *error)
{
    char file[MAX_PATH_BYTES];
    MF_TRY(mf_path_join(file, sizeof file, path, name, error));
    return mf_file_exists(file) ? mf_json_read(a, file, MAX_TOKENIZER_BYTES, out, error) : MF_OK;
}

static const mf_json *or_none(const mf_json *json)
{
    return json->doc != NULL ? json : NULL;
}

static mf_status open_tiktoken_file(const char *path, const char *file, const mf_allocator *a,
                                    bool is_hunyuan, mf_tokenizer **out, mf_error *error)
{
    mf_json config = {0};
    char *text;
    size_t n_bytes;
    MF_TRY(read_optional(path, "tokenizer_config.json", a, &config, error));
    mf_status status = mf_file_read(a, file, MAX_TOKENIZER_BYTES, &text, &n_bytes, error);
    if (status == MF_OK) {
        const mf_tiktoken_files files = {file, text, n_bytes, or_none(&config), is_hunyuan};
        status = mf_text_open_tiktoken(&files, a, out, error);
        mf_free(a, text, n_bytes + 1);
    }
    mf_json_free(&config);
    return status;
}

static mf_status open_spm_file(const char *path, const char *file, const mf_allocator *a,
                               mf_tokenizer **out, mf_error *error)
{
    static const char *const names[] = {"tokenizer_config.json", "added_tokens.json",
                                        "special_tokens_map.json"};
    mf_json config = {0}, added = {0}, specials = {0};
    mf_json *const json[] = {&config, &added, &specials};
    char *text = NULL;
    size_t n_bytes = 0;
    mf_status status;
    for (size_t i = 0; i < 3; i++)
        MF_TRY_GOTO(read_optional(path, names[i], a, json[i], error));
    MF_TRY_GOTO(mf_file_read(a, file, MAX_TOKENIZER_BYTES, &text, &n_bytes, error));
    const mf_spm_files files = {.path = file,
                                .model = text,
                                .n_bytes = n_bytes,
                                .config = or_none(&config),
                                .added = or_none(&added),
                                .specials = or_none(&specials)};
    status = mf_text_open_spm(&files, a, out, error);
    mf_free(a, text, n_bytes + 1);
fail:
    for (size_t i = 0; i < 3; i++)
        mf_json_free(json[i]);
    return status;
}

/* tokenizer.json, or else the first of the others that is there. */
static mf_status open_file(const char *path, const mf_allocator *a, mf_tokenizer **out,
                           mf_error *error)
{
    static const char *const names[] = {"tokenizer.json", "tiktoken.model", "hy.tiktoken",
                                        "tokenizer.model"};
    char json_file[MAX_PATH_BYTES], file[MAX_PATH_BYTES];
    size_t i = 0;
    MF_TRY(mf_path_join(json_file, sizeof json_file, path, names[0], error));
    for (; i < sizeof names / sizeof *names; i++) {
        MF_TRY(mf_path_join(file, sizeof file, path, names[i], error));
        if (mf_file_exists(file))
            break;
    }
    switch (i) {
    case 1:
    case 2:
        return open_tiktoken_file(path, file, a, i == 2, out, error);
    case 3:
        return open_spm_file(path, file, a, out, error);
    default:
        return open_json_file(json_file, a, out, error);
    }
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
    mf_normalizer_free(&t->normalizer);
    mf_unigram_free(&t->unigram);
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
    mf_normal_scratch normal;
    mf_buffer repaired, normalized, word;
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

static void emit_all(mf_encoding *e, const mf_bpe_ids *found)
{
    for (size_t i = 0; i < found->n_ids; i++)
        emit(e, found->ids[i]);
}

/* A stretch of normalised text, of which nothing has been cut. */
static mf_status encode_spm(mf_encoding *e, const unsigned char *text, size_t n_bytes)
{
    const mf_tokenizer *t = e->tokenizer;
    for (size_t at = 0, end = 0, n; at < n_bytes; at += n) {
        mf_bpe_ids found;
        if (at == end)
            end = at + mf_spm_word(&t->spm, text + at, n_bytes - at);
        n = mf_bpe_find_cut(&t->bpe, text + at, end - at);
        MF_TRY(mf_spm_encode(&t->spm, &t->bpe, &e->bpe, text + at, n, &found, e->error));
        emit_all(e, &found);
    }
    return MF_OK;
}

/* A word with blanks in place of marks, where those stand for them. */
static mf_status unmark(mf_encoding *e, const unsigned char **word, size_t *n_bytes)
{
    if (!e->tokenizer->bpe.marks_blanks)
        return MF_OK;
    e->word.n_bytes = 0;
    MF_TRY(mf_buffer_reserve(&e->word, *n_bytes, "a word", e->error));
    *n_bytes = mf_blanks_unmark(*word, *n_bytes, e->word.data);
    *word = e->word.data;
    return MF_OK;
}

/* A word, or all of a text that is not cut: sums over parts of it would not round as those over all
 * of it. */
static mf_status encode_unigram(mf_encoding *e, const unsigned char *word, size_t n_bytes)
{
    const mf_tokenizer *t = e->tokenizer;
    mf_bpe_ids found;
    MF_TRY(unmark(e, &word, &n_bytes));
    MF_TRY(mf_unigram_encode(&t->unigram, &t->bpe, &e->bpe, word, n_bytes, &found, e->error));
    emit_all(e, &found);
    return MF_OK;
}

/* A word of a vocabulary of characters, which may be the whole text. */
static mf_status encode_characters(mf_encoding *e, const unsigned char *word, size_t n_bytes)
{
    const mf_bpe *bpe = &e->tokenizer->bpe;
    MF_TRY(unmark(e, &word, &n_bytes));
    for (size_t at = 0, n; at < n_bytes; at += n) {
        mf_bpe_ids found;
        n = mf_bpe_find_cut(bpe, word + at, n_bytes - at);
        MF_TRY(mf_bpe_encode(bpe, &e->bpe, word + at, n, &found, e->error));
        emit_all(e, &found);
    }
    return MF_OK;
}

static mf_status encode_word(void *ctx, const unsigned char *word, size_t n_bytes, mf_error *error)
{
    mf_encoding *e = ctx;
    mf_bpe_ids found;
    if (mf_unigram_is_there(&e->tokenizer->unigram))
        return encode_unigram(e, word, n_bytes);
    if (e->tokenizer->spm.scores != NULL)
        return encode_spm(e, word, n_bytes);
    if (e->tokenizer->bpe.of_characters)
        return encode_characters(e, word, n_bytes);
    MF_TRY(mf_bpe_encode(&e->tokenizer->bpe, &e->bpe, word, n_bytes, &found, error));
    emit_all(e, &found);
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

/* Whether a literal range has bytes of text[n_bytes], which is part of the whole. */
static bool has_literal(const mf_encoding *e, const unsigned char *text, size_t n_bytes)
{
    const size_t start = (size_t)(text - e->whole);
    for (size_t i = 0; i < e->n_literal && e->literal[i].start < start + n_bytes; i++)
        if (e->literal[i].end > start)
            return true;
    return false;
}

/* A stretch without raw added tokens: normalise it, cut out the normalised ones, encode the rest.
 * Where that changed it the ranges fit no more: if there are any in it, all of it is literal. But
 * what SentencePiece's own model looks for is no more than text. */
static mf_status encode_stretch(mf_encoding *e, const unsigned char *text, size_t n_bytes)
{
    static const mf_text_range all = {0, SIZE_MAX};
    const mf_tokenizer *t = e->tokenizer;
    const unsigned char *const before = text;
    const size_t n_before = n_bytes;
    const bool is_spm = t->spm.scores != NULL;
    bool at_start = text == e->whole;
    mf_added_scan scan = scan_of(e, text, n_bytes);
    if (is_spm) {
        MF_TRY(mf_spm_normalise(&t->spm, text, n_bytes, at_start, &e->normalized, e->error));
        text = e->normalized.data;
        n_bytes = e->normalized.n_bytes;
    } else {
        MF_TRY(mf_normalise(&t->normalizer, &e->normal, &text, &n_bytes, e->error));
        at_start = at_start && !e->normal.drops_start;
    }
    if (text != before || n_bytes != n_before)
        scan = (mf_added_scan){.text = text,
                               .n_bytes = n_bytes,
                               .literal = &all,
                               .n_literal = !is_spm && has_literal(e, before, n_before)};
    const mf_added_token *token;
    size_t start, end;
    while (mf_added_next(&t->added.normalized, &scan, e->parse_special, &token, &start, &end)) {
        if (token != NULL)
            emit(e, token->id);
        else
            MF_TRY(mf_pretoken_run_text(&e->pretoken, text + start, end - start,
                                        at_start && start == 0));
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
    mf_normal_scratch_init(&e->normal, a);
    mf_buffer_init(&e->repaired, a);
    mf_buffer_init(&e->normalized, a);
    mf_buffer_init(&e->word, a);
    mf_status status;
    MF_TRY_GOTO(mf_pretoken_run_init(&e->pretoken, &e->tokenizer->pretokenizer, a, encode_word, e,
                                     e->error));
    MF_TRY_GOTO(encode_text(e, (const unsigned char *)text, n_bytes));
fail:
    mf_pretoken_run_free(&e->pretoken);
    mf_buffer_free(&e->word);
    mf_buffer_free(&e->normalized);
    mf_buffer_free(&e->repaired);
    mf_normal_scratch_free(&e->normal);
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
