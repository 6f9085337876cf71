/* SPDX-License-Identifier: MIT */
/*
 * Answers that were given, kept by what they mean and what was said before them: so many bytes of
 * them, those used last. Any thread may ask.
 */
#ifndef MF_SERVER_RECALL_H
#define MF_SERVER_RECALL_H

#include "digest.h"
#include "message.h"

struct yyjson_val;

typedef struct mf_srv_recall mf_srv_recall;

/* Where a prompt comes from, and what its answer is kept by. */
typedef struct mf_srv_origin {
    bool is_known;        /* it is a conversation's, and ends where the answer begins */
    mf_srv_digest chain;  /* of the conversation */
    mf_srv_digest head;   /* of the text up to the answer, without the opening of a thought */
    size_t n_head_bytes;  /* of that text */
    size_t n_head_tokens; /* of the prompt's tokens, that text's; 0: not known */
    size_t system_mark;   /* where other conversations part from this one; 0: nowhere */
    int64_t now;          /* what the template took for the time */
} mf_srv_origin;

/* Shared; nothing of it changes. */
typedef struct mf_srv_kept {
    int n_refs; /* atomic */
    mf_srv_digest key;
    mf_srv_origin origin; /* of the prompt */
    /* What the template gets: with all thoughts, and ids as the model knows them. */
    mf_srv_message message;
    /* The prompt's and, if has_answer, all that were sampled but for the one that ended it; where a
     * stop string did, those alone that come before it, whole. */
    int32_t *tokens;
    size_t n_tokens;
    bool has_answer;
    /* At the end of the content, blanks not counted: what the tokens leave out, since a stop string
     * began within one. */
    size_t n_rest_bytes;
} mf_srv_kept;

/* NULL: no memory. */
mf_srv_recall *mf_srv_recall_new(size_t max_bytes);
void mf_srv_recall_free(mf_srv_recall **recall);
const mf_srv_digest_key *mf_srv_recall_key(const mf_srv_recall *recall);
/* Before anything is kept, and before anybody has asked for the key. */
void mf_srv_recall_set_key(mf_srv_recall *recall, const mf_srv_digest_key *key);

/* Is told what is put there, under the lock, and borrows it: answers, and tools whose order was not
 * known. */
typedef struct mf_srv_recall_watcher {
    void (*kept)(void *user, mf_srv_kept *kept);
    void (*tools)(void *user, const char *tools);
    void *user;
} mf_srv_recall_watcher;

/* NULL: nobody. */
void mf_srv_recall_watch(mf_srv_recall *recall, const mf_srv_recall_watcher *watcher);

/* All that is kept, those used last at the end. */
typedef struct mf_srv_recall_list {
    mf_srv_kept **kept;
    char **tools;
    size_t n_kept, n_tools;
} mf_srv_recall_list;

/* False: no memory. */
bool mf_srv_recall_list_all(mf_srv_recall *recall, mf_srv_recall_list *out);
void mf_srv_recall_list_free(mf_srv_recall_list *list);

/* Takes the answer over. */
void mf_srv_recall_put(mf_srv_recall *recall, mf_srv_kept *kept);
/* NULL: there is none. To be given back by mf_srv_kept_drop. */
mf_srv_kept *mf_srv_recall_find(mf_srv_recall *recall, const mf_srv_digest *key);
/* An empty one with one reference; NULL: no memory. */
mf_srv_kept *mf_srv_kept_new(void);
/* What it takes of what may be kept. */
size_t mf_srv_kept_bytes(const mf_srv_kept *kept);
void mf_srv_kept_drop(mf_srv_kept *kept);

/* Tools [an array as JSON] in the order in which the same ones came first: clients shuffle them,
 * and they stand at the beginning of prompts. False: no memory. */
bool mf_srv_recall_order(mf_srv_recall *recall, mf_srv_bytes *tools);

/* What a message means, as bytes: its role, its content without blanks around it, or its calls,
 * their arguments sorted and without blanks, and without those that are what the tool's schema says
 * they are anyway (`default`; of 256 parameters at most): clients add these. What is said beside
 * calls, which clients drop, thoughts, ids and names of speakers are no part. tools: an array as
 * templates take it; NULL: none are known. */
void mf_srv_put_meaning(const mf_srv_message *m, struct yyjson_val *tools, mf_srv_bytes *out);

#endif
