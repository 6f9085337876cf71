// SPDX-License-Identifier: MIT
// Limits that make no number of what is none: min and clamp of a device may give the limit for NaN, and
// so may comparisons that a compiler makes one of. How x is stored says what it is.

bool is_no_number(float x)
{
    return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u;
}

float at_most(float x, float limit)
{
    return is_no_number(x) ? x : min(x, limit);
}

// Between -limit and limit.
float within(float x, float limit)
{
    return is_no_number(x) ? x : clamp(x, -limit, limit);
}
