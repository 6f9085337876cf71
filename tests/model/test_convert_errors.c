/* SPDX-License-Identifier: MIT */
/* What a converted model's files may say that is not so, and what a conversion may not touch: clear
 * refusals, nothing read past an end, nothing written over. */
#include "golden.h"

#include <sys/stat.h>
#include <unistd.h>

static char root[64] = "/tmp/mf_converr_XXXXXX";

static const char *below(const char *name)
{
    static char paths[8][160];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

static void write_file(const char *name, const void *data, size_t n_bytes)
{
    FILE *f = fopen(below(name), "wb");
    REQUIRE(f != NULL && fwrite(data, 1, n_bytes, f) == n_bytes && fclose(f) == 0);
}

static mf_status inspect(mf_error *error)
{
    mf_model_info info;
    return mf_model_inspect(below("m"), NULL, &info, error);
}

/* The manifest with one text in another's place. */
static void check_manifest(const char *from, const char *to, const char *message)
{
    size_t n_bytes;
    mf_error error = {0};
    char *text = (char *)read_file(below("m/moeflux.json"), &n_bytes), *at = strstr(text, from);
    REQUIRE(at != NULL);
    const size_t n_head = (size_t)(at - text), n_tail = n_bytes - n_head - strlen(from);
    char *changed = malloc(n_bytes + strlen(to) + 1);
    REQUIRE(changed != NULL);
    memcpy(changed, text, n_head);
    memcpy(changed + n_head, to, strlen(to));
    memcpy(changed + n_head + strlen(to), at + strlen(from), n_tail);
    write_file("m/moeflux.json", changed, n_head + strlen(to) + n_tail);
    const mf_status status = inspect(&error);
    CHECK_MSG(status == MF_ERR_FORMAT || status == MF_ERR_UNSUPPORTED || status == MF_ERR_NOT_FOUND,
              "%s -> %s: %s", from, to, mf_status_name(status));
    CHECK_MSG(strstr(error.message, message) != NULL, "%s -> %s: %s", from, to, error.message);
    write_file("m/moeflux.json", text, n_bytes);
    REQUIRE_OK(inspect(&error), &error);
    free(changed);
    free(text);
}

static void check_manifests(void)
{
    check_manifest("\"form\":\"moeflux\"", "\"form\":\"other\"", "field form");
    check_manifest("\"version\":1", "\"version\":2", "field version is 2");
    check_manifest("\"version\":1", "\"version\":\"1\"", "field version");
    check_manifest("\"id\":\"", "\"id\":\"0", "field id");
    check_manifest(
        "\"norms_as_published\":", "\"norms_as_published\":3,\"x\":", "norms_as_published");
    check_manifest("\"hparams\":{", "\"hparams\":3,\"x\":{", "field hparams");
    check_manifest("\"experts\":[", "\"experts\":3,\"x\":[", "field experts");
    check_manifest("\"hidden_size\":", "\"hidden_size\":0,\"x\":", "hparams.hidden_size");
    check_manifest("\"offset\":0,", "\"offset\":999999999999,", "outside the weights file");
    check_manifest("\"0.embed\":", "\"0.embedding\":", "tensor 0.embed is missing");
    check_manifest("\"0.final_norm\":", "\"0.q_norm\":", "");
    check_manifest("\"layer\":1,", "\"layer\":0,", "layer 0: given twice");
    check_manifest("\"layer\":1,", "\"layer\":99,", "layer 1: missing");
    check_manifest("\"format\":\"mlx-affine\"", "\"format\":\"none\"", "format none is not known");
    check_manifest("\"format\":\"mlx-affine\"", "\"format\":\"gguf q4_k\"", "layer 0");
    check_manifest("\"bits\":4,\"group\"", "\"bits\":7,\"group\"", "");
    check_manifest("\"bits\":4,\"group\"", "\"bits\":0,\"group\"", "");
    check_manifest("\"bits\":4,\"group\"", "\"bits\":3,\"group\"", "");
    check_manifest("\"group\":64}", "\"group\":48}", "");
    check_manifest("\"group\":64}", "\"group\":65537}", "");
    check_manifest("\"files\":[\"", "\"files\":[\"/", "no name below");
    check_manifest("\"files\":[\"experts/", "\"files\":[\"experts/../experts/", "no name below");
    check_manifest("\"files\":[\"experts/layer_00", "\"files\":[\"experts/layer_01",
                   "another model or layer");
    check_manifest("\"files\":[\"experts/layer_00.bin\"]", "\"files\":[]", "have 0 of");
    check_manifest("\"files\":[\"experts/layer_00.bin\"]",
                   "\"files\":[\"experts/layer_00.bin\",\"experts/layer_00.bin\"]", "there twice");
    check_manifest("\"files\":[\"experts/layer_00.bin\"]", "\"files\":[\"experts\"]",
                   "regular file");
}

static void check_layer_file(void)
{
    size_t n_bytes;
    mf_error error = {0};
    unsigned char *bytes = read_file(below("m/experts/layer_00.bin"), &n_bytes);
    write_file("m/experts/layer_00.bin", bytes, n_bytes - 1);
    CHECK_STATUS(inspect(&error), MF_ERR_FORMAT);
    write_file("m/experts/layer_00.bin", bytes, 10);
    CHECK_STATUS(inspect(&error), MF_ERR_FORMAT);
    CHECK_CONTAINS(error.message, "inside its head");
    bytes[20] ^= 1; /* the id */
    write_file("m/experts/layer_00.bin", bytes, n_bytes);
    CHECK_STATUS(inspect(&error), MF_ERR_FORMAT);
    bytes[20] ^= 1;
    bytes[4096] ^= 1; /* an expert: only reading it back finds it */
    write_file("m/experts/layer_00.bin", bytes, n_bytes);
    REQUIRE_OK(inspect(&error), &error);
    CHECK_STATUS(mf_convert_verify(below("m"), NULL, &error), MF_ERR_FORMAT);
    CHECK_CONTAINS(error.message, "is damaged");
    bytes[4096] ^= 1;
    write_file("m/experts/layer_00.bin", bytes, n_bytes);
    free(bytes);
    bytes = read_file(below("m/dense.bin"), &n_bytes);
    bytes[0] ^= 1;
    write_file("m/dense.bin", bytes, n_bytes);
    CHECK_STATUS(mf_convert_verify(below("m"), NULL, &error), MF_ERR_FORMAT);
    CHECK_CONTAINS(error.message, "is damaged");
    bytes[0] ^= 1;
    write_file("m/dense.bin", bytes, n_bytes);
    REQUIRE_OK(mf_convert_verify(below("m"), NULL, &error), &error);
    free(bytes);
}

static mf_status convert(const char *out, const mf_convert_options *options, mf_error *error)
{
    mf_convert_result result;
    return mf_convert(golden_path("mlx_4bit"), out, options, &result, error);
}

static void check_outputs(void)
{
    mf_error error = {0};
    size_t n_bytes;
    CHECK_STATUS(convert(below("m"), NULL, &error), MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, "holds a converted model");
    CHECK_STATUS(convert(below("none/there"), NULL, &error), MF_ERR_NOT_FOUND);
    REQUIRE(mkdir(below("full"), 0700) == 0);
    write_file("full/mine.txt", "mine", 4);
    CHECK_STATUS(convert(below("full"), NULL, &error), MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, "mine.txt");
    unsigned char *mine = read_file(below("full/mine.txt"), &n_bytes);
    CHECK(n_bytes == 4 && memcmp(mine, "mine", 4) == 0 && rmdir(below("full")) != 0);
    free(mine);
    CHECK_STATUS(convert(below("full/mine.txt"), NULL, &error), MF_ERR_ARGUMENT);
    write_file("full/moeflux.partial", "something else, longer than an id is", 36);
    CHECK_STATUS(convert(below("full"), NULL, &error), MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, "another conversion");
}

static void check_options(void)
{
    mf_convert_options options;
    mf_error error = {0};
    const char *drives[] = {below("drive")};
    const double none[] = {0, 0}, odd[] = {1, -1};
    mf_convert_options_default(&options);
    options.packed_expert_bits = 3;
    CHECK_STATUS(convert(below("x"), &options, &error), MF_ERR_ARGUMENT);
    mf_convert_options_default(&options);
    options.n_drives = 1;
    CHECK_STATUS(convert(below("x"), &options, &error), MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, "n_drives 1, but drives is NULL");
    options.n_drives = 0;
    options.n_rules = 2;
    CHECK_STATUS(convert(below("x"), &options, &error), MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, "n_rules 2, but rules is NULL");
    options.n_rules = 0;
    options.n_input_squares = 384;
    CHECK_STATUS(convert(below("x"), &options, &error), MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, "n_input_squares 384, but input_squares is NULL");
    options.n_input_squares = 0;
    options.n_drives = 1;
    options.drives = drives;
    options.drive_shares = none;
    CHECK_STATUS(convert(below("x"), &options, &error), MF_ERR_ARGUMENT);
    options.drive_shares = odd;
    CHECK_STATUS(convert(below("x"), &options, &error), MF_ERR_ARGUMENT);
    mf_convert_options_default(&options);
    options.n_threads = 2000;
    CHECK_STATUS(convert(below("x"), &options, &error), MF_ERR_ARGUMENT);
    CHECK(access(below("x"), F_OK) != 0 && access(below("drive"), F_OK) != 0);
    mf_convert_options_default(&options);
    options.is_dry_run = 1;
    REQUIRE_OK(convert(below("x"), &options, &error), &error);
    CHECK(access(below("x"), F_OK) != 0);
    CHECK_STATUS(mf_convert_verify(golden_path("mlx_4bit"), NULL, &error), MF_ERR_ARGUMENT);
    CHECK_STATUS(mf_convert_verify(below("x"), NULL, &error), MF_ERR_ARGUMENT);
}

static int stop_at_once(void *user, const mf_convert_progress *progress)
{
    (void)user;
    (void)progress;
    return 1;
}

/* Stopped, then taken up with the same options alone. */
static void check_stop(void)
{
    mf_convert_options options;
    mf_error error = {0};
    mf_convert_options_default(&options);
    options.on_progress = stop_at_once;
    CHECK_STATUS(convert(below("s"), &options, &error), MF_ERR_CANCELLED);
    mf_convert_result result;
    CHECK_STATUS(mf_convert(golden_path("mlx_8bit_tied"), below("s"), NULL, &result, &error),
                 MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, "another conversion");
    REQUIRE_OK(convert(below("s"), NULL, &error), &error);
    CHECK(access(below("s/moeflux.partial"), F_OK) != 0);
    REQUIRE_OK(mf_convert_verify(below("s"), NULL, &error), &error);
}

int main(void)
{
    char command[128];
    mf_error error = {0};
    REQUIRE(mkdtemp(root) != NULL);
    REQUIRE_OK(convert(below("m"), NULL, &error), &error);
    check_manifests();
    check_layer_file();
    check_outputs();
    check_options();
    check_stop();
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    REQUIRE(system(command) == 0);
    return test_result();
}
