/* SPDX-License-Identifier: MIT */
/* All ops but the matrix products, NEON: the bodies of lanes_ops.h and its like. */
#include "kernels/arm/neon.h"

#include "kernels/arm/lanes_neon.h"

#define MF_TIER neon
#include "kernels/x86/lanes_entries.h"
