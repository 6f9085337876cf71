#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""moeflux from Python, through ctypes: needs libmoeflux.so and nothing else.

    python3 moeflux_ctypes.py --library build/libmoeflux.so models/demo "Once upon a time" -n 64

Continues a prompt; --alternatives N: N continuations, from forks of one session, decoded together;
--save FILE / --load FILE: the prompt's state goes to, or comes from, a snapshot.
The classes below are a whole binding of what they use, to be copied and extended. The structures
repeat those of moeflux.h; --layout prints their sizes and offsets, to be held against a C compiler's.
"""
import argparse
import ctypes as c
import sys

OK, ROLE_USER = 0, 1


class Allocator(c.Structure):  # mf_allocator; all zero: the C library's
    _fields_ = [(name, c.c_void_p) for name in ("ctx", "alloc", "realloc", "free")]


class ErrorInfo(c.Structure):  # mf_error
    _fields_ = [
        ("code", c.c_int),
        ("os_errno", c.c_int),
        ("byte_position", c.c_uint64),
        ("message", c.c_char * 1024),
    ]


class EngineOptions(c.Structure):  # mf_engine_options
    _fields_ = [
        ("struct_bytes", c.c_size_t),
        ("allocator", Allocator),
        ("ram_bytes", c.c_uint64),
        ("expert_cache_bytes", c.c_uint64),
        ("state_bytes", c.c_uint64),
        ("mark_bytes", c.c_uint64),
        ("n_sessions", c.c_uint32),
        ("n_context_tokens", c.c_uint32),
        ("n_chunk_tokens", c.c_uint32),
        ("n_experts_per_token", c.c_uint32),
        ("packed_expert_bits", c.c_uint32),
        ("n_threads", c.c_uint32),
        ("cpu_tier", c.c_char_p),
        ("io", c.c_int),
        ("kv_type", c.c_int),
        ("log", c.c_void_p),
        ("log_user", c.c_void_p),
        ("device", c.c_char_p),
        ("expert_device", c.c_char_p),
        ("device_bytes", c.c_uint64),
        ("precision", c.c_int),
        ("cache_dir", c.c_char_p),
        ("cache_policy", c.c_char_p),
        ("predict", c.c_int),
        ("timeline", c.c_char_p),
        ("hot_dir", c.c_char_p),
        ("mirrors", c.POINTER(c.c_char_p)),
        ("n_mirrors", c.c_uint32),
        ("n_draft_tokens", c.c_uint32),
        ("draft", c.c_int),
        ("predict_depth", c.c_uint32),
        ("await_bytes", c.c_void_p),
        ("await_user", c.c_void_p),
        ("numa", c.c_int),
    ]


class LeftOut(c.Structure):  # mf_left_out
    _fields_ = [("what", c.c_char * 32), ("names", c.c_char * 64)]
    _fields_ += [("n_tensors", c.c_uint64), ("n_bytes", c.c_uint64)]


class ModelInfo(c.Structure):  # mf_model_info
    _fields_ = [
        ("struct_bytes", c.c_size_t),
        ("family", c.c_char * 32),
        ("form", c.c_char * 32),
    ]
    _fields_ += [("n_parameters", c.c_uint64)]
    _fields_ += [
        (name, c.c_uint32)
        for name in (
            "n_vocab hidden_size n_context_tokens_model n_layers n_full_attention_layers "
            "n_linear_attention_layers n_latent_attention_layers n_moe_layers "
            "n_skipped_layers n_heads n_kv_heads head_dim q_lora_rank kv_lora_rank "
            "qk_rope_head_dim v_head_dim n_experts n_experts_per_token "
            "n_experts_per_token_model n_expert_groups n_expert_groups_per_token "
            "expert_bits expert_hidden_size shared_expert_hidden_size dense_hidden_size "
            "n_context_tokens n_chunk_tokens n_sessions page_tokens"
        ).split()
    ]
    _fields_ += [
        (name, c.c_uint64)
        for name in (
            "resident_bytes expert_bytes one_expert_bytes working_set_bytes scratch_bytes "
            "page_bytes recurrent_bytes session_bytes one_mark_bytes state_bytes "
            "mark_bytes ram_bytes floor_bytes n_slots slot_bytes available_bytes"
        ).split()
    ]
    _fields_ += [("device", c.c_char * 32), ("expert_device", c.c_char * 32)]
    _fields_ += [("device_floor_bytes", c.c_uint64), ("expert_device_floor_bytes", c.c_uint64)]
    _fields_ += [("device_bytes", c.c_uint64), ("device_why", c.c_char * 160)]
    _fields_ += [("n_host_slots", c.c_uint64)]
    _fields_ += [("window_tokens", c.c_uint32), ("window_page_bytes", c.c_uint64)]
    _fields_ += [("n_left_out", c.c_uint64), ("left_out", LeftOut * 8)]


class SamplerOptions(c.Structure):  # mf_sampler_options
    _fields_ = [
        ("struct_bytes", c.c_size_t),
        ("temperature", c.c_float),
        ("top_k", c.c_uint32),
        ("top_p", c.c_float),
        ("min_p", c.c_float),
        ("repetition_penalty", c.c_float),
        ("seed", c.c_uint64),
        ("presence_penalty", c.c_float),
        ("frequency_penalty", c.c_float),
        ("biases", c.c_void_p),
        ("n_biases", c.c_size_t),
        ("dry_multiplier", c.c_float),
        ("dry_base", c.c_float),
        ("dry_allowed_length", c.c_uint32),
        ("dry_n_tokens", c.c_uint32),
        ("dry_breakers", c.c_void_p),
        ("n_dry_breakers", c.c_size_t),
        ("tokenizer", c.c_void_p),
        ("xtc_probability", c.c_float),
        ("xtc_threshold", c.c_float),
    ]


class BatchItem(c.Structure):  # mf_batch_item
    _fields_ = [("session", c.c_void_p), ("tokens", c.POINTER(c.c_int32)), ("n_tokens", c.c_size_t)]


class Decoder(c.Structure):  # mf_decoder
    _fields_ = [("pending", c.c_ubyte * 4), ("n_pending", c.c_ubyte)]


class ChatMessage(c.Structure):  # mf_chat_message
    _fields_ = [("role", c.c_int), ("content", c.c_char_p)]


STRUCTURES = {
    "mf_error": ErrorInfo,
    "mf_engine_options": EngineOptions,
    "mf_left_out": LeftOut,
    "mf_model_info": ModelInfo,
    "mf_sampler_options": SamplerOptions,
    "mf_batch_item": BatchItem,
    "mf_decoder": Decoder,
    "mf_chat_message": ChatMessage,
}

# Result type and argument types of the functions used here. "E" stands for the last mf_error *.
P, SIZE, U64, INT, I32 = c.c_void_p, c.c_size_t, c.c_uint64, c.c_int, c.c_int32
OUT, TOKENS, COUNT = c.POINTER(c.c_void_p), c.POINTER(c.c_int32), c.POINTER(c.c_size_t)
FUNCTIONS = {
    "mf_status_name": (c.c_char_p, INT),
    "mf_engine_options_init": (None, c.POINTER(EngineOptions), SIZE),
    "mf_engine_open": (INT, c.c_char_p, c.POINTER(EngineOptions), OUT, "E"),
    "mf_engine_close": (None, OUT),
    "mf_engine_info_sized": (None, P, c.POINTER(ModelInfo), SIZE),
    "mf_engine_eval": (INT, P, c.POINTER(BatchItem), SIZE, "E"),
    "mf_session_create": (INT, P, OUT, "E"),
    "mf_session_fork": (INT, P, OUT, "E"),
    "mf_session_free": (None, OUT),
    "mf_session_eval": (INT, P, TOKENS, SIZE, "E"),
    "mf_session_logits": (P, P),
    "mf_session_position": (SIZE, P),
    "mf_session_tokens": (TOKENS, P),
    "mf_snapshot_bytes": (U64, P),
    "mf_snapshot_save": (INT, P, P, SIZE, "E"),
    "mf_snapshot_load": (INT, P, P, SIZE, "E"),
    "mf_tokenizer_open": (INT, c.c_char_p, P, OUT, "E"),
    "mf_tokenizer_free": (None, OUT),
    "mf_tokenizer_start": (I32, P),
    "mf_tokenizer_has_chat": (INT, P),
    "mf_tokenizer_is_end": (INT, P, I32),
    "mf_tokenizer_is_special": (INT, P, I32),
    "mf_tokenizer_encode": (INT, P, c.c_char_p, SIZE, INT, TOKENS, SIZE, COUNT, "E"),
    "mf_tokenizer_decode": (INT, P, c.POINTER(Decoder), I32, c.c_char_p, SIZE, COUNT),
    "mf_chat_format": (INT, P, c.POINTER(ChatMessage), SIZE, INT, c.c_char_p, SIZE, COUNT, "E"),
    "mf_sampler_options_init": (None, c.POINTER(SamplerOptions), SIZE),
    "mf_sampler_options_load": (INT, c.c_char_p, c.POINTER(SamplerOptions), "E"),
    "mf_sampler_create": (INT, c.POINTER(SamplerOptions), SIZE, P, OUT, "E"),
    "mf_sampler_free": (None, OUT),
    "mf_sampler_accept": (None, P, I32),
    "mf_sampler_sample": (I32, P, P),
}


class MoefluxError(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Library:
    """The functions of the .so; those that return mf_status raise MoefluxError."""

    def __init__(self, path):
        so = c.CDLL(path)
        for name, (result, *arguments) in FUNCTIONS.items():
            function = getattr(so, name)
            function.restype = result
            takes_error = arguments[-1] == "E"
            function.argtypes = arguments[:-1] + [c.POINTER(ErrorInfo)] if takes_error else arguments
            setattr(self, name[3:], self._checked(function) if takes_error else function)

    def _checked(self, function):
        def call(*arguments):
            error = ErrorInfo()
            status = function(*arguments, c.byref(error))
            if status != OK:
                name = self.status_name(status).decode()
                raise MoefluxError(status, f"{error.message.decode()} ({name})")

        return call


class Handle:
    """A handle of the library and the function that frees it; usable in a with statement."""

    def __init__(self, free):
        self.pointer, self._free = c.c_void_p(), free

    def close(self):
        self._free(c.byref(self.pointer))  # sets it to NULL, and takes NULL

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Engine(Handle):
    def __init__(self, library, path, **options):
        super().__init__(library.engine_close)
        self.library = library
        values = EngineOptions()
        library.engine_options_init(c.byref(values), c.sizeof(values))
        for name, value in options.items():
            setattr(values, name, value)
        library.engine_open(path.encode(), c.byref(values), c.byref(self.pointer))
        self.info = ModelInfo()
        library.engine_info_sized(self.pointer, c.byref(self.info), c.sizeof(self.info))

    def session(self):
        created = Session(self)
        self.library.session_create(self.pointer, c.byref(created.pointer))
        return created

    def eval(self, pairs):
        """Evaluates [(session, tokens), ...] together; an expert is read once for all of them."""
        arrays = [(c.c_int32 * len(tokens))(*tokens) for _, tokens in pairs]
        items = (BatchItem * len(pairs))(
            *[
                BatchItem(session.pointer, c.cast(array, TOKENS), len(array))
                for (session, _), array in zip(pairs, arrays)
            ]
        )
        self.library.engine_eval(self.pointer, items, len(items))


class Session(Handle):
    def __init__(self, engine):
        super().__init__(engine.library.session_free)
        self.engine, self.library = engine, engine.library

    def fork(self):
        forked = Session(self.engine)
        self.library.session_fork(self.pointer, c.byref(forked.pointer))
        return forked

    def eval(self, tokens):
        self.library.session_eval(self.pointer, (c.c_int32 * len(tokens))(*tokens), len(tokens))

    @property
    def logits(self):
        """Where the logits lie, or None; valid until the next call on the session."""
        return self.library.session_logits(self.pointer)

    @property
    def tokens(self):
        n = self.library.session_position(self.pointer)
        return self.library.session_tokens(self.pointer)[:n] if n else []

    def save(self):
        buffer = c.create_string_buffer(self.library.snapshot_bytes(self.pointer))
        self.library.snapshot_save(self.pointer, buffer, len(buffer))
        return buffer.raw

    def load(self, data):
        self.library.snapshot_load(self.pointer, data, len(data))


class Tokenizer(Handle):
    def __init__(self, library, path):
        super().__init__(library.tokenizer_free)
        self.library = library
        library.tokenizer_open(path.encode(), None, c.byref(self.pointer))

    def prompt(self, text):
        """Tokens of a user's prompt, by the model's chat template if it has one."""
        data, is_chat = text.encode(), self.library.tokenizer_has_chat(self.pointer)
        n = c.c_size_t()
        if is_chat:
            messages = (ChatMessage * 1)(ChatMessage(ROLE_USER, data))
            self.library.chat_format(self.pointer, messages, 1, 0, None, 0, c.byref(n))
            out = c.create_string_buffer(n.value)
            self.library.chat_format(self.pointer, messages, 1, 0, out, n, c.byref(n))
            data = out.raw
        self.library.tokenizer_encode(self.pointer, data, len(data), 1, None, 0, c.byref(n))
        tokens = (c.c_int32 * n.value)()
        self.library.tokenizer_encode(self.pointer, data, len(data), 1, tokens, n, c.byref(n))
        start = self.library.tokenizer_start(self.pointer)
        return ([start] if start >= 0 and not is_chat else []) + list(tokens)

    def text(self, tokens):
        decoder, out, n = Decoder(), c.create_string_buffer(65536), c.c_size_t()
        parts = []
        for token in [*tokens, -1]:  # -1: what is held back
            if token >= 0 and self.library.tokenizer_is_special(self.pointer, token):
                continue
            arguments = (self.pointer, c.byref(decoder), token, out, len(out), c.byref(n))
            if self.library.tokenizer_decode(*arguments) == OK:
                parts.append(out.raw[: n.value])
        return b"".join(parts).decode()

    def is_end(self, token):
        return bool(self.library.tokenizer_is_end(self.pointer, token))


class Sampler(Handle):
    def __init__(self, tokenizer, path, n_vocab, seed):
        super().__init__(tokenizer.library.sampler_free)
        self.library = tokenizer.library
        options = SamplerOptions()
        self.library.sampler_options_init(c.byref(options), c.sizeof(options))
        self.library.sampler_options_load(path.encode(), c.byref(options))
        options.seed = seed
        self.library.sampler_create(c.byref(options), n_vocab, None, c.byref(self.pointer))

    def accept(self, tokens):
        for token in tokens:
            self.library.sampler_accept(self.pointer, token)

    def sample(self, logits):
        return self.library.sampler_sample(self.pointer, logits)


def decode_together(engine, tokenizer, sessions, samplers, n_tokens):
    """A continuation of each session, a token of all of them at a time."""
    answers = [[] for _ in sessions]
    running = list(range(len(sessions)))
    for step in range(n_tokens):
        for i in list(running):
            token = samplers[i].sample(sessions[i].logits)
            if tokenizer.is_end(token):
                running.remove(i)
                continue
            samplers[i].accept([token])
            answers[i].append(token)
        if not running or step + 1 == n_tokens:
            break
        engine.eval([(sessions[i], answers[i][-1:]) for i in running])
    return answers


def print_layout():
    for name, structure in STRUCTURES.items():
        print(name, c.sizeof(structure))
        for field, *_ in structure._fields_:
            print(f"{name}.{field}", getattr(structure, field).offset)


def run(args):
    library = Library(args.library)
    with Tokenizer(library, args.model) as tokenizer, Engine(
        library, args.model, ram_bytes=args.ram, n_sessions=args.alternatives
    ) as engine:
        prompt = tokenizer.prompt(args.prompt)
        first = engine.session()
        if args.load:
            with open(args.load, "rb") as file:
                first.load(file.read())
            if first.tokens != prompt[:-1]:
                raise MoefluxError(OK, f"{args.load} holds another prompt")
        else:
            first.eval(prompt[:-1])
        if args.save:
            with open(args.save, "wb") as file:
                file.write(first.save())
        first.eval(prompt[-1:])  # a snapshot has no logits: the last token gives them
        sessions = [first] + [first.fork() for _ in range(args.alternatives - 1)]
        n_vocab = engine.info.n_vocab
        samplers = [Sampler(tokenizer, args.model, n_vocab, seed) for seed in range(len(sessions))]
        for sampler in samplers:
            sampler.accept(prompt)
        for answer in decode_together(engine, tokenizer, sessions, samplers, args.tokens):
            print(tokenizer.text(answer))
        for handle in sessions + samplers:
            handle.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", default="libmoeflux.so.0")
    parser.add_argument("--layout", action="store_true", help="print the structures and end")
    parser.add_argument("--ram", type=int, default=0, metavar="BYTES")
    parser.add_argument("--alternatives", type=int, default=1, metavar="N")
    parser.add_argument("--save", metavar="FILE")
    parser.add_argument("--load", metavar="FILE")
    parser.add_argument("-n", "--tokens", type=int, default=64)
    parser.add_argument("model", nargs="?")
    parser.add_argument("prompt", nargs="?")
    args = parser.parse_args()
    if args.layout:
        print_layout()
        return 0
    if not args.prompt or args.alternatives < 1:
        parser.error("MODEL and PROMPT are needed")
    try:
        run(args)
    except (MoefluxError, OSError) as error:
        print(f"moeflux_ctypes.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
