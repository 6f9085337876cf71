/* SPDX-License-Identifier: MIT */
/*
 * Barriers of the Vulkan stream, seen between the backend and the driver: there is one before every
 * command that touches what a command since the last barrier wrote, or writes what one read, and
 * none before any other. A software device runs commands one after the other and would hide it. The
 * same for words that leave operations undone, which a software device reads at each command.
 */
#include "backend/vulkan/vk_internal.h"
#include "test.h"
#include "vulkan_open.h"

#define N_BUFFERS 3u
#define N_ROWS 24u
#define N_COLS 64u
#define ROW_BYTES ((uint64_t)N_COLS * sizeof(float))
#define MOST_SPANS 512u

/* The driver's functions, and what went through them. */
static mf_vk_api driver;
static unsigned n_barriers, n_commands, n_wrong;
/* Words: the one that commands are under (its offset + 1; 0: none), how often that began, and
 * whether there was a barrier for them since one was written. */
static uint64_t under;
static unsigned n_begun, n_ended; /* of conditions; of submissions */
static bool is_seen, is_finding;  /* dispatches write a word */

static void count_barrier(VkCommandBuffer commands, const VkDependencyInfo *info)
{
    const VkMemoryBarrier2 *b = info->pMemoryBarriers;
    if (b->dstStageMask != VK_PIPELINE_STAGE_2_HOST_BIT) { /* those end a submission */
        const VkPipelineStageFlags2 stages =
            VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_2_COPY_BIT;
        const VkAccessFlags2 writes = VK_ACCESS_2_SHADER_WRITE_BIT | VK_ACCESS_2_TRANSFER_WRITE_BIT;
        n_barriers++;
        is_seen |= (b->dstStageMask & VK_PIPELINE_STAGE_2_CONDITIONAL_RENDERING_BIT_EXT) != 0 &&
                   (b->dstAccessMask & VK_ACCESS_2_CONDITIONAL_RENDERING_READ_BIT_EXT) != 0;
        n_wrong += (b->srcStageMask & stages) != stages || (b->dstStageMask & stages) != stages ||
                   (b->srcAccessMask & writes) != writes || (b->dstAccessMask & writes) != writes;
    }
    driver.CmdPipelineBarrier2(commands, info);
}

static void count_dispatch(VkCommandBuffer commands, uint32_t x, uint32_t y, uint32_t z)
{
    n_commands++;
    is_seen = is_seen && !is_finding;
    driver.CmdDispatch(commands, x, y, z);
}

static void count_copy(VkCommandBuffer commands, VkBuffer from, VkBuffer to, uint32_t n,
                       const VkBufferCopy *regions)
{
    n_commands++;
    is_seen = false;
    driver.CmdCopyBuffer(commands, from, to, n, regions);
}

static void begin_condition(VkCommandBuffer commands,
                            const VkConditionalRenderingBeginInfoEXT *info)
{
    n_wrong += under != 0 || !is_seen;
    under = info->offset + 1;
    n_begun++;
    driver.CmdBeginConditionalRenderingEXT(commands, info);
}

static void end_condition(VkCommandBuffer commands)
{
    n_wrong += under == 0;
    under = 0;
    driver.CmdEndConditionalRenderingEXT(commands);
}

static VkResult end_commands(VkCommandBuffer commands)
{
    n_wrong += under != 0;
    n_ended++;
    return driver.EndCommandBuffer(commands);
}

static void stand_between(void *ctx, mf_vk_api *api)
{
    (void)ctx;
    driver = *api;
    api->CmdPipelineBarrier2 = count_barrier;
    api->CmdDispatch = count_dispatch;
    api->CmdCopyBuffer = count_copy;
    api->CmdBeginConditionalRenderingEXT = begin_condition;
    api->CmdEndConditionalRenderingEXT = end_condition;
    api->EndCommandBuffer = end_commands;
}

/* ------------------------------------------------------------------------- what is expected -- */

typedef struct range {
    uint64_t begin, end;
    uint32_t buffer;
    bool is_write;
} range;

typedef struct play {
    mf_backend *be;
    mf_buffer buffers[N_BUFFERS];
    uint64_t random;
    range since[MOST_SPANS]; /* touched since the last barrier */
    uint32_t n_since;
    range now[MOST_SPANS]; /* by the call at hand */
    uint32_t n_now;
    unsigned n_expected, n_free; /* barriers; calls without one though there was work */
} play;

static uint32_t pick(play *p, uint32_t n)
{
    return (uint32_t)(test_random(&p->random) >> 33) % n;
}

static void note(void *ctx, mf_span span, uint64_t n_bytes, uint32_t access)
{
    play *p = ctx;
    REQUIRE(p->n_now < MOST_SPANS);
    p->now[p->n_now++] =
        (range){span.offset, span.offset + n_bytes, span.buffer.id, (access & ~MF_READS) != 0};
}

static bool must_wait(const play *p)
{
    for (uint32_t i = 0; i < p->n_now; i++)
        for (uint32_t j = 0; j < p->n_since; j++) {
            const range *a = &p->now[i], *b = &p->since[j];
            if (a->buffer == b->buffer && (a->is_write || b->is_write) && a->begin < b->end &&
                b->begin < a->end)
                return true;
        }
    return false;
}

/* After the call: one barrier if it had to be, and none else. */
static void check_call(play *p, const char *what, unsigned n_before, unsigned n_commands_before)
{
    const bool waits = must_wait(p);
    CHECK_MSG(n_commands == n_commands_before + 1, "%s: %u commands", what,
              n_commands - n_commands_before);
    CHECK_MSG(n_barriers - n_before == (waits ? 1u : 0u), "%s: %u barriers, expected %d", what,
              n_barriers - n_before, waits);
    p->n_expected += waits;
    p->n_free += !waits && p->n_since > 0;
    if (waits)
        p->n_since = 0;
    for (uint32_t i = 0; i < p->n_now; i++) {
        REQUIRE(p->n_since < MOST_SPANS);
        p->since[p->n_since++] = p->now[i];
    }
    p->n_now = 0;
}

static mf_span row(play *p, uint32_t n_rows)
{
    return (mf_span){p->buffers[pick(p, N_BUFFERS)], pick(p, N_ROWS - n_rows + 1) * ROW_BYTES};
}

static void do_op(play *p)
{
    const uint32_t n_rows = 1 + pick(p, 3), rows[3] = {pick(p, 4), pick(p, 4), pick(p, 4)};
    mf_op op = {.kind = MF_OP_ADD, .n_rows = n_rows};
    const unsigned before = n_barriers, commands = n_commands;
    if (pick(p, 3) == 0) {
        op.kind = MF_OP_COPY_ROWS;
        op.u.copy_rows = (mf_copy_rows_params){
            .x = row(p, 4), .out = row(p, n_rows), .rows = rows, .n_cols = N_COLS};
    } else if (pick(p, 2) == 0) {
        op.kind = MF_OP_SWIGLU;
        op.u.swiglu = (mf_swiglu_params){
            .gate = row(p, n_rows), .up = row(p, n_rows), .out = row(p, n_rows), .n_cols = N_COLS};
    } else {
        op.u.add = (mf_add_params){.x = row(p, n_rows), .y = row(p, n_rows), .n_cols = N_COLS};
    }
    mf_op_spans(&op, NULL, 0, note, p);
    p->be->ops->record(p->be, &op);
    check_call(p, mf_op_name(op.kind), before, commands);
}

static void do_copy(play *p)
{
    const mf_span to = row(p, 1), from = row(p, 1);
    const unsigned before = n_barriers, commands = n_commands;
    if (to.buffer.id == from.buffer.id && to.offset == from.offset)
        return;
    note(p, to, ROW_BYTES, MF_WRITES);
    note(p, from, ROW_BYTES, MF_READS);
    p->be->ops->copy(p->be, to, from, ROW_BYTES);
    check_call(p, "copy", before, commands);
}

static void do_write(play *p)
{
    const float values[N_COLS] = {1.0f};
    const mf_span to = row(p, 1);
    const unsigned before = n_barriers, commands = n_commands;
    note(p, to, ROW_BYTES, MF_WRITES);
    p->be->ops->write(p->be, to, values, ROW_BYTES);
    check_call(p, "write", before, commands);
}

static void do_read(play *p)
{
    static float values[N_COLS];
    const mf_span from = row(p, 1);
    const unsigned before = n_barriers, commands = n_commands;
    note(p, from, ROW_BYTES, MF_READS);
    p->be->ops->read(p->be, from, values, ROW_BYTES);
    check_call(p, "read", before, commands);
}

static void check_random_calls(mf_backend *be)
{
    static void (*const calls[])(play *) = {do_op, do_op, do_op, do_copy, do_write, do_read};
    play p = {.be = be, .random = 5};
    mf_error error = {0};
    const mf_op kinds[] = {{.kind = MF_OP_ADD, .n_rows = 4},
                           {.kind = MF_OP_COPY_ROWS, .n_rows = 4},
                           {.kind = MF_OP_SWIGLU, .n_rows = 4}};
    for (int i = 0; i < 3; i++)
        REQUIRE_OK(mf_backend_reserve(be, &kinds[i], &error), &error);
    for (uint32_t i = 0; i < N_BUFFERS; i++)
        REQUIRE_OK(be->ops->buffer_create(be, N_ROWS * ROW_BYTES, MF_USE_DEVICE, "rows",
                                          &p.buffers[i], &error),
                   &error);
    for (int i = 0; i < 4000; i++) {
        calls[pick(&p, sizeof calls / sizeof *calls)](&p);
        if (pick(&p, 50) == 0) /* the next submission is ordered after this one all the same */
            REQUIRE_OK(mf_backend_finish(be, &error), &error);
    }
    REQUIRE_OK(mf_backend_finish(be, &error), &error);
    CHECK(p.n_expected > 500 && p.n_free > 500 && n_wrong == 0);
}

/* ------------------------------------------------------- operations of several dispatches -- */

static void begin_touching(mf_vk_backend *be, mf_span span, uint32_t access)
{
    mf_vk_next(be);
    mf_vk_touch(be, span, 4096, access);
    mf_vk_settle(be);
}

/* What an operation touches is remembered beyond the barriers within it, and its own dispatches do
 * not wait for each other but where it says so. */
static void check_steps(mf_vk_backend *be, mf_buffer buffer)
{
    const mf_span x = {buffer, 0}, y = {buffer, 8192};
    REQUIRE(mf_vk_begin(be));
    mf_vk_barrier(be);
    unsigned n = n_barriers;
    begin_touching(be, x, MF_READS | MF_WRITES);
    mf_vk_settle(be);
    CHECK_U64(n_barriers - n, 0);
    mf_vk_step(be);
    CHECK_U64(n_barriers - n, 1);
    mf_vk_touch(be, y, 4096, MF_WRITES); /* scratch that it takes later */
    mf_vk_settle(be);
    CHECK_U64(n_barriers - n, 1);
    begin_touching(be, x, MF_READS);
    CHECK_U64(n_barriers - n, 2);
    begin_touching(be, y, MF_READS); /* the barrier before was for all */
    begin_touching(be, x, MF_READS);
    CHECK_U64(n_barriers - n, 2);
    begin_touching(be, y, MF_WRITES);
    CHECK_U64(n_barriers - n, 3);
    mf_vk_next(be);
}

/* More spans than are kept apart are told from others by their buffer. */
static void check_many_touches(mf_vk_backend *be, const mf_buffer *buffers)
{
    mf_vk_barrier(be);
    unsigned n = n_barriers;
    mf_vk_next(be);
    for (uint32_t i = 0; i < 500; i++) /* a page in two */
        mf_vk_touch(be, (mf_span){buffers[0], (uint64_t)i * 128}, 64, MF_READS);
    mf_vk_settle(be);
    CHECK_U64(n_barriers - n, 0);
    begin_touching(be, (mf_span){buffers[1], 0}, MF_WRITES);
    CHECK_U64(n_barriers - n, 0);
    mf_vk_next(be);
    mf_vk_touch(be, (mf_span){buffers[0], (uint64_t)499 * 128}, 64, MF_WRITES);
    mf_vk_settle(be);
    CHECK_U64(n_barriers - n, 1);
    mf_vk_next(be);
}

/* Many independent operations: the list of what they touch is full some time, which is no reason
 * to forget any of it. */
static void check_full_list(mf_vk_backend *be, mf_buffer buffer)
{
    mf_vk_barrier(be);
    unsigned n = n_barriers, n_more = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        mf_vk_next(be);
        mf_vk_touch(be, (mf_span){buffer, (uint64_t)i * 8}, 4, MF_WRITES);
        mf_vk_settle(be);
    }
    n_more = n_barriers - n;
    CHECK(n_more >= 2 && n_more < 20);
    mf_vk_next(be);
    mf_vk_touch(be, (mf_span){buffer, 999 * 8}, 4, MF_READS);
    mf_vk_settle(be);
    CHECK_U64(n_barriers - n, n_more + 1);
    mf_vk_next(be);
}

static mf_op add_of(mf_buffer buffer, mf_span when)
{
    return (mf_op){.kind = MF_OP_ADD,
                   .n_rows = 1,
                   .when = when,
                   .u.add = {.x = {buffer, 0}, .y = {buffer, ROW_BYTES}, .n_cols = N_COLS}};
}

/* Operations under words that are written in between, or not. */
static void check_words(mf_backend *be, mf_buffer buffer)
{
    play p = {.be = be, .random = 9};
    const mf_span words = {buffer, 4096};
    mf_op op = add_of(buffer, words);
    mf_error error = {0};
    unsigned n_alike = 0, last_ended = n_ended;
    uint64_t last = 0; /* what the operation before was under; 0 also where a submission begins */
    bool was_written[2] = {true, true};
    if (!be->ops->supports_op(be, &op))
        return;
    n_wrong = n_begun = 0;
    for (int i = 0; i < 600; i++) {
        const uint32_t at = pick(&p, 3), value = pick(&p, 2);
        if (at < 2 && (pick(&p, 2) == 0 || i < 2)) {
            be->ops->write(be, mf_span_at(words, at * 4), &value, sizeof value);
            was_written[at] = true;
        }
        op.when = at < 2 ? mf_span_at(words, at * 4) : (mf_span){{0}, 0};
        const unsigned begun = n_begun, barriers = n_barriers, ended = n_ended;
        be->ops->record(be, &op);
        if (n_ended == ended)
            CHECK_U64(under, at < 2 ? op.when.offset + 1 : 0);
        if (n_ended == last_ended && at < 2 && last == under && !was_written[at]) {
            CHECK_U64(n_begun, begun);           /* it goes on */
            CHECK_U64(n_barriers - barriers, 1); /* x was written */
            n_alike++;
        } else if (at < 2 && (last != op.when.offset + 1 || was_written[at])) {
            CHECK_U64(n_begun, begun + 1);
        }
        if (at < 2)
            was_written[at] = false;
        last = under;
        last_ended = n_ended;
        if (pick(&p, 10) == 0) {
            REQUIRE_OK(mf_backend_finish(be, &error), &error);
            last = 0;
        }
    }
    CHECK(n_wrong == 0 && n_alike > 20 && n_begun > 200);
}

/* A router's word, itself under another one, wherever submissions end: what comes next waits for
 * both. */
static void check_found(mf_backend *be, mf_buffer buffer)
{
    const mf_span words = {buffer, 4096};
    const uint32_t values[4] = {1, 0, 0, 0};
    mf_op add = add_of(buffer, mf_span_at(words, 8));
    mf_op route = {.kind = MF_OP_ROUTE,
                   .n_rows = 1,
                   .when = words,
                   .u.route = {.logits = {buffer, 8192},
                               .ids = {buffer, 12288},
                               .weights = {buffer, 16384},
                               .slot = {buffer, 20480},
                               .found = mf_span_at(words, 8),
                               .n_to_find = 1,
                               .n_experts = 8,
                               .k = 2,
                               .n_groups = 1,
                               .k_groups = 1}};
    mf_error error = {0};
    if (!be->ops->supports_op(be, &route))
        return;
    REQUIRE_OK(mf_backend_reserve(be, &route, &error), &error);
    n_wrong = n_begun = 0;
    for (int i = 0; i < 64; i++) { /* bit 0 .. 2: where a submission ends */
        be->ops->write(be, words, values, sizeof values);
        add.when = words;
        be->ops->record(be, &add);
        if ((i & 1) != 0)
            mf_vk_submit((mf_vk_backend *)be);
        is_finding = true;
        be->ops->record(be, &route);
        is_finding = false;
        if ((i & 2) != 0)
            mf_vk_submit((mf_vk_backend *)be);
        add.when = route.u.route.found;
        be->ops->record(be, &add);
        if ((i & 4) != 0)
            REQUIRE_OK(mf_backend_finish(be, &error), &error);
    }
    CHECK_U64(n_wrong, 0);
    CHECK(n_begun >= 128);
}

int main(void)
{
    const mf_vk_hooks hooks = {.loaded = stand_between};
    const mf_backend_options options = {.device = vulkan_test_device()};
    mf_error error = {0};
    mf_backend *be = NULL;
    mf_buffer buffers[2];
    if (!vulkan_is_there())
        return TEST_SKIPPED;
    REQUIRE_OK(mf_vk_backend_create(&options, &hooks, &be, &error), &error);
    check_random_calls(be);
    for (int i = 0; i < 2; i++)
        REQUIRE_OK(be->ops->buffer_create(be, 1 << 17, MF_USE_DEVICE, "many", &buffers[i], &error),
                   &error);
    check_steps((mf_vk_backend *)be, buffers[0]);
    check_many_touches((mf_vk_backend *)be, buffers);
    check_full_list((mf_vk_backend *)be, buffers[0]);
    check_words(be, buffers[1]);
    check_found(be, buffers[1]);
    be->ops->destroy(be);
    return test_result();
}
