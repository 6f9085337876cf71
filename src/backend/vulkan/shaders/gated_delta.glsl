// SPDX-License-Identifier: MIT
// What the shaders of the delta rule share. Nothing is contracted, so that all have the same bits.
// log(1 + e), 0 <= e <= 1: log of a device is coarse near 1
float log1p(float e)
{
    const precise float z = e / (2.0 + e), y = z * z;
    precise float sum = 1.0 / 17.0;
    sum = sum * y + 1.0 / 15.0;
    sum = sum * y + 1.0 / 13.0;
    sum = sum * y + 1.0 / 11.0;
    sum = sum * y + 1.0 / 9.0;
    sum = sum * y + 1.0 / 7.0;
    sum = sum * y + 1.0 / 5.0;
    sum = sum * y + 1.0 / 3.0;
    const precise float result = 2.0 * (z + z * y * sum);
    return result;
}

float softplus(float x)
{
    return max(x, 0.0) + log1p(exp(-abs(x)));
}

float decay_of(float a_log, float x)
{
    return exp(-exp(a_log) * softplus(x));
}
