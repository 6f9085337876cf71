/* SPDX-License-Identifier: MIT */
/* Sizes as they are printed and as options take them: what is printed as the least is accepted,
 * which is to say, read again it is no less, and hardly more. */
#include "options.h"
#include "output.h"
#include "test.h"

#include <inttypes.h>

/* "1.51 GiB" as a user types it, 1.51G, read by the options' own parser. */
static uint64_t read_again(const char *printed)
{
    char number[16], unit[4] = "", text[20];
    uint64_t n_bytes = 0;
    REQUIRE(sscanf(printed, "%15[0-9.] %3[A-Za-z]", number, unit) == 2);
    REQUIRE(strcmp(unit, "B") == 0 || strcmp(unit + 1, "iB") == 0);
    (void)snprintf(text, sizeof text, "%s%.1s", number, strcmp(unit, "B") == 0 ? "" : unit);
    REQUIRE(mf_cli_parse_size(text, &n_bytes));
    return n_bytes;
}

static void check(uint64_t n_bytes)
{
    char printed[MF_CLI_SIZE_CHARS];
    const uint64_t again = read_again(mf_cli_size_up(printed, n_bytes));
    CHECK_MSG(again >= n_bytes, "%" PRIu64 " is printed as %s, which is %" PRIu64, n_bytes, printed,
              again);
    CHECK_MSG(again - n_bytes <= n_bytes / 100 + 1, "%" PRIu64 " is printed as %s", n_bytes,
              printed);
}

static void test_read_again(void)
{
    uint64_t random = 11;
    for (uint32_t shift = 0; shift < 46; shift++) {
        const uint64_t unit = UINT64_C(1) << shift;
        for (uint64_t n = unit > 3 ? unit - 3 : 1; n <= unit + 3; n++)
            check(n);
        for (int i = 0; i < 500; i++)
            check(unit + test_random(&random) % unit);
    }
    for (uint64_t hundredths = 100; hundredths < 102400; hundredths++) { /* borders of a rounding */
        const uint64_t n = hundredths * (UINT64_C(1) << 20) / 100;
        check(n);
        check(n + 1);
    }
}

static void check_text(uint64_t n_bytes, const char *nearest, const char *least)
{
    char printed[MF_CLI_SIZE_CHARS];
    CHECK_STR(mf_cli_size(printed, (double)n_bytes), nearest);
    CHECK_STR(mf_cli_size_up(printed, n_bytes), least);
}

static void test_texts(void)
{
    const uint64_t mib = UINT64_C(1) << 20;
    check_text(0, "0 B", "0 B");
    check_text(1023, "1023 B", "1023 B");
    check_text(1024, "1.00 KiB", "1.00 KiB");
    check_text(1025, "1.00 KiB", "1.01 KiB");
    check_text(84 * mib, "84.00 MiB", "84.00 MiB");
    check_text(84 * mib + 1, "84.00 MiB", "84.01 MiB");
    check_text(84 * mib + mib / 4, "84.25 MiB", "84.25 MiB");
    check_text(1024 * mib - 1, "1024.00 MiB", "1.00 GiB");
    check_text(1536 * mib, "1.50 GiB", "1.50 GiB");
    check_text(1536 * mib + 1, "1.50 GiB", "1.51 GiB");
}

int main(void)
{
    test_read_again();
    test_texts();
    return test_result();
}
