/* SPDX-License-Identifier: MIT */
/*
 * The whole test framework. A test is a program: main calls functions that CHECK, and ends with
 * `return test_result();` (0 passed, 1 failed). `return TEST_SKIPPED;` says that this machine
 * cannot run it. A failed CHECK prints its place and goes on; REQUIRE ends the program at once.
 */
#ifndef MF_TESTS_TEST_H
#define MF_TESTS_TEST_H

#include <moeflux/moeflux.h>

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEST_SKIPPED 77

/* Memory and time are other ones under a sanitizer. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_IS_SANITIZED 1
#elif defined(__has_feature)
#define TEST_IS_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define TEST_IS_SANITIZED 0
#endif

/* One of each in a program of several files: a check that fails in any of them counts. */
__attribute__((weak)) unsigned long test_n_checks;
__attribute__((weak)) unsigned long test_n_failed;

__attribute__((format(printf, 4, 5), unused)) static bool
test_check(bool passed, const char *file, int line, const char *format, ...)
{
    test_n_checks++;
    if (passed)
        return true;
    if (++test_n_failed > 100)
        return false; /* the first hundred tell enough */
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return false;
}

/* A test that checked nothing has failed. */
__attribute__((unused)) static int test_result(void)
{
    fprintf(stderr, "%lu checks, %lu failed\n", test_n_checks, test_n_failed);
    return test_n_failed == 0 && test_n_checks != 0 ? 0 : 1;
}

#define CHECK(condition) test_check((condition), __FILE__, __LINE__, "failed: %s", #condition)

/* CHECK with a printf-formatted explanation. */
#define CHECK_MSG(condition, ...) test_check((condition), __FILE__, __LINE__, __VA_ARGS__)

#define REQUIRE(condition)       \
    do {                         \
        if (!CHECK(condition))   \
            exit(test_result()); \
    } while (0)

/* The expression's mf_status is `expected`. */
#define CHECK_STATUS(expr, expected)                                                          \
    do {                                                                                      \
        mf_status test_got_ = (expr);                                                         \
        mf_status test_want_ = (expected);                                                    \
        test_check(test_got_ == test_want_, __FILE__, __LINE__, "%s: %s, expected %s", #expr, \
                   mf_status_name(test_got_), mf_status_name(test_want_));                    \
    } while (0)

/* The expression is MF_OK; otherwise prints the mf_error and ends the program. */
#define REQUIRE_OK(expr, error_ptr)                                                  \
    do {                                                                             \
        mf_status test_got_ = (expr);                                                \
        if (!test_check(test_got_ == MF_OK, __FILE__, __LINE__, "%s: %s: %s", #expr, \
                        mf_status_name(test_got_), (error_ptr)->message))            \
            exit(test_result());                                                     \
    } while (0)

#define CHECK_U64(got, expected)                                                         \
    do {                                                                                 \
        uint64_t test_got_ = (uint64_t)(got);                                            \
        uint64_t test_want_ = (uint64_t)(expected);                                      \
        test_check(test_got_ == test_want_, __FILE__, __LINE__,                          \
                   "%s is %" PRIu64 ", expected %" PRIu64, #got, test_got_, test_want_); \
    } while (0)

#define CHECK_STR(got, expected)                                                  \
    do {                                                                          \
        const char *test_got_ = (got);                                            \
        const char *test_want_ = (expected);                                      \
        test_check(strcmp(test_got_, test_want_) == 0, __FILE__, __LINE__,        \
                   "%s is \"%s\", expected \"%s\"", #got, test_got_, test_want_); \
    } while (0)

/* The string `whole` holds `part`. */
#define CHECK_CONTAINS(whole, part)                                                    \
    do {                                                                               \
        const char *test_got_ = (whole);                                               \
        const char *test_want_ = (part);                                               \
        test_check(strstr(test_got_, test_want_) != NULL, __FILE__, __LINE__,          \
                   "%s is \"%s\", which lacks \"%s\"", #whole, test_got_, test_want_); \
    } while (0)

/* Equal bytes. */
#define CHECK_BYTES(got, expected, n_bytes)                                   \
    test_check(memcmp((got), (expected), (n_bytes)) == 0, __FILE__, __LINE__, \
               "%s differs from %s", #got, #expected)

/* A small generator for test inputs (xorshift64*); the seed must not be 0. */
__attribute__((unused)) static uint64_t test_random(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * UINT64_C(2685821657736338717);
}

#endif
