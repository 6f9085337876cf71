// SPDX-License-Identifier: MIT
// A lane's chunks of one row after another. Whoever includes this has N_MATRICES (2 where PAIR), TEAM,
// N_COLS, the columns of a row, and IS_REGULAR: rows beyond the last are not asked for.
// Where the next chunk is fetched: a row after another, the job's last again beyond it.
struct Cursor {
    Weight at[N_MATRICES];
    uint row, last_row, col;
};

Cursor begin_rows(Job job, uint row, uint col)
{
    Cursor c;
    c.row = job.first_row + min(row, job.n_rows - 1);
    c.last_row = job.first_row + job.n_rows - 1;
    c.col = col;
    c.at[0] = job.weight;
#ifdef PAIR
    c.at[1] = job.up;
#endif
#ifdef HAS_PLACES
    if (HAS_PLACES)
        [[unroll]] for (uint m = 0; m < N_MATRICES; m++)
            c.at[m] = chunk_at(c.at[m], c.row, col, N_COLS);
#endif
    return c;
}

Chunk fetch(Cursor c, uint matrix)
{
#ifdef HAS_PLACES
    if (HAS_PLACES)
        return fetch_at(c.at[matrix], c.col);
#endif
    return fetch_chunk(c.at[matrix], c.row, c.col, TEAM * PIECE, N_COLS);
}

void next_row(inout Cursor c)
{
    const bool is_more = IS_REGULAR != 0 || c.row < c.last_row;
#ifdef HAS_PLACES
    const uint step = HAS_PLACES && is_more ? row_bytes(N_COLS) : 0;
    const uint scale_step = HAS_PLACES && is_more ? scale_row_bytes(N_COLS) : 0;
    [[unroll]] for (uint m = 0; m < N_MATRICES; m++) {
        c.at[m].values += step;
        c.at[m].scales += scale_step;
        c.at[m].biases += scale_step;
    }
#endif
    c.row += is_more ? 1 : 0;
}
