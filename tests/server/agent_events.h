/* SPDX-License-Identifier: MIT */
/* What kinds of events an answer is made of, as tools/trim_agent_log.py names them; its usage; the
 * identifiers in it. */
#ifndef MF_TEST_AGENT_EVENTS_H
#define MF_TEST_AGENT_EVENTS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct mf_agent_usage {
    long n_prompt, n_cached, n_answered;
} mf_agent_usage;

/* The kinds in their order, neighbours that are alike once, with blanks between; from malloc. body:
 * events, or one object. usage: the last that the answer says; zeros where it says none. */
char *mf_agent_events(const char *body, mf_agent_usage *usage);
/* Of the different values that strings called `key` have in the answer's text the one at `index`,
 * from malloc; NULL: there are not so many. Values are taken as they are written. */
char *mf_agent_id(const char *body, const char *key, size_t index);

#endif
