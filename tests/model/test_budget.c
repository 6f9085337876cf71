/* SPDX-License-Identifier: MIT */
/* The arithmetic of the budget and of what sessions need, against sums done by hand. */
#include "test.h"

#include "forward/runner.h"
#include "model/budget.h"
#include "model/plan.h"

#include <sys/stat.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

/* A model of round numbers in a process that holds little. */
static mf_budget_request request(void)
{
    return (mf_budget_request){.ram_bytes = 1000 * MIB,
                               .expert_cache_bytes = MF_EXPERT_CACHE_AUTO,
                               .resident_bytes = 100 * MIB,
                               .act_bytes = 10 * MIB,
                               .state_bytes = 160 * MIB,
                               .slabs_bytes = 180 * MIB,
                               .host_bytes = 5 * MIB,
                               .slot_bytes = 2 * MIB - 100,
                               .slot_host_bytes = 100,
                               .tokenizer_file_bytes = 7 * MIB,
                               .place.held_bytes = 9 * MIB,
                               .available_bytes = 8000 * MIB,
                               .n_experts_total = 4096,
                               .n_slots_min = 8,
                               .n_threads = 4,
                               .n_context_tokens = 4096};
}

/* Process: 24 MiB, a tokenizer of twice its file and 1, texts of 8 and 256 bytes a token, and a
 * MiB a thread. */
#define PROCESS_MIB (24 + 15 + 9 + 4)
#define FIXED_MIB (100 + 10 + 170 + 5 + PROCESS_MIB + 20)

static void test_terms(void)
{
    mf_budget_request r = request();
    mf_budget b;
    mf_budget_make(&r, &b);
    CHECK_U64(b.fixed_bytes, FIXED_MIB * MIB);
    CHECK_U64(b.floor_bytes, (FIXED_MIB + 16) * MIB);
    CHECK_U64(b.n_slots, (1000 - FIXED_MIB) / 2);
    uint64_t sum = 0;
    for (int i = 0; i < MF_N_BUDGET_TERMS; i++)
        sum += b.terms[i];
    CHECK_U64(sum, b.floor_bytes);
    CHECK_U64(b.terms[MF_TERM_HELD], 0);
}

static void test_floor_to_the_byte(void)
{
    mf_budget_request r = request();
    mf_budget b;
    r.ram_bytes = (FIXED_MIB + 16) * MIB;
    mf_budget_make(&r, &b);
    CHECK_U64(b.n_slots, 8);
    r.ram_bytes--;
    mf_budget_make(&r, &b);
    CHECK_U64(b.n_slots, 0);
    CHECK_U64(b.floor_bytes, (FIXED_MIB + 16) * MIB);
}

/* Of slots of two sizes as many as the bytes hold, neither one more nor one too few; the least are
 * all of the larger size. */
static void test_sizes(void)
{
    mf_budget_request r = request();
    mf_budget b;
    r.slot_sizes = (mf_slot_sizes){.n = 2,
                                   .n_first = 8,
                                   .bytes = {r.slot_bytes, r.slot_bytes - MIB},
                                   .n_experts = {1024, 3072}};
    for (uint64_t ram = FIXED_MIB + 15; ram < 1200; ram += 37) {
        r.ram_bytes = ram * MIB + 12345;
        mf_budget_make(&r, &b);
        CHECK_U64(b.floor_bytes, (FIXED_MIB + 16) * MIB);
        CHECK(b.is_enough == (ram > FIXED_MIB + 15) && b.is_enough == (b.n_slots > 0));
        if (!b.is_enough)
            continue;
        const uint64_t left = r.ram_bytes - b.fixed_bytes;
        CHECK(b.n_slots >= 8 && b.slot_sizes.n == 2);
        CHECK(mf_slot_sizes_bytes(&b.slot_sizes, b.n_slots) + 100 * b.n_slots <= left);
        CHECK(mf_slot_sizes_bytes(&b.slot_sizes, b.n_slots + 1) + 100 * (b.n_slots + 1) > left);
    }
    r.ram_bytes = 100000 * MIB; /* a slot for each */
    mf_budget_make(&r, &b);
    CHECK_U64(b.n_slots, 4096);
    CHECK_U64(mf_slot_sizes_bytes(&b.slot_sizes, 4096), 4096 * r.slot_bytes - 3072 * MIB);
    r.expert_cache_bytes = 8 * r.slot_bytes + 3 * MIB; /* the least, and small ones */
    mf_budget_make(&r, &b);
    CHECK_U64(b.n_slots, 8 + 3);
    CHECK_U64(mf_slot_sizes_mean(&b.slot_sizes), r.slot_bytes - 3 * MIB / 4);
}

/* Whatever a process holds within its allowance of 12 MiB, tokenizer and texts does not show. */
static void test_held_within_allowance(void)
{
    mf_budget_request r = request();
    mf_budget b;
    r.place.opens = true;
    for (uint64_t held = 0; held <= (12 + 15 + 9) * MIB; held += 100000) {
        r.place.held_bytes = held;
        mf_budget_make(&r, &b);
        CHECK_U64(b.floor_bytes, (FIXED_MIB + 16) * MIB);
    }
}

/* Beyond it the floor that was told is enough, though the process has grown by nearly a step. */
static void test_held_beyond(void)
{
    mf_budget_request asks = request(), opens = request();
    mf_budget told, at_open;
    opens.place.opens = true;
    for (uint64_t held = 36 * MIB + 1; held < 80 * MIB; held += 777777) {
        asks.place.held_bytes = held;
        opens.place.held_bytes = held + 8 * MIB - 1;
        mf_budget_make(&asks, &told);
        opens.ram_bytes = told.floor_bytes;
        mf_budget_make(&opens, &at_open);
        CHECK(at_open.n_slots >= 8);
        /* and neither strays from what is held by more than the step */
        uint64_t beyond = held - 36 * MIB;
        CHECK(told.terms[MF_TERM_HELD] >= beyond && told.terms[MF_TERM_HELD] < beyond + 8 * MIB);
        CHECK(at_open.terms[MF_TERM_HELD] + 8 * MIB > beyond + 8 * MIB - 1);
    }
}

/* What lies on devices with memory of their own is bounded by that: the process's is charged with
 * what is on its way there, and the store's bookkeeping. */
static void test_devices(void)
{
    mf_budget_request r = request();
    mf_budget b;
    r.staging_bytes = 40 * MIB;
    r.place.dense = (mf_budget_device){.has_memory = true, .n_bytes = 1500 * MIB};
    r.place.experts = r.place.dense;
    mf_budget_make(&r, &b); /* one device: beside 100 + 10 + 180 MiB, slots of 2 MiB less 100 */
    CHECK_U64(b.fixed_bytes, (FIXED_MIB - 280 + 40) * MIB);
    CHECK_U64(b.floor_bytes, b.fixed_bytes + 800);
    CHECK_U64(b.n_slots, 605);
    CHECK_U64(b.device_floor_bytes, 290 * MIB + 8 * (2 * MIB - 100));
    CHECK_U64(b.expert_device_floor_bytes, 0);
    r.ram_bytes = b.floor_bytes;
    mf_budget_make(&r, &b);
    CHECK_U64(b.n_slots, 8); /* their bookkeeping */
    r.ram_bytes--;
    mf_budget_make(&r, &b);
    CHECK_U64(b.n_slots, 0);

    r = request(); /* experts here, the rest there */
    r.staging_bytes = 40 * MIB;
    r.expert_resident_bytes = 3 * MIB;
    r.expert_act_bytes = 7 * MIB;
    r.place.dense.has_memory = true;
    mf_budget_make(&r, &b);
    CHECK_U64(b.fixed_bytes, (FIXED_MIB - 280 + 40 + 10) * MIB);
    CHECK_U64(b.n_slots, (1000 - FIXED_MIB + 230) / 2);
    CHECK_U64(b.device_floor_bytes, 290 * MIB);
    CHECK_U64(b.expert_device_floor_bytes, 0);

    r.place.dense.has_memory = false; /* and the other way round */
    r.place.experts = (mf_budget_device){.has_memory = true, .n_bytes = 110 * MIB};
    mf_budget_make(&r, &b);
    CHECK_U64(b.fixed_bytes, (FIXED_MIB + 40) * MIB);
    CHECK_U64(b.n_slots, 50);
    CHECK_U64(b.device_floor_bytes, 0);
    CHECK_U64(b.expert_device_floor_bytes, 10 * MIB + 8 * (2 * MIB - 100));
    r.place.experts.n_bytes = 12 * MIB; /* too little: for whoever makes the buffers to say */
    mf_budget_make(&r, &b);
    CHECK_U64(b.n_slots, 8);
    r.place.experts.n_bytes = 0; /* not known */
    mf_budget_make(&r, &b);
    CHECK_U64(b.n_slots, 500);
}

/* What slots on a device leave of the budget holds experts before them: at least the places that
 * the floor has, at most one for each expert, none beyond where all have slots. */
static void test_places(void)
{
    mf_budget_request r = request();
    mf_budget b;
    r.slot_bytes = r.place_bytes = 2 * MIB - 200;
    r.slot_host_bytes = r.place_host_bytes = 200;
    mf_budget_make(&r, &b); /* read where they stay */
    CHECK_U64(b.n_places, 0);
    r.n_places_min = 16;
    const uint64_t fixed = b.fixed_bytes - 280 * MIB + 32 * MIB;
    r.place.dense = (mf_budget_device){.has_memory = true, .n_bytes = 390 * MIB};
    r.place.experts = r.place.dense;
    mf_budget_make(&r, &b);
    CHECK_U64(b.fixed_bytes, fixed);
    CHECK_U64(b.terms[MF_TERM_STAGING], 32 * MIB);
    CHECK_U64(b.floor_bytes, fixed + 8 * 200);
    CHECK_U64(b.n_slots, 50); /* and a few bytes of their books */
    CHECK_U64(b.n_first_places, 16);
    /* rooms of 129 places in 258 and 4 MiB: three of them, and the rest */
    const uint64_t left = 1000 * MIB - fixed - 50 * 200;
    CHECK_U64(b.n_room_places, 129);
    CHECK_U64(b.n_places, 16 + 3 * 129 + (left - 3 * 262 * MIB - 4 * MIB) / (2 * MIB));
    r.ram_bytes = fixed + 50 * 200 + 6 * MIB - 1;
    mf_budget_make(&r, &b);
    CHECK_U64(b.n_places, 16);
    r.ram_bytes++;
    mf_budget_make(&r, &b);
    CHECK_U64(b.n_places, 17);
    r.ram_bytes = fixed + 8 * 200;
    mf_budget_make(&r, &b);
    CHECK(b.n_slots == 8 && b.n_places == 16);
    r.ram_bytes--;
    mf_budget_make(&r, &b);
    CHECK(b.n_slots == 0 && b.n_places == 0);

    r.ram_bytes = 100000 * MIB; /* all experts, in so many rooms */
    mf_budget_make(&r, &b);
    CHECK_U64(b.n_places, 4096);
    r.n_experts_total = 1000000;
    r.ram_bytes = 3000000 * MIB;
    mf_budget_make(&r, &b);
    CHECK_U64(b.n_places, 1000000);
    CHECK_U64(b.n_room_places, (1000000 - 16) / 512 + 1);
    r.ram_bytes = 1000 * MIB;
    r.n_experts_total = 50; /* all have slots: places are for the way alone */
    mf_budget_make(&r, &b);
    CHECK(b.n_slots == 50 && b.n_places == 50);
    r.place.experts.n_bytes = r.place.dense.n_bytes = 600 * MIB;
    r.n_experts_total = 120;
    mf_budget_make(&r, &b);
    CHECK(b.n_slots == 120 && b.n_places == 64);
    r.n_experts_total = 200;
    mf_budget_make(&r, &b);
    CHECK(b.n_slots == 155 && b.n_places == 200);
    r.place.experts.n_bytes = r.place.dense.n_bytes = 390 * MIB;
    r.n_experts_total = 51;
    mf_budget_make(&r, &b);
    CHECK(b.n_slots == 50 && b.n_places == 51);
    r.expert_cache_bytes = 20 * r.slot_bytes; /* of either level */
    mf_budget_make(&r, &b);
    CHECK(b.n_slots == 20 && b.n_places == 20);
    r.expert_cache_bytes = 0;
    mf_budget_make(&r, &b);
    CHECK(b.n_slots == 8 && b.n_places == 8);
}

static void test_automatic(void)
{
    mf_budget_request r = request();
    mf_budget b;
    r.ram_bytes = 0;
    mf_budget_make(&r, &b); /* a tenth is left to the machine */
    CHECK_U64(b.ram_bytes, (9 + 7200) * MIB);
    r.available_bytes = 2000 * MIB; /* but at least 512 MiB */
    mf_budget_make(&r, &b);
    CHECK_U64(b.ram_bytes, (9 + 1488) * MIB);
    CHECK_U64(b.available_bytes, 2000 * MIB);
    r.available_bytes = 300 * MIB;
    mf_budget_make(&r, &b);
    CHECK_U64(b.ram_bytes, 9 * MIB);
    CHECK_U64(b.n_slots, 0);
}

static void test_expert_cache(void)
{
    mf_budget_request r = request();
    mf_budget b;
    r.slot_bytes = 2 * MIB;
    r.slot_host_bytes = 0;
    const struct {
        uint64_t cache_mib, n_slots;
    } cases[] = {{0, 8}, {15, 8}, {40, 20}, {41, 20}, {100000, (1000 - FIXED_MIB) / 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        r.expert_cache_bytes = cases[i].cache_mib * MIB;
        mf_budget_make(&r, &b);
        CHECK_U64(b.n_slots, cases[i].n_slots);
    }
    r.n_experts_total = 64;
    mf_budget_make(&r, &b);
    CHECK_U64(b.n_slots, 64);
}

/* The bookkeeping of slots counts as they do. */
static void test_slot_host_bytes(void)
{
    mf_budget_request r = request();
    mf_budget b;
    r.slot_bytes = 1 * MIB;
    r.slot_host_bytes = 1 * MIB;
    mf_budget_make(&r, &b);
    CHECK_U64(b.n_slots, (1000 - FIXED_MIB) / 2);
}

static void test_overflow(void)
{
    static const uint64_t values[] = {UINT64_MAX, UINT64_MAX - UINT64_MAX / 17,
                                      17361641481138402520u};
    for (size_t i = 0; i < 3; i++) {
        for (int field = 0; field < 6; field++) {
            mf_budget_request r = request();
            uint64_t *const fields[] = {&r.state_bytes, &r.resident_bytes, &r.act_bytes,
                                        &r.host_bytes,  &r.slot_bytes,     &r.tokenizer_file_bytes};
            mf_budget b;
            *fields[field] = values[i];
            mf_budget_make(&r, &b);
            CHECK(b.floor_bytes >= values[i]); /* not wrapped round to something small */
            CHECK_U64(b.n_slots, 0);
        }
    }
}

/* The terms as printed add up to the floor as printed. */
static void test_words(void)
{
    mf_budget_request r = request();
    mf_budget b;
    char line[512];
    for (uint64_t odd = 1; odd < 5 * MIB; odd += 345678) {
        r.act_bytes = odd;
        r.host_bytes = odd * 3 / 7;
        r.resident_bytes = odd * 13 / 5;
        r.place.held_bytes = odd * 20;
        mf_budget_make(&r, &b);
        mf_budget_describe(&b, line, sizeof line);
        uint64_t sum = 0;
        for (const char *p = line; p != NULL && *p; p = strstr(p, ", "), p = p ? p + 2 : NULL) {
            unsigned long long whole, tenth;
            if (sscanf(p, "%llu.%llu MiB", &whole, &tenth) == 2)
                sum += whole * 10 + tenth;
        }
        CHECK_U64(sum, mf_budget_floor_tenths(&b));
        CHECK(mf_budget_floor_tenths(&b) * MIB >= b.floor_bytes * 10);
        CHECK((mf_budget_floor_tenths(&b) - 1) * MIB < b.floor_bytes * 10);
    }
    CHECK(strstr(line, "MiB expert slots") != NULL);
}

static void test_mark_logits(void)
{
    /* each 600 bytes and 100 values: 1,000; ten of them fit 10,999 */
    CHECK_U64(mf_mark_logits_bytes(10999, 600, 100), 10 * 400);
    CHECK_U64(mf_mark_logits_bytes(999, 600, 100), 0);
    CHECK_U64(mf_mark_logits_bytes(4000, 0, 100), 4000);
    CHECK_U64(mf_mark_logits_bytes(UINT64_MAX, UINT64_MAX, 100), 0);
}

static void write_file(const char *dir, const char *name, size_t n_bytes)
{
    char path[300];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    for (size_t i = 0; f != NULL && i < n_bytes; i++)
        (void)fputc('x', f);
    CHECK(f != NULL && fclose(f) == 0);
}

static void test_tokenizer_file(void)
{
    char dir[] = "/tmp/moeflux-budget-XXXXXX", sub[64], path[300];
    CHECK(mkdtemp(dir) != NULL);
    CHECK_U64(mf_tokenizer_file_bytes(dir), 0);
    write_file(dir, "tiktoken.model", 10);
    CHECK_U64(mf_tokenizer_file_bytes(dir), 10);
    (void)snprintf(sub, sizeof sub, "%s/mlx", dir);
    CHECK(mkdir(sub, 0700) == 0);
    write_file(dir, "mlx/tokenizer.json", 30);
    CHECK_U64(mf_tokenizer_file_bytes(dir), 30);
    const char *const names[] = {"tiktoken.model", "mlx/tokenizer.json", "mlx", ""};
    for (size_t i = 0; i < 4; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        CHECK(remove(path) == 0);
    }
}

/* A model of one cached layer and one recurrent one. */
static mf_hparams two_layers(void)
{
    return (mf_hparams){.n_layers = 2,
                        .layer_kind = {MF_LAYER_FULL, MF_LAYER_LINEAR},
                        .hidden_size = 64,
                        .n_vocab = 1000,
                        .n_heads = 4,
                        .n_kv_heads = 2,
                        .head_dim = 16,
                        .n_experts = 8,
                        .n_experts_per_token = 2,
                        .expert_hidden = 32,
                        .n_v_heads = 4,
                        .n_k_heads = 2,
                        .key_dim = 16,
                        .value_dim = 16,
                        .conv_width = 4};
}

static const mf_plan_options plan_options = {.n_chunk = 64,
                                             .n_context = 1000,
                                             .k = 2,
                                             .cache_type = MF_F32,
                                             .n_sessions = 1,
                                             .kinds = mf_layer_kind_table};

static void test_session_bytes(void)
{
    mf_hparams h = two_layers();
    mf_plan p;
    /* a page: keys and values of 32 positions, 2 heads of 16, in float32 */
    const uint64_t page = 2 * 32 * 2 * 16 * 4;
    /* a recurrent state: 3 rows of the convolution's inputs (q, k of 2 heads, v of 4), and a
     * square of 16 for each of 4 heads */
    const uint64_t recurrent = 3 * (2 * 2 * 16 + 4 * 16) * 4 + 4 * 16 * 16 * 4;
    mf_plan_options options = plan_options;
    CHECK(mf_plan_make(&h, &options, &p));
    CHECK_U64(p.page_bytes, page);
    CHECK_U64(p.recurrent_bytes, recurrent);
    /* 1000 positions lie in 32 pages; one more is shared with a checkpoint; three states */
    CHECK_U64(p.session_bytes, 33 * page + 3 * recurrent);
    CHECK_U64(p.state_bytes, p.session_bytes);
    const uint64_t host_of_one = p.host_bytes;
    options.n_sessions = 3;
    CHECK(mf_plan_make(&h, &options, &p));
    /* two more sessions of 256 positions each (an eighth is less) */
    CHECK_U64(p.state_bytes, 33 * page + 3 * recurrent + 2 * (9 * page + 3 * recurrent));
    /* each holds three rows of logits and its tokens besides */
    CHECK(p.host_bytes - host_of_one >= 2 * (3 * 1000 * 4 + 1000 * 4));
    CHECK(host_of_one >= 3 * 1000 * 4 + 1000 * 4 + 64 * 2 * 16);
    const uint64_t of_two_more = p.host_bytes - host_of_one;
    h.n_vocab += 500;
    CHECK(mf_plan_make(&h, &options, &p));
    const uint64_t host_of_three = p.host_bytes;
    options.n_sessions = 1;
    CHECK(mf_plan_make(&h, &options, &p));
    /* and of two rows the bounds of one more block */
    CHECK_U64(host_of_three - p.host_bytes, of_two_more + 2 * (3 * 500 * 4 + 2 * 4));
    /* experts apart: their rows, scratch, results, weights and sums there; here the sums alone */
    const uint64_t together = p.host_bytes, picks = 64 * 2;
    CHECK_U64(p.expert_act_bytes, 0);
    options.experts_apart = true;
    CHECK(mf_plan_make(&h, &options, &p));
    CHECK_U64(p.expert_act_bytes, (picks * 2 * 32 + 2 * 64 * 64 + picks * 64 + picks) * 4);
    CHECK_U64(p.host_bytes - together, mf_backend_host_bytes(NULL, 64, 64));
}

/* No session has room for more than the context; rows are prepared for the widest matrix. */
static void test_bounds(void)
{
    mf_hparams h = two_layers();
    mf_plan p;
    mf_plan_options options = plan_options;
    options.n_context = 100;
    options.n_sessions = 3;
    CHECK(mf_plan_make(&h, &options, &p));
    CHECK_U64(p.session_bytes, 5 * p.page_bytes + 3 * p.recurrent_bytes);
    CHECK_U64(p.state_bytes, 3 * p.session_bytes);
    const uint64_t narrow = p.host_bytes;
    uint32_t *const widths[] = {&h.dense_hidden, &h.shared_hidden, &h.q_rank};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        const uint32_t was = *widths[i];
        *widths[i] = 1000;
        CHECK(mf_plan_make(&h, &options, &p));
        CHECK_U64(p.host_bytes - narrow,
                  mf_backend_host_bytes(NULL, 64, 1000) - mf_backend_host_bytes(NULL, 64, 64));
        *widths[i] = was;
    }
}

/* Layers of different kinds work in the same memory. */
static void test_kinds_share(void)
{
    static const uint8_t kinds[] = {MF_LAYER_FULL, MF_LAYER_LINEAR};
    mf_hparams h = two_layers();
    uint64_t most = 0;
    mf_plan p;
    for (int i = 0; i < 2; i++) {
        h.layer_kind[0] = h.layer_kind[1] = kinds[i];
        CHECK(mf_plan_make(&h, &plan_options, &p));
        most = p.act_bytes > most ? p.act_bytes : most;
    }
    h.layer_kind[0] = MF_LAYER_FULL;
    CHECK(mf_plan_make(&h, &plan_options, &p));
    CHECK_U64(p.act_bytes, most);
}

/* Sizes that do not fit 64 bits are told, of pages as of recurrent states. */
static void test_plan_overflow(void)
{
    mf_plan p = {0};
    mf_hparams h = two_layers();
    CHECK(mf_plan_state(&h, &plan_options, NULL, &p));
    h.key_dim = h.value_dim = h.n_v_heads = UINT32_MAX;
    CHECK(!mf_plan_state(&h, &plan_options, NULL, &p));
    CHECK(!mf_plan_make(&h, &plan_options, &p));
}

int main(void)
{
    test_plan_overflow();
    test_terms();
    test_floor_to_the_byte();
    test_sizes();
    test_held_within_allowance();
    test_held_beyond();
    test_devices();
    test_places();
    test_automatic();
    test_expert_cache();
    test_slot_host_bytes();
    test_overflow();
    test_words();
    test_mark_logits();
    test_tokenizer_file();
    test_session_bytes();
    test_bounds();
    test_kinds_share();
    return test_result();
}
