/* SPDX-License-Identifier: MIT */
/*
 * moeflux for C++17: the handles of moeflux.h as classes that free themselves, statuses as
 * exceptions. Header only, on the public C functions; what they mean is said in moeflux.h.
 *
 * Owning. An object owns one handle, can be moved and not copied, and frees it at its end. get() is
 * for functions that are not wrapped; one that was moved from is empty. Order is as in C: an engine
 * ends after its sessions, a tokenizer after what was made of it (members are destroyed in the
 * reverse order of their declaration).
 *
 * Failing. What is not MF_OK is thrown as moeflux::error, which holds the mf_error itself: throwing
 * and copying it allocates nothing but the exception. What a callback throws ends the call
 * (MF_ERR_CANCELLED inside) and comes out of it unchanged.
 *
 * Allocating. Only what returns a std::string or std::vector allocates in C++, and says so by its
 * type; each has a form that fills the caller's. Evaluating, logits, sampling and masks do not.
 *
 * Threads: as in C.
 */
#ifndef MOEFLUX_MOEFLUX_HPP
#define MOEFLUX_MOEFLUX_HPP

#include <moeflux/moeflux.h>

#if __cplusplus < 201703L
#error "moeflux.hpp is for C++17 and later; <moeflux/moeflux.h> serves C++11"
#elif !defined(__cpp_exceptions)
#error \
    "moeflux.hpp tells failures by exceptions, which are off; <moeflux/moeflux.h> does by statuses"
#else

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace moeflux
{

/* ---------------------------------------- errors ---------------------------------------- */

class error : public std::exception
{
  public:
    error(mf_status status, const mf_error &what) noexcept : error_(what)
    {
        error_.code = status;
        if (error_.message[0] == '\0')
            set_name(mf_status_name(status));
    }
    const char *what() const noexcept override
    {
        return error_.message;
    }
    mf_status code() const noexcept
    {
        return error_.code;
    }
    int os_errno() const noexcept
    {
        return error_.os_errno;
    }
    const mf_error &get() const noexcept
    {
        return error_;
    }

  private:
    void set_name(const char *name) noexcept
    {
        size_t n = 0;
        for (; name[n] != '\0' && n + 1 < sizeof error_.message; n++)
            error_.message[n] = name[n];
        error_.message[n] = '\0';
    }
    mf_error error_;
};

/* Calls f(mf_error *) and throws what it fails with. */
template <typename F> void check(F &&f)
{
    mf_error e;
    e.code = MF_OK;
    e.os_errno = 0;
    e.byte_position = MF_ERROR_NO_POSITION;
    e.message[0] = '\0';
    const mf_status status = std::forward<F>(f)(&e);
    if (status != MF_OK)
        throw error(status, e);
}

/* ---------------------------------------- views ---------------------------------------- */

/* Some of the caller's values, borrowed for a call. */
template <typename T> class view
{
  public:
    constexpr view() noexcept = default;
    constexpr view(const T *data, size_t size) noexcept : data_(data), size_(size)
    {
    }
    /* For the call that it is written in: the list's values end with the expression. */
    constexpr view(std::initializer_list<T> list) noexcept : size_(list.size())
    {
        data_ = list.begin();
    }
    view(const std::vector<T> &vector) noexcept : data_(vector.data()), size_(vector.size())
    {
    }
    template <size_t N>
    constexpr view(const std::array<T, N> &array) noexcept : data_(array.data()), size_(N)
    {
    }
    constexpr const T *data() const noexcept
    {
        return data_;
    }
    constexpr size_t size() const noexcept
    {
        return size_;
    }
    constexpr bool empty() const noexcept
    {
        return size_ == 0;
    }
    constexpr const T *begin() const noexcept
    {
        return data_;
    }
    constexpr const T *end() const noexcept
    {
        return data_ + size_;
    }
    constexpr const T &operator[](size_t i) const noexcept
    {
        return data_[i];
    }

  private:
    const T *data_ = nullptr;
    size_t size_ = 0;
};
using token_view = view<int32_t>;
using logits_view = view<float>;

/* ---------------------------------------- handles ---------------------------------------- */

template <typename T, void (*Free)(T **)> class handle
{
  public:
    handle() noexcept = default;
    explicit handle(T *owned) noexcept : p_(owned)
    {
    }
    handle(handle &&other) noexcept : p_(other.release())
    {
    }
    handle &operator=(handle &&other) noexcept
    {
        if (this != &other) {
            reset();
            p_ = other.release();
        }
        return *this;
    }
    handle(const handle &) = delete;
    handle &operator=(const handle &) = delete;
    ~handle()
    {
        reset();
    }
    T *get() const noexcept
    {
        return p_;
    }
    /* The caller frees it. */
    T *release() noexcept
    {
        return std::exchange(p_, nullptr);
    }
    void reset() noexcept
    {
        Free(&p_);
    }
    explicit operator bool() const noexcept
    {
        return p_ != nullptr;
    }

  protected:
    T **out() noexcept
    {
        return &p_;
    }

  private:
    T *p_ = nullptr;
};

/* A struct of options with its defaults. */
template <typename T, void (*Init)(T *, size_t)> struct with_defaults : T {
    with_defaults() noexcept : T()
    {
        Init(this, sizeof(T));
    }
};
using engine_options = with_defaults<mf_engine_options, mf_engine_options_init>;
using sampler_options = with_defaults<mf_sampler_options, mf_sampler_options_init>;
using store_options = with_defaults<mf_store_options, mf_store_options_init>;
using chat_params = with_defaults<mf_chat_json_params, mf_chat_json_params_init>;
using grammar_params = with_defaults<mf_grammar_params, mf_grammar_params_init>;

/* ---------------------------------------- callbacks ---------------------------------------- */

/* A callable as a C callback of signature int(void *, Arguments...): what it throws is kept, ends
 * the call, and is thrown again by check. It returns true to stop, or nothing. */
template <typename F> class callback
{
  public:
    explicit callback(F &f) noexcept : f_(&f)
    {
    }
    template <typename... Arguments> static int call(void *user, Arguments... arguments) noexcept
    {
        callback *self = static_cast<callback *>(user);
        try {
            if constexpr (std::is_void_v<std::invoke_result_t<F &, Arguments...>>) {
                (*self->f_)(arguments...);
                return 0;
            } else {
                return (*self->f_)(arguments...) ? 1 : 0;
            }
        } catch (...) {
            self->thrown_ = std::current_exception();
            return 1;
        }
    }
    template <typename Call> void check(Call &&run)
    {
        mf_error e = {};
        const mf_status status = std::forward<Call>(run)(&e);
        if (thrown_)
            std::rethrow_exception(thrown_);
        if (status != MF_OK)
            throw error(status, e);
    }

  private:
    F *f_;
    std::exception_ptr thrown_;
};

/* ---------------------------------------- text ---------------------------------------- */

class tokenizer : public handle<mf_tokenizer, mf_tokenizer_free>
{
  public:
    explicit tokenizer(const char *path)
    {
        check([&](mf_error *e) { return mf_tokenizer_open(path, nullptr, out(), e); });
    }
    explicit tokenizer(const std::string &path) : tokenizer(path.c_str())
    {
    }
    size_t n_vocab() const noexcept
    {
        return mf_tokenizer_n_vocab(get());
    }
    bool has_chat() const noexcept
    {
        return mf_tokenizer_has_chat(get()) != 0;
    }
    bool is_end(int32_t token) const noexcept
    {
        return mf_tokenizer_is_end(get(), token) != 0;
    }
    bool is_special(int32_t token) const noexcept
    {
        return mf_tokenizer_is_special(get(), token) != 0;
    }
    /* -1: there is none. */
    int32_t start() const noexcept
    {
        return mf_tokenizer_start(get());
    }
    /* Empty if the id has none. */
    std::string_view piece(int32_t token) const noexcept
    {
        size_t n = 0;
        const char *bytes = mf_tokenizer_piece(get(), token, &n);
        return bytes ? std::string_view(bytes, n) : std::string_view();
    }
    std::vector<int32_t> encode(std::string_view text, bool parse_special = true) const
    {
        std::vector<int32_t> tokens;
        encode_to(text, tokens, parse_special);
        return tokens;
    }
    /* Replaces what `tokens` holds; allocates if it has not the room. */
    void encode_to(std::string_view text, std::vector<int32_t> &tokens,
                   bool parse_special = true) const
    {
        twice(tokens, [&](int32_t *to, size_t capacity, size_t *n, mf_error *e) {
            return mf_tokenizer_encode(get(), text.data(), text.size(), parse_special, to, capacity,
                                       n, e);
        });
    }
    /* A conversation as JSON by the checkpoint's own template: its text, and its tokens. */
    std::string chat_text(const mf_chat_json_params &params) const
    {
        std::string text;
        twice(text, [&](char *to, size_t capacity, size_t *n, mf_error *e) {
            return mf_chat_json_text(get(), &params, to, capacity, n, e);
        });
        return text;
    }
    std::vector<int32_t> chat_encode(const mf_chat_json_params &params) const
    {
        std::vector<int32_t> tokens;
        twice(tokens, [&](int32_t *to, size_t capacity, size_t *n, mf_error *e) {
            return mf_chat_json_encode(get(), &params, to, capacity, n, e);
        });
        return tokens;
    }

  private:
    /* Into what there is room for already, and once more if it was too little. */
    template <typename Container, typename F> static void twice(Container &to, F f)
    {
        size_t n = 0;
        to.resize(to.capacity());
        check([&](mf_error *e) { return f(to.data(), to.size(), &n, e); });
        const bool is_whole = n <= to.size();
        to.resize(n);
        if (!is_whole)
            check([&](mf_error *e) { return f(to.data(), to.size(), &n, e); });
    }
};

/* Tokens to text as they come; the tokenizer must outlive it. */
class decoder
{
  public:
    explicit decoder(const tokenizer &from) noexcept : tokenizer_(from.get())
    {
    }
    /* Appends the characters that the token completes, none for special ones. Where `text` has no
     * room it allocates. */
    void push(int32_t token, std::string &text)
    {
        size_t n_piece = 0, n = 0;
        if (token >= 0 && mf_tokenizer_is_special(tokenizer_, token))
            return;
        if (token >= 0)
            (void)mf_tokenizer_piece(tokenizer_, token, &n_piece);
        const size_t held = text.size(), room = 3 * n_piece + 12;
        text.resize(held + room);
        const mf_status status =
            mf_tokenizer_decode(tokenizer_, &state_, token, &text[held], room, &n);
        text.resize(held + (status == MF_OK ? n : 0));
        if (status != MF_OK)
            throw error(status, mf_error());
    }
    /* What is held back. */
    void finish(std::string &text)
    {
        push(-1, text);
    }

  private:
    const mf_tokenizer *tokenizer_;
    mf_decoder state_ = {};
};

/* ---------------------------------------- grammars ---------------------------------------- */

class vocabulary : public handle<mf_vocabulary, mf_vocabulary_free>
{
  public:
    explicit vocabulary(const tokenizer &of)
    {
        check([&](mf_error *e) { return mf_vocabulary_create(of.get(), nullptr, out(), e); });
    }
};

class grammar : public handle<mf_grammar, mf_grammar_free>
{
  public:
    grammar(const vocabulary &v, const mf_grammar_params &params)
    {
        check([&](mf_error *e) { return mf_grammar_compile(v.get(), &params, out(), e); });
    }
    static grammar of_schema(const vocabulary &v, std::string_view json_schema)
    {
        grammar_params params;
        params.json_schema = json_schema.data();
        params.n_schema_bytes = json_schema.size();
        return grammar(v, params);
    }
    static grammar of_gbnf(const vocabulary &v, std::string_view rules)
    {
        grammar_params params;
        params.gbnf = rules.data();
        params.n_gbnf_bytes = rules.size();
        return grammar(v, params);
    }
};

class guide : public handle<mf_guide, mf_guide_free>
{
  public:
    explicit guide(const grammar &of)
    {
        check([&](mf_error *e) { return mf_guide_create(of.get(), out(), e); });
    }
    guide clone() const
    {
        guide copy;
        check([&](mf_error *e) { return mf_guide_clone(get(), copy.out(), e); });
        return copy;
    }
    void begin_after(const char *text, bool repeats = false, unsigned blanks = 0)
    {
        check([&](mf_error *e) { return mf_guide_begin_after(get(), text, repeats, blanks, e); });
    }
    void accept(int32_t token)
    {
        check([&](mf_error *e) { return mf_guide_accept(get(), token, e); });
    }
    /* Into words[(n_tokens + 31) / 32]; false: all tokens are allowed. */
    bool mask(uint32_t *words, size_t n_tokens)
    {
        int is_limited = 0;
        check([&](mf_error *e) { return mf_guide_mask(get(), words, n_tokens, &is_limited, e); });
        return is_limited != 0;
    }
    bool may_end() const noexcept
    {
        return mf_guide_may_end(get()) != 0;
    }
    bool is_done() const noexcept
    {
        return mf_guide_is_done(get()) != 0;
    }

  private:
    guide() = default;
};

/* ---------------------------------------- sampling ---------------------------------------- */

class sampler : public handle<mf_sampler, mf_sampler_free>
{
  public:
    sampler(const mf_sampler_options &options, size_t n_vocab)
    {
        check([&](mf_error *e) { return mf_sampler_create(&options, n_vocab, nullptr, out(), e); });
    }
    /* Options as the checkpoint's publishers have them. */
    static sampler_options load_options(const char *path)
    {
        sampler_options options;
        check([&](mf_error *e) { return mf_sampler_options_load(path, &options, e); });
        return options;
    }
    /* allowed: words of bits as guide::mask fills them; nullptr: all. Throws (MF_ERR_ARGUMENT)
     * where there are no logits. */
    int32_t sample(logits_view logits, const uint32_t *allowed = nullptr)
    {
        return sample(logits, logits_view(), allowed);
    }
    /* The same token, sooner: bounds as session::bounds() has them, none where they are empty. */
    int32_t sample(logits_view logits, logits_view bounds, const uint32_t *allowed = nullptr)
    {
        if (logits.empty())
            throw_no_logits();
        return mf_sampler_sample_bounded(get(), logits.data(), bounds.data(), allowed);
    }
    void accept(int32_t token) noexcept
    {
        mf_sampler_accept(get(), token);
    }
    void accept_prompt(token_view tokens) noexcept
    {
        mf_sampler_accept_prompt(get(), tokens.data(), tokens.size());
    }
    void forget() noexcept
    {
        mf_sampler_forget(get());
    }
    void reset_seed() noexcept
    {
        mf_sampler_reset(get());
    }

  private:
    [[noreturn]] static void throw_no_logits()
    {
        static const char text[] = "there are no logits to sample from: nothing was evaluated";
        mf_error e = {};
        e.byte_position = MF_ERROR_NO_POSITION;
        std::char_traits<char>::copy(e.message, text, sizeof text);
        throw error(MF_ERR_ARGUMENT, e);
    }
};

/* ---------------------------------------- engines ---------------------------------------- */

class session;

/* A wish to stop; it stays where it is while a session or a step has it. */
class cancel
{
  public:
    cancel() noexcept = default;
    cancel(const cancel &) = delete;
    cancel &operator=(const cancel &) = delete;
    void request() noexcept
    {
        mf_cancel_request(&cancel_);
    }
    void reset() noexcept
    {
        mf_cancel_reset(&cancel_);
    }
    bool is_requested() const noexcept
    {
        return mf_cancel_is_requested(&cancel_) != 0;
    }
    const mf_cancel *get() const noexcept
    {
        return &cancel_;
    }

  private:
    mf_cancel cancel_ = {};
};

inline mf_model_info inspect(const char *path, const mf_engine_options &options = engine_options())
{
    mf_model_info info;
    check([&](mf_error *e) { return mf_model_inspect(path, &options, &info, e); });
    return info;
}

class store : public handle<mf_store, mf_store_close>
{
  public:
    explicit store(const char *directory, const mf_store_options &options = store_options())
    {
        check([&](mf_error *e) { return mf_store_open(directory, &options, out(), e); });
    }
    inline void put(const session &of);
};

class engine : public handle<mf_engine, mf_engine_close>
{
  public:
    explicit engine(const char *path, const mf_engine_options &options = engine_options())
    {
        check([&](mf_error *e) { return mf_engine_open(path, &options, out(), e); });
    }
    explicit engine(const std::string &path, const mf_engine_options &options = engine_options())
        : engine(path.c_str(), options)
    {
    }
    mf_model_info info() const noexcept
    {
        mf_model_info info;
        mf_engine_info(get(), &info);
        return info;
    }
    mf_stats stats() const noexcept
    {
        mf_stats stats;
        mf_engine_stats(get(), &stats);
        return stats;
    }
    /* The store must outlive it, or be taken away by clear_store. */
    void set_store(const store &from) noexcept
    {
        mf_engine_set_store(get(), from.get());
    }
    void clear_store() noexcept
    {
        mf_engine_set_store(get(), nullptr);
    }
    /* Of each item status and n_done say what became of it; thrown is only what the call itself is
     * refused with. False: an item failed. */
    bool step(mf_step_item *items, size_t n_items)
    {
        mf_error e = {};
        const size_t n_there = items != nullptr ? n_items : 0;
        for (size_t i = 0; i < n_there; i++)
            items[i].status = MF_OK;
        const mf_status status = mf_engine_step(get(), items, n_items, &e);
        bool is_items = status == MF_OK;
        for (size_t i = 0; i < n_there; i++)
            is_items = is_items || items[i].status != MF_OK;
        if (!is_items)
            throw error(status, e);
        return status == MF_OK;
    }
    void eval(view<mf_batch_item> items)
    {
        check([&](mf_error *e) { return mf_engine_eval(get(), items.data(), items.size(), e); });
    }
    inline session make_session();
};

class session : public handle<mf_session, mf_session_free>
{
  public:
    explicit session(engine &of) : n_vocab_(of.info().n_vocab)
    {
        check([&](mf_error *e) { return mf_session_create(of.get(), out(), e); });
    }
    session fork() const
    {
        session copy(n_vocab_);
        check([&](mf_error *e) { return mf_session_fork(get(), copy.out(), e); });
        return copy;
    }
    void eval(token_view tokens)
    {
        check([&](mf_error *e) { return mf_session_eval(get(), tokens.data(), tokens.size(), e); });
    }
    /* progress(n_done, n_total) after each layer; true: stop. */
    template <typename F> void eval(token_view tokens, F &&progress)
    {
        using call = callback<std::remove_reference_t<F>>;
        struct unset {
            mf_session *s;
            ~unset()
            {
                mf_session_set_progress(s, nullptr, nullptr);
            }
        };
        call watch(progress);
        mf_session_set_progress(get(), call::template call<uint64_t, uint64_t>, &watch);
        const unset at_end = {get()};
        watch.check(
            [&](mf_error *e) { return mf_session_eval(get(), tokens.data(), tokens.size(), e); });
    }
    /* each(index, logits) of every token, which are valid during the call only; true: stop. */
    template <typename F> void eval_each(token_view tokens, F &&each)
    {
        const size_t n = n_vocab_;
        auto with_size = [&each, n](size_t i, const float *logits) {
            return each(i, logits_view(logits, n));
        };
        using call = callback<decltype(with_size)>;
        call watch(with_size);
        watch.check([&](mf_error *e) {
            return mf_session_eval_each(get(), tokens.data(), tokens.size(),
                                        call::template call<size_t, const float *>, &watch, e);
        });
    }
    mf_sync_result sync(token_view tokens)
    {
        mf_sync_result result;
        check([&](mf_error *e) {
            return mf_session_sync(get(), tokens.data(), tokens.size(), &result, e);
        });
        return result;
    }
    mf_sync_result reuse(token_view tokens)
    {
        mf_sync_result result;
        check([&](mf_error *e) {
            return mf_session_reuse(get(), tokens.data(), tokens.size(), &result, e);
        });
        return result;
    }
    /* The highest of each MF_LOGITS_BLOCK of logits(); empty where they are not known. */
    logits_view bounds() const noexcept
    {
        const float *bounds = mf_session_bounds(get());
        return logits_view(bounds, bounds ? (n_vocab_ + MF_LOGITS_BLOCK - 1) / MF_LOGITS_BLOCK : 0);
    }
    /* Empty if there are none; valid until the next call on the session. */
    logits_view logits() const noexcept
    {
        const float *logits = mf_session_logits(get());
        return logits_view(logits, logits ? n_vocab_ : 0);
    }
    size_t position() const noexcept
    {
        return mf_session_position(get());
    }
    token_view tokens() const noexcept
    {
        return token_view(mf_session_tokens(get()), position());
    }
    void clear() noexcept
    {
        mf_session_clear(get());
    }
    /* Returns how many are kept. */
    size_t truncate(size_t n_tokens)
    {
        size_t n_kept = 0;
        check([&](mf_error *e) { return mf_session_truncate(get(), n_tokens, &n_kept, e); });
        return n_kept;
    }
    void mark()
    {
        check([&](mf_error *e) { return mf_mark_save(get(), e); });
    }
    void restore(size_t position)
    {
        check([&](mf_error *e) { return mf_mark_restore(get(), position, e); });
    }
    void drop_mark(size_t position)
    {
        check([&](mf_error *e) { return mf_mark_drop(get(), position, e); });
    }
    /* Replaces what `snapshot` holds; allocates if it has not the room. */
    void save_to(std::vector<unsigned char> &snapshot) const
    {
        snapshot.resize(mf_snapshot_bytes(get()));
        check([&](mf_error *e) {
            return mf_snapshot_save(get(), snapshot.data(), snapshot.size(), e);
        });
    }
    void load(view<unsigned char> snapshot)
    {
        check([&](mf_error *e) {
            return mf_snapshot_load(get(), snapshot.data(), snapshot.size(), e);
        });
    }
    /* From any thread: ends the call that is running. */
    void cancel_call() noexcept
    {
        mf_session_cancel(get());
    }
    void watch(const cancel &wish) noexcept
    {
        mf_session_set_cancel(get(), wish.get());
    }
    void set_deadline(uint64_t monotonic_us) noexcept
    {
        mf_session_set_deadline(get(), monotonic_us);
    }
    /* This session's part of a step; the tokens must outlive it. */
    mf_step_item step_item(token_view tokens, uint32_t flags = 0) const noexcept
    {
        mf_step_item item = {};
        item.struct_bytes = sizeof item;
        item.session = get();
        item.tokens = tokens.data();
        item.n_tokens = tokens.size();
        item.flags = flags;
        return item;
    }

  private:
    explicit session(size_t n_vocab) noexcept : n_vocab_(n_vocab)
    {
    }
    size_t n_vocab_;
};

inline void store::put(const session &of)
{
    check([&](mf_error *e) { return mf_store_put(get(), of.get(), e); });
}

inline session engine::make_session()
{
    return session(*this);
}

} // namespace moeflux
#endif
#endif
