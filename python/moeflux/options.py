# SPDX-License-Identifier: MIT
"""Options as keyword arguments, named as the fields of the library's structs (see moeflux.h)."""
from __future__ import annotations

import difflib
import operator
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, Optional, TypedDict, Union

from ._native import PathLike, c_text, default, encode_path, ffi, lib
from .errors import ArgumentError

#: bytes: 3221225472, or "3G", "1.5 GiB", "84M"
Size = Union[int, str]
LogFunction = Callable[[str, str], None]


class ModelOptions(TypedDict, total=False):
    """Of Model and inspect. What is left out has the library's default."""

    ram_bytes: Size
    expert_cache_bytes: Size
    state_bytes: Size
    mark_bytes: Size
    n_sessions: int
    n_context_tokens: int
    n_chunk_tokens: int
    n_experts_per_token: int
    packed_expert_bits: int
    n_threads: int
    # "auto", "scalar", "avx2", "avx-vnni", "avx512-bw", "avx512-vnni", "avx512",
    # "avx512-amx", "avx512-amx-bf16", "neon", "neon-dotprod", "neon-i8mm"
    cpu_tier: str
    io: str  # "auto", "uring", "pool"
    kv_type: str  # "f32", "bf16", "q8"
    log: LogFunction  # called with "info" or "warning", and a line
    device: str
    expert_device: str
    device_bytes: Size
    precision: str  # "auto", "f32", "mixed"
    numa: str  # "auto", "off"
    n_draft_tokens: int
    draft: str  # "auto", "always"
    cache_dir: PathLike
    cache_policy: str  # "next-use", "lru", "lfu", "s3-fifo"
    predict: str  # "auto", "off", "next-layer", "last-token", "frequency"
    predict_depth: int
    timeline: PathLike
    hot_dir: PathLike
    mirrors: Sequence[PathLike]


class SamplingOptions(TypedDict, total=False):
    """How tokens are chosen. What is left out is as the checkpoint's publishers have it."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    seed: int
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_n_tokens: int
    dry_breakers: Sequence[str]
    xtc_probability: float
    xtc_threshold: float


def unexpected(name: str, known: Iterable[str]) -> TypeError:
    """For an option that is none, with the one that may have been meant."""
    near = difflib.get_close_matches(name, sorted(known), 1, 0.7)
    return TypeError(f"unexpected option {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))


_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", re.I)


def parse_size(name: str, value: Size) -> int:
    """Bytes of "3G", as the program's options have it: units are powers of 1024."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        if match is None:
            raise ArgumentError(f"{name} is {value!r}; expected a number and K, M, G or T")
        size = int(float(match.group(1)) * 2 ** _UNITS[match.group(2).lower()])
    else:
        try:
            size = operator.index(value)
        except TypeError:
            raise ArgumentError(f"{name} is {value!r}; expected a whole number or text") from None
    if not 0 <= size < 2**64:
        raise ArgumentError(f"{name} is {value!r}; expected 0 to 2^64 - 1")
    return size


_CHOICES: dict[str, dict[str, int]] = {
    "io": {"auto": 0, "uring": 1, "pool": 2},
    "kv_type": {"f32": 0, "bf16": 1, "q8": 2},
    "precision": {"auto": 0, "f32": 1, "mixed": 2},
    "draft": {"auto": 0, "always": 1},
    "numa": {"auto": 0, "off": 1},
}


def _predictors() -> dict[str, int]:
    names: dict[str, int] = {}
    while name := lib.mf_predict_name(len(names)):
        names[ffi.string(name).decode()] = len(names)
    return names


def choice(name: str, value: object) -> int:
    """The number of a named value."""
    choices = _predictors() if name == "predict" else _CHOICES[name]
    if value not in choices:
        raise ArgumentError(f"{name} is {value!r}; expected one of {', '.join(choices)}")
    return choices[str(value)]


def several(name: str, value: Any) -> list[Any]:
    """A list of texts; one text would be taken for a list of its characters."""
    if isinstance(value, (str, bytes, os.PathLike)):
        raise ArgumentError(f"{name} is {value!r}; expected a list of such")
    try:
        return list(value)
    except TypeError as problem:
        raise ArgumentError(f"{name} is {value!r}: {problem}") from None


def assign(struct: Any, name: str, value: object) -> None:
    """A number or text into a field; what does not fit is an ArgumentError that names it."""
    try:
        setattr(struct, name, value)
    except (TypeError, OverflowError, AttributeError) as problem:
        raise ArgumentError(f"{name} is {value!r}: {problem}") from None


class EngineOptions:
    """mf_engine_options, and all that it points to."""

    def __init__(self, options: ModelOptions) -> None:
        self.struct: Any = default("mf_engine_options", lib.mf_engine_options_init)
        self.keeps: list[Any] = []
        for name, value in options.items():
            self._set(name, value)

    def _text(self, name: str, value: PathLike) -> Any:
        text = ffi.new("char[]", encode_path(value, name))
        self.keeps.append(text)
        return text

    def _set(self, name: str, value: Any) -> None:
        if name not in ModelOptions.__annotations__:
            raise unexpected(name, ModelOptions.__annotations__)
        if value is None:
            return
        if name.endswith("_bytes"):
            assign(self.struct, name, parse_size(name, value))
        elif name in _CHOICES or name == "predict":
            assign(self.struct, name, choice(name, value))
        elif name == "log":
            self._set_log(value)
        elif name == "mirrors":
            value = several(name, value)
            array = ffi.new("char *[]", [self._text(name, path) for path in value])
            self.keeps.append(array)
            self.struct.mirrors, self.struct.n_mirrors = array, len(value)
        elif name.startswith("n_") or name in ("packed_expert_bits", "predict_depth"):
            assign(self.struct, name, value)
        else:
            assign(self.struct, name, self._text(name, value))

    def _set_log(self, function: LogFunction) -> None:
        if not callable(function):
            raise ArgumentError(f"log is {function!r}; expected a function")

        def log(_user: Any, level: int, line: Any) -> None:
            function("warning" if level else "info", ffi.string(line).decode("utf-8", "replace"))

        callback = ffi.callback("mf_log_fn", log)
        self.keeps.append(callback)  # this object, not what the struct gives back, owns it
        self.struct.log = callback


class SamplerOptions:
    """mf_sampler_options, and all that it points to."""

    def __init__(self, path: Optional[PathLike], options: SamplingOptions) -> None:
        from ._native import check

        self.struct: Any = default("mf_sampler_options", lib.mf_sampler_options_init)
        self.keeps: list[Any] = []
        if path is not None:
            check(lib.mf_sampler_options_load, encode_path(path), self.struct)
        for name, value in options.items():
            self._set(name, value)

    def _set(self, name: str, value: Any) -> None:
        if name not in SamplingOptions.__annotations__:
            raise unexpected(name, SamplingOptions.__annotations__)
        if value is None:
            return
        if name == "logit_bias":
            try:
                pairs = [(operator.index(t), float(b)) for t, b in value.items()]
                array = ffi.new("mf_logit_bias[]", pairs)
            except (AttributeError, TypeError, ValueError, OverflowError) as problem:
                raise ArgumentError(f"logit_bias is {value!r}: {problem}") from None
            self.keeps.append(array)
            self.struct.biases, self.struct.n_biases = array, len(value)
        elif name == "dry_breakers":
            value = several(name, value)
            texts = [c_text("dry_breakers", text) for text in value]
            array = ffi.new("char *[]", texts)
            self.keeps += [texts, array]
            self.struct.dry_breakers, self.struct.n_dry_breakers = array, len(value)
        else:
            assign(self.struct, name, value)
