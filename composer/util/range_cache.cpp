#include "composer/util/range_cache.h"

#include <algorithm>
#include <iterator>

namespace composer::util {

RangeCache::RangeCache(std::size_t capacity) {
  index(parts_.emplace(0, Part{.bytes = capacity, .kind = Kind::FRESH, .given = 0}).first);
}

void RangeCache::index(Parts::const_iterator part) {
  const auto& [offset, value] = *part;
  if (value.kind == Kind::FRESH) fresh_by_size_.emplace(value.bytes, offset);
  if (value.kind != Kind::CACHED) return;
  cached_by_size_.emplace(value.bytes, offset);
  cached_by_age_.emplace(value.given, offset);
  cached_ += value.bytes;
}

void RangeCache::unindex(Parts::const_iterator part) {
  const auto& [offset, value] = *part;
  if (value.kind == Kind::FRESH) fresh_by_size_.erase({value.bytes, offset});
  if (value.kind != Kind::CACHED) return;
  cached_by_size_.erase({value.bytes, offset});
  cached_by_age_.erase({value.given, offset});
  cached_ -= value.bytes;
}

// Shortens a part, which must not be in an index, to its first `bytes`, and returns it. The rest becomes a part of the
// same kind.
RangeCache::Parts::iterator RangeCache::cut(Parts::iterator part, std::size_t bytes) {
  unindex(part);
  if (part->second.bytes > bytes) {
    Part rest = part->second;
    rest.bytes -= bytes;
    part->second.bytes = bytes;
    index(parts_.emplace_hint(std::next(part), part->first + bytes, rest));
  }
  return part;
}

// Joins the part, which must not be in an index, with neighbours of the same kind.
void RangeCache::add_free(Parts::iterator part, Kind kind, std::uint64_t given) {
  part->second.kind = kind;
  part->second.given = given;
  if (const auto next = std::next(part); next != parts_.end() && next->second.kind == kind) {
    unindex(next);
    part->second.bytes += next->second.bytes;
    parts_.erase(next);
  }
  if (part != parts_.begin()) {
    if (const auto before = std::prev(part); before->second.kind == kind) {
      unindex(before);
      before->second.bytes += part->second.bytes;
      before->second.given = given;
      parts_.erase(part);
      part = before;
    }
  }
  index(part);
}

// The longest cached range, joined with the fresh memory that follows it, in no index. end(): it is too short.
RangeCache::Parts::iterator RangeCache::grown(std::size_t bytes) {
  if (cached_by_size_.empty()) return parts_.end();
  const auto part = parts_.find(cached_by_size_.rbegin()->second);
  const auto next = std::next(part);
  if (next == parts_.end() || next->second.kind != Kind::FRESH || part->second.bytes + next->second.bytes < bytes)
    return parts_.end();
  unindex(part);
  cut(next, bytes - part->second.bytes);
  part->second.bytes = bytes;
  parts_.erase(next);
  return part;
}

std::optional<std::size_t> RangeCache::take(std::size_t bytes) {
  const auto shortest = [&](const BySize& free) {
    const auto it = free.lower_bound({bytes, 0});
    return it == free.end() ? parts_.end() : cut(parts_.find(it->second), bytes);
  };
  auto part = shortest(cached_by_size_);
  if (part == parts_.end()) part = grown(bytes);
  if (part == parts_.end()) part = shortest(fresh_by_size_);
  if (part == parts_.end()) return std::nullopt;
  part->second.kind = Kind::USED;
  used_ += bytes;
  return part->first;
}

std::size_t RangeCache::bytes_at(std::size_t offset) const { return parts_.find(offset)->second.bytes; }

std::size_t RangeCache::give(std::size_t offset) {
  const auto part = parts_.find(offset);
  const std::size_t bytes = part->second.bytes;
  used_ -= bytes;
  add_free(part, Kind::CACHED, ++clock_);
  return bytes;
}

std::vector<RangeCache::Range> RangeCache::drop(std::size_t keep, std::size_t grain) {
  std::vector<Range> dropped;
  while (cached_ > keep) {
    auto part = parts_.find(cached_by_age_.begin()->second);
    const std::size_t excess = (cached_ - keep + grain - 1) / grain * grain;
    if (excess < part->second.bytes) {  // keep the beginning, release the end
      const std::size_t kept = (part->first + part->second.bytes - excess) / grain * grain;
      if (kept > part->first) {
        cut(part, kept - part->first);
        index(part);
        part = std::next(part);
      }
    }
    unindex(part);
    part->second.kind = Kind::DROPPED;
    dropped.push_back({part->first, part->second.bytes});
  }
  return dropped;
}

void RangeCache::released(const std::vector<Range>& dropped) {
  for (const Range& range : dropped) add_free(parts_.find(range.offset), Kind::FRESH, 0);
}

}  // namespace composer::util
