/* SPDX-License-Identifier: MIT */
/*
 * The parts of make_random_checkpoint: shapes and presets, the list of tensors with what fills
 * them, the generator of contents, the file writer, and the texts (headers, indexes, configs).
 *
 * Contents are a function of (seed, tensor name, element index) alone: they depend neither on the
 * order in which files are written nor on threads, and the same seed gives the same weights in
 * every form that can hold them.
 */
#ifndef MF_MAKE_RANDOM_CHECKPOINT_H
#define MF_MAKE_RANDOM_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum mf_rc_family {
    MF_RC_QWEN3_5_MOE,
    MF_RC_QWEN3_NEXT,
    MF_RC_DEEPSEEK_V3,
    MF_RC_KIMI_K2,
    MF_RC_DEEPSEEK_V2,
    MF_RC_DEEPSEEK_V32,
    MF_RC_GLM_DSA,
    MF_RC_GLM4_LITE,
    MF_RC_KIMI_LINEAR,
    MF_RC_DEEPSEEK_V4,
    MF_RC_QWEN3_MOE, /* from here on grouped-query softmax attention */
    MF_RC_QWEN2_MOE,
    MF_RC_GLM4_MOE,
    MF_RC_MINIMAX_M2,
    MF_RC_MIXTRAL,
    MF_RC_QWEN3,
    MF_RC_LLAMA,
    MF_RC_MISTRAL,
    MF_RC_GPT_OSS,
    MF_RC_ERNIE,
    MF_RC_HUNYUAN,
    MF_RC_LLAMA4
} mf_rc_family;
/* GGUF is made of the tensors of MLX. */
typedef enum mf_rc_form { MF_RC_MLX, MF_RC_PACKED, MF_RC_HF, MF_RC_FP8, MF_RC_GGUF } mf_rc_form;

typedef enum mf_rc_scales {
    MF_RC_SCALE_F16,
    MF_RC_SCALE_E8M0,
    MF_RC_SCALE_E4M3,   /* four, near 1 */
    MF_RC_SCALE_NIBBLES /* of an f16: each the highest four bits of one of four words, the first the
                           lowest */
} mf_rc_scales;

/* A type of blocks in GGUF: where a block's scale stands, and the weights' spread. */
typedef struct mf_rc_block_type {
    const char *name;
    uint32_t number, n_values, n_bytes;
    uint32_t scale_at;
    mf_rc_scales scales;
    float minimum; /* not 0: an f16 behind the scale, that many times it */
    float rms;
} mf_rc_block_type;

/* NULL if there is none of that name. */
const mf_rc_block_type *mf_rc_block_type_of(const char *name);
/* F32, F16 or BF16, likewise. */
const char *mf_rc_float_type_of(const char *name);
void mf_rc_print_types(void);

/* A preset's numbers; every field is uint64_t so that the option table can point at any of them. */
typedef struct mf_rc_shape {
    const char *preset;
    mf_rc_family family;
    uint64_t hidden;
    uint64_t n_layers;
    uint64_t full_attention_interval; /* of llama4: one layer of so many has experts */
    uint64_t n_heads;
    uint64_t n_kv_heads;
    uint64_t head_dim;
    uint64_t n_vocab;
    uint64_t n_experts;
    uint64_t n_experts_per_token;
    uint64_t expert_hidden;
    uint64_t shared_hidden;
    uint64_t n_linear_v_heads;
    uint64_t n_linear_k_heads;
    uint64_t linear_k_dim;
    uint64_t linear_v_dim;
    uint64_t conv_kernel;
    uint64_t rope_theta;
    uint64_t n_context;
    uint64_t dense_hidden; /* config.json's intermediate_size */
    /* DeepSeek only: 0 elsewhere */
    uint64_t n_dense; /* layers without experts, before the others */
    uint64_t q_rank;  /* 0: queries are not compressed */
    uint64_t kv_rank;
    uint64_t nope_dim;
    uint64_t rope_dim;
    uint64_t v_dim;
    uint64_t n_shared; /* shared experts of expert_hidden each */
    uint64_t n_groups;
    uint64_t n_kept_groups;
    double routed_scale;
    double yarn_factor;
    double yarn_beta_fast;
    double mscale;          /* also over all dims */
    uint64_t n_index_heads; /* of an indexer; 0: none */
    /* grouped-query softmax attention only */
    uint64_t head_norms; /* 1: of each head, 2: of all together */
    uint64_t qkv_bias;
    uint64_t n_rot;   /* 0: whole heads are rotated */
    uint64_t is_tied; /* no head of its own */
    uint64_t window;  /* positions that every second layer attends to; 0: all attend to all */
    /* DeepSeek-V4 only: its layers all have the window */
    uint64_t o_groups, o_rank;
    uint64_t n_streams;
} mf_rc_shape;

static inline bool mf_rc_is_deepseek(const mf_rc_shape *s)
{
    return s->kv_rank != 0;
}

static inline bool mf_rc_is_v4(const mf_rc_shape *s)
{
    return s->family == MF_RC_DEEPSEEK_V4;
}

static inline bool mf_rc_is_grouped(const mf_rc_shape *s)
{
    return s->family >= MF_RC_QWEN3_MOE;
}

typedef struct mf_rc_options {
    mf_rc_shape shape;
    mf_rc_form form;
    uint64_t bits;        /* dense weights; 16: not quantised */
    uint64_t expert_bits; /* differs from bits in the 2-bit packed form only */
    uint64_t group;
    uint64_t seed;
    uint64_t n_threads;
    uint64_t shard_bytes;
    bool is_gguf;                  /* form is MF_RC_MLX then */
    const mf_rc_block_type *block; /* of GGUF; NULL: float_type */
    const char *float_type;        /* of GGUF: of matrices that are not of blocks; default BF16 */
    bool split_kv_b;               /* MLX: kv_b_proj as embed_q and unembed_out */
    bool has_mtp;                  /* one multi-token-prediction layer more */
    bool force;
    bool quiet;
    const char *out;
    const char *tokenizer_dir; /* NULL: none copied */
} mf_rc_options;

/* NULL if there is no such preset. */
const mf_rc_shape *mf_rc_preset(const char *name);
/* Writes the presets' names, one a line, each indented. */
void mf_rc_print_presets(void);

/* --------------------------------------------------------------------------------- contents -- */

typedef enum mf_rc_kind {
    MF_RC_CODES,       /* random bits: quantised codes of any width */
    MF_RC_SCALES,      /* BF16, around a */
    MF_RC_BIASES,      /* BF16, minus half the code range times the scale of the same key */
    MF_RC_UNIFORM,     /* BF16, uniform in [-a, a] */
    MF_RC_UNIFORM_F32, /* the same, widened */
    MF_RC_E4M3,        /* e4m3, magnitudes of 1 to 15 */
    MF_RC_E4M3_SCALES, /* F32, around a */
    MF_RC_E8M0,        /* bytes, all the part's bits */
    MF_RC_NORM,        /* BF16, a + k/128 with |k| <= 16: exact with and without the shift by one */
    MF_RC_A_LOG_F32,
    MF_RC_A_LOG_BF16,
    MF_RC_DT_BIAS,
    MF_RC_NORM_F32, /* MF_RC_NORM and MF_RC_DT_BIAS widened */
    MF_RC_DT_BIAS_F32,
    MF_RC_DECAY_F32, /* -exp of MF_RC_A_LOG */
    MF_RC_BLOCKS,    /* of GGUF, around a: the scale */
    MF_RC_UNIFORM_F16,
    MF_RC_TABLE,    /* I64: rows of a numbers below bits, each of a row another */
    MF_RC_TABLE_I32 /* the same */
} mf_rc_kind;

/* One repeated part of a tensor or blob: `bytes` of the stream of `key` per repetition, the first
 * beginning at first_byte of the stream. */
typedef struct mf_rc_part {
    mf_rc_kind kind;
    uint32_t bits;
    uint64_t key;
    uint64_t first_byte;
    uint64_t bytes;
    float a;
    const mf_rc_block_type *block;
} mf_rc_part;

/* Bytes [offset, offset + n_bytes) of a part's stream. */
void mf_rc_fill(const mf_rc_part *part, uint64_t offset, void *dst, size_t n_bytes);

/* The key of a tensor's stream. */
uint64_t mf_rc_key(uint64_t seed, const char *name);

/* ---------------------------------------------------------------------------------- tensors -- */

typedef struct mf_rc_tensor {
    char name[128];
    const char *dtype;
    uint32_t bits; /* 0: not quantised codes */
    uint32_t n_dims;
    uint64_t dims[4];
    uint64_t n_bytes;
    bool is_expert;
    const mf_rc_block_type *block; /* NULL: of dtype */
    uint64_t n_repeats;            /* n_repeats times parts[0..n_parts) one after another */
    uint32_t n_parts;
    mf_rc_part parts[2];
} mf_rc_tensor;

typedef struct mf_rc_tensors {
    mf_rc_tensor *items;
    size_t count;
    size_t capacity;
} mf_rc_tensors;

/* All tensors of the model in the form's naming, in layer order. For the packed form the experts'
 * nine components come with the others, marked is_expert. */
void mf_rc_tensors_build(const mf_rc_options *options, mf_rc_tensors *out);
void mf_rc_tensors_free(mf_rc_tensors *tensors);

/* A list being built: where names begin and which layer is being listed. */
typedef struct mf_rc_builder {
    const mf_rc_options *options;
    mf_rc_tensors *out;
    const char *model_prefix; /* before "layers.0...", "embed_tokens", "norm" */
    const char *head_prefix;  /* before "lm_head" */
    char layer[32];           /* "layers.N." */
} mf_rc_builder;

/* A tensor without dtype and shape yet. */
mf_rc_tensor *mf_rc_add(mf_rc_builder *b, const char *prefix, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Dimensions (0: absent), element size and a single part; the key is that of key_name. */
void mf_rc_describe(mf_rc_builder *b, mf_rc_tensor *t, const char *dtype, const uint64_t dims[3],
                    mf_rc_kind kind, float a, const char *key_name);
/* A matrix of the current layer at the dense width; std 0: 1/sqrt(n_in). */
void mf_rc_add_linear(mf_rc_builder *b, const char *name, uint64_t n_out, uint64_t n_in, float std);
/* n_stack of them in one tensor, not as experts. */
void mf_rc_add_stack(mf_rc_builder *b, const char *name, uint64_t n_stack, uint64_t n_out,
                     uint64_t n_in);
/* A norm weight around 1; is_shifted: the raw Hugging Face form stores it minus one. */
void mf_rc_add_norm(mf_rc_builder *b, const char *layer, const char *name, uint64_t n,
                    bool is_shifted);
/* The routed experts of the current layer, in the form's way. */
void mf_rc_add_experts(mf_rc_builder *b);

/* gate_proj, up_proj and down_proj of a module of the current layer. */
void mf_rc_add_mlp(mf_rc_builder *b, const char *module, uint64_t n_mid);
/* A router that no form quantises, without what may stand beside it. */
void mf_rc_add_plain_router(mf_rc_builder *b, const char *name);

/* A whole layer of grouped-query softmax attention. */
void mf_rc_grouped_layer(mf_rc_builder *b, uint64_t layer);
const mf_rc_shape *mf_rc_grouped_presets(size_t *count);
/* Experts and router are called as in Mixtral. */
bool mf_rc_is_w123(const mf_rc_shape *s);

/* The part of a layer that has the experts, by its name. */
const char *mf_rc_moe_module(const mf_rc_shape *s);

/* Kimi-Linear: whether a layer has linear attention, and that. */
extern const mf_rc_shape mf_rc_kimi_linear_preset;
bool mf_rc_is_keyed(const mf_rc_shape *s, uint64_t layer);
void mf_rc_keyed_attention(mf_rc_builder *b);

/* Dimensions of an indexer's heads; of DeepSeek-V4's their number, and how many layers have experts
 * by token; and the positions that an entry of a layer stands for, 0: it has none. */
enum { MF_RC_INDEX_DIM = 128, MF_RC_V4_INDEX_HEADS = 64, MF_RC_V4_HASHED = 3 };
uint64_t mf_rc_v4_ratio(const mf_rc_shape *s, uint64_t layer);
/* All tensors of DeepSeek-V4; of GGUF experts are stacked. */
void mf_rc_v4_tensors(mf_rc_builder *b);
const mf_rc_shape *mf_rc_v4_presets(size_t *count);

/* A whole layer of the DeepSeek family. */
void mf_rc_deepseek_layer(mf_rc_builder *b, uint64_t layer);
const mf_rc_shape *mf_rc_deepseek_presets(size_t *count);

/* What GGUF calls the shape's architecture; NULL if it has none for it. */
const char *mf_rc_gguf_arch(const mf_rc_shape *s);
/* Makes of the tensors of MLX, or DeepSeek-V4's published ones, those of GGUF: names, shapes,
 * types. */
void mf_rc_gguf_tensors(const mf_rc_options *options, mf_rc_tensors *tensors);
/* All that comes before the data. The first tensor begins where it ends. */
struct mf_rc_text;
void mf_rc_gguf_head(const mf_rc_options *options, const mf_rc_tensors *tensors,
                     struct mf_rc_text *out);
/* Where the tensor after one that ends there begins. */
uint64_t mf_rc_gguf_place(uint64_t end);

/* ------------------------------------------------------------------------------------- text -- */

typedef struct mf_rc_text {
    char *data;
    size_t length;
    size_t capacity;
} mf_rc_text;

void mf_rc_text_add(mf_rc_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void mf_rc_text_free(mf_rc_text *text);

/* The whole of config.json. */
void mf_rc_config_text(const mf_rc_options *options, mf_rc_text *out);
void mf_rc_grouped_config(const mf_rc_options *options, mf_rc_text *out);
/* What a config says of FP8 and of MLX's quantisation, where no tensor has one of its own. */
void mf_rc_add_quantization(const mf_rc_options *options, mf_rc_text *out);
void mf_rc_deepseek_config(const mf_rc_options *options, mf_rc_text *out);
void mf_rc_kimi_config(const mf_rc_options *options, mf_rc_text *out);
void mf_rc_v4_config(const mf_rc_options *options, mf_rc_text *out);
void mf_rc_deepseek_manifest_config(const mf_rc_options *options, mf_rc_text *out);
/* A shard's length word and header; offsets are those of the tensors laid end to end. */
void mf_rc_header_text(const mf_rc_options *options, const mf_rc_tensor *tensors, size_t count,
                       mf_rc_text *out);
/* model.safetensors.index.json; first[i] is the first tensor of shard i, first[n_shards] the count.
 */
void mf_rc_index_text(const mf_rc_options *options, const mf_rc_tensors *tensors,
                      const size_t *first, size_t n_shards, mf_rc_text *out);
/* The name of shard i (from 0) of n. */
void mf_rc_shard_name(size_t i, size_t n, char name[64]);
/* model_weights.json; offsets[i] belongs to tensors[i], expert tensors are left out. */
void mf_rc_manifest_text(const mf_rc_options *options, const mf_rc_tensors *tensors,
                         const uint64_t *offsets, mf_rc_text *out);
/* packed_experts/layout.json from the nine components of one layer. */
void mf_rc_layout_text(const mf_rc_options *options, const mf_rc_tensor *components,
                       mf_rc_text *out);

/* ------------------------------------------------------------------------------------ files -- */

/* A stretch of a file: n_repeats times the parts. What lies between blocks is zero. */
typedef struct mf_rc_block {
    uint64_t offset;
    uint64_t n_repeats;
    uint64_t repeat_bytes;
    uint32_t n_parts;
    const mf_rc_part *parts;
} mf_rc_block;

typedef struct mf_rc_file {
    const char *path;
    const mf_rc_text *head; /* first bytes of the file; may be NULL */
    const mf_rc_block *blocks;
    size_t n_blocks;
    uint64_t n_bytes;
} mf_rc_file;

/* Writes a whole file with n_threads threads, sequentially, with direct I/O where the file system
 * has it. */
void mf_rc_write_file(const mf_rc_file *file, uint64_t n_threads);
void mf_rc_write_text(const char *path, const mf_rc_text *text);
void mf_rc_copy_file(const char *from, const char *to);

/* Prints one line to stderr and ends the program with status 1. */
void mf_rc_die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void *mf_rc_alloc(void *old, size_t n_bytes);

#endif
