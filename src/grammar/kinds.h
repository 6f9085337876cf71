/* SPDX-License-Identifier: MIT */
/*
 * Kinds of characters: those that patterns and formats mostly treat alike. Where a state leads to
 * the same one by all characters of some kinds, all tokens made of these kinds need no walk. The
 * characters beyond ASCII are one kind.
 */
#ifndef MF_GRAMMAR_KINDS_H
#define MF_GRAMMAR_KINDS_H

#include <stddef.h>
#include <stdint.h>

#define MF_N_ASCII_KINDS 26u
#define MF_KIND_WIDE MF_N_ASCII_KINDS
#define MF_N_KINDS (MF_N_ASCII_KINDS + 1)
/* In a set of kinds: what follows is the rest of a character. */
#define MF_KINDS_INSIDE (1u << 31)

/* Kind k is the bytes from [k] up to but not [k + 1]. */
extern const unsigned char mf_kind_first[MF_N_ASCII_KINDS + 1];

/* The kind that begins with this byte as a set; MF_KINDS_INSIDE where it begins no character. */
uint32_t mf_kinds_of_byte(unsigned char byte);
/* The kinds of whole characters. */
uint32_t mf_kinds_of(const unsigned char *bytes, size_t n_bytes);

#endif
