/* SPDX-License-Identifier: MIT */
/* The instruction of AVX-VNNI. Tests have it in the encoding of AVX-512's, so that these kernels
 * run on processors with that one alone. */
#ifndef MF_KERNELS_AVX_VNNI_H
#define MF_KERNELS_AVX_VNNI_H

#if defined(MF_VNNI_OF_AVX512)
#define MF_DPBUSD "%{evex%} vpdpbusd"
#else
#define MF_DPBUSD "%{vex%} vpdpbusd"
#endif

#endif
