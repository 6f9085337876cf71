/* SPDX-License-Identifier: MIT */
/* A mutex that the thread which holds it may take again. */
#ifndef MF_BASE_MUTEX_H
#define MF_BASE_MUTEX_H

#include <pthread.h>

/* 0, or an error's number: then there is none. */
static inline int mf_mutex_init_recursive(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;
    int failure = pthread_mutexattr_init(&attributes);
    if (failure != 0)
        return failure;
    failure = pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    if (failure == 0)
        failure = pthread_mutex_init(mutex, &attributes);
    (void)pthread_mutexattr_destroy(&attributes);
    return failure;
}

#endif
