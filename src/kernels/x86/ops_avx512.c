/* SPDX-License-Identifier: MIT */
/* All ops but the matrix products, AVX-512: the bodies of lanes_ops.h and its like. */
#include "kernels/x86/avx512.h"

#include "kernels/x86/lanes_avx512.h"

#define MF_TIER avx512
#include "kernels/x86/lanes_entries.h"
