/* SPDX-License-Identifier: MIT */
/* What the files that read chat templates share. */
#ifndef MF_TEXT_CHAT_TEMPLATE_H
#define MF_TEXT_CHAT_TEMPLATE_H

#include "text/chat.h"

/*
 * Brings a template to one form: white space in tags is gone but for strings, which have single
 * quotes and \n for a line's end; the text between tags is what would come out of it, as
 * transformers sets Jinja up (trim_blocks, lstrip_blocks, and the '-' of tags, which is dropped).
 * out has room for 2 * n_bytes + 1.
 */
void mf_chat_canonical(const char *text, size_t n_bytes, char *out);

/* Each takes a canonical template and fills in the style; false if it is of another family. */
bool mf_chat_recognise_deepseek(const char *canonical, mf_chat_style *style);
bool mf_chat_recognise_cogito(const char *canonical, mf_chat_style *style);
bool mf_chat_recognise_kimi(const char *canonical, mf_chat_style *style);

#endif
