/* SPDX-License-Identifier: MIT */
/* What the bench reads of where its memory lies, of files as Linux has them. */
#include "nodes.h"
#include "test.h"

#include <sys/stat.h>
#include <unistd.h>

static char path[64] = "/tmp/mf-test-nodes-XXXXXX";

static size_t read_text(const char *text, mf_cli_node *out, size_t capacity)
{
    FILE *file = fopen(path, "w");
    REQUIRE(file != NULL);
    REQUIRE(fputs(text, file) >= 0);
    REQUIRE(fclose(file) == 0);
    return mf_cli_read_nodes(path, out, capacity);
}

static void test_maps(void)
{
    mf_cli_node nodes[3] = {{0}};
    const char *text =
        "55a0 default file=/usr/bin/N7=x mapped=12 N8=9 N0=3 kernelpagesize_kB=4\n"
        "7f10 interleave:0,8 anon=1024 dirty=1024 N0=512 N8=512 kernelpagesize_kB=4\n"
        "7f20 prefer:8 huge anon=2 N8=2 kernelpagesize_kB=2048\n"
        "7f30 default\n";
    CHECK_U64(read_text(text, nodes, 3), 2);
    CHECK(nodes[0].id == 0 && nodes[1].id == 8);
    CHECK_U64(nodes[0].n_bytes, 515 * 4096);
    CHECK_U64(nodes[1].n_bytes, 521 * 4096 + 2 * 2097152);
}

/* What is not of that form counts for nothing; more nodes than there is room for are left out. */
static void test_odd(void)
{
    mf_cli_node nodes[2] = {{0}};
    CHECK_U64(read_text("", nodes, 2), 0);
    CHECK_U64(read_text("7f10 default N= Nx=3 N0 5 kernelpagesize_kB=4\n N\n", nodes, 2), 0);
    CHECK_U64(read_text("7f10 default N1=5\n", nodes, 2), 1); /* of pages of no known size */
    CHECK(nodes[0].id == 1 && nodes[0].n_bytes == 0);
    CHECK_U64(read_text("7f10 a N3=1 N1=2 N2=4 kernelpagesize_kB=4", nodes, 2), 2);
    CHECK(nodes[0].id == 1 && nodes[1].id == 3 && nodes[1].n_bytes == 4096);
    REQUIRE(unlink(path) == 0);
    CHECK_U64(mf_cli_read_nodes(path, nodes, 2), 0);
}

static void test_count(void)
{
    char folder[64] = "/tmp/mf-test-nodes-XXXXXX", name[96];
    static const char *const names[] = {"node0", "node12", "nodes", "online"};
    REQUIRE(mkdtemp(folder) != NULL);
    CHECK_U64(mf_cli_count_nodes(folder), 0);
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s/%s", folder, names[i]);
        REQUIRE(mkdir(name, 0755) == 0);
    }
    CHECK_U64(mf_cli_count_nodes(folder), 2);
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s/%s", folder, names[i]);
        REQUIRE(rmdir(name) == 0);
    }
    REQUIRE(rmdir(folder) == 0);
    CHECK_U64(mf_cli_count_nodes(folder), 0);
}

int main(void)
{
    const int file = mkstemp(path);
    REQUIRE(file >= 0);
    close(file);
    test_maps();
    test_odd();
    test_count();
    return test_result();
}
