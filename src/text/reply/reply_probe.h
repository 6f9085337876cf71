/* SPDX-License-Identifier: MIT */
/* Conversations whose parts are known, rendered to see how a template writes them. */
#ifndef MF_TEXT_REPLY_PROBE_H
#define MF_TEXT_REPLY_PROBE_H

#include "text/reply/reply_syntax.h"

#define MF_PROBE_NAME "probe_first"
#define MF_PROBE_OTHER "probe_other"
#define MF_PROBE_KEY "place"
#define MF_PROBE_TEXT "Old Town"
#define MF_PROBE_OTHER_KEY "days"
#define MF_PROBE_NUMBER "3"
#define MF_PROBE_ARGUMENTS "{\"place\": \"Old Town\", \"days\": 3}"
#define MF_PROBE_ID "abcdefgh" /* and the call's number */
#define MF_PROBE_QUESTION "probe question"
#define MF_PROBE_CONTENT "probe content"
#define MF_PROBE_THOUGHT "probe thought"

/* What is asked of a template. Templates differ in whether arguments come as text, how ids look,
 * and how many calls a message may have. */
typedef struct mf_probe {
    const char *content, *thought; /* of the answer, NULL: none */
    unsigned n_calls;              /* 0 to 2: the first with arguments, the other without */
    bool is_text, has_names_in_ids;
    bool is_question; /* there is no answer */
    bool has_prompt;  /* with the generation prompt */
    mf_thinking thinking;
} mf_probe;

typedef struct mf_probe_target {
    const mf_chat_set *chat;
    const mf_allocator *a;
    const char *template_name;
} mf_probe_target;

/* What a template writes behind the question; owned, NULL: it refuses. */
typedef struct mf_probe_text {
    char *text;
    size_t n_bytes; /* of the allocation */
} mf_probe_text;

mf_status mf_probe_render(const mf_probe_target *target, const mf_probe *probe, mf_probe_text *out);
void mf_probe_free(const mf_probe_target *target, mf_probe_text *text);

typedef enum mf_probe_result { MF_PROBE_UNREAD, MF_PROBE_WITH_REST, MF_PROBE_READ } mf_probe_result;

/* Whether a row's reader finds the probe's calls in the text, or even nothing but them. */
mf_status mf_probe_read(const mf_allocator *a, const mf_reply_row *row, const char *text,
                        unsigned n_calls, mf_probe_result *result);

#endif
