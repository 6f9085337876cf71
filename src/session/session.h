/* SPDX-License-Identifier: MIT */
/*
 * A session: one sequence's tokens, references to what they left behind, and the evaluation of
 * tokens appended to it.
 *
 * Two locks. The state lock guards the pool, the list of sessions, and what sessions hold (a
 * session's own thread may read its own without). The turn is held while a chunk is evaluated, and
 * taken before the state lock. A chunk writes into pages past the committed position and into the
 * session's spare recurrent state, none of which anybody else reads; commit then moves the
 * position.
 */
#ifndef MF_SESSION_SESSION_H
#define MF_SESSION_SESSION_H

#include "session/session_state.h"

#include <stdatomic.h>

/* hidden: the residual stream after `layer`, [n_tokens, hidden_size]; valid during the call. */
typedef void (*mf_trace_fn)(void *user, uint32_t layer, uint64_t first_position, uint32_t n_tokens,
                            const float *hidden);

/* Pages of a sequence by their number, of one kind. */
typedef struct mf_page_table {
    mf_unit *units;    /* of the context; valid from `first` on, before it nothing is held */
    mf_span *spans;    /* beside them; before `first` of no buffer */
    uint32_t first, n; /* n: the number after the last page */
} mf_page_table;

/* A position to go back to, at most the session's. The full pages before it are the session's own;
 * only a last page that is not full, the recurrent state, and pages of windows that the session
 * will give back, need references. */
typedef struct mf_mark {
    uint64_t position, last_use;
    mf_unit last_page;     /* 0: the position is a multiple of a page, or there are no such pages */
    mf_unit *window_pages; /* [n_window_pages], from page window_first on */
    uint32_t window_first, n_window_pages;
    mf_unit recurrent;
    float *logits; /* [n_vocab] or NULL */
} mf_mark;

/* A session's part of the call that evaluates it: session_call.h. */
typedef struct mf_session_part {
    const void *call; /* NULL: none. Changed under the state lock */
    mf_session *next; /* of the call */
    size_t index;     /* in it */
    const int32_t *tokens;
    size_t n_tokens, n_done;
    const mf_cancel *cancel; /* or NULL */
    bool wants_logits;       /* of the last of the tokens */
    mf_status status;        /* anything but MF_OK: it is out of the call */
} mf_session_part;

/* What is evaluated ahead, and what the layer that proposes knows: session_draft.h. */
typedef struct mf_session_draft {
    float *logits;  /* [n_tokens + 1, n_vocab] of rows evaluated ahead; NULL: nothing ever is */
    float *waiting; /* [n_tokens + 1, hidden_size] states that the layer has not followed yet */
    float *fresh;   /* [n_tokens + 1, hidden_size] of the pass at hand */
    mf_span *pages; /* of its cache */
    /* The rows, of which the first n_done are committed; n 0: none. */
    int32_t tokens[MF_DRAFT_TOKENS_MOST + 1];
    mf_unit states[MF_DRAFT_TOKENS_MOST + 1];
    mf_span spans[MF_DRAFT_TOKENS_MOST + 1];
    uint32_t n, n_done;
    /* Its cache has the tokens from start + 1 on up to next - 1, in slots from 0 on; n_waiting
     * states are those of positions next - 1 on. */
    uint64_t start, next;
    uint32_t n_waiting;
    uint32_t n_asked; /* proposals in the pass at hand */
} mf_session_draft;

struct mf_session {
    mf_engine *engine;
    mf_session *next, *previous; /* of the engine */
    uint64_t number;             /* of all that it ever had */
    uint32_t place;              /* among those that are open: none has the same */
    uint64_t position;
    int32_t *tokens;
    size_t token_capacity;
    mf_page_table pages[MF_N_PAGE_KINDS]; /* by mf_unit_kind */
    mf_unit recurrent, spare;             /* spare: what the next chunk writes; 0: none yet */
    mf_span recurrent_span, spare_span;
    mf_mark *marks; /* positions rising */
    uint32_t n_marks, mark_capacity;
    uint64_t auto_tokens;
    bool auto_at_end;
    mf_session_part part;
    mf_session_draft draft;
    uint64_t n_long_left;    /* of its next tokens, those that belong to a long run */
    bool in_batch;           /* of the chunk that is being evaluated */
    mf_buffer shared_logits; /* where both of the following are, for a device to write; or none */
    float *logits;           /* [n_vocab] of the last token, and behind them their bounds */
    float *next_logits;      /* those of the chunk being evaluated, until it is committed */
    bool has_logits, has_bounds;
    atomic_bool is_cancelled; /* by mf_session_cancel, since the call began */
    const mf_cancel *cancel;  /* mf_session_set_cancel's, or NULL */
    uint64_t deadline_us;     /* 0: none */
    mf_progress_fn progress;
    void *progress_user;
    mf_trace_fn trace;
    void *trace_user;
    float *trace_rows; /* [n_chunk, hidden_size]; NULL until somebody traces */
};

/* Calls trace after every layer of every chunk; NULL stops it. MF_ERR_NO_MEMORY: nothing changed.
 */
mf_status mf_session_set_trace(mf_session *session, mf_trace_fn trace, void *user, mf_error *error);

/* ------------------------------------------------------ what follows is under the state lock -- */

/* MF_ERR_STATE if a call evaluates the session: `what` may not be done to it now. */
mf_status mf_session_refuse(const mf_session *session, const char *what, mf_error *error);
/* Takes note of the runner's counters, for whoever asks; for the holder of the turn.
 * mf_engine_count takes the lock. */
void mf_engine_count_locked(mf_engine *engine);
void mf_engine_count(mf_engine *engine);

/* The turn of what measures: callbacks of an evaluation may not, as it is theirs, and the store is
 * in use. */
mf_status mf_engine_take_turn(mf_engine *engine, mf_error *error);
void mf_engine_end_turn(mf_engine *engine);

/* mf_unit_take that makes room: idle sessions' spare states, then marks but for each
 * session's newest. */
mf_status mf_take_unit(mf_engine *engine, mf_unit_kind kind, mf_unit *out, mf_error *error);
/* Pages and a spare state for n_rows more, and the tokens behind the committed ones. On failure the
 * session is as it was. */
mf_status mf_session_prepare(mf_session *session, const int32_t *tokens, uint32_t n_rows,
                             mf_error *error);
/* What mf_session_prepare took and a failed chunk does not need. */
void mf_session_abandon(mf_session *session);
/* The part's logits, and their bounds, go where the session has those of a chunk in the making. */
void mf_session_part_logits(const mf_session *session, mf_batch_part *part);
/* The same of the chunk after that, once it is committed. */
void mf_session_other_logits(const mf_session *session, mf_batch_part *part);
void mf_session_commit(mf_session *session, uint32_t n_rows, bool has_logits);
/* Gives back, of the layers with a window, pages that no window reaches any more. */
void mf_session_drop_behind_window(mf_session *session);
/* Keeps position tokens: as the mark, which is one of the session's at this position, has them, or
 * with the session's own pages and no recurrent state. Marks beyond are dropped. */
void mf_session_rewind(mf_session *session, uint64_t position, const mf_mark *mark);
/* Drops everything held. */
void mf_session_drop_all(mf_session *session);
mf_status mf_session_reserve_tokens(mf_session *session, uint64_t n_tokens, mf_error *error);
void mf_session_tell_change(mf_session *session, uint64_t n_kept);

/* Pages from number `end` on are dropped; where all held ones were behind it, the table is empty
 * and begins there. add_page takes over a reference. */
void mf_session_end_pages(mf_session *session, mf_unit_kind kind, uint32_t end);
void mf_session_add_page(mf_session *session, mf_unit_kind kind, mf_unit unit);
/* Whether the session can go back to `position` with what it holds, marks aside. */
bool mf_session_reaches(const mf_session *session, uint64_t position);
/* The pages that a mark holds itself: n of them, from number *first on. */
const mf_unit *mf_mark_pages(const mf_mark *mark, mf_unit_kind kind, uint32_t *first, uint32_t *n);

/* The newest mark at or before `position`, NULL if there is none. */
mf_mark *mf_mark_find(const mf_session *session, uint64_t position);
mf_status mf_mark_take(mf_session *session, mf_error *error);
/* Drops those at positions beyond this one. */
void mf_mark_drop_beyond(mf_session *session, uint64_t position);
/* Drops the least recently used mark of all that is not its session's newest; false if there
 * is none. */
bool mf_mark_drop_oldest(mf_engine *engine);

#endif
