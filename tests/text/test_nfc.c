/* SPDX-License-Identifier: MIT */
/* Normalization form C as the tokenizers package has it, whatever Unicode utf8proc is of, and as
 * utf8proc has it. */
#include "text_data.h"

#include "format/json.h"
#include "text/nfc.h"

static size_t check_texts(mf_nfc_age age, const char *(*expected)(yyjson_val *, size_t))
{
    const mf_allocator a = mf_allocator_default();
    mf_json json = {0};
    mf_error error = {0};
    mf_nfc_scratch scratch;
    mf_buffer out;
    size_t n_changed = 0;
    mf_nfc_scratch_init(&scratch, &a);
    mf_buffer_init(&out, &a);
    REQUIRE_OK(mf_json_read(&a, text_data_path("nfc.json"), 1 << 20, &json, &error), &error);
    CHECK(yyjson_arr_size(json.root) > 400);
    for (size_t i = 0; i + 1 < yyjson_arr_size(json.root); i += 2) {
        yyjson_val *text = yyjson_arr_get(json.root, i);
        const char *want = expected(json.root, i);
        out.n_bytes = 0;
        REQUIRE_OK(mf_nfc(&scratch, age, (const unsigned char *)yyjson_get_str(text),
                          yyjson_get_len(text), &out, &error),
                   &error);
        REQUIRE_OK(mf_buffer_append(&out, "", 1, "its end", &error), &error);
        n_changed += strcmp(yyjson_get_str(text), (const char *)out.data) != 0;
        if (want != NULL)
            CHECK_STR((const char *)out.data, want);
    }
    mf_buffer_free(&out);
    mf_nfc_scratch_free(&scratch);
    mf_json_free(&json);
    return n_changed;
}

static const char *golden(yyjson_val *rows, size_t i)
{
    return yyjson_get_str(yyjson_arr_get(rows, i + 1));
}

static const char *none(yyjson_val *rows, size_t i)
{
    (void)rows;
    (void)i;
    return NULL;
}

/* U+07FD is a mark of Unicode 11 below the letter; U+0334 goes through it, and first. */
static void check_ages(void)
{
    static const char text[] = "\xe4\xb8\xad\xdf\xbd\xcc\xb4",
                      sorted[] = "\xe4\xb8\xad\xcc\xb4\xdf\xbd";
    const mf_allocator a = mf_allocator_default();
    mf_nfc_scratch scratch;
    mf_buffer out;
    mf_nfc_scratch_init(&scratch, &a);
    for (int age = MF_NFC_OLD; age <= MF_NFC_NEW; age++) {
        mf_buffer_init(&out, &a);
        REQUIRE(mf_nfc(&scratch, (mf_nfc_age)age, (const unsigned char *)text, sizeof text, &out,
                       NULL) == MF_OK);
        CHECK_STR((const char *)out.data, age == MF_NFC_OLD ? text : sorted);
        mf_buffer_free(&out);
    }
    mf_nfc_scratch_free(&scratch);
}

int main(int argc, char **argv)
{
    text_data_set_dir(argc, argv);
    const size_t n_old = check_texts(MF_NFC_OLD, golden), n_new = check_texts(MF_NFC_NEW, none);
    CHECK(n_old > 50 && n_new > n_old);
    check_ages();
    return test_result();
}
