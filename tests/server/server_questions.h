/* SPDX-License-Identifier: MIT */
/* Requests of all kinds that a seed gives, and answers made comparable. */
#ifndef MF_TEST_SERVER_QUESTIONS_H
#define MF_TEST_SERVER_QUESTIONS_H

#include "server_child.h"

typedef struct mf_st_question {
    const char *path;
    char *body;
    char *request; /* the whole of it, as it is sent */
    size_t n_request;
    char *expected; /* what it is answered when nobody else is there; NULL: not asked yet */
} mf_st_question;

/* n of them, from malloc, with pieces of the text as prompts, some of which begin alike. */
mf_st_question *mf_st_questions_make(size_t n, uint64_t seed, const char *text);
void mf_st_questions_free(mf_st_question *questions, size_t n);
/* A whole file, NUL-terminated, from malloc. Exits without it. */
char *mf_st_read_text(const char *path);

/* Blanks what may differ from time to time: ids, clocks, how much was found evaluated; drops the
 * comments of a stream. In place. */
void mf_st_make_comparable(char *body);

/* Asks each once, one after the other, and keeps the answers. False: not each was answered. */
bool mf_st_questions_ask(const mf_st_server *s, mf_st_question *questions, size_t n);

#endif
