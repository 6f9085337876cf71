/* SPDX-License-Identifier: MIT */
/* What the doctor reads of frequencies, of folders as Linux has them: virtual machines have none.
 */
#include "clocks.h"
#include "test.h"

#include <sys/stat.h>
#include <unistd.h>

static char root[64] = "/tmp/mf-test-clocks-XXXXXX";

static void put(unsigned cpu, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/cpu%u", root, cpu);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/cpu%u/cpufreq", root, cpu);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/cpu%u/cpufreq/%s", root, cpu, name);
    FILE *file = fopen(path, "w");
    REQUIRE(file != NULL);
    REQUIRE(fputs(text, file) >= 0);
    REQUIRE(fclose(file) == 0);
}

static void expect(unsigned n_cpus, uint64_t hz, uint64_t most_hz)
{
    uint64_t got = 1, most = 1;
    mf_cli_read_clocks(root, n_cpus, &got, &most);
    CHECK_U64(got, hz);
    CHECK_U64(most, most_hz);
}

int main(void)
{
    char command[128];
    REQUIRE(mkdtemp(root) != NULL);
    expect(4, 0, 0); /* a machine that does not say */
    put(0, "scaling_cur_freq", "1200000\n");
    expect(4, 0, 0); /* of what most is not known */
    put(0, "cpuinfo_max_freq", "4200000\n");
    expect(4, 1200000000u, 4200000000u);
    put(1, "scaling_cur_freq", "2400000\n");
    put(1, "cpuinfo_max_freq", "3600000\n"); /* a core of another kind */
    expect(1, 1200000000u, 4200000000u);
    expect(2, 2400000000u, 3600000000u);
    put(2, "scaling_cur_freq", "<unknown>\n");
    put(2, "cpuinfo_max_freq", "4200000\n");
    expect(3, 2400000000u, 3600000000u);
    snprintf(command, sizeof command, "rm -r %s", root);
    CHECK(system(command) == 0);
    return test_result();
}
