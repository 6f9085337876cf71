# SPDX-License-Identifier: MIT
"""From logits to a token."""
from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Optional

from ._native import Handle, Owner, PathLike, call, ffi, lib
from .errors import ArgumentError
from .options import SamplerOptions, SamplingOptions
from .tokenizer import Tokenizer, token_array

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Unpack


def _array(element: str, dtype: str, what: str, values: Any) -> Any:
    """What has a buffer, as it lies in memory: of a NumPy array of other elements the bytes would be
    misread."""
    given = getattr(values, "dtype", None)
    if given is not None and given.str != dtype:
        raise ArgumentError(f"{what}: expected {element}, found {given}")
    try:
        return ffi.from_buffer(f"{element}[]", values)
    except (TypeError, ValueError) as problem:
        raise ArgumentError(f"{what}: {problem}") from None


class Sampler(Owner):
    """Chooses tokens. Options that are left out are those of `path`, a checkpoint, if it is given.

    One thread's at a time.
    """

    _kind = "sampler"

    def __init__(
        self,
        n_vocab: int,
        path: Optional[PathLike] = None,
        tokenizer: Optional[Tokenizer] = None,
        **options: Unpack[SamplingOptions],
    ) -> None:
        values = SamplerOptions(path, options)
        if values.struct.n_dry_breakers:
            if tokenizer is None:
                raise ArgumentError("dry_breakers need a tokenizer")
            values.struct.tokenizer = tokenizer.pointer
        handle = Handle("mf_sampler", lib.mf_sampler_free, tokenizer)
        handle.make(lib.mf_sampler_create, values.struct, n_vocab, ffi.NULL)
        super().__init__(handle)
        self.n_vocab = n_vocab

    def accept(self, token: int) -> None:
        """This token is now in the sequence (for the penalties)."""
        with self._using() as pointer:
            call(lib.mf_sampler_accept, pointer, token)

    def accept_prompt(self, tokens: Iterable[int]) -> None:
        """These tokens stand before the answer."""
        array = token_array(tokens)
        with self._using() as pointer:
            lib.mf_sampler_accept_prompt(pointer, array, len(array))

    def sample(self, logits: NDArray[np.float32], allowed: Optional[Any] = None) -> int:
        """A token by logits, float32 [n_vocab]; allowed: those whose bit is set, uint32 words."""
        array = _array("float", "<f4", "logits", logits)
        if len(array) != self.n_vocab:
            raise ArgumentError(f"logits: expected float32 [{self.n_vocab}]")
        return self.sample_from(array, allowed)

    def sample_from(self, logits: Any, allowed: Optional[Any], bounds: Any = ffi.NULL) -> int:
        """The same from pointers of the library's."""
        words = ffi.NULL if allowed is None else _array("uint32_t", "<u4", "allowed", allowed)
        if allowed is not None and len(words) * 32 < self.n_vocab:
            raise ArgumentError(f"allowed: expected bits for {self.n_vocab} tokens")
        with self._using() as pointer:
            token = int(lib.mf_sampler_sample_bounded(pointer, logits, bounds, words))
        if words and not words[token // 32] >> token % 32 & 1:
            raise ArgumentError(f"allowed: no bit is set of {self.n_vocab} tokens")
        return token

    def reset(self) -> None:
        """Forgets accepted tokens and starts the seed again."""
        with self._using() as pointer:
            lib.mf_sampler_reset(pointer)
