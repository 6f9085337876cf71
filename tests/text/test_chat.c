/* SPDX-License-Identifier: MIT */
/* Chat templates: the same text as the Jinja templates themselves give; others are refused. */
#include "text_data.h"

#include "text/tokenizer.h"

static mf_tokenizer with_template(const char *text, size_t n_bytes)
{
    mf_tokenizer t = {0};
    mf_allocator a = mf_allocator_default();
    REQUIRE(mf_chat_recognise(&t.chat, &a, text, n_bytes, NULL) == MF_OK);
    return t;
}

static mf_chat_role role_of(const char *name)
{
    return strcmp(name, "system") == 0 ? MF_ROLE_SYSTEM
           : strcmp(name, "user") == 0 ? MF_ROLE_USER
                                       : MF_ROLE_ASSISTANT;
}

static void check_case(yyjson_val *item)
{
    mf_chat_message messages[16];
    size_t i, n;
    yyjson_val *message;
    char name[256], text[4096];
    snprintf(name, sizeof name, "chat/%s", yyjson_get_str(yyjson_obj_get(item, "template")));
    text_file file = text_file_read(name);
    mf_tokenizer t = with_template((const char *)file.data, file.n_bytes);
    CHECK_MSG(mf_tokenizer_has_chat(&t), "%s is not recognised", name);
    yyjson_arr_foreach(yyjson_obj_get(item, "messages"), i, n, message)
    {
        REQUIRE(i < 16);
        messages[i].role = role_of(yyjson_get_str(yyjson_arr_get(message, 0)));
        messages[i].content = yyjson_get_str(yyjson_arr_get(message, 1));
    }
    mf_thinking thinking = (mf_thinking)yyjson_get_uint(yyjson_obj_get(item, "thinking"));
    yyjson_val *expected = yyjson_obj_get(item, "expected");
    size_t n_bytes = 0, n_again = 0;
    mf_error error = {0};
    mf_status status = mf_chat_format(&t, messages, n, thinking, NULL, 0, &n_bytes, &error);
    if (yyjson_is_null(expected)) {
        CHECK_MSG(status == MF_ERR_ARGUMENT, "%s: the template raises, got %d", name, status);
    } else {
        CHECK_MSG(status == MF_OK, "%s: %s", name, error.message);
        REQUIRE(n_bytes <= sizeof text);
        REQUIRE(mf_chat_format(&t, messages, n, thinking, text, n_bytes, &n_again, NULL) == MF_OK);
        CHECK_MSG(n_again == n_bytes && n_bytes == yyjson_get_len(expected) &&
                      memcmp(text, yyjson_get_str(expected), n_bytes) == 0,
                  "%s, thinking %d:\ngot  %.*s\nwant %s", name, thinking, (int)n_bytes, text,
                  yyjson_get_str(expected));
    }
    text_file_free(&file);
}

static void check_goldens(void)
{
    mf_json json = {0};
    mf_allocator a = mf_allocator_default();
    REQUIRE(mf_json_read(&a, text_data_path("chat.json"), 1u << 22, &json, NULL) == MF_OK);
    size_t i, n;
    yyjson_val *item;
    yyjson_arr_foreach(json.root, i, n, item)
    {
        check_case(item);
    }
    CHECK(n > 100);
    mf_json_free(&json);
}

static void check_refused(void)
{
    static const char *const others[] = {
        "",
        "{{ messages }}",
        "{%- for message in messages %}{{ '<|im_start|>' + message.role }}{%- endfor %}",
        "{{ bos_token }}[INST] {{ messages[0].content }} [/INST]",
    };
    mf_chat_message hello = {MF_ROLE_USER, "Hello"};
    size_t n;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        mf_tokenizer t = with_template(others[i], strlen(others[i]));
        CHECK(!mf_tokenizer_has_chat(&t));
        CHECK(mf_chat_format(&t, &hello, 1, MF_THINKING_DEFAULT, NULL, 0, &n, NULL) ==
              MF_ERR_UNSUPPORTED);
    }
    /* A known template whose end says something else is not known. */
    text_file file = text_file_read("chat/qwen3.jinja");
    char *changed = malloc(file.n_bytes + 16);
    REQUIRE(changed != NULL);
    memcpy(changed, file.data, file.n_bytes);
    memcpy(changed + file.n_bytes, "{{- 'x' }}", 10);
    mf_tokenizer t = with_template(changed, file.n_bytes + 10);
    CHECK(!mf_tokenizer_has_chat(&t));
    free(changed);
    text_file_free(&file);
}

static void check_short_buffer(void)
{
    text_file file = text_file_read("chat/qwen3.jinja");
    mf_tokenizer t = with_template((const char *)file.data, file.n_bytes);
    mf_chat_message hello = {MF_ROLE_USER, "Hello"};
    char text[8] = "zzzzzzz";
    size_t n = 0;
    CHECK(mf_chat_format(&t, &hello, 1, MF_THINKING_DEFAULT, text, 4, &n, NULL) == MF_OK);
    CHECK(n > 4 && memcmp(text, "<|imzzz", 8) == 0);
    CHECK(mf_chat_format(&t, &hello, 0, MF_THINKING_DEFAULT, text, 4, &n, NULL) == MF_ERR_ARGUMENT);
    hello.content = NULL;
    CHECK(mf_chat_format(&t, &hello, 1, MF_THINKING_DEFAULT, text, 4, &n, NULL) == MF_ERR_ARGUMENT);
    text_file_free(&file);
}

int main(int argc, char **argv)
{
    text_data_set_dir(argc, argv);
    check_goldens();
    check_refused();
    check_short_buffer();
    return test_result();
}
