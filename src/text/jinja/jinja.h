/* SPDX-License-Identifier: MIT */
/*
 * Jinja as far as chat templates use it, and as transformers sets it up: trim_blocks and
 * lstrip_blocks, break and continue, generation blocks, its own tojson, raise_exception and
 * strftime_now, an immutable sandbox. A template is text from anywhere: steps, depth, memory and
 * output are bounded, nothing is read or called outside of it. What a parsed template renders is
 * the same text as jinja2's, or an error that names the line and the reason.
 *
 * What users and tools wrote is followed through all that a template does with it, byte by byte, so
 * that it can be told apart in the text that comes out.
 */
#ifndef MF_TEXT_JINJA_H
#define MF_TEXT_JINJA_H

#include "format/json.h"

typedef struct mf_jinja mf_jinja;

/* Bounds of one rendering; 0: as usual. */
typedef struct mf_jinja_limits {
    uint64_t n_steps;
    unsigned depth;
    size_t memory_bytes, output_bytes;
} mf_jinja_limits;

/* Parses a template, which is copied. `name` is for messages. Errors: MF_ERR_FORMAT (a mistake in
 * it), MF_ERR_UNSUPPORTED (a limit, or a statement that is refused), MF_ERR_NO_MEMORY. */
mf_status mf_jinja_parse(const mf_allocator *a, const char *name, const char *text, size_t n_bytes,
                         mf_jinja **out, mf_error *error);
void mf_jinja_free(mf_jinja **jinja);

/* A variable: a name and JSON. is_foreign: all of it was written by users or tools. The variable
 * "messages": what was is known by each message's role, is_foreign is not asked. */
typedef struct mf_jinja_variable {
    const char *name;
    yyjson_val *json;
    bool is_foreign;
} mf_jinja_variable;

typedef struct mf_jinja_input {
    const mf_jinja_variable *variables; /* later ones replace earlier ones */
    size_t n_variables;
    int64_t now_seconds; /* strftime_now; 0: the clock */
    mf_jinja_limits limits;
} mf_jinja_input;

/* What came out, until it is freed. */
typedef struct mf_jinja_output {
    const char *text;
    size_t n_bytes;
    const unsigned char *foreign; /* for each byte; NULL: none is */
    struct mf_jarena *memory;
    mf_allocator allocator;
} mf_jinja_output;

/* Errors: MF_ERR_ARGUMENT (the template refuses these variables, or cannot take them),
 * MF_ERR_UNSUPPORTED (a limit, or something that is not known here), MF_ERR_NO_MEMORY. */
mf_status mf_jinja_render(const mf_jinja *jinja, const mf_jinja_input *input, mf_jinja_output *out,
                          mf_error *error);
void mf_jinja_output_free(mf_jinja_output *output);

#endif
