/* SPDX-License-Identifier: MIT */
/* Opening and closing an engine: descriptors, budget, the runner, what sessions share. */
#include "session/engine_devices.h"
#include "session/engine_memory.h"
#include "session/session.h"
#include "session/session_index.h"

#include "base/memory_limits.h"
#include "base/sized.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MIB 1048576.0

static void say(const mf_engine *e, mf_log_level level, const char *line)
{
    if (e->options.log != NULL)
        e->options.log(e->options.log_user, level, line);
}

static mf_status check_budget(const mf_budget *budget, const char *dir, mf_error *error)
{
    char terms[512];
    uint64_t floor_tenths = mf_budget_floor_tenths(budget);
    if (budget->is_enough)
        return MF_OK;
    if (budget->floor_bytes == UINT64_MAX)
        return mf_fail(error, MF_ERR_BUDGET, "%s: what the options ask for overflows", dir);
    mf_budget_describe(budget, terms, sizeof terms);
    return mf_fail(error, MF_ERR_BUDGET,
                   "%s: memory budget of %.1f MiB is below the floor of %llu.%llu MiB (%llu "
                   "bytes): %s (%llu of them)",
                   dir, floor((double)budget->ram_bytes / MIB * 10) / 10,
                   (unsigned long long)floor_tenths / 10, (unsigned long long)floor_tenths % 10,
                   (unsigned long long)budget->floor_bytes, terms,
                   (unsigned long long)budget->n_slots_min);
}

static void warn_small_cache(const mf_engine *e)
{
    const mf_model_info *info = &e->info;
    uint64_t working_set = (uint64_t)info->n_moe_layers * info->n_experts_per_token;
    if (info->n_slots >= working_set)
        return;
    char line[256];
    snprintf(
        line, sizeof line,
        "the expert cache holds %llu experts, less than the %llu that one token uses: every token "
        "reads nearly all of "
        "them again; an expert cache of %.1f MiB (%.1f MiB in all) or more would help",
        (unsigned long long)info->n_slots, (unsigned long long)working_set,
        (double)(working_set * info->slot_bytes) / MIB,
        (double)(info->floor_bytes + (working_set - info->n_experts_per_token) * info->slot_bytes) /
            MIB);
    say(e, MF_LOG_WARNING, line);
}

/* Experts that are in the machine's memory and not in the device's, where each is uploaded for
 * every token that wants it. */
static void say_hybrid(const mf_engine *e)
{
    const mf_model_info *info = &e->info;
    const uint64_t all = (uint64_t)info->n_moe_layers * info->n_experts;
    char line[192];
    if (mf_experts_are_apart(&e->runner) || info->n_slots * 10 >= all * 9 ||
        info->n_slots + info->n_host_slots < all)
        return;
    snprintf(line, sizeof line,
             "the device's memory has slots for %llu of %llu experts: expert_device "
             "'hybrid:auto' multiplies the others on the CPU, and may be faster",
             (unsigned long long)info->n_slots, (unsigned long long)all);
    say(e, MF_LOG_INFO, line);
}

static void say_skipped(const mf_engine *e)
{
    char line[128];
    if (e->info.n_skipped_layers == 0)
        return;
    snprintf(line, sizeof line, "%u multi-token-prediction layer%s after layer %u left out",
             e->info.n_skipped_layers, e->info.n_skipped_layers == 1 ? "" : "s",
             e->info.n_layers - 1);
    say(e, MF_LOG_INFO, line);
}

/* A drive is left out, from now on. */
static void say_lost(void *ctx, const char *path, int os_errno)
{
    mf_error why = {0};
    char line[sizeof why.message + 96];
    (void)mf_fail_os(&why, MF_ERR_IO, os_errno != 0 ? os_errno : EIO, "%s", path);
    snprintf(line, sizeof line, "%s: this drive is left out, other copies are read", why.message);
    say(ctx, MF_LOG_WARNING, line);
}

static mf_status open_state(mf_engine *e, mf_error *error)
{
    const mf_plan *p = &e->runner.plan;
    const uint64_t sizes[MF_N_UNIT_KINDS] = {[MF_UNIT_PAGE] = p->page_bytes,
                                             [MF_UNIT_WINDOW] = p->window_bytes,
                                             [MF_UNIT_RECURRENT] = p->recurrent_bytes};
    mf_state_pool_init(&e->pool, &e->allocator, e->runner.backend, sizes, p->state_bytes);
    e->mark_limit = p->mark_bytes;
    MF_TRY(mf_turn_init(&e->turn, error));
    if (pthread_mutex_init(&e->state_lock, NULL) != 0) {
        mf_turn_destroy(&e->turn);
        return mf_fail(error, MF_ERR_NO_MEMORY, "no memory for a lock");
    }
    e->has_locks = true;
    return MF_OK;
}

static mf_runner_options runner_options(const mf_engine *e, const mf_model *m,
                                        const mf_engine_hooks *hooks)
{
    mf_cpu_tier tier = MF_CPU_BEST; /* the options have been checked */
    (void)mf_cpu_tier_named(e->options.cpu_tier, &tier);
    return (mf_runner_options){.allocator = e->allocator,
                               .n_threads = m->n_threads,
                               .cpu_tier = tier,
                               .n_sequences = e->options.n_sessions,
                               .io = e->options.io,
                               .cache_policy = e->cache_policy,
                               .predict = e->options.predict,
                               .predict_depth = e->options.predict_depth,
                               .io_engine = hooks->io_engine,
                               .io_arg = hooks->io_arg,
                               .device = e->options.device,
                               .expert_device = e->options.expert_device,
                               .device_bytes = e->options.device_bytes,
                               .precision = e->options.precision,
                               .numa = e->options.numa,
                               .cache_dir = e->options.cache_dir,
                               .mirrors = e->options.mirrors,
                               .n_mirrors = e->options.n_mirrors,
                               .lost = say_lost,
                               .lost_ctx = (void *)e,
                               .open_backend = hooks->open_backend,
                               .backend_ctx = hooks->backend_ctx,
                               .open_experts = hooks->open_experts,
                               .experts_ctx = hooks->experts_ctx};
}

static mf_budget_device device_of(const mf_backend *be, uint64_t device_bytes)
{
    mf_backend_memory memories[MF_MAX_MEMORIES];
    uint32_t n = be->ops->memories(be, memories);
    for (uint32_t i = 0; i < n; i++) {
        const mf_backend_memory *m = &memories[i];
        if ((m->uses & 1u << MF_USE_DEVICE) == 0 || (m->is_host && !m->takes_promise))
            continue;
        const bool is_bounded = !m->is_host || device_bytes != 0;
        /* opening may have taken more than was promised */
        const uint64_t known = m->n_bytes + m->taken_bytes;
        const bool is_more = device_bytes != 0 && known > device_bytes;
        return (mf_budget_device){.has_memory = !m->is_host,
                                  .runs_later = be->ops->runs_later,
                                  .takes_promise = m->takes_promise,
                                  .n_bytes = !is_bounded ? 0
                                             : is_more   ? device_bytes
                                                         : known};
    }
    return (mf_budget_device){.runs_later = be->ops->runs_later};
}

/* A device whose memory has no room for what it must hold. */
static mf_status check_device_floor(const mf_engine *e, const mf_backend *be,
                                    const mf_budget_device *device, uint64_t floor_bytes,
                                    uint64_t slot_bytes, mf_error *error)
{
    mf_backend_memory memories[MF_MAX_MEMORIES];
    const uint32_t n_given =
        be == e->runner.backend ? mf_backend_given_layers(e->info.expert_device) : 0;
    char slots[96] = "";
    if (device->n_bytes == 0 || device->n_bytes >= floor_bytes)
        return MF_OK;
    (void)be->ops->memories(be, memories);
    if (be == e->runner.experts)
        snprintf(slots, sizeof slots, ", with %u expert slots of %llu bytes",
                 e->info.n_experts_per_token, (unsigned long long)slot_bytes);
    else if (n_given != 0)
        snprintf(slots, sizeof slots, ", with the experts of %u layer%s", n_given,
                 n_given == 1 ? "" : "s");
    return mf_fail(error, MF_ERR_BUDGET,
                   "device_bytes of %s (%s) are %llu, below the floor of %.1f MiB (%llu bytes)%s",
                   be->ops->name, memories[0].name, (unsigned long long)device->n_bytes,
                   ceil((double)floor_bytes / MIB * 10) / 10, (unsigned long long)floor_bytes,
                   slots);
}

static mf_status check_budgets(const mf_engine *e, const mf_model *m, const mf_budget *budget,
                               const mf_budget_place *place, mf_error *error)
{
    const mf_runner *r = &e->runner;
    MF_TRY(mf_engine_check_promise(&e->options, place, r->backend->ops->name, error));
    MF_TRY(check_budget(budget, m->source->path, error));
    const uint64_t slot = budget->slot_sizes.bytes[0]; /* the least are all of the largest size */
    MF_TRY(
        check_device_floor(e, r->backend, &place->dense, budget->device_floor_bytes, slot, error));
    if (!mf_experts_are_apart(r))
        return MF_OK;
    return check_device_floor(e, r->experts, &place->experts, budget->expert_device_floor_bytes,
                              slot, error);
}

/* Slots that the memory is to have room for: without a budget as many as there could be if all that
 * others have now were free. */
static uint64_t most_slots(const mf_engine *e, const mf_model *m, const mf_budget *budget)
{
    const uint64_t all = (uint64_t)e->info.n_moe_layers * e->info.n_experts;
    const uint64_t machine = mf_memory_machine_bytes();
    const bool is_fixed = e->options.ram_bytes != 0 ||
                          e->options.expert_cache_bytes != MF_EXPERT_CACHE_AUTO ||
                          e->runner.experts->ops->runs_later || mf_plan_lends(&m->plan);
    if (is_fixed || e->info.slot_bytes == 0 || machine <= budget->available_bytes)
        return e->info.n_slots;
    const uint64_t more = (machine - budget->available_bytes) / e->info.slot_bytes;
    return e->info.n_slots + more < all ? e->info.n_slots + more : all;
}

/* Devices before the budget: where they have memory of their own, it is of less. */
static mf_status open_runner(mf_engine *e, mf_model *m, const mf_engine_hooks *hooks,
                             mf_error *error)
{
    mf_runner_options options = runner_options(e, m, hooks);
    mf_budget_place place = {.opens = true};
    mf_budget budget;
    mf_runner *r = &e->runner;
    e->n_threads = m->n_threads;
    MF_TRY(mf_runner_open_devices(&options, m->plan.expert_act_bytes != 0, r, error));
    place.held_bytes = mf_memory_resident_bytes();
    place.dense = device_of(r->backend, e->options.device_bytes);
    place.experts = device_of(r->experts, e->options.device_bytes);
    mf_model_fit(m, &e->options, &place, &budget, &e->info);
    if (hooks->open_backend != NULL)
        snprintf(e->info.device, sizeof e->info.device, "%s", r->backend->ops->name);
    if (hooks->open_backend != NULL || hooks->open_experts != NULL)
        snprintf(e->info.expert_device, sizeof e->info.expert_device, "%s", r->experts->ops->name);
    /* The caller's. */
    e->options.device = e->options.expert_device = e->options.cache_dir = NULL;
    e->options.cpu_tier = NULL;
    e->options.mirrors = NULL;
    MF_TRY(check_budgets(e, m, &budget, &place, error));
    options.n_slots = e->info.n_slots;
    options.n_slots_most = most_slots(e, m, &budget);
    options.n_slots_least = budget.n_slots_min;
    options.slot_sizes = budget.slot_sizes;
    options.slots_stay = e->options.ram_bytes != 0 || mf_plan_lends(&m->plan) ||
                         e->options.expert_cache_bytes != MF_EXPERT_CACHE_AUTO;
    options.n_places = budget.n_places;
    options.n_first_places = budget.n_first_places;
    options.n_room_places = budget.n_room_places;
    m->source->await = (mf_await){e->options.await_bytes, e->options.await_user};
    MF_TRY(mf_runner_open(m, &options, r, error));
    if (place.experts.has_memory && r->store != NULL) /* as many as could be had */
        e->info.n_host_slots = mf_expert_store_n_places(r->store);
    return MF_OK;
}

static mf_status open_parts(mf_engine *e, mf_model *m, const mf_engine_hooks *hooks,
                            mf_error *error)
{
    MF_TRY(open_runner(e, m, hooks, error));
    size_t n = e->options.n_sessions;
    e->parts_list = mf_alloc_array(&e->allocator, n, sizeof *e->parts_list);
    e->parts_sessions = mf_alloc_array(&e->allocator, n, sizeof(mf_session *));
    e->draft_parts = mf_alloc_array(&e->allocator, n, sizeof *e->draft_parts);
    if (e->parts_list == NULL || e->parts_sessions == NULL || e->draft_parts == NULL)
        return mf_fail_memory(error, n * sizeof *e->parts_list, "the list of a batch's sessions");
    mf_draft_profit_init(&e->draft_profit);
    mf_forecast_init(&e->rates);
    return open_state(e, error);
}

static mf_status open_model(mf_engine *e, mf_model *m, const mf_engine_hooks *hooks,
                            mf_engine_devices *devices, mf_error *error)
{
    MF_TRY(mf_engine_devices_choose(devices, m, &e->options, error));
    const char *timeline = e->options.timeline;
    const char *hot_dir = e->options.hot_dir;
    e->options.timeline = e->options.hot_dir = NULL; /* the caller's */
    if (hooks->open_experts != NULL)
        MF_TRY(mf_model_plan(m, &e->options, mf_layer_kind_table, true, error));
    MF_TRY(open_parts(e, m, hooks, error));
    MF_TRY(mf_engine_timeline_begin(e, timeline, error));
    MF_TRY(mf_engine_hot_begin(e, hot_dir, error));
    MF_TRY(mf_engine_memory_begin(e, hooks, error));
    memcpy(e->info.device_why, devices->why, sizeof devices->why);
    return MF_OK;
}

static mf_status open_on(const char *path, const mf_engine_options *options,
                         const mf_engine_hooks *hooks, mf_engine_devices *devices, mf_engine **out,
                         mf_error *error)
{
    mf_allocator a;
    MF_TRY(mf_allocator_take(&options->allocator, &a, error));
    mf_engine *e = mf_alloc_zeroed(&a, sizeof *e);
    if (e == NULL)
        return mf_fail_memory(error, sizeof *e, "the engine");
    e->allocator = a;
    e->options = *options;
    mf_status status = mf_cache_policy_find(options->cache_policy, &e->cache_policy, error);
    e->options.cache_policy = NULL; /* the caller's */
    mf_model m;
    if (status == MF_OK)
        status = mf_model_read(&a, path, &e->options, mf_layer_kind_table, &m, error);
    if (status == MF_OK) {
        status = open_model(e, &m, hooks, devices, error);
        mf_model_release(&m);
    }
    if (status != MF_OK) {
        mf_engine_close(&e);
        return status;
    }
    warn_small_cache(e);
    say_skipped(e);
    say_hybrid(e);
    *out = e;
    return MF_OK;
}

/* What "auto" chose could not be opened: the CPU, which says what it lacks if it cannot be either.
 * Then nothing is said of the other device, which may well be no worse: the model may be wrong. */
static mf_status open_on_cpu(const char *path, mf_engine_options *options,
                             const mf_engine_hooks *hooks, mf_engine_devices *devices,
                             mf_engine **out, mf_error *error)
{
    char line[sizeof error->message + 64];
    snprintf(line, sizeof line, "%s cannot be used: %s", devices->dense.name,
             error != NULL ? error->message : "it could not be opened");
    options->device = "cpu";
    *devices = (mf_engine_devices){.dense = {.name = "cpu"}, .experts = devices->experts};
    snprintf(devices->why, sizeof devices->why, "%.*s", (int)sizeof devices->why - 1, line);
    MF_TRY(open_on(path, options, hooks, devices, out, error));
    say(*out, MF_LOG_WARNING, line);
    return MF_OK;
}

mf_status mf_engine_open_with(const char *path, const mf_engine_options *options,
                              const mf_engine_hooks *hooks, mf_engine **out, mf_error *error)
{
    mf_engine_options given;
    mf_engine_devices devices;
    MF_TRY(mf_engine_options_take(options, &given, error));
    MF_TRY(mf_engine_devices_find(&devices, &given, error));
    if (hooks->choose_device != NULL)
        devices.choose = hooks->choose_device;
    mf_status status = open_on(path, &given, hooks, &devices, out, error);
    if (status != MF_OK && devices.is_auto && devices.dense.takes_promise)
        status = open_on_cpu(path, &given, hooks, &devices, out, error);
    return status;
}

mf_status mf_model_inspect_sized(const char *path, const mf_engine_options *options,
                                 mf_model_info *out, size_t struct_bytes, mf_error *error)
{
    if (path == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_model_inspect: path or out is NULL");
    mf_engine_options given;
    MF_TRY(mf_engine_options_take(options, &given, error));
    mf_allocator a;
    MF_TRY(mf_allocator_take(&given.allocator, &a, error));
    mf_model m;
    mf_budget budget;
    mf_model_info info;
    mf_engine_devices devices;
    const mf_cache_policy *policy;
    MF_TRY(mf_cache_policy_find(given.cache_policy, &policy, error)); /* as opening does */
    MF_TRY(mf_engine_devices_find(&devices, &given, error));
    MF_TRY(mf_model_read(&a, path, &given, mf_layer_kind_table, &m, error));
    mf_status status = mf_engine_devices_choose(&devices, &m, &given, error);
    const mf_budget_place place = mf_engine_devices_place(&devices);
    if (status == MF_OK)
        mf_model_fit(&m, &given, &place, &budget, &info);
    mf_model_release(&m);
    MF_TRY(status);
    memcpy(info.device_why, devices.why, sizeof devices.why);
    MF_TRY(mf_engine_check_promise(&given, &place, info.device, error));
    mf_sized_put(out, struct_bytes, &info, sizeof info);
    return MF_OK;
}

mf_status mf_engine_open(const char *path, const mf_engine_options *options, mf_engine **out,
                         mf_error *error)
{
    if (path == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_engine_open: path or out is NULL");
    const mf_engine_hooks none = {0};
    return mf_engine_open_with(path, options, &none, out, error);
}

void mf_engine_info_sized(const mf_engine *engine, mf_model_info *out, size_t struct_bytes)
{
    mf_sized_put(out, struct_bytes, &engine->info, sizeof engine->info);
}

void mf_engine_close(mf_engine **engine)
{
    mf_engine *e = engine != NULL ? *engine : NULL;
    if (e == NULL || (e->has_locks && mf_turn_is_mine(&e->turn)))
        return;
    const mf_allocator a = e->allocator;
    mf_engine_memory_end(e);
    mf_engine_profile_free(e);
    mf_engine_hot_end(e);
    mf_engine_routing_free(e);
    mf_engine_inputs_free(e);
    mf_session_index_free(&e->session_index);
    if (e->has_locks) {
        mf_state_pool_free(&e->pool);
        mf_turn_destroy(&e->turn);
        (void)pthread_mutex_destroy(&e->state_lock);
    }
    mf_runner_close(&e->runner);
    mf_free(&a, e->parts_list, e->options.n_sessions * sizeof *e->parts_list);
    mf_free(&a, e->parts_sessions, e->options.n_sessions * sizeof(mf_session *));
    mf_free(&a, e->draft_parts, e->options.n_sessions * sizeof *e->draft_parts);
    mf_free(&a, e, sizeof *e);
    *engine = NULL;
}
