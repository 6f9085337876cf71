#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes src/base/weight_grids.c: the codebooks of GGUF's IQ1, IQ2 and IQ3 types, from the `gguf` package (pip install
gguf), packed.

  make_gguf_grids.py OUT

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
# name, class, bits of a value
GRIDS = [("mf_grid_iq1", quants.IQ1_S, 2), ("mf_grid_iq2_xxs", quants.IQ2_XXS, 2), ("mf_grid_iq2_xs", quants.IQ2_XS, 2),
         ("mf_grid_iq2_s", quants.IQ2_S, 2), ("mf_grid_iq3_xxs", quants.IQ3_XXS, 3), ("mf_grid_iq3_s", quants.IQ3_S, 3)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    out = parser.parse_args().out
    with open(out, "w") as f:
        f.write(HEAD)
        for name, kind, bits in GRIDS:
            kind.init_grid()
            grid = kind.grid.reshape(kind.grid_shape).astype(int)
            places = {int(value): i for i, value in enumerate(kind.grid_map)}
            words = [sum(places[int(v)] << (bits * i) for i, v in enumerate(row)) for row in grid]
            f.write(f"\nconst uint16_t {name}[{len(words)}] = {{\n")
            for i in range(0, len(words), 13):
                f.write("    " + ", ".join(f"{w}" for w in words[i:i + 13]) + ",\n")
            f.write("};\n")


if __name__ == "__main__":
    main()
