/* SPDX-License-Identifier: MIT */
/* AVX-VNNI's products where there is no AVX-VNNI, but AVX-512's VNNI: the same code, the one
 * instruction in the other's encoding. */
#ifndef MF_TESTS_EVEX_VNNI_H
#define MF_TESTS_EVEX_VNNI_H

#include "kernels/kernels.h"

/* False: this CPU has none of it, or AVX-VNNI itself, which is tested as a tier. */
bool evex_vnni_kernels(mf_kernels *out);

#endif
