/* SPDX-License-Identifier: MIT */
/* The policies by name: a row for each. */
#include "experts/cache_policy.h"

#include "base/status.h"

#include <moeflux/routing.h>

#include <string.h>

static const mf_cache_policy *const policies[] = {&mf_cache_policy_next_use, &mf_cache_policy_lru,
                                                  &mf_cache_policy_lfu, &mf_cache_policy_s3_fifo};

#define N_POLICIES (sizeof policies / sizeof *policies)

const char *mf_cache_policy_name(size_t i)
{
    return i < N_POLICIES ? policies[i]->name : NULL;
}

mf_status mf_cache_policy_find(const char *name, const mf_cache_policy **out, mf_error *error)
{
    for (size_t i = 0; i < N_POLICIES; i++)
        if (name == NULL || strcmp(name, policies[i]->name) == 0) {
            *out = policies[i];
            return MF_OK;
        }
    return mf_fail(error, MF_ERR_ARGUMENT,
                   "cache_policy: '%s' is not known, expected next-use, lru, lfu or s3-fifo", name);
}
