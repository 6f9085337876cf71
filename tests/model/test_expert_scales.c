/* SPDX-License-Identifier: MIT */
/* The experts' resident scales on their way to a device of their own, through rows that are far
 * smaller: each byte arrives at the place that the weight then names. */
#include "forward/forward.h"

#include "test.h"

enum { N_EXPERTS = 50, N_ROWS = 300, N_COLS = 200, HIDDEN = 6, N_CHUNK = 3, N_MATRICES = 3 };
/* of an expert: an FP8 scale for each 128 rows and columns */
enum { N_SCALES = 3 * 2, MATRIX_BYTES = N_EXPERTS * N_SCALES * 4 };

static mf_buffer make_buffer(mf_backend *be, uint64_t n_bytes)
{
    mf_buffer buffer = {0};
    mf_error error = {0};
    REQUIRE_OK(be->ops->buffer_create(be, n_bytes, MF_USE_HOST, "scales", &buffer, &error), &error);
    REQUIRE(buffer.id == MF_BUFFER_RESIDENT);
    return buffer;
}

int main(void)
{
    mf_error error = {0};
    mf_backend *here = NULL, *there = NULL;
    const mf_backend_options options = {.n_threads = 1};
    REQUIRE_OK(mf_backend_open(&options, &here, &error), &error);
    REQUIRE_OK(mf_backend_open(&options, &there, &error), &error);

    mf_layer_weights layers[2] = {{.router = {.shape = {0}}}};
    mf_runner r = {.backend = here,
                   .experts = there,
                   .h = {.n_layers = 2, .n_experts = N_EXPERTS, .hidden_size = HIDDEN},
                   .plan = {.n_chunk = N_CHUNK},
                   .weights = {.layers = layers}};
    r.h.is_dense[0] = true;
    mf_expert_shape *shape = &layers[1].experts;
    mf_weight *const matrices[N_MATRICES] = {&shape->gate, &shape->up, &shape->down};
    static unsigned char from[N_MATRICES][MATRIX_BYTES], to[MATRIX_BYTES];
    uint64_t state = 5;
    const mf_buffer source = make_buffer(here, N_MATRICES * MATRIX_BYTES);
    shape->has_resident_scales = true;
    for (uint32_t j = 0; j < N_MATRICES; j++) {
        for (size_t i = 0; i < MATRIX_BYTES; i++)
            from[j][i] = (unsigned char)test_random(&state);
        *matrices[j] = (mf_weight){.shape = {.kind = MF_WEIGHT_FP8_BLOCK,
                                             .float_type = MF_F32,
                                             .bits = 8,
                                             .group = 128,
                                             .n_rows = N_ROWS,
                                             .n_cols = N_COLS}};
        matrices[j]->arrays[MF_WEIGHT_SCALES] = (mf_span){source, j * MATRIX_BYTES};
        here->ops->write(here, (mf_span){source, j * MATRIX_BYTES}, from[j], MATRIX_BYTES);
    }
    (void)make_buffer(there, mf_expert_scales_bytes(&r.h, &r.weights));
    REQUIRE(MATRIX_BYTES > 3 * N_CHUNK * HIDDEN * sizeof(float));
    unsigned char rows[N_CHUNK * HIDDEN * sizeof(float)];
    r.rows_there = rows;
    REQUIRE_OK(mf_expert_device_copy_scales(&r, &error), &error);
    for (uint32_t j = 0; j < N_MATRICES; j++) {
        REQUIRE_OK(
            mf_backend_read(there, matrices[j]->arrays[MF_WEIGHT_SCALES], to, MATRIX_BYTES, &error),
            &error);
        CHECK_BYTES(to, from[j], MATRIX_BYTES);
    }
    here->ops->destroy(here);
    there->ops->destroy(there);
    return test_result();
}
