/* SPDX-License-Identifier: MIT */
/* The size of pieces. */
#include "pace.h"

/* What a step may take, in steps of answers alone, errors included. */
#define STRETCH 2.6
#define FIRST_PIECE 8
/* Of the room, what errors may take. */
#define ERRORS_SHARE 0.5

void mf_srv_pace_begin(mf_srv_pace *p, size_t most, double stall_us)
{
    *p = (mf_srv_pace){.most = most, .stall_us = stall_us, .piece = FIRST_PIECE};
    p->piece = p->piece < most ? p->piece : most;
}

void mf_srv_pace_answers(mf_srv_pace *p, double us)
{
    p->answer_us = p->answer_us > 0 ? 0.8 * p->answer_us + 0.2 * us : us;
}

static double distance(double a, double b)
{
    return a > b ? a - b : b - a;
}

/* As many as the room has for, but not much more than were tried, nor less than half of them: one
 * step that was late for some other reason says little. */
static size_t next_piece(const mf_srv_pace *p)
{
    const double usual = STRETCH * p->answer_us;
    const double room = (usual > p->stall_us ? usual : p->stall_us) - p->answer_us;
    const double errors =
        2 * p->error_us < ERRORS_SHARE * room ? 2 * p->error_us : ERRORS_SHARE * room;
    const double wanted = p->token_us > 0 ? (room - errors) / p->token_us : (double)p->most;
    const size_t grown = p->piece + p->piece / 4 + 1, halved = p->piece / 2;
    size_t piece = wanted >= (double)grown ? grown : (size_t)wanted;
    piece = piece < halved ? halved : piece;
    return piece < 1 ? 1 : piece > p->most ? p->most : piece;
}

void mf_srv_pace_mixed(mf_srv_pace *p, size_t n_tokens, double us)
{
    if (n_tokens == 0 || p->answer_us <= 0)
        return;
    const double added = us > p->answer_us ? (us - p->answer_us) / (double)n_tokens : 0;
    if (p->token_us > 0)
        p->error_us =
            0.9 * p->error_us + 0.1 * distance(us, p->answer_us + p->token_us * (double)n_tokens);
    p->token_us = p->token_us > 0 ? 0.8 * p->token_us + 0.2 * added : added;
    /* a last piece, or one of several prompts, may be shorter: it says nothing of larger ones */
    if (n_tokens >= p->piece || next_piece(p) < p->piece)
        p->piece = next_piece(p);
}
