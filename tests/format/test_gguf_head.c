/* SPDX-License-Identifier: MIT */
/* Heads of GGUF files: values of every type, and hostile ones, each refused with a message that
 * says where and why. */
#include "test.h"

#include "base/alloc.h"
#include "format/gguf_source.h"

#include <sys/stat.h>
#include <unistd.h>

typedef struct head {
    unsigned char bytes[8192];
    size_t n;
} head;

static void put(head *h, uint64_t value, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        h->bytes[h->n++] = (unsigned char)(value >> (8 * i));
}

static void put_text(head *h, const char *text)
{
    put(h, strlen(text), 8);
    memcpy(h->bytes + h->n, text, strlen(text));
    h->n += strlen(text);
}

static head begin(uint32_t version, uint64_t n_tensors, uint64_t n_values)
{
    head h = {.n = 4};
    memcpy(h.bytes, "GGUF", 4);
    put(&h, version, 4);
    put(&h, n_tensors, 8);
    put(&h, n_values, 8);
    return h;
}

static void put_key(head *h, const char *key, uint32_t type)
{
    put_text(h, key);
    put(h, type, 4);
}

static void put_tensor(head *h, const char *name, const uint64_t ne[2], uint32_t type,
                       uint64_t offset)
{
    put_text(h, name);
    put(h, 2, 4);
    put(h, ne[0], 8);
    put(h, ne[1], 8);
    put(h, type, 4);
    put(h, offset, 8);
}

static void check_refused(const char *what, const head *h, uint64_t file_bytes, mf_status status,
                          const char *text)
{
    const mf_allocator a = mf_allocator_default();
    mf_gguf gguf = {0};
    mf_error error = {0};
    mf_status got = mf_gguf_parse(&a, "FILE", h->bytes, h->n, file_bytes, &gguf, &error);
    CHECK_MSG(got == status, "%s: %s (%s)", what, mf_status_name(got), error.message);
    CHECK_CONTAINS(error.message, text);
    CHECK_CONTAINS(error.message, "FILE");
    mf_gguf_free(&gguf);
}

/* Parsed, then refused as a table of tensors. */
static void check_tensors_refused(const char *what, const head *h, uint64_t file_bytes,
                                  const char *text)
{
    const mf_allocator a = mf_allocator_default();
    mf_gguf gguf = {0};
    mf_gguf_source source = {.arch = NULL};
    mf_error error = {0};
    REQUIRE_OK(mf_gguf_parse(&a, "/proc/self/exe", h->bytes, h->n, file_bytes, &gguf, &error),
               &error);
    CHECK_MSG(mf_gguf_source_take(&source, &gguf, &error) != MF_OK, "%s is taken", what);
    CHECK_CONTAINS(error.message, text);
    mf_gguf_source_clear(&source);
}

/* ------------------------------------------------------------------------------------ values -- */

static double number(const mf_gguf *g, const char *key, uint64_t index)
{
    double value = -99;
    CHECK_MSG(mf_gguf_number(g, mf_gguf_find(g, key), index, &value), "%s is no number", key);
    return value;
}

static head all_types(uint32_t version)
{
    head h = begin(version, 0, 15);
    put_key(&h, "u8", MF_GGUF_U8), put(&h, 200, 1);
    put_key(&h, "i8", MF_GGUF_I8), put(&h, 200, 1);
    put_key(&h, "u16", MF_GGUF_U16), put(&h, 60000, 2);
    put_key(&h, "i16", MF_GGUF_I16), put(&h, 60000, 2);
    put_key(&h, "u32", MF_GGUF_U32), put(&h, 4000000000, 4);
    put_key(&h, "i32", MF_GGUF_I32), put(&h, 4000000000, 4);
    put_key(&h, "u64", MF_GGUF_U64), put(&h, (uint64_t)1 << 40, 8);
    put_key(&h, "i64", MF_GGUF_I64), put(&h, UINT64_MAX, 8);
    put_key(&h, "f32", MF_GGUF_F32), put(&h, 0x3fc00000, 4);
    put_key(&h, "f64", MF_GGUF_F64), put(&h, 0x4004000000000000, 8);
    put_key(&h, "bool", MF_GGUF_BOOL), put(&h, 1, 1);
    put_key(&h, "text", MF_GGUF_STRING), put_text(&h, "word");
    put_key(&h, "empty", MF_GGUF_STRING), put_text(&h, "");
    put_key(&h, "numbers", MF_GGUF_ARRAY), put(&h, MF_GGUF_I32, 4), put(&h, 3, 8);
    put(&h, 7, 4), put(&h, (uint32_t)-8, 4), put(&h, 9, 4);
    put_key(&h, "texts", MF_GGUF_ARRAY), put(&h, MF_GGUF_STRING, 4), put(&h, 2, 8);
    put_text(&h, "a"), put_text(&h, "bc");
    return h;
}

static void check_all_types(const mf_gguf *g)
{
    mf_gguf_text text;
    size_t at = 0;
    CHECK(number(g, "u8", 0) == 200 && number(g, "i8", 0) == -56);
    CHECK(number(g, "u16", 0) == 60000 && number(g, "i16", 0) == -5536);
    CHECK(number(g, "u32", 0) == 4000000000 && number(g, "i32", 0) == -294967296);
    CHECK(number(g, "u64", 0) == 1099511627776 && number(g, "i64", 0) == -1);
    CHECK(number(g, "f32", 0) == 1.5 && number(g, "f64", 0) == 2.5 && number(g, "bool", 0) == 1);
    CHECK(number(g, "numbers", 1) == -8 && number(g, "numbers", 2) == 9);
    CHECK(mf_gguf_is(g, "text", "word") && !mf_gguf_is(g, "text", "wor") &&
          mf_gguf_is(g, "empty", ""));
    double value;
    CHECK(!mf_gguf_number(g, mf_gguf_find(g, "numbers"), 3, &value));
    CHECK(!mf_gguf_number(g, mf_gguf_find(g, "text"), 0, &value));
    CHECK(!mf_gguf_string(g, mf_gguf_find(g, "texts"), &text));
    CHECK(mf_gguf_find(g, "nothing") == NULL && mf_gguf_find(g, "tex") == NULL);
    CHECK(mf_gguf_next(g, mf_gguf_find(g, "texts"), &at, &text) && text.n_bytes == 1);
    CHECK(mf_gguf_next(g, mf_gguf_find(g, "texts"), &at, &text) && text.n_bytes == 2 &&
          memcmp(text.text, "bc", 2) == 0);
    CHECK(!mf_gguf_next(g, mf_gguf_find(g, "texts"), &at, &text));
}

static void test_values(void)
{
    const mf_allocator a = mf_allocator_default();
    for (uint32_t version = 2; version <= 3; version++) {
        const head h = all_types(version);
        mf_gguf g = {0};
        mf_error error = {0};
        REQUIRE_OK(mf_gguf_parse(&a, "FILE", h.bytes, h.n, h.n, &g, &error), &error);
        CHECK_U64(g.version, version);
        check_all_types(&g);
        REQUIRE_OK(mf_gguf_shrink(&g, &error), &error);
        check_all_types(&g);
        mf_gguf_free(&g);
    }
}

/* Every beginning of a good file is refused, wherever it ends. */
static void test_cut_short(void)
{
    head h = all_types(3);
    const size_t n = h.n;
    for (h.n = 0; h.n < n; h.n++)
        check_refused("a beginning", &h, h.n, MF_ERR_FORMAT, "at byte"); /* ends, or holds less */
    for (h.n = 0; h.n < n; h.n++)
        check_refused("a beginning of a large file", &h, (uint64_t)1 << 40, MF_ERR_FORMAT,
                      "ends within");
}

/* ----------------------------------------------------------------------------------- hostile -- */

static void test_beginnings(void)
{
    head h = begin(3, 0, 0);
    h.bytes[0] = 'X';
    check_refused("other bytes", &h, h.n, MF_ERR_FORMAT, "begins with other bytes");
    h = begin(1, 0, 0);
    check_refused("version 1", &h, h.n, MF_ERR_UNSUPPORTED, "version 1; supported are 2 and 3");
    h = begin(4, 0, 0);
    check_refused("version 4", &h, h.n, MF_ERR_UNSUPPORTED, "version 4");
    h = begin(0x03000000, 0, 0);
    check_refused("big-endian", &h, h.n, MF_ERR_UNSUPPORTED, "big-endian");
    h = begin(3, UINT64_MAX, 0);
    check_refused("many tensors", &h, h.n, MF_ERR_FORMAT, "more tensors");
    h = begin(3, 0, UINT64_MAX);
    check_refused("many keys", &h, UINT64_MAX, MF_ERR_FORMAT, "more keys");
    h = (head){.n = 0};
    memcpy(h.bytes, "version https://git-lfs.github.com/spec/v1\n", 43);
    h.n = 43;
    check_refused("a pointer", &h, h.n, MF_ERR_FORMAT, "git lfs pull");
}

static void test_hostile_values(void)
{
    head h = begin(3, 0, 1);
    put_key(&h, "k", 13), put(&h, 0, 8);
    check_refused("a type that is none", &h, h.n, MF_ERR_FORMAT, "unknown type");
    h = begin(3, 0, 1);
    put_key(&h, "k", MF_GGUF_ARRAY), put(&h, MF_GGUF_ARRAY, 4), put(&h, 1, 8);
    check_refused("nested arrays", &h, h.n, MF_ERR_FORMAT, "array of arrays");
    h = begin(3, 0, 1);
    put_key(&h, "k", MF_GGUF_ARRAY), put(&h, MF_GGUF_U64, 4), put(&h, UINT64_MAX / 8 + 2, 8);
    check_refused("a length that overflows", &h, h.n, MF_ERR_FORMAT, "overflows");
    h = begin(3, 0, 1);
    put_key(&h, "k", MF_GGUF_ARRAY), put(&h, MF_GGUF_STRING, 4), put(&h, UINT64_MAX, 8);
    check_refused("endless strings", &h, UINT64_MAX, MF_ERR_FORMAT, "ends within");
    h = begin(3, 0, 1);
    put_key(&h, "k", MF_GGUF_STRING), put(&h, UINT64_MAX, 8);
    check_refused("a long string", &h, UINT64_MAX, MF_ERR_FORMAT, "ends within a string");
    h = begin(3, 0, 1);
    put(&h, 0, 8), put(&h, MF_GGUF_U8, 4), put(&h, 0, 8);
    check_refused("a key without a name", &h, h.n, MF_ERR_FORMAT, "a key of 0 bytes");
    h = begin(3, 0, 1);
    put(&h, 2, 8), put(&h, 'k', 2), put(&h, MF_GGUF_U8, 4), put(&h, 0, 1);
    check_refused("a NUL", &h, h.n, MF_ERR_FORMAT, "a NUL in a key");
    h = begin(3, 0, 2);
    put_key(&h, "k", MF_GGUF_U8), put(&h, 0, 1), put_key(&h, "k", MF_GGUF_U8), put(&h, 0, 1);
    check_refused("a key twice", &h, h.n, MF_ERR_FORMAT, "key k is given twice");
    static const uint32_t alignments[] = {0, 3, 33, 0x80000000u};
    for (size_t i = 0; i < 4; i++) {
        h = begin(3, 0, 1);
        put_key(&h, "general.alignment", MF_GGUF_U32), put(&h, alignments[i], 4);
        check_refused("an alignment", &h, h.n, MF_ERR_FORMAT, "general.alignment");
    }
    h = begin(3, 0, 1);
    put_key(&h, "general.alignment", MF_GGUF_STRING), put_text(&h, "32");
    check_refused("an alignment in words", &h, h.n, MF_ERR_FORMAT, "general.alignment");
}

static void test_hostile_tensors(void)
{
    static const uint64_t square[2] = {32, 4}, empty[2] = {32, 0}, odd[2] = {33, 4},
                          huge[2] = {(uint64_t)1 << 62, 64};
    const uint64_t large = (uint64_t)1 << 40;
    head h = begin(3, 1, 0);
    put_tensor(&h, "t", empty, 0, 0);
    check_refused("an empty dimension", &h, large, MF_ERR_FORMAT, "tensor t has a dimension of 0");
    h = begin(3, 1, 0);
    put_text(&h, "t"), put(&h, 5, 4);
    check_refused("five dimensions", &h, large, MF_ERR_FORMAT,
                  "tensor t has not 1 to 4 dimensions");
    const struct {
        const char *what;
        const uint64_t *ne;
        uint32_t type;
        uint64_t offset, file_bytes;
        const char *text;
    } cases[] = {
        {"an unknown type", square, 99, 0, large, "type 99 is not known"},
        {"a type that was given up", square, 4, 0, large, "type 4 is not known"},
        {"a row of no whole blocks", odd, 8, 0, large, "rows of 33 values, but blocks of Q8_0"},
        {"an offset between", square, 0, 8, large, "no multiple of the alignment"},
        {"one behind the file", square, 0, 0, 600, "lies outside the file"},
        {"an offset that overflows", square, 0, UINT64_MAX - 31, large, "lies outside the file"},
        {"a shape that overflows", huge, 0, 0, large, "overflows"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        h = begin(3, 1, 0);
        put_tensor(&h, "t", cases[i].ne, cases[i].type, cases[i].offset);
        check_tensors_refused(cases[i].what, &h, cases[i].file_bytes, cases[i].text);
    }
    h = begin(3, 2, 0);
    put_tensor(&h, "t", square, 0, 0), put_tensor(&h, "u", square, 0, 32);
    check_tensors_refused("two in one place", &h, large, "overlap");
    h = begin(3, 2, 0);
    put_tensor(&h, "t", square, 0, 0), put_tensor(&h, "t", square, 0, 1024);
    check_tensors_refused("two of a name", &h, large, "tensor t is also");
    h = begin(3, 1, 0);
    put_tensor(&h, "t", square, 0, 0);
    check_tensors_refused("no architecture", &h, large, "general.architecture is (none)");
}

static void test_architectures(void)
{
    static const uint64_t square[2] = {32, 4};
    const uint64_t large = (uint64_t)1 << 40;
    head h = begin(3, 1, 1);
    put_key(&h, "general.architecture", MF_GGUF_STRING), put_text(&h, "mamba");
    put_tensor(&h, "t", square, 0, 0);
    check_tensors_refused("another architecture", &h, large, "is mamba; supported are qwen35moe");
    h = begin(3, 1, 1);
    put_key(&h, "general.architecture", MF_GGUF_STRING), put_text(&h, "qwen35moe");
    put_tensor(&h, "t", square, 0, 0);
    check_tensors_refused("no layers", &h, large, "block_count");
    h = begin(3, 1, 3);
    put_key(&h, "general.architecture", MF_GGUF_STRING), put_text(&h, "qwen35moe");
    put_key(&h, "qwen35moe.block_count", MF_GGUF_U32), put(&h, 4, 4);
    put_key(&h, "qwen35moe.nextn_predict_layers", MF_GGUF_U32), put(&h, 4, 4);
    put_tensor(&h, "t", square, 0, 0);
    check_tensors_refused("no layer left", &h, large, "nextn_predict_layers");
}

/* ------------------------------------------------------------------------------------- paths -- */

static char scratch[] = "/tmp/moeflux-gguf.XXXXXX";

static void make_file(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    FILE *f = fopen(path, "wb");
    REQUIRE(f != NULL && fclose(f) == 0);
}

static void remove_file(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    REQUIRE(unlink(path) == 0);
}

static void check_located(const char *name, const char *expected)
{
    char path[256], file[512], want[256];
    bool found;
    mf_error error = {0};
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    snprintf(want, sizeof want, "%s/%s", scratch, expected);
    REQUIRE_OK(mf_gguf_locate(name[0] == '\0' ? scratch : path, file, sizeof file, &found, &error),
               &error);
    CHECK_MSG(found == (expected[0] != '\0'), "%s is %sfound", path, found ? "" : "not ");
    if (found)
        CHECK_STR(file, want);
}

static void test_paths(void)
{
    static const char *const names[] = {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf",
                                        "mmproj-F16.gguf", "notes.txt"};
    char file[512];
    bool found;
    mf_error error = {0};
    REQUIRE(mkdtemp(scratch) != NULL);
    check_located("", "");
    check_located("nothing.gguf", "");
    for (size_t i = 0; i < 4; i++)
        make_file(names[i]);
    check_located("", names[0]);
    check_located(names[1], names[0]); /* whichever part is given */
    check_located("notes.txt", "");
    CHECK_U64(mf_gguf_count_parts(names[1]), 2);
    CHECK_U64(mf_gguf_count_parts("m.gguf"), 1);
    CHECK_U64(mf_gguf_count_parts("00001-of-00002.gguf"), 1); /* no name before it */
    make_file("other.gguf");
    CHECK_STATUS(mf_gguf_locate(scratch, file, sizeof file, &found, &error), MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, "several GGUF models");
    make_file("model.safetensors"); /* that is another form's */
    check_located("", "");
    remove_file("model.safetensors");
    remove_file("other.gguf");
    remove_file(names[0]);
    check_located("", names[0]); /* to be called missing */
    for (size_t i = 1; i < 4; i++)
        remove_file(names[i]);
    REQUIRE(rmdir(scratch) == 0);
}

int main(void)
{
    test_values();
    test_cut_short();
    test_beginnings();
    test_hostile_values();
    test_hostile_tensors();
    test_architectures();
    test_paths();
    return test_result();
}
