/* SPDX-License-Identifier: MIT */
/* Builds a vocabulary of ranks from tiktoken.model, which is checked whole: every rank from 0 on is
 * there once, every token once, and every byte is a token. */
#include "text/tiktoken.h"

#include "text/base64.h"
#include "text/bpe_tables.h"
#include "text/json_flags.h"

#include <stdio.h>
#include <string.h>

#define MAX_TOKENS ((size_t)1 << 24)
#define MAX_NAME_BYTES ((size_t)1 << 10)
#define RESERVED_NAME "<|reserved_token_%u|>"
#define RESERVED_NAME_BYTES ((size_t)40)

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"

const char mf_kimi_pattern[] =
    "[\\p{Han}]+"
    "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?" UPPER
    "+" LOWER "*" CONTRACTION "|\\p{N}{1,3}"
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
    "|\\s*[\\r\\n]+"
    "|\\s+(?!\\S)"
    "|\\s+";

const char mf_hunyuan_pattern[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
                                  "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
                                  "|\\p{N}"
                                  "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
                                  "|\\s*[\\r\\n]+"
                                  "|\\s+(?!\\S)"
                                  "|\\s+";

/* ------------------------------------------------------------------------------------ tokens -- */

typedef struct mf_rank_file {
    const char *path;
    const char *at, *end;
    size_t n_line; /* of the line last read, from 1 */
    size_t n_tokens;
} mf_rank_file;

/* The next line that is not empty, without its end; false after the last. */
static bool next_line(mf_rank_file *file, const char **line, size_t *n)
{
    while (file->at < file->end) {
        const char *start = file->at;
        const char *stop = memchr(start, '\n', (size_t)(file->end - start));
        file->at = stop != NULL ? stop + 1 : file->end;
        file->n_line++;
        *n = (size_t)((stop != NULL ? stop : file->end) - start);
        if (*n > 0 && start[*n - 1] == '\r')
            --*n;
        *line = start;
        if (*n > 0)
            return true;
    }
    return false;
}

/* A decimal number of at most 9 digits, which no rank needs more of. */
static bool read_rank(const char *text, size_t n, size_t *rank)
{
    *rank = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        *rank = *rank * 10 + (size_t)(text[i] - '0');
    }
    return n >= 1 && n <= 9;
}

static mf_status load_line(mf_bpe *bpe, const mf_rank_file *file, const char *line, size_t n,
                           mf_error *error)
{
    const char *space = memchr(line, ' ', n);
    size_t n_coded = space != NULL ? (size_t)(space - line) : n, n_token, rank;
    unsigned char *token = bpe->bytes + bpe->n_bytes;
    if (space == NULL || !read_rank(space + 1, n - n_coded - 1, &rank))
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: line %zu: \"%.*s\", expected \"BASE64 RANK\" with a decimal rank",
                       file->path, file->n_line, (int)(n > 64 ? 64 : n), line);
    if (!mf_base64_decode(line, n_coded, token, &n_token))
        return mf_fail(error, MF_ERR_FORMAT, "%s: line %zu: \"%.*s\" is not a token in base64",
                       file->path, file->n_line, (int)(n_coded > 64 ? 64 : n_coded), line);
    if (n_token > MF_MAX_RANKED_BYTES)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: line %zu: a token of %zu bytes, expected at most %d", file->path,
                       file->n_line, n_token, MF_MAX_RANKED_BYTES);
    if (rank >= file->n_tokens)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: line %zu: rank %zu, expected 0 to %zu without a gap", file->path,
                       file->n_line, rank, file->n_tokens - 1);
    if (bpe->pieces[rank].n_bytes != 0)
        return mf_fail(error, MF_ERR_FORMAT, "%s: line %zu: rank %zu is given twice, expected once",
                       file->path, file->n_line, rank);
    if (mf_bpe_find(bpe, token, n_token, false) != MF_BPE_NONE)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: line %zu: token \"%.*s\" is listed twice, expected once", file->path,
                       file->n_line, (int)(n_coded > 64 ? 64 : n_coded), line);
    mf_bpe_take_token(bpe, (uint32_t)rank, n_token, false);
    if (n_token > bpe->longest_bytes)
        bpe->longest_bytes = n_token;
    return MF_OK;
}

static mf_status load_tokens(mf_bpe *bpe, const mf_tiktoken_files *files, size_t n_name_bytes,
                             mf_error *error)
{
    const char *path = files->path, *text = files->text;
    const size_t n_bytes = files->n_bytes;
    mf_rank_file file = {.path = path, .at = text, .end = text + n_bytes};
    const char *line;
    size_t n, n_tokens = 0;
    while (next_line(&file, &line, &n))
        n_tokens++;
    if (n_tokens == 0 || n_tokens > MAX_TOKENS)
        return mf_fail(error, MF_ERR_FORMAT, "%s: %zu tokens, expected 1 to %zu", path, n_tokens,
                       MAX_TOKENS);
    MF_TRY(mf_bpe_reserve(bpe, n_tokens, n_tokens + MF_N_KIMI_SPECIALS, n_bytes + n_name_bytes,
                          error));
    bpe->n_ids = n_tokens;
    bpe->merges_by_rank = bpe->ignores_merges = true;
    file = (mf_rank_file){.path = path, .at = text, .end = text + n_bytes, .n_tokens = n_tokens};
    while (next_line(&file, &line, &n))
        MF_TRY(load_line(bpe, &file, line, n, error));
    if (mf_bpe_index_bytes(bpe))
        return MF_OK;
    unsigned b = 0;
    while (bpe->byte_ids[b] != MF_BPE_NONE)
        b++;
    return mf_fail(error, MF_ERR_FORMAT, "%s: no token is the byte 0x%02X, expected all 256", path,
                   b);
}

/* ---------------------------------------------------------------------------------- specials -- */

typedef struct mf_specials {
    const char *path;
    yyjson_val *names[MF_N_KIMI_SPECIALS]; /* entries of added_tokens_decoder, NULL where absent */
} mf_specials;

/* Bytes that the names take, before it is known which ids they are for. */
static size_t measure_names(yyjson_val *decoder)
{
    size_t i, n, n_bytes = MF_N_KIMI_SPECIALS * RESERVED_NAME_BYTES;
    yyjson_val *key, *value;
    if (decoder == NULL)
        return n_bytes;
    yyjson_obj_foreach(decoder, i, n, key, value)
    {
        n_bytes += yyjson_get_len(yyjson_obj_get(value, "content"));
    }
    return n_bytes;
}

static mf_status find_names(mf_specials *s, yyjson_val *decoder, size_t first_id, mf_error *error)
{
    size_t i, n, id;
    yyjson_val *key, *value;
    if (decoder == NULL)
        return MF_OK;
    yyjson_obj_foreach(decoder, i, n, key, value)
    {
        const char *name = yyjson_get_str(key);
        size_t n_content = yyjson_get_len(yyjson_obj_get(value, "content"));
        if (!read_rank(name, yyjson_get_len(key), &id) || id < first_id ||
            id >= first_id + MF_N_KIMI_SPECIALS)
            return mf_fail(error, MF_ERR_UNSUPPORTED,
                           "%s: added_tokens_decoder: id \"%.32s\", expected %zu to %zu", s->path,
                           name, first_id, first_id + MF_N_KIMI_SPECIALS - 1);
        if (n_content == 0 || n_content > MAX_NAME_BYTES)
            return mf_fail(error, MF_ERR_FORMAT,
                           "%s: added_tokens_decoder.%.32s.content: expected a string of 1 to %zu "
                           "bytes",
                           s->path, name, MAX_NAME_BYTES);
        MF_TRY(mf_json_flags_check_added(s->path, name, value, error));
        if (s->names[id - first_id] != NULL)
            return mf_fail(error, MF_ERR_FORMAT, "%s: added_tokens_decoder: id %zu is given twice",
                           s->path, id);
        s->names[id - first_id] = value;
    }
    return MF_OK;
}

static mf_status add_special(mf_bpe *bpe, mf_added_tokens *added, const mf_specials *s, uint32_t id,
                             yyjson_val *value, mf_error *error)
{
    char reserved[RESERVED_NAME_BYTES];
    const char *name = reserved;
    size_t n = (size_t)snprintf(reserved, sizeof reserved, RESERVED_NAME, id);
    bool is_shown = false;
    if (value != NULL) {
        yyjson_val *content = yyjson_obj_get(value, "content");
        name = yyjson_get_str(content);
        n = yyjson_get_len(content);
        is_shown = !yyjson_get_bool(yyjson_obj_get(value, "special"));
    }
    if (mf_added_tokens_find(added, name, n) != NULL)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: added_tokens_decoder: \"%.64s\" is the name of two ids", s->path, name);
    mf_added_token *token;
    MF_TRY(mf_bpe_add_literal(bpe, id, name, n, error));
    MF_TRY(mf_added_tokens_add(added, id, name, n, &token, error));
    /* All are text where special tokens are; which are shown to the user is another matter. */
    token->is_special = true;
    bpe->pieces[id].is_special = !is_shown;
    return MF_OK;
}

/* Five with names, then <|extra_0|> to <|extra_204|>; all are looked for in normalised text. */
static mf_status load_hunyuan_specials(mf_bpe *bpe, mf_added_tokens *added, const mf_allocator *a,
                                       mf_error *error)
{
    static const char *const names[] = {"<|endoftext|>", "<|startoftext|>", "<|bos|>", "<|eos|>",
                                        "<|pad|>"};
    const size_t n_names = sizeof names / sizeof *names;
    MF_TRY(mf_added_tokens_reserve(added, a, MF_N_HUNYUAN_SPECIALS, error));
    for (size_t i = 0; i < MF_N_HUNYUAN_SPECIALS; i++) {
        const uint32_t id = (uint32_t)(bpe->n_entries + i);
        char name[RESERVED_NAME_BYTES];
        mf_added_token *token;
        if (i < n_names)
            (void)snprintf(name, sizeof name, "%s", names[i]);
        else
            (void)snprintf(name, sizeof name, "<|extra_%zu|>", i - n_names);
        MF_TRY(mf_bpe_add_literal(bpe, id, name, strlen(name), error));
        MF_TRY(mf_added_tokens_add(added, id, name, strlen(name), &token, error));
        token->is_special = token->is_normalized = true;
        bpe->pieces[id].is_special = true;
    }
    mf_added_tokens_finish(added);
    return MF_OK;
}

static mf_status load_specials(mf_bpe *bpe, mf_added_tokens *added, const mf_allocator *a,
                               const mf_json *config, yyjson_val *decoder, mf_error *error)
{
    mf_specials s = {.path = config != NULL ? config->path : ""};
    size_t first_id = bpe->n_entries;
    MF_TRY(find_names(&s, decoder, first_id, error));
    MF_TRY(mf_added_tokens_reserve(added, a, MF_N_KIMI_SPECIALS, error));
    for (size_t i = 0; i < MF_N_KIMI_SPECIALS; i++)
        MF_TRY(add_special(bpe, added, &s, (uint32_t)(first_id + i), s.names[i], error));
    mf_added_tokens_finish(added);
    return MF_OK;
}

/* Another tokenizer's class may have another pattern. */
static mf_status check_class(const mf_json *config, bool is_hunyuan, mf_error *error)
{
    yyjson_val *name = yyjson_obj_get(config->root, "tokenizer_class");
    const char *expected = is_hunyuan ? "HYTokenizer" : "TikTokenTokenizer";
    if (name == NULL || yyjson_equals_str(name, expected))
        return MF_OK;
    return mf_fail(error, MF_ERR_UNSUPPORTED,
                   "%s: tokenizer_class: \"%.64s\", expected \"%s\" with a %s", config->path,
                   yyjson_is_str(name) ? yyjson_get_str(name) : "?", expected,
                   is_hunyuan ? "hy.tiktoken" : "tiktoken.model");
}

mf_status mf_tiktoken_load(mf_bpe *bpe, mf_added_tokens *added, const mf_allocator *a,
                           const mf_tiktoken_files *files, mf_error *error)
{
    const mf_json *config = files->config;
    bpe->allocator = *a;
    yyjson_val *decoder = NULL;
    if (config != NULL) {
        MF_TRY(check_class(config, files->is_hunyuan, error));
        decoder = yyjson_obj_get(config->root, "added_tokens_decoder");
        if (decoder != NULL && !yyjson_is_obj(decoder))
            return mf_fail(error, MF_ERR_FORMAT, "%s: added_tokens_decoder: expected an object",
                           config->path);
    }
    MF_TRY(load_tokens(bpe, files, measure_names(decoder), error));
    return files->is_hunyuan ? load_hunyuan_specials(bpe, added, a, error)
                             : load_specials(bpe, added, a, config, decoder, error);
}
