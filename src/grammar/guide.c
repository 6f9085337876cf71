/* SPDX-License-Identifier: MIT */
/*
 * Guides: one text each. The stacks of a text lie in the guide's own pool, which is cleared of
 * what is no longer referred to when it has grown; masks are found in the grammar's.
 */
#include "grammar/grammar.h"

#define MAX_TRIGGER_BYTES 256
/* Stacks in the pool before those in use are copied to a new one. */
#define MANY_STACKS 20000

typedef enum guide_mode {
    IS_FREE,  /* until the trigger has come */
    IS_BLANK, /* line feeds may come, or the grammar */
    IS_MATCHING
} guide_mode;

struct mf_guide {
    mf_grammar *grammar;
    mf_pool pool;
    mf_tops tops, next, other;
    guide_mode mode;
    size_t n_taken; /* tokens */
    char trigger[MAX_TRIGGER_BYTES + 1];
    size_t n_trigger;       /* 0: none */
    size_t n_trigger_found; /* of its bytes, the last ones of the text so far */
    uint32_t trigger_token; /* that is the trigger, or MF_NO_TOKEN */
    uint32_t *risky;        /* tokens in which something may stand behind the trigger */
    size_t n_risky, risky_capacity;
    bool repeats;
    unsigned max_blanks, n_blanks;
};

static mf_status pool_failed(const mf_pool *p, mf_error *error)
{
    if (p->status == MF_ERR_UNSUPPORTED)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "the grammar is too ambiguous: more than %u ways",
                       MF_MAX_TOPS);
    return mf_fail_memory(error, p->capacity * sizeof *p->stacks, "a grammar's state");
}

static mf_status start(mf_guide *m, mf_error *error)
{
    mf_pool_clear(&m->pool);
    mf_pool_start(&m->pool, &m->tops);
    m->mode = m->n_trigger > 0 ? IS_FREE : IS_MATCHING;
    m->n_trigger_found = 0;
    m->n_blanks = 0;
    return m->pool.status == MF_OK ? MF_OK : pool_failed(&m->pool, error);
}

mf_status mf_guide_create(mf_grammar *grammar, mf_guide **out, mf_error *error)
{
    if (grammar == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_guide_create: a NULL argument");
    mf_guide *m = mf_alloc_zeroed(&grammar->allocator, sizeof *m);
    if (m == NULL)
        return mf_fail_memory(error, sizeof *m, "a guide");
    m->grammar = grammar;
    m->trigger_token = MF_NO_TOKEN;
    __atomic_add_fetch(&grammar->n_refs, 1, __ATOMIC_RELAXED);
    mf_pool_init(&m->pool, &grammar->allocator, &grammar->program);
    mf_status status = start(m, error);
    if (status == MF_OK)
        *out = m;
    else
        mf_guide_free(&m);
    return status;
}

void mf_guide_free(mf_guide **guide)
{
    if (guide == NULL || *guide == NULL)
        return;
    mf_guide *m = *guide;
    *guide = NULL;
    mf_grammar *g = m->grammar;
    const mf_allocator a = g->allocator;
    mf_tops_free(&a, &m->tops);
    mf_tops_free(&a, &m->next);
    mf_tops_free(&a, &m->other);
    mf_pool_free(&m->pool);
    mf_free(&a, m->risky, m->risky_capacity * sizeof *m->risky);
    mf_free(&a, m, sizeof *m);
    mf_grammar_free(&g);
}

static mf_status copy_risky(mf_guide *m, const mf_guide *from)
{
    const size_t n_bytes = from->n_risky * sizeof *from->risky;
    if (n_bytes == 0)
        return MF_OK;
    m->risky = mf_alloc(&m->grammar->allocator, n_bytes);
    if (m->risky == NULL)
        return MF_ERR_NO_MEMORY;
    m->risky_capacity = from->n_risky;
    memcpy(m->risky, from->risky, n_bytes);
    return MF_OK;
}

mf_status mf_guide_clone(const mf_guide *guide, mf_guide **out, mf_error *error)
{
    mf_guide *m = NULL;
    if (guide == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_guide_clone: a NULL argument");
    MF_TRY(mf_guide_create(guide->grammar, &m, error));
    mf_guide copy = *guide;
    copy.pool = m->pool;
    copy.tops = m->tops;
    copy.next = m->next;
    copy.other = m->other;
    copy.risky = NULL;
    copy.risky_capacity = 0;
    *m = copy;
    if (copy_risky(m, guide) != MF_OK) {
        mf_guide_free(&m);
        return mf_fail_memory(error, copy.n_risky * sizeof *copy.risky, "a guide");
    }
    mf_pool_copy(&m->pool, &guide->pool, &guide->tops, 0, &m->tops);
    if (m->pool.status != MF_OK) {
        mf_status status = pool_failed(&m->pool, error);
        mf_guide_free(&m);
        return status;
    }
    *out = m;
    return MF_OK;
}

mf_status mf_guide_reset(mf_guide *guide, mf_error *error)
{
    if (guide == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_guide_reset: a NULL argument");
    guide->n_taken = 0;
    return start(guide, error);
}

/* ------------------------------------------------------------------------------------ tokens -- */

/* Drops from the pool what nothing refers to. */
static mf_status tidy(mf_guide *m, mf_error *error)
{
    mf_pool fresh;
    if (m->pool.n_stacks < MANY_STACKS)
        return MF_OK;
    mf_pool_init(&fresh, &m->grammar->allocator, &m->grammar->program);
    mf_pool_copy(&fresh, &m->pool, &m->tops, 0, &m->other);
    if (fresh.status != MF_OK) {
        mf_status status = pool_failed(&fresh, error);
        mf_pool_free(&fresh);
        return status;
    }
    mf_pool_free(&m->pool);
    m->pool = fresh;
    const mf_tops swap = m->tops;
    m->tops = m->other;
    m->other = swap;
    return MF_OK;
}

/* m->tops, byte by byte, into m->next; false where they lead nowhere. */
static bool follow(mf_guide *m, const unsigned char *bytes, size_t n)
{
    if (!mf_tops_set(&m->pool, &m->next, m->tops.items, m->tops.n))
        return false;
    for (size_t i = 0; i < n && m->next.n > 0; i++)
        mf_pool_byte(&m->pool, &m->next, bytes[i], &m->next);
    return m->next.n > 0;
}

static void take_next(mf_guide *m)
{
    const mf_tops swap = m->tops;
    m->tops = m->next;
    m->next = swap;
}

/* How many of the trigger's first bytes the text ends with once a byte has come behind `found` of
 * them. */
static size_t advance_trigger(const mf_guide *m, size_t found, unsigned char byte)
{
    while (found > 0 && (unsigned char)m->trigger[found] != byte) {
        size_t shorter = found - 1; /* the longest end of what was found that begins it */
        while (shorter > 0 && memcmp(m->trigger, m->trigger + found - shorter, shorter) != 0)
            shorter--;
        found = shorter;
    }
    return (unsigned char)m->trigger[found] == byte ? found + 1 : found;
}

/* Can the trigger end in these bytes before they do, whatever stood before them? */
static bool is_risky(const mf_guide *m, const unsigned char *bytes, size_t n)
{
    const unsigned char last = (unsigned char)m->trigger[m->n_trigger - 1];
    for (const unsigned char *at = bytes; (at = memchr(at, last, (size_t)(bytes + n - at))) != NULL;
         at++) {
        const size_t n_before = (size_t)(at - bytes) + 1;
        const size_t n_same = n_before < m->n_trigger ? n_before : m->n_trigger;
        if (n_before < n &&
            memcmp(at + 1 - n_same, m->trigger + m->n_trigger - n_same, n_same) == 0)
            return true;
    }
    return false;
}

static mf_status find_risky(mf_guide *m, mf_error *error)
{
    const mf_vocabulary *v = m->grammar->vocabulary;
    const mf_allocator *a = &m->grammar->allocator;
    m->n_risky = 0;
    for (uint32_t token = 0; token < v->n_tokens; token++) {
        size_t n;
        const unsigned char *bytes = mf_vocabulary_bytes(v, token, &n);
        if (bytes == NULL || !is_risky(m, bytes, n))
            continue;
        if (m->n_risky == m->risky_capacity) {
            const size_t grown = m->risky_capacity * 2 + 64;
            uint32_t *risky =
                mf_realloc(a, m->risky, m->risky_capacity * sizeof *risky, grown * sizeof *risky);
            if (risky == NULL)
                return mf_fail_memory(error, grown * sizeof *risky, "a guide");
            m->risky = risky;
            m->risky_capacity = grown;
        }
        m->risky[m->n_risky++] = token;
    }
    return MF_OK;
}

mf_status mf_guide_begin_after(mf_guide *m, const char *text, int repeats, unsigned blanks,
                               mf_error *error)
{
    size_t n_token = 0;
    const size_t n = m == NULL || text == NULL ? 0 : strlen(text);
    if (n == 0 || n > MAX_TRIGGER_BYTES)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "mf_guide_begin_after: a NULL argument or a text not of 1 to %d bytes",
                       MAX_TRIGGER_BYTES);
    if (m->n_taken > 0)
        return mf_fail(error, MF_ERR_STATE, "mf_guide_begin_after: tokens were taken already");
    memcpy(m->trigger, text, n + 1);
    m->n_trigger = n;
    m->trigger_token = mf_vocabulary_added(m->grammar->vocabulary, text, n, &n_token);
    if (n_token != n)
        m->trigger_token = MF_NO_TOKEN;
    m->repeats = repeats != 0;
    m->max_blanks = blanks;
    MF_TRY(find_risky(m, error));
    return start(m, error);
}

/* Bytes of the grammar's part, line feeds before it included. */
static bool match(mf_guide *m, guide_mode *mode, unsigned *n_blanks, const unsigned char *bytes,
                  size_t n)
{
    while (n > 0 && *mode == IS_BLANK && *bytes == '\n' && *n_blanks < m->max_blanks) {
        bytes++;
        n--;
        ++*n_blanks;
    }
    if (n == 0)
        return mf_tops_set(&m->pool, &m->next, m->tops.items, m->tops.n);
    *mode = IS_MATCHING;
    return follow(m, bytes, n);
}

/* Where in the bytes the trigger has come, `found` of it standing before them; SIZE_MAX: it has
 * not, and *found is what of it stands last. */
static size_t find_trigger(const mf_guide *m, size_t *found, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        *found = advance_trigger(m, *found, bytes[i]);
        if (*found == m->n_trigger)
            return i + 1;
    }
    return SIZE_MAX;
}

/* Free text: everything is taken; what stands behind the trigger in its last token must match. */
static bool take_free(mf_guide *m, uint32_t token, const unsigned char *bytes, size_t n)
{
    if (token == m->trigger_token) {
        m->mode = IS_BLANK;
        m->n_blanks = 0;
        return true;
    }
    guide_mode mode = IS_BLANK;
    unsigned n_blanks = 0;
    size_t found = m->n_trigger_found;
    const size_t rest = find_trigger(m, &found, bytes, n);
    if (rest == SIZE_MAX) {
        m->n_trigger_found = bytes != NULL ? found : 0;
        return true;
    }
    if (!match(m, &mode, &n_blanks, bytes + rest, n - rest))
        return false;
    take_next(m);
    m->mode = mode;
    m->n_blanks = n_blanks;
    return true;
}

/* The grammar is satisfied and its text may come again. */
static bool goes_free(const mf_guide *m)
{
    return m->repeats && m->mode == IS_MATCHING && mf_tops_may_end(&m->pool, &m->tops);
}

static mf_status set_free(mf_guide *m, mf_error *error)
{
    const size_t n_taken = m->n_taken;
    MF_TRY(start(m, error));
    m->n_taken = n_taken;
    return MF_OK;
}

/* By its bytes, by its number where the grammar has that, or by both. What is named by its number
 * is the grammar's, and no line feed before it. */
static bool take_limited(mf_guide *m, uint32_t token, const unsigned char *bytes, size_t n)
{
    guide_mode mode = m->mode;
    unsigned n_blanks = m->n_blanks;
    const bool matches = bytes != NULL && match(m, &mode, &n_blanks, bytes, n);
    mf_pool_token(&m->pool, &m->tops, token, &m->other);
    const mf_tops *named = &m->other;
    if (m->pool.status != MF_OK || (named->n == 0 && !matches))
        return false;
    if (named->n > 0) {
        if (!(matches && mode == IS_MATCHING
                  ? mf_tops_join(&m->pool, &m->next, named)
                  : mf_tops_set(&m->pool, &m->next, named->items, named->n)))
            return false;
        mode = IS_MATCHING;
    }
    take_next(m);
    m->mode = mode;
    m->n_blanks = n_blanks;
    return true;
}

mf_status mf_guide_accept(mf_guide *m, int32_t token, mf_error *error)
{
    if (m == NULL || token < 0)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_guide_accept: NULL, or token %ld", (long)token);
    size_t n = 0;
    const unsigned char *bytes = mf_vocabulary_bytes(m->grammar->vocabulary, (uint32_t)token, &n);
    MF_TRY(tidy(m, error));
    const bool is_taken = m->mode == IS_FREE ? take_free(m, (uint32_t)token, bytes, n)
                                             : take_limited(m, (uint32_t)token, bytes, n);
    if (m->pool.status != MF_OK)
        return pool_failed(&m->pool, error);
    if (!is_taken)
        return mf_fail(error, MF_ERR_ARGUMENT, "token %ld is not allowed here", (long)token);
    m->n_taken++;
    return goes_free(m) ? set_free(m, error) : MF_OK;
}

/* ------------------------------------------------------------------------------------- masks -- */

/* Line feeds before the grammar: tokens of nothing else. */
static void allow_blanks(const mf_guide *m, uint32_t *mask)
{
    const mf_vocabulary *v = m->grammar->vocabulary;
    for (size_t i = 0; i < v->rest.n_nodes;) {
        const mf_trie_node *node = &v->rest.nodes[i];
        if (node->byte != '\n' || node->depth >= m->max_blanks - m->n_blanks) {
            i = node->skip;
            continue;
        }
        for (uint32_t t = node->token; t != MF_NO_TOKEN; t = v->same[t])
            mask[t / 32] |= 1u << t % 32;
        i++;
    }
}

/* Free text: all, but for tokens that would begin the grammar wrongly, and for an end where it has
 * to come. */
static void allow_free(mf_guide *m, uint32_t *mask, size_t n_words)
{
    const mf_vocabulary *v = m->grammar->vocabulary;
    memset(mask, 0xFF, n_words * sizeof *mask);
    for (size_t i = 0; i < v->n_words && !m->repeats; i++)
        mask[i] &= ~v->ends[i];
    for (size_t i = 0; i < m->n_risky; i++) {
        const uint32_t token = m->risky[i];
        guide_mode mode = IS_BLANK;
        unsigned n_blanks = 0;
        size_t n, found = m->n_trigger_found;
        const unsigned char *bytes = mf_vocabulary_bytes(v, token, &n);
        const size_t rest = find_trigger(m, &found, bytes, n);
        if (rest != SIZE_MAX && !match(m, &mode, &n_blanks, bytes + rest, n - rest))
            mask[token / 32] &= ~(1u << token % 32);
    }
}

mf_status mf_guide_mask(mf_guide *m, uint32_t *mask, size_t n_tokens, int *is_limited,
                        mf_error *error)
{
    if (m == NULL || mask == NULL || n_tokens < m->grammar->vocabulary->n_tokens)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "mf_guide_mask: a NULL argument or a mask of %zu tokens", n_tokens);
    mf_grammar *g = m->grammar;
    const size_t n_known = g->vocabulary->n_words, n_words = (n_tokens + 31) / 32;
    if (m->mode == IS_FREE) {
        allow_free(m, mask, n_words);
        if (is_limited != NULL)
            *is_limited = !m->repeats || m->n_risky > 0;
        return m->pool.status == MF_OK ? MF_OK : pool_failed(&m->pool, error);
    }
    memset(mask, 0, n_words * sizeof *mask);
    if (is_limited != NULL)
        *is_limited = 1;
    pthread_mutex_lock(&g->mutex);
    uint32_t only;
    mf_status status = mf_masks_find(&g->masks, &m->pool, &m->tops, mask, &only, error);
    pthread_mutex_unlock(&g->mutex);
    if (status != MF_OK)
        return status;
    if (m->mode == IS_BLANK && m->n_blanks < m->max_blanks)
        allow_blanks(m, mask);
    for (size_t i = 0; i < n_known; i++)
        if (mask[i] != 0)
            return MF_OK;
    return mf_fail(error, MF_ERR_NOT_FOUND,
                   "no token of the vocabulary goes on with what the grammar allows here");
}

mf_status mf_guide_forced(mf_guide *m, int32_t *token, mf_error *error)
{
    if (m == NULL || token == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_guide_forced: a NULL argument");
    mf_grammar *g = m->grammar;
    uint32_t only = MF_NO_TOKEN;
    mf_status status = MF_OK;
    if (m->mode == IS_MATCHING || (m->mode == IS_BLANK && m->n_blanks == m->max_blanks)) {
        pthread_mutex_lock(&g->mutex);
        status = mf_masks_find(&g->masks, &m->pool, &m->tops, NULL, &only, error);
        pthread_mutex_unlock(&g->mutex);
    }
    if (status != MF_OK)
        return status;
    const bool is_forced =
        only != MF_NO_TOKEN && !mf_tokenizer_is_end(g->vocabulary->tokenizer, (int32_t)only);
    *token = is_forced ? (int32_t)only : -1;
    return MF_OK;
}

int mf_guide_may_end(const mf_guide *m)
{
    return m->mode == IS_FREE ? m->repeats : mf_tops_may_end(&m->pool, &m->tops);
}

int mf_guide_is_done(const mf_guide *m)
{
    return m->mode == IS_MATCHING && m->tops.n == 1 && mf_tops_may_end(&m->pool, &m->tops);
}
