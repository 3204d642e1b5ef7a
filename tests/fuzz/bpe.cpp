// A vocab.json, a zero byte and a merges.txt; or a file of tiktoken's ranks. What is accepted encodes every text.
#include "composer/data/text/bpe.h"

#include "tests/fuzz/fuzz.h"

using namespace composer;

namespace {

void check(data::detail::BpeParts parts) {
  const data::detail::Bpe bpe(std::move(parts), "input");
  const std::string text = "They're 12 words, été.\n\n\xff\xfe  <|endoftext|>";
  for (const bool special : {false, true}) {
    std::vector<std::int64_t> tokens;
    bpe.encode(text, tokens, special);
    for (const std::int64_t token : tokens) fuzz::require(token >= 0 && token < bpe.size());
    std::string back;
    bpe.decode(tokens, back);
    fuzz::require(back == text);
  }
  fuzz::require(!data::detail::vocabulary_json(bpe.parts()).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const std::size_t zero = text.find('\0');
    if (zero == std::string_view::npos) {
      check(data::detail::read_tiktoken_bpe(text, "input"));
    } else {
      check(data::detail::read_gpt2_bpe(text.substr(0, zero), "vocab.json", text.substr(zero + 1), "merges.txt"));
    }
  } catch (const DataError&) {
  }
  return 0;
}
