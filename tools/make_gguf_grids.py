#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes src/base/weight_grids.c, or src/backend/vulkan/shaders/grids.glsl: the codebooks of GGUF's IQ1, IQ2 and IQ3
types, from the `gguf` package (pip install gguf), packed.

  make_gguf_grids.py OUT.c|OUT.glsl

An entry's values are numbered by their place in the codebook's list of values: eight of 2 bits each in IQ1 and IQ2,
four of 3 bits each in IQ3, the first one lowest.
"""
import argparse

from gguf import quants

HEAD = """/* SPDX-License-Identifier: MIT */
/* Made by tools/make_gguf_grids.py: the codebooks of GGUF's IQ types. */
/* clang-format off */
#include "base/weight_grids.h"
"""
GLSL_HEAD = """// SPDX-License-Identifier: MIT
// Made by tools/make_gguf_grids.py: the codebooks of GGUF's IQ types, as base/weight_grids.h has them,
// four entries to a number. (64 bits: the tables of words that a shader becomes are shorter so.)
"""
# name, class, bits of a value
GRIDS = [("iq1", quants.IQ1_S, 2), ("iq2_xxs", quants.IQ2_XXS, 2), ("iq2_xs", quants.IQ2_XS, 2),
         ("iq2_s", quants.IQ2_S, 2), ("iq3_xxs", quants.IQ3_XXS, 3), ("iq3_s", quants.IQ3_S, 3)]


def write_c(f, name, entries):
    f.write(f"\nconst uint16_t mf_grid_{name}[{len(entries)}] = {{\n")
    for i in range(0, len(entries), 13):
        f.write("    " + ", ".join(f"{w}" for w in entries[i:i + 13]) + ",\n")
    f.write("};\n")


def write_glsl(f, name, entries):
    numbers = [sum(w << (16 * i) for i, w in enumerate(entries[at:at + 4])) for at in range(0, len(entries), 4)]
    lines = [", ".join(f"0x{n:x}ul" for n in numbers[i:i + 4]) for i in range(0, len(numbers), 4)]
    f.write(f"\nconst uint64_t GRID_{name.upper()}[{len(numbers)}] = uint64_t[](\n    " + ",\n    ".join(lines) + ");\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    out = parser.parse_args().out
    is_glsl = out.endswith(".glsl")
    with open(out, "w") as f:
        f.write(GLSL_HEAD if is_glsl else HEAD)
        for name, kind, bits in GRIDS:
            kind.init_grid()
            grid = kind.grid.reshape(kind.grid_shape).astype(int)
            places = {int(value): i for i, value in enumerate(kind.grid_map)}
            entries = [sum(places[int(v)] << (bits * i) for i, v in enumerate(row)) for row in grid]
            (write_glsl if is_glsl else write_c)(f, name, entries)


if __name__ == "__main__":
    main()
