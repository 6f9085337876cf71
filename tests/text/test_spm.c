/* SPDX-License-Identifier: MIT */
/*
 * SentencePiece's vocabularies apart from goldens: files that are refused, by field; which file of
 * a directory counts; start and end tokens; where text may be cut; failing memory.
 */
#include "failing_alloc.h"
#include "text_data.h"

#include "text/bpe.h"
#include "text/spm_proto.h"
#include "text/tokenizer.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------- a model's bytes
 * -- */

typedef struct proto {
    unsigned char bytes[1u << 15];
    size_t n;
} proto;

static void put(proto *p, const void *bytes, size_t n)
{
    REQUIRE(n <= sizeof p->bytes - p->n);
    memcpy(p->bytes + p->n, bytes, n);
    p->n += n;
}

static void put_varint(proto *p, uint64_t value)
{
    unsigned char byte;
    for (; value >= 0x80; value >>= 7) {
        byte = (unsigned char)(value | 0x80);
        put(p, &byte, 1);
    }
    byte = (unsigned char)value;
    put(p, &byte, 1);
}

static void put_number(proto *p, uint32_t field, uint64_t value)
{
    put_varint(p, field << 3);
    put_varint(p, value);
}

static void put_bytes(proto *p, uint32_t field, const void *bytes, size_t n)
{
    put_varint(p, field << 3 | 2);
    put_varint(p, n);
    put(p, bytes, n);
}

static void put_piece(proto *p, const char *text, float score, int type)
{
    proto piece = {.n = 0};
    put_bytes(&piece, 1, text, strlen(text));
    put_varint(&piece, 2 << 3 | 5);
    put(&piece, &score, sizeof score); /* tests run where floats are little-endian */
    put_number(&piece, 3, (uint64_t)type);
    put_bytes(p, 1, piece.bytes, piece.n);
}

/* One field of the trainer_spec (2), the normalizer_spec (3) or the denormalizer_spec (5). */
static void put_spec(proto *p, uint32_t spec, uint32_t field, uint64_t value)
{
    proto inner = {.n = 0};
    put_number(&inner, field, value);
    put_bytes(p, spec, inner.bytes, inner.n);
}

/* <unk> <s> </s> ▁ a b ab ▁a of a model of byte pairs that keeps blanks as they are. */
static void begin(proto *p)
{
    /* Octal: a hexadecimal escape would take the letter behind it along. */
    static const char *const texts[] = {"\342\226\201", "a", "b", "ab", "\342\226\201a"};
    p->n = 0;
    put_piece(p, "<unk>", 0, MF_SPM_UNKNOWN);
    put_piece(p, "<s>", 0, MF_SPM_CONTROL);
    put_piece(p, "</s>", 0, MF_SPM_CONTROL);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        put_piece(p, texts[i], -(float)i, MF_SPM_NORMAL);
    put_spec(p, 2, 3, MF_SPM_BPE);
    put_spec(p, 3, 4, 0);
}

/* With a map of one unit, which replaces nothing, and a replacement of n bytes. */
static void begin_with_map(proto *p, size_t n)
{
    static const unsigned char head[] = {4, 0, 0, 0, 0, 0, 0, 0};
    proto map = {.n = 0}, spec = {.n = 0};
    put(&map, head, sizeof head);
    for (size_t i = 0; i < n; i++)
        put(&map, "x", 1);
    put(&map, "", 1);
    put_bytes(&spec, 2, map.bytes, map.n);
    begin(p);
    put_bytes(p, 3, spec.bytes, spec.n);
}

static mf_status open_model(const proto *p, const char *config, const char *added,
                            mf_tokenizer **out, mf_error *error)
{
    mf_allocator a = mf_allocator_default();
    mf_json json[2] = {{.path = NULL}, {.path = NULL}};
    if (config != NULL)
        REQUIRE(mf_json_parse(&a, "c.json", config, strlen(config), &json[0], NULL) == MF_OK);
    if (added != NULL)
        REQUIRE(mf_json_parse(&a, "a.json", added, strlen(added), &json[1], NULL) == MF_OK);
    const mf_spm_files files = {.path = "t.model",
                                .model = (const char *)p->bytes,
                                .n_bytes = p->n,
                                .config = config != NULL ? &json[0] : NULL,
                                .added = added != NULL ? &json[1] : NULL};
    mf_status status = mf_text_open_spm(&files, &a, out, error);
    mf_json_free(&json[0]);
    mf_json_free(&json[1]);
    return status;
}

static void check_refused(const proto *p, const char *config, const char *added, mf_status expected,
                          const char *part)
{
    mf_tokenizer *t = NULL;
    mf_error error = {0};
    const mf_status status = open_model(p, config, added, &t, &error);
    CHECK_MSG(status == expected && strstr(error.message, part) != NULL && t == NULL,
              "got %d \"%s\", want %d with \"%s\"", status, error.message, expected, part);
    mf_text_close(&t);
}

/* ------------------------------------------------------------------------------------ refusals --
 */

static void check_bytes(void)
{
    static proto p, whole;
    const mf_status bad = MF_ERR_FORMAT;
    p.n = 0;
    check_refused(&p, NULL, NULL, bad, "t.model: 0 pieces, expected 1 to");
    put_bytes(&p, 1, "\x0a\x09", 2);
    check_refused(&p, NULL, NULL, bad, "t.model: byte 2: pieces[0]: not a SentencePiece");
    p.n = 0;
    put_piece(&p, "\xff", 0, MF_SPM_NORMAL);
    check_refused(&p, NULL, NULL, bad, "pieces[0].piece: expected UTF-8 of 1 to 65536 bytes");
    p.n = 0;
    put_piece(&p, "", 0, MF_SPM_NORMAL);
    check_refused(&p, NULL, NULL, bad, "pieces[0].piece: expected UTF-8");
    p.n = 0;
    put_piece(&p, "a", 0, 7);
    check_refused(&p, NULL, NULL, bad, "pieces[0].type: expected 1 to 6");
    p.n = 0;
    put_piece(&p, "a", NAN, MF_SPM_NORMAL);
    check_refused(&p, NULL, NULL, bad, "pieces[0].score: expected a number");
    begin(&p);
    put_bytes(&p, 2, "\x18", 1);
    check_refused(&p, NULL, NULL, bad, "trainer_spec: expected a field of protobuf");
    begin(&p);
    put(&p, "\x3b", 1); /* a group */
    check_refused(&p, NULL, NULL, bad, "expected a field of a SentencePiece model");
    /* whatever is cut off, nothing is read beyond the end */
    begin(&whole);
    for (p.n = 0; p.n < whole.n; p.n++) {
        mf_tokenizer *t = NULL;
        mf_error error = {0};
        memcpy(p.bytes, whole.bytes, p.n);
        if (open_model(&p, NULL, NULL, &t, &error) != MF_OK)
            CHECK_CONTAINS(error.message, "t.model: ");
        mf_text_close(&t);
    }
}

static void check_specs(void)
{
    static const struct {
        uint32_t spec, field;
        uint64_t value;
        const char *part;
    } cases[] = {
        {2, 3, MF_SPM_WORDS, "trainer_spec.model_type: WORD, expected BPE or UNIGRAM"},
        {2, 3, 99, "trainer_spec.model_type: of no kind that is known, expected BPE"},
        {2, 24, 1, "trainer_spec.treat_whitespace_as_suffix: expected false"},
        {3, 5, 0, "normalizer_spec.escape_whitespaces: expected true"},
    };
    static proto p;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(&p);
        put_spec(&p, cases[i].spec, cases[i].field, cases[i].value);
        check_refused(&p, NULL, NULL, MF_ERR_UNSUPPORTED, cases[i].part);
    }
    begin(&p);
    put_bytes(&p, 5, "\x12\x01x", 3);
    check_refused(&p, NULL, NULL, MF_ERR_UNSUPPORTED, "denormalizer_spec.precompiled_charsmap");
    begin(&p);
    put_bytes(&p, 3, "\x12\x03xyz", 5);
    check_refused(&p, NULL, NULL, MF_ERR_FORMAT, "normalizer_spec.precompiled_charsmap");
    begin_with_map(&p, 1025);
    check_refused(&p, NULL, NULL, MF_ERR_UNSUPPORTED, "expected replacements of at most 1024");
    mf_tokenizer *t = NULL;
    mf_error error = {0};
    begin_with_map(&p, 1024);
    REQUIRE_OK(open_model(&p, NULL, NULL, &t, &error), &error);
    mf_text_close(&t);
}

static void check_configs(void)
{
    static proto p;
    const mf_status bad = MF_ERR_FORMAT;
    begin(&p);
    check_refused(&p, "[]", NULL, bad, "c.json: expected an object");
    check_refused(&p, NULL, "[]", bad, "a.json: expected an object");
    check_refused(&p, "{\"added_tokens_decoder\":[]}", NULL, bad,
                  "c.json: added_tokens_decoder: expected an object");
    check_refused(&p, "{\"added_tokens_decoder\":{\"x\":{\"content\":\"y\"}}}", NULL, bad,
                  "c.json: added_tokens_decoder: \"x\", expected an id");
    check_refused(&p, "{\"added_tokens_decoder\":{\"9\":{}}}", NULL, bad, "\"9\", expected an id");
    check_refused(&p, "{\"added_tokens_decoder\":{\"9\":{\"content\":\"y\",\"lstrip\":\"\"}}}",
                  NULL, bad, "added_tokens_decoder.9.lstrip: expected true or false");
    check_refused(&p, "{\"added_tokens_decoder\":{\"9\":{\"content\":\"\"}}}", NULL, bad,
                  "expected a name of 1 to 1024 bytes");
    check_refused(&p, NULL, "{\"y\":9999999}", bad, "a.json: added tokens: \"y\": expected an id");
    check_refused(&p, NULL, "{\"y\":-1}", bad, "expected an id below 65544");
}

#define PLAIN "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}"
#define MARK "\xe2\x96\x81"
#define REPLACE                                                                                    \
    "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" MARK "\"" \
    "}"
#define UNREPLACE "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" MARK "\"},\"content\":\" \"}"
#define DECODERS(steps) "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[" steps "]}"
#define FUSE "{\"type\":\"Fuse\"}"

static mf_status open_json(const char *text, const mf_allocator *a, mf_tokenizer **out,
                           mf_error *error)
{
    mf_json json = {0};
    mf_status status = mf_json_parse(a, "t.json", text, strlen(text), &json, error);
    if (status == MF_OK)
        status = mf_text_open_json(&json, a, out, error);
    mf_json_free(&json);
    return status;
}

/* Parts of a tokenizer.json that do not fit one another, or say what nothing here does. */
static void check_forms(void)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"{\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"x\"}," PLAIN "}",
         "normalizer.prepend: expected \"" MARK "\""},
        {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"b\"}"
         "," PLAIN "}",
         "normalizer.pattern: expected {\"String\": \" \"}"},
        {"{" REPLACE "," DECODERS(FUSE) "," PLAIN "}", "decoder: expected a Replace or Metaspace"},
        {"{" DECODERS(UNREPLACE "," FUSE) "," PLAIN "}",
         "decoder: expected a Replace or Metaspace"},
        {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\"}," DECODERS(FUSE) "," PLAIN "}",
         "the pre_tokenizer alone is ByteLevel"},
        {"{\"decoder\":{\"type\":\"ByteLevel\"}," PLAIN "}", "the decoder alone is ByteLevel"},
        {"{" REPLACE ",\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"decoder\":{\"type\":"
         "\"ByteLevel\"}," PLAIN "}",
         "normalizer: Prepend or Replace before a ByteLevel"},
        {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Metaspace\","
         "\"replacement\":\"" MARK "\"},{\"type\":\"ByteLevel\"}]}," PLAIN "}",
         "pre_tokenizer: Metaspace and ByteLevel"},
        {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"}," PLAIN "}",
         "pre_tokenizer.replacement: expected \"" MARK "\""},
        {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" MARK
         "\",\"prepend_scheme\":\"last\"}," PLAIN "}",
         "pre_tokenizer.prepend_scheme: expected"},
        {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" MARK
         "\",\"prepend_scheme\":\"first\",\"add_prefix_space\":false}," PLAIN "}",
         "pre_tokenizer.prepend_scheme: expected"},
        {"{" DECODERS("{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}") "," PLAIN
                                                                                       "}",
         "decoder.Strip: expected content"},
        {"{" DECODERS(
             FUSE ",{\"type\":\"Strip\",\"content\":\" \",\"start\":2,\"stop\":0}") "," PLAIN "}",
         "decoder.Strip: expected content"},
        {"{" DECODERS(FUSE ",{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\"}") "," PLAIN "}",
         "decoder.Metaspace: expected"},
        {"{" DECODERS(
             "{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":\" \"}") "," PLAIN
                                                                                        "}",
         "decoder.pattern: expected"},
        {"{" DECODERS(
             FUSE
             ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}," UNREPLACE) "," PLAIN
                                                                                          "}",
         "decoder.Replace: expected one before a Strip"},
        {"{" DECODERS(FUSE ",{\"type\":\"ByteFallback\"}") "," PLAIN "}",
         "decoder.type: \"ByteFallback\""},
        {"{" DECODERS(FUSE ",{\"type\":\"WordPiece\"}") "," PLAIN "}",
         "decoder.type: \"WordPiece\""},
        {"{" PLAIN "}", "decoder.type: \"?\", expected ByteLevel, Metaspace, or Replace"},
        {"{" DECODERS(FUSE "," FUSE) ",\"model\":{\"byte_fallback\":true,\"vocab\":{\"a\":0},"
                                     "\"merges\":[]}}",
         "model.byte_fallback with a decoder that lacks ByteFallback"},
        {"{" DECODERS(FUSE "," FUSE) ",\"model\":{\"unk_token\":\"u\",\"vocab\":{\"a\":0},"
                                     "\"merges\":[]}}",
         "model.unk_token: \"u\" is not in model.vocab"},
        {"{" DECODERS(FUSE "," FUSE) ",\"model\":{\"unk_token\":1,\"vocab\":{\"a\":0},"
                                     "\"merges\":[]}}",
         "model.unk_token: expected a string"},
        {"{" DECODERS(FUSE "," FUSE) ",\"model\":{\"dropout\":0.1,\"vocab\":{\"a\":0},"
                                     "\"merges\":[]}}",
         "model.dropout: expected null or 0"},
        {"{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":"
         "\"NFC\"},{\"type\":\"NFC\"},{\"type\":\"NFC\"},{\"type\":\"NFC\"},{\"type\":\"NFC\"},"
         "{\"type\":\"NFC\"},{\"type\":\"NFC\"},{\"type\":\"NFC\"}]}," PLAIN "}",
         "normalizer: more than 8 steps"},
    };
    const mf_allocator a = mf_allocator_default();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mf_tokenizer *t = NULL;
        mf_error error = {0};
        const mf_status status = open_json(cases[i].text, &a, &t, &error);
        CHECK_MSG((status == MF_ERR_UNSUPPORTED || status == MF_ERR_FORMAT) && t == NULL &&
                      strstr(error.message, cases[i].part) != NULL &&
                      strncmp(error.message, "t.json: ", 8) == 0,
                  "case %zu: got %d \"%s\", want \"%s\"", i, status, error.message, cases[i].part);
        mf_text_close(&t);
    }
}

/* ------------------------------------------------------------------------------------- reading --
 */

static size_t encode(const mf_tokenizer *t, const char *text, int32_t ids[16])
{
    size_t n = 0;
    mf_error error = {0};
    REQUIRE_OK(mf_tokenizer_encode(t, text, strlen(text), 1, ids, 16, &n, &error), &error);
    REQUIRE(n <= 16);
    return n;
}

/* Unknown characters are one token a run; added tokens by each file; ends and starts. */
static void check_read(void)
{
    static proto p;
    mf_tokenizer *t = NULL;
    mf_error error = {0};
    int32_t ids[16];
    begin(&p);
    put_number(&p, 200, 1); /* fields of a later version */
    put_bytes(&p, 201, "x", 1);
    REQUIRE_OK(open_model(&p, NULL, "{\"[x]\":8,\"[y]\":11}", &t, &error), &error);
    CHECK(mf_tokenizer_n_vocab(t) == 12 && mf_tokenizer_start(t) == 1);
    CHECK(encode(t, "ab", ids) == 2 && ids[0] == 3 && ids[1] == 6);
    CHECK(encode(t, "axyzb", ids) == 3 && ids[0] == 7 && ids[1] == 0 && ids[2] == 5);
    CHECK(encode(t, "[y]a[x]", ids) == 3 && ids[0] == 11 && ids[1] == 7 && ids[2] == 8);
    CHECK(mf_tokenizer_is_special(t, 1) && !mf_tokenizer_is_special(t, 8));
    mf_text_close(&t);
    REQUIRE_OK(open_model(&p,
                          "{\"legacy\":false,\"tokenizer_class\":\"Ernie4_5_Tokenizer\","
                          "\"eos_token\":\"[x]\",\"added_tokens_decoder\":{\"8\":{\"content\":"
                          "\"[x]\",\"special\":true},\"6\":{\"content\":\"ab\"}}}",
                          NULL, &t, &error),
               &error);
    CHECK(mf_tokenizer_start(t) == -1 && mf_tokenizer_is_special(t, 8));
    /* "ab" is cut out now, and with it the text begins only once */
    CHECK(encode(t, "a[x]a", ids) == 3 && ids[0] == 7 && ids[1] == 8 && ids[2] == 4);
    CHECK(encode(t, "aab", ids) == 2 && ids[0] == 7 && ids[1] == 6);
    mf_text_close(&t);
    REQUIRE_OK(open_model(&p, "{\"add_prefix_space\":false}", NULL, &t, &error), &error);
    CHECK(encode(t, "ab", ids) == 1 && ids[0] == 6);
    mf_text_close(&t);
}

static void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    REQUIRE(file != NULL && fwrite(bytes, 1, n, file) == n && fclose(file) == 0);
}

/* tokenizer.model ends texts by its own word where no file names an end; tokenizer.json counts
 * where both are there. */
static void check_folder(void)
{
    static proto p;
    char dir[] = "/tmp/mf_spm_XXXXXX", model[64], json[64];
    mf_tokenizer *t = NULL;
    mf_error error = {0};
    REQUIRE(mkdtemp(dir) != NULL);
    snprintf(model, sizeof model, "%s/tokenizer.model", dir);
    snprintf(json, sizeof json, "%s/tokenizer.json", dir);
    begin(&p);
    write_file(model, p.bytes, p.n);
    REQUIRE_OK(mf_tokenizer_open(dir, NULL, &t, &error), &error);
    CHECK(mf_tokenizer_n_vocab(t) == 8 && mf_tokenizer_is_end(t, 2) && !mf_tokenizer_is_end(t, 1));
    mf_tokenizer_free(&t);
    write_file(json, "[]", 2);
    CHECK(mf_tokenizer_open(dir, NULL, &t, &error) == MF_ERR_FORMAT);
    CHECK_CONTAINS(error.message, "tokenizer.json");
    unlink(model);
    unlink(json);
    rmdir(dir);
}

/* Ranges that are text by all means hold in normalised text, too; what SentencePiece's own model
 * looks for is no more than text. */
static void check_literal(void)
{
    static const char text[] =
        "{" REPLACE
        "," DECODERS(UNREPLACE "," FUSE) ",\"added_tokens\":[{\"content\":\"<t>\","
                                         "\"special\":true}],\"model\":{\"vocab\":{\"" MARK
                                         "\":0,\"<\":1,\"t\":2,\">\":3},"
                                         "\"merges\":[]}}";
    const mf_allocator a = mf_allocator_default();
    mf_tokenizer *t = NULL;
    mf_error error = {0};
    int32_t ids[16];
    const mf_text_range range = {4, 8};
    REQUIRE_OK(open_json(text, &a, &t, &error), &error);
    const mf_text_input input = {"<t> <t>", 7, true, &range, 1};
    mf_token_list list = {ids, 16, 0};
    REQUIRE_OK(mf_text_encode(t, &input, &list, &error), &error);
    CHECK(list.n_tokens == 5 && ids[0] == 4 && ids[1] == 0 && ids[2] == 1);
    mf_text_close(&t);
}

/* --------------------------------------------------------------------------------------- sizes --
 */

/* More than a word may have, which is one word to the pre-tokenizer: it is cut where no merge
 * joins, and refused where there is no such place. */
static void check_long_word(void)
{
    static const char text[] =
        "{" REPLACE
        "," DECODERS(UNREPLACE "," FUSE) ",\"model\":{\"vocab\":{\"" MARK
                                         "\":0,\"a\":1,\"b\":2,\"ab\":3,\"aa\":4,\"" MARK
                                         "a\":5},\"merges\":[\"a b\",\"a a\",\"" MARK " a\"]}}";
    const mf_allocator a = mf_allocator_default();
    const size_t n_bytes = MF_MAX_WORD_BYTES + 2; /* whole units of three */
    char *word = malloc(n_bytes);
    mf_tokenizer *t = NULL;
    mf_error error = {0};
    size_t n = 0;
    REQUIRE(word != NULL);
    REQUIRE_OK(open_json(text, &a, &t, &error), &error);
    for (size_t i = 0; i < n_bytes; i++)
        word[i] = "ab "[i % 3];
    REQUIRE_OK(mf_tokenizer_encode(t, word, n_bytes, 0, NULL, 0, &n, &error), &error);
    CHECK_U64(n, n_bytes / 3 * 2);
    memset(word, 'a', n_bytes);
    CHECK_STATUS(mf_tokenizer_encode(t, word, n_bytes, 0, NULL, 0, &n, &error), MF_ERR_UNSUPPORTED);
    CHECK_CONTAINS(error.message, "are one word to the tokenizer");
    REQUIRE_OK(mf_tokenizer_encode(t, word, MF_MAX_WORD_BYTES, 0, NULL, 0, &n, &error), &error);
    CHECK_U64(n, MF_MAX_WORD_BYTES / 2);
    mf_text_close(&t);
    free(word);
}

/* A blank that is no token may go as three: in a short word as well as in a long one. */
static void check_blanks_as_bytes(void)
{
    static const char text[] = "{" REPLACE "," DECODERS(
        UNREPLACE
        ",{\"type\":\"ByteFallback\"}," FUSE) ",\"model\":{"
                                              "\"byte_fallback\":true,\"vocab\":{\"<0xE2>\":0,\"<"
                                              "0x96>\":1,\"<0x81>\":2},\"merges\":[]}}";
    const mf_allocator a = mf_allocator_default();
    mf_tokenizer *t = NULL;
    mf_error error = {0};
    char blanks[100];
    int32_t ids[300];
    REQUIRE_OK(open_json(text, &a, &t, &error), &error);
    memset(blanks, ' ', sizeof blanks);
    for (size_t i = 0; i <= sizeof blanks; i++) {
        size_t n = 0;
        REQUIRE_OK(mf_tokenizer_encode(t, blanks, i, 0, ids, 300, &n, &error), &error);
        CHECK(n == 3 * i && (i == 0 || (ids[n - 1] == 2 && ids[n - 3] == 0)));
    }
    mf_text_close(&t);
}

static const char sample[] =
    "  wo\xCC\x81rd <s>\xff 123 a\xCC\xA3\xCC\x81 two words\xef\xac\x81 "
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/* Every allocation of opening and encoding fails once. */
static void check_failing_folder(const char *name)
{
    for (unsigned long long n_call = 1;; n_call++) {
        failing f = {.fail_at = n_call};
        mf_allocator a = failing_allocator(&f);
        mf_tokenizer *t = NULL;
        size_t n;
        mf_status status = mf_tokenizer_open(text_data_path(name), &a, &t, NULL);
        CHECK((t != NULL) == (status == MF_OK));
        if (status == MF_OK)
            status = mf_tokenizer_encode(t, sample, sizeof sample - 1, 1, NULL, 0, &n, NULL);
        mf_tokenizer_free(&t);
        failing_check_end(&f, name);
        if (status == MF_OK && !failing_disarm(&f))
            break;
        REQUIRE(status == MF_OK || status == MF_ERR_NO_MEMORY);
    }
}

static void check_failing_json(void)
{
    static const char text[] =
        "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":"
        "\"Prepend\",\"prepend\":\"" MARK "\"}]},\"pre_tokenizer\":{\"type\":\"Metaspace\","
        "\"replacement\":\"" MARK "\"}," DECODERS(
            UNREPLACE ",{\"type\":\"ByteFallback\"}," FUSE) ",\"added_tokens\":[{\"content\":\"<s>"
                                                            "\",\"normalized\":true},{\"content\":"
                                                            "\"two words\"}],"
                                                            "\"model\":{\"byte_fallback\":true,"
                                                            "\"unk_token\":\"a\",\"vocab\":{\"" MARK
                                                            "\":0,\"a\":1,\"aa\":2,\"<0x31>\":3},"
                                                            "\"merges\":[\"a a\"]}}";
    for (unsigned long long n_call = 1;; n_call++) {
        failing f = {.fail_at = n_call};
        mf_allocator a = failing_allocator(&f);
        mf_tokenizer *t = NULL;
        size_t n;
        mf_status status = open_json(text, &a, &t, NULL);
        CHECK((t != NULL) == (status == MF_OK));
        if (status == MF_OK)
            status = mf_tokenizer_encode(t, sample, sizeof sample - 1, 1, NULL, 0, &n, NULL);
        mf_tokenizer_free(&t);
        failing_check_end(&f, "a tokenizer.json of characters");
        if (status == MF_OK && !failing_disarm(&f))
            break;
        REQUIRE(status == MF_OK || status == MF_ERR_NO_MEMORY);
    }
}

int main(int argc, char **argv)
{
    text_data_set_dir(argc, argv);
    check_bytes();
    check_specs();
    check_configs();
    check_forms();
    check_read();
    check_folder();
    check_literal();
    check_long_word();
    check_blanks_as_bytes();
    check_failing_json();
    check_failing_folder("spm_model/llama");
    check_failing_folder("spm_model/defined");
    check_failing_folder("spm_model/mapped");
    check_failing_folder("unigram/symbols");
    check_failing_folder("unigram/gguf/model.gguf");
    check_failing_folder("hunyuan");
    text_encode_long_words("spm_model/llama");
    return test_result();
}
