#include <algorithm>
#include <queue>
#include <unordered_map>
#include <utility>

#include "composer/data/text/bpe.h"
#include "composer/data/text/pre_tokens.h"

namespace composer::data::detail {
namespace {

class BpeTrainer {
 public:
  BpeTrainer(std::string_view text, SplitRule split) {
    parts_.tokens = byte_tokens();
    parts_.split = split;
    for (std::size_t i = 0; i < parts_.tokens.size(); ++i) numbers_[parts_.tokens[i]] = static_cast<std::int32_t>(i);
    count_words(text, split);
    for (std::size_t word = 0; word < words_.size(); ++word)
      for (std::size_t i = 0; i + 1 < words_[word].tokens.size(); ++i)
        change(words_[word].tokens[i], words_[word].tokens[i + 1], words_[word].count, word);
    for (const auto& [key, pair] : pairs_) queue_.push({pair.count, key});
    changed_.clear();
  }

  BpeParts train(std::int64_t size, std::int64_t least) {
    while (static_cast<std::int64_t>(parts_.tokens.size()) < size && !queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      const auto found = pairs_.find(best.key);
      if (found == pairs_.end() || length_of(best.key) > kLongestBpeToken) continue;
      if (found->second.count != best.count) {  // it has become rarer since
        if (found->second.count > 0) queue_.push({found->second.count, best.key});
        continue;
      }
      if (best.count < least) break;
      merge(best.key);
    }
    return std::move(parts_);
  }

 private:
  struct Word {
    std::vector<std::int32_t> tokens;
    std::int64_t count;
  };
  struct PairCount {
    std::int64_t count = 0;
    std::vector<std::size_t> words = {};  // those that have or had it, some of them twice
  };
  struct Candidate {
    std::int64_t count;
    std::uint64_t key;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : key > other.key;
    }
  };

  void count_words(std::string_view text, SplitRule split) {
    std::unordered_map<std::string_view, std::size_t> known;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = part_end(split, text, at);
      const std::string_view part = text.substr(at, end - at);
      at = end;
      const auto [word, is_new] = known.emplace(part, words_.size());
      if (!is_new) {
        ++words_[word->second].count;
        continue;
      }
      Word& added = words_.emplace_back(Word{{}, 1});
      added.tokens.reserve(part.size());
      for (const char c : part) added.tokens.push_back(numbers_[std::string(1, c)]);
    }
  }

  void change(std::int32_t left, std::int32_t right, std::int64_t by, std::size_t word) {
    const auto key = static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
    PairCount& pair = pairs_[key];
    pair.count += by;
    if (by < 0) return;
    if (pair.words.empty() || pair.words.back() != word) pair.words.push_back(word);
    changed_.push_back(key);
  }

  std::size_t length_of(std::uint64_t key) const {  // in bytes, of both tokens together
    return parts_.tokens[static_cast<std::size_t>(key >> 32)].size() +
           parts_.tokens[static_cast<std::size_t>(key & 0xffffffff)].size();
  }

  void merge(std::uint64_t key) {
    const auto left = static_cast<std::int32_t>(key >> 32), right = static_cast<std::int32_t>(key & 0xffffffff);
    const std::string bytes =
        parts_.tokens[static_cast<std::size_t>(left)] + parts_.tokens[static_cast<std::size_t>(right)];
    const auto [number, is_new] = numbers_.emplace(bytes, static_cast<std::int32_t>(parts_.tokens.size()));
    if (is_new) parts_.tokens.push_back(bytes);
    parts_.merges.push_back({left, right, number->second});
    std::vector<std::size_t> words = std::move(pairs_[key].words);
    std::ranges::sort(words);
    words.erase(std::unique(words.begin(), words.end()), words.end());
    for (const std::size_t word : words) merge_in(word, left, right, number->second);
    pairs_.erase(key);
    std::ranges::sort(changed_);
    changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
    for (const std::uint64_t other : changed_)
      if (const auto found = pairs_.find(other); found != pairs_.end() && found->second.count > 0)
        queue_.push({found->second.count, other});
    changed_.clear();
  }

  void merge_in(std::size_t number, std::int32_t left, std::int32_t right, std::int32_t merged) {
    auto& [tokens, count] = words_[number];
    std::size_t kept = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i + 1 == tokens.size() || tokens[i] != left || tokens[i + 1] != right) {
        tokens[kept++] = tokens[i];
        continue;
      }
      if (kept > 0) {
        change(tokens[kept - 1], left, -count, number);
        change(tokens[kept - 1], merged, count, number);
      }
      if (i + 2 < tokens.size()) {
        change(right, tokens[i + 2], -count, number);
        change(merged, tokens[i + 2], count, number);
      }
      tokens[kept++] = merged;
      ++i;
    }
    tokens.resize(kept);
  }

  BpeParts parts_;
  std::unordered_map<std::string, std::int32_t> numbers_;  // of the tokens
  std::vector<Word> words_;
  std::unordered_map<std::uint64_t, PairCount> pairs_;
  std::priority_queue<Candidate> queue_;
  std::vector<std::uint64_t> changed_;
};

}  // namespace

BpeParts train_bpe(std::string_view text, std::int64_t size, std::int64_t least, SplitRule split) {
  return BpeTrainer(text, split).train(size, std::max<std::int64_t>(least, 1));
}

}  // namespace composer::data::detail
