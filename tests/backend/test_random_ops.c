/* SPDX-License-Identifier: MIT */
/*
 * Operations of the list in shapes that nobody chose: against float64, with the same bits for any
 * cut of the batch and any number of threads, in every tier that the machine has. A number as
 * argument: so many shapes of each (20), from another seed if there are two.
 */
#include "kernels/kernels.h"
#include "op_list.h"
#include "test.h"

static uint64_t random_state;

/* least .. most */
static uint32_t draw(uint32_t least, uint32_t most)
{
    return least + (uint32_t)(test_random(&random_state) >> 33) % (most - least + 1);
}

static uint32_t draw_rows(uint32_t most)
{
    return draw(0, 2) == 0 ? 1 : draw(1, most);
}

static uint32_t draw_sequences(uint32_t n_rows)
{
    return draw(1, n_rows < SCENE_SEQUENCES ? n_rows : SCENE_SEQUENCES);
}

/* A kind of weights; *n_cols becomes what it allows. */
static uint32_t draw_kind(uint32_t *n_cols)
{
    static const uint32_t bits[] = {2, 3, 4, 5, 6, 8};
    const uint32_t group = 32u << draw(0, 2), at = draw(0, 7);
    if (at < 3)
        return MF_F32 + at;
    if (at == 3)
        return SCENE_FP8;
    *n_cols = (*n_cols + group - 1) / group * group;
    return at == 4   ? SCENE_Q8_0
           : at == 5 ? SCENE_NVFP4
                     : SCENE_AFFINE(bits[draw(0, 5)], group, MF_F32 + draw(0, 2));
}

static void draw_plain(uint32_t *p)
{
    p[0] = draw_rows(40);
    p[1] = draw(0, 1) == 0 ? draw(1, 40) : draw(1, 2200);
    p[2] = draw(0, 1);
}

static void draw_add(uint32_t *p)
{
    draw_plain(p);
    p[3] = draw(0, 1);
}

static void draw_matmul(uint32_t *p)
{
    p[0] = draw_rows(70);
    p[1] = draw(1, 600);
    p[2] = draw(1, 150);
    p[4] = draw_kind(&p[1]);
}

static void draw_head_norm_rope(uint32_t *p)
{
    p[0] = draw_rows(40);
    p[1] = draw(1, 9);
    p[2] = draw(2, 200);
    p[3] = 2 * draw(1, p[2] / 2);
    p[4] = draw_sequences(p[0]);
}

static void draw_attention(uint32_t *p)
{
    p[0] = draw_rows(70);
    p[2] = draw(1, 4);
    p[1] = p[2] * draw(1, 9);
    p[3] = 2 * draw(1, 64);
    p[4] = draw_sequences(p[0]);
    p[5] = draw(0, 1);
    p[6] = draw(0, 1) * draw(1, 80);
    p[7] = draw(0, 1) + (p[6] != 0 ? 2 * draw(0, 2) : 0); /* sinks; a chunk, or pages of windows */
}

static void draw_latent(uint32_t *p)
{
    p[0] = draw_rows(40);
    p[1] = draw(1, 20);
    p[2] = 2 * draw(1, 80);
    p[3] = 2 * draw(0, 16);
    p[4] = draw_sequences(p[0]);
    p[5] = draw(0, 1);
}

static void draw_conv(uint32_t *p)
{
    p[0] = draw_rows(40);
    p[1] = draw(1, 600);
    p[2] = draw(2, 4);
    p[3] = draw_sequences(p[0]);
    p[4] = draw(0, 1);
}

static void draw_delta(uint32_t *p)
{
    p[0] = draw_rows(40);
    p[1] = draw(1, 2);
    p[2] = p[1] * draw(1, 2);
    p[3] = draw(1, 100);
    p[4] = draw(1, 70);
    p[5] = draw_sequences(p[0] < 4 ? p[0] : 4);
    p[6] = draw(0, 1);
}

static void draw_route(uint32_t *p)
{
    p[0] = draw_rows(70);
    p[3] = draw(1, 12);
    p[1] = p[3] * draw(1, 30);
    p[2] = draw(1, p[1] < 20 ? p[1] : 20);
    p[4] = draw(1, p[3]);
    p[5] = draw(0, 1);
    p[6] = draw(0, 1);
}

/* Half of them with steps. */
static void draw_experts(uint32_t *p)
{
    p[0] = draw(1, 12);
    p[1] = draw(1, 9);
    p[2] = draw(1, 100);
    p[3] = draw(1, 100);
    p[4] = draw_kind(&p[2]);
    p[5] = draw_kind(&p[3]);
    p[6] = draw(0, 1) * draw(0, 7);
}

static void draw_combine(uint32_t *p)
{
    p[0] = draw_rows(30);
    p[1] = draw(1, 200);
    p[2] = draw(1, 12);
    p[3] = draw(0, 2);
    p[4] = draw(0, 1);
    p[5] = draw(0, 1);
}

static void draw_compress(uint32_t *p)
{
    p[0] = draw_rows(70);
    p[1] = draw(2, 60);
    p[2] = draw(1, 2);
    p[3] = 1u << draw(0, 6);
    p[4] = 2 * draw(1, p[1] / 2);
    p[5] = draw_sequences(p[0]);
}

static void draw_entries(uint32_t *p)
{
    p[0] = draw_rows(40);
    p[1] = draw(1, 20);
    p[2] = 2 * draw(1, 40);
    p[3] = draw(1, 70);
    p[4] = 1u << draw(0, 6);
    p[5] = draw_sequences(p[0]);
    p[6] = draw(0, 1);
    p[7] = draw(0, 1) * draw(1, 20);
}

/* like: the case of the list that is built so. */
static const struct shapes {
    const char *like;
    void (*draw)(uint32_t *p);
} shapes[] = {
    {"finite 1x1", draw_plain},
    {"rmsnorm 1x1", draw_plain},
    {"add 1x1", draw_add},
    {"swiglu 1x3", draw_plain},
    {"matmul f32 1", draw_matmul},
    {"head_norm_rope 1", draw_head_norm_rope},
    {"attention 1", draw_attention},
    {"latent_attention 1", draw_latent},
    {"conv1d_silu 1", draw_conv},
    {"gated_delta 1", draw_delta},
    {"route 3 of 12, 2 of 4 groups", draw_route},
    {"experts f32, biases", draw_experts},
    {"combine 1x3 of 1", draw_combine},
    {"compress 7 by 4", draw_compress},
    {"entry_attention 1", draw_entries},
};

static const op_case *case_like(const char *name)
{
    for (size_t i = 0; i < n_op_cases; i++)
        if (strcmp(op_cases[i].name, name) == 0)
            return &op_cases[i];
    REQUIRE(false);
    return NULL;
}

static void run_tiers(const op_case *c, uint64_t seed, scene *s)
{
    for (uint32_t tier = MF_CPU_SCALAR; tier < MF_CPU_END; tier++) {
        unsigned char *same = NULL;
        for (uint32_t n_threads = 1; n_threads <= 3 && mf_kernels_get(tier) != NULL;
             n_threads += 2) {
            mf_error error = {0};
            mf_backend *be = NULL; /* a new one: it has reserved for this shape alone */
            mf_buffer buffer = {0};
            const mf_backend_options options = {.n_threads = n_threads, .cpu_tier = tier};
            REQUIRE_OK(mf_backend_open(&options, &be, &error), &error);
            REQUIRE_OK(
                be->ops->buffer_create(be, SCENE_BYTES, MF_USE_DEVICE, "scene", &buffer, &error),
                &error);
            const list_options o = {.label = be->ops->device_name(be), .slack_factor = 1.0};
            if (s->n_bytes == 0) {
                scene_reset(s, buffer, seed % 2, seed);
                c->build(s, c->p);
                scene_reference(s);
            }
            CHECK_U64(buffer.id, s->buffer.id); /* the first of each */
            run_case(be, c, s, &o, &same);
            be->ops->destroy(be);
        }
        free(same);
    }
}

int main(int argc, char **argv)
{
    const uint32_t n = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 20;
    const uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    scene *s = scene_new();
    REQUIRE(s != NULL);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (uint64_t seed = first; seed < first + n; seed++) {
            const op_case *like = case_like(shapes[i].like);
            char name[160];
            op_case c = {.name = name, .build = like->build};
            random_state = (seed * 64 + i) * UINT64_C(0x9e3779b97f4a7c15);
            shapes[i].draw(c.p);
            snprintf(name, sizeof name, "as %s {%u, %u, %u, %u, 0x%x, 0x%x, %u, %u}, seed %u",
                     like->name, c.p[0], c.p[1], c.p[2], c.p[3], c.p[4], c.p[5], c.p[6], c.p[7],
                     (unsigned)seed);
            s->n_bytes = 0;
            run_tiers(&c, seed, s);
        }
    scene_free(s);
    return test_result();
}
