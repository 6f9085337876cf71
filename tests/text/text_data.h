/* SPDX-License-Identifier: MIT */
/* Reading the golden files of tests/text/data (written by tools/make_text_goldens.py). */
#ifndef MF_TESTS_TEXT_DATA_H
#define MF_TESTS_TEXT_DATA_H

#include "test.h"

#include "format/json.h"

typedef struct text_file {
    unsigned char *data;
    size_t n_bytes, at;
} text_file;

/* Reads data_dir()/name; ends the program if it cannot. */
text_file text_file_read(const char *name);
void text_file_free(text_file *file);
uint32_t text_file_u32(text_file *file);
uint32_t text_file_leb128(text_file *file);
const unsigned char *text_file_bytes(text_file *file, size_t n_bytes);

/* n ids, at most capacity of them. */
void text_file_ids(text_file *file, size_t n, int32_t *ids, size_t capacity);

/* FNV-1a of ids as little-endian words. */
uint64_t text_hash_ids(const int32_t *ids, size_t n);

/* A long text of a golden file of them: its parts, [text, how often] each. Returns its bytes. */
size_t text_of_parts(yyjson_val *parts, char *text, size_t capacity);

/* tests/text/data, or the first argument of the program. */
void text_data_set_dir(int argc, char **argv);
const char *text_data_path(const char *name);

mf_tokenizer *text_tokenizer_open(const char *name);

/* Encodes a megabyte of each of some characters repeated, of which a word or a run of words is
 * made: it must not take quadratic time. Ends the program if one fails. */
void text_encode_long_words(const char *name);

#endif
