/* SPDX-License-Identifier: MIT */
/* All ops but the matrix products, AVX2: the bodies of lanes_ops.h and its like. */
#include "kernels/x86/avx2.h"

#include "kernels/x86/lanes_avx2.h"

#define MF_TIER avx2
#include "kernels/x86/lanes_entries.h"
