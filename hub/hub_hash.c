/* SPDX-License-Identifier: MIT */
/* Hashes through OpenSSL's libcrypto, which uses what the CPU has for them. */
#include "hub_hash.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mf_hub_hash {
    EVP_MD_CTX *context;
};

void mf_hub_hash_free(mf_hub_hash *hash)
{
    if (hash)
        EVP_MD_CTX_free(hash->context);
    free(hash);
}

mf_hub_hash *mf_hub_hash_begin(const mf_hub_file *file)
{
    char header[40];
    const bool is_git = strlen(file->blob) == 40;
    mf_hub_hash *hash = calloc(1, sizeof *hash);
    if (!hash)
        return NULL;
    hash->context = EVP_MD_CTX_new();
    bool good = hash->context &&
                EVP_DigestInit_ex(hash->context, is_git ? EVP_sha1() : EVP_sha256(), NULL) == 1;
    if (good && is_git) {
        const int n =
            snprintf(header, sizeof header, "blob %llu", (unsigned long long)file->n_bytes);
        good = mf_hub_hash_take(hash, header, (size_t)n + 1); /* its NUL as well */
    }
    if (good)
        return hash;
    mf_hub_hash_free(hash);
    return NULL;
}

bool mf_hub_hash_take(mf_hub_hash *hash, const void *data, size_t n_bytes)
{
    return EVP_DigestUpdate(hash->context, data, n_bytes) == 1;
}

bool mf_hub_hash_end(mf_hub_hash *hash, const mf_hub_file *file, char digits[65])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int n = 0;
    digits[0] = '\0';
    const bool good = EVP_DigestFinal_ex(hash->context, digest, &n) == 1;
    for (unsigned int i = 0; good && i < n && i < 32; i++)
        snprintf(digits + 2 * i, 3, "%02x", digest[i]);
    mf_hub_hash_free(hash);
    return good && strcmp(digits, file->blob) == 0;
}

bool mf_hub_hash_fits(const mf_hub_file *file, const void *data, size_t n_bytes)
{
    char digits[65];
    mf_hub_hash *hash = mf_hub_hash_begin(file);
    if (!hash)
        return false;
    if (n_bytes == file->n_bytes && mf_hub_hash_take(hash, data, n_bytes))
        return mf_hub_hash_end(hash, file, digits);
    mf_hub_hash_free(hash);
    return false;
}
