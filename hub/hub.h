/* SPDX-License-Identifier: MIT */
/*
 * Models of a hub by their name, ORG/NAME: what the name says, where the cache is that programs of
 * Hugging Face's hub share, and what lies there. Everything that came from outside, the cache's
 * files included, is checked before it becomes a path.
 */
#ifndef MF_HUB_H
#define MF_HUB_H

#include <moeflux/moeflux.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MF_HUB_PATH_CHARS 4096
#define MF_HUB_REPO_CHARS 97
#define MF_HUB_REVISION_CHARS 129
#define MF_HUB_CHOICE_CHARS 257
#define MF_HUB_TOKEN_CHARS 513

/* ORG/NAME[@REVISION][:CHOICE] */
typedef struct mf_hub_name {
    char repo[MF_HUB_REPO_CHARS];
    char revision[MF_HUB_REVISION_CHARS]; /* a branch, a tag or a commit; "main" unless given */
    char choice[MF_HUB_CHOICE_CHARS];     /* a GGUF file, or a quantisation; "": none */
} mf_hub_name;

/* False: it cannot be such a name. */
bool mf_hub_name_parse(const char *text, mf_hub_name *out);
bool mf_hub_is_revision(const char *text);
/* Forty hexadecimal digits, lower case. */
bool mf_hub_is_commit(const char *text);
/* A file's name within a repository that is safe to make a path of and to print: relative, no empty
 * part, no "." and no "..", UTF-8 without control characters. */
bool mf_hub_is_safe_path(const char *path);
/* Case counts. */
bool mf_hub_ends_with(const char *text, const char *end);
/* True if the GGUF file is what the choice names: the file itself, or (case aside) its
 * quantisation, as in NAME-Q4_K_M.gguf, NAME-Q4_K_M-00001-of-00002.gguf and Q4_K_M/NAME.gguf. */
bool mf_hub_is_chosen(const char *file, const char *choice);
/* Its number of parts as in NAME-00002-of-00003.gguf, 1 otherwise; *part counts from 1. */
uint32_t mf_hub_parts_of(const char *file, uint32_t *part);
/* The quantisation that is meant where none is named. */
#define MF_HUB_USUAL_GGUF "Q4_K_M"
/* What a model in the aligned form that was made of GGUF has for its vocabulary. */
#define MF_HUB_TEXT_GGUF "text.gguf"
/* Neither that is a model, nor is a vision model's projector. */
bool mf_hub_is_gguf(const char *file);

/* Where the user's hub and its cache are. */
typedef struct mf_hub_places {
    char cache[MF_HUB_PATH_CHARS];  /* the folder of models--ORG--NAME; "": there is none */
    char endpoint[1024];            /* without a slash at its end */
    char token[MF_HUB_TOKEN_CHARS]; /* "": none */
    bool is_offline;                /* nothing may be fetched */
} mf_hub_places;

/* From HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME, XDG_CACHE_HOME and HOME; HF_ENDPOINT;
 * HF_TOKEN, HUGGING_FACE_HUB_TOKEN, HF_TOKEN_PATH and the token file, unless
 * HF_HUB_DISABLE_IMPLICIT_TOKEN; HF_HUB_OFFLINE. */
void mf_hub_places_read(mf_hub_places *out);

typedef enum mf_hub_state {
    MF_HUB_ABSENT,  /* nothing of it */
    MF_HUB_PARTIAL, /* something, from which nothing can run */
    MF_HUB_HELD
} mf_hub_state;

/* What the cache has of a model; HELD: path (MF_HUB_PATH_CHARS) is its directory, or its (first)
 * GGUF file. PARTIAL: why is one line. */
mf_hub_state mf_hub_find(const mf_hub_places *places, const mf_hub_name *name, char *path,
                         char why[256]);
/* CACHE/models--ORG--NAME[/rest]; false: longer than a path may be. */
bool mf_hub_folder(const mf_hub_places *places, const mf_hub_name *name, const char *rest,
                   char path[MF_HUB_PATH_CHARS]);

#endif
