/* SPDX-License-Identifier: MIT */
/* Loading and finding added tokens. */
#include "text/added_tokens.h"

#include "text/unicode_additions.h"
#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static bool flag(yyjson_val *token, const char *name)
{
    return yyjson_get_bool(yyjson_obj_get(token, name));
}

static mf_status set_text(mf_added_token *t, const mf_allocator *a, const unsigned char *text,
                          size_t n, mf_error *error)
{
    t->text = mf_alloc(a, n);
    if (t->text == NULL)
        return mf_fail_memory(error, n, "an added token");
    memcpy(t->text, text, n);
    t->n_bytes = n;
    return MF_OK;
}

/* Loading under way. */
typedef struct mf_added_loader {
    mf_added_tokens *added;
    mf_bpe *bpe;
    const char *path;
    mf_buffer scratch;
} mf_added_loader;

/* An id is the model's if it has the content; else one above the added tokens so far, and at least
 * the number of the model's entries. */
static mf_status choose_id(mf_added_loader *l, const char *content, size_t n, uint32_t *id,
                           mf_error *error)
{
    mf_status status;
    *id = mf_bpe_find_key(l->bpe, content, n, &l->scratch, error, &status);
    if (status != MF_OK || *id != MF_BPE_NONE)
        return status;
    uint32_t next = (uint32_t)l->bpe->n_entries;
    for (size_t i = 0; i < l->added->n_tokens; i++)
        if (l->added->tokens[i].id >= next)
            next = l->added->tokens[i].id + 1;
    *id = next;
    /* Where ids have gaps it may be a token of the model: that is shown as this one from now on,
     * and found all the same. */
    if (next < l->bpe->n_ids && l->bpe->pieces[next].n_bytes != 0)
        MF_TRY(mf_bpe_keep_keys(l->bpe, error));
    return mf_bpe_add_literal(l->bpe, next, content, n, error);
}

mf_status mf_added_tokens_reserve(mf_added_tokens *added, const mf_allocator *a, size_t n_tokens,
                                  mf_error *error)
{
    added->allocator = *a;
    added->capacity = n_tokens;
    added->tokens = mf_alloc_array(a, n_tokens, sizeof *added->tokens);
    if (added->tokens == NULL)
        return mf_fail_memory(error, n_tokens * sizeof *added->tokens, "added tokens");
    return MF_OK;
}

const mf_added_token *mf_added_tokens_find(const mf_added_tokens *added, const char *text, size_t n)
{
    for (size_t i = 0; i < added->n_tokens; i++)
        if (added->tokens[i].n_bytes == n && memcmp(added->tokens[i].text, text, n) == 0)
            return &added->tokens[i];
    return NULL;
}

mf_status mf_added_tokens_add(mf_added_tokens *added, uint32_t id, const char *text, size_t n,
                              mf_added_token **out, mf_error *error)
{
    mf_added_token *t = *out = &added->tokens[added->n_tokens];
    MF_TRY(set_text(t, &added->allocator, (const unsigned char *)text, n, error));
    t->id = id;
    added->n_tokens++;
    return MF_OK;
}

/* The tokens with their text as written; duplicates of a content count once, the last flags win. */
static mf_status load_one(mf_added_loader *l, yyjson_val *item, size_t index, mf_error *error)
{
    mf_added_tokens *added = l->added;
    yyjson_val *content = yyjson_obj_get(item, "content");
    if (!yyjson_is_str(content))
        return mf_fail(error, MF_ERR_FORMAT, "%s: added_tokens[%zu].content: expected a string",
                       l->path, index);
    const char *text = yyjson_get_str(content);
    size_t n = yyjson_get_len(content);
    if (n == 0)
        return MF_OK;
    const mf_added_token *known = mf_added_tokens_find(added, text, n);
    mf_added_token *t;
    if (known != NULL) {
        t = &added->tokens[known - added->tokens];
    } else {
        uint32_t id;
        MF_TRY(choose_id(l, text, n, &id, error));
        MF_TRY(mf_added_tokens_add(added, id, text, n, &t, error));
    }
    t->is_special = t->is_special || flag(item, "special");
    t->single_word = flag(item, "single_word");
    t->strips_left = flag(item, "lstrip");
    t->strips_right = flag(item, "rstrip");
    t->is_normalized = flag(item, "normalized");
    if (t->is_special)
        l->bpe->pieces[t->id].is_special = 1;
    return MF_OK;
}

static int compare_tokens(const void *left, const void *right)
{
    const mf_added_token *l = left, *r = right;
    if (l->is_normalized != r->is_normalized)
        return l->is_normalized ? 1 : -1;
    int order = memcmp(l->text, r->text, l->n_bytes < r->n_bytes ? l->n_bytes : r->n_bytes);
    if (order != 0)
        return order;
    if (l->n_bytes != r->n_bytes)
        return l->n_bytes < r->n_bytes ? -1 : 1;
    /* The same text twice, after normalising: special ones first, then by place in the file. */
    if (l->is_special != r->is_special)
        return l->is_special ? -1 : 1;
    return l->order < r->order ? -1 : 1;
}

static void index_set(mf_added_set *set)
{
    size_t i = 0;
    for (size_t b = 0; b < 256; b++) {
        set->first[b] = (uint32_t)i;
        while (i < set->n_tokens && set->tokens[i].text[0] == b)
            i++;
    }
    set->first[256] = (uint32_t)i;
}

static mf_status load_all(mf_added_tokens *added, yyjson_val *items, const mf_json *json,
                          mf_bpe *bpe, mf_error *error)
{
    mf_added_loader loader = {.added = added, .bpe = bpe, .path = json->path};
    mf_buffer_init(&loader.scratch, &added->allocator);
    mf_status status = MF_OK;
    size_t i, n;
    yyjson_val *item;
    yyjson_arr_foreach(items, i, n, item)
    {
        status = load_one(&loader, item, i, error);
        if (status != MF_OK)
            break;
    }
    mf_buffer_free(&loader.scratch);
    return status;
}

/* The text becomes what the normalizer makes of it. */
static mf_status normalise_one(mf_added_token *t, const mf_allocator *a, const char *path,
                               const mf_normalizer *normalizer, mf_error *error)
{
    const unsigned char *text = t->text;
    size_t n = t->n_bytes;
    const int n_shown = (int)(n < 64 ? n : 64);
    mf_added_token renamed = *t;
    mf_normal_scratch scratch;
    mf_status status;
    mf_normal_scratch_init(&scratch, a);
    MF_TRY_GOTO(mf_normalise(normalizer, &scratch, &text, &n, error));
    if (n == 0)
        MF_TRY_GOTO(mf_fail(error, MF_ERR_UNSUPPORTED,
                            "%s: added_tokens: \"%.*s\": the normalizer leaves nothing of it", path,
                            n_shown, (const char *)t->text));
    MF_TRY_GOTO(set_text(&renamed, a, text, n, error));
    mf_free(a, t->text, t->n_bytes);
    *t = renamed;
fail:
    mf_normal_scratch_free(&scratch);
    return status;
}

static mf_status normalise_all(mf_added_tokens *added, const char *path,
                               const mf_normalizer *normalizer, mf_error *error)
{
    for (size_t i = 0; i < added->n_tokens; i++)
        if (added->tokens[i].is_normalized)
            MF_TRY(normalise_one(&added->tokens[i], &added->allocator, path, normalizer, error));
    return MF_OK;
}

void mf_added_tokens_finish(mf_added_tokens *added)
{
    for (size_t i = 0; i < added->n_tokens; i++)
        added->tokens[i].order = (uint32_t)i;
    if (added->n_tokens > 1)
        qsort(added->tokens, added->n_tokens, sizeof *added->tokens, compare_tokens);
    size_t n_raw = 0;
    while (n_raw < added->n_tokens && !added->tokens[n_raw].is_normalized)
        n_raw++;
    added->raw.tokens = added->tokens;
    added->raw.n_tokens = n_raw;
    added->normalized.tokens = added->tokens + n_raw;
    added->normalized.n_tokens = added->n_tokens - n_raw;
    index_set(&added->raw);
    index_set(&added->normalized);
}

/* Tokens that are looked for in normalised text are shown as they are there. Those that the model
 * has as well it finds by its own keys all the same. */
static mf_status show_normalized(const mf_added_tokens *added, mf_bpe *bpe, mf_error *error)
{
    if (added->normalized.n_tokens != 0)
        MF_TRY(mf_bpe_keep_keys(bpe, error));
    for (size_t i = 0; i < added->normalized.n_tokens; i++) {
        const mf_added_token *t = &added->normalized.tokens[i];
        MF_TRY(mf_bpe_add_literal(bpe, t->id, (const char *)t->text, t->n_bytes, error));
    }
    return MF_OK;
}

mf_status mf_added_tokens_load(mf_added_tokens *added, const mf_allocator *a, const mf_json *json,
                               const mf_normalizer *normalizer, mf_bpe *bpe, mf_error *error)
{
    added->allocator = *a;
    yyjson_val *items = yyjson_obj_get(json->root, "added_tokens");
    if (items == NULL || yyjson_is_null(items))
        return MF_OK;
    if (!yyjson_is_arr(items) || yyjson_arr_size(items) > 1u << 14)
        return mf_fail(error, MF_ERR_FORMAT, "%s: added_tokens: expected an array of at most 16384",
                       json->path);
    MF_TRY(mf_added_tokens_reserve(added, a, yyjson_arr_size(items), error));
    MF_TRY(load_all(added, items, json, bpe, error));
    MF_TRY(normalise_all(added, json->path, normalizer, error));
    mf_added_tokens_finish(added);
    return bpe->marks_blanks ? show_normalized(added, bpe, error) : MF_OK;
}

void mf_added_tokens_free(mf_added_tokens *added)
{
    for (size_t i = 0; i < added->n_tokens; i++)
        mf_free(&added->allocator, added->tokens[i].text, added->tokens[i].n_bytes);
    mf_free(&added->allocator, added->tokens, added->capacity * sizeof *added->tokens);
    *added = (mf_added_tokens){0};
}

/* The longest token at text[0]. The candidates share a prefix that grows by a byte each round. */
static const mf_added_token *longest_at(const mf_added_set *set, const unsigned char *text,
                                        size_t n)
{
    const mf_added_token *found = NULL;
    size_t low = set->first[text[0]], high = set->first[text[0] + 1];
    for (size_t depth = 1; low < high; depth++) {
        if (set->tokens[low].n_bytes == depth) { /* the shortest sorts first */
            found = &set->tokens[low];
            while (low < high && set->tokens[low].n_bytes == depth)
                low++;
        }
        if (depth == n)
            break;
        unsigned char b = text[depth];
        size_t left = low, right = high;
        while (left < right) { /* the first whose next byte is at least b */
            size_t middle = left + (right - left) / 2;
            if (set->tokens[middle].text[depth] < b)
                left = middle + 1;
            else
                right = middle;
        }
        low = left;
        right = high;
        while (left < right) { /* the first whose next byte is above b */
            size_t middle = left + (right - left) / 2;
            if (set->tokens[middle].text[depth] <= b)
                left = middle + 1;
            else
                right = middle;
        }
        high = left;
    }
    return found;
}

static bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

/* utf8proc may be too old to know the character. */
static bool is_added_word(uint32_t c)
{
    for (size_t i = 0; i < mf_n_unicode_additions; i++) {
        const mf_unicode_addition *a = &mf_unicode_additions[i];
        if (c >= a->first && c <= a->last)
            return a->name[0] == 'L' || a->name[0] == 'M' || strcmp(a->name, "Nd") == 0 ||
                   strcmp(a->name, "Nl") == 0;
    }
    return false;
}

/* A word character as Rust's \w has it: letters, marks, decimal digits, connectors, joiners, and
 * what else is alphabetic. */
static bool is_word(uint32_t c)
{
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default: /* joiners; circled and squared Latin letters are alphabetic symbols */
        return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
               (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
               (c >= 0x1F170 && c <= 0x1F189) || is_added_word(c);
    }
}

static size_t previous_char(const unsigned char *text, size_t at, uint32_t *c)
{
    size_t start = at - 1, n;
    while (start > 0 && (text[start] & 0xC0) == 0x80)
        start--;
    (void)mf_utf8_next(text + start, at - start, c, &n);
    return start;
}

static bool is_single_word(const unsigned char *text, size_t n_bytes, size_t start, size_t end)
{
    uint32_t c;
    size_t n;
    if (start > 0) {
        (void)previous_char(text, start, &c);
        if (is_word(c))
            return false;
    }
    if (end == n_bytes)
        return true;
    (void)mf_utf8_next(text + end, n_bytes - end, &c, &n);
    return !is_word(c);
}

static size_t spaces_before(const unsigned char *text, size_t at, size_t least)
{
    while (at > least) {
        uint32_t c;
        size_t start = previous_char(text, at, &c);
        if (!is_space(c))
            break;
        at = start;
    }
    return at < least ? least : at;
}

static size_t spaces_after(const unsigned char *text, size_t n_bytes, size_t at)
{
    while (at < n_bytes) {
        uint32_t c;
        size_t n;
        (void)mf_utf8_next(text + at, n_bytes - at, &c, &n);
        if (!is_space(c))
            break;
        at += n;
    }
    return at;
}

/* True if bytes [start, end) of the text reach into a literal range. The search goes forward, so
 * ranges that it has passed are forgotten. */
static bool is_literal(mf_added_scan *scan, size_t start, size_t end)
{
    start += scan->offset;
    end += scan->offset;
    while (scan->n_literal > 0 && scan->literal->end <= start) {
        scan->literal++;
        scan->n_literal--;
    }
    return scan->n_literal > 0 && scan->literal->start < end;
}

/* The next token in the text at or after scan->searched; true if there is one. */
static bool find_next(const mf_added_set *set, mf_added_scan *scan, bool with_special,
                      const mf_added_token **token, size_t *start, size_t *end)
{
    while (set->n_tokens != 0 && scan->searched < scan->n_bytes) {
        size_t at = scan->searched;
        const mf_added_token *t = longest_at(set, scan->text + at, scan->n_bytes - at);
        if (t == NULL || is_literal(scan, at, at + t->n_bytes)) {
            scan->searched++;
            continue;
        }
        *start = at;
        *end = scan->searched = at + t->n_bytes;
        if (t->is_special && !with_special)
            continue;
        if (t->single_word && !is_single_word(scan->text, scan->n_bytes, *start, *end))
            continue;
        if (t->strips_right)
            *end = spaces_after(scan->text, scan->n_bytes, *end);
        if (t->strips_left) {
            *start =
                scan->done < *start ? spaces_before(scan->text, *start, scan->done) : scan->done;
            if (*start >= *end)
                continue; /* blanks, all of which the token before has taken */
        }
        *token = t;
        return true;
    }
    return false;
}

bool mf_added_next(const mf_added_set *set, mf_added_scan *scan, bool with_special,
                   const mf_added_token **token, size_t *start, size_t *end)
{
    if (scan->held != NULL) {
        *token = scan->held;
        *start = scan->done;
        *end = scan->done = scan->held_end;
        scan->held = NULL;
        return true;
    }
    const mf_added_token *found;
    size_t found_start, found_end;
    *token = NULL;
    if (!find_next(set, scan, with_special, &found, &found_start, &found_end)) {
        *start = scan->done;
        *end = scan->done = scan->n_bytes;
        return *start < *end;
    }
    if (scan->done < found_start) {
        *start = scan->done;
        *end = scan->done = found_start;
        scan->held = found;
        scan->held_end = found_end;
        return true;
    }
    *token = found;
    *start = found_start;
    *end = scan->done = found_end;
    return true;
}
