// SPDX-License-Identifier: MIT
// One of a pair, with the same bits wherever it is turned; the other one turns by the same angle, the sine of which is
// -sine.
float rotated(float x, float other, float cosine, float sine)
{
    precise float y = x * cosine - other * sine;
    return y;
}
