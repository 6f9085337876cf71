/* SPDX-License-Identifier: MIT */
/* Text that is being put together, and values as text: Python's str, repr and json.dumps. */
#ifndef MF_TEXT_JINJA_TEXT_H
#define MF_TEXT_JINJA_TEXT_H

#include "text/jinja/jinja_value.h"

/* In the run's memory. Zero-initialise but for the run. */
typedef struct mf_jtext {
    mf_jrun *run;
    char *data;
    unsigned char *foreign; /* NULL until something is */
    size_t n_bytes, capacity, foreign_capacity;
    size_t max_bytes; /* 0: what the memory holds */
} mf_jtext;

void mf_j_put_bytes(mf_jtext *text, const char *bytes, size_t n_bytes);
void mf_j_put_string(mf_jtext *text, const mf_jstr *string);
void mf_j_put_char(mf_jtext *text, uint32_t code_point);
/* Marks what was put since `start` as foreign. */
void mf_j_mark(mf_jtext *text, size_t start);
static inline void mf_j_put_c(mf_jtext *text, const char *c_string)
{
    mf_j_put_bytes(text, c_string, strlen(c_string));
}
/* What was put so far, as a string that refers to it. */
mf_jval mf_j_take_text(mf_jtext *text);
bool mf_j_is_foreign(const mf_jstr *string);
/* A string of bytes that were derived from another one: foreign if any of that is. */
mf_jval mf_j_derived(mf_jtext *text, const mf_jstr *from);

/* str(value), and repr(value). */
void mf_j_put_str(mf_jtext *text, mf_jval value);
void mf_j_put_repr(mf_jtext *text, mf_jval value);
mf_jval mf_j_str(mf_jrun *j, mf_jval value);
/* A number of decimals behind the point, as Python's format has it: correctly rounded. */
void mf_j_put_float(mf_jtext *text, double real);

typedef struct mf_jjson_style {
    bool is_ascii, sorts_keys, has_lines;
    const mf_jstr *indent; /* with lines */
    const mf_jstr *between_items, *between_key_and_value;
} mf_jjson_style;

void mf_j_put_json(mf_jtext *text, mf_jval value, const mf_jjson_style *style);

#endif
