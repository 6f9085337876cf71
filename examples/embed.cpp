// SPDX-License-Identifier: MIT
//
// moeflux inside a C++ program, by the classes of moeflux.hpp: handles that close themselves,
// errors as exceptions, one engine that serves requests on threads of their own, each request with
// a session and a time limit.
//
//     c++ -std=c++17 embed.cpp $(pkg-config --cflags --libs moeflux) -pthread -o embed
//     ./embed models/demo 32 "Once upon a time" "The sea was"
//
// Prints the answers in the order of the prompts.
#include <moeflux/moeflux.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <vector>

namespace
{

using Clock = std::chrono::steady_clock; // CLOCK_MONOTONIC, as a session's deadline counts

struct Request {
    std::string prompt;
    size_t n_tokens;
    Clock::time_point deadline;
    std::string answer;
    std::exception_ptr failure;
};

moeflux::engine_options options_for(uint32_t n_sessions)
{
    moeflux::engine_options options;
    options.n_sessions = n_sessions;
    return options;
}

uint64_t microseconds(Clock::time_point time)
{
    using std::chrono::duration_cast;
    const auto since_boot = duration_cast<std::chrono::microseconds>(time.time_since_epoch());
    return static_cast<uint64_t>(since_boot.count());
}

// One model, shared by all threads: the tokenizer is read-only, and the engine lets evaluations of
// different sessions take turns.
class Model
{
  public:
    Model(const char *path, uint32_t n_sessions)
        : tokenizer_(path), engine_(path, options_for(n_sessions)),
          sampling_(moeflux::sampler::load_options(path))
    {
    }

    // Safe from any thread; every call has a session and a sampler of its own.
    std::string complete(const Request &request)
    {
        moeflux::session session(engine_);
        moeflux::sampler sampler(sampling_, engine_.info().n_vocab);
        moeflux::decoder decoder(tokenizer_);
        const std::vector<int32_t> prompt = tokens_of(request.prompt);
        std::string answer;
        session.set_deadline(microseconds(request.deadline));
        session.eval(prompt);
        sampler.accept_prompt(prompt);
        for (size_t i = 0; i < request.n_tokens; i++) {
            const int32_t token = sampler.sample(session.logits());
            if (tokenizer_.is_end(token))
                break;
            sampler.accept(token);
            decoder.push(token, answer);
            if (i + 1 < request.n_tokens)
                session.eval({token});
        }
        decoder.finish(answer);
        return answer;
    }

  private:
    // As a conversation, if the model knows any; else as a text to be gone on with.
    std::vector<int32_t> tokens_of(const std::string &prompt) const
    {
        if (tokenizer_.has_chat())
            return tokenizer_.encode(chat_text(prompt));
        std::vector<int32_t> tokens = tokenizer_.encode(prompt);
        if (tokenizer_.start() >= 0)
            tokens.insert(tokens.begin(), tokenizer_.start());
        return tokens;
    }

    // What has no class of its own is called as in C: get() gives the handle, check throws.
    std::string chat_text(const std::string &prompt) const
    {
        const mf_chat_message message = {MF_ROLE_USER, prompt.c_str()};
        std::string text;
        size_t n_bytes = 0;
        for (int pass = 0; pass < 2; pass++) { // first the size, then the text
            text.resize(n_bytes);
            moeflux::check([&](mf_error *e) {
                return mf_chat_format(tokenizer_.get(), &message, 1, MF_THINKING_DEFAULT,
                                      text.empty() ? nullptr : &text[0], text.size(), &n_bytes, e);
            });
        }
        return text;
    }

    moeflux::tokenizer tokenizer_;
    moeflux::engine engine_;
    moeflux::sampler_options sampling_; // as the publishers have it
};

int run(const char *path, size_t n_tokens, std::vector<Request> requests)
{
    Model model(path, static_cast<uint32_t>(requests.size()));
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
    } catch (const moeflux::error &error) {
        std::fprintf(stderr, "embed: %s (%s)\n", error.what(), mf_status_name(error.code()));
    } catch (const std::exception &error) {
        std::fprintf(stderr, "embed: %s\n", error.what());
    }
    return 1;
}
