// SPDX-License-Identifier: MIT
// Sums and maxima over a workgroup, whatever the size of its subgroups; every invocation of the
// workgroup must come here. The order of the sum depends on the device alone.
shared float reduce_part[256]; // 1024 invocations in subgroups of 4

float workgroup_sum(float x)
{
    x = subgroupAdd(x);
    if (gl_NumSubgroups == 1)
        return x;
    barrier(); // an earlier sum has been read
    if (subgroupElect())
        reduce_part[gl_SubgroupID] = x;
    barrier();
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
    barrier();
    if (subgroupElect())
        reduce_part[gl_SubgroupID] = x;
    barrier();
    x = reduce_part[0];
    for (uint i = 1; i < gl_NumSubgroups; i++)
        x = max(x, reduce_part[i]);
    return x;
}
