/* SPDX-License-Identifier: MIT */
/* The words that the pre-tokenizers which GGUF names make of texts, against those of PyPI's
 * tokenizers by the published patterns (tools/make_pre_goldens.py). */
#include "text/gguf_text.h"
#include "text/pretokenizer.h"
#include "text_data.h"

#include <stdlib.h>
#include <string.h>

typedef struct expected_words {
    yyjson_val *words;
    size_t n, n_wrong;
} expected_words;

static mf_status take_word(void *ctx, const unsigned char *word, size_t n_bytes, mf_error *error)
{
    expected_words *e = ctx;
    yyjson_val *next = yyjson_arr_get(e->words, e->n++);
    (void)error;
    if (next == NULL || yyjson_get_len(next) != n_bytes ||
        memcmp(yyjson_get_str(next), word, n_bytes) != 0)
        e->n_wrong++;
    return MF_OK;
}

/* As a tokenizer.json has it. */
static void load(const mf_named_pretokenizer *named, mf_pretokenizer *p)
{
    const mf_allocator allocator = mf_allocator_default(), *a = &allocator;
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_val *all = yyjson_mut_obj_add_obj(doc, root, "pre_tokenizer");
    yyjson_mut_obj_add_str(doc, all, "type", "Sequence");
    yyjson_mut_val *steps = yyjson_mut_obj_add_arr(doc, all, "pretokenizers");
    for (size_t i = 0; i < MF_PRETOKENIZER_STEPS && named->patterns[i] != NULL; i++) {
        yyjson_mut_val *step = yyjson_mut_arr_add_obj(doc, steps);
        yyjson_mut_obj_add_str(doc, step, "type", "Split");
        yyjson_mut_val *pattern = yyjson_mut_obj_add_obj(doc, step, "pattern");
        yyjson_mut_obj_add_str(doc, pattern, "Regex", named->patterns[i]);
        yyjson_mut_obj_add_str(doc, step, "behavior", "Isolated");
        yyjson_mut_obj_add_bool(doc, step, "invert", false);
    }
    yyjson_mut_val *bytes = yyjson_mut_arr_add_obj(doc, steps);
    yyjson_mut_obj_add_str(doc, bytes, "type", "ByteLevel");
    yyjson_mut_obj_add_bool(doc, bytes, "add_prefix_space", false);
    yyjson_mut_obj_add_bool(doc, bytes, "use_regex", false);
    yyjson_mut_doc_set_root(doc, root);
    size_t n_bytes = 0;
    char *text = yyjson_mut_write(doc, 0, &n_bytes);
    mf_json json = {0};
    mf_error error = {0};
    REQUIRE(text != NULL);
    REQUIRE_OK(mf_json_parse(a, "pre", text, n_bytes, &json, &error), &error);
    REQUIRE_OK(mf_pretokenizer_load(p, a, &json, &error), &error);
    mf_json_free(&json);
    free(text);
    yyjson_mut_doc_free(doc);
}

static void check_text(const mf_pretokenizer *p, const char *name, yyjson_val *text,
                       yyjson_val *words)
{
    const mf_allocator a = mf_allocator_default();
    expected_words e = {.words = words};
    mf_pretoken_run run = {0};
    mf_error error = {0};
    REQUIRE_OK(mf_pretoken_run_init(&run, p, &a, take_word, &e, &error), &error);
    REQUIRE_OK(mf_pretoken_run_text(&run, (const unsigned char *)yyjson_get_str(text),
                                    yyjson_get_len(text), true),
               &error);
    CHECK_MSG(e.n_wrong == 0 && e.n == yyjson_arr_size(words),
              "%s: %zu words, %zu expected, %zu of them wrong: %s", name, e.n,
              yyjson_arr_size(words), e.n_wrong, yyjson_get_str(text));
    mf_pretoken_run_free(&run);
}

static void check_name(yyjson_val *name, yyjson_val *texts, yyjson_val *words)
{
    const char *text = yyjson_get_str(name);
    const mf_named_pretokenizer *named = mf_find_pretokenizer(text, strlen(text));
    mf_pretokenizer p = {0};
    REQUIRE(CHECK_MSG(named != NULL, "%s is not known", text));
    load(named, &p);
    for (size_t i = 0; i < yyjson_arr_size(texts); i++)
        check_text(&p, text, yyjson_arr_get(texts, i), yyjson_arr_get(words, i));
    mf_pretokenizer_free(&p);
}

int main(int argc, char **argv)
{
    const mf_allocator a = mf_allocator_default();
    mf_json json = {0};
    mf_error error = {0};
    text_data_set_dir(argc, argv);
    REQUIRE_OK(mf_json_read(&a, text_data_path("gguf_words.json"), 1 << 20, &json, &error), &error);
    yyjson_val *texts = yyjson_obj_get(json.root, "texts");
    yyjson_val *rows = yyjson_obj_get(json.root, "rows");
    CHECK(yyjson_arr_size(texts) > 10 && yyjson_arr_size(rows) > 10);
    for (size_t r = 0; r < yyjson_arr_size(rows); r++) {
        yyjson_val *row = yyjson_arr_get(rows, r), *names = yyjson_obj_get(row, "names");
        for (size_t i = 0; i < yyjson_arr_size(names); i++)
            check_name(yyjson_arr_get(names, i), texts, yyjson_obj_get(row, "words"));
    }
    mf_json_free(&json);
    return test_result();
}
