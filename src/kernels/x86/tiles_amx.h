/* SPDX-License-Identifier: MIT */
/* The operations of tiles.h as AMX has them. Written by hand: compilers' own forget that a load
 * reads what was stored before. */
#ifndef MF_KERNELS_TILES_AMX_H
#define MF_KERNELS_TILES_AMX_H

#include "kernels/x86/tiles.h"

#define MF_TILES_OPEN(tiles) __asm__ volatile("ldtilecfg %0" : : "m"(*(tiles)) : "memory")

#define MF_TILES_CLOSE(tiles)                           \
    do {                                                \
        (void)(tiles);                                  \
        __asm__ volatile("tilerelease" : : : "memory"); \
    } while (0)

#define MF_TILE_ZERO(tiles, i)                       \
    do {                                             \
        (void)(tiles);                               \
        __asm__ volatile("tilezero %%tmm" #i : : :); \
    } while (0)

#define MF_TILE_LOAD(tiles, i, from, stride)                                  \
    do {                                                                      \
        (void)(tiles);                                                        \
        __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #i                      \
                         :                                                    \
                         : "r"((const void *)(from)), "r"((uint64_t)(stride)) \
                         : "memory");                                         \
    } while (0)

#define MF_TILE_STORE(tiles, i, to, stride)                           \
    do {                                                              \
        (void)(tiles);                                                \
        __asm__ volatile("tilestored %%tmm" #i ", (%0,%1,1)"          \
                         :                                            \
                         : "r"((void *)(to)), "r"((uint64_t)(stride)) \
                         : "memory");                                 \
    } while (0)

#define MF_TILE_DOT(instruction, tiles, c, a, b)                                   \
    do {                                                                           \
        (void)(tiles);                                                             \
        __asm__ volatile(instruction " %%tmm" #b ", %%tmm" #a ", %%tmm" #c : : :); \
    } while (0)

#define MF_TILE_DOT_SU(tiles, c, a, b) MF_TILE_DOT("tdpbsud", tiles, c, a, b)
#define MF_TILE_DOT_US(tiles, c, a, b) MF_TILE_DOT("tdpbusd", tiles, c, a, b)
#define MF_TILE_DOT_SS(tiles, c, a, b) MF_TILE_DOT("tdpbssd", tiles, c, a, b)
#define MF_TILE_DOT_BF16(tiles, c, a, b) MF_TILE_DOT("tdpbf16ps", tiles, c, a, b)

#endif
