/* SPDX-License-Identifier: MIT */
/*
 * What others may do with the state of an engine's sessions: hold what a session holds at a
 * position (a reference, nothing is copied but tokens), read it as a list of runs of bytes, build
 * such a state from bytes, and give it to a session. A held state is immutable and may be read from
 * any thread; evaluation goes on meanwhile.
 *
 * Locking: mf_engine_lock is held for moments, never while evaluating. The functions here take it
 * themselves but for those that say "under the lock". Only the thread that uses a session may give
 * it another state.
 */
#ifndef MF_SESSION_STATE_H
#define MF_SESSION_STATE_H

#include "session/engine.h"

/* The kinds of units that are pages come first. */
#define MF_N_PAGE_KINDS 2

/* Marks that go with a held state. */
#define MF_STATE_MARKS 4

/* What positions 0 .. position - 1 left behind. */
typedef struct mf_state {
    mf_engine *engine;
    uint64_t position;
    int32_t *tokens;                 /* [position] */
    mf_unit *pages[MF_N_PAGE_KINDS]; /* [n_pages - first_page] each */
    uint32_t first_page[MF_N_PAGE_KINDS], n_pages[MF_N_PAGE_KINDS];
    mf_unit recurrent; /* 0: the family has none, or position is 0 */
    float *logits;     /* [n_vocab] after the last token; NULL: not known */
    /* Earlier positions, rising, whose recurrent states and pages of windows are held too. */
    uint32_t n_marks;
    uint64_t marks[MF_STATE_MARKS];
    mf_unit mark_units[MF_STATE_MARKS];
    mf_unit *mark_pages; /* [MF_STATE_MARKS][mf_engine_mark_pages]; NULL: no marks, no windows */
} mf_state;

void mf_engine_lock(mf_engine *engine);
void mf_engine_unlock(mf_engine *engine);

/* ------------------------------------------------------------------------------------- holding */

/* Whether all that was evaluated can be gone back to: there are no recurrent layers, and none with
 * a window. */
static inline bool mf_engine_keeps_all(const mf_engine *e)
{
    return e->runner.plan.recurrent_bytes == 0 && e->runner.plan.window_bytes == 0;
}

/* Pages of windows of a mark's state apart from its session's: as many as the window reaches
 * at any position, where it reaches fewer its last one more than once. 0 without windows. */
uint32_t mf_engine_mark_pages(const mf_engine *engine);
/* Whether a state after `held` tokens has all that one after `position` of them needs: not, where
 * layers are recurrent or a window has passed on. */
bool mf_state_reaches_back(const mf_engine *engine, uint64_t held, uint64_t position);

/* The greatest position up to `at_most` that a state of the session can be held at: any, in
 * families without recurrent layers whose windows still have all that it needs; else that of the
 * session or of a mark. 0 always is one. Under the lock. */
uint64_t mf_session_position_held(const mf_session *session, uint64_t at_most);
/* True if logits are known at exactly this position, which mf_session_position_held gave. Under the
 * lock. */
bool mf_session_has_logits_at(const mf_session *session, uint64_t position);

/* Holds the session's state at a position that mf_session_position_held gives; _locked is for
 * callers under the lock. Errors: MF_ERR_NO_MEMORY, MF_ERR_NOT_FOUND (no such position). */
mf_status mf_state_hold(mf_session *session, uint64_t position, mf_state **out, mf_error *error);
mf_status mf_state_hold_locked(mf_session *session, uint64_t position, mf_state **out,
                               mf_error *error);

/* Holds marks of the session beside its state, at most n_max: all before the state's
 * position if they are no more, else the newest of them, the last within its first 7/8, within 3/4,
 * and within half. The end is where prompts differ: most often something is asked at the end of
 * what is held. None where all positions can be had without: in families without recurrent layers
 * and windows, and as long as nothing is behind a window; nor without memory for their list. */
void mf_state_hold_marks(mf_session *session, mf_state *state, uint32_t n_max);

/* A new state of these tokens with units of its own, whose parts and, if has_logits, logits the
 * caller then fills. Makes room as evaluations do. Errors: MF_ERR_NO_MEMORY, MF_ERR_BUDGET,
 * MF_ERR_CONTEXT (more than n_context_tokens). */
mf_status mf_state_create(mf_engine *engine, const int32_t *tokens, uint64_t n_tokens,
                          bool has_logits, mf_state **out, mf_error *error);
/* Takes NULL. */
void mf_state_release(mf_state **state);

/* ---------------------------------------------------------------------------------------- bytes */

/* A run of a state's bytes in the backend's memory. */
typedef struct mf_state_part {
    mf_span span;
    uint64_t n_bytes;
} mf_state_part;

/*
 * The parts in their fixed order: each whole page; of a last page that is not full each layer's
 * rows (keys, then values, or latents); the same of the pages of windows, from mf_window_kept on;
 * then each recurrent layer's convolution inputs and state.
 * Their sizes follow from model, cache type and position alone: mf_state_part_bytes(engine,
 * position, i)
 * == mf_state_part_at(state, i).n_bytes.
 */
uint32_t mf_state_n_parts(const mf_engine *engine, uint64_t position);
uint64_t mf_state_part_bytes(const mf_engine *engine, uint64_t position, uint32_t i);
mf_state_part mf_state_part_at(const mf_state *state, uint32_t i);
/* Part i of a state at another position where it belongs in this state's units: a page that the
 * state has, or the recurrent state. */
mf_state_part mf_state_part_in(const mf_state *state, uint64_t position, uint32_t i);
/* The first so many parts are pages that no window drops: those that hold the first n_tokens of a
 * state at position. */
uint32_t mf_state_n_page_parts(const mf_engine *engine, uint64_t position, uint64_t n_tokens);
/* A run of parts. */
typedef struct mf_state_run {
    uint32_t first, end;
} mf_state_run;
/* The parts of a state at position that are pages of windows and that a state after n_tokens,
 * which it reaches back to, needs. */
mf_state_run mf_state_window_parts(const mf_engine *engine, uint64_t position, uint64_t n_tokens);
/* The recurrent layers' parts of a state at position. */
mf_state_run mf_state_recurrent_parts(const mf_engine *engine, uint64_t position);
/* The parts of a mark, the same at each position: mf_engine_mark_pages whole pages of
 * windows, then those of the recurrent state. */
uint32_t mf_state_n_mark_parts(const mf_engine *engine);
uint64_t mf_state_mark_part_bytes(const mf_engine *engine, uint32_t i);
/* Part i of a held state's mark k. */
mf_state_part mf_state_mark_part(const mf_state *state, uint32_t k, uint32_t i);
/* Part i of a mark at this state's position where it belongs in the state's units; more than one
 * may belong to the last page. */
mf_state_part mf_state_part_of_mark(const mf_state *state, uint32_t i);
/* The sum of all parts. */
uint64_t mf_state_bytes(const mf_engine *engine, uint64_t position);

/* --------------------------------------------------------------------------------------- giving */

/* The session holds the state from now on, logits included where known; the caller still releases
 * its own reference. Marks at positions up to the length of the common prefix stay, others
 * are dropped. Error: MF_ERR_NO_MEMORY, the session unchanged. */
mf_status mf_session_adopt(mf_session *session, const mf_state *state, mf_error *error);

/* ---------------------------------------------------------------------------------- enumeration */

/* The engine's sessions: the first for NULL; NULL after the last. Under the lock. */
mf_session *mf_engine_next_session(const mf_engine *engine, const mf_session *previous);

#endif
