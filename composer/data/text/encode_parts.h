#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "composer/data/text/tokenizer.h"

namespace composer::data::detail {

// The tokens of the text, in parts that follow each other; the parts are encoded on libtorch's threads.
std::vector<std::vector<std::int64_t>> encode_parts(const Tokenizer& tokenizer, std::string_view text);

}  // namespace composer::data::detail
