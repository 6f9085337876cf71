/* SPDX-License-Identifier: MIT */
/* Little-endian numbers and counted texts, written and read. */
#include "recall_record.h"

#include <stdlib.h>
#include <string.h>

#define VERSION 1u
#define NO_TEXT UINT32_MAX
#define MAX_CALLS 4096u
#define MAX_SECONDS INT64_C(253402300799) /* the year 9999 */

static const unsigned char magic[8] = "MFANSW\n";

static void put_le(unsigned char *to, uint64_t value, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        to[i] = (unsigned char)(value >> 8 * i);
}

static uint64_t get_le(const unsigned char *at, size_t n_bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n_bytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

/* -------------------------------------------------------------------------------------- head -- */

/* By a key that everybody knows: it finds damage, and no ill will. */
static mf_srv_digest sum_of(const unsigned char *bytes, size_t n_bytes)
{
    const mf_srv_digest_key key = {{0, 0}};
    return mf_srv_digest_of(&key, bytes, n_bytes);
}

void mf_srv_answers_head_write(const mf_srv_answers_head *head,
                               unsigned char out[MF_SRV_ANSWERS_HEAD_BYTES])
{
    memset(out, 0, MF_SRV_ANSWERS_HEAD_BYTES);
    memcpy(out, magic, sizeof magic);
    put_le(out + 8, VERSION, 4);
    put_le(out + 12, MF_SRV_ANSWERS_HEAD_BYTES, 4);
    memcpy(out + 16, head->model, sizeof head->model);
    put_le(out + 32, head->key.words[0], 8);
    put_le(out + 40, head->key.words[1], 8);
    const mf_srv_digest sum = sum_of(out, 56);
    put_le(out + 56, sum.words[0], 8);
    put_le(out + 64, sum.words[1], 8);
}

bool mf_srv_answers_head_read(const unsigned char bytes[MF_SRV_ANSWERS_HEAD_BYTES],
                              mf_srv_answers_head *out)
{
    const mf_srv_digest sum = {{get_le(bytes + 56, 8), get_le(bytes + 64, 8)}};
    const mf_srv_digest is = sum_of(bytes, 56);
    if (memcmp(bytes, magic, sizeof magic) != 0 || get_le(bytes + 8, 4) != VERSION ||
        get_le(bytes + 12, 4) != MF_SRV_ANSWERS_HEAD_BYTES || !mf_srv_digest_is(&sum, &is))
        return false;
    memcpy(out->model, bytes + 16, sizeof out->model);
    out->key = (mf_srv_digest_key){{get_le(bytes + 32, 8), get_le(bytes + 40, 8)}};
    return true;
}

/* ----------------------------------------------------------------------------------- writing -- */

static void put_number(mf_srv_bytes *out, uint64_t value, size_t n_bytes)
{
    unsigned char bytes[8];
    put_le(bytes, value, n_bytes);
    mf_srv_put(out, (const char *)bytes, n_bytes);
}

static void put_digest(mf_srv_bytes *out, const mf_srv_digest *digest)
{
    put_number(out, digest->words[0], 8);
    put_number(out, digest->words[1], 8);
}

static void put_text(mf_srv_bytes *out, const char *text, size_t n_bytes)
{
    const bool is_none = text == NULL || n_bytes >= NO_TEXT;
    put_number(out, is_none ? NO_TEXT : n_bytes, 4);
    if (!is_none)
        mf_srv_put(out, text, n_bytes);
}

static void put_string(mf_srv_bytes *out, const char *text)
{
    put_text(out, text, text == NULL ? 0 : strlen(text));
}

/* The digest of a record, its head's first eight bytes included. */
static mf_srv_digest digest_of(const mf_srv_digest_key *key, uint32_t kind,
                               const unsigned char *bytes, uint32_t n_bytes)
{
    const mf_srv_digest rest = mf_srv_digest_of(key, bytes, n_bytes);
    unsigned char all[24];
    put_le(all, kind, 4);
    put_le(all + 4, n_bytes, 4);
    put_le(all + 8, rest.words[0], 8);
    put_le(all + 16, rest.words[1], 8);
    return mf_srv_digest_of(key, all, sizeof all);
}

/* The head of the record that begins at `at` and ends with what is there; one that is longer than
 * any is taken back. */
static void end_record(const mf_srv_digest_key *key, mf_srv_record_kind kind, size_t at,
                       mf_srv_bytes *out)
{
    if (out->has_failed)
        return;
    const size_t n_bytes = out->n_bytes - at - MF_SRV_RECORD_HEAD_BYTES;
    unsigned char *head = (unsigned char *)out->data + at;
    if (n_bytes > MF_SRV_RECORD_MAX_BYTES) {
        out->n_bytes = at;
        return;
    }
    const mf_srv_digest digest =
        digest_of(key, kind, head + MF_SRV_RECORD_HEAD_BYTES, (uint32_t)n_bytes);
    put_le(head, kind, 4);
    put_le(head + 4, n_bytes, 4);
    put_le(head + 8, digest.words[0], 8);
    put_le(head + 16, digest.words[1], 8);
}

static size_t begin_record(mf_srv_bytes *out)
{
    static const char nothing[MF_SRV_RECORD_HEAD_BYTES];
    const size_t at = out->n_bytes;
    mf_srv_put(out, nothing, sizeof nothing);
    return at;
}

void mf_srv_record_put_answer(const mf_srv_digest_key *key, const mf_srv_kept *kept,
                              mf_srv_bytes *out)
{
    const size_t at = begin_record(out);
    const mf_srv_origin *o = &kept->origin;
    const mf_srv_message *m = &kept->message;
    put_digest(out, &kept->key);
    put_digest(out, &o->chain);
    put_digest(out, &o->head);
    put_number(out, o->n_head_bytes, 8);
    put_number(out, o->n_head_tokens, 8);
    put_number(out, o->system_mark, 8);
    put_number(out, (uint64_t)o->now, 8);
    put_number(out, kept->has_answer ? 1 + kept->n_rest_bytes : 0, 4);
    put_number(out, kept->n_tokens, 4);
    put_number(out, m->n_calls, 4);
    for (size_t i = 0; i < kept->n_tokens; i++)
        put_number(out, (uint32_t)kept->tokens[i], 4);
    put_text(out, m->content.data, m->content.n_bytes);
    put_text(out, m->thoughts.data, m->thoughts.n_bytes);
    for (size_t i = 0; i < m->n_calls; i++) {
        put_string(out, m->calls[i].id);
        put_string(out, m->calls[i].name);
        put_string(out, m->calls[i].arguments);
    }
    end_record(key, MF_SRV_RECORD_ANSWER, at, out);
}

void mf_srv_record_put_tools(const mf_srv_digest_key *key, const char *tools, mf_srv_bytes *out)
{
    const size_t at = begin_record(out);
    put_string(out, tools);
    end_record(key, MF_SRV_RECORD_TOOLS, at, out);
}

/* ----------------------------------------------------------------------------------- reading -- */

bool mf_srv_record_head_read(const unsigned char bytes[MF_SRV_RECORD_HEAD_BYTES],
                             mf_srv_record_head *out)
{
    out->kind = (uint32_t)get_le(bytes, 4);
    out->n_bytes = (uint32_t)get_le(bytes + 4, 4);
    out->digest = (mf_srv_digest){{get_le(bytes + 8, 8), get_le(bytes + 16, 8)}};
    return out->n_bytes <= MF_SRV_RECORD_MAX_BYTES;
}

bool mf_srv_record_is_whole(const mf_srv_digest_key *key, const mf_srv_record_head *head,
                            const unsigned char *bytes)
{
    const mf_srv_digest digest = digest_of(key, head->kind, bytes, head->n_bytes);
    return mf_srv_digest_is(&digest, &head->digest);
}

typedef struct reader {
    const unsigned char *at;
    size_t n_left;
    bool is_bad;
} reader;

static uint64_t take_number(reader *r, size_t n_bytes)
{
    if (r->is_bad || r->n_left < n_bytes) {
        r->is_bad = true;
        return 0;
    }
    const uint64_t value = get_le(r->at, n_bytes);
    r->at += n_bytes;
    r->n_left -= n_bytes;
    return value;
}

static mf_srv_digest take_digest(reader *r)
{
    const uint64_t first = take_number(r, 8);
    return (mf_srv_digest){{first, take_number(r, 8)}};
}

static bool is_utf8(const unsigned char *text, size_t n_bytes)
{
    for (size_t i = 0, n; i < n_bytes; i += n) {
        n = mf_srv_utf8_length((const char *)text + i, n_bytes - i);
        if (n == 0)
            return false;
    }
    return true;
}

/* A text in the record; NULL: none. */
static const unsigned char *take_text(reader *r, size_t *n_bytes)
{
    const uint32_t n = (uint32_t)take_number(r, 4);
    *n_bytes = 0;
    if (r->is_bad || n == NO_TEXT)
        return NULL;
    if (n > r->n_left || !is_utf8(r->at, n)) {
        r->is_bad = true;
        return NULL;
    }
    const unsigned char *text = r->at;
    *n_bytes = n;
    r->at += n;
    r->n_left -= n;
    return text;
}

static void take_bytes(reader *r, mf_srv_bytes *out)
{
    size_t n = 0;
    const unsigned char *text = take_text(r, &n);
    if (text)
        mf_srv_put(out, (const char *)text, n);
    r->is_bad = r->is_bad || out->has_failed;
}

/* A text without zeros, from malloc. */
static char *take_string(reader *r)
{
    size_t n = 0;
    const unsigned char *text = take_text(r, &n);
    if (!text)
        return NULL;
    char *copy = memchr(text, '\0', n) ? NULL : strndup((const char *)text, n);
    r->is_bad = r->is_bad || !copy;
    return copy;
}

static void take_tokens(reader *r, mf_srv_kept *kept, uint32_t n_vocab)
{
    if (r->is_bad || kept->n_tokens > r->n_left / 4) {
        kept->n_tokens = 0;
        r->is_bad = true;
        return;
    }
    kept->tokens = malloc((kept->n_tokens + 1) * sizeof *kept->tokens);
    r->is_bad = !kept->tokens;
    for (size_t i = 0; i < kept->n_tokens && !r->is_bad; i++) {
        const uint64_t token = take_number(r, 4);
        r->is_bad = token >= n_vocab;
        kept->tokens[i] = (int32_t)token;
    }
}

static void take_calls(reader *r, mf_srv_message *m, size_t n)
{
    if (n == 0 || r->is_bad)
        return;
    m->calls = calloc(n, sizeof *m->calls);
    r->is_bad = !m->calls;
    while (!r->is_bad && m->n_calls < n) {
        mf_srv_call *call = &m->calls[m->n_calls++];
        call->id = take_string(r);
        call->name = take_string(r);
        call->arguments = take_string(r);
        r->is_bad = r->is_bad || !call->name || !call->arguments;
    }
}

mf_srv_kept *mf_srv_record_answer(const unsigned char *bytes, size_t n_bytes, uint32_t n_vocab)
{
    reader r = {bytes, n_bytes, false};
    mf_srv_kept *kept = mf_srv_kept_new();
    if (!kept)
        return NULL;
    mf_srv_origin *o = &kept->origin;
    kept->key = take_digest(&r);
    *o = (mf_srv_origin){.is_known = true};
    o->chain = take_digest(&r);
    o->head = take_digest(&r);
    o->n_head_bytes = take_number(&r, 8);
    o->n_head_tokens = take_number(&r, 8);
    o->system_mark = take_number(&r, 8);
    o->now = (int64_t)take_number(&r, 8);
    const uint64_t has_answer = take_number(&r, 4);
    kept->has_answer = has_answer != 0;
    kept->n_rest_bytes = has_answer > 1 ? (size_t)has_answer - 1 : 0;
    kept->n_tokens = take_number(&r, 4);
    const uint64_t n_calls = take_number(&r, 4);
    r.is_bad = r.is_bad || n_calls > MAX_CALLS || o->n_head_bytes > MF_SRV_RECORD_MAX_BYTES ||
               o->n_head_tokens > kept->n_tokens || o->system_mark > kept->n_tokens || o->now < 0 ||
               o->now > MAX_SECONDS;
    take_tokens(&r, kept, n_vocab);
    kept->message.role = MF_SRV_ASSISTANT;
    take_bytes(&r, &kept->message.content);
    take_bytes(&r, &kept->message.thoughts);
    take_calls(&r, &kept->message, n_calls);
    if (r.is_bad || r.n_left != 0 || kept->n_rest_bytes > kept->message.content.n_bytes) {
        mf_srv_kept_drop(kept);
        return NULL;
    }
    return kept;
}

char *mf_srv_record_tools(const unsigned char *bytes, size_t n_bytes)
{
    reader r = {bytes, n_bytes, false};
    char *tools = take_string(&r);
    if (!r.is_bad && r.n_left == 0)
        return tools;
    free(tools);
    return NULL;
}
