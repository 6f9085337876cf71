/* SPDX-License-Identifier: MIT */
/*
 * The host's side of MF_OP_TO_HOST and MF_OP_FROM_HOST. A word is written and read at once, so
 * whoever finds it with the number that was agreed on has the value that was put with it: words
 * need no order among each other. Whoever takes them knows that they are not put again meanwhile.
 * A device's memory may be one that the processor gathers writes to: the fence sends them.
 */
#ifndef MF_BACKEND_HOST_WORDS_H
#define MF_BACKEND_HOST_WORDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef _Atomic uint64_t mf_host_word;

/* n values of four bytes. */
static inline void mf_host_words_put(mf_host_word *words, uint32_t number, const void *values,
                                     size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t value;
        memcpy(&value, (const unsigned char *)values + i * sizeof value, sizeof value);
        atomic_store_explicit(&words[i], (uint64_t)number << 32 | value, memory_order_relaxed);
    }
    atomic_thread_fence(memory_order_seq_cst);
}

/* As many values as are there of n, from the first on. */
static inline size_t mf_host_words_take(const mf_host_word *words, uint32_t number, void *values,
                                        size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint64_t word = atomic_load_explicit(&words[i], memory_order_relaxed);
        const uint32_t value = (uint32_t)word;
        if (word >> 32 != number)
            return i;
        memcpy((unsigned char *)values + i * sizeof value, &value, sizeof value);
    }
    return n;
}

#endif
