# SPDX-License-Identifier: MIT
"""moeflux: runs Mixture-of-Experts language models that are larger than memory.

    import moeflux

    with moeflux.Model("models/demo", ram_bytes="84M") as model:
        for text in model.stream("Once upon a time", max_tokens=64):
            print(text, end="", flush=True)

docs/PYTHON.md explains it; names and meanings are those of the C library.
"""
from .aio import AsyncModel, AsyncStream
from .answer import GenerateOptions, Stream
from .errors import (
    ArgumentError,
    BudgetError,
    CancelledError,
    ContextError,
    FormatError,
    MoefluxError,
    NoMemoryError,
    NotFoundError,
    ReadError,
    StateError,
    Status,
    UnsupportedError,
)
from .grammar import Grammar, Guide, Vocabulary
from .hub import find
from .info import DeviceInfo, LeftOut, ModelInfo, Stats, devices
from .model import Model, StepItem, Store, inspect, version
from .options import ModelOptions, SamplingOptions
from .reply import Event, EventKind, Reply, Syntax, ToolCall
from .sampler import Sampler
from .session import Cancel, Session, Sync
from .tokenizer import ChatTemplate, Decoder, Tokenizer

__version__ = version()

__all__ = [
    "ArgumentError",
    "AsyncModel",
    "AsyncStream",
    "BudgetError",
    "Cancel",
    "CancelledError",
    "ChatTemplate",
    "ContextError",
    "Decoder",
    "DeviceInfo",
    "Event",
    "EventKind",
    "FormatError",
    "GenerateOptions",
    "Grammar",
    "Guide",
    "LeftOut",
    "Model",
    "ModelInfo",
    "ModelOptions",
    "MoefluxError",
    "NoMemoryError",
    "NotFoundError",
    "ReadError",
    "Reply",
    "Sampler",
    "SamplingOptions",
    "Session",
    "StateError",
    "Stats",
    "Status",
    "StepItem",
    "Store",
    "Stream",
    "Sync",
    "Syntax",
    "Tokenizer",
    "ToolCall",
    "UnsupportedError",
    "Vocabulary",
    "__version__",
    "devices",
    "find",
    "inspect",
    "version",
]
