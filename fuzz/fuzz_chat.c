/* SPDX-License-Identifier: MIT */
/* A chat template from anywhere, rendered with conversations of all kinds in little time and
 * memory. What comes out is UTF-8, the same each time, and flags stand beside every byte. */
#include "text/jinja/jinja.h"
#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static const char conversation[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"},"
    "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"\u00fc \u65e5\"}]},"
    "{\"role\": \"assistant\", \"content\": \"<think>\\nt\\n</think>\\n\\na</think>b\", "
    "\"reasoning\": \"r\","
    "\"tool_calls\": [{\"id\": \"i\", \"type\": \"function\", \"function\": {\"name\": \"f\","
    "\"arguments\": {\"x\": [1, 2.5, null, true, \"y\"]}}}]},"
    "{\"role\": \"tool\", \"content\": \"\"}, {\"role\": \"user\", \"content\": null}],"
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"a\": "
    "{}}}}],"
    "\"documents\": null, \"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"n\": 5,"
    "\"big\": 123456789012345678901234567890, \"l\": [3, \"a\", [1]], \"d\": {\"k\": 1.5e300}}";

static void render(const mf_jinja *jinja, const mf_jinja_input *input)
{
    mf_jinja_output out = {0}, again = {0};
    mf_error error = {0};
    if (mf_jinja_render(jinja, input, &out, &error) != MF_OK) {
        if (error.message[0] == '\0')
            abort();
        return;
    }
    size_t n_foreign = 0;
    for (size_t i = 0; out.foreign != NULL && i < out.n_bytes; i++)
        n_foreign += out.foreign[i];
    if (n_foreign > out.n_bytes ||
        !mf_utf8_is_valid((const unsigned char *)out.text, out.n_bytes) ||
        mf_jinja_render(jinja, input, &again, NULL) != MF_OK || again.n_bytes != out.n_bytes ||
        memcmp(again.text, out.text, out.n_bytes) != 0)
        abort();
    mf_jinja_output_free(&out);
    mf_jinja_output_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const mf_allocator a = mf_allocator_default();
    mf_jinja_variable variables[16];
    mf_jinja_input input = {.variables = variables,
                            .now_seconds = 1,
                            .limits = {.n_steps = 200000,
                                       .memory_bytes = (size_t)8 << 20,
                                       .output_bytes = (size_t)1 << 20}};
    mf_json json = {0};
    mf_jinja *jinja = NULL;
    size_t i, n;
    yyjson_val *key, *value;
    /* an exact copy, so that a look past the end is seen */
    char *text = malloc(n_bytes == 0 ? 1 : n_bytes);
    if (text == NULL)
        return 0;
    if (n_bytes != 0)
        memcpy(text, data, n_bytes);
    if (mf_json_parse_exact(&a, "conversation", conversation, strlen(conversation), &json, NULL) !=
        MF_OK)
        abort();
    yyjson_obj_foreach(json.root, i, n, key, value)
    {
        variables[input.n_variables++] = (mf_jinja_variable){yyjson_get_str(key), value, i == 2};
    }
    mf_error error = {0};
    mf_status status = mf_jinja_parse(&a, "input", text, n_bytes, &jinja, &error);
    free(text); /* the template has its own copy */
    if (status == MF_OK)
        render(jinja, &input);
    else if (error.message[0] == '\0')
        abort();
    mf_jinja_free(&jinja);
    mf_json_free(&json);
    return 0;
}
