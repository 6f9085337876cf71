/* SPDX-License-Identifier: MIT */
/* The median of a few figures. */
#ifndef MF_BENCH_MEDIAN_H
#define MF_BENCH_MEDIAN_H

#include <stdint.h>
#include <stdlib.h>

static inline int bench_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the values. */
static inline double bench_median(double *values, uint32_t n)
{
    qsort(values, n, sizeof *values, bench_by_value);
    return values[n / 2];
}

#endif
