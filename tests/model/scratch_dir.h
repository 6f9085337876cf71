/* SPDX-License-Identifier: MIT */
/* Copies of checkpoints in a temporary directory, to be damaged. */
#ifndef MF_TESTS_SCRATCH_DIR_H
#define MF_TESTS_SCRATCH_DIR_H

#include <stddef.h>
#include <stdint.h>

/* A fresh copy of a directory of tests/model/data; static storage, removed by scratch_remove. */
const char *scratch_copy(const char *name);
void scratch_remove(void);

/* "SCRATCH/FILE"; static storage, valid until the next call but three. */
const char *scratch_path(const char *file);

void scratch_write(const char *file, const void *data, size_t n_bytes);
/* Cuts a file to n_bytes, or by -n_bytes from its end if negative. */
void scratch_cut(const char *file, int64_t n_bytes);
/* Replaces the first occurrence of `from` in a text file. */
void scratch_replace(const char *file, const char *from, const char *to);
/* The same in the JSON header of a safetensors file, whose length is put right. */
void scratch_replace_in_header(const char *file, const char *from, const char *to);
void scratch_unlink(const char *file);

#endif
