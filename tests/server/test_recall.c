/* SPDX-License-Identifier: MIT */
/* Answers kept by what they mean: digests, meanings, and the limits of what is kept. */
#include "recall.h"
#include "test.h"

#include "yyjson_prefix.h"

#include "yyjson.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first of SipHash's own test vectors with 128 bits: key 00 .. 0f, no bytes
 * (vectors.h of the reference implementation). */
static void test_digest(void)
{
    static const unsigned char empty[16] = {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6,
                                            0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93};
    unsigned char bytes[64];
    mf_srv_digest_key key;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)i;
    memcpy(&key, bytes, sizeof key);
    const mf_srv_digest none = mf_srv_digest_of(&key, bytes, 0);
    CHECK(memcmp(&none, empty, sizeof none) == 0);
    /* each byte counts, and so does the length */
    for (size_t n = 1; n < sizeof bytes; n++) {
        const mf_srv_digest a = mf_srv_digest_of(&key, bytes, n);
        const mf_srv_digest shorter = mf_srv_digest_of(&key, bytes, n - 1);
        CHECK(!mf_srv_digest_is(&a, &shorter));
        bytes[n - 1] ^= 0x80;
        const mf_srv_digest b = mf_srv_digest_of(&key, bytes, n);
        CHECK(!mf_srv_digest_is(&a, &b));
        bytes[n - 1] ^= 0x80;
    }
}

/* A message that lends its strings. */
static mf_srv_message message(mf_srv_role role, char *content, mf_srv_call *call)
{
    return (mf_srv_message){.role = role,
                            .content = {.data = content, .n_bytes = content ? strlen(content) : 0},
                            .calls = call,
                            .n_calls = call ? 1 : 0};
}

static bool mean_the_same(const mf_srv_message *a, const mf_srv_message *b, yyjson_val *tools)
{
    mf_srv_bytes x = {0}, y = {0};
    mf_srv_put_meaning(a, tools, &x);
    mf_srv_put_meaning(b, tools, &y);
    const bool is = !x.has_failed && !y.has_failed && x.n_bytes == y.n_bytes &&
                    memcmp(x.data, y.data, x.n_bytes) == 0;
    mf_srv_bytes_free(&x);
    mf_srv_bytes_free(&y);
    return is;
}

static bool calls_mean_the_same_with(const char *a, const char *b, yyjson_val *tools)
{
    char *x = strdup(a), *y = strdup(b);
    char f[] = "f";
    mf_srv_call call_a = {NULL, f, x}, call_b = {NULL, f, y};
    REQUIRE(x && y);
    const mf_srv_message m = message(MF_SRV_ASSISTANT, NULL, &call_a);
    const mf_srv_message n = message(MF_SRV_ASSISTANT, NULL, &call_b);
    const bool is = mean_the_same(&m, &n, tools);
    free(x);
    free(y);
    return is;
}

static bool calls_mean_the_same(const char *a, const char *b)
{
    return calls_mean_the_same_with(a, b, NULL);
}

/* What a tool's schema says an argument is anyway need not be said. */
static void test_defaults(void)
{
    static const char text[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"g\",\"parameters\":{\"properties\":{"
        "\"b\":{"
        "\"default\":true}}}}},{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{"
        "\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{\"default\":false},\"c\":{\"default\":"
        "2.0},"
        "\"d\":{\"default\":{\"x\":[1],\"y\":null}}}}}}]";
    yyjson_doc *doc = yyjson_read(text, sizeof text - 1, 0);
    yyjson_val *tools = yyjson_doc_get_root(doc);
    REQUIRE(tools != NULL);
    CHECK(calls_mean_the_same_with("{\"a\":1}", "{\"b\":false,\"a\":1,\"c\":2}", tools));
    CHECK(calls_mean_the_same_with("{}", "{\"d\":{\"y\":null,\"x\":[1.0]}}", tools));
    CHECK(calls_mean_the_same_with("{\"b\":false}", "{\"c\":2}", tools));
    CHECK(!calls_mean_the_same_with("{\"a\":1}", "{\"b\":true,\"a\":1}", tools));
    CHECK(!calls_mean_the_same_with("{\"a\":1}", "{\"a\":1,\"e\":false}", tools));
    CHECK(!calls_mean_the_same_with("{\"a\":1}", "{\"a\":1,\"d\":{\"x\":[1]}}", tools));
    CHECK(!calls_mean_the_same_with("{\"a\":{}}", "{\"a\":{\"b\":false}}", tools)); /* within */
    CHECK(!calls_mean_the_same_with("{}", "{\"b\":false}", NULL));
    yyjson_doc_free(doc);
}

/* Whether arguments that say the last of n parameters' defaults mean those that do not. */
static bool default_counts_of(size_t n)
{
    mf_srv_bytes text = {0};
    char said[64];
    mf_srv_puts(&text, "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{");
    for (size_t i = 0; i < n; i++)
        mf_srv_printf(&text, "%s\"p%zu\":{\"default\":1}", i > 0 ? "," : "", i);
    mf_srv_puts(&text, "}}}}]");
    REQUIRE(!text.has_failed);
    yyjson_doc *doc = yyjson_read(text.data, text.n_bytes, 0);
    REQUIRE(doc != NULL);
    snprintf(said, sizeof said, "{\"p%zu\":1}", n - 1);
    const bool counts = calls_mean_the_same_with("{}", said, yyjson_doc_get_root(doc));
    yyjson_doc_free(doc);
    mf_srv_bytes_free(&text);
    return counts;
}

/* A request cannot make the server compare millions of arguments with millions of parameters. */
static void test_many_defaults(void)
{
    CHECK(default_counts_of(1));
    CHECK(default_counts_of(256));
    CHECK(!default_counts_of(257));
}

static void test_meaning(void)
{
    CHECK(calls_mean_the_same("{\"a\":1,\"b\":[1,{\"d\":2,\"c\":null}]}",
                              "{ \"b\" : [ 1.0, {\"c\":null, \"d\":2} ],\n\"a\":1 }"));
    CHECK(calls_mean_the_same("{\"a\":\"\\u00fc\"}", "{\"a\":\"\xC3\xBC\"}"));
    CHECK(calls_mean_the_same("{\"a\":-3}", "{\"a\":-3.0}"));
    CHECK(!calls_mean_the_same("{\"a\":1}", "{\"a\":2}"));
    CHECK(!calls_mean_the_same("{\"a\":1}", "{\"a\":\"1\"}"));
    CHECK(!calls_mean_the_same("{\"a\":1.5}", "{\"a\":1}"));
    CHECK(!calls_mean_the_same("{\"a\":true}", "{\"a\":false}"));
    CHECK(!calls_mean_the_same("{\"a\":[1,2]}", "{\"a\":[2,1]}"));
    CHECK(!calls_mean_the_same("{\"a\":1}", "{\"a\":1,\"b\":1}"));
    CHECK(!calls_mean_the_same("{}", "not JSON"));
    CHECK(calls_mean_the_same("not JSON", "not JSON"));
    char spaced[] = " \n text \n", plain[] = "text", other[] = "te xt", id[] = "x", thought[] = "t";
    mf_srv_message a = message(MF_SRV_ASSISTANT, spaced, NULL);
    mf_srv_message b = message(MF_SRV_ASSISTANT, plain, NULL);
    a.name = a.call_id = id;
    a.thoughts = (mf_srv_bytes){.data = thought, .n_bytes = 1};
    CHECK(mean_the_same(&a, &b, NULL));
    b.role = MF_SRV_USER;
    CHECK(!mean_the_same(&a, &b, NULL));
    b = message(MF_SRV_ASSISTANT, other, NULL);
    CHECK(!mean_the_same(&a, &b, NULL));
    /* what is said beside calls may be lost on the way; what is called, and that it is, is not */
    char empty_call[] = "{}", g[] = "g";
    mf_srv_call beside = {NULL, g, empty_call};
    a = message(MF_SRV_ASSISTANT, plain, &beside);
    b = message(MF_SRV_ASSISTANT, NULL, &beside);
    CHECK(mean_the_same(&a, &b, NULL));
    b = message(MF_SRV_ASSISTANT, plain, NULL);
    CHECK(!mean_the_same(&a, &b, NULL));
    /* a quotation mark ends nothing: what is said is not what is called */
    char f[] = "f", none[] = "{}", said[] = "\" \"f\" {}";
    mf_srv_call call = {NULL, f, none};
    a = message(MF_SRV_ASSISTANT, NULL, &call);
    b = message(MF_SRV_ASSISTANT, said, NULL);
    CHECK(!mean_the_same(&a, &b, NULL));
}

/* Nested deeper than any stack: it is itself. */
static void test_deep(void)
{
    enum { DEPTH = 200000 };
    char *deep = malloc(2 * DEPTH + 1);
    REQUIRE(deep != NULL);
    memset(deep, '[', DEPTH);
    memset(deep + DEPTH, ']', DEPTH);
    deep[2 * DEPTH] = '\0';
    CHECK(calls_mean_the_same(deep, deep));
    deep[2 * DEPTH - 1] = ' ';
    CHECK(calls_mean_the_same(deep, deep));
    free(deep);
}

static mf_srv_kept *make(uint64_t key, size_t n_tokens)
{
    mf_srv_kept *kept = mf_srv_kept_new();
    REQUIRE(kept != NULL);
    kept->key = (mf_srv_digest){{key, ~key}};
    kept->n_tokens = n_tokens;
    kept->tokens = calloc(n_tokens, sizeof *kept->tokens);
    REQUIRE(kept->tokens != NULL);
    kept->tokens[0] = (int32_t)key;
    return kept;
}

/* The one with that key, as a number; -1: none. */
static int found(mf_srv_recall *recall, uint64_t key)
{
    const mf_srv_digest digest = {{key, ~key}};
    mf_srv_kept *kept = mf_srv_recall_find(recall, &digest);
    const int token = kept ? kept->tokens[0] : -1;
    mf_srv_kept_drop(kept);
    return token;
}

static void test_limits(void)
{
    mf_srv_recall *recall = mf_srv_recall_new((size_t)1 << 20);
    REQUIRE(recall != NULL);
    CHECK(found(recall, 1) == -1);
    for (uint64_t i = 0; i < 8; i++) /* five of them fit */
        mf_srv_recall_put(recall, make(i, 50000));
    CHECK(found(recall, 0) == -1 && found(recall, 2) == -1);
    CHECK(found(recall, 3) == 3 && found(recall, 7) == 7);
    /* those used last stay: 3 was asked for, 4 not */
    mf_srv_recall_put(recall, make(8, 50000));
    CHECK(found(recall, 3) == 3 && found(recall, 4) == -1);
    /* one of the same key takes the other's place */
    mf_srv_kept *again = make(3, 50000);
    again->tokens[0] = 33;
    mf_srv_recall_put(recall, again);
    CHECK(found(recall, 3) == 33 && found(recall, 5) == 5);
    /* what is larger than all that may be is not kept, and drives nothing out */
    mf_srv_recall_put(recall, make(9, 300000));
    CHECK(found(recall, 9) == -1 && found(recall, 3) == 33);
    /* one in use outlives what is kept */
    const mf_srv_digest digest = {{3, ~(uint64_t)3}};
    mf_srv_kept *held = mf_srv_recall_find(recall, &digest);
    for (uint64_t i = 10; i < 20010; i++) /* small ones: their number has a limit, too */
        mf_srv_recall_put(recall, make(i, 1));
    CHECK(held != NULL && found(recall, 3) == -1 && held->tokens[0] == 33);
    CHECK(found(recall, 20009) == 20009 && found(recall, 10) == -1);
    mf_srv_recall_free(&recall);
    CHECK(recall == NULL && held->tokens[0] == 33);
    mf_srv_kept_drop(held);
}

/* The tools come out as they came first, in whatever order they come. */
static void test_order(void)
{
    static const char first[] = "[{\"n\":\"b\"},{\"n\":\"a\"},{\"n\":\"c\"}]";
    static const char *const later[] = {first, "[{\"n\":\"a\"},{\"n\":\"b\"},{\"n\":\"c\"}]",
                                        "[ {\"n\":\"c\"},{\"n\":\"b\"},{\"n\":\"a\"} ]"};
    static const char other[] = "[{\"n\":\"a\"},{\"n\":\"b\"}]";
    mf_srv_recall *recall = mf_srv_recall_new((size_t)1 << 20);
    mf_srv_bytes tools = {0};
    REQUIRE(recall != NULL);
    CHECK(mf_srv_recall_order(recall, &tools) && tools.data == NULL);
    for (size_t i = 0; i < 3; i++) {
        mf_srv_puts(&tools, later[i]);
        CHECK(mf_srv_recall_order(recall, &tools));
        CHECK_STR(tools.data, first);
        mf_srv_bytes_free(&tools);
    }
    mf_srv_puts(&tools, other);
    CHECK(mf_srv_recall_order(recall, &tools));
    CHECK_STR(tools.data, other);
    mf_srv_bytes_free(&tools);
    for (int i = 0; i < 70; i++) { /* so many sets drive it out */
        mf_srv_printf(&tools, "[{\"n\":%d}]", i);
        CHECK(mf_srv_recall_order(recall, &tools));
        mf_srv_bytes_free(&tools);
    }
    mf_srv_puts(&tools, later[1]);
    CHECK(mf_srv_recall_order(recall, &tools));
    CHECK_STR(tools.data, later[1]);
    mf_srv_bytes_free(&tools);
    mf_srv_recall_free(&recall);
}

int main(void)
{
    test_digest();
    test_meaning();
    test_defaults();
    test_many_defaults();
    test_deep();
    test_limits();
    test_order();
    return test_result();
}
