/* SPDX-License-Identifier: MIT */
/* Streams, entries, attention to them and to chosen positions in float64, from their contracts in
 * backend.h. */
#include "reference.h"

#include <string.h>

/* ----------------------------------------------------------------------------------- streams -- */

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* n lines of n, `line` apart, whose values are `step` apart: each by its sum. */
static void divide(double *comb, uint32_t n, uint32_t line, uint32_t step, double eps)
{
    for (uint32_t i = 0; i < n; i++) {
        double sum = eps;
        for (uint32_t j = 0; j < n; j++)
            sum += comb[i * line + j * step];
        for (uint32_t j = 0; j < n; j++)
            comb[i * line + j * step] /= sum;
    }
}

static void make_doubly_stochastic(const mf_streams_in_params *p, double *comb)
{
    const uint32_t n = p->n_streams;
    for (uint32_t i = 0; i < n; i++) {
        double sum = 0;
        for (uint32_t j = 0; j < n; j++)
            sum += exp(comb[i * n + j]);
        for (uint32_t j = 0; j < n; j++)
            comb[i * n + j] = exp(comb[i * n + j]) / sum + p->eps;
    }
    for (uint32_t t = 0; t < p->n_iterations; t++) {
        if (t > 0)
            divide(comb, n, n, 1, p->eps);
        divide(comb, n, 1, n, p->eps);
    }
}

/* Rows of sums that their slack is known of, normed. */
static void expect_normed(scene *s, const mf_norm_after *norm, uint32_t row, const double *x,
                          const double *slack, uint32_t n)
{
    double squares = 0.0, most = 0.0;
    for (uint32_t c = 0; c < n; c++) {
        squares += x[c] * x[c];
        most = fmax(most, slack[c]);
    }
    const double root = sqrt(squares / n + (double)norm->eps);
    for (uint32_t c = 0; c < n; c++) {
        const double weight = floats(s, norm->weight)[c];
        scene_expect(s, norm->out, (size_t)row * n + c, x[c] / root * weight,
                     (slack[c] + fabs(x[c]) * (RELATIVE + most / root)) / root * fabs(weight) +
                         TINY);
    }
}

/* An error of float32 in what exp takes grows with its size; a column or a row may be divided by
 * what it nearly is. */
static double gate_slack(double logit, uint32_t n_iterations)
{
    return RELATIVE * (2.0 + fabs(logit)) * (1.0 + n_iterations);
}

static void in_row(scene *s, uint32_t row)
{
    const mf_streams_in_params *p = &s->op.u.streams_in;
    const uint32_t n = p->n_streams, n_cols = p->n_cols, n_mixes = p->is_last ? n : (2 + n) * n;
    const float *x = floats(s, p->streams) + (size_t)row * n * n_cols;
    const float *mixes = floats(s, p->mixes) + (size_t)row * n_mixes;
    const float *base = floats(s, p->base), *scale = floats(s, p->scale);
    double squares = 0.0, comb[MF_MAX_STREAMS * MF_MAX_STREAMS], most = 0.0;
    for (size_t i = 0; i < (size_t)n * n_cols; i++)
        squares += (double)x[i] * x[i];
    const double root = sqrt(squares / ((double)n * n_cols) + (double)p->norm_eps);
    double *out = new_doubles(n_cols), *slack = new_doubles(n_cols);
    for (uint32_t i = 0; i < n; i++) {
        const double logit = mixes[i] / root * scale[0] + base[i];
        const double size = fabs(mixes[i] / root * scale[0]) + fabs((double)base[i]);
        for (uint32_t c = 0; c < n_cols; c++) {
            const double term = (sigmoid(logit) + p->eps) * x[(size_t)i * n_cols + c];
            out[c] += term;
            slack[c] += fabs(term) * (gate_slack(size, 0) + sum_slack(n, 1.0));
        }
    }
    for (uint32_t c = 0; c < n_cols; c++)
        scene_expect(s, p->out, (size_t)row * n_cols + c, out[c], slack[c] + TINY);
    if (p->norm.weight.buffer.id != 0)
        expect_normed(s, &p->norm, row, out, slack, n_cols);
    free(out);
    free(slack);
    if (p->is_last)
        return;
    for (uint32_t i = 0; i < n; i++) {
        const double logit = mixes[n + i] / root * scale[1] + base[n + i];
        const double size = fabs(mixes[n + i] / root * scale[1]) + fabs((double)base[n + i]);
        const double want = 2.0 * sigmoid(logit);
        scene_expect(s, p->gates, (size_t)row * (n + n * n) + i, want,
                     gate_slack(size, 0) * want + TINY);
    }
    for (uint32_t i = 0; i < n * n; i++) {
        comb[i] = mixes[2 * n + i] / root * scale[2] + base[2 * n + i];
        most = fmax(most, fabs(mixes[2 * n + i] / root * scale[2]) + fabs((double)base[2 * n + i]));
    }
    make_doubly_stochastic(p, comb);
    for (uint32_t i = 0; i < n * n; i++)
        scene_expect(s, p->gates, (size_t)row * (n + n * n) + n + i, comb[i],
                     gate_slack(most, p->n_iterations) * fabs(comb[i]) + TINY);
}

void reference_streams_in(scene *s)
{
    for (uint32_t r = 0; r < s->op.n_rows; r++)
        in_row(s, r);
}

void reference_streams_out(scene *s)
{
    const mf_streams_out_params *p = &s->op.u.streams_out;
    const uint32_t n = p->n_streams, n_cols = p->n_cols;
    for (uint32_t r = 0; r < s->op.n_rows; r++) {
        const float *gates = floats(s, p->gates) + (size_t)r * (n + n * n);
        const float *x = floats(s, p->streams) + (size_t)r * n * n_cols;
        for (uint32_t c = 0; c < n_cols; c++) {
            double mean = 0.0, mean_slack = 0.0;
            const double y = floats(s, p->y)[(size_t)r * n_cols + c];
            for (uint32_t j = 0; j < n; j++) {
                double sum = gates[j] * y, size = fabs(sum);
                for (uint32_t i = 0; i < n; i++) {
                    const double term = (double)gates[n + i * n + j] * x[(size_t)i * n_cols + c];
                    sum += term;
                    size += fabs(term);
                }
                scene_expect(s, p->streams, ((size_t)r * n + j) * n_cols + c, sum,
                             sum_slack(n + 1, size));
                mean += sum / n;
                mean_slack += sum_slack(n + 1, size) / n + RELATIVE * fabs(sum) / n;
            }
            scene_expect(s, p->mean, (size_t)r * n_cols + c, mean, mean_slack + TINY);
        }
    }
}

/* ----------------------------------------------------------------------------------- entries -- */

/* Value i of the row of a position, as it is cached at `offset` or will be from the batch's rows.
 */
static double at_position(const scene *s, const mf_sequence *seq, mf_span fresh, uint64_t offset,
                          size_t width, mf_dtype type, uint64_t position, size_t i)
{
    if (position < seq->position)
        return reference_decode(
            scene_at(s, scene_page_row(seq, position, offset, width * mf_dtype_bytes(type))), type,
            i);
    const size_t row = (size_t)(seq->first_row + position - seq->position);
    const float value = floats(s, fresh)[row * width + i];
    if (type == MF_F32)
        return value;
    const uint16_t half = (uint16_t)reference_bf16(value);
    return reference_decode((const unsigned char *)&half, MF_BF16, 0);
}

static void expect_rows(scene *s, const mf_sequence *seq, mf_span fresh, uint64_t offset,
                        size_t width, mf_dtype type)
{
    for (uint32_t r = 0; r < seq->n_rows; r++) {
        const mf_span to =
            scene_page_row(seq, seq->position + r, offset, width * mf_dtype_bytes(type));
        const float *from = floats(s, fresh) + (size_t)(seq->first_row + r) * width;
        for (size_t i = 0; i < width; i++) {
            if (type == MF_F32)
                scene_expect(s, to, i, from[i], 0.0);
            else if (i % 2 == 0)
                scene_expect_id(
                    s, to, i / 2,
                    (int32_t)(reference_bf16(from[i]) | reference_bf16(from[i + 1]) << 16));
        }
    }
}

typedef struct weighted {
    double sum, value, size, magnitude; /* of exp, of what is weighted, of that, of gates */
} weighted;

/* Column i of an entry is made of a position's column of a series. */
static void add_position(const scene *s, const mf_sequence *seq, uint64_t position, uint32_t series,
                         uint32_t i, weighted *w)
{
    const mf_compress_params *p = &s->op.u.compress;
    const size_t width = (size_t)p->n_series * p->dim, column = (size_t)series * p->dim + i;
    const double bias = floats(s, p->bias)[position % p->rate * width + column];
    const double gate =
        at_position(s, seq, p->gate, p->gate_offset, width, MF_F32, position, column);
    const double value = at_position(s, seq, p->kv, p->kv_offset, width, MF_F32, position, column);
    w->sum += exp(gate + bias);
    w->value += exp(gate + bias) * value;
    w->size += exp(gate + bias) * fabs(value);
    w->magnitude = fmax(w->magnitude, fabs(gate) + fabs(bias));
}

static void expect_entry(scene *s, const mf_sequence *seq, uint64_t number)
{
    const mf_compress_params *p = &s->op.u.compress;
    const uint64_t first = number * p->rate;
    const uint32_t dim = p->dim, plain = dim - p->n_rot, half = p->n_rot / 2;
    const mf_span to = scene_entry(seq, number, p->rate, p->entry_offset, dim * sizeof(float));
    double *x = new_doubles(dim), *slack = new_doubles(dim), squares = 0.0, most = 0.0;
    for (uint32_t i = 0; i < dim; i++) {
        weighted w = {0};
        for (uint64_t at = p->n_series == 2 && first != 0 ? first - p->rate : first; at < first;
             at++)
            add_position(s, seq, at, 0, i, &w);
        for (uint64_t at = first; at < first + p->rate; at++)
            add_position(s, seq, at, p->n_series - 1, i, &w);
        x[i] = w.value / w.sum;
        slack[i] = (RELATIVE * (2.0 + w.magnitude) + sum_slack(2 * p->rate, 1.0)) * w.size / w.sum;
        squares += x[i] * x[i];
        most = fmax(most, slack[i]);
    }
    const double root = sqrt(squares / dim + (double)p->eps);
    for (uint32_t i = 0; i < dim; i++) {
        const double weight = floats(s, p->norm)[i];
        slack[i] = (slack[i] + fabs(x[i]) * (RELATIVE + most / root)) / root * fabs(weight) + TINY;
        x[i] = x[i] / root * weight;
        if (i < plain)
            scene_expect(s, to, i, x[i], slack[i]);
    }
    for (uint32_t i = 0; i < half; i++) {
        const double cosine = floats(s, p->cos)[first * half + i];
        const double sine = floats(s, p->sin)[first * half + i];
        const uint32_t a = plain + 2 * i, b = a + 1;
        const double size = RELATIVE * (fabs(x[a]) + fabs(x[b])) + TINY;
        scene_expect(s, to, a, x[a] * cosine - x[b] * sine,
                     slack[a] * fabs(cosine) + slack[b] * fabs(sine) + size);
        scene_expect(s, to, b, x[b] * cosine + x[a] * sine,
                     slack[b] * fabs(cosine) + slack[a] * fabs(sine) + size);
    }
    free(x);
    free(slack);
}

void reference_compress(scene *s)
{
    const mf_compress_params *p = &s->op.u.compress;
    const size_t width = (size_t)p->n_series * p->dim;
    for (uint32_t i = 0; i < s->n_sequences; i++) {
        const mf_sequence *seq = &s->sequences[i];
        expect_rows(s, seq, p->kv, p->kv_offset, width, MF_F32);
        expect_rows(s, seq, p->gate, p->gate_offset, width, MF_F32);
        for (uint64_t at = seq->position; at < seq->position + seq->n_rows; at++)
            if ((at + 1) % p->rate == 0)
                expect_entry(s, seq, at / p->rate);
    }
}

/* --------------------------------------------------------------------------------- attention -- */

#define MOST_SEEN 512u

/* Where what a row sees lies: positions of the window, then entries. */
typedef struct row_view {
    const mf_sequence *seq;
    uint64_t position;
    uint32_t n_window, n;
    uint64_t entries[MOST_SEEN];
} row_view;

static double index_score(const scene *s, const mf_index_params *x, size_t row, const double *key)
{
    double score = 0.0;
    for (uint32_t h = 0; h < x->n_heads; h++) {
        double dot = 0.0;
        for (uint32_t i = 0; i < x->dim; i++)
            dot += (double)floats(s, x->q)[(row * x->n_heads + h) * x->dim + i] * key[i];
        score += floats(s, x->weights)[row * x->n_heads + h] * fmax(0.0, dot * x->scale);
    }
    return score;
}

/* Those of n entries that have the largest scores, the first among equals. */
static void choose(row_view *v, uint32_t n_most, const double *scores, uint32_t n)
{
    bool is_taken[MOST_SEEN] = {false};
    for (uint32_t k = 0; k < n_most; k++) {
        uint32_t best = n;
        for (uint32_t i = 0; i < n; i++)
            if (!is_taken[i] && (best == n || scores[i] > scores[best]))
                best = i;
        is_taken[best] = true;
        v->entries[k] = best;
    }
    v->n = n_most;
}

static void choose_entries(const scene *s, row_view *v, size_t row)
{
    const mf_entry_attention_params *p = &s->op.u.entry_attention;
    const mf_index_params *x = &p->index;
    double scores[MOST_SEEN], *key = new_doubles(x->dim);
    for (uint32_t i = 0; i < v->n; i++) {
        const mf_span at =
            scene_entry(v->seq, i, p->rate, x->page_offset, x->dim * mf_dtype_bytes(p->cache_type));
        for (uint32_t d = 0; d < x->dim; d++)
            key[d] = reference_decode(scene_at(s, at), p->cache_type, d);
        scores[i] = index_score(s, x, row, key);
    }
    choose(v, x->n_most, scores, v->n);
    free(key);
}

static void see(const scene *s, const mf_sequence *seq, uint32_t row, row_view *v)
{
    const mf_entry_attention_params *p = &s->op.u.entry_attention;
    *v = (row_view){.seq = seq, .position = seq->position + row};
    v->n_window = v->position < p->window ? (uint32_t)v->position + 1 : p->window;
    v->n = p->rate == 0 ? 0 : (uint32_t)((v->position + 1) / p->rate);
    if (v->n + v->n_window > MOST_SEEN)
        abort();
    if (p->index.n_most != 0 && v->n > p->index.n_most) {
        choose_entries(s, v, seq->first_row + row);
        return;
    }
    for (uint32_t i = 0; i < v->n; i++)
        v->entries[i] = i;
}

static double seen_value(const scene *s, const row_view *v, uint32_t t, size_t i)
{
    const mf_entry_attention_params *p = &s->op.u.entry_attention;
    const uint64_t first = v->position + 1 - v->n_window;
    if (t < v->n_window)
        return at_position(s, v->seq, p->kv, p->page_offset, p->dim, p->cache_type, first + t, i);
    const mf_span entry = scene_entry(v->seq, v->entries[t - v->n_window], p->rate, p->entry_offset,
                                      p->dim * mf_dtype_bytes(p->cache_type));
    return reference_decode(scene_at(s, entry), p->cache_type, i);
}

static void attend_head(scene *s, const row_view *v, size_t row, uint32_t head)
{
    const mf_entry_attention_params *p = &s->op.u.entry_attention;
    const size_t at = (row * p->n_heads + head) * p->dim;
    const uint32_t n = v->n_window + v->n;
    const double sink = floats(s, p->sinks)[head];
    double weights[MOST_SEEN], sum = exp(sink), size = fabs(sink);
    for (uint32_t t = 0; t < n; t++) {
        double score = 0.0, magnitude = 0.0;
        for (uint32_t i = 0; i < p->dim; i++) {
            const double term = floats(s, p->q)[at + i] * seen_value(s, v, t, i) * p->scale;
            score += term;
            magnitude += fabs(term);
        }
        size = fmax(size, magnitude);
        sum += weights[t] = exp(score);
    }
    for (uint32_t i = 0; i < p->dim; i++) {
        double out = 0.0, magnitude = 0.0;
        for (uint32_t t = 0; t < n; t++) {
            const double term = weights[t] / sum * seen_value(s, v, t, i);
            out += term;
            magnitude += fabs(term);
        }
        const double slack = 2.0 * (RELATIVE + sum_slack(p->dim, size)) + sum_slack(n + 1, 1.0);
        scene_expect(s, p->out, at + i, out, slack * magnitude + TINY);
    }
}

void reference_entry_attention(scene *s)
{
    const mf_entry_attention_params *p = &s->op.u.entry_attention;
    row_view v;
    for (uint32_t i = 0; i < s->n_sequences; i++) {
        const mf_sequence *seq = &s->sequences[i];
        for (uint32_t r = 0; r < seq->n_rows; r++) {
            see(s, seq, r, &v);
            for (uint32_t h = 0; h < p->n_heads; h++)
                attend_head(s, &v, seq->first_row + r, h);
        }
        expect_rows(s, seq, p->kv, p->page_offset, p->dim, p->cache_type);
    }
}

/* ------------------------------------------------------------------------- chosen positions -- */

static void see_positions(const scene *s, const mf_sequence *seq, uint32_t row, row_view *v)
{
    const mf_index_params *x = &s->op.u.latent_attention.index;
    *v = (row_view){.seq = seq, .position = seq->position + row};
    v->n = (uint32_t)v->position + 1;
    if (v->n > MOST_SEEN)
        abort();
    for (uint32_t i = 0; i < v->n; i++)
        v->entries[i] = i;
    if (v->n <= x->n_most)
        return;
    double scores[MOST_SEEN], *key = new_doubles(x->dim);
    for (uint32_t i = 0; i < v->n; i++) {
        for (uint32_t d = 0; d < x->dim; d++)
            key[d] = at_position(s, seq, x->k, x->page_offset, x->dim, x->cache_type, i, d);
        scores[i] = index_score(s, x, seq->first_row + row, key);
    }
    choose(v, x->n_most, scores, v->n);
    free(key);
}

static void attend_latents(scene *s, const row_view *v, size_t row, uint32_t head)
{
    const mf_latent_attention_params *p = &s->op.u.latent_attention;
    const uint32_t width = p->n_latent + p->n_rot;
    const size_t at = (row * p->n_heads + head) * p->n_latent;
    const float *q = floats(s, p->q) + at;
    const float *q_rot = floats(s, p->q_rot) + row * p->q_rot_row + (size_t)head * p->q_rot_head;
    double weights[MOST_SEEN], *out = new_doubles(p->n_latent), *sizes = new_doubles(p->n_latent);
    double sum = 0.0, size = 0.0;
    for (uint32_t t = 0; t < v->n; t++) {
        double score = 0.0, magnitude = 0.0;
        for (uint32_t i = 0; i < width; i++) {
            const double x = at_position(s, v->seq, p->kv, p->page_offset, width, p->cache_type,
                                         v->entries[t], i);
            const double term = (i < p->n_latent ? q[i] : q_rot[i - p->n_latent]) * x * p->scale;
            score += term;
            magnitude += fabs(term);
        }
        size = fmax(size, magnitude);
        sum += weights[t] = exp(score);
    }
    for (uint32_t t = 0; t < v->n; t++)
        for (uint32_t i = 0; i < p->n_latent; i++) {
            const double term = weights[t] / sum *
                                at_position(s, v->seq, p->kv, p->page_offset, width, p->cache_type,
                                            v->entries[t], i);
            out[i] += term;
            sizes[i] += fabs(term);
        }
    const double slack = 2.0 * (RELATIVE + sum_slack(width, size)) + sum_slack(v->n, 1.0);
    for (uint32_t i = 0; i < p->n_latent; i++)
        scene_expect(s, p->out, at + i, out[i], slack * sizes[i] + TINY);
    free(out);
    free(sizes);
}

void reference_chosen_attention(scene *s)
{
    const mf_latent_attention_params *p = &s->op.u.latent_attention;
    const mf_index_params *x = &p->index;
    row_view v;
    for (uint32_t i = 0; i < s->n_sequences; i++) {
        const mf_sequence *seq = &s->sequences[i];
        for (uint32_t r = 0; r < seq->n_rows; r++) {
            see_positions(s, seq, r, &v);
            for (uint32_t h = 0; h < p->n_heads; h++)
                attend_latents(s, &v, seq->first_row + r, h);
        }
        expect_rows(s, seq, p->kv, p->page_offset, p->n_latent + p->n_rot, p->cache_type);
        expect_rows(s, seq, x->k, x->page_offset, x->dim, x->cache_type);
    }
}
