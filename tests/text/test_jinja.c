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

static void check(const char *name, const char *template, size_t n_bytes, yyjson_val *variables,
                  yyjson_val *expected)
{
    mf_jinja_output out = {0};
    mf_error error = {0};
    mf_status status = render(template, n_bytes, variables, &out, &error);
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
        check(yyjson_get_str(template), yyjson_get_str(template), yyjson_get_len(template),
              variables, yyjson_obj_get(unit, "x"));
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
        char name[256];
        const char *file_name = yyjson_get_str(yyjson_obj_get(template, "name"));
        if (file_name == NULL)
            exit(EXIT_FAILURE);
        snprintf(name, sizeof name, "jinja/%s", file_name);
        text_file file = text_file_read(name);
        yyjson_arr_foreach(yyjson_obj_get(template, "cases"), k, n_cases, item)
        {
            snprintf(name, sizeof name, "%s, input %zu", file_name, k);
            check(name, (const char *)file.data, file.n_bytes, yyjson_arr_get(inputs, k), item);
            n_all++;
        }
        text_file_free(&file);
    }
    return n_all;
}

/* What a user wrote stays known as that, whatever is done with it; all else is not. Characters from
 * 'a' on are the user's here, capitals and digits are not but where they were made of his. */
static void check_foreign(void)
{
    static const char input_text[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \" ab c,d \", \"list\": [\"e\", \"f\"]},"
        "{\"role\": \"assistant\", \"content\": \"XY\"}, {\"role\": \"tool\", \"content\": {\"k\": "
        "\"v\"}}]}";
    static const struct {
        const char *template, *text, *foreign;
    } cases[] = {
        {"{{ u }}{{ m }}", " ab c,d XY", "1111111100"},
        {"<{{ u|trim }}>{{ m|lower }}", "<ab c,d>xy", "0111111000"},
        {"{{ m ~ u[1:3] ~ 'Z' }}", "XYabZ", "00110"},
        {"{{ m + u.strip() + m }}", "XYab c,dXY", "0011111100"},
        {"{{ u.split(',')|join('-') }}", " ab c-d ", "11111011"},
        {"{{ u|replace('b', 'B') }}", " aB c,d ", "11011111"},
        {"{{ m|replace('X', u[1]) }}", "aY", "10"},
        {"{{ u[2]|upper ~ m|upper }}", "BXY", "100"},
        {"{{ [m, u[1]] }}", "['XY', 'a']", "00000000100"},
        {"{{ {'A': u[1]}|tojson }}", "{\"A\": \"a\"}", "0000000100"},
        {"{% set x %}M{{ u[1] }}{% endset %}{{ x }}{{ x|length }}", "Ma2", "010"},
        {"{% macro f(a) %}M{{ a }}{% endmacro %}{{ f(u[1]) }}", "Ma", "01"},
        {"{% filter upper %}{{ u[1] }}{% endfilter %}{{ messages[0].list|join }}", "Aef", "111"},
        {"{% for c in u[1:3] %}{{ c }}.{% endfor %}", "a.b.", "1010"},
        {"{{ u[1:3]|reverse }}{{ u[::-1][1] }}", "bad", "111"},
        {"{{ '%s=%s' % (u[1], m) }}{{ '{}'.format(u[2]) }}", "a=XYb", "10001"},
        {"{{ messages[2].content.k }}{{ messages[2].role }}", "vtool", "10000"},
        {"{{ m * 300 }}{{ (m * 300 ~ u[1])[-2:] }}", NULL, NULL},
        {"{{ u[1]|indent(1, true) }}{{ u[1]|e }}", " aa", "011"},
        {"{{ u[1]|default(m) }}{{ zz|default(u[2]) }}{{ u|first }}", "ab ", "111"},
    };
    mf_allocator a = mf_allocator_default();
    mf_json json = {0};
    REQUIRE(mf_json_parse(&a, "input", input_text, strlen(input_text), &json, NULL) == MF_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char template[512];
        mf_jinja_output out = {0};
        mf_error error = {0};
        snprintf(template, sizeof template,
                 "{%% set u = messages[0].content %%}{%% set m = messages[1].content %%}%s",
                 cases[i].template);
        mf_status status = render(template, strlen(template), json.root, &out, &error);
        CHECK_MSG(status == MF_OK, "%s: %s", cases[i].template, error.message);
        size_t n = cases[i].text == NULL ? out.n_bytes : strlen(cases[i].text);
        CHECK_MSG(out.n_bytes == n, "%s: %.*s", template, (int)out.n_bytes, out.text);
        for (size_t k = 0; k < out.n_bytes && k < n; k++) {
            int want = cases[i].text != NULL ? cases[i].foreign[k] - '0' : k + 1 == n;
            int got = out.foreign != NULL && out.foreign[k] != 0;
            CHECK_MSG(got == want && (cases[i].text == NULL || out.text[k] == cases[i].text[k]),
                      "%s: byte %zu of %.*s is %d", cases[i].template, k, (int)out.n_bytes,
                      out.text, got);
        }
        mf_jinja_output_free(&out);
    }
    mf_json_free(&json);
}

/* Work, depth, memory and output are bounded, by default too; each says which it was. */
static void check_limits(void)
{
    static const struct {
        const char *template, *message;
        mf_jinja_limits limits;
    } cases[] = {
        {"{% for i in range(9999) %}{{ i }}{% endfor %}", "too many steps", {.n_steps = 1000}},
        {"{% for i in range(9999) %}{% endfor %}", "too much memory", {.memory_bytes = 100000}},
        {"{% for i in range(9999) %}{{ i }}{% endfor %}",
         "longer than 100 bytes",
         {.output_bytes = 100}},
        {"{% set a %}{% for i in range(9999) %}{{ i }}{% endfor %}{% endset %}",
         "longer than 100 bytes",
         {.output_bytes = 100}},
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested too deeply", {0}},
        {"{% set ns = namespace(l=[]) %}{% for i in range(999) %}{% set ns.l = [ns.l] %}"
         "{% endfor %}{{ ns.l }}",
         "nested too deeply",
         {0}},
        {"{% set ns = namespace(l=[], m=[]) %}{% for i in range(999) %}{% set ns.l = [ns.l] %}"
         "{% set ns.m = [ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
         "nested too deeply",
         {0}},
        {"{{ 'x' * 1000000000000 }}", "too much memory", {0}},
        {"{{ ('x' * 100000)|center(1000000000000000) }}", "too", {0}},
        {"{{ [0] * 1000000000000 }}", "too", {0}},
        {"{{ 2 ** 1000 }}", "more than 64 bits", {0}},
        {"{{ (-9223372036854775807 - 1) // -1 }}", "more than 64 bits", {0}},
        {"{{ range(0, 9, 2)[::9223372036854775807] }}", "more than 64 bits", {0}},
        {"{{ range(0, 9223372036854775807, 9223372036854775806)[:] }}", "more than 64 bits", {0}},
        {"{{ 99999999999999999999 }}", "more than 64 bits", {0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mf_allocator a = mf_allocator_default();
        mf_jinja *jinja = NULL;
        mf_jinja_output out = {0};
        mf_error error = {0};
        const mf_jinja_input input = {.limits = cases[i].limits};
        const char *text = cases[i].template;
        mf_status status = mf_jinja_parse(&a, "template", text, strlen(text), &jinja, &error);
        if (status == MF_OK)
            status = mf_jinja_render(jinja, &input, &out, &error);
        CHECK_MSG(status == MF_ERR_UNSUPPORTED, "%s: %s", text, mf_status_name(status));
        CHECK_CONTAINS(error.message, cases[i].message);
        mf_jinja_free(&jinja);
    }
}

/* Steps bound the time: what looks at a long text takes as many as that is long. */
static void check_long_texts(void)
{
    static const char *const expressions[] = {
        "a == b",         "a < b",           "a != b",
        "a in [b]",       "{'x': 1}[a]",     "a[-1]",
        "a[999990:]",     "'b' in a",        "a.strip('a')",
        "a.rstrip('xa')", "a.startswith(b)", "a.endswith((b,))",
        "a is upper",     "a.isalpha()",     "a.find('b')",
        "z|int",          "z|float",         "a.removeprefix(b)",
        "a|wordcount",    "a.istitle()"};
    for (size_t i = 0; i < sizeof expressions / sizeof *expressions; i++) {
        char text[400];
        mf_allocator a = mf_allocator_default();
        mf_jinja *jinja = NULL;
        mf_jinja_output out = {0};
        mf_error error = {0};
        const mf_jinja_input input = {.limits = {.n_steps = 1000000}};
        snprintf(text, sizeof text,
                 "{%% set a = ('a' * 1000) * 1000 %%}{%% set b = ('a' * 1000) * 1000 %%}"
                 "{%% set z = ('0' * 1000) * 1000 %%}"
                 "{%% for i in range(500) %%}{%% if %s %%}{%% endif %%}{%% endfor %%}",
                 expressions[i]);
        REQUIRE(mf_jinja_parse(&a, "template", text, strlen(text), &jinja, &error) == MF_OK);
        mf_status status = mf_jinja_render(jinja, &input, &out, &error);
        CHECK_MSG(status == MF_ERR_UNSUPPORTED, "%s: %s", expressions[i], mf_status_name(status));
        CHECK_CONTAINS(error.message, "too many steps");
        mf_jinja_output_free(&out);
        mf_jinja_free(&jinja);
    }
}

/* The same of many variables. */
static void check_many_variables(void)
{
    static char text[200000];
    size_t n = 0;
    mf_allocator a = mf_allocator_default();
    mf_jinja *jinja = NULL;
    mf_jinja_output out = {0};
    mf_error error = {0};
    const mf_jinja_input input = {.limits = {.n_steps = 10000000}};
    for (int i = 0; i < 8000; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "{%% set v%d=1 %%}", i);
    snprintf(text + n, sizeof text - n, "{%% for i in range(9999) %%}{{ w }}{%% endfor %%}");
    REQUIRE(mf_jinja_parse(&a, "template", text, strlen(text), &jinja, &error) == MF_OK);
    CHECK(mf_jinja_render(jinja, &input, &out, &error) == MF_ERR_UNSUPPORTED);
    CHECK_CONTAINS(error.message, "too many steps");
    mf_jinja_output_free(&out);
    mf_jinja_free(&jinja);
}

/* Brackets, operators and blocks in each other: refused, or read, and never too deep. */
static void check_nesting(void)
{
    static const char *const parts[] = {
        "(",    "[",  "{1:",     "-",          "not ", "1 if 1 else ", "a.b(",
        "x|f(", "1+", "x is y(", "{% if 1 %}", "a[",   "1 and ",       "1 ~ "};
    static char text[400000];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        mf_allocator a = mf_allocator_default();
        mf_jinja *jinja = NULL;
        mf_error error = {0};
        mf_jinja_output out = {0};
        const mf_jinja_input input = {0};
        strcpy(text, parts[i][0] == '{' && parts[i][1] == '%' ? "" : "{{");
        for (size_t n = 0, at = strlen(text); n < 20000; n++, at += strlen(parts[i]))
            strcpy(text + at, parts[i]);
        strcat(text, "1}}");
        mf_status status = mf_jinja_parse(&a, "template", text, strlen(text), &jinja, &error);
        if (status == MF_OK) {
            status = mf_jinja_render(jinja, &input, &out, &error);
            mf_jinja_output_free(&out);
        }
        CHECK_MSG(status == MF_OK || error.message[0] != '\0', "%s", parts[i]);
        CHECK_MSG(status != MF_ERR_NO_MEMORY, "%s", parts[i]);
        mf_jinja_free(&jinja);
    }
}

/* Names that Jinja does not know are refused with the template, wherever they stand in it but where
 * it takes them, too: what then holds is in the goldens. */
static void check_names(void)
{
    static const struct {
        const char *template, *message; /* NULL: it is taken */
    } cases[] = {
        {"a\n{% for i in [] %}\n{{ i|nope }}{% endfor %}",
         "template: line 3: no filter named 'nope'"},
        {"{% macro f(a) %}\n\n{{ a is so.so }}{% endmacro %}", "line 3: no test named 'so.so'"},
        {"{{ x and y|nope(1) }}", "line 1: no filter named 'nope'"},
        {"{% if x %}{% for i in l %}{{ i|nope }}{% endfor %}{% endif %}", "no filter named 'nope'"},
        {"{% if x %}{{ x|nope is so }}{% endif %}", NULL},
        {"{{ 1 if x else y|nope }}", NULL},
        {"{{ true or x is so }}", NULL},
        {"{{ not false or x or y|nope }}", NULL},
        {"{{ x|urlize }}", NULL}};
    const mf_allocator a = mf_allocator_default();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mf_jinja *jinja = NULL;
        mf_error error = {0};
        const char *text = cases[i].template;
        const mf_status status = mf_jinja_parse(&a, "template", text, strlen(text), &jinja, &error);
        CHECK_MSG(status == (cases[i].message != NULL ? MF_ERR_UNSUPPORTED : MF_OK), "%s: %s", text,
                  mf_status_name(status));
        if (cases[i].message != NULL)
            CHECK_CONTAINS(error.message, cases[i].message);
        mf_jinja_free(&jinja);
    }
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
    check_foreign();
    check_limits();
    check_long_texts();
    check_many_variables();
    check_nesting();
    check_names();
    return test_result();
}
