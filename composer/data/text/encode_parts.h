#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "composer/core/error.h"
#include "composer/data/text/tokenizer.h"

namespace composer::data::detail {

// Text that has no tokens, and the byte where it is; what a part of a longer text lacks can be told of the whole.
class TextError : public DataError {
 public:
  TextError(std::string before, std::uint64_t byte, std::string after)
      : DataError(before, byte, after), before_(std::move(before)), after_(std::move(after)), byte_(byte) {}
  // The same for a text in which this one begins at byte `from`.
  TextError in_text(std::uint64_t from) const { return {before_, from + byte_, after_}; }

 private:
  std::string before_, after_;
  std::uint64_t byte_;
};

// The tokens of the text, in parts that follow each other; the parts are encoded on libtorch's threads. Errors count
// bytes from `from` on, where the text begins in its file.
std::vector<std::vector<std::int64_t>> encode_parts(const Tokenizer& tokenizer, std::string_view text,
                                                    std::uint64_t from = 0);

}  // namespace composer::data::detail
