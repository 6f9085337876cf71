/* SPDX-License-Identifier: MIT */
/* Devices before they are opened: the public list, finding by name, and what "auto" chooses among
 * devices that this machine need not have. */
#include "backend/devices.h"
#include "backend/vulkan/vulkan_backend.h"
#include "base/cgroup.h"
#include "base/cpu.h"
#include "kernels/kernels.h"
#include "test.h"

#define MIB ((uint64_t)1 << 20)

static mf_vulkan_device device(const char *name, const char *kind, uint64_t mib)
{
    mf_vulkan_device d = {.kind = kind, .memory_bytes = 2 * mib * MIB, .free_bytes = mib * MIB};
    (void)snprintf(d.name, sizeof d.name, "%s", name);
    d.is_unified = strcmp(kind, "discrete") != 0;
    return d;
}

static int choose(const mf_vulkan_device *list, uint32_t n, uint64_t least_mib,
                  uint64_t promise_mib, char *why)
{
    const mf_device_needs needs = {.least_bytes = least_mib * MIB,
                                   .device_bytes = promise_mib * MIB,
                                   .has_room_for_host = true};
    return mf_device_choose_of(list, n, &needs, why);
}

static void check_choice(void)
{
    char why[MF_DEVICE_WHY_BYTES];
    mf_vulkan_device list[] = {device("llvmpipe", "software", 100000),
                               device("chip", "integrated", 100000),
                               device("small", "discrete", 2000), device("large", "discrete", 9000),
                               device("lacking", "discrete", 90000)};
    list[4].unusable = "8-bit storage";
    CHECK_U64(choose(list, 5, 1000, 0, why), 3);
    CHECK_STR(why, "large");
    /* a margin is left of what is free: a 32nd and 128 MiB */
    CHECK_U64(choose(list, 5, 9000 - 9000 / 32 - 129, 0, why), 3);
    CHECK(choose(list, 5, 9000 - 9000 / 32 - 127, 0, why) == -1);
    CHECK_CONTAINS(why, "lacking lacks 8-bit storage");
    CHECK(choose(list, 4, 9000, 0, why) == -1);
    CHECK_CONTAINS(why, "large has ");
    CHECK_CONTAINS(why, "at least 9000 MiB are needed");
    /* what is promised is what counts, as far as it is free */
    CHECK_U64(choose(list, 5, 1500, 1500, why), 2);
    CHECK(choose(list, 5, 1500, 1499, why) == -1);
    CHECK_U64(choose(list, 5, 8900, 9000, why), 3);
    CHECK_U64(choose(list, 5, 9000, 20000, why), 3);
    CHECK(choose(list, 4, 9001, 20000, why) == -1);
    /* software and what shares the host's memory: only by name */
    CHECK(choose(list, 2, 1, 0, why) == -1);
    CHECK_STR(why, "no discrete GPU is there");
    CHECK(choose(list, 0, 1, 0, why) == -1);
    /* where the driver does not say what is free, all there is */
    list[2].free_bytes = 0;
    CHECK_U64(choose(list, 3, 3500, 0, why), 2);
    /* and where it says that nothing is, none */
    list[2].has_memory_budget = true;
    CHECK(choose(list, 3, 1, 0, why) == -1);
    CHECK_CONTAINS(why, "small has 0 MiB for it, at least 1 MiB are needed");
    CHECK(choose(list, 3, 1, 1000, why) == -1);
    /* what is left beside the margin may be nothing, but not what is not known */
    list[2].free_bytes = 100 * MIB;
    CHECK(choose(list, 3, 1, 0, why) == -1);
    CHECK(mf_vulkan_default_bytes(100 * MIB) == 1 && mf_vulkan_default_bytes(200 * MIB) > 60 * MIB);
    const mf_device_needs none = {.least_bytes = 1};
    mf_device_place place;
    mf_device_choose(&none, &place, why);
    CHECK_STR(place.name, "cpu");
    CHECK(!place.takes_promise && !place.has_memory && why[0] != 0);
}

static void check_names(void)
{
    mf_vulkan_device list[] = {device("a", "software", 1), device("b", "integrated", 1),
                               device("c", "discrete", 1), device("d", "discrete", 1)};
    if (!mf_vulkan_is_name("vulkan:3") || mf_vulkan_find(list, 4, "vulkan:3") < 0)
        return; /* a build without Vulkan */
    CHECK_U64(mf_vulkan_find(list, 4, "vulkan"), 2);
    list[2].unusable = "something";
    CHECK_U64(mf_vulkan_find(list, 4, "vulkan"), 3);
    CHECK_U64(mf_vulkan_find(list, 4, "vulkan:0"), 0);
    CHECK(mf_vulkan_find(list, 4, "vulkan:4") == -1);
    CHECK_U64(mf_vulkan_find(list, 1, "vulkan"), 0);
    CHECK(mf_vulkan_find(list, 0, "vulkan") == -1);
}

static void check_list(void)
{
    mf_device_info list[32], first;
    mf_error no_gpu = {0};
    const size_t n = mf_device_list(list, 32, &no_gpu);
    CHECK(n >= 1 && n <= 17);
    CHECK((n == 1) == (no_gpu.code == MF_ERR_UNSUPPORTED));
    CHECK((no_gpu.message[0] != 0) == (n == 1));
    CHECK_STR(list[0].id, "cpu");
    CHECK_STR(list[0].kind, "cpu");
    CHECK(list[0].shares_memory && list[0].memory_bytes > 0 && list[0].lacks[0] == 0);
    for (size_t i = 1; i < n; i++) {
        char id[32];
        (void)snprintf(id, sizeof id, "vulkan:%zu", i - 1);
        CHECK_STR(list[i].id, id);
        CHECK(list[i].struct_bytes == sizeof list[i]);
        CHECK(list[i].name[0] != 0 && strncmp(list[i].api, "Vulkan 1.", 9) == 0);
    }
    CHECK_U64(mf_device_list(NULL, 0, NULL), n);
    /* the CPU's tiers: each one that it has, the best last */
    char tiers[sizeof list[0].tiers];
    (void)snprintf(tiers, sizeof tiers, "%s", list[0].tiers);
    mf_cpu_tier tier = MF_CPU_BEST;
    size_t n_tiers = 0;
    for (char *rest = NULL, *name = strtok_r(tiers, ", ", &rest); name != NULL;
         name = strtok_r(NULL, ", ", &rest), n_tiers++)
        CHECK(mf_cpu_tier_named(name, &tier) && mf_cpu_has(tier) && mf_kernels_get(tier) != NULL);
    CHECK(n_tiers >= 1 && tier == mf_cpu_best() && tier == mf_kernels_get(MF_CPU_BEST)->tier);
    const uint32_t n_paid = mf_cgroup_cpu_limit(MF_CGROUP_SELF, MF_CGROUP_MOUNT);
    CHECK_U64(list[0].n_paid_cpus, n_paid == UINT32_MAX ? 0 : n_paid);
    CHECK(list[0].n_nodes >= 1);
    CHECK((list[0].n_nodes == 1) == (list[0].numa_use == MF_NUMA_ONE_NODE));
    for (size_t i = 1; i < n && i < 32; i++)
        CHECK(list[i].tiers[0] == '\0' && list[i].n_paid_cpus == 0 && list[i].n_nodes == 0);
    memset(&first, 0x5a, sizeof first);
    CHECK_U64(mf_device_list_sized(&first, 1, offsetof(mf_device_info, name), NULL), n);
    CHECK_U64(first.struct_bytes, offsetof(mf_device_info, name));
    CHECK_STR(first.id, "cpu");
    CHECK(first.name[0] == 0x5a);
}

int main(void)
{
    check_choice();
    check_names();
    check_list();
    return test_result();
}
