// Which parts of a stretch of addresses are in use, kept for reuse, or without memory. Internal; calls no system.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace composer::util {

// Divides [0, capacity) into ranges. A range that is given back stays cached: it keeps its memory and joins cached
// neighbours, so that a later one of any size can be cut from it. One thread at a time.
class RangeCache {
 public:
  struct Range {
    std::size_t offset, bytes;
  };

  explicit RangeCache(std::size_t capacity);

  // The offset of a range for use: cut from the shortest cached range that is long enough, else with fresh memory.
  // nullopt: no room.
  std::optional<std::size_t> take(std::size_t bytes);
  // The range that take() gave at this offset becomes cached. Returns its length.
  std::size_t give(std::size_t offset);
  std::size_t bytes_at(std::size_t offset) const;  // of a range in use

  // Takes ranges out of the cache, those that were given first, until at most `keep` bytes are cached. Only whole units
  // of `grain` are cut off a range. The caller releases their memory, then calls released().
  std::vector<Range> drop(std::size_t keep, std::size_t grain);
  void released(const std::vector<Range>& dropped);

  std::size_t used() const { return used_; }
  std::size_t cached() const { return cached_; }

 private:
  enum class Kind : std::uint8_t { USED, CACHED, DROPPED, FRESH };
  struct Part {
    std::size_t bytes;
    Kind kind;
    std::uint64_t given;  // when it became cached; later ones are larger
  };
  using Parts = std::map<std::size_t, Part>;                     // by offset; they follow one another without gaps
  using BySize = std::set<std::pair<std::size_t, std::size_t>>;  // (bytes, offset)

  void index(Parts::const_iterator part);
  void unindex(Parts::const_iterator part);
  Parts::iterator cut(Parts::iterator part, std::size_t bytes);
  void add_free(Parts::iterator part, Kind kind, std::uint64_t given);
  Parts::iterator grown(std::size_t bytes);

  Parts parts_;
  BySize cached_by_size_, fresh_by_size_;
  std::set<std::pair<std::uint64_t, std::size_t>> cached_by_age_;  // (given, offset)
  std::uint64_t clock_ = 0;
  std::size_t used_ = 0, cached_ = 0;
};

}  // namespace composer::util
