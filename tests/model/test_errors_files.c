/* SPDX-License-Identifier: MIT */
/*
 * Files that are not what they are taken for: FIFOs, Git LFS pointers, other kinds of models; and
 * shards in folders of their own. The status, and a line that says what to do.
 */
#include "golden.h"
#include "scratch_dir.h"

#include <sys/stat.h>
#include <unistd.h>

static const char config[] = "config.json", weights[] = "model.safetensors";
static const char index_file[] = "model.safetensors.index.json";
static const char shard[] = "model-00002-of-00002.safetensors";

/* Opens dir, which is refused with `status` and a line that has all the words. */
static void check_refused(const char *what, const char *dir, mf_status status,
                          const char *const words[3])
{
    mf_engine *engine = NULL;
    mf_error error = {0};
    mf_status got = mf_engine_open(dir, NULL, &engine, &error);
    CHECK_MSG(got == status && engine == NULL, "%s: %s, expected %s (\"%s\")", what,
              mf_status_name(got), mf_status_name(status), error.message);
    for (size_t i = 0; i < 3 && got != MF_OK; i++)
        CHECK_MSG(strstr(error.message, words[i]) != NULL, "%s: the message \"%s\" lacks \"%s\"",
                  what, error.message, words[i]);
    CHECK_MSG(strchr(error.message, '\n') == NULL, "%s: more than one line", what);
}

/* Nobody writes to them: without a limit of its own the test would be waiting for ever. */
static void test_fifos(void)
{
    static const char *const files[] = {config, weights};
    for (size_t i = 0; i < 2; i++) {
        const char *dir = scratch_copy("mlx_4bit");
        scratch_unlink(files[i]);
        REQUIRE(mkfifo(scratch_path(files[i]), 0600) == 0);
        const mf_status status = i == 0 ? MF_ERR_FORMAT : MF_ERR_NOT_FOUND;
        check_refused("a FIFO", dir, status, (const char *const[]){scratch_path(files[i]), "", ""});
    }
}

static void test_lfs_pointers(void)
{
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\n"
                                  "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2c"
                                  "a24d17e2393\nsize 12345\n";
    static const char *const files[] = {config, weights};
    for (size_t i = 0; i < 2; i++) {
        const char *dir = scratch_copy("mlx_4bit");
        scratch_write(files[i], pointer, sizeof pointer - 1);
        check_refused("a pointer", dir, MF_ERR_FORMAT,
                      (const char *const[]){scratch_path(files[i]), "Git LFS", "git lfs pull"});
    }
}

static void test_other_models(void)
{
    const char *dir = scratch_copy("mlx_4bit");
    char path[600];
    scratch_write("model.gguf", "GGUF", 4);
    snprintf(path, sizeof path, "%s/model.gguf", dir);
    check_refused("the beginning of a GGUF file", path, MF_ERR_FORMAT,
                  (const char *const[]){path, "ends within", "version"});
    snprintf(path, sizeof path, "%s/%s", dir, weights);
    check_refused("a weights file", path, MF_ERR_IO,
                  (const char *const[]){path, "directory", config});
    scratch_unlink(config);
    check_refused("a folder of GGUF", dir, MF_ERR_NOT_FOUND,
                  (const char *const[]){scratch_path(config), "GGUF", ""});
    check_refused("a hub's name", "Qwen/Qwen3-30B-A3B", MF_ERR_NOT_FOUND,
                  (const char *const[]){"Qwen/Qwen3-30B-A3B", "hub", "moeflux pull"});

    dir = scratch_copy("mlx_4bit");
    scratch_unlink(config);
    REQUIRE(mkdir(scratch_path("snapshots"), 0700) == 0);
    check_refused("a hub cache", dir, MF_ERR_NOT_FOUND,
                  (const char *const[]){scratch_path(config), "hub cache", "snapshots"});
    REQUIRE(rmdir(scratch_path("snapshots")) == 0);

    dir = scratch_copy("mlx_4bit");
    scratch_unlink(weights);
    scratch_write("pytorch_model-00001-of-00002.bin", "PK", 2);
    check_refused("pickled weights", dir, MF_ERR_NOT_FOUND,
                  (const char *const[]){scratch_path(weights), "PyTorch", "safetensors"});
}

/* Shards on several drives: folders, or links to them, below the directory. */
static void test_shards_below(void)
{
    static const char *const outside[] = {"../a.safetensors",   "/tmp/a.safetensors",
                                          "a/../../b",          "./a.safetensors",
                                          "a//b.safetensors",   "drive/",
                                          "drive/../../../etc", ".."};
    const char *dir = scratch_copy("hf_bf16");
    REQUIRE(mkdir(scratch_path("drive"), 0700) == 0);
    REQUIRE(rename(scratch_path(shard), scratch_path("drive/two.safetensors")) == 0);
    size_t n_bytes;
    char *text = (char *)read_file(scratch_path(index_file), &n_bytes);
    while (strstr(text, shard) != NULL) {
        scratch_replace(index_file, shard, "drive/two.safetensors");
        free(text);
        text = (char *)read_file(scratch_path(index_file), &n_bytes);
    }
    free(text);
    mf_model_info info;
    mf_error error = {0};
    CHECK_STATUS(mf_model_inspect(dir, NULL, &info, &error), MF_OK);
    REQUIRE(unlink(scratch_path("drive/two.safetensors")) == 0);
    REQUIRE(rmdir(scratch_path("drive")) == 0);

    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        dir = scratch_copy("hf_bf16");
        scratch_replace(index_file, shard, outside[i]);
        check_refused(outside[i], dir, MF_ERR_FORMAT,
                      (const char *const[]){scratch_path(index_file), "weight_map.",
                                            "not a file name below the directory"});
    }
}

/* Two entries that share their last and first byte; one that spans more than its shape says. */
static void test_spans(void)
{
    static const char at[] =
        "\"language_model.model.layers.2.self_attn.k_proj.weight\":"
        "{\"data_offsets\":[518584,522680],\"dtype\":\"U32\",\"shape\":[64,16]}";
    static const struct {
        const char *to, *why;
    } spans[] = {
        {"\"language_model.model.layers.2.self_attn.k_proj.weight\":"
         "{\"data_offsets\":[518583,522679],\"dtype\":\"U32\",\"shape\":[64,16]}",
         "overlap"},
        {"\"language_model.model.layers.2.self_attn.k_proj.weight\":"
         "{\"data_offsets\":[518584,522680],\"dtype\":\"U32\",\"shape\":[64,15]}",
         "span 4096 bytes"},
    };
    for (size_t i = 0; i < 2; i++) {
        const char *dir = scratch_copy("mlx_4bit");
        scratch_replace_in_header(weights, at, spans[i].to);
        check_refused(spans[i].why, dir, MF_ERR_FORMAT,
                      (const char *const[]){scratch_path(weights), "k_proj.weight", spans[i].why});
    }
}

int main(void)
{
    test_fifos();
    test_lfs_pointers();
    test_other_models();
    test_shards_below();
    test_spans();
    scratch_remove();
    return test_result();
}
