/* SPDX-License-Identifier: MIT */
/*
 * FP8 matrices whose rows are bound in another order, in runs that do not end with the blocks of
 * 128 rows: each head's query and gate (32 rows of 64), the parts of in_proj_qkvz (24, 24, 32 and
 * 32 rows of 112), beta and alpha (2 of 4); and a matrix for each head, of 64 rows. The same
 * weights as BF16, which holds them exactly as the scales are powers of two, give the same logits.
 * And blocks as compressed-tensors names them.
 */
#include "golden.h"
#include "scratch_dir.h"

#include "base/cpu.h"
#include "base/half.h"

typedef struct model_case {
    const char *name;
    unsigned n_files;
    unsigned n_matrices; /* of the attention, as BF16 */
    unsigned n_several;  /* of them, with several rows of scales */
} model_case;

static const model_case cases[] = {
    {"next_bf16", 3, 3 * 3 + 4, 3 + 1}, /* in_proj_qkvz and q_proj */
    {"v3_mlx_8bit_split_plain", 2, 2, 2},
};

typedef struct stored {
    char name[128];
    unsigned n_stacked; /* 0: two dimensions */
    unsigned n_rows, n_cols;
    size_t begin, end; /* in the data */
    char entry[256];   /* the header's text after the name */
} stored;

static uint64_t random_state;

static uint32_t next_random(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

/* A BF16 matrix's entry of a header. */
static bool read_entry(const char *text, stored *m)
{
    int n = 0;
    m->n_stacked = 0;
    if (sscanf(text,
               "\"%127[^\"]\":{\"dtype\":\"BF16\",\"shape\":[%u,%u],\"data_offsets\":[%zu,%zu]}%n",
               m->name, &m->n_rows, &m->n_cols, &m->begin, &m->end, &n) != 5 &&
        sscanf(
            text,
            "\"%127[^\"]\":{\"dtype\":\"BF16\",\"shape\":[%u,%u,%u],\"data_offsets\":[%zu,%zu]}%n",
            m->name, &m->n_stacked, &m->n_rows, &m->n_cols, &m->begin, &m->end, &n) != 6)
        return false;
    snprintf(m->entry, sizeof m->entry, "%.*s", n, text);
    return n != 0;
}

/* The next matrix of an attention layer in a header, from *at on. */
static bool next_matrix(const char **at, const char *end, stored *m)
{
    static const char *const modules[] = {
        ".linear_attn.in_proj_", ".linear_attn.out_proj", ".self_attn.q_proj", ".self_attn.k_proj",
        ".self_attn.v_proj",     ".self_attn.o_proj",     ".self_attn.embed_q"};
    while ((*at = memchr(*at, '"', (size_t)(end - *at))) != NULL) {
        if (!read_entry((*at)++, m) || strncmp(m->name, "model.", 6) != 0 ||
            strstr(m->name, ".weight") == NULL)
            continue;
        for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
            if (strstr(m->name, modules[i]) != NULL)
                return true;
    }
    return false;
}

static unsigned stacked(const stored *m)
{
    return m->n_stacked == 0 ? 1 : m->n_stacked;
}

/* Rows of scales of all that is stacked. */
static unsigned scale_rows(const stored *m)
{
    return stacked(m) * ((m->n_rows + 127) / 128);
}

/* A code between 0.25 and 3.75 in size, and what it means. */
static unsigned char random_code(float *value)
{
    uint32_t r = next_random(), exponent = 5 + r % 4, fraction = r >> 8 & 7, sign = r >> 16 & 1;
    *value = ldexpf(sign != 0 ? -(float)(8 + fraction) : (float)(8 + fraction), (int)exponent - 10);
    return (unsigned char)(sign << 7 | exponent << 3 | fraction);
}

/* Weights of m's size, as FP8 with its scales behind it or as BF16. */
static void fill(const stored *m, bool is_fp8, unsigned char *out)
{
    const unsigned block_cols = (m->n_cols + 127) / 128, n_rows = stacked(m) * m->n_rows;
    unsigned char *scales = out + (size_t)n_rows * m->n_cols;
    const uint64_t seed = random_state;
    for (unsigned r = 0; r < n_rows; r++) {
        const unsigned of_row = r / m->n_rows * (scale_rows(m) / stacked(m)) + r % m->n_rows / 128;
        for (unsigned c = 0; c < m->n_cols; c++) {
            float value, scale = ldexpf(1.0f, -5 - (int)((of_row * 3 + c / 128 + seed) % 5));
            size_t i = (size_t)r * m->n_cols + c;
            unsigned char code = random_code(&value);
            uint16_t half = mf_bf16_from_f32(value * scale);
            REQUIRE(mf_f32_from_bf16(half) == value * scale);
            if (is_fp8) {
                out[i] = code;
                memcpy(scales + (size_t)4 * (of_row * block_cols + c / 128), &scale, 4);
            } else {
                memcpy(out + 2 * i, &half, 2);
            }
        }
    }
}

static void put_header(const char *file, const stored *m)
{
    char entry[512], of_values[32], of_scales[32];
    size_t at = m->begin + (size_t)stacked(m) * m->n_rows * m->n_cols;
    unsigned rows = scale_rows(m), cols = (m->n_cols + 127) / 128;
    if (m->n_stacked == 0) {
        snprintf(of_values, sizeof of_values, "%u,%u", m->n_rows, m->n_cols);
        snprintf(of_scales, sizeof of_scales, "%u,%u", rows, cols);
    } else {
        snprintf(of_values, sizeof of_values, "%u,%u,%u", m->n_stacked, m->n_rows, m->n_cols);
        snprintf(of_scales, sizeof of_scales, "%u,%u,%u", m->n_stacked, rows / m->n_stacked, cols);
    }
    snprintf(entry, sizeof entry,
             "\"%.127s\":{\"dtype\":\"F8_E4M3\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]},"
             "\"%.127s_scale_inv\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
             m->name, of_values, m->begin, at, m->name, of_scales, at,
             at + (size_t)4 * rows * cols);
    scratch_replace_in_header(file, m->entry, entry);
}

/* Gives the attention's matrices of one file new weights. Returns how many there were, and how many
 * of them have several rows of scales. */
static unsigned rewrite(const char *file, bool is_fp8, unsigned *n_several)
{
    size_t n_bytes;
    uint64_t n_header;
    unsigned n = 0;
    stored all[64];
    unsigned char *data = read_file(scratch_path(file), &n_bytes);
    memcpy(&n_header, data, 8);
    const char *at = (const char *)data + 8, *end = at + n_header;
    while (next_matrix(&at, end, &all[n])) {
        fill(&all[n], is_fp8, data + 8 + n_header + all[n].begin);
        *n_several += scale_rows(&all[n]) > 1;
        REQUIRE(++n < 64);
    }
    scratch_write(file, data, n_bytes);
    for (unsigned i = 0; is_fp8 && i < n; i++)
        put_header(file, &all[i]);
    free(data);
    return n;
}

/* Logits of the model in dir, which is the case's or a changed copy. */
static float *logits_in(const char *dir, const char *name, const golden *g, uint32_t tier)
{
    mf_engine_options options = golden_options(golden_case_find(name));
    options.cpu_tier = mf_cpu_tier_name(tier);
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_error error = {0};
    float *out = malloc((size_t)g->n_tokens * g->n_vocab * sizeof *out);
    REQUIRE(out != NULL);
    REQUIRE_OK(mf_engine_open(dir, &options, &engine, &error), &error);
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    REQUIRE_OK(golden_eval(session, g->tokens, g->n_tokens, g->n_vocab, out, &error), &error);
    mf_session_free(&session);
    mf_engine_close(&engine);
    return out;
}

/* Logits of a copy of the model with other weights in the attention. */
static float *logits_of(const model_case *c, const golden *g, bool is_fp8, uint32_t tier)
{
    const char *dir = scratch_copy(c->name);
    unsigned n = 0, n_several = 0;
    random_state = 1;
    for (unsigned i = 1; i <= c->n_files; i++) {
        char file[64];
        snprintf(file, sizeof file, "model-%05u-of-%05u.safetensors", i, c->n_files);
        n += rewrite(file, is_fp8, &n_several);
    }
    CHECK_U64(n, c->n_matrices);
    CHECK_U64(n_several, c->n_several);
    return logits_in(dir, c->name, g, tier);
}

static void check_case(const model_case *c)
{
    golden g;
    golden_read(golden_case_find(c->name), &g);
    for (uint32_t tier = MF_CPU_SCALAR; tier < MF_CPU_END; tier++) {
        if (!golden_has_tier(tier))
            continue;
        float *fp8 = logits_of(c, &g, true, tier), *bf16 = logits_of(c, &g, false, tier);
        double largest = 0.0, difference = 0.0;
        for (size_t i = 0; i < (size_t)g.n_tokens * g.n_vocab; i++) {
            CHECK(isfinite(fp8[i]));
            largest = fmax(largest, fabs((double)bf16[i]));
            difference = fmax(difference, fabs((double)fp8[i] - (double)bf16[i]));
        }
        CHECK_MSG(difference <= 2e-5 * largest, "%s, tier %u: logits differ by %g of %g", c->name,
                  tier, difference, largest);
        free(fp8);
        free(bf16);
    }
    golden_free(&g);
}

static unsigned count(const char *file, const char *text)
{
    size_t n_bytes;
    unsigned char *data = read_file(scratch_path(file), &n_bytes);
    const unsigned char *at = data, *const end = data + n_bytes;
    unsigned n = 0;
    while ((at = memmem(at, (size_t)(end - at), text, strlen(text))) != NULL) {
        at += strlen(text);
        n++;
    }
    free(data);
    return n;
}

static void rename_all(const char *file, const char *from, const char *to)
{
    const unsigned n = count(file, from);
    CHECK(n > 60);
    for (unsigned i = 0; i < n; i++)
        scratch_replace_in_header(file, from, to);
}

/* The scratch copy of the case, with other names, has the same bits. */
static void check_same_bits(const char *dir, const char *name)
{
    golden g;
    golden_read(golden_case_find(name), &g);
    float *named = logits_in(dir, name, &g, MF_CPU_BEST);
    float *published = logits_in(golden_path(name), name, &g, MF_CPU_BEST);
    CHECK(memcmp(named, published, (size_t)g.n_tokens * g.n_vocab * sizeof *named) == 0);
    free(named);
    free(published);
    golden_free(&g);
}

/* weight_scale where others say weight_scale_inv: the same blocks, so the same bits. */
static void check_named_otherwise(void)
{
    static const char name[] = "minimax_m2_fp8";
    const char *dir = scratch_copy(name);
    rename_all("model.safetensors", ".weight_scale_inv\"", ".weight_scale\"");
    scratch_replace("config.json", "\"quant_method\": \"fp8\"",
                    "\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\"");
    check_same_bits(dir, name);
}

/* One weight_scale_inv, as transformers writes it where there are no blocks, and what activations
 * are divided by. */
static void check_one_value(void)
{
    static const char name[] = "k2_fp8_tensor";
    const char *dir = scratch_copy(name);
    rename_all("model.safetensors", ".weight_scale\"", ".weight_scale_inv\"");
    rename_all("model.safetensors", ".input_scale\"", ".activation_scale\"");
    scratch_replace("config.json", "\"quant_method\": \"modelopt\"",
                    "\"quant_method\": \"fp8\", \"weight_block_size\": null");
    check_same_bits(dir, name);
}

int main(void)
{
    check_named_otherwise();
    check_one_value();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_case(&cases[i]);
    return test_result();
}
