/* SPDX-License-Identifier: MIT */
/* Grammars of requests, and guides of choices. */
#include "constraint.h"

#include "answer.h"
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------- requests -- */

/* What is wrong with a schema is the client's to change. */
static bool refuse_grammar(mf_srv_refusal *r, const char *field, mf_status status,
                           const mf_error *error)
{
    if (status == MF_ERR_NO_MEMORY)
        return mf_srv_refuse_status(r, status, error);
    return mf_srv_refuse_field(r, field, "%s", error->message);
}

/* What a grammar is kept by: which kind of text, and the text. */
static void put_name(const mf_grammar_params *p, bool has_marks, mf_srv_bytes *out)
{
    mf_srv_puts(out, has_marks ? "answer " : "");
    mf_srv_puts(out, p->json_schema ? "schema " : p->gbnf ? "gbnf " : "object ");
    mf_srv_put(out,
               p->json_schema ? p->json_schema
               : p->gbnf      ? p->gbnf
                              : "",
               p->json_schema ? p->n_schema_bytes : p->n_gbnf_bytes);
}

static bool compile(mf_grammar_params *params, const char *field, mf_srv_job *job,
                    mf_srv_refusal *r)
{
    mf_error error = {0};
    mf_grammar *grammar = NULL;
    mf_srv_bytes name = {0};
    mf_status status = MF_OK;
    mf_guide_free(&job->guide);
    put_name(params, job->protocol->has_thoughts, &name);
    job->guide = mf_srv_guides_find(job->served->guides, &name, job->call_opening);
    if (!job->guide) {
        params->max_mask_bytes = MF_SRV_GUIDE_MASK_BYTES;
        params->syntax = job->protocol->has_thoughts ? job->served->syntax : NULL;
        status = mf_grammar_compile(job->served->vocabulary, params, &grammar, &error);
        if (status == MF_OK)
            status = mf_guide_create(grammar, &job->guide, &error);
        if (status == MF_OK)
            mf_srv_guides_put(job->served->guides, &name, job->guide, job->call_opening);
        mf_grammar_free(&grammar);
    }
    mf_srv_bytes_free(&name);
    return status == MF_OK || refuse_grammar(r, field, status, &error);
}

static bool compile_schema(yyjson_val *schema, const char *field, mf_srv_job *job,
                           mf_srv_refusal *r)
{
    mf_grammar_params params;
    if (!yyjson_is_obj(schema))
        return mf_srv_refuse_field(r, field, "expected a schema, an object");
    mf_grammar_params_default(&params);
    char *text = yyjson_val_write(schema, 0, &params.n_schema_bytes);
    if (!text)
        return mf_srv_refuse(r, 503, "out of memory for the schema");
    params.json_schema = text;
    bool is_good = compile(&params, field, job, r);
    free(text);
    return is_good;
}

/* Nothing that a format says is passed over: it could be the schema, misspelt. */
static bool check_format(yyjson_val *format, const char *field, mf_srv_refusal *r)
{
    static const mf_srv_field names[] = {{"type", MF_SRV_FIELD_USED},
                                         {"json_schema", MF_SRV_FIELD_USED},
                                         {"schema", MF_SRV_FIELD_USED},
                                         {"name", MF_SRV_FIELD_HARMLESS},
                                         {"description", MF_SRV_FIELD_HARMLESS},
                                         {"strict", MF_SRV_FIELD_HARMLESS},
                                         {NULL, MF_SRV_FIELD_USED}};
    yyjson_val *inner = mf_srv_field_of(format, "json_schema");
    char place[MF_SRV_PARAM_BYTES];
    if (!mf_srv_check_object(format, field, names, r))
        return false;
    if (!inner)
        return true;
    snprintf(place, sizeof place, "%s.json_schema", field);
    if (!mf_srv_check_object(inner, place, names + 2, r)) /* one in another there is not */
        return false;
    snprintf(place, sizeof place, "%s.schema", field);
    return !mf_srv_field_of(format, "schema") ||
           mf_srv_refuse_field(r, place, "stands beside json_schema, which has one");
}

/* The schema may stand in json_schema, or beside the type. */
static bool read_format(yyjson_val *format, const char *field, mf_srv_job *job, mf_srv_refusal *r)
{
    static const char *const types[] = {"text", "json_object", "json_schema", NULL};
    char place[MF_SRV_PARAM_BYTES];
    mf_grammar_params params;
    int type = -1;
    if (!check_format(format, field, r))
        return false;
    snprintf(place, sizeof place, "%s.type", field);
    yyjson_val *word = yyjson_obj_get(format, "type");
    for (int i = 0; types[i]; i++)
        if (yyjson_equals_str(word, types[i]))
            type = i;
    if (type < 0)
        return mf_srv_refuse_field(r, place, "expected 'text', 'json_object' or 'json_schema'");
    yyjson_val *inner = mf_srv_field_of(format, "json_schema");
    yyjson_val *schema = mf_srv_field_of(inner ? inner : format, "schema");
    snprintf(place, sizeof place, "%s.%sschema", field, inner ? "json_schema." : "");
    if (type == 2 || (type == 1 && schema))
        return compile_schema(schema, place, job, r);
    if (type == 0)
        return !schema || mf_srv_refuse_field(r, place, "needs the type json_schema");
    mf_grammar_params_default(&params);
    params.json_object = 1;
    return compile(&params, field, job, r);
}

static bool compile_gbnf(const char *text, size_t n_bytes, const char *field, mf_srv_job *job,
                         mf_srv_refusal *r)
{
    mf_grammar_params params;
    mf_grammar_params_default(&params);
    params.gbnf = text;
    params.n_gbnf_bytes = n_bytes;
    return compile(&params, field, job, r);
}

/* A literal of GBNF. */
static void put_literal(yyjson_val *text, mf_srv_bytes *out)
{
    const char *s = yyjson_get_str(text);
    mf_srv_puts(out, "\"");
    for (size_t i = 0; i < yyjson_get_len(text); i++) {
        const unsigned char c = (unsigned char)s[i];
        if (c < 0x20 || c == '"' || c == '\\')
            mf_srv_printf(out, "\\x%02X", c);
        else
            mf_srv_put(out, s + i, 1);
    }
    mf_srv_puts(out, "\"");
}

/* One of several texts. */
static bool read_one_of(yyjson_val *list, const char *field, mf_srv_job *job, mf_srv_refusal *r)
{
    size_t i, n;
    yyjson_val *text;
    mf_srv_bytes gbnf = {0};
    mf_srv_puts(&gbnf, "root ::=");
    yyjson_arr_foreach(list, i, n, text)
    {
        if (!yyjson_is_str(text) || yyjson_get_len(text) == 0)
            break;
        mf_srv_puts(&gbnf, i > 0 ? " | " : " ");
        put_literal(text, &gbnf);
    }
    bool is_good = yyjson_is_arr(list) && yyjson_arr_size(list) > 0 && i == n;
    if (!is_good)
        mf_srv_refuse_field(r, field, "expected an array of texts");
    else if (gbnf.has_failed)
        is_good = mf_srv_refuse(r, 503, "out of memory for the texts");
    else
        is_good = compile_gbnf(gbnf.data, gbnf.n_bytes, field, job, r);
    mf_srv_bytes_free(&gbnf);
    return is_good;
}

typedef bool (*read_fn)(yyjson_val *value, const char *field, mf_srv_job *job, mf_srv_refusal *r);

static bool read_grammar(yyjson_val *value, const char *field, mf_srv_job *job, mf_srv_refusal *r)
{
    if (!mf_srv_is_text(value, field, r))
        return false;
    return yyjson_get_len(value) == 0 ||
           compile_gbnf(yyjson_get_str(value), yyjson_get_len(value), field, job, r);
}

/* A schema as an object, or as the text of one. */
static bool read_schema(yyjson_val *value, const char *field, mf_srv_job *job, mf_srv_refusal *r)
{
    if (!yyjson_is_str(value))
        return compile_schema(value, field, job, r);
    yyjson_doc *doc = yyjson_read(yyjson_get_str(value), yyjson_get_len(value), 0);
    const bool is_good = compile_schema(yyjson_doc_get_root(doc), field, job, r);
    yyjson_doc_free(doc);
    return is_good;
}

static bool read_object(yyjson_val *value, const char *field, mf_srv_job *job, mf_srv_refusal *r)
{
    mf_grammar_params params;
    if (!yyjson_is_bool(value))
        return mf_srv_refuse_field(r, field, "expected true or false");
    mf_grammar_params_default(&params);
    params.json_object = 1;
    return !yyjson_is_true(value) || compile(&params, field, job, r);
}

/* Other servers' names for what an answer looks like. */
static const struct {
    const char *outer, *name; /* outer NULL: a field of the request */
    read_fn read;
} others[] = {{NULL, "grammar", read_grammar},
              {NULL, "json_schema", read_schema},
              {NULL, "guided_json", read_schema},
              {NULL, "guided_choice", read_one_of},
              {NULL, "guided_grammar", read_grammar},
              {"structured_outputs", "json", read_schema},
              {"structured_outputs", "choice", read_one_of},
              {"structured_outputs", "grammar", read_grammar},
              {"structured_outputs", "json_object", read_object}};

static bool check_outer(yyjson_val *object, mf_srv_refusal *r)
{
    static const mf_srv_field names[] = {{"json", MF_SRV_FIELD_USED},
                                         {"choice", MF_SRV_FIELD_USED},
                                         {"grammar", MF_SRV_FIELD_USED},
                                         {"json_object", MF_SRV_FIELD_USED},
                                         {"regex", MF_SRV_FIELD_REFUSED},
                                         {"structural_tag", MF_SRV_FIELD_REFUSED},
                                         {"whitespace_pattern", MF_SRV_FIELD_REFUSED},
                                         {"disable_fallback", MF_SRV_FIELD_HARMLESS},
                                         {"disable_any_whitespace", MF_SRV_FIELD_REFUSED},
                                         {"disable_additional_properties", MF_SRV_FIELD_REFUSED},
                                         {NULL, MF_SRV_FIELD_USED}};
    yyjson_val *outer;
    return mf_srv_get_object(object, "structured_outputs", names, &outer, r);
}

bool mf_srv_read_constraint(yyjson_val *object, yyjson_val *format, const char *field,
                            mf_srv_job *job, mf_srv_refusal *r)
{
    char place[MF_SRV_PARAM_BYTES];
    if (format && !yyjson_is_null(format) && !read_format(format, field, job, r))
        return false;
    if (!check_outer(object, r))
        return false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const char *outer = others[i].outer;
        yyjson_val *value =
            mf_srv_field_of(outer ? mf_srv_field_of(object, outer) : object, others[i].name);
        snprintf(place, sizeof place, "%s%s%s", outer ? outer : "", outer ? "." : "",
                 others[i].name);
        if (!value)
            continue;
        if (job->guide)
            return mf_srv_refuse_field(r, place, "excludes another form of the answer");
        if (!others[i].read(value, place, job, r))
            return false;
    }
    return true;
}

/* ------------------------------------------------------------------------------------- calls -- */

static void put_calls_name(const mf_srv_conversation *c, mf_srv_bytes *out)
{
    mf_srv_printf(out, "calls %d %d %s ", c->has_one_call, c->must_call, c->strict.data);
    mf_srv_puts_json(out, c->only_tool ? c->only_tool : "");
    mf_srv_put(out, c->tools.data, c->tools.n_bytes);
}

/* The tools that may be called; *n_out of them. Their schemas are texts[], which the caller frees.
 */
static bool list_tools(const mf_srv_conversation *c, yyjson_val *tools, mf_grammar_tool *out,
                       char **texts, size_t *n_out)
{
    size_t i, n;
    yyjson_val *tool;
    *n_out = 0;
    yyjson_arr_foreach(tools, i, n, tool)
    {
        yyjson_val *function = yyjson_obj_get(tool, "function");
        yyjson_val *parameters = yyjson_obj_get(function, "parameters");
        const char *name = yyjson_get_str(yyjson_obj_get(function, "name"));
        if (c->only_tool && strcmp(name, c->only_tool) != 0)
            continue;
        mf_grammar_tool *t = &out[*n_out];
        *t = (mf_grammar_tool){.name = name, .is_strict = c->strict.data[i] == '1'};
        texts[*n_out] = yyjson_val_write(parameters, 0, &t->n_bytes);
        t->parameters = texts[(*n_out)++];
        if (!t->parameters)
            return false;
    }
    return true;
}

static mf_status make_guide(const mf_srv_conversation *c, mf_grammar_tool *tools, size_t n_tools,
                            mf_srv_job *job, mf_error *error)
{
    mf_grammar *grammar = NULL;
    mf_grammar_calls calls;
    mf_grammar_calls_default(&calls);
    calls.syntax = job->served->syntax;
    calls.tools = tools;
    calls.n_tools = n_tools;
    calls.has_several = !c->has_one_call;
    calls.is_opened = !c->must_call;
    calls.max_mask_bytes = MF_SRV_GUIDE_MASK_BYTES;
    mf_status status = mf_grammar_compile_calls(job->served->vocabulary, &calls, &grammar, error);
    if (status == MF_OK)
        status = mf_guide_create(grammar, &job->guide, error);
    if (status == MF_OK)
        memcpy(job->call_opening, calls.opening, sizeof job->call_opening);
    mf_grammar_free(&grammar);
    return status;
}

static bool compile_calls(const mf_srv_conversation *c, yyjson_val *tools, mf_srv_job *job,
                          mf_srv_refusal *r)
{
    const size_t n = yyjson_arr_size(tools);
    mf_grammar_tool *list = calloc(n + 1, sizeof *list);
    char **texts = calloc(n + 1, sizeof *texts);
    mf_error error = {0};
    mf_status status = MF_ERR_NO_MEMORY;
    size_t n_tools = 0;
    if (list && texts && list_tools(c, tools, list, texts, &n_tools))
        status = n_tools > 0 ? make_guide(c, list, n_tools, job, &error) : MF_ERR_NOT_FOUND;
    for (size_t i = 0; texts && i < n; i++)
        free(texts[i]);
    free(texts);
    free(list);
    if (status == MF_ERR_NOT_FOUND)
        return mf_srv_refuse_field(r, "tool_choice", "no tool is called '%.100s'", c->only_tool);
    return status == MF_OK ||
           refuse_grammar(r, c->must_call ? "tool_choice" : "tools", status, &error);
}

static bool read_calls(const mf_srv_conversation *c, const mf_srv_bytes *name, mf_srv_job *job,
                       mf_srv_refusal *r)
{
    yyjson_doc *doc = yyjson_read(c->tools.data, c->tools.n_bytes, 0);
    bool is_good = doc ? compile_calls(c, yyjson_doc_get_root(doc), job, r)
                       : mf_srv_refuse(r, 503, "out of memory for the tools");
    yyjson_doc_free(doc);
    if (is_good)
        mf_srv_guides_put(job->served->guides, name, job->guide, job->call_opening);
    return is_good;
}

bool mf_srv_read_calls(const mf_srv_conversation *c, mf_srv_job *job, mf_srv_refusal *r)
{
    const bool has_strict = c->strict.data && strchr(c->strict.data, '1');
    if (!c->tools.data || !job->served->syntax || (!c->must_call && (!has_strict || job->guide)))
        return true;
    if (c->must_call && job->guide)
        return mf_srv_refuse_field(r, "tool_choice",
                                   "a call that must come excludes a format of the answer");
    mf_srv_bytes name = {0};
    put_calls_name(c, &name);
    job->guide = mf_srv_guides_find(job->served->guides, &name, job->call_opening);
    bool is_good = job->guide || read_calls(c, &name, job, r);
    mf_srv_bytes_free(&name);
    return is_good;
}

/* ----------------------------------------------------------------------------------- choices -- */

/* What ends the thought that the prompt has opened; NULL: it has not. */
static const char *thought_end(const mf_srv_choice *c)
{
    mf_reply_form form;
    if (!mf_srv_answer_is_thought(c))
        return NULL;
    mf_reply_form_of(c->job->served->syntax, &form);
    const char *close = form.thought_close ? form.thought_close : "</think>";
    while (*close == '\n' || *close == ' ')
        close++;
    return close;
}

static size_t n_mask_words(const mf_srv_choice *c)
{
    return (c->job->served->info.n_vocab + 31) / 32;
}

bool mf_srv_constraint_begin(mf_srv_choice *c)
{
    char text[64];
    if (!c->job->guide || c->guide)
        return true;
    c->mask = malloc(n_mask_words(c) * sizeof *c->mask);
    if (!c->mask || mf_guide_clone(c->job->guide, &c->guide, NULL) != MF_OK)
        return false;
    if (c->job->call_opening[0] != '\0')
        return mf_guide_begin_after(c->guide, c->job->call_opening, 1, 0, NULL) == MF_OK;
    const char *end = thought_end(c);
    if (!end)
        return true;
    size_t n = strlen(end);
    if (n >= sizeof text)
        return false;
    memcpy(text, end, n + 1);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' '))
        text[--n] = '\0';
    return mf_guide_begin_after(c->guide, text, 0, 2, NULL) == MF_OK;
}

bool mf_srv_constraint_sample(mf_srv_choice *c, const mf_session *session, int32_t *token,
                              mf_srv_refusal *r)
{
    const float *logits = mf_session_logits(session), *bounds = mf_session_bounds(session);
    mf_error error = {0};
    if (!c->guide) {
        *token = mf_sampler_sample_bounded(c->sampler, logits, bounds, NULL);
        return true;
    }
    mf_status status = mf_guide_mask(c->guide, c->mask, c->job->served->info.n_vocab, NULL, &error);
    if (status != MF_OK) {
        mf_srv_refuse_status(r, status, &error);
        return false;
    }
    *token = mf_sampler_sample_bounded(c->sampler, logits, bounds, c->mask);
    return true;
}

bool mf_srv_constraint_take(mf_srv_choice *c, int32_t token, mf_srv_refusal *r)
{
    mf_error error = {0};
    const mf_status status = c->guide ? mf_guide_accept(c->guide, token, &error) : MF_OK;
    if (status == MF_OK)
        return true;
    mf_srv_refuse_status(r, status, &error);
    if (status == MF_ERR_ARGUMENT)
        r->status = 500; /* the mask had allowed the token */
    return false;
}

int32_t mf_srv_constraint_forced(mf_srv_choice *c)
{
    int32_t token = -1;
    if (!c->guide || mf_guide_forced(c->guide, &token, NULL) != MF_OK)
        return -1; /* the next look at the mask finds out why */
    return token;
}

bool mf_srv_constraint_is_done(const mf_srv_choice *c)
{
    return c->guide && mf_guide_is_done(c->guide);
}
