/* SPDX-License-Identifier: MIT */
/*
 * MF_UNROLL(n) before a loop of a constant number of turns, at most n: it is unrolled, early enough
 * that arrays of vectors indexed by it become registers. MF_ROLLED: it is not, where the compiler
 * would reorder the additions of all turns and keep none in a register. Each compiler has its own
 * words.
 */
#ifndef MF_KERNELS_UNROLL_H
#define MF_KERNELS_UNROLL_H

#define MF_PRAGMA(words) _Pragma(#words)
#if defined(__clang__)
#define MF_UNROLL(n) MF_PRAGMA(clang loop unroll(full))
#define MF_ROLLED MF_PRAGMA(clang loop unroll(disable))
#else
#define MF_UNROLL(n) MF_PRAGMA(GCC unroll n)
#define MF_ROLLED MF_PRAGMA(GCC unroll 1)
#endif

#endif
