/* SPDX-License-Identifier: MIT */
/* What a header may cost: the memory of honest and of hostile ones is bounded by their size. */
#include "test.h"

#include "format/tensors.h"

#include <unistd.h>

/* Memory held now and at most, through the allocator. */
typedef struct meter {
    size_t held, peak;
} meter;

static void *meter_alloc(void *ctx, size_t n_bytes)
{
    meter *m = ctx;
    m->held += n_bytes;
    m->peak = m->held > m->peak ? m->held : m->peak;
    return malloc(n_bytes);
}

static void meter_free(void *ctx, void *p, size_t n_bytes)
{
    ((meter *)ctx)->held -= n_bytes;
    free(p);
}

/* Old and new at once, as the worst of allocators does it. */
static void *meter_realloc(void *ctx, void *p, size_t old_bytes, size_t n_bytes)
{
    void *grown = meter_alloc(ctx, n_bytes);
    if (p != NULL) {
        memcpy(grown, p, old_bytes < n_bytes ? old_bytes : n_bytes);
        meter_free(ctx, p, old_bytes);
    }
    return grown;
}

/* A file of that header and nothing behind it; n_file 0: as long as it takes. */
static const char *write_file(const char *header, size_t n_header, uint64_t length, off_t n_file)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/mf_header_XXXXXX");
    int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    REQUIRE(write(fd, &length, 8) == 8);
    REQUIRE(write(fd, header, n_header) == (ssize_t)n_header);
    REQUIRE(n_file == 0 || ftruncate(fd, n_file) == 0);
    close(fd);
    return path;
}

static mf_status add(const char *path, meter *m, size_t *n_tensors, mf_error *error)
{
    const mf_allocator a = {m, meter_alloc, meter_realloc, meter_free};
    mf_tensor_table table;
    mf_tensor_table_init(&table, &a);
    mf_status status = mf_safetensors_add_file(&table, path, error);
    *n_tensors = table.n_tensors;
    mf_tensor_table_free(&table);
    unlink(path);
    CHECK_U64(m->held, 0);
    return status;
}

/* The densest JSON there is, in a tensor's entry, in the metadata, and nested as deep as it goes.
 */
static void test_hostile(void)
{
    enum { N = 20 << 20, EXTRA = 1 << 20 };
    static const char *const begins[] = {"{\"a\":[", "{\"__metadata__\":[", "{\"a\":", "{"};
    char *header = malloc(N);
    for (size_t i = 0; i < 4; i++) {
        meter m = {0};
        mf_error error = {0};
        size_t n_tensors, used = strlen(begins[i]);
        memset(header, '[', N);
        for (size_t j = 0; i < 2 && j < N; j++)
            header[j] = j % 2 == 0 ? ',' : '1';
        memcpy(header, begins[i], used);
        if (i == 0)
            memcpy(header + N - 2, "]}", 2);
        CHECK_STATUS(add(write_file(header, N, N, 0), &m, &n_tensors, &error), MF_ERR_FORMAT);
        CHECK_MSG(m.peak <= (size_t)N + EXTRA, "%s...: %zu bytes for a header of %d", begins[i],
                  m.peak, N);
        CHECK_U64(n_tensors, 0);
    }
    free(header);
}

/* As many tensors as fit: their table, and the header. */
static void test_honest(void)
{
    enum { N_TENSORS = 200000, ENTRY = 96 };
    char *header = malloc((size_t)N_TENSORS * ENTRY);
    size_t n = 0, n_tensors;
    meter m = {0};
    mf_error error = {0};
    for (int i = 0; i < N_TENSORS; i++)
        n += (size_t)snprintf(header + n, ENTRY,
                              "%s\"layers.%d.w\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":"
                              "[0,0]}",
                              i == 0 ? "{" : ",", i);
    header[n++] = '}';
    REQUIRE_OK(add(write_file(header, n, n, 0), &m, &n_tensors, &error), &error);
    CHECK_U64(n_tensors, N_TENSORS);
    /* the table doubles: half of it beside the whole, in the worst of allocators */
    size_t table = 2 * (size_t)N_TENSORS * 3 / 2 * sizeof(mf_tensor);
    CHECK_MSG(m.peak <= n + table + (size_t)N_TENSORS * 32 + (1 << 20), "%zu bytes", m.peak);
    free(header);
}

/* A length above the limit is refused before anything is read, by name and number. */
static void test_too_long(void)
{
    meter m = {0};
    mf_error error = {0};
    size_t n_tensors;
    CHECK_STATUS(add(write_file("{}", 2, 84000000, 84000064), &m, &n_tensors, &error),
                 MF_ERR_FORMAT);
    CHECK_CONTAINS(error.message, "header length 84000000");
    CHECK_CONTAINS(error.message, "33554432");
    CHECK(m.peak < 1 << 20);
}

/* A header that ends behind the file is refused by its length, by however little it does. */
static void test_behind_the_file(void)
{
    for (uint64_t length = 3; length < 11; length++) {
        meter m = {0};
        mf_error error = {0};
        size_t n_tensors;
        CHECK_STATUS(add(write_file("{}", 2, length, 0), &m, &n_tensors, &error), MF_ERR_FORMAT);
        CHECK_CONTAINS(error.message, ", but the file has 10 bytes");
    }
}

/* One entry of a file of 4096 bytes. */
static mf_status parse_one(const char *dtype, const char *shape, const char *offsets,
                           mf_tensor *out, mf_error *error)
{
    char header[512];
    mf_tensor_table table;
    const mf_allocator a = mf_allocator_default();
    int n = snprintf(header, sizeof header,
                     "{\"t\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":%s}}", dtype, shape,
                     offsets);
    mf_tensor_table_init(&table, &a);
    const mf_json_piece piece = {header, (size_t)n, 8};
    mf_status status = mf_safetensors_parse(&table, 7, "file", piece, 4096, error);
    if (status == MF_OK) {
        REQUIRE(table.n_tensors == 1);
        *out = table.tensors[0];
        CHECK_U64(out->file, 7);
        CHECK(out->offset >= 8 + (uint64_t)n && out->offset + out->n_bytes <= 4096);
    }
    mf_tensor_table_free(&table);
    return status;
}

/* A span is its shape times its dtype, exactly; products that overflow are none. */
static void test_entries(void)
{
    static const struct {
        const char *dtype, *shape, *offsets;
        mf_status status;
        uint32_t n_dims;
        uint64_t n_bytes;
    } cases[] = {
        {"F32", "[]", "[0,4]", MF_OK, 0, 4},
        {"F32", "[3,5]", "[4,64]", MF_OK, 2, 60},
        {"F32", "[2,1,1,3]", "[0,24]", MF_OK, 4, 24},
        {"BF16", "[1,1,1,2,9]", "[2,38]", MF_OK, 5, 36},
        {"F8_E4M3", "[0,7]", "[9,9]", MF_OK, 2, 0},
        {"F32", "[3,5]", "[0,59]", MF_ERR_FORMAT, 0, 0},
        {"F32", "[3,5]", "[0,61]", MF_ERR_FORMAT, 0, 0},
        {"F32", "[3,5]", "[64,4]", MF_ERR_FORMAT, 0, 0},
        {"F32", "[3,5]", "[0,60,60]", MF_ERR_FORMAT, 0, 0},
        {"F32", "[3,5]", "[0]", MF_ERR_FORMAT, 0, 0},
        {"F32", "[3,-5]", "[0,60]", MF_ERR_FORMAT, 0, 0},
        {"F32", "[1000]", "[200,4200]", MF_ERR_FORMAT, 0, 0},
        {"F32", "[576460752303423488]", "[0,0]", MF_ERR_FORMAT, 0, 0}, /* 2^59 of 2^5 bits */
        {"F32", "[4294967296,4294967296]", "[0,0]", MF_ERR_FORMAT, 0, 0},
        {"F31", "[3,5]", "[0,60]", MF_ERR_FORMAT, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mf_tensor t = {.n_dims = 0};
        mf_error error = {0};
        mf_status status = parse_one(cases[i].dtype, cases[i].shape, cases[i].offsets, &t, &error);
        CHECK_MSG(status == cases[i].status && t.n_dims == cases[i].n_dims &&
                      t.n_bytes == cases[i].n_bytes,
                  "%s %s at %s: %s, %u dimensions, %llu bytes", cases[i].dtype, cases[i].shape,
                  cases[i].offsets, mf_status_name(status), t.n_dims,
                  (unsigned long long)t.n_bytes);
    }
}

static void test_two_maps(void)
{
    static const char index[] = "{\"weight_map\":{},\"x\":1,\"weight_map\":{}}";
    char dir[] = "/tmp/mf_index_XXXXXX", path[80];
    mf_error error = {0};
    mf_tensor_table table;
    const mf_allocator a = mf_allocator_default();
    REQUIRE(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    FILE *f = fopen(path, "w");
    REQUIRE(f != NULL && fputs(index, f) >= 0 && fclose(f) == 0);
    mf_tensor_table_init(&table, &a);
    CHECK_STATUS(mf_safetensors_add_dir(&table, dir, &error), MF_ERR_FORMAT);
    CHECK_CONTAINS(error.message, "weight_map is given twice");
    mf_tensor_table_free(&table);
    CHECK(unlink(path) == 0 && rmdir(dir) == 0);
}

int main(void)
{
    test_hostile();
    test_honest();
    test_too_long();
    test_behind_the_file();
    test_entries();
    test_two_maps();
    return test_result();
}
