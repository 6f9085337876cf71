// SPDX-License-Identifier: MIT
//
// moeflux inside a C++ program: handles that close themselves, errors as exceptions, one engine
// that serves requests on threads of their own, each request with a session and a time limit.
//
//     c++ -std=c++17 embed.cpp $(pkg-config --cflags --libs moeflux) -pthread -o embed
//     ./embed models/demo 32 "Once upon a time" "The sea was"
//
// Prints the answers in the order of the prompts.
#include <moeflux/moeflux.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace
{

struct Close {
    void operator()(mf_engine *p) const
    {
        mf_engine_close(&p);
    }
    void operator()(mf_session *p) const
    {
        mf_session_free(&p);
    }
    void operator()(mf_tokenizer *p) const
    {
        mf_tokenizer_free(&p);
    }
    void operator()(mf_sampler *p) const
    {
        mf_sampler_free(&p);
    }
};
template <typename T> using Handle = std::unique_ptr<T, Close>;

class Error : public std::runtime_error
{
  public:
    Error(mf_status status, const mf_error &error)
        : std::runtime_error(std::string(error.message) + " (" + mf_status_name(status) + ")"),
          status_(status)
    {
    }
    mf_status status() const
    {
        return status_;
    }

  private:
    mf_status status_;
};

// Calls f(&error) and throws what it says.
template <typename F> void check(F f)
{
    mf_error error = {};
    const mf_status status = f(&error);
    if (status != MF_OK)
        throw Error(status, error);
}

using Clock = std::chrono::steady_clock; // CLOCK_MONOTONIC, as mf_session_set_deadline counts

struct Request {
    std::string prompt;
    size_t n_tokens;
    Clock::time_point deadline;
    std::string answer;
    std::exception_ptr failure;
};

// One model, shared by all threads: the tokenizer is read-only, and the engine lets evaluations of
// different sessions take turns.
class Model
{
  public:
    Model(const char *path, uint32_t n_sessions) : path_(path)
    {
        mf_tokenizer *tokenizer = nullptr;
        check([&](mf_error *e) { return mf_tokenizer_open(path, nullptr, &tokenizer, e); });
        tokenizer_.reset(tokenizer);

        mf_engine_options options;
        mf_engine_options_default(&options);
        options.n_sessions = n_sessions;
        mf_engine *engine = nullptr;
        check([&](mf_error *e) { return mf_engine_open(path, &options, &engine, e); });
        engine_.reset(engine);
        mf_engine_info(engine, &info_);
    }

    // Safe from any thread; every call has a session and a sampler of its own.
    std::string complete(const Request &request) const
    {
        mf_session *created = nullptr;
        check([&](mf_error *e) { return mf_session_create(engine_.get(), &created, e); });
        const Handle<mf_session> session(created);
        const auto since_boot = request.deadline.time_since_epoch();
        mf_session_set_deadline(
            created,
            static_cast<uint64_t>(
                std::chrono::duration_cast<std::chrono::microseconds>(since_boot).count()));

        const Handle<mf_sampler> sampler = make_sampler();
        const std::vector<int32_t> prompt = encode(request.prompt);
        evaluate(created, prompt);
        for (const int32_t token : prompt)
            mf_sampler_accept(sampler.get(), token);

        std::string answer;
        mf_decoder decoder = {};
        for (size_t i = 0; i < request.n_tokens; i++) {
            const int32_t token = mf_sampler_sample(sampler.get(), mf_session_logits(created));
            if (mf_tokenizer_is_end(tokenizer_.get(), token))
                break;
            mf_sampler_accept(sampler.get(), token);
            if (!mf_tokenizer_is_special(tokenizer_.get(), token))
                answer += decode(&decoder, token);
            if (i + 1 < request.n_tokens)
                evaluate(created, {token});
        }
        return answer + decode(&decoder, -1);
    }

  private:
    static void evaluate(mf_session *session, const std::vector<int32_t> &tokens)
    {
        check(
            [&](mf_error *e) { return mf_session_eval(session, tokens.data(), tokens.size(), e); });
    }

    Handle<mf_sampler> make_sampler() const
    {
        mf_sampler_options options;
        mf_sampler *sampler = nullptr;
        mf_sampler_options_default(&options);
        check([&](mf_error *e) { return mf_sampler_options_load(path_.c_str(), &options, e); });
        check([&](mf_error *e) {
            return mf_sampler_create(&options, info_.n_vocab, nullptr, &sampler, e);
        });
        return Handle<mf_sampler>(sampler);
    }

    std::string chat_text(const std::string &prompt) const
    {
        if (!mf_tokenizer_has_chat(tokenizer_.get()))
            return prompt;
        const mf_chat_message message = {MF_ROLE_USER, prompt.c_str()};
        std::string text;
        size_t n_bytes = 0;
        for (int pass = 0; pass < 2; pass++) { // first the size, then the text
            text.resize(n_bytes);
            check([&](mf_error *e) {
                return mf_chat_format(tokenizer_.get(), &message, 1, MF_THINKING_DEFAULT,
                                      text.empty() ? nullptr : &text[0], text.size(), &n_bytes, e);
            });
        }
        return text;
    }

    std::vector<int32_t> encode(const std::string &prompt) const
    {
        const std::string text = chat_text(prompt);
        std::vector<int32_t> tokens;
        size_t n = 0;
        for (int pass = 0; pass < 2; pass++) {
            tokens.resize(n);
            check([&](mf_error *e) {
                return mf_tokenizer_encode(tokenizer_.get(), text.data(), text.size(), 1,
                                           tokens.data(), tokens.size(), &n, e);
            });
        }
        const int32_t start = mf_tokenizer_start(tokenizer_.get());
        if (start >= 0 && !mf_tokenizer_has_chat(tokenizer_.get()))
            tokens.insert(tokens.begin(), start);
        return tokens;
    }

    std::string decode(mf_decoder *decoder, int32_t token) const
    {
        size_t n_piece = 0, n_bytes = 0;
        if (token >= 0)
            mf_tokenizer_piece(tokenizer_.get(), token, &n_piece);
        std::string text(3 * n_piece + 12, '\0');
        if (mf_tokenizer_decode(tokenizer_.get(), decoder, token, &text[0], text.size(),
                                &n_bytes) != MF_OK)
            n_bytes = 0;
        text.resize(n_bytes);
        return text;
    }

    std::string path_;
    mf_model_info info_ = {};
    Handle<mf_tokenizer> tokenizer_; // closed last
    Handle<mf_engine> engine_;
};

int run(const char *path, size_t n_tokens, std::vector<Request> requests)
{
    const Model model(path, static_cast<uint32_t>(requests.size()));
    std::vector<std::thread> threads;
    for (Request &request : requests) {
        request.n_tokens = n_tokens;
        request.deadline = Clock::now() + std::chrono::minutes(5);
        threads.emplace_back([&model, &request] {
            try {
                request.answer = model.complete(request);
            } catch (...) {
                request.failure = std::current_exception();
            }
        });
    }
    for (std::thread &thread : threads)
        thread.join();
    for (const Request &request : requests) {
        if (request.failure)
            std::rethrow_exception(request.failure);
        std::printf("%s\n", request.answer.c_str());
    }
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 4 || std::atol(argv[2]) < 1) {
        std::fprintf(stderr, "usage: embed MODEL TOKENS PROMPT...\n");
        return 2;
    }
    try {
        std::vector<Request> requests;
        for (int i = 3; i < argc; i++)
            requests.push_back({argv[i], 0, {}, {}, nullptr});
        return run(argv[1], static_cast<size_t>(std::atol(argv[2])), std::move(requests));
    } catch (const std::exception &error) {
        std::fprintf(stderr, "embed: %s\n", error.what());
        return 1;
    }
}
