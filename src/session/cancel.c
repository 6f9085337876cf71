/* SPDX-License-Identifier: MIT */
/* Cancels: one flag each, changed by plain atomic stores, as a signal handler may. */
#include <moeflux/moeflux.h>

void mf_cancel_request(mf_cancel *cancel)
{
    __atomic_store_n(&cancel->is_requested, 1, __ATOMIC_RELEASE);
}

void mf_cancel_reset(mf_cancel *cancel)
{
    __atomic_store_n(&cancel->is_requested, 0, __ATOMIC_RELEASE);
}

int mf_cancel_is_requested(const mf_cancel *cancel)
{
    return __atomic_load_n(&cancel->is_requested, __ATOMIC_ACQUIRE);
}
