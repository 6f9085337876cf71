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
T = gguf.GGMLQuantizationType
# name, type, columns, bytes of a block, values of a block, where its float16 scales are
TYPES = [("gguf q8_0", T.Q8_0, 96, 34, 32, [0]), ("gguf q4_k", T.Q4_K, 512, 144, 256, [0, 2]),
         ("gguf q6_k", T.Q6_K, 512, 210, 256, [208]), ("gguf iq4_xs", T.IQ4_XS, 512, 136, 256, [0]),
         ("gguf mxfp4", T.MXFP4, 512, 17, 32, []), ("gguf q4_0", T.Q4_0, 96, 18, 32, [0]),
         ("gguf q4_1", T.Q4_1, 96, 20, 32, [0, 2]), ("gguf q5_0", T.Q5_0, 96, 22, 32, [0]),
         ("gguf q5_1", T.Q5_1, 96, 24, 32, [0, 2]), ("gguf q2_k", T.Q2_K, 512, 84, 256, [80, 82]),
         ("gguf q3_k", T.Q3_K, 512, 110, 256, [108]), ("gguf q5_k", T.Q5_K, 512, 176, 256, [0, 2]),
         ("gguf iq1_s", T.IQ1_S, 512, 50, 256, [0]), ("gguf iq1_m", T.IQ1_M, 512, 56, 256, []),
         ("gguf iq2_xxs", T.IQ2_XXS, 512, 66, 256, [0]), ("gguf iq2_xs", T.IQ2_XS, 512, 74, 256, [0]),
         ("gguf iq2_s", T.IQ2_S, 512, 82, 256, [0]), ("gguf iq3_xxs", T.IQ3_XXS, 512, 98, 256, [0]),
         ("gguf iq3_s", T.IQ3_S, 512, 110, 256, [0]), ("gguf iq4_nl", T.IQ4_NL, 96, 18, 32, [0]),
         ("gguf tq1_0", T.TQ1_0, 512, 54, 256, [52]), ("gguf tq2_0", T.TQ2_0, 512, 66, 256, [64]),
         ("gguf nvfp4", T.NVFP4, 192, 36, 64, [])]


def random_scales(rng, n):
    scales = rng.uniform(-1, 1, n) * 2.0 ** rng.integers(-12, 3, n)
    scales[0] = 2.0 ** -20  # subnormal
    return scales.astype("<f2")


def random_blocks(rng, kind, n, n_bytes, halves):
    """Any bytes, but finite scales; those of MXFP4's one byte are all codes that mean a number, in turn."""
    blocks = rng.integers(0, 256, (n, n_bytes), dtype=numpy.uint8)
    for at in halves:
        blocks[:, at:at + 2] = random_scales(rng, n).view(numpy.uint8).reshape(n, 2)
    if kind == T.MXFP4:
        blocks[:, 0] = numpy.linspace(0, 250, n).astype(numpy.uint8)
    if kind == T.NVFP4:
        blocks[0, :4] = [0x7f, 0xff, 0x80, 1]
    if kind == T.IQ1_M:
        scales = random_scales(rng, n).view("<u2")
        for i in range(4):
            high = 49 + 2 * i
            blocks[:, high] = (blocks[:, high] & 15) | ((scales >> (4 * i) & 15) << 4).astype(numpy.uint8)
    return blocks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    out = parser.parse_args().out
    rng = numpy.random.default_rng(10)
    with open(out, "wb") as f:
        f.write(b"MFFORMAT" + struct.pack("<I", len(TYPES)))
        for name, kind, n_cols, n_bytes, n_values, halves in TYPES:
            blocks = random_blocks(rng, kind, ROWS * n_cols // n_values, n_bytes, halves)
            values = gguf.dequantize(blocks.reshape(ROWS, -1), kind).astype("<f4")
            assert values.shape == (ROWS, n_cols) and numpy.isfinite(values).all()
            f.write(struct.pack("<16sIII", name.encode(), ROWS, n_cols, blocks.size))
            f.write(blocks.tobytes() + values.tobytes())


if __name__ == "__main__":
    main()
