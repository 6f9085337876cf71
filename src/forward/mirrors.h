/* SPDX-License-Identifier: MIT */
/* Copies of a checkpoint's files on other drives. */
#ifndef MF_FORWARD_MIRRORS_H
#define MF_FORWARD_MIRRORS_H

#include "io/io.h"
#include "model/model.h"

/* The files of the source, which io has in their order, get the copies that are in the directories:
 * by their names within the checkpoint. A directory without any is an error (MF_ERR_NOT_FOUND), one
 * that has some is not. Errors: those of mf_io_add_copy. */
mf_status mf_mirrors_add(mf_io *io, const mf_source *source, const char *const *mirrors, uint32_t n,
                         mf_error *error);

#endif
