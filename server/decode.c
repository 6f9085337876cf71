/* SPDX-License-Identifier: MIT */
/* gzip by zlib, zstd by libzstd; both piece by piece, so that no bomb takes more than the limit. */
#include "decode.h"

#include <string.h>
#include <strings.h>
#include <zlib.h>
#include <zstd.h>

#define PIECE_BYTES ((size_t)32 << 10)
/* A frame may want so much behind it, whatever it says: 8 MiB, as zstd's own command. */
#define MAX_WINDOW_LOG 23

typedef enum outcome { IS_WHOLE, IS_BROKEN, IS_TOO_LARGE } outcome;

static bool is_gzip(const char *coding)
{
    return strcasecmp(coding, "gzip") == 0 || strcasecmp(coding, "x-gzip") == 0;
}

bool mf_srv_knows_coding(const char *coding)
{
    return !coding || strcasecmp(coding, "identity") == 0 || is_gzip(coding) ||
           strcasecmp(coding, "zstd") == 0;
}

static outcome inflate_all(z_stream *z, size_t max_bytes, mf_srv_bytes *out)
{
    unsigned char piece[PIECE_BYTES];
    int status = Z_OK;
    while (status == Z_OK) {
        z->next_out = piece;
        z->avail_out = sizeof piece;
        status = inflate(z, Z_NO_FLUSH);
        const size_t n = sizeof piece - z->avail_out;
        if (n > max_bytes - out->n_bytes)
            return IS_TOO_LARGE;
        mf_srv_put(out, (const char *)piece, n);
        if (status == Z_OK && n == 0 && z->avail_in == 0)
            return IS_BROKEN; /* it ends before its end */
    }
    return status == Z_STREAM_END && z->avail_in == 0 ? IS_WHOLE : IS_BROKEN;
}

static outcome decode_gzip(const mf_srv_bytes *in, size_t max_bytes, mf_srv_bytes *out)
{
    const int gzip_alone = 16;
    z_stream z = {0};
    if (in->n_bytes > UINT32_MAX || inflateInit2(&z, MAX_WBITS + gzip_alone) != Z_OK)
        return IS_BROKEN;
    z.next_in = (unsigned char *)in->data;
    z.avail_in = (unsigned)in->n_bytes;
    outcome result = inflate_all(&z, max_bytes, out);
    inflateEnd(&z);
    return result;
}

static outcome decode_zstd(const mf_srv_bytes *in, size_t max_bytes, mf_srv_bytes *out)
{
    char piece[PIECE_BYTES];
    ZSTD_inBuffer from = {in->data, in->n_bytes, 0};
    ZSTD_DStream *z = ZSTD_createDStream();
    outcome result = IS_BROKEN;
    size_t left = 1;
    if (!z || ZSTD_isError(ZSTD_DCtx_setParameter(z, ZSTD_d_windowLogMax, MAX_WINDOW_LOG))) {
        ZSTD_freeDStream(z);
        return IS_BROKEN;
    }
    for (;;) {
        ZSTD_outBuffer to = {piece, sizeof piece, 0};
        const size_t n_before = from.pos;
        left = ZSTD_decompressStream(z, &to, &from);
        if (ZSTD_isError(left))
            break;
        if (to.pos > max_bytes - out->n_bytes) {
            result = IS_TOO_LARGE;
            break;
        }
        mf_srv_put(out, piece, to.pos);
        if (to.pos == 0 && from.pos == n_before) {
            result = left == 0 && from.pos == from.size ? IS_WHOLE : IS_BROKEN;
            break;
        }
        if (left == 0 && from.pos == from.size) {
            result = IS_WHOLE;
            break;
        }
    }
    ZSTD_freeDStream(z);
    return result;
}

bool mf_srv_decode(const char *coding, mf_srv_bytes *body, size_t max_bytes, mf_srv_refusal *r)
{
    mf_srv_bytes out = {0};
    if (!coding || strcasecmp(coding, "identity") == 0)
        return true;
    outcome result =
        is_gzip(coding) ? decode_gzip(body, max_bytes, &out) : decode_zstd(body, max_bytes, &out);
    mf_srv_put(&out, "", 0);
    if (result == IS_WHOLE) {
        mf_srv_bytes_free(body);
        *body = out;
        return true;
    }
    mf_srv_bytes_free(&out);
    if (result == IS_TOO_LARGE)
        return mf_srv_refuse(r, 413, "the body is larger than %zu bytes after decoding", max_bytes);
    return mf_srv_refuse(r, 400, "the body is not valid %s", is_gzip(coding) ? "gzip" : "zstd");
}
