// SPDX-License-Identifier: MIT
// Sums and maxima over a workgroup, whatever the size of its subgroups; every invocation of the
// workgroup must come here. The order of the sum depends on the device alone.
shared float reduce_part[256]; // 1024 invocations in subgroups of 4

void share_part(float x)
{
    barrier(); // an earlier result has been read
    if (subgroupElect())
        reduce_part[gl_SubgroupID] = x;
    barrier();
}

float workgroup_sum(float x)
{
    x = subgroupAdd(x);
    if (gl_NumSubgroups == 1)
        return x;
    share_part(x);
    if (gl_NumSubgroups <= gl_SubgroupSize) {
        const uint i = gl_SubgroupInvocationID;
        return subgroupAdd(i < gl_NumSubgroups ? reduce_part[i] : 0.0);
    }
    x = 0.0;
    for (uint i = 0; i < gl_NumSubgroups; i++)
        x += reduce_part[i];
    return x;
}

float workgroup_max(float x)
{
    x = subgroupMax(x);
    if (gl_NumSubgroups == 1)
        return x;
    share_part(x);
    if (gl_NumSubgroups <= gl_SubgroupSize)
        return subgroupMax(reduce_part[min(gl_SubgroupInvocationID, gl_NumSubgroups - 1)]);
    x = reduce_part[0];
    for (uint i = 1; i < gl_NumSubgroups; i++)
        x = max(x, reduce_part[i]);
    return x;
}
