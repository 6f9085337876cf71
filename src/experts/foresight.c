/* SPDX-License-Identifier: MIT */
/* Names of what foresees. */
#include "base/status.h"

#include <moeflux/routing.h>

const char *mf_predict_name(mf_predict predict)
{
    static const char *const names[] = {"auto",       "off",       "next-layer",
                                        "last-token", "frequency", "wrong"};
    const size_t n = sizeof names / sizeof *names;
    return (size_t)predict < n ? names[predict] : NULL;
}
