/* SPDX-License-Identifier: MIT */
/* Templates: the same text as jinja2 gives in transformers' sandbox (jinja.json, see its README).
 */
#include "text_data.h"

#include "text/jinja/jinja.h"

#include <time.h>

#define MAX_VARIABLES 32

static mf_status render(const char *template, size_t n_bytes, yyjson_val *variables,
                        mf_jinja_output *out, mf_error *error)
{
    mf_allocator a = mf_allocator_default();
    mf_jinja *jinja = NULL;
    mf_jinja_variable list[MAX_VARIABLES];
    size_t i, n;
    yyjson_val *key, *value;
    yyjson_obj_foreach(variables, i, n, key, value)
    {
        REQUIRE(i < MAX_VARIABLES);
        list[i] = (mf_jinja_variable){yyjson_get_str(key), value, false};
    }
    mf_status status = mf_jinja_parse(&a, "template", template, n_bytes, &jinja, error);
    const mf_jinja_input input = {.variables = list, .n_variables = n, .now_seconds = 1767225600};
    if (status == MF_OK)
        status = mf_jinja_render(jinja, &input, out, error);
    mf_jinja_free(&jinja);
    return status;
}

static void check(const char *name, yyjson_val *template, yyjson_val *variables,
                  yyjson_val *expected)
{
    mf_jinja_output out = {0};
    mf_error error = {0};
    mf_status status =
        render(yyjson_get_str(template), yyjson_get_len(template), variables, &out, &error);
    if (yyjson_is_null(expected)) {
        CHECK_MSG(status != MF_OK, "%s: jinja2 refuses this, got %.*s", name, (int)out.n_bytes,
                  out.text);
        CHECK_MSG(status == MF_OK || strstr(error.message, "template: line ") != NULL, "%s: %s",
                  name, error.message);
    } else if (CHECK_MSG(status == MF_OK, "%s: %s", name, error.message)) {
        CHECK_MSG(out.n_bytes == yyjson_get_len(expected) &&
                      memcmp(out.text, yyjson_get_str(expected), out.n_bytes) == 0,
                  "%s:\ngot  %.*s\nwant %s", name, (int)out.n_bytes, out.text,
                  yyjson_get_str(expected));
    }
    mf_jinja_output_free(&out);
}

static size_t check_units(yyjson_val *units, yyjson_val *variables)
{
    size_t i, n;
    yyjson_val *unit;
    yyjson_arr_foreach(units, i, n, unit)
    {
        yyjson_val *template = yyjson_obj_get(unit, "t");
        check(yyjson_get_str(template), template, variables, yyjson_obj_get(unit, "x"));
    }
    return n;
}

/* Whole templates with the conversations of `inputs`. */
static size_t check_templates(yyjson_val *root)
{
    size_t i, n, k, n_cases, n_all = 0;
    yyjson_val *template, *item, *inputs = yyjson_obj_get(root, "inputs");
    yyjson_arr_foreach(yyjson_obj_get(root, "templates"), i, n, template)
    {
        yyjson_arr_foreach(yyjson_obj_get(template, "cases"), k, n_cases, item)
        {
            char name[256];
            yyjson_val *input = yyjson_arr_get(inputs, k);
            const char *file = yyjson_get_str(yyjson_obj_get(template, "name"));
            REQUIRE(file != NULL);
            snprintf(name, sizeof name, "%s, input %zu", file, k);
            check(name, yyjson_obj_get(template, "text"), input, item);
            n_all++;
        }
    }
    return n_all;
}

int main(int argc, char **argv)
{
    mf_json json = {0};
    mf_allocator a = mf_allocator_default();
    text_data_set_dir(argc, argv);
    setenv("TZ", "UTC", 1);
    tzset();
    text_file file = text_file_read("jinja.json");
    REQUIRE(mf_json_parse_exact(&a, "jinja.json", (const char *)file.data, file.n_bytes, &json,
                                NULL) == MF_OK);
    text_file_free(&file);
    size_t n_units =
        check_units(yyjson_obj_get(json.root, "units"), yyjson_obj_get(json.root, "variables"));
    size_t n_cases = check_templates(json.root);
    printf("%zu units, %zu renderings\n", n_units, n_cases);
    mf_json_free(&json);
    return test_result();
}
