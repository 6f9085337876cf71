/* SPDX-License-Identifier: MIT */
/* Guides: where they stand, copies, free text before and between, calls of tools, memory that ends.
 */
#include "grammar_data.h"

#include "failing_alloc.h"

static bool take_text(const grammar_data *d, mf_guide *guide, const char *text)
{
    int32_t tokens[512];
    size_t n = 0;
    mf_error error = {0};
    REQUIRE(strlen(text) < 512);
    REQUIRE_OK(mf_tokenizer_encode(d->tokenizer, text, strlen(text), 1, tokens, 512, &n, &error),
               &error);
    for (size_t i = 0; i < n; i++)
        if (mf_guide_accept(guide, tokens[i], &error) != MF_OK)
            return false;
    return true;
}

/* The bit of the text's only token. */
static bool allows(const grammar_data *d, mf_guide *guide, int32_t token)
{
    const size_t n = mf_tokenizer_n_vocab(d->tokenizer) + 100;
    uint32_t *mask = malloc((n + 31) / 32 * sizeof *mask);
    mf_error error = {0};
    REQUIRE(mask != NULL);
    REQUIRE_OK(mf_guide_mask(guide, mask, n, NULL, &error), &error);
    const bool is_set = mask[token / 32] >> token % 32 & 1;
    free(mask);
    return is_set;
}

static int32_t end_token(const grammar_data *d)
{
    int32_t token = 0;
    while (!mf_tokenizer_is_end(d->tokenizer, token))
        token++;
    return token;
}

static mf_guide *guide_of(const grammar_data *d, const char *gbnf)
{
    mf_error error = {0};
    mf_guide *guide = NULL;
    mf_grammar *g = grammar_of_gbnf(d, gbnf, &error);
    REQUIRE(g != NULL);
    REQUIRE_OK(mf_guide_create(g, &guide, &error), &error);
    mf_grammar_free(&g); /* the guide keeps what it needs */
    return guide;
}

static void check_states(const grammar_data *d)
{
    mf_error error = {0};
    mf_guide *other = NULL, *guide = guide_of(d, "root ::= \"ab\" \"c\"?");
    CHECK(!mf_guide_may_end(guide) && !mf_guide_is_done(guide));
    CHECK(!allows(d, guide, end_token(d)));
    CHECK_STATUS(mf_guide_accept(guide, end_token(d), &error), MF_ERR_ARGUMENT);
    CHECK(take_text(d, guide, "ab"));
    CHECK(mf_guide_may_end(guide) && !mf_guide_is_done(guide));
    CHECK(allows(d, guide, end_token(d)));
    REQUIRE_OK(mf_guide_clone(guide, &other, &error), &error);
    CHECK(take_text(d, other, "c") && mf_guide_is_done(other));
    CHECK(!mf_guide_is_done(guide) && !take_text(d, other, "c"));
    REQUIRE_OK(mf_guide_reset(other, &error), &error);
    CHECK(!take_text(d, other, "c") && take_text(d, other, "abc"));
    CHECK_STATUS(mf_guide_accept(guide, -1, &error), MF_ERR_ARGUMENT);
    uint32_t mask[1];
    CHECK_STATUS(mf_guide_mask(guide, mask, 32, NULL, &error), MF_ERR_ARGUMENT);
    mf_guide_free(&guide);
    mf_guide_free(&other);
    mf_guide_free(&other);
}

/* Where a grammar leaves one token, it is known without a mask; not in free text, and no end is. */
static void check_forced(const grammar_data *d)
{
    mf_error error = {0};
    int32_t token = 0;
    mf_guide *guide = guide_of(d, "root ::= [ab] \"\\x01\\x02\" [cd]");
    REQUIRE_OK(mf_guide_begin_after(guide, "</think>", 0, 1, &error), &error);
    for (const char *text = "x</think>\na"; *text; text++) {
        const char one[] = {*text, '\0'};
        REQUIRE_OK(mf_guide_forced(guide, &token, &error), &error);
        CHECK_MSG(token == -1, "before '%c' token %d is forced", *text, (int)token);
        CHECK(take_text(d, guide, one));
    }
    for (unsigned char byte = 1; byte <= 2; byte++) {
        size_t n = 0;
        REQUIRE_OK(mf_guide_forced(guide, &token, &error), &error);
        const char *piece = token < 0 ? NULL : mf_tokenizer_piece(d->tokenizer, token, &n);
        CHECK(piece != NULL && n == 1 && (unsigned char)*piece == byte);
        CHECK(allows(d, guide, token));
        REQUIRE_OK(mf_guide_accept(guide, token, &error), &error);
    }
    CHECK(take_text(d, guide, "c") && mf_guide_is_done(guide));
    REQUIRE_OK(mf_guide_forced(guide, &token, &error), &error);
    CHECK(token == -1);
    CHECK_STATUS(mf_guide_forced(NULL, &token, &error), MF_ERR_ARGUMENT);
    mf_guide_free(&guide);
}

static int32_t token_of(const grammar_data *d, const char *text)
{
    int32_t token = -1;
    size_t n = 0;
    mf_error error = {0};
    REQUIRE_OK(mf_tokenizer_encode(d->tokenizer, text, strlen(text), 0, &token, 1, &n, &error),
               &error);
    REQUIRE(n == 1);
    return token;
}

/* A token that a grammar names by its number is that token and no other, and may stand for bytes as
 * well: where both go on, both ways stay open. */
static void check_numbers(const grammar_data *d)
{
    mf_error error = {0};
    char gbnf[128];
    const int32_t a = token_of(d, "a"), the = token_of(d, " the");
    snprintf(gbnf, sizeof gbnf, "root ::= <[%d]> \"7\" | \"a\" \"8\" | \"b\" <[%d]>", (int)a,
             (int)the);
    static const char *const good[] = {"a7", "a8", "b the"};
    mf_guide *guide = guide_of(d, gbnf);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        REQUIRE_OK(mf_guide_reset(guide, &error), &error);
        CHECK_MSG(take_text(d, guide, good[i]) && mf_guide_is_done(guide), "%s", good[i]);
    }
    REQUIRE_OK(mf_guide_reset(guide, &error), &error);
    CHECK(allows(d, guide, a) && !allows(d, guide, the));
    CHECK(take_text(d, guide, "b") && allows(d, guide, the) && !take_text(d, guide, " "));
    int32_t token = -1;
    REQUIRE_OK(mf_guide_forced(guide, &token, &error), &error);
    CHECK(token == the);
    mf_guide_free(&guide);

    snprintf(gbnf, sizeof gbnf, "root ::= <[%d]> \"x\" | \"a\"", (int)token_of(d, "\n"));
    guide = guide_of(d, gbnf);
    REQUIRE_OK(mf_guide_begin_after(guide, "</think>", 0, 2, &error), &error);
    CHECK(take_text(d, guide, "hm</think>") && take_text(d, guide, "\n"));
    CHECK(take_text(d, guide, "x") && mf_guide_is_done(guide));
    mf_guide_free(&guide);
}

/* A thought, or any other text, before the grammar. */
static void check_after(const grammar_data *d)
{
    mf_error error = {0};
    mf_guide *copy = NULL, *guide = guide_of(d, "root ::= \"{\" [0-9]+ \"}\"");
    CHECK_STATUS(mf_guide_begin_after(guide, "", 0, 0, &error), MF_ERR_ARGUMENT);
    REQUIRE_OK(mf_guide_begin_after(guide, "</think>", 0, 2, &error), &error);
    CHECK(!mf_guide_may_end(guide) && !allows(d, guide, end_token(d)));
    CHECK(take_text(d, guide, "Hm. {x} </thin</think"));
    CHECK_STATUS(mf_guide_begin_after(guide, "a", 0, 0, &error), MF_ERR_STATE);
    REQUIRE_OK(mf_guide_clone(guide, &copy, &error), &error);
    CHECK(!take_text(d, copy, ">x"));
    CHECK(take_text(d, guide, ">"));
    CHECK(!take_text(d, guide, "x"));
    CHECK(take_text(d, guide, "\n\n") && !take_text(d, guide, "\n"));
    CHECK(take_text(d, guide, "{12}") && mf_guide_is_done(guide));
    mf_guide_free(&copy);
    mf_guide_free(&guide);
}

/* In free text no token is in the mask that the guide would not take, and the other way round. */
static void check_free_masks(const grammar_data *d)
{
    mf_error error = {0};
    const size_t n = mf_tokenizer_n_vocab(d->tokenizer);
    uint32_t *mask = malloc((n + 31) / 32 * sizeof *mask);
    mf_guide *guide = guide_of(d, "root ::= \"he\" [a-z]*");
    size_t n_refused = 0;
    REQUIRE(mask != NULL);
    REQUIRE_OK(mf_guide_begin_after(guide, "t", 1, 0, &error), &error);
    REQUIRE_OK(mf_guide_mask(guide, mask, n, NULL, &error), &error);
    for (size_t i = 0; i < n; i++) {
        mf_guide *copy = NULL;
        size_t n_bytes;
        if (!mf_tokenizer_piece(d->tokenizer, (int32_t)i, &n_bytes))
            continue;
        REQUIRE_OK(mf_guide_clone(guide, &copy, &error), &error);
        const bool takes = mf_guide_accept(copy, (int32_t)i, NULL) == MF_OK;
        CHECK_MSG(takes == (bool)(mask[i / 32] >> i % 32 & 1), "token %zu", i);
        n_refused += !takes;
        mf_guide_free(&copy);
    }
    CHECK_MSG(n_refused > 10 && n_refused < n / 2, "%zu of %zu tokens", n_refused, n);
    free(mask);
    mf_guide_free(&guide);
}

/* Text, a call, text, a call. */
static void check_repeats(const grammar_data *d)
{
    mf_error error = {0};
    mf_guide *guide = guide_of(d, "root ::= \"(\" [a-z]+ \")\"");
    REQUIRE_OK(mf_guide_begin_after(guide, "CALL", 1, 0, &error), &error);
    for (int i = 0; i < 3; i++) {
        CHECK(mf_guide_may_end(guide) && allows(d, guide, end_token(d)));
        CHECK(take_text(d, guide, "so I CAL CALL"));
        CHECK(!mf_guide_may_end(guide) && !allows(d, guide, end_token(d)));
        CHECK(!take_text(d, guide, "x") && take_text(d, guide, "(abc)"));
    }
    CHECK(!mf_guide_is_done(guide));
    mf_guide_free(&guide);
}

static const char weather[] =
    "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}, \"days\": "
    "{\"type\": "
    "\"integer\", \"minimum\": 1}}, \"required\": [\"city\"], \"additionalProperties\": false}";
static const char odd[] = "{\"type\": \"object\", \"not\": {}}";

static mf_guide *calls_guide(const grammar_data *d, mf_grammar_calls *calls, const char *syntax,
                             mf_error *error)
{
    mf_reply_syntax *s = NULL;
    mf_grammar *g = NULL;
    mf_guide *guide = NULL;
    REQUIRE_OK(mf_reply_syntax_named(syntax, NULL, &s, error), error);
    calls->syntax = s;
    if (mf_grammar_compile_calls(d->vocabulary, calls, &g, error) == MF_OK)
        REQUIRE_OK(mf_guide_create(g, &guide, error), error);
    mf_grammar_free(&g);
    mf_reply_syntax_free(&s);
    return guide;
}

/* Arguments are an object, also where a schema says nothing of that: of another value no reader of
 * replies makes a call. */
static void check_arguments(const grammar_data *d)
{
    static const char *const schemas[] = {
        "{}",
        "{\"description\": \"Any.\"}",
        "{\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"object\"}]}",
        "{\"$ref\": \"#/$defs/a\", \"$defs\": {\"a\": {\"type\": [\"object\", \"null\"]}}}",
        "{\"enum\": [\"a\", {}]}",
        "{\"type\": \"string\"}"};
    mf_error error = {0};
    mf_grammar_calls calls;
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        const mf_grammar_tool tool = {"wipe", schemas[i], strlen(schemas[i]), 0};
        mf_grammar_calls_default(&calls);
        calls.tools = &tool;
        calls.n_tools = 1;
        mf_guide *guide = calls_guide(d, &calls, "hermes", &error);
        REQUIRE(guide != NULL);
        CHECK(take_text(d, guide, "<tool_call>\n{\"name\": \"wipe\", \"arguments\": "));
        CHECK(!take_text(d, guide, "\"") && !take_text(d, guide, "null"));
        CHECK(take_text(d, guide, "{}}\n</tool_call>"));
        mf_guide_free(&guide);
    }
}

static void check_calls(const grammar_data *d)
{
    mf_error error = {0};
    mf_grammar_tool tools[] = {{"weather", weather, sizeof weather - 1, 1},
                               {"wipe", odd, sizeof odd - 1, 0},
                               {"noon", NULL, 0, 0}};
    mf_grammar_calls calls;
    mf_grammar_calls_default(&calls);
    calls.tools = tools;
    calls.n_tools = 3;
    mf_guide *guide = calls_guide(d, &calls, "hermes", &error);
    REQUIRE(guide != NULL);
    CHECK(!take_text(d, guide, "I"));
    CHECK(take_text(d, guide, "<tool_call>\n{\"name\": \"weather\", \"arguments\": "));
    CHECK(!take_text(d, guide, "{}") && take_text(d, guide, "\"city\": \"Ulm\", \"days\": 3}"));
    CHECK(take_text(d, guide, "}\n</tool_call>") && mf_guide_may_end(guide));
    CHECK(
        take_text(d, guide, "\n<tool_call>\n{\"name\": \"wipe\", \"arguments\": {\"any\": [1]}}"));
    mf_guide_free(&guide);

    calls.has_several = 0;
    calls.is_opened = 1;
    guide = calls_guide(d, &calls, "hermes", &error);
    REQUIRE(guide != NULL);
    CHECK_STR(calls.opening, "<tool_call>");
    CHECK(take_text(d, guide, "\n{\"name\": \"noon\", \"arguments\": {}}\n</tool_call>"));
    CHECK(mf_guide_is_done(guide));
    mf_guide_free(&guide);

    tools[1].is_strict = 1;
    guide = calls_guide(d, &calls, "hermes", &error);
    CHECK(guide == NULL);
    CHECK_CONTAINS(error.message, "tool wipe: #: the keyword \"not\"");
    guide = calls_guide(d, &calls, "plain", &error);
    CHECK(guide == NULL && error.code == MF_ERR_UNSUPPORTED);
}

/* Structs of a program that was built against another header, as of all that begin with their size.
 */
static void check_sizes_of_calls(const grammar_data *d)
{
    typedef struct later_calls {
        mf_grammar_calls calls;
        uint64_t later;
    } later_calls;
    const mf_grammar_tool tool = {"noon", NULL, 0, 0};
    later_calls given;
    mf_error error = {0};
    mf_grammar_calls_init(&given.calls, sizeof given);
    given.calls.tools = &tool;
    given.calls.n_tools = 1;
    given.calls.is_opened = 1;
    mf_guide *guide = calls_guide(d, &given.calls, "hermes", &error);
    CHECK_MSG(guide != NULL, "a later struct: %s", error.message);
    CHECK_STR(given.calls.opening, "<tool_call>");
    mf_guide_free(&guide);

    given.later = 1;
    guide = calls_guide(d, &given.calls, "hermes", &error);
    CHECK(guide == NULL && error.code == MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, "newer version");
    given.later = 0;
    given.calls.struct_bytes = offsetof(mf_grammar_calls, opening); /* where its result would lie */
    guide = calls_guide(d, &given.calls, "hermes", &error);
    CHECK(guide == NULL && error.code == MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, "mf_grammar_calls.struct_bytes is ");
    given.calls.struct_bytes = 0;
    guide = calls_guide(d, &given.calls, "hermes", &error);
    CHECK(guide == NULL && error.code == MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, "mf_grammar_calls_default");
}

/* A schema of an object that is larger than a grammar may be, though its text is short. */
static void write_large(char *text, size_t capacity)
{
    size_t n = (size_t)snprintf(text, capacity, "{\"type\": \"object\", \"properties\": {");
    for (int i = 0; i < 20; i++)
        n += (size_t)snprintf(text + n, capacity - n,
                              "%s\"p%d\": {\"type\": \"integer\", \"multipleOf\": %d, "
                              "\"minimum\": %d, \"maximum\": 123456789}",
                              i == 0 ? "" : ", ", i, 1999 - i, -99999999 + i);
    snprintf(text + n, capacity - n, "}}");
}

/* What is only tried is bounded for all tools together: behind a few that are too large others are
 * held to their schemas, behind many none is, and a thousand of them take no longer. */
static void check_large_tools(const grammar_data *d)
{
    enum { MANY = 1000 };
    static char large[4096];
    mf_grammar_tool tools[MANY + 1];
    char names[MANY][8];
    write_large(large, sizeof large);
    for (size_t n = 2; n <= MANY; n += MANY - 2) {
        mf_error error = {0};
        mf_grammar_calls calls;
        for (size_t i = 0; i < n; i++) {
            snprintf(names[i], sizeof names[i], "t%03zu", i % 1000);
            tools[i] = (mf_grammar_tool){names[i], large, strlen(large), 0};
        }
        tools[n] = (mf_grammar_tool){"weather", weather, sizeof weather - 1, 0};
        mf_grammar_calls_default(&calls);
        calls.tools = tools;
        calls.n_tools = n + 1;
        mf_guide *guide = calls_guide(d, &calls, "hermes", &error);
        REQUIRE(CHECK_MSG(guide != NULL, "%s", error.message));
        CHECK(take_text(d, guide, "<tool_call>\n{\"name\": \"t001\", \"arguments\": {\"p0\": 1}}"));
        mf_guide_free(&guide);
        guide = calls_guide(d, &calls, "hermes", &error);
        REQUIRE(guide != NULL);
        CHECK(take_text(d, guide, "<tool_call>\n{\"name\": \"weather\", \"arguments\": "));
        CHECK(take_text(d, guide, "{}") == (n == MANY));
        mf_guide_free(&guide);
    }
}

static const char listed[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"paint\", \"parameters\": {\"type\": "
    "\"object\", \"properties\": {\"c\": {\"enum\": [\"red\", \"green\"]}, \"n\": {\"type\": "
    "\"integer\"}}}}}]";
static const char paint[] =
    "{\"type\": \"object\", \"properties\": {\"c\": {\"enum\": [\"red\", \"green\"]}, \"n\": "
    "{\"type\": \"integer\", \"minimum\": 3, \"maximum\": 7}}, \"required\": [\"c\", \"n\"]}";

/* Writes what the masks allow, at random, and has it read. */
static void write_and_read(const grammar_data *d, mf_guide *guide, const char *name, uint64_t seed)
{
    const size_t n = mf_tokenizer_n_vocab(d->tokenizer);
    uint32_t *mask = malloc((n + 31) / 32 * sizeof *mask);
    mf_reply_syntax *syntax = NULL;
    mf_reply_options options;
    mf_reply *reply = NULL;
    mf_reply_event e;
    mf_error error = {0};
    char arguments[512] = "";
    int n_calls = 0, n_ends = 0;
    REQUIRE(mask != NULL);
    REQUIRE_OK(mf_reply_syntax_named(name, NULL, &syntax, &error), &error);
    mf_reply_options_default(&options);
    options.tools = listed;
    REQUIRE_OK(mf_reply_create(syntax, &options, &reply, &error), &error);
    for (int i = 0; i < 400 && !mf_guide_is_done(guide); i++) {
        REQUIRE_OK(mf_guide_mask(guide, mask, n, NULL, &error), &error);
        size_t token = test_random(&seed) % n, n_bytes;
        while (!(mask[token / 32] >> token % 32 & 1))
            token = (token + 1) % n;
        REQUIRE_OK(mf_guide_accept(guide, (int32_t)token, &error), &error);
        const char *piece = mf_tokenizer_piece(d->tokenizer, (int32_t)token, &n_bytes);
        REQUIRE_OK(mf_reply_push(reply, piece, n_bytes, 0, &error), &error);
    }
    CHECK_MSG(mf_guide_is_done(guide), "%s: no end", name);
    REQUIRE_OK(mf_reply_finish(reply, 0, &error), &error);
    while (mf_reply_next(reply, &e)) {
        n_calls += e.kind == MF_REPLY_CALL && strcmp(e.name, "paint") == 0;
        n_ends += e.kind == MF_REPLY_CALL_END;
        if (e.kind == MF_REPLY_CALL_ARGUMENTS)
            strncat(arguments, e.text, sizeof arguments - strlen(arguments) - 1);
    }
    CHECK_MSG(n_calls == 1 && n_ends == 1, "%s: %d calls, %d ends", name, n_calls, n_ends);
    CHECK_MSG(strstr(arguments, "\"red\"") || strstr(arguments, "\"green\""), "%s: %s", name,
              arguments);
    CHECK_MSG(strpbrk(arguments, "34567") != NULL, "%s: %s", name, arguments);
    mf_reply_free(&reply);
    mf_reply_syntax_free(&syntax);
    free(mask);
}

/* What is forced in each family's syntax is a call as that is read. */
static void check_families(const grammar_data *d)
{
    size_t n_families = 0;
    for (const char *const *name = mf_reply_syntax_names(); *name != NULL; name++) {
        mf_error error = {0};
        mf_grammar_tool tool = {"paint", paint, sizeof paint - 1, 1};
        mf_grammar_calls calls;
        mf_grammar_calls_default(&calls);
        calls.tools = &tool;
        calls.n_tools = 1;
        calls.has_several = 0;
        for (uint64_t seed = 1; seed <= 5; seed++) {
            mf_guide *guide = calls_guide(d, &calls, *name, &error);
            if (guide == NULL) {
                CHECK_MSG(error.code == MF_ERR_UNSUPPORTED && strcmp(*name, "plain") == 0, "%s: %s",
                          *name, error.message);
                break;
            }
            n_families += seed == 1;
            write_and_read(d, guide, *name, seed);
            mf_guide_free(&guide);
        }
    }
    CHECK_MSG(n_families > 5, "%zu families", n_families);
}

/* A schema with a name twice could be read in two ways: it is none, in whatever syntax. */
static void check_twice(const grammar_data *d)
{
    static const char twice[] = "{\"type\": \"object\", \"properties\": {\"c\": {\"type\": "
                                "\"string\"}, \"c\": {\"type\": \"integer\"}}}";
    for (const char *const *name = mf_reply_syntax_names(); *name != NULL; name++) {
        mf_error error = {0};
        mf_grammar_tool tool = {"paint", twice, sizeof twice - 1, 1};
        mf_grammar_calls calls;
        mf_grammar_calls_default(&calls);
        calls.tools = &tool;
        calls.n_tools = 1;
        mf_guide *guide = calls_guide(d, &calls, *name, &error);
        CHECK_MSG(guide == NULL && (strcmp(*name, "plain") == 0 ||
                                    strstr(error.message, "field c is given twice") != NULL),
                  "%s: %s", *name, error.message);
        mf_guide_free(&guide);
    }
}

/* Lists and objects in the syntaxes that write them in their own way. */
static void check_values(const grammar_data *d)
{
    static const char deep[] = "{\"type\": \"object\", \"properties\": {\"s\": {\"type\": "
                               "\"string\"}, \"l\": {\"type\": \"array\", "
                               "\"items\": {\"type\": \"integer\", \"maximum\": 9, \"minimum\": "
                               "0}, \"maxItems\": 2}, \"o\": {\"$ref\": "
                               "\"#/$defs/o\"}}, \"required\": [\"l\"], \"additionalProperties\": "
                               "false, \"$defs\": {\"o\": {\"type\": "
                               "\"object\", \"properties\": {\"b\": {\"type\": [\"boolean\", "
                               "\"null\"]}, \"next\": {\"$ref\": "
                               "\"#/$defs/o\"}}}}}";
    static const char m[] = "]<]minimax[>[";
    static const struct {
        const char *syntax, *good, *bad[5]; /* M: the mark */
    } cases[] = {
        {"gemma4",
         "<|tool_call>call:f{s:<|\"|>a {b} "
         "\"c\"<|\"|>,l:[1,2],o:{b:true,next:{next:{b:null}}}}<tool_call|>",
         {"<|tool_call>call:f{}", "<|tool_call>call:f{l:[1,2,3", "<|tool_call>call:f{l:[10",
          "<|tool_call>call:f{s:\"", "<|tool_call>call:f{l:[],o:{b:1"}},
        {"minimax_m3",
         "M<tool_call>\nM<invoke name=\"f\">M<s>a < "
         "b]M</s>M<l>M<item>1M</item>M<item>2M</item>M</l>M<o>"
         "M<b>trueM</b>M<next>M<b>nullM</b>M</next>M</o>M</invoke>\nM</tool_call>",
         {"M<tool_call>\nM<invoke name=\"f\">M</invoke>",
          "M<tool_call>\nM<invoke name=\"f\">M<l>M<item>1M</item>M<item>1M</item>M<item>",
          "M<tool_call>\nM<invoke name=\"f\">M<l>M<item>x",
          "M<tool_call>\nM<invoke name=\"f\">M<z>", "M<tool_call>\nM<invoke name=\"f\">M<s>aM<b>"}},
        {"llama4",
         "<|python_start|>[f(s=\"a \\\"b\", l=[1, 2], o={\"b\": True, \"next\": {\"b\": "
         "None}})]<|python_end|>",
         {"<|python_start|>[f()", "<|python_start|>[f(l=[1, 2, 3", "<|python_start|>[f(l=[], s=",
          "<|python_start|>[f(l=[], o={\"b\": true", "<|python_start|>[f(\"l\""}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mf_error error = {0};
        mf_grammar_tool tool = {"f", deep, sizeof deep - 1, 1};
        mf_grammar_calls calls;
        mf_grammar_calls_default(&calls);
        calls.tools = &tool;
        calls.n_tools = 1;
        for (size_t k = 0; k < 6; k++) {
            const char *from = k == 0 ? cases[i].good : cases[i].bad[k - 1];
            char text[1024];
            size_t n = 0;
            for (; *from != '\0'; from++)
                n += (size_t)snprintf(text + n, sizeof text - n, "%.*s", *from == 'M' ? 20 : 1,
                                      *from == 'M' ? m : from);
            mf_guide *guide = calls_guide(d, &calls, cases[i].syntax, &error);
            REQUIRE(guide != NULL);
            CHECK_MSG(take_text(d, guide, text) == (k == 0), "%s: %s", cases[i].syntax, text);
            CHECK(k > 0 || mf_guide_may_end(guide));
            mf_guide_free(&guide);
        }
    }
}

/* Whichever allocation fails: an error, and nothing is lost. */
static void check_memory(const grammar_data *d)
{
    static const char schema[] =
        "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"array\", \"items\": "
        "{\"enum\": "
        "[\"x\", \"y\"]}}, \"b\": {\"$ref\": \"#\"}, \"c\": {\"type\": \"string\", \"pattern\": "
        "\"^[a-z]{2}$\"}}, \"required\": [\"a\"]}";
    const size_t n = mf_tokenizer_n_vocab(d->tokenizer);
    uint32_t *mask = malloc((n + 31) / 32 * sizeof *mask);
    mf_grammar_params params;
    mf_grammar_params_default(&params);
    params.json_schema = schema;
    params.n_schema_bytes = sizeof schema - 1;
    unsigned long n_failed = 0;
    mf_status status = MF_ERR_NO_MEMORY;
    REQUIRE(mask != NULL);
    for (unsigned long at = 1; status != MF_OK && at < 5000; at++) {
        failing f = {0};
        const mf_allocator a = failing_allocator(&f);
        mf_vocabulary *v = NULL;
        mf_grammar *g = NULL;
        mf_guide *guide = NULL, *copy = NULL;
        mf_error error = {0};
        f.fail_at = at;
        status = mf_vocabulary_create(d->tokenizer, &a, &v, &error);
        if (status == MF_OK)
            status = mf_grammar_compile(v, &params, &g, &error);
        if (status == MF_OK)
            status = mf_guide_create(g, &guide, &error);
        if (status == MF_OK)
            status = mf_guide_begin_after(guide, "</think>", 0, 2, &error);
        if (status == MF_OK)
            status = mf_guide_clone(guide, &copy, &error);
        if (status == MF_OK)
            status = mf_guide_reset(copy, &error);
        if (status == MF_OK && !take_text(d, copy, "</think>\n{"))
            status = MF_ERR_NO_MEMORY;
        if (status == MF_OK)
            status = mf_guide_mask(copy, mask, n, NULL, &error);
        CHECK_MSG(status == MF_OK || status == MF_ERR_NO_MEMORY, "allocation %lu: %s", at,
                  mf_status_name(status));
        n_failed += status != MF_OK;
        mf_guide_free(&copy);
        mf_guide_free(&guide);
        mf_grammar_free(&g);
        mf_vocabulary_free(&v);
        CHECK_MSG(f.n_live == 0 && f.n_wrong_sizes == 0 && f.n_overrun == 0,
                  "allocation %lu: %lld blocks left", at, (long long)f.n_live);
    }
    CHECK(status == MF_OK && n_failed > 30);
    free(mask);
}

/* Little memory for masks: they are forgotten and found again, the same. */
static void check_little_memory(const grammar_data *d)
{
    mf_error error = {0};
    mf_grammar_params params;
    mf_grammar_stats stats;
    mf_grammar *g = NULL;
    mf_grammar_params_default(&params);
    params.json_object = 1;
    params.max_mask_bytes = 1;
    REQUIRE_OK(mf_grammar_compile(d->vocabulary, &params, &g, &error), &error);
    CHECK(grammar_accepts(d, g, "{\"a\": [1, {\"b\": \"c\xc3\xa9\"}], \"d\": -1.5e3}"));
    CHECK(!grammar_accepts(d, g, "[1]"));
    mf_grammar_get_stats(g, &stats);
    CHECK(stats.n_flushes > 10);
    mf_grammar_free(&g);
}

int main(void)
{
    grammar_data d;
    grammar_data_open(&d);
    check_states(&d);
    check_forced(&d);
    check_numbers(&d);
    check_after(&d);
    check_free_masks(&d);
    check_repeats(&d);
    check_calls(&d);
    check_sizes_of_calls(&d);
    check_arguments(&d);
    check_large_tools(&d);
    check_values(&d);
    check_families(&d);
    check_twice(&d);
    check_little_memory(&d);
    check_memory(&d);
    grammar_data_close(&d);
    return test_result();
}
