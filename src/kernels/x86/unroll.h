/* SPDX-License-Identifier: MIT */
/*
 * MF_UNROLL(n) before a loop of a constant number of turns, at most n: it is unrolled, early enough
 * that arrays of vectors indexed by it become registers. Each compiler has its own word for that.
 */
#ifndef MF_KERNELS_UNROLL_H
#define MF_KERNELS_UNROLL_H

#define MF_PRAGMA(words) _Pragma(#words)
#if defined(__clang__)
#define MF_UNROLL(n) MF_PRAGMA(clang loop unroll(full))
#else
#define MF_UNROLL(n) MF_PRAGMA(GCC unroll n)
#endif

#endif
