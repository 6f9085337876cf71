/* SPDX-License-Identifier: MIT */
/* Rotary frequencies: plain, and YaRN (arXiv 2309.00071) as the DeepSeek models use it. */
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
static void yarn_frequencies(const mf_hparams *h, float *out)
{
    const mf_rope *r = &h->rope;
    double low = pair_of_turns(r, h->n_rot, r->beta_fast);
    double high = pair_of_turns(r, h->n_rot, r->beta_slow);
    if (r->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = low > 0 ? low : 0;
    high = high < h->n_rot - 1.0 ? high : h->n_rot - 1.0;
    if (low == high)
        high += 0.001;
    for (uint32_t i = 0; i < h->n_rot / 2; i++) {
        float power = (float)pow(r->theta, (double)((float)(2 * i) / (float)h->n_rot));
        float fast = 1.0f / power, slow = 1.0f / ((float)r->factor * power);
        float ramp = ((float)i - (float)low) / (float)(high - low);
        ramp = ramp < 0.0f ? 0.0f : ramp > 1.0f ? 1.0f : ramp;
        float keep = 1.0f - ramp;
        out[i] = slow * (1.0f - keep) + fast * keep;
    }
}

void mf_rope_frequencies(const mf_hparams *h, float *out)
{
    if (h->rope.is_yarn) {
        yarn_frequencies(h, out);
        return;
    }
    for (uint32_t i = 0; i < h->n_rot / 2; i++)
        out[i] = (float)(1.0 / pow(h->rope.theta, 2.0 * i / h->n_rot));
}
