#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/state_dict.h"
#include "composer/core/tensors.h"
#include "composer/data/preprocessing.h"

namespace composer::data {

// Turns text into tokens, the numbers 0 to size() - 1, and back. All functions but visit_state() may be called from
// several threads at once.
class COMPOSER_EXPORT Tokenizer {
 public:
  virtual ~Tokenizer();
  virtual std::string name() const = 0;  // "byte", "character" or "bpe"
  virtual std::int64_t size() const = 0;
  // Adds the tokens of the text. Throws DataError for text that has none.
  virtual void append(std::string_view text, std::vector<std::int64_t>& tokens) const = 0;
  // Throws DataError for a number that no token has. A part of a text may begin or end inside of a character.
  virtual std::string decode(std::span<const std::int64_t> tokens) const = 0;
  // The last place at which the text may be divided, so that its parts have the tokens of the whole, whatever follows;
  // 0 if there is none.
  virtual std::size_t last_border(std::string_view text) const = 0;
  // The token that ends a text, if it has one: models::generate() stops at it.
  virtual std::optional<std::int64_t> end_of_text() const;
  virtual void visit_state(StateVisitor& visit) = 0;

  std::vector<std::int64_t> encode(std::string_view text) const;
  // The same, int64 [tokens], on libtorch's threads.
  at::Tensor encode_long(std::string_view text) const;
};

// Each byte is a token: it needs no vocabulary, and encodes every text.
class COMPOSER_EXPORT ByteTokenizer final : public Tokenizer {
 public:
  std::string name() const override { return "byte"; }
  std::int64_t size() const override { return 256; }
  void append(std::string_view text, std::vector<std::int64_t>& tokens) const override;
  std::string decode(std::span<const std::int64_t> tokens) const override;
  std::size_t last_border(std::string_view text) const override { return text.size(); }
  void visit_state(StateVisitor&) override {}
};

struct CharTokenizerOptions {
  std::string unknown = {};  // character for all that are not in the vocabulary; empty: those are errors
};

// Each character of Unicode is a token. The vocabulary is the characters of a text, in the order of their code points.
class COMPOSER_EXPORT CharTokenizer final : public Tokenizer {
 public:
  CharTokenizer() = default;  // without characters, to be loaded
  // Throws DataError for text that is not UTF-8, ConfigError unless `unknown` is one character.
  explicit CharTokenizer(std::string_view text, CharTokenizerOptions options = {});

  std::string name() const override { return "character"; }
  std::int64_t size() const override { return static_cast<std::int64_t>(characters_.size()); }
  void append(std::string_view text, std::vector<std::int64_t>& tokens) const override;
  std::string decode(std::span<const std::int64_t> tokens) const override;
  std::size_t last_border(std::string_view text) const override;
  void visit_state(StateVisitor& visit) override;

 private:
  void fit(std::string_view text, const std::string& unknown);

  std::vector<std::string> characters_;
  std::unordered_map<std::uint32_t, std::int64_t> wide_;  // by the bytes of characters that have several
  std::vector<std::int64_t> ascii_ = std::vector<std::int64_t>(128, -1);
  std::int64_t unknown_ = -1;
};

// A tokenizer as preprocessing that is saved beside the weights. apply() replaces "text" (of text_batch()) by
// "input_ids", int64 [N, T], padded at their end, and "attention_mask", int64 [N, T], which is 1 for tokens and 0 for
// padding.
class COMPOSER_EXPORT Tokens final : public Preprocessing {
 public:
  Tokens() = default;  // without a tokenizer, to be loaded
  explicit Tokens(std::shared_ptr<Tokenizer> tokenizer, std::int64_t max_length = 0, std::int64_t pad = 0);
  std::string name() const override { return "tokens"; }
  Batch apply(const Batch& raw) const override;
  void visit_state(StateVisitor& visit) override;
  const Tokenizer& tokenizer() const;  // throws ConfigError if there is none

 private:
  std::shared_ptr<Tokenizer> tokenizer_;
  std::int64_t max_length_ = 0, pad_ = 0;  // max_length_ 0: texts are not cut off
};

// Texts as tensors: "text", uint8 [N, bytes of the longest], and "text_length", int64 [N].
COMPOSER_EXPORT Batch text_batch(const std::vector<std::string>& texts);

}  // namespace composer::data
