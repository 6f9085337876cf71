/* SPDX-License-Identifier: MIT */
/* What jinja2 makes of an assistant's messages, read back by the syntax that is found for the
 * template: the same thoughts, content and calls. */
#include "failing_alloc.h"
#include "text/reply/reply_syntax.h"
#include "text_data.h"

#include "format/json.h"
#include "text/chat.h"

/* Where the syntax is one of those known by name. */
static const struct {
    const char *file, *syntax;
} known[] = {
    {"coder_xml.jinja", "coder"}, {"deepseek_v3.jinja", "deepseek"},
    {"dsml.jinja", "dsml"},       {"deepseek_v31.jinja", "deepseek_v31"},
    {"glm.jinja", "glm"},         {"granite.jinja", "granite"},
    {"harmony.jinja", "harmony"}, {"hermes.jinja", "hermes"},
    {"kimi.jinja", "kimi"},       {"llama3.jinja", "llama3"},
    {"llama4.jinja", "llama4"},   {"minimax.jinja", "minimax"},
    {"mistral.jinja", "mistral"}, {"nemotron.jinja", "nemotron"},
    {"phi.jinja", "plain"},       {"gemma.jinja", "plain"},
    {"gemma4.jinja", "gemma4"},   {"kimi_k3.jinja", "kimi_k3"},
    {"atem.jinja", "atem"},       {"minimax_m3.jinja", "minimax_m3"},
    {"minicpm.jinja", "minicpm"}, {"functionary.jinja", "functionary"},
    {"marked.jinja", "derived"},  {"two_turns.jinja", "lfm"},
};

typedef struct seen_call {
    char name[64], arguments[4096], id[128];
    bool is_whole;
} seen_call;

typedef struct seen {
    char thought[4096], content[4096];
    seen_call calls[16];
    size_t n_calls;
} seen;

static void add(char *to, size_t capacity, const char *text)
{
    REQUIRE(strlen(to) + strlen(text) < capacity);
    strcat(to, text);
}

static void take(mf_reply *reply, seen *out)
{
    mf_reply_event event;
    while (mf_reply_next(reply, &event)) {
        seen_call *call = &out->calls[event.call];
        REQUIRE(event.call < 16);
        if (event.kind == MF_REPLY_THOUGHT)
            add(out->thought, sizeof out->thought, event.text);
        else if (event.kind == MF_REPLY_CONTENT)
            add(out->content, sizeof out->content, event.text);
        else if (event.kind == MF_REPLY_CALL_ARGUMENTS)
            add(call->arguments, sizeof call->arguments, event.text);
        else if (event.kind == MF_REPLY_CALL_END)
            call->is_whole = true;
        if (event.kind != MF_REPLY_CALL)
            continue;
        add(call->name, sizeof call->name, event.name);
        add(call->id, sizeof call->id, event.id);
        out->n_calls++;
    }
}

/* One case in pieces of up to `piece` bytes, 0: as a whole. */
static void read_reply(const mf_reply_syntax *syntax, const char *tools, const char *text,
                       size_t piece, seen *out)
{
    static uint64_t state = 5;
    mf_reply_options options;
    mf_reply *reply = NULL;
    mf_error error;
    const size_t n = strlen(text);
    memset(out, 0, sizeof *out);
    mf_reply_options_default(&options);
    options.tools = tools;
    REQUIRE_OK(mf_reply_create(syntax, &options, &reply, &error), &error);
    for (size_t at = 0, n_now; at < n; at += n_now) {
        n_now = piece == 0 ? n : 1 + test_random(&state) % piece;
        n_now = n_now < n - at ? n_now : n - at;
        REQUIRE_OK(mf_reply_push(reply, text + at, n_now, 0, &error), &error);
        take(reply, out);
    }
    REQUIRE_OK(mf_reply_finish(reply, 0, &error), &error);
    take(reply, out);
    mf_reply_free(&reply);
}

/* Equal but for blanks at the ends, which templates take away or add. */
static bool same_text(const char *got, const char *want)
{
    size_t n_got, n_want;
    got += strspn(got, " \n\r\t");
    want += strspn(want, " \n\r\t");
    for (n_got = strlen(got); n_got > 0 && strchr(" \n\r\t", got[n_got - 1]) != NULL; n_got--)
        ;
    for (n_want = strlen(want); n_want > 0 && strchr(" \n\r\t", want[n_want - 1]) != NULL; n_want--)
        ;
    return n_got == n_want && memcmp(got, want, n_got) == 0;
}

static bool same_arguments(const char *got, yyjson_val *want)
{
    mf_allocator a = mf_allocator_default();
    mf_json json = {0};
    bool is_same = mf_json_parse(&a, "arguments", got, strlen(got), &json, NULL) == MF_OK &&
                   yyjson_equals(json.root, want);
    mf_json_free(&json);
    return is_same;
}

/* True if all is as the message says. */
static bool is_right(const seen *got, yyjson_val *c)
{
    yyjson_val *calls = yyjson_obj_get(c, "calls"), *call;
    size_t i, n;
    bool right = same_text(got->thought, yyjson_get_str(yyjson_obj_get(c, "thought"))) &&
                 same_text(got->content, yyjson_get_str(yyjson_obj_get(c, "content"))) &&
                 got->n_calls == yyjson_arr_size(calls);
    yyjson_arr_foreach(calls, i, n, call)
    {
        right = right && got->calls[i].is_whole &&
                yyjson_equals_str(yyjson_obj_get(call, "name"), got->calls[i].name) &&
                same_arguments(got->calls[i].arguments, yyjson_obj_get(call, "arguments"));
    }
    return right;
}

static void show(const char *name, const char *syntax, const char *text, const seen *got)
{
    printf("%s (%s): %s\n  thought: %s\n  content: %s\n", name, syntax, text, got->thought,
           got->content);
    for (size_t i = 0; i < got->n_calls; i++)
        printf("  call: %s %s%s\n", got->calls[i].name, got->calls[i].arguments,
               got->calls[i].is_whole ? "" : " (broken)");
}

static void read_template(const char *name, const mf_allocator *a, mf_chat_set *set)
{
    static const char tokens[] = "{\"bos_token\": \"<bos>\", \"eos_token\": \"<eos>\"}";
    mf_json json = {0};
    char path[256];
    REQUIRE(mf_json_parse(a, "tokens", tokens, strlen(tokens), &json, NULL) == MF_OK);
    REQUIRE(mf_chat_take_tokens(set, a, json.root, NULL) == MF_OK);
    mf_json_free(&json);
    snprintf(path, sizeof path, "jinja/%s", name);
    text_file file = text_file_read(path);
    REQUIRE(mf_chat_add(set, a, "default", name, (const char *)file.data, file.n_bytes, NULL) ==
            MF_OK);
    text_file_free(&file);
}

static mf_reply_syntax *detect(const char *name)
{
    const mf_allocator a = mf_allocator_default();
    mf_chat_set set = {0};
    mf_reply_syntax *syntax = NULL;
    read_template(name, &a, &set);
    REQUIRE(mf_reply_detect(&set, &a, NULL, &syntax) == MF_OK);
    mf_chat_free(&set);
    return syntax;
}

/* Memory that is not there is said: what could not be read for want of it is not another syntax. */
static void check_failing_memory(const char *name, const char *expected)
{
    failing f = {0};
    const mf_allocator a = failing_allocator(&f);
    mf_chat_set set = {0};
    mf_reply_syntax *syntax = NULL;
    bool has_failed = true;
    read_template(name, &a, &set);
    for (unsigned long long n_call = 1; has_failed; n_call++) {
        failing_arm(&f, n_call, true);
        mf_status status = mf_reply_detect(&set, &a, NULL, &syntax);
        has_failed = failing_disarm(&f);
        CHECK_MSG(status == MF_OK ? strcmp(syntax->form.name, expected) == 0
                                  : has_failed && status == MF_ERR_NO_MEMORY,
                  "%s, allocation %llu fails: status %d, %s", name, n_call, (int)status,
                  status == MF_OK ? syntax->form.name : "no syntax");
        mf_reply_syntax_free(&syntax);
    }
    mf_chat_free(&set);
    failing_check_end(&f, name);
}

/* Behind what a turn begins with. */
static const char *answer_of(const mf_reply_syntax *syntax, const char *text)
{
    const char *found = syntax->opening == NULL ? NULL : strstr(text, syntax->opening);
    return found == NULL ? text : found + strlen(syntax->opening);
}

/* The calls of all cases in all pieces; returns how many cases were right. */
static size_t check_template(yyjson_val *template, const char *tools, size_t *n_all)
{
    size_t i, n, n_right = 0;
    yyjson_val *c;
    static seen got;
    const char *name = yyjson_get_str(yyjson_obj_get(template, "name"));
    mf_reply_syntax *syntax = detect(name);
    for (i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].file, name) == 0)
            CHECK_MSG(strcmp(known[i].syntax, syntax->form.name) == 0, "%s: found %s", name,
                      syntax->form.name);
    yyjson_arr_foreach(yyjson_obj_get(template, "cases"), i, n, c)
    {
        const char *text = answer_of(syntax, yyjson_get_str(yyjson_obj_get(c, "text")));
        bool right = true;
        for (size_t k = 0; k < 6 && right; k++) {
            read_reply(syntax, tools, text, k, &got);
            right = is_right(&got, c);
        }
        if (!CHECK_MSG(right, "%s, message %zu", name, i))
            show(name, syntax->form.name, text, &got);
        n_right += right;
    }
    *n_all += n;
    printf("%s: %s, %zu of %zu\n", name, syntax->form.name, n_right, n);
    mf_reply_syntax_free(&syntax);
    return n_right;
}

int main(int argc, char **argv)
{
    mf_json json = {0};
    const mf_allocator a = mf_allocator_default();
    size_t i, n, n_right = 0, n_all = 0;
    yyjson_val *template;
    text_data_set_dir(argc, argv);
    text_file file = text_file_read("reply.json");
    REQUIRE(mf_json_parse(&a, "reply.json", (const char *)file.data, file.n_bytes, &json, NULL) ==
            MF_OK);
    text_file_free(&file);
    char *tools = yyjson_val_write(yyjson_obj_get(json.root, "tools"), 0, NULL);
    REQUIRE(tools != NULL);
    yyjson_arr_foreach(yyjson_obj_get(json.root, "templates"), i, n, template)
    {
        n_right += check_template(template, tools, &n_all);
    }
    printf("%zu templates, %zu of %zu messages\n", n, n_right, n_all);
    for (i = 0; i < sizeof known / sizeof *known; i += 5) /* each takes hundreds of runs */
        check_failing_memory(known[i].file, known[i].syntax);
    free(tools);
    mf_json_free(&json);
    return test_result();
}
