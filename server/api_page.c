/* SPDX-License-Identifier: MIT */
/* The page, and what it shows of the engine beyond counters. */
#include "api.h"

#include "page.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool mf_srv_api_page(mf_srv_request *request, mf_srv_refusal *r)
{
    static const mf_srv_header headers[] = {{"Content-Security-Policy", mf_srv_page_policy},
                                            {"ETag", mf_srv_page_tag},
                                            {"Referrer-Policy", "no-referrer"},
                                            {"X-Frame-Options", "DENY"},
                                            {"Cross-Origin-Opener-Policy", "same-origin"},
                                            {"Cross-Origin-Resource-Policy", "same-origin"},
                                            {NULL, NULL}};
    (void)r;
    request->content_type = "text/html; charset=utf-8";
    request->headers = headers;
    request->cache_control = "no-cache";
    if (request->if_none_match && strstr(request->if_none_match, mf_srv_page_tag))
        request->status = 304;
    else
        mf_srv_put(&request->answer, (const char *)mf_srv_page, mf_srv_page_bytes);
    return true;
}

/* ----------------------------------------------------------------------------------- experts -- */

static void put_states(mf_srv_bytes *out, const uint8_t *states, size_t n)
{
    mf_srv_puts(out, "\"");
    for (size_t e = 0; e < n; e++)
        mf_srv_printf(out, "%u", states[e]);
    mf_srv_puts(out, "\"");
}

static void put_uses(mf_srv_bytes *out, const uint32_t *n_uses, size_t n)
{
    for (size_t e = 0; e < n; e++)
        mf_srv_printf(out, "%s%" PRIu32, e > 0 ? "," : "[", n_uses[e]);
    mf_srv_puts(out, n > 0 ? "]" : "[]");
}

static void put_layers(const mf_srv_model *m, uint8_t *states, uint32_t *n_uses, mf_srv_bytes *out)
{
    mf_srv_bytes uses = {0};
    for (uint32_t layer = 0; layer < m->info.n_moe_layers; layer++) {
        const char *comma = layer > 0 ? "," : "";
        const size_t n =
            mf_engine_expert_states(m->engine, layer, states, n_uses, m->info.n_experts);
        mf_srv_puts(out, comma);
        put_states(out, states, n);
        mf_srv_puts(&uses, comma);
        put_uses(&uses, n_uses, n);
    }
    mf_srv_puts(out, "],\"uses\":[");
    mf_srv_put(out, uses.data, uses.n_bytes);
    out->has_failed |= uses.has_failed;
    mf_srv_bytes_free(&uses);
}

bool mf_srv_api_experts(mf_srv_request *request, mf_srv_refusal *r)
{
    const mf_srv_model *m = &request->server->model;
    mf_srv_bytes *out = &request->answer;
    const size_t n = m->info.n_experts > 0 ? m->info.n_experts : 1;
    uint8_t *states = malloc(n * sizeof *states);
    uint32_t *n_uses = malloc(n * sizeof *n_uses);
    const bool has_memory = states && n_uses;
    if (has_memory) {
        mf_srv_printf(out,
                      "{\"n_layers\":%" PRIu32 ",\"n_experts\":%" PRIu32
                      ",\"n_experts_per_token\":%" PRIu32
                      ",\"names\":[\"absent\",\"queued\",\"reading\",\"held\",\"below\"],"
                      "\"states\":[",
                      m->info.n_moe_layers, m->info.n_experts, m->info.n_experts_per_token);
        put_layers(m, states, n_uses, out);
        mf_srv_puts(out, "]}");
    }
    free(states);
    free(n_uses);
    return has_memory || mf_srv_refuse(r, 503, "no memory");
}

/* ------------------------------------------------------------------------------------- facts -- */

/* What the process has of the machine's memory. */
static uint64_t process_bytes(void)
{
    char line[128] = "";
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file)
        return 0;
    const char *pages = fgets(line, sizeof line, file) ? strchr(line, ' ') : NULL; /* the second */
    (void)fclose(file);
    return pages ? strtoull(pages, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static void put_count(mf_srv_bytes *out, const char *name, uint64_t value)
{
    mf_srv_printf(out, ",\"%s\":%" PRIu64, name, value);
}

static void put_sampling(const mf_sampler_options *s, mf_srv_bytes *out)
{
    mf_srv_puts(out, ",\"sampling\":{\"temperature\":");
    mf_srv_put_number(out, s->temperature);
    mf_srv_puts(out, ",\"top_p\":");
    mf_srv_put_number(out, s->top_p);
    mf_srv_puts(out, ",\"min_p\":");
    mf_srv_put_number(out, s->min_p);
    mf_srv_printf(out, ",\"top_k\":%u}", (unsigned)s->top_k);
}

static void put_model(const mf_srv_model *m, mf_srv_bytes *out)
{
    const mf_model_info *i = &m->info;
    mf_srv_puts(out, ",\"model_info\":{\"family\":");
    mf_srv_puts_json(out, i->family);
    mf_srv_put_text_field(out, "form", i->form);
    mf_srv_put_text_field(out, "device", i->device);
    mf_srv_put_text_field(out, "expert_device", i->expert_device);
    put_count(out, "n_parameters", i->n_parameters);
    put_count(out, "n_layers", i->n_layers);
    put_count(out, "n_moe_layers", i->n_moe_layers);
    put_count(out, "n_experts", i->n_experts);
    put_count(out, "n_experts_per_token", i->n_experts_per_token);
    put_count(out, "expert_bits", i->expert_bits);
    put_count(out, "n_context_tokens", i->n_context_tokens);
    mf_reply_form form = {.thought_open = NULL};
    if (m->syntax)
        mf_reply_form_of(m->syntax, &form);
    mf_srv_printf(out, ",\"has_chat\":%s,\"has_thoughts\":%s", m->has_chat ? "true" : "false",
                  form.thought_open ? "true" : "false");
    put_sampling(&m->sampler, out);
    mf_srv_puts(out, "}");
}

void mf_srv_put_facts(const mf_srv_server *server, mf_srv_bytes *out)
{
    const mf_model_info *i = &server->model.info;
    mf_srv_printf(out, ",\"memory\":{\"process_bytes\":%" PRIu64, process_bytes());
    put_count(out, "budget_bytes", i->ram_bytes);
    put_count(out, "dense_bytes", i->resident_bytes);
    put_count(out, "slots_bytes", i->n_slots * i->slot_bytes);
    put_count(out, "host_slots_bytes", i->n_host_slots * i->slot_bytes);
    put_count(out, "experts_bytes", i->expert_bytes);
    put_count(out, "scratch_bytes", i->scratch_bytes);
    put_count(out, "state_limit_bytes", i->state_bytes);
    put_count(out, "device_budget_bytes", i->device_bytes);
    mf_srv_puts(out, "},\"drive\":{\"io\":");
    mf_srv_puts_json(out, mf_engine_io_name(server->model.engine));
    mf_srv_puts(out, ",\"measured_bytes_per_second\":");
    if (server->model.drive_rate > 0)
        mf_srv_put_number(out, server->model.drive_rate);
    else
        mf_srv_puts(out, "null");
    mf_srv_puts(out, "}");
    put_model(&server->model, out);
}
