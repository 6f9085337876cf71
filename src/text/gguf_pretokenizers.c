/* SPDX-License-Identifier: MIT */
/*
 * The pre-tokenizers that GGUF names (tokenizer.ggml.pre), with the patterns of the published
 * tokenizer.json that each name stands for. A new one is a row.
 */
#include "text/gguf_text.h"

#include <string.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define WORDS_AND(digits) CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits REST
#define GPT2                                                                         \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|" \
    "\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(ending)                                                                             \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" ending "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER \
    "*" ending
#define REST_WITH_SLASH "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
/* DeepSeek's list of letters */
#define LETTERS                                                                      \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"   \
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-"   \
    "\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-"    \
    "\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}" \
    "\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"   \
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}"   \
    "\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}"   \
    "\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-"    \
    "\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}"    \
    "\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}"   \
    "\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}"     \
    "\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-"    \
    "\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}"     \
    "\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}"    \
    "\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}"   \
    "\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}"   \
    "\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-"       \
    "\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}"      \
    "\\x{1E900}-\\x{1E943}"
#define CJK_AND_MORE "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
#define CJK_AND_KANA "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"
#define HANGUL "[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+"
#define WIDE_MARKS                                                                       \
    "[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}" \
    "\\x{FF0C}\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+"
#define BOPOMOFO "[\\x{3105}-\\x{312F}]+"

static const mf_named_pretokenizer named[] = {
    {.names = " qwen2 deepseek-r1-qwen f2llmv2 kormo megrez hunyuan ",
     .patterns = {WORDS_AND("\\p{N}")},
     .uses_nfc = true},
    {.names = " qwen35 ",
     .patterns = {CONTRACTIONS
                  "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
                  "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
     .uses_nfc = true},
    {.names = " llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 ",
     .patterns = {WORDS_AND("\\p{N}{1,3}")},
     .ignores_merges = true,
     .adds_start = true},
    {.names = " chatglm-bpe dbrx smaug-bpe ", .patterns = {WORDS_AND("\\p{N}{1,3}")}},
    {.names = " glm4 glm5 ", .patterns = {WORDS_AND("\\p{N}{1,3}")}, .ignores_merges = true},
    {.names = " stablelm2 grok-2 solar-open ", .patterns = {WORDS_AND("\\p{N}")}},
    {.names = " deepseek-v3 hunyuan-dense hy_v4 joyai-llm ",
     .patterns = {"\\p{N}{1,3}", CJK_AND_KANA,
                  "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
                  "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*"
                  "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {.names = " deepseek-llm ",
     .patterns =
         {"[\\r\\n]", "\\s?[" LETTERS "]+",
          "\\s?[!-/"
          ":-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
          "\\s+$", CJK_AND_MORE, "\\p{N}"}},
    {.names = " deepseek-coder ",
     .patterns = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK_AND_MORE, "\\p{N}"}},
    {.names = " gpt-4o llama4 kanana2 talkie minimax-m2 ",
     .patterns = {CASED(CONTRACTIONS "?") "|\\p{N}{1,3}" REST_WITH_SLASH}},
    {.names = " tekken ",
     .patterns = {CASED("") "|\\p{N}" REST_WITH_SLASH},
     .ignores_merges = true,
     .adds_start = true},
    {.names = " kimi-k2 ", .is_kimi = true},
    {.names =
         " gpt-2 phi-2 mpt olmo jais gigachat exaone4 a.x-4.0 mellum trillion granite-docling ",
     .patterns = {GPT2}},
    {.names = " starcoder refact command-r smollm codeshell exaone minerva-7b mellum2 ",
     .patterns = {"\\p{N}", GPT2}},
    {.names = " falcon ", .patterns = {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"}},
    /* what a file means whose converter knew no name: as llama.cpp has it */
    {.names = " default ", .patterns = {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {.names = " seed-coder ",
     .patterns = {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+"
                               "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {.names = " bailingmoe bailingmoe2 llada-moe ",
     .patterns = {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
                  "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {.names = " minicpm5 ",
     .patterns = {"\\p{N}{1,3}", WORDS_AND("\\p{N}+")},
     .ignores_merges = true},
    {.names = " youtu ",
     .patterns = {HANGUL "|" WIDE_MARKS "|" BOPOMOFO "|" CJK_AND_KANA,
                  CASED(CONTRACTIONS "?") "|\\p{N}" REST_WITH_SLASH},
     .ignores_merges = true},
    {.names = " ufakzeka ", .patterns = {"[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" REST}},
    {.names = " viking ",
     .patterns = {" ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+",
                  "\\p{N}"}},
};

const mf_named_pretokenizer *mf_find_pretokenizer(const char *name, size_t n_bytes)
{
    if (n_bytes == 0 || memchr(name, ' ', n_bytes) != NULL)
        return NULL;
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        for (const char *at = named[i].names; (at = strchr(at, ' ')) != NULL; at++)
            if (strncmp(at + 1, name, n_bytes) == 0 && at[1 + n_bytes] == ' ')
                return &named[i];
    return NULL;
}
