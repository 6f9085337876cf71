/* SPDX-License-Identifier: MIT */
/* A product's jobs and their dispatch: those that one kernel takes go together. Which one that is,
 * and that no bits depend on it: vk_product_kernels.c. */
#include "backend/vulkan/vk_product_kernels.h"

#define MOST_TOKEN_GROUPS 64u
/* Of matvec_one.comp: jobs in push constants. */
#define MOST_DIRECT 4u
#define MOST_KEPT 256u /* jobs, of 104 bytes each */

/* --------------------------------------------------------------------------------- bunches -- */

uint64_t mf_vk_product_bytes(uint32_t n_jobs)
{
    return n_jobs * sizeof(mf_vk_job) + 2 * MF_VK_CLASSES * 256;
}

/* What the form's values are to be aligned to for wide loads, less one: as blocks.glsl reads them.
 */
static uint64_t value_mask(mf_weight_kind kind)
{
    switch (kind) {
    case MF_WEIGHT_GGUF_Q4_0:
    case MF_WEIGHT_GGUF_Q4_1:
    case MF_WEIGHT_GGUF_Q5_0:
    case MF_WEIGHT_GGUF_Q5_1:
    case MF_WEIGHT_GGUF_Q8_0:
    case MF_WEIGHT_GGUF_Q6_K:
    case MF_WEIGHT_GGUF_IQ4_NL:
    case MF_WEIGHT_GGUF_MXFP4:
        return 1;
    case MF_WEIGHT_GGUF_IQ4_XS:
        return 7;
    default:
        return 15;
    }
}

/* Whether the form's wide loads may be used: x is read by 16 bytes, and so are most weights. */
static bool is_aligned(const mf_vk_product *p, const mf_vk_job *job)
{
    const uint64_t mask = value_mask(p->shape->kind);
    const bool has_x = p->is_half || ((job->x | (uint64_t)job->x_stride * 4) & 15) == 0;
    return has_x && ((job->weight.values | job->up.values) & mask) == 0;
}

bool mf_vk_job_is_wide(const mf_vk_product *p, const mf_vk_job *job)
{
    const bool is_even = p->routing == NULL || p->routing->slot_bytes % 16 == 0;
    return is_even && mf_vk_has_wide(p->shape) && is_aligned(p, job);
}

/* Whether matrix units may load the job's weights as is best for the form. */
static bool are_units_wide(const mf_vk_product *p, const mf_vk_job *job)
{
    const mf_vk_loads best = mf_vk_best_loads(p->shape);
    const uint64_t scales =
        job->weight.scales | job->weight.biases | job->up.scales | job->up.biases;
    return best != MF_VK_LOADS_NARROW && is_aligned(p, job) &&
           (best != MF_VK_LOADS_SCALES || (scales & 15) == 0);
}

/* A class, and whether loads are wide: jobs that have both in common are dispatched together. */
typedef struct bunch {
    uint32_t n_jobs, most_rows, most_tokens, least_rows;
    uint64_t n_rows;
    uint32_t n_side; /* jobs that workgroups have side by side, then the next; 0: all */
} bunch;

/* n_classes: of matrix units, that may be used. */
static uint32_t bunch_of(const mf_vk_product *p, const mf_vk_job *job, uint32_t n_classes)
{
    if (!p->is_half)
        return 2 * mf_vk_class_of(job->n_tokens) + (mf_vk_has_wide(p->shape) && is_aligned(p, job));
    if (!are_units_wide(p, job))
        return 2 * MF_VK_SLOW_CLASS;
    return 2 * mf_vk_unit_class(job->n_tokens, n_classes) + 1;
}

/* --------------------------------------------------------------------- jobs as constants -- */

/* As in matvec_one.comp: distances from the first job's arrays in units of 4 bytes. */
typedef struct direct {
    uint64_t values;
    int32_t scales, biases, y;
    uint32_t n_rows;
} direct;

typedef struct one_push {
    uint64_t jobs, y, more;
    int32_t x;
    uint32_t sizes;
    direct direct[MOST_DIRECT];
} one_push;

/* Of jobs in memory. */
static one_push push_of(const mf_vk_product *p, uint64_t jobs)
{
    one_push push = {.jobs = jobs, .sizes = p->shape->n_cols << 3};
    if (p->steps != NULL) {
        push.more = p->steps->more;
        push.direct[MOST_DIRECT - 1].values = p->steps->weight;
    }
    return push;
}

/* to - from in units of 4 bytes; false: it is no such number. */
static bool distance(uint64_t from, uint64_t to, int32_t *out)
{
    const int64_t d = (int64_t)(to - from) / 4;
    *out = (int32_t)d;
    return to == 0 || (*out == d && from + (uint64_t)d * 4 == to);
}

static bool put_weight(direct *d, const mf_vk_weight *w)
{
    d->values = w->values;
    return distance(w->values, w->scales, &d->scales) && distance(w->values, w->biases, &d->biases);
}

/* Whether another job could be put into the push constants, and was. */
static bool put_direct(one_push *push, const mf_vk_job *job, bool is_pair)
{
    const uint32_t n = push->sizes & 7;
    direct *d = &push->direct[n];
    int32_t x = 0;
    if (n + (is_pair ? 2 : 1) > MOST_DIRECT || job->rows != 0 || job->first_row != 0)
        return false;
    if (n == 0)
        push->y = job->y;
    if (!distance(push->y, job->x, &x) || (n != 0 && x != push->x))
        return false;
    push->x = x;
    d->n_rows = job->n_rows;
    push->sizes += is_pair ? 2 : 1;
    return put_weight(d, &job->weight) && distance(push->y, job->y, &d->y) &&
           (!is_pair || put_weight(d + 1, &job->up));
}

/* -------------------------------------------------------------------------------- dispatch -- */

/* Its one job stands for all picks: their slots are as far from each other as is wide. */
static void record_routed(mf_vk_backend *be, const mf_vk_product *p)
{
    mf_vk_job job = {0};
    const mf_vk_routing *r = p->routing;
    p->job(p->ctx, 0, &job);
    const bool is_wide = mf_vk_job_is_wide(p, &job);
    const mf_vk_choice c =
        mf_vk_choose_one(be, p, is_wide, (uint64_t)p->n_picks * job.n_rows, job.n_rows);
    one_push push = push_of(p, mf_vk_array(be, &job, sizeof job));
    push.y = job.x;
    push.x = (int32_t)job.x_stride;
    push.direct[0] = (direct){r->ids, (int32_t)r->scales_stride, (int32_t)r->biases_stride,
                              (int32_t)r->per_row, 0};
    push.direct[1].values = r->slot;
    push.direct[2].values = r->slot_bytes;
    mf_vk_dispatch(be, &c.kernel, &push, sizeof push,
                   (const uint32_t[]){mf_vk_groups(job.n_rows, c.n_rows), p->n_picks, 1});
}

/* Where there are no tiles. */
static mf_vk_choice choose(const mf_vk_backend *be, const mf_vk_product *p, uint32_t which,
                           const bunch *b)
{
    const uint32_t class = which / 2;
    const bool is_wide = which % 2 != 0;
    if (p->is_half)
        return mf_vk_choose_units(be, p, class, is_wide);
    return mf_vk_choose_several(be, p, class, is_wide, b->most_tokens, b->n_rows);
}

static void dispatch_bunch(mf_vk_backend *be, const mf_vk_product *p, uint32_t which,
                           const bunch *b, uint64_t jobs)
{
    const uint32_t n_cols = p->shape->n_cols;
    const bool is_wide = which % 2 != 0;
    const struct {
        uint64_t jobs;
        uint32_t n_cols, n; /* of matrix units padded columns, else jobs */
    } push = {jobs, n_cols, p->is_half ? mf_vk_halves_padded(n_cols) : b->n_jobs};
    const mf_vk_product_tile *tile =
        is_wide && !p->is_half ? mf_vk_product_tile_of(be, p, b->most_tokens, b->n_rows) : NULL;
    uint32_t groups[3] = {0, b->n_side != 0 ? b->n_side : b->n_jobs, 0};
    mf_vk_kernel k;
    if (tile != NULL) {
        k = mf_vk_product_tile_kernel(tile, p->shape);
        groups[2] = mf_vk_groups(b->most_tokens, tile->n_tokens);
        groups[0] = mf_vk_product_tile_groups(be, tile, b->most_rows,
                                              b->n_side != 0 ? 0 : b->n_rows * groups[2]);
    } else {
        const mf_vk_choice c = choose(be, p, which, b);
        k = c.kernel;
        groups[0] = mf_vk_groups(b->most_rows, c.n_rows);
        groups[2] = mf_vk_groups(b->most_tokens, c.n_tokens);
    }
    if (!p->is_half && groups[2] > MOST_TOKEN_GROUPS)
        groups[2] = MOST_TOKEN_GROUPS;
    if (b->n_side != 0 && groups[2] > 1)
        groups[2] = 2; /* experts of more rows are few */
    mf_vk_dispatch(be, &k, &push, sizeof push, groups);
}

/* The jobs of a bunch to where shaders read them; 0: lost. */
static uint64_t put_jobs(mf_vk_backend *be, const mf_vk_product *p, uint32_t n_classes,
                         uint32_t which, const bunch *b)
{
    uint64_t address = 0;
    mf_vk_job *jobs = mf_vk_parameters(be, b->n_jobs * sizeof *jobs, &address);
    for (uint32_t i = 0; i < p->n_jobs && jobs != NULL; i++) {
        mf_vk_job job = {0};
        p->job(p->ctx, i, &job);
        if (bunch_of(p, &job, n_classes) == which)
            *jobs++ = job;
    }
    return address;
}

/* Jobs of a token each, a workgroup's y each. */
static void dispatch_ones(mf_vk_backend *be, const mf_vk_product *p, bool is_wide, const bunch *b,
                          uint64_t jobs)
{
    mf_vk_product made = *p;
    made.routing = NULL; /* jobs that the device made of picks are jobs as any */
    const mf_vk_choice c = mf_vk_choose_one(be, &made, is_wide, b->n_rows, b->least_rows);
    const one_push push = push_of(p, jobs);
    mf_vk_dispatch(be, &c.kernel, &push, sizeof push,
                   (const uint32_t[]){mf_vk_groups(b->most_rows, c.n_rows), b->n_jobs, 1});
}

/* Jobs of a token each. */
static void record_ones(mf_vk_backend *be, const mf_vk_product *p, uint32_t which, const bunch *b)
{
    const bool is_wide = which % 2 != 0;
    const mf_vk_choice c = mf_vk_choose_one(be, p, is_wide, b->n_rows, b->least_rows);
    if (p->preparing != NULL) {
        if (p->preparing->status == MF_OK)
            p->preparing->status = mf_vk_prepare(be, &c.kernel, p->preparing->error);
        return;
    }
    one_push push = {.sizes = p->shape->n_cols << 3};
    uint32_t groups[3] = {0, 1, 1};
    bool is_direct = true;
    for (uint32_t i = 0; i < p->n_jobs && is_direct; i++) {
        mf_vk_job job = {0};
        p->job(p->ctx, i, &job);
        if (bunch_of(p, &job, 1) != which)
            continue;
        is_direct = job.n_tokens == 1 && put_direct(&push, &job, p->is_pair);
        groups[0] += mf_vk_groups(job.n_rows, c.n_rows);
    }
    if (!is_direct || groups[0] > MF_VK_MOST_GROUPS) {
        dispatch_ones(be, p, is_wide, b, put_jobs(be, p, 1, which, b));
        return;
    }
    if (p->steps != NULL) {
        push.jobs = p->steps->weight;
        push.more = p->steps->more;
    }
    mf_vk_dispatch(be, &c.kernel, &push, sizeof push, groups);
}

void mf_vk_product_record_made(mf_vk_backend *be, const mf_vk_product *p, const mf_vk_made *made)
{
    mf_vk_job job = {0};
    p->job(p->ctx, 0, &job);
    const bool is_wide = mf_vk_job_is_wide(p, &job);
    for (uint32_t class = 0; class < MF_VK_MADE_CLASSES; class ++) {
        const uint32_t n = mf_vk_made_most(made->n_picks, class);
        const uint32_t most = class + 1 < MF_VK_MADE_CLASSES ? 1u << class : made->most_tokens;
        /* Nobody knows how many there are, and each workgroup that finds none has its place, of
         * which kernels that need much have few, for as long as it takes to look. */
        const uint32_t n_side = made->n_picks >> (class + 1) > 0 ? made->n_picks >> (class + 1) : 1;
        const bunch b = {.n_jobs = n,
                         .most_rows = job.n_rows,
                         .most_tokens = most,
                         .least_rows = job.n_rows,
                         .n_rows = (uint64_t)n * job.n_rows,
                         .n_side = n_side < n ? n_side : n};
        const uint64_t jobs = made->jobs + (uint64_t) class * made->n_picks * sizeof job;
        if (n == 0 || class > mf_vk_class_of(made->most_tokens))
            continue;
        if (class == 0)
            dispatch_ones(be, p, is_wide, &b, jobs);
        else
            dispatch_bunch(be, p, 2 * class + is_wide, &b, jobs);
    }
}

static void record_bunch(mf_vk_backend *be, const mf_vk_product *p, uint32_t n_classes,
                         uint32_t which, const bunch *b)
{
    if (which / 2 == 0 && !p->is_half) {
        record_ones(be, p, which, b);
        return;
    }
    const uint64_t jobs = put_jobs(be, p, n_classes, which, b);
    if (jobs != 0)
        dispatch_bunch(be, p, which, b, jobs);
}

/* Large tiles only as long as there are workgroups enough for a large device. */
static uint32_t usable_classes(const mf_vk_backend *be, const mf_vk_product *p)
{
    uint32_t n = p->is_half ? mf_vk_unit_classes(be) : 1;
    for (uint64_t n_groups = 0; n > 1; n--, n_groups = 0) {
        for (uint32_t i = 0; i < p->n_jobs && n_groups < be->tuning.unit_groups; i++) {
            mf_vk_job job = {0};
            p->job(p->ctx, i, &job);
            const uint32_t class = mf_vk_unit_class(job.n_tokens, n);
            n_groups += (uint64_t)mf_vk_groups(job.n_rows, mf_vk_unit_rows(p)) *
                        mf_vk_groups(job.n_tokens, mf_vk_unit_tokens(class));
        }
        if (n_groups >= be->tuning.unit_groups)
            break;
    }
    return n;
}

static void record_all(mf_vk_backend *be, const mf_vk_product *p)
{
    bunch bunches[2 * MF_VK_CLASSES] = {{0}};
    const uint32_t n_classes = usable_classes(be, p);
    for (uint32_t i = 0; i < p->n_jobs; i++) {
        mf_vk_job job = {0};
        p->job(p->ctx, i, &job);
        bunch *b = &bunches[bunch_of(p, &job, n_classes)];
        b->least_rows = b->n_jobs++ == 0 || job.n_rows < b->least_rows ? job.n_rows : b->least_rows;
        b->n_rows += job.n_rows;
        b->most_rows = job.n_rows > b->most_rows ? job.n_rows : b->most_rows;
        b->most_tokens = job.n_tokens > b->most_tokens ? job.n_tokens : b->most_tokens;
    }
    for (uint32_t which = 0; which < 2 * MF_VK_CLASSES; which++)
        if (bunches[which].n_jobs != 0)
            record_bunch(be, p, n_classes, which, &bunches[which]);
}

static void kept_job(void *ctx, uint32_t i, mf_vk_job *out)
{
    *out = ((const mf_vk_job *)ctx)[i];
}

/* Jobs are looked at some ten times: those of a prompt's experts are many, and made once. */
void mf_vk_product_record(mf_vk_backend *be, const mf_vk_product *p)
{
    mf_vk_job jobs[MOST_KEPT];
    mf_vk_product kept = *p;
    if (p->routing != NULL) {
        record_routed(be, p);
        return;
    }
    if (p->n_jobs > MOST_KEPT) {
        record_all(be, p);
        return;
    }
    for (uint32_t i = 0; i < p->n_jobs; i++) {
        jobs[i] = (mf_vk_job){0};
        p->job(p->ctx, i, &jobs[i]);
    }
    kept.job = kept_job;
    kept.ctx = jobs;
    record_all(be, &kept);
}
