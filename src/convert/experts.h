/* SPDX-License-Identifier: MIT */
/* One expert, as a run of bytes in memory: read from the source, and made into another form. */
#ifndef MF_CONVERT_EXPERTS_H
#define MF_CONVERT_EXPERTS_H

#include "convert/convert.h"
#include "quantise/quantise.h"

/* Reads all parts of an expert to where the layer's source run has them; what is between them is
 * zeroed. By any thread. Scales that the engine keeps as float32 are converted. */
mf_status mf_convert_read_expert(const mf_conversion *c, uint32_t moe_layer, uint32_t expert,
                                 unsigned char *out, mf_error *error);
/* Lets the system begin to read what mf_convert_read_expert will: a hint. By any thread. */
void mf_convert_foresee_expert(const mf_conversion *c, uint32_t moe_layer, uint32_t expert);
/* One matrix of one expert, from the source's form to one of the layer's. */
typedef struct mf_convert_make {
    const mf_conversion *c;
    const mf_target_layer *layer;
    uint32_t expert, form, matrix;
    const float *importance; /* [columns]; NULL: all alike */
    mf_quantise_loss *loss;
} mf_convert_make;

/* From a run of the source's to one of the form; what follows the matrix's parts is zeroed. `row`
 * has room for the longest row. Copies where the forms are the same. By any thread. */
mf_status mf_convert_make_matrix(const mf_convert_make *make, const unsigned char *in,
                                 unsigned char *out, float *row, mf_error *error);

/* Once before: puts the binder's copies in the order in which the above looks for them. */
void mf_convert_sort_copies(mf_conversion *c);

#endif
