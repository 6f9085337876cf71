/* SPDX-License-Identifier: MIT */
#include "guides.h"

#include "digest.h"
#include "random.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct kept_guide {
    mf_srv_digest digest;
    mf_guide *guide; /* NULL: free */
    char opening[256];
    uint64_t used;
} kept_guide;

struct mf_srv_guides {
    pthread_mutex_t lock;
    mf_srv_digest_key key;
    uint64_t n_uses;
    kept_guide kept[MF_SRV_GUIDES];
};

mf_srv_guides *mf_srv_guides_new(void)
{
    mf_srv_guides *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    mf_srv_random(&g->key, sizeof g->key);
    pthread_mutex_init(&g->lock, NULL);
    return g;
}

void mf_srv_guides_free(mf_srv_guides **guides)
{
    mf_srv_guides *g = *guides;
    if (!g)
        return;
    for (size_t i = 0; i < MF_SRV_GUIDES; i++)
        mf_guide_free(&g->kept[i].guide);
    pthread_mutex_destroy(&g->lock);
    free(g);
    *guides = NULL;
}

static kept_guide *find(mf_srv_guides *g, const mf_srv_digest *digest)
{
    for (size_t i = 0; i < MF_SRV_GUIDES; i++)
        if (g->kept[i].guide && mf_srv_digest_is(&g->kept[i].digest, digest))
            return &g->kept[i];
    return NULL;
}

/* A free one, or the one used longest ago. */
static kept_guide *find_place(mf_srv_guides *g)
{
    kept_guide *oldest = &g->kept[0];
    for (size_t i = 1; i < MF_SRV_GUIDES; i++)
        if (g->kept[i].used < oldest->used)
            oldest = &g->kept[i];
    return oldest;
}

mf_guide *mf_srv_guides_find(mf_srv_guides *g, const mf_srv_bytes *text, char *opening)
{
    mf_guide *guide = NULL;
    if (!g || text->has_failed)
        return NULL;
    const mf_srv_digest digest = mf_srv_digest_of(&g->key, text->data, text->n_bytes);
    pthread_mutex_lock(&g->lock);
    kept_guide *kept = find(g, &digest);
    if (kept && mf_guide_clone(kept->guide, &guide, NULL) == MF_OK) {
        kept->used = ++g->n_uses;
        memcpy(opening, kept->opening, sizeof kept->opening);
    }
    pthread_mutex_unlock(&g->lock);
    return guide;
}

void mf_srv_guides_put(mf_srv_guides *g, const mf_srv_bytes *text, const mf_guide *guide,
                       const char *opening)
{
    mf_guide *copy = NULL;
    if (!g || text->has_failed || mf_guide_clone(guide, &copy, NULL) != MF_OK)
        return;
    const mf_srv_digest digest = mf_srv_digest_of(&g->key, text->data, text->n_bytes);
    pthread_mutex_lock(&g->lock);
    kept_guide *kept = find(g, &digest);
    kept = kept ? kept : find_place(g);
    mf_guide *dropped = kept->guide;
    *kept = (kept_guide){.digest = digest, .guide = copy, .used = ++g->n_uses};
    memcpy(kept->opening, opening, sizeof kept->opening);
    pthread_mutex_unlock(&g->lock);
    mf_guide_free(&dropped);
}
