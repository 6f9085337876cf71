#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/unit/data/quantise.bin: rows of weights, and the squared error that mlx.core.quantize
has on each of them, for every number of bits and group. Needs mlx (pip install "mlx[cpu]") and numpy.

u32 rows, u32 columns, float32 [rows, columns]; then for each of bits 2, 3, 4, 5, 6, 8 and groups 32,
64, 128: float64 [rows].
"""
import struct
import sys

import mlx.core as mx
import numpy as np

BITS = (2, 3, 4, 5, 6, 8)
GROUPS = (32, 64, 128)


def rows(columns):
    """Of the kinds that checkpoints have, and harder ones; all are float16 numbers."""
    r = np.random.default_rng(7)
    normal = r.normal(0, 0.02, (4, columns))
    heavy = r.standard_t(3, (4, columns)) * 0.02
    outliers = r.normal(0, 0.01, (2, columns))
    outliers[:, ::97] *= 30
    skewed = np.abs(r.normal(0, 0.02, (2, columns)))
    shifted = r.normal(0.5, 0.01, (1, columns))
    uniform = r.uniform(-0.1, 0.1, (1, columns))
    tiny = r.normal(0, 1e-4, (1, columns))
    large = r.normal(0, 50, (1, columns))
    all_rows = np.concatenate([normal, heavy, outliers, skewed, shifted, uniform, tiny, large])
    return all_rows.astype(np.float16).astype(np.float32)


def codes_of(packed, bits, columns):
    stream = np.unpackbits(packed.view(np.uint8), axis=1, bitorder="little")
    stream = stream[:, : columns * bits].reshape(packed.shape[0], columns, bits)
    return (stream.astype(np.int64) << np.arange(bits)).sum(axis=2)


def error(w, bits, group):
    packed, scales, biases = mx.quantize(mx.array(w.astype(np.float16)), group_size=group, bits=bits)
    codes = codes_of(np.array(packed), bits, w.shape[1]).astype(np.float64)
    scale = np.repeat(np.array(scales).astype(np.float64), group, axis=1)
    bias = np.repeat(np.array(biases).astype(np.float64), group, axis=1)
    return ((codes * scale + bias - w.astype(np.float64)) ** 2).sum(axis=1)


def main(path):
    mx.set_default_device(mx.cpu)
    w = rows(512)
    with open(path, "wb") as out:
        out.write(struct.pack("<II", *w.shape))
        out.write(w.tobytes())
        for bits in BITS:
            for group in GROUPS:
                out.write(error(w, bits, group).astype(np.float64).tobytes())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "tests/unit/data/quantise.bin")
