// SPDX-License-Identifier: MIT
// The formats of blocks.glsl: what they have, and where a chunk has it.
const bool IS_SMALL4 = KIND == KIND_Q4_0 || KIND == KIND_Q4_1 || KIND == KIND_IQ4_NL;
const bool IS_SMALL5 = KIND == KIND_Q5_0 || KIND == KIND_Q5_1;
const bool IS_BLOCK = IS_SMALL4 || IS_SMALL5 || KIND == KIND_Q8_0 || KIND == KIND_Q4_K ||
                      KIND == KIND_Q5_K || KIND == KIND_Q6_K || KIND == KIND_IQ4_XS ||
                      KIND == KIND_GGUF_MXFP4 || KIND == KIND_MXFP4;
const bool IS_K = KIND == KIND_Q4_K || KIND == KIND_Q5_K;
const bool HAS_HIGH = KIND == KIND_Q5_K || KIND == KIND_Q6_K; // bits of codes in 32 bytes more
const bool HAS_MIN = KIND == KIND_Q4_1 || KIND == KIND_Q5_1 || IS_K;
const bool HAS_LEVELS = KIND == KIND_IQ4_NL || KIND == KIND_IQ4_XS || KIND == KIND_GGUF_MXFP4 ||
                        KIND == KIND_MXFP4;
const bool IS_MIN_IN_BLOCK = KIND == KIND_Q4_1 || KIND == KIND_Q5_1;

// Words of codes, of their high bits, of scales: each a word more than its bytes fill.
const uint CODE_WORDS = KIND == KIND_Q8_0 || IS_K || KIND == KIND_Q6_K ? 9 : 5;
const uint HIGH_WORDS = HAS_HIGH ? 9 : IS_SMALL5 ? 2 : 0;
const uint HEAD_WORDS = IS_K ? 5 : KIND == KIND_IQ4_XS ? 3 : 0;
const uint HIGH_AT = CODE_WORDS, HEAD_AT = CODE_WORDS + HIGH_WORDS;
const uint BLOCK_WORDS = HEAD_AT + HEAD_WORDS + 1; // at most N_WORDS; the last one: see shifts_of
