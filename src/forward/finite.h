/* SPDX-License-Identifier: MIT */
/* Values that are no numbers: seen in the logits, where all of them end, and then traced back. */
#ifndef MF_FORWARD_FINITE_H
#define MF_FORWARD_FINITE_H

#include "forward/runner.h"

/* True if no value is NaN or infinite. */
bool mf_all_finite(const float *values, size_t n);
/* The highest of n values, n > 0; NaN where one is no finite number. */
float mf_finite_bound(const float *values, size_t n);

/* Runs the layers over the batch again, which has not been committed, and fails with MF_ERR_FORMAT
 * that names the first layer after which row `row` is not finite. Slow, and needs memory of its
 * own. */
mf_status mf_fail_not_finite(mf_runner *runner, const mf_batch *batch, uint32_t row,
                             mf_error *error);

#endif
