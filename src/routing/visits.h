/* SPDX-License-Identifier: MIT */
/* The turns of layers that a trace asks an expert store for: those of a pass's rows together, each
 * expert once, in rising order. */
#ifndef MF_ROUTING_VISITS_H
#define MF_ROUTING_VISITS_H

#include "routing/routing_format.h"

/* Fills wanted (room for as many as there are experts) and returns how many; is_wanted [n_experts]
 * is scratch. */
uint32_t mf_routing_visit(const mf_routing *t, size_t pass, uint32_t layer, uint8_t *is_wanted,
                          uint32_t *wanted);

/* Hits by Belady's rule, of passes from `before` on, with so many slots: the expert whose next use
 * is furthest away makes room. Those of a turn stay until all are there, or until slots run out. */
mf_status mf_routing_best_hits(const mf_routing *t, uint64_t n_slots, uint64_t before,
                               uint64_t *n_hits, mf_error *error);

#endif
