/* SPDX-License-Identifier: MIT */
/*
 * What templates compute with: Python's values as far as chat templates see them, in the memory of
 * one run. Failure is sticky: the first one is kept in the run, whatever comes after it computes
 * with anything and is dropped, and loops ask mf_j_ok. So values need no status beside them.
 */
#ifndef MF_TEXT_JINJA_VALUE_H
#define MF_TEXT_JINJA_VALUE_H

#include "text/jinja/jinja_arena.h"

/* Operators are known by their characters: '+', and two of them as MF_JOP('/', '/'). */
#define MF_JOP(first, second) ((first) | (second) << 8)

typedef enum mf_jkind {
    MF_J_MISSING, /* an argument that was not given: no template sees it */
    MF_J_UNDEFINED,
    MF_J_NONE,
    MF_J_BOOL,
    MF_J_INT,
    MF_J_BIG, /* an integer beyond 64 bits: its digits */
    MF_J_FLOAT,
    MF_J_STRING,
    MF_J_LIST, /* all sequences but strings */
    MF_J_DICT,
    MF_J_NAMESPACE,
    MF_J_BUILTIN,
    MF_J_MACRO,
    MF_J_LOOP,
    MF_J_CYCLER
} mf_jkind;

typedef enum mf_jflavour {
    MF_J_PLAIN,
    MF_J_TUPLE,
    MF_J_ITERATOR, /* of a generator: read once, and always true */
    MF_J_KEYS,
    MF_J_VALUES,
    MF_J_ITEMS,
    MF_J_RANGE,
    MF_J_GROUP /* of groupby: a tuple whose parts have names */
} mf_jflavour;

/* UTF-8, but for what came as something else. Never changed once made. */
typedef struct mf_jstr {
    const char *text;
    size_t n_bytes;
    const unsigned char *foreign; /* for each byte whether a user or a tool wrote it; NULL: none */
    bool is_markup;
} mf_jstr;

typedef struct mf_jval {
    uint8_t kind;  /* mf_jkind */
    uint8_t about; /* undefined: the kind of what lacks it */
    union {
        bool truth;
        int64_t integer;
        double real;
        const mf_jstr *string; /* also of undefined: its name */
        struct mf_jlist *list;
        struct mf_jdict *dict; /* also of a namespace */
        const struct mf_jbound *bound;
        struct mf_jmacro *macro;
        struct mf_jloop *loop;
        struct mf_jcycler *cycler;
    } as;
} mf_jval;

typedef struct mf_jlist {
    mf_jval *items;
    size_t n_items, capacity;
    size_t n_read; /* iterators */
    mf_jflavour flavour;
    int64_t start, stop, step; /* ranges */
} mf_jlist;

typedef struct mf_jentry {
    mf_jval key, value;
    uint32_t hash;
} mf_jentry;

/* In the order of insertion. Nothing is ever taken out. */
typedef struct mf_jdict {
    mf_jentry *entries;
    size_t n_entries, capacity;
    uint32_t *slots; /* indices plus one, once there are many */
    size_t n_slots;
} mf_jdict;

typedef struct mf_jcycler {
    mf_jlist *items; /* a joiner: the separator */
    size_t at;
    bool is_joiner;
} mf_jcycler;

/* One rendering (or, while a template is parsed, that). */
typedef struct mf_jrun {
    mf_jarena *arena;
    uint64_t n_steps; /* left */
    unsigned depth;   /* left */
    unsigned line;
    mf_status status;
    bool is_asked; /* the template itself raised */
    char reason[600];
    struct mf_jtext *out;
    struct mf_jtext *tail; /* what made tail_string, which can grow where it is */
    const mf_jstr *tail_string;
    struct mf_jscope *scope;
    const mf_jdict *context;
    struct mf_jloop *loop;
    mf_jval block_input; /* of a filter block */
    int64_t now_seconds;
} mf_jrun;

static inline bool mf_j_ok(const mf_jrun *j)
{
    return j->status == MF_OK;
}

/* Keeps the first failure; returns undefined. */
mf_jval mf_j_fail(mf_jrun *j, mf_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A value is of a kind that an operation does not take. */
mf_jval mf_j_fail_type(mf_jrun *j, const char *what, mf_jval value);
/* What work on n bytes counts, so that steps bound the time: comparing or searching them, walking
 * over them, looking each of them up. */
#define MF_J_COMPARED(n_bytes) ((n_bytes) / 64)
#define MF_J_WALKED(n_bytes) ((n_bytes) / 16)
#define MF_J_LOOKED_UP(n) ((n) / 4)
/* Counts work; false when there was too much of it, or a failure before. */
bool mf_j_spend(mf_jrun *j, size_t n_steps);
/* Goes one deeper, false if too deep or failed: then without mf_j_leave. */
bool mf_j_enter(mf_jrun *j);
void mf_j_leave(mf_jrun *j);
/* Memory of the run; NULL fails it. Not zeroed. */
void *mf_j_take(mf_jrun *j, size_t n_bytes);

/* ----------------------------------------------------------------------------------- values -- */

static inline mf_jval mf_j_none(void)
{
    return (mf_jval){.kind = MF_J_NONE};
}
static inline mf_jval mf_j_bool(bool truth)
{
    return (mf_jval){.kind = MF_J_BOOL, .as.truth = truth};
}
static inline mf_jval mf_j_int(int64_t integer)
{
    return (mf_jval){.kind = MF_J_INT, .as.integer = integer};
}
static inline mf_jval mf_j_float(double real)
{
    return (mf_jval){.kind = MF_J_FLOAT, .as.real = real};
}
static inline mf_jval mf_j_undefined(const mf_jstr *name)
{
    return (mf_jval){.kind = MF_J_UNDEFINED, .as.string = name};
}
static inline bool mf_j_is(mf_jval value, mf_jkind kind)
{
    return value.kind == kind;
}
static inline bool mf_j_is_tuple(mf_jval v)
{
    return v.kind == MF_J_LIST &&
           (v.as.list->flavour == MF_J_TUPLE || v.as.list->flavour == MF_J_GROUP);
}
static inline bool mf_j_is_iterator(mf_jval v)
{
    return v.kind == MF_J_LIST && v.as.list->flavour == MF_J_ITERATOR;
}

/* Refers to text, which must outlive the run. */
mf_jval mf_j_string(mf_jrun *j, const char *text, size_t n_bytes);
mf_jval mf_j_text(mf_jrun *j, const char *text); /* NUL-terminated */
mf_jval mf_j_copy(mf_jrun *j, const char *text, size_t n_bytes);
/* Bytes [start, end) of a string. */
mf_jval mf_j_part(mf_jrun *j, const mf_jstr *string, size_t start, size_t end);
/* An empty list. */
mf_jval mf_j_list(mf_jrun *j, mf_jflavour flavour);
void mf_j_push(mf_jrun *j, mf_jval list, mf_jval item);
mf_jval mf_j_pair(mf_jrun *j, mf_jval first, mf_jval second);
mf_jval mf_j_dict(mf_jrun *j);
void mf_j_put(mf_jrun *j, mf_jval dict, mf_jval key, mf_jval value);
void mf_j_put_text(mf_jrun *j, mf_jval dict, const char *key, mf_jval value);
/* NULL: not there. An unhashable key is not there either. */
const mf_jval *mf_j_find(mf_jrun *j, const mf_jdict *dict, mf_jval key);
const mf_jval *mf_j_find_text(const mf_jdict *dict, const char *key, size_t n_bytes);
bool mf_j_is_hashable(mf_jval value);

bool mf_j_truth(mf_jval value);
bool mf_j_equal(mf_jrun *j, mf_jval a, mf_jval b);
/* <0, 0, >0; fails the run where Python would. */
int mf_j_compare(mf_jrun *j, mf_jval a, mf_jval b);
bool mf_j_contains(mf_jrun *j, mf_jval whole, mf_jval part);
static inline bool mf_j_is_text(const mf_jstr *s, const char *text)
{
    return strlen(text) == s->n_bytes && memcmp(s->text, text, s->n_bytes) == 0;
}
/* What messages call a value's type. */
const char *mf_j_type_name(mf_jval value);
/* An integer, or a truth as one. */
bool mf_j_as_int(mf_jval value, int64_t *out);
bool mf_j_as_float(mf_jval value, double *out);

/* What iterating over a value gives; an iterator is read to its end. Fails where Python would. */
const mf_jlist *mf_j_items(mf_jrun *j, mf_jval value);
/* len(); fails the run where there is none. */
int64_t mf_j_length(mf_jrun *j, mf_jval value);
bool mf_j_has_length(mf_jval value);

#endif
