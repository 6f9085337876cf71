/* SPDX-License-Identifier: MIT */
/* moeflux.hpp on the demo model: what owns what, what is thrown, what allocates. */
#include <moeflux/moeflux.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <thread>

static size_t n_allocations;

void *operator new(size_t n)
{
    n_allocations++;
    void *p = std::malloc(n ? n : 1);
    if (!p)
        throw std::bad_alloc();
    return p;
}
void operator delete(void *p) noexcept
{
    std::free(p);
}
void operator delete(void *p, size_t) noexcept
{
    std::free(p);
}

namespace
{

int n_failed;

#define EXPECT(is_so)                                                        \
    do {                                                                     \
        if (!(is_so)) {                                                      \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #is_so); \
            n_failed++;                                                      \
        }                                                                    \
    } while (0)

/* The code that f throws; MF_OK: nothing. */
template <typename F> mf_status thrown(F f)
{
    try {
        f();
    } catch (const moeflux::error &e) {
        EXPECT(e.what()[0] != '\0' && e.get().code == e.code());
        return e.code();
    }
    return MF_OK;
}

const char *const demo = "models/demo";

moeflux::engine open_engine(uint32_t n_sessions)
{
    moeflux::engine_options options;
    options.ram_bytes = 400u << 20;
    options.n_sessions = n_sessions;
    options.device = "cpu";
    return moeflux::engine(demo, options);
}

bool same(moeflux::logits_view a, moeflux::logits_view b)
{
    return a.size() == b.size() && !a.empty() &&
           std::memcmp(a.data(), b.data(), a.size() * sizeof *a.data()) == 0;
}

static_assert(std::is_nothrow_move_constructible_v<moeflux::session>);
static_assert(std::is_nothrow_move_assignable_v<moeflux::engine>);
static_assert(!std::is_copy_constructible_v<moeflux::session>);
static_assert(std::is_nothrow_copy_constructible_v<moeflux::error>);
static_assert(sizeof(moeflux::tokenizer) == sizeof(void *));

void owns_what_it_holds(const std::vector<int32_t> &prompt)
{
    moeflux::engine engine = open_engine(2);
    {
        moeflux::session first(engine);
        moeflux::session second = first.fork();
        EXPECT(thrown([&] { moeflux::session third(engine); }) == MF_ERR_BUDGET);
        moeflux::session moved = std::move(first);
        EXPECT(!first && moved && engine.stats().n_sessions == 2);
        second = std::move(moved);
        EXPECT(!moved && second && engine.stats().n_sessions == 1);
        mf_session *raw = second.release();
        mf_session_free(&raw);
        EXPECT(!second && engine.stats().n_sessions == 0);
    }
    moeflux::engine other = std::move(engine);
    moeflux::session session = other.make_session();
    session.eval(prompt);
    EXPECT(session.position() == prompt.size() && session.tokens()[0] == prompt[0]);
}

void throws_what_fails(moeflux::engine &engine)
{
    EXPECT(thrown([] { moeflux::tokenizer t("/nonexistent"); }) != MF_OK);
    EXPECT(thrown([] { moeflux::engine e("/nonexistent"); }) != MF_OK);
    EXPECT(thrown([] {
               moeflux::engine_options options;
               options.ram_bytes = 1;
               moeflux::engine e(demo, options);
           }) == MF_ERR_BUDGET);
    try {
        moeflux::engine e("/nonexistent");
    } catch (const std::exception &e) {
        EXPECT(std::strstr(e.what(), "/nonexistent") != nullptr);
    }
    moeflux::session session(engine);
    EXPECT(thrown([&] { session.eval({-1}); }) == MF_ERR_ARGUMENT);
    EXPECT(thrown([&] { session.restore(5); }) == MF_ERR_NOT_FOUND);
    EXPECT(thrown([&] { session.load({1, 2, 3}); }) == MF_ERR_FORMAT);
    const std::vector<int32_t> two = {1, 2};
    mf_step_item items[] = {session.step_item(two), session.step_item(two)};
    EXPECT(thrown([&] { engine.step(items, 2); }) == MF_ERR_ARGUMENT); /* twice in a step */
    EXPECT(thrown([&] { engine.step(nullptr, 1); }) == MF_ERR_ARGUMENT);
    moeflux::sampler sampler(moeflux::sampler_options(), engine.info().n_vocab);
    EXPECT(thrown([&] { sampler.sample(session.logits()); }) == MF_ERR_ARGUMENT);
    EXPECT(thrown([&] { sampler.sample(session.logits(), session.bounds()); }) == MF_ERR_ARGUMENT);
    EXPECT(session.position() == 0 && session.logits().empty());
}

void callbacks_may_throw(moeflux::engine &engine, const std::vector<int32_t> &prompt)
{
    moeflux::session session(engine);
    const auto throws = [](uint64_t, uint64_t) { throw std::out_of_range("of patience"); };
    try {
        session.eval(prompt, throws);
        EXPECT(!"thrown");
    } catch (const std::out_of_range &e) {
        EXPECT(std::strcmp(e.what(), "of patience") == 0);
    }
    EXPECT(session.position() == 0);
    EXPECT(thrown([&] { session.eval(prompt, [](uint64_t, uint64_t) { return true; }); }) ==
           MF_ERR_CANCELLED);
    uint64_t last = 0;
    session.eval(prompt, [&](uint64_t n_done, uint64_t n_total) { last = n_total - n_done; });
    EXPECT(last == 0 && session.position() == prompt.size());
    session.eval({1}); /* the callbacks are gone */
    session.clear();
    size_t n = 0;
    session.eval_each(prompt, [&](size_t i, moeflux::logits_view logits) {
        EXPECT(i == n++ && logits.size() == engine.info().n_vocab);
    });
    EXPECT(n == prompt.size());
    try {
        session.eval_each(prompt, [](size_t, moeflux::logits_view) -> bool { throw 7; });
        EXPECT(!"thrown");
    } catch (int seven) {
        EXPECT(seven == 7);
    }
}

void the_same_bits(moeflux::engine &engine, const std::vector<int32_t> &prompt)
{
    moeflux::session whole(engine), stepped(engine);
    whole.eval(prompt);
    for (const int32_t &token : prompt) {
        mf_step_item item = stepped.step_item({&token, 1});
        EXPECT(engine.step(&item, 1) && item.n_done == 1);
    }
    EXPECT(same(whole.logits(), stepped.logits()));
    moeflux::session fork = whole.fork();
    EXPECT(same(whole.logits(), fork.logits()));
    fork.clear();
    std::vector<unsigned char> snapshot;
    whole.mark();
    whole.save_to(snapshot);
    fork.load(snapshot);
    EXPECT(same(whole.logits(), fork.logits()));
    whole.eval({1, 2, 3});
    EXPECT(whole.truncate(prompt.size() + 1) == prompt.size());
    EXPECT(whole.sync(prompt).n_reused == prompt.size());
    EXPECT(same(whole.logits(), fork.logits()));
    const moeflux::cancel never;
    moeflux::cancel now;
    now.request();
    fork.watch(now);
    EXPECT(thrown([&] { fork.eval({1}); }) == MF_ERR_CANCELLED);
    fork.watch(never);
    const int32_t token = 1;
    engine.eval({{fork.get(), &token, 1}, {stepped.get(), &token, 1}});
    EXPECT(same(fork.logits(), stepped.logits()));
}

void nothing_allocates(moeflux::engine &engine, const moeflux::tokenizer &tokenizer,
                       const std::vector<int32_t> &prompt)
{
    const moeflux::vocabulary vocabulary(tokenizer);
    const moeflux::grammar grammar =
        moeflux::grammar::of_gbnf(vocabulary, "root ::= \"yes\" | \"no\"");
    moeflux::guide guide(grammar);
    moeflux::guide copy = guide.clone();
    const size_t n_vocab = engine.info().n_vocab;
    moeflux::sampler_options options = moeflux::sampler::load_options(demo);
    options.temperature = 0;
    moeflux::sampler sampler(options, n_vocab);
    moeflux::decoder decoder(tokenizer);
    moeflux::session session(engine);
    std::vector<uint32_t> mask((n_vocab + 31) / 32);
    std::vector<int32_t> again;
    std::string text;
    text.reserve(4096);
    again.reserve(64);

    const size_t n_before = n_allocations;
    tokenizer.encode_to("Once upon a time", again);
    sampler.accept_prompt(again);
    session.eval(again);
    while (!guide.is_done()) {
        const uint32_t *allowed = guide.mask(mask.data(), n_vocab) ? mask.data() : nullptr;
        const int32_t token = sampler.sample(session.logits(), allowed);
        guide.accept(token);
        sampler.accept(token);
        decoder.push(token, text);
        session.eval({token}, [](uint64_t, uint64_t) {});
    }
    decoder.finish(text);
    EXPECT(n_allocations == n_before);
    EXPECT(again == prompt && (text == "yes" || text == "no"));
    EXPECT(copy && !copy.may_end());
    EXPECT(thrown([&] { copy.accept(prompt[0]); }) == MF_ERR_ARGUMENT);
}

} // namespace

int main()
{
    try {
        const moeflux::tokenizer tokenizer(demo);
        const std::vector<int32_t> prompt = tokenizer.encode("Once upon a time");
        EXPECT(moeflux::inspect(demo).n_vocab > 0 && tokenizer.n_vocab() > 0);
        EXPECT(!tokenizer.has_chat() && tokenizer.piece(-5).empty());
        moeflux::chat_params chat;
        chat.messages = "[{\"role\": \"user\", \"content\": \"x\"}]";
        EXPECT(thrown([&] { (void)tokenizer.chat_text(chat); }) == MF_ERR_NOT_FOUND);
        owns_what_it_holds(prompt);
        moeflux::engine engine = open_engine(4);
        throws_what_fails(engine);
        callbacks_may_throw(engine, prompt);
        the_same_bits(engine, prompt);
        nothing_allocates(engine, tokenizer, prompt);
    } catch (const std::exception &e) {
        std::fprintf(stderr, "test_cpp: %s\n", e.what());
        return 1;
    }
    return n_failed != 0;
}
