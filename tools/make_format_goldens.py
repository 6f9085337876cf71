#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes tests/kernels/data/formats.bin: random blocks of GGUF's quantisation types and the float32 values that the
`gguf` package (pip install gguf) decodes them to.

  make_format_goldens.py OUT

The file: "MFFORMAT", u32 count; of each type its name as mf_weight_formats has it (16 bytes, zeros after it), u32 rows,
columns and bytes, the blocks, and the values as float32. Little-endian.
"""
import argparse
import struct

import gguf
import numpy

ROWS = 2
# name, type, columns, bytes of a block, values of a block, where its float16 scales are
TYPES = [("gguf q8_0", gguf.GGMLQuantizationType.Q8_0, 96, 34, 32, [0]),
         ("gguf q4_k", gguf.GGMLQuantizationType.Q4_K, 512, 144, 256, [0, 2]),
         ("gguf q6_k", gguf.GGMLQuantizationType.Q6_K, 512, 210, 256, [208]),
         ("gguf iq4_xs", gguf.GGMLQuantizationType.IQ4_XS, 512, 136, 256, [0]),
         ("gguf mxfp4", gguf.GGMLQuantizationType.MXFP4, 512, 17, 32, [])]


def random_blocks(rng, n, n_bytes, halves):
    """Any bytes, but finite scales; those of one byte (MXFP4) are all codes that mean a number, in turn."""
    blocks = rng.integers(0, 256, (n, n_bytes), dtype=numpy.uint8)
    for at in halves:
        scales = rng.uniform(-1, 1, n) * 2.0 ** rng.integers(-12, 3, n)
        scales[0] = 2.0 ** -20  # subnormal
        blocks[:, at:at + 2] = scales.astype("<f2").view(numpy.uint8).reshape(n, 2)
    if not halves:
        blocks[:, 0] = numpy.linspace(0, 250, n).astype(numpy.uint8)
    return blocks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    out = parser.parse_args().out
    rng = numpy.random.default_rng(10)
    with open(out, "wb") as f:
        f.write(b"MFFORMAT" + struct.pack("<I", len(TYPES)))
        for name, kind, n_cols, n_bytes, n_values, halves in TYPES:
            blocks = random_blocks(rng, ROWS * n_cols // n_values, n_bytes, halves)
            values = gguf.dequantize(blocks.reshape(ROWS, -1), kind).astype("<f4")
            assert values.shape == (ROWS, n_cols) and numpy.isfinite(values).all()
            f.write(struct.pack("<16sIII", name.encode(), ROWS, n_cols, blocks.size))
            f.write(blocks.tobytes() + values.tobytes())


if __name__ == "__main__":
    main()
