// A text of any bytes: it is decoded to itself, and a border divides it without a change of its tokens.
#include "composer/data/text/bpe.h"
#include "composer/data/text/pre_tokens.h"
#include "tests/fuzz/fuzz.h"

using namespace composer;
using data::SplitRule;

namespace {

const data::detail::Bpe& encoding(SplitRule rule) {
  const auto make = [](SplitRule split) {
    return data::detail::train_bpe("They're the words that they're the words of, été été 2024 2024 -- --\n\n the the",
                                   300, 2, split);
  };
  static const data::detail::Bpe gpt2(make(SplitRule::GPT2), "gpt2"), cl100k(make(SplitRule::CL100K), "cl100k");
  return rule == SplitRule::GPT2 ? gpt2 : cl100k;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const SplitRule rule : {SplitRule::GPT2, SplitRule::CL100K}) {
    const data::detail::Bpe& bpe = encoding(rule);
    std::vector<std::int64_t> whole, parts;
    bpe.encode(text, whole, false);
    std::string back;
    bpe.decode(whole, back);
    fuzz::require(back == text);
    const std::string_view first = text.substr(0, size / 2);
    const std::size_t border = data::detail::last_border(rule, first);
    bpe.encode(text.substr(0, border), parts, false);
    bpe.encode(text.substr(border), parts, false);
    fuzz::require(parts == whole);
  }
  return 0;
}
