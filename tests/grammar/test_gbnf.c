/* SPDX-License-Identifier: MIT */
/* GBNF: what a grammar's text allows, and how its mistakes are named. */
#include "grammar_data.h"

#define MAX_TEXTS 10

typedef struct gbnf_case {
    const char *grammar;
    const char *valid[MAX_TEXTS], *invalid[MAX_TEXTS];
} gbnf_case;

static const gbnf_case cases[] = {
    {"root ::= \"a\"", {"a"}, {"", "b", "aa"}},
    {"root ::= \"\" | \"a\\n\\\"\\x41\\u00e9\\U0001F600\"",
     {"", "a\n\"A\xc3\xa9\xf0\x9f\x98\x80"},
     {"a"}},
    {"root ::= x y? # a remark\nx ::= [a-cx-z]+\ny ::= [^a-z\\n]*",
     {"abc", "x", "z1 2", "a\xc3\xa9"},
     {"", "d", "a\n", "1"}},
    {"root ::= (\"a\" | \"b\" \"c\"){2} .",
     {"aax", "bcbc\n", "abc\xf0\x9f\x98\x80"},
     {"aa", "aaxx", "bcx"}},
    {"root ::=\n  \"a\" |\n  \"b\"\n  | \"c\"\n", {"a", "b", "c"}, {"ab"}},
    {"root ::= [0-9]{2,4} [a-z]{3} [x]{2,} [y]{,1}",
     {"12abcxx", "1234abcxxxxy"},
     {"1abcxx", "12345abcxx", "12abxx", "12abcx", "12abcxxyy"}},
    {"root ::= [-a\\]] [\\^b-]", {"--", "a^", "]b"}, {"b-", "ac"}},
    /* recursion: what is balanced, and lists that end in themselves */
    {"root ::= \"(\" root* \")\"", {"()", "(()(()))"}, {"(", "())", ""}},
    {"root ::= item rest\nrest ::= \",\" item rest | \"\"\nitem ::= [a-z]",
     {"a", "a,b,c"},
     {"a,", ",a"}},
    {"root ::= e\ne ::= t (\"+\" t)*\nt ::= f (\"*\" f)*\nf ::= [0-9]+ | \"(\" e \")\"",
     {"1+2*(3+4)", "((1))"},
     {"1+", "(1", "1++2"}},
    /* several ways at once */
    {"root ::= [a-z]* \"end\" | \"w\" [a-z0-9]* \"!\"",
     {"end", "endend", "wend", "w9!", "wend!"},
     {"w9", "en"}},
    {"root ::= (\"a\"?){3} \"b\"", {"b", "ab", "aaab"}, {"aaaab"}},
    {"root ::= (\"a\"*)* \"b\"", {"b", "aab"}, {"a"}},
    {"root ::= \"\xf0\x9f\x98\x80\" [\xc3\xa0-\xc3\xbf]",
     {"\xf0\x9f\x98\x80\xc3\xa9"},
     {"\xf0\x9f\x98\x81\xc3\xa9", "\xf0\x9f\x98\x80z"}},
    {"root ::= [\\x00-\\U0010FFFF]",
     {"a", "\xed\x9f\xbf", "\xee\x80\x80", "\xf4\x8f\xbf\xbf", "\xc2\x80"},
     {"\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\x80", "\x80"}},
};

static const struct {
    const char *grammar, *says;
} refused[] = {
    {"", "root"},
    {"a ::= \"x\"", "root"},
    {"root ::= a", "the rule a is used"},
    {"root ::= \"a\"\nroot ::= \"b\"", "the grammar's line 2: the rule root is there twice"},
    {"root ::= root \"a\" | \"b\"", "left recursion"},
    {"root ::= a\na ::= b* a \"x\" | \"y\"\nb ::= \"z\"?", "left recursion"},
    {"root ::= \"a\" root", "no text ends it"},
    {"root ::= \"a", "within a literal"},
    {"root ::= \"\\q\"", "escape"},
    {"root ::= \"\\ud800\"", "no character"},
    {"root ::= \"\\xg0\"", "hexadecimal"},
    {"root ::= [z-a]", "backwards"},
    {"root ::= [a", "within a literal"},
    {"root ::= (\"a\"", "expected ')'"},
    {"root ::= \"a\")", "end of the rule"},
    {"root ::= \"a\"{3,2}", "repeats"},
    {"root ::= \"a\"{}", "repeats"},
    {"root ::= \"a\"{99999999}", "1000000"},
    {"root = \"a\"", "'::='"},
    {"\nroot ::= \"a\"\n%", "line 3"},
    {"root ::= <none>", "no token is called <none>"},
    {"root ::= <[99999999]>", "no such token"},
    {"root ::= !<x>", "not supported"},
    /* what ends the answer, before what has to come */
    {"root ::= \"a\" <|endoftext|> \"b\"",
     "the grammar has <|endoftext|> (token 4095), which ends"},
    {"root ::= \"a\" <[4095]> [b-c]", "which ends the answer"},
    {"root ::= x [z]? (y \"b\")\nx ::= \"a\" | <|endoftext|>\ny ::= \"c\"*",
     "which ends the answer"},
    {"root ::= (\"a\" <|endoftext|> \" \"?){2,3}", "which ends the answer"},
    {"root ::= \"a\" | <|endoftext|> root", "which ends the answer"},
    {"root ::= \"\xff\"", "UTF-8"},
    {"root ::= []", "no text ends it"},
    {"root ::= (\"a\"?){2,1000}", "may be empty"},
};

static void check_refusals(const grammar_data *d)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        mf_error error = {0};
        mf_grammar *g = grammar_of_gbnf(d, refused[i].grammar, &error);
        CHECK_MSG(g == NULL, "%s is not refused", refused[i].grammar);
        CHECK_CONTAINS(error.message, refused[i].says);
        mf_grammar_free(&g);
    }
}

static void check_cases(const grammar_data *d)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const gbnf_case *c = &cases[i];
        mf_error error = {0};
        mf_grammar *g = grammar_of_gbnf(d, c->grammar, &error);
        if (!CHECK_MSG(g != NULL, "%s: %s", c->grammar, error.message))
            continue;
        for (size_t k = 0; k < MAX_TEXTS && c->valid[k]; k++)
            CHECK_MSG(grammar_accepts(d, g, c->valid[k]), "%s: %s", c->grammar, c->valid[k]);
        for (size_t k = 0; k < MAX_TEXTS && c->invalid[k]; k++)
            CHECK_MSG(!grammar_accepts(d, g, c->invalid[k]), "%s: not %s", c->grammar,
                      c->invalid[k]);
        mf_grammar_free(&g);
    }
}

/* What ends the answer may be named where it may end. */
static void check_ends(const grammar_data *d)
{
    static const char *const good[] = {
        "root ::= \"a\" <|endoftext|>", "root ::= x \" \"*\nx ::= \"a\" y?\ny ::= <[4095]>",
        "root ::= (\"a\" | <|endoftext|>)*", "root ::= <|endoftext|>? | \"a\" root"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        mf_error error = {0};
        mf_grammar *g = grammar_of_gbnf(d, good[i], &error);
        CHECK_MSG(g != NULL, "%s: %s", good[i], error.message);
        mf_grammar_free(&g);
    }
}

/* Repeats are counted, not unrolled: what is long is as small as what is short. */
static void check_counts(const grammar_data *d)
{
    mf_error error = {0};
    mf_grammar_stats stats;
    mf_grammar *g = grammar_of_gbnf(d, "root ::= ([a-z] [0-9]{0,1000}){100,100000} \"!\"", &error);
    char text[512];
    REQUIRE(g != NULL);
    mf_grammar_get_stats(g, &stats);
    CHECK(stats.n_states < 50);
    for (size_t i = 0; i < 99; i++)
        text[2 * i] = 'a', text[2 * i + 1] = '7';
    strcpy(text + 198, "!");
    CHECK(!grammar_accepts(d, g, text));
    strcpy(text + 198, "b!");
    CHECK(grammar_accepts(d, g, text));
    mf_grammar_free(&g);
}

/* The stack has an end, and up to there everything that was begun can be ended. */
static void check_depth(const grammar_data *d)
{
    mf_error error = {0};
    mf_grammar *g = grammar_of_gbnf(d, "root ::= \"(\" root? \")\" \".\"", &error);
    static char text[4096];
    REQUIRE(g != NULL);
    memset(text, '(', sizeof text - 1);
    const size_t deepest = grammar_prefix(d, g, text);
    CHECK_MSG(deepest > 100 && deepest < 2000, "%zu deep", deepest);
    for (size_t i = 0; i < deepest; i++)
        memcpy(text + deepest + 2 * i, ").", 2);
    text[3 * deepest] = '\0';
    CHECK(grammar_accepts(d, g, text));
    mf_grammar_free(&g);
}

int main(void)
{
    grammar_data d;
    grammar_data_open(&d);
    check_cases(&d);
    check_refusals(&d);
    check_ends(&d);
    check_counts(&d);
    check_depth(&d);
    grammar_data_close(&d);
    return test_result();
}
