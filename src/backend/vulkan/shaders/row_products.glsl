// SPDX-License-Identifier: MIT
// What a row's layer begins and ends with in one dispatch: the products of norm(x) with up to four weights, whose
// rows are handed to the others, and x += the product of what was made of them. Whoever includes this has N_COLS, of
// x, and TAKEN, of what the last one multiplies; where the rows of the second, third and fourth weight begin among
// values, AT_1, AT_2, AT_3, and where they end, N_IN; IN_ROWS, of a team in a workgroup's part of the first products,
// and AHEAD, a divisor of it, how many of them are on their way; OUT_ROWS, OUT_SPAN, OUT_ITEM likewise of the last
// one; p.x, p.first, p.last, p.zero; row_input.glsl, places.glsl.

// Parts of n_rows from `first` on become their sums: lane i of a team has that of the row i * TEAMS + its number.
float row_sums(uint first, const uint n_rows, const uint n_tiles, uint id)
{
    float mine = 0.0;
    [[unroll]] for (uint i = 0; i * TEAMS < n_rows; i++) {
        const uint row = first + (i * TEAMS + id / TEAM) % n_rows;
        float total = 0.0;
        [[unroll]] for (uint t = 0; t < n_tiles; t++) {
            const uint at = part_at(row, n_tiles, t, id % TEAM);
            total = add_part(total, memory[at / 4][at % 4]);
        }
        total = team_sum(total, id);
        mine = id % TEAM == i ? total : mine;
    }
    return mine;
}

// ---- the first products
// Rows of one weight are cut into runs of IN_ROWS, which teams side by side have.
uint runs_of(uint n_rows)
{
    return (n_rows + IN_ROWS - 1) / IN_ROWS;
}

uint n_runs()
{
    return runs_of(AT_1) + runs_of(AT_2 - AT_1) + runs_of(AT_3 - AT_2) + runs_of(N_IN - AT_3);
}

struct Run {
    uint first, n; // rows: where their results lie among pairs
    Weight at;     // of the first one
};

Run run_of(uint i, uint col)
{
    const uint one = runs_of(AT_1), two = one + runs_of(AT_2 - AT_1), three = two + runs_of(AT_3 - AT_2), n = n_runs();
    const uint run = min(i, n - 1); // there may be none
    const uint begin = run < one ? 0 : run < two ? AT_1 : run < three ? AT_2 : AT_3;
    const uint end = run < one ? AT_1 : run < two ? AT_2 : run < three ? AT_3 : N_IN;
    const uint row = (run - (run < one ? 0 : run < two ? one : run < three ? two : three)) * IN_ROWS;
    Weight w = weight_of(p.first[0]), w1 = weight_of(p.first[1]), w2 = weight_of(p.first[2]), w3 = weight_of(p.first[3]);
    w.values = run < one ? w.values : run < two ? w1.values : run < three ? w2.values : w3.values;
    w.scales = run < one ? w.scales : run < two ? w1.scales : run < three ? w2.scales : w3.scales;
    w.biases = run < one ? w.biases : run < two ? w1.biases : run < three ? w2.biases : w3.biases;
    return Run(begin + row, i < n ? min(end - begin - row, IN_ROWS) : 0, chunk_at(w, row, col, N_COLS));
}

// Without a branch.
void next_row_if(inout Weight w, bool goes_on)
{
    w.values += goes_on ? row_bytes(N_COLS) : 0;
    w.scales += goes_on ? scale_row_bytes(N_COLS) : 0;
    w.biases += goes_on ? scale_row_bytes(N_COLS) : 0;
}

void begin_run(inout Run run, uint col, out Chunk c[AHEAD])
{
    [[unroll]] for (uint i = 0; i < AHEAD; i++) {
        c[i] = fetch_at(run.at, col);
        next_row_if(run.at, i + 1 < run.n);
    }
}

void multiply_run(inout Run run, uint col, inout Chunk c[AHEAD], uint slot, uint span, uint lane)
{
    [[dont_unroll]] for (uint k = 0; k < IN_ROWS; k += AHEAD)
        [[unroll]] for (uint i = 0; i < AHEAD; i++) {
            put_part(slot * IN_ROWS + k + i, SPAN, span, lane, multiply(c[i]));
            if (k + AHEAD < IN_ROWS) {
                c[i] = fetch_at(run.at, col);
                next_row_if(run.at, k + AHEAD + i + 1 < run.n);
            }
        }
}

// Of the item's runs that begin with `first`: the row whose sum an invocation has; N_IN: none.
uint summed_row(uint first, uint id)
{
    const uint i = id % TEAM * TEAMS + id / TEAM;
    const Run run = run_of(first + i / IN_ROWS, 0);
    return i < IN_ITEM && i % IN_ROWS < run.n ? run.first + i % IN_ROWS : N_IN;
}

// ---- the last product
Chunk out_chunks[OUT_ROWS];

// Where a workgroup's first part begins; others that have none have the last one.
uint first_out()
{
    return min(gl_WorkGroupID.x * OUT_ITEM, N_COLS - OUT_ITEM);
}

// Of an invocation's rows of a workgroup's part, which begins with row `first`.
void fetch_out(uint first, uint id)
{
    const uint team = id / TEAM, col = team % OUT_SPAN * TILE + id % TEAM * CHUNK;
    Weight at = chunk_at(weight_of(p.last), first + team / OUT_SPAN * OUT_ROWS, col, TAKEN);
    [[unroll]] for (uint i = 0; i < OUT_ROWS; i++) {
        out_chunks[i] = fetch_at(at, col);
        next_row(at, TAKEN);
    }
}

// The row of a part that an invocation finishes, if it is one.
uint finished_out(uint id)
{
    return id % TEAM * TEAMS + id / TEAM;
}

// What is added to.
float old_out(uint first, uint id)
{
    const uint mine = finished_out(id);
    return p.x.v[first + (mine < OUT_ITEM ? mine : 0)];
}

// The lane's columns have been taken; old: of the first part.
void multiply_out(float old, uint id)
{
    const uint lane = id % TEAM, team = id / TEAM, span = team % OUT_SPAN, slot = team / OUT_SPAN;
    const uint BEHIND = TAKEN / (OUT_SPAN * TEAM), step = gl_NumWorkGroups.x * OUT_ITEM;
    const uint mine = finished_out(id);
    [[dont_unroll]] for (uint first = gl_WorkGroupID.x * OUT_ITEM; first < N_COLS; first += step) {
        [[dont_unroll]] for (uint i = 0; i < OUT_ROWS + p.zero; i++) {
            put_part(BEHIND + slot * OUT_ROWS + i, OUT_SPAN, span, lane, multiply(out_chunks[0]));
            [[unroll]] for (uint j = 1; j < OUT_ROWS; j++)
                out_chunks[j - 1] = out_chunks[j];
        }
        barrier();
        const float y = row_sums(BEHIND, OUT_ITEM, OUT_SPAN, id);
        if (mine < OUT_ITEM)
            p.x.v[first + mine] = old + y;
        if (first + step < N_COLS) {
            barrier();
            fetch_out(first + step, id);
            old = old_out(first + step, id);
        }
    }
}
