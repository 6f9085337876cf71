// SPDX-License-Identifier: MIT
// What the shaders of products are told: mf_vk_job of vk_product.h.
struct Job {
    Weight weight, up; // up: of pairs
    uint64_t x, y;
    uint64_t rows; // Words: the rows of x that are multiplied; 0: one after another
    uint64_t x_scales; // Floats: of the rows of x, where they are float16
    uint first_row, n_rows; // of the weight
    uint n_tokens, x_stride, y_stride; // strides in floats
    uint unused;
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Jobs { Job v[]; };

// mf_vk_routing of vk_product.h: what makes a job of each pick of routed experts out of one.
struct Routing {
    Ints ids;
    Words slot;
    uint64_t slot_bytes;
    uint scales_stride, biases_stride; // of an expert's arrays that are not in slots; 0: they are
    uint per_row;                      // picks of a row of x
    uint unused;
};

void move_to_slot(inout Weight w, Routing r, uint64_t to, uint expert)
{
    w.values += to;
    w.scales += r.scales_stride == 0 ? to : uint64_t(expert) * r.scales_stride;
    w.biases += r.biases_stride == 0 ? to : uint64_t(expert) * r.biases_stride;
}

// The expert's number and slot are fetched beside the job.
Job routed_job(Jobs jobs, Routing r, uint pick)
{
    const uint expert = uint(r.ids.v[pick]);
    const uint64_t to = uint64_t(r.slot.v[expert]) * r.slot_bytes;
    Job job = jobs.v[0];
    move_to_slot(job.weight, r, to, expert);
    move_to_slot(job.up, r, to, expert);
    job.x += uint64_t(pick / r.per_row) * job.x_stride * 4;
    job.y += uint64_t(pick) * job.y_stride * 4;
    return job;
}
