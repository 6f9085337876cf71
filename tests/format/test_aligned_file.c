/* SPDX-License-Identifier: MIT */
/* Heads of files of experts: what was written is read, any changed byte is found, and what a right
 * checksum covers is held against the file all the same. */
#include "test.h"

#include "format/aligned.h"

#define N 3

static const mf_aligned_head good_head = {
    .id = {1, 2, 3}, .layer = 7, .n_experts = N, .file_bytes = 4 * 4096};
static const mf_aligned_entry good[N] = {
    {4, 0, 4096, 4000, 11}, {0, 1, 8192, 4096, 12}, {9, 0, 12288, 1, 13}};

static mf_status read_back(const unsigned char *bytes, mf_aligned_head *head,
                           mf_aligned_entry entries[N], mf_error *error)
{
    mf_status status = mf_aligned_head_read(bytes, 4 * 4096, "file", head, error);
    if (status != MF_OK)
        return status;
    REQUIRE(head->n_experts == N);
    return mf_aligned_entries_read(bytes, head, "file", entries, error);
}

static void check_round(void)
{
    unsigned char bytes[4096];
    mf_aligned_head head;
    mf_aligned_entry entries[N];
    mf_error error = {0};
    REQUIRE(mf_aligned_head_bytes(N) == sizeof bytes);
    mf_aligned_head_write(&good_head, good, bytes);
    REQUIRE_OK(read_back(bytes, &head, entries, &error), &error);
    CHECK(head.layer == 7 && head.first == 4096 && head.id[2] == 3);
    for (int i = 0; i < N; i++)
        CHECK(entries[i].expert == good[i].expert && entries[i].form == good[i].form &&
              entries[i].offset == good[i].offset && entries[i].n_bytes == good[i].n_bytes &&
              entries[i].checksum == good[i].checksum);
    for (size_t i = 0; i < 64 + N * 32 + 8; i++) { /* up to the end of the checksum */
        bytes[i] ^= 0x20;
        const size_t n_experts_at = 32;
        if (i < n_experts_at || i >= n_experts_at + 4)
            CHECK_MSG(read_back(bytes, &head, entries, &error) != MF_OK, "byte %zu", i);
        bytes[i] ^= 0x20;
    }
}

/* The i-th entry is this; its checksum is right. */
static void check_refused(uint32_t i, mf_aligned_entry entry, const char *what)
{
    unsigned char bytes[4096];
    mf_aligned_head head;
    mf_aligned_entry entries[N];
    mf_error error = {0};
    memcpy(entries, good, sizeof good);
    entries[i] = entry;
    mf_aligned_head_write(&good_head, entries, bytes);
    CHECK_MSG(read_back(bytes, &head, entries, &error) == MF_ERR_FORMAT, "%s", what);
    CHECK_CONTAINS(error.message, "file: expert");
}

static void check_entries(void)
{
    check_refused(0, (mf_aligned_entry){1, 0, 4097, 10, 0}, "not aligned");
    check_refused(0, (mf_aligned_entry){1, 0, 0, 10, 0}, "in the head");
    check_refused(1, (mf_aligned_entry){1, 0, 4096, 10, 0}, "over the one before");
    check_refused(2, (mf_aligned_entry){1, 0, 12288, 4097, 0}, "behind the end");
    check_refused(2, (mf_aligned_entry){1, 0, 1ull << 63, 1ull << 63, 0}, "overflow");
    check_refused(2, (mf_aligned_entry){1, 0, 12288, 0, 0}, "nothing");
}

static void check_ids(void)
{
    uint8_t id[MF_ALIGNED_ID_BYTES];
    char text[33];
    CHECK(mf_aligned_id_parse("0123456789abcdef0123456789abcdef", id) && id[1] == 0x23);
    mf_aligned_id_text(id, text);
    CHECK(strcmp(text, "0123456789abcdef0123456789abcdef") == 0);
    CHECK(!mf_aligned_id_parse("0123456789abcdef0123456789abcde", id));
    CHECK(!mf_aligned_id_parse("0123456789ABCDEF0123456789ABCDEF", id));
}

/* Every role that is no expert's has a name of its own: a family that brings another is otherwise
 * not converted. */
static void check_roles(void)
{
    for (uint32_t i = 0; i < MF_N_ROLES; i++) {
        const char *name = mf_aligned_role_name((mf_role)i);
        const bool is_expert = i == MF_ROLE_EXPERT_GATE || i == MF_ROLE_EXPERT_UP ||
                               i == MF_ROLE_EXPERT_DOWN || i == MF_ROLE_EXPERT_GATE_UP ||
                               i == MF_ROLE_EXPERT_PAIRS;
        CHECK_MSG((name == NULL) == is_expert, "role %u", i);
        for (uint32_t j = 0; j < i && name != NULL; j++) {
            const char *other = mf_aligned_role_name((mf_role)j);
            CHECK_MSG(other == NULL || strcmp(other, name) != 0, "roles %u and %u", i, j);
        }
    }
}

int main(void)
{
    check_round();
    check_entries();
    check_ids();
    check_roles();
    return test_result();
}
