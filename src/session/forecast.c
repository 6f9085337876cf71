/* SPDX-License-Identifier: MIT */
#include "session/session.h"

#include "base/sized.h"

#include <math.h>

/* Until it is known: what computing takes, of what the peaks of the machine allow. */
#define SLOWNESS_AT_FIRST 1.6
/* In place of peaks that nobody measured; they decide where rows begin to cost more than weights.
 */
#define FMA_AT_FIRST 1e11
#define MEMORY_AT_FIRST 1.5e10
/* Chunks of fewer rows teach nothing of prompts, and so do fewer bytes. */
#define ROWS_THAT_TEACH 16u
#define BYTES_THAT_TEACH ((uint64_t)8 << 20)
/* A chunk's weight. */
#define WEIGHT 0.5
/* A drive that was waited for less than this part of the time may have waited itself. */
#define WAITED_PART 0.05

void mf_forecast_init(mf_forecast_rates *rates)
{
    *rates = (mf_forecast_rates){.wanted = 1};
}

/* Multiply-adds of a row in weight products: all weights, but those of experts that it does not
 * meet and the vocabulary's. */
static double row_fma(const mf_engine *e)
{
    const mf_model_info *i = &e->info;
    const double expert = 3.0 * i->hidden_size * i->expert_hidden_size;
    const double experts = (double)i->n_moe_layers * i->n_experts_per_token * expert;
    const double idle = (double)i->n_moe_layers * expert * i->n_experts - experts;
    const double rest = (double)i->n_parameters - idle - 2.0 * i->n_vocab * i->hidden_size;
    return rest > experts ? rest : experts;
}

/* And of attention to the positions before it. */
static double attention_fma(const mf_hparams *h, double position)
{
    double sum = 0;
    for (uint32_t l = 0; l < h->n_layers; l++) {
        const double window = h->window[l] != 0 ? fmin(position, h->window[l]) : position;
        const double most = h->is_indexed ? fmin(window, h->index_most) : window;
        if (h->layer_kind[l] == MF_LAYER_FULL)
            sum += most * 2.0 * mf_query_width(h);
        else if (h->layer_kind[l] == MF_LAYER_LATENT)
            sum += most * h->n_heads * (2.0 * h->kv_rank + h->n_rot);
    }
    return sum;
}

/* Experts of a layer that so many rows meet, if they choose evenly. */
static double n_met(const mf_engine *e, uint64_t n_rows)
{
    const double n = e->info.n_experts;
    const double chance = n > 0 ? e->info.n_experts_per_token / n : 0;
    return n * (1 - pow(1 - chance, (double)n_rows));
}

/* Of all experts, those that a sweep finds: what was read and fits, less the room that a layer's
 * own need. */
static double part_held(const mf_engine *e, double n_wanted, bool is_first, double one_bytes)
{
    const double all = (double)e->info.n_moe_layers * e->info.n_experts;
    const double slots =
        (double)mf_expert_store_n_slots(e->runner.store) + (double)e->info.n_host_slots;
    double held = slots >= all ? all : fmax(0, slots - n_wanted);
    mf_expert_stats s;
    if (is_first) {
        mf_expert_store_stats(e->runner.store, &s);
        held = fmin(held, one_bytes > 0 ? (double)s.read_bytes / one_bytes : 0);
    }
    return all > 0 ? held / all : 1;
}

double mf_forecast_cost(const mf_engine *e, const mf_forecast_rates *rates, mf_forecast_chunk *c)
{
    const double n = (double)c->n_rows;
    const double wanted = fmin(n_met(e, c->n_rows) * rates->wanted, e->info.n_experts);
    const double slowness = rates->slowness > 0 ? rates->slowness : SLOWNESS_AT_FIRST;
    const double fma = n * (row_fma(e) + attention_fma(&e->runner.h, (double)c->position + n / 2));
    const double touched = (double)e->info.resident_bytes +
                           wanted * e->info.n_moe_layers * (double)e->info.one_expert_bytes;
    uint32_t n_reads = 0;
    uint64_t one_bytes = 0;
    if (e->info.n_moe_layers > 0)
        mf_expert_map_cost(&e->runner.map, &n_reads, &one_bytes);
    c->read_bytes = wanted * e->info.n_moe_layers * (double)one_bytes *
                    (1 - part_held(e, wanted, c->is_first, (double)one_bytes));
    c->computing = slowness * fmax(fma / (rates->fma > 0 ? rates->fma : FMA_AT_FIRST),
                                   touched / (rates->memory > 0 ? rates->memory : MEMORY_AT_FIRST));
    c->reading = rates->read > 0 ? c->read_bytes / rates->read : 0;
    return fmax(c->computing, c->reading);
}

static double blend(double before, double now)
{
    return before > 0 ? before + WEIGHT * (now - before) : now;
}

void mf_forecast_learn(const mf_engine *e, mf_forecast_rates *rates, const mf_forecast_chunk *chunk,
                       const mf_forecast_seen *seen)
{
    mf_forecast_chunk c = *chunk;
    mf_forecast_rates plain = *rates;
    if (c.n_rows < ROWS_THAT_TEACH || seen->n_us <= seen->wait_us)
        return;
    plain.slowness = 1;
    (void)mf_forecast_cost(e, &plain, &c);
    rates->slowness =
        blend(rates->slowness, 1e-6 * (double)(seen->n_us - seen->wait_us) / c.computing);
    const double met = n_met(e, c.n_rows) * e->info.n_moe_layers;
    if (met > 0)
        rates->wanted = fmin(1, blend(rates->wanted, (double)seen->n_wanted / met));
    if (seen->read_bytes < BYTES_THAT_TEACH || seen->reading_us == 0)
        return;
    const double rate = 1e6 * (double)seen->read_bytes / (double)seen->reading_us;
    if ((double)seen->wait_us >= WAITED_PART * (double)seen->n_us || rate > rates->read)
        rates->read = blend(rates->read, rate);
}

/* ---------------------------------------------------------------------------------- the call -- */

static mf_forecast_rates rates_of(mf_engine *e)
{
    mf_engine_lock(e);
    const mf_forecast_rates rates = e->rates;
    mf_engine_unlock(e);
    return rates;
}

/* What is not known yet and needed. A measurement of the drive reads more at once than a token's
 * experts, as a sweep does. */
static mf_status measure_missing(mf_engine *e, uint32_t n_milliseconds, bool reads,
                                 mf_forecast_rates *rates, mf_error *error)
{
    const mf_span resident = {{MF_BUFFER_RESIDENT}, 0};
    if (reads && rates->read == 0)
        MF_TRY(mf_expert_store_measure(e->runner.store, 4 * e->runner.plan.k, n_milliseconds,
                                       &rates->read, error));
    if (rates->slowness > 0)
        return MF_OK;
    MF_TRY(e->runner.backend->ops->measure(e->runner.backend, &resident, &e->info.resident_bytes, 1,
                                           n_milliseconds, &rates->memory, &rates->fma, error));
    rates->slowness = SLOWNESS_AT_FIRST;
    return MF_OK;
}

/* And keeps it. */
static mf_status measure(mf_engine *e, uint32_t n_milliseconds, bool reads,
                         mf_forecast_rates *rates, mf_error *error)
{
    MF_TRY(mf_engine_take_turn(e, error));
    mf_status status = measure_missing(e, n_milliseconds, reads, rates, error);
    if (status == MF_OK) {
        mf_engine_lock(e);
        e->rates = *rates;
        mf_engine_unlock(e);
    }
    mf_engine_end_turn(e);
    return status;
}

static void add_up(const mf_engine *e, const mf_forecast_rates *rates, uint64_t position,
                   uint64_t n_tokens, mf_forecast *sum)
{
    *sum = (mf_forecast){.read_bytes_per_second = rates->read};
    const uint64_t n_chunk = e->runner.plan.n_chunk;
    double read_bytes = 0;
    for (uint64_t done = 0; done < n_tokens; done += n_chunk) {
        const uint64_t left = n_tokens - done;
        mf_forecast_chunk c = {.n_rows = left < n_chunk ? left : n_chunk,
                               .position = position + done,
                               .is_first = done == 0};
        sum->seconds += mf_forecast_cost(e, rates, &c);
        sum->computing_seconds += c.computing;
        sum->reading_seconds += c.reading;
        read_bytes += c.read_bytes;
        sum->n_chunks++;
    }
    sum->read_bytes = (uint64_t)read_bytes;
}

static bool is_known(const mf_forecast_rates *rates, bool reads)
{
    return rates->slowness > 0 && (!reads || rates->read > 0);
}

mf_status mf_session_forecast_sized(mf_session *session, size_t n_tokens, uint32_t n_milliseconds,
                                    mf_forecast *out, size_t struct_bytes, mf_error *error)
{
    if (session == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_session_forecast: session or result is NULL");
    mf_engine *e = session->engine;
    if (n_tokens > e->runner.plan.n_context - session->position)
        return mf_fail(error, MF_ERR_CONTEXT,
                       "%zu tokens after %llu do not fit the context of %u tokens", n_tokens,
                       (unsigned long long)session->position, e->runner.plan.n_context);
    mf_forecast_rates rates = rates_of(e);
    mf_forecast sum;
    add_up(e, &rates, session->position, n_tokens, &sum);
    const bool reads = sum.read_bytes > 0;
    if (!is_known(&rates, reads) && n_milliseconds > 0) {
        MF_TRY(measure(e, n_milliseconds, reads, &rates, error));
        add_up(e, &rates, session->position, n_tokens, &sum);
    }
    if (!is_known(&rates, reads))
        sum.seconds = sum.computing_seconds = sum.reading_seconds = 0;
    mf_sized_put(out, struct_bytes, &sum, sizeof sum);
    return MF_OK;
}
