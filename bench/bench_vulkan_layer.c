/* SPDX-License-Identifier: MIT */
/*
 * What decoding costs a Vulkan device, operation by operation, on the shapes of a mixture of 35B
 * with 3B active (hidden 2048, 40 layers of which each fourth attends, 8 of 256 experts of 512, 4
 * bits with groups of 64): each alone, waiting for the one before it, and beside it without waiting
 * ("free"); the median of several runs of the device's own time; bytes of weights and states a
 * second beside what a plain kernel reads from the same memory; and what it all comes to for a
 * token. Weights and states go round through --mib of memory, so that no cache holds them. Of one
 * token also the operations that have steps before or after their products ("fused"), and whole
 * layers of them in their order.
 *
 *     bench_vulkan_layer [--device vulkan:N] [--mib N] [--repeats N] [--tokens N] [--only TEXTS]
 *         [--form NAME] [--ways LIST] [--slices N] [--rows N] [--barrier N] [--prefetch 1]
 *         [--cache-bytes N] [--order TEXT] [--again 1]
 *
 * --form: of weights, as `info` calls it ("gguf q4_0"), with routers of float32, instead of affine.
 * --tokens: sequences that decode together, one token each. --ways: how products of one token go
 * through their weights, the small ones first: "1:1,4:4,8:2,16:4" are 1, 4, 8, 16 chunks of which
 * 1, 4, 2, 4 are on their way at once; --slices: of keys on their way in attention; --rows: of a
 * team where experts are added. --barrier: the N-th of the list that "barrier" measures, instead of
 * the backend's. --prefetch: in whole layers the next product's weights are read beside each
 * operation, for a cache. --cache-bytes: of a value that attention reads, 2 (bfloat16) or 4.
 * --order: of four layers, "LLLA" if nothing is said: l(inear) ones and those that attend. --again:
 * each layer has the same weights, but for experts. --only: subjects with one of these in their
 * names, '|' between them.
 */
#include "bench_vulkan_layer.h"

#include "bench_median.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPEATS 32u /* of an operation in a run */
#define RUNS 15u
#define MEASURE_MS 100u
/* Before a subject's first, milliseconds: pipelines were made meanwhile. */
#define WARM_TIMES 100u

/* ------------------------------------------------------------------------------------ opening */

/* Which experts each of 32 operations takes, all of them others, and the slot of each expert, which
 * is another in each of them if it is looked up 8 places further on each time. */
static void write_tables(bench *b)
{
    uint32_t tables[3 * N_EXPERTS];
    for (uint32_t i = 0; i < N_EXPERTS; i++) {
        tables[i] = i * 37 % N_EXPERTS;
        tables[N_EXPERTS + i] = tables[2 * N_EXPERTS + i] = (i * 11 + 5) % N_EXPERTS;
    }
    b->tables = bench_gpu_create(&b->gpu, sizeof tables, "tables");
    b->gpu.be->base.ops->write(&b->gpu.be->base, b->tables, tables, sizeof tables);
}

/* What MAX_TOKENS rows choose in each of N_CHOICES operations: each row other experts, evenly. */
static void write_choices(bench *b)
{
    static int32_t ids[N_CHOICES * MAX_TOKENS * N_CHOSEN];
    uint64_t random = 88172645463325252u;
    for (uint32_t row = 0; row < N_CHOICES * MAX_TOKENS; row++) {
        int32_t *own = ids + row * N_CHOSEN;
        for (uint32_t i = 0; i < N_CHOSEN;) {
            bool is_new = true;
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            own[i] = (int32_t)(random >> 20) & (N_EXPERTS - 1);
            for (uint32_t j = 0; j < i; j++)
                is_new = is_new && own[j] != own[i];
            i += is_new;
        }
    }
    b->choices = bench_gpu_create(&b->gpu, sizeof ids, "choices");
    b->gpu.be->base.ops->write(&b->gpu.be->base, b->choices, ids, sizeof ids);
}

static bool is_power(uint32_t n, uint32_t most)
{
    return n != 0 && n <= most && (n & (n - 1)) == 0;
}

static void take_ways(bench *b)
{
    const char *at = b->ways;
    for (uint32_t i = 0; i < MF_VK_N_WAYS && at != NULL; i++) {
        mf_vk_tuning *t = &b->gpu.be->tuning;
        mf_vk_way *way = b->form.kind == MF_WEIGHT_AFFINE ? &t->affine_ways[i] : &t->block_ways[i];
        char *end;
        way->n_chunks = (uint32_t)strtoul(at, &end, 10);
        way->n_ahead = *end == ':' ? (uint32_t)strtoul(end + 1, &end, 10) : 0;
        if (!is_power(way->n_chunks, 32) || !is_power(way->n_ahead, way->n_chunks)) {
            (void)fprintf(stderr, "bench_vulkan_layer: --ways: %s\n", at);
            exit(2);
        }
        at = *end == ',' ? end + 1 : NULL;
    }
}

/* Affine 4 bits, or blocks by the name of their format. */
static bool take_form(bench *b)
{
    b->form =
        (mf_weight_shape){.kind = MF_WEIGHT_AFFINE, .float_type = MF_BF16, .bits = 4, .group = 64};
    if (b->form_name == NULL)
        return true;
    for (uint32_t k = 1; k < MF_WEIGHT_KINDS; k++) {
        const mf_weight_format *f = &mf_weight_formats[k];
        if ((f->decode_block == NULL && k != MF_WEIGHT_MXFP4) || strcmp(f->form, b->form_name) != 0)
            continue;
        b->form = (mf_weight_shape){.kind = (mf_weight_kind)k, .float_type = MF_F32};
        return true;
    }
    return false;
}

static void open_backend(bench *b)
{
    mf_error error = {0};
    const mf_backend_options options = {.device = b->device};
    double fma;
    bench_gpu_open(&b->gpu, &options);
    mf_backend *base = &b->gpu.be->base;
    b->n_bytes = (uint64_t)b->n_mib << 20;
    b->weights = bench_gpu_create(&b->gpu, b->n_bytes, "weights");
    b->x = bench_gpu_create(&b->gpu, OPERANDS * OPERAND_BYTES, "activations");
    bench_gpu_fill(&b->gpu, b->weights, b->n_bytes);
    bench_gpu_fill(&b->gpu, b->x, OPERANDS * OPERAND_BYTES);
    write_tables(b);
    write_choices(b);
    bench_write_norm(b);
    take_ways(b);
    if (b->n_rows != 0)
        b->gpu.be->tuning.team_rows = b->n_rows;
    if (b->n_slices != 0)
        b->gpu.be->tuning.attention_ahead = b->n_slices;
    bench_gpu_check(base->ops->reserve_batch(base, MAX_TOKENS, MAX_PAGES, &error), &error);
    bench_gpu_check(
        base->ops->measure(base, &b->weights, &b->n_bytes, 1, MEASURE_MS, &b->read, &fma, &error),
        &error);
}

/* ----------------------------------------------------------------------------------- measuring */

/* One that does nothing, or that keeps the device busy; the next need not wait for it. */
static void put_dispatch(bench *b, uint32_t n_steps, uint32_t n_groups)
{
    bench_gpu_busy(&b->gpu, bench_operand(b, 7), n_steps, n_groups);
}

static void dispatch(bench *b, uint32_t n_steps, uint32_t n_groups)
{
    put_dispatch(b, n_steps, n_groups);
    if (!b->is_free)
        mf_vk_barrier(b->gpu.be);
}

static void warm(bench *b, uint32_t n_times)
{
    bench_gpu_warm(&b->gpu, bench_operand(b, 7), n_times);
}

static void record(bench *b, const subject *s)
{
    mf_op op;
    if (b->is_free) { /* what is recorded is forgotten, so that nothing conflicts with it */
        b->gpu.be->stream.n_accesses = 0;
        b->gpu.be->stream.accesses_all = false;
    }
    if (s->make == NULL) {
        dispatch(b, 0, 1);
        return;
    }
    s->make(b, s, &op);
    b->gpu.be->base.ops->record(&b->gpu.be->base, &op);
}

/* Microseconds that the device takes for an operation, in one submission of several. */
static double run(bench *b, const subject *s)
{
    b->gpu.be->stream.most_commands = UINT32_MAX;
    if (!mf_vk_begin(b->gpu.be))
        exit(1);
    warm(b, 1);
    bench_gpu_start(&b->gpu);
    for (uint32_t i = 0; i < b->n_repeats; i++)
        record(b, s);
    return bench_gpu_stop(&b->gpu) / 1e3 / b->n_repeats;
}

/* Barriers between dispatches: the stages that wait for each other, and what they see. */
typedef struct barrier {
    const char *name;
    VkPipelineStageFlags2 stages;
    VkAccessFlags2 before, after;
} barrier;

#define COMPUTE VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT
#define COPY VK_PIPELINE_STAGE_2_COPY_BIT
#define STORED VK_ACCESS_2_SHADER_STORAGE_WRITE_BIT
#define LOADED VK_ACCESS_2_SHADER_STORAGE_READ_BIT
#define COPIED (VK_ACCESS_2_TRANSFER_READ_BIT | VK_ACCESS_2_TRANSFER_WRITE_BIT)

static const barrier barriers[] = {
    {"everything", VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, VK_ACCESS_2_MEMORY_WRITE_BIT,
     VK_ACCESS_2_MEMORY_READ_BIT | VK_ACCESS_2_MEMORY_WRITE_BIT},
    {"shaders and copies", COMPUTE | COPY,
     VK_ACCESS_2_SHADER_WRITE_BIT | VK_ACCESS_2_TRANSFER_WRITE_BIT,
     VK_ACCESS_2_SHADER_READ_BIT | VK_ACCESS_2_SHADER_WRITE_BIT | COPIED},
    {"shaders", COMPUTE, VK_ACCESS_2_SHADER_WRITE_BIT,
     VK_ACCESS_2_SHADER_READ_BIT | VK_ACCESS_2_SHADER_WRITE_BIT},
    {"storage and copies", COMPUTE | COPY, STORED | VK_ACCESS_2_TRANSFER_WRITE_BIT,
     LOADED | STORED | COPIED},
    {"storage", COMPUTE, STORED, LOADED | STORED},
    {"storage, written then read", COMPUTE, STORED, LOADED},
    {"order alone", COMPUTE, 0, 0},
};
#define N_BARRIERS (sizeof barriers / sizeof *barriers)

static VkMemoryBarrier2 barrier_of(const barrier *of)
{
    return (VkMemoryBarrier2){.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2,
                              .srcStageMask = of->stages,
                              .srcAccessMask = of->before,
                              .dstStageMask = of->stages,
                              .dstAccessMask = of->after};
}

/* Microseconds from one dispatch to the next that has this between them; NULL: nothing. */
static double run_barrier(bench *b, const barrier *of, uint32_t n_groups)
{
    double us[RUNS];
    for (uint32_t r = 0; r < RUNS; r++) {
        if (!mf_vk_begin(b->gpu.be))
            exit(1);
        bench_gpu_start(&b->gpu);
        for (uint32_t i = 0; i < b->n_repeats; i++) {
            put_dispatch(b, 0, n_groups);
            if (of == NULL)
                continue;
            const VkMemoryBarrier2 memory = barrier_of(of);
            const VkDependencyInfo info = {.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO,
                                           .memoryBarrierCount = 1,
                                           .pMemoryBarriers = &memory};
            b->gpu.be->device.api.CmdPipelineBarrier2(b->gpu.be->stream.commands, &info);
        }
        us[r] = bench_gpu_stop(&b->gpu) / 1e3 / b->n_repeats;
    }
    return bench_median(us, RUNS);
}

static void measure_barriers(bench *b)
{
    if (!bench_gpu_wants(b->only, "barrier"))
        return;
    for (uint32_t n = 1; n <= 1024; n *= 32) {
        printf("a dispatch of %u groups: %.2f us without a barrier", n, run_barrier(b, NULL, n));
        for (size_t i = 0; i < N_BARRIERS; i++)
            printf("; %u %s %.2f", (unsigned)i + 1, barriers[i].name,
                   run_barrier(b, &barriers[i], n));
        putchar('\n');
    }
    (void)fflush(stdout);
}

/* Asked for before layers are measured. */
static bool lacks(bench *b, const subject *s, const mf_op *op)
{
    if (!s->is_whole)
        return false;
    b->has[s->joined] = b->gpu.be->base.ops->supports_op(&b->gpu.be->base, op);
    return !b->has[s->joined];
}

static double free_time(bench *b, const subject *s)
{
    double us[RUNS];
    b->is_free = true;
    for (uint32_t i = 0; i < RUNS; i++)
        us[i] = run(b, s);
    b->is_free = false;
    return bench_median(us, RUNS);
}

static void measure(bench *b, const subject *s)
{
    mf_error error = {0};
    mf_op op;
    double us[RUNS];
    if (!bench_gpu_wants(b->only, s->name))
        return;
    b->n_touched = 0;
    if (s->make != NULL) {
        s->make(b, s, &op);
        if (lacks(b, s, &op))
            return;
        bench_gpu_check(mf_backend_reserve(&b->gpu.be->base, &op, &error), &error);
    }
    bench_begin_batch(b, s);
    warm(b, WARM_TIMES);
    (void)run(b, s); /* what is done once */
    const uint64_t bytes_before = b->gpu.be->weight_bytes, before = b->gpu.be->stream.n_dispatches;
    for (uint32_t i = 0; i < RUNS; i++)
        us[i] = run(b, s);
    const double n = (double)RUNS * b->n_repeats;
    const double bytes =
        (double)(b->gpu.be->weight_bytes - bytes_before) / n + (double)b->n_touched;
    const double n_dispatches = (double)(b->gpu.be->stream.n_dispatches - before) / n;
    const double median = bench_median(us, RUNS);
    printf("%-40s %8.2f us (%.2f ..)", s->name, median, us[0]);
    if (!s->is_whole) /* two of those must not run at once: they use the same memory */
        printf(" free %7.2f", free_time(b, s));
    printf("  %.0f dispatches", n_dispatches);
    if (bytes != 0.0)
        printf("  %8.1f KB %7.1f GB/s %5.1f %%", bytes / 1e3, bytes / median / 1e3,
               100.0 * bytes / median * 1e6 / b->read);
    putchar('\n');
    (void)fflush(stdout);
    b->layers[0] += median * s->in_linear;
    b->layers[1] += median * s->in_full;
    b->ahead += median * s->in_token;
}

static void parse(bench *b, int argc, char **argv)
{
    const bench_gpu_option options[] = {{"--mib", &b->n_mib, NULL},
                                        {"--repeats", &b->n_repeats, NULL},
                                        {"--tokens", &b->n_tokens, NULL},
                                        {"--device", NULL, &b->device},
                                        {"--form", NULL, &b->form_name},
                                        {"--ways", NULL, &b->ways},
                                        {"--rows", &b->n_rows, NULL},
                                        {"--slices", &b->n_slices, NULL},
                                        {"--prefetch", &b->prefetches, NULL},
                                        {"--order", NULL, &b->order},
                                        {"--again", &b->again, NULL},
                                        {"--only", NULL, &b->only},
                                        {"--barrier", &b->barrier, NULL},
                                        {"--cache-bytes", &b->cache_bytes, NULL},
                                        {0}};
    if (bench_gpu_parse(options, argc, argv) && take_form(b) && b->n_mib >= 1024 &&
        b->n_repeats >= 1 && b->n_tokens >= 1 && b->n_tokens <= MAX_TOKENS &&
        b->barrier <= N_BARRIERS && b->n_slices <= 8 && strlen(b->order) == 4 &&
        (b->n_rows == 0 || is_power(b->n_rows, 8)) && (b->cache_bytes == 2 || b->cache_bytes == 4))
        return;
    (void)fprintf(stderr,
                  "usage: bench_vulkan_layer [--device vulkan:N] [--mib N (1024 ..)] "
                  "[--repeats N] [--tokens N (.. %u)] [--only TEXTS] [--form NAME] [--ways LIST] "
                  "[--rows N] [--slices N] [--prefetch 1] [--cache-bytes 2|4] [--order LLLA] "
                  "[--again 1] [--barrier N (.. %u)]\n",
                  MAX_TOKENS, (unsigned)N_BARRIERS);
    exit(2);
}

typedef enum layer { LAYER_LINEAR, LAYER_ATTENDS, LAYERS_FOUR } layer; /* four: as --order says */

/* Operations of which layers are made, in the order in which they have them. */
typedef struct layer_ops {
    const subject *all;
    size_t n;
} layer_ops;

/* The next of the layer's from the i-th on; ops.n: none. */
static size_t next_in_layer(const bench *b, layer_ops ops, layer l, size_t i)
{
    for (; i < ops.n; i++) {
        const subject *s = &ops.all[i];
        const bool is_in = (l == LAYER_ATTENDS ? s->in_full : s->in_linear) != 0;
        if (is_in && b->has[s->joined] == s->is_whole)
            break;
    }
    return i;
}

/* Reads the weights of a product, which lie one after the other; nothing waits for it but what
 * waits for all. */
static void prefetch(bench *b, const mf_op *op)
{
    const mf_vk_kernel kernel = {MF_VK_SHADER_measure_read, 1, {256}};
    const mf_matmul_params *m = &op->u.matmul;
    if (op->kind != MF_OP_MATMUL)
        return;
    const mf_weight *last = &m->weight[m->n - 1];
    const uint32_t i = mf_weight_format_of(&last->shape)->n_arrays - 1;
    const uint64_t begin = mf_vk_address(b->gpu.be, m->weight[0].arrays[0]);
    const uint64_t end =
        mf_vk_address(b->gpu.be, last->arrays[i]) + mf_weight_array_bytes(&last->shape, i);
    const struct {
        uint64_t x, result;
        uint32_t n, unused;
    } push = {begin, mf_vk_address(b->gpu.be, bench_operand(b, 7)), (uint32_t)((end - begin) / 16),
              0};
    if (end <= begin) /* they go round the end of memory */
        return;
    mf_vk_next(b->gpu.be);
    mf_vk_dispatch(b->gpu.be, &kernel, &push, sizeof push,
                   (const uint32_t[]){mf_vk_groups(push.n, 256 * 8), 1, 1});
}

/* One layer. The next operation is made before one is recorded, so that it can be prefetched. */
static void record_layer(bench *b, layer_ops of, layer l)
{
    static mf_op ops[2];
    const uint64_t begin = b->at;
    size_t i = next_in_layer(b, of, l, 0);
    uint32_t which = 0;
    of.all[i].make(b, &of.all[i], &ops[which]);
    while (i < of.n) {
        i = next_in_layer(b, of, l, i + 1);
        if (i < of.n)
            of.all[i].make(b, &of.all[i], &ops[which ^ 1]);
        b->gpu.be->base.ops->record(&b->gpu.be->base, &ops[which]);
        which ^= 1;
        if (i < of.n && b->prefetches != 0)
            prefetch(b, &ops[which]);
    }
    b->at = b->again != 0 ? begin : b->at;
}

/* The j-th of those that are measured as l. */
static layer layer_at(const bench *b, layer l, uint32_t j)
{
    if (l != LAYERS_FOUR)
        return l;
    return b->order[j] == 'A' ? LAYER_ATTENDS : LAYER_LINEAR;
}

/* One layer after the other, each of them waiting for the one before. */
static double run_layers(bench *b, layer_ops ops, layer l)
{
    double us[RUNS];
    for (uint32_t r = 0; r < RUNS; r++) {
        b->gpu.be->stream.most_commands = UINT32_MAX;
        if (!mf_vk_begin(b->gpu.be))
            exit(1);
        warm(b, 1);
        bench_gpu_start(&b->gpu);
        for (uint32_t i = 0; i < b->n_repeats; i++)
            for (uint32_t j = 0; j < (l == LAYERS_FOUR ? 4 : 1); j++)
                record_layer(b, ops, layer_at(b, l, j));
        us[r] = bench_gpu_stop(&b->gpu) / 1e3 / b->n_repeats;
    }
    return bench_median(us, RUNS);
}

/* Each alone in its order, and four; how: of what they are made. */
static void measure_in_order(bench *b, const char *how)
{
    static const subject at = {.name = "", .context = 500};
    static const char *const names[] = {"layer that is linear", "layer that attends", "layers"};
    const layer_ops ops = {fused_subjects, n_fused};
    for (uint32_t l = LAYER_LINEAR; l <= LAYERS_FOUR; l++) {
        const uint64_t n_dispatches = b->gpu.be->stream.n_dispatches;
        const uint64_t n_barriers = b->gpu.be->stream.n_barriers;
        bench_begin_batch(b, &at);
        warm(b, WARM_TIMES);
        const double us = run_layers(b, ops, (layer)l);
        const double n = (double)RUNS * b->n_repeats;
        printf("fused %s%s%s%s, in order: %.2f us, %.1f dispatches, %.1f barriers\n", names[l],
               l == LAYERS_FOUR ? " " : "", l == LAYERS_FOUR ? b->order : "", how, us,
               (double)(b->gpu.be->stream.n_dispatches - n_dispatches) / n,
               (double)(b->gpu.be->stream.n_barriers - n_barriers) / n);
        if (l == LAYERS_FOUR)
            b->fused = us;
        (void)fflush(stdout);
    }
}

static void measure_layers(bench *b)
{
    static const subject at = {.name = "", .context = 500};
    if (!bench_gpu_wants(b->only, "fused layer"))
        return;
    for (size_t i = 0; i < n_fused; i++) { /* those that measure has left out */
        mf_error error = {0};
        mf_op op;
        fused_subjects[i].make(b, &fused_subjects[i], &op);
        if (lacks(b, &fused_subjects[i], &op))
            continue;
        bench_begin_batch(b, &at);
        bench_gpu_check(mf_backend_reserve(&b->gpu.be->base, &op, &error), &error);
    }
    if (b->has[BENCH_ATTEND_ROW]) {
        b->has[BENCH_ATTEND_ROW] = false;
        measure_in_order(b, " by single operations");
        b->has[BENCH_ATTEND_ROW] = true;
    }
    measure_in_order(b, "");
}

/* Before a row what it is made of; nothing where the device has it not as one. */
static void reserve_latent(bench *b, const subject *s)
{
    mf_error error = {0};
    mf_op op;
    s->make(b, s, &op);
    if (lacks(b, s, &op))
        return;
    for (size_t i = 0; op.kind == MF_OP_LATENT_ROW && i < 4; i++) {
        const mf_latent_row_params *p = &op.u.latent_row;
        const mf_op *const parts[] = {p->norm, p->rotate_q, p->rotate_kv, p->attend};
        bench_gpu_check(mf_backend_reserve(&b->gpu.be->base, parts[i], &error), &error);
    }
    bench_gpu_check(mf_backend_reserve(&b->gpu.be->base, &op, &error), &error);
}

/* Operations alone, then layers of them. */
static void measure_latent(bench *b)
{
    static const subject at = {.name = "", .context = 160};
    static const char *const names[] = {"a dense MLP", "experts"}; /* as LAYER_LINEAR, _ATTENDS */
    const layer_ops ops = {latent_subjects, n_latent};
    const bool has_layers = bench_gpu_wants(b->only, "latent layer");
    for (size_t i = 0; i < ops.n; i++)
        if (has_layers || bench_gpu_wants(b->only, ops.all[i].name))
            reserve_latent(b, &ops.all[i]);
    for (size_t i = 0; i < ops.n; i++)
        measure(b, &ops.all[i]);
    for (uint32_t l = LAYER_LINEAR; l <= LAYER_ATTENDS && has_layers; l++) {
        bench_begin_batch(b, &at);
        printf("latent layer with %s, in order: %.2f us\n", names[l], run_layers(b, ops, (layer)l));
        (void)fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    bench b = {.device = "vulkan",
               .n_mib = 2048,
               .n_repeats = REPEATS,
               .n_tokens = 1,
               .cache_bytes = 2,
               .order = "LLLA"};
    parse(&b, argc, argv);
    open_backend(&b);
    printf("%s, %u MiB of weights; a plain kernel reads %.1f GB/s; %u tokens\n",
           b.gpu.be->base.ops->device_name(&b.gpu.be->base), b.n_mib, b.read / 1e9, b.n_tokens);
    measure_barriers(&b);
    if (b.barrier != 0)
        b.gpu.be->stream.barrier = barrier_of(&barriers[b.barrier - 1]);
    if (b.n_tokens == 1) {
        for (size_t i = 0; i < n_fused; i++)
            measure(&b, &fused_subjects[i]);
        measure_layers(&b);
        measure_latent(&b);
        b.layers[0] = b.layers[1] = 0.0; /* those that follow are counted by themselves */
    }
    for (size_t i = 0; i < n_subjects; i++)
        measure(&b, &subjects[i]);
    if (b.n_tokens == 1 && b.fused != 0.0 && b.ahead != 0.0)
        printf("fused: %.3f ms for 40 layers, and %.3f outside: %.1f tokens/s\n",
               10 * b.fused / 1e3, b.ahead / 1e3, 1e6 / (10 * b.fused + b.ahead));
    if (b.only == NULL)
        printf("a linear layer %.1f us, one that attends %.1f us, outside %.1f us: %.3f ms for "
               "30 + 10, %.1f tokens/s, if nothing overlaps\n",
               b.layers[0], b.layers[1], b.ahead,
               (30 * b.layers[0] + 10 * b.layers[1] + b.ahead) / 1e3,
               b.n_tokens * 1e6 / (30 * b.layers[0] + 10 * b.layers[1] + b.ahead));
    bench_gpu_close(&b.gpu);
    return 0;
}
