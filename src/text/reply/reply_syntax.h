/* SPDX-License-Identifier: MIT */
/*
 * How a model writes calls and thoughts, as data: one row of texts a family, or the same texts
 * found in what an unknown template writes. The reader (reply_scan.h) knows forms and no families.
 *
 * Blanks in these texts stand for as many blanks as there are, also for none: models do not keep
 * to their templates there. Before and behind them blanks do not count, but for values.
 */
#ifndef MF_TEXT_REPLY_SYNTAX_H
#define MF_TEXT_REPLY_SYNTAX_H

#include "text/chat.h"

#include <moeflux/reply.h>

/* In a text of a row: any name. Not in those that the public form has. */
#define MF_REPLY_ANY "\x01"
#define MF_REPLY_N_DROPPED 3

typedef enum mf_reply_reader {
    MF_READ_OBJECT, /* an object of JSON with members for name and arguments, or an array of such */
    MF_READ_NAMED,  /* a name, then arguments as JSON */
    MF_READ_TAGGED, /* a name, then arguments with their names between marks */
    MF_READ_BARE, /* a name, then {key:value}: keys are bare, strings between marks of their own */
    MF_READ_PYTHON, /* [f(a=1), g()] */
    MF_READ_HARMONY /* messages with headers that name a channel or who is meant */
} mf_reply_reader;

/*
 * The texts of a call, in their order:
 *   section_open (call_open NAME [number_open N] name_close ARGUMENTS call_close)... section_close
 * with `between` before all calls but the first; is_per_call: each has a section of its own.
 * Tagged arguments: (key_open NAME key_close VALUE value_close)...
 */
typedef struct mf_reply_row {
    const char *name;
    mf_reply_reader reader;
    bool is_per_call;
    bool has_one_call;  /* at most one call a reply */
    bool ends_thought;  /* a section that begins in a thought ends it */
    bool may_be_bare;   /* sections also begin without their mark, as a reply does */
    bool has_short_ids; /* ids of nine letters and digits */
    bool has_elements;  /* values of arguments are elements within elements */
    bool has_cdata;     /* values may stand in <![CDATA[ ]]> */
    bool drops_turns;   /* the last of `dropped` is what stands between turns: no mark of a token */
    bool keeps_thoughts; /* thoughts are as the row says, whatever the template seems to write */
    const char *section_open, *section_close, *between;
    const char *call_open, *number_open, *name_close, *call_close;
    const char *key_open, *key_close, *key_close_string, *value_close;
    const char *type_close; /* behind key_close and the type of the value */
    const char *json_open;  /* in the place of tagged arguments: all of them as JSON */
    const char *json_close;
    const char *quote;        /* around strings, and around keys if it likes */
    const char *everybody;    /* the name that stands before content */
    const char *result_close; /* behind a tool's result the same answer goes on */
    const char *id_open;      /* behind the name: an id, up to name_close */
    const char *id_close;     /* before the name: an id, up to this */
    const char *name_prefix;  /* not part of the name: "functions." */
    const char *section_also; /* another text that may open a section, and close it */
    const char *section_close_also;
    const char *thought_open, *thought_close;
    const char *content_open, *content_close; /* around the content; both are left out */
    const char *dropped[MF_REPLY_N_DROPPED];  /* so are these, wherever content may stand */
    const char *stops[5];
} mf_reply_row;

struct mf_reply_syntax {
    mf_allocator allocator;
    mf_reply_row row;    /* NULL only where that says something */
    char *texts;         /* those of a row that was found, and of the form */
    size_t n_text_bytes; /* of all of texts */
    char *opening;       /* what a turn of the assistant begins with in a prompt, or NULL */
    size_t n_opening;    /* with the NUL */
    mf_reply_form form;
    /* What the reader looks for: without blanks at their ends and without the brackets of JSON. */
    const char *section_mark, *section_also, *section_end, *section_end_also, *call_mark, *call_end;
    const char *name_end, *key_mark, *key_end, *key_end_string, *value_end, *cdata_end;
    bool is_call_section; /* section_mark is call_mark: sections have none of their own */
    bool has_lines;       /* a value stands in lines of its own */
    const char *drops;    /* punctuation between calls */
    const char *thought_mark, *thought_end, *content_mark, *content_end;
    const char *stop_list[5];
};

const mf_reply_row *mf_reply_row_find(const char *name);
/* All rows, in the order in which they are tried. */
const mf_reply_row *mf_reply_rows(size_t *n);

/* A syntax of a row, all of whose texts are copied. */
mf_status mf_reply_syntax_make(const mf_allocator *a, const mf_reply_row *row,
                               mf_reply_syntax **out, mf_error *error);

/* The syntax of a set's templates, "plain" where none is found. Errors: MF_ERR_NO_MEMORY. */
mf_status mf_reply_detect(const mf_chat_set *chat, const mf_allocator *a, const char *template_name,
                          mf_reply_syntax **out);

#endif
