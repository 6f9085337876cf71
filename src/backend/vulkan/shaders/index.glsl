// SPDX-License-Identifier: MIT
// What the shaders of an indexer share.

// The keys that a row of the batch sees: of its own position and those before it, or of the runs of
// `rate` positions that have ended there.
uint n_keys_seen(Sequence s, uint row, uint rate)
{
    return (s.position + row - s.first_row + 1) / rate;
}

// A number that is greater where the score is; 0, less than any, for what is not a number.
uint in_order(float score)
{
    const uint bits = floatBitsToUint(score);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0;
    if (bits == 0x80000000u) // -0, which is 0
        return 0x80000000u;
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
