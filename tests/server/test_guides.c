/* SPDX-License-Identifier: MIT */
/* Grammars that requests asked for are found again by their text: those used last, with what their
 * masks have found. */
#include "guides.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

static mf_tokenizer *tokenizer;
static mf_vocabulary *vocabulary;

static mf_srv_bytes name_of(int i)
{
    mf_srv_bytes name = {0};
    mf_srv_printf(&name, "schema %d", i);
    return name;
}

/* A guide whose texts are i letters "a". */
static mf_grammar *make(int i, mf_guide **guide)
{
    char text[64];
    mf_grammar_params params;
    mf_grammar *grammar = NULL;
    mf_error error = {0};
    mf_grammar_params_default(&params);
    params.n_gbnf_bytes = (size_t)snprintf(text, sizeof text, "root ::= \"a\"{%d}\n", i);
    params.gbnf = text;
    REQUIRE_OK(mf_grammar_compile(vocabulary, &params, &grammar, &error), &error);
    REQUIRE_OK(mf_guide_create(grammar, guide, &error), &error);
    return grammar;
}

/* How many letters a guide takes. */
static int n_letters(mf_guide *guide)
{
    int32_t a;
    size_t n_tokens;
    int n = 0;
    REQUIRE(mf_tokenizer_encode(tokenizer, "a", 1, 0, &a, 1, &n_tokens, NULL) == MF_OK);
    REQUIRE(n_tokens == 1);
    while (n < 100 && mf_guide_accept(guide, a, NULL) == MF_OK)
        n++;
    CHECK(mf_guide_is_done(guide));
    return n;
}

static void put(mf_srv_guides *guides, int i, const char *word)
{
    char opening[256] = "";
    mf_guide *guide = NULL;
    mf_srv_bytes name = name_of(i);
    mf_grammar *grammar = make(i, &guide);
    snprintf(opening, sizeof opening, "%s", word);
    mf_srv_guides_put(guides, &name, guide, opening);
    mf_guide_free(&guide);
    mf_grammar_free(&grammar);
    mf_srv_bytes_free(&name);
}

/* 0: it is not there. */
static int find(mf_srv_guides *guides, int i, char *opening)
{
    mf_srv_bytes name = name_of(i);
    mf_guide *guide = mf_srv_guides_find(guides, &name, opening);
    int n = guide ? n_letters(guide) : 0;
    mf_guide_free(&guide);
    mf_srv_bytes_free(&name);
    return n;
}

static void check_kept(void)
{
    char opening[256];
    mf_srv_guides *guides = mf_srv_guides_new();
    REQUIRE(guides != NULL);
    CHECK(find(guides, 1, opening) == 0);
    for (int i = 1; i <= MF_SRV_GUIDES; i++)
        put(guides, i, "");
    for (int i = 1; i <= MF_SRV_GUIDES; i++) {
        CHECK(find(guides, i, opening) == i); /* at its beginning, each time */
        CHECK(find(guides, i, opening) == i);
        CHECK_STR(opening, "");
    }
    CHECK(find(guides, 1, opening) == 1);
    put(guides, MF_SRV_GUIDES + 1, "<call>");
    CHECK(find(guides, 2, opening) == 0); /* the one that was not asked for the longest */
    CHECK(find(guides, 1, opening) == 1);
    CHECK(find(guides, MF_SRV_GUIDES + 1, opening) == MF_SRV_GUIDES + 1);
    CHECK_STR(opening, "<call>");
    put(guides, 1, "<again>"); /* in its own place */
    CHECK(find(guides, 1, opening) == 1);
    CHECK_STR(opening, "<again>");
    CHECK(find(guides, 3, opening) == 3);
    mf_srv_guides_free(&guides);
    CHECK(guides == NULL);
    mf_srv_guides_free(&guides);
}

/* What one request's masks cost the next one has. */
static void check_masks(void)
{
    char opening[256] = "";
    uint32_t *mask = calloc(mf_tokenizer_n_vocab(tokenizer) / 32 + 1, sizeof *mask);
    mf_srv_bytes name = name_of(5);
    mf_grammar_stats stats;
    mf_guide *guide = NULL;
    mf_grammar *grammar = make(5, &guide);
    mf_srv_guides *guides = mf_srv_guides_new();
    REQUIRE(guides != NULL && mask != NULL);
    mf_srv_guides_put(guides, &name, guide, opening);
    for (uint64_t i = 0; i < 3; i++) {
        mf_guide *again = mf_srv_guides_find(guides, &name, opening);
        REQUIRE(again != NULL);
        CHECK_STATUS(mf_guide_mask(again, mask, mf_tokenizer_n_vocab(tokenizer), NULL, NULL),
                     MF_OK);
        mf_grammar_get_stats(grammar, &stats);
        CHECK_U64(stats.n_masks, 1);
        CHECK_U64(stats.n_reused, i);
        mf_guide_free(&again);
    }
    mf_guide_free(&guide);
    mf_grammar_free(&grammar);
    mf_srv_guides_free(&guides);
    mf_srv_bytes_free(&name);
    free(mask);
}

int main(void)
{
    mf_error error = {0};
    REQUIRE_OK(mf_tokenizer_open("models/demo", NULL, &tokenizer, &error), &error);
    REQUIRE_OK(mf_vocabulary_create(tokenizer, NULL, &vocabulary, &error), &error);
    check_kept();
    check_masks();
    mf_vocabulary_free(&vocabulary);
    mf_tokenizer_free(&tokenizer);
    return test_result();
}
