/* SPDX-License-Identifier: MIT */
/*
 * Kept answers beyond the end of the server: a file beside the store (docs/FORMATS.md), read once
 * at the start, then added to by a thread of its own. It is the server's that has locked it; what
 * cannot be written is forgotten with the server, as it is without a file.
 */
#ifndef MF_SERVER_RECALL_FILE_H
#define MF_SERVER_RECALL_FILE_H

#include "recall_record.h"

#include <moeflux/moeflux.h>

typedef struct mf_srv_recall_file mf_srv_recall_file;

typedef struct mf_srv_recall_file_options {
    const char *directory;
    uint8_t model[16]; /* its fingerprint: files of others are left alone */
    uint32_t n_vocab;
    uint64_t max_bytes; /* of the file */
    mf_log_fn log;      /* may be NULL */
    void *log_user;
} mf_srv_recall_file_options;

/* Puts what the file has into `recall`, which is empty, and from then on into the file what is put
 * there. Damaged ends are cut off, and a file that is none begins anew; both are logged. Errors:
 * MF_ERR_IO, MF_ERR_STATE (another server has it), MF_ERR_NO_MEMORY: nothing will be written. */
mf_status mf_srv_recall_file_open(const mf_srv_recall_file_options *options, mf_srv_recall *recall,
                                  mf_srv_recall_file **out, mf_error *error);
/* What waits is written. NULL is nothing. */
void mf_srv_recall_file_close(mf_srv_recall_file **file);

#endif
