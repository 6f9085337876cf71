/* SPDX-License-Identifier: MIT */
/* The cache policy by simulation, on made traces: sweeps in which chunks want nearly all experts of
 * each layer in turn, decoding with skewed and slowly drifting popularity, and both mixed. */
#include "cache_sim.h"

#define EXPERTS_MAX 256

static uint64_t random_state = 88172645463325252u;

static double random_real(void)
{
    return (double)(test_random(&random_state) >> 11) / 9007199254740992.0;
}

/* A chunk of a prompt: each expert of each layer with this chance. */
static void add_sweep(cache_trace *t, double chance)
{
    for (uint32_t layer = 0; layer < t->n_layers; layer++) {
        uint32_t experts[EXPERTS_MAX], n = 0;
        for (uint32_t e = 0; e < t->n_experts; e++) {
            if (random_real() < chance)
                experts[n++] = e;
        }
        trace_add(t, layer, experts, n);
    }
}

/* Popularities of one layer's experts, as ranks that wander. */
typedef struct popularity {
    uint32_t rank[64][EXPERTS_MAX]; /* [layer][expert] */
    double skew;                    /* weight of rank r: (r + 1) ^ -skew */
} popularity;

static void popularity_init(popularity *p, const cache_trace *t, double skew)
{
    p->skew = skew;
    for (uint32_t layer = 0; layer < t->n_layers; layer++) {
        for (uint32_t e = 0; e < t->n_experts; e++) {
            uint32_t j = (uint32_t)(test_random(&random_state) % (e + 1));
            p->rank[layer][e] = p->rank[layer][j];
            p->rank[layer][j] = e;
        }
    }
}

static void drift(popularity *p, const cache_trace *t, uint32_t layer, uint32_t n_swaps)
{
    while (n_swaps-- > 0) {
        uint32_t a = (uint32_t)(test_random(&random_state) % t->n_experts);
        uint32_t b = (uint32_t)(test_random(&random_state) % t->n_experts);
        uint32_t swap = p->rank[layer][a];
        p->rank[layer][a] = p->rank[layer][b];
        p->rank[layer][b] = swap;
    }
}

/* k distinct experts of each layer, by weight. */
static void add_token(cache_trace *t, popularity *p, uint32_t k)
{
    for (uint32_t layer = 0; layer < t->n_layers; layer++) {
        double weight[EXPERTS_MAX], sum = 0;
        uint32_t experts[EXPERTS_MAX];
        for (uint32_t e = 0; e < t->n_experts; e++) {
            weight[e] = pow((double)p->rank[layer][e] + 1, -p->skew);
            sum += weight[e];
        }
        for (uint32_t i = 0; i < k; i++) {
            double at = random_real() * sum;
            uint32_t e = 0;
            while (e + 1 < t->n_experts && (at >= weight[e] || weight[e] == 0))
                at -= weight[e++];
            experts[i] = e;
            sum -= weight[e];
            weight[e] = 0;
        }
        trace_add(t, layer, experts, k);
        drift(p, t, layer, test_random(&random_state) % 16 == 0);
    }
}

static void report(const char *what, uint32_t percent, double by_lru, double got, double best)
{
    fprintf(stderr, "%-28s %2u %%: LRU %.3f, next use %.3f, Belady %.3f\n", what, percent, by_lru,
            got, best);
}

static void test_sweeps(uint32_t n_layers, uint32_t n_experts, uint32_t n_chunks, double chance)
{
    cache_trace t = {.n_layers = n_layers, .n_experts = n_experts};
    char what[64];
    snprintf(what, sizeof what, "%u sweeps of %u x %u, %.2f", n_chunks, n_layers, n_experts,
             chance);
    for (uint32_t i = 0; i < n_chunks; i++)
        add_sweep(&t, chance);
    const uint32_t percents[] = {10, 25, 50, 75, 90};
    for (size_t i = 0; i < sizeof percents / sizeof *percents; i++) {
        uint32_t n_slots = n_layers * n_experts * percents[i] / 100;
        double best = sim_hit_rate(&t, NULL, n_slots, NULL);
        double got = sim_hit_rate(&t, &mf_cache_policy_next_use, n_slots, NULL);
        double by_lru = sim_hit_rate(&t, &mf_cache_policy_lru, n_slots, NULL);
        report(what, percents[i], by_lru, got, best);
        CHECK_MSG(got >= 0.8 * best, "%s, %u %% of the experts: %.3f of Belady's %.3f", what,
                  percents[i], got, best);
    }
    trace_free(&t);
}

static void test_decoding(double skew, uint32_t n_sweeps)
{
    static popularity p;
    cache_trace t = {.n_layers = 8, .n_experts = 32};
    char what[64];
    snprintf(what, sizeof what, "decoding, skew %.1f, %u sweeps", skew, n_sweeps);
    popularity_init(&p, &t, skew);
    for (uint32_t turn = 0; turn < 3; turn++) {
        for (uint32_t i = 0; i < n_sweeps; i++)
            add_sweep(&t, 0.95);
        for (uint32_t i = 0; i < 500; i++)
            add_token(&t, &p, 4);
    }
    const uint32_t percents[] = {10, 25, 50, 75};
    for (size_t i = 0; i < sizeof percents / sizeof *percents; i++) {
        uint32_t n_slots = 256 * percents[i] / 100;
        double best = sim_hit_rate(&t, NULL, n_slots, NULL);
        double got = sim_hit_rate(&t, &mf_cache_policy_next_use, n_slots, NULL);
        double by_lru = sim_hit_rate(&t, &mf_cache_policy_lru, n_slots, NULL);
        report(what, percents[i], by_lru, got, best);
        CHECK_MSG(got >= by_lru, "%s, %u %% of the experts: %.3f where LRU has %.3f", what,
                  percents[i], got, by_lru);
    }
    trace_free(&t);
}

/* S3-FIFO beside the least recently used: popular experts survive sweeps, whatever is popular. */
static void test_s3_fifo(double skew, uint32_t n_sweeps)
{
    static popularity p;
    cache_trace t = {.n_layers = 8, .n_experts = 32};
    popularity_init(&p, &t, skew);
    for (uint32_t turn = 0; turn < 8; turn++) {
        for (uint32_t i = 0; i < n_sweeps; i++)
            add_sweep(&t, 0.95);
        for (uint32_t i = 0; i < 100; i++)
            add_token(&t, &p, 4);
    }
    for (uint32_t n_slots = 40; n_slots <= 160; n_slots += 40) {
        const double got = sim_hit_rate(&t, &mf_cache_policy_s3_fifo, n_slots, NULL);
        const double by_lru = sim_hit_rate(&t, &mf_cache_policy_lru, n_slots, NULL);
        const double best = sim_hit_rate(&t, NULL, n_slots, NULL);
        fprintf(stderr, "skew %.1f, %u sweeps, %u slots: LRU %.3f, S3-FIFO %.3f, Belady %.3f\n",
                skew, n_sweeps, n_slots, by_lru, got, best);
        CHECK_MSG(got >= by_lru && got <= best, "%.3f, LRU %.3f, Belady %.3f", got, by_lru, best);
    }
    trace_free(&t);
}

static bool is_one_of(void *ctx, uint32_t slot)
{
    const uint32_t *only = ctx;
    return *only == UINT32_MAX || *only == slot;
}

/* Whatever was asked for how often: a slot that may go is found, and only such a one. */
static void test_always_one(const char *name)
{
    const mf_cache_policy *policy = NULL;
    REQUIRE(mf_cache_policy_find(name, &policy, NULL) == MF_OK);
    const mf_cache_shape shape = {24, 3, 16};
    CHECK(policy->state_bytes(&shape) <= mf_cache_policy_next_use.state_bytes(&shape));
    void *state = malloc(policy->state_bytes(&shape));
    uint32_t key_of[24];
    REQUIRE(state != NULL);
    policy->init(state, &shape);
    for (uint32_t i = 0; i < 24; i++) {
        key_of[i] = 2 * i;
        policy->note(state, &(mf_cache_event){MF_CACHE_MISS, 2 * i / 16, 2 * i % 16, i});
    }
    for (uint32_t i = 0; i < 4000; i++) {
        const uint32_t slot = (uint32_t)(test_random(&random_state) % 24);
        uint32_t only = test_random(&random_state) % 3 == 0 ? UINT32_MAX : slot;
        const uint32_t used = key_of[test_random(&random_state) % 24];
        const mf_cache_request request = {MF_CACHE_MISS, used / 16, used % 16, 0,
                                          is_one_of,     NULL,      &only};
        for (uint32_t s = 0; s < 24; s++)
            if (key_of[s] == used)
                policy->note(state, &(mf_cache_event){MF_CACHE_HIT, used / 16, used % 16, s});
        const uint32_t victim = policy->victim(state, &request);
        REQUIRE(victim < 24 && (only == UINT32_MAX || victim == only));
        const uint32_t old = key_of[victim];
        policy->note(state, &(mf_cache_event){MF_CACHE_EMPTY, old / 16, old % 16, victim});
        uint32_t key = (uint32_t)(test_random(&random_state) % 48);
        for (uint32_t s = 0; s < 24; s++)
            if (s != victim && key_of[s] == key) {
                key = (key + 1) % 48;
                s = UINT32_MAX; /* from the beginning */
            }
        key_of[victim] = key;
        policy->note(state, &(mf_cache_event){MF_CACHE_MISS, key / 16, key % 16, victim});
    }
    free(state);
}

/* What earlier runs asked for is kept before this one has shown it. */
static void test_primed(const mf_cache_policy *policy)
{
    const mf_cache_shape shape = {8, 2, 8};
    const float shares[8] = {0.1f, 0.1f, 0.9f, 0.1f, 0.1f, 0.8f, 0.1f, 0.1f};
    const uint32_t asked[2] = {0, 1};
    uint32_t any = UINT32_MAX;
    void *state = malloc(policy->state_bytes(&shape));
    REQUIRE(state != NULL);
    policy->init(state, &shape);
    policy->prime(state, 0, shares);
    policy->prime(state, 1, shares);
    for (uint32_t i = 0; i < 8; i++)
        policy->note(state, &(mf_cache_event){MF_CACHE_MISS, 0, i, i});
    policy->visit(state, 1, asked, 2);
    for (uint32_t i = 0; i < 6; i++) {
        const mf_cache_request request = {MF_CACHE_MISS, 1, i, 0, is_one_of, NULL, &any};
        const uint32_t victim = policy->victim(state, &request);
        CHECK_MSG(victim != 2 && victim != 5, "%s empties slot %u", policy->name, victim);
        policy->note(state, &(mf_cache_event){MF_CACHE_EMPTY, 0, victim, victim});
    }
    free(state);
}

/* A miss of a large model looks at about one layer's slots, however many there are. */
static void test_cost(void)
{
    static popularity p;
    cache_trace t = {.n_layers = 40, .n_experts = 256};
    double n_looks = 0;
    popularity_init(&p, &t, 1.0);
    for (uint32_t i = 0; i < 200; i++)
        add_token(&t, &p, 8);
    const uint32_t slots[] = {16, 400, 3000, 8000};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        double rate = sim_hit_rate(&t, &mf_cache_policy_next_use, slots[i], &n_looks);
        fprintf(stderr, "%u slots: hit rate %.3f, %.1f slots asked about for a miss\n", slots[i],
                rate, n_looks);
        CHECK_MSG(n_looks <= 256 + 40, "%u slots: %.1f looks at slots for a miss", slots[i],
                  n_looks);
    }
    trace_free(&t);
}

/* The share of requests that neither of two levels has to read: slots, and places below them whose
 * policy sees what the slots miss, or all. */
static double two_levels(const cache_trace *t, uint32_t n_slots, uint32_t n_places, bool sees_all)
{
    cache_sim slots = sim_open(t, &mf_cache_policy_next_use, n_slots);
    cache_sim places = sim_open(t, &mf_cache_policy_next_use, n_places);
    uint64_t n_found = 0;
    for (uint32_t v = 0; v < t->n_visits; v++) {
        uint32_t missed[EXPERTS_MAX], n_missed = 0;
        for (uint32_t i = t->first[v]; i < t->first[v + 1]; i++)
            if (slots.slot_of[t->keys[i]] == UINT32_MAX)
                missed[n_missed++] = t->keys[i];
        n_found += sim_visit(&slots, v);
        for (uint32_t i = 0; i < n_missed; i++)
            n_found += places.slot_of[missed[i]] != UINT32_MAX;
        if (sees_all)
            (void)sim_visit(&places, v);
        else
            (void)sim_ask(&places, t->layers[v], missed, n_missed);
    }
    sim_close(&slots);
    sim_close(&places);
    return (double)n_found / t->n_keys;
}

/* Below slots a policy that sees what they miss holds what they do not: more than one that sees all
 * requests, and in decoding not much less than one cache as large as both. */
static void test_two_levels(double skew)
{
    static popularity p;
    cache_trace t = {.n_layers = 8, .n_experts = 32};
    const uint32_t percents[][2] = {{10, 25}, {25, 25}, {25, 50}, {50, 30}, {50, 50}, {25, 100}};
    popularity_init(&p, &t, skew);
    for (uint32_t i = 0; i < 12 && skew == 0; i++)
        add_sweep(&t, 0.9);
    for (uint32_t i = 0; i < 600 && skew != 0; i++)
        add_token(&t, &p, 4);
    for (size_t i = 0; i < sizeof percents / sizeof *percents; i++) {
        const uint32_t n_slots = 256 * percents[i][0] / 100, n_places = 256 * percents[i][1] / 100;
        const uint32_t n_both = n_slots + n_places < 256 ? n_slots + n_places : 256;
        const double both = sim_hit_rate(&t, &mf_cache_policy_next_use, n_both, NULL);
        const double by_all = two_levels(&t, n_slots, n_places, true);
        const double got = two_levels(&t, n_slots, n_places, false);
        fprintf(stderr,
                "levels of %u and %u %%, skew %.1f: %.3f, seeing all %.3f, one cache %.3f\n",
                percents[i][0], percents[i][1], skew, got, by_all, both);
        CHECK_MSG(got >= by_all, "%.3f, less than %.3f", got, by_all);
        CHECK_MSG(got >= (skew == 0 ? 0.55 : 0.9) * both, "%.3f of %.3f", got, both);
        CHECK(n_places < 256 || got >= both); /* all are read once */
    }
    trace_free(&t);
}

static bool any_slot(void *ctx, uint32_t slot)
{
    (void)ctx;
    (void)slot;
    return true;
}

/* A hint holds until its layer's turn: an expert that was foreseen and not asked for then goes
 * before one that is asked for now and then, whatever its slot. */
static void test_foresight_ends(void)
{
    const mf_cache_policy *policy = &mf_cache_policy_next_use;
    const mf_cache_shape shape = {.n_slots = 3, .n_layers = 2, .n_experts = 4};
    const uint32_t often[] = {0, 1};
    for (uint32_t foreseen = 0; foreseen < 3; foreseen++) {
        void *state = malloc(policy->state_bytes(&shape));
        REQUIRE(state != NULL);
        policy->init(state, &shape);
        policy->visit(state, 0, often, 2);
        policy->visit(state, 0, often, 1);
        for (uint32_t slot = 0, expert = 0; slot < 3; slot++) {
            const bool is_hint = slot == foreseen;
            const mf_cache_event event = {is_hint ? MF_CACHE_HINT : MF_CACHE_MISS, 0,
                                          is_hint ? 3 : expert++, slot};
            policy->note(state, &event);
        }
        const mf_cache_request request = {MF_CACHE_MISS, 0, 2, 0, any_slot, NULL, NULL};
        policy->visit(state, 1, often, 1);
        CHECK(policy->victim(state, &request) != foreseen);
        policy->visit(state, 0, often, 2);
        CHECK_U64(policy->victim(state, &request), foreseen);
        free(state);
    }
}

/* What is foreseen takes the place of what is expected later and of nothing else; what is missed
 * takes any. */
static void test_foreseen_and_sooner(void)
{
    const mf_cache_policy *policy = &mf_cache_policy_next_use;
    const mf_cache_shape shape = {.n_slots = 2, .n_layers = 3, .n_experts = 4};
    const uint32_t both[] = {0, 1}, other[] = {2};
    for (uint32_t held = 0; held < 3; held++) {
        void *state = malloc(policy->state_bytes(&shape));
        REQUIRE(state != NULL);
        policy->init(state, &shape);
        policy->visit(state, held, both, 2);
        for (uint32_t slot = 0; slot < 2; slot++)
            policy->note(state, &(mf_cache_event){MF_CACHE_MISS, held, slot, slot});
        policy->visit(state, 0, other, 1); /* then come the layers 1, 2 and 0 */
        for (uint32_t wanted = 0; wanted < 3; wanted++) {
            const uint32_t until_held = held == 0 ? 3 : held, until = wanted == 0 ? 3 : wanted;
            const mf_cache_request hint = {MF_CACHE_HINT, wanted, 3, 0, any_slot, NULL, NULL};
            const mf_cache_request miss = {MF_CACHE_MISS, wanted, 3, 0, any_slot, NULL, NULL};
            /* of layer 0 the second turn has just been: its experts come in one of two */
            const bool is_later = held == 0 || until_held > until;
            CHECK((policy->victim(state, &hint) != UINT32_MAX) == is_later);
            CHECK(policy->victim(state, &miss) != UINT32_MAX);
        }
        free(state);
    }
}

/* Which slots may be emptied. */
typedef struct kinds {
    uint32_t open; /* by bit */
} kinds;

static bool is_open(void *ctx, uint32_t slot)
{
    const kinds *k = ctx;
    return (k->open >> slot & 1) != 0;
}

/* A layer's worst slot of one kind is not that of the other, whichever was asked for before. */
static void test_kinds(void)
{
    const mf_cache_policy *policy = &mf_cache_policy_next_use;
    const mf_cache_shape shape = {.n_slots = 4, .n_layers = 2, .n_experts = 8};
    static const uint32_t all[] = {0, 1, 2, 3};
    void *state = malloc(policy->state_bytes(&shape));
    REQUIRE(state != NULL);
    policy->init(state, &shape);
    for (uint32_t n = 4; n > 0; n--) /* expert 0 always, 3 least often */
        policy->visit(state, 0, all, n);
    for (uint32_t e = 0; e < 4; e++)
        policy->note(state, &(mf_cache_event){MF_CACHE_MISS, 0, e, e});
    policy->visit(state, 1, all, 4);
    kinds even = {5}, odd = {10}, none = {0};
    const mf_cache_request a = {MF_CACHE_MISS, 1, 4, 0, is_open, NULL, &even};
    const mf_cache_request b = {MF_CACHE_MISS, 1, 4, 1, is_open, NULL, &odd};
    const mf_cache_request hint = {MF_CACHE_HINT, 1, 4, 0, is_open, NULL, &even};
    const mf_cache_request no_hint = {MF_CACHE_HINT, 1, 4, 1, is_open, NULL, &none};
    CHECK_U64(policy->victim(state, &no_hint), UINT32_MAX);
    CHECK_U64(policy->victim(state, &hint), 2);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_U64(policy->victim(state, &a), 2);
        CHECK_U64(policy->victim(state, &b), 3);
    }
    policy->note(state, &(mf_cache_event){MF_CACHE_EMPTY, 0, 3, 3});
    CHECK_U64(policy->victim(state, &b), 1);
    CHECK_U64(policy->victim(state, &a), 2);
    free(state);
}

int main(void)
{
    test_kinds();
    test_foreseen_and_sooner();
    test_foresight_ends();
    test_sweeps(8, 32, 5, 1.0);
    test_sweeps(8, 32, 5, 0.95);
    test_sweeps(8, 32, 12, 0.9);
    test_sweeps(12, 128, 5, 0.97);
    test_decoding(0.6, 0);
    test_decoding(1.0, 0);
    test_decoding(1.4, 0);
    test_decoding(1.0, 2);
    test_two_levels(0);
    test_two_levels(0.6);
    test_two_levels(1.2);
    test_cost();
    test_s3_fifo(1.0, 0);
    test_s3_fifo(1.0, 1);
    test_s3_fifo(1.4, 2);
    test_always_one("next-use");
    test_always_one("lru");
    test_always_one("lfu");
    test_always_one("s3-fifo");
    test_primed(&mf_cache_policy_next_use);
    test_primed(&mf_cache_policy_lfu);
    return test_result();
}
