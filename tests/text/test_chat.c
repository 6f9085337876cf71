/* SPDX-License-Identifier: MIT */
/* Chat templates: the same text as the Jinja templates themselves give; others are refused. */
#include "failing_alloc.h"
#include "text_data.h"

#include "text/tokenizer.h"
#include "text/utf8.h"

static const char token_names[] =
    "{\"bos_token\": \"<｜begin▁of▁sentence｜>\", \"eos_token\": {\"content\": "
    "\"<｜end▁of▁sentence｜>\"}, \"pad_token\": null, \"model_max_length\": 5}";

/* A tokenizer with nothing but a template; to be given back by mf_chat_free of its chat. */
static mf_tokenizer with_template(const char *text, size_t n_bytes)
{
    mf_tokenizer t = {.allocator = mf_allocator_default()};
    mf_json names = {0};
    REQUIRE(mf_chat_add(&t.chat, &t.allocator, "default", "the template", text, n_bytes, NULL) ==
            MF_OK);
    REQUIRE(mf_json_parse(&t.allocator, "names", token_names, strlen(token_names), &names, NULL) ==
            MF_OK);
    REQUIRE(mf_chat_take_tokens(&t.chat, &t.allocator, names.root, NULL) == MF_OK);
    mf_json_free(&names);
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
    const char *template = yyjson_get_str(yyjson_obj_get(item, "template"));
    if (template == NULL)
        exit(EXIT_FAILURE);
    snprintf(name, sizeof name, "chat/%s", template);
    text_file file = text_file_read(name);
    mf_tokenizer t = with_template((const char *)file.data, file.n_bytes);
    CHECK_MSG(mf_tokenizer_has_chat(&t), "%s cannot be read", name);
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
    mf_chat_params chat;
    mf_chat_params_default(&chat);
    chat.messages = messages;
    chat.n_messages = n;
    chat.thinking = thinking;
    chat.add_generation_prompt = !yyjson_is_false(yyjson_obj_get(item, "generation_prompt"));
    mf_status status = mf_chat_text(&t, &chat, NULL, 0, &n_bytes, &error);
    if (yyjson_is_null(expected)) {
        CHECK_MSG(status == MF_ERR_ARGUMENT, "%s: the template raises, got %d", name, status);
    } else {
        CHECK_MSG(status == MF_OK, "%s: %s", name, error.message);
        REQUIRE(n_bytes <= sizeof text);
        REQUIRE(mf_chat_text(&t, &chat, text, n_bytes, &n_again, NULL) == MF_OK);
        CHECK_MSG(n_again == n_bytes && n_bytes == yyjson_get_len(expected) &&
                      memcmp(text, yyjson_get_str(expected), n_bytes) == 0,
                  "%s, thinking %d, opening %d:\ngot  %.*s\nwant %s", name, thinking,
                  chat.add_generation_prompt, (int)n_bytes, text, yyjson_get_str(expected));
    }
    mf_chat_free(&t.chat);
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
    CHECK(n > 1500); /* with the generation prompt and without */
    mf_json_free(&json);
}

/* A template with a mistake, one that asks for what is not there, one that refuses, and none: each
 * says why, the first three with a line. */
static void check_refused(void)
{
    static const struct {
        const char *template, *message;
        mf_status status;
        bool has_chat;
    } cases[] = {
        {"a\n{% if %}", "the template: line 2: expected an expression, got the end of the tag",
         MF_ERR_UNSUPPORTED, false},
        {"{% include 'x' %}", "the template: line 1: {% include %} is not for chat templates",
         MF_ERR_UNSUPPORTED, false},
        {"\n\n{{ 'x'|striptags }}", "the template: line 3: no filter named 'striptags'",
         MF_ERR_UNSUPPORTED, true},
        {"\n{{ raise_exception('no ' ~ messages[0].role) }}",
         "the template: line 2: the template refuses: no user", MF_ERR_ARGUMENT, true},
        {"{{ 1 +\n messages }}",
         "the template: line 1: unsupported operand types for +: 'int' and 'list'", MF_ERR_ARGUMENT,
         true},
    };
    mf_chat_message hello = {MF_ROLE_USER, "Hello"};
    size_t n;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mf_error error = {0};
        mf_tokenizer t = with_template(cases[i].template, strlen(cases[i].template));
        CHECK(mf_tokenizer_has_chat(&t) == cases[i].has_chat);
        CHECK_STATUS(mf_chat_format(&t, &hello, 1, MF_THINKING_DEFAULT, NULL, 0, &n, &error),
                     cases[i].status);
        CHECK_STR(error.message, cases[i].message);
        mf_chat_free(&t.chat);
    }
    const mf_tokenizer none = {.allocator = mf_allocator_default()};
    CHECK(!mf_tokenizer_has_chat(&none));
    CHECK(mf_chat_format(&none, &hello, 1, MF_THINKING_DEFAULT, NULL, 0, &n, NULL) ==
          MF_ERR_NOT_FOUND);
}

/* The text of a conversation in JSON, or the message of its error. */
static const char *json_text(const mf_tokenizer *t, const mf_chat_json_params *chat,
                             mf_status expected)
{
    static char text[4096];
    mf_error error = {0};
    size_t n = 0;
    CHECK_STATUS(mf_chat_json_text(t, chat, text, sizeof text - 1, &n, &error), expected);
    if (expected != MF_OK)
        snprintf(text, sizeof text, "%s", error.message);
    else
        text[n] = '\0';
    return text;
}

static void check_json(void)
{
    static const char template[] =
        "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}{{ model_max_length is defined }}|"
        "{% for m in messages %}{{ m.role }}:{{ m.content }}:{{ m.reasoning_content }};{% endfor %}"
        "{{ tools }}{{ documents }}{{ add_generation_prompt }}{{ enable_thinking }}{{ thinking "
        "}}{{ x }}"
        "{{ strftime_now('%Y') }}";
    mf_tokenizer t = with_template(template, strlen(template));
    mf_chat_json_params chat;
    mf_chat_json_params_default(&chat);
    CHECK_CONTAINS(json_text(&t, &chat, MF_ERR_ARGUMENT), "without messages");
    chat.messages =
        "[{\"role\": \"user\", \"content\": 123456789012345678901, \"reasoning\": \"r\"}]";
    chat.now_seconds = 1767225600 + 86400;
    CHECK_STR(json_text(&t, &chat, MF_OK),
              "<｜begin▁of▁sentence｜><｜end▁of▁sentence｜>FalseFalse|user:123456789012345678901:r;"
              "NoneNoneTrue2026");
    chat.tools = "[{\"a\": null}]";
    chat.documents = "[]";
    chat.variables = "{\"x\": [1.50], \"eos_token\": \"E\", \"thinking\": 3}";
    chat.thinking = MF_THINKING_OFF;
    chat.add_generation_prompt = 0;
    CHECK_STR(json_text(&t, &chat, MF_OK),
              "<｜begin▁of▁sentence｜>EFalseFalse|user:123456789012345678901:r;"
              "[{'a': None}][]FalseFalse3[1.5]2026");
    chat.tools = "[1]";
    CHECK_STR(json_text(&t, &chat, MF_ERR_FORMAT), "tools: item 0: expected an object");
    chat.tools = "{}";
    CHECK_STR(json_text(&t, &chat, MF_ERR_FORMAT), "tools: expected an array");
    chat.tools = NULL;
    chat.variables = "[]";
    CHECK_STR(json_text(&t, &chat, MF_ERR_FORMAT), "variables: expected an object");
    chat.variables = NULL;
    chat.messages = "[{]";
    CHECK_CONTAINS(json_text(&t, &chat, MF_ERR_FORMAT), "messages: not valid JSON at byte 2");
    chat.messages = "[]";
    chat.template_name = "other";
    CHECK_STR(json_text(&t, &chat, MF_ERR_NOT_FOUND),
              "the checkpoint has no chat template 'other'");
    mf_chat_free(&t.chat);
}

/* Several templates: the one for tools with tools, any by its name. */
static void check_several(void)
{
    mf_tokenizer t = with_template("default", 7);
    mf_chat_json_params chat;
    REQUIRE(mf_chat_add(&t.chat, &t.allocator, "tool_use", "the template", "tools", 5, NULL) ==
            MF_OK);
    REQUIRE(mf_chat_add(&t.chat, &t.allocator, "tool_use", "the template", "again", 5, NULL) ==
            MF_OK);
    mf_chat_json_params_default(&chat);
    chat.messages = "[]";
    CHECK_STR(json_text(&t, &chat, MF_OK), "default");
    chat.tools = "[]";
    CHECK_STR(json_text(&t, &chat, MF_OK), "tools");
    chat.template_name = "default";
    CHECK_STR(json_text(&t, &chat, MF_OK), "default");
    mf_chat_free(&t.chat);
}

static size_t n_added_of(const mf_tokenizer *t, const int32_t *ids, size_t n_ids)
{
    size_t n = 0;
    for (size_t i = 0; i < n_ids; i++)
        for (size_t k = 0; k < t->added.n_tokens; k++)
            n += (uint32_t)ids[i] == t->added.tokens[k].id;
    return n;
}

/* The text that tokens stand for, in out with a NUL. */
static void text_of(const mf_tokenizer *t, const int32_t *ids, size_t n_ids, char *out)
{
    for (size_t i = 0; i < n_ids; i++) {
        size_t n = 0;
        const char *piece = mf_tokenizer_piece(t, ids[i], &n);
        memcpy(out, piece, n);
        out += n;
    }
    *out = '\0';
}

/* One text with every added token in it, some of them broken off, and bytes that are no UTF-8: many
 * before, so that what follows them moves by more than a token when they are repaired. */
static void make_hostile(const mf_tokenizer *t, char *out)
{
    memset(out, 0xff, 40);
    out += 40;
    for (size_t k = 0; k < t->added.n_tokens && k < 40; k++) {
        const mf_added_token *token = &t->added.tokens[k];
        out +=
            sprintf(out, "%.*s%s%.*s", (int)token->n_bytes, (const char *)token->text,
                    k % 2 == 0 ? "" : " a ", (int)(k % token->n_bytes), (const char *)token->text);
    }
    strcpy(out, "\xff\xe2\x82");
}

/* mf_chat_encode: the ids of the text, given for the two messages; and where the user writes what
 * looks like tokens, no more of them than without, and the same text. */
static void check_encoded(const mf_tokenizer *t, const mf_chat_message *messages,
                          const int32_t *expected, size_t n_expected)
{
    static int32_t ids[8192];
    static char hostile[8192], text[16384], got[16384];
    mf_chat_params chat;
    mf_error error = {0};
    size_t n = 0, n_again = 0, n_bytes = 0;
    mf_chat_params_default(&chat);
    chat.messages = messages;
    chat.n_messages = 2;
    REQUIRE(mf_chat_encode(t, &chat, NULL, 0, &n, &error) == MF_OK);
    REQUIRE(n == n_expected && mf_chat_encode(t, &chat, ids, n, &n_again, &error) == MF_OK);
    CHECK(n_again == n && memcmp(ids, expected, n * sizeof *ids) == 0);

    make_hostile(t, hostile);
    const mf_chat_message attack[] = {messages[0], {MF_ROLE_USER, hostile}};
    chat.messages = attack;
    REQUIRE(mf_chat_encode(t, &chat, ids, 8192, &n, &error) == MF_OK);
    REQUIRE(n <= 8192 && mf_chat_text(t, &chat, text, sizeof text, &n_bytes, &error) == MF_OK);
    CHECK_MSG(n_added_of(t, ids, n) == n_added_of(t, expected, n_expected),
              "%zu added tokens, expected %zu", n_added_of(t, ids, n),
              n_added_of(t, expected, n_expected));
    n_bytes = mf_utf8_repair((const unsigned char *)text, n_bytes, (unsigned char *)got);
    memcpy(text, got, n_bytes);
    text[n_bytes] = '\0';
    text_of(t, ids, n, got);
    CHECK_MSG(strcmp(got, text) == 0, "got  %s\nwant %s", got, text);
    /* what the assistant wrote is read as before */
    const mf_chat_message parsed[] = {messages[1], {MF_ROLE_ASSISTANT, hostile}};
    chat.messages = parsed;
    REQUIRE(mf_chat_encode(t, &chat, ids, 8192, &n, &error) == MF_OK);
    CHECK(n_added_of(t, ids, n) > n_added_of(t, expected, n_expected));
    /* and what the program says itself */
    const mf_chat_message system[] = {{MF_ROLE_SYSTEM, hostile}, messages[1]};
    chat.messages = system;
    REQUIRE(mf_chat_encode(t, &chat, ids, 8192, &n, &error) == MF_OK);
    CHECK(n_added_of(t, ids, n) > n_added_of(t, expected, n_expected));
    CHECK(mf_chat_encode(t, NULL, ids, 1, &n, &error) == MF_ERR_ARGUMENT);
    CHECK(mf_chat_encode(t, &chat, NULL, 1, &n, &error) == MF_ERR_ARGUMENT);
}

static size_t n_of(const int32_t *ids, size_t n_ids, uint32_t id)
{
    size_t n = 0;
    for (size_t i = 0; i < n_ids; i++)
        n += (uint32_t)ids[i] == id;
    return n;
}

/* From any added token on, what stands before it skipped: the ids are those from there on. */
static void check_skipped(const mf_tokenizer *t, mf_chat_json_params *chat, const int32_t *ids,
                          size_t n_ids)
{
    static int32_t rest[8192];
    size_t at, n, n_all, n_tried = 0;
    REQUIRE(mf_chat_json_text(t, chat, NULL, 0, &n_all, NULL) == MF_OK);
    at = n_all;
    for (size_t k = n_ids; k-- > 0;) {
        size_t n_piece = 0;
        REQUIRE(mf_tokenizer_piece(t, ids[k], &n_piece) != NULL && n_piece <= at);
        at -= n_piece;
        bool is_added = false;
        for (size_t i = 0; i < t->added.n_tokens; i++)
            is_added = is_added || t->added.tokens[i].id == (uint32_t)ids[k];
        chat->n_skip_bytes = at;
        REQUIRE(!is_added || mf_chat_json_encode(t, chat, rest, 8192, &n, NULL) == MF_OK);
        CHECK(!is_added || (n == n_ids - k && memcmp(rest, ids + k, n * sizeof *ids) == 0));
        n_tried += is_added;
    }
    CHECK(at == 0 && n_tried > 0);
    chat->n_skip_bytes = n_all;
    CHECK(mf_chat_json_encode(t, chat, rest, 8192, &n, NULL) == MF_OK && n == 0);
    chat->n_skip_bytes = n_all + 1;
    CHECK(mf_chat_json_encode(t, chat, rest, 8192, &n, NULL) == MF_ERR_ARGUMENT);
    chat->n_skip_bytes = 0;
}

/* The same ids of the same conversation as JSON; and what a tool writes stays text as well. */
static void check_encoded_json(const mf_tokenizer *t, const int32_t *expected, size_t n_expected)
{
    static int32_t ids[8192];
    static char messages[1024];
    mf_chat_json_params chat;
    size_t n = 0;
    mf_chat_json_params_default(&chat);
    chat.messages = "[{\"role\": \"system\", \"content\": \"Be brief.\"},"
                    "{\"role\": \"user\", \"content\": \"Hi\"}]";
    REQUIRE(mf_chat_json_encode(t, &chat, ids, 8192, &n, NULL) == MF_OK);
    CHECK(n == n_expected && memcmp(ids, expected, n * sizeof *ids) == 0);
    check_skipped(t, &chat, ids, n);
    size_t k = 0; /* a token that the template neither writes nor looks for */
    while (k + 1 < t->added.n_tokens &&
           (memmem(t->added.tokens[k].text, t->added.tokens[k].n_bytes, "think", 5) != NULL ||
            n_of(expected, n_expected, t->added.tokens[k].id) > 0))
        k++;
    const mf_added_token *token = &t->added.tokens[k];
    for (int is_foreign = 0; is_foreign < 2; is_foreign++) {
        snprintf(
            messages, sizeof messages,
            "[{\"role\": \"system\", \"content\": \"s\"},{\"role\": \"user\", \"content\": \"u\"},"
            "{\"role\": \"%s\", \"content\": \"%.*s\"},{\"role\": \"user\", \"content\": \"u\"}]",
            is_foreign ? "tool" : "assistant", (int)token->n_bytes, (const char *)token->text);
        chat.messages = messages;
        mf_status status = mf_chat_json_encode(t, &chat, ids, 8192, &n, NULL);
        REQUIRE(status == MF_OK);
        CHECK_MSG(n_of(ids, n, token->id) == !is_foreign, "%.*s: foreign %d", (int)token->n_bytes,
                  (const char *)token->text, is_foreign);
    }
    CHECK(mf_chat_json_encode(t, NULL, ids, 1, &n, NULL) == MF_ERR_ARGUMENT);
    CHECK(mf_chat_json_encode(t, &chat, NULL, 1, &n, NULL) == MF_ERR_ARGUMENT);
    CHECK(mf_chat_json_text(t, NULL, NULL, 0, &n, NULL) == MF_ERR_ARGUMENT);
}

/* The template and the names of a directory's own files, and the ids of what it gives: the first
 * token is the first token, once, and the last names of turns are tokens too. */
static void check_directories(void)
{
    static const struct {
        const char *name, *expected;
        size_t n_special;
    } cases[] = {
        {"deepseek", "<｜begin▁of▁sentence｜>Be brief.<｜User｜>Hi<｜Assistant｜><think>\n", 4},
        {"deepseek_v2", "<｜begin▁of▁sentence｜>Be brief.\n\nUser: Hi\n\nAssistant:", 1},
        {"kimi",
         "<|im_system|>system<|im_middle|>Be brief.<|im_end|><|im_user|>user<|im_middle|>Hi"
         "<|im_end|><|im_assistant|>assistant<|im_middle|>",
         8},
    };
    const mf_chat_message messages[] = {{MF_ROLE_SYSTEM, "Be brief."}, {MF_ROLE_USER, "Hi"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mf_tokenizer *t = text_tokenizer_open(cases[i].name);
        char text[512];
        int32_t ids[512];
        size_t n = 0, n_ids = 0, n_starts = 0, n_added = 0;
        REQUIRE(mf_chat_format(t, messages, 2, MF_THINKING_DEFAULT, text, sizeof text, &n, NULL) ==
                MF_OK);
        CHECK_MSG(n == strlen(cases[i].expected) && memcmp(text, cases[i].expected, n) == 0,
                  "%s: got %.*s", cases[i].name, (int)n, text);
        REQUIRE(mf_tokenizer_encode(t, text, n, 1, ids, 512, &n_ids, NULL) == MF_OK);
        for (size_t j = 0; j < n_ids; j++)
            n_starts += ids[j] == mf_tokenizer_start(t);
        n_added = n_added_of(t, ids, n_ids);
        check_encoded(t, messages, ids, n_ids);
        check_encoded_json(t, ids, n_ids);
        CHECK(n_added == cases[i].n_special);
        CHECK(mf_tokenizer_start(t) < 0 ? n_starts == 0
                                        : n_starts == 1 && ids[0] == mf_tokenizer_start(t));
        mf_tokenizer_free(&t);
    }
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
    mf_chat_free(&t.chat);
    text_file_free(&file);
}

/* Callers of other versions: a shorter struct has the defaults for the rest, a longer one may not
 * ask for what is not known here. */
static void check_params(void)
{
    text_file file = text_file_read("chat/qwen3.jinja");
    mf_tokenizer t = with_template((const char *)file.data, file.n_bytes);
    mf_chat_message hello = {MF_ROLE_USER, "Hello"};
    struct {
        mf_chat_params known;
        int later;
    } longer = {0};
    mf_chat_params *chat = &longer.known;
    char text[256], same[256];
    size_t n = 0, n_same = 0;
    REQUIRE(mf_chat_format(&t, &hello, 1, MF_THINKING_DEFAULT, same, 256, &n_same, NULL) == MF_OK);
    mf_chat_params_default(chat);
    CHECK(mf_chat_text(&t, chat, text, 256, &n, NULL) == MF_ERR_ARGUMENT);
    CHECK(mf_chat_text(&t, NULL, text, 256, &n, NULL) == MF_ERR_ARGUMENT);
    chat->messages = &hello;
    chat->n_messages = 1;
    chat->thinking = (mf_thinking)3;
    CHECK(mf_chat_text(&t, chat, text, 256, &n, NULL) == MF_ERR_ARGUMENT);
    chat->add_generation_prompt = 0; /* beyond a struct that ends before both: not read */
    chat->struct_bytes = offsetof(mf_chat_params, thinking);
    REQUIRE(mf_chat_text(&t, chat, text, 256, &n, NULL) == MF_OK);
    CHECK(n == n_same && memcmp(text, same, n) == 0);
    chat->struct_bytes = sizeof chat->struct_bytes - 1;
    CHECK(mf_chat_text(&t, chat, text, 256, &n, NULL) == MF_ERR_ARGUMENT);
    chat->thinking = MF_THINKING_DEFAULT;
    chat->struct_bytes = sizeof longer;
    REQUIRE(mf_chat_text(&t, chat, text, 256, &n, NULL) == MF_OK);
    CHECK(n < n_same && memcmp(text, same, n) == 0);
    longer.later = 1;
    CHECK(mf_chat_text(&t, chat, text, 256, &n, NULL) == MF_ERR_ARGUMENT);
    mf_chat_params_init(chat, sizeof longer); /* as a newer program has it */
    CHECK(chat->struct_bytes == sizeof longer && longer.later == 0);
    CHECK(chat->messages == NULL && chat->add_generation_prompt == 1);
    longer.later = 1;
    mf_chat_params_init(chat, offsetof(mf_chat_params, thinking)); /* as an older one has it */
    CHECK(chat->struct_bytes == offsetof(mf_chat_params, thinking));
    CHECK(chat->add_generation_prompt == 1 && longer.later == 1);
    mf_chat_free(&t.chat);
    text_file_free(&file);
}

/* A template never goes without the names of tokens for want of memory, in silence. */
static void check_failing_names(void)
{
    failing f = {0};
    const mf_allocator plain = mf_allocator_default(), a = failing_allocator(&f);
    mf_json first = {0}, second = {0};
    bool has_failed = true;
    REQUIRE(mf_json_parse(&plain, "a", "{\"bos_token\": \"<s>\"}", 20, &first, NULL) == MF_OK);
    REQUIRE(mf_json_parse(&plain, "b", "{\"eos_token\": \"<e>\"}", 20, &second, NULL) == MF_OK);
    for (unsigned long long n_call = 1; has_failed; n_call++) {
        mf_chat_set set = {0};
        failing_arm(&f, n_call, true);
        mf_status status = mf_chat_take_tokens(&set, &a, first.root, NULL);
        if (status == MF_OK)
            status = mf_chat_take_tokens(&set, &a, second.root, NULL);
        has_failed = failing_disarm(&f);
        CHECK_STATUS(status, has_failed ? MF_ERR_NO_MEMORY : MF_OK);
        CHECK(has_failed || yyjson_obj_size(set.variables.root) == 2);
        mf_chat_free(&set);
    }
    mf_json_free(&first);
    mf_json_free(&second);
    failing_check_end(&f, "names of tokens");
}

int main(int argc, char **argv)
{
    text_data_set_dir(argc, argv);
    check_goldens();
    check_refused();
    check_json();
    check_several();
    check_directories();
    check_short_buffer();
    check_params();
    check_failing_names();
    return test_result();
}
