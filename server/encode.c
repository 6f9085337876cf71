/* SPDX-License-Identifier: MIT */
/* gzip by zlib, in one go: what is sent so is small and made whole. */
#include "encode.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

/* The weight behind a coding's name is 0: ";q=0", "; q=0.000". */
static bool is_unwanted(const char *text)
{
    text += strspn(text, " \t");
    if (*text++ != ';')
        return false;
    text += strspn(text, " \t");
    if (strncasecmp(text, "q=0", 3) != 0)
        return false;
    text += 3;
    return text[strspn(text, ".0 \t")] == '\0' || text[strspn(text, ".0 \t")] == ',';
}

bool mf_srv_takes_gzip(const char *accepted)
{
    static const char separators[] = ", \t";
    while (accepted && *accepted) {
        accepted += strspn(accepted, separators);
        const size_t n = strcspn(accepted, ",; \t");
        if (n == 4 && strncasecmp(accepted, "gzip", 4) == 0)
            return !is_unwanted(accepted + n);
        accepted += strcspn(accepted, ",");
    }
    return false;
}

bool mf_srv_gzip(mf_srv_bytes *bytes)
{
    const int level = 6, gzip_alone = 16, memory_level = 8;
    z_stream z = {0};
    if (bytes->n_bytes > UINT32_MAX / 2 ||
        deflateInit2(&z, level, Z_DEFLATED, MAX_WBITS + gzip_alone, memory_level,
                     Z_DEFAULT_STRATEGY) != Z_OK)
        return false;
    mf_srv_bytes out = {.capacity = deflateBound(&z, bytes->n_bytes)};
    out.data = malloc(out.capacity);
    z.next_in = (unsigned char *)bytes->data;
    z.avail_in = (unsigned)bytes->n_bytes;
    z.next_out = (unsigned char *)out.data;
    z.avail_out = (unsigned)out.capacity;
    const bool is_whole = out.data && deflate(&z, Z_FINISH) == Z_STREAM_END;
    out.n_bytes = z.total_out;
    deflateEnd(&z);
    if (!is_whole) {
        mf_srv_bytes_free(&out);
        return false;
    }
    mf_srv_bytes_free(bytes);
    *bytes = out;
    return true;
}
