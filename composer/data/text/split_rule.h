#pragma once
#include <cstdint>

namespace composer::data {

// How a byte-pair encoding first divides text into words, numbers, signs and spaces. GPT2 is the rule of GPT-2 and of
// tiktoken's gpt2, r50k_base and p50k_base; CL100K that of tiktoken's cl100k_base (GPT-3.5 and GPT-4).
enum class SplitRule : std::uint8_t { GPT2, CL100K };

}  // namespace composer::data
