/* SPDX-License-Identifier: MIT */
/*
 * make_random_checkpoint: writes a checkpoint of random weights in the shape of a published model,
 * for benchmarks and tests. Options, checks, and the order of files: config.json and the manifest
 * come last, so that an interrupted checkpoint is never taken for a whole one.
 */
#include "make_random_checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long ull;

/* Options that take a number, and where it goes. */
typedef struct number_option {
    const char *name;
    size_t offset;
    uint64_t min, max;
    const char *help;
} number_option;

#define MF_RC_AT(field) offsetof(mf_rc_options, field)
static const number_option number_options[] = {
    {"bits", MF_RC_AT(bits), 2, 16, "bits a weight: 2, 3, 4, 5, 6, 8, or 16 (BF16); default 4"},
    {"group", MF_RC_AT(group), 32, 128, "quantisation group: 32, 64 or 128; default 64"},
    {"seed", MF_RC_AT(seed), 0, UINT64_MAX, "of all contents; default 0"},
    {"threads", MF_RC_AT(n_threads), 1, 64,
     "default 4: more than cores, so that filling and writing overlap"},
    {"shard-bytes", MF_RC_AT(shard_bytes), 1, UINT64_MAX, "largest shard; default 5 GiB"},
    {"layers", MF_RC_AT(shape.n_layers), 1, 1024, NULL},
    {"experts", MF_RC_AT(shape.n_experts), 1, 65536, NULL},
    {"experts-per-token", MF_RC_AT(shape.n_experts_per_token), 1, 1024, NULL},
    {"hidden", MF_RC_AT(shape.hidden), 32, 65536, NULL},
    {"expert-hidden", MF_RC_AT(shape.expert_hidden), 32, 65536, NULL},
    {"shared-hidden", MF_RC_AT(shape.shared_hidden), 32, 65536, NULL},
    {"vocab", MF_RC_AT(shape.n_vocab), 2, 1 << 24, NULL},
    {"heads", MF_RC_AT(shape.n_heads), 1, 1024, NULL},
    {"kv-heads", MF_RC_AT(shape.n_kv_heads), 1, 1024, NULL},
    {"head-dim", MF_RC_AT(shape.head_dim), 8, 1024, NULL},
    {"linear-v-heads", MF_RC_AT(shape.n_linear_v_heads), 1, 1024, NULL},
    {"linear-k-heads", MF_RC_AT(shape.n_linear_k_heads), 1, 1024, NULL},
    {"linear-k-dim", MF_RC_AT(shape.linear_k_dim), 1, 1024, NULL},
    {"linear-v-dim", MF_RC_AT(shape.linear_v_dim), 1, 1024, NULL},
    {"dense-layers", MF_RC_AT(shape.n_dense), 0, 1024, NULL},
    {"dense-hidden", MF_RC_AT(shape.dense_hidden), 32, 65536, NULL},
    {"q-rank", MF_RC_AT(shape.q_rank), 0, 65536, NULL},
    {"kv-rank", MF_RC_AT(shape.kv_rank), 1, 65536, NULL},
    {"nope-dim", MF_RC_AT(shape.nope_dim), 1, 1024, NULL},
    {"rope-dim", MF_RC_AT(shape.rope_dim), 2, 1024, NULL},
    {"v-dim", MF_RC_AT(shape.v_dim), 1, 1024, NULL},
    {"shared-experts", MF_RC_AT(shape.n_shared), 0, 64, NULL},
    {"groups", MF_RC_AT(shape.n_groups), 1, 256, NULL},
    {"kept-groups", MF_RC_AT(shape.n_kept_groups), 1, 256, NULL},
    {"o-groups", MF_RC_AT(shape.o_groups), 1, 256, NULL},
    {"o-rank", MF_RC_AT(shape.o_rank), 1, 65536, NULL},
};
enum { N_NUMBERS = sizeof number_options / sizeof number_options[0] };
enum {
    OPT_PRESET = 256,
    OPT_FORM,
    OPT_TYPE,
    OPT_TOKENIZER,
    OPT_SPLIT,
    OPT_MTP,
    OPT_FORCE,
    OPT_QUIET,
    OPT_HELP
};

static void print_help(void)
{
    puts("Usage: make_random_checkpoint --preset NAME [OPTION...] OUT\n\n"
         "Writes a checkpoint of random weights with a published model's shape, names and files\n"
         "into the new directory OUT.\n\nPresets:");
    mf_rc_print_presets();
    puts(
        "\nOptions:\n"
        "  --form NAME           mlx: as mlx-lm publishes (default); packed: one file of experts "
        "a\n"
        "                        layer; hf or bf16: raw Hugging Face, BF16; fp8: the same with "
        "e4m3\n"
        "                        matrices in blocks of 128 x 128 (not of Qwen3.5, Qwen3-Next), of\n"
        "                        DeepSeek-V4 with experts in e2m1;\n"
        "                        gguf: OUT/model.gguf, without a vocabulary\n"
        "  --type NAME           gguf: of matrices (default BF16), see below\n"
        "  --split-kv-b          mlx: kv_b_proj as embed_q and unembed_out (DeepSeek)\n"
        "  --mtp                 a multi-token-prediction layer, too (Qwen3.5, Qwen3-Next, "
        "DeepSeek-V3,\n"
        "                        Kimi-K2 and GLM-4.7-Flash; mlx, hf and fp8)\n"
        "  --tokenizer DIR       copy the tokenizer files of DIR into OUT\n"
        "  --force               write into an OUT that is not empty\n"
        "  --quiet               no progress");
    for (size_t i = 0; i < N_NUMBERS; i++)
        printf("  --%s N%*s%s\n", number_options[i].name,
               (int)(20 - strlen(number_options[i].name)), "",
               number_options[i].help ? number_options[i].help : "instead of the preset's");
    printf("\nTypes of GGUF: ");
    mf_rc_print_types();
    puts(". Q8_0 or BF16 where a row is no whole number of blocks.");
}

static void __attribute__((noreturn, format(printf, 1, 2))) usage(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("make_random_checkpoint: ", stderr);
    vfprintf(stderr, format, args);
    fputs("\nTry --help.\n", stderr);
    va_end(args);
    exit(2);
}

static uint64_t parse_number(const number_option *o, const char *text)
{
    char *end;
    errno = 0;
    ull value = strtoull(text, &end, 10);
    if (errno || end == text || *end || *text == '-' || value < o->min || value > o->max)
        usage("--%s takes a number from %llu to %llu, not \"%s\"", o->name, (ull)o->min,
              (ull)o->max, text);
    return value;
}

static mf_rc_form parse_form(const char *text)
{
    static const char *const names[] = {"mlx", "packed", "hf", "fp8", "gguf"};
    for (int i = 0; i < 5; i++)
        if (strcmp(text, names[i]) == 0)
            return (mf_rc_form)i;
    if (strcmp(text, "bf16") == 0)
        return MF_RC_HF;
    usage("--form is mlx, packed, hf, bf16, fp8 or gguf, not \"%s\"", text);
}

static void take_preset(mf_rc_options *options, const char *name)
{
    const mf_rc_shape *shape = mf_rc_preset(name);
    if (!shape)
        usage("no preset \"%s\"", name);
    options->shape = *shape;
}

static void take_type(mf_rc_options *options, const char *type)
{
    options->is_gguf = options->form == MF_RC_GGUF;
    options->float_type = "BF16";
    if (type == NULL)
        return;
    if (!options->is_gguf)
        usage("--type is for the gguf form");
    options->block = mf_rc_block_type_of(type);
    if (options->block == NULL)
        options->float_type = mf_rc_float_type_of(type);
    if (options->float_type == NULL)
        usage("no type \"%s\"", type);
}

static void parse_options(int argc, char **argv, mf_rc_options *options)
{
    struct option table[N_NUMBERS + 11] = {{0}};
    for (int i = 0; i < N_NUMBERS; i++)
        table[i] = (struct option){number_options[i].name, required_argument, NULL, i + 1};
    const struct option others[] = {{"preset", required_argument, NULL, OPT_PRESET},
                                    {"form", required_argument, NULL, OPT_FORM},
                                    {"type", required_argument, NULL, OPT_TYPE},
                                    {"tokenizer", required_argument, NULL, OPT_TOKENIZER},
                                    {"split-kv-b", no_argument, NULL, OPT_SPLIT},
                                    {"mtp", no_argument, NULL, OPT_MTP},
                                    {"force", no_argument, NULL, OPT_FORCE},
                                    {"quiet", no_argument, NULL, OPT_QUIET},
                                    {"help", no_argument, NULL, OPT_HELP}};
    memcpy(table + N_NUMBERS, others, sizeof others);
    const char *type = NULL;
    const char *numbers[N_NUMBERS] = {NULL}; /* applied after the preset, wherever they stand */
    for (int c; (c = getopt_long(argc, argv, "", table, NULL)) != -1;) {
        if (c >= 1 && c <= N_NUMBERS)
            numbers[c - 1] = optarg;
        else if (c == OPT_PRESET)
            take_preset(options, optarg);
        else if (c == OPT_FORM)
            options->form = parse_form(optarg);
        else if (c == OPT_TYPE)
            type = optarg;
        else if (c == OPT_TOKENIZER)
            options->tokenizer_dir = optarg;
        else if (c == OPT_SPLIT)
            options->split_kv_b = true;
        else if (c == OPT_MTP)
            options->has_mtp = true;
        else if (c == OPT_FORCE)
            options->force = true;
        else if (c == OPT_QUIET)
            options->quiet = true;
        else if (c == OPT_HELP)
            exit((print_help(), 0));
        else
            usage("unknown option");
    }
    if (!options->shape.preset || optind + 1 != argc)
        usage("--preset NAME and one OUT are needed");
    options->out = argv[optind];
    take_type(options, type);
    for (size_t i = 0; i < N_NUMBERS; i++)
        if (numbers[i])
            *(uint64_t *)((char *)options + number_options[i].offset) =
                parse_number(&number_options[i], numbers[i]);
}

static void check_mtp(const mf_rc_options *o)
{
    const mf_rc_family f = o->shape.family;
    const bool is_known = f == MF_RC_QWEN3_5_MOE || f == MF_RC_QWEN3_NEXT ||
                          f == MF_RC_DEEPSEEK_V3 || f == MF_RC_KIMI_K2 || f == MF_RC_GLM4_LITE;
    if (o->has_mtp && !is_known)
        usage("--mtp is for Qwen3.5, Qwen3-Next, DeepSeek-V3, Kimi-K2 and GLM-4.7-Flash");
    if (o->has_mtp && (o->is_gguf || o->form == MF_RC_PACKED))
        usage("--mtp is for the forms mlx, hf and fp8");
}

/* Bits of the form; what the user asked for may be what it cannot hold. */
static void check_form(mf_rc_options *o)
{
    bool is_deepseek = mf_rc_is_deepseek(&o->shape);
    check_mtp(o);
    if (o->is_gguf) {
        if (o->tokenizer_dir)
            usage("the gguf form takes no --tokenizer");
        o->form = MF_RC_MLX;
        o->bits = 16;
        o->split_kv_b = is_deepseek;
    }
    if (o->bits == 7 || (o->bits > 8 && o->bits != 16))
        usage("--bits is 2, 3, 4, 5, 6, 8 or 16");
    if (o->group != 32 && o->group != 64 && o->group != 128)
        usage("--group is 32, 64 or 128");
    const bool is_v4 = mf_rc_is_v4(&o->shape);
    if (is_v4 && o->form != MF_RC_FP8 && o->form != MF_RC_HF && !o->is_gguf)
        usage("DeepSeek-V4 is written in the forms hf, fp8 and gguf alone");
    if (is_v4 && o->form == MF_RC_FP8 && (o->shape.hidden % 32 || o->shape.expert_hidden % 32))
        usage("FP4 has blocks of 32: hidden and expert-hidden are multiples of it");
    if (o->form == MF_RC_FP8 && !is_deepseek && !is_v4 && !mf_rc_is_grouped(&o->shape))
        usage("the fp8 form is none of this preset");
    if (o->shape.family == MF_RC_GPT_OSS && o->form != MF_RC_MLX && o->form != MF_RC_HF)
        usage("gpt-oss is written in the forms mlx, hf and gguf alone");
    if (o->shape.family == MF_RC_GPT_OSS && o->form == MF_RC_HF &&
        (o->shape.hidden % 32 || o->shape.expert_hidden % 32))
        usage("MXFP4 has blocks of 32: hidden and expert-hidden are multiples of it");
    if (o->is_gguf && mf_rc_gguf_arch(&o->shape) == NULL)
        usage("the gguf form is none of this preset");
    if (o->form == MF_RC_PACKED && (mf_rc_is_grouped(&o->shape) ||
                                    o->shape.family == MF_RC_KIMI_LINEAR || !o->shape.n_experts))
        usage("the packed form is none of this preset");
    if (o->split_kv_b && (o->form != MF_RC_MLX || !is_deepseek))
        usage("--split-kv-b is for DeepSeek in the mlx form");
    o->expert_bits = o->bits;
    if (o->form == MF_RC_PACKED) {
        if ((o->bits != 4 && o->bits != 2) || o->group != 64)
            usage("the packed form has 4 or 2 bits and groups of 64");
        o->bits = 4; /* 2 bits is for the experts alone */
    } else if (o->form == MF_RC_HF || o->form == MF_RC_FP8) {
        o->bits = o->expert_bits = 16;
    }
}

/* Fewer layers keep the dense ones first but for one; fewer experts keep as many groups as divide
 * them into groups of two or more. */
static void fit_deepseek(mf_rc_shape *s)
{
    if (s->n_dense >= s->n_layers)
        s->n_dense = s->n_layers - 1;
    while (s->n_groups > 1 && (s->n_experts % s->n_groups || s->n_experts / s->n_groups < 2))
        s->n_groups--;
    if (s->n_kept_groups > s->n_groups)
        s->n_kept_groups = s->n_groups;
    uint64_t n_kept = s->n_experts / s->n_groups * s->n_kept_groups;
    if (s->n_experts_per_token > n_kept)
        s->n_experts_per_token = n_kept;
    s->shared_hidden = s->n_shared * s->expert_hidden;
    s->n_kv_heads = s->n_heads;
    if (s->rope_dim % 2)
        usage("rope-dim is even");
}

static void fit_v4(mf_rc_shape *s)
{
    if (s->n_heads % s->o_groups)
        usage("heads must be a multiple of o-groups");
    if (s->rope_dim % 2 || s->rope_dim > s->head_dim)
        usage("rope-dim is even, and head-dim no less");
}

static void fit_grouped(mf_rc_shape *s)
{
    if (s->n_dense >= s->n_layers)
        s->n_dense = s->n_layers - 1;
    if (s->n_heads % s->n_kv_heads)
        usage("heads must be a multiple of kv-heads");
    if (s->n_rot > s->head_dim)
        s->n_rot = s->head_dim;
}

static void check_groups(const mf_rc_options *o)
{
    const mf_rc_shape *s = &o->shape;
    bool is_deepseek = mf_rc_is_deepseek(s);
    const bool has_dense =
        !s->n_experts || ((is_deepseek || mf_rc_is_grouped(s)) && s->n_dense != 0);
    const struct {
        const char *what;
        uint64_t n;
    } inputs[] = {{"hidden", s->hidden},
                  {"expert-hidden", s->expert_hidden},
                  {"shared-hidden", s->shared_hidden},
                  {"heads x head-dim", is_deepseek ? 0 : s->n_heads * s->head_dim},
                  {"linear-v-heads x linear-v-dim", s->n_linear_v_heads * s->linear_v_dim},
                  {"q-rank", s->q_rank},
                  {"kv-rank", s->kv_rank},
                  {"linear-k-dim", s->family == MF_RC_KIMI_LINEAR ? s->linear_k_dim : 0},
                  {"heads x v-dim", s->n_heads * s->v_dim},
                  {"dense-hidden", has_dense ? s->dense_hidden : 0}};
    for (size_t i = 0; o->bits < 16 && i < sizeof inputs / sizeof inputs[0]; i++)
        if (inputs[i].n % o->group)
            usage("%s = %llu is no multiple of the group of %llu", inputs[i].what, (ull)inputs[i].n,
                  (ull)o->group);
    if (o->bits < 16 && s->hidden % 64)
        usage("hidden = %llu is no multiple of 64, the router's group", (ull)s->hidden);
}

/* What the formats cannot hold, said before anything is written. */
static void check_options(mf_rc_options *o)
{
    mf_rc_shape *s = &o->shape;
    check_form(o);
    if (s->n_experts && !s->expert_hidden)
        usage("a preset without experts takes none");
    if (s->n_experts_per_token > s->n_experts)
        s->n_experts_per_token = s->n_experts;
    if (mf_rc_is_deepseek(s))
        fit_deepseek(s);
    else if (mf_rc_is_v4(s))
        fit_v4(s);
    else if (mf_rc_is_grouped(s))
        fit_grouped(s);
    else if (s->n_heads % s->n_kv_heads || s->n_linear_v_heads % s->n_linear_k_heads)
        usage("heads must be a multiple of kv-heads, linear-v-heads of linear-k-heads");
    check_groups(o);
}

static char *join(char *buffer, size_t size, const char *a, const char *b)
{
    if ((size_t)snprintf(buffer, size, "%s/%s", a, b) >= size)
        mf_rc_die("%s/%s: path too long", a, b);
    return buffer;
}

static void make_directory(const char *path)
{
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        mf_rc_die("%s: cannot create: %s", path, strerror(errno));
}

static void check_directory(const mf_rc_options *o, uint64_t n_bytes)
{
    make_directory(o->out);
    DIR *dir = opendir(o->out);
    if (!dir)
        mf_rc_die("%s: cannot read: %s", o->out, strerror(errno));
    size_t n_entries = 0;
    for (struct dirent *entry; (entry = readdir(dir));)
        n_entries += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    if (n_entries && !o->force)
        mf_rc_die("%s: is not empty (--force writes into it all the same)", o->out);
    char path[4096]; /* an old one must not vouch for what is about to be overwritten */
    unlink(join(path, sizeof path, o->out, "config.json"));
    unlink(join(path, sizeof path, o->out, "model_weights.json"));
    struct statvfs fs;
    if (statvfs(o->out, &fs) != 0)
        mf_rc_die("%s: cannot ask for the free space: %s", o->out, strerror(errno));
    uint64_t n_free = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (n_free < n_bytes + n_bytes / 1000 && !o->force)
        mf_rc_die("%s: needs %.2f GB, but %.2f GB are free", o->out, (double)n_bytes * 1e-9,
                  (double)n_free * 1e-9);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void write_file(const mf_rc_options *o, const mf_rc_file *file)
{
    double start = now_s();
    mf_rc_write_file(file, o->n_threads);
    double seconds = now_s() - start;
    if (!o->quiet)
        fprintf(stderr, "%s: %.2f GB, %.2f GB/s\n", file->path, (double)file->n_bytes * 1e-9,
                (double)file->n_bytes * 1e-9 / (seconds > 1e-9 ? seconds : 1e-9));
}

static mf_rc_block tensor_block(const mf_rc_tensor *t, uint64_t offset)
{
    return (mf_rc_block){.offset = offset,
                         .n_repeats = t->n_repeats,
                         .repeat_bytes = t->n_bytes / t->n_repeats,
                         .n_parts = t->n_parts,
                         .parts = t->parts};
}

static void write_shard(const mf_rc_options *o, const mf_rc_tensor *tensors, size_t count,
                        const char *name)
{
    mf_rc_text head = {0};
    mf_rc_header_text(o, tensors, count, &head);
    mf_rc_block *blocks = mf_rc_alloc(NULL, count * sizeof *blocks);
    uint64_t at = head.length;
    for (size_t i = 0; i < count; i++) {
        blocks[i] = tensor_block(&tensors[i], at);
        at += tensors[i].n_bytes;
    }
    char path[4096];
    mf_rc_file file = {.path = join(path, sizeof path, o->out, name),
                       .head = &head,
                       .blocks = blocks,
                       .n_blocks = count,
                       .n_bytes = at};
    write_file(o, &file);
    free(blocks);
    mf_rc_text_free(&head);
}

/* Shards as mlx-lm cuts them: a tensor that would overflow one begins the next. */
static void write_safetensors(const mf_rc_options *o, const mf_rc_tensors *tensors)
{
    size_t *first = mf_rc_alloc(NULL, (tensors->count + 2) * sizeof *first);
    size_t n_shards = 0;
    uint64_t shard_bytes = 0;
    for (size_t i = 0; i < tensors->count; i++) {
        if (i == 0 || shard_bytes + tensors->items[i].n_bytes > o->shard_bytes) {
            first[n_shards++] = i;
            shard_bytes = 0;
        }
        shard_bytes += tensors->items[i].n_bytes;
    }
    first[n_shards] = tensors->count;
    char name[64], path[4096];
    for (size_t i = 0; i < n_shards; i++) {
        mf_rc_shard_name(i, n_shards, name);
        write_shard(o, tensors->items + first[i], first[i + 1] - first[i], name);
    }
    mf_rc_text index = {0};
    mf_rc_index_text(o, tensors, first, n_shards, &index);
    mf_rc_write_text(join(path, sizeof path, o->out, "model.safetensors.index.json"), &index);
    mf_rc_text_free(&index);
    free(first);
}

static void write_gguf(const mf_rc_options *o, const mf_rc_tensors *tensors)
{
    mf_rc_text head = {0};
    mf_rc_gguf_head(o, tensors, &head);
    mf_rc_block *blocks = mf_rc_alloc(NULL, tensors->count * sizeof *blocks);
    uint64_t at = head.length, end = at;
    for (size_t i = 0; i < tensors->count; i++) {
        blocks[i] = tensor_block(&tensors->items[i], at);
        end = at + tensors->items[i].n_bytes;
        at = mf_rc_gguf_place(end);
    }
    char path[4096];
    mf_rc_file file = {.path = join(path, sizeof path, o->out, "model.gguf"),
                       .head = &head,
                       .blocks = blocks,
                       .n_blocks = tensors->count,
                       .n_bytes = end};
    write_file(o, &file);
    free(blocks);
    mf_rc_text_free(&head);
}

static void write_config(const mf_rc_options *o)
{
    char path[4096];
    mf_rc_text config = {0};
    mf_rc_config_text(o, &config);
    mf_rc_write_text(join(path, sizeof path, o->out, "config.json"), &config);
    mf_rc_text_free(&config);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const mf_rc_tensor *)a)->name, ((const mf_rc_tensor *)b)->name);
}

/* packed_experts/layer_NN.bin: all experts of a layer, each its nine components in a row. */
static void write_packed_layer(const mf_rc_options *o, const mf_rc_tensor *components,
                               const char *dir, uint64_t layer)
{
    mf_rc_part parts[9];
    mf_rc_block block = {.n_repeats = o->shape.n_experts, .n_parts = 9, .parts = parts};
    for (size_t i = 0; i < 9; i++) {
        parts[i] = components[i].parts[0];
        parts[i].bytes /= o->shape.n_experts;
        block.repeat_bytes += parts[i].bytes;
    }
    char name[64], path[4096];
    snprintf(name, sizeof name, "layer_%02llu.bin", (ull)layer);
    mf_rc_file file = {.path = join(path, sizeof path, dir, name),
                       .blocks = &block,
                       .n_blocks = 1,
                       .n_bytes = block.n_repeats * block.repeat_bytes};
    write_file(o, &file);
}

static void write_packed_experts(const mf_rc_options *o, const mf_rc_tensors *tensors)
{
    char dir[4096], path[4096 + 32];
    make_directory(join(dir, sizeof dir, o->out,
                        o->expert_bits == 2 ? "packed_experts_2bit" : "packed_experts"));
    uint64_t layer = o->shape.n_dense;
    for (size_t i = 0; i < tensors->count; i++) {
        if (!tensors->items[i].is_expert)
            continue;
        if (layer == o->shape.n_dense) {
            mf_rc_text layout = {0};
            mf_rc_layout_text(o, &tensors->items[i], &layout);
            mf_rc_write_text(join(path, sizeof path, dir, "layout.json"), &layout);
            mf_rc_text_free(&layout);
        }
        write_packed_layer(o, &tensors->items[i], dir, layer++);
        i += 8;
    }
}

/* The experts' files, then model_weights.bin (tensors by name, each at a multiple of 64), then the
 * manifest. */
static void write_packed(const mf_rc_options *o, mf_rc_tensors *tensors)
{
    write_packed_experts(o, tensors);
    qsort(tensors->items, tensors->count, sizeof *tensors->items, by_name);
    uint64_t *offsets = mf_rc_alloc(NULL, tensors->count * sizeof *offsets);
    mf_rc_block *blocks = mf_rc_alloc(NULL, tensors->count * sizeof *blocks);
    mf_rc_file file = {.blocks = blocks};
    for (size_t i = 0; i < tensors->count; i++) {
        if (tensors->items[i].is_expert)
            continue;
        offsets[i] = (file.n_bytes + 63) / 64 * 64;
        blocks[file.n_blocks++] = tensor_block(&tensors->items[i], offsets[i]);
        file.n_bytes = offsets[i] + tensors->items[i].n_bytes;
    }
    char path[4096];
    file.path = join(path, sizeof path, o->out, "model_weights.bin");
    write_file(o, &file);
    mf_rc_text manifest = {0};
    mf_rc_manifest_text(o, tensors, offsets, &manifest);
    mf_rc_write_text(join(path, sizeof path, o->out, "model_weights.json"), &manifest);
    mf_rc_text_free(&manifest);
    free(blocks);
    free(offsets);
}

static void copy_tokenizer(const mf_rc_options *o)
{
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "chat_template.jinja",
                                        "generation_config.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "special_tokens_map.json",
                                        "tiktoken.model"};
    char from[4096], to[4096];
    bool has_tiktoken =
        access(join(from, sizeof from, o->tokenizer_dir, "tiktoken.model"), F_OK) == 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        join(from, sizeof from, o->tokenizer_dir, names[i]);
        if ((i == 0 && !has_tiktoken) || access(from, F_OK) == 0)
            mf_rc_copy_file(from, join(to, sizeof to, o->out, names[i]));
    }
}

int main(int argc, char **argv)
{
    mf_rc_options options = {.bits = 4, .group = 64, .n_threads = 4, .shard_bytes = 5ULL << 30};
    parse_options(argc, argv, &options);
    check_options(&options);
    mf_rc_tensors tensors = {0};
    mf_rc_tensors_build(&options, &tensors);
    if (options.is_gguf)
        mf_rc_gguf_tensors(&options, &tensors);
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < tensors.count; i++)
        n_bytes += tensors.items[i].n_bytes;
    check_directory(&options, n_bytes);
    double start = now_s();
    if (options.tokenizer_dir)
        copy_tokenizer(&options);
    if (options.is_gguf)
        write_gguf(&options, &tensors);
    else if (options.form == MF_RC_PACKED)
        write_packed(&options, &tensors);
    else
        write_safetensors(&options, &tensors);
    if (!options.is_gguf)
        write_config(&options);
    double seconds = now_s() - start;
    printf("%s: %zu tensors, %.2f GB in %.1f s, %.2f GB/s\n", options.out, tensors.count,
           (double)n_bytes * 1e-9, seconds, (double)n_bytes * 1e-9 / seconds);
    mf_rc_tensors_free(&tensors);
    return 0;
}
