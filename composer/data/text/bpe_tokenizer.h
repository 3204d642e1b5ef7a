#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/export.h"
#include "composer/data/text/split_rule.h"
#include "composer/data/text/tokenizer.h"

namespace composer::data {

namespace detail {
class Bpe;
struct BpeParts;
}  // namespace detail

struct BpeOptions {
  // how text is divided before pairs are merged. GPT2: gpt2, r50k_base and p50k_base, or what save() has written into
  // merges.txt; CL100K: cl100k_base
  SplitRule split = SplitRule::GPT2;
  // tokens that are not text, with their numbers. `<|endoftext|>` of a vocab.json is one without being named
  std::map<std::string, std::int64_t> special_tokens = {};
  bool special_in_text = false;  // whether a text that spells a special token is encoded as this token
};

struct BpeTrainOptions {
  std::int64_t size = 0;           // required: number of tokens, >= 256 + special ones; fewer if pairs do not suffice
  std::int64_t min_frequency = 2;  // pairs that are rarer are not merged
  SplitRule split = SplitRule::GPT2;                            // how text is divided before pairs are merged
  std::vector<std::string> special_tokens = {"<|endoftext|>"};  // tokens that are not text; they get the last numbers
};

// The byte-level byte-pair encoding of GPT-2: it encodes every text, also one that is not UTF-8, and decodes it to the
// same bytes. Copies share the vocabulary.
class COMPOSER_EXPORT BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer();  // without a vocabulary, to be loaded
  // Reads the two files of GPT-2 and its successors: vocab.json (encoder.json) and merges.txt (vocab.bpe). Throws
  // DataError for files that are damaged or do not belong together.
  BpeTokenizer(const std::filesystem::path& vocabulary, const std::filesystem::path& merges, BpeOptions options = {});
  // Reads a file of tiktoken's, such as cl100k_base.tiktoken.
  static BpeTokenizer tiktoken(const std::filesystem::path& file, BpeOptions options = {});
  // Finds the pairs that are the most frequent in a text. Takes a second for about 5 MB.
  static BpeTokenizer train(std::string_view text, BpeTrainOptions options);
  ~BpeTokenizer() override;

  // Writes vocab.json and merges.txt into the folder, which other programs read, too. The first line of merges.txt
  // tells the split and the special tokens to the constructor.
  void save(const std::filesystem::path& folder) const;
  // The number of a token, special or not. Throws ConfigError if there is none.
  std::int64_t token(std::string_view text) const;

  std::string name() const override { return "bpe"; }
  std::int64_t size() const override;
  void append(std::string_view text, std::vector<std::int64_t>& tokens) const override;
  std::string decode(std::span<const std::int64_t> tokens) const override;
  std::size_t last_border(std::string_view text) const override;
  std::optional<std::int64_t> end_of_text() const override;  // "<|endoftext|>", if it is a special token
  void visit_state(StateVisitor& visit) override;

 private:
  BpeTokenizer(detail::BpeParts parts, const std::string& name, BpeOptions options);
  void put(detail::BpeParts parts, const std::string& name, const BpeOptions& options);
  const detail::Bpe& bpe() const;

  std::shared_ptr<const detail::Bpe> bpe_;
  bool special_in_text_ = false;
};

}  // namespace composer::data
