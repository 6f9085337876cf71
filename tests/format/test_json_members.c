/* SPDX-License-Identifier: MIT */
/* Objects member by member: what is found, and that what is no JSON is refused as by a parser of
 * the whole (yyjson, which is the judge here). */
#include "test.h"

#include "format/json.h"
#include "format/json_members.h"

static mf_json_members members;

/* Goes through text and every value of it; the number of members in *n. */
static mf_status walk(const char *text, size_t *n, mf_error *error)
{
    const char *name;
    mf_json_piece piece;
    mf_json_members_init(&members, "text", (mf_json_piece){text, strlen(text), 0});
    for (*n = 0;; (*n)++) {
        yyjson_val *value = NULL;
        MF_TRY(mf_json_next(&members, &name, &piece, error));
        if (name == NULL)
            return MF_OK;
        MF_TRY(mf_json_value(&members, name, &piece, &value, error));
        if (value == NULL)
            return MF_ERR_STATE;
    }
}

static bool is_object(const char *text)
{
    yyjson_doc *doc = yyjson_read(text, strlen(text), 0);
    bool good = yyjson_is_obj(yyjson_doc_get_root(doc));
    yyjson_doc_free(doc);
    return good;
}

static void test_found(void)
{
    static const char text[] = " { \"a\\n\\u0041\" : {\"b\":[1,{\"}\":\"]\\\\\\\"\"}]} ,\"c\":-1e2,"
                               "\"d\":\"}\",\"e\":null} \n";
    static const char *const names[] = {"a\nA", "c", "d", "e"};
    static const char *const values[] = {"{\"b\":[1,{\"}\":\"]\\\\\\\"\"}]}", "-1e2", "\"}\"",
                                         "null"};
    mf_json_piece piece;
    mf_error error;
    const char *name;
    mf_json_members_init(&members, "text", (mf_json_piece){text, strlen(text), 100});
    for (size_t i = 0; i < 4; i++) {
        REQUIRE_OK(mf_json_next(&members, &name, &piece, &error), &error);
        CHECK(name != NULL && strcmp(name, names[i]) == 0);
        CHECK(piece.n_bytes == strlen(values[i]) &&
              memcmp(piece.text, values[i], piece.n_bytes) == 0);
        CHECK_U64(piece.position, 100 + (uint64_t)(piece.text - text));
    }
    REQUIRE_OK(mf_json_next(&members, &name, &piece, &error), &error);
    CHECK(name == NULL);
}

/* Each text whole, cut short at every byte, and with every byte replaced by others that matter. */
static void test_judged(void)
{
    static const char *const texts[] = {
        "{}",
        " {\t} ",
        "{\"a\":1}",
        "{\"a\":[1,2,[3,{}]],\"b\":{\"c\":\"d\"}}",
        "{\"\":\"\\\"\",\"x\":[\"]\",\"}\"],\"y\":true , \"z\":null}",
        "{\"a\":1.5e3,\"b\":-0,\"c\":false}",
    };
    static const char others[] = "{}[]\",:\\ 1x\n";
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[96];
        size_t n_bytes = strlen(texts[i]), n;
        for (size_t cut = 0; cut <= n_bytes; cut++) {
            snprintf(text, sizeof text, "%.*s", (int)cut, texts[i]);
            CHECK_MSG((walk(text, &n, NULL) == MF_OK) == is_object(text), "cut: <%s>", text);
        }
        for (size_t at = 0; at < n_bytes; at++) {
            for (const char *c = others; *c != '\0'; c++) {
                snprintf(text, sizeof text, "%s", texts[i]);
                text[at] = *c;
                CHECK_MSG((walk(text, &n, NULL) == MF_OK) == is_object(text), "<%s>", text);
            }
        }
    }
}

static void test_refused(void)
{
    mf_error error = {0};
    size_t n;
    CHECK_STATUS(walk("{\"a\":1,}", &n, &error), MF_ERR_FORMAT);
    CHECK_U64(error.byte_position, 7);
    CHECK_CONTAINS(error.message, "text: not valid JSON at byte 7");
    CHECK_STATUS(walk("{\"a\":tru }", &n, &error), MF_ERR_FORMAT);
    CHECK(error.byte_position >= 5 && error.byte_position <= 8);
    CHECK_STATUS(walk("{\"a\\u0000b\":1}", &n, &error), MF_ERR_FORMAT);
    CHECK_STATUS(walk("[1]", &n, &error), MF_ERR_FORMAT);
    CHECK_CONTAINS(error.message, "object");
}

/* Names and values at their limits, in the densest JSON there is. */
static void test_limits(void)
{
    enum { ROOM = MF_MEMBER_VALUE_BYTES + 64 };
    static char text[ROOM];
    mf_error error = {0};
    size_t n;
    for (size_t extra = 0; extra < 2; extra++) {
        size_t at = (size_t)snprintf(text, sizeof text, "{\"a\":[");
        size_t n_value = MF_MEMBER_VALUE_BYTES + extra;
        for (size_t i = 2; i < n_value; i++)
            text[at++] = i % 2 == 0 ? '1' : ',';
        text[at - 1] = '1';
        snprintf(text + at, sizeof text - at, "]}");
        CHECK_STATUS(walk(text, &n, &error), extra == 0 ? MF_OK : MF_ERR_FORMAT);
        at = (size_t)snprintf(text, sizeof text, "{\"");
        size_t n_name = MF_MEMBER_NAME_BYTES - 2 + extra;
        memset(text + at, 'n', n_name);
        snprintf(text + at + n_name, sizeof text - at - n_name, "\":1}");
        CHECK_STATUS(walk(text, &n, &error), extra == 0 ? MF_OK : MF_ERR_FORMAT);
    }
    CHECK_CONTAINS(error.message, "at most 1024");
}

/* A name that is given twice is found in an object of any size and at any depth. */
static void test_twice(void)
{
    static const char *const texts[] = {"{\"a\":1,\"a\":2}", "{\"a\":1,\"b\":0,\"a\":2}",
                                        "[[{\"b\":[{\"a\":1,\"\\u0061\":2}]}]]",
                                        "{\"a\":{\"b\":1},\"b\":{\"a\":1}}"};
    const mf_allocator a = mf_allocator_default();
    for (size_t i = 0; i < 4; i++) {
        mf_json json;
        mf_error error = {0};
        REQUIRE(mf_json_parse(&a, "text", texts[i], strlen(texts[i]), &json, &error) == MF_OK);
        CHECK_STATUS(mf_json_check_names(&json, &error), i < 3 ? MF_ERR_FORMAT : MF_OK);
        if (i < 3)
            CHECK_CONTAINS(error.message, "field a is given twice");
        mf_json_free(&json);
    }
}

int main(void)
{
    test_found();
    test_judged();
    test_refused();
    test_limits();
    test_twice();
    return test_result();
}
