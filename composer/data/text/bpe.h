#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "composer/data/text/split_rule.h"

namespace composer::data::detail {

constexpr std::size_t kLongestBpeToken = 1024;  // bytes; a token of tiktoken has 128

// By the names that options and files have for them.
constexpr std::pair<const char*, SplitRule> kSplitRules[] = {{"gpt2", SplitRule::GPT2}, {"cl100k", SplitRule::CL100K}};

// A byte-pair encoding as files describe it.
struct BpeParts {
  struct Merge {
    std::int32_t left, right, merged;
  };
  std::vector<std::string> tokens = {};  // the bytes of each token; empty: no token has this number
  std::vector<Merge> merges = {};        // the first one that is possible is done first
  // Without merges: two tokens are merged if both together are a token, and that of the lowest number is made first.
  bool by_rank = false;
  std::map<std::string, std::int64_t> special = {};  // tokens that merging does not make
  SplitRule split = SplitRule::GPT2;                 // also of files that do not say it
};

// Reads the files of GPT-2: vocab.json (encoder.json) and merges.txt (vocab.bpe). Names are those of the files, for
// errors. Throws DataError.
BpeParts read_gpt2_bpe(std::string_view vocabulary, std::string_view vocabulary_name, std::string_view merges,
                       std::string_view merges_name);
// Reads a file of tiktoken: lines of a token in base64 and its number.
BpeParts read_tiktoken_bpe(std::string_view text, std::string_view name);
std::string vocabulary_json(const BpeParts& parts);
// Its first line tells what the format of GPT-2 has no place for: the rule that divides text, and special tokens. Other
// programs take it for a comment. Throws ConfigError for parts without merges.
std::string merges_text(const BpeParts& parts);

// The 256 bytes as tokens, in the order of GPT-2's vocabulary.
std::vector<std::string> byte_tokens();

// Merges the most frequent pair until there are `size` tokens, or no pair is found `least` times. Of pairs that are
// equally frequent, that of the lower numbers is first. Pairs of more than kLongestBpeToken bytes stay apart.
BpeParts train_bpe(std::string_view text, std::int64_t size, std::int64_t least, SplitRule split);

// Encodes and decodes. Thread-safe.
class Bpe {
 public:
  // Throws DataError, which begins with `name`, for parts that contradict each other.
  Bpe(BpeParts parts, std::string_view name);
  Bpe(const Bpe&) = delete;
  Bpe& operator=(const Bpe&) = delete;

  // Adds the tokens of the text. Special tokens in it are text, unless `finds_special`.
  void encode(std::string_view text, std::vector<std::int64_t>& into, bool finds_special) const;
  // Adds the bytes of the tokens. Throws DataError for a number that no token has.
  void decode(std::span<const std::int64_t> tokens, std::string& into) const;
  std::int64_t size() const { return size_; }
  const BpeParts& parts() const { return parts_; }
  // Returns -1 if there is no such token.
  std::int64_t find(std::string_view bytes) const;

 private:
  struct Pair {
    std::uint64_t key = ~std::uint64_t{0};  // left << 32 | right
    std::int32_t rank = 0, merged = 0;
  };
  struct Short {  // a token of at most 16 bytes
    std::uint64_t low = 0, high = 0;
    std::uint32_t length = 0;  // 0: none
    std::int32_t token = 0;
  };

  void check_tokens(std::string_view name);
  void check_special(std::string_view name);
  void add_pairs(std::string_view name);
  void add_pair(std::int32_t left, std::int32_t right, std::int32_t rank, std::int32_t merged);
  void add_whole();
  const Pair* find_pair(std::int32_t left, std::int32_t right) const;
  std::int32_t find_whole(std::string_view text, std::size_t at, std::size_t length) const;
  void encode_ordinary(std::string_view text, std::vector<std::int64_t>& into) const;
  void merge(std::string_view part, std::vector<std::int64_t>& into) const;
  void merge_few(std::string_view part, std::vector<std::int64_t>& into) const;
  void merge_many(std::string_view part, std::vector<std::int64_t>& into) const;

  BpeParts parts_;
  std::int64_t size_ = 0;
  std::int32_t bytes_[256] = {};
  std::unordered_map<std::string_view, std::int32_t> by_bytes_;  // views of parts_.tokens
  std::map<std::int64_t, std::string_view> special_by_number_;
  // Open addressing, a power of two of places, at most half of them taken.
  std::vector<Pair> pairs_;
  std::vector<Short> short_;                                 // tokens that a part of text may be as a whole
  std::unordered_map<std::string_view, std::int32_t> long_;  // the same of more than 16 bytes
};

}  // namespace composer::data::detail
