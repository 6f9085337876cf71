/* SPDX-License-Identifier: MIT */
/* Rotary frequencies: plain, YaRN (arXiv 2309.00071) as the DeepSeek models use it, and
 * Llama 3.1's. */
#include "model/rope.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

/* The pair that turns n_turns times over the original context. */
static double pair_of_turns(const mf_rope *r, uint32_t n_rot, double n_turns)
{
    return n_rot * log(r->n_original / (n_turns * 2 * pi)) / (2 * log(r->theta));
}

/* Fast pairs keep their frequency, slow ones are slowed by the factor; between `low` and `high` the
 * two are mixed. The steps are float32, as published: far positions multiply their rounding. */
static void yarn_frequencies(const mf_rope *r, uint32_t n_rot, float *out)
{
    double low = pair_of_turns(r, n_rot, r->beta_fast);
    double high = pair_of_turns(r, n_rot, r->beta_slow);
    if (r->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = low > 0 ? low : 0;
    high = high < n_rot - 1.0 ? high : n_rot - 1.0;
    if (low == high)
        high += 0.001;
    for (uint32_t i = 0; i < n_rot / 2; i++) {
        float power = (float)pow(r->theta, (double)((float)(2 * i) / (float)n_rot));
        float fast = 1.0f / power, slow = 1.0f / ((float)r->factor * power);
        float ramp = ((float)i - (float)low) / (float)(high - low);
        ramp = ramp < 0.0f ? 0.0f : ramp > 1.0f ? 1.0f : ramp;
        float keep = 1.0f - ramp;
        out[i] = slow * (1.0f - keep) + fast * keep;
    }
}

/* Pairs that turn often within the original context keep their frequency, those that turn seldom
 * are slowed by the factor, and what lies between is mixed; in float32, as published. */
static float llama3_frequency(const mf_rope *r, float frequency)
{
    const float length = (float)(2 * pi) / frequency;
    const float shortest = (float)(r->n_original / r->high_factor);
    const float longest = (float)(r->n_original / r->low_factor);
    const float slow = frequency / (float)r->factor;
    if (length < shortest)
        return frequency;
    if (length > longest)
        return slow;
    if (shortest >= longest) /* nothing lies between */
        return frequency;
    const float smooth = ((float)r->n_original / length - (float)r->low_factor) /
                         (float)(r->high_factor - r->low_factor);
    return (1.0f - smooth) * slow + smooth * frequency;
}

void mf_rope_frequencies(const mf_rope *r, uint32_t n_rot, float *out)
{
    if (r->is_yarn) {
        yarn_frequencies(r, n_rot, out);
        return;
    }
    for (uint32_t i = 0; i < n_rot / 2; i++)
        out[i] = (float)(1.0 / pow(r->theta, 2.0 * i / n_rot));
    for (uint32_t i = 0; i < n_rot / 2 && r->is_llama3; i++)
        out[i] = llama3_frequency(r, out[i]);
    for (uint32_t i = 0; i < r->n_factors; i++)
        out[i] /= r->factors[i];
}
