#include "composer/data/text/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <queue>
#include <utility>

#include "composer/core/error.h"
#include "composer/data/text/pre_tokens.h"
#include "composer/util/random.h"

namespace composer::data::detail {
namespace {

constexpr std::size_t kLongestPart = 16 << 20;  // merging needs 40 times as much memory
constexpr std::size_t kFew = 128;
constexpr std::int32_t kNoRank = std::numeric_limits<std::int32_t>::max();

std::uint64_t key_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

std::size_t place_of(std::uint64_t key) {
  key *= 0x9e3779b97f4a7c15;
  return static_cast<std::size_t>(key ^ (key >> 32));
}

std::size_t place_of(std::uint64_t low, std::uint64_t high, std::size_t length) {
  return place_of(low ^ std::rotl(high * 0xff51afd7ed558ccd, 29) ^ length << 56);
}

// Up to 16 bytes as two numbers, the rest of which is 0.
std::pair<std::uint64_t, std::uint64_t> numbers_at(std::string_view text, std::size_t at, std::size_t length) {
  std::uint64_t two[2] = {0, 0};
  if (at + 16 > text.size()) {
    std::memcpy(two, text.data() + at, length);
    return {two[0], two[1]};
  }
  std::memcpy(two, text.data() + at, 16);
  const auto mask = [](std::size_t bytes) {
    return bytes >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << bytes * 8) - 1;
  };
  return {two[0] & mask(length), length > 8 ? two[1] & mask(length - 8) : 0};
}

}  // namespace

Bpe::Bpe(BpeParts parts, std::string_view name) : parts_(std::move(parts)) {
  check_tokens(name);
  check_special(name);
  add_pairs(name);
  add_whole();
}

void Bpe::check_tokens(std::string_view name) {
  if (parts_.tokens.size() >= static_cast<std::size_t>(kNoRank) / 2) throw DataError(name, ": has too many tokens");
  by_bytes_.reserve(parts_.tokens.size());
  for (std::size_t i = 0; i < parts_.tokens.size(); ++i) {
    const std::string& token = parts_.tokens[i];
    if (token.empty()) continue;
    if (token.size() > kLongestBpeToken)
      throw DataError(name, ": token ", i, " has ", token.size(), " bytes, and ", kLongestBpeToken, " are allowed");
    const auto [found, is_new] = by_bytes_.emplace(token, static_cast<std::int32_t>(i));
    if (!is_new) throw DataError(name, ": tokens ", found->second, " and ", i, " have the same bytes");
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const auto found = by_bytes_.find(std::string_view(&c, 1));
    if (found == by_bytes_.end())
      throw DataError(name, ": has no token for byte ", byte, ", so it is no byte-level encoding, and cannot encode ",
                      "every text");
    bytes_[byte] = found->second;
  }
  size_ = static_cast<std::int64_t>(parts_.tokens.size());
}

void Bpe::check_special(std::string_view name) {
  for (const auto& [text, number] : parts_.special) {
    if (text.empty()) throw DataError(name, ": a special token has no text");
    if (number < 0 || number > kNoRank)
      throw DataError(name, ": special token \"", text, "\" must have a number from 0 to ", kNoRank, ", got ", number);
    const auto at = static_cast<std::size_t>(number);
    if (at < parts_.tokens.size() && !parts_.tokens[at].empty() && parts_.tokens[at] != text)
      throw DataError(name, ": special token \"", text, "\" has the number ", number, ", which another token has");
    if (!special_by_number_.emplace(number, text).second)
      throw DataError(name, ": special tokens \"", special_by_number_[number], "\" and \"", text,
                      "\" have the same number ", number);
    size_ = std::max(size_, number + 1);
  }
}

void Bpe::add_pairs(std::string_view name) {
  const auto room = [this](std::size_t count) { pairs_.resize(std::bit_ceil(2 * count + 2)); };
  if (!parts_.by_rank) {
    room(parts_.merges.size());
    const auto exists = [this](std::int32_t token) {
      return token >= 0 && static_cast<std::size_t>(token) < parts_.tokens.size() &&
             !parts_.tokens[static_cast<std::size_t>(token)].empty();
    };
    std::int32_t rank = 0;
    for (const auto [left, right, merged] : parts_.merges) {
      if (!exists(left) || !exists(right) || !exists(merged) ||
          parts_.tokens[static_cast<std::size_t>(left)] + parts_.tokens[static_cast<std::size_t>(right)] !=
              parts_.tokens[static_cast<std::size_t>(merged)])
        throw DataError(name, ": merge ", rank, " is of tokens that are not there, or do not make what it says");
      if (find_pair(left, right)) throw DataError(name, ": merge ", rank, " is there twice");
      add_pair(left, right, rank++, merged);
    }
    return;
  }
  struct Found {
    std::int32_t left, right, merged;
  };
  std::vector<Found> all;
  for (std::size_t i = 0; i < parts_.tokens.size(); ++i) {
    const std::string_view token = parts_.tokens[i];
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = by_bytes_.find(token.substr(0, cut));
      if (left == by_bytes_.end()) continue;
      if (const auto right = by_bytes_.find(token.substr(cut)); right != by_bytes_.end())
        all.push_back({left->second, right->second, static_cast<std::int32_t>(i)});
    }
  }
  room(all.size());
  for (const auto [left, right, merged] : all) add_pair(left, right, merged, merged);
}

void Bpe::add_pair(std::int32_t left, std::int32_t right, std::int32_t rank, std::int32_t merged) {
  const std::uint64_t key = key_of(left, right);
  std::size_t at = place_of(key) & (pairs_.size() - 1);
  while (pairs_[at].key != ~std::uint64_t{0}) at = (at + 1) & (pairs_.size() - 1);
  pairs_[at] = {key, rank, merged};
}

const Bpe::Pair* Bpe::find_pair(std::int32_t left, std::int32_t right) const {
  const std::uint64_t key = key_of(left, right);
  for (std::size_t at = place_of(key) & (pairs_.size() - 1); pairs_[at].key != ~std::uint64_t{0};
       at = (at + 1) & (pairs_.size() - 1))
    if (pairs_[at].key == key) return &pairs_[at];
  return nullptr;
}

// With ranks, a part of the text that is a token becomes this token. With merges it does so if they lead there.
void Bpe::add_whole() {
  short_.resize(std::bit_ceil(2 * parts_.tokens.size() + 2));
  std::vector<std::int64_t> merged;
  for (std::size_t i = 0; i < parts_.tokens.size(); ++i) {
    const std::string_view token = parts_.tokens[i];
    if (token.empty()) continue;
    const auto number = static_cast<std::int32_t>(i);
    if (!parts_.by_rank) {
      merged.clear();
      merge(token, merged);
      if (merged.size() != 1 || merged[0] != number) continue;
    }
    if (token.size() > 16) {
      long_.emplace(token, number);
      continue;
    }
    const auto [low, high] = numbers_at(token, 0, token.size());
    std::size_t at = place_of(low, high, token.size()) & (short_.size() - 1);
    while (short_[at].length != 0) at = (at + 1) & (short_.size() - 1);
    short_[at] = {low, high, static_cast<std::uint32_t>(token.size()), number};
  }
}

// Returns -1 if there is none.
std::int32_t Bpe::find_whole(std::string_view text, std::size_t from, std::size_t length) const {
  if (length > 16) {
    if (length > kLongestBpeToken) return -1;
    const auto found = long_.find(text.substr(from, length));
    return found == long_.end() ? -1 : found->second;
  }
  const auto [low, high] = numbers_at(text, from, length);
  for (std::size_t at = place_of(low, high, length) & (short_.size() - 1); short_[at].length != 0;
       at = (at + 1) & (short_.size() - 1))
    if (short_[at].low == low && short_[at].high == high && short_[at].length == length) return short_[at].token;
  return -1;
}

std::int64_t Bpe::find(std::string_view bytes) const {
  if (const auto special = parts_.special.find(std::string(bytes)); special != parts_.special.end())
    return special->second;
  const auto found = by_bytes_.find(bytes);
  return found == by_bytes_.end() ? -1 : found->second;
}

void Bpe::encode(std::string_view text, std::vector<std::int64_t>& into, bool finds_special) const {
  if (!finds_special || parts_.special.empty()) return encode_ordinary(text, into);
  struct Next {
    std::size_t at;
    std::string_view token;
    std::int64_t number;
  };
  std::vector<Next> next;
  for (const auto& [token, number] : parts_.special) next.push_back({text.find(token), token, number});
  for (std::size_t at = 0; at < text.size();) {
    for (Next& special : next)
      if (special.at < at) special.at = text.find(special.token, at);
    const auto first = std::ranges::min_element(next, [](const Next& a, const Next& b) {
      return a.at != b.at ? a.at < b.at : a.token.size() > b.token.size();
    });
    const std::size_t end = std::min(first->at, text.size());
    encode_ordinary(text.substr(at, end - at), into);
    if (end == text.size()) return;
    into.push_back(first->number);
    at = end + first->token.size();
  }
}

void Bpe::encode_ordinary(std::string_view text, std::vector<std::int64_t>& into) const {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = part_end(parts_.split, text, at);
    if (const std::int32_t token = find_whole(text, at, end - at); token >= 0) {
      into.push_back(token);
    } else {
      merge(text.substr(at, end - at), into);
    }
    at = end;
  }
}

void Bpe::merge(std::string_view part, std::vector<std::int64_t>& into) const {
  if (part.size() <= kFew) return merge_few(part, into);
  if (part.size() > kLongestPart)
    throw DataError("BpeTokenizer: a word of ", part.size(), " bytes cannot be encoded; a word may have ",
                    kLongestPart);
  merge_many(part, into);
}

void Bpe::merge_few(std::string_view part, std::vector<std::int64_t>& into) const {
  std::int32_t tokens[kFew], ranks[kFew], merged[kFew];  // ranks[i], merged[i]: of tokens i and i + 1
  std::size_t count = part.size();
  const auto look = [&](std::size_t i) {
    const Pair* pair = i + 1 < count ? find_pair(tokens[i], tokens[i + 1]) : nullptr;
    ranks[i] = pair ? pair->rank : kNoRank;
    merged[i] = pair ? pair->merged : 0;
  };
  for (std::size_t i = 0; i < count; ++i) tokens[i] = bytes_[static_cast<unsigned char>(part[i])];
  for (std::size_t i = 0; i < count; ++i) look(i);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i)
      if (ranks[i] < ranks[best]) best = i;
    if (ranks[best] == kNoRank) break;
    tokens[best] = merged[best];
    --count;
    const std::size_t moved = (count - best - 1) * sizeof(std::int32_t);
    std::memmove(tokens + best + 1, tokens + best + 2, moved);
    std::memmove(ranks + best + 1, ranks + best + 2, moved);
    std::memmove(merged + best + 1, merged + best + 2, moved);
    look(best);
    if (best > 0) look(best - 1);
  }
  into.insert(into.end(), tokens, tokens + count);
}

// The same with a queue, because a text of 100,000 letters without a space would take a minute.
void Bpe::merge_many(std::string_view part, std::vector<std::int64_t>& into) const {
  struct Place {
    std::int32_t token, before, after;  // before, after: -1 at the ends
  };
  struct Candidate {
    std::int32_t rank, at, left, right, merged;
    bool operator<(const Candidate& other) const {  // the last one is taken first
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  const auto count = static_cast<std::int32_t>(part.size());
  std::vector<Place> places(part.size());
  for (std::int32_t i = 0; i < count; ++i)
    places[static_cast<std::size_t>(i)] = {bytes_[static_cast<unsigned char>(part[static_cast<std::size_t>(i)])], i - 1,
                                           i + 1 < count ? i + 1 : -1};
  std::priority_queue<Candidate> queue;
  const auto place = [&](std::int32_t at) -> Place& { return places[static_cast<std::size_t>(at)]; };
  const auto add = [&](std::int32_t at) {
    if (at < 0 || place(at).after < 0) return;
    const std::int32_t left = place(at).token, right = place(place(at).after).token;
    if (const Pair* pair = find_pair(left, right)) queue.push({pair->rank, at, left, right, pair->merged});
  };
  for (std::int32_t i = 0; i < count; ++i) add(i);
  while (!queue.empty()) {
    const Candidate next = queue.top();
    queue.pop();
    Place& left = place(next.at);
    if (left.token != next.left || left.after < 0 || place(left.after).token != next.right) continue;
    Place& right = place(left.after);
    left.token = next.merged;
    right.token = -1;
    left.after = right.after;
    if (left.after >= 0) place(left.after).before = next.at;
    add(next.at);
    add(left.before);
  }
  for (std::int32_t at = 0; at >= 0; at = place(at).after) into.push_back(place(at).token);
}

void Bpe::decode(std::span<const std::int64_t> tokens, std::string& into) const {
  for (const std::int64_t token : tokens) {
    const auto at = static_cast<std::size_t>(token);
    if (token >= 0 && at < parts_.tokens.size() && !parts_.tokens[at].empty()) {
      into += parts_.tokens[at];
    } else if (const auto special = special_by_number_.find(token); special != special_by_number_.end()) {
      into += special->second;
    } else {
      throw DataError("BpeTokenizer: no token has the number ", token, "; there are ", size_);
    }
  }
}

}  // namespace composer::data::detail
