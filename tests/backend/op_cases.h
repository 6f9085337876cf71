/* SPDX-License-Identifier: MIT */
/* The op list: every operation of backend.h in several sizes, as scenes. */
#ifndef MF_TESTS_OP_CASES_H
#define MF_TESTS_OP_CASES_H

#include "scene.h"

typedef struct op_case {
    const char *name;
    void (*build)(scene *s, const uint32_t *p);
    uint32_t p[8]; /* p[0]: rows of the batch, or items; the rest as `build` reads them */
} op_case;

/* op_cases.c: the norm of the sum that an operation makes. */
mf_norm_after op_build_norm_after(scene *s, uint32_t n_rows, uint32_t n_cols);

/* op_cases_experts.c; the flags of experts with steps of their own */
enum { OP_BIASES = 1, OP_CLAMPED = 2, OP_PAIRED = 4 };
void op_build_experts(scene *s, const uint32_t *p);
void op_build_mixed_experts(scene *s, const uint32_t *p);
void op_build_routed(scene *s, const uint32_t *p);
void op_build_mixed_routed(scene *s, const uint32_t *p);
void op_build_expert_steps(scene *s, const uint32_t *p);
void op_build_routed_steps(scene *s, const uint32_t *p);
void op_build_combine(scene *s, const uint32_t *p);

/* op_cases_entries.c */
void op_build_streams_in(scene *s, const uint32_t *p);
void op_build_streams_out(scene *s, const uint32_t *p);
void op_build_compress(scene *s, const uint32_t *p);
void op_build_entry_attention(scene *s, const uint32_t *p);
void op_build_chosen_attention(scene *s, const uint32_t *p);

extern const op_case op_cases[];
extern const size_t n_op_cases;

/* Operands and expectations of a case. The same seed and skew give the same scene. */
void op_case_build(const op_case *c, scene *s, mf_buffer buffer, uint32_t skew);
/* The same; the case's expectations are those of an earlier time with this skew, or kept for later.
 * wants: [n_op_cases], zeroed at first. */
void op_case_build_again(const op_case *c, scene *s, mf_buffer buffer, uint32_t skew,
                         scene_wants *wants);

#endif
