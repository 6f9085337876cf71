// SPDX-License-Identifier: MIT
// The formats of blocks.glsl: what they have, and where a chunk has it.
const bool IS_SMALL4 = KIND == KIND_Q4_0 || KIND == KIND_Q4_1;
const bool IS_SMALL5 = KIND == KIND_Q5_0 || KIND == KIND_Q5_1;
const bool IS_MIN_IN_BLOCK = KIND == KIND_Q4_1 || KIND == KIND_Q5_1;
// Blocks of 32 columns, read from their beginning on.
const bool IS_SMALL = KIND == KIND_Q4_0 || KIND == KIND_IQ4_NL || KIND == KIND_Q8_0 ||
                      KIND == KIND_GGUF_MXFP4 || IS_MIN_IN_BLOCK || IS_SMALL5;
const bool IS_K = KIND == KIND_Q4_K || KIND == KIND_Q5_K;
const bool IS_LARGE = IS_K || KIND == KIND_Q6_K || KIND == KIND_IQ4_XS; // of 256
const bool IS_BLOCK = IS_SMALL || IS_LARGE || KIND == KIND_MXFP4;
const bool HAS_HIGH = KIND == KIND_Q5_K || KIND == KIND_Q6_K; // bits of codes in 32 bytes more
const bool HAS_MIN = IS_MIN_IN_BLOCK || IS_K;
const bool IS_E2M1 = KIND == KIND_GGUF_MXFP4 || KIND == KIND_MXFP4;
const bool HAS_LEVELS = KIND == KIND_IQ4_NL || KIND == KIND_IQ4_XS || IS_E2M1;
// Wide loads are of whole runs of codes: then the array is aligned to 16 bytes (IQ4_XS: 8). Of other
// formats they are of words, and it is aligned to 2.
const bool HAS_RUNS = IS_K || KIND == KIND_IQ4_XS || KIND == KIND_MXFP4;
const bool IS_EVEN = HAS_RUNS && IS_WIDE != 0;

// Bytes of a small block before its codes, the fifth bits last; and of a block.
const uint SMALL_HEAD =
    KIND == KIND_GGUF_MXFP4 ? 1 : (IS_MIN_IN_BLOCK ? 4 : 2) + (IS_SMALL5 ? 4 : 0);
const uint FIFTH_AT = IS_SMALL5 ? SMALL_HEAD - 4 : 0;
const uint SMALL_BYTES = SMALL_HEAD + (KIND == KIND_Q8_0 ? 32 : 16);
const uint BLOCK_BYTES = KIND == KIND_Q4_K     ? 144
                         : KIND == KIND_Q5_K   ? 176
                         : KIND == KIND_Q6_K   ? 210
                         : KIND == KIND_IQ4_XS ? 136
                         : KIND == KIND_MXFP4  ? 16
                                               : SMALL_BYTES;
const uint BLOCK_COLS = IS_LARGE ? 256 : 32;
// Bytes that a small block begins behind a word's beginning, at most.
const uint SMALL_SKEW = IS_WIDE != 0 && KIND != KIND_GGUF_MXFP4 ? 2 : 3;

// Words of codes, of their high bits, of scales: each a word more than its bytes fill.
const uint CODE_WORDS = IS_SMALL                                ? (SMALL_BYTES + SMALL_SKEW + 3) / 4
                        : IS_K || KIND == KIND_Q6_K ? 9
                                                                : 5;
const uint HIGH_WORDS = HAS_HIGH ? 9 : 0;
const uint HEAD_WORDS = IS_K ? 5 : KIND == KIND_IQ4_XS ? 3 : 0;
const uint HIGH_AT = CODE_WORDS, HEAD_AT = CODE_WORDS + HIGH_WORDS;
const uint BLOCK_WORDS = HEAD_AT + HEAD_WORDS + 1; // at most N_WORDS; the last one: see shifts_of
