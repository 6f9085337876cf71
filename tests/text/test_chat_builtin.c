/* SPDX-License-Identifier: MIT */
/* Templates of families whose checkpoints have none: what the publisher's own program writes; a
 * checkpoint's own template comes before them. */
#include "text_data.h"

#include "text/chat.h"

#include <unistd.h>

static const char token_names[] = "{\"bos_token\": \"<｜begin▁of▁sentence｜>\"}";

typedef struct folder {
    char path[64];
} folder;

static void put_file(const folder *at, const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", at->path, name);
    FILE *f = fopen(path, "wb");
    REQUIRE(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0);
}

static folder make_folder(const char *config)
{
    folder at = {"/tmp/moeflux-builtin.XXXXXX"};
    REQUIRE(mkdtemp(at.path) != NULL);
    put_file(&at, "tokenizer_config.json", token_names);
    if (config != NULL)
        put_file(&at, "config.json", config);
    return at;
}

static void remove_folder(const folder *at)
{
    static const char *const names[] = {"tokenizer_config.json", "config.json",
                                        "chat_template.jinja"};
    char path[128];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", at->path, names[i]);
        (void)unlink(path);
    }
    REQUIRE(rmdir(at->path) == 0);
}

/* The set of a folder with this config, and perhaps a template of its own. */
static mf_chat_set load(const char *config, const char *own)
{
    const mf_allocator a = mf_allocator_default();
    mf_chat_set set = {0};
    mf_error error = {0};
    folder at = make_folder(config);
    if (own != NULL)
        put_file(&at, "chat_template.jinja", own);
    CHECK_MSG(mf_chat_load(&set, &a, at.path, &error) == MF_OK, "%s", error.message);
    remove_folder(&at);
    return set;
}

static char *json_of(yyjson_val *value)
{
    return yyjson_is_null(value) || value == NULL ? NULL : yyjson_val_write(value, 0, NULL);
}

/* Each tool's function stands in the text, as a line of JSON. */
static void check_tools(const mf_jinja_output *out, yyjson_val *tools)
{
    size_t i, n;
    yyjson_val *tool;
    yyjson_arr_foreach(tools, i, n, tool)
    {
        const char *name = yyjson_get_str(yyjson_obj_get(yyjson_obj_get(tool, "function"), "name"));
        char line[128];
        if (name == NULL)
            exit(EXIT_FAILURE);
        snprintf(line, sizeof line, "\n{\"name\": \"%s\", ", name);
        CHECK_CONTAINS(out->text, line);
    }
}

static void check_case(const mf_chat_set *set, yyjson_val *item, size_t number)
{
    mf_chat_json_params params;
    mf_jinja_output out = {0};
    mf_error error = {0};
    yyjson_val *tools = yyjson_obj_get(item, "tools");
    char *messages = json_of(yyjson_obj_get(item, "messages")), *tool_text = json_of(tools);
    const char *before = yyjson_get_str(yyjson_obj_get(item, "before"));
    const char *after = yyjson_get_str(yyjson_obj_get(item, "after"));
    if (messages == NULL || before == NULL || after == NULL)
        exit(EXIT_FAILURE);
    mf_chat_json_params_default(&params);
    params.messages = messages;
    params.tools = tool_text;
    params.thinking =
        yyjson_is_true(yyjson_obj_get(item, "thinks")) ? MF_THINKING_ON : MF_THINKING_OFF;
    CHECK_MSG(mf_chat_render_json(set, &params, &out, &error) == MF_OK, "case %zu: %s", number,
              error.message);
    const size_t n_before = strlen(before), n_after = strlen(after);
    if (out.text != NULL) {
        CHECK_MSG(out.n_bytes >= n_before + n_after && memcmp(out.text, before, n_before) == 0 &&
                      memcmp(out.text + out.n_bytes - n_after, after, n_after) == 0 &&
                      (tool_text != NULL || out.n_bytes == n_before),
                  "case %zu:\ngot  %.*s\nwant %s ... %s", number, (int)out.n_bytes, out.text,
                  before, after);
        check_tools(&out, tools);
    }
    mf_jinja_output_free(&out);
    free(messages);
    free(tool_text);
}

static void check_goldens(void)
{
    const mf_allocator a = mf_allocator_default();
    mf_json json = {0};
    size_t i, n;
    yyjson_val *item;
    REQUIRE(mf_json_read(&a, text_data_path("chat_builtin.json"), 1u << 22, &json, NULL) == MF_OK);
    yyjson_arr_foreach(json.root, i, n, item)
    {
        char config[128];
        const char *type = yyjson_get_str(yyjson_obj_get(item, "model_type"));
        if (type == NULL)
            exit(EXIT_FAILURE);
        snprintf(config, sizeof config, "{\"model_type\": \"%s\"}", type);
        mf_chat_set set = load(config, NULL);
        CHECK(mf_chat_is_usable(&set));
        if (mf_chat_is_usable(&set))
            check_case(&set, item, i);
        mf_chat_free(&set);
    }
    CHECK(n >= 20);
    mf_json_free(&json);
}

/* Where there is none, and where there is another. */
static void check_others(void)
{
    static const char *const without[] = {
        NULL, "{\"model_type\": \"qwen3_moe\"}", "{}", "{\"model_type\": 4}", "[", ""};
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        mf_chat_set set = load(without[i], NULL);
        CHECK(!mf_chat_is_usable(&set));
        CHECK_U64(set.n_templates, 0);
        mf_chat_free(&set);
    }
    mf_chat_set set = load("{\"model_type\": \"deepseek_v4\"}", "own {{ messages[0].content }}");
    mf_chat_json_params params;
    mf_jinja_output out = {0};
    mf_chat_json_params_default(&params);
    params.messages = "[{\"role\": \"user\", \"content\": \"text\"}]";
    REQUIRE(mf_chat_render_json(&set, &params, &out, NULL) == MF_OK);
    CHECK(out.n_bytes == 8 && memcmp(out.text, "own text", 8) == 0);
    mf_jinja_output_free(&out);
    mf_chat_free(&set);
}

int main(int argc, char **argv)
{
    text_data_set_dir(argc, argv);
    check_goldens();
    check_others();
    return test_result();
}
