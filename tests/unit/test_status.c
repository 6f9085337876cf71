/* SPDX-License-Identifier: MIT */
/* Status names and error messages. */
#include "base/status.h"
#include "test.h"

#include <errno.h>

static void test_names(void)
{
    CHECK_STR(mf_status_name(MF_OK), "ok");
    for (int code = -10; code <= 0; code++)
        CHECK_MSG(strcmp(mf_status_name((mf_status)code), "unknown status") != 0,
                  "code %d has no name", code);
    CHECK_STR(mf_status_name((mf_status)-999), "unknown status");
    CHECK_STR(mf_status_name((mf_status)1), "unknown status");
}

static void test_version(void)
{
    char expected[32];
    snprintf(expected, sizeof expected, "%d.%d.%d", MF_VERSION_MAJOR, MF_VERSION_MINOR,
             MF_VERSION_PATCH);
    CHECK_STR(mf_version(), expected);
}

static void test_fail(void)
{
    mf_error error;
    memset(&error, 0xff, sizeof error);
    CHECK_STATUS(mf_fail(&error, MF_ERR_FORMAT, "%s: field %d", "config.json", 7), MF_ERR_FORMAT);
    CHECK(error.code == MF_ERR_FORMAT);
    CHECK(error.os_errno == 0);
    CHECK(error.byte_position == MF_ERROR_NO_POSITION);
    CHECK_STR(error.message, "config.json: field 7");
    CHECK_STATUS(mf_fail(NULL, MF_ERR_IO, "nobody listens"), MF_ERR_IO);
}

static void test_fail_os(void)
{
    mf_error error;
    CHECK_STATUS(mf_fail_os(&error, MF_ERR_IO, ENOENT, "opening %s", "weights.bin"), MF_ERR_IO);
    CHECK(error.os_errno == ENOENT);
    CHECK_STR(error.message, "opening weights.bin: No such file or directory");
    CHECK_STATUS(mf_fail_os(NULL, MF_ERR_IO, EIO, "x"), MF_ERR_IO);
}

static void test_fail_at(void)
{
    mf_error error;
    CHECK_STATUS(mf_fail_at(&error, MF_ERR_FORMAT, 1234567890123u, "bad"), MF_ERR_FORMAT);
    CHECK_U64(error.byte_position, 1234567890123u);
    CHECK_STATUS(mf_fail_at(NULL, MF_ERR_FORMAT, 1, "bad"), MF_ERR_FORMAT);
}

static void test_fail_memory(void)
{
    mf_error error;
    CHECK_STATUS(mf_fail_memory(&error, 4096, "the arena"), MF_ERR_NO_MEMORY);
    CHECK_STR(error.message, "out of memory: 4096 bytes for the arena");
}

/* Whatever a file's strings hold, the message is one printable, terminated line. */
static void test_hostile_strings(void)
{
    mf_error error;
    CHECK_STATUS(mf_fail(&error, MF_ERR_FORMAT, "name \"%s\"", "a\nb\x1b[31mc\x7f"), MF_ERR_FORMAT);
    CHECK_STR(error.message, "name \"a?b?[31mc?\"");

    static char endless[5000];
    memset(endless, 'x', sizeof endless - 1);
    CHECK_STATUS(mf_fail_os(&error, MF_ERR_IO, EIO, "%s", endless), MF_ERR_IO);
    CHECK_U64(strlen(error.message), sizeof error.message - 1);
}

/* A message is UTF-8, whatever a path or a file's strings are, and wherever it had to be cut. */
static void test_messages_are_utf8(void)
{
    static const struct {
        const char *given, *shown;
    } cases[] = {
        {"h\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80", "h\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xf4\x8f\xbf\xbf \xed\x9f\xbf", "\xf4\x8f\xbf\xbf \xed\x9f\xbf"},
        {"h\xe4\xdf", "h??"},
        {"\xff\xfe \xc0\xaf \xc1\xbf \x80", "?? ?? ?? ?"},
        {"\xe0\x9f\xbf \xf0\x8f\xbf\xbf", "??? ????"},
        {"\xed\xa0\x80 \xf4\x90\x80\x80", "??? ????"},
        {"\xe2\x82\xc3\xa4 \xf0\x9f\x98", "??\xc3\xa4 ???"},
    };
    mf_error error;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STATUS(mf_fail(&error, MF_ERR_FORMAT, "%s", cases[i].given), MF_ERR_FORMAT);
        CHECK_STR(error.message, cases[i].shown);
    }
    CHECK_STATUS(mf_fail(&error, MF_ERR_FORMAT, "%.3s is cut", "a\xf0\x9f\x98\x80"), MF_ERR_FORMAT);
    CHECK_STR(error.message, "a?? is cut");
    static char endless[5001];
    for (size_t i = 0; i + 1 < sizeof endless; i++)
        endless[i] = i % 2 == 0 ? '\xc3' : '\xa4';
    CHECK_STATUS(mf_fail_os(&error, MF_ERR_IO, EIO, "%s", endless), MF_ERR_IO);
    CHECK_U64(strlen(error.message), sizeof error.message - 1);
    CHECK_STR(error.message + sizeof error.message - 4, "\xc3\xa4?");
}

int main(void)
{
    test_names();
    test_version();
    test_fail();
    test_fail_os();
    test_fail_at();
    test_fail_memory();
    test_hostile_strings();
    test_messages_are_utf8();
    return test_result();
}
