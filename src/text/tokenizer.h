/* SPDX-License-Identifier: MIT */
/*
 * The tokenizer of a checkpoint directory: text to token ids and back, end tokens, chat template.
 * Read-only once opened; every call brings its own scratch. The public functions of moeflux.h check
 * their arguments and come here.
 */
#ifndef MF_TEXT_TOKENIZER_H
#define MF_TEXT_TOKENIZER_H

#include "text/added_tokens.h"
#include "text/chat.h"
#include "text/decoding.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"
#include "text/spm.h"
#include "text/tiktoken.h"
#include "text/unigram.h"

#define MF_MAX_END_TOKENS 64

/* Ids as far as there is room for them; n_tokens counts all. */
typedef struct mf_token_list {
    int32_t *tokens;
    size_t capacity, n_tokens;
} mf_token_list;

struct mf_tokenizer {
    mf_allocator allocator;
    mf_bpe bpe;
    mf_pretokenizer pretokenizer;
    mf_spm spm;         /* where it has scores: instead of merges */
    mf_unigram unigram; /* where it is there: instead of both */
    mf_added_tokens added;
    mf_normalizer normalizer;
    mf_decoding decoding;
    bool cuts_runs; /* text is cut as tokenization_kimi.py cuts it, before anything else */
    int32_t end_tokens[MF_MAX_END_TOKENS];
    size_t n_end_tokens;
    int32_t start_token; /* what a text begins with, -1: nothing */
    int32_t model_end;   /* the vocabulary's own end token, where no other is named; -1: none */
    mf_chat_set chat;
};

/* A SentencePiece model's files, in memory. */
typedef struct mf_spm_files {
    const char *path; /* of the model, for messages */
    const char *model;
    size_t n_bytes;
    const mf_json *config;   /* tokenizer_config.json; NULL where there is none, as of the others */
    const mf_json *added;    /* added_tokens.json */
    const mf_json *specials; /* special_tokens_map.json */
} mf_spm_files;

mf_status mf_text_open(const char *path, const mf_allocator *a, mf_tokenizer **out,
                       mf_error *error);
/* The tokenizer of a tokenizer.json held in memory, without the directory's other files. */
mf_status mf_text_open_json(const mf_json *json, const mf_allocator *a, mf_tokenizer **out,
                            mf_error *error);
/* The same of a tiktoken.model. */
mf_status mf_text_open_tiktoken(const mf_tiktoken_files *files, const mf_allocator *a,
                                mf_tokenizer **out, mf_error *error);
/* The same of a SentencePiece model. */
mf_status mf_text_open_spm(const mf_spm_files *files, const mf_allocator *a, mf_tokenizer **out,
                           mf_error *error);
/* A tokenizer with nothing in it; NULL if there is no memory. */
mf_tokenizer *mf_text_create(const mf_allocator *a);
void mf_text_close(mf_tokenizer **tokenizer);

/* Text to encode. */
typedef struct mf_text_input {
    const char *text;
    size_t n_bytes;
    bool parse_special;
    /* What looks like an added token there is text. Rising, and cut between characters. */
    const mf_text_range *literal;
    size_t n_literal;
} mf_text_input;

mf_status mf_text_encode(const mf_tokenizer *tokenizer, const mf_text_input *input,
                         mf_token_list *out, mf_error *error);
const char *mf_text_piece(const mf_tokenizer *tokenizer, int32_t token, size_t *n_bytes);
mf_status mf_text_decode(const mf_tokenizer *tokenizer, mf_decoder *decoder, int32_t token,
                         char *text, size_t capacity, size_t *n_bytes);

/* Collects the end tokens that the directory's files name, and the start token if
 * tokenizer_config.json has a word on it. */
mf_status mf_end_tokens_load(mf_tokenizer *tokenizer, const char *path, mf_error *error);
/* The start token by tokenizer.json's post-processor. */
void mf_start_token_load(mf_tokenizer *tokenizer, const mf_json *json);

#endif
