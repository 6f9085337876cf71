/* SPDX-License-Identifier: MIT */
/* The radix tree against a list of sequences that is searched from end to end: random insertions,
 * removals and lookups; every allocation failing once; its speed is printed, not judged. */
#include "base/clock.h"
#include "failing_alloc.h"
#include "state/prefix_index.h"

#define MAX_SEQUENCES 200
#define MAX_TOKENS 400

typedef struct sequence {
    int32_t tokens[MAX_TOKENS];
    size_t n_tokens;
    mf_prefix_entry *entry; /* NULL: not in the index */
} sequence;

static sequence sequences[MAX_SEQUENCES];

static size_t common(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b)
{
    size_t i = 0;
    while (i < n_a && i < n_b && a[i] == b[i])
        i++;
    return i;
}

/* A sequence that is related to one that exists, or all its own. */
static void make_tokens(uint64_t *seed, int32_t *tokens, size_t *n_tokens)
{
    const sequence *from = &sequences[test_random(seed) % MAX_SEQUENCES];
    size_t n_kept = from->n_tokens > 0 ? test_random(seed) % (from->n_tokens + 1) : 0;
    size_t n_new = test_random(seed) % 3 == 0 ? 0 : test_random(seed) % 60;
    if (test_random(seed) % 8 == 0)
        n_kept = 0;
    n_new = n_kept + n_new > MAX_TOKENS ? MAX_TOKENS - n_kept : n_new;
    memcpy(tokens, from->tokens, n_kept * sizeof *tokens);
    for (size_t i = 0; i < n_new; i++)
        tokens[n_kept + i] = (int32_t)(test_random(seed) % 3) - 1; /* few: they often share */
    *n_tokens = n_kept + n_new;
}

/* As a window would have it: a sequence serves up to a few tokens before its end. */
static bool is_near_end(const void *ctx, const void *value, size_t n_common)
{
    const size_t *most = ctx;
    const sequence *s = value;
    return s->n_tokens - n_common <= *most;
}

static void check_find_serving(const mf_prefix_index *index, const int32_t *tokens, size_t n_tokens)
{
    static const size_t most[] = {0, 3, 40};
    for (size_t k = 0; k < 6; k++) {
        const size_t n_least = k / 3 * 10;
        size_t best = 0;
        for (size_t i = 0; i < MAX_SEQUENCES; i++) {
            const sequence *s = &sequences[i];
            const size_t n = common(s->tokens, s->n_tokens, tokens, n_tokens);
            if (s->entry != NULL && n > n_least && n > best && is_near_end(&most[k % 3], s, n))
                best = n;
        }
        const mf_prefix_match m =
            mf_prefix_find_serving(index, tokens, n_tokens, n_least, is_near_end, &most[k % 3]);
        const sequence *s = m.value;
        CHECK((s != NULL) == (best != 0));
        CHECK_U64(m.n_common, best);
        CHECK(s == NULL || (s->entry != NULL && is_near_end(&most[k % 3], s, best) &&
                            common(s->tokens, s->n_tokens, tokens, n_tokens) == best));
    }
}

static void check_find(const mf_prefix_index *index, const int32_t *tokens, size_t n_tokens)
{
    bool any = false, any_whole = false;
    size_t best_common = 0, best_whole = 0;
    for (size_t i = 0; i < MAX_SEQUENCES; i++) {
        const sequence *s = &sequences[i];
        if (s->entry == NULL)
            continue;
        size_t n = common(s->tokens, s->n_tokens, tokens, n_tokens);
        best_common = n > best_common ? n : best_common;
        any = true;
        if (n == s->n_tokens) {
            any_whole = true;
            best_whole = n > best_whole ? n : best_whole;
        }
    }
    mf_prefix_match m = mf_prefix_find_common(index, tokens, n_tokens);
    CHECK((m.value != NULL) == any);
    CHECK_U64(m.n_common, best_common);
    if (m.value != NULL) {
        const sequence *s = m.value;
        CHECK(s->entry != NULL && common(s->tokens, s->n_tokens, tokens, n_tokens) == m.n_common);
    }
    m = mf_prefix_find_whole(index, tokens, n_tokens);
    CHECK((m.value != NULL) == any_whole);
    CHECK_U64(m.n_common, best_whole);
    if (m.value != NULL) {
        const sequence *s = m.value;
        CHECK(s->entry != NULL && s->n_tokens == m.n_common);
        CHECK(common(s->tokens, s->n_tokens, tokens, n_tokens) == m.n_common);
    }
    check_find_serving(index, tokens, n_tokens);
}

static size_t n_in_index(void)
{
    size_t n = 0;
    for (size_t i = 0; i < MAX_SEQUENCES; i++)
        n += sequences[i].entry != NULL;
    return n;
}

/* The tree's size is told by its memory: a block each for the index and its root's children, one
 * for an entry, and two for a node or, with children, three. */
static void check_n_blocks(const failing *f, size_t n_entries)
{
    CHECK((uint64_t)f->n_live <= 2 + n_entries + 3 * 2 * n_entries);
}

static void random_step(mf_prefix_index *index, const failing *f, uint64_t *seed)
{
    sequence *s = &sequences[test_random(seed) % MAX_SEQUENCES];
    mf_error error = {0};
    if (s->entry != NULL) {
        mf_prefix_remove(index, s->entry);
        s->entry = NULL;
    } else {
        int32_t tokens[MAX_TOKENS];
        make_tokens(seed, tokens, &s->n_tokens);
        memcpy(s->tokens, tokens, sizeof tokens);
        REQUIRE_OK(mf_prefix_insert(index, s->tokens, s->n_tokens, s, &s->entry, &error), &error);
    }
    check_n_blocks(f, n_in_index());
}

static void test_random_steps(void)
{
    failing f = {0};
    const mf_allocator a = failing_allocator(&f);
    mf_prefix_index *index = NULL;
    mf_error error = {0};
    uint64_t seed = 11;
    REQUIRE_OK(mf_prefix_index_create(&a, &index, &error), &error);
    check_find(index, NULL, 0);
    for (int step = 0; step < 20000; step++) {
        random_step(index, &f, &seed);
        if (step % 4 == 0) {
            int32_t tokens[MAX_TOKENS];
            size_t n_tokens;
            make_tokens(&seed, tokens, &n_tokens);
            check_find(index, tokens, n_tokens);
        }
    }
    for (size_t i = 0; i < MAX_SEQUENCES; i++) {
        if (sequences[i].entry != NULL)
            mf_prefix_remove(index, sequences[i].entry);
        sequences[i].entry = NULL;
    }
    check_n_blocks(&f, 0);
    mf_prefix_index_free(&index);
    CHECK(index == NULL);
    mf_prefix_index_free(&index);
    failing_check_end(&f, "an index of random steps");
}

/* The last inserted of equal sequences, then the one before. */
static void test_equal_sequences(void)
{
    const mf_allocator a = mf_allocator_default();
    static const int32_t tokens[] = {5, 6, 7, 8};
    mf_prefix_index *index = NULL;
    mf_prefix_entry *first = NULL, *second = NULL, *empty = NULL;
    int one, two, three;
    mf_error error = {0};
    REQUIRE_OK(mf_prefix_index_create(&a, &index, &error), &error);
    REQUIRE_OK(mf_prefix_insert(index, tokens, 3, &one, &first, &error), &error);
    REQUIRE_OK(mf_prefix_insert(index, tokens, 3, &two, &second, &error), &error);
    REQUIRE_OK(mf_prefix_insert(index, tokens, 0, &three, &empty, &error), &error);
    CHECK(mf_prefix_find_whole(index, tokens, 4).value == &two);
    CHECK(mf_prefix_find_whole(index, tokens, 2).value == &three);
    CHECK(mf_prefix_find_common(index, tokens, 2).n_common == 2);
    mf_prefix_remove(index, second);
    CHECK(mf_prefix_find_whole(index, tokens, 3).value == &one);
    mf_prefix_remove(index, first);
    CHECK(mf_prefix_find_whole(index, tokens, 3).value == &three);
    mf_prefix_index_free(&index);
}

/* Fails the allocation whose turn it is. */
static void test_failing_allocations(void)
{
    failing f = {0};
    const mf_allocator a = failing_allocator(&f);
    mf_prefix_index *index = NULL;
    mf_error error = {0};
    uint64_t seed = 5;
    unsigned n_failed = 0;
    failing_arm(&f, 1, true);
    CHECK_STATUS(mf_prefix_index_create(&a, &index, &error), MF_ERR_NO_MEMORY);
    CHECK(failing_disarm(&f));
    REQUIRE_OK(mf_prefix_index_create(&a, &index, &error), &error);
    for (int step = 0; step < 3000; step++) {
        sequence *s = &sequences[test_random(&seed) % MAX_SEQUENCES];
        failing_arm(&f, 1 + test_random(&seed) % 6, true);
        if (s->entry != NULL) {
            mf_prefix_remove(index, s->entry);
            s->entry = NULL;
        } else {
            int32_t tokens[MAX_TOKENS];
            make_tokens(&seed, tokens, &s->n_tokens);
            memcpy(s->tokens, tokens, sizeof tokens);
            mf_status status =
                mf_prefix_insert(index, s->tokens, s->n_tokens, s, &s->entry, &error);
            if (status != MF_OK) {
                CHECK_STATUS(status, MF_ERR_NO_MEMORY);
                CHECK(s->entry == NULL);
                n_failed++;
            }
        }
        failing_disarm(&f);
        check_find(index, s->tokens, s->n_tokens);
    }
    CHECK(n_failed > 100);
    mf_prefix_index_free(&index);
    failing_check_end(&f, "the index");
    for (size_t i = 0; i < MAX_SEQUENCES; i++)
        sequences[i].entry = NULL;
}

/* An insertion that fails leaves the tree as it was: no node without an entry or two children,
 * which would break the invariant that bounds the nodes. Only where even taking it back finds no
 * memory a node stays, until the next removal beside it. */
static void test_failed_insert_is_pruned(void)
{
    static const int32_t held[] = {1, 2, 3, 4}, added[] = {1, 2, 5, 6};
    failing f = {0};
    const mf_allocator a = failing_allocator(&f);
    mf_error error = {0};
    for (int once = 0; once < 2; once++) {
        unsigned n = 1;
        for (bool has_failed = true; has_failed; n++) {
            mf_prefix_index *index = NULL;
            mf_prefix_entry *one = NULL, *two = NULL;
            int value;
            REQUIRE(n < 20);
            REQUIRE_OK(mf_prefix_index_create(&a, &index, &error), &error);
            REQUIRE_OK(mf_prefix_insert(index, held, 4, &value, &one, &error), &error);
            failing_arm(&f, n, once == 1);
            mf_status status = mf_prefix_insert(index, added, 4, &value, &two, &error);
            has_failed = failing_disarm(&f);
            CHECK_STATUS(status, has_failed ? MF_ERR_NO_MEMORY : MF_OK);
            /* two for the tree, an entry, a leaf of two; then an inner node of three, and both
             * again */
            long long n_blocks = f.n_live;
            CHECK(has_failed ? n_blocks == 5 || (once == 0 && n_blocks == 8) : n_blocks == 11);
            CHECK(mf_prefix_find_whole(index, held, 4).n_common == 4);
            mf_prefix_remove(index, one);
            CHECK_U64(f.n_live, has_failed ? 2 : 5);
            mf_prefix_index_free(&index);
        }
        CHECK(n > 5);
    }
    failing_check_end(&f, "failed insertions");
}

/* 64 sequences of 4,096 tokens with a common beginning. */
static void print_speed(void)
{
    enum { N = 64, LONG = 4096, ROUNDS = 2000 };
    static int32_t tokens[N][LONG];
    const mf_allocator a = mf_allocator_default();
    mf_prefix_index *index = NULL;
    mf_prefix_entry *entries[N];
    mf_error error = {0};
    uint64_t seed = 3;
    REQUIRE_OK(mf_prefix_index_create(&a, &index, &error), &error);
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < LONG; k++)
            tokens[i][k] = i > 0 && k < 60 * i ? tokens[i - 1][k] : (int32_t)test_random(&seed);
        REQUIRE_OK(mf_prefix_insert(index, tokens[i], LONG, tokens[i], &entries[i], &error),
                   &error);
    }
    uint64_t started = mf_now_us();
    for (int i = 0; i < ROUNDS; i++) {
        mf_prefix_match m = mf_prefix_find_whole(index, tokens[i % N], LONG);
        CHECK(m.value == tokens[i % N] && m.n_common == LONG);
    }
    double us = (double)(mf_now_us() - started) / ROUNDS;
    printf("a lookup of %d tokens among %d sequences: %.2f us\n", LONG, N, us);
    mf_prefix_index_free(&index);
}

int main(void)
{
    test_random_steps();
    test_equal_sequences();
    test_failing_allocations();
    test_failed_insert_is_pruned();
    print_speed();
    return test_result();
}
